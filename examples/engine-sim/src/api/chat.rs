//! `POST /v1/chat/completions`.

use serde_json::{Value, json};

use super::{Dialect, Events, Meta, fields, openai_finish, openai_usage};
use crate::generation::Usage;
use crate::reply::ApiError;
use crate::scheduler::Finish;
use crate::template::{Conversation, content_text};
use crate::tokens::Prompt;

/// Reads a chat request: its prompt and the length that it asks for.
pub(super) fn parse(body: &Value) -> Result<(Prompt, Option<usize>), ApiError> {
    let prompt = conversation(body)?.generate(fields::field(body, "chat_template_kwargs"));
    let limit = fields::count(body, "max_completion_tokens")?;
    let older = fields::count(body, "max_tokens")?;
    Ok((prompt, limit.or(older)))
}

/// The conversation of a body with `messages`.
pub(super) fn conversation(body: &Value) -> Result<Conversation, ApiError> {
    let mut conversation = Conversation::new(body.get("tools"));
    for message in fields::messages(body, "messages")? {
        conversation.begin(fields::role(message)?);
        if let Some(content) = message.get("content") {
            conversation.text(&content_text(content));
        }
        let calls = fields::field(message, "tool_calls").and_then(Value::as_array);
        for call in calls.into_iter().flatten() {
            let function = call.get("function").unwrap_or(&Value::Null);
            let name = fields::text(function, "name")?.unwrap_or_default();
            let arguments = function
                .get("arguments")
                .map(content_text)
                .unwrap_or_default();
            conversation.call(name, &arguments);
        }
    }
    Ok(conversation)
}

/// How chat tells an answer.
pub(super) struct Chat(pub(super) Meta);

impl Chat {
    fn chunk(&self, choices: &Value) -> Value {
        let mut chunk = json!({
            "id": format!("chatcmpl-{}", self.0.id),
            "object": "chat.completion.chunk",
            "created": self.0.created,
            "model": self.0.model,
            "choices": choices,
        });
        if self.0.include_usage {
            chunk["usage"] = Value::Null;
        }
        chunk
    }

    fn delta(&self, delta: &Value, finish: Option<Finish>) -> Value {
        self.chunk(&json!([{
            "index": 0,
            "delta": delta,
            "logprobs": null,
            "finish_reason": finish.map(openai_finish),
        }]))
    }
}

impl Dialect for Chat {
    fn whole(&mut self, text: &str, usage: Usage, finish: Finish) -> Value {
        json!({
            "id": format!("chatcmpl-{}", self.0.id),
            "object": "chat.completion",
            "created": self.0.created,
            "model": self.0.model,
            "choices": [{
                "index": 0,
                "message": {"role": "assistant", "content": text, "tool_calls": []},
                "logprobs": null,
                "finish_reason": openai_finish(finish),
            }],
            "usage": openai_usage(usage),
        })
    }

    fn first(&mut self, _usage: Usage, events: &mut Events) {
        events.data(&self.delta(&json!({"role": "assistant", "content": ""}), None));
    }

    fn token(&mut self, text: &str, events: &mut Events) {
        events.data(&self.delta(&json!({"content": text}), None));
    }

    fn last(&mut self, usage: Usage, finish: Finish, events: &mut Events) {
        events.data(&self.delta(&json!({}), Some(finish)));
        if self.0.include_usage {
            let mut chunk = self.chunk(&json!([]));
            chunk["usage"] = openai_usage(usage);
            events.data(&chunk);
        }
        events.done();
    }
}
