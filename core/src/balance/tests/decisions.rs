//! Tests of what all strategies share: eligibility, admission, followers, teaching.

use super::*;
use crate::balance::{Followers, MAX_FOLLOWERS, Need, Reason};
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use std::collections::BTreeSet;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[test]
fn a_fleet_without_targets_gets_no_decision() {
    let prompt = prompt("a");
    for strategy in strategies() {
        let mut balancer = balancer(strategy, &[], &[]);
        for request in [NO_PROMPT, asking(&prompt)] {
            let decision = balancer.decide(
                &fleet(&[]),
                &request,
                MAX_FOLLOWERS,
                &mut Rng::with_seed(1),
                |_| panic!("nobody to ask for"),
            );
            assert_eq!(decision, None, "{strategy:?}");
        }
    }
}

#[test]
fn where_nothing_is_eligible_all_are_weighed() {
    let warm = text("a", 8);
    let none = Fleet {
        eligible: TargetSet::EMPTY,
        ..fleet(&[1, 0])
    };
    let given = [(0, &*warm)];
    let balancer = || balancer(CACHE_AWARE, &infos(0..2), &given);
    let warm = prompt(&warm);
    assert_eq!(
        the_decision(balancer, &none, &asking(&warm)),
        (0, "affinity")
    );
    assert_eq!(the_decision(balancer, &none, &NO_PROMPT), (1, "no_prompt"));
}

#[test]
fn a_target_that_is_refused_is_passed_over() {
    let warm = text("a", 8);
    let mut balancer = balancer(CACHE_AWARE, &infos(0..3), &[(0, &warm)]);
    let mut asked = Vec::new();
    let decision = balancer
        .decide(
            &fleet(&[0, 2, 1]),
            &asking(&prompt(&warm)),
            7,
            &mut Rng::with_seed(1),
            |target| {
                asked.push(target.0);
                target.0 != 0
            },
        )
        .unwrap();
    assert_eq!(asked, [0, 2], "only for what was chosen");
    assert_eq!((decision.target.0, decision.reason), (2, Reason::Miss));
    assert_eq!(decision.followers.as_slice(), [TargetId(1)]);
}

#[test]
fn a_refused_target_does_not_count_as_idle() {
    let warm = text("a", 8);
    let mut balancer = balancer(CACHE_AWARE, &infos(0..3), &[(0, &warm)]);
    // Seven requests are too many against the idle second target, and not against the third.
    let prompt = prompt(&warm);
    let mut rng = Rng::with_seed(1);
    let mut decide = |admit: fn(TargetId) -> bool| {
        let fleet = fleet(&[7, 0, 6]);
        balancer.decide(&fleet, &asking(&prompt), 0, &mut rng, admit)
    };
    let decision = decide(|target| target.0 != 1).unwrap();
    assert_eq!((decision.target.0, decision.reason), (0, Reason::Affinity));
}

#[test]
fn where_all_are_refused_the_first_choice_stands() {
    for strategy in strategies() {
        let mut balancer = balancer(strategy, &infos(0..3), &[]);
        let mut asked = Vec::new();
        let decision = balancer
            .decide(
                &fleet(&[1, 2, 3]),
                &asking(&prompt("a")),
                7,
                &mut Rng::with_seed(1),
                |target| {
                    asked.push(target);
                    false
                },
            )
            .unwrap();
        assert_eq!(asked.len(), 3, "{strategy:?}");
        assert_eq!(decision.target, asked[0]);
        assert_eq!(decision.followers.as_slice().len(), 2);
    }
}

#[test]
fn a_refused_target_and_followers_take_nobodys_turn() {
    for strategy in [Strategy::RoundRobin, Strategy::Weighted] {
        let mut balancer = balancer(strategy, &infos(0..4), &[]);
        let mut rng = Rng::with_seed(1);
        let mut counts = [0; 4];
        for _ in 0..300 {
            // The last target is always refused.
            let admit = |target: TargetId| target.0 != 3;
            let fleet = fleet(&[0; 4]);
            let decision = balancer.decide(&fleet, &NO_PROMPT, 2, &mut rng, admit);
            counts[decision.unwrap().target.index()] += 1;
        }
        assert_eq!(counts, [100, 100, 100, 0], "{strategy:?}");
    }
}

