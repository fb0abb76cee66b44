//! How fast and how large the engines are, and how much they are asked, by kind of workload.
//!
//! The same for the fleets of engine-sim and for the simulation. Caches are about half of what would
//! hold all that is asked for again, so that who stores a prompt twice loses another one; and a fleet
//! that is routed well computes for about two thirds of the time: below that nobody waits, and above
//! it queues only grow.

use super::Play;
use std::time::Duration;

/// What kind of workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Kind {
    /// Groups of prompts that have a long head in common, some more asked than others.
    SharedPrefix,
    /// Conversations that grow, over a few system prompts.
    MultiTurn,
    /// Nearly all have the same long head.
    HotPrefix,
    /// What a service was really asked.
    Trace,
}

impl Kind {
    /// All that need no file.
    pub(crate) const GENERATED: [Self; 3] = [Self::SharedPrefix, Self::MultiTurn, Self::HotPrefix];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::SharedPrefix => "shared prefix",
            Self::MultiTurn => "multi-turn",
            Self::HotPrefix => "hot prefix",
            Self::Trace => "trace",
        }
    }
}

/// An engine, and how much it is asked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Settings {
    /// Prompt tokens that are computed in a second.
    pub(crate) prefill_tokens_per_sec: f64,
    /// Time between two tokens of one answer.
    pub(crate) decode_time_per_token: Duration,
    /// The most requests that run at once.
    pub(crate) max_batch: usize,
    /// Tokens of a block.
    pub(crate) block_tokens: usize,
    /// Blocks of the KV cache.
    pub(crate) kv_blocks: usize,
    /// Requests a second, for each engine of the fleet.
    pub(crate) requests_per_sec: f64,
    /// A first token that takes longer is of no use.
    pub(crate) first_token_bound: Duration,
}

impl Settings {
    /// Those of a kind of workload.
    pub(crate) fn of(kind: Kind) -> Self {
        let (kv_blocks, requests_per_sec) = match kind {
            Kind::SharedPrefix => (1_400, 12.0),
            Kind::MultiTurn => (3_500, 15.0),
            Kind::HotPrefix => (3_000, 19.5),
            Kind::Trace => (30_000, 4.4),
        };
        let traced = kind == Kind::Trace;
        Self {
            // Prompts of the trace are long. With engines this fast a play has enough of them that some
            // come again.
            prefill_tokens_per_sec: if traced { 64_000.0 } else { 16_000.0 },
            decode_time_per_token: Duration::from_millis(5),
            max_batch: 64,
            block_tokens: 16,
            kv_blocks,
            requests_per_sec,
            first_token_bound: Duration::from_millis(if traced { 1_000 } else { 500 }),
        }
    }

    /// A play for so many engines.
    pub(crate) fn play(&self, engines: usize, duration: Duration, seed: u64) -> Play {
        let count = u32::try_from(engines).unwrap_or(u32::MAX);
        Play {
            engines,
            requests_per_sec: self.requests_per_sec * f64::from(count),
            duration,
            seed,
        }
    }
}
