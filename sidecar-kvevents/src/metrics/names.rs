//! What has come of looking for the addresses of DNS names, and who is there.

use super::{add, put, seconds};
use crate::state::State;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rolter_core::time::Millis;
use std::sync::atomic::{AtomicU64, Ordering};

/// What has come of the look-ups of one name.
#[derive(Debug, Default)]
pub struct LookupCounts {
    found: AtomicU64,
    empty: AtomicU64,
    failed: AtomicU64,
    /// Zero where there are none yet.
    found_at: AtomicU64,
    passed_over: AtomicU64,
}

impl LookupCounts {
    /// There were addresses, of which so many are passed over.
    pub fn found(&self, now: Millis, passed_over: usize) {
        self.found_at.store(now.0, Ordering::Relaxed);
        self.passed_over
            .store(passed_over as u64, Ordering::Relaxed);
        add(&self.found, 1);
    }

    /// The name has no address, as it is said.
    pub fn empty(&self) {
        add(&self.empty, 1);
    }

    /// Nobody could say.
    pub fn failed(&self) {
        add(&self.failed, 1);
    }

    /// Whether a server has said which addresses there are, or that there are none.
    pub fn is_answered(&self) -> bool {
        let counts = [&self.found, &self.empty];
        counts.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// How many addresses there was no room for at last.
    pub fn passed_over(&self) -> u64 {
        self.passed_over.load(Ordering::Relaxed)
    }
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

pub(super) fn add_names(registry: &mut Registry, state: &State) {
    if state.names().is_empty() {
        return;
    }
    let members = Family::<ProviderAnd, Gauge>::default();
    let lookups = Family::<ProviderAnd, Counter>::default();
    let age = Family::<Provider, Gauge<f64, AtomicU64>>::default();
    let passed_over = Family::<Provider, Gauge>::default();
    let targets = state.targets();
    for name in state.names() {
        let and = |what| ProviderAnd {
            provider: name.provider.clone(),
            what,
        };
        let provider = Provider {
            provider: name.provider.clone(),
        };
        let own = || {
            targets
                .iter()
                .filter(|target| target.provider == name.place)
        };
        let present = own().filter(|target| target.is_present()).count();
        for (what, count) in [("present", present), ("gone", own().count() - present)] {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            members.get_or_create(&and(what)).set(count);
        }
        let counts = &name.counts;
        for (what, count) in [
            ("found", &counts.found),
            ("empty", &counts.empty),
            ("failed", &counts.failed),
        ] {
            put(&lookups, &and(what), count);
        }
        let found_at = counts.found_at.load(Ordering::Relaxed);
        if found_at > 0 {
            let since = state.now().since(Millis(found_at));
            age.get_or_create(&provider).set(seconds(since));
        }
        let count = i64::try_from(counts.passed_over()).unwrap_or(i64::MAX);
        passed_over.get_or_create(&provider).set(count);
    }
    registry.register(
        "members",
        "Targets that are addresses of the provider's name, and those that were a moment ago",
        members,
    );
    registry.register(
        "lookups",
        "Look-ups of the provider's name, by outcome",
        lookups,
    );
    registry.register(
        "lookup_age_seconds",
        "Time since the name was last looked up with success",
        age,
    );
    registry.register(
        "passed_over_addresses",
        "Addresses of the name that are no targets, as there are too many",
        passed_over,
    );
}
