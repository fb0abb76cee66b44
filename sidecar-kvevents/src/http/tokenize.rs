//! The token ids of a prompt, as an engine that may get the request makes them.

use super::App;
use crate::metrics::add;
use crate::poll::{Failure, ask};
use crate::state::{Seen, Target};
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use rolter_core::cache::headers::PATH;
use rolter_core::prompt::Dialect;
use rolter_core::time::Millis;
use serde::Deserialize;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

const DEFAULT_TIMEOUT_MILLIS: u64 = 1_000;
const MAX_TIMEOUT_MILLIS: u64 = 30_000;
/// Bytes of an answer for each byte of a prompt, which is a token at most, and beside those: what a
/// chat's template adds.
const ANSWER_BYTES_A_BYTE: usize = 16;
const MORE_ANSWER_BYTES: usize = 256 << 10;

/// What of a chat decides its tokens.
const OF_CHAT: [&str; 8] = [
    "model",
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
];
const OF_COMPLETION: [&str; 3] = ["model", "prompt", "add_special_tokens"];

#[derive(Deserialize)]
pub(super) struct Asked {
    route: String,
    timeout_ms: Option<u64>,
}

/// Why there are no token ids.
struct Refusal(StatusCode, String);

impl Refusal {
    fn prompt(why: &str) -> Self {
        Self(StatusCode::UNPROCESSABLE_ENTITY, format!("{why}\n"))
    }
}

pub(super) async fn tokenize(
    State(app): State<Arc<App>>,
    Query(asked): Query<Asked>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let began = Instant::now();
    match token_ids(&app, &asked, &headers, &body).await {
        Ok(ids) => {
            add(&app.counts.tokenized, 1);
            app.counts
                .tokenize_seconds
                .observe(began.elapsed().as_secs_f64());
            let bytes: Vec<u8> = ids.into_iter().flat_map(u32::to_le_bytes).collect();
            ([(header::CONTENT_TYPE, "application/octet-stream")], bytes).into_response()
        }
        Err(Refusal(status, why)) => {
            let count = match status {
                StatusCode::UNPROCESSABLE_ENTITY => &app.counts.tokenize_refused,
                _ => &app.counts.tokenize_failed,
            };
            add(count, 1);
            (status, why).into_response()
        }
    }
}

