use super::*;
use crate::balance::Need;
use proptest::prelude::{ProptestConfig, any, prop, prop_assert, proptest};
use std::time::Duration;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NOTHING: Pipeline = Pipeline {
    session: 0.0,
    session_ttl: Duration::from_mins(10),
    prefix: 0.0,
    load: 0.0,
    weight: 0.0,
    latency: 0.0,
};

/// The decision of a pipeline about a text, over targets that have been given these texts.
fn decision(
    pipeline: Pipeline,
    given: &[(u16, &str)],
    load: &[u32],
    text: &str,
) -> (u16, &'static str) {
    let targets = infos((0..).take(load.len()));
    let balancer = || balancer(Strategy::Pipeline(pipeline), &targets, given);
    the_decision(balancer, &fleet(load), &asking(&prompt(text)))
}

#[test]
fn the_prefix_decides_until_the_load_is_about_twice_the_least() {
    let warm = text("a", 8);
    let given = [(0, &*warm)];
    for (load, expected) in [
        ([0, 0], (0, "prefix")),
        ([4, 2], (0, "prefix")),
        ([6, 2], (1, "load")),
        ([18, 9], (0, "prefix")),
        ([20, 9], (1, "load")),
        ([u32::MAX, 0], (1, "load")),
    ] {
        let decision = decision(Pipeline::default(), &given, &load, &warm);
        assert_eq!(decision, expected, "{load:?}");
    }
}

#[test]
fn more_of_the_prefix_is_better() {
    let long = text("a", 8);
    let given = [(0, &long[..128]), (1, &long[..256]), (2, &long[..64])];
    let decision = decision(Pipeline::default(), &given, &[0; 3], &long);
    assert_eq!(decision, (1, "prefix"));
}

#[test]
fn the_session_decides_where_the_prefix_does_not() {
    let memory = memory(&[]);
    let strategy = Strategy::Pipeline(Pipeline::default());
    let mut rng = Rng::with_seed(3);
    let mut balancer = Balancer::new(strategy, &infos(0..8), Rc::clone(&memory), &mut rng);
    let (first, second) = (prompt("first"), prompt("second"));
    let of_session = |prompt| Request {
        session: Some(9),
        ..asking(prompt)
    };
    let home = decide(
        &mut balancer,
        &fleet(&[0; 8]),
        &of_session(&first),
        &mut rng,
    )
    .unwrap();
    assert!(home.news.session);
    let next = decide(
        &mut balancer,
        &fleet(&[0; 8]),
        &of_session(&second),
        &mut rng,
    )
    .unwrap();
    assert_eq!(
        (next.target, next.reason.as_str()),
        (home.target, "session")
    );
    assert!(!next.news.session);
    // It moves with the request that has to move.
    let elsewhere = without(fleet(&[0; 8]), home.target.0);
    let moved = decide(&mut balancer, &elsewhere, &of_session(&second), &mut rng).unwrap();
    assert!(moved.news.session);
    assert_eq!(memory.borrow().sessions.find(9, NOW), Some(moved.target));
}

#[test]
fn a_session_is_remembered_as_long_as_the_strategy_says() {
    let memory = memory(&[]);
    let pipeline = Pipeline {
        session_ttl: Duration::from_secs(2),
        ..Pipeline::default()
    };
    let mut rng = Rng::with_seed(3);
    Balancer::new(
        Strategy::Pipeline(pipeline),
        &[],
        Rc::clone(&memory),
        &mut rng,
    );
    let sessions = &mut memory.borrow_mut().sessions;
    sessions.remember(1, TargetId(0), Millis(0));
    assert!(sessions.find(1, Millis(1_999)).is_some());
    assert!(sessions.find(1, Millis(2_000)).is_none());
}

#[test]
fn the_weight_decides_in_proportion() {
    let pipeline = Pipeline {
        weight: 1.0,
        load: 1.0,
        ..NOTHING
    };
    let targets = weighted(&[1, 4]);
    let balancer = || balancer(Strategy::Pipeline(pipeline), &targets, &[]);
    let decision = |load: &[u32]| the_decision(balancer, &fleet(load), &NO_PROMPT);
    // A quarter of the weight is worth as much as a quarter of the load.
    assert_eq!(decision(&[0, 2]), (1, "weight"));
    assert_eq!(decision(&[0, 4]), (0, "load"));
}

#[test]
fn the_target_that_answers_sooner_is_preferred() {
    let pipeline = Pipeline {
        latency: 1.0,
        ..NOTHING
    };
    let memory = memory(&[]);
    for _ in 0..20 {
        let latency = &mut memory.borrow_mut().latency;
        latency.observe(TargetId(0), 500, 300_000, NOW);
        latency.observe(TargetId(1), 500, 100_000, NOW);
    }
    let mut rng = Rng::with_seed(3);
    let prompt = prompt(&text("a", 8));
    let mut decide_of = |request| {
        let balancer = || {
            let mut rng = Rng::with_seed(1);
            let strategy = Strategy::Pipeline(pipeline);
            Balancer::new(strategy, &infos(0..2), Rc::clone(&memory), &mut rng)
        };
        decide(&mut balancer(), &fleet(&[0, 0]), &request, &mut rng).unwrap()
    };
    let decision = decide_of(asking(&prompt));
    assert_eq!(
        (decision.target.0, decision.reason.as_str()),
        (1, "latency")
    );
    // How long an unknown prompt takes is unknown for all.
    assert_eq!(decide_of(NO_PROMPT).reason.as_str(), "even");
}

