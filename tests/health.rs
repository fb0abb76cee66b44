//! Targets that may not be used for a while, and those that are not for everyone.

use e2e::{Answer, CHAT, Caller, all_released, answer, rested, say, setup, start, strategy, text};
use engine_sim::Fault;
use fleet::Fleet;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Asks over new connections, so of several workers, and returns who was picked.
async fn picked(fleet: &Fleet, requests: usize) -> Vec<String> {
    let mut targets = Vec::new();
    for number in 0..requests {
        let prompt = text(&format!("{number} {}", targets.len()), 4);
        targets.push(Caller::new(fleet).say(&prompt).await.target);
    }
    targets
}

/// Sends one request to a certain engine, which has this fault for once.
async fn strike(fleet: &Fleet, engine: usize, fault: &str) -> Answer {
    let engines = fleet.engines();
    let caller = Caller::new(fleet);
    engines[engine].set_fault(Some(fault.parse().unwrap()));
    for attempt in 0..1_000 {
        // One that nobody has yet is anybody's.
        let prompt = text(&format!("{fault} {attempt} {:?}", Instant::now()), 4);
        let answer = caller.say(&prompt).await;
        if answer.target == engines[engine].name() {
            engines[engine].set_fault(None);
            return answer;
        }
    }
    panic!("{} gets no request", engines[engine].name());
}

fn state(stats: &fleet::Stats, target: &str) -> u64 {
    stats.filter("rolter_target_state", &[("target", target)])
}

