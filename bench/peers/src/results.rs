//! What was measured, as the parts leave it to the report: every round as it was, so that medians and
//! scatter can be told afterwards.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The overhead of a gateway, by the size of the body and the number of connections.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Overhead {
    /// What client and upstreams do without a gateway between them, measured once.
    pub(crate) alone: Vec<OverheadRow>,
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
    /// Requests without a right answer, those of the warm-up included.
    pub(crate) failures: usize,
    pub(crate) p50_micros: f64,
    pub(crate) p99_micros: f64,
    /// Processor time of the gateway, all its processes, in seconds for a thousand requests.
    pub(crate) cpu_secs_per_1000: f64,
    /// Resident memory of all its processes after the round.
    pub(crate) memory_bytes: u64,
    /// The share of their core that client and upstreams used. Near one, they were measured themselves.
    pub(crate) harness_busy: f64,
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
    /// The share of this machine's processors that client, engines and gateway took together.
    pub(crate) busy: f64,
    /// How late the client sent the latest hundredth of its requests. Much of it, and the play says
    /// more about the machine than about the gateway.
    pub(crate) late_p99_ms: f64,
}

/// What a decision costs as fleets grow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Scale {
    /// One for each strategy and number of targets.
    pub(crate) rows: Vec<ScaleRow>,
}

/// One fleet under one strategy.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ScaleRow {
    pub(crate) strategy: String,
    pub(crate) targets: usize,
    /// Worker VMs of one gateway.
    pub(crate) workers: usize,
    pub(crate) gateways: usize,
    /// The median decision, with all that is done for a request: learning from others, matching,
    /// reading loads, picking, ranking, teaching.
    pub(crate) decision_nanos: f64,
    /// Calls of its host that it makes.
    pub(crate) host_calls: f64,
    /// What one worker's memory and index hold.
    pub(crate) memory_bytes: usize,
    /// The simulated engines' hit rate.
    pub(crate) hit_rate: f64,
}

/// The times of one gateway under one load, or of one player under one workload.
pub(crate) trait Rounds {
    type Round;

    fn rounds(&self) -> &[Self::Round];

    /// A figure in the middle of its rounds.
    fn median(&self, figure: impl Fn(&Self::Round) -> f64) -> f64 {
        median(self.rounds().iter().map(figure))
    }

    /// What one figure comes to by another row's of the same round, in the middle of the rounds: what
    /// strikes a whole round strikes both.
    fn paired(
        &self,
        other: &Self,
        figure: impl Fn(&Self::Round) -> f64,
        compare: impl Fn(f64, f64) -> f64,
    ) -> f64 {
        let pairs = self.rounds().iter().zip(other.rounds());
        median(pairs.map(|(own, other)| compare(figure(own), figure(other))))
    }

    /// Likewise, as a ratio.
    fn ratio(&self, other: &Self, figure: impl Fn(&Self::Round) -> f64) -> f64 {
        self.paired(other, figure, |own, other| own / other)
    }
}

impl Rounds for OverheadRow {
    type Round = OverheadRound;

    fn rounds(&self) -> &[OverheadRound] {
        &self.rounds
    }
}

impl Rounds for RoutingRow {
    type Round = RoutingRound;

    fn rounds(&self) -> &[RoutingRound] {
        &self.rounds
    }
}

/// The value in the middle, or between the two that are; not a number where there is none.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match (values.get(middle.wrapping_sub(1)), values.get(middle)) {
        (Some(low), Some(high)) if values.len().is_multiple_of(2) => low.midpoint(*high),
        (_, Some(middle)) => *middle,
        _ => f64::NAN,
    }
}

/// The time that so many per cent of these, shortest first, did not exceed; zero where there is none.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let rank = (times.len() * percent).div_ceil(100);
    let time = times.get(rank.saturating_sub(1));
    time.copied().unwrap_or_default()
}

/// Leaves what a part has measured where the report looks for it.
pub(crate) fn write<T: Serialize>(folder: &Path, part: &str, what: &T) -> Result<(), String> {
    let file = file(folder, part);
    let json = serde_json::to_vec_pretty(what).map_err(|error| told(&file, error))?;
    std::fs::create_dir_all(folder).map_err(|error| told(&file, error))?;
    std::fs::write(&file, json).map_err(|error| told(&file, error))
}

/// What a part has measured, if it has.
pub(crate) fn read<T: DeserializeOwned>(folder: &Path, part: &str) -> Result<Option<T>, String> {
    let file = file(folder, part);
    if !file.exists() {
        return Ok(None);
    }
    let json = std::fs::read(&file).map_err(|error| told(&file, error))?;
    serde_json::from_slice(&json).map_err(|error| told(&file, error))
}

fn file(folder: &Path, part: &str) -> PathBuf {
    folder.join(format!("{part}.json"))
}

/// What is wrong with a file.
pub(crate) fn told(file: &Path, error: impl std::fmt::Display) -> String {
    format!("{}: {error}", file.display())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_a_time_that_was_measured() {
        let times: Vec<Duration> = (1..=200).map(Duration::from_micros).collect();
        let micros = |percent| percentile(&times, percent).as_micros();
        assert_eq!([1, 50, 99, 100].map(micros), [2, 100, 198, 200]);
        assert_eq!(percentile(&times[..1], 99), times[0]);
        assert_eq!(percentile(&[], 50), Duration::ZERO);
    }

    #[test]
    fn a_median_is_in_the_middle() {
        let of = |values: &[f64]| median(values.iter().copied());
        for (values, middle) in [
            (&[3.0, 1.0, 2.0][..], 2.0),
            (&[4.0, 1.0], 2.5),
            (&[7.0], 7.0),
        ] {
            assert!((of(values) - middle).abs() < 1e-9, "{values:?}");
        }
        assert!(of(&[]).is_nan());
    }
}
