//! The choice of the least, which `least_load` is and other strategies share.

use super::few::Few;
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// One of the targets for which `key` is least, each as likely as the others.
pub(super) fn least<K: PartialOrd>(
    targets: TargetSet,
    key: impl Fn(TargetId) -> K,
    rng: &mut Rng,
) -> Option<TargetId> {
    Few::of(targets, 1, key, rng).first()
}
