//! A Redis that is gone, silent, full, or has garbage in it.

use super::cached::{Cached, Request, answer, chat, document};
use super::embedder::{Embedder, Manner};
use super::redis_server::{RedisServer, free_port};
use super::support::{PATIENCE, eventually};
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use reqwest::StatusCode;
use rolter_core::hex::to_hex;
use serde_json::json;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_killed_and_started_again_is_missed_meanwhile_and_used_again() {
    let mut redis = RedisServer::start(&[]).await;
    let cached = Cached::in_redis(&redis.url()).await;
    cached.connected().await;
    assert_eq!(cached.metric("redis_connected", &[]), 1);
    let request = Request::new(&chat("hello"));
    cached.answered(&request, &answer("hi")).await;
    redis.kill();
    for _ in 0..5 {
        let missed = cached.look_up(&request).await;
        assert_eq!(missed.outcome(), "miss");
        let stored = cached
            .store(&missed.ticket, "application/json", &answer("hi"))
            .await;
        assert_eq!(stored.status, StatusCode::SERVICE_UNAVAILABLE);
    }
    assert!(cached.failures("redis") >= 5);
    assert_eq!(cached.metric("redis_connected", &[]), 0);
    redis.restart().await;
    cached.works().await;
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_may_come_later_than_the_sidecar() {
    let port = free_port();
    let cached = Cached::in_redis(&format!("redis://127.0.0.1:{port}")).await;
    assert_eq!(cached.outcome(&Request::new(&chat("hello"))).await, "miss");
    let mut redis = RedisServer::start_at(port, &[]).await;
    cached.works().await;
    redis.kill();
    // Also where nobody asks.
    let is_connected = || cached.metric("redis_connected", &[]);
    eventually(is_connected, |is| *is == 0, "no Redis").await;
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_accepts_and_says_nothing_costs_no_one_their_time() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = silent.local_addr().unwrap().port();
    let accepting = tokio::spawn(async move {
        let mut streams = Vec::new();
        loop {
            streams.push(silent.accept().await.unwrap());
        }
    });
    let cached = Cached::in_redis(&format!("redis://127.0.0.1:{port}")).await;
    let hurried = Request {
        timeout_ms: 50,
        ..Request::new(&chat("hello"))
    };
    for _ in 0..20 {
        let missed = cached.look_up(&hurried).await;
        assert!(missed.outcome() == "miss" && !missed.ticket.is_empty());
    }
    accepting.abort();
    drop(accepting.await);
    let _redis = RedisServer::start_at(port, &[]).await;
    cached.works().await;
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_stops_answering_is_asked_nothing_until_it_answers_again() {
    let redis = RedisServer::start(&[]).await;
    let cached = Arc::new(Cached::in_redis(&redis.url()).await);
    cached.connected().await;
    let request = Request::new(&chat("hello"));
    cached.answered(&request, &answer("hi")).await;
    let mut connection = redis.connection().await;
    let pause = redis::cmd("DEBUG").arg("SLEEP").arg("3").to_owned();
    let pausing = tokio::spawn(async move {
        // It answers late.
        let answer = pause.query_async::<()>(&mut connection);
        drop(tokio::time::timeout(PATIENCE, answer).await);
    });
    let hurried = Request {
        timeout_ms: 50,
        ..request.clone()
    };
    let missed = |cached: Arc<Cached>| async move { cached.outcome(&hurried).await };
    let began = Instant::now();
    // Some misses are but those of a hurry on a busy machine.
    while missed.clone()(Arc::clone(&cached)).await != "miss" || cached.failures("redis") == 0 {
        assert!(began.elapsed() < PATIENCE, "it answers all the time");
    }
    pausing.await.unwrap();
    let began = Instant::now();
    while cached.outcome(&request).await != "exact" {
        assert!(began.elapsed() < PATIENCE, "it does not come back");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Arc::into_inner(cached).unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_is_full_still_answers_what_it_has() {
    let redis = RedisServer::start(&["--maxmemory-policy", "noeviction"]).await;
    let cached = Cached::in_redis(&redis.url()).await;
    cached.connected().await;
    let request = Request::new(&chat("hello"));
    cached.answered(&request, &answer("hi")).await;
    let mut connection = redis.connection().await;
    let limit = async |connection: &mut MultiplexedConnection, limit: &str| {
        let command = redis::cmd("CONFIG")
            .arg(&["SET", "maxmemory", limit])
            .to_owned();
        command.query_async::<()>(connection).await.unwrap();
    };
    limit(&mut connection, "1").await;
    let other = Request::new(&chat("bye"));
    let missed = cached.look_up(&other).await;
    assert_eq!(missed.outcome(), "miss");
    let stored = cached
        .store(&missed.ticket, "application/json", &answer("hi"))
        .await;
    assert_eq!(stored.status, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(cached.failures("redis"), 1);
    assert_eq!(cached.outcome(&request).await, "exact", "it rests");
    limit(&mut connection, "0").await;
    cached.answered(&other, &answer("hi")).await;
    assert_eq!(cached.outcome(&other).await, "exact");
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_instead_of_an_answer_is_a_miss_and_can_be_written_over() {
    let redis = RedisServer::start(&[]).await;
    let cached = Cached::in_redis(&redis.url()).await;
    cached.connected().await;
    let mut connection = redis.connection().await;
    let (one, other) = (Request::new(&chat("one")), Request::new(&chat("other")));
    cached.answered(&other, &answer("other")).await;
    let others: Vec<String> = connection.keys("rolter:exact:v1:*").await.unwrap();
    let other: Vec<u8> = connection.get(&others[0]).await.unwrap();
    cached.answered(&one, &answer("one")).await;
    let mut ones: Vec<String> = connection.keys("rolter:exact:v1:*").await.unwrap();
    ones.retain(|name| *name != others[0]);
    let name = &ones[0];
    let right: Vec<u8> = connection.get(name).await.unwrap();
    let mut bits = right.clone();
    for byte in &mut bits {
        *byte ^= 0x55;
    }
    // An array, a map and a binary of four billion.
    let claims = [[0xdd; 5], [0xdf; 5], [0xc6, 0xff, 0xff, 0xff, 0xff]];
    let mut cases = vec![
        (b"nonsense".to_vec(), "decode"),
        (right[..right.len() / 2].to_vec(), "decode"),
        (bits, "decode"),
        (vec![b'x'; 32 << 20], "decode"),
    ];
    cases.extend(claims.map(|claim| (claim.to_vec(), "decode")));
    for (garbage, part) in cases {
        let before = cached.failures(part);
        let () = connection.set(name, garbage).await.unwrap();
        let missed = cached.look_up(&one).await;
        assert_eq!(missed.outcome(), "miss");
        assert_eq!(cached.failures(part), before + 1);
        cached.answered(&one, &answer("one")).await;
        assert_eq!(cached.outcome(&one).await, "exact");
    }
    // Whole, but the answer to another request.
    let before = cached.failures("decode");
    let () = connection.set(name, other).await.unwrap();
    assert_eq!(cached.outcome(&one).await, "miss");
    assert_eq!(cached.failures("decode"), before + 1);
    let () = connection.del(name).await.unwrap();
    let () = connection.lpush(name, "of a wrong type").await.unwrap();
    let before = cached.failures("redis");
    assert_eq!(cached.outcome(&one).await, "miss");
    assert_eq!(cached.failures("redis"), before + 1);
    assert_eq!(
        cached.outcome(&Request::new(&chat("other"))).await,
        "exact",
        "it rests"
    );
    cached.answered(&one, &answer("one")).await;
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_in_a_window_is_passed_over() {
    let redis = RedisServer::start(&[]).await;
    let embedder = Embedder::start(Manner::Same).await;
    let settings = json!({"redis": redis.url()});
    let configuration = document(&settings, &json!({}), Some(&embedder.url));
    let writer = Cached::start(&configuration).await;
    writer.connected().await;
    writer
        .answered(&Request::new(&chat("good")), &answer("good"))
        .await;
    let mut connection = redis.connection().await;
    let names: Vec<String> = connection.keys("rolter:semantic:v2:{*}").await.unwrap();
    let window = &names[0];
    let items: Vec<String> = connection.keys(format!("{window}:*")).await.unwrap();
    let right: Vec<u8> = connection.get(&items[0]).await.unwrap();
    let nan = [&right[..32], &[0xff; 32]].concat();
    let zero = [&right[..32], &[0; 32]].concat();
    let of_another_dimension = [&right[..], &[0; 4]].concat();
    let of_no_answer = [&[7; 32], &right[32..]].concat();
    let garbage = [
        nan,
        zero,
        of_another_dimension,
        of_no_answer,
        right[..40].to_vec(),
        b"x".to_vec(),
        vec![b'x'; 16 << 20],
    ];
    let later = 2_000_000_000_000_u64;
    for (number, garbage) in (1..).zip(garbage) {
        let id = [number; 32];
        let hex = to_hex(&id);
        let () = connection
            .set(format!("{window}:{hex}"), garbage)
            .await
            .unwrap();
        let () = connection.zadd(window, &id, later).await.unwrap();
    }
    let () = connection.zadd(window, b"no id", later).await.unwrap();
    let () = connection.zadd(window, &[99; 32], "+inf").await.unwrap();
    let () = connection.zadd(window, &[98; 32], later).await.unwrap();
    let hex = "61".repeat(32);
    let () = connection
        .lpush(format!("{window}:{hex}"), "x")
        .await
        .unwrap();
    let () = connection.zadd(window, &[0x61; 32], later).await.unwrap();
    // One that has read nothing yet.
    let reader = Cached::start(&configuration).await;
    reader.connected().await;
    let began = Instant::now();
    loop {
        let said = reader.look_up(&Request::new(&chat("what is left?"))).await;
        if said.outcome() == "semantic" {
            assert_eq!(said.body, answer("good").into_bytes());
            break;
        }
        assert!(began.elapsed() < PATIENCE, "it is not passed over");
    }
    assert!(reader.failures("decode") >= 7);
    // What cannot be read is taken out.
    let began = Instant::now();
    while connection.zcard::<_, usize>(window).await.unwrap() > 4 {
        assert!(began.elapsed() < PATIENCE, "it stays");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let () = connection.del(window).await.unwrap();
    let () = connection.set(window, "no window").await.unwrap();
    let missed = reader.look_up(&Request::new(&chat("and now?"))).await;
    assert_eq!(missed.outcome(), "miss");
    let stored = reader
        .store(&missed.ticket, "application/json", &answer("hi"))
        .await;
    assert_eq!(stored.status, StatusCode::NO_CONTENT);
    assert_eq!(
        reader.outcome(&Request::new(&chat("and now?"))).await,
        "exact"
    );
    reader.stop().await;
    writer.stop().await;
}
