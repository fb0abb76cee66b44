//! The engine's APIs: what each request asks for, and how each tells an answer.

mod chat;
mod completions;
mod embeddings;
mod fields;
mod messages;
mod render;
mod responses;
mod tokenize;

use std::convert::Infallible;
use std::fmt::Write;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::StatusCode;
use hyper::body::Frame;
use serde_json::{Value, json};

use crate::config::EngineConfig;
use crate::generation::{Generation, Usage};
use crate::reply::{self, ApiError, Body, ErrorShape, Reply};
use crate::scheduler::Finish;
use crate::state::Shared;
use crate::tokens::Prompt;

pub(crate) use embeddings::embeddings;
pub(crate) use render::render;
pub(crate) use tokenize::tokenize;

/// An API that generates text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Api {
    Chat,
    Completions,
    Responses,
    Messages,
}

impl Api {
    /// The API at a path.
    pub(crate) fn from_path(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/chat/completions" => Self::Chat,
            "/v1/completions" => Self::Completions,
            "/v1/responses" => Self::Responses,
            "/v1/messages" => Self::Messages,
            _ => return None,
        })
    }

    /// In whose words it tells an error.
    pub(crate) fn error_shape(self) -> ErrorShape {
        match self {
            Self::Messages => ErrorShape::Anthropic,
            Self::Chat | Self::Completions | Self::Responses => ErrorShape::OpenAi,
        }
    }
}

/// What a request asks for, whichever API it came by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Inference {
    pub(crate) api: Api,
    /// The model, as the request names it; empty for the engine's own.
    pub(crate) model: String,
    pub(crate) prompt: Prompt,
    pub(crate) max_tokens: Option<usize>,
    pub(crate) stream: bool,
    /// Whether a stream of the `OpenAI` kind ends with a chunk of usage.
    pub(crate) include_usage: bool,
    pub(crate) cache_salt: String,
    /// The data-parallel rank that is to serve it.
    pub(crate) rank: Option<usize>,
}

/// What every response of one request says of it.
#[derive(Debug, Clone)]
struct Meta {
    id: String,
    /// Seconds since 1970.
    created: u64,
    model: String,
    include_usage: bool,
}

/// How an API tells an answer.
trait Dialect: Send {
    /// A whole answer.
    fn whole(&mut self, text: &str, usage: Usage, finish: Finish) -> Value;
    /// What precedes the first token of a stream, when that token is there.
    fn first(&mut self, usage: Usage, events: &mut Events);
    /// One token of a stream.
    fn token(&mut self, text: &str, events: &mut Events);
    /// What follows the last token of a stream.
    fn last(&mut self, usage: Usage, finish: Finish, events: &mut Events);
}

/// Reads a request of an API.
pub(crate) fn parse(api: Api, body: &Value) -> Result<Inference, ApiError> {
    if !body.is_object() {
        return Err(ApiError::bad_request("The body must be a JSON object."));
    }
    let (prompt, max_tokens) = match api {
        Api::Chat => chat::parse(body)?,
        Api::Completions => completions::parse(body)?,
        Api::Responses => responses::parse(body)?,
        Api::Messages => messages::parse(body)?,
    };
    if fields::count(body, "n")?.is_some_and(|n| n != 1) {
        return Err(ApiError::bad_request("n must be 1"));
    }
    let include_usage = match body.get("stream_options") {
        Some(options) => fields::flag(options, "include_usage")?.unwrap_or(false),
        None => false,
    };
    Ok(Inference {
        api,
        model: fields::text(body, "model")?.unwrap_or_default().to_owned(),
        prompt,
        max_tokens,
        stream: fields::flag(body, "stream")?.unwrap_or(false),
        include_usage,
        cache_salt: fields::text(body, "cache_salt")?
            .unwrap_or_default()
            .to_owned(),
        rank: None,
    })
}

