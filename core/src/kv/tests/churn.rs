//! The index while engines come and go.

use super::super::feed::{Change, Cursor, ReplicaId};
use super::super::identity::{Chain, Seed};
use super::super::index::Index;
use super::super::payload::Event;
use super::{batch, stored, tokens};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SEED: Seed = Seed(7);
/// No engine has as many blocks.
const NAMES: u64 = 1_000;

/// An engine; its number is in the names of all of its blocks, and no two have the same.
struct Engine {
    number: u64,
    ids: Vec<ReplicaId>,
}

/// The identity of the block of a name, at the beginning of a prompt.
fn identity(name: u64) -> u64 {
    let mut bytes: Vec<u8> = tokens(name)
        .into_iter()
        .flat_map(u32::to_le_bytes)
        .collect();
    // The block with the last token does not count, so there is one more.
    bytes.extend([0; 4]);
    Chain::new(SEED, None, None, &bytes, 4).next().unwrap().0
}

/// A reader of the feed.
#[derive(Default)]
struct Reader {
    cursor: Option<Cursor>,
    blocks: BTreeMap<u16, BTreeSet<u64>>,
}

impl Reader {
    /// Reads one page. Whether there is more.
    fn read(&mut self, index: &Index, page: usize) -> bool {
        let changes = index.changes(self.cursor, page);
        if changes.anew {
            self.blocks.clear();
        }
        let mut bytes = &changes.bytes[..];
        while let Some(change) = Change::read(&mut bytes) {
            match change {
                Change::Clear(ReplicaId(id)) => {
                    self.blocks.remove(&id);
                }
                Change::Put(ReplicaId(id), block, media) if media.is_empty() => {
                    self.blocks.entry(id).or_default().remove(&block.0);
                }
                Change::Put(ReplicaId(id), block, _) => {
                    self.blocks.entry(id).or_default().insert(block.0);
                }
            }
        }
        self.cursor = Some(changes.cursor);
        changes.more
    }
}

#[derive(Clone, Debug)]
enum Step {
    Come(u16),
    Go(usize),
    Store {
        engine: usize,
        rank: usize,
        block: u64,
    },
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        2 => (1..4_u16).prop_map(Step::Come),
        2 => any::<usize>().prop_map(Step::Go),
        6 => (any::<usize>(), any::<usize>(), 0..NAMES).prop_map(|(engine, rank, block)| Step::Store { engine, rank, block }),
        6 => Just(Step::Read),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    /// However small its pages are, and whatever happens while it reads them.
    #[test]
    fn a_reader_that_knows_the_present_takes_no_block_for_one_of_another_engine(
        steps in steps(), page in 1..120_usize,
    ) {
        let mut index = Index::new(SEED, 1);
        let mut engines: Vec<Engine> = Vec::new();
        let mut owners: BTreeMap<u64, u64> = BTreeMap::new();
        let (mut came, mut most) = (0, BTreeMap::<u16, usize>::new());
        let mut reader = Reader::default();
        for step in steps.into_iter().chain([Step::Read]) {
            match step {
                Step::Come(ranks) => {
                    came += 1;
                    let ids = index.add_ranks(ranks, 50).unwrap();
                    prop_assert!(ids.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0));
                    prop_assert!(ids.iter().all(|&id| index.blocks(id) == 0));
                    engines.push(Engine { number: came, ids });
                    let there = engines.iter().filter(|engine| engine.ids.len() == usize::from(ranks));
                    let most = most.entry(ranks).or_default();
                    *most = (*most).max(there.count());
                }
                Step::Go(_) | Step::Store { .. } if engines.is_empty() => {}
                Step::Go(place) => {
                    let engine = engines.swap_remove(place % engines.len());
                    index.remove(&engine.ids);
                }
                Step::Store { engine, rank, block } => {
                    let engine = &engines[engine % engines.len()];
                    let name = engine.number * NAMES + block;
                    owners.insert(identity(name), engine.number);
                    let id = engine.ids[rank % engine.ids.len()];
                    index.apply(id, &batch([Event::Stored(stored(&[name], None))]));
                }
                Step::Read => if !reader.read(&index, page) {
                    let of: BTreeMap<u16, &Engine> = engines
                        .iter()
                        .flat_map(|engine| engine.ids.iter().map(move |id| (id.0, engine)))
                        .collect();
                    prop_assert_eq!(of.len(), engines.iter().map(|engine| engine.ids.len()).sum::<usize>());
                    for (id, blocks) in reader.blocks.iter().filter(|(_, blocks)| !blocks.is_empty()) {
                        let number = of.get(id).map(|engine| engine.number);
                        prop_assert!(blocks.iter().all(|block| owners.get(block).copied() == number));
                    }
                    for (id, _) in of {
                        let known = reader.blocks.get(&id).map_or(0, BTreeSet::len);
                        prop_assert_eq!(known, index.blocks(ReplicaId(id)));
                    }
                },
            }
        }
        let bound: usize = most.iter().map(|(&ranks, most)| usize::from(ranks) * most).sum();
        prop_assert!(index.numbers() <= bound, "{} of {}", index.numbers(), bound);
    }
}

#[test]
fn who_has_gone_is_told_nothing_of_any_more() {
    let mut index = Index::new(SEED, 1);
    let (gone, other) = (index.add_ranks(2, 9).unwrap(), index.add(9).unwrap());
    index.apply(gone[1], &batch([Event::Stored(stored(&[1], None))]));
    index.remove(&gone);
    // What comes late is lost, and so is who goes twice.
    index.apply(gone[1], &batch([Event::Stored(stored(&[2], None))]));
    index.clear(gone[0]);
    index.remove(&gone);
    assert_eq!((index.blocks(gone[1]), index.block_size(gone[1])), (0, 0));
    let mut reader = Reader::default();
    while reader.read(&index, 100) {}
    assert_eq!(reader.blocks, BTreeMap::new());
    // Others of as many ranks get the numbers, and nobody has them twice.
    assert_eq!(index.add_ranks(3, 9).unwrap()[0], ReplicaId(3));
    assert_eq!(index.add_ranks(2, 9).unwrap(), gone);
    assert_eq!(index.add_ranks(2, 9).unwrap()[0], ReplicaId(6));
    assert_eq!(other, ReplicaId(2));
}

#[test]
fn there_are_numbers_for_so_many_ranks_and_no_more() {
    let mut index = Index::new(SEED, 1);
    let mut all = Vec::new();
    while let Some(ids) = index.add_ranks(256, 1) {
        all.push(ids);
    }
    assert_eq!((all.len(), index.add(1)), (256, None));
    let last = all.pop().unwrap();
    assert_eq!(last.last(), Some(&ReplicaId(u16::MAX)));
    index.apply(last[255], &batch([Event::Stored(stored(&[1], None))]));
    assert_eq!(index.changes(None, 100).bytes.len(), 11);
    index.remove(&last);
    assert_eq!(index.changes(None, 100).bytes.len(), 0);
    assert_eq!(index.add_ranks(256, 1), Some(last));
}
