//! Clients that leave, engines that die, and what an engine tells of itself.

use std::time::Duration;

use bytes::Bytes;
use engine_sim::{Engine, EngineConfig, Question, body_hash, expected_answer};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper::{HeaderMap, Request};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::client::{
    fast, get, post, read, request, request_h1, send, send_h2, slow, start, until,
};

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "a"}]})
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_place_at_once() {
    let engine = slow();
    for (http2, stream) in [(false, false), (false, true), (true, false), (true, true)] {
        let ask = || async {
            let body = chat(stream).to_string();
            let response = if http2 {
                send_h2(engine.addr(), request("POST", CHAT, None, body)).await
            } else {
                send(engine.addr(), request_h1("POST", CHAT, None, body)).await
            };
            read(response.expect("a response")).await
        };
        let both = async { tokio::join!(ask(), ask()) };
        let watch = until(&engine, "one runs, one waits", |stats| {
            (stats.running, stats.waiting) == (1, 1)
        });
        tokio::select! {
            _ = both => panic!("an answer of an hour came"),
            () = watch => {}
        }
        until(&engine, "both have left", |stats| {
            (stats.running, stats.waiting) == (0, 0)
        })
        .await;
        assert_eq!(engine.stats().blocks_used, 0);
    }
    assert_eq!(engine.stats().finished.abort, 8);
}

#[tokio::test]
async fn a_killed_engine_ends_its_connections_and_frees_its_port() {
    let engine = slow();
    let addr = engine.addr();
    let response = send(addr, request_h1("POST", CHAT, None, chat(true).to_string())).await;
    let response = response.expect("headers");
    engine.kill();
    engine.kill();
    let ended = tokio::time::timeout(Duration::from_secs(2), read(response))
        .await
        .expect("an end");
    assert!(ended.cut);
    assert!(TcpStream::connect(addr).await.is_err());
    assert_eq!(engine.stats().running, 0);

    let next = Engine::start(EngineConfig::default(), addr).expect("the same port");
    assert_eq!(get(&next, "/health").await.status, 200);
}

#[test]
fn an_engine_starts_and_dies_outside_of_async_code_too() {
    let engine = fast();
    assert_ne!(engine.addr().port(), 0);
    drop(engine);
}

#[test]
fn a_configuration_that_cannot_serve_is_refused() {
    let default = EngineConfig::default;
    for config in [
        EngineConfig {
            name: "two words".to_owned(),
            ..default()
        },
        EngineConfig {
            kv_blocks: 0,
            ..default()
        },
        EngineConfig {
            block_tokens: 0,
            ..default()
        },
        EngineConfig {
            max_batch: 0,
            ..default()
        },
        EngineConfig {
            prefill_tokens_per_sec: f64::NAN,
            ..default()
        },
        EngineConfig {
            prefill_tokens_per_sec: 0.0,
            ..default()
        },
    ] {
        assert!(Engine::start(config, ([127, 0, 0, 1], 0).into()).is_err());
    }
}

#[tokio::test]
async fn metrics_have_the_names_that_routers_poll() {
    let engine = fast();
    post(&engine, CHAT, &chat(false)).await;
    let page = get(&engine, "/metrics").await;
    assert_eq!(
        page.header("content-type"),
        Some("text/plain; version=0.0.4; charset=utf-8")
    );
    let label = "engine=\"0\",model_name=\"sim-a\"";
    for (name, value) in [
        ("num_requests_running", "0"),
        ("num_requests_waiting", "0"),
        ("kv_cache_usage_perc", "0"),
        ("prefix_cache_hits_total", "0"),
        ("generation_tokens_total", "10"),
    ] {
        let line = format!("\nvllm:{name}{{{label}}} {value}\n");
        assert!(page.body.contains(&line), "{line}{}", page.body);
    }
    assert!(page.body.contains("\nvllm:prefix_cache_queries_total{"));
    let success = format!("vllm:request_success_total{{{label},finished_reason=\"stop\"}} 1\n");
    assert!(page.body.contains(&success), "{}", page.body);
}

#[tokio::test]
async fn the_state_shows_requests_as_they_came_with_trailers() {
    let engine = fast();
    let mut trailers = HeaderMap::new();
    trailers.insert("x-sum", "1".parse().expect("a value"));
    let frames = [
        Frame::data(Bytes::from_static(b"not json")),
        Frame::trailers(trailers),
    ];
    let frames = futures_util::stream::iter(frames.map(Ok::<_, std::io::Error>));
    let request = Request::post("/v1/what?a=b")
        .header("X-Kind", "odd")
        .header("trailer", "x-sum");
    let request = request
        .body(StreamBody::new(frames).boxed_unsync())
        .expect("a request");
    let answer = read(send(engine.addr(), request).await.expect("a response")).await;
    assert_eq!(
        (answer.status.as_u16(), &answer.json()["error"]["code"]),
        (404, &json!(404))
    );

    let state = get(&engine, "/sim/state").await.json();
    let seen = &state["requests"][0];
    assert_eq!(
        (&seen["method"], &seen["path"]),
        (&json!("POST"), &json!("/v1/what?a=b"))
    );
    assert_eq!(
        (&seen["body_bytes"], &seen["body_hash"]),
        (&json!(8), &json!(body_hash(b"not json")))
    );
    assert_eq!(seen["trailers"], json!([["x-sum", "1"]]));
    let headers = seen["headers"].as_array().expect("headers");
    assert!(headers.contains(&json!(["x-kind", "odd"])));
    assert_eq!(state["served"]["other"], 1);
    assert_eq!(
        (&state["name"], &state["blocks_total"]),
        (&json!("sim-a"), &json!(4096))
    );
    assert_eq!(engine.recent_requests().len(), 1);
}

