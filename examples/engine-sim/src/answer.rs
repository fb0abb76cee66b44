//! Answers: a head that proves which prompt was read, then filler.
//!
//! The head is a function of the prompt alone, so a client can check an answer whichever engine
//! gave it. Every token of an answer is exactly [`TOKEN_BYTES`] bytes of text.

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::api::{self, Api};
use crate::tokens::TOKEN_BYTES;

const CONSONANTS: &[u8; 16] = b"bcdfghjklmnpqrst";
const VOWELS: &[u8; 4] = b"aeio";

/// The answer to one prompt, token by token.
#[derive(Debug, Clone)]
pub(crate) struct Answer {
    head: String,
    prompt_hash: u64,
    seed: u64,
}

impl Answer {
    /// The answer to the prompt that has this hash; `seed` chooses the filler.
    pub(crate) fn new(prompt_hash: u64, seed: u64) -> Self {
        Self {
            head: head(prompt_hash),
            prompt_hash,
            seed,
        }
    }

    /// The text of the answer's `index`th token, from 0.
    pub(crate) fn token(&self, index: usize) -> String {
        let from = index.saturating_mul(TOKEN_BYTES);
        match self.head.get(from..from.saturating_add(TOKEN_BYTES)) {
            Some(text) => text.to_owned(),
            None => self.filler(index),
        }
    }

    fn filler(&self, index: usize) -> String {
        let place = u64::try_from(index).unwrap_or(u64::MAX).to_le_bytes();
        let hash = xxh3_64_with_seed(&place, self.seed ^ self.prompt_hash).to_le_bytes();
        let consonant = |byte: u8| char::from(CONSONANTS[usize::from(byte % 16)]);
        let vowel = char::from(VOWELS[usize::from(hash[1] % 4)]);
        [' ', consonant(hash[0]), vowel, consonant(hash[2])]
            .iter()
            .collect()
    }
}

/// How the answer to a request must begin, whichever engine gives it: `answer <16 hex digits>.`,
/// which is 24 bytes or 6 tokens. An answer of fewer tokens is as long a part of it.
///
/// `path` is the request's path (`/v1/chat/completions`, `/v1/completions`, `/v1/responses` or
/// `/v1/messages`) and `body` its JSON. `None` if no engine would answer such a request.
pub fn expected_answer(path: &str, body: &Value) -> Option<String> {
    let request = api::parse(Api::from_path(path)?, body).ok()?;
    Some(head(request.prompt.hash()))
}

pub(crate) fn head(prompt_hash: u64) -> String {
    format!("answer {prompt_hash:016x}.")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_token_is_four_bytes_and_the_head_comes_first() {
        let answer = Answer::new(0xabc, 7);
        let text: String = (0..20).map(|index| answer.token(index)).collect();
        assert_eq!(text.len(), 80);
        assert!(text.starts_with("answer 0000000000000abc. "));
    }

    #[test]
    fn the_seed_changes_the_filler_and_not_the_head() {
        let (one, two) = (Answer::new(9, 1), Answer::new(9, 2));
        let text = |answer: &Answer, range: std::ops::Range<usize>| -> String {
            range.map(|index| answer.token(index)).collect()
        };
        assert_eq!(text(&one, 0..6), text(&two, 0..6));
        assert_ne!(text(&one, 6..30), text(&two, 6..30));
    }

    #[test]
    fn a_conversation_has_one_answer_whichever_api_carries_it() {
        let messages = json!([
            {"role": "user", "content": "one"},
            {"role": "assistant", "content": "two"},
            {"role": "user", "content": "three"},
        ]);
        let chat = json!({"model": "m", "messages": messages});
        let anthropic = json!({"model": "m", "max_tokens": 4, "messages": messages});
        let responses = json!({"model": "m", "input": messages});
        let answer = expected_answer("/v1/chat/completions", &chat);
        assert!(answer.is_some());
        assert_eq!(answer, expected_answer("/v1/messages", &anthropic));
        assert_eq!(answer, expected_answer("/v1/responses", &responses));
        assert_eq!(expected_answer("/v1/nothing", &chat), None);
    }
}
