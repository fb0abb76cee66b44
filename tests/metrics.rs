//! What operators see.

use e2e::cached::PATIENCE;
use e2e::{CHAT, Caller, all_released, answer, say, setup, start, text};
use fleet::Fleet;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

fn file(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)).unwrap()
}

/// The words of a text that may be names of metrics.
fn words(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !is_part(c))
        .filter(|word| word.starts_with("rolter_"))
        .collect()
}

/// A pool in which everything has happened that a metric tells of, and what Prometheus gets.
async fn eventful_metrics() -> String {
    let setup = setup(2, 2).watched().pool().configure(|config| {
        let nobody = "0".repeat(64);
        config["providers"][0]["allowed_keys"] = Value::Null;
        let mut private = config["providers"][0].clone();
        private["name"] = "private".into();
        private["endpoint"] = "127.0.0.1:1".into();
        private["allowed_keys"] = vec![nobody].into();
        private["kv_events"] = Value::Null;
        config["providers"].as_array_mut().unwrap().push(private);
        let mut route = config["routes"][1].clone();
        route["name"] = "private".into();
        route["match"] = serde_json::json!({"path_prefix": "/private/"});
        route["targets"] = vec!["private"].into();
        config["routes"][0]["cache"] = serde_json::json!({"scope": "route"});
        config["routes"].as_array_mut().unwrap().insert(0, route);
    });
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    let prompt = text("metrics", 16);
    let home = caller.say(&prompt).await.engine;
    let engine = |name: &str| fleet.engines().iter().find(|engine| engine.name() == name);
    engine(&home)
        .unwrap()
        .set_fault(Some("503".parse().unwrap()));
    assert_eq!(caller.say(&prompt).await.status, 200);
    caller.request(CHAT).body("garbage").send().await.unwrap();
    let long = say(&text("long", 20_000));
    caller.send(CHAT, &long).await;
    assert_eq!(answer(caller.bodiless("/private/")).await.status, 403);
    assert_eq!(answer(caller.bodiless("/v1/models")).await.status, 200);
    all_released(&fleet).await;
    // Some are written with the next beat, and those that nobody has documented are waited for too.
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    let (documented, began) = (documented(), Instant::now());
    loop {
        let metrics = prometheus(&fleet).await;
        if words(&documented).is_subset(&names(&metrics)) || began.elapsed() > PATIENCE {
            return metrics;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// The names in the tables of the documentation.
fn documented() -> String {
    let texts = [
        "README.md",
        "docs/exact-routing.md",
        "docs/response-cache.md",
    ]
    .map(file);
    let texts = texts.concat();
    let table = texts.lines().filter(|line| line.starts_with("| `rolter_"));
    let table: Vec<&str> = table.filter_map(|line| line.split('|').nth(1)).collect();
    table.join(" ")
}

async fn prometheus(fleet: &Fleet) -> String {
    fleet.ask_admin("/stats/prometheus").await.unwrap()
}

/// The metrics of the filter by their names, without the suffixes of histograms.
fn names(metrics: &str) -> BTreeSet<&str> {
    let types = metrics
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    types
        .filter_map(|line| line.split(' ').next())
        .filter(|name| name.starts_with("rolter_"))
        .collect()
}

#[tokio::test]
async fn every_metric_is_documented_and_every_documented_one_exists() {
    let metrics = eventful_metrics().await;
    assert_eq!(words(&documented()), names(&metrics));
}

#[tokio::test]
async fn every_query_of_the_dashboard_names_metrics_and_labels_that_exist() {
    let metrics = eventful_metrics().await;
    let dashboard: Value = serde_json::from_str(&file("envoy/grafana/rolter.json")).unwrap();
    let mut queries = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            queries.push(target["expr"].as_str().unwrap());
        }
    }
    for variable in dashboard["templating"]["list"].as_array().unwrap() {
        queries.extend(variable["definition"].as_str());
    }
    assert!(queries.len() > 15, "{queries:?}");
    for query in queries {
        let asked = words(query);
        assert!(!asked.is_empty(), "{query}");
        for name in asked {
            let lines: Vec<_> = metrics
                .lines()
                .filter(|line| {
                    line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} "))
                })
                .collect();
            assert!(!lines.is_empty(), "{name} of {query}");
            for label in ["route", "target", "reason", "outcome"] {
                let asks =
                    query.contains(&format!("{label}=")) || query.contains(&format!("by ({label}"));
                let has = lines
                    .iter()
                    .any(|line| line.contains(&format!("{label}=\"")));
                assert!(!asks || has, "{name} has no {label}, in {query}");
            }
        }
    }
}

/// Reports how long decisions take; how long they may, no test can say.
#[tokio::test]
async fn the_time_of_a_decision_over_eight_targets_is_reported() {
    let fleet = start(setup(8, 2)).await;
    let caller = Caller::new(&fleet);
    for number in 0..2_000 {
        caller.say(&text(&format!("{}", number % 50), 16)).await;
    }
    let mut buckets = Vec::new();
    // Envoy brings histograms up to date every five seconds.
    for _ in 0..100 {
        buckets = decision_buckets(&prometheus(&fleet).await);
        if buckets.last().is_some_and(|(_, all)| *all == 2_000) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let all = buckets.last().map_or(0, |(_, all)| *all);
    assert_eq!(all, 2_000);
    for percent in [50, 90, 99] {
        let mut reached = buckets
            .iter()
            .filter(|(_, count)| count * 100 >= all * percent);
        let (bound, _) = reached.next().unwrap();
        eprintln!(
            "{percent} % of the decisions on 1 KiB prompts over 8 targets took at most {bound} µs"
        );
    }
}

/// How many decisions took at most so many microseconds.
fn decision_buckets(metrics: &str) -> Vec<(String, u64)> {
    let buckets = metrics.lines().filter_map(|line| {
        let rest = line.strip_prefix("rolter_decision_microseconds_bucket{le=\"")?;
        let (bound, count) = rest.split_once("\"} ")?;
        Some((bound.to_owned(), count.parse().ok()?))
    });
    buckets.collect()
}
