//! What the sidecar is asked about a request before it is decided on, and what it has answered.

use crate::host;
use crate::lookup::{Looked, Lookup, NoHit};
use crate::route::Route;
use proxy_wasm::hostcalls;
use rolter_core::cache::headers::PATH;
use rolter_core::kv::identity::TOKEN_BYTES;
use rolter_core::prompt::Dialect;
use std::rc::Rc;
use std::time::Duration;

/// A question to the sidecar, without whose answer nothing is decided.
pub(crate) enum Question {
    Cache(Lookup),
    Tokens(Tokenize),
}

/// What the sidecar has answered about a request. Each is asked once at most.
#[derive(Default)]
pub(crate) struct Answers {
    pub(crate) cache: Option<NoHit>,
    pub(crate) tokens: Tokens,
}

/// What is known of a request's token ids beside what the request itself has.
#[derive(Default)]
pub(crate) enum Tokens {
    /// Nobody has been asked.
    #[default]
    Unasked,
    /// The sidecar has been asked, and this was its answer, if it gave any.
    Asked(Option<Vec<u8>>),
}

/// A question to the sidecar: which token ids a request has.
pub(crate) struct Tokenize {
    pub(crate) route: Rc<Route>,
    pub(crate) dialect: Dialect,
    /// How long the answer may take, in milliseconds.
    pub(crate) millis: u64,
}

impl Question {
    /// Asks, out of a request. The number of the call, where there is one.
    pub(crate) fn ask(&mut self, cluster: &str, body: &[u8]) -> Option<u32> {
        match self {
            Self::Cache(lookup) => lookup.ask(cluster, body),
            Self::Tokens(tokenize) => tokenize.ask(cluster, body),
        }
    }

    /// Takes in what the sidecar has answered, in the phase of the answer. A request that is over
    /// with that gets its answer here.
    pub(crate) fn take_answer(
        &self,
        mut answers: Answers,
        headers: usize,
        size: usize,
    ) -> Option<Answers> {
        match self {
            Self::Cache(lookup) => match lookup.answer(headers, size) {
                Looked::Hit(hit) => {
                    hit.reply();
                    return None;
                }
                Looked::NoHit(no_hit) => answers.cache = Some(no_hit),
            },
            Self::Tokens(tokenize) => {
                answers.tokens = Tokens::Asked(tokenize.answer(headers, size));
            }
        }
        Some(answers)
    }

    /// Goes on without an answer: the sidecar cannot be asked.
    pub(crate) fn give_up(&self, answers: &mut Answers) {
        match self {
            Self::Cache(lookup) => answers.cache = Some(lookup.failed()),
            Self::Tokens(tokenize) => {
                tokenize.route.untokenized.add(1);
                answers.tokens = Tokens::Asked(None);
            }
        }
    }
}

impl Tokenize {
    /// The token ids that the sidecar has answered with, in the phase of the answer.
    fn answer(&self, headers: usize, size: usize) -> Option<Vec<u8>> {
        let tokens = host::call_body(headers, size);
        let tokens = tokens.filter(|tokens| tokens.len().is_multiple_of(TOKEN_BYTES));
        let counter = match tokens {
            Some(_) => self.route.tokenized,
            None => self.route.untokenized,
        };
        counter.add(1);
        tokens
    }

    /// Asks. The number of the call, where there is one.
    fn ask(&self, cluster: &str, body: &[u8]) -> Option<u32> {
        let path = match self.dialect {
            Dialect::Completions => "/v1/completions",
            _ => "/v1/chat/completions",
        };
        let (millis, route) = (self.millis, &self.route.name);
        let query = format!("/v1/tokenize?route={route}&timeout_ms={millis}");
        let headers = vec![
            (":method", "POST"),
            (":path", &query),
            (":authority", host::SIDECAR),
            ("content-type", "application/json"),
            (PATH, path),
        ];
        let timeout = Duration::from_millis(millis);
        hostcalls::dispatch_http_call(cluster, headers, Some(body), vec![], timeout).ok()
    }
}
