//! What has happened to event streams and to engines, and how they are.

use super::{add, put, seconds};
use crate::state::State;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rolter_core::kv::index::Applied;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened to one rank's events.
#[derive(Debug, Default)]
pub struct ReplicaCounts {
    received: AtomicU64,
    malformed: AtomicU64,
    failed: AtomicU64,
    refused: AtomicU64,
    stored: AtomicU64,
    removed: AtomicU64,
    orphans: AtomicU64,
    evicted: AtomicU64,
    cleared: AtomicU64,
    unknown: AtomicU64,
    of_other_ranks: AtomicU64,
}

impl ReplicaCounts {
    /// A batch was published.
    pub fn received(&self) {
        add(&self.received, 1);
    }

    /// Batches that were published.
    pub fn batches(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// A message or a batch could not be read.
    pub fn malformed(&self) {
        add(&self.malformed, 1);
    }

    /// A connection could not be made, or was lost.
    pub fn failed(&self) {
        add(&self.failed, 1);
    }

    /// A publisher was turned away, as another one delivers.
    pub fn refused(&self) {
        add(&self.refused, 1);
    }

    /// A batch says that it is of another rank. Whether it is the first.
    pub fn is_of_another_rank(&self) -> bool {
        self.of_other_ranks.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// A batch was taken in.
    pub fn applied(&self, applied: &Applied) {
        add(&self.stored, applied.stored);
        add(&self.removed, applied.removed);
        add(&self.orphans, applied.orphans);
        add(&self.evicted, applied.evicted);
        add(&self.cleared, applied.cleared);
        add(&self.unknown, applied.unknown);
    }
}

/// What has happened when a target was asked.
#[derive(Debug, Default)]
pub struct TargetCounts {
    /// Its health could not be had, or was bad.
    pub health_failures: AtomicU64,
    /// Its metrics could not be had or read.
    pub metrics_failures: AtomicU64,
    /// Its models could not be had or read.
    pub models_failures: AtomicU64,
    /// What its `LMCache` says could not be had or read.
    pub lmcache_failures: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Rank {
    provider: String,
    rank: u16,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RankAnd {
    provider: String,
    rank: u16,
    what: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ProviderAnd {
    provider: String,
    what: &'static str,
}

type Float = Gauge<f64, AtomicU64>;

pub(super) fn add_streams(registry: &mut Registry, state: &State) {
    let batches = Family::<Rank, Counter>::default();
    let malformed = Family::<Rank, Counter>::default();
    let failures = Family::<Rank, Counter>::default();
    let refused = Family::<Rank, Counter>::default();
    let copies = Family::<RankAnd, Counter>::default();
    let clears = Family::<Rank, Counter>::default();
    let unknown = Family::<Rank, Counter>::default();
    let of_other_ranks = Family::<Rank, Counter>::default();
    let stream = Family::<RankAnd, Counter>::default();
    let replays = Family::<RankAnd, Counter>::default();
    let blocks = Family::<Rank, Gauge>::default();
    let trusted = Family::<Rank, Gauge>::default();
    let age = Family::<Rank, Float>::default();
    let now = state.now();
    let index = state.index();
    for replica in state.replicas() {
        let counts = &replica.counts;
        let view = replica.view();
        let rank = Rank {
            provider: replica.target.clone(),
            rank: replica.rank,
        };
        let and = |what| RankAnd {
            provider: replica.target.clone(),
            rank: replica.rank,
            what,
        };
        put(&batches, &rank, &counts.received);
        put(&malformed, &rank, &counts.malformed);
        put(&failures, &rank, &counts.failed);
        put(&refused, &rank, &counts.refused);
        for (what, count) in [
            ("stored", &counts.stored),
            ("removed", &counts.removed),
            ("orphaned", &counts.orphans),
            ("evicted", &counts.evicted),
        ] {
            put(&copies, &and(what), count);
        }
        put(&clears, &rank, &counts.cleared);
        put(&unknown, &rank, &counts.unknown);
        put(&of_other_ranks, &rank, &counts.of_other_ranks);
        for (what, count) in [
            ("gap", view.counts.gaps),
            ("restart", view.counts.restarts),
            ("loss", view.counts.losses),
            ("overflow", view.counts.overflows),
        ] {
            stream.get_or_create(&and(what)).inc_by(count);
        }
        for (what, count) in [
            ("complete", view.counts.replays_complete),
            ("failed", view.counts.replays_failed),
        ] {
            replays.get_or_create(&and(what)).inc_by(count);
        }
        let known = i64::try_from(index.blocks(replica.id)).unwrap_or(i64::MAX);
        blocks.get_or_create(&rank).set(known);
        trusted.get_or_create(&rank).set(i64::from(view.trusted));
        if let Some(at) = view.fresh_at {
            age.get_or_create(&rank).set(seconds(now.since(at)));
        }
    }
    drop(index);
    registry.register(
        "kv_batches",
        "Batches of KV events that were published",
        batches,
    );
    registry.register(
        "kv_malformed",
        "Messages and batches that could not be read",
        malformed,
    );
    registry.register(
        "kv_stream_failures",
        "Connections that failed or were lost",
        failures,
    );
    registry.register(
        "kv_refused_publishers",
        "Connections of publishers that were turned away, as another one delivers",
        refused,
    );
    registry.register(
        "kv_block_copies",
        "Copies of blocks that were stored and removed, orphaned and evicted",
        copies,
    );
    registry.register(
        "kv_clears",
        "Events that say that the cache was emptied",
        clears,
    );
    registry.register("kv_unknown_events", "Events of unknown types", unknown);
    registry.register(
        "kv_other_rank_batches",
        "Batches that say that they are of another rank",
        of_other_ranks,
    );
    registry.register("kv_stream", "What happened to the order of events", stream);
    registry.register(
        "kv_replays",
        "Replays of missed events, by outcome",
        replays,
    );
    registry.register(
        "kv_blocks",
        "Blocks that the engine has, as far as is known",
        blocks,
    );
    registry.register("kv_trusted", "Whether that may be believed", trusted);
    registry.register("kv_age_seconds", "Time since that was up to date", age);
}

pub(super) fn add_targets(registry: &mut Registry, state: &State) {
    let failures = Family::<ProviderAnd, Counter>::default();
    let requests = Family::<ProviderAnd, Gauge>::default();
    let usage = Family::<Provider, Float>::default();
    let occupancy = Family::<Provider, Float>::default();
    let healthy = Family::<Provider, Gauge>::default();
    let now = state.now();
    let targets = state.targets();
    for target in targets.iter().filter(|target| target.is_routed) {
        let seen = target.seen();
        let provider = Provider {
            provider: target.name.clone(),
        };
        let and = |what| ProviderAnd {
            provider: target.name.clone(),
            what,
        };
        let counts = &target.counts;
        for (what, count) in [
            ("health", &counts.health_failures),
            ("metrics", &counts.metrics_failures),
            ("models", &counts.models_failures),
            ("lmcache", &counts.lmcache_failures),
        ] {
            put(&failures, &and(what), count);
        }
        if let Some(load) = seen.load_at(now) {
            requests
                .get_or_create(&and("running"))
                .set(i64::from(load.running));
            requests
                .get_or_create(&and("waiting"))
                .set(i64::from(load.waiting));
            if let Some(used) = load.kv_usage {
                usage.get_or_create(&provider).set(used);
            }
        }
        if let Some(cache) = seen.lmcache {
            occupancy.get_or_create(&provider).set(cache.occupancy);
        }
        if let Some(is_healthy) = seen.healthy {
            healthy.get_or_create(&provider).set(i64::from(is_healthy));
        }
    }
    registry.register(
        "poll_failures",
        "Questions without a good answer, by what was asked",
        failures,
    );
    registry.register(
        "engine_requests",
        "Requests that the engine has, as it says",
        requests,
    );
    registry.register(
        "engine_kv_usage",
        "Share of the KV cache in use, as the engine says",
        usage,
    );
    registry.register(
        "lmcache_occupancy",
        "Share of the LMCache in use, as it says",
        occupancy,
    );
    registry.register(
        "engine_healthy",
        "Whether the engine says that it is well",
        healthy,
    );
}
