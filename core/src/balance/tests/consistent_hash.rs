use super::*;
use crate::balance::Reason;
use crate::target::MAX_TARGETS;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, prop_assert_eq, proptest};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn of_session(session: u64) -> Request<'static> {
    Request {
        session: Some(session),
        ..NO_PROMPT
    }
}

/// Where requests go among these targets.
fn targets(ids: &[u16], eligible: TargetSet, requests: &[Request<'_>]) -> Vec<u16> {
    let mut balancer = balancer(Strategy::ConsistentHash, &infos(ids.iter().copied()), &[]);
    let fleet = Fleet {
        targets: ids.iter().copied().map(TargetId).collect(),
        eligible,
        load: None,
        pending: None,
        scores: None,
    };
    let mut rng = Rng::with_seed(1);
    let mut decide = |request| {
        let decision = decide(&mut balancer, &fleet, request, &mut rng).unwrap();
        assert_eq!(decision.reason, Reason::Hash);
        decision.target.0
    };
    requests.iter().map(&mut decide).collect()
}

#[test]
fn sessions_spread_over_all_targets() {
    let sessions: Vec<Request<'_>> = (0..1_000).map(of_session).collect();
    let ids = [3, 8, 100, 511];
    let went = targets(&ids, TargetSet::first(MAX_TARGETS), &sessions);
    for id in ids {
        let count = went.iter().filter(|&&target| target == id).count();
        assert!((180..320).contains(&count), "{id}: {count}");
    }
}

#[test]
fn a_session_outweighs_the_prompt() {
    let prompts = [1, 2, 3, 4].map(|digest| Prompt {
        digest,
        ..prompt("a")
    });
    let requests = prompts.each_ref().map(|prompt| Request {
        session: Some(7),
        ..asking(prompt)
    });
    let went = targets(&[0, 1, 2, 3, 4, 5, 6, 7], TargetSet::first(8), &requests);
    assert!(went.iter().all(|target| *target == went[0]), "{went:?}");
}

#[test]
fn without_a_session_the_whole_prompt_decides_and_not_its_beginning() {
    // The texts are the same, what was cut away is not.
    let prompts: Vec<Prompt<'_>> = (0..64)
        .map(|digest| Prompt {
            digest,
            ..prompt("the same beginning")
        })
        .collect();
    let requests: Vec<Request<'_>> = prompts.iter().map(asking).collect();
    let went = targets(&[0, 1], TargetSet::first(2), &requests);
    let count = went.iter().filter(|&&target| target == 0).count();
    assert!((16..48).contains(&count), "{count}");
    assert_eq!(went, targets(&[0, 1], TargetSet::first(2), &requests));
}

#[test]
fn neither_session_nor_prompt_goes_to_the_least_loaded_target() {
    let balancer = || balancer(Strategy::ConsistentHash, &infos(0..3), &[]);
    let decision = the_decision(balancer, &fleet(&[2, 1, 3]), &NO_PROMPT);
    assert_eq!(decision, (1, "no_prompt"));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Only keys of the target that goes (or cannot be used) move; the others stay.
    #[test]
    fn only_the_keys_move_that_must(
        mut ids in prop::collection::btree_set(0_u16..512, 2..20),
        gone in any::<prop::sample::Index>(),
        first in any::<u64>(),
    ) {
        let sessions: Vec<Request<'_>> = (0..200).map(|n| of_session(first.wrapping_add(n))).collect();
        let all: Vec<u16> = ids.iter().copied().collect();
        let gone = *gone.get(&all);
        ids.remove(&gone);
        let rest: Vec<u16> = ids.into_iter().collect();
        let everywhere = TargetSet::first(MAX_TARGETS);
        let mut eligible = everywhere;
        eligible.remove(TargetId(gone));

        let before = targets(&all, everywhere, &sessions);
        let removed = targets(&rest, everywhere, &sessions);
        let ejected = targets(&all, eligible, &sessions);
        prop_assert_eq!(&removed, &ejected);
        for (before, after) in before.into_iter().zip(removed) {
            prop_assert!(before == after || before == gone);
            prop_assert!(after != gone);
        }
    }
}
