//! The choice of the least, which `least_load` is and other strategies share.

use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// One of the targets for which `key` is least, each as likely as the others: ties broken by index
/// would all fall on the first replica.
pub(super) fn least<K: PartialOrd>(
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
