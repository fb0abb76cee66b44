//! Many that ask at once, and how long it takes. Times are reported, not judged.

use e2e::cached::{ALICE, Cached, asked, cached, embedder, fetch, reply};
use e2e::{CHAT, CONNECTIONS, Caller, all_released, say, setup, start, text};
use engine_sim::{Embeddings, Fault, expected_answer};
use fleet::Redis;
use futures_util::future::join_all;
use std::time::{Duration, Instant};

/// Whoever asks while a vector is being made waits for that one, and it is remembered: however many
/// ask for the same, one vector is paid for.
#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_who_ask_the_same_at_once_have_their_answer_for_one_embedding() {
    const REQUESTS: usize = 1_000;
    let redis = Redis::start().await.unwrap();
    let embedder = embedder(Embeddings::Equal);
    // All are there by the time that the vector is.
    embedder.set_fault(Some(Fault::Slow(Duration::from_secs(1))));
    let setup = cached(2, 4)
        .semantic(&embedder)
        .with("/cache/redis", redis.url());
    let cached = Cached::start(setup).await;
    cached.until_connected().await;
    let callers: Vec<Caller> = (0..CONNECTIONS)
        .map(|_| Caller::concurrent(&cached.fleet))
        .collect();
    let body = say("the same");
    let expected = expected_answer(CHAT, &body).unwrap();
    let requests = (0..REQUESTS).map(|number| {
        let caller = &callers[number % CONNECTIONS];
        fetch(caller.request(CHAT).bearer_auth(ALICE).json(&body))
    });
    let mut hits = 0;
    for reply in join_all(requests).await {
        let reply = reply.unwrap_or_else(|error| panic!("no answer: {error}"));
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert!(reply.said().starts_with(&expected), "{}", reply.text());
        hits += usize::from(reply.cache == "hit");
    }
    assert_eq!(asked(&embedder), 1);
    assert_eq!(cached.until_hit(CHAT, &body).await.kind, "exact");
    let stats = cached.fleet.stats().await.unwrap();
    let failed = stats.filter("rolter_cache_requests", &[("outcome", "failed")]);
    eprintln!("{REQUESTS} at once: {hits} hits, {failed} lookups failed");
    all_released(&cached.fleet).await;
    assert!(!cached.fleet.panicked());
}

/// A worker hands over so many answers at a time; what is beyond that waits, and is not lost.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_end_at_once_are_all_stored() {
    const STREAMS: usize = 400;
    let cached = Cached::start(cached(1, 1)).await;
    let callers: Vec<Caller> = (0..CONNECTIONS)
        .map(|_| Caller::concurrent(&cached.fleet))
        .collect();
    let streams = (0..STREAMS).map(|number| {
        let mut body = say(&format!("stream {number}"));
        body["stream"] = true.into();
        // All has come, and the end of it never does.
        let request = callers[number % CONNECTIONS]
            .request(CHAT)
            .bearer_auth(ALICE)
            .json(&body)
            .header("x-sim-fault", "stall=999");
        async move {
            let mut stream = request.send().await.unwrap();
            let mut text = Vec::new();
            while !text.ends_with(b"[DONE]\n\n") {
                text.extend(stream.chunk().await.unwrap().unwrap());
            }
            stream
        }
    });
    let streams = join_all(streams).await;
    assert_eq!(cached.counted("stores", &[]).await, 0);
    // Whoever has the last event leaves, all in one moment.
    drop((streams, callers));
    let all = STREAMS as u64;
    cached.until_counted("stores", &[], all).await;
    let stats = cached.fleet.stats().await.unwrap();
    let sent = [("outcome", "sent")];
    assert_eq!(stats.filter("rolter_cache_captures", &sent), all);
    all_released(&cached.fleet).await;
    assert!(!cached.fleet.panicked());
}

/// Times of requests, one after another.
#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    async fn take(&mut self, request: reqwest::RequestBuilder, cache: &str) {
        let start = Instant::now();
        let reply = reply(request).await;
        self.0.push(start.elapsed());
        assert_eq!((reply.status, &*reply.cache), (200, cache));
    }

    fn report(&mut self, what: &str) {
        self.0.sort_unstable();
        let count = self.0.len();
        let percentile = |percent: usize| {
            let time = self.0[(count * percent / 100).min(count - 1)];
            time.as_secs_f64() * 1e3
        };
        let (p50, p99) = (percentile(50), percentile(99));
        eprintln!("{what}: p50 {p50:.2} ms, p99 {p99:.2} ms, of {count}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_time_that_the_cache_takes_is_measured() {
    const ROUNDS: usize = 500;
    let redis = Redis::start().await.unwrap();
    let setup_in_redis = cached(1, 1).with("/cache/redis", redis.url());
    let with_cache = Cached::start(setup_in_redis).await;
    with_cache.until_connected().await;
    let without = Cached::over(start(setup(1, 1)).await);
    let repeated = say(&text("repeated", 64));
    with_cache
        .store(with_cache.request(CHAT, &repeated), "exact")
        .await;
    let [mut hits, mut misses, mut plain] = [(); 3].map(|()| Times::default());
    // In turns, so that what else the machine does strikes all.
    for round in 0..ROUNDS {
        let new = say(&text(&format!("new {round}"), 64));
        hits.take(with_cache.request(CHAT, &repeated), "hit").await;
        misses.take(with_cache.request(CHAT, &new), "miss").await;
        plain.take(without.request(CHAT, &new), "").await;
    }
    hits.report("an exact hit, through Envoy and Redis");
    misses.report("a miss, answered by an engine that takes no time");
    plain.report("the same without a cache");
}
