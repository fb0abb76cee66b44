//! `POST` to the path of an API and `/render`: what a request would have the engine compute, told
//! instead of computed, as vLLM tells it to routers.

use hyper::StatusCode;
use serde::Serialize;
use serde_json::Value;

use super::{Api, parse, served};
use crate::generation::answer_length;
use crate::reply::{self, ApiError, Reply};
use crate::state::Shared;
use crate::tokens::TokenId;

/// A request after template and tokeniser.
#[derive(Serialize)]
struct Rendered<'a> {
    request_id: String,
    token_ids: &'a [TokenId],
    features: Option<()>,
    sampling_params: SamplingParams,
    model: &'a str,
    stream: bool,
    cache_salt: Option<&'a str>,
    priority: i64,
}

#[derive(Serialize)]
struct SamplingParams {
    max_tokens: usize,
}

impl Api {
    /// The API whose requests are rendered at a path.
    pub(crate) fn rendered_at(path: &str) -> Option<Self> {
        Self::from_path(path.strip_suffix("/render")?)
    }
}

/// Renders a request. What the engine would refuse to answer is an error here as well.
pub(crate) fn render(shared: &Shared, api: Api, body: &Value) -> Result<Reply, ApiError> {
    let request = parse(api, body)?;
    let config = &shared.config;
    let model = served(config, &request.model)?;
    let prompt = request.prompt.tokens();
    let (max_tokens, _) = answer_length(
        prompt.len(),
        request.max_tokens,
        config.default_max_tokens,
        config.context_tokens(),
    )?;
    let rendered = Rendered {
        request_id: format!("{:016x}", shared.new_id()),
        token_ids: prompt,
        features: None,
        sampling_params: SamplingParams { max_tokens },
        model: &model,
        stream: request.stream,
        cache_salt: Some(request.cache_salt.as_str()).filter(|salt| !salt.is_empty()),
        priority: 0,
    };
    // A completion may have several prompts where it is rendered, and so several answers.
    let json = match api {
        Api::Completions => serde_json::to_vec(&[rendered]),
        Api::Chat | Api::Responses | Api::Messages => serde_json::to_vec(&rendered),
    };
    let json = json.map_err(|_| ApiError::internal())?;
    Ok(reply::whole(StatusCode::OK, reply::JSON, json))
}
