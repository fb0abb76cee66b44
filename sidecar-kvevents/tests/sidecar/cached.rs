//! A sidecar with a response cache, and asking it as the filter does.

use super::support::{PATIENCE, Running, eventually, sidecar_of};
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::ops::Deref;
use std::time::{Duration, Instant};

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const ALICE: &str = "a11ce000000000000000000000000000000000000000000000000000000000a1";
pub(crate) const BOB: &str = "b0b00000000000000000000000000000000000000000000000000000000000b0";

/// A sidecar of this process.
pub(crate) struct Cached {
    pub(crate) sidecar: Running,
    filter: Filter,
}

impl Deref for Cached {
    type Target = Filter;

    fn deref(&self) -> &Filter {
        &self.filter
    }
}

/// Who asks a sidecar.
pub(crate) struct Filter {
    url: String,
    client: Client,
}

/// A configuration whose route `chat` has a cache.
pub(crate) fn document(cache: &Value, route_cache: &Value, embedder: Option<&str>) -> Value {
    let mut providers = vec![json!({"name": "engine", "cluster": "engine"})];
    let mut route_cache = route_cache.clone();
    if let Some(url) = embedder {
        providers.push(json!({"name": "embedder", "api_base": url}));
        if route_cache["semantic"].is_null() {
            route_cache["semantic"] = json!({});
        }
        route_cache["semantic"]["provider"] = json!("embedder");
        route_cache["semantic"]["model"] = json!("small");
    }
    json!({
        "sidecar": {
            "cluster": "rolter_sidecar", "listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0",
        },
        "cache": cache,
        "providers": providers,
        "routes": [
            {"name": "chat", "targets": ["engine"], "cache": route_cache},
            {"name": "none", "targets": ["engine"]},
        ],
    })
}

/// What the sidecar says.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) status: StatusCode,
    pub(crate) cache: String,
    pub(crate) kind: String,
    pub(crate) reason: String,
    pub(crate) ticket: String,
    pub(crate) age: String,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
}

impl Said {
    /// Of which kind it is a hit, or why there is none.
    pub(crate) fn outcome(&self) -> &str {
        match self.cache.as_str() {
            "hit" => &self.kind,
            "bypass" => &self.reason,
            other => other,
        }
    }
}

/// A request.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) route: &'static str,
    pub(crate) scope: &'static str,
    pub(crate) path: &'static str,
    pub(crate) caller: Option<&'static str>,
    pub(crate) headers: Vec<(&'static str, &'static str)>,
    pub(crate) body: Vec<u8>,
    pub(crate) timeout_ms: u64,
    pub(crate) refresh: bool,
}

impl Request {
    /// Alice's, for a chat, with much patience.
    pub(crate) fn new(body: &impl ToString) -> Self {
        Self {
            route: "chat",
            scope: "key",
            path: CHAT,
            caller: Some(ALICE),
            headers: Vec::new(),
            body: body.to_string().into_bytes(),
            timeout_ms: 10_000,
            refresh: false,
        }
    }
}

/// One user's turn.
pub(crate) fn chat(words: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": words}]})
}

/// A whole answer with these words.
pub(crate) fn answer(words: &str) -> String {
    let choice = json!({
        "index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": words},
    });
    // Not as a serializer would write it.
    format!("{{ \"object\":\"chat.completion\",\n \"choices\" :[{choice}] , \"e\":\"\\u00e9\"}}\n")
}

/// The same as an event stream.
pub(crate) fn stream(words: &str) -> String {
    let chunk = |delta: Value, reason: Option<&str>| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
        format!("data: {}\n\n", json!({"choices": [choice]}))
    };
    let (first, last) = (
        chunk(json!({"content": words}), None),
        chunk(json!({}), Some("stop")),
    );
    format!("{first}: a comment\n\n{last}data: [DONE]\n\n")
}

impl Cached {
    pub(crate) async fn start(document: &Value) -> Self {
        let sidecar = sidecar_of(document).await;
        let filter = Filter::new(&sidecar.url(""));
        Self { sidecar, filter }
    }

    /// With its answers in this Redis.
    pub(crate) async fn in_redis(url: &str) -> Self {
        Self::start(&document(&json!({"redis": url}), &json!({}), None)).await
    }

    pub(crate) async fn stop(self) {
        self.sidecar.stop().await;
    }

    /// Waits until Redis can be reached, where there is one.
    pub(crate) async fn connected(&self) {
        let is_connected = || self.sidecar.app.cache.as_ref().unwrap().is_connected();
        eventually(is_connected, |is| *is != Some(false), "Redis").await;
    }

