//! Bodies of every size and shape: whatever they are, they reach an engine unchanged.

use e2e::{Answer, CHAT, Caller, all_released, answer, say, setup, start, text};
use engine_sim::{Engine, body_hash};
use flate2::{Compression, write::GzEncoder};
use fleet::Fleet;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use std::convert::Infallible;
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const MAX: usize = 1 << 20;

/// A chat whose body has exactly this many bytes.
fn chat_of(bytes: usize) -> Vec<u8> {
    let empty = say("").to_string();
    let body = say(&text("sized", 1)
        .chars()
        .cycle()
        .take(bytes - empty.len())
        .collect::<String>());
    let body = body.to_string().into_bytes();
    assert_eq!(body.len(), bytes);
    body
}

/// The engine that last received exactly this body.
fn receiver<'a>(fleet: &'a Fleet, body: &[u8]) -> Option<&'a str> {
    let received = |engine: &&Engine| {
        let requests = engine.recent_requests();
        requests
            .iter()
            .any(|request| request.body_hash == body_hash(body))
    };
    fleet.engines().iter().find(received).map(Engine::name)
}

async fn send(caller: &Caller, body: Vec<u8>) -> Answer {
    answer(
        caller
            .request(CHAT)
            .header("content-type", "application/json")
            .body(body),
    )
    .await
}

