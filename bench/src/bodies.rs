//! Bodies of about 30 KB in the shapes that chat clients send.

use crate::prompts::{code, prose};
use fastrand::Rng;
use serde_json::{Value, json};

/// A body, and the path that it is sent to.
pub struct Body {
    /// Its shape, as a name.
    pub shape: &'static str,
    /// The path of the API that takes it.
    pub path: &'static str,
    /// The JSON text.
    pub json: String,
}

/// About as many bytes of text are in each body.
const TEXT_BYTES: usize = 30_000;

const CHAT: &str = "/v1/chat/completions";

/// One body of every shape.
pub fn all() -> Vec<Body> {
    let rng = &mut Rng::with_seed(30);
    let chat = |shape, messages: &[String]| Body {
        shape,
        path: CHAT,
        json: format!(
            r#"{{"model":"meta-llama/Llama-3.1-8B-Instruct","messages":[{}],"temperature":0.7,"max_tokens":512,"stream":true}}"#,
            messages.join(",")
        ),
    };
    let one = |content: Value| [turn("user", &content)];
    let russian = "Быстрая лиса прыгает через ленивую собаку, и 😀 смеётся. ";
    let foreign: String = russian.chars().cycle().take(TEXT_BYTES / 2).collect();
    let escaped = chat("escaped", &one(json!(foreign.get(..russian.len() * 100))));
    let code = json!(code(rng, TEXT_BYTES));
    vec![
        chat("message", &one(json!(prose(rng, TEXT_BYTES)))),
        chat("turns", &turns(rng, 60)),
        chat("code", &one(code.clone())),
        chat(
            "code first",
            &[format!(r#"{{"content":{code},"role":"user"}}"#)],
        ),
        chat("foreign", &one(json!(foreign))),
        Body {
            json: ascii_only(&escaped.json),
            ..escaped
        },
        chat("parts", &one(parts(rng, 40))),
        Body {
            shape: "anthropic",
            path: "/v1/messages",
            json: anthropic(rng),
        },
    ]
}

/// A message, by hand: `json!` would sort its fields, and clients write the role first.
fn turn(role: &str, content: &Value) -> String {
    format!(r#"{{"role":"{role}","content":{content}}}"#)
}

/// A chat body with one message of so many bytes.
pub fn with_message_of(bytes: usize) -> String {
    let text = prose(&mut Rng::with_seed(4), bytes);
    json!({ "model": "m", "messages": [{ "role": "user", "content": text }] }).to_string()
}

fn turns(rng: &mut Rng, count: usize) -> Vec<String> {
    let roles = ["user", "assistant"].into_iter().cycle();
    let said = roles.take(count);
    said.map(|role| turn(role, &json!(prose(rng, TEXT_BYTES / count))))
        .collect()
}

fn parts(rng: &mut Rng, count: usize) -> Value {
    (0..count)
        .map(|_| json!({ "type": "text", "text": prose(rng, TEXT_BYTES / count) }))
        .collect()
}

/// `system` comes after the messages that it precedes in the prompt.
fn anthropic(rng: &mut Rng) -> String {
    let messages = turns(rng, 20).join(",");
    let system = json!([{
        "type": "text",
        "text": prose(rng, 2_000),
        "cache_control": { "type": "ephemeral" },
    }]);
    format!(
        r#"{{"model":"claude-sonnet-4-5","max_tokens":1024,"messages":[{messages}],"system":{system},"stream":true}}"#
    )
}

/// The same JSON as clients write it that escape all but ASCII, which is the default in Python.
fn ascii_only(json: &str) -> String {
    let mut escaped = String::new();
    for character in json.chars() {
        if character.is_ascii() {
            escaped.push(character);
        } else {
            for unit in character.encode_utf16(&mut [0; 2]) {
                escaped.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_body_is_json_of_about_the_same_size() {
        for body in all() {
            assert!(serde_json::from_str::<Value>(&body.json).is_ok());
            let size = body.json.len();
            assert!((26_000..=34_000).contains(&size), "{} {size}", body.shape);
        }
    }

    #[test]
    fn escaping_all_but_ascii_changes_how_it_is_written_alone() {
        let json = json!(["a\n", "狐 😀"]).to_string();
        let escaped = ascii_only(&json);
        assert!(escaped.is_ascii());
        let read = |json| serde_json::from_str::<Value>(json).ok();
        assert_eq!(read(&escaped), read(&json));
    }
}
