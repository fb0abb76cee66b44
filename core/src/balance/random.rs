//! `random` and `power_of_two`: targets that are drawn.

use super::view::View;
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// Any of the targets, each as likely as the others.
pub(super) fn random(targets: TargetSet, rng: &mut Rng) -> Option<TargetId> {
    match targets.len() {
        0 => None,
        count => targets.nth(rng.usize(..count)),
    }
}

/// The less loaded of two different candidates, or the only one. Which of equal ones comes first
/// was drawn already.
pub(super) fn power_of_two(view: &View<'_>, rng: &mut Rng) -> Option<TargetId> {
    let first = random(view.candidates, rng)?;
    let mut others = view.candidates;
    others.remove(first);
    let second = random(others, rng).filter(|&second| view.load(second) < view.load(first));
    Some(second.unwrap_or(first))
}
