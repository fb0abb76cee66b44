use super::cache_aware::BLOCK_BYTES;
use super::least_load::least_load;
use super::{Balancer, Fleet, Margins, Reason, RoundRobin};
use crate::affinity::{Limits, Tree};
use crate::prompt::Prompt;
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const LIMITS: Limits = Limits {
    max_nodes: 1_000_000,
    max_memory: 1 << 30,
};
const PICKS: u32 = 300;

/// Text of so many KV blocks, different for each name.
fn text(name: &str, blocks: usize) -> String {
    name.repeat(BLOCK_BYTES * blocks)
        .chars()
        .take(BLOCK_BYTES * blocks)
        .collect()
}

fn prompt(text: &str) -> Prompt<'static> {
    Prompt {
        text: text.into(),
        len: text.len() as u64,
        digest: 0,
        model: Some(Cow::Borrowed("m")),
        stream: false,
        token_ids: None,
        dialect: None,
    }
}

/// A `cache_aware` route with the default margins whose targets have been given these texts.
fn cache_aware(targets: usize, given: &[(u16, &str)]) -> Balancer {
    let mut tree = Tree::new(targets, LIMITS);
    for (target, text) in given {
        let found = tree.find(b"m", text.as_bytes());
        tree.observe(b"m", text.as_bytes(), TargetId(*target), &found);
    }
    Balancer::CacheAware {
        margins: Margins::default(),
        tree: Rc::new(RefCell::new(tree)),
    }
}

fn fleet(load: &[u32]) -> Fleet<'_> {
    Fleet {
        targets: load.len(),
        eligible: TargetSet::first(load.len()),
        load: Some(load),
    }
}

