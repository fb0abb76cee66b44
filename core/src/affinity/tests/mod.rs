//! What the tests of this module share.

mod lessons;
mod sessions;
mod tree;

use super::{Limits, Observed, Tree};
use crate::target::TargetId;
use crate::time::Millis;

const NO_LIMITS: Limits = Limits {
    max_nodes: usize::MAX,
    max_memory: usize::MAX,
};
const A: TargetId = TargetId(0);
const B: TargetId = TargetId(1);

fn tree(max_nodes: usize) -> Tree {
    let limits = Limits {
        max_nodes,
        ..NO_LIMITS
    };
    Tree::new(limits)
}

fn observe(tree: &mut Tree, text: &str, target: TargetId) {
    observe_at(tree, text, target, 0);
}

fn observe_at(tree: &mut Tree, text: &str, target: TargetId, at: u64) -> Observed {
    let found = tree.find(b"m", text.as_bytes());
    tree.observe(b"m", text.as_bytes(), target, &found, Millis(at))
}

fn matched(tree: &Tree, text: &str, target: TargetId) -> usize {
    tree.find(b"m", text.as_bytes()).len(target)
}
