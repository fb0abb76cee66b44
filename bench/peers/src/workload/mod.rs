//! What is asked when: the same for every gateway that is measured, and for the simulation.
//!
//! Invariant: a workload depends on its [`Play`] alone (a trace: on its file as well). Requests come
//! at their times whatever became of those before them, and a later turn of a conversation has a
//! scripted answer of the turn before in it, so each gateway is asked exactly the same.

mod generated;
mod prompt;
mod settings;
#[cfg(test)]
mod tests;
mod trace;

pub(crate) use generated::generate;
pub(crate) use prompt::{Message, Piece};
pub(crate) use settings::{Kind, Settings};
pub(crate) use trace::read as read_trace;

use serde_json::{Value, json};
use std::time::Duration;

/// The model that all requests name.
pub(crate) const MODEL: &str = "m";

/// Bytes of text in a token, as engine-sim counts them.
pub(crate) const TOKEN_BYTES: usize = engine_sim::TOKEN_BYTES;

/// How much is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    /// Engines of the fleet, which what is asked grows with.
    pub(crate) engines: usize,
    /// Requests a second, of the whole fleet.
    pub(crate) requests_per_sec: f64,
    /// How long requests come.
    pub(crate) duration: Duration,
    /// Another one makes another play of the same kind.
    pub(crate) seed: u64,
}

/// What is asked when.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    /// Its kind, as a name.
    pub(crate) name: &'static str,
    /// In the order of their arrival.
    pub(crate) requests: Vec<Request>,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// When it comes, from the beginning of the play.
    pub(crate) at: Duration,
    /// What is said, of which the texts are made when they are asked for.
    pub(crate) messages: Vec<Message>,
    /// The conversation that it is a turn of.
    pub(crate) session: Option<u64>,
    /// How long the answer is to be.
    pub(crate) answer_tokens: usize,
}

impl Request {
    /// The body of a chat completion that is streamed. Roles come first in messages, as clients
    /// write them.
    pub(crate) fn body(&self) -> String {
        let messages: Vec<String> = self.messages.iter().map(Message::json).collect();
        format!(
            r#"{{"model":"{MODEL}","messages":[{}],"max_tokens":{},"stream":true}}"#,
            messages.join(","),
            self.answer_tokens
        )
    }

    /// The session as a header has it.
    pub(crate) fn session_name(&self) -> Option<String> {
        self.session
            .map(|session| format!("conversation-{session}"))
    }

    /// Tokens of its texts; a template adds a few.
    pub(crate) fn prompt_tokens(&self) -> usize {
        self.messages.iter().map(Message::tokens).sum()
    }
}

impl Message {
    fn json(&self) -> String {
        let content: Value = json!(self.text());
        format!(r#"{{"role":"{}","content":{content}}}"#, self.role)
    }
}
