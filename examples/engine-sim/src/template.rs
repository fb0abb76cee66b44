//! The chat template: turns of `<|role|>` and text, then a mark at which generation starts.
//!
//! Every chat-like API comes down to this, so the same conversation is the same prompt whichever
//! API carried it. (Tools are text as they came, and each API has a shape of its own for those.)

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use crate::tokens::Prompt;

const END_OF_TURN: &str = "<|end|>\n";

/// A conversation that is being rendered to a prompt.
#[derive(Debug, Default)]
pub(crate) struct Conversation {
    prompt: Prompt,
    in_turn: bool,
}

impl Conversation {
    /// A conversation that offers `tools`, if any.
    pub(crate) fn new(tools: Option<&Value>) -> Self {
        let mut conversation = Self::default();
        let tools = tools
            .and_then(Value::as_array)
            .filter(|tools| !tools.is_empty());
        if let Some(tools) = tools {
            conversation.begin("tools");
            for tool in tools {
                conversation.prompt.push_text(&tool.to_string());
            }
        }
        conversation
    }

    /// Begins a turn of `role`, which ends the turn before it.
    pub(crate) fn begin(&mut self, role: &str) {
        self.end_turn();
        self.prompt.push_mark(&format!("<|{role}|>\n"));
        self.in_turn = true;
    }

    /// Adds text to the current turn.
    pub(crate) fn text(&mut self, text: &str) {
        self.prompt.push_text(text);
    }

    /// Adds a tool call to the current turn; `arguments` is JSON text.
    pub(crate) fn call(&mut self, name: &str, arguments: &str) {
        self.prompt.push_mark("<|call|>");
        self.prompt.push_text(name);
        self.prompt.push_mark("<|arguments|>");
        self.prompt.push_text(arguments);
    }

    /// The prompt, with the mark at which generation starts. Options of the template, when a
    /// request sets any, are part of that mark.
    pub(crate) fn generate(mut self, options: Option<&Value>) -> Prompt {
        self.end_turn();
        let options = options
            .and_then(Value::as_object)
            .filter(|map| !map.is_empty());
        if let Some(options) = options {
            let options = Value::Object(options.clone());
            self.prompt.push_mark(&format!("<|options {options}|>\n"));
        }
        self.prompt.push_mark("<|assistant|>\n");
        self.prompt
    }

    /// The prompt as it stands, without the mark at which generation starts.
    pub(crate) fn finish(mut self) -> Prompt {
        self.end_turn();
        self.prompt
    }

    fn end_turn(&mut self) {
        if self.in_turn {
            self.prompt.push_mark(END_OF_TURN);
        }
        self.in_turn = false;
    }
}

/// The text of a message's content: a string, or parts whose texts are joined by newlines.
/// A part without text (an image, say) stands in as its type and a hash.
pub(crate) fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let parts: Vec<String> = parts.iter().map(part_text).collect();
            parts.join("\n")
        }
        Value::Null => String::new(),
        other => other.to_string(),
    }
}

fn part_text(part: &Value) -> String {
    match (part, part.get("text").and_then(Value::as_str)) {
        (Value::String(text), _) => text.clone(),
        (_, Some(text)) => text.to_owned(),
        _ => {
            let kind = part.get("type").and_then(Value::as_str).unwrap_or("part");
            format!("[{kind} {:016x}]", xxh3_64(part.to_string().as_bytes()))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn turn(role: &str, text: &str) -> Conversation {
        let mut conversation = Conversation::default();
        conversation.begin(role);
        conversation.text(text);
        conversation
    }

    #[test]
    fn an_answer_extends_the_prompt_that_it_answered() {
        let asked = turn("user", "hello").generate(None);
        let mut later = turn("user", "hello");
        later.begin("assistant");
        later.text("answer");
        let later = later.generate(None);
        assert!(later.tokens().starts_with(asked.tokens()));
    }

    #[test]
    fn template_options_change_the_end_of_the_prompt_only() {
        let plain = turn("user", "hello").generate(None);
        let options = json!({"enable_thinking": false});
        let other = turn("user", "hello").generate(Some(&options));
        assert_ne!(plain, other);
        assert_eq!(plain.tokens()[..4], other.tokens()[..4]);
    }

    #[test]
    fn content_is_a_string_or_parts() {
        let image = json!([{"type": "image_url", "image_url": {"url": "a"}}]);
        for (content, text) in [
            (json!("a"), "a"),
            (json!([{"type": "text", "text": "a"}]), "a"),
            (
                json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
                "a\nb",
            ),
            (json!(null), ""),
        ] {
            assert_eq!(content_text(&content), text);
        }
        assert!(content_text(&image).starts_with("[image_url "));
    }
}
