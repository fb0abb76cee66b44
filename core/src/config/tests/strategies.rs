//! Strategies and their options.

use super::{parse, problems_with, smallest};
use crate::balance::{Margins, Pipeline, Strategy};
use serde_json::{Value, json};
use std::time::Duration;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The strategy, and how much it remembers.
fn strategy(name: &str, options: Value) -> (Strategy, Option<usize>) {
    let mut document = smallest();
    document["routes"][0]["strategy"] = json!(name);
    if !options.is_null() {
        document["routes"][0][name] = options;
    }
    let route = &parse(&document).unwrap().routes[0];
    (route.strategy, route.max_nodes)
}

#[test]
fn each_strategy_has_its_name() {
    for (name, expected) in [
        ("consistent_hash", Strategy::ConsistentHash),
        ("power_of_two", Strategy::PowerOfTwo),
        ("least_load", Strategy::LeastLoad),
        ("round_robin", Strategy::RoundRobin),
        ("random", Strategy::Random),
        ("weighted", Strategy::Weighted),
    ] {
        assert_eq!(strategy(name, Value::Null), (expected, None));
    }
    let margins = Margins::default();
    for (name, expected) in [
        ("cache_aware", Strategy::CacheAware { margins }),
        ("pipeline", Strategy::Pipeline(Pipeline::default())),
    ] {
        assert_eq!(strategy(name, Value::Null), (expected, Some(1_000_000)));
    }
}

#[test]
fn a_pipeline_has_its_defaults_and_what_is_given() {
    let defaults = Pipeline {
        session: 0.5,
        session_ttl: Duration::from_mins(10),
        prefix: 1.0,
        load: 2.0,
        weight: 0.0,
        latency: 0.0,
    };
    assert_eq!(
        strategy("pipeline", json!({})),
        (Strategy::Pipeline(defaults), Some(1_000_000))
    );
    let given = json!({
        "session": "0.25", "session_ttl_secs": 604_800, "prefix": 0.0, "load": 100, "weight": 1, "latency": 2.5,
    });
    let pipeline = Pipeline {
        session: 0.25,
        session_ttl: Duration::from_hours(168),
        prefix: 0.0,
        load: 100.0,
        weight: 1.0,
        latency: 2.5,
    };
    assert_eq!(
        strategy("pipeline", given),
        (Strategy::Pipeline(pipeline), Some(1_000_000))
    );
    let given = json!({"max_nodes": 5000.0});
    assert_eq!(
        strategy("pipeline", given),
        (Strategy::Pipeline(defaults), Some(5000))
    );
}

#[test]
fn each_mistake_of_a_pipeline_is_told_with_its_path() {
    for (options, expected) in [
        (
            json!({"session": 101}),
            "routes[0].pipeline.session: 101; write a number from 0 to 100",
        ),
        (
            json!({"prefix": -1}),
            "routes[0].pipeline.prefix: -1; write a number from 0 to 100",
        ),
        (
            json!({"load": "NaN"}),
            "routes[0].pipeline.load: NaN; write a number from 0 to 100",
        ),
        (
            json!({"weight": true}),
            "routes[0].pipeline.weight: true; write a number from 0 to 100",
        ),
        (
            json!({"latency": "x"}),
            "routes[0].pipeline.latency: \"x\"; write a number from 0 to 100",
        ),
        (
            json!({"session_ttl_secs": 0}),
            "routes[0].pipeline.session_ttl_secs: 0; write a whole number from 1 to 604800",
        ),
        (
            json!({"session_ttl_secs": 604_801}),
            "routes[0].pipeline.session_ttl_secs: 604801; write a whole number from 1 to 604800",
        ),
        (
            json!({"max_nodes": 0}),
            "routes[0].pipeline.max_nodes: 0; write a whole number from 1 to 100000000",
        ),
        (
            json!({"speed": 1}),
            "routes[0].pipeline.speed: unknown key; known here: session, session_ttl_secs, prefix, load, weight, latency, max_nodes",
        ),
        (
            json!({"session": 0, "prefix": 0, "load": 0}),
            "routes[0].pipeline: all scorers weigh 0; write a weight for one",
        ),
        (
            json!({"session": 0, "session_ttl_secs": 60}),
            "routes[0].pipeline.session_ttl_secs: has no effect where session is 0; remove it",
        ),
        (
            json!({"prefix": 0, "max_nodes": 60}),
            "routes[0].pipeline.max_nodes: has no effect where prefix is 0; remove it",
        ),
        (
            json!([]),
            "routes[0].pipeline: a list is no object; write `key: value` pairs",
        ),
    ] {
        let mut document = smallest();
        document["routes"][0]["strategy"] = json!("pipeline");
        document["routes"][0]["pipeline"] = options.clone();
        assert_eq!(parse(&document).unwrap_err(), [expected], "{options}");
    }
}

#[test]
fn options_of_another_strategy_are_refused() {
    for (strategy, given) in [
        ("pipeline", "cache_aware"),
        ("cache_aware", "pipeline"),
        ("random", "pipeline"),
        ("weighted", "cache_aware"),
    ] {
        let mut document = smallest();
        document["routes"][0]["strategy"] = json!(strategy);
        document["routes"][0][given] = json!({"max_nodes": 10});
        let expected = format!("routes[0].{given}: has no effect with this strategy; remove it");
        assert_eq!(parse(&document).unwrap_err(), [expected], "{strategy}");
    }
    let expected = "routes[0].pipeline: has no effect with this strategy; remove it";
    assert_eq!(
        problems_with("/routes/0/pipeline", json!({})),
        [expected],
        "by default"
    );
}

#[test]
fn a_mistaken_strategy_is_not_held_against_its_options() {
    let mut document = smallest();
    document["routes"][0]["strategy"] = json!("pipelin");
    document["routes"][0]["pipeline"] = json!({"load": 3});
    let problems = parse(&document).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].starts_with("routes[0].strategy: \"pipelin\""));
}
