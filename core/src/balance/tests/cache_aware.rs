use super::*;
use crate::balance::Reason;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The decision for a text that is made every time.
fn decision(given: &[(u16, &str)], fleet: &Fleet<'_>, text: &str) -> (u16, &'static str) {
    let targets = infos(fleet.targets.iter().map(|target| target.0));
    let balancer = || balancer(CACHE_AWARE, &targets, given);
    the_decision(balancer, fleet, &asking(&prompt(text)))
}

#[test]
fn a_prompt_goes_to_the_target_that_has_it() {
    let warm = text("a", 8);
    let fleet = fleet(&[0, 0, 0]);
    assert_eq!(decision(&[(1, &warm)], &fleet, &warm), (1, "affinity"));
    let longer = format!("{warm}{}", text("b", 7));
    assert_eq!(decision(&[(1, &warm)], &fleet, &longer), (1, "affinity"));
}

#[test]
fn an_unrelated_prompt_goes_to_the_least_loaded_target() {
    let given = [(1, &*text("a", 8))];
    assert_eq!(
        decision(&given, &fleet(&[2, 0, 1]), &text("b", 8)),
        (1, "miss")
    );
    assert_eq!(
        decision(&given, &fleet(&[2, 3, 1]), &text("b", 8)),
        (2, "miss")
    );
}

#[test]
fn what_has_less_to_compute_is_the_less_loaded() {
    let pending = [300, 100, 200];
    let fleet = Fleet {
        pending: Some(&pending),
        ..fleet(&[0, 2, 1])
    };
    assert_eq!(decision(&[], &fleet, &text("b", 8)), (1, "miss"));
}

#[test]
fn less_than_the_threshold_is_a_miss_and_the_threshold_itself_is_not() {
    let shared = text("a", 8);
    let fleet = fleet(&[1, 0]);
    let half = format!("{shared}{}", text("b", 8));
    assert_eq!(decision(&[(0, &shared)], &fleet, &half), (0, "affinity"));
    assert_eq!(
        decision(&[(0, &shared)], &fleet, &format!("{half}c")),
        (1, "miss")
    );
}

#[test]
fn a_warm_target_keeps_its_prompts_until_the_queue_there_costs_more() {
    // 128 tokens at four bytes each, of which each counts four times.
    let warm = text("a", 8);
    for (pending, expected) in [(511, (0, "affinity")), (513, (1, "spill"))] {
        let pending = [pending, 0];
        let fleet = Fleet {
            pending: Some(&pending),
            ..fleet(&[0, 0])
        };
        let targets = infos(0..2);
        let mut rng = Rng::with_seed(1);
        let mut counts = BTreeMap::new();
        for _ in 0..DECISIONS {
            let mut balancer = balancer(CACHE_AWARE, &targets, &[(0, &warm)]);
            let prompt = prompt(&warm);
            let decision = decide(&mut balancer, &fleet, &asking(&prompt), &mut rng).unwrap();
            let what = (decision.target.0, decision.reason.as_str());
            *counts.entry(what).or_insert(0) += 1;
        }
        // But for a copy now and then.
        let most = counts.iter().max_by_key(|(_, count)| **count).unwrap();
        assert_eq!((*most.0, *most.1 > DECISIONS * 9 / 10), (expected, true));
    }
}

#[test]
fn a_prompt_that_is_waited_for_is_copied_in_time() {
    // 128 tokens are copied after 128 times as many of waiting: 256 of them at a time, 64 times.
    let warm = text("a", 8);
    let pending = [256, 0];
    let fleet = Fleet {
        pending: Some(&pending),
        ..fleet(&[0, 0])
    };
    let targets = infos(0..2);
    let balancer = || balancer(CACHE_AWARE, &targets, &[(0, &warm)]);
    let prompt = prompt(&warm);
    let mut rng = Rng::with_seed(1);
    let copies = (0..6_400)
        .filter(|_| {
            let decision = decide(&mut balancer(), &fleet, &asking(&prompt), &mut rng).unwrap();
            decision.target.0 == 1
        })
        .count();
    assert!((70..130).contains(&copies), "{copies}");
}

#[test]
fn what_all_have_is_copied_nowhere() {
    let warm = text("a", 8);
    let pending = [10, 0];
    let fleet = Fleet {
        pending: Some(&pending),
        ..fleet(&[0, 0])
    };
    let given = [(0, &*warm), (1, &*warm)];
    assert_eq!(decision(&given, &fleet, &warm), (1, "affinity"));
}

#[test]
fn a_target_with_far_more_requests_than_another_is_spared_whatever_it_has() {
    let warm = text("a", 8);
    let given = [(0, &*warm)];
    for (load, expected) in [
        ([2, 0], (0, "affinity")), // within the absolute margin
        ([3, 0], (1, "spill")),
        ([13, 10], (0, "affinity")), // within the relative margin
        ([15, 10], (0, "affinity")),
        ([16, 10], (1, "spill")),
        ([u32::MAX, 0], (1, "spill")),
    ] {
        assert_eq!(decision(&given, &fleet(&load), &warm), expected, "{load:?}");
    }
}

