//! The response cache's rules of safety: which requests may share an answer, and which answers may
//! be kept.
//!
//! Invariant: a request is looked for under a key made of its path, of [`VERSION_HEADERS`] and of
//! everything in its body. What may differ is a list of what is known not to matter; whatever is not
//! known matters. What cannot be read for certain is not for the cache.
//!
//! | module | idea |
//! |---|---|
//! | [`answer`] | which answers may be kept |
//! | [`control`] | what a client says about the cache |
//! | `conversation` | what of a request is compared by its meaning, and what must be equal |
//! | [`entry`] | an answer that is kept, and what is kept of the question until then |
//! | [`headers`] | what filter and sidecar call things |
//! | `events` | reading an event stream |
//! | `json` | documents in one form, however they were written |
//! | [`nearest`] | which of many vectors are closest to one |
//! | [`vector`] | what stands for the meaning of a text |

pub mod answer;
pub mod control;
mod conversation;
pub mod entry;
mod events;
pub mod headers;
mod json;
pub mod nearest;
#[cfg(test)]
mod tests;
pub mod vector;

use crate::config::{RouteCache, Scope};
use crate::prompt::Dialect;
use json::{Json, Object};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io::{self, Write};

pub use conversation::MAX_TEXT_BYTES;

/// A request as it is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// What the keys of all routes have in common.
    pub namespace: &'a str,
    /// The name of the route.
    pub route: &'a str,
    /// Who shares answers.
    pub scope: Scope,
    /// The path with its query.
    pub path: &'a [u8],
    /// SHA-256 of the caller's key.
    pub caller: Option<[u8; 32]>,
    /// The values of [`VERSION_HEADERS`]; empty where it has none.
    pub versions: [&'a [u8]; 3],
    /// The body.
    pub body: &'a [u8],
}

/// The request headers that change the form of an answer.
pub const VERSION_HEADERS: [&str; 3] = ["anthropic-version", "anthropic-beta", "openai-beta"];

/// What a request asks, as far as the cache is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// The API that it speaks.
    pub dialect: Dialect,
    /// Whether it asks for an event stream.
    pub stream: bool,
    /// What it has in common with requests that ask the very same.
    pub exact: ExactKey,
    /// How it is compared with requests in other words, or why it is not.
    pub semantic: Result<Semantic, Bypass>,
}

/// What requests have in common that ask the very same: a SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ExactKey(#[serde(with = "serde_bytes")] pub [u8; 32]);

/// What requests have in common whose texts may be compared: a SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Partition(#[serde(with = "serde_bytes")] pub [u8; 32]);

/// What of a request is compared by its meaning, and what must be equal for that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Semantic {
    /// What requests must have in common to be compared.
    pub partition: Partition,
    /// What they are compared by: the turns of user and assistant, a line each, with white space
    /// folded. At most [`MAX_TEXT_BYTES`]; never cut, since what was cut off would not be compared.
    pub text: String,
}

/// Why a request is not for the cache, or not for the comparison by meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bypass {
    /// The client wants nothing kept.
    NoStore,
    /// Its policy would take out what it must not show, and has not been over it.
    Unsanitized,
    /// It is no `POST`, or it is gRPC.
    Method,
    /// Its path is of no API whose answers are kept.
    Path,
    /// Its body is over the limit, or there is none.
    Body,
    /// Its caller has no key, and answers are shared by callers' keys.
    NoKey,
    /// Its caller is not among those who use the cache.
    KeyNotListed,
    /// Its body is no JSON object.
    Unreadable,
    /// Readers could disagree about its body: a key that is there twice, a number that is not exact,
    /// a `stream` that is neither true nor false.
    Ambiguous,
    /// It depends on what the engine remembers.
    Stateful,
    /// The answers of this API are kept for equal requests alone.
    ExactOnly,
    /// The answer repeats the request.
    Echo,
    /// Some of the conversation is no text.
    NotText,
    /// The conversation has calls of tools, or their results.
    Tools,
    /// The prompt is token ids, or there are several.
    Batch,
    /// The conversation has something that is not known.
    Unknown,
    /// The model is to go on with a turn of its own, word for word.
    Prefill,
    /// There is no text.
    Empty,
    /// The text is longer than is compared.
    TooLong,
}

