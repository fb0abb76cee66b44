//! Preferring the targets that suit a request best, within a guard on their load: the rule that the
//! strategies of affinity share.

use super::decision::{Followers, Pick, Reason};
use super::few::Few;
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
    /// The share of the prompt, 0 to 1, that a target must have for that to count.
    pub threshold: f64,
    /// What a token counts that the target would have to compute, against one that it has to compute
    /// before: 1 goes by the time to the first token of this request alone, more also by what the
    /// tokens of others that it displaces will cost.
    pub miss_weight: f64,
    /// How many requests it may have.
    pub guard: Guard,
}

impl Default for Margins {
    /// Those of `cache_aware`, which has to guess. The weight of a miss is from simulation beside other
    /// routers: with 4 a trace finds a twentieth less in caches than with 12, which is as much as with
    /// a router that never moves a prompt; with more, requests wait longer for no more than that.
    fn default() -> Self {
        Self {
            threshold: 0.5,
            miss_weight: 12.0,
            guard: Guard::WIDE,
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
    /// For strategies that know what is to be computed: for what that does not tell, long answers above
    /// all. In simulation 4 costs hits, and more than 8 changes nothing.
    pub(super) const WIDE: Self = Self {
        balance_abs: 8,
        balance_rel: 1.5,
    };

    /// Whether a target is too far ahead of the least load, by both margins.
    pub(super) fn is_exceeded(self, load: u32, least: u32) -> bool {
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
        let leading = self.leading(1, view, tie, rng);
        let least_loaded = leading.all.first()?;
        Some(choose(guard, view, leading.preferred.first(), least_loaded))
    }

    /// The candidates that would be picked one after another, if what makes a candidate preferred
    /// stayed as it is: as many as asked for.
    pub(super) fn rank<K: PartialOrd>(
        &self,
        guard: Guard,
        view: &View<'_>,
        tie: impl Fn(TargetId) -> K,
        count: usize,
        rng: &mut Rng,
    ) -> Followers {
        let mut view = *view;
        let mut followers = Followers::NONE;
        loop {
            let left = count.saturating_sub(followers.as_slice().len());
            let Leading { all, preferred } = self.leading(left, &view, &tie, rng);
            loop {
                let is_left = |target: &TargetId| view.candidates.contains(*target);
                let warm = preferred.iter().find(is_left);
                let least_loaded = all.iter().find(is_left);
                let Some(least_loaded) =
                    least_loaded.filter(|_| followers.as_slice().len() < count)
                else {
                    return followers;
                };
                if warm.is_none() && preferred.first().is_some() {
                    // They are used up, and others may be preferred now.
                    break;
                }
                let Pick { target, .. } = choose(guard, &view, warm, least_loaded);
                view.candidates.remove(target);
                followers.push(target);
            }
        }
    }

    /// The least loaded of all candidates and of those that are preferred, in two passes.
    fn leading<K: PartialOrd>(
        &self,
        count: usize,
        view: &View<'_>,
        tie: impl Fn(TargetId) -> K,
        rng: &mut Rng,
    ) -> Leading<(u32, K)> {
        let key = |target| (view.load(target), tie(target));
        let mut all = Few::new(count);
        let mut best = 0.0;
        for target in view.candidates.iter() {
            all.offer(target, key(target), rng);
            best = f64::max(best, (self.score)(target));
        }
        let mut preferred = Few::new(count);
        if self.is_enough(best) {
            for target in view.candidates.iter() {
                let score = (self.score)(target);
                if self.is_enough(score) && score + self.grain >= best {
                    preferred.offer(target, key(target), rng);
                }
            }
        }
        Leading { all, preferred }
    }

    fn is_enough(&self, score: f64) -> bool {
        score > 0.0 && score >= self.enough
    }
}

/// The least loaded candidates, least first.
struct Leading<K> {
    all: Few<K>,
    preferred: Few<K>,
}

/// The preferred one, unless it is too busy.
fn choose(guard: Guard, view: &View<'_>, warm: Option<TargetId>, least_loaded: TargetId) -> Pick {
    let (target, reason) = match warm {
        None => (least_loaded, Reason::Miss),
        Some(warm) if guard.is_exceeded(view.load(warm), view.load(least_loaded)) => {
            (least_loaded, Reason::Spill)
        }
        Some(warm) => (warm, Reason::Affinity),
    };
    Pick::new(target, reason)
}
