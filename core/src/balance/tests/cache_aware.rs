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
fn a_warm_target_keeps_its_prompts_until_both_margins_are_passed() {
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
fn among_targets_within_a_block_of_the_best_the_least_loaded_is_picked() {
    let long = text("a", 8);
    let (near, far) = (
        &long[..long.len() - BLOCK_BYTES],
        &long[..long.len() - BLOCK_BYTES - 1],
    );
    let given = |second| [(0, &*long), (1, second)];
    assert_eq!(
        decision(&given(near), &fleet(&[1, 0]), &long),
        (1, "affinity")
    );
    assert_eq!(
        decision(&given(far), &fleet(&[1, 0]), &long),
        (0, "affinity")
    );
}

#[test]
fn a_target_within_a_block_of_the_best_needs_enough_of_the_prompt_too() {
    let given = [(0, "a short prompt")];
    assert_eq!(
        decision(&given, &fleet(&[1, 0]), "a short prompt"),
        (0, "affinity")
    );
}

#[test]
fn equal_loads_go_to_the_least_warmed_target() {
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
        blocks in prop::collection::vec(0_usize..12, 70),
        ineligible in prop::collection::vec(0_u16..70, 0..40),
        seed in any::<u64>(),
    ) {
        let whole = text("a", 10);
        let mut fleet = fleet(&load);
        for target in ineligible {
            fleet = without(fleet, target);
        }
        let id = |t: usize| TargetId(t.try_into().unwrap());
        let candidates: Vec<usize> = (0..load.len())
            .filter(|&t| fleet.eligible.is_empty() || fleet.eligible.contains(id(t)))
            .collect();
        // Multiples of 55, so that none is exactly a block from another.
        let has = |t: usize| (blocks[t] * 55).min(whole.len());
        let given: Vec<(u16, &str)> =
            (0..load.len()).map(|t| (id(t).0, &whole[..has(t)])).collect();
        let mut balancer = balancer(CACHE_AWARE, &infos(fleet.targets.iter().map(|t| t.0)), &given);
        let prompt = prompt(&whole);
        let decision = balancer
            .decide(&fleet, &asking(&prompt), 0, &mut Rng::with_seed(seed), |_| true)
            .unwrap();

        let chosen = decision.target.index();
        let least = candidates.iter().map(|&t| load[t]).min().unwrap();
        let best = candidates.iter().map(|&t| has(t)).max().unwrap();
        prop_assert!(candidates.contains(&chosen));
        prop_assert_eq!(decision.matched, has(chosen));
        let is_warm = |&&t: &&usize| has(t) + 64 >= best && has(t) * 2 >= whole.len();
        let warm_load = candidates.iter().filter(is_warm).map(|&t| load[t]).min().unwrap_or(0);
        let overloaded = warm_load.saturating_sub(least) > 2 && f64::from(warm_load) > 1.5 * f64::from(least);
        if best * 2 < whole.len() {
            prop_assert_eq!((decision.reason, load[chosen]), (Reason::Miss, least));
        } else if overloaded {
            prop_assert_eq!((decision.reason, load[chosen]), (Reason::Spill, least));
        } else {
            prop_assert_eq!((decision.reason, load[chosen]), (Reason::Affinity, warm_load));
            prop_assert!(is_warm(&&chosen));
        }
    }
}