#[test]
fn a_decision_tells_how_much_the_target_has_to_compute() {
    let shared = text("a", 8);
    let mut rng = Rng::with_seed(1);
    for (text, missing) in [
        (shared.clone(), 0),
        (format!("{shared}{}", text("b", 4)), 4 * BLOCK_BYTES / 4),
        (text("b", 8), 8 * BLOCK_BYTES / 4),
    ] {
        let mut balancer = balancer(CACHE_AWARE, &infos(0..2), &[(0, &shared)]);
        let prompt = prompt(&text);
        let decision = decide(&mut balancer, &fleet(&[0, 0]), &asking(&prompt), &mut rng);
        assert_eq!(decision.unwrap().missing as usize, missing);
    }
    // A prompt of which only the beginning is compared.
    let mut balancer = balancer(CACHE_AWARE, &infos(0..2), &[(0, &shared)]);
    let half = text("b", 8);
    let long = Prompt {
        len: 40_000,
        ..prompt(&format!("{shared}{half}"))
    };
    let decision = decide(&mut balancer, &fleet(&[0, 0]), &asking(&long), &mut rng);
    assert_eq!(decision.unwrap().missing, 5_000);
}

#[test]
fn equal_costs_go_to_the_least_warmed_target() {
    let given = [
        (0, &*text("a", 8)),
        (1, &*text("b", 2)),
        (2, &*text("c", 4)),
    ];
    assert_eq!(
        decision(&given, &fleet(&[4, 4, 4]), &text("d", 8)),
        (1, "miss")
    );
}

#[test]
fn without_a_known_load_affinity_stands_and_a_miss_goes_to_the_least_warmed() {
    let (warm, cold) = (text("a", 8), text("b", 1));
    let given = [(0, &*warm), (1, &*cold)];
    let unknown = Fleet {
        load: None,
        pending: None,
        scores: None,
        ..fleet(&[0, 0])
    };
    assert_eq!(decision(&given, &unknown, &warm), (0, "affinity"));
    assert_eq!(decision(&given, &unknown, &text("c", 8)), (1, "miss"));
}

#[test]
fn a_request_without_a_prompt_goes_to_the_least_loaded_target_and_teaches_nothing() {
    let memory = memory(&[(0, &text("a", 8))]);
    let mut rng = Rng::with_seed(1);
    let mut balancer = Balancer::new(CACHE_AWARE, &infos(0..2), Rc::clone(&memory), &mut rng);
    let decision = decide(&mut balancer, &fleet(&[0, 1]), &NO_PROMPT, &mut rng).unwrap();
    assert_eq!((decision.target.0, decision.reason), (0, Reason::NoPrompt));
    assert_eq!((decision.prompt, decision.news.prompt), (None, false));
    assert_eq!(decision.missing, 0);
    assert_eq!(memory.borrow().tree.usage().prompts, 1);
}

#[test]
fn an_empty_prompt_is_a_miss() {
    assert_eq!(decision(&[(0, "")], &fleet(&[1, 0]), ""), (1, "miss"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The rule of the strategy, written down a second time over plain numbers.
    #[test]
    fn cache_aware_follows_its_rule(
        load in prop::collection::vec(0_u32..12, 1..70),
        queue in prop::collection::vec(0_u32..400, 70),
        blocks in prop::collection::vec(0_usize..12, 70),
        ineligible in prop::collection::vec(0_u16..70, 0..40),
        seed in any::<u64>(),
    ) {
        let whole = text("a", 10);
        let mut fleet = Fleet { pending: Some(&queue), ..fleet(&load) };
        for target in ineligible {
            fleet = without(fleet, target);
        }
        let id = |t: usize| TargetId(t.try_into().unwrap());
        let candidates: Vec<usize> = (0..load.len())
            .filter(|&t| fleet.eligible.is_empty() || fleet.eligible.contains(id(t)))
            .collect();
        // Multiples of 40, so that all are whole tokens.
        let has = |t: usize| (blocks[t] * 40).min(whole.len());
        let given: Vec<(u16, &str)> =
            (0..load.len()).map(|t| (id(t).0, &whole[..has(t)])).collect();
        let mut balancer = balancer(CACHE_AWARE, &infos(fleet.targets.iter().map(|t| t.0)), &given);
        let prompt = prompt(&whole);
        let decision = balancer
            .decide(&fleet, &asking(&prompt), 0, &mut Rng::with_seed(seed), |_| true)
            .unwrap();

        let chosen = decision.target.index();
        let counts = |t: usize| if has(t) * 2 >= whole.len() { has(t) / 4 } else { 0 };
        let cost = |t: usize| {
            u64::from(queue[t]) + 4 * (whole.len() / 4 - counts(t)) as u64 + 16 * u64::from(load[t])
        };
        let least = candidates.iter().map(|&t| load[t]).min().unwrap();
        let cheapest = candidates.iter().map(|&t| cost(t)).min().unwrap();
        let idlest = candidates.iter().map(|&t| queue[t]).min().unwrap();
        let best = candidates.iter().map(|&t| counts(t)).max().unwrap();
        prop_assert!(candidates.contains(&chosen));
        prop_assert_eq!(decision.matched, has(chosen));
        let too_many = |t: usize| load[t] - least > 2 && f64::from(load[t]) > 1.5 * f64::from(least);
        // The cheapest, or one that waits least and gets a copy; the least loaded where that one is
        // too busy.
        let is_copy = |t: usize| queue[t] == idlest && counts(t) < best;
        let may_spill = candidates.iter().any(|&t| (cost(t) == cheapest || is_copy(t)) && too_many(t));
        prop_assert!(
            ((cost(chosen) == cheapest || is_copy(chosen)) && !too_many(chosen))
                || (load[chosen] == least && may_spill)
        );
        let reason = match counts(chosen) {
            _ if best == 0 => Reason::Miss,
            counts if counts < best => Reason::Spill,
            _ => Reason::Affinity,
        };
        prop_assert_eq!(decision.reason, reason);
    }
}
