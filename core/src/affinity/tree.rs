//! The radix tree: walking, growing, shrinking.

use super::found::{Match, Place, common_prefix};
use super::node::{NODE_BYTES, Node};
use super::prompts::{PROMPT_BYTES, Prompts};
use super::{NONE, NodeId, PromptId};
use crate::target::{MAX_TARGETS, TargetId, TargetSet};
use crate::time::Millis;
use slab::Slab;
use std::collections::HashMap;

/// The longest name of a model whose prompts are learnt. No engine has a longer one, and clients
/// choose it.
pub(super) const MAX_MODEL_BYTES: usize = 256;

/// What one root takes beside its node: its entry among the roots, in a table that is at least
/// half full, and its name, which is there twice.
const ROOT_BYTES: usize = 2 * size_of::<(Box<[u8]>, NodeId)>() + MAX_MODEL_BYTES;

/// How much a tree may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Distinct bytes of prompts (and of their models' names) that one target may hold; named
    /// after the byte trie of the specification, in which a byte is a node. A longer prompt is held
    /// as far as this goes.
    pub max_nodes: usize,
    /// Memory of the whole tree in bytes, as [`Usage::memory`] tells it. Bounds what `max_nodes`
    /// cannot: very many very short prompts, whose nodes outweigh their bytes.
    pub max_memory: usize,
}

/// What a tree holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Nodes, roots included.
    pub nodes: usize,
    /// Prompts, counted once for each target that was given them.
    pub prompts: usize,
    /// Bytes of text in the nodes, each counted once however many targets hold it.
    pub text: usize,
    /// Estimated memory in bytes, from the sizes and the number of the parts.
    pub memory: usize,
    /// Prompts that had to go since the tree was made, because a limit was reached.
    pub evictions: u64,
}

/// The affinity tree of one route. See the module's documentation.
pub struct Tree {
    pub(super) limits: Limits,
    roots: HashMap<Box<[u8]>, NodeId>,
    pub(super) nodes: Slab<Node>,
    pub(super) prompts: Prompts,
    /// Distinct bytes that each target holds.
    held: Vec<usize>,
    text: usize,
    evictions: u64,
    /// When it was looked for what is older than is to be remembered.
    looked: Millis,
    /// Counts what moves nodes, so that an outdated [`Match`] is recognised.
    pub(super) changes: u64,
}

