//! The prefix cache against hand-made cases and against a model without any index.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;
use crate::blocks::plain_chain;
use crate::tokens::TokenId;

fn blocks_of(tokens: &[TokenId]) -> Vec<Arc<Block>> {
    let mut chain = plain_chain(4);
    tokens
        .iter()
        .filter_map(|token| chain.push(*token))
        .collect()
}

/// Leases, computes all whole blocks and gives back: one request from start to end.
fn run(cache: &mut PrefixCache, blocks: &[Arc<Block>]) -> usize {
    let mut lease = cache.lease(blocks, blocks.len() + 1).expect("room");
    let found = lease.named();
    for block in &blocks[found..] {
        cache.publish(&mut lease, block);
    }
    cache.release(&mut lease);
    found
}

#[test]
fn the_least_recently_used_sequence_goes_first_and_from_its_end() {
    let mut cache = PrefixCache::new(6, false);
    let (old, new) = (blocks_of(&[1, 2, 3, 4, 5, 6, 7, 8]), blocks_of(&[8; 8]));
    run(&mut cache, &old);
    run(&mut cache, &new);
    // 4 of 6 blocks are kept; this one needs 3 and takes old's last.
    run(&mut cache, &blocks_of(&[3; 8]));
    assert_eq!(run(&mut cache, &old[..1]), 1);
    assert_eq!(run(&mut cache, &new), 2);
}

#[test]
fn held_blocks_are_never_evicted_and_the_next_request_must_wait() {
    let mut cache = PrefixCache::new(4, false);
    let mut held = cache.lease(&[], 3).expect("room");
    assert!(cache.lease(&[], 2).is_none());
    assert_eq!(cache.used(), 3);
    cache.release(&mut held);
    assert!(cache.lease(&[], 2).is_some());
}

#[test]
fn clearing_keeps_what_is_held() {
    let mut cache = PrefixCache::new(8, false);
    let blocks = blocks_of(&[1, 2, 3, 4]);
    run(&mut cache, &blocks_of(&[5; 8]));
    let mut held = cache.lease(&blocks, 2).expect("room");
    cache.publish(&mut held, &blocks[0]);
    cache.clear();
    assert_eq!((cache.kept(), cache.used()), (1, 2));
}

#[test]
fn a_full_report_tells_of_hits_as_if_they_were_new() {
    let mut cache = PrefixCache::new(8, true);
    let blocks = blocks_of(&[1, 2, 3, 4, 5, 6, 7, 8]);
    run(&mut cache, &blocks);
    let stored: Vec<_> = blocks.iter().cloned().map(CacheEvent::Stored).collect();
    assert_eq!(cache.take_events(), stored);
    run(&mut cache, &blocks);
    assert_eq!(cache.take_events(), stored);
    assert_eq!(cache.blocks(), blocks);
}

/// The dumbest correct cache: a list, searched from end to end for everything.
#[derive(Default)]
struct Model {
    /// Block, holders, when it was last given back.
    blocks: Vec<(BlockHash, usize, u64)>,
    unnamed: usize,
    clock: u64,
}

impl Model {
    fn at(&self, hash: BlockHash) -> Option<usize> {
        self.blocks.iter().position(|block| block.0 == hash)
    }

    fn used(&self) -> usize {
        self.unnamed + self.blocks.iter().filter(|block| block.1 > 0).count()
    }

    fn lease(&mut self, prefix: &[Arc<Block>], total: usize, capacity: usize) -> Option<usize> {
        let before = self.blocks.clone();
        let found = prefix
            .iter()
            .take_while(|block| self.at(block.hash).is_some())
            .count();
        for block in &prefix[..found] {
            let at = self.at(block.hash)?;
            self.blocks[at].1 += 1;
        }
        if self.used() + total - found > capacity {
            self.blocks = before;
            return None;
        }
        self.unnamed += total - found;
        while self.blocks.len() + self.unnamed > capacity {
            let idle = self.blocks.iter().filter(|block| block.1 == 0);
            let oldest = idle.min_by_key(|block| block.2)?.0;
            self.blocks.retain(|block| block.0 != oldest);
        }
        Some(found)
    }

    fn publish(&mut self, hash: BlockHash) {
        self.unnamed -= 1;
        match self.at(hash) {
            Some(at) => self.blocks[at].1 += 1,
            None => self.blocks.push((hash, 1, 0)),
        }
    }

    fn release(&mut self, named: &[BlockHash], unnamed: usize) {
        self.unnamed -= unnamed;
        for hash in named.iter().rev() {
            self.clock += 1;
            let at = self.at(*hash).expect("a held block is kept");
            self.blocks[at].1 -= 1;
            self.blocks[at].2 = self.clock;
        }
    }
}

#[derive(Debug, Clone)]
enum Op {
    /// Starts a request for a sequence of few possible tokens.
    Start(Vec<TokenId>),
    /// Computes the next block of the nth running request.
    Compute(usize),
    /// Ends the nth running request.
    End(usize),
    Clear,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => prop::collection::vec(0..2u32, 1..7).prop_map(Op::Start),
        6 => any::<usize>().prop_map(Op::Compute),
        3 => any::<usize>().prop_map(Op::End),
        1 => Just(Op::Clear),
    ]
}

struct Request {
    blocks: Vec<Arc<Block>>,
    lease: Lease,
}

proptest! {
    #[test]
    fn the_cache_does_what_a_list_would(capacity in 4..14usize, ops in prop::collection::vec(op(), 1..120)) {
        let (mut cache, mut model) = (PrefixCache::new(capacity, false), Model::default());
        let mut running: Vec<Request> = Vec::new();
        let mut told = HashSet::new();
        for op in ops {
            match op {
                Op::Start(tokens) => {
                    let mut chain = plain_chain(1);
                    let blocks: Vec<_> = tokens.iter().filter_map(|token| chain.push(*token)).collect();
                    let prefix = &blocks[..blocks.len() - 1];
                    let lease = cache.lease(prefix, blocks.len());
                    let found = model.lease(prefix, blocks.len(), capacity);
                    prop_assert_eq!(lease.as_ref().map(Lease::named), found);
                    running.extend(lease.map(|lease| Request { blocks, lease }));
                }
                Op::Compute(nth) if !running.is_empty() => {
                    let at = nth % running.len();
                    let request = &mut running[at];
                    if let Some(block) = request.blocks.get(request.lease.named()) {
                        model.publish(block.hash);
                        cache.publish(&mut request.lease, block);
                    }
                }
                Op::End(nth) if !running.is_empty() => {
                    let mut request = running.swap_remove(nth % running.len());
                    model.release(&request.lease.named, request.lease.unnamed);
                    cache.release(&mut request.lease);
                }
                Op::Clear => {
                    model.blocks.retain(|block| block.1 > 0);
                    cache.clear();
                }
                Op::Compute(_) | Op::End(_) => {}
            }
            prop_assert_eq!((cache.used(), cache.kept()), (model.used(), model.blocks.len()));
            prop_assert!(cache.kept() + cache.unnamed <= capacity);
            for event in cache.take_events() {
                match event {
                    CacheEvent::Stored(block) => {
                        prop_assert!(block.parent.is_none_or(|parent| told.contains(&parent)));
                        prop_assert!(told.insert(block.hash), "stored twice");
                    }
                    CacheEvent::Removed(hash) => prop_assert!(told.remove(&hash), "never stored"),
                    CacheEvent::Cleared => told.clear(),
                }
            }
            let kept: HashSet<_> = model.blocks.iter().map(|block| block.0).collect();
            prop_assert_eq!(&told, &kept);
        }
    }
}
