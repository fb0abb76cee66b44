//! `weighted`: the targets in turn, as often as their weights say, each one's turns spread evenly.
//!
//! Each turn gives every candidate its share of one turn as credit, and whoever has most pays the
//! turn. All credit together stays zero, so none can pile up; a target that is no candidate for a
//! while neither gains nor loses, and is not flooded when it is back.

use super::least_load::least;
use super::{TargetInfo, by_id};
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;
use std::cmp::Reverse;

/// One turn. Shares are parts of it, rounded down to one in four billion, in integers so that
/// equal shares stay equal.
const TURN: u64 = 1 << 32;

/// Weights and credit, by target.
pub(super) struct Weighted {
    weights: Vec<u32>,
    credit: Vec<i64>,
}

impl Weighted {
    pub(super) fn new(targets: &[TargetInfo]) -> Self {
        let weights = by_id(targets, 1, |target| target.weight.max(1));
        Self {
            credit: vec![0; weights.len()],
            weights,
        }
    }

    /// Whoever has the most credit after this turn's shares.
    pub(super) fn pick(&self, candidates: TargetSet, rng: &mut Rng) -> Option<TargetId> {
        let total = self.total(candidates);
        let credit = |target| Reverse(self.credit(target) + self.share(target, total));
        least(candidates, credit, rng)
    }

    pub(super) fn advance(&mut self, candidates: TargetSet, picked: TargetId) {
        let total = self.total(candidates);
        let mut turn = 0;
        for target in candidates.iter() {
            let share = self.share(target, total);
            turn += share;
            self.add(target, share);
        }
        self.add(picked, -turn);
    }

    fn weight(&self, target: TargetId) -> u32 {
        self.weights.get(target.index()).copied().unwrap_or(1)
    }

    fn total(&self, candidates: TargetSet) -> u64 {
        let weights = candidates.iter().map(|target| self.weight(target));
        weights.map(u64::from).sum()
    }

    fn share(&self, target: TargetId, total: u64) -> i64 {
        let share = u64::from(self.weight(target)) * TURN / total.max(1);
        i64::try_from(share).unwrap_or(0)
    }

    fn credit(&self, target: TargetId) -> i64 {
        self.credit.get(target.index()).copied().unwrap_or(0)
    }

    fn add(&mut self, target: TargetId, change: i64) {
        if let Some(credit) = self.credit.get_mut(target.index()) {
            *credit += change;
        }
    }
}
