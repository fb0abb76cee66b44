//! What has happened in the response cache, and what it holds.

use super::Size;
use crate::cache::{Cache, Failure};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use rolter_core::cache::Bypass;
use rolter_core::cache::answer::Refusal;
use std::time::Duration;

/// How a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// By the answer to an equal one.
    Exact,
    /// By the answer to one in other words.
    Semantic,
    /// By nothing.
    Miss,
    /// By nothing, as the client wanted.
    Refresh,
    /// By nothing, as it is not for the cache.
    Bypass,
}

/// What did not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Redis did not answer, or not what it was asked.
    Redis,
    /// What was there was not what is put there.
    Decode,
    /// There was no vector for a text.
    Embedding,
    /// There was no time left.
    Time,
    /// Too many answers waited for the vectors of their texts.
    Room,
}

impl From<Failure> for Part {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Redis => Self::Redis,
            Failure::Garbage => Self::Decode,
            Failure::Time => Self::Time,
        }
    }
}

/// The exact cache, or the one of other words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Answers to equal requests.
    Exact,
    /// Answers to requests in other words.
    Semantic,
}

impl Kind {
    /// As in headers.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Semantic => "semantic",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfLookup {
    route: String,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfBypass {
    route: String,
    cache: &'static str,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfStore {
    route: String,
    cache: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRefusal {
    route: String,
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfFailure {
    part: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Direction {
    direction: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    of: &'static str,
}

/// What has happened.
#[derive(Debug)]
pub struct CacheCounts {
    lookups: Family<OfLookup, Counter>,
    bypasses: Family<OfBypass, Counter>,
    stores: Family<OfStore, Counter>,
    refusals: Family<OfRefusal, Counter>,
    failures: Family<OfFailure, Counter>,
    lookup_seconds: Histogram,
    embedding_seconds: Histogram,
    embeddings: Counter,
    similarity: Histogram,
    bytes: Family<Direction, Counter>,
}

impl Default for CacheCounts {
    fn default() -> Self {
        Self {
            lookups: Family::default(),
            bypasses: Family::default(),
            stores: Family::default(),
            refusals: Family::default(),
            failures: Family::default(),
            lookup_seconds: Histogram::new(exponential_buckets(0.000_25, 2.0, 14)),
            embedding_seconds: Histogram::new(exponential_buckets(0.002, 2.0, 14)),
            embeddings: Counter::default(),
            similarity: Histogram::new(SIMILARITIES),
            bytes: Family::default(),
        }
    }
}

/// Finest where thresholds are.
const SIMILARITIES: [f64; 14] = [
    0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.88, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 1.0,
];

impl CacheCounts {
    /// A request was looked for, which took so long.
    pub fn looked_up(&self, route: &str, outcome: Outcome, took: Duration) {
        let outcome = match outcome {
            Outcome::Exact => "exact",
            Outcome::Semantic => "semantic",
            Outcome::Miss => "miss",
            Outcome::Refresh => "refresh",
            Outcome::Bypass => "bypass",
        };
        let route = route.to_owned();
        let labels = OfLookup { route, outcome };
        self.lookups.get_or_create(&labels).inc();
        self.lookup_seconds.observe(took.as_secs_f64());
    }

    /// A request was not for a cache.
    pub fn bypassed(&self, route: &str, cache: Kind, reason: Bypass) {
        let labels = OfBypass {
            route: route.to_owned(),
            cache: cache.as_str(),
            reason: reason.as_str(),
        };
        self.bypasses.get_or_create(&labels).inc();
    }

    /// An answer was stored in a cache.
    pub fn stored(&self, route: &str, cache: Kind) {
        let labels = OfStore {
            route: route.to_owned(),
            cache: cache.as_str(),
        };
        self.stores.get_or_create(&labels).inc();
    }

    /// An answer was not for the cache.
    pub fn refused(&self, route: &str, reason: Refusal) {
        let labels = OfRefusal {
            route: route.to_owned(),
            reason: reason.as_str(),
        };
        self.refusals.get_or_create(&labels).inc();
    }

    /// Something did not work.
    pub fn failed(&self, part: impl Into<Part>) {
        let part = match part.into() {
            Part::Redis => "redis",
            Part::Decode => "decode",
            Part::Embedding => "embedding",
            Part::Time => "time",
            Part::Room => "room",
        };
        self.failures.get_or_create(&OfFailure { part }).inc();
    }

    /// A provider was asked for a vector, which took so long.
    pub fn embedded(&self, took: Duration) {
        self.embeddings.inc();
        self.embedding_seconds.observe(took.as_secs_f64());
    }

    /// A text was compared, and this was the closest.
    pub fn compared(&self, best: f32) {
        self.similarity.observe(best.into());
    }

    /// So many bytes of an answer were stored.
    pub fn bytes_stored(&self, bytes: usize) {
        self.moved("stored", bytes);
    }

    /// So many bytes of an answer were replayed.
    pub fn bytes_replayed(&self, bytes: usize) {
        self.moved("replayed", bytes);
    }

    fn moved(&self, direction: &'static str, bytes: usize) {
        let labels = Direction { direction };
        self.bytes.get_or_create(&labels).inc_by(bytes as u64);
    }
}

pub(super) fn add(registry: &mut Registry, cache: &Cache) {
    let counts = cache.counts();
    let registry = registry.sub_registry_with_prefix("cache");
    registry.register(
        "lookups",
        "Requests that were looked for, by how they were answered",
        counts.lookups.clone(),
    );
    registry.register(
        "bypasses",
        "Requests that were not for a cache, by the reason",
        counts.bypasses.clone(),
    );
    registry.register("stores", "Answers that were stored", counts.stores.clone());
    registry.register(
        "refusals",
        "Answers that were not stored, by the reason",
        counts.refusals.clone(),
    );
    registry.register(
        "failures",
        "What did not work, each of which makes a miss at most",
        counts.failures.clone(),
    );
    registry.register(
        "lookup_seconds",
        "Time that it took to look for a request",
        counts.lookup_seconds.clone(),
    );
    registry.register(
        "embedding_seconds",
        "Time that a provider took for a vector, or for none",
        counts.embedding_seconds.clone(),
    );
    registry.register(
        "embeddings",
        "Vectors that a provider was asked for",
        counts.embeddings.clone(),
    );
    registry.register(
        "similarity",
        "The similarity of a text to the closest of those that it was compared with",
        counts.similarity.clone(),
    );
    registry.register(
        "bytes",
        "Bytes of answers that were stored and replayed",
        counts.bytes.clone(),
    );
    let memory_bytes = Family::<Of, Gauge>::default();
    let memory_entries = Family::<Of, Gauge>::default();
    for (of, Size { bytes, count }) in cache.held() {
        let whole = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        memory_bytes.get_or_create(&Of { of }).set(whole(bytes));
        memory_entries.get_or_create(&Of { of }).set(whole(count));
    }
    registry.register(
        "memory_bytes",
        "Bytes that the sidecar holds in memory, about",
        memory_bytes,
    );
    registry.register(
        "memory_entries",
        "What the sidecar holds in memory",
        memory_entries,
    );
    if let Some(is_connected) = cache.is_connected() {
        let connected = Gauge::<i64>::default();
        connected.set(is_connected.into());
        registry.register("redis_connected", "Whether Redis can be reached", connected);
    }
}
