//! Where a request costs least: the rule that the strategies of affinity share.
//!
//! What a request costs at a target is told in tokens of prompts: those that the target has to
//! compute before, and those of its own that the target does not have. The latter weigh several
//! times as much. A token that is computed where another target has it takes room in the cache from
//! one that will be asked for again, there and whenever that one is computed anew; so whoever goes
//! by the queue alone fills all caches with the same.
//!
//! A prefix that is asked for more often than one target can answer is copied all the same, and
//! before anybody waits long: see [`COPY_AFTER`].

use super::decision::{MAX_FOLLOWERS, Pick, Reason};
use super::few::Few;
use super::guard::Margins;
use super::view::View;
use crate::target::TargetId;
use fastrand::Rng;

/// What a request in flight counts for, in tokens: it shares the engine's steps with the prompts
/// that are computed there.
const IN_FLIGHT_TOKENS: f64 = 16.0;

/// A prefix is copied to a target that is less busy when the requests for it have waited for that
/// many times the tokens of the copy, on average, longer than they would have there. Each request is
/// the one that makes the copy by chance, as probable as its own part of that: nothing has to be
/// counted, and all workers together do what one would. From simulation: with half as much, caches of
/// which each is full of what the others have answer one in a hundred requests less from what they
/// hold; with twice as much, engines without a copy idle while those with it queue.
const COPY_AFTER: f64 = 128.0;

/// What a request costs at each of some candidates.
pub(super) struct Costs<'a, F> {
    pub(super) margins: Margins,
    pub(super) view: &'a View<'a>,
    /// The prompt's tokens.
    pub(super) tokens: f64,
    /// The share of them that a target has, from 0 to 1.
    pub(super) share: F,
}

impl<F: Fn(TargetId) -> f64> Costs<'_, F> {
    /// The candidate at which the request costs least, unless too many requests are there, and behind
    /// it the others by what it costs there. What costs the same is decided by `tie`, the lowest first.
    pub(super) fn pick<K: PartialOrd>(
        &self,
        tie: impl Fn(TargetId) -> K,
        rng: &mut Rng,
    ) -> Option<Pick> {
        let view = self.view;
        // The one that is picked may be another one.
        let mut cheapest = Few::new(1 + MAX_FOLLOWERS);
        let mut least_pending = Few::new(1);
        let mut least_loaded = Few::new(1);
        let mut most = 0.0;
        for target in view.candidates.iter() {
            let known = self.known(target);
            cheapest.offer(target, (self.cost(target, known), tie(target)), rng);
            least_pending.offer(target, (view.pending(target), view.load(target)), rng);
            least_loaded.offer(target, (view.load(target), tie(target)), rng);
            most = f64::max(most, known);
        }
        let mut target = cheapest.first()?;
        if let Some(idle) = least_pending.first()
            && self.is_worth_a_copy(target, idle, rng)
        {
            target = idle;
        }
        if let Some(least) = least_loaded.first()
            && (self.margins.guard).is_exceeded(view.load(target), view.load(least))
        {
            target = least;
        }
        let reason = match self.known(target) {
            _ if most == 0.0 => Reason::Miss,
            known if known < most => Reason::Spill,
            _ => Reason::Affinity,
        };
        let others = cheapest.iter().filter(|&other| other != target);
        Some(Pick {
            target,
            reason,
            followers: Some(others.collect()),
        })
    }

    /// The tokens that the target would have to compute.
    pub(super) fn missing(&self, target: TargetId) -> f64 {
        self.tokens - self.known(target)
    }

    /// The tokens that the target has, where these are enough of all.
    fn known(&self, target: TargetId) -> f64 {
        let share = (self.share)(target).clamp(0.0, 1.0);
        if share >= self.margins.threshold {
            share * self.tokens
        } else {
            0.0
        }
    }

    fn cost(&self, target: TargetId, known: f64) -> f64 {
        self.view.pending(target)
            + self.margins.miss_weight * (self.tokens - known)
            + IN_FLIGHT_TOKENS * f64::from(self.view.load(target))
    }

    fn is_worth_a_copy(&self, from: TargetId, to: TargetId, rng: &mut Rng) -> bool {
        let copy = self.known(from) - self.known(to);
        let wait = self.view.pending(from) - self.view.pending(to);
        copy > 0.0 && wait > 0.0 && rng.f64() * COPY_AFTER * copy < wait
    }
}