async fn token_ids(
    app: &App,
    asked: &Asked,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Vec<u32>, Refusal> {
    let path = headers.get(PATH).map_or(&b""[..], |path| path.as_bytes());
    let question = question(path, body)?;
    let target = engine(app, &asked.route)?;
    let base = target.api_base.as_deref().unwrap_or_default();
    let timeout = asked
        .timeout_ms
        .unwrap_or(DEFAULT_TIMEOUT_MILLIS)
        .clamp(1, MAX_TIMEOUT_MILLIS);
    let request = app
        .client
        .post(format!("{base}/tokenize"))
        .header(header::CONTENT_TYPE, "application/json")
        .body(question);
    let request = app.secrets.authorize(target.provider, request);
    let most = MORE_ANSWER_BYTES + ANSWER_BYTES_A_BYTE * body.len();
    let answer = ask(request, Duration::from_millis(timeout), most).await;
    answer.and_then(|answer| read(&answer)).map_err(|failure| {
        tracing::debug!(provider = target.name, %failure, "the engine tells no token ids");
        let status = match &failure {
            Failure::Http(error) if error.is_timeout() => StatusCode::GATEWAY_TIMEOUT,
            _ => StatusCode::BAD_GATEWAY,
        };
        Refusal(status, format!("{}: {failure}\n", target.name))
    })
}

/// What to ask an engine for a client's request.
fn question(path: &[u8], body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let of_api: &[&str] = match Dialect::of_path(path) {
        Some(Dialect::Chat) => &OF_CHAT,
        Some(Dialect::Completions) => &OF_COMPLETION,
        _ => {
            return Err(Refusal::prompt(
                "x-rolter-path is neither of chat completions nor of completions; \
                engines tell the tokens of no others",
            ));
        }
    };
    // The values stay as they were written: a template prints a tool's schema in the order of its
    // keys, so another order has other tokens.
    let mut fields: BTreeMap<String, &RawValue> =
        serde_json::from_slice(body).map_err(|_| Refusal::prompt("the body is no JSON object"))?;
    fields.retain(|key, _| of_api.contains(&key.as_str()));
    let begins = |key, with| fields.get(key).map(|value| value.get().starts_with(with));
    let is_one = begins("prompt", '"').or(begins("messages", '[')) == Some(true);
    if !is_one {
        return Err(Refusal::prompt(
            "the body has neither a list of messages nor a prompt that is one text",
        ));
    }
    serde_json::to_vec(&fields).map_err(|_| Refusal::prompt("the body cannot be passed on"))
}

/// An engine of a route to ask: one that says that it is well before any other, then the least busy
/// of those that tell how busy they are, and which of several is left to chance.
fn engine(app: &App, name: &str) -> Result<Arc<Target>, Refusal> {
    let route = app.config.routes.iter().find(|route| route.name == name);
    let route =
        route.ok_or_else(|| Refusal(StatusCode::NOT_FOUND, format!("no route {name:?}\n")))?;
    let is_of_route = |target: &Target| {
        let mut groups = route.groups.iter();
        groups.any(|group| group.targets.contains(&target.provider))
    };
    let targets = app.state.targets();
    targets
        .iter()
        .filter(|target| target.api_base.is_some() && target.is_present() && is_of_route(target))
        .map(|target| (target, target.seen()))
        .filter(|(_, seen)| seen.healthy != Some(false))
        .min_by_key(|(_, seen)| preference(seen, app.state.now()))
        .map(|(target, _)| Arc::clone(target))
        .ok_or_else(|| {
            let why = format!("no engine of route {name:?} is well and has an api_base\n");
            Refusal(StatusCode::SERVICE_UNAVAILABLE, why)
        })
}

/// The lowest is to be asked.
fn preference(seen: &Seen, now: Millis) -> impl Ord + use<> {
    let load = seen.load_at(now);
    let requests = load.map(|load| u64::from(load.running) + u64::from(load.waiting));
    (
        seen.healthy != Some(true),
        requests.unwrap_or(u64::MAX),
        fastrand::u64(..),
    )
}

#[derive(Deserialize)]
struct Answer {
    tokens: Vec<u32>,
}

fn read(answer: &[u8]) -> Result<Vec<u32>, Failure> {
    serde_json::from_slice::<Answer>(answer)
        .map(|answer| answer.tokens)
        .map_err(|_| Failure::Malformed("no list of tokens"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Load;
    use serde_json::Value;

    #[test]
    fn values_are_passed_on_as_they_were_written() {
        let tools = r#"[ {"type":"function", "function":{"name":"f","description":"\u00e9",
            "parameters":{"type":"object","properties":{"z":{"type":"number","default":1.0},"a":{}}}}} ]"#;
        let messages = r#"[{"role":"user","content":"x", "name":1e2}]"#;
        let body = format!(r#"{{"tools":{tools},"stream":true,"messages": {messages} }}"#);
        let asked = question(b"/v1/chat/completions", body.as_bytes())
            .ok()
            .unwrap();
        let expected = format!(r#"{{"messages":{messages},"tools":{tools}}}"#);
        assert_eq!(String::from_utf8(asked).unwrap(), expected);
    }

    #[test]
    fn the_least_busy_of_those_that_are_well_is_asked() {
        let now = Millis(1 << 20);
        let seen = |healthy, running: Option<u32>, ago| Seen {
            healthy,
            load: running.map(|running| Load {
                running,
                waiting: 0,
                kv_usage: None,
                at: now.minus(ago),
            }),
            ..Seen::default()
        };
        let in_order = [
            seen(Some(true), Some(1), 0),
            seen(Some(true), Some(7), 0),
            seen(Some(true), None, 0),
            seen(None, Some(0), 0),
            seen(None, Some(0), 60_000),
        ];
        for pair in in_order.windows(2) {
            let (first, second) = (preference(&pair[0], now), preference(&pair[1], now));
            assert!(first < second, "{pair:?}");
        }
        let mut firsts = (0..1_000)
            .map(|_| preference(&in_order[0], now) < preference(&in_order[0].clone(), now));
        assert!(firsts.any(|first| first) && firsts.any(|first| !first));
    }

    #[test]
    fn only_what_decides_the_tokens_is_passed_on() {
        let body = br#"{"model":"m","messages":[],"stream":true,"tools":[1],"user":"u"}"#;
        let asked = question(b"/v1/chat/completions?x=1", body).ok().unwrap();
        let asked: Value = serde_json::from_slice(&asked).unwrap();
        assert_eq!(
            asked,
            serde_json::json!({"model": "m", "messages": [], "tools": [1]})
        );
        let body = br#"{"model":"m","prompt":"p","max_tokens":1}"#;
        let asked = question(b"/v1/completions", body).ok().unwrap();
        let asked: Value = serde_json::from_slice(&asked).unwrap();
        assert_eq!(asked, serde_json::json!({"model": "m", "prompt": "p"}));
    }

    #[test]
    fn other_prompts_are_refused_with_a_reason() {
        for (path, body) in [
            ("/v1/embeddings", r#"{"input":"x"}"#),
            ("/v1/chat/completions", r#"{"model":"m"}"#),
            ("/v1/chat/completions", "nonsense"),
            ("/v1/completions", r#"{"prompt":["a","b"]}"#),
            ("/v1/completions", r#"{"prompt":[1,2]}"#),
        ] {
            let Refusal(status, why) = question(path.as_bytes(), body.as_bytes()).unwrap_err();
            assert_eq!(
                status,
                StatusCode::UNPROCESSABLE_ENTITY,
                "{path} {body}: {why}"
            );
        }
    }
}
