//! What a reader of the feed comes to know.

use super::super::feed::{
    Change, Cursor, LmCacheState, LoadState, Page, ReplicaId, ReplicaState, TargetState,
};
use super::super::identity::{Identity, Seed};
use super::super::index::Index;
use super::super::members::{Member, Members};
use super::super::payload::Event;
use super::super::residents::Residents;
use super::super::{Media, Medium};
use super::{batch, removed, stored};
use proptest::prelude::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Reads until nothing is left, as a reader of one replica.
pub(super) fn follow(
    index: &Index,
    (cursor, residents): &mut (Option<Cursor>, Residents),
    page: usize,
) {
    while read(index, (cursor, residents), page) {}
}

/// Reads one page. Whether there is more.
fn read(
    index: &Index,
    (cursor, residents): (&mut Option<Cursor>, &mut Residents),
    page: usize,
) -> bool {
    let changes = index.changes(*cursor, page);
    if changes.anew {
        residents.clear(ReplicaId(0));
    }
    let mut bytes = &changes.bytes[..];
    while let Some(change) = Change::read(&mut bytes) {
        match change {
            Change::Clear(replica) => residents.clear(replica),
            Change::Put(replica, block, media) => {
                assert!(residents.put(replica, block, media));
            }
        }
    }
    assert!(bytes.is_empty());
    *cursor = Some(changes.cursor);
    changes.more
}

fn sorted(residents: &Residents) -> Vec<(u64, u8)> {
    let mut all: Vec<_> = residents
        .iter(ReplicaId(0))
        .map(|(block, media)| (block.0, media.bits()))
        .collect();
    all.sort_unstable();
    all
}

/// What a reader knows that begins now.
fn afresh(index: &Index) -> Vec<(u64, u8)> {
    let mut reader = (None, Residents::new(1_000_000));
    follow(index, &mut reader, 1 << 20);
    sorted(&reader.1)
}

#[derive(Clone, Debug)]
enum Step {
    Store(Vec<u64>),
    Remove(Vec<u64>),
    Clear,
    Read,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let names = || prop::collection::vec(1..40u64, 1..5);
    let step = prop_oneof![
        4 => names().prop_map(Step::Store),
        3 => names().prop_map(Step::Remove),
        1 => Just(Step::Clear),
        6 => Just(Step::Read),
    ];
    prop::collection::vec(step, 1..120)
}

proptest! {
    /// A reader that reads small pages while everything changes knows in the end what one knows that
    /// comes then.
    #[test]
    fn who_reads_on_the_way_knows_the_same_as_who_comes_late(steps in steps(), page in 1..200usize) {
        let mut index = Index::new(Seed(1), 2);
        let replica = index.add(25).unwrap();
        let (mut cursor, mut residents) = (None, Residents::new(1_000_000));
        for step in steps {
            match step {
                Step::Store(names) => {
                    index.apply(replica, &batch([Event::Stored(stored(&names, None))]));
                }
                Step::Remove(names) => {
                    index.apply(replica, &batch([Event::Removed(removed(&names))]));
                }
                Step::Clear => index.clear(replica),
                Step::Read => {
                    read(&index, (&mut cursor, &mut residents), page);
                }
            }
        }
        let mut reader = (cursor, residents);
        follow(&index, &mut reader, page);
        prop_assert_eq!(sorted(&reader.1), afresh(&index));
        prop_assert_eq!(reader.1.len(), index.blocks(replica));
        prop_assert!(index.is_current(&reader.0.unwrap()));
    }

    #[test]
    fn cursors_and_changes_are_read_as_they_were_written(
        instance: u64, change: u64, scan: Option<(u16, u32)>, replica: u16, block: u64, bits in 0..8u8,
        noise in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let scan = scan.map(|(replica, place)| (ReplicaId(replica), place));
        let cursor = Cursor { instance, change, scan };
        prop_assert_eq!(cursor.to_string().parse(), Ok(cursor));
        let mut bytes = Vec::new();
        let changes = [
            Change::Clear(ReplicaId(replica)),
            Change::Put(ReplicaId(replica), Identity(block), Media::from_bits(bits).unwrap()),
        ];
        for change in changes {
            change.write(&mut bytes);
        }
        let mut rest = &bytes[..];
        prop_assert_eq!(changes.map(|_| Change::read(&mut rest)), changes.map(Some));
        let mut rest = &noise[..];
        while Change::read(&mut rest).is_some() {}
    }
}