    /// Waits until so many answers were added to what others are compared with. That of a text whose
    /// vector was on its way is added after it was stored.
    pub(crate) async fn compares(&self, count: u64) {
        let added = || self.metric("stores_total", &["semantic"]);
        let wanted = format!("{count} answers that are compared");
        eventually(added, |added| *added == count, &wanted).await;
    }

    /// How often a part has not worked.
    pub(crate) fn failures(&self, part: &str) -> u64 {
        self.metric("failures_total", &[part])
    }

    /// All metrics.
    pub(crate) fn exposition(&self) -> String {
        let (state, app) = (&self.sidecar.state, &self.sidecar.app);
        rolter_sidecar::metrics::render(state, &app.counts, app.cache.as_deref())
    }

    /// The sum of the samples of a metric of the cache whose labels have all of these.
    pub(crate) fn metric(&self, name: &str, labels: &[&str]) -> u64 {
        let text = self.exposition();
        let samples = text.lines().filter_map(|line| {
            let rest = line
                .strip_prefix("rolter_sidecar_cache_")?
                .strip_prefix(name)?;
            let (of, value) = rest.rsplit_once(' ')?;
            let is_it = of.is_empty() || of.starts_with('{');
            let has_all = labels.iter().all(|label| of.contains(label));
            (is_it && has_all).then(|| value.parse::<u64>().unwrap())
        });
        samples.sum()
    }
}

impl Filter {
    /// Of the sidecar at this URL.
    pub(crate) fn new(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            client: Client::builder().no_proxy().build().unwrap(),
        }
    }

    pub(crate) async fn look_up(&self, request: &Request) -> Said {
        let url = format!(
            "/v1/cache/lookup?route={}&scope={}&timeout_ms={}&refresh={}",
            request.route, request.scope, request.timeout_ms, request.refresh
        );
        let mut asking = self
            .client
            .post(format!("{}{url}", self.url))
            .header("x-rolter-path", request.path)
            .body(request.body.clone());
        if let Some(caller) = request.caller {
            asking = asking.header("x-rolter-caller", caller);
        }
        for (name, value) in &request.headers {
            asking = asking.header(*name, *value);
        }
        said(asking).await
    }

    pub(crate) async fn store(&self, ticket: &str, content_type: &str, body: &str) -> Said {
        let url = format!("{}/v1/cache/entries?route=chat", self.url);
        let asking = self
            .client
            .post(url)
            .header("x-rolter-ticket", ticket)
            .header("content-type", content_type)
            .body(body.to_owned());
        said(asking).await
    }

    /// Misses, and then stores this answer.
    pub(crate) async fn answered(&self, request: &Request, body: &str) {
        let missed = self.look_up(request).await;
        assert_eq!(missed.outcome(), "miss", "{missed:?}");
        let kind = if body.starts_with("data:") {
            "text/event-stream"
        } else {
            "application/json"
        };
        self.stored(&missed.ticket, kind, body).await;
    }

    /// Stores this answer, which nothing is wrong with.
    pub(crate) async fn stored(&self, ticket: &str, content_type: &str, body: &str) {
        let stored = self.store(ticket, content_type, body).await;
        assert_eq!(stored.status, StatusCode::NO_CONTENT, "{stored:?}");
    }

    /// Asks and stores until what was stored is found.
    pub(crate) async fn works(&self) {
        let began = Instant::now();
        let request = Request::new(&chat("does it work?"));
        loop {
            let said = self.look_up(&request).await;
            if said.outcome() == "exact" {
                return;
            }
            assert_eq!(said.outcome(), "miss", "{said:?}");
            self.store(&said.ticket, "application/json", &answer("yes"))
                .await;
            assert!(began.elapsed() < PATIENCE, "it does not work");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) async fn outcome(&self, request: &Request) -> String {
        self.look_up(request).await.outcome().to_owned()
    }
}

async fn said(asking: reqwest::RequestBuilder) -> Said {
    let answer = asking.timeout(PATIENCE).send().await.unwrap();
    let header = |name| {
        let value = answer.headers().get(name);
        value.map_or(String::new(), |value| value.to_str().unwrap().to_owned())
    };
    Said {
        status: answer.status(),
        cache: header("x-rolter-cache"),
        kind: header("x-rolter-cache-kind"),
        reason: header("x-rolter-reason"),
        ticket: header("x-rolter-ticket"),
        age: header("age"),
        content_type: header("content-type"),
        body: answer.bytes().await.unwrap().to_vec(),
    }
}
