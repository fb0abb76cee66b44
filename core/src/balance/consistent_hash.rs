//! `consistent_hash`: each session, and without one each prompt, has its target.
//!
//! Rendezvous hashing: of all candidates the one wins whose hash with the key is highest. A key
//! moves only where its own target goes, or where a new one wins it, whatever else changes.

use super::decision::{Followers, Pick, Reason};
use super::few::Few;
use super::view::{Request, View};
use super::{TargetInfo, by_id};
use crate::target::TargetId;
use fastrand::Rng;
use std::cmp::Reverse;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Hashes of the targets' names, by target.
pub(super) struct ConsistentHash {
    seeds: Vec<u64>,
}

impl ConsistentHash {
    pub(super) fn new(targets: &[TargetInfo]) -> Self {
        Self {
            seeds: by_id(targets, 0, |target| target.seed),
        }
    }

    pub(super) fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        let (target, reason) = match key(&view.lookup.request) {
            None => (view.least_loaded(rng)?, Reason::NoPrompt),
            Some(key) => (self.highest(key, 1, view, rng).first()?, Reason::Hash),
        };
        Some(Pick::new(target, reason))
    }

    pub(super) fn rank(&self, view: &View<'_>, count: usize, rng: &mut Rng) -> Followers {
        match key(&view.lookup.request) {
            None => view.rank_by_load(count, rng),
            Some(key) => self.highest(key, count, view, rng).iter().collect(),
        }
    }

    /// The candidates whose hashes with the key are highest.
    fn highest(&self, key: u64, count: usize, view: &View<'_>, rng: &mut Rng) -> Few<Reverse<u64>> {
        let key = key.to_le_bytes();
        let hash = |target| Reverse(xxh3_64_with_seed(&key, self.seed(target)));
        Few::of(view.candidates, count, hash, rng)
    }

    fn seed(&self, target: TargetId) -> u64 {
        self.seeds.get(target.index()).copied().unwrap_or(0)
    }
}

/// What is to stay on one target. The whole prompt's digest, not the bounded text: requests that
/// share a long beginning still spread. The same prompt for another model is another key, as its
/// cache is another.
fn key(request: &Request<'_>) -> Option<u64> {
    let of_prompt = || {
        let digest = request.prompt?.digest;
        Some(xxh3_64_with_seed(request.model(), digest))
    };
    request.session.or_else(of_prompt)
}
