//! The index against the dumbest correct model: a list of copies.

use super::super::feed::{Change, ReplicaId};
use super::super::identity::{Chain, Identity, Seed};
use super::super::index::{Applied, Index};
use super::super::payload::{BlockHash, Event, ExtraKeys, Removed, Stored};
use super::super::{Media, Medium};
use super::{batch, removed, stored, tokens};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const SEED: Seed = Seed(99);

/// What a reader that begins now is told, by replica.
fn resident(index: &Index) -> BTreeMap<u16, BTreeMap<u64, u8>> {
    let mut all: BTreeMap<u16, BTreeMap<u64, u8>> = BTreeMap::new();
    let changes = index.changes(None, usize::MAX);
    let mut bytes = &changes.bytes[..];
    while let Some(change) = Change::read(&mut bytes) {
        if let Change::Put(ReplicaId(replica), Identity(block), media) = change {
            all.entry(replica).or_default().insert(block, media.bits());
        }
    }
    all
}

/// The identities of a prompt of these blocks.
fn chain(names: &[u64], lora: Option<&str>, salt: Option<&str>) -> Vec<u64> {
    let mut bytes: Vec<u8> = names
        .iter()
        .flat_map(|&name| tokens(name))
        .flat_map(u32::to_le_bytes)
        .collect();
    // The block with the last token does not count, so there is one more.
    bytes.extend([0; 4]);
    Chain::new(SEED, lora, salt, &bytes, 4)
        .map(|Identity(block)| block)
        .collect()
}

fn index() -> (Index, ReplicaId) {
    let mut index = Index::new(SEED, 1);
    let replica = index.add(1_000).unwrap();
    (index, replica)
}

fn bits(media: &[Medium]) -> u8 {
    media
        .iter()
        .fold(Media::NONE, |media, &medium| media.with(medium))
        .bits()
}

/// The prompt's leading blocks that the only replica has.
fn matched(index: &Index, chain: &[u64]) -> usize {
    let resident = resident(index).remove(&0).unwrap_or_default();
    chain
        .iter()
        .take_while(|block| resident.contains_key(block))
        .count()
}

#[test]
fn a_continuation_is_known_through_its_parent() {
    let (mut index, replica) = index();
    index.apply(replica, &batch([Event::Stored(stored(&[1, 2], None))]));
    index.apply(replica, &batch([Event::Stored(stored(&[3], Some(2)))]));
    assert_eq!(matched(&index, &chain(&[1, 2, 3], None, None)), 3);
    // The same blocks after others are others.
    assert_eq!(matched(&index, &chain(&[2, 3], None, None)), 0);
}

#[test]
fn what_follows_the_unknown_is_an_orphan_and_not_known() {
    let (mut index, replica) = index();
    let applied = index.apply(replica, &batch([Event::Stored(stored(&[3, 4], Some(2)))]));
    assert_eq!(
        applied,
        Applied {
            orphans: 2,
            ..Applied::default()
        }
    );
    assert_eq!(index.blocks(replica), 0);
}

#[test]
fn a_block_is_there_until_its_last_copy_is_removed() {
    let (mut index, replica) = index();
    let store = batch([Event::Stored(stored(&[1], None))]);
    let remove = batch([Event::Removed(removed(&[1]))]);
    index.apply(replica, &store);
    index.apply(replica, &store);
    index.apply(replica, &remove);
    assert_eq!(index.blocks(replica), 1);
    index.apply(replica, &remove);
    assert_eq!(index.blocks(replica), 0);
    // One removal more does not count against the next copy.
    index.apply(replica, &remove);
    index.apply(replica, &store);
    assert_eq!(index.blocks(replica), 1);
}

#[test]
fn a_block_can_be_announced_elsewhere_without_its_tokens_also_after_it_was_removed() {
    let (mut index, replica) = index();
    index.apply(
        replica,
        &batch([
            Event::Stored(stored(&[1], None)),
            Event::Removed(removed(&[1])),
        ]),
    );
    let offloaded = Stored {
        token_ids: Vec::new(),
        block_size: 0,
        medium: Some("CPU"),
        ..stored(&[1, 7], None)
    };
    let applied = index.apply(replica, &batch([Event::Stored(offloaded)]));
    assert_eq!((applied.stored, applied.orphans), (1, 1));
    let [first, ..] = chain(&[1], None, None)[..] else {
        panic!()
    };
    assert_eq!(
        resident(&index)[&0],
        BTreeMap::from([(first, bits(&[Medium::Cpu]))])
    );
    // Its copy in one medium is not that in another.
    index.apply(replica, &batch([Event::Removed(removed(&[1]))]));
    assert_eq!(index.blocks(replica), 1);
    index.apply(
        replica,
        &batch([Event::Removed(Removed {
            medium: Some("CPU"),
            ..removed(&[1])
        })]),
    );
    assert_eq!(index.blocks(replica), 0);
}