/// Answers a request, whole or as a stream.
pub(crate) async fn infer(shared: &Arc<Shared>, mut request: Inference) -> Result<Reply, ApiError> {
    request.model = served(&shared.config, &request.model)?;
    let mut generation = Generation::start(shared, &request)?;
    let (api, stream) = (request.api, request.stream);
    let meta = Meta {
        id: format!("{:016x}", shared.new_id()),
        created: SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs(),
        model: request.model,
        include_usage: request.include_usage,
    };
    let mut dialect: Box<dyn Dialect> = match api {
        Api::Chat => Box::new(chat::Chat(meta)),
        Api::Completions => Box::new(completions::Completions(meta)),
        Api::Responses => Box::new(responses::Responses::new(meta)),
        Api::Messages => Box::new(messages::Messages(meta)),
    };
    if stream {
        let body = events(generation, dialect);
        return Ok(reply::with_body(StatusCode::OK, reply::EVENT_STREAM, body));
    }
    let mut text = String::new();
    while let Some(token) = generation.next().await {
        text.push_str(&token);
    }
    let body = dialect.whole(&text, generation.usage, generation.finish);
    Ok(reply::json(StatusCode::OK, &body))
}

/// `GET /v1/models`.
pub(crate) fn models(config: &EngineConfig) -> Value {
    let mut served: Vec<&str> = config.models.iter().map(String::as_str).collect();
    if served.is_empty() {
        served.push(config.first_model());
    }
    let base = config.first_model();
    let bases = served.into_iter().map(|id| (id, None));
    let adapters = config.adapters.iter().map(|id| (id.as_str(), Some(base)));
    let model = |(id, parent): (&str, Option<&str>)| {
        json!({
            "id": id,
            "object": "model",
            "created": 0,
            "owned_by": "engine-sim",
            "root": id,
            "parent": parent,
            "max_model_len": config.context_tokens(),
        })
    };
    let models: Vec<Value> = bases.chain(adapters).map(model).collect();
    json!({"object": "list", "data": models})
}

/// The model that a request gets: the one that it names, if that is served, or the first.
fn served(config: &EngineConfig, asked: &str) -> Result<String, ApiError> {
    if asked.is_empty() {
        return Ok(config.first_model().to_owned());
    }
    let mut named = config.models.iter().chain(&config.adapters);
    if config.models.is_empty() || named.any(|model| model == asked) {
        return Ok(asked.to_owned());
    }
    Err(ApiError::not_found(format!(
        "The model `{asked}` does not exist."
    )))
}

/// Server-sent events, as bytes to send.
#[derive(Debug, Default)]
struct Events(String);

impl Events {
    /// An event without a name.
    fn data(&mut self, data: &Value) {
        // Writing to a string cannot fail.
        let _ = write!(self.0, "data: {data}\n\n");
    }

    /// An event whose name is its data's `type`.
    fn typed(&mut self, data: &Value) {
        let name = data.get("type").and_then(Value::as_str).unwrap_or_default();
        let _ = write!(self.0, "event: {name}\ndata: {data}\n\n");
    }

    /// The end of a stream of the `OpenAI` kind.
    fn done(&mut self) {
        self.0.push_str("data: [DONE]\n\n");
    }
}

/// The event by which a stream of an API tells an internal error.
pub(crate) fn error_event(api: Option<Api>) -> String {
    let mut events = Events::default();
    let error = ApiError::internal();
    match api {
        Some(Api::Messages) => events.typed(&error.body(ErrorShape::Anthropic)),
        Some(Api::Responses) => {
            let error = error.body(ErrorShape::OpenAi);
            events.typed(&json!({
                "type": "error",
                "code": "server_error",
                "message": error["error"]["message"],
                "param": null,
            }));
        }
        Some(Api::Chat | Api::Completions) | None => events.data(&error.body(ErrorShape::OpenAi)),
    }
    events.0
}

/// A stream of events: one frame for each token, and one for the end.
fn events(generation: Generation, dialect: Box<dyn Dialect>) -> Body {
    let state = Some((generation, dialect));
    let frames = stream::unfold(state, |state| async {
        let (mut generation, mut dialect) = state?;
        let mut events = Events::default();
        let token = generation.next().await;
        if generation.usage.completion == 1 && token.is_some() {
            dialect.first(generation.usage, &mut events);
        }
        let next = if let Some(token) = token {
            dialect.token(&token, &mut events);
            Some((generation, dialect))
        } else {
            dialect.last(generation.usage, generation.finish, &mut events);
            None
        };
        let frame = Frame::data(Bytes::from(events.0));
        Some((Ok::<_, Infallible>(frame), next))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// Usage as chat and completions tell it.
fn openai_usage(usage: Usage) -> Value {
    json!({
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    })
}

/// The reason for an answer's end as chat and completions tell it.
fn openai_finish(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Length => "length",
    }
}
