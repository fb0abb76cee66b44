//! What a walk along a text finds, and the comparison that it is made of.

use super::NodeId;
use crate::target::{MAX_TARGETS, TargetId, TargetSet};

/// How much of a text each target has, and where in the tree that was seen.
#[derive(Clone, Debug)]
pub struct Match {
    pub(super) matched: [u32; MAX_TARGETS],
    pub(super) place: Option<Place>,
    /// The tree's changes when this was found: after further ones the place may be gone.
    pub(super) changes: u64,
}

/// Where a walk ended: `within` bytes into the label of `node`, `depth` bytes into the text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) within: usize,
    pub(super) depth: usize,
}

impl Match {
    /// The leading bytes of the text that the target has.
    pub fn len(&self, target: TargetId) -> usize {
        self.matched
            .get(target.index())
            .map_or(0, |&len| len as usize)
    }

    /// Notes that these targets have the text up to `depth` and no further.
    pub(super) fn settle(&mut self, targets: TargetSet, depth: usize) {
        for target in targets.iter() {
            if let Some(matched) = self.matched.get_mut(target.index()) {
                *matched = clamp(depth);
            }
        }
    }
}

pub(super) fn clamp(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// How many leading bytes are the same. In blocks of machine words: in wasm `memcmp` goes byte by
/// byte.
pub(super) fn common_prefix(a: &[u8], b: &[u8]) -> usize {
    const BLOCK: usize = 32;
    let same = |a: &[u8; BLOCK], b: &[u8; BLOCK]| {
        let (a, b) = (a.as_chunks().0.iter(), b.as_chunks().0.iter());
        a.zip(b).fold(0, |difference, (&a, &b)| {
            difference | (u64::from_ne_bytes(a) ^ u64::from_ne_bytes(b))
        }) == 0
    };
    let (blocks_a, blocks_b) = (a.as_chunks().0.iter(), b.as_chunks().0.iter());
    let blocks = blocks_a
        .zip(blocks_b)
        .take_while(|(a, b)| same(a, b))
        .count();
    let rest = a.iter().zip(b).skip(blocks * BLOCK);
    blocks * BLOCK + rest.take_while(|(a, b)| a == b).count()
}
