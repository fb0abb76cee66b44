//! All engines in one cluster: the filter ranks them, and Envoy walks down the ranking.

use e2e::{
    Answer, CHAT, Caller, all_know, all_released, answer, in_flight, rested, say, setup, start,
    text,
};
use engine_sim::{Engine, Fault};
use fleet::{Fleet, Setup};
use futures_util::future::join_all;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// A fault of the engine of this name.
fn strike(fleet: &Fleet, engine: &str, fault: Option<Fault>) {
    let struck = fleet.engines().iter().find(|known| known.name() == engine);
    struck.unwrap().set_fault(fault);
}

#[tokio::test]
async fn a_prompt_lands_where_its_prefix_is_in_a_pool_too() {
    for workers in [1, 4] {
        let fleet = start(setup(3, workers).pool()).await;
        let caller = Caller::new(&fleet);
        let home = caller.say(&text("home", 16)).await;
        assert_eq!((home.status, home.pick().1), (200, "miss"));
        for _ in 0..3 {
            let next = caller.say(&text("home", 16)).await;
            assert_eq!(next.pick(), (home.engine.as_str(), "affinity"));
        }
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn what_an_engine_does_not_answer_the_next_in_rank_does() {
    let fleet = start(setup(3, 1).pool()).await;
    let caller = Caller::new(&fleet);
    for (number, fault) in [
        Fault::ResetBeforeHeaders,
        Fault::Unavailable(None),
        Fault::TooManyRequests(Some(9)),
    ]
    .into_iter()
    .enumerate()
    {
        let prompt = text(&format!("prompt {number}"), 16);
        let home = caller.say(&prompt).await.engine;
        strike(&fleet, &home, Some(fault));
        let moved = caller.say(&prompt).await;
        assert_eq!(moved.status, 200, "{fault}: {moved:?}");
        assert_ne!(moved.engine, home, "{fault}");
        strike(&fleet, &home, None);
        // Until then it rests.
        tokio::time::sleep(Duration::from_millis(1_100)).await;
    }
    all_released(&fleet).await;
}

#[tokio::test]
async fn an_engine_that_dies_under_many_requests_fails_none_of_them() {
    let mut fleet = start(setup(2, 1).pool()).await;
    let caller = Caller::concurrent(&fleet);
    strike(&fleet, "vllm-a", Some(Fault::Hang));
    let requests = (0..40).map(|number| {
        let body = say(&text(&format!("request {number}"), 16));
        answer(caller.request(CHAT).json(&body))
    });
    let kill = async {
        // By then many of them hang.
        tokio::time::sleep(Duration::from_millis(300)).await;
        fleet.engines()[0].kill();
    };
    let (answers, ()) = tokio::join!(join_all(requests), kill);
    for answer in answers {
        assert_eq!(
            (answer.status, &*answer.engine),
            (200, "vllm-b"),
            "{answer:?}"
        );
    }
    all_released(&fleet).await;

    fleet.restart(0).unwrap();
    rested(&fleet, "vllm-a").await;
    fleet.engines()[1].kill();
    let answer = Caller::new(&fleet).say("Are you back?").await;
    assert_eq!((answer.status, &*answer.engine), (200, "vllm-a"));
}

#[tokio::test]
async fn a_pool_is_closed_to_requests_that_no_route_is_for() {
    let setup = setup(2, 1).pool().configure(|config| {
        config["routes"].as_array_mut().unwrap().truncate(1);
    });
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    let forged = caller.bodiless("/sim/state").header(
        "x-gateway-destination-endpoint",
        fleet.engines()[0].addr().to_string(),
    );
    for request in [caller.bodiless("/sim/state"), forged] {
        let answer = answer(request).await;
        assert_eq!((answer.status, &*answer.engine), (503, ""), "{answer:?}");
    }
}

#[tokio::test]
async fn a_route_tells_as_many_targets_apart_as_it_may_have() {
    const MANY: u16 = 512;
    // One engine, which has many addresses.
    let config = setup(1, 1).engines.remove(0);
    let engine = Engine::start(config, SocketAddr::from(([0; 4], 0))).unwrap();
    let others = (0..MANY).map(|place| {
        let [high, low] = place.to_be_bytes();
        let address = SocketAddr::from(([127, 1, high, low], engine.addr().port()));
        (format!("vllm-{place}"), address)
    });
    let setup = Setup::before(others).workers(2).pool();
    let fleet = start(setup.with("/debug_headers", true)).await;
    let prompt = |number: u16| text(&format!("prompt {number}"), 2);
    let (caller, mut homes) = (Caller::new(&fleet), Vec::new());
    for number in 0..MANY {
        homes.push(caller.say(&prompt(number)).await.target);
    }
    let different: BTreeSet<&String> = homes.iter().collect();
    assert_eq!(
        different.len(),
        usize::from(MANY),
        "each is the least warm once"
    );
    all_know().await;
    let another = Caller::new(&fleet);
    for (number, home) in (0..MANY).zip(&homes) {
        let next = another.say(&prompt(number)).await;
        assert_eq!((&next.target, next.decision.as_str()), (home, "affinity"));
    }
    all_released(&fleet).await;
}

#[tokio::test]
async fn engines_in_a_pool_do_not_see_the_ranking() {
    let fleet = start(setup(2, 1).pool()).await;
    assert_eq!(Caller::new(&fleet).say("Hi").await.status, 200);
    let requests: Vec<_> = fleet
        .engines()
        .iter()
        .flat_map(engine_sim::Engine::recent_requests)
        .collect();
    assert_eq!(requests.len(), 1);
    let mut names = requests[0].headers.iter().map(|(name, _)| name);
    assert!(
        !names.any(|name| name.starts_with("x-gateway") || name.starts_with("x-rolter")),
        "{:?}",
        requests[0].headers
    );
}

/// How many requests the engine of this name has served.
fn served(fleet: &Fleet, engine: &str) -> u64 {
    let engines = fleet.engines().iter();
    let mut named = engines.filter(|known| known.name() == engine);
    named
        .next()
        .map_or(0, |engine| engine.stats().served.values().sum())
}

#[tokio::test]
async fn who_served_after_a_retry_has_the_prompt_from_then_on() {
    for workers in [1, 4] {
        let fleet = start(setup(3, workers).pool()).await;
        for number in 0..4 {
            let prompt = text(&format!("moved {number}"), 16);
            let home = Caller::new(&fleet).say(&prompt).await.engine;
            all_know().await;
            strike(&fleet, &home, Some(Fault::Unavailable(None)));
            let longer = prompt.clone() + &text("more", 8);
            let moved = Caller::new(&fleet).say(&longer).await;
            assert_ne!(moved.engine, home);
            assert_eq!(moved.target, moved.engine, "the receipt names who served");
            strike(&fleet, &home, None);
            // It may be used again by then.
            tokio::time::sleep(Duration::from_millis(1_100)).await;
            let before = served(&fleet, &home);
            for _ in 0..8 {
                let next = Caller::new(&fleet).say(&longer).await;
                assert_eq!(next.pick(), (&*moved.engine, "affinity"));
            }
            assert_eq!(served(&fleet, &home), before, "it has the first part alone");
        }
        let stats = fleet.stats().await.unwrap();
        assert_eq!(
            stats.filter("rolter_moved_requests", &[("route", "chat")]),
            4
        );
        all_released(&fleet).await;
    }
}

/// A worker looks at what all tell while a request is under way, and its own words are among that.
#[tokio::test]
async fn who_served_after_a_retry_that_came_late_has_the_prompt_alone() {
    let mut fleet = start(setup(2, 1).pool()).await;
    for engine in fleet.engines() {
        engine.set_fault(Some(Fault::Hang));
    }
    let prompt = text("late", 16);
    let asking = {
        let (caller, prompt) = (Caller::new(&fleet), prompt.clone());
        tokio::spawn(async move { caller.say(&prompt).await })
    };
    let is_at =
        |stats: &fleet::Stats, place: usize| in_flight(stats, ["vllm-a", "vllm-b"][place]) == 1;
    let stats = fleet
        .stats_when(|stats| is_at(stats, 0) || is_at(stats, 1))
        .await
        .unwrap();
    let (home, other) = if is_at(&stats, 0) { (0, 1) } else { (1, 0) };
    // By then it has looked, more than once.
    tokio::time::sleep(Duration::from_millis(500)).await;
    fleet.engines()[other].set_fault(None);
    fleet.engines()[home].kill();
    let moved = asking.await.unwrap();
    assert_eq!(moved.engine, fleet.engines()[other].name());
    fleet.restart(home).unwrap();
    rested(&fleet, fleet.engines()[home].name()).await;
    for _ in 0..16 {
        let next = Caller::new(&fleet).say(&prompt).await;
        assert_eq!(next.pick(), (&*moved.engine, "affinity"));
    }
    all_released(&fleet).await;
}

#[tokio::test]
async fn a_request_that_a_retry_moved_counts_where_it_is() {
    let fleet = start(setup(2, 1).pool()).await;
    let caller = Caller::new(&fleet);
    let prompt = text("moved", 16);
    let home = caller.say(&prompt).await.engine;
    strike(&fleet, &home, Some(Fault::ResetBeforeHeaders));
    let mut body = say(&prompt);
    body["stream"] = true.into();
    body["max_tokens"] = 1_000_000.into();
    let response = caller.request(CHAT).json(&body).send().await.unwrap();
    let stats = fleet.stats().await.unwrap();
    let other = if home == "vllm-a" { "vllm-b" } else { "vllm-a" };
    assert_eq!([in_flight(&stats, &home), in_flight(&stats, other)], [0, 1]);
    drop(response);
    all_released(&fleet).await;
}

#[tokio::test]
async fn an_engine_that_dies_in_the_middle_of_traffic_costs_no_client_its_answer() {
    let slow = engine_sim::EngineConfig {
        decode_time_per_token: Duration::from_millis(10),
        ..setup(1, 1).engines[0].clone()
    };
    let mut setup = setup(4, 2).pool();
    for engine in &mut setup.engines {
        *engine = engine_sim::EngineConfig {
            name: engine.name.clone(),
            ..slow.clone()
        };
    }
    let mut fleet = start(setup).await;
    let end = Instant::now() + Duration::from_secs(24);
    let clients = (0..16_u64).map(|client| {
        let caller = Caller::new(&fleet);
        async move {
            let mut answers = Vec::new();
            let mut turn = 0_u64;
            while Instant::now() < end {
                turn += 1;
                // Conversations, and every fourth client's answers are streams.
                let mut body = say(&text(&format!("client {client} {}", turn / 4), 8));
                let streams = client % 4 == 0;
                body["stream"] = streams.into();
                let request = caller.request(CHAT).json(&body);
                let response = request.send().await.unwrap();
                let head = Answer::of(&response);
                let whole = response.bytes().await.is_ok();
                answers.push((head, whole, streams));
            }
            answers
        }
    });
    let clients = tokio::spawn(join_all(clients.collect::<Vec<_>>()));
    tokio::time::sleep(Duration::from_secs(4)).await;
    fleet.engines()[1].kill();
    tokio::time::sleep(Duration::from_secs(4)).await;
    fleet.restart(1).unwrap();
    let back = Instant::now();
    while served(&fleet, "vllm-b") < 5 {
        assert!(
            back.elapsed() < Duration::from_secs(15),
            "it has no traffic"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let answers = clients.await.unwrap().concat();
    assert!(answers.len() > 200, "{}", answers.len());
    for (head, whole, streams) in &answers {
        assert_eq!(head.status, 200, "{head:?}");
        let was_flowing = *streams && head.engine == "vllm-b";
        assert!(*whole || was_flowing, "{head:?}");
    }
    all_released(&fleet).await;
}
