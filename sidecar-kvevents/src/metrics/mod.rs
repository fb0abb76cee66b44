//! What operators see: counts that are kept where things happen, and their text for Prometheus,
//! which is made when it is asked for.

mod cache;
mod engines;
mod names;

pub use cache::{CacheCounts, Kind, Outcome, Part};
pub use engines::{ReplicaCounts, TargetCounts};
pub use names::LookupCounts;

use crate::cache::{Cache, Size};
use crate::state::State;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has happened to requests of the filter.
#[derive(Debug)]
pub struct HttpCounts {
    /// Requests for the feed that are being answered.
    pub feed_readers: AtomicU64,
    /// Pages that were sent.
    pub feed_pages: AtomicU64,
    /// Changes that the last reader was behind when it asked.
    pub feed_lag: AtomicU64,
    /// Requests that were refused, as there were too many of their kind.
    pub refused: AtomicU64,
    /// Prompts whose tokens were found.
    pub tokenized: AtomicU64,
    /// Prompts of a kind that has no tokens here.
    pub tokenize_refused: AtomicU64,
    /// Prompts whose tokens no engine told.
    pub tokenize_failed: AtomicU64,
    /// How long that took.
    pub tokenize_seconds: Histogram,
}

impl Default for HttpCounts {
    fn default() -> Self {
        Self {
            feed_readers: AtomicU64::default(),
            feed_pages: AtomicU64::default(),
            feed_lag: AtomicU64::default(),
            refused: AtomicU64::default(),
            tokenized: AtomicU64::default(),
            tokenize_refused: AtomicU64::default(),
            tokenize_failed: AtomicU64::default(),
            tokenize_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 12)),
        }
    }
}

/// Counts so many more.
pub fn add(count: &AtomicU64, more: u64) {
    count.fetch_add(more, Ordering::Relaxed);
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct What {
    what: &'static str,
}

/// All metrics as Prometheus reads them.
pub fn render(state: &State, http: &HttpCounts, cache: Option<&Cache>) -> String {
    let mut registry = Registry::default();
    let sidecar = registry.sub_registry_with_prefix("rolter_sidecar");
    engines::add_streams(sidecar, state);
    engines::add_targets(sidecar, state);
    names::add_names(sidecar, state);
    add_http(sidecar, http);
    if let Some(cache) = cache {
        cache::add(sidecar, cache);
    }
    let mut text = String::new();
    // A string takes all that is written to it.
    encode(&mut text, &registry).unwrap_or_default();
    text
}

fn add_http(registry: &mut Registry, http: &HttpCounts) {
    let readers = Gauge::<i64>::default();
    readers.set(i64::try_from(http.feed_readers.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
    let lag = Gauge::<i64>::default();
    lag.set(i64::try_from(http.feed_lag.load(Ordering::Relaxed)).unwrap_or(i64::MAX));
    let pages: Counter = Counter::default();
    pages.inc_by(http.feed_pages.load(Ordering::Relaxed));
    let tokenize = Family::<What, Counter>::default();
    for (what, count) in [
        ("done", &http.tokenized),
        ("refused", &http.tokenize_refused),
        ("failed", &http.tokenize_failed),
    ] {
        put(&tokenize, &What { what }, count);
    }
    let seconds = http.tokenize_seconds.clone();
    registry.register(
        "feed_readers",
        "Requests for the feed that wait or are answered",
        readers,
    );
    registry.register(
        "feed_lag_changes",
        "Changes that the last reader was behind",
        lag,
    );
    let refused: Counter = Counter::default();
    refused.inc_by(http.refused.load(Ordering::Relaxed));
    registry.register(
        "refused_requests",
        "Requests that were refused, as there were too many at once",
        refused,
    );
    registry.register("feed_pages", "Pages of the feed that were sent", pages);
    registry.register(
        "tokenize",
        "Prompts whose token ids were asked for, by outcome",
        tokenize,
    );
    registry.register(
        "tokenize_seconds",
        "Time that it took to have token ids",
        seconds,
    );
}

fn put<L>(family: &Family<L, Counter>, labels: &L, count: &AtomicU64)
where
    L: Clone + std::hash::Hash + Eq,
{
    family
        .get_or_create(labels)
        .inc_by(count.load(Ordering::Relaxed));
}

fn seconds(millis: u64) -> f64 {
    std::time::Duration::from_millis(millis).as_secs_f64()
}