#[test]
fn what_is_not_known_decides_nothing() {
    let pipeline = Pipeline {
        latency: 1.0,
        ..Pipeline::default()
    };
    let balancer = || balancer(Strategy::Pipeline(pipeline), &infos(0..3), &[]);
    let unknown = Fleet {
        load: None,
        pending: None,
        scores: None,
        ..fleet(&[0; 3])
    };
    for request in [NO_PROMPT, asking(&prompt("cold"))] {
        let decisions = decisions(balancer, &unknown, &request);
        assert_eq!(decisions.len(), 3, "{decisions:?}");
        assert!(decisions.keys().all(|(_, reason)| *reason == "even"));
        assert!(decisions.values().all(|&count| count > DECISIONS / 5));
    }
}

#[test]
fn a_scorer_without_weight_is_not_asked() {
    let asks = |pipeline| {
        let asks = balancer(Strategy::Pipeline(pipeline), &infos(0..2), &[]).asks();
        (asks.prompt == Need::Always, asks.session, asks.first_token)
    };
    let with = |change: fn(&mut Pipeline)| {
        let mut pipeline = NOTHING;
        change(&mut pipeline);
        asks(pipeline)
    };
    assert_eq!(asks(NOTHING), (false, false, false));
    assert_eq!(with(|p| p.prefix = 1.0), (true, false, false));
    assert_eq!(with(|p| p.session = 1.0), (false, true, false));
    assert_eq!(with(|p| p.latency = 1.0), (true, false, true));
    assert_eq!(with(|p| p.load = 1.0), (false, false, false));
    assert_eq!(with(|p| p.prefix = f64::NAN), (false, false, false));
    assert_eq!(with(|p| p.prefix = -1.0), (false, false, false));

    let mut balancer = balancer(Strategy::Pipeline(NOTHING), &infos(0..2), &[]);
    let prompt = prompt("a");
    let request = Request {
        session: Some(1),
        ..asking(&prompt)
    };
    let decision = decide(
        &mut balancer,
        &fleet(&[0, 0]),
        &request,
        &mut Rng::with_seed(1),
    );
    let decision = decision.unwrap();
    assert!(!decision.news.prompt && !decision.news.session && decision.prompt.is_none());
}

#[test]
fn any_weights_make_a_decision() {
    for weight in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, f64::MAX, -0.0] {
        let pipeline = Pipeline {
            session: weight,
            prefix: weight,
            load: weight,
            weight,
            latency: weight,
            ..NOTHING
        };
        let mut balancer = balancer(Strategy::Pipeline(pipeline), &infos(0..2), &[]);
        let prompt = prompt("a");
        let mut rng = Rng::with_seed(1);
        assert!(decide(&mut balancer, &fleet(&[7, 0]), &asking(&prompt), &mut rng).is_some());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The sum of scores, written down a second time: nobody has more than whoever is chosen, and of
    /// those that are left, measured by the best of them, none has more than the next follower.
    #[test]
    fn pipeline_follows_its_rule(
        load in prop::collection::vec(0_u32..12, 1..12),
        bytes in prop::collection::vec(0_u32..500, 12),
        ineligible in prop::collection::vec(0_u16..12, 0..6),
        holder in 0_u16..12,
        factors in prop::array::uniform4(0_u32..4),
        seed in any::<u64>(),
    ) {
        let whole = text("a", 8);
        let whole_len = u32::try_from(whole.len()).unwrap();
        let [session, prefix, load_factor, weight] = factors.map(f64::from);
        let pipeline = Pipeline { session, prefix, load: load_factor, weight, ..NOTHING };
        let weights: Vec<u32> = (1..).take(load.len()).collect();
        let mut fleet = fleet(&load);
        for target in ineligible {
            fleet = without(fleet, target);
        }
        let candidates = if fleet.eligible.is_empty() { fleet.targets } else { fleet.eligible };
        let given: Vec<(u16, &str)> = fleet.targets.iter().map(|t| (t.0, &whole[..bytes[t.index()] as usize])).collect();
        let memory = memory(&given);
        memory.borrow_mut().sessions.remember(1, TargetId(holder), NOW);
        let mut rng = Rng::with_seed(seed);
        let mut balancer = Balancer::new(Strategy::Pipeline(pipeline), &weighted(&weights), memory, &mut rng);
        let prompt = prompt(&whole);
        let request = Request { session: Some(1), ..asking(&prompt) };
        let decision = balancer.decide(&fleet, &request, 7, &mut rng, |_| true).unwrap();

        let (mut measured, mut rest) = (candidates, candidates);
        for chosen in std::iter::once(decision.target).chain(decision.followers.as_slice().iter().copied()) {
            let least = measured.iter().map(|t| load[t.index()]).min().unwrap();
            let heaviest = measured.iter().map(|t| weights[t.index()]).max().unwrap();
            let score = |t: TargetId| {
                let has_session = if t.0 == holder { session } else { 0.0 };
                has_session
                    + prefix * f64::from(bytes[t.index()]) / f64::from(whole_len)
                    + load_factor * f64::from(1 + least) / f64::from(1 + load[t.index()])
                    + weight * f64::from(weights[t.index()]) / f64::from(heaviest)
            };
            let best = rest.iter().map(score).fold(0.0, f64::max);
            prop_assert!(rest.contains(chosen));
            prop_assert!(score(chosen) > best - 1e-9, "{:?}", decision);
            rest.remove(chosen);
            measured.remove(decision.target);
        }
    }
}
