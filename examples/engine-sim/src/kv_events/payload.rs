//! The payload of a publication: `[timestamp, [events…], rank]` in msgpack.
//!
//! Blocks that follow each other in one sequence are one event, as an engine's steps are.

use std::io;
use std::sync::Arc;

use serde::{Serialize, Serializer};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{KvEncoding, KvHashes};
use crate::blocks::{Block, BlockHash};
use crate::prefix_cache::CacheEvent;
use crate::tokens::TokenId;

const MEDIUM: &str = "GPU";
/// The one group of layers that the engine has, and what it is.
const GROUP: usize = 0;
const GROUP_KIND: &str = "full_attention";

/// How an engine writes events.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub(crate) encoding: KvEncoding,
    pub(crate) hashes: KvHashes,
}

/// The payload that tells of `events`, which happened at `timestamp` (seconds since 1970).
pub(crate) fn payload(
    form: Form,
    timestamp: f64,
    events: &[CacheEvent],
    rank: usize,
) -> io::Result<Vec<u8>> {
    let batch = (timestamp, form.events(events), rank);
    let written = match form.encoding {
        KvEncoding::Map => rmp_serde::to_vec_named(&batch),
        KvEncoding::Array => rmp_serde::to_vec(&batch),
    };
    written.map_err(io::Error::other)
}

/// A block's name as it is written.
#[derive(Debug, Clone, Copy)]
enum Name {
    Int(u64),
    Bytes([u8; 32]),
}

impl Serialize for Name {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Int(hash) => serializer.serialize_u64(*hash),
            Self::Bytes(hash) => serializer.serialize_bytes(hash),
        }
    }
}

/// What is nil also where nothing else is left out.
#[derive(Debug)]
struct Nil;

impl Serialize for Nil {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

/// The order of fields is the order of an array.
#[derive(Debug, Serialize)]
struct BlockStored<'a> {
    r#type: &'static str,
    block_hashes: Vec<Name>,
    parent_block_hash: Option<Name>,
    token_ids: Vec<TokenId>,
    block_size: usize,
    lora_id: Option<usize>,
    medium: &'static str,
    lora_name: Option<&'a str>,
    extra_keys: Vec<Option<Vec<&'a str>>>,
    group_idx: usize,
    kv_cache_spec_kind: &'static str,
    /// Always its default: nil in an array, left out of a map.
    #[serde(skip_serializing_if = "Option::is_none")]
    kv_cache_spec_sliding_window: Option<Nil>,
}

#[derive(Debug, Serialize)]
struct BlockRemoved {
    r#type: &'static str,
    block_hashes: [Name; 1],
    medium: &'static str,
    group_idx: usize,
}

#[derive(Debug, Serialize)]
struct AllBlocksCleared {
    r#type: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Event<'a> {
    Stored(BlockStored<'a>),
    Removed(BlockRemoved),
    Cleared(AllBlocksCleared),
}

impl Form {
    fn events(self, events: &[CacheEvent]) -> Vec<Event<'_>> {
        let runs = events.chunk_by(|one, next| match (one, next) {
            (CacheEvent::Stored(one), CacheEvent::Stored(next)) => next.parent == Some(one.hash),
            _ => false,
        });
        runs.filter_map(|run| match run.first()? {
            CacheEvent::Stored(first) => Some(self.stored(first, run)),
            CacheEvent::Removed(hash) => Some(Event::Removed(BlockRemoved {
                r#type: "BlockRemoved",
                block_hashes: [self.name(*hash)],
                medium: MEDIUM,
                group_idx: GROUP,
            })),
            CacheEvent::Cleared => Some(Event::Cleared(AllBlocksCleared {
                r#type: "AllBlocksCleared",
            })),
        })
        .collect()
    }

    fn stored<'a>(self, first: &'a Block, run: &'a [CacheEvent]) -> Event<'a> {
        let blocks: Vec<&Arc<Block>> = run
            .iter()
            .filter_map(|event| match event {
                CacheEvent::Stored(block) => Some(block),
                _ => None,
            })
            .collect();
        let tokens = blocks.iter().flat_map(|block| block.tokens.iter());
        let adapter = first.scope.adapter.as_ref();
        Event::Stored(BlockStored {
            r#type: "BlockStored",
            block_hashes: blocks.iter().map(|block| self.name(block.hash)).collect(),
            parent_block_hash: first.parent.map(|parent| self.name(parent)),
            token_ids: tokens.copied().collect(),
            block_size: first.tokens.len(),
            lora_id: adapter.map(|adapter| adapter.id),
            medium: MEDIUM,
            lora_name: adapter.map(|adapter| adapter.name.as_str()),
            extra_keys: blocks.iter().map(|block| extra_keys(block)).collect(),
            group_idx: GROUP,
            kv_cache_spec_kind: GROUP_KIND,
            kv_cache_spec_sliding_window: (self.encoding == KvEncoding::Array).then_some(Nil),
        })
    }

    fn name(self, hash: BlockHash) -> Name {
        match self.hashes {
            KvHashes::Int => Name::Int(hash.0),
            KvHashes::Bytes => {
                let mut bytes = [0; 32];
                for (part, seed) in bytes.chunks_exact_mut(8).zip(0..) {
                    let part_hash = xxh3_64_with_seed(&hash.0.to_le_bytes(), seed);
                    part.copy_from_slice(&part_hash.to_le_bytes());
                }
                Name::Bytes(bytes)
            }
        }
    }
}

