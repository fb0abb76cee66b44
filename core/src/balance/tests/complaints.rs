//! What users of other balancers complain of, and cannot happen here.

use super::*;
use crate::balance::Reason;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The strategies that know who has a prompt.
fn prefix_strategies() -> [Strategy; 2] {
    [CACHE_AWARE, Strategy::Pipeline(Pipeline::default())]
}

#[test]
fn ties_are_broken_at_random_and_not_by_index() {
    // Here a target is given by the prompt; how the prompts spread is tested there.
    let breaks_no_ties = |strategy: &Strategy| *strategy == Strategy::ConsistentHash;
    let prompt = prompt(&text("a", 8));
    for strategy in strategies() {
        for request in [NO_PROMPT, asking(&prompt)] {
            if breaks_no_ties(&strategy) && request.prompt.is_some() {
                continue;
            }
            let mut seed = 0;
            let balancer = || {
                seed += 1;
                let mut rng = Rng::with_seed(seed);
                Balancer::new(strategy, &infos(0..3), memory(&[]), &mut rng)
            };
            let picked = decisions(balancer, &fleet(&[0; 3]), &request);
            assert_eq!(picked.len(), 3, "{strategy:?} {picked:?}");
            let fair = picked.values().all(|&count| count > DECISIONS / 5);
            assert!(fair, "{strategy:?} {picked:?}");
        }
    }
}

#[test]
fn ties_behind_busier_targets_are_broken_evenly_too() {
    let balancer = || balancer(Strategy::LeastLoad, &infos(0..5), &[]);
    let picked = decisions(balancer, &fleet(&[2, 2, 2, 0, 0]), &NO_PROMPT);
    assert_eq!(picked.len(), 2, "{picked:?}");
    let even = picked.values().all(|&count| count > DECISIONS * 2 / 5);
    assert!(even, "{picked:?}");
}

#[test]
fn followers_are_not_by_index_either() {
    for strategy in strategies() {
        let mut seconds = [0; 4];
        for seed in 0..u64::from(DECISIONS) {
            let mut rng = Rng::with_seed(seed);
            let mut balancer = Balancer::new(strategy, &infos(0..4), memory(&[]), &mut rng);
            let load = fleet(&[0; 4]);
            let decision = balancer.decide(&load, &NO_PROMPT, 1, &mut rng, |_| true);
            seconds[decision.unwrap().followers.as_slice()[0].index()] += 1;
        }
        let fair = seconds.iter().all(|&count| count > DECISIONS / 6);
        assert!(fair, "{strategy:?} {seconds:?}");
    }
}

#[test]
fn a_miss_goes_to_the_least_loaded_target_and_not_to_the_smallest_tree() {
    let given = [(0, &*text("a", 2)), (1, &*text("b", 40))];
    let prompt = prompt(&text("c", 8));
    for strategy in prefix_strategies() {
        let balancer = || balancer(strategy, &infos(0..2), &given);
        let (target, _) = the_decision(balancer, &fleet(&[5, 4]), &asking(&prompt));
        assert_eq!(target, 1, "{strategy:?}");
    }
}

#[test]
fn a_busy_target_spills_alone_and_other_prefixes_keep_their_homes() {
    // One target far ahead of the others throws nobody else's affinity away.
    let (busy, calm) = (text("a", 8), text("b", 8));
    let given = [(0, &*busy), (1, &*calm)];
    let load = [90, 1, 0, 1];
    for strategy in prefix_strategies() {
        let balancer = || balancer(strategy, &infos(0..4), &given);
        let decision = |text: &str| the_decision(balancer, &fleet(&load), &asking(&prompt(text)));
        assert_eq!(decision(&busy).0, 2, "{strategy:?}");
        if strategy == CACHE_AWARE {
            assert_eq!(decision(&busy), (2, "spill"));
            assert_eq!(decision(&calm), (1, "affinity"));
        }
    }
    // The pipeline weighs by ratio, so a target at one against none is twice as busy.
    let pipeline = Strategy::Pipeline(Pipeline::default());
    let balancer = || balancer(pipeline, &infos(0..4), &given);
    let decision = the_decision(balancer, &fleet(&[90, 5, 4, 5]), &asking(&prompt(&calm)));
    assert_eq!(decision, (1, "prefix"));
}

#[test]
fn a_spill_teaches_the_second_target() {
    let warm = text("a", 8);
    let prompt = prompt(&warm);
    for strategy in prefix_strategies() {
        let mut balancer = balancer(strategy, &infos(0..3), &[(0, &warm)]);
        let mut rng = Rng::with_seed(1);
        let mut decide =
            |load: &[u32]| decide(&mut balancer, &fleet(load), &asking(&prompt), &mut rng).unwrap();
        let spill = decide(&[9, 0, 1]);
        assert_eq!((spill.target.0, spill.matched), (1, 0), "{strategy:?}");
        let next = decide(&[9, 1, 1]);
        assert_eq!(
            (next.target.0, next.matched),
            (1, warm.len()),
            "{strategy:?}"
        );
        assert!([Reason::Affinity, Reason::Prefix, Reason::Load].contains(&next.reason));
    }
}