fn without(fleet: Fleet<'_>, target: u16) -> Fleet<'_> {
    let mut eligible = fleet.eligible;
    eligible.remove(TargetId(target));
    Fleet { eligible, ..fleet }
}

/// What a route decides for a text. The state is made anew each time, so decisions are independent,
/// and their number by target and reason is returned.
fn decisions(
    given: &[(u16, &str)],
    fleet: &Fleet<'_>,
    text: &str,
) -> BTreeMap<(u16, &'static str), u32> {
    let mut decisions = BTreeMap::new();
    let mut rng = Rng::with_seed(7);
    for _ in 0..PICKS {
        let pick = cache_aware(fleet.targets, given)
            .pick(fleet, Some(&prompt(text)), &mut rng)
            .unwrap();
        *decisions
            .entry((pick.target.0, pick.reason.as_str()))
            .or_default() += 1;
    }
    decisions
}

/// The one decision that is made every time.
fn decision(given: &[(u16, &str)], fleet: &Fleet<'_>, text: &str) -> (u16, &'static str) {
    let decisions = decisions(given, fleet, text);
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    *decisions.keys().next().unwrap()
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
fn a_spill_teaches_the_second_target() {
    let warm = text("a", 8);
    let mut balancer = cache_aware(3, &[(0, &warm)]);
    let mut rng = Rng::with_seed(1);
    let mut pick = |load: &[u32]| {
        balancer
            .pick(&fleet(load), Some(&prompt(&warm)), &mut rng)
            .unwrap()
    };
    let spill = pick(&[3, 0, 1]);
    assert_eq!((spill.target.0, spill.reason), (1, Reason::Spill));
    let next = pick(&[3, 1, 0]);
    assert_eq!((next.target.0, next.reason), (1, Reason::Affinity));
}

#[test]
fn the_guard_judges_the_warm_target_and_not_the_fleet() {
    // One target far ahead of the others is no reason to give up the affinity of another.
    let warm = text("a", 8);
    assert_eq!(
        decision(&[(1, &warm)], &fleet(&[90, 1, 0]), &warm),
        (1, "affinity")
    );
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
fn ties_are_broken_at_random() {
    let picked = decisions(&[], &fleet(&[0; 3]), &text("a", 8));
    assert_eq!(picked.len(), 3, "{picked:?}");
    assert!(
        picked.values().all(|&count| count > PICKS / 5),
        "{picked:?}"
    );
    let mut rng = Rng::with_seed(3);
    let mut least = [0; 3];
    for _ in 0..PICKS {
        least[least_load(&fleet(&[1, 0, 0]), &mut rng)
            .unwrap()
            .target
            .index()] += 1;
    }
    assert!(
        least[0] == 0 && least[1] > PICKS / 3 && least[2] > PICKS / 3,
        "{least:?}"
    );
}

#[test]
fn an_ineligible_target_neither_serves_nor_counts_as_idle() {
    let warm = text("a", 8);
    let given = [(0, &*warm)];
    // The dead target's empty queue would make the warm one look overloaded.
    let dead = without(fleet(&[3, 0, 3]), 1);
    assert_eq!(decision(&given, &dead, &warm), (0, "affinity"));
    let warm_is_dead = without(fleet(&[0, 2, 1]), 0);
    assert_eq!(decision(&given, &warm_is_dead, &warm), (2, "miss"));
}

#[test]
fn where_nothing_is_eligible_all_are_weighed() {
    let warm = text("a", 8);
    let none = Fleet {
        eligible: TargetSet::EMPTY,
        ..fleet(&[1, 0])
    };
    assert_eq!(decision(&[(0, &warm)], &none, &warm), (0, "affinity"));
    assert_eq!(decision(&[], &none, &warm), (1, "miss"));
}

#[test]
fn without_a_known_load_affinity_stands_and_a_miss_goes_to_the_least_warmed() {
    let (warm, cold) = (text("a", 8), text("b", 1));
    let given = [(0, &*warm), (1, &*cold)];
    let unknown = Fleet {
        load: None,
        ..fleet(&[0, 0])
    };
    assert_eq!(decision(&given, &unknown, &warm), (0, "affinity"));
    assert_eq!(decision(&given, &unknown, &text("c", 8)), (1, "miss"));
}

#[test]
fn a_request_without_a_prompt_goes_to_the_least_loaded_target_and_teaches_nothing() {
    let mut balancer = cache_aware(2, &[(0, &text("a", 8))]);
    let pick = balancer
        .pick(&fleet(&[0, 1]), None, &mut Rng::with_seed(1))
        .unwrap();
    assert_eq!((pick.target.0, pick.reason), (0, Reason::NoPrompt));
    let Balancer::CacheAware { tree, .. } = balancer else {
        unreachable!()
    };
    assert_eq!(tree.borrow().usage().prompts, 1);
}

#[test]
fn an_empty_prompt_is_a_miss() {
    assert_eq!(decision(&[(0, "")], &fleet(&[1, 0]), ""), (1, "miss"));
}

#[test]
fn round_robin_gives_every_eligible_target_its_turn() {
    let mut balancer = Balancer::RoundRobin(RoundRobin::new(4, &mut Rng::with_seed(2)));
    let fleet = without(fleet(&[9, 0, 0, 0]), 2);
    let mut rng = Rng::with_seed(1);
    let mut turns = || balancer.pick(&fleet, None, &mut rng).unwrap().target.0;
    let round: Vec<u16> = (0..3).map(|_| turns()).collect();
    let mut sorted = round.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [0, 1, 3]);
    for expected in round.iter().cycle().take(9) {
        assert_eq!(turns(), *expected);
    }
}

#[test]
fn a_route_without_targets_picks_nothing() {
    let mut rng = Rng::with_seed(1);
    for mut balancer in [
        cache_aware(0, &[]),
        Balancer::LeastLoad,
        Balancer::RoundRobin(RoundRobin::new(0, &mut rng)),
    ] {
        assert_eq!(
            balancer.pick(&fleet(&[]), Some(&prompt("a")), &mut rng),
            None
        );
        assert_eq!(balancer.pick(&fleet(&[]), None, &mut rng), None);
    }
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
        let pick = cache_aware(load.len(), &given)
            .pick(&fleet, Some(&prompt(&whole)), &mut Rng::with_seed(seed))
            .unwrap();

        let chosen = pick.target.index();
        let least = candidates.iter().map(|&t| load[t]).min().unwrap();
        let best = candidates.iter().map(|&t| has(t)).max().unwrap();
        prop_assert!(candidates.contains(&chosen));
        let warm_load = candidates.iter().filter(|&&t| has(t) + 64 >= best).map(|&t| load[t]).min().unwrap();
        let overloaded = warm_load - least > 2 && f64::from(warm_load) > 1.5 * f64::from(least);
        if best * 2 < whole.len() {
            prop_assert_eq!((pick.reason, load[chosen]), (Reason::Miss, least));
        } else if overloaded {
            prop_assert_eq!((pick.reason, load[chosen]), (Reason::Spill, least));
        } else {
            prop_assert_eq!((pick.reason, load[chosen]), (Reason::Affinity, warm_load));
            prop_assert!(has(chosen) + 64 >= best);
        }
    }
}
