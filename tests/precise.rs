//! `precise_cache_aware`: what engines tell of their caches decides, over real sockets all the way
//! from an engine's event to Envoy's choice.

use e2e::{Answer, CHAT, Caller, all_released, answer, say, setup, start, strategy, text};
use engine_sim::{EngineConfig, KvEncoding, KvEvents, KvFault, KvHashes};
use fleet::{Fleet, Setup};
use futures_util::future::join_all;
use reqwest::Client;
use serde_json::{Value, json};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const COMPLETIONS: &str = "/v1/completions";
const AFFINITY: &str = "affinity";

/// How long what has happened to an engine, the sidecar or Envoy may take to be made up for.
const RECOVERY: Duration = Duration::from_secs(5);

fn precise(engines: usize) -> Setup {
    strategy(setup(engines, 2).watched(), "precise_cache_aware")
}

/// A completion with a prompt of token ids, which fill so many blocks and one token more.
fn prompt(name: u32, blocks: u32) -> Value {
    let ids: Vec<u32> = (0..=blocks * 16).map(|n| name * 100_000 + n).collect();
    json!({"model": "m", "max_tokens": 1, "prompt": ids})
}

/// Sends a request to an engine, past Envoy, and returns the tokens that it had in its cache.
async fn ask_engine(fleet: &Fleet, engine: usize, path: &str, body: &Value) -> u64 {
    let url = format!("http://{}{path}", fleet.engines()[engine].addr());
    let client = Client::builder().no_proxy().build().unwrap();
    let response = client.post(url).json(body).send().await.unwrap();
    assert_eq!(response.status(), 200);
    cached(&response.json().await.unwrap())
}

fn cached(answer: &Value) -> u64 {
    let tokens = &answer["usage"]["prompt_tokens_details"]["cached_tokens"];
    tokens.as_u64().unwrap_or_else(|| panic!("{answer}"))
}

fn cached_of(answer: &Answer) -> u64 {
    cached(&serde_json::from_str(&answer.body).unwrap())
}