#[test]
fn one_hot_prefix_spreads_over_the_fleet() {
    let hot = prompt(&text("a", 8));
    for strategy in prefix_strategies() {
        let mut balancer = balancer(strategy, &infos(0..8), &[]);
        let mut rng = Rng::with_seed(1);
        // Nothing is ever finished: the worst that can be.
        let mut load = [0; 8];
        for _ in 0..400 {
            let decision = decide(&mut balancer, &fleet(&load), &asking(&hot), &mut rng);
            load[decision.unwrap().target.index()] += 1;
        }
        let (least, most) = (load.iter().min().unwrap(), load.iter().max().unwrap());
        assert!(*most <= 2 * least, "{strategy:?} {load:?}");
    }
}

#[test]
fn what_is_remembered_is_bounded_whatever_comes() {
    let limits = Limits {
        max_nodes: 20_000,
        max_memory: 200_000,
    };
    let memory = Rc::new(RefCell::new(Memory::new(limits)));
    let strategy = Strategy::Pipeline(Pipeline::default());
    let mut rng = Rng::with_seed(1);
    let mut balancer = Balancer::new(strategy, &infos(0..9), Rc::clone(&memory), &mut rng);
    let load = [0; 9];
    for number in 0..20_000_u64 {
        let prompt = Prompt {
            model: Some(Cow::Owned(format!("model {}", number % 700))),
            ..prompt(&format!("{number:x} and what is asked of it"))
        };
        let request = Request {
            session: Some(number),
            ..asking(&prompt)
        };
        decide(&mut balancer, &fleet(&load), &request, &mut rng).unwrap();
        assert!(memory.borrow().tree.usage().memory <= limits.max_memory);
    }
    let memory = memory.borrow();
    assert!((0..9).all(|id| memory.tree.held(TargetId(id)) <= limits.max_nodes));
    assert!(memory.tree.usage().evictions > 10_000);
    assert_eq!(
        memory.sessions.len(),
        20_000,
        "whose own bound is tested there"
    );
}

#[test]
fn order_and_model_are_part_of_a_prefix() {
    let (one, two) = (text("a", 4), text("b", 4));
    let (there, back) = (format!("{one}{two}"), format!("{two}{one}"));
    let other_model = Prompt {
        model: Some(Cow::Borrowed("n")),
        ..prompt(&there)
    };
    for strategy in prefix_strategies() {
        let mut balancer = balancer(strategy, &infos(0..2), &[(0, &there)]);
        let mut rng = Rng::with_seed(1);
        let mut matched = |prompt: &Prompt<'_>| {
            // Loads that send whatever is not warm elsewhere.
            let decision = decide(&mut balancer, &fleet(&[1, 0]), &asking(prompt), &mut rng);
            decision.unwrap().matched
        };
        assert_eq!(matched(&prompt(&back)), 0, "{strategy:?}");
        assert_eq!(matched(&other_model), 0, "{strategy:?}");
    }
}

#[test]
fn order_and_model_are_part_of_a_hash() {
    // Were the parts joined by XOR, digest and model could change places.
    let of = |digest, model| Prompt {
        digest,
        model: Some(Cow::Borrowed(model)),
        ..prompt("")
    };
    let mut balancer = balancer(Strategy::ConsistentHash, &infos(0..64), &[]);
    let mut rng = Rng::with_seed(1);
    let mut target = |prompt: &Prompt<'_>| {
        let decision = decide(&mut balancer, &fleet(&[0; 64]), &asking(prompt), &mut rng);
        decision.unwrap().target
    };
    let moved = (0..64).filter(|&digest| target(&of(digest, "m")) != target(&of(digest, "n")));
    assert!(moved.count() > 55, "each model has homes of its own");
    let read = |body: &'static str| Prompt::read(b"/v1/completions", body.as_bytes());
    let there = read(r#"{"model":"m","prompt":["one","two"]}"#);
    let back = read(r#"{"model":"m","prompt":["two","one"]}"#);
    assert_ne!(target(&there), target(&back));
}

#[test]
fn an_idle_ineligible_target_neither_serves_nor_makes_a_warm_one_look_overloaded() {
    let warm = text("a", 8);
    let prompt = prompt(&warm);
    for strategy in prefix_strategies() {
        let balancer = || balancer(strategy, &infos(0..3), &[(0, &warm)]);
        let decision = |fleet: &Fleet<'_>| the_decision(balancer, fleet, &asking(&prompt)).0;
        // The dead target's queue is empty.
        assert_eq!(decision(&without(fleet(&[3, 0, 3]), 1)), 0, "{strategy:?}");
        let warm_is_dead = without(fleet(&[0, 2, 1]), 0);
        assert_eq!(decision(&warm_is_dead), 2, "{strategy:?}");
    }
}