impl Tree {
    /// An empty tree.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            roots: HashMap::new(),
            nodes: Slab::new(),
            prompts: Prompts::new(),
            held: vec![0; MAX_TARGETS],
            text: 0,
            evictions: 0,
            looked: Millis(0),
            changes: 0,
        }
    }

    /// Walks along the text and tells how much of it every target has. Allocates nothing, and
    /// takes as long as the text, however many prompts there are.
    pub fn find(&self, model: &[u8], text: &[u8]) -> Match {
        let mut found = Match {
            matched: [0; MAX_TARGETS],
            place: None,
            changes: self.changes,
        };
        let Some(&root) = self.roots.get(model) else {
            return found;
        };
        let Some(mut node) = self.node(root) else {
            return found;
        };
        let mut place = Place {
            node: root,
            within: node.label.len(),
            depth: 0,
        };
        let mut rest = text;
        while let Some(id) = rest.first().and_then(|&byte| node.child(byte)) {
            let Some(child) = self.node(id) else { break };
            found.settle(node.holders.without(child.holders), place.depth);
            let common = common_prefix(&child.label, rest);
            place = Place {
                node: id,
                within: common,
                depth: place.depth + common,
            };
            node = child;
            if common < child.label.len() {
                break;
            }
            rest = rest.get(common..).unwrap_or_default();
        }
        found.settle(node.holders, place.depth);
        found.place = Some(place);
        found
    }

    /// How much the tree may hold.
    pub fn limits(&self) -> Limits {
        self.limits
    }

    /// Changes how much the tree may hold. What is too much goes at once.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        for target in TargetSet::first(MAX_TARGETS).iter() {
            self.shrink(target);
        }
    }

    /// Drops all that the target holds, in time proportional to that.
    pub fn forget(&mut self, target: TargetId) {
        while let Some((prompt, node)) = self.prompts.oldest(target) {
            self.remove(prompt, node, target);
        }
    }

    /// Drops what targets were given for the last time longer ago than that, or a little later: a
    /// part of it if it is much, and all targets are looked at only so often.
    pub fn forget_older(&mut self, now: Millis, millis: u64) {
        /// Of one target at once.
        const MOST: usize = 64;
        /// Times in that time.
        const OFTEN: u64 = 32;
        if now.apart(self.looked) < millis / OFTEN {
            return;
        }
        self.looked = now;
        for target in TargetSet::first(MAX_TARGETS).iter() {
            for _ in 0..MOST {
                match self.prompts.oldest(target) {
                    Some((prompt, node)) if self.prompts.is_older(prompt, now, millis) => {
                        self.remove(prompt, node, target);
                    }
                    _ => break,
                }
            }
        }
    }

    /// The distinct bytes that the target holds: how warm it is.
    pub fn held(&self, target: TargetId) -> usize {
        self.held.get(target.index()).copied().unwrap_or(0)
    }

    /// What the tree holds now.
    pub fn usage(&self) -> Usage {
        Usage {
            nodes: self.nodes.len(),
            prompts: self.prompts.len(),
            text: self.text,
            memory: self.memory(),
            evictions: self.evictions,
        }
    }

    /// The node at which the text ends, made where it is not there yet.
    pub(super) fn end_of(&mut self, place: Place, text: &[u8]) -> NodeId {
        let whole = self
            .node(place.node)
            .is_none_or(|node| place.within >= node.label.len());
        let above = if whole {
            place.node
        } else {
            self.split(place.node, place.within)
        };
        match text.get(place.depth..) {
            Some(rest) if !rest.is_empty() => self.add_leaf(above, rest),
            _ => above,
        }
    }

    pub(super) fn add_root(&mut self, model: &[u8]) -> Place {
        let root = self.add_node(model, NONE);
        self.roots.insert(model.into(), root);
        Place {
            node: root,
            within: model.len(),
            depth: 0,
        }
    }

    fn add_leaf(&mut self, parent: NodeId, label: &[u8]) -> NodeId {
        let leaf = self.add_node(label, parent);
        if let (Some(&first), Some(node)) = (label.first(), self.node_mut(parent)) {
            node.set_child(first, leaf);
        }
        leaf
    }

    fn add_node(&mut self, label: &[u8], parent: NodeId) -> NodeId {
        self.changes += 1;
        self.text += label.len();
        let id = self.nodes.insert(Node {
            label: label.into(),
            parent,
            children: Vec::new(),
            holders: TargetSet::EMPTY,
            prompts: NONE,
        });
        NodeId::try_from(id).unwrap_or(NONE)
    }

    /// Cuts a node's label in two and returns the new node, which has the first part.
    fn split(&mut self, id: NodeId, at: usize) -> NodeId {
        let Some(node) = self.node_mut(id) else {
            return id;
        };
        let (Some((head, tail)), parent, holders) =
            (node.label.split_at_checked(at), node.parent, node.holders)
        else {
            return id;
        };
        let (head, tail): (Box<[u8]>, Box<[u8]>) = (head.into(), tail.into());
        let (Some(&first), Some(&second)) = (head.first(), tail.first()) else {
            return id;
        };
        node.label = tail;
        self.text -= head.len();
        let upper = self.add_node(&head, parent);
        if let Some(node) = self.node_mut(id) {
            node.parent = upper;
        }
        if let Some(node) = self.node_mut(upper) {
            node.holders = holders;
            node.children.push((second, id));
        }
        if let Some(node) = self.node_mut(parent) {
            node.set_child(first, upper);
        }
        upper
    }

    /// Makes the target a holder of a node and of all above it, as far as it is none yet.
    pub(super) fn hold(&mut self, end: NodeId, target: TargetId) {
        let mut gained = 0;
        let mut id = end;
        while let Some(node) = self.node_mut(id)
            && !node.holders.contains(target)
        {
            node.holders.insert(target);
            gained += node.label.len();
            id = node.parent;
        }
        if let Some(held) = self.held.get_mut(target.index()) {
            *held += gained;
        }
    }

    /// Evicts until the target, and the tree with it, are within the limits.
    pub(super) fn shrink(&mut self, target: TargetId) {
        while self.held(target) > self.limits.max_nodes && self.evict_oldest(target) {}
        while self.memory() > self.limits.max_memory {
            // Room that was made for many short prompts is not given back when they go, and evicting
            // the long ones that came later would only make more of it.
            if self.idle_memory() > self.limits.max_memory / 2 {
                self.start_over();
            } else if !self.evict_from_fullest() {
                break;
            }
        }
    }

    /// Drops everything, and the room that it took.
    fn start_over(&mut self) {
        self.evictions += self.prompts.len() as u64;
        self.changes += 1;
        self.roots = HashMap::new();
        self.nodes = Slab::new();
        self.prompts.start_over();
        self.held.fill(0);
        self.text = 0;
    }

    fn evict_oldest(&mut self, target: TargetId) -> bool {
        let oldest = self.prompts.oldest(target);
        if let Some((prompt, node)) = oldest {
            self.remove(prompt, node, target);
            self.evictions += 1;
        }
        oldest.is_some()
    }

    /// Evicts from the target with the most prompts: what fills the memory before `max_nodes` does
    /// are many short ones, and whoever was given them pays.
    fn evict_from_fullest(&mut self) -> bool {
        let fullest = self.prompts.fullest();
        fullest.is_some_and(|target| self.evict_oldest(target))
    }

    /// Removes a target's prompt that ends at `end`, and the target from what only this prompt
    /// needed.
    pub(super) fn remove(&mut self, prompt: PromptId, end: NodeId, target: TargetId) {
        if let Some(node) = self.nodes.get_mut(end as usize) {
            self.prompts.remove(prompt, &mut node.prompts);
        }
        let mut lost = 0;
        let mut lowest_left = None;
        let mut id = end;
        while let Some(node) = self.node(id)
            && !self.needs(node, target)
        {
            lost += node.label.len();
            let parent = node.parent;
            if let Some(node) = self.node_mut(id) {
                node.holders.remove(target);
                if node.holders.is_empty() {
                    self.drop_node(id);
                } else {
                    lowest_left = lowest_left.or(Some(id));
                }
            }
            id = parent;
        }
        if let Some(held) = self.held.get_mut(target.index()) {
            *held -= lost;
        }
        self.join(lowest_left.unwrap_or(id));
    }

    /// Whether one of the target's prompts ends at the node or passes through it.
    fn needs(&self, node: &Node, target: TargetId) -> bool {
        self.prompts.find(node.prompts, target).is_some()
            || node
                .children
                .iter()
                .filter_map(|&(_, child)| self.node(child))
                .any(|child| child.holders.contains(target))
    }

    fn drop_node(&mut self, id: NodeId) {
        let Some(node) = self.nodes.try_remove(id as usize) else {
            return;
        };
        self.changes += 1;
        self.text -= node.label.len();
        match self.node_mut(node.parent) {
            Some(parent) => parent.remove_child(id),
            None => {
                self.roots.remove(&node.label);
            }
        }
    }

    /// Joins a node with its only child where nothing ends between them. Without this a prefix that
    /// outlives many prompts would end as a chain of tiny nodes.
    fn join(&mut self, id: NodeId) {
        let Some(&Node {
            parent,
            prompts: NONE,
            ref label,
            ref children,
            ..
        }) = self.node(id)
        else {
            return;
        };
        let &[(_, only)] = children.as_slice() else {
            return;
        };
        let (Some(&first), Some(child)) = (label.first(), self.node(only)) else {
            return;
        };
        if parent == NONE {
            return;
        }
        let joined = [&**label, &*child.label].concat().into_boxed_slice();
        self.changes += 1;
        self.nodes.try_remove(id as usize);
        if let Some(child) = self.node_mut(only) {
            child.label = joined;
            child.parent = parent;
        }
        if let Some(parent) = self.node_mut(parent) {
            parent.set_child(first, only);
        }
    }

    fn memory(&self) -> usize {
        self.text
            + self.roots.len() * ROOT_BYTES
            + self.nodes.len() * NODE_BYTES
            + self.prompts.len() * PROMPT_BYTES
            + self.idle_memory()
    }

    /// What the slabs really take, entries and room for more.
    #[cfg(test)]
    pub(super) fn reserved_bytes(&self) -> usize {
        self.nodes.capacity() * (size_of::<Node>() + size_of::<usize>())
            + self.prompts.capacity() * PROMPT_BYTES / 2
    }

    /// What the slabs take beyond what their entries are counted for. Slabs double as they grow,
    /// which is in those counts, and never shrink.
    fn idle_memory(&self) -> usize {
        let idle = |capacity: usize, len: usize| (capacity / 2).saturating_sub(len);
        idle(self.nodes.capacity(), self.nodes.len()) * NODE_BYTES
            + idle(self.prompts.capacity(), self.prompts.len()) * PROMPT_BYTES
    }

    pub(super) fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id as usize)
    }

    fn node_mut(&mut self, id: NodeId) -> Option<&mut Node> {
        self.nodes.get_mut(id as usize)
    }
}
