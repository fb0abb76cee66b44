//! The figures as tables.

use super::{short, size};
use crate::gateway::Contender;
use crate::results::{Overhead, OverheadRow, Rounds, Routing, RoutingRow, Scale};

/// Next to whom each gateway is put.
const BESIDE: [Contender; 3] = [Contender::Floor, Contender::Sglang, Contender::Vllm];

/// A table of these columns. Numbers, which all but the first few are, stand at the right.
struct Table {
    text: String,
}

impl Table {
    fn new(names: usize, columns: &[&str]) -> Self {
        let lines = (0..columns.len()).map(|place| if place < names { "---" } else { "---:" });
        let lines: Vec<&str> = lines.collect();
        let text = format!("| {} |\n|{}|\n", columns.join(" | "), lines.join("|"));
        Self { text }
    }

    fn row(&mut self, cells: &[String]) {
        self.text += &format!("| {} |\n", cells.join(" | "));
    }
}

/// What each gateway costs.
pub(super) fn overhead(overhead: &Overhead) -> String {
    let mut table = Table::new(
        3,
        &[
            "body",
            "connections",
            "gateway",
            "requests/s",
            "× floor",
            "× sglang-router",
            "× vllm-router",
            "p50 µs",
            "p99 µs",
            "CPU s/1,000",
            "memory MiB",
            "client busy",
            "failed",
        ],
    );
    let rows = overhead.alone.iter().chain(&overhead.rows);
    let mut rows: Vec<&OverheadRow> = rows.collect();
    rows.sort_by_key(|row| (row.body_bytes, row.connections));
    for row in rows {
        let beside = BESIDE.map(|other| {
            let other = overhead.row(other.name(), row.body_bytes, row.connections);
            let other = other.filter(|_| overhead.gateways().contains(&&*row.gateway));
            other.map_or_else(String::new, |other| {
                format!("{:.2}", row.ratio(other, |round| round.requests_per_sec))
            })
        });
        let [floor, sglang, vllm] = beside;
        table.row(&[
            size(row.body_bytes),
            row.connections.to_string(),
            row.gateway.clone(),
            format!("{:.0}", row.median(|round| round.requests_per_sec)),
            floor,
            sglang,
            vllm,
            format!("{:.0}", row.median(|round| round.p50_micros)),
            format!("{:.0}", row.median(|round| round.p99_micros)),
            format!("{:.3}", row.median(|round| round.cpu_secs_per_1000)),
            format!("{:.0}", row.median(|round| mebibytes(round.memory_bytes))),
            percent(row.median(|round| round.harness_busy)),
            row.rounds
                .iter()
                .map(|round| round.failures)
                .sum::<usize>()
                .to_string(),
        ]);
    }
    let rounds = overhead.rows.first().map_or(0, |row| row.rounds.len());
    format!(
        "### What a gateway costs\n\nMedians of {rounds} rounds.\n\n{}",
        table.text
    )
}

/// How well each routes.
pub(super) fn routing(routing: &Routing) -> String {
    let mut table = Table::new(
        3,
        &[
            "workload",
            "engines",
            "gateway",
            "hit rate",
            "TTFT p50 ms",
            "p90 ms",
            "p99 ms",
            "goodput/s",
            "load spread",
            "machine busy",
            "failed",
        ],
    );
    for (workload, engines) in routing.plays() {
        for gateway in routing.gateways() {
            let Some(row) = routing.row(gateway, workload, engines) else {
                continue;
            };
            table.row(&cells(row));
        }
    }
    let rounds = routing.rows.first().map_or(0, |row| row.rounds.len());
    format!(
        "### How well it routes\n\nMedians of {rounds} rounds.\n\n{}",
        table.text
    )
}

fn cells(row: &RoutingRow) -> [String; 11] {
    [
        row.workload.clone(),
        row.engines.to_string(),
        row.gateway.clone(),
        format!("{:.1} %", 100.0 * row.median(|round| round.hit_rate)),
        format!("{:.0}", row.median(|round| round.ttft_p50_ms)),
        format!("{:.0}", row.median(|round| round.ttft_p90_ms)),
        format!("{:.0}", row.median(|round| round.ttft_p99_ms)),
        format!("{:.1}", row.median(|round| round.goodput_per_sec)),
        format!("{:.2}", row.median(|round| round.load_spread)),
        percent(row.median(|round| round.busy)),
        row.rounds
            .iter()
            .map(|round| round.failures)
            .sum::<usize>()
            .to_string(),
    ]
}

/// What a decision costs as fleets grow.
pub(super) fn scale(scale: &Scale) -> String {
    let mut table = Table::new(
        2,
        &[
            "strategy",
            "targets",
            "decision µs",
            "× that at the fewest",
            "calls of the host",
            "memory of a worker MB",
            "hit rate",
        ],
    );
    for row in &scale.rows {
        let fewest = scale
            .rows
            .iter()
            .filter(|other| other.strategy == row.strategy);
        let fewest = fewest.min_by_key(|other| other.targets).unwrap_or(row);
        table.row(&[
            row.strategy.clone(),
            row.targets.to_string(),
            short(row.decision_nanos / 1e3),
            short(row.decision_nanos / fewest.decision_nanos),
            short(row.host_calls),
            short(megabytes(row.memory_bytes)),
            format!("{:.1} %", 100.0 * row.hit_rate),
        ]);
    }
    let shape = scale
        .rows
        .first()
        .map_or((0, 0), |row| (row.gateways, row.workers));
    let (gateways, workers) = shape;
    format!(
        "### As fleets grow\n\nSimulated: {gateways} gateways of {workers} workers each.\n\n{}",
        table.text
    )
}

fn percent(share: f64) -> String {
    format!("{:.0} %", 100.0 * share)
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
fn mebibytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

#[expect(clippy::cast_precision_loss, reason = "to be read by people")]
pub(super) fn megabytes(bytes: usize) -> f64 {
    bytes as f64 / 1e6
}
