//! `POST /v1/responses`.

use serde_json::{Value, json};

use super::{Dialect, Events, Meta, fields};
use crate::generation::Usage;
use crate::reply::ApiError;
use crate::scheduler::Finish;
use crate::template::{Conversation, content_text};
use crate::tokens::Prompt;

/// Reads a responses request: its prompt and the length that it asks for.
pub(super) fn parse(body: &Value) -> Result<(Prompt, Option<usize>), ApiError> {
    if let Some(id) = fields::text(body, "previous_response_id")? {
        return Err(ApiError::not_found(format!(
            "Response `{id}` is not stored."
        )));
    }
    let mut conversation = Conversation::new(body.get("tools"));
    if let Some(instructions) = fields::text(body, "instructions")? {
        conversation.begin("system");
        conversation.text(instructions);
    }
    match fields::field(body, "input") {
        Some(Value::String(text)) => {
            conversation.begin("user");
            conversation.text(text);
        }
        Some(Value::Array(_)) => {
            for item in fields::messages(body, "input")? {
                add_item(item, &mut conversation)?;
            }
        }
        _ => return Err(fields::wrong("input", "text or a list of items")),
    }
    let prompt = conversation.generate(None);
    Ok((prompt, fields::count(body, "max_output_tokens")?))
}

fn add_item(item: &Value, conversation: &mut Conversation) -> Result<(), ApiError> {
    match fields::text(item, "type")?.unwrap_or("message") {
        "message" => {
            conversation.begin(fields::role(item)?);
            conversation.text(&item.get("content").map(content_text).unwrap_or_default());
        }
        "function_call" => {
            conversation.begin("assistant");
            let name = fields::text(item, "name")?.unwrap_or_default();
            conversation.call(name, fields::text(item, "arguments")?.unwrap_or_default());
        }
        "function_call_output" => {
            conversation.begin("tool");
            conversation.text(&item.get("output").map(content_text).unwrap_or_default());
        }
        "reasoning" => {}
        other => {
            return Err(fields::wrong(
                "input",
                &format!("made of known items, not {other}"),
            ));
        }
    }
    Ok(())
}

/// How responses tell an answer.
pub(super) struct Responses {
    meta: Meta,
    sent: String,
    sequence: u64,
}

impl Responses {
    pub(super) fn new(meta: Meta) -> Self {
        Self {
            meta,
            sent: String::new(),
            sequence: 0,
        }
    }

    fn response(&self, status: &str, output: &Value, usage: &Value) -> Value {
        let incomplete = (status == "incomplete").then(|| json!({"reason": "max_output_tokens"}));
        json!({
            "id": format!("resp_{}", self.meta.id),
            "object": "response",
            "created_at": self.meta.created,
            "status": status,
            "error": null,
            "incomplete_details": incomplete,
            "model": self.meta.model,
            "output": output,
            "parallel_tool_calls": true,
            "tool_choice": "auto",
            "tools": [],
            "usage": usage,
        })
    }

    fn item_id(&self) -> String {
        format!("msg_{}", self.meta.id)
    }

    fn item(&self, status: &str, content: &Value) -> Value {
        json!({
            "id": self.item_id(),
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        })
    }

    fn ended(&self, text: &str, usage: Usage, finish: Finish) -> Value {
        let status = status(finish);
        let item = self.item(status, &json!([part(text)]));
        self.response(status, &json!([item]), &self::usage(usage))
    }

    fn event(&mut self, kind: &str, mut data: Value, events: &mut Events) {
        data["type"] = kind.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        events.typed(&data);
    }

    /// An event about the one part of the one item.
    fn part_event(&mut self, kind: &str, mut data: Value, events: &mut Events) {
        data["item_id"] = self.item_id().into();
        data["output_index"] = 0.into();
        data["content_index"] = 0.into();
        self.event(kind, data, events);
    }
}

impl Dialect for Responses {
    fn whole(&mut self, text: &str, usage: Usage, finish: Finish) -> Value {
        self.ended(text, usage, finish)
    }

    fn first(&mut self, _usage: Usage, events: &mut Events) {
        let response = self.response("in_progress", &json!([]), &Value::Null);
        for kind in ["response.created", "response.in_progress"] {
            self.event(kind, json!({"response": response}), events);
        }
        let item = self.item("in_progress", &json!([]));
        self.event(
            "response.output_item.added",
            json!({"output_index": 0, "item": item}),
            events,
        );
        self.part_event(
            "response.content_part.added",
            json!({"part": part("")}),
            events,
        );
    }

    fn token(&mut self, text: &str, events: &mut Events) {
        self.sent.push_str(text);
        let data = json!({"delta": text, "logprobs": []});
        self.part_event("response.output_text.delta", data, events);
    }

    /// A stream ends with `response.completed` also where its status is `incomplete`, as engines
    /// have it.
    fn last(&mut self, usage: Usage, finish: Finish, events: &mut Events) {
        let text = std::mem::take(&mut self.sent);
        let part = part(&text);
        let data = json!({"text": text, "logprobs": []});
        self.part_event("response.output_text.done", data, events);
        self.part_event("response.content_part.done", json!({"part": part}), events);
        let item = self.item(status(finish), &json!([part]));
        self.event(
            "response.output_item.done",
            json!({"output_index": 0, "item": item}),
            events,
        );
        let response = self.ended(&text, usage, finish);
        self.event("response.completed", json!({"response": response}), events);
    }
}

fn part(text: &str) -> Value {
    json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []})
}

fn status(finish: Finish) -> &'static str {
    match finish {
        Finish::Stop => "completed",
        Finish::Length => "incomplete",
    }
}

fn usage(usage: Usage) -> Value {
    json!({
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.prompt + usage.completion,
    })
}
