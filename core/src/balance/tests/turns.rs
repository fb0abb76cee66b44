//! Tests of strategies that know neither prompts nor sessions.

use super::*;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The targets of so many decisions in a row.
fn run(balancer: &mut Balancer, fleet: &Fleet<'_>, count: usize) -> Vec<u16> {
    let mut rng = Rng::with_seed(1);
    let mut next = || {
        decide(balancer, fleet, &NO_PROMPT, &mut rng)
            .unwrap()
            .target
            .0
    };
    (0..count).map(|_| next()).collect()
}

#[test]
fn round_robin_gives_every_eligible_target_its_turn() {
    let mut balancer = balancer(Strategy::RoundRobin, &infos(0..4), &[]);
    let turns = run(&mut balancer, &without(fleet(&[9, 0, 0, 0]), 2), 12);
    let mut first = turns[..3].to_vec();
    first.sort_unstable();
    assert_eq!(first, [0, 1, 3]);
    assert!(
        turns.chunks(3).all(|round| *round == turns[..3]),
        "{turns:?}"
    );
}

#[test]
fn the_workers_turns_begin_anywhere() {
    let mut rng = Rng::with_seed(1);
    let mut begun = [0; 3];
    for _ in 0..DECISIONS {
        let targets = infos(0..3);
        let mut balancer = Balancer::new(Strategy::RoundRobin, &targets, memory(&[]), &mut rng);
        begun[usize::from(run(&mut balancer, &fleet(&[0; 3]), 1)[0])] += 1;
    }
    assert!(
        begun.iter().all(|&count| count > DECISIONS / 5),
        "{begun:?}"
    );
}

#[test]
fn random_draws_every_eligible_target_alike() {
    let mut balancer = balancer(Strategy::Random, &infos(0..4), &[]);
    let turns = run(&mut balancer, &without(fleet(&[9, 0, 0, 0]), 2), 3_000);
    for target in [0, 1, 3] {
        let count = turns.iter().filter(|&&turn| turn == target).count();
        assert!((900..1_100).contains(&count), "{target}: {count}");
    }
}

#[test]
fn power_of_two_takes_the_less_loaded_of_two_that_are_drawn() {
    let mut balancer = balancer(Strategy::PowerOfTwo, &infos(0..4), &[]);
    let turns = run(&mut balancer, &fleet(&[3, 0, 2, 1]), 6_000);
    let count = |target| turns.iter().filter(|&&turn| turn == target).count();
    // Of the six pairs, the least loaded wins three, the next two, the next one.
    for (target, expected) in [(1, 3_000), (3, 2_000), (2, 1_000)] {
        assert!(
            count(target).abs_diff(expected) < 200,
            "{target}: {}",
            count(target)
        );
    }
    assert_eq!(count(0), 0, "the most loaded never wins");
    assert_eq!(run(&mut balancer, &fleet(&[3]), 1), [0]);
}

#[test]
fn weighted_spreads_the_turns_of_each_target() {
    for order in [[1, 2], [2, 1]] {
        let expected = [0, 0, order[0], 0, order[1], 0, 0];
        let seen = (0..20).any(|seed| {
            let mut balancer = balancer(Strategy::Weighted, &weighted(&[5, 1, 1]), &[]);
            let mut rng = Rng::with_seed(seed);
            let mut next = || decide(&mut balancer, &fleet(&[0; 3]), &NO_PROMPT, &mut rng);
            let turns: Vec<u16> = (0..7).map(|_| next().unwrap().target.0).collect();
            assert_eq!((turns[0], turns[1], turns[3]), (0, 0, 0), "{turns:?}");
            turns == expected
        });
        assert!(
            seen,
            "equal targets take turns in either order: {expected:?}"
        );
    }
}

#[test]
fn weighted_does_not_flood_a_target_that_is_back() {
    let mut balancer = balancer(Strategy::Weighted, &weighted(&[1, 1, 1]), &[]);
    let all = fleet(&[0; 3]);
    run(&mut balancer, &without(all, 2), 10_000);
    let turns = run(&mut balancer, &all, 9);
    assert_eq!(
        turns.iter().filter(|&&turn| turn == 2).count(),
        3,
        "{turns:?}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// However the candidates change, each gets what its share of all the turns adds up to for
    /// which it was one, give or take a few.
    #[test]
    fn weighted_is_fair_while_candidates_come_and_go(
        weights in prop::collection::vec(1_u32..=1_000, 2..8),
        turns in prop::collection::vec(any::<u8>(), 1..400),
        seed in any::<u64>(),
    ) {
        let targets = weighted(&weights);
        let mut balancer = balancer(Strategy::Weighted, &targets, &[]);
        let mut rng = Rng::with_seed(seed);
        let load = vec![0; weights.len()];
        let mut owed = vec![0.0_f64; weights.len()];
        for eligible in turns {
            let eligible: TargetSet = targets
                .iter()
                .map(|target| target.id)
                .filter(|id| eligible >> id.0 & 1 == 1)
                .collect();
            let fleet = Fleet { eligible, ..fleet(&load) };
            let candidates = if eligible.is_empty() { fleet.targets } else { eligible };
            let total: u32 = candidates.iter().map(|id| weights[id.index()]).sum();
            for id in candidates.iter() {
                owed[id.index()] += f64::from(weights[id.index()]) / f64::from(total);
            }
            let picked = decide(&mut balancer, &fleet, &NO_PROMPT, &mut rng).unwrap();
            prop_assert!(candidates.contains(picked.target));
            owed[picked.target.index()] -= 1.0;
            // Nobody can owe or be owed more than a turn for each of the others.
            let bound = weights.iter().map(|_| 1.0).sum::<f64>();
            prop_assert!(owed.iter().all(|owed| owed.abs() < bound), "{:?}", owed);
        }
    }
}
