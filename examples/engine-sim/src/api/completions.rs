//! `POST /v1/completions`.

use serde_json::{Value, json};

use super::{Dialect, Events, Meta, fields, openai_finish, openai_usage};
use crate::generation::Usage;
use crate::reply::ApiError;
use crate::scheduler::Finish;
use crate::tokens::{Prompt, TokenId};

/// Reads a completion request: its prompt and the length that it asks for.
pub(super) fn parse(body: &Value) -> Result<(Prompt, Option<usize>), ApiError> {
    let prompt = fields::field(body, "prompt").unwrap_or(&Value::Null);
    Ok((self::prompt(prompt)?, fields::count(body, "max_tokens")?))
}

/// A prompt as text or as token ids, either of them alone or as a list of one.
pub(super) fn prompt(prompt: &Value) -> Result<Prompt, ApiError> {
    let prompt = match prompt {
        Value::Array(items) => match items.as_slice() {
            [only @ (Value::String(_) | Value::Array(_))] => only,
            _ => prompt,
        },
        _ => prompt,
    };
    let prompt = match prompt {
        Value::String(text) => {
            let mut prompt = Prompt::default();
            prompt.push_text(text);
            Some(prompt)
        }
        Value::Array(ids) => ids
            .iter()
            .map(token_id)
            .collect::<Option<_>>()
            .map(Prompt::from_ids),
        _ => None,
    };
    prompt
        .filter(|prompt| !prompt.tokens().is_empty())
        .ok_or_else(|| fields::wrong("prompt", "one prompt: text or token ids, and not empty"))
}

fn token_id(id: &Value) -> Option<TokenId> {
    id.as_u64().and_then(|id| TokenId::try_from(id).ok())
}

/// How completions tell an answer.
pub(super) struct Completions(pub(super) Meta);

impl Completions {
    fn completion(&self, text: &str, finish: Option<Finish>) -> Value {
        json!({
            "id": format!("cmpl-{}", self.0.id),
            "object": "text_completion",
            "created": self.0.created,
            "model": self.0.model,
            "choices": [{
                "index": 0,
                "text": text,
                "logprobs": null,
                "finish_reason": finish.map(openai_finish),
            }],
            "usage": null,
        })
    }
}

impl Dialect for Completions {
    fn whole(&mut self, text: &str, usage: Usage, finish: Finish) -> Value {
        let mut whole = self.completion(text, Some(finish));
        whole["usage"] = openai_usage(usage);
        whole
    }

    fn first(&mut self, _usage: Usage, _events: &mut Events) {}

    fn token(&mut self, text: &str, events: &mut Events) {
        events.data(&self.completion(text, None));
    }

    fn last(&mut self, usage: Usage, finish: Finish, events: &mut Events) {
        events.data(&self.completion("", Some(finish)));
        if self.0.include_usage {
            let mut chunk = self.completion("", None);
            chunk["choices"] = json!([]);
            chunk["usage"] = openai_usage(usage);
            events.data(&chunk);
        }
        events.done();
    }
}
