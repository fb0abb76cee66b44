//! A request as an engine reads it, for who stands outside and wants to know what it will come to.

use serde_json::Value;

use crate::answer;
use crate::api::{self, Api};
use crate::blocks::{BlockChain, BlockHash, Scope};
use crate::config::EngineConfig;

/// A request that was read as engines of one configuration read it, but not asked.
#[derive(Debug, Clone)]
pub struct Question {
    /// The whole blocks of its prompt.
    pub(crate) blocks: Vec<BlockHash>,
    /// Those that an engine looks up: never the one with the last token.
    pub(crate) findable: usize,
    pub(crate) prompt_tokens: usize,
    expected_answer: String,
}

impl Question {
    /// The request with this JSON as its `body`, to this path. `None` if no engine would answer it.
    pub fn read(config: &EngineConfig, path: &str, body: &Value) -> Option<Self> {
        let request = api::parse(Api::from_path(path)?, body).ok()?;
        let scope = Scope {
            adapter: config.adapter(&request.model),
            salt: request.cache_salt,
        };
        let mut chain = BlockChain::new(scope, config.block_tokens);
        let tokens = request.prompt.tokens();
        let blocks = tokens.iter().filter_map(|token| chain.push(*token));
        Some(Self {
            blocks: blocks.map(|block| block.hash).collect(),
            findable: findable_blocks(tokens.len(), config.block_tokens),
            prompt_tokens: tokens.len(),
            expected_answer: answer::head(request.prompt.hash()),
        })
    }

    /// The tokens of its prompt.
    pub fn prompt_tokens(&self) -> usize {
        self.prompt_tokens
    }

    /// How its answer must begin, as [`expected_answer`](crate::expected_answer) has it.
    pub fn expected_answer(&self) -> &str {
        &self.expected_answer
    }
}

/// How many blocks of a prompt may be found in a cache. Its last token is always computed: the result
/// is the answer's first token.
pub(crate) fn findable_blocks(prompt_tokens: usize, block_tokens: usize) -> usize {
    prompt_tokens.saturating_sub(1) / block_tokens
}