#[tokio::test]
async fn polls_are_counted_but_push_nothing_out() {
    let engine = fast();
    post(&engine, CHAT, &chat(false)).await;
    get(&engine, "/health").await;
    get(&engine, "/metrics").await;
    assert_eq!(engine.stats().served["/health"], 1);
    assert_eq!(engine.recent_requests().len(), 1);
}

#[tokio::test]
async fn a_reset_forgets_counters_requests_and_cache() {
    let engine = fast();
    let body = json!({"messages": [{"role": "user", "content": "a ".repeat(200)}]});
    post(&engine, CHAT, &body).await;
    assert!(engine.stats().blocks_cached > 0);
    assert_eq!(post(&engine, "/sim/reset", &json!({})).await.status, 200);
    let stats = engine.stats();
    assert_eq!(
        (
            stats.blocks_cached,
            stats.prefix_queried_tokens,
            stats.served.len()
        ),
        (0, 0, 0)
    );
    assert!(engine.recent_requests().is_empty());
    post(&engine, CHAT, &body).await;
    assert_eq!(engine.stats().prefix_hit_tokens, 0);
}

#[tokio::test]
async fn hostile_bodies_are_refused_and_recorded() {
    let engine = fast();
    let deep = "[".repeat(1 << 20);
    let objects = r#"{"messages":"#.repeat(100_000);
    for body in ["", "{", "nul", "\u{0}", deep.as_str(), objects.as_str()] {
        let answer = send(
            engine.addr(),
            request_h1("POST", CHAT, None, body.to_owned()),
        )
        .await;
        assert_eq!(read(answer.expect("a response")).await.status, 400);
    }
    let mut zipped = request_h1("POST", CHAT, None, chat(false).to_string());
    zipped
        .headers_mut()
        .insert("content-encoding", "gzip".parse().expect("a value"));
    assert_eq!(
        read(send(engine.addr(), zipped).await.expect("a response"))
            .await
            .status,
        400
    );
    assert_eq!(engine.recent_requests().len(), 7);
}

#[tokio::test]
async fn a_body_may_be_64_mib_and_no_longer() {
    let engine = start(EngineConfig {
        max_model_len: usize::MAX,
        kv_blocks: 1 << 21,
        ..EngineConfig::default()
    });
    let sized = |length: usize| {
        let text = "a".repeat(length - r#"{"model":"","input":"a"}"#.len() + 1);
        Bytes::from(format!(r#"{{"model":"","input":"{text}"}}"#))
    };
    let most = 64 << 20;
    for (length, status) in [(most, 200), (most + 1, 413)] {
        let request = request_h1("POST", "/v1/embeddings", None, sized(length));
        let answer = read(
            send::<Full<Bytes>>(engine.addr(), request)
                .await
                .expect("a response"),
        )
        .await;
        assert_eq!(answer.status, status, "{length}");
    }
    assert_eq!(engine.recent_requests()[0].body_bytes, 64 << 20);
}

#[tokio::test]
async fn what_an_engine_would_compute_is_what_it_then_computes() {
    let engine = fast();
    let body = |content: &str| {
        let content = format!("{}{content}", "a long beginning ".repeat(40));
        json!({"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": content}]})
    };
    let bodies = [body("one"), body("two"), body("one"), chat(false)];
    let read = |body: &Value| {
        let question = Question::read(engine.config(), CHAT, body).expect("a question");
        let expected = expected_answer(CHAT, body);
        assert_eq!(Some(question.expected_answer()), expected.as_deref());
        question
    };
    let questions: Vec<Question> = bodies.iter().map(read).collect();
    let all: Vec<&Question> = questions.iter().collect();
    let foreseen = engine.would_compute(&all);
    for ((body, question), foreseen) in bodies.iter().zip(&questions).zip(foreseen) {
        let before = engine.stats();
        assert_eq!(engine.would_compute(&[question]), [foreseen]);
        post(&engine, CHAT, body).await;
        let stats = engine.stats();
        let computed = |stats: &engine_sim::Stats| stats.prompt_tokens - stats.prefix_hit_tokens;
        let computed = computed(&stats) - computed(&before);
        assert_eq!(usize::try_from(computed).ok(), Some(foreseen));
    }
}
