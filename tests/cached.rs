//! What the tests of the response cache share: a fleet with a cache, and what of an answer tells
//! where it came from.

use crate::{CHAT, Caller, setup, start};
use engine_sim::{Embeddings, Engine, EngineConfig};
use fleet::{Fleet, Setup};
use reqwest::RequestBuilder;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// The caller of most requests.
pub const ALICE: &str = "alice's key";

/// How long what happens behind an answer may take: storing it, or coming back.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// The paths of the APIs beside [`CHAT`] whose answers are kept.
pub const COMPLETIONS: &str = "/v1/completions";
/// See [`COMPLETIONS`].
pub const RESPONSES: &str = "/v1/responses";
/// See [`COMPLETIONS`].
pub const MESSAGES: &str = "/v1/messages";
/// See [`COMPLETIONS`].
pub const EMBEDDINGS: &str = "/v1/embeddings";

/// A request of each API whose answers are kept: for embeddings, and then for each API that generates
/// one for JSON and the same for a stream.
pub fn each_api() -> Vec<(&'static str, Value)> {
    let turns = json!([{"role": "user", "content": "Which book is it?"}]);
    let generating = [
        (CHAT, json!({"model": "m", "messages": turns})),
        (COMPLETIONS, json!({"model": "m", "prompt": "The book is"})),
        (RESPONSES, json!({"model": "m", "input": turns})),
        (
            MESSAGES,
            json!({"model": "m", "max_tokens": 8, "messages": turns}),
        ),
    ];
    let mut requests = vec![(EMBEDDINGS, json!({"model": "m", "input": ["one", "two"]}))];
    for (path, body) in generating {
        let mut streamed = body.clone();
        streamed["stream"] = json!(true);
        requests.extend([(path, body), (path, streamed)]);
    }
    requests
}

/// A setup of so many engines behind a cache in the sidecar's memory. A lookup may take long: these
/// tests share a machine with others.
pub fn cached(engines: usize, workers: usize) -> Setup {
    setup(engines, workers)
        .cached()
        .with("/routes/0/cache/lookup_timeout_ms", 5_000)
        .with("/routes/1/cache/lookup_timeout_ms", 5_000)
}

/// Who makes embeddings: every text has the same, or each one of its own.
///
/// # Panics
/// Where it does not start.
pub fn embedder(embeddings: Embeddings) -> Engine {
    let config = EngineConfig {
        name: "embedder".to_owned(),
        embedding_dimensions: 64,
        embeddings,
        ..EngineConfig::default()
    };
    Engine::start(config, ([127, 0, 0, 1], 0).into()).unwrap_or_else(|error| panic!("{error}"))
}

/// How often it was asked.
pub fn asked(embedder: &Engine) -> u64 {
    let served = embedder.stats().served;
    served.get(EMBEDDINGS).copied().unwrap_or(0)
}

/// A fleet with a cache, and one connection to it.
pub struct Cached {
    /// The fleet.
    pub fleet: Fleet,
    caller: Caller,
}

/// An answer, wherever it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// `x-rolter-cache`.
    pub cache: String,
    /// `x-rolter-cache-kind`.
    pub kind: String,
    /// `age`.
    pub age: Option<u64>,
    /// The engine that answered; empty where none did.
    pub engine: String,
    /// The content type.
    pub content_type: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Reply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The status, and what the cache had to do with it.
    pub fn told(&self) -> (u16, &str, &str) {
        (self.status, &self.cache, &self.kind)
    }

    /// What the model says in it, where it is a chat's.
    ///
    /// # Panics
    /// Where it is none.
    pub fn said(&self) -> String {
        let text = self.text();
        let parse = |json: &str| -> Value {
            serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {text}"))
        };
        if !self.content_type.starts_with("text/event-stream") {
            let content = &parse(&text)["choices"][0]["message"]["content"];
            return content.as_str().unwrap_or_default().to_owned();
        }
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let chunks = data.filter(|data| *data != "[DONE]").map(parse);
        chunks
            .filter_map(|chunk| {
                let content = &chunk["choices"][0]["delta"]["content"];
                Some(content.as_str()?.to_owned())
            })
            .collect()
    }
}

/// Sends a request and reads the answer.
///
/// # Errors
/// Where there is none, or it is cut.
pub async fn fetch(request: RequestBuilder) -> reqwest::Result<Reply> {
    let response = request.send().await?;
    let header = |name: &str| {
        let value = response.headers().get(name);
        value
            .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
            .unwrap_or_default()
    };
    Ok(Reply {
        status: response.status().as_u16(),
        cache: header("x-rolter-cache"),
        kind: header("x-rolter-cache-kind"),
        age: header("age").parse().ok(),
        engine: header("x-engine"),
        content_type: header("content-type"),
        body: response.bytes().await?.to_vec(),
    })
}

/// Sends a request and reads the answer.
///
/// # Panics
/// Where there is none, or it is cut.
pub async fn reply(request: RequestBuilder) -> Reply {
    fetch(request)
        .await
        .unwrap_or_else(|error| panic!("no answer: {error}"))
}

impl Cached {
    /// Starts a [`cached`] setup.
    ///
    /// # Panics
    /// Where something does not start.
    pub async fn start(setup: Setup) -> Self {
        Self::over(start(setup).await)
    }

