//! What the tests of the policy share: an engine that says the words of its user again, who is asked
//! about answers, and a question on each of the ways that an answer may take.

use crate::cached::{self, Cached, MESSAGES, Reply as Got, embedder, with};
use crate::server::{Asked, Reply, Server};
use crate::{CHAT, all_released, setup};
use engine_sim::{Embeddings, Engine};
use fleet::{Redis, Setup};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU64, Ordering};

/// What the engine says it has used: of the prompt, of the answer, and of the prompt from its cache.
pub const USED: [u64; 3] = [11, 7, 5];

/// An engine that says again what its user has said last. It writes JSON as nobody else would.
pub async fn parrot() -> Server {
    let count = AtomicU64::new(0);
    Server::start(move |asked| say_again(asked, count.fetch_add(1, Ordering::Relaxed))).await
}

fn say_again(asked: &Asked, number: u64) -> Reply {
    let body = asked.json();
    let words = &body["messages"].as_array().and_then(|turns| turns.last());
    let words = words.map_or(&Value::Null, |turn| &turn["content"]);
    let said = json!(format!("You said: {}", words.as_str().unwrap_or_default()));
    let [prompt, completion, of_cache] = USED;
    if asked.path.starts_with(MESSAGES) {
        return Reply::json(&format!(
            r#"{{"content" :[ {{"text":{said},"type":"text"}}],"id":"{number}","type":"message",
              "role":"assistant","model":"m","stop_reason":"end_turn","stop_sequence":null,"usage":
              {{"input_tokens":{prompt},"output_tokens":{completion}}}}}"#
        ));
    }
    Reply::json(&format!(
        r#"{{ "odd":1.50e1, "object":"chat.completion","id" :"{number}", "created": 1,"model":"m",
          "choices":[{{"index":0,"message":{{"role":"assistant","content":{said}}},"finish_reason":
          "stop"}}],"usage":{{"prompt_tokens":{prompt},"completion_tokens":{completion},
          "total_tokens":18,"prompt_tokens_details":{{"cached_tokens":{of_cache}}}}}}}"#
    ))
}

/// Somebody who is asked about answers: lets them pass.
pub fn allows(_: &Asked) -> Reply {
    Reply::json(&json!({"verdict": "allow"}))
}

/// Blocks them, for a reason.
pub fn blocks(_: &Asked) -> Reply {
    Reply::json(&json!({"verdict": "block", "reason": "It is about birds."}))
}

