//! The cache's rules.

mod answers;
mod entries;
mod keys;
mod keys_model;
mod partitions;
mod vectors;

use super::{Asked, Bypass, Question};
use crate::config::Scope;
use crate::hex::to_hex;
use serde_json::Value;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const EMBEDDINGS: &str = "/v1/embeddings";
const MESSAGES: &str = "/v1/messages";

/// A request of everyone's.
fn asked<'a>(path: &'a str, body: &'a [u8]) -> Asked<'a> {
    Asked {
        namespace: "rolter",
        route: "chat",
        scope: Scope::Route,
        path: path.as_bytes(),
        caller: None,
        versions: [b""; 3],
        body,
    }
}

fn read(path: &str, body: &str) -> Result<Question, Bypass> {
    Question::read(&asked(path, body.as_bytes()))
}

fn question(path: &str, body: &Value) -> Question {
    let read = read(path, &body.to_string());
    read.unwrap_or_else(|bypass| panic!("{bypass:?}: {body}"))
}

fn exact(path: &str, body: &Value) -> String {
    to_hex(&question(path, body).exact.0)
}

/// The partition and the text of a request that has them.
fn semantic(path: &str, body: &Value) -> (String, String) {
    let semantic = question(path, body).semantic;
    let semantic = semantic.unwrap_or_else(|bypass| panic!("{bypass:?}: {body}"));
    (to_hex(&semantic.partition.0), semantic.text)
}
