//! The prompts that the targets hold: for each target in the order of their insertion, for each
//! node the ones that end there.

use super::{NONE, NodeId, PromptId};
use crate::target::TargetId;
use slab::Slab;

/// That `target` was given the prompt that ends at `node`.
struct Prompt {
    node: NodeId,
    target: TargetId,
    /// Neighbours in the target's order of insertion.
    older: PromptId,
    newer: PromptId,
    /// Another target's prompt that ends at the same node.
    next_at_node: PromptId,
}

/// A target's prompts, oldest to newest.
#[derive(Clone, Copy)]
struct Queue {
    oldest: PromptId,
    newest: PromptId,
    length: usize,
}

/// All prompts of all targets, in one slab linked both ways.
pub(super) struct Prompts {
    slab: Slab<Prompt>,
    queues: Vec<Queue>,
}

/// What one prompt takes in the slab, which has up to twice the room it needs.
pub(super) const PROMPT_BYTES: usize = 2 * (size_of::<Prompt>() + size_of::<usize>());

impl Prompts {
    pub(super) fn new(targets: usize) -> Self {
        Self {
            slab: Slab::new(),
            queues: vec![
                Queue {
                    oldest: NONE,
                    newest: NONE,
                    length: 0,
                };
                targets
            ],
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The target with the most prompts.
    pub(super) fn fullest(&self) -> Option<TargetId> {
        let targets = (0..).map(TargetId).zip(&self.queues);
        targets
            .max_by_key(|(_, queue)| queue.length)
            .map(|(target, _)| target)
    }

    /// The node at which the target's least recently inserted prompt ends.
    pub(super) fn oldest(&self, target: TargetId) -> Option<(PromptId, NodeId)> {
        let id = self.queues.get(target.index())?.oldest;
        Some((id, self.get(id)?.node))
    }

    /// The target's prompt among those that end at a node, `first` being the first of them.
    pub(super) fn find(&self, first: PromptId, target: TargetId) -> Option<PromptId> {
        let mut id = first;
        while let Some(prompt) = self.get(id) {
            if prompt.target == target {
                return Some(id);
            }
            id = prompt.next_at_node;
        }
        None
    }

    /// Adds the target's newest prompt, at the head of the list of its node.
    pub(super) fn insert(&mut self, target: TargetId, node: NodeId, first: &mut PromptId) {
        let id = self.slab.insert(Prompt {
            node,
            target,
            older: NONE,
            newer: NONE,
            next_at_node: *first,
        });
        *first = PromptId::try_from(id).unwrap_or(NONE);
        self.push_newest(*first, target);
    }

    /// Makes a prompt its target's newest.
    pub(super) fn renew(&mut self, id: PromptId) {
        if let Some(target) = self.get(id).map(|prompt| prompt.target) {
            self.unlink(id);
            self.push_newest(id, target);
        }
    }

    /// Removes a prompt, from the list that begins with `first` as well.
    pub(super) fn remove(&mut self, id: PromptId, first: &mut PromptId) {
        self.unlink(id);
        let Some(removed) = self.slab.try_remove(id as usize) else {
            return;
        };
        if *first == id {
            *first = removed.next_at_node;
            return;
        }
        let mut at = *first;
        while let Some(prompt) = self.slab.get_mut(at as usize) {
            if prompt.next_at_node == id {
                prompt.next_at_node = removed.next_at_node;
                return;
            }
            at = prompt.next_at_node;
        }
    }

    fn get(&self, id: PromptId) -> Option<&Prompt> {
        self.slab.get(id as usize)
    }

    fn push_newest(&mut self, id: PromptId, target: TargetId) {
        let Some(queue) = self.queues.get_mut(target.index()) else {
            return;
        };
        queue.length += 1;
        let before = std::mem::replace(&mut queue.newest, id);
        if before == NONE {
            queue.oldest = id;
        }
        if let Some(prompt) = self.slab.get_mut(id as usize) {
            prompt.older = before;
            prompt.newer = NONE;
        }
        if let Some(before) = self.slab.get_mut(before as usize) {
            before.newer = id;
        }
    }

    fn unlink(&mut self, id: PromptId) {
        let Some(&Prompt {
            target,
            older,
            newer,
            ..
        }) = self.get(id)
        else {
            return;
        };
        if let Some(older) = self.slab.get_mut(older as usize) {
            older.newer = newer;
        }
        if let Some(newer) = self.slab.get_mut(newer as usize) {
            newer.older = older;
        }
        if let Some(queue) = self.queues.get_mut(target.index()) {
            queue.length -= 1;
            if queue.oldest == id {
                queue.oldest = newer;
            }
            if queue.newest == id {
                queue.newest = older;
            }
        }
    }
}
