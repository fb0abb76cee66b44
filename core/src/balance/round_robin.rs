//! `round_robin`: the targets in turn.

use super::TargetInfo;
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// Who was picked last.
pub(super) struct RoundRobin {
    last: Option<TargetId>,
}

impl RoundRobin {
    /// Begins anywhere, so that the workers of one Envoy do not move in step.
    pub(super) fn new(targets: &[TargetInfo], rng: &mut Rng) -> Self {
        let last = targets.get(rng.usize(..targets.len().max(1)));
        Self {
            last: last.map(|target| target.id),
        }
    }

    /// The first of the targets after the last one.
    pub(super) fn pick(&self, targets: TargetSet) -> Option<TargetId> {
        let next = targets.iter().find(|&target| Some(target) > self.last);
        next.or_else(|| targets.iter().next())
    }

    pub(super) fn advance(&mut self, picked: TargetId) {
        self.last = Some(picked);
    }
}
