//! Which answers may be kept: those that are whole, and that are no failures.

use super::events::{Event, Events};
use crate::prompt::Dialect;
use serde_json::Value;
use std::collections::BTreeSet;

/// Why an answer is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// Its status is another than 200.
    Status,
    /// Its upstream wants it not to be kept.
    NoStore,
    /// It is encoded, as with gzip.
    Encoded,
    /// It is no event stream although one was asked for, or no JSON although that was.
    ContentType,
    /// It is over the limit.
    TooLarge,
    /// There is no room to take it down.
    NoRoom,
    /// It has no end.
    Incomplete,
    /// There is an error in it.
    Error,
    /// The engine gave up before it was done.
    Unfinished,
    /// It is not as answers of its API are.
    Unknown,
}

impl Refusal {
    /// A word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Status => "status",
            Self::NoStore => "no_store",
            Self::Encoded => "encoded",
            Self::ContentType => "content_type",
            Self::TooLarge => "too_large",
            Self::NoRoom => "no_room",
            Self::Incomplete => "incomplete",
            Self::Error => "error",
            Self::Unfinished => "unfinished",
            Self::Unknown => "unknown",
        }
    }
}

/// Whether an answer of this type is what was asked for: an event stream, or JSON.
pub fn has_form(stream: bool, content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case(if stream {
        "text/event-stream"
    } else {
        "application/json"
    })
}

/// Whether an answer with status 200 may be kept.
///
/// # Errors
/// Why not.
pub fn check(
    dialect: Dialect,
    stream: bool,
    content_type: &str,
    body: &[u8],
) -> Result<(), Refusal> {
    if !has_form(stream, content_type) {
        return Err(Refusal::ContentType);
    }
    if stream {
        let text = str::from_utf8(body).map_err(|_| Refusal::Incomplete)?;
        return check_stream(dialect, text);
    }
    let answer = serde_json::from_slice(body).map_err(|_| Refusal::Incomplete)?;
    check_errors(&answer)?;
    check_whole(dialect, &answer)
}

fn check_errors(answer: &Value) -> Result<(), Refusal> {
    let is_error = |key| answer.get(key).is_some_and(|kind| kind == "error");
    let has_error = answer.get("error").is_some_and(|error| !error.is_null());
    if has_error || is_error("type") || is_error("object") {
        return Err(Refusal::Error);
    }
    Ok(())
}

/// Whether an answer in one piece has come to its end.
fn check_whole(dialect: Dialect, answer: &Value) -> Result<(), Refusal> {
    let list = |key: &str| {
        let list = answer.get(key).and_then(Value::as_array);
        list.filter(|list| !list.is_empty()).ok_or(Refusal::Unknown)
    };
    match dialect {
        Dialect::Chat | Dialect::Completions => list("choices")?.iter().try_for_each(|choice| {
            check_errors(choice)?;
            check_reason(choice.get("finish_reason").unwrap_or(&Value::Null))
        }),
        Dialect::Messages => {
            if answer.get("type").is_none_or(|kind| kind != "message") {
                return Err(Refusal::Unknown);
            }
            check_reason(answer.get("stop_reason").unwrap_or(&Value::Null))
        }
        Dialect::Responses => check_response(answer),
        Dialect::Embeddings => list("data").map(|_| ()),
    }
}

/// Whether a response of the Responses API is done.
fn check_response(response: &Value) -> Result<(), Refusal> {
    check_errors(response)?;
    match response.get("status").and_then(Value::as_str) {
        Some("completed") => Ok(()),
        Some("failed") => Err(Refusal::Error),
        Some(_) => Err(Refusal::Unfinished),
        None => Err(Refusal::Unknown),
    }
}

/// Whether a choice or a message ended as one does. Engines say `abort` where they were told to
/// stop.
fn check_reason(reason: &Value) -> Result<(), Refusal> {
    match reason.as_str() {
        Some("error") => Err(Refusal::Error),
        Some("abort") | None => Err(Refusal::Unfinished),
        Some(_) => Ok(()),
    }
}

fn check_stream(dialect: Dialect, stream: &str) -> Result<(), Refusal> {
    let mut events = Events::new(stream);
    let mut progress = Progress::default();
    for event in &mut events {
        progress.take_in(dialect, &event)?;
    }
    let is_cut = !events.rest().is_empty();
    if is_cut || !progress.has_ended {
        return Err(Refusal::Incomplete);
    }
    Ok(())
}

/// How far a stream has come.
#[derive(Default)]
struct Progress {
    has_ended: bool,
    /// The numbers of choices that have begun and not ended, and of those that have.
    open: BTreeSet<u64>,
    done: BTreeSet<u64>,
    /// Whether a message has said why it stops.
    has_stopped: bool,
}

const DONE: &str = "[DONE]";

impl Progress {
    fn take_in(&mut self, dialect: Dialect, event: &Event<'_>) -> Result<(), Refusal> {
        let is_of_completions = matches!(dialect, Dialect::Chat | Dialect::Completions);
        if self.has_ended {
            // Some engines end streams of the other APIs in the way of chats, too.
            let may_follow = !is_of_completions && event.data == DONE;
            return may_follow.then_some(()).ok_or(Refusal::Unknown);
        }
        if event.data == DONE && is_of_completions {
            self.has_ended = true;
            return match (self.open.is_empty(), self.done.is_empty()) {
                (true, false) => Ok(()),
                _ => Err(Refusal::Unfinished),
            };
        }
        if event.kind == "error" {
            return Err(Refusal::Error);
        }
        let data = serde_json::from_str(&event.data).map_err(|_| Refusal::Unknown)?;
        check_errors(&data)?;
        if is_of_completions {
            return self.take_in_choices(&data);
        }
        match (dialect, data.get("type").and_then(Value::as_str)) {
            (Dialect::Messages, Some("message_delta")) => {
                let reason = data.pointer("/delta/stop_reason");
                if let Some(reason) = reason.filter(|reason| !reason.is_null()) {
                    check_reason(reason)?;
                    self.has_stopped = true;
                }
            }
            (Dialect::Messages, Some("message_stop")) => {
                self.has_ended = true;
                return self.has_stopped.then_some(()).ok_or(Refusal::Unfinished);
            }
            (Dialect::Responses, Some("response.completed")) => {
                self.has_ended = true;
                return check_response(data.get("response").unwrap_or(&Value::Null));
            }
            (Dialect::Responses, Some("response.failed")) => return Err(Refusal::Error),
            (Dialect::Responses, Some("response.incomplete" | "response.cancelled")) => {
                return Err(Refusal::Unfinished);
            }
            (Dialect::Messages | Dialect::Responses, Some(_)) => {}
            _ => return Err(Refusal::Unknown),
        }
        Ok(())
    }

    fn take_in_choices(&mut self, chunk: &Value) -> Result<(), Refusal> {
        let choices = chunk.get("choices").and_then(Value::as_array);
        for choice in choices.ok_or(Refusal::Unknown)? {
            check_errors(choice)?;
            let number = choice.get("index").and_then(Value::as_u64).unwrap_or(0);
            match choice.get("finish_reason") {
                None | Some(Value::Null) if !self.done.contains(&number) => {
                    self.open.insert(number);
                }
                None | Some(Value::Null) => {}
                Some(reason) => {
                    check_reason(reason)?;
                    self.open.remove(&number);
                    self.done.insert(number);
                }
            }
        }
        Ok(())
    }
}
