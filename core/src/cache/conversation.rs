//! What of a request is compared by its meaning, and what must be equal for that.
//!
//! Invariant: only the words of user and assistant leave the part that must be equal. How many turns
//! there are, whose, and who has a name stays in it, with everything that is not conversation.

use super::Bypass;
use super::json::{Json, Object};
use crate::prompt::Dialect;
use std::borrow::Cow;

/// The longest text that is compared: about what models of embeddings take.
pub const MAX_TEXT_BYTES: usize = 32 << 10;

/// Fields of which an answer is known not to depend.
const ATTRIBUTION: [&str; 2] = ["user", "metadata"];

/// Parts a body, `stream: false` left out, into what must be equal and the text.
pub(super) fn split(
    dialect: Dialect,
    mut body: Object<'_>,
) -> Result<(Object<'_>, String), Bypass> {
    if matches!(dialect, Dialect::Responses | Dialect::Embeddings) {
        return Err(Bypass::ExactOnly);
    }
    if body.fields().any(|(name, value)| echoes(name, value)) {
        return Err(Bypass::Echo);
    }
    for name in ATTRIBUTION {
        body.remove(name);
    }
    let text = match dialect {
        Dialect::Completions => match body.remove("prompt") {
            Some(Json::Text(prompt)) => folded(&prompt),
            Some(Json::List(_)) => return Err(Bypass::Batch),
            _ => return Err(Bypass::Unknown),
        },
        _ => {
            let Some(Json::List(messages)) = body.remove("messages") else {
                return Err(Bypass::Unknown);
            };
            let (turns, text) = turns(dialect, messages)?;
            body.put("messages", Json::List(turns));
            text
        }
    };
    match text.len() {
        0 => Err(Bypass::Empty),
        1..=MAX_TEXT_BYTES => Ok((body, text)),
        _ => Err(Bypass::TooLong),
    }
}

/// Whether a field makes the answer repeat the request, whose words may differ. Engines have ever
/// more of those that begin with `return_`.
fn echoes(name: &str, value: &Json<'_>) -> bool {
    let may_echo = matches!(name, "echo" | "prompt_logprobs") || name.starts_with("return_");
    may_echo && !matches!(value, Json::Null | Json::Bool(false))
}

/// The turns without the words of user and assistant, and these, a line each.
fn turns(dialect: Dialect, messages: Vec<Json<'_>>) -> Result<(Vec<Json<'_>>, String), Bypass> {
    let mut text = String::new();
    let mut any_words = false;
    let mut last_is_users = false;
    let mut turns = Vec::with_capacity(messages.len());
    for message in messages {
        let Json::Object(message) = message else {
            return Err(Bypass::Unknown);
        };
        let role = match (message.text("role"), dialect) {
            (Some("system" | "developer"), Dialect::Chat) => {
                turns.push(Json::Object(message));
                continue;
            }
            (Some("user"), _) => "user",
            (Some("assistant"), _) => "assistant",
            (Some("tool" | "function"), _) => return Err(Bypass::Tools),
            _ => return Err(Bypass::Unknown),
        };
        let name = name(dialect, &message)?;
        let words = words(message.get("content"))?;
        if text.len() + words.len() > MAX_TEXT_BYTES {
            return Err(Bypass::TooLong);
        }
        any_words |= !words.is_empty();
        last_is_users = role == "user";
        let mut turn = Object::default();
        turn.put("role", Json::Text(Cow::Borrowed(role)));
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(role);
        if let Some(name) = name {
            turn.put("name", Json::Null);
            text.extend([" ", name]);
        }
        text.extend([": ", &words]);
        turns.push(Json::Object(turn));
    }
    if !any_words {
        return Err(Bypass::Empty);
    }
    if !last_is_users {
        return Err(Bypass::Prefill);
    }
    Ok((turns, text))
}

/// Who speaks, where a message says that. A name that could be taken for words is not known.
fn name<'m>(dialect: Dialect, message: &'m Object<'_>) -> Result<Option<&'m str>, Bypass> {
    for key in message.names() {
        match key {
            "role" | "content" => {}
            "name" if dialect == Dialect::Chat => {}
            "tool_calls" | "tool_call_id" | "function_call" => return Err(Bypass::Tools),
            _ => return Err(Bypass::Unknown),
        }
    }
    match message.get("name") {
        None => Ok(None),
        Some(Json::Text(name)) => {
            let is_apart = |c: char| c.is_whitespace() || c == ':';
            let is_known = !name.is_empty() && name.len() <= 256 && !name.contains(is_apart);
            is_known.then_some(Some(&**name)).ok_or(Bypass::Unknown)
        }
        Some(_) => Err(Bypass::Unknown),
    }
}

/// The words of a turn: a text, or several.
fn words(content: Option<&Json<'_>>) -> Result<String, Bypass> {
    let parts = match content {
        Some(Json::Text(text)) => return Ok(folded(text)),
        Some(Json::List(parts)) => parts,
        _ => return Err(Bypass::Unknown),
    };
    let mut words = String::new();
    for part in parts {
        let Json::Object(part) = part else {
            return Err(Bypass::Unknown);
        };
        match part.text("type") {
            Some("text") => {}
            Some("tool_use" | "tool_result") => return Err(Bypass::Tools),
            _ => return Err(Bypass::NotText),
        }
        let is_known = |name| matches!(name, "type" | "text" | "cache_control");
        let text = part.text("text").filter(|_| part.names().all(is_known));
        fold(text.ok_or(Bypass::Unknown)?, &mut words);
    }
    Ok(words)
}

fn folded(text: &str) -> String {
    let mut words = String::new();
    fold(text, &mut words);
    words
}

/// Adds a text word by word, so that any white space between them is one space.
fn fold(text: &str, words: &mut String) {
    for word in text.split_whitespace() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(word);
    }
}