#[tokio::test]
async fn an_engine_that_asks_for_a_pause_gets_one_from_all_workers() {
    for fault in ["429=2", "503=2"] {
        let fleet = start(strategy(setup(3, 4), "random")).await;
        let start = Instant::now();
        let status = strike(&fleet, 0, fault).await.status.to_string();
        assert!(fault.starts_with(&status), "the answer is the engine's own");
        while start.elapsed() < Duration::from_millis(1_500) {
            let picked = picked(&fleet, 12).await;
            // On a busy machine the pause may be over meanwhile.
            let is_over = start.elapsed() >= Duration::from_secs(2);
            assert!(
                is_over || !picked.iter().any(|target| target == "vllm-a"),
                "{picked:?}"
            );
        }
        let cooling = fleet.stats_when(|stats| state(stats, "vllm-a") == 1).await;
        assert_eq!(state(&cooling.unwrap(), "vllm-a"), 1);
        rested(&fleet, "vllm-a").await;
        let picked = picked(&fleet, 40).await;
        assert!(picked.iter().any(|target| target == "vllm-a"), "{picked:?}");
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn a_pause_of_a_day_is_cut_to_a_minute() {
    let fleet = start(strategy(setup(2, 1), "random")).await;
    strike(&fleet, 0, "429=86400").await;
    let stats = fleet.stats().await.unwrap();
    let until = stats.filter("rolter_unavailable_until", &[("target", "vllm-a")]) >> 2;
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let left = u128::from(until).saturating_sub(now.as_millis());
    assert!((50_000..=60_000).contains(&left), "{left} ms");
}

#[tokio::test]
async fn an_engine_that_fails_in_a_row_is_left_alone_and_comes_back() {
    let fleet = start(strategy(setup(2, 4), "least_load")).await;
    for _ in 0..4 {
        assert_eq!(strike(&fleet, 0, "500").await.status, 500);
    }
    let began = Instant::now();
    strike(&fleet, 0, "reset-before-headers").await;
    for _ in 0..20 {
        let after = picked(&fleet, 1).await;
        // Then one request finds out.
        if began.elapsed() >= Duration::from_secs(1) {
            break;
        }
        assert_eq!(after, ["vllm-b"]);
    }
    // It is well again; one request finds that out.
    let deadline = Instant::now() + Duration::from_secs(5);
    while !picked(&fleet, 8).await.contains(&"vllm-a".to_owned()) {
        assert!(Instant::now() < deadline, "it has no traffic");
    }
    let stats = fleet.stats_when(|stats| state(stats, "vllm-a") == 0).await;
    assert_eq!(state(&stats.unwrap(), "vllm-a"), 0);
}

#[tokio::test]
async fn answers_between_failures_keep_an_engine_in_use() {
    let fleet = start(strategy(setup(2, 1), "round_robin")).await;
    for _ in 0..8 {
        strike(&fleet, 0, "500").await;
        let picked = picked(&fleet, 4).await;
        assert!(picked.contains(&"vllm-a".to_owned()), "{picked:?}");
    }
}

#[tokio::test]
async fn a_dead_engine_costs_one_request_and_its_probes_and_has_traffic_again_within_15_seconds() {
    let mut fleet = start(strategy(setup(3, 4), "random")).await;
    picked(&fleet, 12).await;
    fleet.engines()[0].kill();
    let mut failures = 0;
    let dead_for = Instant::now();
    while dead_for.elapsed() < Duration::from_secs(4) {
        let answer = Caller::new(&fleet).say("Hi").await;
        failures += u32::from(answer.status != 200);
        if answer.status != 200 {
            assert_eq!(answer.target, "vllm-a");
        }
    }
    // The first, one in each worker that has just picked it too, and probes after one second and
    // two more.
    assert!((1..=6).contains(&failures), "{failures} failures");
    fleet.restart(0).unwrap();
    let back = Instant::now();
    while !picked(&fleet, 8).await.contains(&"vllm-a".to_owned()) {
        assert!(
            back.elapsed() < Duration::from_secs(15),
            "it has no traffic"
        );
    }
    all_released(&fleet).await;
}

#[tokio::test]
async fn one_request_at_a_time_finds_out_whether_a_silent_engine_is_back() {
    let fleet = start(strategy(setup(2, 4), "random")).await;
    strike_until_open(&fleet, 0).await;
    fleet.engines()[0].set_fault(Some(Fault::Hang));
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    // Whoever is picked to find out hangs; nobody else is sent after it.
    let mut hung = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let request = Caller::new(&fleet).request(CHAT).json(&say("Hi"));
        hung.spawn(async move {
            // Less than the others are kept away for.
            let patience = Duration::from_secs(3);
            tokio::time::timeout(patience, request.send())
                .await
                .is_err()
        });
    }
    let hung = hung.join_all().await;
    assert_eq!(hung.iter().filter(|hung| **hung).count(), 1);
    all_released(&fleet).await;
}

async fn strike_until_open(fleet: &Fleet, engine: usize) {
    for _ in 0..5 {
        strike(fleet, engine, "500").await;
    }
}

#[tokio::test]
async fn where_no_engine_may_be_used_all_are_weighed() {
    let fleet = start(strategy(setup(2, 2), "random")).await;
    for engine in [0, 1] {
        strike(&fleet, engine, "429=30").await;
    }
    let after = picked(&fleet, 30).await;
    for name in ["vllm-a", "vllm-b"] {
        assert!(after.iter().any(|target| target == name), "{after:?}");
    }
}

/// The setup with two engines that are for the holder of a key each, and a third for both.
fn private(setup: fleet::Setup) -> fleet::Setup {
    let hash = |key: &str| {
        let hash = Sha256::digest(key.as_bytes());
        hash.iter()
            .fold(String::new(), |hex, byte| hex + &format!("{byte:02x}"))
    };
    let (alice, bob) = (hash("sk-alice"), hash("sk-bob").to_uppercase());
    setup.configure(move |config| {
        config["providers"][0]["allowed_keys"] = json!([alice]);
        config["providers"][1]["allowed_keys"] = json!([bob]);
        config["providers"][2]["allowed_keys"] = json!([alice, bob]);
    })
}

async fn private_fleet(strategy_name: &'static str) -> Fleet {
    let setup = private(setup(3, 2));
    start(match strategy_name {
        "cache_aware" => setup,
        other => strategy(setup, other),
    })
    .await
}

async fn say_as(fleet: &Fleet, authorization: &str) -> Answer {
    let request = Caller::new(fleet).request(CHAT);
    let request = request.header("authorization", authorization);
    answer(request.json(&say("Hi"))).await
}

#[tokio::test]
async fn an_engine_is_only_for_the_keys_that_it_names() {
    for strategy in [
        "cache_aware",
        "consistent_hash",
        "least_load",
        "pipeline",
        "power_of_two",
        "random",
        "round_robin",
        "weighted",
    ] {
        let fleet = private_fleet(strategy).await;
        for _ in 0..20 {
            let alice = say_as(&fleet, "Bearer sk-alice").await;
            let of_alice = ["vllm-a", "vllm-c"].contains(&&*alice.engine);
            assert!(alice.status == 200 && of_alice, "{strategy}: {alice:?}");
            let bob = say_as(&fleet, "bearer  sk-bob").await;
            let of_bob = ["vllm-b", "vllm-c"].contains(&&*bob.engine);
            assert!(bob.status == 200 && of_bob, "{strategy}: {bob:?}");
        }
    }
}

#[tokio::test]
async fn no_retry_leads_to_an_engine_of_another_key() {
    let fleet = start(private(setup(3, 2).pool())).await;
    for engine in [0, 2] {
        fleet.engines()[engine].set_fault(Some(Fault::Unavailable(None)));
    }
    for _ in 0..20 {
        let alice = say_as(&fleet, "Bearer sk-alice").await;
        assert_eq!(alice.status, 503, "{alice:?}");
    }
    assert!(fleet.engines()[1].recent_requests().is_empty());
}

#[tokio::test]
async fn a_key_that_no_engine_is_for_is_refused_in_the_clients_words() {
    let fleet = private_fleet("random").await;
    for authorization in ["Bearer sk-mallory", "", "Basic sk-alice"] {
        let refused = say_as(&fleet, authorization).await;
        assert_eq!(refused.status, 403);
        let body: Value = serde_json::from_str(&refused.body).unwrap();
        assert_eq!(body["error"]["type"], "permission_error");
        assert!(body["error"]["message"].is_string());
        assert!(!refused.body.contains("mallory"));
    }
    // A request without a body is no way around.
    let bodiless = answer(Caller::new(&fleet).bodiless("/v1/models")).await;
    assert_eq!(bodiless.status, 403, "{bodiless:?}");
    let stats = fleet.stats().await.unwrap();
    assert_eq!(
        stats.filter("rolter_refused_requests", &[("route", "chat")]),
        4
    );
    assert_eq!(stats.filter("rolter_decisions", &[]), 0);
    all_released(&fleet).await;
    for line in fleet.access_log(4).await {
        assert_eq!(line["route"], "chat");
        assert_eq!(line["reason"], "forbidden");
    }
    assert!(!fleet.log().contains("mallory"));
}

#[tokio::test]
async fn an_engine_that_may_not_be_used_does_not_open_the_others_to_all() {
    let fleet = private_fleet("random").await;
    fleet.engines()[0].kill();
    fleet.engines()[2].kill();
    for _ in 0..20 {
        let alice = say_as(&fleet, "Bearer sk-alice").await;
        assert_ne!(
            alice.target, "vllm-b",
            "rather an error than another's engine"
        );
    }
}

#[tokio::test]
async fn a_client_that_leaves_is_no_fault_of_the_engine() {
    let fleet = start(strategy(setup(2, 1), "round_robin")).await;
    for engine in fleet.engines() {
        engine.set_fault(Some("slow=200".parse().unwrap()));
    }
    for _ in 0..20 {
        let request = Caller::new(&fleet).request(CHAT).json(&say("Hi"));
        let request = request.timeout(Duration::from_millis(20));
        assert!(request.send().await.is_err());
    }
    all_released(&fleet).await;
    let stats = fleet.stats().await.unwrap();
    for outcome in ["failed", "unreachable"] {
        assert_eq!(
            stats.filter("rolter_outcomes", &[("outcome", outcome)]),
            0,
            "{outcome}"
        );
    }
}

#[tokio::test]
async fn a_stream_that_an_engine_cuts_counts_against_it() {
    let fleet = start(strategy(setup(2, 1), "round_robin")).await;
    let mut body = say(&text("stream", 4));
    body["stream"] = json!(true);
    for engine in fleet.engines() {
        engine.set_fault(Some(Fault::Reset(2)));
    }
    let request = Caller::new(&fleet).request(CHAT).json(&body);
    assert!(request.send().await.unwrap().bytes().await.is_err());
    let failed = |stats: &fleet::Stats| stats.filter("rolter_outcomes", &[("outcome", "failed")]);
    let stats = fleet.stats_when(|stats| failed(stats) == 1).await.unwrap();
    assert_eq!(failed(&stats), 1);
}

#[tokio::test]
async fn a_target_whose_cluster_does_not_exist_is_left_alone() {
    let setup = setup(2, 2).with("/providers/0/cluster", "nowhere");
    let fleet = start(setup).await;
    let mut failures = 0;
    let began = Instant::now();
    for number in 0..60 {
        // Then it is tried once more.
        if began.elapsed() >= Duration::from_secs(3) {
            break;
        }
        let answer = Caller::new(&fleet)
            .say(&text(&format!("{number}"), 4))
            .await;
        failures += u32::from(answer.status != 200);
    }
    // The first, one in the other worker, and a probe after a second.
    assert!((1..=3).contains(&failures), "{failures} of 60");
}

#[tokio::test]
async fn a_full_engine_in_a_pool_rests_and_fails_nobody() {
    let fleet = start(setup(2, 2).pool()).await;
    fleet.engines()[0].set_fault(Some("429=1".parse().unwrap()));
    let began = Instant::now();
    for number in 0..40 {
        // Once in a second it is asked.
        if began.elapsed() >= Duration::from_secs(4) {
            break;
        }
        let prompt = text(&format!("full {number}"), 8);
        let answer = Caller::new(&fleet).say(&prompt).await;
        assert_eq!((answer.status, &*answer.engine), (200, "vllm-b"));
    }
    let stats = fleet.stats().await.unwrap();
    let passed = stats.filter("rolter_outcomes", &[("outcome", "passed_over")]);
    assert!((1..=4).contains(&passed), "{passed} of 40 asked it first");
}

#[tokio::test]
async fn clients_that_leave_do_not_keep_an_engine_out() {
    let fleet = start(strategy(setup(2, 4), "least_load")).await;
    strike_until_open(&fleet, 0).await;
    for engine in fleet.engines() {
        engine.set_fault(Some("slow=60".parse().unwrap()));
    }
    let impatient = async {
        loop {
            let requests = (0..8).map(|_| {
                let request = Caller::new(&fleet).request(CHAT).json(&say("Hi"));
                request.timeout(Duration::from_millis(20)).send()
            });
            futures_util::future::join_all(requests).await;
        }
    };
    let patient = async {
        let began = Instant::now();
        loop {
            let answer = Caller::new(&fleet).say("Hi").await;
            if answer.engine == "vllm-a" {
                return began.elapsed();
            }
            assert!(began.elapsed() < Duration::from_secs(20), "it is kept out");
        }
    };
    tokio::select! {
        () = impatient => {}
        back = patient => eprintln!("back after {back:?}"),
    }
}
