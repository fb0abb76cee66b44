//! Texts by name: a piece of text is a number and a length, and what it says follows from these. So
//! hours of prompts of 50 KB each are a few megabytes.
//!
//! Invariant: a shorter piece of a number is the head of a longer one.

use super::TOKEN_BYTES;
use fastrand::Rng;

/// Some text of so many tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// Which text.
    pub(crate) id: u64,
    /// How long it is.
    pub(crate) tokens: usize,
}

/// What someone says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Message {
    pub(crate) role: &'static str,
    /// One after another.
    pub(crate) pieces: Vec<Piece>,
}

const WORDS: [&str; 32] = [
    "the ",
    "model ",
    "answers ",
    "with ",
    "care ",
    "and ",
    "cites ",
    "sources ",
    "when ",
    "asked ",
    "about ",
    "numbers ",
    "dates ",
    "names ",
    "or ",
    "places ",
    "that ",
    "nobody ",
    "has ",
    "seen ",
    "in ",
    "a ",
    "previous ",
    "conversation ",
    "however ",
    "long ",
    "it ",
    "was, ",
    "so ",
    "far ",
    "as ",
    "known. ",
];

impl Message {
    /// A message that is one piece of text.
    pub(crate) fn new(role: &'static str, id: u64, tokens: usize) -> Self {
        let pieces = vec![Piece { id, tokens }];
        Self { role, pieces }
    }

    /// What is said.
    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(self.tokens() * TOKEN_BYTES + 16);
        for piece in &self.pieces {
            piece.write(&mut text);
        }
        text
    }

    /// The length of its text.
    pub(crate) fn tokens(&self) -> usize {
        self.pieces.iter().map(|piece| piece.tokens).sum()
    }
}

impl Piece {
    /// Adds the text: English, as far as it goes, of one byte a character and with nothing in it
    /// that JSON escapes.
    fn write(self, to: &mut String) {
        let mut rng = Rng::with_seed(self.id);
        let end = to.len() + self.tokens * TOKEN_BYTES;
        while to.len() < end {
            // Words are drawn by the dozen.
            let mut drawn = rng.u64(..);
            for _ in 0..12 {
                to.push_str(WORDS[usize::from((drawn & 31) as u8)]);
                drawn >>= 5;
            }
        }
        to.truncate(end);
    }
}
