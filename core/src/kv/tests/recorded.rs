//! A run of a real engine, in which each request has the engine's own count of cached tokens.

use super::super::feed::ReplicaId;
use super::super::identity::{Chain, Seed};
use super::super::index::Index;
use super::super::payload::{BlockHash, Event, decode};
use super::super::residents::Residents;
use super::{bytes, feed::follow};
use serde_json::Value;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const RUN: &str = include_str!("../../../fixtures/vllm-0.32.0-int-hashes.jsonl");

/// How many requests of the run are predicted exactly, where `rename` has changed the engine's
/// names for blocks, and of how many.
fn predicted(rename: impl Fn(u64) -> Vec<u8>) -> (usize, usize) {
    let mut index = Index::new(Seed(7), 1);
    let replica = index.add(100_000).unwrap();
    let mut followed = (None, Residents::new(1_000_000));
    let (mut exact, mut requests) = (0, 0);
    for line in RUN.lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        if line["kind"] == "frame" {
            let payload = bytes(line["payload"].as_str().unwrap());
            let mut batch = decode(&payload).unwrap();
            let mut renamed = Vec::new();
            for hash in hashes(&mut batch.events) {
                if let BlockHash::Int(number) = *hash {
                    renamed.push(rename(number));
                }
            }
            let mut renamed = renamed.iter().filter(|name| !name.is_empty());
            for hash in hashes(&mut batch.events) {
                if let Some(name) = renamed.next() {
                    *hash = BlockHash::Bytes(name);
                }
            }
            index.apply(replica, &batch);
            continue;
        }
        follow(&index, &mut followed, 1 << 20);
        let ids = line["token_ids"].as_array().unwrap();
        let tokens: Vec<u8> = ids
            .iter()
            .flat_map(|id| u32::try_from(id.as_u64().unwrap()).unwrap().to_le_bytes())
            .collect();
        let size = index.block_size(ReplicaId(0)).max(1);
        let salt = line["cache_salt"].as_str();
        let chain = Chain::new(index.seed(), None, salt, &tokens, size);
        let matched = chain
            .take_while(|&block| followed.1.get(replica, block).is_some())
            .count();
        let cached = line["cached_tokens"].as_u64().unwrap();
        requests += 1;
        exact += usize::from(matched as u64 * u64::from(size) == cached);
    }
    (exact, requests)
}

fn hashes<'b, 'a: 'b>(events: &'b mut [Event<'a>]) -> impl Iterator<Item = &'b mut BlockHash<'a>> {
    events.iter_mut().flat_map(|event| match event {
        Event::Stored(stored) => stored
            .hashes
            .iter_mut()
            .chain(stored.parent.as_mut())
            .collect(),
        Event::Removed(removed) => removed.hashes.iter_mut().collect(),
        _ => Vec::new(),
    })
}

#[test]
fn every_request_is_predicted_exactly() {
    assert_eq!(predicted(|_| Vec::new()), (108, 108));
}

#[test]
fn names_of_bytes_do_as_well() {
    let long = |number: u64| number.to_be_bytes().repeat(4);
    assert_eq!(predicted(long), (108, 108));
}