/// What tells a block from another with equal tokens: the adapter, and on the first block the salt.
fn extra_keys(block: &Block) -> Option<Vec<&str>> {
    let adapter = block.scope.adapter.as_ref();
    let salt =
        Some(block.scope.salt.as_str()).filter(|salt| block.parent.is_none() && !salt.is_empty());
    let keys: Vec<&str> = adapter
        .map(|adapter| adapter.name.as_str())
        .into_iter()
        .chain(salt)
        .collect();
    (!keys.is_empty()).then_some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::blocks::{Adapter, Scope};

    /// What a vLLM 0.32.0 engine published: a block goes, another comes.
    const RECORDED: &str = concat!(
        "93cb41dac32de71230509284a474797065ac426c6f636b52656d6f766564ac626c6f636b5f686173",
        "68657391cfd83a4add99fcea88a66d656469756da3475055a967726f75705f696478008ba4747970",
        "65ab426c6f636b53746f726564ac626c6f636b5f68617368657391cf09638eac41a7b575b1706172",
        "656e745f626c6f636b5f68617368cfa65986b46415bcd8a9746f6b656e5f696473dc0020ccca02cd",
        "011756cd017dcd01b7ccca46cd037acd0146cd012e4ecd03decd029fcd011acd022a5157cd024dcd",
        "03e5cd03a1cd029f03ccca02cd0185cd0104cccacd03bd4ecd025ccd03e5aa626c6f636b5f73697a",
        "6520a76c6f72615f6964c0a66d656469756da3475055a96c6f72615f6e616d65c0aa65787472615f",
        "6b65797391c0a967726f75705f69647800b26b765f63616368655f737065635f6b696e64ae66756c",
        "6c5f617474656e74696f6e00",
    );

    fn hex(bytes: &[u8]) -> String {
        let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
        digits
            .filter_map(|digit| char::from_digit(digit.into(), 16))
            .collect()
    }

    fn block(hash: u64, parent: Option<u64>, tokens: &[TokenId], scope: &Arc<Scope>) -> CacheEvent {
        CacheEvent::Stored(Arc::new(Block {
            hash: BlockHash(hash),
            parent: parent.map(BlockHash),
            tokens: tokens.into(),
            scope: Arc::clone(scope),
            depth: 0,
        }))
    }

    fn written(encoding: KvEncoding, hashes: KvHashes, time: f64, events: &[CacheEvent]) -> String {
        let form = Form { encoding, hashes };
        hex(&payload(form, time, events, 0).expect("a payload"))
    }

    #[test]
    fn maps_are_those_of_a_real_engine_to_the_byte() {
        let tokens = [
            202, 2, 279, 86, 381, 439, 202, 70, 890, 326, 302, 78, 990, 671, 282, 554, 81, 87, 589,
            997, 929, 671, 3, 202, 2, 389, 260, 202, 957, 78, 604, 997,
        ];
        let parent = Some(11_986_759_992_554_667_224);
        let events = [
            CacheEvent::Removed(BlockHash(15_580_848_176_473_369_224)),
            block(676_541_239_522_735_477, parent, &tokens, &Arc::default()),
        ];
        let time = f64::from_bits(0x41da_c32d_e712_3050);
        assert_eq!(
            written(KvEncoding::Map, KvHashes::Int, time, &events),
            RECORDED
        );
    }

    #[test]
    fn an_array_has_every_field_in_its_place() {
        let events = [
            block(1, None, &[1, 2, 3, 4], &Arc::default()),
            block(2, Some(1), &[5, 6, 7, 8], &Arc::default()),
        ];
        assert_eq!(
            written(KvEncoding::Array, KvHashes::Int, 1.0, &events),
            "93cb3ff0000000000000919cab426c6f636b53746f726564920102c098010203040506070804c0a3475055c0\
             92c0c000ae66756c6c5f617474656e74696f6ec000"
        );
        let removed = [CacheEvent::Removed(BlockHash(5)), CacheEvent::Cleared];
        assert_eq!(
            written(KvEncoding::Array, KvHashes::Int, 1.0, &removed),
            "93cb3ff00000000000009294ac426c6f636b52656d6f7665649105a34750550091b0416c6c426c6f636b7343\
             6c656172656400"
        );
    }

    #[test]
    fn only_blocks_that_follow_each_other_are_one_event() {
        let plain = Arc::default();
        let form = Form {
            encoding: KvEncoding::Map,
            hashes: KvHashes::Int,
        };
        let events = [
            block(1, None, &[1], &plain),
            block(2, Some(1), &[2], &plain),
            block(9, Some(1), &[3], &plain),
            CacheEvent::Removed(BlockHash(9)),
            CacheEvent::Removed(BlockHash(2)),
        ];
        assert_eq!(form.events(&events).len(), 4);
    }

    #[test]
    fn the_adapter_is_on_every_block_and_the_salt_on_the_first() {
        let scope = Arc::new(Scope {
            adapter: Some(Adapter {
                id: 1,
                name: "sql".to_owned(),
            }),
            salt: "tenant".to_owned(),
        });
        let keys = |event: &CacheEvent| match event {
            CacheEvent::Stored(block) => extra_keys(block).map(|keys| keys.join(" ")),
            _ => None,
        };
        let first = block(1, None, &[1], &scope);
        let second = block(2, Some(1), &[2], &scope);
        assert_eq!(keys(&first).as_deref(), Some("sql tenant"));
        assert_eq!(keys(&second).as_deref(), Some("sql"));
        assert_eq!(keys(&block(3, None, &[1], &Arc::default())), None);
    }
}