    /// A connection to a fleet.
    pub fn over(fleet: Fleet) -> Self {
        let caller = Caller::new(&fleet);
        Self { fleet, caller }
    }

    /// A request without a key.
    pub fn anonymous(&self, path: &str) -> RequestBuilder {
        self.caller.request(path)
    }

    /// A request of Alice's.
    pub fn request(&self, path: &str, body: &Value) -> RequestBuilder {
        self.anonymous(path).bearer_auth(ALICE).json(body)
    }

    /// Sends a request of Alice's and reads the answer.
    pub async fn ask(&self, path: &str, body: &Value) -> Reply {
        reply(self.request(path, body)).await
    }

    /// Sends a request that nobody has an answer to yet, and waits until that is stored in a cache,
    /// `exact` or `semantic`.
    ///
    /// # Panics
    /// Where an engine does not answer, or the answer is not stored.
    pub async fn store(&self, request: RequestBuilder, cache: &str) -> Reply {
        let before = self.counted("stores", &[("cache", cache)]).await;
        let reply = reply(request).await;
        assert_eq!(reply.told(), (200, "miss", ""), "{}", reply.text());
        self.until_counted("stores", &[("cache", cache)], before + 1)
            .await;
        reply
    }

    /// The sum of the sidecar's counts of this name, as in `stores`, that have all these labels.
    ///
    /// # Panics
    /// Where the sidecar does not tell.
    pub async fn counted(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let name = format!("rolter_sidecar_cache_{name}_total");
        let metrics = self.fleet.ask_sidecar("/metrics").await;
        let metrics = metrics.unwrap_or_else(|error| panic!("{error}"));
        let numbers = metrics.lines().filter_map(|line| {
            let (series, value) = line.rsplit_once(' ')?;
            let (given, told) = series.split_once('{').unwrap_or((series, ""));
            let has =
                |(label, value): &(&str, &str)| told.contains(&format!("{label}=\"{value}\""));
            let is_asked = given == name && labels.iter().all(has);
            is_asked.then(|| value.parse::<u64>().ok()).flatten()
        });
        numbers.sum()
    }

    /// Waits until such a sum of the sidecar's numbers is so much at least.
    ///
    /// # Panics
    /// Where it does not get there.
    pub async fn until_counted(&self, name: &str, labels: &[(&str, &str)], wanted: u64) {
        let start = Instant::now();
        loop {
            let counted = self.counted(name, labels).await;
            if counted >= wanted {
                return;
            }
            if start.elapsed() > PATIENCE {
                let log = self.fleet.sidecar_log();
                let sidecar = self.fleet.ask_sidecar("/metrics").await;
                let filter = self.fleet.ask_admin("/stats?filter=rolter_cache").await;
                let numbers = [sidecar, filter].map(Result::unwrap_or_default).concat();
                let lines = numbers.lines().filter(|line| line.contains("_cache_"));
                let lines: Vec<&str> = lines.collect();
                panic!("{name} {labels:?} is {counted}, not {wanted}: {lines:#?}\n{log}");
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Waits until the sidecar has its connection to Redis; until then all is a miss.
    ///
    /// # Panics
    /// Where it gets none.
    pub async fn until_connected(&self) {
        let start = Instant::now();
        loop {
            let metrics = self.fleet.ask_sidecar("/metrics").await.unwrap_or_default();
            if metrics.contains("rolter_sidecar_cache_redis_connected 1") {
                return;
            }
            assert!(start.elapsed() < PATIENCE, "{metrics}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Sends a request until it is a hit, which it is at last once its answer is stored.
    ///
    /// # Panics
    /// Where it never is, or an answer is an error.
    pub async fn until_hit(&self, path: &str, body: &Value) -> Reply {
        let start = Instant::now();
        loop {
            let reply = self.ask(path, body).await;
            assert_eq!(reply.status, 200, "{}", reply.text());
            if reply.cache == "hit" {
                return reply;
            }
            assert!(start.elapsed() < PATIENCE, "still {reply:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The requests that all engines have had so far, but for what a sidecar polls.
    pub fn served(&self) -> u64 {
        let engines = self.fleet.engines().iter();
        engines
            .flat_map(|engine| engine.stats().served)
            .filter(|(path, _)| !["/health", "/metrics", "/v1/models"].contains(&&**path))
            .map(|(_, count)| count)
            .sum()
    }
}

/// A body with a value at a place in it, as in `/messages/0/content`; `-` is the
/// place after the last of a list.
///
/// # Panics
/// Where it has no such place.
#[must_use]
pub fn with(body: &Value, pointer: &str, value: Value) -> Value {
    let mut body = body.clone();
    if let Some(place) = body.pointer_mut(pointer) {
        *place = value;
        return body;
    }
    let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
    match body.pointer_mut(parent) {
        Some(Value::Array(items)) => items.push(value),
        Some(parent) => parent[key] = value,
        None => panic!("nothing at {parent:?}"),
    }
    body
}

/// A body without this key of its own.
///
/// # Panics
/// Where it does not have it.
#[must_use]
pub fn without(body: &Value, key: &str) -> Value {
    let mut body = body.clone();
    let removed = body.as_object_mut().and_then(|body| body.remove(key));
    assert!(removed.is_some(), "nothing at {key:?}");
    body
}
