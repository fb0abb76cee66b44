//! What the end-to-end tests share: a fleet of engines that take no time, and a client that stays
//! on one connection, so that one worker of Envoy sees all that it sends.

#![forbid(unsafe_code)]

pub mod cached;
pub mod chart;
pub mod guarded;
pub mod mesh;
pub mod oci;
pub mod pods;
pub mod rolled;
pub mod schemas;
pub mod server;
pub mod validation;

use engine_sim::{EngineConfig, body_hash};
use fleet::{Fleet, Setup};
use reqwest::{Client, RequestBuilder, Response};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime};
use tokio::task::JoinSet;

/// The path of chats.
pub const CHAT: &str = "/v1/chat/completions";

/// Connections, so many that several workers of an Envoy have some of them.
pub const CONNECTIONS: usize = 16;

/// A setup of so many engines that answer at once, with receipts in the headers of answers.
pub fn setup(engines: usize, workers: usize) -> Setup {
    let instant = EngineConfig {
        prefill_tokens_per_sec: f64::INFINITY,
        decode_time_per_token: Duration::ZERO,
        default_max_tokens: 8,
        max_model_len: 2_000_000,
        kv_blocks: 200_000,
        ..EngineConfig::default()
    };
    Setup::of(engines, &instant)
        .workers(workers)
        .with("/debug_headers", true)
}

/// The setup under another strategy, with its defaults.
///
/// # Panics
/// On the start, where the configuration is another.
#[must_use]
pub fn strategy(setup: Setup, name: &'static str) -> Setup {
    setup.configure(move |config| {
        let route = config["routes"][0].as_object_mut();
        let route = route.expect("a route in the documented configuration");
        // Options without effect are refused.
        route.remove("cache_aware");
        route.insert("strategy".into(), name.into());
    })
}

/// Starts a [`setup`].
///
/// # Panics
/// Where something does not start.
pub async fn start(setup: Setup) -> Fleet {
    Fleet::start(setup)
        .await
        .unwrap_or_else(|error| panic!("{error}"))
}

/// Text of so many KV blocks of 64 bytes that shares no more than chance with that of another name.
pub fn text(name: &str, blocks: usize) -> String {
    let line = format!(
        "{} {name} and what there is to say. ",
        body_hash(name.as_bytes())
    );
    line.chars().cycle().take(blocks * 64).collect()
}

/// The body of a chat with one user turn.
pub fn say(content: &str) -> Value {
    json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": content}]})
}

/// One connection through Envoy.
pub struct Caller {
    client: Client,
    fleet_url: String,
}

/// What came back.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The engine that answered; empty where none did.
    pub engine: String,
    /// The target that the filter says it picked.
    pub target: String,
    /// The reason that it gives.
    pub decision: String,
    /// The body.
    pub body: String,
}

impl Caller {
    /// A connection that takes one request at a time.
    pub fn new(fleet: &Fleet) -> Self {
        Self::with(fleet, Client::builder())
    }

    /// A connection that takes many requests at a time.
    pub fn concurrent(fleet: &Fleet) -> Self {
        Self::with(fleet, Client::builder().http2_prior_knowledge())
    }

    fn with(fleet: &Fleet, client: reqwest::ClientBuilder) -> Self {
        Self {
            client: client
                .no_proxy()
                .pool_max_idle_per_host(1)
                .timeout(Duration::from_secs(30))
                .build()
                .unwrap_or_else(|error| panic!("no client: {error}")),
            fleet_url: fleet.url(""),
        }
    }

    /// A request that has a body.
    pub fn request(&self, path: &str) -> RequestBuilder {
        self.client.post(format!("{}{path}", self.fleet_url))
    }

    /// A request that has none.
    pub fn bodiless(&self, path: &str) -> RequestBuilder {
        self.client.get(format!("{}{path}", self.fleet_url))
    }

    /// Sends a JSON body and reads the answer.
    pub async fn send(&self, path: &str, body: &Value) -> Answer {
        answer(self.request(path).json(body)).await
    }

    /// Sends a chat with one user turn and reads the answer.
    pub async fn say(&self, content: &str) -> Answer {
        self.send(CHAT, &say(content)).await
    }
}

