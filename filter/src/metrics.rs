//! Numbers in Envoy's stats, where operators see them and other workers share them.
//!
//! A name is `rolter_what;label=value;…`. The `stats_tags` of the documented `envoy.yaml` turn the
//! labels into Prometheus labels, and names in the configuration cannot contain the separators.
//!
//! Each write is a call of the host. Where requests are many, what counts them [waits](wait) a moment
//! and is told in one call, however often it has changed.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use std::cell::RefCell;
use std::collections::HashMap;

thread_local! {
    /// What this VM has registered. Envoy would keep each registration of the same number as one
    /// more, and configurations come and go.
    static KNOWN: RefCell<HashMap<String, Metric>> = RefCell::default();

    /// What is to be told of counters and tallies, where that may wait.
    static WAITING: RefCell<Waiting> = RefCell::default();
}

/// Changes that wait at most: one that looks for its own passes over all of them.
const MAX_WAITING: usize = 64;

/// What was not told yet, of each metric at once.
#[derive(Default)]
struct Waiting {
    may_wait: bool,
    changes: Vec<Change>,
}

struct Change {
    metric: u32,
    /// What it was made to read, if it was.
    put: Option<u64>,
    /// What was added, since then.
    added: i64,
}

/// Whether changes of counters and tallies may wait until somebody [tells](tell) them.
pub(crate) fn wait(may_wait: bool) {
    tell();
    WAITING.with_borrow_mut(|waiting| waiting.may_wait = may_wait);
}

/// Tells Envoy all that waits.
pub(crate) fn tell() {
    WAITING.with_borrow_mut(Waiting::tell);
}

impl Waiting {
    fn change(&mut self, metric: u32, put: Option<u64>, added: i64) {
        let mut changes = self.changes.iter_mut();
        match changes.find(|change| change.metric == metric) {
            Some(change) if put.is_some() => (change.put, change.added) = (put, added),
            Some(change) => change.added = change.added.wrapping_add(added),
            None => {
                if self.changes.len() >= MAX_WAITING {
                    self.tell();
                }
                self.changes.push(Change { metric, put, added });
            }
        }
    }

    /// What a metric reads to this VM, given what it reads to others.
    fn seen(&self, metric: u32, others_see: impl FnOnce() -> u64) -> u64 {
        let change = self.changes.iter().find(|change| change.metric == metric);
        let Some(Change { put, added, .. }) = change else {
            return others_see();
        };
        put.unwrap_or_else(others_see).wrapping_add_signed(*added)
    }

    fn tell(&mut self) {
        for Change { metric, put, added } in self.changes.drain(..) {
            match put {
                Some(value) => Metric(Some(metric)).record(value.wrapping_add_signed(added)),
                None => Metric(Some(metric)).add(added),
            }
        }
    }
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

    fn read(self) -> u64 {
        let value = self.0.map(hostcalls::get_metric);
        value.and_then(Result::ok).unwrap_or(0)
    }

    /// Leaves a change for later, if it may wait. Whether it did.
    fn waits(self, put: Option<u64>, added: i64) -> bool {
        let Some(id) = self.0 else { return true };
        WAITING.with_borrow_mut(|waiting| {
            if waiting.may_wait {
                waiting.change(id, put, added);
            }
            waiting.may_wait
        })
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
        let amount = i64::try_from(amount).unwrap_or(i64::MAX);
        if amount != 0 && !self.0.waits(None, amount) {
            self.0.add(amount);
        }
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
pub(crate) struct Gauge {
    metric: Metric,
    is_tally: bool,
}

impl Gauge {
    pub(crate) fn define(name: &str, labels: &[(&str, &str)]) -> Self {
        Self {
            metric: Metric::define(MetricType::Gauge, name, labels),
            is_tally: false,
        }
    }

    /// One that changes with each request, so that what is written to it may wait.
    pub(crate) fn tally(name: &str, labels: &[(&str, &str)]) -> Self {
        Self {
            is_tally: true,
            ..Self::define(name, labels)
        }
    }

    pub(crate) fn add(self, amount: i64) {
        if !(self.is_tally && self.metric.waits(None, amount)) {
            self.metric.add(amount);
        }
    }

    pub(crate) fn put(self, value: u64) {
        if !(self.is_tally && self.metric.waits(Some(value), 0)) {
            self.metric.record(value);
        }
    }

    /// What it reads, with what this VM has yet to tell.
    pub(crate) fn read(self) -> u64 {
        match self.metric.0 {
            Some(id) if self.is_tally => {
                WAITING.with_borrow(|waiting| waiting.seen(id, || self.metric.read()))
            }
            _ => self.metric.read(),
        }
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
