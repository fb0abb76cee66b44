//! Streams: a policy passes over whole answers, so a stream is refused, or passes as it is.

use e2e::CHAT;
use e2e::cached::{Cached, MESSAGES, each_api, reply, with, without};
use e2e::guarded::{blocks, chat, code, guarded, is_sound, parrot, plugin, replaces, with_cache};
use e2e::server::{Reply as Says, Server};
use e2e::setup;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn policy(more: &Value) -> Value {
    let mut policy = json!({"plugins": [plugin("judge", &json!({}))]});
    for (key, value) in more.as_object().into_iter().flatten() {
        policy[key] = value.clone();
    }
    policy
}

#[tokio::test]
async fn a_stream_is_refused_before_anybody_is_asked() {
    let judge = Server::start(blocks).await;
    for policy in [policy(&json!({})), policy(&json!({"on_stream": "refuse"}))] {
        let setup = with_cache(setup(1, 1).guarded(policy)).cluster("judge", judge.addr());
        let cached = Cached::start(setup).await;
        let mut refused = 0;
        for (path, body) in each_api() {
            if body["stream"] != true {
                continue;
            }
            for _ in 0..2 {
                let got = cached.ask(path, &body).await;
                assert_eq!(code(&got), (400, "refused_by_policy".into()), "{got:?}");
                let error: Value = serde_json::from_slice(&got.body).unwrap();
                assert_eq!(error["error"]["type"], "invalid_request_error");
                let message = error["error"]["message"].as_str().unwrap();
                assert!(message.contains("send \"stream\": false"), "{message}");
                assert_eq!(error["type"] == "error", path == MESSAGES);
                refused += 1;
            }
        }
        assert_eq!((cached.served(), judge.asked()), (0, 0));
        let labels = [("route", "chat"), ("reason", "stream")];
        let counted =
            |stats: &fleet::Stats| stats.filter("rolter_policy_refused_requests", &labels);
        let stats = cached
            .fleet
            .stats_when(|stats| counted(stats) == refused)
            .await;
        assert_eq!(counted(&stats.unwrap()), refused);
        is_sound(&cached.fleet).await;
    }
}

#[tokio::test]
async fn where_streams_are_let_go_a_replayed_one_passes_like_a_live_one() {
    let judge = Server::start(blocks).await;
    let policy = policy(&json!({"on_stream": "skip"}));
    let setup = with_cache(setup(1, 1).guarded(policy)).cluster("judge", judge.addr());
    let cached = Cached::start(setup).await;
    let mut passed = 0;
    for (path, body) in each_api() {
        if body["stream"] != true {
            continue;
        }
        let live = cached.store(cached.request(path, &body), "exact").await;
        let replayed = cached.ask(path, &body).await;
        assert_eq!(replayed.told(), (200, "hit", "exact"));
        assert_eq!(replayed.body, live.body);
        assert!(live.content_type.starts_with("text/event-stream"));
        passed += 1;
        // The same question without a stream is judged.
        let got = cached.ask(path, &without(&body, "stream")).await;
        assert_eq!(code(&got), (403, "withheld_by_policy".into()), "{got:?}");
    }
    assert_eq!(judge.asked(), passed);
    for basis in ["upstream", "cache"] {
        let labels = [("outcome", "skipped"), ("basis", basis)];
        let counted = |stats: &fleet::Stats| stats.filter("rolter_policy_answers", &labels);
        let stats = cached
            .fleet
            .stats_when(|stats| counted(stats) == passed)
            .await;
        assert_eq!(counted(&stats.unwrap()), passed, "{basis}");
    }
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn a_stream_whose_request_was_not_sanitized_is_not_kept() {
    let policy = json!({"on_stream": "skip", "pii": {"kinds": ["email"]}});
    let cached = Cached::start(with_cache(setup(1, 1).guarded(policy))).await;
    let body = with(&chat("I am ann@example.com."), "/stream", json!(true));
    for times in 1..=2 {
        let got = cached.ask(CHAT, &body).await;
        assert_eq!(got.told(), (200, "bypass", ""));
        let labels = [("route", "chat"), ("reason", "unsanitized")];
        let counted = |stats: &fleet::Stats| stats.filter("rolter_cache_bypasses", &labels);
        let stats = cached
            .fleet
            .stats_when(|stats| counted(stats) == times)
            .await;
        assert_eq!(counted(&stats.unwrap()), times);
    }
    assert_eq!(cached.served(), 2);
    let seen = cached.fleet.engines()[0].recent_requests();
    let sent = engine_sim::body_hash(body.to_string().as_bytes());
    assert!(seen.iter().all(|seen| seen.body_hash == sent));
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn a_stream_that_nobody_asked_for_is_withheld() {
    let engine = parrot().await;
    let judge = Server::start(replaces("a", "b")).await;
    let setup = guarded(&engine, policy(&json!({}))).cluster("judge", judge.addr());
    let cached = Cached::start(setup).await;
    let events = "data: {\"choices\":[{\"delta\":{\"content\":\"secret\"}}]}\n\n".repeat(500);
    engine.answer(move |_| {
        let events = events.clone() + "data: [DONE]\n\n";
        Says::new(200, "text/event-stream", events).in_pieces(9_000)
    });
    // The filter reads the last of them; which one an engine reads is its own business.
    let twice = r#"{"model":"m","stream":true,"messages":[],"stream":false}"#;
    for body in [chat("hello").to_string(), twice.to_owned()] {
        let request = cached
            .anonymous(CHAT)
            .header("content-type", "application/json");
        let got = reply(request.body(body)).await;
        assert!(
            [
                (400, "refused_by_policy".into()),
                (403, "withheld_by_policy".into())
            ]
            .contains(&code(&got)),
            "{got:?}"
        );
        assert!(!got.text().contains("secret"));
    }
    assert_eq!(judge.asked(), 0);
    is_sound(&cached.fleet).await;
}

/// A tunnel is a stream in both directions.
#[tokio::test]
async fn a_tunnel_is_refused_like_a_stream() {
    let judge = Server::start(blocks).await;
    let open = |setup: fleet::Setup| {
        setup.cluster("judge", judge.addr()).finish(|document| {
            let manager = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
            let manager = document.pointer_mut(manager).unwrap();
            manager["upgrade_configs"] = json!([{"upgrade_type": "websocket"}]);
        })
    };
    for (on_stream, status) in [("refuse", "400"), ("skip", "404")] {
        let policy = policy(&json!({"on_stream": on_stream}));
        let cached = Cached::start(open(setup(1, 1).guarded(policy))).await;
        let mut stream = TcpStream::connect(cached.fleet.addr()).await.unwrap();
        let request = b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\n\
            upgrade: websocket\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        assert_eq!(answer, format!("HTTP/1.1 {status}"), "{on_stream}");
        drop(stream);
        is_sound(&cached.fleet).await;
    }
}
