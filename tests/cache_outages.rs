//! The response cache without what it needs: Redis, the sidecar, or whoever makes embeddings, gone,
//! silent, slow, full or mad. Answers go on, nobody waits long, and the cache comes back by itself.

use e2e::cached::{ALICE, COMPLETIONS, Cached, PATIENCE, cached, embedder, fetch, reply, with};
use e2e::{CHAT, Caller, all_released, say};
use engine_sim::{Embeddings, Engine, Fault, expected_answer};
use fleet::{Fleet, Redis, Setup};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// How long a lookup may take in these tests, in milliseconds.
const LOOKUP: u64 = 200;
/// What nobody may wait longer than: some lookups, on a machine that is shared with others.
const LONGEST: Duration = Duration::from_secs(5);
/// Questions that clients repeat.
const QUESTIONS: usize = 12;

fn in_redis(redis: &Redis) -> Setup {
    bounded(cached(2, 2).with("/cache/redis", redis.url()))
}

fn bounded(setup: Setup) -> Setup {
    setup.with("/routes/0/cache/lookup_timeout_ms", LOOKUP)
}

fn question(number: usize) -> Value {
    say(&format!("What is {number}?"))
}

/// Asks for an answer, and asserts that it is right and came soon. Whether it was a hit.
async fn ask(request: reqwest::RequestBuilder, body: &Value) -> bool {
    let start = Instant::now();
    let reply = fetch(request.bearer_auth(ALICE).json(body)).await;
    let reply = reply.unwrap_or_else(|error| panic!("no answer: {error}"));
    let took = start.elapsed();
    assert_eq!(reply.status, 200, "{reply:?}");
    let expected = expected_answer(CHAT, body).unwrap();
    assert!(reply.said().starts_with(&expected), "{body} {reply:?}");
    assert!(took < LONGEST, "{took:?}");
    reply.cache == "hit"
}

/// Clients that ask all the time.
struct Traffic {
    clients: JoinSet<u64>,
    is_over: Arc<AtomicBool>,
}

impl Traffic {
    fn start(fleet: &Fleet) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let mut clients = JoinSet::new();
        for client in 0..4 {
            let caller = Caller::new(fleet);
            let is_over = Arc::clone(&is_over);
            clients.spawn(async move {
                let mut asked = 0;
                while !is_over.load(Ordering::Relaxed) {
                    let number = (client * 5 + usize::try_from(asked).unwrap()) % QUESTIONS;
                    ask(caller.request(CHAT), &question(number)).await;
                    asked += 1;
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                asked
            });
        }
        Self { clients, is_over }
    }

    /// Ends it, after every client had its answers.
    async fn stop(mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        while let Some(asked) = self.clients.join_next().await {
            assert!(asked.unwrap() > 0);
        }
    }
}

