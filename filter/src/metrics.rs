//! Numbers in Envoy's stats, where operators see them and other workers share them.
//!
//! A name is `rolter_what;label=value;…`. The `stats_tags` of the documented `envoy.yaml` turn the
//! labels into Prometheus labels, and names in the configuration cannot contain the separators.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    /// What this VM has registered. Envoy would keep each registration of the same number as one
    /// more, and configurations come and go.
    static KNOWN: RefCell<HashMap<String, Metric>> = RefCell::default();
}

/// A number that was registered with Envoy, or that Envoy refused and that counts nothing.
#[derive(Clone, Copy)]
struct Metric(Option<u32>);

impl Metric {
    fn define(kind: MetricType, name: &str, labels: &[(&str, &str)]) -> Self {
        let mut full = String::from(name);
        for (label, value) in labels {
            full.extend([";", label, "=", value]);
        }
        KNOWN.with_borrow_mut(|known| {
            *known
                .entry(full)
                .or_insert_with_key(|full| Self(hostcalls::define_metric(kind, full).ok()))
        })
    }

    fn add(self, amount: i64) {
        if let Some(id) = self.0
            && amount != 0
        {
            // Envoy refuses only ids that it did not hand out.
            let _ = hostcalls::increment_metric(id, amount);
        }
    }

    fn record(self, value: u64) {
        if let Some(id) = self.0 {
            let _ = hostcalls::record_metric(id, value);
        }
    }
}

/// Goes up.
#[derive(Clone, Copy)]
pub(crate) struct Counter(Metric);

impl Counter {
    pub(crate) fn define(name: &str, labels: &[(&str, &str)]) -> Self {
        Self(Metric::define(MetricType::Counter, name, labels))
    }

    pub(crate) fn add(self, amount: u64) {
        self.0.add(i64::try_from(amount).unwrap_or(i64::MAX));
    }
}

/// Counters by a key, each registered when it first counts: a name that Envoy is told stays for ever.
pub(crate) struct Counters<K>(RefCell<Vec<(K, Counter)>>);

impl<K: Copy + PartialEq> Counters<K> {
    /// Counts one for a key. `define` is asked for its counter the first time.
    pub(crate) fn add_one(&self, key: K, define: impl FnOnce() -> Counter) {
        self.add(key, 1, define);
    }

    /// Counts so many.
    pub(crate) fn add(&self, key: K, amount: u64, define: impl FnOnce() -> Counter) {
        let mut counters = self.0.borrow_mut();
        let known = counters.iter().find(|(known, _)| *known == key);
        let counter = if let Some((_, counter)) = known {
            *counter
        } else {
            let counter = define();
            counters.push((key, counter));
            counter
        };
        counter.add(amount);
    }
}

impl<K> Default for Counters<K> {
    fn default() -> Self {
        Self(RefCell::default())
    }
}

/// A number that all workers of an Envoy have in common.
#[derive(Clone, Copy)]
pub(crate) struct Gauge(Metric);

impl Gauge {
    pub(crate) fn define(name: &str, labels: &[(&str, &str)]) -> Self {
        Self(Metric::define(MetricType::Gauge, name, labels))
    }

    pub(crate) fn add(self, amount: i64) {
        self.0.add(amount);
    }

    pub(crate) fn put(self, value: u64) {
        self.0.record(value);
    }

    pub(crate) fn read(self) -> u64 {
        let value = self.0.0.map(hostcalls::get_metric);
        value.and_then(Result::ok).unwrap_or(0)
    }
}

/// A distribution.
#[derive(Clone, Copy)]
pub(crate) struct Histogram(Metric);

impl Histogram {
    pub(crate) fn define(name: &str, labels: &[(&str, &str)]) -> Self {
        Self(Metric::define(MetricType::Histogram, name, labels))
    }

    pub(crate) fn record(self, value: u64) {
        self.0.record(value);
    }
}
