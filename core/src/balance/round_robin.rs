//! `round_robin`: the targets in turn.

use super::{Fleet, Pick, Reason};
use crate::target::TargetId;
use fastrand::Rng;

/// Picks the targets in turn.
#[derive(Clone, Debug)]
pub struct RoundRobin {
    last: TargetId,
}

impl RoundRobin {
    /// Begins anywhere, so that the workers of one Envoy do not move in step.
    pub fn new(targets: usize, rng: &mut Rng) -> Self {
        let last = rng.usize(..targets.max(1));
        Self {
            last: TargetId(u16::try_from(last).unwrap_or(0)),
        }
    }

    /// Picks the first eligible target after the last one. Nothing only where the route has no
    /// targets.
    pub fn pick(&mut self, fleet: &Fleet<'_>) -> Option<Pick> {
        let candidates = fleet.candidates();
        let next = candidates.iter().find(|&target| target > self.last);
        let target = next.or_else(|| candidates.iter().next())?;
        self.last = target;
        Some(Pick {
            target,
            reason: Reason::RoundRobin,
        })
    }
}
