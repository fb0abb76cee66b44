//! Blocks of tokens, and the names that they have.
//!
//! Invariant: two blocks have the same name only if they hold the same tokens, after the same
//! blocks, under the same adapter and cache salt.

use std::sync::Arc;

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::tokens::TokenId;

/// Names a block: a hash of its tokens and of all before it, within one scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockHash(pub u64);

/// What sequences must have in common, beside tokens, to share blocks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Scope {
    pub(crate) adapter: Option<Adapter>,
    /// The request's `cache_salt`; empty for none.
    pub(crate) salt: String,
}

/// A `LoRA` adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Adapter {
    /// From 1, in the order of the configuration.
    pub(crate) id: usize,
    pub(crate) name: String,
}

/// A whole block, with all that an event tells of it.
#[derive(Debug, PartialEq, Eq)]
pub struct Block {
    pub(crate) hash: BlockHash,
    /// The block before it; none for the first of a sequence.
    pub(crate) parent: Option<BlockHash>,
    pub(crate) tokens: Box<[TokenId]>,
    pub(crate) scope: Arc<Scope>,
    /// Blocks before it.
    pub(crate) depth: usize,
}

/// Makes the blocks of one sequence as its tokens come in.
#[derive(Debug)]
pub(crate) struct BlockChain {
    scope: Arc<Scope>,
    seed: u64,
    parent: Option<BlockHash>,
    depth: usize,
    filled: Vec<TokenId>,
    block_tokens: usize,
}

impl BlockChain {
    /// An empty sequence. Sequences of another scope share no block with it.
    pub(crate) fn new(scope: Scope, block_tokens: usize) -> Self {
        let adapter = scope.adapter.as_ref().map_or("", |adapter| &adapter.name);
        let adapter = xxh3_64_with_seed(adapter.as_bytes(), 0);
        Self {
            seed: xxh3_64_with_seed(scope.salt.as_bytes(), adapter),
            scope: Arc::new(scope),
            parent: None,
            depth: 0,
            filled: Vec::with_capacity(block_tokens.min(1024)),
            block_tokens,
        }
    }

    /// Adds a token; the block that it fills, if it fills one.
    pub(crate) fn push(&mut self, token: TokenId) -> Option<Arc<Block>> {
        self.filled.push(token);
        if self.filled.len() < self.block_tokens {
            return None;
        }
        let mut hasher = Xxh3::with_seed(self.parent.map_or(self.seed, |parent| parent.0));
        for token in &self.filled {
            hasher.update(&token.to_le_bytes());
        }
        let block = Block {
            hash: BlockHash(hasher.digest()),
            parent: self.parent,
            tokens: self.filled.drain(..).collect(),
            scope: Arc::clone(&self.scope),
            depth: self.depth,
        };
        self.parent = Some(block.hash);
        self.depth += 1;
        Some(Arc::new(block))
    }
}

/// The blocks of the base model, under no salt, for tests.
#[cfg(test)]
pub(crate) fn plain_chain(block_tokens: usize) -> BlockChain {
    BlockChain::new(Scope::default(), block_tokens)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(tokens: &[TokenId]) -> Vec<BlockHash> {
        let mut chain = plain_chain(4);
        let blocks = tokens.iter().filter_map(|token| chain.push(*token));
        blocks.map(|block| block.hash).collect()
    }

    #[test]
    fn a_block_is_named_by_all_that_came_before_it() {
        let (one, two) = (
            names(&[1, 2, 3, 4, 5, 6, 7, 8]),
            names(&[9, 2, 3, 4, 5, 6, 7, 8]),
        );
        assert_eq!(one.len(), 2);
        assert_ne!(one[1], two[1]);
        assert_eq!(one[0], names(&[1, 2, 3, 4, 0])[0]);
    }

    #[test]
    fn a_block_knows_its_parent_and_its_tokens() {
        let mut chain = plain_chain(2);
        let blocks: Vec<_> = (1..=4).filter_map(|token| chain.push(token)).collect();
        assert_eq!(
            (blocks[0].parent, blocks[1].parent),
            (None, Some(blocks[0].hash))
        );
        assert_eq!(
            (&*blocks[0].tokens, &*blocks[1].tokens),
            (&[1, 2][..], &[3, 4][..])
        );
    }

    #[test]
    fn adapters_and_salts_share_nothing() {
        let first = |adapter: &str, salt: &str| {
            let adapter = (!adapter.is_empty()).then(|| Adapter {
                id: 1,
                name: adapter.to_owned(),
            });
            let salt = salt.to_owned();
            let block = BlockChain::new(Scope { adapter, salt }, 1).push(7);
            block.expect("a block of one token").hash
        };
        assert_ne!(first("", ""), first("b", ""));
        assert_ne!(first("a", ""), first("b", ""));
        assert_ne!(first("a", ""), first("a", "s"));
        assert_ne!(first("", "a"), first("a", ""));
        assert_eq!(first("a", "s"), first("a", "s"));
    }
}
