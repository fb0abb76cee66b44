//! Each strategy at work, and the split of a route among variants.

use e2e::{Answer, CHAT, Caller, all_know, answer, say, setup, start, strategy, text};
use fleet::Fleet;
use serde_json::json;
use std::collections::BTreeMap;

/// Sends a chat of a session.
async fn say_in(caller: &Caller, session: &str, content: &str) -> Answer {
    let request = caller.request(CHAT).header("x-session-id", session);
    answer(request.json(&say(content))).await
}

/// How many of so many different prompts each engine gets, over one connection.
async fn spread(fleet: &Fleet, requests: usize) -> BTreeMap<String, usize> {
    let caller = Caller::new(fleet);
    let mut counts = BTreeMap::new();
    for number in 0..requests {
        let engine = caller.say(&text(&format!("{number}"), 4)).await.engine;
        *counts.entry(engine).or_default() += 1;
    }
    counts
}

#[tokio::test]
async fn a_session_stays_where_its_hash_leads_in_every_worker() {
    let fleet = start(strategy(setup(4, 4), "consistent_hash")).await;
    let mut homes = BTreeMap::new();
    for round in 0..6 {
        let caller = Caller::new(&fleet);
        for session in 0..24 {
            let content = text(&format!("{session} {round}"), 8);
            let answer = say_in(&caller, &format!("session {session}"), &content).await;
            let home = homes.entry(session).or_insert(answer.engine.clone());
            assert_eq!(answer.pick(), (home.as_str(), "hash"));
        }
    }
    let used: std::collections::BTreeSet<_> = homes.values().collect();
    assert_eq!(used.len(), 4, "{homes:?}");
}

#[tokio::test]
async fn without_a_session_it_is_the_whole_prompt_that_is_hashed() {
    let fleet = start(strategy(setup(4, 1), "consistent_hash")).await;
    let caller = Caller::new(&fleet);
    let system = text("system", 800);
    let mut used = std::collections::BTreeSet::new();
    for question in 0..16 {
        let prompt = format!("{system} {question}?");
        let home = caller.say(&prompt).await.engine;
        assert_eq!(caller.say(&prompt).await.engine, home);
        used.insert(home);
    }
    assert!(used.len() > 2, "one system prompt, one engine: {used:?}");
}

#[tokio::test]
async fn when_an_engine_is_gone_only_its_sessions_move() {
    let fleet = start(strategy(setup(4, 2), "consistent_hash")).await;
    let caller = Caller::new(&fleet);
    let mut homes = BTreeMap::new();
    for session in 0..24 {
        let answer = say_in(&caller, &format!("{session}"), "Hi").await;
        homes.insert(session, answer.engine);
    }
    let gone = fleet.engines()[1].name().to_owned();
    fleet.engines()[1].kill();
    let lost = homes.iter().find(|(_, home)| **home == gone).unwrap();
    say_in(&caller, &format!("{}", lost.0), "Are you there?").await;
    for (session, home) in &homes {
        let answer = say_in(&caller, &format!("{session}"), "Hi again").await;
        if *home == gone {
            assert_ne!(answer.engine, gone);
            assert_eq!(answer.status, 200, "{answer:?}");
        } else {
            assert_eq!(answer.engine, *home);
        }
    }
}

#[tokio::test]
async fn the_header_that_names_the_session_can_be_another() {
    let setup = strategy(setup(4, 1), "consistent_hash").with("/session_header", "X-Conversation");
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    let mut used = std::collections::BTreeSet::new();
    for number in 0..24 {
        let request = caller.request(CHAT).header("x-conversation", "one");
        let request = request.header("x-session-id", number);
        let body = say(&text(&format!("{number}"), 8));
        used.insert(answer(request.json(&body)).await.engine);
    }
    assert_eq!(used.len(), 1, "{used:?}");
}

#[tokio::test]
async fn of_two_engines_the_less_loaded_gets_the_request() {
    let fleet = start(strategy(setup(2, 4), "power_of_two")).await;
    let caller = Caller::concurrent(&fleet);
    let (_hung, busy) = hang_anywhere(&fleet, &caller).await;
    for _ in 0..20 {
        let answer = Caller::new(&fleet).say("Hi").await;
        let (engine, decision) = answer.pick();
        assert_ne!(engine, busy);
        assert_eq!(decision, "power_of_two");
    }
}

/// Leaves a request hanging, and tells where.
async fn hang_anywhere(fleet: &Fleet, caller: &Caller) -> (tokio::task::JoinSet<()>, String) {
    let mut hung = tokio::task::JoinSet::new();
    let request = caller.request(CHAT).json(&say("Hang"));
    let request = request.header("x-sim-fault", "hang");
    hung.spawn(async move {
        let _ = request.send().await;
    });
    let busy = |stats: &fleet::Stats| {
        let mut counts = stats.labelled("rolter_in_flight");
        counts
            .find(|(_, count)| *count == 1)
            .map(|(labels, _)| labels[0].1.to_owned())
    };
    let stats = fleet.stats_when(|stats| busy(stats).is_some()).await;
    (hung, busy(&stats.unwrap()).unwrap())
}

