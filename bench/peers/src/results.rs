//! What was measured, as the parts leave it to the report: every round as it was, so that medians and
//! scatter can be told afterwards.

use serde::{Deserialize, Serialize};

/// The overhead of a gateway, by the size of the body and the number of connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overhead {
    /// One for each gateway, size and number of connections.
    pub(crate) rows: Vec<OverheadRow>,
}

/// One gateway under one load.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct OverheadRow {
    /// The gateway's name, as in `sglang-router cache_aware`.
    pub(crate) gateway: String,
    /// Bytes of the request's body.
    pub(crate) body_bytes: usize,
    /// Connections that ask, one request at a time each.
    pub(crate) connections: usize,
    /// In their order.
    pub(crate) rounds: Vec<OverheadRound>,
}

/// What one round of it came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct OverheadRound {
    pub(crate) requests_per_sec: f64,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    /// Processor time of the gateway, all its processes, in seconds for a thousand requests.
    pub(crate) cpu_secs_per_1000: f64,
    /// Resident memory of all its processes after the round.
    pub(crate) memory_bytes: u64,
}

/// How well gateways route, by workload and fleet.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Routing {
    /// One for each gateway, workload and size of the fleet.
    pub(crate) rows: Vec<RoutingRow>,
}

/// One gateway under one workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RoutingRow {
    /// The workload's name.
    pub(crate) workload: String,
    /// Engines of the fleet.
    pub(crate) engines: usize,
    /// The gateway's name; the oracle and `round_robin` count as such.
    pub(crate) gateway: String,
    /// In their order.
    pub(crate) rounds: Vec<RoutingRound>,
}

/// What one play of it came to.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct RoutingRound {
    pub(crate) requests: usize,
    /// Requests without a right answer.
    pub(crate) failures: usize,
    /// The engines' own: prompt tokens found in their caches, of all that they looked up.
    pub(crate) hit_rate: f64,
    pub(crate) ttft_p50_ms: f64,
    pub(crate) ttft_p90_ms: f64,
    pub(crate) ttft_p99_ms: f64,
    /// Requests a second whose first token came within the bound.
    pub(crate) goodput_per_sec: f64,
    /// The busiest engine's prompt tokens to compute, by the average engine's.
    pub(crate) load_spread: f64,
}

/// What a decision costs as fleets grow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scale {
    /// One for each strategy and number of targets.
    pub(crate) rows: Vec<ScaleRow>,
}

/// One fleet under one strategy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ScaleRow {
    pub(crate) strategy: String,
    pub(crate) targets: usize,
    /// Worker VMs of one gateway.
    pub(crate) workers: usize,
    pub(crate) gateways: usize,
    /// The median decision: matching, picking, teaching.
    pub(crate) decision_nanos: f64,
    /// What one worker's memory and index hold.
    pub(crate) memory_bytes: usize,
    /// The simulated engines' hit rate.
    pub(crate) hit_rate: f64,
}
