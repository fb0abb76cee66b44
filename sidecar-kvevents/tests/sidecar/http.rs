//! What Envoy and operators ask, and what engines are asked.

use super::publisher::Publisher;
use super::support::{PATIENCE, Running, events, eventually, sidecar};
use axum::{Router, routing};
use engine_sim::{Engine, EngineConfig};
use reqwest::{Client, Response, StatusCode};
use rolter_core::kv::feed::{Change, Page};
use rolter_sidecar::state::Seen;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

fn engine() -> Engine {
    let config = EngineConfig {
        models: vec!["m".into()],
        ..EngineConfig::default()
    };
    Engine::start(config, "127.0.0.1:0".parse().unwrap()).unwrap()
}

fn api(engine: &Engine) -> Value {
    json!({"api_base": format!("http://{}", engine.addr())})
}

/// The API of an engine that is not like others.
async fn server(router: Router) -> Value {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    json!({"api_base": format!("http://{address}")})
}

async fn get(url: &str) -> Response {
    Client::builder()
        .no_proxy()
        .build()
        .unwrap()
        .get(url)
        .timeout(PATIENCE)
        .send()
        .await
        .unwrap()
}

async fn page(sidecar: &Running, cursor: &str, wait_ms: u64) -> Page {
    let url = sidecar.url(&format!("/v1/feed?cursor={cursor}&wait_ms={wait_ms}"));
    let response = get(&url).await;
    assert_eq!(response.status(), StatusCode::OK);
    Page::from_bytes(&response.bytes().await.unwrap()).unwrap()
}

