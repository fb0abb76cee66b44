//! `POST /v1/messages`, as Anthropic has it.

use serde_json::{Value, json};

use super::{Dialect, Events, Meta, fields};
use crate::generation::Usage;
use crate::reply::ApiError;
use crate::scheduler::Finish;
use crate::template::{Conversation, content_text};
use crate::tokens::Prompt;

/// Reads a messages request: its prompt and the length that it asks for, which it must.
pub(super) fn parse(body: &Value) -> Result<(Prompt, Option<usize>), ApiError> {
    let Some(max_tokens) = fields::count(body, "max_tokens")? else {
        return Err(fields::wrong("max_tokens", "given"));
    };
    let mut conversation = Conversation::new(body.get("tools"));
    if let Some(system) = fields::field(body, "system") {
        conversation.begin("system");
        conversation.text(&content_text(system));
    }
    for message in fields::messages(body, "messages")? {
        let role = fields::role(message)?;
        match message.get("content") {
            Some(Value::Array(blocks)) => blocks_of(role, blocks, &mut conversation)?,
            content => {
                conversation.begin(role);
                conversation.text(&content.map(content_text).unwrap_or_default());
            }
        }
    }
    Ok((conversation.generate(None), Some(max_tokens)))
}

/// The turns of one message: each tool result is a turn of its own, and the rest is one.
fn blocks_of(
    role: &str,
    blocks: &[Value],
    conversation: &mut Conversation,
) -> Result<(), ApiError> {
    let (mut content, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match fields::text(block, "type")? {
            Some("tool_result") => {
                conversation.begin("tool");
                let result = fields::field(block, "content");
                conversation.text(&result.map(content_text).unwrap_or_default());
            }
            Some("tool_use") => calls.push(block),
            Some("thinking" | "redacted_thinking") => {}
            _ => content.push(block.clone()),
        }
    }
    if content.is_empty() && calls.is_empty() {
        return Ok(());
    }
    conversation.begin(role);
    conversation.text(&content_text(&Value::Array(content)));
    for call in calls {
        let name = fields::text(call, "name")?.unwrap_or_default();
        let input = fields::field(call, "input").map(Value::to_string);
        conversation.call(name, &input.unwrap_or_default());
    }
    Ok(())
}

/// How messages tell an answer. Input tokens are those that were not read from the cache.
pub(super) struct Messages(pub(super) Meta);

impl Messages {
    fn message(&self, content: &Value, stop: Option<Finish>, usage: &Value) -> Value {
        json!({
            "id": format!("msg_{}", self.0.id),
            "type": "message",
            "role": "assistant",
            "model": self.0.model,
            "content": content,
            "stop_reason": stop.map(stop_reason),
            "stop_sequence": null,
            "usage": usage,
        })
    }
}

impl Dialect for Messages {
    fn whole(&mut self, text: &str, usage: Usage, finish: Finish) -> Value {
        let content = json!([{"type": "text", "text": text}]);
        self.message(&content, Some(finish), &self::usage(usage))
    }

    fn first(&mut self, usage: Usage, events: &mut Events) {
        let mut usage = self::usage(usage);
        usage["output_tokens"] = 0.into();
        let message = self.message(&json!([]), None, &usage);
        events.typed(&json!({"type": "message_start", "message": message}));
        let block = json!({"type": "text", "text": ""});
        events.typed(&json!({"type": "content_block_start", "index": 0, "content_block": block}));
    }

    fn token(&mut self, text: &str, events: &mut Events) {
        let delta = json!({"type": "text_delta", "text": text});
        events.typed(&json!({"type": "content_block_delta", "index": 0, "delta": delta}));
    }

    fn last(&mut self, usage: Usage, finish: Finish, events: &mut Events) {
        events.typed(&json!({"type": "content_block_stop", "index": 0}));
        let delta = json!({"stop_reason": stop_reason(finish), "stop_sequence": null});
        let usage = self::usage(usage);
        events.typed(&json!({"type": "message_delta", "delta": delta, "usage": usage}));
        events.typed(&json!({"type": "message_stop"}));
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt - usage.cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
        "output_tokens": usage.completion,
    })
}

fn stop_reason(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "end_turn",
        Finish::Length => "max_tokens",
    }
}
