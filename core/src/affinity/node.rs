//! A node of the tree: a run of bytes, who holds it, and what follows.

use super::{NodeId, PromptId};
use crate::target::TargetSet;

pub(super) struct Node {
    pub(super) label: Box<[u8]>,
    pub(super) parent: NodeId,
    /// By the first byte of their labels, ascending.
    pub(super) children: Vec<(u8, NodeId)>,
    pub(super) holders: TargetSet,
    /// The first of the prompts that end here.
    pub(super) prompts: PromptId,
}

/// What one node takes beside its label: its entry in the slab, its entry in its parent's
/// children, both in buffers that have up to twice the room they need, and the allocator's share
/// of two allocations.
pub(super) const NODE_BYTES: usize = 2
    * (size_of::<Node>() + size_of::<usize>() + size_of::<(u8, NodeId)>())
    + 4 * size_of::<usize>();

impl Node {
    pub(super) fn child(&self, first: u8) -> Option<NodeId> {
        self.place_of(first)
            .ok()
            .and_then(|at| self.children.get(at))
            .map(|&(_, id)| id)
    }

    /// Sets the child whose label begins with a byte.
    pub(super) fn set_child(&mut self, first: u8, id: NodeId) {
        match self.place_of(first) {
            Ok(at) => {
                if let Some(child) = self.children.get_mut(at) {
                    child.1 = id;
                }
            }
            Err(at) => self.children.insert(at, (first, id)),
        }
    }

    /// Removes a child, and room that many of them needed once.
    pub(super) fn remove_child(&mut self, id: NodeId) {
        self.children.retain(|&(_, child)| child != id);
        if self.children.capacity() > 4 * self.children.len() {
            self.children.shrink_to(2 * self.children.len());
        }
    }

    fn place_of(&self, first: u8) -> Result<usize, usize> {
        self.children
            .binary_search_by_key(&first, |&(byte, _)| byte)
    }
}