/// Sends a request and reads the answer.
///
/// # Panics
/// Where there is none.
pub async fn answer(request: RequestBuilder) -> Answer {
    let response = request
        .send()
        .await
        .unwrap_or_else(|error| panic!("no answer: {error}"));
    let head = Answer::of(&response);
    let body = response
        .text()
        .await
        .unwrap_or_else(|error| panic!("cut answer: {error}"));
    Answer { body, ..head }
}

impl Answer {
    /// What the headers of a response tell.
    pub fn of(response: &Response) -> Self {
        let header = |name: &str| {
            let value = response.headers().get(name);
            value
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
                .unwrap_or_default()
        };
        Self {
            status: response.status().as_u16(),
            engine: header("x-engine"),
            target: header("x-rolter-target"),
            decision: header("x-rolter-decision"),
            body: String::new(),
        }
    }

    /// The target and the reason, after a check that the target is who answered.
    ///
    /// # Panics
    /// Where another engine answered.
    pub fn pick(&self) -> (&str, &str) {
        assert_eq!(self.engine, self.target, "{self:?}");
        (&self.engine, &self.decision)
    }
}

/// Sends so many requests that never end over a connection, and returns once all are in flight at
/// this engine. They end when what is returned is dropped.
///
/// # Panics
/// Where they do not get there.
pub async fn hang(
    caller: &Caller,
    fleet: &Fleet,
    engine: &str,
    body: &Value,
    count: u64,
) -> JoinSet<()> {
    let before = fleet
        .stats()
        .await
        .map_or(0, |stats| in_flight(&stats, engine));
    let mut hung = JoinSet::new();
    for _ in 0..count {
        let request = caller
            .request(CHAT)
            .json(body)
            .header("x-sim-fault", "hang");
        hung.spawn(async move {
            let _ = request.send().await;
        });
    }
    let stats = fleet
        .stats_when(|stats| in_flight(stats, engine) == before + count)
        .await;
    let reached = stats.map_or(0, |stats| in_flight(&stats, engine));
    assert_eq!(reached, before + count, "requests in flight at {engine}");
    hung
}

/// The filter's count of requests in flight at an engine.
pub fn in_flight(stats: &fleet::Stats, engine: &str) -> u64 {
    stats.filter("rolter_in_flight", &[("target", engine)])
}

/// The filter's count of requests in flight at all engines.
pub fn all_in_flight(stats: &fleet::Stats) -> u64 {
    stats.filter("rolter_in_flight", &[])
}

/// Waits until what some worker has learnt is seen by the next request of any: who has just looked
/// does so again after two milliseconds at most, and a worker's thread may stand still in between.
pub async fn all_know() {
    tokio::time::sleep(Duration::from_millis(100)).await;
}

/// Waits until the target of this name may be used, or tried, again.
///
/// # Panics
/// Where Envoy does not tell.
pub async fn rested(fleet: &Fleet, target: &str) {
    let stats = fleet.stats().await;
    let stats = stats.unwrap_or_else(|error| panic!("{error}"));
    // Milliseconds, and two bits.
    let until = stats.filter("rolter_unavailable_until", &[("target", target)]) >> 2;
    let until = SystemTime::UNIX_EPOCH + Duration::from_millis(until);
    if let Ok(left) = until.duration_since(SystemTime::now()) {
        tokio::time::sleep(left).await;
    }
}

/// Waits until the filter counts no request in flight anywhere, and nothing to compute.
///
/// # Panics
/// Where some stay.
pub async fn all_released(fleet: &Fleet) {
    let none = |stats: &fleet::Stats| {
        let all = ["rolter_in_flight", "rolter_pending_tokens"].map(|name| stats.labelled(name));
        all.into_iter().flatten().all(|(_, count)| count == 0)
    };
    let stats = fleet.stats_when(none).await;
    let left: Vec<_> = stats
        .iter()
        .flat_map(|stats| stats.labelled("rolter_in_flight"))
        .collect();
    assert!(stats.as_ref().is_ok_and(none), "in flight: {left:?}");
}
