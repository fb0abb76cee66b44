//! Requests in flight: counted from the pick on, and released once, however a request ends.

use e2e::{
    CHAT, Caller, all_in_flight, all_released, answer, hang, in_flight, say, setup, start, text,
};
use engine_sim::Fault;
use futures_util::StreamExt;
use serde_json::json;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn streamed(tokens: usize) -> serde_json::Value {
    let mut body = say(&text("stream", 16));
    body["stream"] = json!(true);
    body["max_tokens"] = json!(tokens);
    body
}

#[tokio::test]
async fn a_request_counts_while_it_is_under_way() {
    let fleet = start(setup(2, 4)).await;
    let caller = Caller::concurrent(&fleet);
    let body = say(&text("busy", 16));
    let home = caller.send(CHAT, &body).await.engine;
    let hung = hang(&caller, &fleet, &home, &body, 2).await;
    let stats = fleet.stats().await.unwrap();
    assert_eq!(in_flight(&stats, &home), 2);
    drop(hung);
    all_released(&fleet).await;
}

#[tokio::test]
async fn a_client_that_leaves_while_its_request_is_held_leaves_nothing_behind() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        for sent in [0, 10, 1_000] {
            let mut stream = TcpStream::connect(fleet.addr()).await.unwrap();
            let body = say(&text("held", 40)).to_string();
            let head = format!(
                "POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            stream.write_all(head.as_bytes()).await.unwrap();
            stream.write_all(&body.as_bytes()[..sent]).await.unwrap();
            let active = "http.llm.downstream_rq_active";
            let waiting = fleet
                .stats_when(|stats| stats.envoy(active) == 1)
                .await
                .unwrap();
            assert_eq!(waiting.envoy(active), 1);
            drop(stream);
            let gone = fleet
                .stats_when(|stats| stats.envoy(active) == 0)
                .await
                .unwrap();
            assert_eq!(gone.envoy(active), 0);
            assert_eq!(gone.filter("rolter_decisions", &[]), 0);
            all_released(&fleet).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_leaves_while_its_answer_streams_is_released() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        for caller in [Caller::new(&fleet), Caller::concurrent(&fleet)] {
            let request = caller.request(CHAT).json(&streamed(1_000_000));
            let response = request.send().await.unwrap();
            let mut stream = response.bytes_stream();
            assert!(stream.next().await.unwrap().is_ok());
            let under_way = fleet.stats().await.unwrap();
            assert_eq!(all_in_flight(&under_way), 1);
            drop(stream);
            all_released(&fleet).await;
        }
    }
}

#[tokio::test]
async fn whatever_an_engine_does_its_requests_are_released() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        let caller = Caller::new(&fleet);
        for (fault, status) in [
            ("slow=50", 200),
            ("500", 500),
            ("429=1", 429),
            ("503=1", 503),
            ("reset-before-headers", 503),
        ] {
            let answer = answer(
                caller
                    .request(CHAT)
                    .json(&say("Hi"))
                    .header("x-sim-fault", fault),
            )
            .await;
            assert_eq!(answer.status, status, "{fault}: {answer:?}");
            all_released(&fleet).await;
        }
        for body in [streamed(100), say(&text("whole", 16))] {
            let request = caller
                .request(CHAT)
                .json(&body)
                .header("x-sim-fault", "reset");
            let response = request.send().await.unwrap();
            assert_eq!(response.status(), 200);
            assert!(response.bytes().await.is_err(), "the answer was cut");
            all_released(&fleet).await;
        }
    }
}

#[tokio::test]
async fn a_client_that_gives_up_on_a_hanging_engine_is_released() {
    let fleet = start(setup(2, 1)).await;
    for engine in fleet.engines() {
        engine.set_fault(Some(Fault::Hang));
    }
    let caller = Caller::new(&fleet);
    let request = caller
        .request(CHAT)
        .json(&say("Hi"))
        .timeout(Duration::from_millis(200));
    assert!(request.send().await.unwrap_err().is_timeout());
    all_released(&fleet).await;
}

#[tokio::test]
async fn an_answer_of_envoy_in_place_of_a_dead_engine_is_released() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        fleet.engines().iter().for_each(engine_sim::Engine::kill);
        let caller = Caller::new(&fleet);
        let answer = caller.say(&text("dead", 16)).await;
        assert_eq!(answer.status, 503, "{answer:?}");
        assert_eq!(answer.decision, "miss", "it was routed: {answer:?}");
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn a_connection_full_of_garbage_harms_nobody() {
    let fleet = start(setup(2, 1)).await;
    for garbage in [
        "\0\u{1}\u{2}".repeat(100),
        format!(
            "POST {CHAT} HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nnot a size\r\n"
        ),
        format!("POST {CHAT} HTTP/1.1\r\nhost: x\r\ncontent-length: -1\r\n\r\n"),
    ] {
        let mut stream = TcpStream::connect(fleet.addr()).await.unwrap();
        stream.write_all(garbage.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400"), "{answer}");
    }
    all_released(&fleet).await;
    assert_eq!(Caller::new(&fleet).say("Hi").await.status, 200);
}

#[tokio::test]
async fn many_clients_that_come_and_go_leave_every_gauge_at_zero() {
    for workers in [1, 4] {
        let fleet = start(setup(4, workers)).await;
        let come_and_go = || {
            futures_util::future::join_all((0..60_usize).map(|number| {
                let caller = if number % 2 == 0 {
                    Caller::new(&fleet)
                } else {
                    Caller::concurrent(&fleet)
                };
                let body = match number % 5 {
                    0 => streamed(1_000_000),
                    _ => say(&text(&format!("client {}", number % 7), 20)),
                };
                async move {
                    for round in 0..8_u64 {
                        let request = caller.request(CHAT).json(&body);
                        let request = match round % 4 {
                            0 => request.header("x-sim-fault", "slow=20"),
                            1 => request.header("x-sim-fault", "reset"),
                            _ => request,
                        };
                        // Some leave at once, some in the middle, some stay.
                        let patience = Duration::from_millis(round * 7 % 30);
                        let _ = tokio::time::timeout(patience, async {
                            let response = request.send().await?;
                            response.bytes().await
                        })
                        .await;
                    }
                }
            }))
        };
        // On a busy machine most leave before anything is decided.
        let mut decisions = 0;
        for _ in 0..10 {
            come_and_go().await;
            all_released(&fleet).await;
            let stats = fleet.stats().await.unwrap();
            decisions = stats.filter("rolter_decisions", &[]);
            if decisions > 100 {
                break;
            }
        }
        assert!(decisions > 100, "{decisions}");
        assert!(!fleet.panicked(), "{}", fleet.log());
    }
}
