//! Providers of embeddings: how they are asked, and what happens where they do not answer well.

use super::cached::{CHAT, Cached, Request, answer, chat, document};
use super::embedder::{DIMENSION, Embedder, Manner};
use super::redis_server::RedisServer;
use super::support::{PATIENCE, eventually, sidecar_of};
use rolter_core::config::Config;
use rolter_sidecar::run::Sidecar;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// A variable that cargo sets for tests.
const VARIABLE: &str = "CARGO_PKG_NAME";

async fn with(embedder: &Embedder, semantic: &Value) -> Cached {
    let route_cache = json!({"semantic": semantic});
    Cached::start(&document(&json!({}), &route_cache, Some(&embedder.url))).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_is_asked_in_its_own_way_with_its_own_key() {
    let embedder = Embedder::start(Manner::Same).await;
    let semantic = json!({"dimensions": DIMENSION});
    let mut document = document(
        &json!({}),
        &json!({"semantic": semantic}),
        Some(&embedder.url),
    );
    document["providers"][1]["api_key_env"] = json!(VARIABLE);
    let cached = Cached::start(&document).await;
    let mut body = chat("  hello \n world ");
    body["user"] = json!("u");
    cached.answered(&Request::new(&body), &answer("hi")).await;
    assert_eq!(
        cached.outcome(&Request::new(&chat("bye"))).await,
        "semantic"
    );
    let asked = embedder.asked().remove(0);
    assert_eq!(asked.path, "/v1/embeddings");
    let key = format!("Bearer {}", std::env::var(VARIABLE).unwrap());
    assert_eq!(asked.authorization, Some(key));
    assert_eq!(
        asked.body,
        json!({
            "model": "small", "input": "user: hello world", "dimensions": DIMENSION,
            "encoding_format": "float",
        })
    );
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_is_asked_with_its_own_key() {
    let engine = Embedder::start(Manner::Says(200, "")).await;
    let document = json!({
        "sidecar": {"cluster": "s", "listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0"},
        "providers": [
            {"name": "a", "cluster": "a", "api_base": engine.url, "api_key_env": VARIABLE},
        ],
        "routes": [{"name": "chat", "targets": ["a"]}],
    });
    let sidecar = sidecar_of(&document).await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = sidecar.url("/v1/tokenize?route=chat");
    let asking = client
        .post(url)
        .header("x-rolter-path", CHAT)
        .body(chat("x").to_string());
    asking.send().await.unwrap();
    let paths = || {
        let paths: Vec<_> = engine.asked().into_iter().map(|asked| asked.path).collect();
        paths
    };
    let wanted = ["/health", "/metrics", "/v1/models", "/tokenize"];
    let all = |paths: &Vec<String>| wanted.iter().all(|path| paths.iter().any(|p| p == path));
    eventually(paths, all, "each question").await;
    let key = format!("Bearer {}", std::env::var(VARIABLE).unwrap());
    let mut asked = engine.asked().into_iter();
    assert!(asked.all(|asked| asked.authorization.as_ref() == Some(&key)));
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_not_in_the_environment_is_an_error_that_names_its_variable() {
    let mut document = document(&json!({}), &json!({}), Some("http://127.0.0.1:1"));
    document["providers"][1]["api_key_env"] = json!("ROLTER_NO_SUCH_KEY");
    let error = Sidecar::bind(Config::read(&document).unwrap())
        .await
        .err()
        .unwrap();
    let error = error.to_string();
    assert!(error.contains("ROLTER_NO_SUCH_KEY"), "{error}");
    assert!(error.contains("providers[1].api_key_env"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_only_makes_embeddings_is_asked_for_nothing_else() {
    let embedder = Embedder::start(Manner::Same).await;
    let engine = Embedder::start(Manner::Says(200, "")).await;
    let mut document = document(&json!({}), &json!({}), Some(&embedder.url));
    document["providers"][0]["api_base"] = json!(engine.url);
    let cached = Cached::start(&document).await;
    cached.look_up(&Request::new(&chat("hello"))).await;
    // By then the embedder would have been asked, too.
    eventually(|| engine.asked().len(), |asked| *asked > 6, "questions").await;
    let asked = embedder.asked();
    assert!(
        asked.iter().all(|asked| asked.path == "/v1/embeddings"),
        "{asked:?}"
    );
    let page = cached.sidecar.state.page(None);
    let told: Vec<&str> = page.targets.iter().map(|target| &*target.target).collect();
    assert_eq!(told, ["engine"]);
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_equal_requests_at_once_ask_for_one_vector() {
    let redis = RedisServer::start(&[]).await;
    for settings in [json!({}), json!({"redis": redis.url()})] {
        let embedder = Embedder::start(Manner::Late(Duration::from_millis(200))).await;
        let document = document(&settings, &json!({}), Some(&embedder.url));
        let cached = Arc::new(Cached::start(&document).await);
        cached.connected().await;
        cached.works().await;
        let before = embedder.texts().len();
        let mut lookups = JoinSet::new();
        for _ in 0..1_000 {
            let mut body = chat("hello");
            // Nothing there is alike.
            body["temperature"] = json!(0.5);
            let cached = Arc::clone(&cached);
            lookups.spawn(async move { cached.look_up(&Request::new(&body)).await });
        }
        let mut tickets = lookups.join_all().await.into_iter().map(|said| {
            assert_eq!(said.outcome(), "miss", "{said:?}");
            said.ticket
        });
        let first = tickets.next().unwrap();
        assert!(!first.is_empty() && tickets.all(|ticket| ticket == first));
        assert_eq!(embedder.texts()[before..], ["user: hello"]);
        assert_eq!(cached.failures("redis") + cached.failures("time"), 0);
        Arc::into_inner(cached).unwrap().stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vector_that_comes_too_late_is_of_use_for_storing() {
    let embedder = Embedder::start(Manner::Late(Duration::from_millis(500))).await;
    let cached = with(&embedder, &json!({})).await;
    let hurried = Request {
        timeout_ms: 50,
        ..Request::new(&chat("one"))
    };
    let began = Instant::now();
    let missed = cached.look_up(&hurried).await;
    assert_eq!(missed.outcome(), "miss");
    assert!(!missed.ticket.is_empty() && began.elapsed() < PATIENCE);
    assert_eq!(cached.metric("failures_total", &["time"]), 1);
    // While the vector is on its way.
    cached
        .stored(&missed.ticket, "application/json", &answer("hi"))
        .await;
    cached.compares(1).await;
    assert_eq!(
        cached.outcome(&Request::new(&chat("two"))).await,
        "semantic"
    );
    assert_eq!(embedder.texts(), ["user: one", "user: two"]);
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedder_that_does_not_answer_well_makes_a_miss_that_can_be_stored() {
    const HUGE: &str = include_str!("cache_embedder.rs");
    let manners = [
        (Manner::Says(500, ""), 10_000),
        (Manner::Says(401, ""), 10_000),
        (Manner::Says(200, "nonsense"), 10_000),
        (Manner::Says(200, HUGE), 10_000),
        (Manner::Says(200, r#"{"data": []}"#), 10_000),
        (
            Manner::Says(
                200,
                r#"{"data": [{"embedding": [0, 0, 0, 0, 0, 0, 0, 0]}]}"#,
            ),
            10_000,
        ),
        (
            Manner::Says(200, r#"{"data": [{"embedding": [1, 2]}]}"#),
            10_000,
        ),
        (Manner::Never, 100),
    ];
    for (manner, timeout_ms) in manners {
        let embedder = Embedder::start(manner.clone()).await;
        let semantic = json!({"dimensions": DIMENSION, "timeout_ms": 200});
        let cached = with(&embedder, &semantic).await;
        let request = Request {
            timeout_ms,
            ..Request::new(&chat("one"))
        };
        cached.answered(&request, &answer("hi")).await;
        assert_eq!(cached.outcome(&request).await, "exact", "{manner:?}");
        let failures = || cached.metric("failures_total", &["embedding"]);
        eventually(failures, |failures| *failures > 0, "a failure").await;
        assert_eq!(cached.metric("stores_total", &["semantic"]), 0);
        // It comes back by itself.
        embedder.be(Manner::Same);
        let began = Instant::now();
        let mut number = 0;
        loop {
            number += 1;
            let request = Request::new(&chat(&format!("question {number}")));
            let missed = cached.look_up(&request).await;
            if missed.outcome() == "semantic" {
                break;
            }
            assert_eq!(missed.outcome(), "miss", "{manner:?}");
            cached
                .stored(&missed.ticket, "application/json", &answer("hi"))
                .await;
            assert!(began.elapsed() < PATIENCE, "{manner:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedder_that_is_gone_is_not_stormed() {
    let embedder = Embedder::start(Manner::Says(503, "")).await;
    let cached = with(&embedder, &json!({})).await;
    for number in 0..50 {
        let request = Request::new(&chat(&format!("question {number}")));
        assert_eq!(cached.outcome(&request).await, "miss");
    }
    let asked = embedder.asked().len();
    assert!(asked < 25, "asked {asked} times");
    assert_eq!(cached.metric("failures_total", &["embedding"]), 50);
    cached.stop().await;
}
