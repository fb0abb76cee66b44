use super::*;
use crate::results::{OverheadRound, RoutingRound};

fn overhead(rows: &[(&str, usize, usize, [f64; 2])]) -> Overhead {
    let round = |rate: f64| OverheadRound {
        requests_per_sec: rate,
        failures: 0,
        p50_micros: 1e6 / rate,
        p99_micros: 2e6 / rate,
        cpu_secs_per_1000: 1e3 / rate,
        memory_bytes: 100 << 20,
        harness_busy: 0.7,
    };
    let rows = rows
        .iter()
        .map(|(gateway, body_bytes, connections, rates)| OverheadRow {
            gateway: (*gateway).to_owned(),
            body_bytes: *body_bytes,
            connections: *connections,
            rounds: rates.map(round).to_vec(),
        });
    Overhead {
        alone: Vec::new(),
        rows: rows.collect(),
    }
}

fn routing(rows: &[(&str, f64, f64)]) -> Routing {
    let rows = rows.iter().map(|(gateway, hit_rate, p90)| RoutingRow {
        workload: "hot prefix".to_owned(),
        engines: 4,
        gateway: (*gateway).to_owned(),
        rounds: vec![RoutingRound {
            requests: 100,
            failures: 0,
            hit_rate: *hit_rate,
            ttft_p50_ms: p90 / 2.0,
            ttft_p90_ms: *p90,
            ttft_p99_ms: p90 * 2.0,
            goodput_per_sec: 30.0,
            load_spread: 1.2,
            busy: 0.5,
            late_p99_ms: 1.0,
        }],
    });
    Routing {
        rows: rows.collect(),
    }
}

fn results() -> Results {
    let load = |gateway, rates| (gateway, 4 << 10, 16, rates);
    let scaled = |strategy: &str, targets, decision_nanos| ScaleRow {
        strategy: strategy.to_owned(),
        targets,
        decision_nanos,
        host_calls: 26.0,
        memory_bytes: 5_000_000,
        ..ScaleRow::default()
    };
    Results {
        overhead: Some(overhead(&[
            load("plain Envoy", [12_000.0, 12_000.0]),
            // Twice as fast in the second round, as all are.
            load("floor", [8_000.0, 16_000.0]),
            load("rolter cache_aware", [7_600.0, 15_200.0]),
            load("sglang-router cache_aware", [7_000.0, 14_000.0]),
        ])),
        routing: Some(routing(&[
            ("rolter round_robin", 0.3, 900.0),
            ("rolter precise_cache_aware", 0.8, 100.0),
            ("vllm-router kv_aware", 0.7, 300.0),
            ("vllm-router cache_aware", 0.6, 90.0),
            ("oracle", 0.9, 80.0),
        ])),
        scale: Some(Scale {
            rows: vec![
                scaled("pipeline", 8, 2_000.0),
                scaled("pipeline", 512, 9_000.0),
            ],
        }),
    }
}

#[test]
fn claims_are_held_against_what_was_measured() {
    let told = claims::list(&claims::all(&results()));
    let right = "\
- requests/s at 4 KB and 16 connections to those of floor, at least 0.9: 0.950, met
- requests/s at 4 KB and 16 connections to those of sglang-router cache_aware, at least 1.1: 1.09, **not met**
- p99 at 4 KB and 16 connections to that of sglang-router cache_aware, at most 1: 0.921, met
- CPU for a request of 4 KB to that of sglang-router cache_aware, below 1: 0.921, met
- hot prefix, 4 engines: hit rate of rolter precise_cache_aware to the best peer's, vllm-router kv_aware, at least 1: 1.14, met
- hot prefix, 4 engines: hit rate of rolter precise_cache_aware to the oracle's, at least 0.95: 0.889, **not met**
- hot prefix, 4 engines: p90 of rolter precise_cache_aware to the best peer's, vllm-router cache_aware, below 1: 1.11, **not met**
- hot prefix, 4 engines: p90 of rolter precise_cache_aware to that of rolter round_robin, at most 1: 0.111, met
- a decision of pipeline over 512 targets to one over 8, below 4: 4.50, **not met**
";
    assert_eq!(told, right);
}

#[test]
fn what_was_not_measured_is_not_claimed() {
    let results = Results {
        overhead: None,
        routing: None,
        scale: None,
    };
    assert_eq!(claims::all(&results), []);
    assert!(chart::draw(&results).ends_with("</svg>\n"));
}

#[test]
fn a_report_has_a_row_for_each_gateway() {
    let results = results();
    let page = page(&results, &claims::all(&results));
    let row = "| 4 KB | 16 | rolter cache_aware | 11400 | 0.95 | 1.09 |  |";
    assert!(page.contains(row), "{page}");
    assert!(
        page.contains("| hot prefix | 4 | oracle | 90.0 % | 40 | 80 | 160 |"),
        "{page}"
    );
    assert!(
        page.contains("| pipeline | 512 | 9.00 | 4.50 | 26.0 | 5.00 |"),
        "{page}"
    );
}

#[test]
fn a_page_has_its_figures_between_its_marks() {
    let page = format!("one {BEGIN} old {END} two");
    let with = between(&page, "new").unwrap();
    assert_eq!(with, format!("one {BEGIN}\n\nnew\n{END} two"));
    assert_eq!(between(&with, "new").unwrap(), with);
    assert_eq!(between("none", "new"), None);
}

#[test]
fn marks_are_round_and_within_the_axis() {
    use axis::Axis;
    let marks = |axis: Axis| axis.marks();
    assert_eq!(
        marks(Axis::linear([93.0].into_iter())),
        [0.0, 25.0, 50.0, 75.0]
    );
    assert_eq!(
        marks(Axis::powers([4.0, 40.0].into_iter())),
        [5.0, 10.0, 20.0, 50.0]
    );
    let axis = Axis::powers([1.0, 100.0].into_iter());
    assert!((axis.at(10.0) - 0.5).abs() < 1e-9);
}