#[test]
fn who_has_missed_too_much_gets_everything_anew() {
    let mut index = Index::new(Seed(1), 2);
    let replica = index.add(10).unwrap();
    let mut reader = (None, Residents::new(1_000_000));
    index.apply(replica, &batch([Event::Stored(stored(&[1], None))]));
    follow(&index, &mut reader, 100);
    let known = reader.0.unwrap();
    for _ in 0..=super::super::journal::KEPT / 2 {
        index.apply(replica, &batch([Event::Removed(removed(&[1]))]));
        index.apply(replica, &batch([Event::Stored(stored(&[1], None))]));
    }
    assert!(index.changes(Some(known), 100).anew);
    follow(&index, &mut reader, 100);
    assert_eq!(sorted(&reader.1), afresh(&index));
}

#[test]
fn a_cursor_of_another_index_begins_anew() {
    let mut index = Index::new(Seed(1), 2);
    let replica = index.add(10).unwrap();
    index.apply(replica, &batch([Event::Stored(stored(&[1], None))]));
    let other = Cursor {
        instance: 3,
        change: 1,
        scan: None,
    };
    for cursor in [
        None,
        Some(other),
        Some(Cursor {
            instance: 2,
            change: 99,
            scan: None,
        }),
    ] {
        let mut reader = (cursor, Residents::new(1_000_000));
        reader
            .1
            .put(ReplicaId(0), Identity(5), Media::NONE.with(Medium::Gpu));
        follow(&index, &mut reader, 100);
        assert_eq!(sorted(&reader.1), afresh(&index), "{cursor:?}");
    }
}

#[test]
fn what_is_no_cursor_is_refused() {
    for text in [
        "",
        "1",
        "1-",
        "x-1",
        "1-2-3",
        "1-2-3-4-5",
        "1-2-10000-1",
        "1-2-3-100000000",
        "-1-2",
    ] {
        assert!(text.parse::<Cursor>().is_err(), "{text}");
    }
}

#[test]
fn a_page_is_read_as_it_was_written() {
    let page = Page {
        cursor: "1-2".into(),
        more: true,
        anew: true,
        seed: u64::MAX,
        replicas: vec![ReplicaState {
            target: "a".into(),
            rank: 1,
            block_size: 16,
            age_ms: Some(3),
        }],
        targets: vec![TargetState {
            target: "a".into(),
            healthy: Some(true),
            load: Some(LoadState {
                running: 1,
                waiting: 2,
                age_ms: 3,
            }),
            lmcache: Some(LmCacheState {
                occupancy: 0.25,
                available: true,
                age_ms: 4,
            }),
            adapters: vec!["x".into()],
        }],
        changes: vec![1, 2, 3],
        members: vec![
            Members {
                provider: "vllm".into(),
                endpoint: "vllm.svc:8000".into(),
                members: Some(vec![
                    Member {
                        address: "10.0.0.7:8000".parse().unwrap(),
                        present: true,
                    },
                    Member {
                        address: "[2001:db8::7]:8000".parse().unwrap(),
                        present: false,
                    },
                ]),
            },
            Members {
                provider: "other".into(),
                endpoint: "other:1".into(),
                members: None,
            },
            Members {
                provider: "none".into(),
                endpoint: "none:1".into(),
                members: Some(Vec::new()),
            },
        ],
    };
    assert_eq!(Page::from_bytes(&page.to_bytes()).unwrap(), page);
    assert!(Page::from_bytes(b"").is_err());
}
