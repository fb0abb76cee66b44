//! Ways to Redis: with a password, over TLS, to a cluster, by sentinels.

use super::cached::{Cached, Filter, Request, answer, chat, document};
use super::embedder::{Embedder, Manner};
use super::redis_server::{RedisServer, free_port};
use super::support::PATIENCE;
use reqwest::StatusCode;
use rolter_core::config::Config;
use rolter_sidecar::run::Sidecar;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// A variable that cargo sets for tests, and its value.
const VARIABLE: (&str, &str) = ("CARGO_PKG_NAME", "rolter-sidecar");

#[tokio::test(flavor = "multi_thread")]
async fn a_password_comes_from_the_environment() {
    let (name, value) = VARIABLE;
    let redis = RedisServer::start(&["--requirepass", value]).await;
    let settings = json!({"redis": redis.url(), "redis_password_env": name});
    let cached = Cached::start(&document(&settings, &json!({}), None)).await;
    cached.works().await;
    cached.stop().await;
    // Without one, it answers and refuses everything.
    let cached = Cached::in_redis(&redis.url()).await;
    for words in ["one", "two"] {
        let missed = cached.look_up(&Request::new(&chat(words))).await;
        assert!(missed.outcome() == "miss" && !missed.ticket.is_empty());
    }
    assert!(cached.failures("redis") >= 2);
    cached.stop().await;
    let settings = json!({"redis": redis.url(), "redis_password_env": "ROLTER_NO_SUCH_PASSWORD"});
    let config = Config::read(&document(&settings, &json!({}), None)).unwrap();
    let error = Sidecar::bind(config).await.err().unwrap().to_string();
    assert!(error.contains("ROLTER_NO_SUCH_PASSWORD"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_is_the_one_of_the_url() {
    let redis = RedisServer::start(&[]).await;
    let cached = Cached::in_redis(&format!("{}/3", redis.url())).await;
    cached.works().await;
    let mut connection = redis.connection().await;
    assert_eq!(
        redis::cmd("DBSIZE")
            .query_async::<usize>(&mut connection)
            .await
            .unwrap(),
        0
    );
    let select = redis::cmd("SELECT").arg(3).to_owned();
    let () = select.query_async(&mut connection).await.unwrap();
    assert_eq!(
        redis::cmd("DBSIZE")
            .query_async::<usize>(&mut connection)
            .await
            .unwrap(),
        1
    );
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_is_asked_as_one() {
    let mut servers = Vec::new();
    for _ in 0..2 {
        let arguments = [
            "--cluster-enabled",
            "yes",
            "--cluster-config-file",
            "nodes.conf",
        ];
        servers.push(RedisServer::start(&arguments).await);
    }
    let halves = [(0, 8_191), (8_192, 16_383)];
    for (server, (first, last)) in servers.iter().zip(halves) {
        let slots: Vec<u32> = (first..=last).collect();
        let command = redis::cmd("CLUSTER").arg("ADDSLOTS").arg(slots).to_owned();
        let mut connection = server.connection().await;
        let () = command.query_async(&mut connection).await.unwrap();
        let meet = redis::cmd("CLUSTER")
            .arg("MEET")
            .arg("127.0.0.1")
            .arg(servers[0].port)
            .to_owned();
        let () = meet.query_async(&mut connection).await.unwrap();
    }
    let began = Instant::now();
    for server in &servers {
        let mut connection = server.connection().await;
        let info = redis::cmd("CLUSTER").arg("INFO").to_owned();
        loop {
            let info: String = info.query_async(&mut connection).await.unwrap();
            if info.contains("cluster_state:ok") && info.contains("cluster_known_nodes:2") {
                break;
            }
            assert!(began.elapsed() < PATIENCE, "no cluster: {info}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let embedder = Embedder::start(Manner::Same).await;
    let url = format!("redis-cluster://127.0.0.1:{}", servers[1].port);
    let settings = json!({"redis": url});
    let configuration = document(&settings, &json!({}), Some(&embedder.url));
    let cached = Cached::start(&configuration).await;
    cached.works().await;
    let before = cached.metric("stores_total", &["semantic"]);
    for number in 0..20 {
        let request = Request {
            refresh: true,
            ..Request::new(&chat(&format!("question {number}")))
        };
        cached.answered(&request, &answer("hi")).await;
    }
    cached.compares(before + 20).await;
    for server in &servers {
        let mut connection = server.connection().await;
        let size: usize = redis::cmd("DBSIZE")
            .query_async(&mut connection)
            .await
            .unwrap();
        assert!(size > 0, "one has nothing");
    }
    let other = Cached::start(&configuration).await;
    other.connected().await;
    assert_eq!(
        other.outcome(&Request::new(&chat("question 7"))).await,
        "exact"
    );
    assert_eq!(
        other.outcome(&Request::new(&chat("in other words"))).await,
        "semantic"
    );
    // What the one that lives has is found, without the other.
    servers[0].kill();
    let mut connection = servers[1].connection().await;
    let living = redis::cmd("KEYS").arg("rolter:exact:*").to_owned();
    let living: Vec<String> = living.query_async(&mut connection).await.unwrap();
    let began = Instant::now();
    let mut found = BTreeSet::new();
    while found.len() + 1 < living.len() {
        for number in 0..20 {
            let request = Request::new(&chat(&format!("question {number}")));
            if cached.outcome(&request).await == "exact" {
                found.insert(number);
            }
        }
        assert!(began.elapsed() < PATIENCE, "{found:?} of {}", living.len());
    }
    servers[1].kill();
    let missed = cached.look_up(&Request::new(&chat("question 7"))).await;
    assert_eq!(missed.outcome(), "miss");
    for server in &mut servers {
        server.restart().await;
    }
    cached.works().await;
    other.stop().await;
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_asked_for_the_server_and_asked_again_when_it_changes() {
    let servers = [RedisServer::start(&[]).await, RedisServer::start(&[]).await];
    let sentinel = RedisServer::start(&["--sentinel"]).await;
    let mut sentinels = sentinel.connection().await;
    let mut tell = async |words: &[&str]| {
        let command = redis::cmd("SENTINEL").arg(words).to_owned();
        command.query_async::<()>(&mut sentinels).await.unwrap();
    };
    let monitor = |server: &RedisServer| server.port.to_string();
    let first = monitor(&servers[0]);
    tell(&["MONITOR", "cache", "127.0.0.1", &first, "1"]).await;
    let url = format!("redis-sentinel://127.0.0.1:{}#cache", sentinel.port);
    let cached = Cached::in_redis(&url).await;
    cached.works().await;
    let [mut first, second] = servers;
    let mut connection = first.connection().await;
    assert_eq!(
        redis::cmd("DBSIZE")
            .query_async::<usize>(&mut connection)
            .await
            .unwrap(),
        1
    );
    first.kill();
    tell(&["REMOVE", "cache"]).await;
    let port = monitor(&second);
    tell(&["MONITOR", "cache", "127.0.0.1", &port, "1"]).await;
    cached.works().await;
    let mut connection = second.connection().await;
    assert_eq!(
        redis::cmd("DBSIZE")
            .query_async::<usize>(&mut connection)
            .await
            .unwrap(),
        1
    );
    cached.stop().await;
}

/// A port behind which this Redis is, for who speaks TLS.
async fn behind_tls(redis: &RedisServer, key: &rcgen::CertifiedKey<rcgen::KeyPair>) -> u16 {
    let secret = PrivateKeyDer::Pkcs8(key.signing_key.serialize_der().into());
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![key.cert.der().clone()], secret)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, redis) = (listener.local_addr().unwrap().port(), redis.port);
    tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let mut inside = TcpStream::connect(("127.0.0.1", redis)).await.unwrap();
                if let Ok(mut outside) = acceptor.accept(stream).await {
                    drop(copy_bidirectional(&mut outside, &mut inside).await);
                }
            });
        }
    });
    port
}

/// The program itself, as what it trusts comes from its environment.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_redis_has_to_prove_who_it_is() {
    let redis = RedisServer::start(&[]).await;
    let key = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let port = behind_tls(&redis, &key).await;
    let directory = tempfile::tempdir().unwrap();
    let (trusted, configured) = (
        directory.path().join("ca.pem"),
        directory.path().join("c.json"),
    );
    std::fs::write(&trusted, key.cert.pem()).unwrap();
    for (host, trusts, works) in [
        ("localhost", true, true),
        ("127.0.0.1", true, false),
        ("localhost", false, false),
    ] {
        let settings = json!({"redis": format!("rediss://{host}:{port}")});
        let mut configuration = document(&settings, &json!({}), None);
        let address = format!("127.0.0.1:{}", free_port());
        configuration["sidecar"]["listen"] = json!(address);
        std::fs::write(&configured, configuration.to_string()).unwrap();
        let mut program = Command::new(env!("CARGO_BIN_EXE_rolter-sidecar"));
        program
            .args(["run", "--config"])
            .arg(&configured)
            .stderr(Stdio::null());
        if trusts {
            program.env("SSL_CERT_FILE", &trusted);
        }
        let _program = Program(program.spawn().unwrap());
        let began = Instant::now();
        while TcpStream::connect(&address).await.is_err() {
            assert!(began.elapsed() < PATIENCE, "it does not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let filter = Filter::new(&format!("http://{address}"));
        if works {
            filter.works().await;
        } else {
            let request = Request::new(&chat("hello"));
            for _ in 0..20 {
                let missed = filter.look_up(&request).await;
                assert_eq!(missed.outcome(), "miss");
                let hi = answer("hi");
                let stored = filter.store(&missed.ticket, "application/json", &hi);
                assert_eq!(stored.await.status, StatusCode::SERVICE_UNAVAILABLE);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
