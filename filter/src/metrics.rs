//! Numbers in Envoy's stats, where operators see them and other workers share them.
//!
//! A name is `rolter_what;label=value;…`. The `stats_tags` of the documented `envoy.yaml` turn the
//! labels into Prometheus labels, and names in the configuration cannot contain the separators.

use proxy_wasm::hostcalls;
use proxy_wasm::types::MetricType;
use std::cell::Cell;

/// A number that was registered with Envoy, or that Envoy refused and that counts nothing.
#[derive(Clone, Copy)]
struct Metric(Option<u32>);

impl Metric {
    fn define(kind: MetricType, name: &str, labels: &[(&str, &str)]) -> Self {
        let mut full = String::from(name);
        for (label, value) in labels {
            full.extend([";", label, "=", value]);
        }
        Self(hostcalls::define_metric(kind, &full).ok())
    }

    fn add(self, amount: i64) {
        if let Some(id) = self.0
            && amount != 0
        {
            // Envoy refuses only ids that it did not hand out.
            let _ = hostcalls::increment_metric(id, amount);
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

/// A number that all workers of an Envoy share: each adds what it contributes and takes it out
/// again. Below zero it would wrap, so nothing is taken out that was not added.
#[derive(Clone, Copy)]
pub(crate) struct Gauge(Metric);

impl Gauge {
    pub(crate) fn define(name: &str, labels: &[(&str, &str)]) -> Self {
        Self(Metric::define(MetricType::Gauge, name, labels))
    }

    pub(crate) fn add(self, amount: i64) {
        self.0.add(amount);
    }

    /// The sum of what all workers contribute.
    pub(crate) fn read(self) -> Option<u64> {
        hostcalls::get_metric(self.0.0?).ok()
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
        if let Some(id) = self.0.0 {
            let _ = hostcalls::record_metric(id, value);
        }
    }
}

/// One worker's share of a gauge, which it states as a whole. It is taken back when the plugin
/// ends; only a VM that dies leaves it behind.
pub(crate) struct Share {
    total: Gauge,
    mine: Cell<i64>,
}

impl Share {
    pub(crate) fn define(name: &str, labels: &[(&str, &str)]) -> Self {
        Self {
            total: Gauge::define(name, labels),
            mine: Cell::new(0),
        }
    }

    /// Makes the share this large.
    pub(crate) fn set(&self, value: usize) {
        let value = i64::try_from(value).unwrap_or(i64::MAX);
        self.total.add(value - self.mine.replace(value));
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.set(0);
    }
}
