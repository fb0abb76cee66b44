//! Answers to requests in other words. The embedder gives every text the same vector, so each miss
//! is the partition at work.

use super::cached::{BOB, Cached, Request, answer, chat, document, stream};
use super::embedder::{Embedder, Manner};
use super::redis_server::RedisServer;
use super::support::PATIENCE;
use redis::AsyncCommands;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

struct Setup {
    cached: Cached,
    embedder: Embedder,
    redis: Option<RedisServer>,
}

async fn in_redis(manner: Manner, route_cache: &Value) -> Setup {
    let redis = RedisServer::start(&[]).await;
    let embedder = Embedder::start(manner).await;
    let settings = json!({"redis": redis.url()});
    let cached = Cached::start(&document(&settings, route_cache, Some(&embedder.url))).await;
    cached.connected().await;
    Setup {
        cached,
        embedder,
        redis: Some(redis),
    }
}

async fn both(manner: Manner, route_cache: &Value) -> [Setup; 2] {
    let embedder = Embedder::start(manner.clone()).await;
    let document = document(&json!({}), route_cache, Some(&embedder.url));
    let in_memory = Setup {
        cached: Cached::start(&document).await,
        embedder,
        redis: None,
    };
    [in_memory, in_redis(manner, route_cache).await]
}

#[tokio::test(flavor = "multi_thread")]
async fn other_words_are_answered_alike_and_other_conditions_never() {
    for setup in both(Manner::Same, &json!({})).await {
        let cached = &setup.cached;
        cached
            .answered(&Request::new(&chat("how tall is it")), &answer("tall"))
            .await;
        let hit = cached
            .look_up(&Request::new(&chat("what is its height")))
            .await;
        assert_eq!(hit.outcome(), "semantic");
        assert_eq!(hit.body, answer("tall").as_bytes());
        let mut attributed = chat("what is its height?");
        attributed["user"] = json!("u");
        attributed["metadata"] = json!({"a": "b"});
        assert_eq!(cached.outcome(&Request::new(&attributed)).await, "semantic");
        for (key, value) in [
            ("model", json!("other")),
            ("temperature", json!(0.5)),
            ("max_tokens", json!(5)),
            (
                "tools",
                json!([{"type": "function", "function": {"name": "f"}}]),
            ),
            ("response_format", json!({"type": "json_object"})),
            ("stream", json!(true)),
            ("unheard_of", json!(1)),
        ] {
            let mut body = chat("what is its height");
            body[key] = value;
            assert_eq!(cached.outcome(&Request::new(&body)).await, "miss", "{key}");
        }
        let mut body = chat("what is its height");
        let system = json!({"role": "system", "content": "answer in German"});
        body["messages"].as_array_mut().unwrap().insert(0, system);
        assert_eq!(cached.outcome(&Request::new(&body)).await, "miss");
        let mut bobs = Request::new(&chat("what is its height"));
        bobs.caller = Some(BOB);
        assert_eq!(cached.outcome(&bobs).await, "miss");
        assert!(cached.metric("similarity_count", &[]) >= 2);
        setup.cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_in_other_words_answers_a_stream() {
    for setup in both(Manner::Same, &json!({})).await {
        let streamed = |words| {
            let mut body = chat(words);
            body["stream"] = json!(true);
            Request::new(&body)
        };
        setup.cached.answered(&streamed("one"), &stream("hi")).await;
        let hit = setup.cached.look_up(&streamed("two")).await;
        assert_eq!(hit.outcome(), "semantic");
        assert_eq!(hit.body, stream("hi").as_bytes());
        assert_eq!(hit.content_type, "text/event-stream");
        setup.cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_closest_of_those_that_are_close_enough_answers() {
    for setup in both(Manner::Numbers, &json!({"semantic": {"threshold": 0.9}})).await {
        let cached = &setup.cached;
        for words in ["1 0 a", "0.8 0.6 b", "0 1 c"] {
            // Each of a kind of its own, so that none answers the other.
            cached
                .answered(&Request::new(&chat(words)), &answer(words))
                .await;
        }
        let found = |words: &'static str| async move {
            let said = cached.look_up(&Request::new(&chat(words))).await;
            (said.outcome().to_owned(), said.body)
        };
        let hit = |words| ("semantic".to_owned(), answer(words).into_bytes());
        assert_eq!(found("0.99 0.05 x").await, hit("1 0 a"));
        assert_eq!(found("0.7 0.7 x").await, hit("0.8 0.6 b"));
        assert_eq!(found("0 0 1 x").await.0, "miss");
        setup.cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_compared_asks_for_no_vector() {
    for setup in both(Manner::Same, &json!({})).await {
        let parts = json!([{"type": "image_url", "image_url": {"url": "data:"}}]);
        let image = json!({"model": "m", "messages": [{"role": "user", "content": parts}]});
        let tool = json!({"model": "m", "messages": [
            {"role": "user", "content": "x"}, {"role": "tool", "tool_call_id": "t", "content": "y"},
        ]});
        for (body, reason) in [(image, "not_text"), (tool, "tools"), (chat(" "), "empty")] {
            let request = Request::new(&body);
            setup.cached.answered(&request, &answer("hi")).await;
            assert_eq!(setup.cached.outcome(&request).await, "exact");
            let labels = ["semantic", reason];
            assert_eq!(setup.cached.metric("bypasses_total", &labels), 1);
        }
        assert!(setup.embedder.asked().is_empty());
        setup.cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_equal_request_asks_for_no_vector_again() {
    for setup in both(Manner::Same, &json!({})).await {
        let request = Request::new(&chat("hello"));
        setup.cached.answered(&request, &answer("hi")).await;
        for _ in 0..3 {
            assert_eq!(setup.cached.outcome(&request).await, "exact");
        }
        assert_eq!(setup.embedder.texts(), ["user: hello"]);
        setup.cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_expired_leaves_the_window() {
    for setup in both(Manner::Same, &json!({"ttl_secs": 4})).await {
        setup
            .cached
            .answered(&Request::new(&chat("one")), &answer("hi"))
            .await;
        let other = Request::new(&chat("two"));
        assert_eq!(setup.cached.outcome(&other).await, "semantic");
        let began = Instant::now();
        while setup.cached.outcome(&other).await == "semantic" {
            assert!(began.elapsed() < PATIENCE, "it lives on");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let compared = || setup.cached.metric("similarity_count", &[]);
        let before = compared();
        assert_eq!(setup.cached.outcome(&other).await, "miss");
        assert_eq!(compared(), before, "there was something to compare with");
        setup.cached.stop().await;
    }
}

/// The names of all keys that match.
async fn names(redis: &RedisServer, pattern: &str) -> Vec<String> {
    redis.connection().await.keys(pattern).await.unwrap()
}

/// The name of the only window.
async fn window(redis: &RedisServer) -> String {
    let names = names(redis, "rolter:semantic:v2:{*}").await;
    assert_eq!(names.len(), 1, "{names:?}");
    names.into_iter().next().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_holds_the_latest_and_no_more_than_it_may() {
    for setup in both(Manner::Numbers, &json!({"semantic": {"max_candidates": 4}})).await {
        // At right angles to each other, so that each is found by itself alone.
        let words = |place: usize, more: &str| format!("{}1 {more}", "0 ".repeat(place));
        for place in 0..8 {
            let request = Request::new(&chat(&words(place, "stored")));
            setup.cached.answered(&request, &answer("hi")).await;
            // Later ones leave the window later.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for place in 0..8 {
            let request = Request::new(&chat(&words(place, "asked")));
            let wanted = if place < 4 { "miss" } else { "semantic" };
            assert_eq!(setup.cached.outcome(&request).await, wanted, "{place}");
        }
        if let Some(redis) = &setup.redis {
            let window = window(redis).await;
            let listed: usize = redis.connection().await.zcard(&window).await.unwrap();
            assert_eq!(listed, 4);
            let millis: i64 = redis.connection().await.pttl(&window).await.unwrap();
            assert!(millis > 0);
        }
        setup.cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_is_stored_again_is_in_the_window_once() {
    let setup = in_redis(Manner::Same, &json!({})).await;
    for (user, count) in ["u", "v", "w"].into_iter().zip(1..) {
        let mut body = chat("hello");
        body["user"] = json!(user);
        let request = Request {
            refresh: true,
            ..Request::new(&body)
        };
        setup.cached.answered(&request, &answer(user)).await;
        setup.cached.compares(count).await;
    }
    let redis = setup.redis.as_ref().unwrap();
    let listed: usize = redis
        .connection()
        .await
        .zcard(window(redis).await)
        .await
        .unwrap();
    assert_eq!(listed, 1);
    let hit = setup.cached.look_up(&Request::new(&chat("good day"))).await;
    assert_eq!(
        (hit.outcome(), hit.body.clone()),
        ("semantic", answer("w").into_bytes())
    );
    setup.cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_gone_takes_its_text_out_of_the_window() {
    let setup = in_redis(Manner::Same, &json!({})).await;
    let redis = setup.redis.as_ref().unwrap();
    let mut connection = redis.connection().await;
    setup
        .cached
        .answered(&Request::new(&chat("one")), &answer("hi"))
        .await;
    let window = window(redis).await;
    let answers = names(redis, "rolter:exact:v1:*").await;
    let () = connection.del(&answers).await.unwrap();
    assert_eq!(
        setup.cached.outcome(&Request::new(&chat("two"))).await,
        "miss"
    );
    let began = Instant::now();
    while connection.exists(&window).await.unwrap() {
        assert!(began.elapsed() < PATIENCE, "it stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    setup.cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_stored_under_an_older_layout_is_never_read() {
    let setup = in_redis(Manner::Same, &json!({})).await;
    let redis = setup.redis.as_ref().unwrap();
    let mut connection = redis.connection().await;
    setup
        .cached
        .answered(&Request::new(&chat("one")), &answer("hi"))
        .await;
    assert_eq!(
        setup.cached.outcome(&Request::new(&chat("two"))).await,
        "semantic"
    );
    let stored = names(redis, "rolter:semantic:v2:*").await;
    assert_eq!(stored.len(), 2);
    for older in ["rolter:semantic:", "rolter:semantic:v1:"] {
        for name in &stored {
            let copy = name.replacen("rolter:semantic:v2:", older, 1);
            let copied = redis::cmd("COPY").arg(name).arg(&copy).to_owned();
            assert!(copied.query_async::<bool>(&mut connection).await.unwrap());
        }
    }
    let () = connection.del(&stored).await.unwrap();
    for words in ["two", "three"] {
        assert_eq!(
            setup.cached.outcome(&Request::new(&chat(words))).await,
            "miss"
        );
    }
    setup.cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sidecars_share_what_is_in_redis() {
    let setup = in_redis(Manner::Same, &json!({})).await;
    let settings = json!({"redis": setup.redis.as_ref().unwrap().url()});
    let other = document(&settings, &json!({}), Some(&setup.embedder.url));
    let other = Cached::start(&other).await;
    other.connected().await;
    for number in 0..40 {
        let request = Request {
            refresh: true,
            ..Request::new(&chat(&format!("question {number}")))
        };
        setup.cached.answered(&request, &answer("hi")).await;
    }
    setup.cached.compares(40).await;
    assert_eq!(
        other.outcome(&Request::new(&chat("question 7"))).await,
        "exact"
    );
    assert_eq!(
        other.outcome(&Request::new(&chat("another"))).await,
        "semantic"
    );
    assert_eq!(other.metric("memory_entries", &["candidates"]), 40);
    other.stop().await;
    setup.cached.stop().await;
}
