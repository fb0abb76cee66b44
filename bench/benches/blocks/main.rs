//! What it takes to know what engines have: events in, changes out, and how much of a prompt is
//! where.
//!
//! `cargo bench -p rolter-bench --bench blocks` runs all of it on one core.

mod host;

use fastrand::Rng;
use host::Alone;
use rolter_bench::counting::{Counting, count};
use rolter_core::kv::MediumWeights;
use rolter_core::kv::feed::{Page, ReplicaId, ReplicaState};
use rolter_core::kv::identity::Seed;
use rolter_core::kv::index::Index;
use rolter_core::kv::mirror::Mirror;
use rolter_core::kv::payload::decode;
use rolter_core::shared::slots::SlotId;
use rolter_core::time::Millis;
use rolter_core::wire::NameHash;
use std::hint::black_box;
use std::time::{Duration, Instant};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ENGINES: u16 = 64;
const BLOCKS_EACH: u64 = 100_000;
const BLOCK_TOKENS: u64 = 16;
/// Blocks of one event, as a prompt of 512 tokens makes them.
const EVENT_BLOCKS: u64 = 32;
/// Batches between two looks of Envoy's at the feed.
const BATCHES_A_PAGE: usize = 16;
const PAGE_BYTES: usize = 256 << 10;
const NOW: Millis = Millis(1_000_000);

/// What is wanted: block events a second, and bytes for all engines.
const WANTED_RATE: f64 = 500_000.0;
const WANTED_BYTES: f64 = 1.5e9;

fn main() {
    // Cargo passes arguments for criterion, which this does without.
    let mut index = Index::new(Seed(7), 1);
    let replicas: Vec<ReplicaId> = (0..ENGINES)
        .filter_map(|_| index.add(usize::try_from(BLOCKS_EACH).unwrap_or(usize::MAX)))
        .collect();
    let (filled, memory) = count(|| fill(&mut index, &replicas));
    let known: usize = replicas.iter().map(|&id| index.blocks(id)).sum();
    assert_eq!(known as u64, u64::from(ENGINES) * BLOCKS_EACH);
    let bytes = approximate(memory.peak.unsigned_abs());
    report("events in, changes out, while it fills", &filled);
    report(
        "the same when it is full, so that each evicts one",
        &churn(&mut index, &replicas),
    );
    println!(
        "{:<56} {:.0} MB for {ENGINES} engines with {BLOCKS_EACH} blocks each; wanted: at most {:.0} MB",
        "memory of the index, at its peak",
        bytes / 1e6,
        WANTED_BYTES / 1e6,
    );
    drop(index);
    for targets in [8, 64] {
        score(targets);
    }
}

/// Batches in a row for one engine, and how long they and what is made of them took.
struct Work {
    events: u64,
    time: Duration,
}

fn report(what: &str, work: &Work) {
    let rate =
        approximate(usize::try_from(work.events).unwrap_or(usize::MAX)) / work.time.as_secs_f64();
    println!("{what:<56} {rate:.0} block events a second; wanted: at least {WANTED_RATE:.0}");
}

fn fill(index: &mut Index, replicas: &[ReplicaId]) -> Work {
    run(index, replicas, BLOCKS_EACH / EVENT_BLOCKS, 0)
}

fn churn(index: &mut Index, replicas: &[ReplicaId]) -> Work {
    run(index, replicas, 500, 1 << 40)
}

/// Lets each engine store blocks in so many batches, with names from a number on, and reads the
/// feed on the way. What the engines do to make the batches is not counted.
fn run(index: &mut Index, replicas: &[ReplicaId], batches: u64, first: u64) -> Work {
    let mut work = Work {
        events: 0,
        time: Duration::ZERO,
    };
    let mut cursor = None;
    for (engine, &replica) in (0..).zip(replicas) {
        let names = (0..batches).map(|batch| first + (engine << 20) + batch * EVENT_BLOCKS);
        let payloads: Vec<Vec<u8>> = names.map(payload).collect();
        let start = Instant::now();
        for batches in payloads.chunks(BATCHES_A_PAGE) {
            for payload in batches {
                let Ok(batch) = decode(payload) else { continue };
                work.events += index.apply(replica, &batch).stored;
            }
            loop {
                let changes = index.changes(cursor, PAGE_BYTES);
                cursor = Some(changes.cursor);
                black_box(changes.bytes);
                if !changes.more {
                    break;
                }
            }
        }
        work.time += start.elapsed();
    }
    work
}

