//! The strategies that go by what the sidecar tells of the targets: `precise_cache_aware`, by the
//! blocks of the prompt that they have, and `lmcache_aware`, by the room that they have for more.
//!
//! A target of which nothing is known is not preferred for blocks, as it may have none, and counts as
//! having as much room as the others on average.

use super::decision::{Pick, Reason};
use super::guard::{Guard, Margins, Preference};
use super::view::View;
use super::{TargetInfo, by_id};
use crate::kv::MediumWeights;
use crate::target::TargetId;
use fastrand::Rng;

/// The options of `precise_cache_aware`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// How much of the prompt a target must have, and how busy it may be.
    pub margins: Margins,
    /// What a block is worth, by where it is.
    pub weights: MediumWeights,
}

impl Default for Exact {
    fn default() -> Self {
        Self {
            // What is certain to be there is worth having, even where it is little. But the few
            // blocks with which all prompts of a service begin are not worth a busier target: they
            // are computed in no time, and whoever has them would get all that is new.
            margins: Margins {
                threshold: 0.1,
                guard: Guard::default(),
            },
            weights: MediumWeights::default(),
        }
    }
}

/// What a strategy is told of the targets.
#[derive(Clone, Copy, Debug)]
pub struct Scores<'a> {
    /// By the target's number, from 0 to 1; nothing where it is not known.
    pub of: &'a [Option<f64>],
    /// Scores that differ by no more count as equal.
    pub grain: f64,
}

impl Scores<'_> {
    /// A target's score, where it is known.
    pub fn get(&self, target: TargetId) -> Option<f64> {
        *self.of.get(target.index())?
    }
}

/// The rule of `precise_cache_aware`: the least loaded of those that have enough of the prompt's
/// blocks.
///
/// Of equals it is the one that was not picked for longest. What was picked of late may still be at
/// its prompt, which the number of requests does not tell, and prompts that are new everywhere
/// spread over all caches.
pub(super) struct Precise {
    pub(super) exact: Exact,
    /// The number of the last decision for each target, by id.
    turns: Vec<u64>,
    decisions: u64,
}

impl Precise {
    pub(super) fn new(exact: Exact, targets: &[TargetInfo]) -> Self {
        Self {
            exact,
            turns: by_id(targets, 0, |_| 0),
            decisions: 0,
        }
    }

    pub(super) fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        let known = |scores: &Scores<'_>| {
            let mut candidates = view.candidates.iter();
            candidates.any(|target| scores.get(target).is_some())
        };
        let Some(scores) = view.fleet.scores.filter(known) else {
            return neutral(view, rng);
        };
        let Margins { threshold, guard } = self.exact.margins;
        let preference = Preference {
            score: |target| scores.get(target).unwrap_or(0.0),
            enough: threshold,
            grain: scores.grain,
        };
        let turn = |target: TargetId| self.turns.get(target.index()).copied();
        preference.pick(guard, view, turn, rng)
    }

    /// Notes that a target was picked.
    pub(super) fn advance(&mut self, picked: TargetId) {
        self.decisions += 1;
        if let Some(turn) = self.turns.get_mut(picked.index()) {
            *turn = self.decisions;
        }
    }
}

/// The least loaded of those that have most room. One of which nothing is known has as much as the
/// others have on average.
pub(super) fn lmcache(guard: Guard, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
    let Some(scores) = view.fleet.scores else {
        return neutral(view, rng);
    };
    let known = view
        .candidates
        .iter()
        .filter_map(|target| scores.get(target));
    let (count, sum) = known.fold((0.0, 0.0), |(count, sum), score| (count + 1.0, sum + score));
    if count == 0.0 {
        return neutral(view, rng);
    }
    let preference = Preference {
        score: |target| scores.get(target).unwrap_or(sum / count),
        enough: 0.0,
        grain: scores.grain,
    };
    let mut pick = preference.pick(guard, view, |_| (), rng)?;
    if pick.reason == Reason::Affinity {
        pick.reason = Reason::Occupancy;
    }
    Some(pick)
}

/// Nothing is known of anyone.
fn neutral(view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
    let target = view.least_loaded(rng)?;
    let reason = Reason::Unknown;
    Some(Pick { target, reason })
}
