//! `precise_cache_aware` and `lmcache_aware`.

use super::*;
use crate::balance::{Exact, Reason, Scores};

const PRECISE: Strategy = Strategy::PreciseCacheAware(Exact {
    margins: Margins {
        threshold: 0.2,
        guard: GUARD,
    },
    weights: crate::kv::MediumWeights {
        gpu: 1.0,
        cpu: 0.8,
        other: 0.5,
    },
});
const LMCACHE: Strategy = Strategy::LmcacheAware { guard: GUARD };
const GUARD: Guard = Guard {
    balance_abs: 2,
    balance_rel: 1.5,
};

/// What is picked of as many targets as there are loads, and why; all picks that occur.
fn picks(strategy: Strategy, load: &[u32], scores: Option<&[Option<f64>]>) -> Vec<(u16, Reason)> {
    let mut rng = Rng::with_seed(3);
    let mut balancer = balancer(strategy, &weighted(&vec![1; load.len()]), &[]);
    let fleet = Fleet {
        scores: scores.map(|of| Scores { of, grain: 0.1 }),
        ..fleet(load)
    };
    let mut picks: Vec<_> = (0..100)
        .map(|_| {
            let decision = balancer
                .decide(&fleet, &NO_PROMPT, 0, &mut rng, |_| true)
                .unwrap();
            (decision.target.0, decision.reason)
        })
        .collect();
    picks.sort_unstable_by_key(|(target, _)| *target);
    picks.dedup();
    picks
}

#[test]
fn the_target_with_most_of_the_blocks_is_taken() {
    let scores = [Some(0.3), Some(0.9), None, Some(0.0)];
    let loads = [0, 1, 0, 0];
    assert_eq!(
        picks(PRECISE, &loads, Some(&scores)),
        [(1, Reason::Affinity)]
    );
}

#[test]
fn within_a_block_the_less_loaded_one_is_taken() {
    let scores = [Some(0.8), Some(0.9), Some(0.79)];
    assert_eq!(
        picks(PRECISE, &[1, 2, 0], Some(&scores)),
        [(0, Reason::Affinity)]
    );
}

#[test]
fn a_busy_target_is_passed_over_for_the_least_loaded() {
    let scores = [Some(1.0), Some(0.0), None];
    assert_eq!(
        picks(PRECISE, &[2, 0, 1], Some(&scores)),
        [(0, Reason::Affinity)]
    );
    assert_eq!(
        picks(PRECISE, &[3, 1, 0], Some(&scores)),
        [(2, Reason::Spill)]
    );
}

#[test]
fn what_is_known_to_be_nowhere_goes_to_the_least_loaded() {
    let below = [Some(0.19), Some(0.0), None];
    assert_eq!(
        picks(PRECISE, &[1, 1, 0], Some(&below)),
        [(2, Reason::Miss)]
    );
}

#[test]
fn a_beginning_that_all_prompts_share_is_not_worth_a_busier_target() {
    let default = Strategy::PreciseCacheAware(Exact::default());
    for (share, pick) in [
        (0.0, (1, Reason::Miss)),
        (0.05, (1, Reason::Miss)),
        (0.2, (0, Reason::Affinity)),
    ] {
        let scores = [Some(share), Some(0.0)];
        assert_eq!(picks(default, &[1, 0], Some(&scores)), [pick], "{share}");
    }
    // Without a threshold it is, but what is nowhere is a miss all the same.
    let margins = Margins {
        threshold: 0.0,
        guard: GUARD,
    };
    let exact = Exact::default();
    let no_threshold = Strategy::PreciseCacheAware(Exact { margins, ..exact });
    for (share, pick) in [(0.0, (1, Reason::Miss)), (0.01, (0, Reason::Affinity))] {
        let scores = [Some(share), Some(0.0)];
        assert_eq!(picks(no_threshold, &[1, 0], Some(&scores)), [pick]);
    }
}

#[test]
fn of_equals_the_one_that_was_not_picked_for_longest_is_taken() {
    let mut rng = Rng::with_seed(3);
    let mut balancer = balancer(PRECISE, &weighted(&[1; 4]), &[]);
    let mut pick = |of: &[Option<f64>], load: &[u32]| {
        let fleet = Fleet {
            scores: Some(Scores { of, grain: 0.1 }),
            ..fleet(load)
        };
        let decision = balancer
            .decide(&fleet, &NO_PROMPT, 0, &mut rng, |_| true)
            .unwrap();
        decision.target.0
    };
    let nowhere = [Some(0.0); 4];
    let mut firsts: Vec<_> = (0..4).map(|_| pick(&nowhere, &[2; 4])).collect();
    for _ in 0..3 {
        for &target in &firsts {
            assert_eq!(pick(&nowhere, &[2; 4]), target);
        }
    }
    // A pick for another reason counts as well.
    let at = |target: u16, score| {
        let mut scores = nowhere;
        scores[usize::from(target)] = Some(score);
        scores
    };
    assert_eq!(pick(&at(firsts[0], 0.9), &[2; 4]), firsts[0]);
    assert_eq!(pick(&nowhere, &[2; 4]), firsts[1]);
    // Among copies it is the same.
    assert_eq!(pick(&[Some(1.0); 4], &[2; 4]), firsts[2]);
    firsts.sort_unstable();
    assert_eq!(firsts, [0, 1, 2, 3]);
}

#[test]
fn where_nothing_is_known_load_alone_decides() {
    for strategy in [PRECISE, LMCACHE] {
        for scores in [None, Some(&[None, None][..])] {
            assert_eq!(picks(strategy, &[1, 0], scores), [(1, Reason::Unknown)]);
        }
    }
}

#[test]
fn the_target_with_most_room_is_taken_within_the_guard() {
    let scores = [Some(0.2), Some(0.9), Some(0.85)];
    assert_eq!(
        picks(LMCACHE, &[0, 1, 2], Some(&scores)),
        [(1, Reason::Occupancy)]
    );
    assert_eq!(
        picks(LMCACHE, &[0, 2, 1], Some(&scores)),
        [(2, Reason::Occupancy)]
    );
    assert_eq!(
        picks(LMCACHE, &[0, 9, 9], Some(&scores)),
        [(0, Reason::Spill)]
    );
}

#[test]
fn a_target_of_which_nothing_is_known_has_as_much_room_as_the_others_on_average() {
    let scores = [Some(0.5), None];
    assert_eq!(
        picks(LMCACHE, &[1, 0], Some(&scores)),
        [(1, Reason::Occupancy)]
    );
    assert_eq!(
        picks(LMCACHE, &[0, 1], Some(&scores)),
        [(0, Reason::Occupancy)]
    );
    let scores = [Some(0.9), None, Some(0.1)];
    assert_eq!(
        picks(LMCACHE, &[1, 0, 0], Some(&scores)),
        [(0, Reason::Occupancy)]
    );
    // None has any room.
    assert_eq!(
        picks(LMCACHE, &[1, 0], Some(&[Some(0.0), Some(0.0)])),
        [(1, Reason::Miss)]
    );
}
