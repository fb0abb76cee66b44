//! `least_load`, and the choice of the least that other strategies share.

use super::{Fleet, Pick, Reason};
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// One of the targets for which `key` is least, each as likely as the others: ties broken by index
/// would all fall on the first replica.
pub(super) fn least<K: Ord>(
    targets: TargetSet,
    key: impl Fn(TargetId) -> K,
    rng: &mut Rng,
) -> Option<TargetId> {
    let mut best: Option<(K, TargetId)> = None;
    let mut ties = 1_u32;
    for target in targets.iter() {
        let key = key(target);
        let takes = match &best {
            None => true,
            Some((least, _)) if key == *least => {
                // Reservoir sampling: the n-th equal takes the place with probability 1/n.
                ties += 1;
                rng.u32(..ties) == 0
            }
            Some((least, _)) => {
                let less = key < *least;
                if less {
                    ties = 1;
                }
                less
            }
        };
        if takes {
            best = Some((key, target));
        }
    }
    best.map(|(_, target)| target)
}

/// Picks the target with the least load, any of them where several have it. Nothing only where the
/// route has no targets.
pub(super) fn least_load(fleet: &Fleet<'_>, rng: &mut Rng) -> Option<Pick> {
    let target = least(fleet.candidates(), |target| fleet.load(target), rng)?;
    Some(Pick {
        target,
        reason: Reason::LeastLoad,
    })
}