#[test]
fn followers_rank_as_the_strategy_does() {
    let warm = text("a", 8);
    let given = [(0, &*warm), (3, &*warm)];
    let load = [2, 0, 1, 1, 3];
    let ranks = |strategy| {
        let mut balancer = balancer(strategy, &infos(0..5), &given);
        let prompt = prompt(&warm);
        let mut rng = Rng::with_seed(1);
        let decision = balancer.decide(&fleet(&load), &asking(&prompt), 3, &mut rng, |_| true);
        let decision = decision.unwrap();
        let followers = decision.followers.as_slice().iter().map(|target| target.0);
        std::iter::once(decision.target.0)
            .chain(followers)
            .collect::<Vec<_>>()
    };
    // Who has the prompt first, then by load.
    assert_eq!(ranks(CACHE_AWARE), [3, 0, 1, 2]);
    let prefix = Pipeline {
        prefix: 9.0,
        ..Pipeline::default()
    };
    assert_eq!(ranks(Strategy::Pipeline(prefix)), [3, 0, 1, 2]);
    assert_eq!(ranks(Strategy::LeastLoad)[0], 1);
    // The rest by load, whoever was chosen.
    for strategy in [
        Strategy::LeastLoad,
        Strategy::RoundRobin,
        Strategy::Random,
        Strategy::Weighted,
        Strategy::PowerOfTwo,
    ] {
        let ranks = ranks(strategy);
        let loads: Vec<u32> = ranks[1..]
            .iter()
            .map(|&target| load[usize::from(target)])
            .collect();
        assert!(loads.is_sorted(), "{strategy:?} {ranks:?}");
    }
}

#[test]
fn the_follower_of_a_hash_is_where_the_key_goes_without_its_target() {
    let mut balancer = balancer(Strategy::ConsistentHash, &infos(0..9), &[]);
    let mut rng = Rng::with_seed(1);
    for session in 0..100 {
        let request = Request {
            session: Some(session),
            ..NO_PROMPT
        };
        let load = [0; 9];
        let decision = balancer.decide(&fleet(&load), &request, 7, &mut rng, |_| true);
        let decision = decision.unwrap();
        let mut fleet = without(fleet(&load), decision.target.0);
        for follower in decision.followers.as_slice() {
            let next = decide(&mut balancer, &fleet, &request, &mut rng).unwrap();
            assert_eq!(next.target, *follower);
            fleet = without(fleet, follower.0);
        }
    }
}

#[test]
fn whom_a_retry_passed_over_follows_from_the_rank() {
    let targets = |ids: &[u16]| ids.iter().copied().map(TargetId).collect::<Vec<_>>();
    let mut followers = Followers::NONE;
    for target in targets(&[4, 2, 9]) {
        followers.push(target);
    }
    for (server, attempts, passed) in [
        (7, 1, &[][..]),
        (4, 2, &[7]),
        (9, 4, &[7, 4, 2]),
        // Some endpoint was passed over without a try.
        (9, 3, &[]),
        (4, 1, &[]),
        // Somebody else, after all of them.
        (1, 5, &[7, 4, 2, 9]),
        (1, 2, &[]),
        // A filter that retries too, or a number that makes no sense.
        (4, u64::MAX, &[7]),
        (4, 0, &[]),
    ] {
        let found = followers.passed_over(TargetId(7), TargetId(server), attempts);
        assert_eq!(
            found.collect::<Vec<_>>(),
            targets(passed),
            "{server} {attempts}"
        );
    }
}

#[test]
fn no_more_followers_are_ranked_than_asked_for_or_possible() {
    for strategy in strategies() {
        let mut balancer = balancer(strategy, &infos(0..20), &[]);
        let mut rng = Rng::with_seed(1);
        for (asked, expected) in [(0, 0), (1, 1), (3, 3), (1_000, MAX_FOLLOWERS)] {
            let fleet = fleet(&[0; 20]);
            let decision = balancer.decide(&fleet, &NO_PROMPT, asked, &mut rng, |_| true);
            assert_eq!(decision.unwrap().followers.as_slice().len(), expected);
        }
    }
}

#[test]
fn a_decision_tells_what_is_news_and_what_the_target_had() {
    let mut balancer = balancer(CACHE_AWARE, &infos(0..2), &[(1, &text("a", 4))]);
    let mut rng = Rng::with_seed(1);
    let prompt = prompt(&text("a", 5));
    let mut at = |now| {
        let request = Request {
            now: Millis(now),
            ..asking(&prompt)
        };
        let decision = decide(&mut balancer, &fleet(&[0, 0]), &request, &mut rng).unwrap();
        (
            decision.matched,
            decision.news.prompt,
            decision.prompt.is_some(),
        )
    };
    assert_eq!(at(5_000), (4 * BLOCK_BYTES, true, true));
    assert_eq!(at(5_001), (5 * BLOCK_BYTES, false, true));
    assert_eq!(at(6_000), (5 * BLOCK_BYTES, true, true));
}

