//! Faults, for one request and for the engine.

use std::time::{Duration, Instant};

use engine_sim::{Engine, Fault};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{fast, get, post, post_with, read, request, request_h1, send, send_h2, until};

const CHAT: &str = "/v1/chat/completions";

fn chat(stream: bool) -> Value {
    json!({"model": "m", "stream": stream, "max_tokens": 20, "messages": [{"role": "user", "content": "a"}]})
}

#[tokio::test]
async fn a_status_comes_with_its_retry_after() {
    let engine = fast();
    for (fault, status, retry_after) in [
        ("500", 500, None),
        ("429=7", 429, Some("7")),
        ("429", 429, None),
        ("503=2", 503, Some("2")),
        ("nonsense", 400, None),
    ] {
        let answer = post_with(&engine, CHAT, Some(fault), &chat(false)).await;
        assert_eq!(
            (answer.status.as_u16(), answer.header("retry-after")),
            (status, retry_after)
        );
        assert_eq!(answer.json()["error"]["code"], status);
        assert_eq!(answer.header("x-engine"), Some("sim-a"));
    }
    assert_eq!(engine.stats().served[CHAT], 5);
}

#[tokio::test]
async fn a_slow_answer_is_late_and_whole() {
    let engine = fast();
    let began = Instant::now();
    let answer = post_with(&engine, CHAT, Some("slow=120"), &chat(false)).await;
    assert_eq!(answer.status, 200);
    assert!(began.elapsed() >= Duration::from_millis(120));
}

#[tokio::test]
async fn a_reset_cuts_a_stream_after_some_events() {
    let engine = fast();
    for (fault, contents) in [("reset", 3), ("reset=1", 1), ("reset=999", 20)] {
        let answer = post_with(&engine, CHAT, Some(fault), &chat(true)).await;
        assert_eq!(answer.status, 200);
        assert!(answer.cut, "{fault}");
        let told = answer
            .data()
            .iter()
            .filter(|chunk| !chunk["choices"][0]["delta"]["content"].is_null())
            .count();
        // The first token comes with an event of its own that names the role.
        assert_eq!(told, contents + 1, "{fault}");
    }
    until(&engine, "nothing runs", |stats| {
        stats.running == 0 && stats.waiting == 0
    })
    .await;
}

#[tokio::test]
async fn a_reset_cuts_a_whole_answer_short_of_its_length() {
    let engine = fast();
    let answer = post_with(&engine, CHAT, Some("reset"), &chat(false)).await;
    let promised: usize = answer
        .header("content-length")
        .and_then(|length| length.parse().ok())
        .expect("a length");
    assert!(answer.cut);
    assert!(!answer.body.is_empty() && answer.body.len() < promised);
}

#[tokio::test]
async fn a_cut_answer_looks_whole_to_http() {
    let engine = fast();
    let answer = post_with(&engine, CHAT, Some("cut=2"), &chat(true)).await;
    assert!(!answer.cut && !answer.body.contains("[DONE]"));
    assert_eq!(answer.data().len(), 3);
    let answer = post_with(&engine, CHAT, Some("cut"), &chat(false)).await;
    assert_eq!((answer.status.as_u16(), answer.cut), (200, false));
    assert!(serde_json::from_str::<Value>(&answer.body).is_err());
    assert!(answer.body.starts_with("{\""));
}

#[tokio::test]
async fn a_stalled_answer_begins_and_never_ends() {
    let engine = fast();
    // The last event of a stream has come, or half of another answer.
    for (stream, sign) in [(true, "data: [DONE]\n\n"), (false, "{\"")] {
        let request = request_h1("POST", CHAT, Some("stall=99"), chat(stream).to_string());
        let response = send(engine.addr(), request).await.expect("a response");
        let mut body = response.into_body();
        let mut text = String::new();
        while !text.contains(sign) {
            let frame = body.frame().await.expect("more").expect("no reset");
            text += str::from_utf8(frame.data_ref().expect("data")).expect("text");
        }
        let more = tokio::time::timeout(Duration::from_millis(100), body.frame()).await;
        assert!(more.is_err());
    }
}

#[tokio::test]
async fn an_error_comes_in_the_middle_of_a_stream_that_ends_well() {
    let engine = fast();
    let answers = [
        (CHAT, "", "data: [DONE]"),
        ("/v1/messages", "error", "event: message_stop"),
        ("/v1/responses", "error", "event: response.completed"),
    ];
    for (path, event, end) in answers {
        let body = |stream| {
            let mut body = chat(stream);
            body["input"] = json!("a");
            body
        };
        let answer = post_with(&engine, path, Some("error=2"), &body(true)).await;
        assert_eq!((answer.status.as_u16(), answer.cut), (200, false));
        let errors = answer
            .events()
            .into_iter()
            .filter(|(name, data)| name == event && data.contains("Internal server error"));
        assert_eq!(errors.count(), 1, "{}", answer.body);
        assert!(answer.body.contains(end), "{}", answer.body);
        let whole = post_with(&engine, path, Some("error"), &body(false)).await;
        assert_eq!(whole.status, 200);
        assert!(whole.json()["error"].is_object());
    }
}

