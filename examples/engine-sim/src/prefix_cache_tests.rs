//! The prefix cache against hand-made cases and against a model without any index.

use proptest::prelude::*;

use super::*;

fn names(tokens: &[TokenId]) -> Vec<BlockHash> {
    let mut chain = BlockChain::new("m", "", 4);
    tokens
        .iter()
        .filter_map(|token| chain.push(*token))
        .collect()
}

/// Leases, computes all whole blocks and gives back: one request from start to end.
fn run(cache: &mut PrefixCache, blocks: &[BlockHash]) -> usize {
    let mut lease = cache.lease(blocks, blocks.len() + 1).expect("room");
    let found = lease.named();
    for hash in &blocks[found..] {
        cache.publish(&mut lease, *hash);
    }
    cache.release(&mut lease);
    found
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
fn models_and_salts_share_nothing() {
    let first = |model, salt| BlockChain::new(model, salt, 1).push(7);
    assert_ne!(first("a", ""), first("b", ""));
    assert_ne!(first("a", ""), first("a", "s"));
    assert_eq!(first("a", "s"), first("a", "s"));
}

#[test]
fn the_least_recently_used_sequence_goes_first_and_from_its_end() {
    let mut cache = PrefixCache::new(6);
    let (old, new) = (names(&[1, 2, 3, 4, 5, 6, 7, 8]), names(&[8; 8]));
    run(&mut cache, &old);
    run(&mut cache, &new);
    // 4 of 6 blocks are kept; this one needs 3 and takes old's last.
    run(&mut cache, &names(&[3; 8]));
    assert_eq!(run(&mut cache, &old[..1]), 1);
    assert_eq!(run(&mut cache, &new), 2);
}

#[test]
fn held_blocks_are_never_evicted_and_the_next_request_must_wait() {
    let mut cache = PrefixCache::new(4);
    let mut held = cache.lease(&[], 3).expect("room");
    assert!(cache.lease(&[], 2).is_none());
    assert_eq!(cache.used(), 3);
    cache.release(&mut held);
    assert!(cache.lease(&[], 2).is_some());
}

#[test]
fn clearing_keeps_what_is_held() {
    let mut cache = PrefixCache::new(8);
    let blocks = names(&[1, 2, 3, 4]);
    run(&mut cache, &names(&[5; 8]));
    let mut held = cache.lease(&blocks, 2).expect("room");
    cache.publish(&mut held, blocks[0]);
    cache.clear();
    assert_eq!((cache.kept(), cache.used()), (1, 2));
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

    fn lease(&mut self, prefix: &[BlockHash], total: usize, capacity: usize) -> Option<usize> {
        let before = self.blocks.clone();
        let found = prefix
            .iter()
            .take_while(|hash| self.at(**hash).is_some())
            .count();
        for hash in &prefix[..found] {
            let at = self.at(*hash)?;
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
    blocks: Vec<BlockHash>,
    lease: Lease,
}

proptest! {
    #[test]
    fn the_cache_does_what_a_list_would(capacity in 4..14usize, ops in prop::collection::vec(op(), 1..120)) {
        let (mut cache, mut model) = (PrefixCache::new(capacity), Model::default());
        let mut running: Vec<Request> = Vec::new();
        for op in ops {
            match op {
                Op::Start(tokens) => {
                    let mut chain = BlockChain::new("m", "", 1);
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
                    if let Some(hash) = request.blocks.get(request.lease.named()) {
                        model.publish(*hash);
                        cache.publish(&mut request.lease, *hash);
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
        }
    }
}
