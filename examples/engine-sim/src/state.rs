//! What an engine knows of itself: its counters, and the requests that it saw.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::EngineConfig;
use crate::counts::{Counts, Finished};
use crate::faults::Fault;
use crate::kv_events::{KvAddress, KvFault, Publisher};
use crate::occupancy::Occupancy;
use crate::scheduler::Scheduler;

/// Requests that are kept to be looked at.
const RECENT_REQUESTS: usize = 256;
/// Texts that were embedded and are kept to be looked at.
const RECENT_INPUTS: usize = 256;
/// What is kept of one of them, in characters.
const KEPT_INPUT: usize = 4096;
/// Requests with a large body that are read at once.
const LARGE_BODIES: usize = 8;
/// Under what requests to unknown paths are counted.
const OTHER_PATHS: &str = "other";

/// Counters and gauges of an engine, summed over its ranks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// The engine's name.
    pub name: String,
    /// Requests by path, whatever their answer. Paths that no engine has count as `other`.
    pub served: BTreeMap<String, u64>,
    /// Requests in prefill or decode.
    pub running: usize,
    /// Requests in the queue.
    pub waiting: usize,
    /// The most requests that ran at once on each rank.
    pub peak_running: usize,
    /// Prompt tokens that were looked up in the prefix cache.
    pub prefix_queried_tokens: u64,
    /// Prompt tokens that were found there.
    pub prefix_hit_tokens: u64,
    /// Prompt tokens of all admitted requests.
    pub prompt_tokens: u64,
    /// Tokens of all answers.
    pub generation_tokens: u64,
    /// Size of the KV cache, in blocks.
    pub blocks_total: usize,
    /// Blocks that running requests hold.
    pub blocks_used: usize,
    /// Blocks that can be found, held or not.
    pub blocks_cached: usize,
    /// How requests ended.
    pub finished: Finished,
    /// The fault of the whole engine, as `x-sim-fault` would have it.
    pub fault: Option<String>,
}

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RecordedRequest {
    /// The method.
    pub method: String,
    /// Path and query.
    pub path: String,
    /// `HTTP/1.1` or `HTTP/2.0`.
    pub version: String,
    /// Names (in lower case) and values, in order. Past 64 KiB the rest is left out.
    pub headers: Vec<(String, String)>,
    /// The body's length in bytes, as far as it was read.
    pub body_bytes: u64,
    /// [`body_hash`](crate::body_hash) of those bytes.
    pub body_hash: String,
    /// Trailers after the body, within the same bound as headers.
    pub trailers: Vec<(String, String)>,
}

#[derive(Debug, Default)]
struct Ledger {
    served: BTreeMap<String, u64>,
    recent: VecDeque<RecordedRequest>,
    inputs: VecDeque<String>,
    fault: Option<Fault>,
    occupancy: Occupancy,
}

/// A data-parallel rank.
#[derive(Debug)]
pub(crate) struct Rank {
    pub(crate) scheduler: Arc<Scheduler>,
    publisher: Option<Arc<Publisher>>,
}

/// There is no such rank, or it publishes no KV events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct NoSuchRank;

/// What all connections of an engine share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: EngineConfig,
    pub(crate) ranks: Vec<Rank>,
    pub(crate) kv_addresses: Vec<KvAddress>,
    pub(crate) large_bodies: Semaphore,
    ledger: Mutex<Ledger>,
    last_id: AtomicU64,
}

impl Shared {
    /// The state of an engine that has seen nothing. `publishers` has one for each rank, or none.
    pub(crate) fn new(
        config: EngineConfig,
        publishers: &[Arc<Publisher>],
        kv_addresses: Vec<KvAddress>,
    ) -> Self {
        let rank = |rank| {
            let publisher = publishers.get(rank).cloned();
            Rank {
                scheduler: Arc::new(Scheduler::new(&config, publisher.clone())),
                publisher,
            }
        };
        Self {
            ranks: (0..config.ranks).map(rank).collect(),
            kv_addresses,
            config,
            large_bodies: Semaphore::new(LARGE_BODIES),
            ledger: Mutex::default(),
            last_id: AtomicU64::new(0),
        }
    }

    /// The rank that serves a request: the one that it names, or the least loaded.
    pub(crate) fn rank(&self, asked: Option<usize>) -> Option<&Rank> {
        match asked {
            Some(rank) => self.ranks.get(rank),
            None => self.ranks.iter().min_by_key(|rank| {
                let counts = rank.scheduler.counts();
                counts.running + counts.waiting
            }),
        }
    }