impl Bypass {
    /// A word for metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoStore => "no_store",
            Self::Unsanitized => "unsanitized",
            Self::Method => "method",
            Self::Path => "path",
            Self::Body => "body",
            Self::NoKey => "no_key",
            Self::KeyNotListed => "key_not_listed",
            Self::Unreadable => "unreadable",
            Self::Ambiguous => "ambiguous",
            Self::Stateful => "stateful",
            Self::ExactOnly => "exact_only",
            Self::Echo => "echo",
            Self::NotText => "not_text",
            Self::Tools => "tools",
            Self::Batch => "batch",
            Self::Unknown => "unknown",
            Self::Prefill => "prefill",
            Self::Empty => "empty",
            Self::TooLong => "too_long",
        }
    }

    /// The same for people.
    pub fn describe(self) -> &'static str {
        match self {
            Self::NoStore => "the client wants nothing kept (cache-control: no-store)",
            Self::Unsanitized => {
                "its policy lets it go on without taking personal data out (on_stream or on_unread: \
                 skip)"
            }
            Self::Method => "it is no POST, or it is gRPC",
            Self::Path => "the path is of no API whose answers are kept",
            Self::Body => "it has no body, or one over max_request_bytes",
            Self::NoKey => {
                "the caller has no key, and answers are shared by callers' keys; write scope: route \
                 to share them among all"
            }
            Self::KeyNotListed => "the caller is not among the cache's keys",
            Self::Unreadable => "the body is no JSON object",
            Self::Ambiguous => {
                "readers could disagree about the body: a key twice, a number that is not exact, or \
                 a stream that is neither true nor false"
            }
            Self::Stateful => {
                "the answer depends on what an engine remembers (conversation, previous_response_id and \
                 the like)"
            }
            Self::ExactOnly => "answers of this API are kept for equal requests alone",
            Self::Echo => "the answer repeats the request (echo, prompt_logprobs, return_…)",
            Self::NotText => "some of the conversation is no text",
            Self::Tools => "the conversation has calls of tools, or their results",
            Self::Batch => "the prompt is token ids, or there are several",
            Self::Unknown => "the conversation has a role, a key or a name that is not known",
            Self::Prefill => "the last turn is the assistant's, to be gone on with word for word",
            Self::Empty => "there is no text",
            Self::TooLong => "the text is longer than is compared",
        }
    }
}

/// Whether a caller uses a route's cache.
pub fn admits(cache: &RouteCache, caller: Option<&[u8; 32]>) -> Result<(), Bypass> {
    match caller {
        None if cache.scope == Scope::Key => Err(Bypass::NoKey),
        None if !cache.keys.is_empty() => Err(Bypass::KeyNotListed),
        Some(caller) if !cache.keys.is_empty() && cache.keys.binary_search(caller).is_err() => {
            Err(Bypass::KeyNotListed)
        }
        _ => Ok(()),
    }
}

impl Question {
    /// Reads a request.
    ///
    /// # Errors
    /// Why it is not for the cache at all.
    pub fn read(asked: &Asked<'_>) -> Result<Self, Bypass> {
        let dialect = Dialect::of_path(asked.path).ok_or(Bypass::Path)?;
        if asked.scope == Scope::Key && asked.caller.is_none() {
            return Err(Bypass::NoKey);
        }
        let mut body = Object::read(asked.body)?;
        let stream = match body.get("stream") {
            None | Some(Json::Null | Json::Bool(false)) => false,
            Some(Json::Bool(true)) => true,
            Some(_) => return Err(Bypass::Ambiguous),
        };
        // The same as none, by all APIs.
        body.remove_if("stream", |value| matches!(value, Json::Bool(false)));
        let is_remembered = |name: &&str| body.has(name);
        // Of a completion the prompt is words, of a response the name of some.
        if REMEMBERED.iter().any(is_remembered)
            || (dialect == Dialect::Responses && body.has("prompt"))
        {
            return Err(Bypass::Stateful);
        }
        let exact = ExactKey(key(["exact", EXACT_LAYOUT], asked, &body));
        let semantic = conversation::split(dialect, body).map(|(rest, text)| Semantic {
            partition: Partition(key(["semantic", SEMANTIC_LAYOUT], asked, &rest)),
            text,
        });
        Ok(Self {
            dialect,
            stream,
            exact,
            semantic,
        })
    }
}

/// Fields whose meaning is what the engine remembers, or what one engine alone can do something with.
const REMEMBERED: [&str; 5] = [
    "conversation",
    "previous_response_id",
    "container",
    "kv_transfer_params",
    "ec_transfer_params",
];

/// Of the rules by which requests have one key, and of what is stored under it. Other rules need
/// another one, so that entries under the old ones are never read.
pub const EXACT_LAYOUT: &str = "v1";

/// The same of the rules by which requests are compared.
pub const SEMANTIC_LAYOUT: &str = "v2";

/// A SHA-256 over where a request came from and what is left of it.
fn key(layout: [&str; 2], asked: &Asked<'_>, body: &Object<'_>) -> [u8; 32] {
    let mut hasher = Sha256::new();
    let [anthropic, anthropic_beta, openai_beta] = asked.versions;
    let caller = match (asked.scope, &asked.caller) {
        (Scope::Key, Some(caller)) => &caller[..],
        (Scope::Key, None) | (Scope::Route, _) => b"",
    };
    let [kind, version] = layout;
    for field in [
        kind.as_bytes(),
        version.as_bytes(),
        asked.namespace.as_bytes(),
        asked.route.as_bytes(),
        caller,
        asked.path,
        anthropic,
        anthropic_beta,
        openai_beta,
    ] {
        // With its length, so that nothing can move from one to the next.
        hasher.update((field.len() as u64).to_le_bytes());
        hasher.update(field);
    }
    body.write(&mut Hashing(&mut hasher));
    hasher.finalize().into()
}

struct Hashing<'a>(&'a mut Sha256);

impl Write for Hashing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
