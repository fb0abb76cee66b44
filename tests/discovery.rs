//! A headless service whose pods come and go under traffic: real DNS, a real sidecar that looks the
//! name up, and an Envoy that does.

use e2e::pods::Pods;
use e2e::{Answer, CHAT, Caller, all_released, answer, in_flight, say, start, strategy, text};
use engine_sim::EngineConfig;
use fleet::Fleet;
use futures_util::future::join_all;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a change of the name may take to be known everywhere, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Waits until requests may go to so many targets. Each worker looks who there is before it decides,
/// so what one has told holds for the next request of any.
async fn until_known(fleet: &Fleet, count: u64) {
    let known = |stats: &fleet::Stats| stats.filter("rolter_targets", &[("route", "chat")]);
    let start = Instant::now();
    loop {
        let stats = fleet.stats().await.unwrap();
        if known(&stats) == count {
            return;
        }
        let now = known(&stats);
        assert!(start.elapsed() < PATIENCE, "{now} targets, not {count}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Where each of these prompts goes, and why.
async fn homes(fleet: &Fleet, names: &[String]) -> BTreeMap<String, (String, String)> {
    let mut homes = BTreeMap::new();
    for name in names {
        let answer = Caller::new(fleet).say(&text(name, 16)).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let (engine, decision) = answer.pick();
        homes.insert(name.clone(), (engine.to_owned(), decision.to_owned()));
    }
    homes
}

fn names(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("prompt {number}"))
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_addresses_of_a_name_are_targets_and_those_that_stay_keep_what_they_have() {
    let mut pods = Pods::new().ready(3);
    let fleet = start(pods.setup(4)).await;
    until_known(&fleet, 3).await;
    let names = names(12);
    homes(&fleet, &names).await;
    let before = homes(&fleet, &names).await;
    assert!(
        before.values().all(|(_, decision)| decision == "affinity"),
        "{before:?}"
    );

    // Others come, and one goes.
    for number in 4..=6 {
        pods.start(number);
        pods.admit(number);
    }
    let gone = pods.target(2);
    pods.withdraw(2);
    until_known(&fleet, 5).await;
    for (name, (engine, decision)) in homes(&fleet, &names).await {
        let (home, _) = &before[&name];
        if *home == gone {
            assert_ne!(engine, gone, "{name}");
        } else {
            assert_eq!((&engine, &*decision), (home, "affinity"), "{name}");
        }
    }
    // It was away for a moment only: what was not asked since it has still.
    pods.admit(2);
    until_known(&fleet, 6).await;
    let home = names.iter().find(|name| before[*name].0 == gone).unwrap();
    let longer = text(home, 16) + &text("and more", 16);
    let back = Caller::new(&fleet).say(&longer).await;
    assert_eq!(back.decision, "affinity", "{back:?}");
    all_released(&fleet).await;
}

/// Conversations that go on until they are told to stop, each answer's status and the share of its
/// prompt that an engine had.
async fn traffic(fleet: &Fleet, stop: &AtomicBool) -> Vec<(Instant, Answer)> {
    let clients = (0..12_u64).map(|client| {
        let caller = Caller::new(fleet);
        async move {
            let mut answers = Vec::new();
            let mut turn = 0_u64;
            while !stop.load(Ordering::Relaxed) {
                turn += 1;
                // Two long beginnings a client, so that all engines have some of them.
                let start = text(&format!("client {client} {}", turn % 2), 24);
                let body = say(&(start + &text(&format!("turn {turn}"), 2)));
                let at = Instant::now();
                answers.push((at, answer(caller.request(CHAT).json(&body)).await));
            }
            answers
        }
    });
    join_all(clients).await.concat()
}

/// The share of the prompts' tokens that engines had, of answers from one moment to another.
fn hit_rate(answers: &[(Instant, Answer)], from: Instant, to: Instant) -> f64 {
    let usages = answers
        .iter()
        .filter(|(at, _)| (from..to).contains(at))
        .map(|(_, answer)| serde_json::from_str::<Value>(&answer.body).unwrap());
    let (mut cached, mut all) = (0, 0);
    for usage in usages {
        let usage = &usage["usage"];
        cached += usage["prompt_tokens_details"]["cached_tokens"]
            .as_u64()
            .unwrap_or(0);
        all += usage["prompt_tokens"].as_u64().unwrap();
    }
    assert!(all > 10_000, "{all} tokens are no traffic");
    #[expect(clippy::cast_precision_loss, reason = "far fewer than 2^52")]
    let rate = cached as f64 / all as f64;
    rate
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_that_change_under_traffic_cost_no_request_and_the_hit_rate_recovers() {
    for strategy_name in ["cache_aware", "precise_cache_aware"] {
        let mut pods = Pods::new()
            .of(EngineConfig {
                decode_time_per_token: Duration::from_millis(2),
                ..e2e::setup(1, 1).engines.remove(0)
            })
            .ready(4);
        let mut setup = pods.setup(2);
        if strategy_name != "cache_aware" {
            setup = strategy(setup, strategy_name).configure(|config| {
                config["routes"][0]["precise_cache_aware"] =
                    json!({"tokenize": true, "tokenize_timeout_ms": 500});
            });
        }
        let fleet = start(setup).await;
        until_known(&fleet, 4).await;
        let stop = AtomicBool::new(false);
        let changes = async {
            let phase = || tokio::time::sleep(Duration::from_secs(3));
            phase().await;
            let steady = Instant::now();
            phase().await;
            let roll_out = Instant::now();
            // A roll-out: each pod gives way to another, and has the time to finish.
            for (old, new) in [(1, 5), (2, 6), (3, 7), (4, 8)] {
                pods.start(new);
                pods.admit(new);
                pods.withdraw(old);
                drained(&fleet, &pods.target(old)).await;
                pods.kill(old);
            }
            // And one that dies without notice, which its name forgets later.
            pods.kill(5);
            phase().await;
            pods.withdraw(5);
            phase().await;
            let recovered = Instant::now();
            phase().await;
            let end = Instant::now();
            stop.store(true, Ordering::Relaxed);
            [steady, roll_out, recovered, end]
        };
        let (answers, [begin, roll_out, recovered, end]) =
            tokio::join!(traffic(&fleet, &stop), changes);
        let failed: Vec<_> = answers
            .iter()
            .filter(|(_, answer)| answer.status != 200)
            .collect();
        assert!(
            failed.is_empty(),
            "{} of {}: {:?}",
            failed.len(),
            answers.len(),
            failed[0]
        );
        let before = hit_rate(&answers, begin, roll_out);
        let during = hit_rate(&answers, roll_out, recovered);
        let after = hit_rate(&answers, recovered, end);
        println!(
            "{strategy_name}: {} requests, engines had {:.1} % before, {:.1} % during, {:.1} % after",
            answers.len(),
            before * 100.0,
            during * 100.0,
            after * 100.0
        );
        assert!(after > before - 0.05, "{before} before, {after} after");
        all_released(&fleet).await;
    }
}

/// Waits until a pod that has left the name has finished what it had, and gets no more.
async fn drained(fleet: &Fleet, target: &str) {
    let start = Instant::now();
    let mut quiet = 0;
    // Both look once a second.
    while quiet < 10 {
        let stats = fleet.stats().await.unwrap();
        quiet = if in_flight(&stats, target) == 0 {
            quiet + 1
        } else {
            0
        };
        assert!(start.elapsed() < PATIENCE, "{target} has requests still");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sidecar_or_a_name_server_that_is_away_takes_no_target_away() {
    let mut pods = Pods::new().ready(2);
    let mut fleet = start(pods.setup(2)).await;
    until_known(&fleet, 2).await;
    let names = names(6);
    homes(&fleet, &names).await;
    let before = homes(&fleet, &names).await;
    fleet.kill_sidecar().unwrap();
    assert_eq!(homes(&fleet, &names).await, before);
    // One that begins anew knows no address yet, and hears of none.
    pods.fail_names();
    fleet.restart_sidecar().await.unwrap();
    let connected = |stats: &fleet::Stats| stats.filter("rolter_feed_connected", &[]) == 1;
    assert!(connected(&fleet.stats_when(connected).await.unwrap()));
    assert_eq!(homes(&fleet, &names).await, before);
    assert_eq!(homes(&fleet, &names).await, before);
    // Once it hears again, it tells.
    pods.start(3);
    pods.admit(3);
    until_known(&fleet, 3).await;
    all_released(&fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn another_pod_at_the_address_of_one_that_is_forgotten_has_nothing_of_it() {
    let mut pods = Pods::new().ready(2);
    let mut fleet = start(pods.setup(2)).await;
    until_known(&fleet, 2).await;
    let names = names(8);
    homes(&fleet, &names).await;
    let before = homes(&fleet, &names).await;
    let gone = pods.target(2);
    pods.withdraw(2);
    until_known(&fleet, 1).await;
    pods.kill(2);
    // A sidecar that begins anew has nobody to wait for.
    fleet.kill_sidecar().unwrap();
    fleet.restart_sidecar().await.unwrap();
    let is_forgotten =
        |stats: &fleet::Stats| stats.filter("rolter_forgotten_at", &[("target", &gone)]) > 0;
    assert!(is_forgotten(&fleet.stats_when(is_forgotten).await.unwrap()));
    pods.start(2);
    pods.admit(2);
    until_known(&fleet, 2).await;
    let had: Vec<_> = names
        .iter()
        .filter(|name| before[*name].0 == gone)
        .collect();
    assert!(!had.is_empty(), "{before:?}");
    for name in had {
        let answer = Caller::new(&fleet).say(&text(name, 16)).await;
        assert_eq!(
            (answer.status, &*answer.decision),
            (200, "miss"),
            "{answer:?}"
        );
    }
    all_released(&fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_how_a_pod_is_whichever_worker_leads() {
    let mut pods = Pods::new().ready(2);
    let mut fleet = start(pods.setup(2)).await;
    let dead = pods.target(2);
    let state = |stats: &fleet::Stats| stats.filter("rolter_target_state", &[("target", &dead)]);
    until_known(&fleet, 2).await;
    pods.kill(2);
    // Who leads differs from start to start.
    for _ in 0..3 {
        fleet.restart_envoy().await.unwrap();
        until_known(&fleet, 2).await;
        let start = Instant::now();
        while state(&fleet.stats().await.unwrap()) != 2 {
            // Some of them are sent to it, and are answered by the other.
            for number in 0..4 {
                let name = format!("{number} of {:?}", start.elapsed());
                assert_eq!(Caller::new(&fleet).say(&text(&name, 4)).await.status, 200);
            }
            assert!(start.elapsed() < PATIENCE, "its state is not told");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_long_as_no_target_is_known_none_is_reached() {
    let pods = Pods::new();
    pods.fail_names();
    let key = "0".repeat(64);
    let fleet = start(pods.setup(1)).await;
    let caller = Caller::new(&fleet);
    // Left to the cluster, whose policy leads nowhere.
    let answer = caller.say("hello").await;
    assert_eq!((answer.status, &*answer.target), (503, ""), "{answer:?}");
    let untargeted = |stats: &fleet::Stats| stats.filter("rolter_untargeted_requests", &[]);
    assert_eq!(untargeted(&fleet.stats().await.unwrap()), 1);
    // Where targets are not for everybody, it is not left to the cluster.
    let restricted = pods.setup(1).configure(move |config| {
        config["providers"].as_array_mut().unwrap().push(json!({
            "name": "own", "endpoint": "127.0.0.1:1", "allowed_keys": [key],
        }));
        config["routes"][0]["targets"] = json!(["vllm", "own"]);
    });
    let fleet = start(restricted).await;
    let answer = Caller::new(&fleet).say("hello").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert!(answer.body.contains("no_known_target"), "{answer:?}");
}