#[tokio::test]
async fn weights_are_kept_and_turns_are_smooth() {
    let setup = strategy(setup(3, 1), "weighted").with("/providers/0/weight", 5);
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    let mut turns = Vec::new();
    for _ in 0..28 {
        turns.push(caller.say("Hi").await.pick().0.to_owned());
    }
    for seven in turns.chunks(7) {
        let count = |name| seven.iter().filter(|turn| *turn == name).count();
        assert_eq!(
            [count("vllm-a"), count("vllm-b"), count("vllm-c")],
            [5, 1, 1],
            "{turns:?}"
        );
        let together = seven
            .windows(4)
            .any(|turns| turns.iter().all(|turn| turn == "vllm-a"));
        assert!(!together, "four in a row: {turns:?}");
    }
}

#[tokio::test]
async fn random_uses_all_engines() {
    let fleet = start(strategy(setup(3, 1), "random")).await;
    let counts = spread(&fleet, 90).await;
    assert!(
        counts.len() == 3 && counts.values().all(|&count| count > 10),
        "{counts:?}"
    );
}

#[tokio::test]
async fn a_pipeline_keeps_a_session_and_finds_a_prefix() {
    let fleet = start(strategy(setup(4, 4), "pipeline")).await;
    for session in 0..8 {
        let first = say_in(&Caller::new(&fleet), &format!("{session}"), &text("a", 2)).await;
        all_know().await;
        for turn in 0..4 {
            let content = text(&format!("{session} {turn}"), 8);
            let next = say_in(&Caller::new(&fleet), &format!("{session}"), &content).await;
            assert_eq!(next.pick(), (&*first.engine, "session"));
        }
    }
    for name in 0..8 {
        let prompt = text(&format!("prefix {name}"), 16);
        let first = Caller::new(&fleet).say(&prompt).await;
        all_know().await;
        let next = Caller::new(&fleet).say(&format!("{prompt} and more")).await;
        assert_eq!(next.pick(), (&*first.engine, "prefix"));
    }
}

#[tokio::test]
async fn a_pipeline_of_latency_leaves_a_slow_engine_alone() {
    let options = json!({"session": 0, "prefix": 0, "load": 0, "latency": 1});
    let setup = strategy(setup(2, 2), "pipeline").with("/routes/0/pipeline", options);
    let fleet = start(setup).await;
    let slow = &fleet.engines()[0];
    // Slower than the other one is where the machine is busy.
    slow.set_fault(Some("slow=600".parse().unwrap()));
    let mut body = say(&text("latency", 8));
    body["stream"] = json!(true);
    let caller = Caller::new(&fleet);
    // Until both are known.
    for _ in 0..40 {
        caller.send(CHAT, &body).await;
    }
    all_know().await;
    let before = slow.stats().served.values().sum::<u64>();
    for _ in 0..20 {
        // Whatever worker it is, it knows what the others measured.
        Caller::new(&fleet).send(CHAT, &body).await;
    }
    let more = slow.stats().served.values().sum::<u64>() - before;
    assert!(more <= 2, "{more} of 20 went to the slow engine");
}

/// A setup whose fourth engine is a variant that gets so many per cent.
fn with_canary(workers: usize, percent: u32) -> fleet::Setup {
    setup(4, workers).configure(move |config| {
        let route = &mut config["routes"][0];
        route["targets"] = json!(["vllm-a", "vllm-b", "vllm-c"]);
        route["variants"] = json!([{"name": "canary", "weight": percent, "targets": ["vllm-d"]}]);
    })
}

#[tokio::test]
async fn a_variant_gets_its_share() {
    let fleet = start(with_canary(2, 20)).await;
    let counts = spread(&fleet, 300).await;
    let canary = counts["vllm-d"];
    // Binomial: 60 are expected, with a standard deviation of 7.
    assert!((25..95).contains(&canary), "{counts:?}");
    assert_eq!(counts.len(), 4, "{counts:?}");
}

#[tokio::test]
async fn a_session_stays_in_its_variant() {
    let fleet = start(with_canary(4, 50)).await;
    let mut variants = BTreeMap::new();
    for round in 0..4 {
        let caller = Caller::new(&fleet);
        for session in 0..30 {
            let content = text(&format!("{session} {round}"), 4);
            let answer = say_in(&caller, &format!("{session}"), &content).await;
            let canary = answer.engine == "vllm-d";
            assert_eq!(*variants.entry(session).or_insert(canary), canary);
        }
    }
    let canaries = variants.values().filter(|&&canary| canary).count();
    assert!((5..=25).contains(&canaries), "{variants:?}");
}

#[tokio::test]
async fn a_variant_whose_engines_are_gone_gives_its_share_to_the_others() {
    let fleet = start(with_canary(2, 50)).await;
    fleet.engines()[3].kill();
    let caller = Caller::new(&fleet);
    let mut failures = 0;
    for number in 0..60 {
        let answer = caller.say(&text(&format!("{number}"), 4)).await;
        failures += usize::from(answer.status != 200);
    }
    // One that finds out, and a probe or two.
    assert!((1..=3).contains(&failures), "{failures}");
}
