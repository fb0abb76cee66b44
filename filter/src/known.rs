//! What the sidecar tells of the targets of a request, as the strategies that score take it.

use crate::group::Group;
use crate::host::Envoy;
use fastrand::Rng;
use rolter_core::balance::{Request, Scores};
use rolter_core::kv::MediumWeights;
use rolter_core::kv::mirror::Mirror;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use rolter_core::time::Millis;

/// How much room an `LMCache` may have more than another and count as equal: what it tells is some
/// seconds old.
const ROOM_GRAIN: f64 = 0.05;

/// What is known of targets, by their numbers.
pub(crate) struct Known {
    scores: [Option<f64>; MAX_TARGETS],
    grain: f64,
    ranks: [u16; MAX_TARGETS],
}

impl Known {
    /// How much of a prompt of these tokens the targets have. Without all of the body nothing is
    /// known: neither its salt, nor for which adapter it is.
    pub(crate) fn blocks(
        engines: &Mirror<Envoy>,
        (group, targets): (&Group, TargetSet),
        (request, tokens): (&Request<'_>, Option<&[u8]>),
        weights: &MediumWeights,
        rng: &mut Rng,
    ) -> Self {
        let mut known = Self::nothing();
        let (Some(prompt), Some(tokens)) = (request.prompt, tokens) else {
            return known;
        };
        let apart = (prompt.model.as_deref(), prompt.cache_salt.as_deref());
        let parts = engines.parts(tokens, apart, weights);
        let mut best = 0.0;
        for id in targets.iter() {
            let Some(target) = group.target(id) else {
                continue;
            };
            let Some(stale) = target.kv_stale_millis else {
                continue;
            };
            let (hash, times) = (target.learner.hash, (request.now, stale));
            if let Some(score) = engines.score(hash, &parts, times, rng) {
                known.put(id, score.share, score.rank);
                if score.share > best {
                    (best, known.grain) = (score.share, score.block);
                }
            }
        }
        known
    }

    /// How much room the targets' `LMCache`s have.
    pub(crate) fn room(
        engines: &Mirror<Envoy>,
        (group, targets): (&Group, TargetSet),
        now: Millis,
    ) -> Self {
        let mut known = Self::nothing();
        known.grain = ROOM_GRAIN;
        for id in targets.iter() {
            let Some(target) = group.target(id) else {
                continue;
            };
            let stale = target.lmcache_stale_millis;
            let room = stale.and_then(|stale| engines.room(target.learner.hash, now, stale));
            if let Some(room) = room {
                known.put(id, room, 0);
            }
        }
        known
    }

    pub(crate) fn scores(&self) -> Scores<'_> {
        Scores {
            of: &self.scores,
            grain: self.grain,
        }
    }

    /// The score of a target, and the rank that has it.
    pub(crate) fn of(&self, id: TargetId) -> Option<(f64, u16)> {
        let score = *self.scores.get(id.index())?;
        Some((score?, *self.ranks.get(id.index())?))
    }

    fn nothing() -> Self {
        Self {
            scores: [None; MAX_TARGETS],
            grain: 0.0,
            ranks: [0; MAX_TARGETS],
        }
    }

    fn put(&mut self, id: TargetId, score: f64, rank: u16) {
        let places = (
            self.scores.get_mut(id.index()),
            self.ranks.get_mut(id.index()),
        );
        if let (Some(to_score), Some(to_rank)) = places {
            *to_score = Some(score);
            *to_rank = rank;
        }
    }
}
