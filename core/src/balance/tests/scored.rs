//! `precise_cache_aware` and `lmcache_aware`.

use super::*;
use crate::balance::{Exact, Reason, Scores};

const PRECISE: Strategy = Strategy::PreciseCacheAware(Exact {
    margins: Margins {
        threshold: 0.2,
        ..MARGINS
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

/// What is picked of as many targets as there are loads for a prompt of a thousand tokens, and why;
/// all picks that occur.
fn picks(strategy: Strategy, load: &[u32], scores: Option<&[Option<f64>]>) -> Vec<(u16, Reason)> {
    let mut rng = Rng::with_seed(3);
    let fleet = Fleet {
        scores: scores.map(|of| Scores { of, grain: 0.1 }),
        ..fleet(load)
    };
    let prompt = prompt(&"a".repeat(4_000));
    let mut picks: Vec<_> = (0..100)
        .map(|_| {
            let mut balancer = balancer(strategy, &weighted(&vec![1; load.len()]), &[]);
            let decision = decide(&mut balancer, &fleet, &asking(&prompt), &mut rng).unwrap();
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
fn of_equals_the_less_loaded_one_is_taken() {
    let scores = [Some(0.9), Some(0.9), Some(0.7)];
    assert_eq!(
        picks(PRECISE, &[2, 1, 0], Some(&scores)),
        [(1, Reason::Affinity)]
    );
}

#[test]
fn a_busy_target_is_passed_over_for_one_that_is_less_so() {
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
    // Without a threshold it is worth what it costs: ten tokens that count twelve times, against
    // sixteen for each request.
    let exact = Exact::default();
    let no_threshold = Strategy::PreciseCacheAware(Exact {
        margins: Margins {
            threshold: 0.0,
            ..exact.margins
        },
        ..exact
    });
    for (loads, pick) in [
        ([7, 0], (0, Reason::Affinity)),
        ([8, 0], (1, Reason::Spill)),
    ] {
        let scores = [Some(0.01), Some(0.0)];
        assert_eq!(
            picks(no_threshold, &loads, Some(&scores)),
            [pick],
            "{loads:?}"
        );
    }
}

#[test]
fn what_was_sent_a_moment_ago_is_expected_where_it_went() {
    let mut rng = Rng::with_seed(3);
    let memory = memory(&[]);
    let targets = weighted(&[1; 4]);
    let mut balancer = Balancer::new(PRECISE, &targets, Rc::clone(&memory), &mut rng);
    let nowhere = [Some(0.0); 4];
    let prompt = prompt(&"a".repeat(4_000));
    let mut last = None;
    let mut at = |now| {
        let fleet = Fleet {
            scores: Some(Scores {
                of: &nowhere,
                grain: 0.1,
            }),
            ..fleet(&[0; 4])
        };
        let request = Request {
            now: Millis(now),
            ..asking(&prompt)
        };
        let decision = decide(&mut balancer, &fleet, &request, &mut rng).unwrap();
        // Others hear it from the engine.
        assert!(!decision.news.prompt);
        last = decision.prompt;
        (decision.reason, decision.missing, decision.target)
    };
    let (reason, missing, first) = at(10_000);
    assert_eq!((reason, missing), (Reason::Miss, 1_000));
    assert_eq!(at(11_000), (Reason::Affinity, 0, first));
    // Each time anew.
    assert_eq!(at(13_000), (Reason::Affinity, 0, first));
    // By then its engine would have told of it.
    assert_eq!(at(15_001).0, Reason::Miss);
    memory.borrow_mut().tree.give_up(last.unwrap());
    assert_eq!(memory.borrow().tree.usage().prompts, 0, "it was refused");
}

#[test]
fn what_was_sent_under_a_salt_is_expected_nowhere() {
    let mut rng = Rng::with_seed(3);
    let mut balancer = balancer(PRECISE, &weighted(&[1; 2]), &[]);
    let scores = [Some(0.0); 2];
    let fleet = Fleet {
        scores: Some(Scores {
            of: &scores,
            grain: 0.1,
        }),
        ..fleet(&[0; 2])
    };
    let salted = Prompt {
        cache_salt: Some("mine".into()),
        ..prompt(&"a".repeat(4_000))
    };
    for _ in 0..3 {
        let decision = decide(&mut balancer, &fleet, &asking(&salted), &mut rng).unwrap();
        assert_eq!((decision.reason, decision.missing), (Reason::Miss, 1_000));
    }
}

#[test]
fn a_decision_tells_what_of_the_blocks_is_missing() {
    let mut rng = Rng::with_seed(3);
    let prompt = prompt(&"a".repeat(4_000));
    for (scores, missing) in [
        (Some([Some(0.75), Some(0.0)]), 250),
        // Not enough to count.
        (Some([Some(0.1), Some(0.1)]), 1_000),
        (Some([None, None]), 1_000),
        (None, 1_000),
    ] {
        let mut balancer = balancer(PRECISE, &weighted(&[1; 2]), &[]);
        let fleet = Fleet {
            scores: scores.as_ref().map(|of| Scores { of, grain: 0.1 }),
            ..fleet(&[0; 2])
        };
        let decision = decide(&mut balancer, &fleet, &asking(&prompt), &mut rng).unwrap();
        assert_eq!(decision.missing, missing);
    }
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