/// Waits until the decision on a request is this one, and then sends it. What it sends on the way
/// the engines refuse, so that asking changes nothing.
async fn until_decided(caller: &Caller, body: &Value, decision: &str) -> Answer {
    let mut refused = body.clone();
    refused["n"] = json!(2);
    let start = Instant::now();
    loop {
        let answer = caller.send(COMPLETIONS, &refused).await;
        assert_eq!(answer.status, 400, "{answer:?}");
        if answer.decision == decision {
            break;
        }
        assert!(start.elapsed() < RECOVERY, "still {answer:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let answer = caller.send(COMPLETIONS, body).await;
    assert_eq!(
        (answer.status, &*answer.decision),
        (200, decision),
        "{answer:?}"
    );
    answer
}

/// Asks until so many answers in a row are as wanted that it is no chance.
async fn until_in_a_row(caller: &Caller, wanted: impl Fn(&Answer) -> bool) {
    let (mut in_a_row, start) = (0, Instant::now());
    while in_a_row < 40 {
        let answer = caller.say("hello").await;
        assert_eq!(answer.status, 200, "{answer:?}");
        in_a_row = if wanted(&answer) { in_a_row + 1 } else { 0 };
        assert!(
            start.elapsed() < Duration::from_secs(30),
            "still {answer:?}"
        );
    }
}

/// Waits until the filter knows of all engines: the first decisions are made without.
async fn until_known(caller: &Caller) {
    let probe = json!({"model": "m", "max_tokens": 1, "prompt": [1]});
    until_decided(caller, &probe, "miss").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_prompt_goes_to_the_engine_that_has_its_blocks_whoever_sent_it_there() {
    let fleet = start(precise(4)).await;
    let caller = Caller::new(&fleet);
    until_known(&caller).await;
    for (number, engine) in [(1, 2), (2, 0), (3, 3), (4, 1)] {
        let body = prompt(number, 8);
        assert_eq!(ask_engine(&fleet, engine, COMPLETIONS, &body).await, 0);
        let answer = until_decided(&caller, &body, AFFINITY).await;
        assert_eq!(answer.pick(), (fleet.engines()[engine].name(), AFFINITY));
        assert_eq!(cached_of(&answer), 8 * 16);
    }
    // One with another beginning is nowhere.
    assert_eq!(
        caller.send(COMPLETIONS, &prompt(5, 8)).await.decision,
        "miss"
    );
    all_released(&fleet).await;
    assert!(!fleet.panicked());
}

#[tokio::test(flavor = "multi_thread")]
async fn token_ids_come_from_the_header_or_from_the_engine_or_nothing_is_known() {
    let setups = [
        precise(2),
        precise(2).with(
            "/routes/0/precise_cache_aware",
            json!({"tokenize": true, "tokenize_timeout_ms": 2_000}),
        ),
    ];
    for (setup, tokenizes) in setups.into_iter().zip([false, true]) {
        let fleet = start(setup).await;
        let caller = Caller::new(&fleet);
        until_known(&caller).await;
        let body = say(&text("home", 8));
        assert_eq!(ask_engine(&fleet, 1, CHAT, &body).await, 0);
        let url = format!("http://{}/tokenize", fleet.engines()[0].addr());
        let client = Client::builder().no_proxy().build().unwrap();
        let tokens: Value = client
            .post(url)
            .json(&body)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap();
        let tokens = tokens["tokens"].as_array().unwrap();
        let list: Vec<String> = tokens.iter().map(ToString::to_string).collect();
        let blocks = json!({"model": "m", "max_tokens": 1, "prompt": tokens});
        until_decided(&caller, &blocks, AFFINITY).await;
        let request = caller.request(CHAT).json(&body);
        let home = answer(request.header("x-rolter-vllm-token-ids", list.join(","))).await;
        assert_eq!(home.pick(), ("vllm-b", AFFINITY));
        assert!(cached_of(&home) > 100);

        let without = caller.send(CHAT, &body).await;
        let expected = if tokenizes { AFFINITY } else { "unknown" };
        assert_eq!(without.decision, expected);
        // What is no list of numbers is as good as none, and no header reaches the engine.
        let request = caller.request(CHAT).json(&body);
        let broken = answer(request.header("x-rolter-vllm-token-ids", "1,two")).await;
        assert_eq!(broken.decision, expected);
        for engine in fleet.engines() {
            for request in engine.recent_requests() {
                assert!(
                    !request
                        .headers
                        .iter()
                        .any(|(name, _)| name.contains("token-ids"))
                );
            }
        }
        all_released(&fleet).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_token_ids_in_time_the_least_loaded_engine_serves() {
    // It takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let silent = format!("http://{}", silent.local_addr().unwrap());
    let setup = precise(2)
        .with("/routes/0/precise_cache_aware", json!({"tokenize": true}))
        .with("/providers/0/api_base", &*silent)
        .with("/providers/1/api_base", &*silent);
    let mut fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    until_known(&caller).await;
    let untokenized = async |fleet: &Fleet| {
        let stats = fleet.stats().await.unwrap();
        stats.filter("rolter_untokenized_requests", &[])
    };
    for number in 1..=3 {
        let answer = caller.say(&text("home", 8)).await;
        assert_eq!((answer.status, &*answer.decision), (200, "unknown"));
        assert_eq!(untokenized(&fleet).await, number);
    }
    fleet.kill_sidecar().unwrap();
    let answer = caller.say(&text("home", 8)).await;
    assert_eq!((answer.status, &*answer.decision), (200, "unknown"));
    assert_eq!(untokenized(&fleet).await, 4);
    all_released(&fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_evicts_is_not_expected_there_any_more() {
    let small = EngineConfig {
        kv_blocks: 40,
        max_model_len: 600,
        ..setup(1, 1).engines.remove(0)
    };
    let mut setup = precise(2);
    for engine in &mut setup.engines {
        *engine = EngineConfig {
            name: engine.name.clone(),
            kv_events: engine.kv_events.clone(),
            ..small.clone()
        };
    }
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    until_known(&caller).await;
    let body = prompt(1, 16);
    ask_engine(&fleet, 0, COMPLETIONS, &body).await;
    until_decided(&caller, &body, AFFINITY).await;
    // Prompts that leave no room for it.
    for other in 2..6 {
        ask_engine(&fleet, 0, COMPLETIONS, &prompt(other, 16)).await;
    }
    let answer = until_decided(&caller, &body, "miss").await;
    assert_eq!(cached_of(&answer), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publication_that_was_dropped_is_made_up_for_by_replay() {
    let fleet = start(precise(2)).await;
    let caller = Caller::new(&fleet);
    until_known(&caller).await;
    assert!(fleet.engines()[1].strike_kv_events(0, KvFault::Drop(1)));
    let body = prompt(1, 8);
    ask_engine(&fleet, 1, COMPLETIONS, &body).await;
    // The next one shows that one is missing.
    ask_engine(&fleet, 1, COMPLETIONS, &prompt(2, 8)).await;
    let answer = until_decided(&caller, &body, AFFINITY).await;
    assert_eq!(answer.pick(), ("vllm-b", AFFINITY));
    assert_eq!(cached_of(&answer), 8 * 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_replay_a_gap_makes_a_target_neutral_until_it_clears_its_cache() {
    let mut setup = precise(2);
    for engine in &mut setup.engines {
        engine.kv_events = Some(KvEvents {
            replay_endpoint: None,
            ..KvEvents::default()
        });
    }
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    // Without replay only an empty cache is a beginning.
    for engine in fleet.engines() {
        engine.reset_prefix_cache();
    }
    for (number, engine) in [(10, 0), (11, 1)] {
        ask_engine(&fleet, engine, COMPLETIONS, &prompt(number, 2)).await;
    }
    until_known(&caller).await;
    let [a, b] = [prompt(1, 8), prompt(2, 8)];
    ask_engine(&fleet, 0, COMPLETIONS, &a).await;
    ask_engine(&fleet, 1, COMPLETIONS, &b).await;
    until_decided(&caller, &a, AFFINITY).await;
    until_decided(&caller, &b, AFFINITY).await;
    assert!(fleet.engines()[0].strike_kv_events(0, KvFault::Drop(1)));
    for number in [3, 4] {
        ask_engine(&fleet, 0, COMPLETIONS, &prompt(number, 8)).await;
    }
    // Nothing is concluded about it, while the other goes on as before.
    let answer = until_decided(&caller, &a, "miss").await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        caller.send(COMPLETIONS, &b).await.pick(),
        ("vllm-b", AFFINITY)
    );
    fleet.engines()[0].reset_prefix_cache();
    let again = prompt(5, 8);
    ask_engine(&fleet, 0, COMPLETIONS, &again).await;
    let answer = until_decided(&caller, &again, AFFINITY).await;
    assert_eq!(answer.pick(), ("vllm-a", AFFINITY));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_is_killed_comes_back_and_no_client_sees_an_error() {
    // In a pool, where a retry goes to another engine.
    let mut fleet = start(precise(3).pool()).await;
    let mut caller = Caller::new(&fleet);
    until_known(&caller).await;
    let load = {
        let caller = Caller::concurrent(&fleet);
        tokio::spawn(async move {
            for number in 100.. {
                let answers = (0..4).map(|n| {
                    let body = prompt(100 + (number * 4 + n) % 50, 8);
                    answer(caller.request(COMPLETIONS).json(&body))
                });
                for answer in join_all(answers).await {
                    assert_eq!(answer.status, 200, "{answer:?}");
                }
            }
        })
    };
    let body = prompt(1, 8);
    ask_engine(&fleet, 2, COMPLETIONS, &body).await;
    until_decided(&caller, &body, AFFINITY).await;

    // The sidecar: what is known stays known for as long as it is fresh, and is told anew.
    fleet.kill_sidecar().unwrap();
    let answer = caller.send(COMPLETIONS, &body).await;
    assert_eq!(answer.pick(), ("vllm-c", AFFINITY));
    fleet.restart_sidecar().await.unwrap();
    let other = prompt(2, 8);
    ask_engine(&fleet, 0, COMPLETIONS, &other).await;
    let answer = until_decided(&caller, &other, AFFINITY).await;
    assert_eq!(answer.pick(), ("vllm-a", AFFINITY));
    until_decided(&caller, &body, AFFINITY).await;

    // An engine: its cache is empty then.
    fleet.restart(2).unwrap();
    let answer = until_decided(&caller, &body, "miss").await;
    assert_eq!(cached_of(&answer), 0);
    let after = prompt(3, 8);
    ask_engine(&fleet, 2, COMPLETIONS, &after).await;
    let answer = until_decided(&caller, &after, AFFINITY).await;
    assert_eq!(answer.pick(), ("vllm-c", AFFINITY));

    // All of this time there were other requests, and each had its answer.
    assert!(!load.is_finished());
    load.abort();
    let _ = load.await;

    // Envoy.
    fleet.restart_envoy().await.unwrap();
    caller = Caller::new(&fleet);
    let answer = until_decided(&caller, &after, AFFINITY).await;
    assert_eq!(answer.pick(), ("vllm-c", AFFINITY));
    all_released(&fleet).await;
    assert!(!fleet.panicked());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_rank_that_has_the_prompt_is_told_to_the_engine_where_the_route_asks() {
    let mut setup = precise(2).with(
        "/routes/0/precise_cache_aware",
        json!({"rank_header": true}),
    );
    for engine in &mut setup.engines {
        engine.ranks = 3;
        engine.kv_events = Some(KvEvents {
            encoding: KvEncoding::Array,
            hashes: KvHashes::Bytes,
            ..KvEvents::default()
        });
    }
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    until_known(&caller).await;
    let url = format!("http://{}{COMPLETIONS}", fleet.engines()[1].addr());
    let client = Client::builder().no_proxy().build().unwrap();
    for rank in [2, 0, 1] {
        let body = prompt(rank + 1, 8);
        let request = client
            .post(&url)
            .json(&body)
            .header("x-data-parallel-rank", rank);
        assert_eq!(request.send().await.unwrap().status(), 200);
        let answer = until_decided(&caller, &body, AFFINITY).await;
        assert_eq!(answer.pick(), ("vllm-b", AFFINITY));
        assert_eq!(cached_of(&answer), 8 * 16);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn adapters_and_salts_have_blocks_of_their_own() {
    let mut setup = precise(2);
    for engine in &mut setup.engines {
        engine.adapters = vec!["sql".into()];
    }
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    until_known(&caller).await;
    let with = |key: &str, value: &str| {
        let mut body = prompt(1, 8);
        body[key] = json!(value);
        body
    };
    let (plain, sql, salted) = (prompt(1, 8), with("model", "sql"), with("cache_salt", "s"));
    ask_engine(&fleet, 0, COMPLETIONS, &sql).await;
    ask_engine(&fleet, 1, COMPLETIONS, &salted).await;
    for (body, engine) in [(&sql, "vllm-a"), (&salted, "vllm-b")] {
        let answer = until_decided(&caller, body, AFFINITY).await;
        assert_eq!(answer.pick(), (engine, AFFINITY));
        assert_eq!(cached_of(&answer), 8 * 16);
    }
    let answer = caller.send(COMPLETIONS, &plain).await;
    assert_eq!((&*answer.decision, cached_of(&answer)), ("miss", 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_engine_with_most_room_in_its_lmcache_is_taken() {
    use engine_sim::Occupancy::{Fixed, InternalError, Malformed, Unavailable};
    let fleet = start(strategy(setup(3, 1).watched(), "lmcache_aware")).await;
    let caller = Caller::new(&fleet);
    let set = |occupancies: [engine_sim::Occupancy; 3]| {
        for (engine, occupancy) in fleet.engines().iter().zip(occupancies) {
            engine.set_occupancy(occupancy);
        }
    };
    for (occupancies, engine) in [
        ([Fixed(0.9), Fixed(0.2), Fixed(0.8)], "vllm-b"),
        // Out of range, and not there at all.
        ([Fixed(7.0), Unavailable, Fixed(0.8)], "vllm-c"),
    ] {
        set(occupancies);
        until_in_a_row(&caller, |answer| answer.pick() == (engine, "occupancy")).await;
    }
    // What nobody tells any more is not known once it is old.
    set([Malformed, InternalError, Malformed]);
    until_in_a_row(&caller, |answer| answer.decision == "unknown").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_an_engine_says_of_its_load_counts() {
    let mut setup = strategy(setup(2, 1).watched(), "least_load");
    for engine in &mut setup.engines {
        engine.decode_time_per_token = Duration::from_millis(5);
    }
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    // Work that does not come through this Envoy, and takes a minute.
    let mut body = say("x");
    body["max_tokens"] = json!(12_000);
    let url = format!("http://{}{CHAT}", fleet.engines()[0].addr());
    let client = Client::builder().no_proxy().build().unwrap();
    let mut work = JoinSet::new();
    for _ in 0..8 {
        let request = client.post(&url).json(&body);
        work.spawn(async move {
            let _ = request.send().await;
        });
    }
    until_in_a_row(&caller, |answer| answer.engine == "vllm-b").await;
}

/// From an engine's event to a decision that knows of it. Reported, not judged.
#[tokio::test(flavor = "multi_thread")]
async fn the_time_from_an_event_to_a_decision_is_measured() {
    const ROUNDS: u32 = 200;
    let fleet = start(precise(4)).await;
    let caller = Caller::new(&fleet);
    until_known(&caller).await;
    let mut times = Vec::new();
    for round in 1..=ROUNDS {
        let body = prompt(round, 4);
        let engine = usize::try_from(round).unwrap() % 4;
        ask_engine(&fleet, engine, COMPLETIONS, &body).await;
        // By the time that an engine answers, it has published.
        let start = Instant::now();
        loop {
            // The engines refuse this one, so asking changes nothing.
            let mut probe = body.clone();
            probe["n"] = json!(2);
            let answer = caller.send(COMPLETIONS, &probe).await;
            assert_eq!(answer.status, 400);
            if answer.decision == AFFINITY {
                break;
            }
            assert!(start.elapsed() < RECOVERY);
        }
        times.push(start.elapsed());
    }
    times.sort_unstable();
    let percentile = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
    eprintln!(
        "from an engine's answer to a decision that knows its blocks, over {ROUNDS} rounds: p50 {:.1} ms, p99 {:.1} ms",
        percentile(50).as_secs_f64() * 1e3,
        percentile(99).as_secs_f64() * 1e3,
    );
}
