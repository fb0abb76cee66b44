//! An answer that is kept, and what is kept of the question until there is one.

use super::answer::has_form;
use super::{ExactKey, Partition, Question};
use crate::hex::{from_hex, to_hex};
use crate::prompt::Dialect;
use crate::time::Millis;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// An answer that is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of the request that it was made for.
    pub exact: ExactKey,
    /// The same, as far as requests in other words may have it.
    pub partition: Option<Partition>,
    /// When it was stored.
    pub stored: Millis,
    /// Whether it is an event stream.
    pub stream: bool,
    /// Its content type.
    pub content_type: String,
    /// The upstream's bytes.
    #[serde(with = "serde_bytes")]
    pub body: Vec<u8>,
}

/// The longest content type that is kept, in bytes.
pub const MAX_CONTENT_TYPE_BYTES: usize = 256;

/// What an entry has beside its body, in bytes, at most.
pub const OVERHEAD: usize = 512;

impl Entry {
    /// As msgpack, the body as it is.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Nothing in it can fail to be written.
        rmp_serde::to_vec(self).unwrap_or_default()
    }

    /// Nothing where the bytes do not begin with an entry. Takes no more room than they do, whatever
    /// they claim.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        rmp_serde::from_slice(bytes).ok()
    }

    /// Whether it may be the answer to this very request. The store has said so already; this is the
    /// last look before it is replayed.
    pub fn answers(&self, exact: ExactKey, stream: bool) -> bool {
        self.exact == exact && self.is_for(stream)
    }

    /// Whether it may be the answer to a request in other words.
    pub fn answers_alike(&self, partition: Partition, stream: bool) -> bool {
        self.partition == Some(partition) && self.is_for(stream)
    }

    fn is_for(&self, stream: bool) -> bool {
        self.stream == stream && has_form(stream, &self.content_type)
    }
}

/// What is kept of a request until its answer can be stored. Short, whatever the request was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The API that it speaks.
    pub dialect: Dialect,
    /// Whether it asks for an event stream.
    pub stream: bool,
    /// See [`Question::exact`].
    pub exact: ExactKey,
    /// What it is compared by, where it is.
    pub compared: Option<Compared>,
}

/// What a request is compared by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Compared {
    /// With which others.
    pub partition: Partition,
    /// By which text.
    pub text: TextId,
}

/// The SHA-256 of a text that is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextId(pub [u8; 32]);

impl TextId {
    /// Of this text.
    pub fn of(text: &str) -> Self {
        Self(Sha256::digest(text).into())
    }
}

const DIALECTS: [(&str, Dialect); 5] = [
    ("chat", Dialect::Chat),
    ("completions", Dialect::Completions),
    ("responses", Dialect::Responses),
    ("embeddings", Dialect::Embeddings),
    ("messages", Dialect::Messages),
];

impl Ticket {
    /// For the answer to a request.
    pub fn of(question: &Question) -> Self {
        let semantic = question.semantic.as_ref().ok();
        Self {
            dialect: question.dialect,
            stream: question.stream,
            exact: question.exact,
            compared: semantic.map(|semantic| Compared {
                partition: semantic.partition,
                text: TextId::of(&semantic.text),
            }),
        }
    }

    /// As the value of a header, under 256 bytes.
    pub fn to_text(&self) -> String {
        let mut known = DIALECTS.iter();
        let dialect = known.find(|(_, dialect)| *dialect == self.dialect);
        let dialect = dialect.map_or("", |(name, _)| name);
        let form = if self.stream { "stream" } else { "json" };
        let mut text = [dialect, form, &to_hex(&self.exact.0)].join("-");
        if let Some(Compared {
            partition,
            text: id,
        }) = &self.compared
        {
            text.extend(["-", &to_hex(&partition.0), "-", &to_hex(&id.0)]);
        }
        text
    }

    /// Nothing where the text is no ticket.
    pub fn from_text(text: &str) -> Option<Self> {
        let parts: Vec<&str> = text.split('-').collect();
        let (dialect, form, exact, compared) = match *parts {
            [dialect, form, exact] => (dialect, form, exact, None),
            [dialect, form, exact, partition, id] => {
                let compared = Compared {
                    partition: Partition(from_hex(partition)?),
                    text: TextId(from_hex(id)?),
                };
                (dialect, form, exact, Some(compared))
            }
            _ => return None,
        };
        let (_, dialect) = *DIALECTS.iter().find(|(name, _)| *name == dialect)?;
        Some(Self {
            dialect,
            stream: match form {
                "stream" => true,
                "json" => false,
                _ => return None,
            },
            exact: ExactKey(from_hex(exact)?),
            compared,
        })
    }
}
