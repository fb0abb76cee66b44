//! The prefix cache: whole blocks of tokens under chained hashes, the least recently used going
//! first.
//!
//! Invariants: blocks in use and blocks kept never exceed the capacity, a block that some request
//! holds is never evicted, and a block is kept only while its parent is.

use std::collections::{BTreeMap, HashMap};

use xxhash_rust::xxh3::{Xxh3, xxh3_64_with_seed};

use crate::tokens::TokenId;

/// Names a block: a hash of its tokens and of all before it, under one model and cache salt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct BlockHash(pub(crate) u64);

/// Names the blocks of one sequence as its tokens come in.
#[derive(Debug)]
pub(crate) struct BlockChain {
    parent: u64,
    filled: Vec<TokenId>,
    block_tokens: usize,
}

impl BlockChain {
    /// An empty sequence. Sequences of another model or salt share no block with it.
    pub(crate) fn new(model: &str, cache_salt: &str, block_tokens: usize) -> Self {
        let model = xxh3_64_with_seed(model.as_bytes(), 0);
        Self {
            parent: xxh3_64_with_seed(cache_salt.as_bytes(), model),
            filled: Vec::with_capacity(block_tokens.min(1024)),
            block_tokens,
        }
    }

    /// Adds a token; the name of the block that it fills, if it fills one.
    pub(crate) fn push(&mut self, token: TokenId) -> Option<BlockHash> {
        self.filled.push(token);
        if self.filled.len() < self.block_tokens {
            return None;
        }
        let mut hasher = Xxh3::with_seed(self.parent);
        for token in self.filled.drain(..) {
            hasher.update(&token.to_le_bytes());
        }
        self.parent = hasher.digest();
        Some(BlockHash(self.parent))
    }
}

/// The blocks that one request holds. Must go back through [`PrefixCache::release`].
#[derive(Debug, Default)]
pub(crate) struct Lease {
    /// Blocks with a name, in the sequence's order.
    named: Vec<BlockHash>,
    /// Blocks that are still to be computed.
    unnamed: usize,
}

impl Lease {
    /// Blocks with a name: at first those that were found, then also those computed since.
    pub(crate) fn named(&self) -> usize {
        self.named.len()
    }
}

#[derive(Debug)]
struct Kept {
    holders: usize,
    /// Its place among the idle blocks; meaningful only without holders.
    idle_since: u64,
}

/// A fixed number of blocks, shared by all requests of an engine.
#[derive(Debug)]
pub(crate) struct PrefixCache {
    capacity: usize,
    kept: HashMap<BlockHash, Kept>,
    /// Kept blocks that no request holds, in the order in which they go.
    idle: BTreeMap<u64, BlockHash>,
    unnamed: usize,
    clock: u64,
}

impl PrefixCache {
    /// An empty cache of `capacity` blocks.
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            kept: HashMap::new(),
            idle: BTreeMap::new(),
            unnamed: 0,
            clock: 0,
        }
    }

    /// Leases `total` blocks for a sequence of which `prefix` may be found: as many leading blocks
    /// of it as are kept, and room for the rest. `None`, and no change, while there is no room.
    pub(crate) fn lease(&mut self, prefix: &[BlockHash], total: usize) -> Option<Lease> {
        let found = prefix
            .iter()
            .take_while(|hash| self.kept.contains_key(hash));
        let found: Vec<BlockHash> = found.copied().collect();
        let unnamed = total.saturating_sub(found.len());
        let woken = found
            .iter()
            .filter(|hash| self.kept[hash].holders == 0)
            .count();
        if self.used() + woken + unnamed > self.capacity {
            return None;
        }
        for hash in &found {
            self.hold(*hash);
        }
        while self.kept.len() + self.unnamed + unnamed > self.capacity {
            let (_, evicted) = self.idle.pop_first()?;
            self.kept.remove(&evicted);
        }
        self.unnamed += unnamed;
        Some(Lease {
            named: found,
            unnamed,
        })
    }

    /// Names the next block of a lease, now that it is computed; others can find it from here on.
    /// If another request computed it too, the lease shares that copy and frees its own.
    pub(crate) fn publish(&mut self, lease: &mut Lease, hash: BlockHash) {
        if lease.unnamed == 0 {
            return;
        }
        lease.unnamed -= 1;
        self.unnamed -= 1;
        lease.named.push(hash);
        self.hold(hash);
    }

    /// Takes a lease back. Its named blocks stay, the last of the sequence going first.
    pub(crate) fn release(&mut self, lease: &mut Lease) {
        self.unnamed -= lease.unnamed;
        lease.unnamed = 0;
        for hash in lease.named.drain(..).rev() {
            let Some(kept) = self.kept.get_mut(&hash) else {
                continue;
            };
            kept.holders -= 1;
            if kept.holders == 0 {
                self.clock += 1;
                kept.idle_since = self.clock;
                self.idle.insert(self.clock, hash);
            }
        }
    }

    /// Forgets every block that no request holds.
    pub(crate) fn clear(&mut self) {
        for hash in std::mem::take(&mut self.idle).into_values() {
            self.kept.remove(&hash);
        }
    }

    /// Blocks that requests hold.
    pub(crate) fn used(&self) -> usize {
        self.unnamed + self.kept.len() - self.idle.len()
    }

    /// Blocks that can be found, held or not.
    pub(crate) fn kept(&self) -> usize {
        self.kept.len()
    }

    fn hold(&mut self, hash: BlockHash) {
        let kept = self.kept.entry(hash).or_insert(Kept {
            holders: 0,
            idle_since: 0,
        });
        if kept.holders == 0 {
            self.idle.remove(&kept.idle_since);
        }
        kept.holders += 1;
    }
}

#[cfg(test)]
#[path = "prefix_cache_tests.rs"]
mod tests;
