//! Payloads and the block index against what engines publish.

mod churn;
mod feed;
mod index;
mod members;
mod mirror;
mod packed;
mod payload;
mod recorded;
mod residents;

use super::payload::{Batch, BlockHash, Event, Removed, Stored};

/// The bytes that hex digits stand for.
fn bytes(hex: &str) -> Vec<u8> {
    let digit = |byte: u8| u8::try_from(char::from(byte).to_digit(16).unwrap()).unwrap();
    let (pairs, rest) = hex.as_bytes().as_chunks::<2>();
    assert!(rest.is_empty());
    pairs
        .iter()
        .map(|&[high, low]| digit(high) << 4 | digit(low))
        .collect()
}

/// Blocks of four tokens, one a name: the tokens follow from the name.
fn stored(names: &[u64], parent: Option<u64>) -> Stored<'static> {
    Stored {
        hashes: names.iter().map(|&name| BlockHash::Int(name)).collect(),
        parent: parent.map(BlockHash::Int),
        token_ids: names.iter().flat_map(|&name| tokens(name)).collect(),
        block_size: 4,
        lora_id: None,
        lora_name: None,
        medium: Some("GPU"),
        extra_keys: None,
        group_idx: None,
        spec_kind: None,
    }
}

fn tokens(name: u64) -> [u32; 4] {
    [0, 1, 2, 3].map(|n| u32::try_from(name * 10 + n).unwrap())
}

fn removed(names: &[u64]) -> Removed<'static> {
    Removed {
        hashes: names.iter().map(|&name| BlockHash::Int(name)).collect(),
        medium: Some("GPU"),
        group_idx: None,
    }
}

fn batch<'a>(events: impl IntoIterator<Item = Event<'a>>) -> Batch<'a> {
    Batch {
        rank: Some(0),
        events: events.into_iter().collect(),
    }
}