/// A batch of one event, as vLLM writes it, with a prompt of its own.
fn payload(name: u64) -> Vec<u8> {
    use rmp::encode::{
        write_array_len, write_f64, write_map_len, write_nil, write_str, write_uint,
    };
    let mut to = Vec::new();
    let mut write = || -> Result<(), Box<dyn std::error::Error>> {
        write_array_len(&mut to, 3)?;
        write_f64(&mut to, 1.5)?;
        write_array_len(&mut to, 1)?;
        write_map_len(&mut to, 8)?;
        write_str(&mut to, "type")?;
        write_str(&mut to, "BlockStored")?;
        write_str(&mut to, "block_hashes")?;
        write_array_len(&mut to, u32::try_from(EVENT_BLOCKS)?)?;
        for block in 0..EVENT_BLOCKS {
            write_uint(&mut to, (name + block).wrapping_mul(0x9e37_79b9_7f4a_7c15))?;
        }
        write_str(&mut to, "parent_block_hash")?;
        write_nil(&mut to)?;
        write_str(&mut to, "token_ids")?;
        let tokens = EVENT_BLOCKS * BLOCK_TOKENS;
        write_array_len(&mut to, u32::try_from(tokens)?)?;
        let mut rng = Rng::with_seed(name);
        for _ in 0..tokens {
            write_uint(&mut to, rng.u64(0..128_000))?;
        }
        write_str(&mut to, "block_size")?;
        write_uint(&mut to, BLOCK_TOKENS)?;
        write_str(&mut to, "medium")?;
        write_str(&mut to, "GPU")?;
        write_str(&mut to, "lora_name")?;
        write_nil(&mut to)?;
        write_str(&mut to, "group_idx")?;
        write_uint(&mut to, 0)?;
        write_uint(&mut to, 0)?;
        Ok(())
    };
    write().unwrap_or_else(|error| panic!("{error}"));
    to
}

/// How long it takes to know how much of a prompt of 4,096 tokens each target has, where each has
/// a quarter of it.
fn score(targets: u16) {
    const PROMPT: u32 = 4_096;
    const ROUNDS: u32 = 2_000;
    let host = Alone::default();
    let mut mirror = Mirror::new(&host);
    let tokens: Vec<u8> = (0..=PROMPT).flat_map(u32::to_le_bytes).collect();
    let prefix = rolter_core::kv::identity::Chain::new(Seed(7), None, None, &tokens, 16);
    let quarter = prefix.blocks() / 4;
    let media = rolter_core::kv::Media::NONE.with(rolter_core::kv::Medium::Gpu);
    let mut changes = Vec::new();
    for replica in (0..targets).map(ReplicaId) {
        for block in prefix.clone().take(quarter) {
            rolter_core::kv::feed::Change::Put(replica, block, media).write(&mut changes);
        }
    }
    let names: Vec<String> = (0..targets)
        .map(|target| format!("target-{target}"))
        .collect();
    let page = Page {
        cursor: "0".into(),
        anew: true,
        seed: 7,
        replicas: names
            .iter()
            .map(|name| ReplicaState {
                target: name.clone(),
                rank: 0,
                block_size: 16,
                age_ms: Some(0),
            })
            .collect(),
        changes,
        ..Page::default()
    };
    assert!(mirror.hear(&host, SlotId(0), &page, NOW, 1));
    let hashes: Vec<NameHash> = names.iter().map(|name| NameHash::of(name)).collect();
    let weights = MediumWeights::default();
    let mut rng = Rng::with_seed(1);
    let start = Instant::now();
    for _ in 0..ROUNDS {
        let parts = mirror.parts(&tokens, (Some("m"), None), &weights);
        for &hash in &hashes {
            let score = mirror.score(hash, &parts, (NOW, 30_000), &mut rng);
            assert!(black_box(score).is_some_and(|score| score.share > 0.24));
        }
    }
    let micros = start.elapsed().as_secs_f64() * 1e6 / f64::from(ROUNDS);
    let what = format!("who has how much of a prompt of {PROMPT} tokens, {targets} targets");
    println!("{what:<56} {micros:.1} µs a decision");
}

#[expect(
    clippy::cast_precision_loss,
    reason = "what is counted here is far below 2^53"
)]
fn approximate(count: usize) -> f64 {
    count as f64
}
