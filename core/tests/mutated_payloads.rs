//! Ten million damaged batches of KV events are decoded and taken in: whatever an engine publishes,
//! nothing panics, decoding takes no more memory than the payload could fill, and the index keeps to
//! its limit.
//!
//! Each payload follows from its number, so one that fails can be decoded again on its own.

#![cfg(not(target_arch = "wasm32"))]

#[allow(unreachable_pub, reason = "it is public where it comes from")]
mod counting;

use counting::{Counting, count};
use fastrand::Rng;
use rolter_core::kv::identity::Seed;
use rolter_core::kv::index::Index;
use rolter_core::kv::payload::decode;
use serde_json::Value;
use std::thread;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const PAYLOADS: u64 = 10_000_000;
const THREADS: u64 = 2;

/// Blocks that the index may remember.
const MAX_BLOCKS: usize = 1_000;

/// A byte of a payload may stand for a hash or for extra keys, which take up to 24 bytes, twice over
/// while a list of them grows; and a list begins with room for some.
const BYTES_FOR_A_BYTE: usize = 96;
const FIRST_ROOM: usize = 256 << 10;

/// Good payloads of all forms, and some of a real engine.
fn good() -> Vec<Vec<u8>> {
    let payloads = include_str!("../fixtures/kv-payloads.jsonl").lines();
    let run = include_str!("../fixtures/vllm-0.32.0-int-hashes.jsonl").lines();
    let frames = run.filter(|line| line.len() < 2_000).take(60);
    payloads
        .chain(frames)
        .filter_map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            let hex = line["payload"].as_str()?;
            let digits = |at: usize| u8::from_str_radix(hex.get(at..at + 2).unwrap(), 16).unwrap();
            Some((0..hex.len()).step_by(2).map(digits).collect())
        })
        .collect()
}

/// A payload with up to eight mutations.
fn mutated(number: u64, good: &[Vec<u8>]) -> Vec<u8> {
    // What follows a marker of one of these is its length.
    const LENGTHS: [u8; 9] = [0xc4, 0xc6, 0xd9, 0xdb, 0xdc, 0xdd, 0xde, 0xdf, 0xc9];
    let mut rng = Rng::with_seed(number);
    let mut payload = rng.choice(good).unwrap().clone();
    for _ in 0..rng.u32(0..8) {
        let at = rng.usize(0..=payload.len());
        match rng.u32(0..8) {
            0 => payload.truncate(at),
            1 => payload.insert(at, rng.u8(..)),
            2 => {
                payload.insert(at, *rng.choice(LENGTHS.iter()).unwrap());
                let length = rng.u32(..).to_be_bytes();
                let after = at + 1;
                payload.splice(after..after, length);
            }
            3 => {
                // A part of another one.
                let other = rng.choice(good).unwrap();
                let from = rng.usize(0..=other.len());
                let to = rng.usize(from..=other.len());
                payload.splice(at..at, other.get(from..to).unwrap().iter().copied());
            }
            _ => {
                if let Some(byte) = payload.get_mut(at) {
                    *byte ^= 1 << rng.u32(0..8);
                }
            }
        }
    }
    payload
}

#[test]
fn ten_million_damaged_payloads_are_decoded_or_refused() {
    let good = good();
    assert!(good.len() > 60);
    let decoded = thread::scope(|scope| {
        let run = |thread| {
            let good = &good;
            move || {
                let mut index = Index::new(Seed(1), 1);
                let replica = index.add(MAX_BLOCKS).unwrap();
                let mut decoded = 0_u64;
                for number in (thread..PAYLOADS).step_by(usize::try_from(THREADS).unwrap()) {
                    let payload = mutated(number, good);
                    let (batch, allocated) = count(|| decode(&payload));
                    let bound = FIRST_ROOM + BYTES_FOR_A_BYTE * payload.len();
                    assert!(allocated.peak.unsigned_abs() <= bound, "{number}");
                    if let Ok(batch) = batch {
                        decoded += 1;
                        index.apply(replica, &batch);
                        assert!(index.blocks(replica) <= MAX_BLOCKS, "{number}");
                    }
                }
                decoded
            }
        };
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| scope.spawn(run(thread)))
            .collect();
        let counts = threads.into_iter().map(|thread| thread.join().unwrap());
        counts.sum::<u64>()
    });
    // Some stay as they are, and some mutations do no harm.
    assert!(decoded > PAYLOADS / 10 && decoded < PAYLOADS, "{decoded}");
}
