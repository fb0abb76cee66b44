//! The tokeniser: four bytes of text are one token, and its id is a hash of them.
//!
//! A piece of text starts a token of its own, so an answer that comes back as a later turn has the
//! token ids under which the engine generated it. Marks of the template hash apart from text, so
//! no text can pass for a mark.

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

/// Bytes of text in one token.
pub const TOKEN_BYTES: usize = 4;

/// The id of one token in the engine's vocabulary.
pub(crate) type TokenId = u32;

const TEXT: u64 = 1;
const MARK: u64 = 2;

/// A prompt as the engine reads it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Prompt {
    tokens: Vec<TokenId>,
}

impl Prompt {
    /// A prompt that came as token ids.
    pub(crate) fn from_ids(tokens: Vec<TokenId>) -> Self {
        Self { tokens }
    }

    /// Adds a piece of text.
    pub(crate) fn push_text(&mut self, text: &str) {
        self.push(text, TEXT);
    }

    /// Adds a mark of the template.
    pub(crate) fn push_mark(&mut self, mark: &str) {
        self.push(mark, MARK);
    }

    /// The token ids, first to last.
    pub(crate) fn tokens(&self) -> &[TokenId] {
        &self.tokens
    }

    /// What a client verifies an answer by: a hash of all token ids.
    pub(crate) fn hash(&self) -> u64 {
        let mut hasher = Xxh3::new();
        for token in &self.tokens {
            hasher.update(&token.to_le_bytes());
        }
        hasher.digest()
    }

    fn push(&mut self, piece: &str, kind: u64) {
        let ids = piece.as_bytes().chunks(TOKEN_BYTES);
        self.tokens.extend(ids.map(|chunk| token_id(chunk, kind)));
    }
}

/// The id of a piece of answer text that is one token long.
pub(crate) fn text_token(text: &str) -> TokenId {
    token_id(text.as_bytes(), TEXT)
}

fn token_id(chunk: &[u8], kind: u64) -> TokenId {
    let hash = xxh3_64_with_seed(chunk, kind);
    // 31 bits: clients that read ids as signed integers get them right.
    u32::try_from(hash >> 33).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_make_a_token_and_the_rest_one_more() {
        for (text, tokens) in [
            ("", 0),
            ("a", 1),
            ("abcd", 1),
            ("abcde", 2),
            ("12345678", 2),
        ] {
            let mut prompt = Prompt::default();
            prompt.push_text(text);
            assert_eq!(prompt.tokens().len(), tokens, "{text:?}");
        }
    }

    #[test]
    fn text_that_looks_like_a_mark_is_not_one() {
        let (mut text, mut mark) = (Prompt::default(), Prompt::default());
        text.push_text("<|user|>");
        mark.push_mark("<|user|>");
        assert_ne!(text, mark);
    }

    #[test]
    fn generated_text_has_the_ids_that_it_has_as_a_prompt() {
        let mut prompt = Prompt::default();
        prompt.push_text("answer a");
        assert_eq!(prompt.tokens(), [text_token("answ"), text_token("er a")]);
    }
}
