//! The prefix cache: whole blocks of tokens under chained hashes, the least recently used going
//! first.
//!
//! What it keeps is at any time what its events, one after another, amount to. Who is not interested
//! in what blocks have in them may keep bare hashes.
//!
//! Invariants: blocks in use and blocks kept never exceed the capacity, a block that some request
//! holds is never evicted, and a block is kept only while its parent is.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::blocks::{Block, BlockHash};

/// A block, by its hash.
pub trait Named: Clone {
    /// A hash of its tokens and of all before it.
    fn hash(&self) -> BlockHash;
}

impl Named for BlockHash {
    fn hash(&self) -> BlockHash {
        *self
    }
}

impl Named for Arc<Block> {
    fn hash(&self) -> BlockHash {
        self.hash
    }
}

/// What happened to blocks that can be found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CacheEvent<B = Arc<Block>> {
    /// A block can be found from now on.
    Stored(B),
    /// A block cannot be found any more.
    Removed(BlockHash),
    /// No block can be found any more.
    Cleared,
}

/// The blocks that one request holds. Must go back through [`BlockCache::release`].
#[derive(Debug, Default)]
pub struct Lease {
    /// Blocks with a name, in the sequence's order.
    named: Vec<BlockHash>,
    /// Blocks that are still to be computed.
    unnamed: usize,
}

impl Lease {
    /// Blocks with a name: at first those that were found, then also those computed since.
    pub fn named(&self) -> usize {
        self.named.len()
    }
}

#[derive(Debug)]
struct Kept<B> {
    block: B,
    holders: usize,
    /// Its place among the idle blocks; meaningful only without holders.
    idle_since: u64,
}

/// A fixed number of blocks, shared by all requests of an engine.
#[derive(Debug)]
pub struct BlockCache<B> {
    capacity: usize,
    kept: HashMap<BlockHash, Kept<B>>,
    /// Kept blocks that no request holds, in the order in which they go.
    idle: BTreeMap<u64, BlockHash>,
    unnamed: usize,
    clock: u64,
    /// Whether blocks that are found count as stored once more.
    full_report: bool,
    events: Vec<CacheEvent<B>>,
}

/// One of blocks with all that is in them.
pub(crate) type PrefixCache = BlockCache<Arc<Block>>;

impl<B: Named> BlockCache<B> {
    /// An empty cache of `capacity` blocks. With `full_report`, blocks that a request finds are
    /// reported as stored once more.
    pub fn new(capacity: usize, full_report: bool) -> Self {
        Self {
            full_report,
            events: Vec::new(),
            capacity,
            kept: HashMap::new(),
            idle: BTreeMap::new(),
            unnamed: 0,
            clock: 0,
        }
    }

    /// Leases `total` blocks for a sequence of which `prefix` may be found: as many leading blocks
    /// of it as are kept, and room for the rest. `None`, and no change, while there is no room.
    pub fn lease(&mut self, prefix: &[B], total: usize) -> Option<Lease> {
        let found = prefix
            .iter()
            .take_while(|block| self.kept.contains_key(&block.hash()));
        let found: Vec<B> = found.cloned().collect();
        let unnamed = total.saturating_sub(found.len());
        let woken = found
            .iter()
            .filter(|block| self.kept[&block.hash()].holders == 0)
            .count();
        if self.used() + woken + unnamed > self.capacity {
            return None;
        }
        for block in &found {
            self.hold(block);
            if self.full_report {
                self.events.push(CacheEvent::Stored(block.clone()));
            }
        }
        while self.kept.len() + self.unnamed + unnamed > self.capacity {
            let (_, evicted) = self.idle.pop_first()?;
            self.kept.remove(&evicted);
            self.events.push(CacheEvent::Removed(evicted));
        }
        self.unnamed += unnamed;
        Some(Lease {
            named: found.iter().map(Named::hash).collect(),
            unnamed,
        })
    }

    /// Names the next block of a lease, now that it is computed; others can find it from here on.
    /// If another request computed it too, the lease shares that copy and frees its own.
    pub fn publish(&mut self, lease: &mut Lease, block: &B) {
        if lease.unnamed == 0 {
            return;
        }
        lease.unnamed -= 1;
        self.unnamed -= 1;
        lease.named.push(block.hash());
        self.hold(block);
    }

    /// Takes a lease back. Its named blocks stay, the last of the sequence going first.
    pub fn release(&mut self, lease: &mut Lease) {
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
    pub fn clear(&mut self) {
        let idle = std::mem::take(&mut self.idle);
        for hash in idle.values() {
            self.kept.remove(hash);
        }
        if self.kept.is_empty() {
            self.events.push(CacheEvent::Cleared);
        } else {
            // What is held stays, and must not be forgotten by those who listen.
            let removed = idle.into_values().map(CacheEvent::Removed);
            self.events.extend(removed);
        }
    }

    /// What happened since this was asked the last time.
    pub fn take_events(&mut self) -> Vec<CacheEvent<B>> {
        std::mem::take(&mut self.events)
    }

    /// Whether a block can be found.
    pub fn contains(&self, block: BlockHash) -> bool {
        self.kept.contains_key(&block)
    }

    /// Blocks that requests hold.
    pub fn used(&self) -> usize {
        self.unnamed + self.kept.len() - self.idle.len()
    }

    /// Blocks that can be found, held or not.
    pub fn kept(&self) -> usize {
        self.kept.len()
    }

    fn hold(&mut self, block: &B) {
        let kept = match self.kept.entry(block.hash()) {
            Entry::Occupied(kept) => kept.into_mut(),
            Entry::Vacant(place) => {
                self.events.push(CacheEvent::Stored(block.clone()));
                place.insert(Kept {
                    block: block.clone(),
                    holders: 0,
                    idle_since: 0,
                })
            }
        };
        if kept.holders == 0 {
            self.idle.remove(&kept.idle_since);
        }
        kept.holders += 1;
    }
}

impl PrefixCache {
    /// All blocks that can be found, parents first.
    pub(crate) fn blocks(&self) -> Vec<Arc<Block>> {
        let kept = self.kept.values();
        let mut blocks: Vec<_> = kept.map(|kept| Arc::clone(&kept.block)).collect();
        blocks.sort_by_key(|block| (block.depth, block.hash));
        blocks
    }
}

#[cfg(test)]
#[path = "prefix_cache_tests.rs"]
mod tests;