#[test]
fn only_what_is_asked_for_is_learnt() {
    let prompt = prompt(&text("a", 4));
    let request = Request {
        session: Some(1),
        ..asking(&prompt)
    };
    for strategy in strategies() {
        let memory = memory(&[]);
        let mut rng = Rng::with_seed(1);
        let mut balancer = Balancer::new(strategy, &infos(0..2), Rc::clone(&memory), &mut rng);
        decide(&mut balancer, &fleet(&[0, 0]), &request, &mut rng).unwrap();
        let asks = balancer.asks();
        let memory = memory.borrow();
        let reads_prefix = asks.prompt == Need::Always;
        assert_eq!(
            memory.tree.usage().prompts,
            usize::from(reads_prefix),
            "{strategy:?}"
        );
        let keeps = matches!(strategy, Strategy::Pipeline(_));
        assert_eq!(memory.sessions.len(), usize::from(keeps), "{strategy:?}");
    }
}

#[test]
fn a_session_saves_consistent_hash_the_prompt() {
    let asks = balancer(Strategy::ConsistentHash, &[], &[]).asks();
    assert!(asks.session && !asks.first_token);
    assert!(asks.prompt.with_session(false) && !asks.prompt.with_session(true));
    let asks = balancer(CACHE_AWARE, &[], &[]).asks();
    assert!(asks.prompt.with_session(false) && asks.prompt.with_session(true));
    let asks = balancer(Strategy::LeastLoad, &[], &[]).asks();
    assert!(!asks.prompt.with_session(false) && !asks.prompt.with_session(true));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_strategy_keeps_to_the_candidates(
        ids in prop::collection::btree_set(0_u16..512, 1..40),
        eligible in prop::collection::btree_set(0_u16..512, 0..200),
        refused in prop::collection::btree_set(0_u16..512, 0..200),
        load in prop::collection::vec(0_u32..5, 0..300),
        known in any::<bool>(),
        pending in prop::option::of(prop::collection::vec(any::<u32>(), 0..300)),
        session in prop::option::of(0_u64..3),
        with_prompt in any::<bool>(),
        count in 0_usize..10,
        seed in any::<u64>(),
    ) {
        let set = |ids: &BTreeSet<u16>| ids.iter().copied().map(TargetId).collect::<TargetSet>();
        let fleet = Fleet { targets: set(&ids), eligible: set(&eligible), load: known.then_some(&*load), pending: pending.as_deref(), scores: None };
        let prompt = prompt("some prompt");
        let request = Request { prompt: with_prompt.then_some(&prompt), session, now: NOW };
        let candidates = fleet.candidates();
        for strategy in strategies() {
            let mut balancer = balancer(strategy, &infos(ids.iter().copied()), &[(0, "some"), (9, "some prompt")]);
            let mut rng = Rng::with_seed(seed);
            for _ in 0..3 {
                let mut asked = Vec::new();
                let decision = balancer.decide(&fleet, &request, count, &mut rng, |target| {
                    asked.push(target);
                    !refused.contains(&target.0)
                }).unwrap();
                prop_assert!(asked.iter().all(|&target| candidates.contains(target)));
                let fails_open = set(&ids).and(set(&eligible)).is_empty();
                prop_assert_eq!(fails_open, asked.is_empty(), "failing open asks nobody");
                let all_refused = candidates.iter().all(|target| refused.contains(&target.0));
                prop_assert!(fails_open || all_refused == refused.contains(&decision.target.0));
                let passed = asked.len().saturating_sub(1);
                let usable = |target: &TargetId| candidates.contains(*target) && (all_refused || !asked[..passed].contains(target));
                let followers = decision.followers.as_slice();
                let distinct: BTreeSet<TargetId> = followers.iter().copied().chain([decision.target]).collect();
                prop_assert_eq!(distinct.len(), followers.len() + 1);
                prop_assert!(distinct.iter().all(usable));
                let left = candidates.iter().filter(usable).count() - 1;
                prop_assert_eq!(followers.len(), left.min(count).min(MAX_FOLLOWERS));
            }
        }
    }
}
