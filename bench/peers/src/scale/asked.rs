//! Requests as engines see them: a prompt of so many tokens, in blocks that are known by all that
//! came before them.
//!
//! The template is engine-sim's: a mark before each message and after it, and one where generation
//! begins. A token is four bytes, so a prompt's tokens are its text, each piece filled up to a whole
//! one.

use crate::workload::{self, TOKEN_BYTES, Workload};
use engine_sim::BlockHash;
use rolter_core::kv::identity::{Chain, Identity, Seed};
use std::rc::Rc;
use std::time::Duration;

/// What identities of blocks are made with.
pub(crate) const SEED: Seed = Seed(7);

/// Stands where a token is part of a mark: no text has such bytes.
const MARK: [u8; TOKEN_BYTES] = [0xff; TOKEN_BYTES];

/// Tokens of a mark before a message, by the length of engine-sim's, and of the one after it.
const BEGIN_TOKENS: usize = 3;
const END_TOKENS: usize = 2;
/// Tokens of the mark at which generation begins.
const GENERATE_TOKENS: usize = 4;

/// A request as engines see it.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) at: Duration,
    pub(crate) prompt_tokens: usize,
    pub(crate) answer_tokens: usize,
    /// The whole blocks of the prompt.
    pub(crate) blocks: Rc<[BlockHash]>,
    /// How many of these a cache may be used for: never the one with the last token.
    pub(crate) findable: usize,
}

impl Asked {
    /// All of a workload's requests.
    pub(crate) fn all(workload: &Workload, block_tokens: usize) -> Vec<Self> {
        let requests = workload.requests.iter();
        requests.map(|one| Self::new(one, block_tokens)).collect()
    }

    fn new(request: &workload::Request, block_tokens: usize) -> Self {
        let mut tokens = tokens(request);
        let prompt_tokens = tokens.len() / TOKEN_BYTES;
        // A chain stops before the block with the last token, so here it is another one.
        tokens.extend(MARK);
        let size = u32::try_from(block_tokens).unwrap_or(u32::MAX);
        let blocks = Chain::new(SEED, None, None, &tokens, size);
        Self {
            at: request.at,
            prompt_tokens,
            answer_tokens: request.answer_tokens,
            blocks: blocks.map(|Identity(block)| BlockHash(block)).collect(),
            findable: prompt_tokens.saturating_sub(1) / block_tokens,
        }
    }

    /// The blocks that a cache may be used for.
    pub(crate) fn prefix(&self) -> &[BlockHash] {
        self.blocks.get(..self.findable).unwrap_or(&self.blocks)
    }
}

/// The tokens of a request's prompt, four bytes each.
pub(crate) fn tokens(request: &workload::Request) -> Vec<u8> {
    let room = request.prompt_tokens() + request.messages.len() * 8 + GENERATE_TOKENS;
    let mut tokens = Vec::with_capacity(room * TOKEN_BYTES);
    let mark = |kind: u8, count: usize, to: &mut Vec<u8>| {
        for _ in 0..count {
            to.extend([kind, MARK[1], MARK[2], MARK[3]]);
        }
    };
    for message in &request.messages {
        let role = message.role.as_bytes().first().copied().unwrap_or(0);
        mark(role, BEGIN_TOKENS, &mut tokens);
        tokens.extend_from_slice(message.text().as_bytes());
        let whole = tokens.len().next_multiple_of(TOKEN_BYTES);
        tokens.resize(whole, 0);
        mark(0, END_TOKENS, &mut tokens);
    }
    mark(1, GENERATE_TOKENS, &mut tokens);
    tokens
}
