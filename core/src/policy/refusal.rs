//! Why a request or an answer is withheld, and what the client reads instead.
//!
//! Invariant: neither the reason nor what the client reads has any text of the request or of the
//! answer in it.

use crate::prompt::Dialect;
use serde_json::json;
use std::fmt::Write as _;

/// Characters of what a plugin gives as its reason that the client gets to see.
pub(super) const MAX_REASON_CHARS: usize = 256;

/// Why the client does not get what it asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The request asks for a stream, over which the policy could not pass.
    Stream,
    /// The sanitizer cannot read the request.
    UnreadRequest,
    /// The request has more to sanitize than one may.
    ExcessiveRequest,
    /// There is no room at the moment for what is taken out of the request.
    NoRoom,
    /// The answer is none that can be read.
    UnreadAnswer,
    /// The answer is longer than it may be, as it came or as the policy has left it.
    TooLarge,
    /// The answer takes more work than it may.
    Costly,
    /// A guardrail blocks it.
    Guardrail(String),
    /// A plugin blocks it, for a reason of its own words.
    Plugin(String, String),
    /// A plugin could not be asked, or has not answered as it should.
    PluginFailed(String),
}

impl Refusal {
    /// For metrics and the access log. Bounded by the configuration.
    pub fn reason(&self) -> String {
        let (kind, name) = match self {
            Self::Stream => ("stream", None),
            Self::UnreadRequest => ("unread_request", None),
            Self::ExcessiveRequest => ("excessive_request", None),
            Self::NoRoom => ("no_room", None),
            Self::UnreadAnswer => ("unread_answer", None),
            Self::TooLarge => ("too_large", None),
            Self::Costly => ("costly", None),
            Self::Guardrail(name) => ("guardrail", Some(name)),
            Self::Plugin(name, _) => ("plugin", Some(name)),
            Self::PluginFailed(name) => ("plugin_failed", Some(name)),
        };
        let mut reason = kind.to_owned();
        if let Some(name) = name {
            reason.extend([":", name]);
        }
        reason
    }

    /// The status of the reply. Clients try again after any of the 500s, which only these may help,
    /// and an answer that is made again is paid for again.
    pub fn status(&self) -> u16 {
        match self {
            Self::Stream | Self::UnreadRequest | Self::ExcessiveRequest => 400,
            Self::Guardrail(_)
            | Self::Plugin(..)
            | Self::UnreadAnswer
            | Self::TooLarge
            | Self::Costly => 403,
            Self::NoRoom | Self::PluginFailed(_) => 503,
        }
    }

    /// The body of the reply, in the shape of errors of the API.
    pub fn body(&self, dialect: Option<Dialect>) -> String {
        let message = self.message();
        let kind = if self.status() == 400 {
            "invalid_request_error"
        } else if self.status() == 403 {
            "permission_error"
        } else {
            "api_error"
        };
        let code = match self {
            Self::Stream | Self::UnreadRequest | Self::ExcessiveRequest | Self::NoRoom => {
                "refused_by_policy"
            }
            _ => "withheld_by_policy",
        };
        // Clients of either API read what they know of it.
        let mut body = json!({
            "error": {"message": message, "type": kind, "code": code, "param": null},
        });
        if dialect == Some(Dialect::Messages)
            && let Some(body) = body.as_object_mut()
        {
            body.insert("type".to_owned(), "error".into());
        }
        body.to_string()
    }

    /// What the client reads, in words.
    pub fn message(&self) -> String {
        let mut message = String::from(match self {
            Self::Stream => {
                "The policy of this route passes over whole answers; send \"stream\": false."
            }
            Self::UnreadRequest => {
                "The policy of this route cannot read this request; send a JSON object to a path of \
                 the API, with text as the prompt and without content-encoding."
            }
            Self::ExcessiveRequest => {
                "The policy of this route finds too much in this request; send a shorter one."
            }
            Self::NoRoom => "There is no room for this request at the moment; try again later.",
            Self::UnreadAnswer => {
                "The answer is withheld: the policy of this route cannot read it."
            }
            Self::TooLarge => "The answer is withheld: it is longer than this route allows.",
            Self::Costly => {
                "The answer is withheld: checking it takes more than this route allows."
            }
            Self::Guardrail(_) => "The answer is withheld by a rule of this route",
            Self::Plugin(..) => "The answer is withheld by a check of this route",
            Self::PluginFailed(_) => {
                "The answer is withheld: it cannot be checked at the moment; try again later"
            }
        });
        if let Self::Guardrail(name) | Self::Plugin(name, _) | Self::PluginFailed(name) = self {
            // Writing to a string does not fail.
            let _ = write!(message, " ({name}).");
        }
        if let Self::Plugin(_, reason) = self
            && !reason.is_empty()
        {
            message.extend([" ", reason]);
        }
        message
    }
}