    /// Lets a fault strike the KV events of one rank.
    pub(crate) fn strike_kv_events(&self, rank: usize, fault: KvFault) -> Result<(), NoSuchRank> {
        let rank = self.ranks.get(rank).ok_or(NoSuchRank)?;
        let publisher = rank.publisher.as_ref().ok_or(NoSuchRank)?;
        if fault == KvFault::PublishAgain {
            rank.scheduler.announce_again();
        }
        publisher.strike(fault);
        Ok(())
    }

    /// Empties the caches of all ranks, but for the blocks of running requests.
    pub(crate) fn clear_caches(&self) {
        for rank in &self.ranks {
            rank.scheduler.clear_cache();
        }
    }

    pub(crate) fn occupancy(&self) -> Occupancy {
        self.ledger().occupancy
    }

    pub(crate) fn set_occupancy(&self, occupancy: Occupancy) {
        self.ledger().occupancy = occupancy;
    }

    /// Counts a request. `known` is its path if the engine has such a path.
    pub(crate) fn count(&self, known: Option<&str>) {
        let path = known.unwrap_or(OTHER_PATHS).to_owned();
        *self.ledger().served.entry(path).or_default() += 1;
    }

    /// Keeps a request to be looked at.
    pub(crate) fn record(&self, request: RecordedRequest) {
        let mut ledger = self.ledger();
        if ledger.recent.len() >= RECENT_REQUESTS {
            ledger.recent.pop_front();
        }
        ledger.recent.push_back(request);
    }

    /// Keeps the texts that a request has embedded.
    pub(crate) fn embedded(&self, body: &Value) {
        let input = body.get("input");
        let list = input.and_then(Value::as_array).into_iter().flatten();
        let mut ledger = self.ledger();
        for text in input.into_iter().chain(list).filter_map(Value::as_str) {
            if ledger.inputs.len() >= RECENT_INPUTS {
                ledger.inputs.pop_front();
            }
            let text = text.chars().take(KEPT_INPUT).collect();
            ledger.inputs.push_back(text);
        }
    }

    pub(crate) fn embedded_texts(&self) -> Vec<String> {
        self.ledger().inputs.iter().cloned().collect()
    }

    /// An id for a response, which no other response has, of this engine or another.
    pub(crate) fn new_id(&self) -> u64 {
        let count = self.last_id.fetch_add(1, Ordering::Relaxed);
        xxh3_64_with_seed(self.config.name.as_bytes(), count)
    }

    pub(crate) fn fault(&self) -> Option<Fault> {
        self.ledger().fault
    }

    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        self.ledger().fault = fault;
    }

    pub(crate) fn recent_requests(&self) -> Vec<RecordedRequest> {
        self.ledger().recent.iter().cloned().collect()
    }

    pub(crate) fn stats(&self) -> Stats {
        let ranks = self.ranks.iter();
        let counts: Counts = ranks.map(|rank| rank.scheduler.counts()).sum();
        let ledger = self.ledger();
        Stats {
            name: self.config.name.clone(),
            served: ledger.served.clone(),
            running: counts.running,
            waiting: counts.waiting,
            peak_running: counts.peak_running,
            prefix_queried_tokens: counts.queried_tokens,
            prefix_hit_tokens: counts.hit_tokens,
            prompt_tokens: counts.prompt_tokens,
            generation_tokens: counts.generation_tokens,
            blocks_total: self.config.kv_blocks.saturating_mul(self.ranks.len()),
            blocks_used: counts.blocks_used,
            blocks_cached: counts.blocks_kept,
            finished: counts.finished,
            fault: ledger.fault.map(|fault| fault.to_string()),
        }
    }

    pub(crate) fn reset(&self) {
        for rank in &self.ranks {
            rank.scheduler.reset();
        }
        let mut ledger = self.ledger();
        *ledger = Ledger {
            fault: ledger.fault,
            occupancy: ledger.occupancy,
            ..Ledger::default()
        };
    }

    /// Stats and recent requests as one JSON object.
    pub(crate) fn snapshot(&self) -> Value {
        let mut snapshot = json!(self.stats());
        snapshot["kv_events"] = json!(self.kv_addresses);
        snapshot["requests"] = json!(self.recent_requests());
        snapshot
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