/// Sends bytes over a connection of their own, with pauses between them, and reads what comes back.
async fn send_raw(fleet: &Fleet, pieces: &[&[u8]]) -> String {
    let mut stream = TcpStream::connect(fleet.addr()).await.unwrap();
    for piece in pieces {
        stream.write_all(piece).await.unwrap();
        stream.flush().await.unwrap();
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn chunk(bytes: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

fn header(answer: &str, name: &str) -> String {
    let line = answer
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    line.unwrap_or_default().to_owned()
}

const CHUNKED: &[u8] = b"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
    content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";

#[tokio::test]
async fn bodies_of_every_size_arrive_unchanged_and_those_within_the_limit_are_read() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        let caller = Caller::new(&fleet);
        for (bytes, read) in [
            (90, true),
            (32 << 10, true),
            (300_000, true),
            (MAX - 1, true),
            (MAX, true),
            (MAX + 1, false),
            (3 * MAX, false),
        ] {
            let body = chat_of(bytes);
            for _ in 0..2 {
                let answer = send(&caller, body.clone()).await;
                assert_eq!(answer.status, 200, "{bytes} bytes: {answer:?}");
                assert_eq!(
                    answer.decision != "no_prompt",
                    read,
                    "{bytes} bytes: {answer:?}"
                );
            }
            assert!(
                receiver(&fleet, &body).is_some(),
                "{bytes} bytes did not arrive unchanged"
            );
        }
        let stats = fleet.stats().await.unwrap();
        assert_eq!(
            stats.filter("rolter_oversized_bodies", &[("route", "chat")]),
            4
        );
        assert_eq!(stats.filter("rolter_unreadable_bodies", &[]), 0);
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn a_body_over_the_limit_still_chooses_its_route_by_its_model() {
    let setup = setup(2, 1)
        .with("/max_request_bytes", 1_000)
        .configure(|config| {
            config["routes"] = json!([
                {"name": "llama", "targets": ["vllm-a"], "match": {"models": ["llama-*"]}},
                {"name": "rest", "targets": ["vllm-b"]},
            ]);
        });
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    let messages = format!(
        r#""messages":[{{"role":"user","content":"{}"}}]"#,
        text("long", 100)
    );
    for (body, engine) in [
        (format!(r#"{{"model":"llama-3",{messages}}}"#), "vllm-a"),
        (format!(r#"{{"model":"mistral",{messages}}}"#), "vllm-b"),
        // Where the model comes too late, a route for any model takes it.
        (format!(r#"{{{messages},"model":"llama-3"}}"#), "vllm-b"),
    ] {
        let answer = send(&caller, body.into_bytes()).await;
        assert_eq!(answer.pick(), (engine, "no_prompt"));
    }
}

#[tokio::test]
async fn a_body_that_turns_out_empty_is_none() {
    let fleet = start(setup(2, 1)).await;
    let answer = send_raw(&fleet, &[CHUNKED, b"0\r\n\r\n"]).await;
    assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    assert_eq!(header(&answer, "x-rolter-decision"), "no_prompt");
}

#[tokio::test]
async fn a_tunnel_is_not_held() {
    let fleet = start(setup(2, 1)).await;
    let upgrade = b"GET /v1/realtime HTTP/1.1\r\nhost: x\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let mut stream = TcpStream::connect(fleet.addr()).await.unwrap();
    stream.write_all(upgrade).await.unwrap();
    let mut answer = vec![0; 4096];
    let read = tokio::time::timeout(Duration::from_secs(5), stream.read(&mut answer));
    let length = read.await.expect("an answer").unwrap();
    let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
    assert_eq!(
        header(&answer, "x-rolter-decision"),
        "no_prompt",
        "{answer}"
    );
    drop(stream);
    all_released(&fleet).await;
}

#[tokio::test]
async fn a_body_that_comes_in_chunks_with_pauses_is_read_whole() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        let body = say(&text("slow", 16)).to_string();
        let (head, rest) = body.split_at(7);
        let (middle, tail) = rest.split_at(500);
        let pieces = [head, middle, tail].map(|piece| chunk(piece.as_bytes()));
        let [head, middle, tail] = &pieces;
        let answer = send_raw(&fleet, &[CHUNKED, head, middle, tail, b"0\r\n\r\n"]).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(header(&answer, "x-rolter-decision"), "miss");
        assert_eq!(
            receiver(&fleet, body.as_bytes()),
            Some(&*header(&answer, "x-engine"))
        );
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn a_long_body_is_let_go_as_soon_as_it_is_over_the_limit() {
    let fleet = start(setup(2, 1).with("/max_request_bytes", 1_000)).await;
    let mut stream = TcpStream::connect(fleet.addr()).await.unwrap();
    let body = chat_of(3_000);
    let (start, rest) = body.split_at(2_000);
    stream.write_all(CHUNKED).await.unwrap();
    stream.write_all(&chunk(start)).await.unwrap();
    // The rest is not there yet, and the decision has been made.
    let decided =
        |stats: &fleet::Stats| stats.filter("rolter_decisions", &[("reason", "no_prompt")]) == 1;
    assert!(decided(&fleet.stats_when(decided).await.unwrap()));
    stream.write_all(&chunk(rest)).await.unwrap();
    stream.write_all(b"0\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(answer.starts_with(b"HTTP/1.1 200"));
    assert!(receiver(&fleet, &body).is_some());
}

#[tokio::test]
async fn requests_with_trailers_are_read() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        let body = say(&text("trailers", 16)).to_string();

        let end = b"0\r\nx-checksum: abc\r\n\r\n";
        let answer = send_raw(&fleet, &[CHUNKED, &chunk(body.as_bytes()), end]).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(header(&answer, "x-rolter-decision"), "miss");
        assert_eq!(
            receiver(&fleet, body.as_bytes()),
            Some(&*header(&answer, "x-engine"))
        );

        let stream = TokioIo::new(TcpStream::connect(fleet.addr()).await.unwrap());
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), stream)
                .await
                .unwrap();
        let connection = tokio::spawn(connection);
        let mut homes = Vec::new();
        for _ in 0..3 {
            let trailers = hyper::HeaderMap::from_iter([(
                "x-checksum".parse().unwrap(),
                "abc".parse().unwrap(),
            )]);
            let frames = [
                Frame::data(Bytes::from(body.clone())),
                Frame::trailers(trailers),
            ]
            .map(Ok::<_, Infallible>);
            let request = hyper::Request::post(fleet.url(CHAT))
                .header("content-type", "application/json")
                .body(StreamBody::new(futures_util::stream::iter(frames)))
                .unwrap();
            let answer = sender.send_request(request).await.unwrap();
            assert_eq!(answer.status(), 200);
            homes.push(answer.headers()["x-engine"].to_str().unwrap().to_owned());
            answer.into_body().collect().await.unwrap();
        }
        assert_eq!(homes[1..], [homes[0].clone(), homes[0].clone()]);
        all_released(&fleet).await;
        connection.abort();
    }
}

#[tokio::test]
async fn a_chunked_body_far_over_the_limit_passes_at_any_pace() {
    let fleet = start(setup(2, 1)).await;
    let body = chat_of(5 * MAX);
    let burst = chunk(&body);
    let slow: Vec<Vec<u8>> = body.chunks(400_000).map(chunk).collect();
    // A little first, so that it is held when the rest comes in one burst.
    let (start, rest) = body.split_at(900_000);
    let late_burst = [chunk(start), chunk(rest)];
    let end: &[u8] = b"0\r\n\r\n";
    for pieces in [&[burst][..], &slow, &late_burst] {
        let pieces: Vec<&[u8]> = [CHUNKED]
            .into_iter()
            .chain(pieces.iter().map(Vec::as_slice))
            .chain([end])
            .collect();
        let answer = send_raw(&fleet, &pieces).await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert_eq!(header(&answer, "x-rolter-decision"), "no_prompt");
    }
    assert!(receiver(&fleet, &body).is_some());
    all_released(&fleet).await;
}

#[tokio::test]
async fn what_cannot_be_read_is_routed_unchanged_and_counted() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(say(&text("zipped", 16)).to_string().as_bytes())
        .unwrap();
    let deep = format!(
        r#"{{"messages":{}{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("garbage", b"what is this?".repeat(100)),
        ("one byte", b"{".to_vec()),
        ("gzip", gzip.finish().unwrap()),
        ("not UTF-8", b"\xFF\xFE\x00\x80".repeat(300)),
        ("deep", deep.into_bytes()),
        ("deeper than any stack", b"[".repeat(MAX)),
        ("cut", chat_of(5_000)[..4_000].to_vec()),
        (
            "an escape cut short",
            br#"{"messages":[{"role":"user","content":"\ud8"}]}"#.to_vec(),
        ),
    ];
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        let caller = Caller::new(&fleet);
        for (name, body) in &bodies {
            let answer = send(&caller, body.clone()).await;
            assert_eq!(
                answer.status, 400,
                "{name}: the engine refuses it, not the filter: {answer:?}"
            );
            assert!(!answer.engine.is_empty(), "{name}");
            assert_eq!(receiver(&fleet, body), Some(answer.pick().0), "{name}");
        }
        let stats = fleet.stats().await.unwrap();
        assert_eq!(
            stats.filter("rolter_unreadable_bodies", &[("route", "chat")]),
            bodies.len() as u64
        );
        assert!(!fleet.panicked(), "{}", fleet.log());
        // And the same again, compressed as it is, goes where it went.
        let (_, gzip) = &bodies[2];
        let home = receiver(&fleet, gzip).unwrap();
        let again = send(&caller, gzip.clone()).await;
        assert_eq!(again.pick(), (home, "affinity"));
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn text_that_is_not_utf8_is_read_all_the_same() {
    let fleet = start(setup(2, 1)).await;
    let caller = Caller::new(&fleet);
    let mut body = say(&text("broken", 16)).to_string().into_bytes();
    let at = body.len() / 2;
    body[at] = 0xFF;
    let home = send(&caller, body.clone()).await;
    assert_eq!(
        send(&caller, body).await.pick(),
        (home.engine.as_str(), "affinity")
    );
}