#[test]
fn adapters_salts_and_images_keep_equal_tokens_apart() {
    let keys = |keys: &[ExtraKeys]| Some(keys.to_vec());
    let (mut index, replica) = index();
    let adapter = Stored {
        lora_name: Some("sql"),
        ..stored(&[1], None)
    };
    // Engines of today tell the adapter's name once more; a salt is in the first block alone.
    let repeated = Stored {
        lora_name: Some("sql"),
        extra_keys: keys(&[ExtraKeys::of_salt("sql"), ExtraKeys::of_salt("sql")]),
        ..stored(&[11, 12], None)
    };
    // The engine has other names for these.
    let salted = Stored {
        hashes: vec![BlockHash::Int(41), BlockHash::Int(42)],
        extra_keys: keys(&[ExtraKeys::of_salt("s"), ExtraKeys::default()]),
        ..stored(&[1, 2], None)
    };
    // An image in the second block, by a key that no request can have here.
    let image = Stored {
        extra_keys: keys(&[ExtraKeys::default(), ExtraKeys::of_salt("image")]),
        ..stored(&[21, 22], None)
    };
    let numbered = Stored {
        lora_id: Some(3),
        ..stored(&[31], None)
    };
    for stored in [adapter, repeated, salted, image, numbered] {
        index.apply(replica, &batch([Event::Stored(stored)]));
    }
    for (names, lora, salt, expected) in [
        (&[1][..], Some("sql"), None, 1),
        (&[11, 12], Some("sql"), None, 2),
        (&[11, 12], None, None, 0),
        (&[1, 2], None, Some("s"), 2),
        (&[1, 2], None, None, 0),
        (&[1, 2], None, Some(""), 0),
        (&[1, 2], Some("sql"), Some("s"), 0),
        (&[21, 22], None, None, 1),
        (&[31], None, None, 0),
        (&[31], Some("3"), None, 0),
    ] {
        let chain = chain(names, lora, salt);
        assert_eq!(
            matched(&index, &chain),
            expected,
            "{names:?} {lora:?} {salt:?}"
        );
    }
}

#[test]
fn of_several_groups_of_layers_the_one_that_sees_the_whole_prompt_counts() {
    let of = |group, kind, names: &[u64]| {
        Event::Stored(Stored {
            group_idx: Some(group),
            spec_kind: Some(kind),
            ..stored(names, None)
        })
    };
    let gone = |group, names: &[u64]| {
        Event::Removed(Removed {
            group_idx: Some(group),
            ..removed(names)
        })
    };
    let (mut index, replica) = index();
    index.apply(
        replica,
        &batch([
            of(0, "sliding_window", &[5]),
            of(1, "full_attention", &[1]),
            of(2, "full_attention", &[1]),
            gone(0, &[1]),
            gone(2, &[1]),
        ]),
    );
    assert_eq!(matched(&index, &chain(&[1], None, None)), 1);
    assert_eq!(index.blocks(replica), 1);
    index.apply(replica, &batch([gone(1, &[1])]));
    assert_eq!(index.blocks(replica), 0);
}

#[test]
fn the_size_of_a_block_is_that_of_the_whole_ones() {
    let (mut index, replica) = index();
    assert_eq!(index.block_size(replica), 0);
    let partial = Stored {
        block_size: 2,
        token_ids: vec![1, 2],
        ..stored(&[9], None)
    };
    index.apply(replica, &batch([Event::Stored(partial)]));
    index.apply(replica, &batch([Event::Stored(stored(&[1], None))]));
    assert_eq!(index.block_size(replica), 4);
}

#[test]
fn the_block_with_the_last_token_does_not_count() {
    let of = |count: usize| Chain::new(SEED, None, None, &vec![0; count * 4], 4).blocks();
    assert_eq!([0, 1, 4, 5, 8, 9].map(of), [0, 0, 0, 1, 1, 2]);
    assert_eq!(Chain::new(SEED, None, None, &[0; 64], 0).count(), 0);
}

#[test]
fn no_more_blocks_are_kept_than_are_to_be() {
    let mut index = Index::new(SEED, 1);
    let replica = index.add(100).unwrap();
    let mut evicted = 0;
    for name in 0..1_000 {
        evicted += index
            .apply(replica, &batch([Event::Stored(stored(&[name], None))]))
            .evicted;
        assert!(index.blocks(replica) <= 100);
    }
    assert_eq!((index.blocks(replica), evicted), (100, 900));
    // Those that were stored last are there, and an old one that was stored again.
    assert_eq!(matched(&index, &chain(&[999], None, None)), 1);
    index.apply(replica, &batch([Event::Stored(stored(&[900], None))]));
    index.apply(replica, &batch([Event::Stored(stored(&[2_000], None))]));
    assert_eq!(matched(&index, &chain(&[900], None, None)), 1);
    assert_eq!(matched(&index, &chain(&[901], None, None)), 0);
}

/// What an engine may do. Names have places in a fixed set of prompts that share their beginnings.
#[derive(Clone, Debug)]
enum Step {
    Store {
        rank: u16,
        prompt: u64,
        from: u64,
        count: u64,
        cpu: bool,
    },
    Remove {
        rank: u16,
        prompt: u64,
        place: u64,
        cpu: bool,
    },
    Clear {
        rank: u16,
    },
}

