//! What others are asked about an answer, and what they say.
//!
//! The question is `{"request": {"route": …, "api": …, "model": …, "caller": …, "source": …},
//! "answer": …}`, where `answer` is the answer as the steps before have left it; the reply is
//! `{"verdict": "allow"}`, `{"verdict": "block", "reason": "…"}` or
//! `{"verdict": "replace", "answer": {…}}`. Personal data that was taken out of the request is in
//! neither: it comes back last.

use super::refusal::MAX_REASON_CHARS;
use super::{Context, texts};
use crate::hex::to_hex;
use crate::prompt::Dialect;
use crate::prompt::json::{Cursor, Json, Result, Str};

/// What somebody says about an answer.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The client may have it.
    Allow,
    /// It may not, for a reason in their own words.
    Block(String),
    /// Another answer in its place.
    Replace(String),
}

/// What to ask about an answer, as JSON.
pub(super) fn question(context: &Context, answer: &str) -> String {
    let mut question = String::with_capacity(answer.len() + 256);
    question.push_str(r#"{"request":{"route":"#);
    push(&mut question, Some(&context.route));
    question.push_str(r#","api":"#);
    push(&mut question, context.dialect.map(api));
    question.push_str(r#","model":"#);
    push(&mut question, context.model.as_deref());
    question.push_str(r#","caller":"#);
    let caller = context.caller.as_ref().map(|caller| to_hex(caller));
    push(&mut question, caller.as_deref());
    question.push_str(r#","source":"#);
    push(&mut question, Some(context.basis.source()));
    question.extend([r#"},"answer":"#, answer, "}"]);
    question
}

fn push(question: &mut String, text: Option<&str>) {
    match text {
        Some(text) => question.push_str(&serde_json::Value::from(text).to_string()),
        None => question.push_str("null"),
    }
}

fn api(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Chat => "chat_completions",
        Dialect::Completions => "completions",
        Dialect::Responses => "responses",
        Dialect::Embeddings => "embeddings",
        Dialect::Messages => "messages",
    }
}

/// What they say. Nothing where it is no reply to the question.
pub(super) fn verdict(reply: &[u8], max_answer_bytes: usize) -> Option<Verdict> {
    let reply = texts::json(reply)?;
    let (mut verdict, mut reason, mut answer) = (None, None, None);
    let mut cursor = Cursor::new(reply.as_bytes());
    let read = cursor.object(|name, cursor| {
        let value = cursor.value()?;
        match name {
            b"verdict" => verdict = value.string(),
            b"reason" => reason = value.string(),
            b"answer" => answer = Some(value),
            _ => {}
        }
        Ok(())
    });
    read.ok()?;
    let mut buffer = [0; 32];
    match verdict?.name(&mut buffer) {
        b"allow" => Some(Verdict::Allow),
        b"block" => {
            let reason = reason.map_or(Ok(String::new()), text).ok()?;
            let words = reason.chars().filter(|c| !c.is_control());
            Some(Verdict::Block(words.take(MAX_REASON_CHARS).collect()))
        }
        b"replace" => match answer? {
            Json::Object(span) if span.len() <= max_answer_bytes => {
                Some(Verdict::Replace(str::from_utf8(span).ok()?.to_owned()))
            }
            _ => None,
        },
        _ => None,
    }
}

fn text(string: Str<'_>) -> Result<String> {
    let mut bytes = Vec::new();
    string.decode(|run| bytes.extend_from_slice(run))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
