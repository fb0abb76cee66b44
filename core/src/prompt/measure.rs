//! The three measures of a prompt, taken while it is read: bounded text, full length, digest.
//!
//! Text counts to all three, tools to length and digest, media to the digest alone. Text is hashed
//! as if it were one run, however it came in parts.

use super::json::{Json, Result, Str};
use xxhash_rust::xxh3::Xxh3Default;

/// How much of a prompt's text is kept: prefix affinity is decided by the leading bytes.
pub const MAX_TEXT_BYTES: usize = 32 * 1024;

/// Stand between text and what is not text in the digest. None of these bytes occurs in UTF-8, so
/// no text that is valid can imitate a tool call.
const TOOL: &[u8] = &[0xFF];
const MEDIA: &[u8] = &[0xFE];
const END: &[u8] = &[0xFD];

pub(super) struct Measure {
    text: Vec<u8>,
    /// Set once something did not fit: nothing is kept after a cut.
    cut: bool,
    /// How much of `text` is in the hasher. Text is hashed late, because one long run is far
    /// cheaper to hash than many short ones.
    hashed: usize,
    /// Nothing where nobody asks for the digest.
    hasher: Option<Xxh3Default>,
    len: u64,
}

/// The measures, as in [`Prompt`](super::Prompt).
pub(super) struct Measured {
    pub(super) text: Vec<u8>,
    pub(super) len: u64,
    pub(super) digest: u64,
}

impl Measure {
    /// For a body of `body_len` bytes, which bounds what is reserved.
    pub(super) fn new(body_len: usize, asks_digest: bool) -> Self {
        Self {
            text: Vec::with_capacity(body_len.min(MAX_TEXT_BYTES)),
            cut: false,
            hashed: 0,
            hasher: asks_digest.then(Xxh3Default::new),
            len: 0,
        }
    }

    pub(super) fn finish(mut self) -> Measured {
        self.hash_kept_text();
        Measured {
            text: self.text,
            len: self.len,
            digest: self.hasher.map_or(0, |hasher| hasher.digest()),
        }
    }

    /// A run of text. Must not end inside a character, so that a cut does not either.
    pub(super) fn text(&mut self, run: &[u8]) {
        self.len += run.len() as u64;
        if self.cut {
            return self.update(run);
        }
        let room = MAX_TEXT_BYTES - self.text.len();
        let (kept, rest) = run
            .split_at_checked(room)
            .map_or((run, [].as_slice()), |_| split_at_character(run, room));
        if kept.len() > self.text.capacity() - self.text.len() {
            // A prompt may be longer than the JSON around it: token ids, turns without content.
            // Growing by doubling would pass the bound.
            self.text.reserve_exact(room);
        }
        self.text.extend_from_slice(kept);
        if !rest.is_empty() {
            self.cut = true;
            self.hash(rest);
        }
    }

    pub(super) fn string(&mut self, string: Str<'_>) -> Result<()> {
        string.decode(|run| self.text(run))
    }

    /// A tool call or a tool's result, or a piece of the conversation of unknown shape.
    pub(super) fn tool(&mut self, value: Json<'_>) -> Result<()> {
        self.hash(TOOL);
        let mut len = 0;
        let mut sink = |run: &[u8]| {
            len += run.len() as u64;
            self.update(run);
        };
        match value {
            Json::String(string) => string.decode(sink)?,
            _ => value.compact(&mut sink)?,
        }
        self.len += len;
        self.hash(END);
        Ok(())
    }

    /// An image, audio, a file: its encoded size says little about its cost in tokens.
    pub(super) fn media(&mut self, value: Json<'_>) -> Result<()> {
        self.hash(MEDIA);
        value.compact(|run| self.update(run))?;
        self.hash(END);
        Ok(())
    }

    fn hash(&mut self, bytes: &[u8]) {
        self.hash_kept_text();
        self.update(bytes);
    }

    fn hash_kept_text(&mut self) {
        let new = self.text.get(self.hashed..).unwrap_or_default();
        if let Some(hasher) = &mut self.hasher
            && !new.is_empty()
        {
            hasher.update(new);
            self.hashed = self.text.len();
        }
    }

    fn update(&mut self, bytes: &[u8]) {
        if let Some(hasher) = &mut self.hasher {
            hasher.update(bytes);
        }
    }
}

/// Splits at `at` or, where that is inside a UTF-8 character, before the character.
fn split_at_character(run: &[u8], at: usize) -> (&[u8], &[u8]) {
    const LONGEST: usize = 4;
    let is_continuation = |at: &usize| run.get(*at).is_some_and(|byte| byte & 0xC0 == 0x80);
    let boundary = (at.saturating_sub(LONGEST - 1)..=at)
        .rev()
        .find(|at| !is_continuation(at))
        .unwrap_or(at);
    run.split_at_checked(boundary).unwrap_or((run, &[]))
}