/// The name of a block of a prompt: prompts are the same up to their third block.
fn name(prompt: u64, place: u64) -> u64 {
    if place < 3 {
        place + 1
    } else {
        100 * (prompt + 1) + place
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        6 => (0..2u16, 0..3u64, 0..6u64, 1..4u64, any::<bool>()).prop_map(|(rank, prompt, from, count, cpu)| Step::Store { rank, prompt, from, count, cpu }),
        5 => (0..2u16, 0..3u64, 0..8u64, any::<bool>()).prop_map(|(rank, prompt, place, cpu)| Step::Remove { rank, prompt, place, cpu }),
        1 => (0..2u16).prop_map(|rank| Step::Clear { rank }),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #[test]
    fn the_index_knows_what_a_list_of_copies_knows(steps in steps(), limit in prop_oneof![Just(1_000_usize), 1..20usize]) {
        let mut index = Index::new(SEED, 1);
        let replicas = [index.add(limit).unwrap(), index.add(limit).unwrap()];
        // Copies by rank, block and medium, and which blocks have ever been told of.
        let mut copies: BTreeMap<(u16, u64, bool), u32> = BTreeMap::new();
        let mut told: BTreeSet<(u16, u64)> = BTreeSet::new();
        for step in steps {
            match step {
                Step::Store { rank, prompt, from, count, cpu } => {
                    let names: Vec<u64> = (from..from + count).map(|place| name(prompt, place)).collect();
                    let parent = from.checked_sub(1).map(|place| name(prompt, place));
                    let medium = Some(if cpu { "CPU" } else { "GPU" });
                    let event = Stored { medium, ..stored(&names, parent) };
                    index.apply(replicas[usize::from(rank)], &batch([Event::Stored(event)]));
                    if parent.is_none_or(|parent| told.contains(&(rank, parent))) {
                        for name in names {
                            told.insert((rank, name));
                            *copies.entry((rank, name, cpu)).or_default() += 1;
                        }
                    }
                }
                Step::Remove { rank, prompt, place, cpu } => {
                    let medium = Some(if cpu { "CPU" } else { "GPU" });
                    let hash = BlockHash::Int(name(prompt, place));
                    let event = Removed { hashes: vec![hash], medium, group_idx: None };
                    index.apply(replicas[usize::from(rank)], &batch([Event::Removed(event)]));
                    if let Some(count) = copies.get_mut(&(rank, name(prompt, place), cpu)) {
                        *count = count.saturating_sub(1);
                    }
                }
                Step::Clear { rank } => {
                    index.clear(replicas[usize::from(rank)]);
                    copies.retain(|&(of, ..), _| of != rank);
                    told.retain(|&(of, _)| of != rank);
                }
            }
            let mut expected: BTreeMap<u16, BTreeMap<u64, u8>> = BTreeMap::new();
            for prompt in 0..3 {
                let names: Vec<u64> = (0..9).map(|place| name(prompt, place)).collect();
                for (name, block) in names.iter().zip(chain(&names, None, None)) {
                    for rank in 0..2u16 {
                        let has = |cpu| copies.get(&(rank, *name, cpu)).is_some_and(|&count| count > 0);
                        let media: Vec<_> = [(false, Medium::Gpu), (true, Medium::Cpu)]
                            .into_iter()
                            .filter(|&(cpu, _)| has(cpu))
                            .map(|(_, medium)| medium)
                            .collect();
                        if !media.is_empty() {
                            expected.entry(rank).or_default().insert(block, bits(&media));
                        }
                    }
                }
            }
            let known = resident(&index);
            if limit == 1_000 {
                prop_assert_eq!(&known, &expected);
            }
            // With less room it knows less, and never of a block that is not there.
            for (rank, blocks) in &known {
                prop_assert!(blocks.len() <= limit);
                for (block, media) in blocks {
                    let there = expected.get(rank).and_then(|blocks| blocks.get(block)).copied().unwrap_or(0);
                    prop_assert_eq!(media & !there, 0);
                }
            }
        }
    }
}

#[test]
fn what_is_told_without_a_group_is_told_of_all_of_them() {
    let (mut index, replica) = index();
    let on_gpu = Stored {
        group_idx: Some(0),
        spec_kind: Some("full_attention"),
        ..stored(&[1], None)
    };
    let offloaded = Stored {
        token_ids: Vec::new(),
        block_size: 0,
        medium: Some("CPU"),
        ..stored(&[1], None)
    };
    index.apply(
        replica,
        &batch([Event::Stored(on_gpu), Event::Stored(offloaded)]),
    );
    let [first, ..] = chain(&[1], None, None)[..] else {
        panic!()
    };
    let both = bits(&[Medium::Gpu, Medium::Cpu]);
    assert_eq!(resident(&index)[&0], BTreeMap::from([(first, both)]));
    index.apply(replica, &batch([Event::Removed(removed(&[1]))]));
    assert_eq!(
        resident(&index)[&0],
        BTreeMap::from([(first, bits(&[Medium::Cpu]))])
    );
}
