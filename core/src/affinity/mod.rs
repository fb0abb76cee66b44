//! Which target has how much of a prompt, and which has a session: one radix tree and one table
//! that serve all targets of a route.
//!
//! A node is a run of bytes; it knows the targets whose prompts need it. One walk from the root
//! tells the matched length of every target, because a target that lacks a node lacks all below
//! it. Each model has a root of its own, so prompts of different models never meet, yet all share
//! the bounds below.
//!
//! Invariants, which the tests check against a trie of single bytes per target:
//! - a target is a holder of a node exactly if one of its prompts ends there or passes through;
//! - no two children of a node begin with the same byte;
//! - a node with a single child ends a prompt or is a root, so beside the roots there are fewer
//!   than two nodes a prompt.

mod found;
mod lessons;
mod node;
mod prompts;
mod sessions;
#[cfg(test)]
mod tests;
mod tree;

pub use found::Match;
pub use lessons::{Moved, Observed};
pub use prompts::PromptRef;
pub use sessions::Sessions;
pub use tree::{Limits, Tree, Usage};

/// A node of the tree, by its place in the slab.
type NodeId = u32;

/// A prompt that a target holds, by its place in the slab.
type PromptId = u32;

/// No node, no prompt.
const NONE: u32 = u32::MAX;
