//! Preferring the targets that suit a request best, within a guard on their load: the rule that the
//! strategies of affinity share.

use super::decision::{Pick, Reason};
use super::least_load::least;
use super::view::View;
use crate::target::TargetId;
use fastrand::Rng;

/// How far ahead of the least load a preferred target may be. It is passed over only where both
/// margins are exceeded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guard {
    /// How many requests it may be ahead.
    pub balance_abs: u32,
    /// How many times the least load its load may be.
    pub balance_rel: f64,
}

/// The margins of a strategy that prefers who has the prompt.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// The share of the prompt, 0 to 1, that a target must have to be preferred for it.
    pub threshold: f64,
    /// How busy it may be.
    pub guard: Guard,
}

impl Default for Margins {
    /// Those of `cache_aware`, which has to guess.
    fn default() -> Self {
        Self {
            threshold: 0.5,
            guard: Guard::default(),
        }
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self {
            balance_abs: 2,
            balance_rel: 1.5,
        }
    }
}

impl Guard {
    /// Whether a target is too far ahead of the least load, by both margins.
    fn is_exceeded(self, load: u32, least: u32) -> bool {
        load.saturating_sub(least) > self.balance_abs
            && f64::from(load) > self.balance_rel * f64::from(least)
    }
}

/// What makes a target preferred: a score in some unit.
pub(super) struct Preference<S> {
    /// The score of a candidate.
    pub(super) score: S,
    /// The score that it must have, which is above zero in any case.
    pub(super) enough: f64,
    /// Scores that differ by no more count as equal.
    pub(super) grain: f64,
}

impl<S: Fn(TargetId) -> f64> Preference<S> {
    /// The least loaded of the preferred candidates, or of all where there are none or where that
    /// one is too busy. Equal loads are decided by `tie`, the lowest first.
    pub(super) fn pick<K: PartialOrd>(
        &self,
        guard: Guard,
        view: &View<'_>,
        tie: impl Fn(TargetId) -> K,
        rng: &mut Rng,
    ) -> Option<Pick> {
        let key = |target| (view.load(target), tie(target));
        let least_loaded = least(view.candidates, key, rng)?;
        let best = view.candidates.iter().map(&self.score);
        let best = best.fold(0.0, f64::max);
        let preferred = view.candidates.iter().filter(|&target| {
            let score = (self.score)(target);
            self.is_enough(score) && score + self.grain >= best
        });
        let (target, reason) = match least(preferred.collect(), key, rng) {
            None => (least_loaded, Reason::Miss),
            Some(warm) if guard.is_exceeded(view.load(warm), view.load(least_loaded)) => {
                (least_loaded, Reason::Spill)
            }
            Some(warm) => (warm, Reason::Affinity),
        };
        Some(Pick { target, reason })
    }

    fn is_enough(&self, score: f64) -> bool {
        score > 0.0 && score >= self.enough
    }
}