/// Asks the same for a while, and asserts that all have their answers, and none from the cache.
async fn goes_on_without(cached: &Cached, name: &str) {
    for number in 0..20 {
        let body = say(&format!("{name} {}", number % 2));
        let is_hit = ask(cached.anonymous(CHAT), &body).await;
        assert!(!is_hit, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_may_be_killed_and_started_again() {
    let mut redis = Redis::start().await.unwrap();
    let cached = Cached::start(in_redis(&redis)).await;
    let traffic = Traffic::start(&cached.fleet);
    for round in 0..3 {
        let body = say(&format!("round {round}"));
        cached.until_hit(CHAT, &body).await;
        redis.kill().unwrap();
        goes_on_without(&cached, "killed").await;
        redis.restart().await.unwrap();
        // It has forgotten all.
        cached.until_hit(CHAT, &body).await;
    }
    traffic.stop().await;
    let failures = [("part", "redis")];
    assert!(cached.counted("failures", &failures).await > 0);
    all_released(&cached.fleet).await;
    assert!(!cached.fleet.panicked());
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_may_not_be_there_at_the_start() {
    let mut redis = Redis::start().await.unwrap();
    redis.kill().unwrap();
    let cached = Cached::start(in_redis(&redis)).await;
    goes_on_without(&cached, "absent").await;
    redis.restart().await.unwrap();
    cached.until_hit(CHAT, &say("present")).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_may_take_connections_and_answer_none() {
    let redis = Redis::start().await.unwrap();
    let cached = Cached::start(in_redis(&redis)).await;
    let traffic = Traffic::start(&cached.fleet);
    for round in 0..3 {
        let body = say(&format!("round {round}"));
        cached.until_hit(CHAT, &body).await;
        redis.freeze().unwrap();
        goes_on_without(&cached, &format!("frozen {round}")).await;
        // Some do not wait until the lookup is over.
        for number in 0..4 {
            let body = say(&format!("impatient {number}"));
            let hasty = cached
                .request(CHAT, &body)
                .timeout(Duration::from_millis(20));
            let _ = fetch(hasty).await;
        }
        redis.thaw().unwrap();
        let again = cached.until_hit(CHAT, &body).await;
        assert!(again.age.is_some());
    }
    traffic.stop().await;
    all_released(&cached.fleet).await;
    assert!(!cached.fleet.panicked());
}

/// A way to Redis on which every answer is late, by so many milliseconds.
async fn slow_way(to: SocketAddr, millis: Arc<AtomicU64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let Ok(server) = TcpStream::connect(to).await else {
                continue;
            };
            let ((mut asks, mut is_told), (mut answers, mut is_asked)) =
                (client.into_split(), server.into_split());
            tokio::spawn(async move { tokio::io::copy(&mut asks, &mut is_asked).await });
            let millis = Arc::clone(&millis);
            tokio::spawn(async move {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(count @ 1..) = answers.read(&mut buffer).await {
                    let late = Duration::from_millis(millis.load(Ordering::Relaxed));
                    tokio::time::sleep(late).await;
                    if is_told.write_all(&buffer[..count]).await.is_err() {
                        break;
                    }
                }
            });
        }
    });
    addr
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_may_be_slow() {
    let redis = Redis::start().await.unwrap();
    let millis = Arc::new(AtomicU64::new(0));
    let way = slow_way(redis.addr(), Arc::clone(&millis)).await;
    let setup = in_redis(&redis).with("/cache/redis", format!("redis://{way}"));
    let cached = Cached::start(setup).await;
    let traffic = Traffic::start(&cached.fleet);
    for (late, name) in [(5, "a little"), (3 * LOOKUP, "much"), (0, "no more")] {
        millis.store(late, Ordering::Relaxed);
        if late < LOOKUP {
            cached.until_hit(CHAT, &say(name)).await;
        } else {
            goes_on_without(&cached, name).await;
        }
    }
    traffic.stop().await;
    all_released(&cached.fleet).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_may_be_full() {
    let redis = Redis::start().await.unwrap();
    let cached = Cached::start(in_redis(&redis)).await;
    let limit = async |bytes: &str| {
        let mut set = redis::cmd("CONFIG");
        let _: String = redis
            .ask(set.arg("SET").arg("maxmemory").arg(bytes))
            .await
            .unwrap();
    };
    let before = say("before");
    cached.until_hit(CHAT, &before).await;
    limit("1").await;
    goes_on_without(&cached, "full").await;
    // What is there stays there.
    cached.until_hit(CHAT, &before).await;
    let failures = [("part", "redis")];
    assert!(cached.counted("failures", &failures).await > 0);
    limit("0").await;
    cached.until_hit(CHAT, &say("after")).await;
}

/// From here on every key is spoilt, and before it only those of strings.
const STRINGS: usize = 6;

/// The keys as somebody else might leave them.
async fn spoil(redis: &Redis, how: usize) {
    let mut keys: Vec<Vec<u8>> = redis.ask(redis::cmd("KEYS").arg("*")).await.unwrap();
    // So that those of one kind are next to each other.
    keys.sort_unstable();
    let mut strings = Vec::new();
    for key in keys {
        let kind: String = redis.ask(redis::cmd("TYPE").arg(&key)).await.unwrap();
        if kind == "string" {
            let value: Vec<u8> = redis.ask(redis::cmd("GET").arg(&key)).await.unwrap();
            strings.push((key, value));
        } else if how >= STRINGS {
            strings.push((key, vec![]));
        }
    }
    assert!(strings.len() >= 6);
    let first = strings[0].1.clone();
    let others = strings.iter().skip(1).map(|(_, value)| value.clone());
    let others: Vec<Vec<u8>> = others.chain([first]).collect();
    for ((key, value), other) in strings.iter().zip(others) {
        let half = value[..value.len() / 2].to_vec();
        let set = |value: Vec<u8>| redis::cmd("SET").arg(key).arg(value).to_owned();
        let command = match how {
            0 => set(b"garbage".to_vec()),
            1 => set(vec![]),
            2 => set(half),
            // As if each had been stored under the key of the next.
            3 => set(other),
            // A list that claims to have four thousand million items.
            4 => set(vec![0xdd, 0xff, 0xff, 0xff, 0xff]),
            5 => redis::cmd("SETRANGE")
                .arg(key)
                .arg(8 << 20)
                .arg("a")
                .to_owned(),
            STRINGS => redis::cmd("LPUSH").arg(key).arg("a").to_owned(),
            _ => redis::cmd("ZADD").arg(key).arg("inf").arg("a").to_owned(),
        };
        if how >= STRINGS {
            let _: i64 = redis.ask(redis::cmd("DEL").arg(key)).await.unwrap();
        }
        let _: redis::Value = redis.ask(&command).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_may_hold_anything() {
    let redis = Redis::start().await.unwrap();
    let embedder = embedder(Embeddings::Equal);
    let cached = Cached::start(in_redis(&redis).semantic(&embedder)).await;
    cached.until_connected().await;
    for how in 0..8 {
        let chat = with(&question(0), "/how", json!(how));
        let others = [
            with(&chat, "/stream", json!(true)),
            with(&question(1), "/how", json!([how])),
        ];
        let questions = [&chat, &others[0], &others[1]];
        for body in questions {
            cached.store(cached.request(CHAT, body), "semantic").await;
        }
        spoil(&redis, how).await;
        for body in questions {
            ask(cached.anonymous(CHAT), body).await;
        }
        for body in questions {
            cached.until_hit(CHAT, body).await;
            assert!(ask(cached.anonymous(CHAT), body).await);
        }
        let _: String = redis.ask(&redis::cmd("FLUSHALL")).await.unwrap();
    }
    let log = cached.fleet.sidecar_log();
    assert!(!log.contains("panicked"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sidecar_may_be_killed_and_started_again() {
    let redis = Redis::start().await.unwrap();
    let in_redis = cached(2, 2).with("/cache/redis", redis.url());
    for (setup, is_redis) in [(cached(2, 2), false), (in_redis, true)] {
        let mut cached = Cached::start(setup).await;
        if is_redis {
            cached.until_connected().await;
        }
        let kept = say("kept");
        let first = cached.store(cached.request(CHAT, &kept), "exact").await;
        let traffic = Traffic::start(&cached.fleet);
        for round in 0..3 {
            cached.fleet.kill_sidecar().unwrap();
            goes_on_without(&cached, "killed").await;
            cached.fleet.restart_sidecar().await.unwrap();
            if is_redis {
                cached.until_connected().await;
                assert_eq!(cached.ask(CHAT, &kept).await.body, first.body);
            }
            let new = say(&format!("round {round}"));
            cached.until_hit(CHAT, &new).await;
        }
        if !is_redis {
            assert_eq!(cached.ask(CHAT, &kept).await.told(), (200, "miss", ""));
        }
        traffic.stop().await;
        all_released(&cached.fleet).await;
        assert!(!cached.fleet.panicked());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_makes_embeddings_may_be_slow_or_fail() {
    let embedder = embedder(Embeddings::Equal);
    let cached = Cached::start(bounded(cached(2, 2)).semantic(&embedder)).await;
    let hour = Duration::from_hours(1);
    for fault in [
        Fault::InternalError,
        Fault::TooManyRequests(None),
        Fault::Hang,
        Fault::Slow(hour),
        Fault::ResetBeforeHeaders,
        Fault::Reset(0),
        Fault::Stall(0),
        // Half of the JSON, and an error with the status of success.
        Fault::Cut(0),
        Fault::Error(0),
    ] {
        embedder.set_fault(Some(fault));
        let question = |number: usize| {
            let body = say(&format!("{fault} {number}"));
            with(&body, "/fault", json!(fault.to_string()))
        };
        let (failing, alike) = (question(0), question(1));
        for body in [&failing, &alike] {
            // The same words are found without.
            ask(cached.anonymous(CHAT), body).await;
            let again = cached.until_hit(CHAT, body).await;
            assert_eq!(again.kind, "exact", "{fault}");
        }
        embedder.set_fault(None);
        let start = Instant::now();
        for number in 2.. {
            let reply = cached.ask(CHAT, &question(number)).await;
            assert_eq!(reply.status, 200);
            if reply.kind == "semantic" {
                break;
            }
            assert!(start.elapsed() < PATIENCE, "after {fault}: {reply:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let failures = [("part", "embedding")];
    assert!(cached.counted("failures", &failures).await > 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_makes_embeddings_may_be_away() {
    let first = embedder(Embeddings::Equal);
    let cached = Cached::start(bounded(cached(2, 2)).semantic(&first)).await;
    first.kill();
    for number in 0..4 {
        let body = json!({"model": "m", "prompt": format!("{number}")});
        let reply = reply(cached.request(COMPLETIONS, &body)).await;
        assert_eq!(reply.told(), (200, "miss", ""));
        assert_eq!(cached.until_hit(COMPLETIONS, &body).await.kind, "exact");
    }
    let _second = Engine::start(first.config().clone(), first.addr()).unwrap();
    let start = Instant::now();
    for number in 4.. {
        let body = json!({"model": "m", "prompt": format!("{number}")});
        if cached.ask(COMPLETIONS, &body).await.kind == "semantic" {
            break;
        }
        assert!(start.elapsed() < PATIENCE);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