fn changes(page: &Page) -> usize {
    let mut bytes = &*page.changes;
    std::iter::from_fn(|| Change::read(&mut bytes)).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_feed_tells_all_and_then_what_changes() {
    let mut publisher = Publisher::start();
    publisher.publish(30);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(30).await;
    let all = page(&sidecar, "", 0).await;
    assert!(all.anew && changes(&all) >= 30);
    assert_eq!(all.replicas.len(), 1);
    assert_eq!(
        (all.replicas[0].block_size, all.replicas[0].age_ms.is_some()),
        (4, true)
    );
    let mut cursor = all.cursor;
    let mut told = 0;
    let waiting = async {
        while told < 3 {
            let more = page(&sidecar, &cursor, 30_000).await;
            told += changes(&more);
            cursor = more.cursor;
        }
    };
    let publishing = tokio::task::spawn_blocking(move || {
        publisher.publish(3);
        publisher
    });
    let ((), publisher) = tokio::join!(waiting, publishing);
    assert_eq!(told, 3);
    drop(publisher);
    // Nobody is left to tell anything new, and the reader has an answer all the same.
    assert_eq!(changes(&page(&sidecar, &cursor, 50).await), 0);
    for unknown in ["nonsense", "1-2", "1-2-3-4-5"] {
        assert!(page(&sidecar, unknown, 30_000).await.anew, "{unknown}");
    }
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_is_asked_how_it_is() {
    let engine = engine();
    let status = Arc::new(AtomicU16::new(503));
    let told = Arc::clone(&status);
    let health = move || async move { StatusCode::from_u16(told.load(Ordering::SeqCst)).unwrap() };
    let ill = server(Router::new().route("/health", routing::get(health))).await;
    // One that has no /health, and says so.
    let silent = server(Router::new()).await;
    let sidecar = sidecar(&[api(&engine), ill, silent]).await;
    let of = |place: usize| sidecar.state.targets()[place].seen();
    let is_well = |seen: &Seen| seen.healthy == Some(true) && seen.load.is_some();
    eventually(|| of(0), is_well, "a healthy engine").await;
    let is_ill = |seen: &Seen| seen.healthy == Some(false);
    eventually(|| of(1), is_ill, "an ill engine").await;
    let asked = || {
        let targets = sidecar.state.targets();
        targets[2].counts.health_failures.load(Ordering::Relaxed)
    };
    eventually(asked, |asked| *asked > 2, "some questions").await;
    let told = page(&sidecar, "", 0).await;
    assert_eq!(told.targets[0].healthy, Some(true));
    assert_eq!(told.targets[1].healthy, Some(false));
    assert_eq!(told.targets[2].healthy, None);
    let is_unknown = |seen: &Seen| seen.healthy.is_none();
    status.store(401, Ordering::SeqCst);
    eventually(|| of(1), is_unknown, "an engine that wants a key").await;
    drop(engine);
    // Of one that cannot be reached from here it is not known how it is.
    eventually(|| of(0), is_unknown, "an engine that is gone").await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_lmcache_is_asked_how_full_it_is() {
    let engine = engine();
    let url = format!("http://{}/v1/occupancy", engine.addr());
    let cache = json!({"lmcache": {"endpoint": url, "refresh_secs": 1, "stale_secs": 2}});
    let missing = format!("http://{}/nothing", engine.addr());
    let nothing = json!({"lmcache": {"endpoint": missing, "refresh_secs": 1, "stale_secs": 2}});
    let sidecar = sidecar(&[cache, nothing]).await;
    let seen = || sidecar.state.targets()[0].seen().lmcache;
    let cache = eventually(seen, Option::is_some, "a signal").await.unwrap();
    assert!(cache.available && (0.0..=1.0).contains(&cache.occupancy));
    assert_eq!(sidecar.state.targets()[1].seen().lmcache, None);
    drop(engine);
    eventually(seen, Option::is_none, "no signal").await;
    sidecar.stop().await;
}

async fn tokenize(sidecar: &Running, query: &str, path: &str, body: &impl ToString) -> Response {
    let client = Client::builder().no_proxy().build().unwrap();
    let url = sidecar.url(&format!("/v1/tokenize?{query}"));
    let request = client
        .post(url)
        .header("x-rolter-path", path)
        .body(body.to_string());
    request.timeout(PATIENCE).send().await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn token_ids_are_those_that_the_engine_uses() {
    let engine = engine();
    let sidecar = sidecar(&[api(&engine)]).await;
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": "one two three"}]});
    let completion = json!({"model": "m", "prompt": "one two three"});
    for (path, body) in [
        ("/v1/chat/completions", &chat),
        ("/v1/completions", &completion),
    ] {
        let answer = tokenize(&sidecar, "route=chat&timeout_ms=30000", path, body).await;
        assert_eq!(answer.status(), StatusCode::OK, "{path}");
        let bytes = answer.bytes().await.unwrap();
        let ids: Vec<_> = bytes
            .chunks(4)
            .map(|id| u32::from_le_bytes(id.try_into().unwrap()))
            .collect();
        let client = Client::builder().no_proxy().build().unwrap();
        let url = format!("http://{}/tokenize", engine.addr());
        let own = client
            .post(url)
            .body(body.to_string())
            .send()
            .await
            .unwrap();
        let own: Value = serde_json::from_slice(&own.bytes().await.unwrap()).unwrap();
        assert_eq!(json!(ids), own["tokens"]);
        assert!(!ids.is_empty());
    }
    let refused = [
        ("route=chat", "/v1/embeddings", &completion, 422),
        ("route=none", "/v1/completions", &completion, 404),
    ];
    for (query, path, body, status) in refused {
        assert_eq!(
            tokenize(&sidecar, query, path, body).await.status(),
            status,
            "{query} {path}"
        );
    }
    drop(engine);
    let failed = tokenize(&sidecar, "route=chat", "/v1/completions", &completion).await;
    assert!(failed.status().is_server_error(), "{}", failed.status());
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_is_asked_for_token_ids_in_the_clients_own_words() {
    let (questions, mut asked) = mpsc::unbounded_channel();
    let answer = move |body: String| async move {
        questions.send(body).unwrap();
        r#"{"tokens": [7, 8]}"#
    };
    let engine = server(Router::new().route("/tokenize", routing::post(answer))).await;
    let sidecar = sidecar(&[engine]).await;
    let tools =
        r#"[{"function": {"parameters": {"properties": {"to": {}, "at": {"maximum": 1.50}}}}}]"#;
    let body = format!(r#"{{"messages": [], "tools": {tools}, "user": "u"}}"#);
    let query = "route=chat&timeout_ms=30000";
    let answer = tokenize(&sidecar, query, "/v1/chat/completions", &body).await;
    assert_eq!(answer.bytes().await.unwrap(), [7, 0, 0, 0, 8, 0, 0, 0][..]);
    let question = asked.recv().await.unwrap();
    assert_eq!(question, format!(r#"{{"messages":[],"tools":{tools}}}"#));
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_readers_lag_is_what_it_had_not_been_told_when_it_asked() {
    let mut publisher = Publisher::start();
    publisher.publish(5);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(5).await;
    let lag = || sidecar.app.counts.feed_lag.load(Ordering::Relaxed);
    let cursor = page(&sidecar, "", 0).await.cursor;
    publisher.publish(3);
    sidecar.knows(8).await;
    page(&sidecar, &cursor, 0).await;
    assert_eq!(lag(), 3);
    let cursor = page(&sidecar, "", 0).await.cursor;
    assert_eq!(lag(), 0, "it begins anew");
    let waiting = page(&sidecar, &cursor, 30_000);
    let publishing = async {
        let readers = || sidecar.app.counts.feed_readers.load(Ordering::Relaxed);
        eventually(readers, |readers| *readers > 0, "a reader").await;
        publisher.publish(1);
    };
    let (news, ()) = tokio::join!(waiting, publishing);
    assert_eq!((changes(&news), lag()), (1, 0), "it was there");
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operators_see_how_it_is() {
    let publisher = Publisher::start();
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(0).await;
    for address in [sidecar.address, sidecar.metrics] {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(
                get(&format!("http://{address}{path}")).await.status(),
                StatusCode::OK
            );
        }
        let metrics = get(&format!("http://{address}/metrics"))
            .await
            .text()
            .await
            .unwrap();
        let trusted = r#"rolter_sidecar_kv_trusted{provider="e0",rank="0"} 1"#;
        assert!(metrics.contains(trusted), "{metrics}");
    }
    let feed = get(&format!("http://{}/v1/feed", sidecar.metrics)).await;
    assert_eq!(feed.status(), StatusCode::NOT_FOUND);
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_that_are_too_many_are_refused_and_nobody_else_is() {
    let engine = engine();
    let sidecar = sidecar(&[api(&engine)]).await;
    let seen = || sidecar.state.targets()[0].seen();
    let is_well = |seen: &Seen| seen.healthy == Some(true) && seen.load.is_some();
    eventually(seen, is_well, "a healthy engine").await;
    let cursor = page(&sidecar, "", 0).await.cursor;
    let url = sidecar.url(&format!("/v1/feed?wait_ms=30000&cursor={cursor}"));
    let mut readers = tokio::task::JoinSet::new();
    for _ in 0..100 {
        let url = url.clone();
        readers.spawn(async move { get(&url).await.status() });
    }
    while readers.join_next().await.unwrap().unwrap() != StatusCode::SERVICE_UNAVAILABLE {}
    let body = json!({"model": "m", "prompt": "one two three"});
    let query = "route=chat&timeout_ms=30000";
    let answer = tokenize(&sidecar, query, "/v1/completions", &body).await;
    assert_eq!(answer.status(), StatusCode::OK);
    assert_eq!(get(&sidecar.url("/healthz")).await.status(), StatusCode::OK);
    readers.shutdown().await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reader_that_waits_does_not_hold_up_the_end() {
    let publisher = Publisher::start();
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(0).await;
    let cursor = page(&sidecar, "", 0).await.cursor;
    let url = sidecar.url(&format!("/v1/feed?cursor={cursor}&wait_ms=30000"));
    let reader = tokio::spawn(async move { get(&url).await.status() });
    let readers = || {
        let text = rolter_sidecar::metrics::render(&sidecar.state, &sidecar.app.counts, None);
        text.contains("rolter_sidecar_feed_readers 1")
    };
    eventually(readers, |waits| *waits, "a reader").await;
    tokio::time::timeout(Duration::from_secs(20), sidecar.stop())
        .await
        .expect("it ends");
    assert_eq!(reader.await.unwrap(), StatusCode::OK);
}