/// Gives others in their place, with some words for some others.
pub fn replaces(words: &'static str, by: &'static str) -> impl Fn(&Asked) -> Reply {
    move |asked| {
        let answer = asked.json()["answer"].to_string().replace(words, by);
        Reply::json(&format!(r#"{{"verdict":"replace","answer":{answer}}}"#))
    }
}

/// A fleet of this engine, whose answers this policy passes over.
pub fn guarded(engine: &Server, policy: Value) -> Setup {
    let setup = setup(0, 1).guarded(policy);
    setup.cluster("engine", engine.addr()).configure(|config| {
        config["providers"] = json!([{"name": "engine", "cluster": "engine"}]);
        for route in config["routes"].as_array_mut().into_iter().flatten() {
            route["targets"] = json!(["engine"]);
        }
    })
}

/// The setup with a cache. A lookup may take long: these tests share a machine with others.
#[must_use]
pub fn with_cache(setup: Setup) -> Setup {
    setup
        .cached()
        .with("/routes/0/cache/lookup_timeout_ms", 5_000)
        .with("/routes/1/cache/lookup_timeout_ms", 5_000)
}

/// A plugin of a policy, by the cluster of its name; with the options that it has none of by itself.
pub fn plugin(name: &str, options: &Value) -> Value {
    let mut plugin = json!({"name": name, "cluster": name, "timeout_ms": 20_000});
    for (key, value) in options.as_object().into_iter().flatten() {
        plugin[key] = value.clone();
    }
    plugin
}

/// The ways that an answer may take: without a cache, and with one in Redis as the first answer, for
/// the same request and for one in other words.
pub struct Ways {
    /// The fleet without a cache.
    pub off: Cached,
    /// The fleet with one.
    pub on: Cached,
    /// Where it is.
    pub redis: Redis,
    /// Who makes the embeddings for it: all texts are alike.
    pub embedder: Engine,
    /// The questions so far.
    questions: AtomicU64,
}

/// What [`Got::told`] of each way.
pub const WAYS: [(&str, &str); 4] = [
    ("", ""),
    ("miss", ""),
    ("hit", "exact"),
    ("hit", "semantic"),
];

impl Ways {
    /// Starts the fleets of an engine with a policy.
    ///
    /// # Panics
    /// Where something does not start.
    pub async fn start(setup: impl Fn() -> Setup) -> Self {
        let redis = Redis::start().await;
        let redis = redis.unwrap_or_else(|error| panic!("{error}"));
        let embedder = embedder(Embeddings::Equal);
        let on = with_cache(setup())
            .semantic(&embedder)
            .with("/cache/redis", redis.url());
        let on = Cached::start(on).await;
        on.until_connected().await;
        Self {
            off: Cached::start(setup()).await,
            on,
            redis,
            embedder,
            questions: AtomicU64::new(0),
        }
    }

    /// A chat that nobody has asked before, in whatever words.
    pub fn question(&self, content: &str) -> Value {
        let number = self.questions.fetch_add(1, Ordering::Relaxed);
        with(&chat(content), "/seed", json!(number))
    }

    /// Asks such a chat on each of the [`WAYS`], the last time in other words, and
    /// checks that it went that way.
    ///
    /// # Panics
    /// Where it did not.
    pub async fn ask(&self, question: &Value) -> [Got; 4] {
        let miss = self.begin(question).await;
        let [off, exact, semantic] = self.again(question).await;
        assert_eq!((&*miss.cache, &*miss.kind), WAYS[1], "{miss:?}");
        [off, miss, exact, semantic]
    }

    /// Asks once more what was asked before: without a cache, in the same words and in others.
    ///
    /// # Panics
    /// Where it was not.
    pub async fn again(&self, question: &Value) -> [Got; 3] {
        let content = "/messages/0/content";
        let words = question.pointer(content).and_then(Value::as_str);
        let other = format!("{} Please.", words.unwrap_or_default());
        let all = [
            self.off.ask(CHAT, question).await,
            self.on.ask(CHAT, question).await,
            self.on
                .ask(CHAT, &with(question, content, json!(other)))
                .await,
        ];
        for (got, way) in all.iter().zip([WAYS[0], WAYS[2], WAYS[3]]) {
            assert_eq!((&*got.cache, &*got.kind), way, "{got:?}");
        }
        all
    }

    /// Asks what nobody has asked before, and waits until the answer is stored.
    pub async fn begin(&self, body: &Value) -> Got {
        let mut before = [0; 2];
        for (before, cache) in before.iter_mut().zip(["exact", "semantic"]) {
            *before = self.on.counted("stores", &[("cache", cache)]).await;
        }
        let got = self.on.ask(CHAT, body).await;
        for (before, cache) in before.into_iter().zip(["exact", "semantic"]) {
            let labels = [("cache", cache)];
            self.on.until_counted("stores", &labels, before + 1).await;
        }
        got
    }

    /// Gives all of them another policy.
    ///
    /// # Panics
    /// Where Envoy does not take it.
    pub async fn reload(&mut self, policy: &Value) {
        for cached in [&mut self.off, &mut self.on] {
            let change = |config: &mut Value| config["policy"] = policy.clone();
            let taken = cached.fleet.reconfigure(change).await;
            taken.unwrap_or_else(|error| panic!("{error}"));
        }
    }

    /// Checks that nothing is left of what was asked.
    ///
    /// # Panics
    /// Where something is.
    pub async fn is_sound(&self) {
        for cached in [&self.off, &self.on] {
            is_sound(&cached.fleet).await;
        }
    }
}

/// Checks that a fleet has no request in flight, and that no filter has panicked.
///
/// # Panics
/// Where it is not so.
pub async fn is_sound(fleet: &fleet::Fleet) {
    all_released(fleet).await;
    assert!(!fleet.panicked(), "{}", fleet.log());
}

/// A chat with one user turn.
pub fn chat(content: &str) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

/// The code of an error.
///
/// # Panics
/// Where the answer is none.
pub fn code(got: &Got) -> (u16, String) {
    let body: Value =
        serde_json::from_slice(&got.body).unwrap_or_else(|error| panic!("{error}: {}", got.text()));
    let code = body["error"]["code"].as_str().unwrap_or_default();
    (got.status, code.to_owned())
}

/// The lines of the access log of a fleet, once there are so many.
///
/// # Panics
/// Where there are not.
pub async fn logged(cached: &cached::Cached, lines: usize) -> Vec<Value> {
    let log = cached.fleet.access_log(lines).await;
    assert_eq!(log.len(), lines, "{log:#?}");
    log
}
