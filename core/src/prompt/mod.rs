//! What the model will see of a request, read from the path and the body.
//!
//! A prompt is the conversation, not the JSON around it: the envelope that all requests share would
//! make unrelated prompts look alike. Whatever cannot be read falls back to the raw bytes of the
//! body, so every request has a prompt.

mod block;
mod conversation;
pub(crate) mod json;
mod measure;
#[cfg(test)]
mod tests;
mod turn;
mod unescape;

use conversation::Fields;
use json::{Json, Str};
use measure::{Measure, Measured};
use std::borrow::Cow;

pub use measure::MAX_TEXT_BYTES;

/// The APIs whose requests can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `OpenAI` chat completions: `messages`.
    Chat,
    /// `OpenAI` completions: `prompt`, as text or token ids, one or many.
    Completions,
    /// `OpenAI` Responses: `instructions`, then `input`.
    Responses,
    /// `OpenAI` embeddings: `input`, as text or token ids, one or many.
    Embeddings,
    /// Anthropic messages: `system`, then `messages`.
    Messages,
}

impl Dialect {
    /// The dialect of a request path, by how it ends; any prefix and query may surround that.
    pub fn of_path(path: &[u8]) -> Option<Self> {
        let path = path.split(|&byte| byte == b'?').next().unwrap_or_default();
        let ends = |end: &str| {
            path.strip_suffix(b"/")
                .unwrap_or(path)
                .ends_with(end.as_bytes())
        };
        [
            ("/chat/completions", Self::Chat),
            ("/completions", Self::Completions),
            ("/responses", Self::Responses),
            ("/embeddings", Self::Embeddings),
            ("/messages", Self::Messages),
        ]
        .into_iter()
        .find_map(|(end, dialect)| ends(end).then_some(dialect))
    }
}

/// What routing needs to know of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt<'a> {
    /// The leading bytes of what the model sees, at most [`MAX_TEXT_BYTES`], cut between
    /// characters. Conversations are `role: text\n` a turn; the prompts of a batch have a line
    /// break between them; a token id is its four bytes, little-endian. Nothing validates the
    /// bytes as UTF-8: they are compared, not shown.
    pub text: Vec<u8>,
    /// The size of the whole prompt in bytes: text before the cut and after it, and tools. A
    /// quarter of it estimates the tokens.
    pub len: u64,
    /// xxh3 of the whole prompt: text, tools and media. Zero where it was not asked for.
    pub digest: u64,
    /// The model that the request names.
    pub model: Option<Cow<'a, str>>,
    /// What keeps its blocks apart from those of requests with another salt, where it has one.
    pub cache_salt: Option<Cow<'a, str>>,
    /// Whether the request asks for a stream.
    pub stream: bool,
    /// The prompt's token ids, where the request has it in this form.
    pub token_ids: Option<TokenIds<'a>>,
    /// How the body was read; nothing where it could not be and the prompt is its raw bytes.
    pub dialect: Option<Dialect>,
}

impl<'a> Prompt<'a> {
    /// Reads a request by its path. Borrows from the body, and allocates the bounded text alone.
    pub fn read(path: &[u8], body: &'a [u8]) -> Self {
        Self::read_as(Dialect::of_path(path), body)
    }

    /// Reads a request whose path told this dialect.
    pub fn read_as(dialect: Option<Dialect>, body: &'a [u8]) -> Self {
        Self::measure(dialect, body, true)
    }

    /// The same for whoever does not ask for the digest.
    pub fn read_undigested(dialect: Option<Dialect>, body: &'a [u8]) -> Self {
        Self::measure(dialect, body, false)
    }

    fn measure(dialect: Option<Dialect>, body: &'a [u8], asks_digest: bool) -> Self {
        let mut fields = Fields::default();
        // The first attempt takes the order of the fields that clients use for granted.
        let conversation = [true, false].into_iter().find_map(|in_place| {
            fields = Fields::default();
            read_conversation(dialect, body, in_place, asks_digest, &mut fields).ok()
        });
        let (measure, dialect, ids) = conversation.unwrap_or_else(|| {
            let mut measure = Measure::new(body.len(), asks_digest);
            measure.text(body);
            (measure, None, None)
        });
        let Measured { text, len, digest } = measure.finish();
        Self {
            text,
            len,
            digest,
            model: decoded(fields.model),
            cache_salt: decoded(fields.cache_salt),
            stream: fields.stream,
            token_ids: ids.map(TokenIds),
            dialect,
        }
    }

    /// About how many tokens the prompt has, at four bytes each, as is usual for English text.
    pub fn tokens(&self) -> u32 {
        u32::try_from(self.len / 4).unwrap_or(u32::MAX)
    }

    /// The model of a request of whose body only the beginning is known.
    pub fn model_of_start(start: &'a [u8]) -> Option<Cow<'a, str>> {
        let mut fields = Fields::default();
        // The cut is an error; what came before it is what can be had.
        let _ = fields.read(start, None);
        decoded(fields.model)
    }
}

/// Fields and conversation of a body, with its token ids where it consists of them.
fn read_conversation<'a>(
    dialect: Option<Dialect>,
    body: &'a [u8],
    in_place: bool,
    asks_digest: bool,
    fields: &mut Fields<'a>,
) -> json::Result<(Measure, Option<Dialect>, Option<Json<'a>>)> {
    let mut measure = Measure::new(body.len(), asks_digest);
    if in_place && dialect == Some(Dialect::Chat) {
        fields.read(body, Some(&mut measure))?;
        return Ok((measure, dialect, None));
    }
    fields.read(body, None)?;
    let dialect = dialect.or(fields.dialect()).ok_or(json::Unreadable)?;
    let ids = fields.measure(dialect, &mut measure, in_place)?;
    Ok((measure, Some(dialect), ids))
}

fn decoded(text: Option<Str<'_>>) -> Option<Cow<'_, str>> {
    let text = text?;
    if let Some(plain) = text.plain() {
        return std::str::from_utf8(plain).ok().map(Cow::Borrowed);
    }
    // What is not valid is found out before room is made for it, and what is gets no more than it
    // needs: it is as long as the client likes.
    std::str::from_utf8(text.inside()).ok()?;
    let mut len = 0;
    text.decode(|run| len += run.len()).ok()?;
    let mut decoded = Vec::with_capacity(len);
    text.decode(|run| decoded.extend_from_slice(run)).ok()?;
    String::from_utf8(decoded).ok().map(Cow::Owned)
}

/// The token ids of a prompt, still in the body.
#[derive(Clone, Copy, Debug)]
pub struct TokenIds<'a>(Json<'a>);

impl TokenIds<'_> {
    /// Calls `each` with the ids in order.
    pub fn for_each(&self, mut each: impl FnMut(u32)) {
        // What is here was read once without an error.
        let _ = self.0.cursor().array(|cursor| {
            cursor.value()?.token_id().into_iter().for_each(&mut each);
            Ok(())
        });
    }

    /// The ids, each as its four bytes, little-endian.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.for_each(|id| bytes.extend_from_slice(&id.to_le_bytes()));
        bytes
    }

    /// The ids in a buffer of their own.
    pub fn to_vec(&self) -> Vec<u32> {
        let mut ids = Vec::new();
        self.for_each(|id| ids.push(id));
        ids
    }
}

impl PartialEq for TokenIds<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.to_vec() == other.to_vec()
    }
}

impl Eq for TokenIds<'_> {}
