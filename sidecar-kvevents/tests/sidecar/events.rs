//! Event streams, each from a publisher on libzmq.

use super::proxy::Proxy;
use super::publisher::Publisher;
use super::support::{events, eventually, sidecar, within_patience};
use rolter_sidecar::metrics::HttpCounts;
use serde_json::json;
use std::net::TcpListener;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_history_is_asked_for_and_publications_follow() {
    let mut publisher = Publisher::start();
    publisher.publish(50);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(50).await;
    publisher.publish(10);
    sidecar.knows(60).await;
    assert_eq!(sidecar.counts().gaps, 0);
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_is_had_as_a_whole() {
    let mut publisher = Publisher::start();
    publisher.publish(9_000);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    publisher.publish(500);
    sidecar.knows(9_500).await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_starts_later_is_found() {
    let (port, replay_port) = (free_port(), free_port());
    let sidecar = sidecar(&[events(port, replay_port)]).await;
    let failed = || {
        let metrics = rolter_sidecar::metrics::render(&sidecar.state, &HttpCounts::default(), None);
        metrics.lines().any(|line| {
            line.starts_with("rolter_sidecar_kv_stream_failures_total") && !line.ends_with(" 0")
        })
    };
    eventually(failed, |failed| *failed, "an attempt").await;
    assert!(!sidecar.trusted());
    let mut publisher = Publisher::on_ports(port, replay_port);
    publisher.publish(5);
    sidecar.knows(5).await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restarted_engine_is_a_clean_start() {
    let mut publisher = Publisher::start();
    publisher.publish(20);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(20).await;
    // With fewer batches than before, and with more.
    for count in [3, 40] {
        publisher = publisher.restart();
        publisher.publish(count);
        sidecar.knows(count).await;
    }
    // With none: only the proof of life tells.
    publisher = publisher.restart();
    sidecar.knows(0).await;
    publisher.publish(1);
    sidecar.knows(1).await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_lost_with_a_connection_is_asked_for() {
    let mut publisher = Publisher::start();
    publisher.publish(5);
    let proxy = Proxy::to(publisher.port).await;
    let sidecar = sidecar(&[events(proxy.port, publisher.replay_port)]).await;
    sidecar.knows(5).await;
    proxy.cut();
    publisher.publish(5);
    sidecar.knows(10).await;
    // In the middle of a frame's header, its payload, another's.
    for (round, bytes) in [1, 40, 150, 333].into_iter().enumerate() {
        proxy.cut_after(bytes);
        publisher.publish(10);
        sidecar.knows(10 + 10 * (round + 1)).await;
    }
    assert!(proxy.accepted() > 4);
    assert_eq!(sidecar.counts().losses, 0);
    assert_eq!(sidecar.counts().restarts, 0);
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_over_which_nothing_comes_any_more_is_found_out() {
    let mut publisher = Publisher::start();
    publisher.publish(5);
    let proxy = Proxy::to(publisher.port).await;
    let sidecar = sidecar(&[events(proxy.port, publisher.replay_port)]).await;
    sidecar.knows(5).await;
    let before = proxy.accepted();
    proxy.stall();
    publisher.publish(5);
    sidecar.knows(10).await;
    eventually(
        || proxy.accepted(),
        |now| *now > before,
        "another connection",
    )
    .await;
    publisher.publish(5);
    sidecar.knows(15).await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_peer_that_accepts_and_says_nothing_is_given_up() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let sidecar = sidecar(&[events(port, 0)]).await;
    let mut connections = Vec::new();
    for _ in 0..2 {
        connections.push(within_patience("another attempt", listener.accept()).await);
    }
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_publisher_may_connect_to_the_sidecar() {
    let port = free_port();
    let listening = json!({"kv_events": {
        "endpoint": format!("tcp://127.0.0.1:{port}"), "bind": true, "stale_secs": 3,
    }});
    let sidecar = sidecar(&[listening]).await;
    let connect = format!("connect:tcp://127.0.0.1:{port}");
    for _ in 0..2 {
        let mut publisher = Publisher::at(&connect, "-");
        let replicas = sidecar.state.replicas();
        let counts = &replicas[0].counts;
        // What is published before the connection is there is lost; a clear is a clean start.
        let before = counts.batches();
        let heard = || {
            publisher.order("clear", 1);
            counts.batches()
        };
        eventually(heard, |batches| *batches > before, "a batch").await;
        publisher.order("clear", 1);
        publisher.publish(7);
        sidecar.knows(7).await;
    }
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_publisher_that_delivers_is_displaced_by_none_and_a_silent_one_is() {
    let port = free_port();
    let listening = json!({"kv_events": {
        "endpoint": format!("tcp://127.0.0.1:{port}"), "bind": true, "stale_secs": 3,
    }});
    let sidecar = sidecar(&[listening]).await;
    let replicas = sidecar.state.replicas();
    let counts = &replicas[0].counts;
    let connect = format!("connect:tcp://127.0.0.1:{port}");
    let mut publisher = Publisher::at(&connect, "-");
    let heard = || {
        publisher.order("clear", 1);
        counts.batches()
    };
    eventually(heard, |batches| *batches > 0, "a batch").await;
    // Strangers come while it delivers.
    for _ in 0..10 {
        publisher.order("clear", 1);
        publisher.publish(7);
        let mut stranger = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut said = [0; 64];
        let read = within_patience("an end", stranger.read(&mut said)).await;
        assert!(matches!(read, Ok(0) | Err(_)), "it was not turned away");
        publisher.publish(1);
        sidecar.knows(8).await;
    }
    assert_eq!((sidecar.counts().losses, sidecar.counts().restarts), (0, 0));
    // It is silent from now on, as one whose end never got through.
    let mut second = Publisher::at(&connect, "-");
    let before = counts.batches();
    let heard = || {
        second.order("clear", 1);
        counts.batches()
    };
    eventually(heard, |batches| *batches > before, "a batch").await;
    second.order("clear", 1);
    second.publish(5);
    sidecar.knows(5).await;
    drop(publisher);
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_of_another_rank_count_and_are_counted() {
    let mut publisher = Publisher::start();
    publisher.publish(2);
    publisher.order("rank", 5);
    publisher.publish(3);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(5).await;
    let metrics = rolter_sidecar::metrics::render(&sidecar.state, &HttpCounts::default(), None);
    let counted = r#"rolter_sidecar_kv_other_rank_batches_total{provider="e0",rank="0"} 3"#;
    assert!(metrics.contains(counted), "{metrics}");
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_is_closed_where_the_replay_can() {
    let mut publisher = Publisher::start();
    publisher.publish(5);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(5).await;
    publisher.order("drop", 3);
    publisher.publish(1);
    sidecar.knows(9).await;
    assert_eq!(sidecar.counts().losses, 0);
    // Found in silence, too.
    publisher.order("drop", 3);
    sidecar.knows(12).await;
    // And where the first question stays without an answer.
    publisher.order("silence", 1);
    publisher.order("drop", 3);
    publisher.publish(1);
    sidecar.knows(16).await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gap_that_stays_open_ends_the_trust_until_the_cache_is_cleared() {
    let mut publisher = Publisher::start();
    publisher.publish(5);
    let sidecar = sidecar(&[events(publisher.port, publisher.replay_port)]).await;
    sidecar.knows(5).await;
    publisher.order("lose", 1);
    publisher.publish(2);
    eventually(|| sidecar.trusted(), |trusted| !trusted, "no trust").await;
    publisher.order("clear", 1);
    publisher.publish(2);
    sidecar.knows(2).await;
    publisher.order("garble", 1);
    eventually(|| sidecar.trusted(), |trusted| !trusted, "no trust").await;
    publisher.order("clear", 1);
    sidecar.knows(0).await;
    sidecar.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_replay_who_joins_late_knows_nothing() {
    let mut publisher = Publisher::without_replay();
    publisher.publish(5);
    let sidecar = sidecar(&[events(publisher.port, 0)]).await;
    let replicas = sidecar.state.replicas();
    let counts = &replicas[0].counts;
    let heard = || {
        publisher.publish(1);
        counts.batches()
    };
    eventually(heard, |batches| *batches > 0, "a batch").await;
    assert!(!sidecar.trusted());
    assert_eq!(sidecar.blocks(), 0);
    publisher.order("clear", 1);
    publisher.publish(4);
    sidecar.knows(4).await;
    sidecar.stop().await;
}
