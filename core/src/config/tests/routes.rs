//! Routes, and how they split their requests.

use super::parse;
use crate::config::{Group, Reach, Route};
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A document with three providers and this route, but for its name.
fn route(mut route: Value) -> Result<Route, Vec<String>> {
    route["name"] = json!("r");
    let providers = ["a", "b", "c"]
        .map(|name| json!({"name": name, "cluster": name, "endpoint": format!("[::{name}]:1")}));
    let mut config = parse(&json!({"providers": providers, "routes": [route]}))?;
    Ok(config.routes.remove(0))
}

fn group(name: Option<&str>, percent: u32, targets: &[usize]) -> Group {
    Group {
        name: name.map(str::to_owned),
        percent,
        targets: targets.to_vec(),
    }
}

#[test]
fn a_route_reaches_its_targets_by_cluster_or_in_a_pool() {
    for (reach, expected) in [("cluster", Reach::Cluster), ("pool", Reach::Pool)] {
        let route = route(json!({"reach": reach, "targets": ["a"]})).unwrap();
        assert_eq!(route.reach, expected);
    }
}

#[test]
fn variants_take_their_percents_and_the_targets_of_the_route_the_rest() {
    let route = route(json!({
        "targets": ["a", "b"],
        "variants": [
            {"name": "canary", "weight": 5.0, "targets": ["c"]},
            // A target may be in several groups.
            {"name": "dark.1", "weight": 20, "targets": ["b", "c"]},
        ],
    }))
    .unwrap();
    assert_eq!(
        route.groups,
        [
            group(None, 75, &[0, 1]),
            group(Some("canary"), 5, &[2]),
            group(Some("dark.1"), 20, &[1, 2]),
        ]
    );
}

#[test]
fn variants_that_take_all_leave_a_route_without_targets_of_its_own() {
    let variants = json!([
        {"name": "blue", "weight": 99, "targets": ["a"]},
        {"name": "green", "weight": 1, "targets": ["b"]},
    ]);
    let split = route(json!({"variants": variants})).unwrap();
    assert_eq!(
        split.groups,
        [group(Some("blue"), 99, &[0]), group(Some("green"), 1, &[1])]
    );
    assert_eq!(
        route(json!({"variants": variants, "targets": ["c"]})).unwrap_err(),
        ["routes[0].targets: get nothing beside the variants; remove it"]
    );
}

#[test]
fn each_mistake_of_a_variant_is_told_with_its_path() {
    let variant = |name: &str, weight: Value, targets: Value| json!({"name": name, "weight": weight, "targets": targets});
    let one = || variant("v", json!(40), json!(["b"]));
    let cases = [
        (
            json!({"variants": [one(), variant("w", json!(50), json!(["c"]))]}),
            "routes[0].targets: missing; the variants leave 10 percent: write a list",
        ),
        (
            json!({"targets": ["a"], "variants": [one(), variant("w", json!(70), json!(["c"]))]}),
            "routes[0].variants: 110 percent in all; a route has 100 to give",
        ),
        (
            json!({"variants": [one(), variant("w", json!(70), json!(["c"]))]}),
            "routes[0].variants: 110 percent in all; a route has 100 to give",
        ),
        (
            json!({"targets": [], "variants": [one()]}),
            "routes[0].targets: empty; write at least one",
        ),
        (
            json!({"targets": ["a"], "variants": []}),
            "routes[0].variants: empty; write at least one",
        ),
        (
            json!({"targets": ["a"], "variants": {"name": "v"}}),
            "routes[0].variants: an object; write a list",
        ),
        (
            json!({"targets": ["a"], "variants": [one(), one()]}),
            "routes[0].variants[1].name: \"v\" is taken by [0]; names differ",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v v", json!(1), json!(["b"]))]}),
            "routes[0].variants[0].name: \"v v\"; write up to 64 letters, digits, \".\", \"_\" and \"-\"",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v", json!(0), json!(["b"]))]}),
            "routes[0].variants[0].weight: 0; write a whole number from 1 to 100",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v", json!("2.5"), json!(["b"]))]}),
            "routes[0].variants[0].weight: 2.5; write a whole number from 1 to 100",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v", Value::Null, json!(["b"]))]}),
            "routes[0].variants[0].weight: missing; write the percent of requests it gets",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v", json!(1), json!([]))]}),
            "routes[0].variants[0].targets: empty; write at least one",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v", json!(1), Value::Null)]}),
            "routes[0].variants[0].targets: missing; write a list",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v", json!(1), json!(["b", "b"]))]}),
            "routes[0].variants[0].targets[1]: \"b\" is a target here already",
        ),
        (
            json!({"targets": ["a"], "variants": [variant("v", json!(1), json!(["d"]))]}),
            "routes[0].variants[0].targets[0]: no provider \"d\"; there are: a, b, c",
        ),
        (
            json!({"targets": ["a"], "variants": [{"name": "v", "weight": 1, "targets": ["b"], "strategy": "random"}]}),
            "routes[0].variants[0].strategy: unknown key; known here: name, weight, targets",
        ),
    ];
    for (mistaken, expected) in cases {
        assert_eq!(
            route(mistaken.clone()).unwrap_err(),
            [expected],
            "{mistaken}"
        );
    }
}

#[test]
fn more_targets_than_a_set_holds_are_refused() {
    let providers: Vec<Value> = (0..513)
        .map(|n| json!({"name": format!("p{n}"), "cluster": format!("c{n}")}))
        .collect();
    let names: Vec<Value> = (0..513).map(|n| json!(format!("p{n}"))).collect();
    let (own, canary) = names.split_at(200);
    for route in [
        json!({"name": "r", "targets": names}),
        json!({"name": "r", "targets": own, "variants": [{"name": "v", "weight": 5, "targets": canary}]}),
    ] {
        let problems = parse(&json!({"providers": providers, "routes": [route]}));
        assert_eq!(
            problems.unwrap_err(),
            ["routes[0].targets: 513 of them in all; a route has 512 at most"]
        );
    }
    // A target of two groups counts once.
    let route = json!({"name": "r", "targets": names[..512], "variants": [{"name": "v", "weight": 5, "targets": names[..512]}]});
    assert!(parse(&json!({"providers": providers, "routes": [route]})).is_ok());
}