#[tokio::test]
async fn a_compressed_answer_says_so() {
    use std::io::Read;
    let engine = fast();
    for stream in [false, true] {
        let request = request_h1("POST", CHAT, Some("gzip"), chat(stream).to_string());
        let response = send(engine.addr(), request).await.expect("a response");
        assert_eq!(response.headers()["content-encoding"], "gzip");
        let zipped = response.into_body().collect().await.expect("all of it");
        let zipped = zipped.to_bytes();
        let mut text = String::new();
        let mut decoder = flate2::read::GzDecoder::new(&*zipped);
        decoder.read_to_string(&mut text).expect("text");
        assert!(text.contains("assistant"), "{text}");
    }
}

#[tokio::test]
async fn a_reset_is_a_tcp_reset() {
    let engine = fast();
    for fault in ["reset", "reset-before-headers"] {
        let mut stream = TcpStream::connect(engine.addr())
            .await
            .expect("the engine listens");
        let body = chat(true).to_string();
        let head = format!(
            "POST {CHAT} HTTP/1.1\r\nhost: a\r\nx-sim-fault: {fault}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream
            .write_all((head + &body).as_bytes())
            .await
            .expect("sent");
        let mut answer = Vec::new();
        let error = stream.read_to_end(&mut answer).await.expect_err("a reset");
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        assert_eq!(answer.is_empty(), fault == "reset-before-headers");
    }
}

#[tokio::test]
async fn a_reset_before_headers_leaves_no_response_on_either_protocol() {
    let engine = fast();
    let fault = Some("reset-before-headers");
    let body = chat(false).to_string();
    assert!(
        send(engine.addr(), request_h1("POST", CHAT, fault, body.clone()))
            .await
            .is_err()
    );
    assert!(
        send_h2(engine.addr(), request("POST", CHAT, fault, body))
            .await
            .is_err()
    );
    assert_eq!(engine.recent_requests().len(), 2);
}

#[tokio::test]
async fn a_hang_lasts_until_the_client_leaves() {
    let engine = fast();
    let hung = send(
        engine.addr(),
        request_h1("POST", CHAT, Some("hang"), chat(false).to_string()),
    );
    assert!(
        tokio::time::timeout(Duration::from_millis(100), hung)
            .await
            .is_err()
    );
    assert_eq!(engine.stats().served[CHAT], 1);
}

#[tokio::test]
async fn a_fault_of_the_engine_strikes_all_but_polls_until_it_ends() {
    let engine = fast();
    let check = async |engine: &Engine, status: u16| {
        assert_eq!(post(engine, CHAT, &chat(false)).await.status, status);
        assert_eq!(get(engine, "/health").await.status, 200);
        assert_eq!(get(engine, "/metrics").await.status, 200);
    };
    engine.set_fault(Some(Fault::Unavailable(Some(3))));
    check(&engine, 503).await;
    // A request's own fault comes first.
    assert_eq!(
        post_with(&engine, CHAT, Some("429"), &chat(false))
            .await
            .status,
        429
    );
    engine.set_fault(None);
    check(&engine, 200).await;

    let set = post(&engine, "/sim/fault", &json!({"fault": "500"}))
        .await
        .json();
    assert_eq!(set["fault"], "500");
    check(&engine, 500).await;
    assert_eq!(
        post(&engine, "/sim/fault", &json!({"fault": "nonsense"}))
            .await
            .status,
        400
    );
    assert_eq!(post(&engine, "/sim/fault", &json!({})).await.status, 400);
    assert_eq!(get(&engine, "/sim/state").await.json()["fault"], "500");
    post(&engine, "/sim/fault", &json!({"fault": null})).await;
    check(&engine, 200).await;
}

#[tokio::test]
async fn http_2_streams_and_is_cut_like_http_1() {
    let engine = fast();
    let whole = send_h2(
        engine.addr(),
        request("POST", CHAT, None, chat(true).to_string()),
    )
    .await;
    let whole = read(whole.expect("a response")).await;
    assert!(whole.body.ends_with("data: [DONE]\n\n") && !whole.cut);
    let cut = send_h2(
        engine.addr(),
        request("POST", CHAT, Some("reset"), chat(true).to_string()),
    )
    .await;
    assert!(read(cut.expect("a response")).await.cut);
}
