//! Providers, and the ways that lead to them.

use super::{each_makes_its_problem, parse, problems_with};
use crate::config::{Endpoint, Provider};
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// What to write for an endpoint.
const ENDPOINT: &str = "write ip:port, as in 10.0.0.1:8000 or [2001:db8::1]:8000, or name:port \
                        with the DNS name of a headless service";

/// Two providers, and a route that reaches one of them in each way.
fn two_ways(a: &Value, b: &Value) -> Value {
    json!({
        "providers": [a, b],
        "routes": [
            {"name": "by-cluster", "targets": ["a"]},
            {"name": "in-pool", "reach": "pool", "targets": ["b"]},
        ],
    })
}

/// The providers of a document in which one route reaches two of them in a pool.
fn pool_of(a: &str, b: &str) -> Result<Vec<Provider>, Vec<String>> {
    let config = parse(&json!({
        "providers": [{"name": "a", "endpoint": a}, {"name": "b", "endpoint": b}],
        "routes": [{"name": "r", "reach": "pool", "targets": ["a", "b"]}],
    }))?;
    Ok(config.providers)
}

#[test]
fn a_provider_needs_the_way_by_which_its_routes_reach_it_and_no_other() {
    let a = json!({"name": "a", "cluster": "x"});
    let b = json!({"name": "b", "endpoint": "10.0.0.1:8000"});
    let config = parse(&two_ways(&a, &b)).unwrap();
    assert_eq!(config.providers[0].cluster.as_deref(), Some("x"));
    assert_eq!(config.providers[0].endpoint, None);
    assert_eq!(config.providers[1].cluster, None);
    let endpoint = "10.0.0.1:8000".parse().unwrap();
    assert_eq!(
        config.providers[1].endpoint,
        Some(Endpoint::Address(endpoint))
    );

    let (a, b) = (
        json!({"name": "a", "endpoint": "10.0.0.1:8000"}),
        json!({"name": "b", "cluster": "x"}),
    );
    assert_eq!(
        parse(&two_ways(&a, &b)).unwrap_err(),
        [
            "providers[0].cluster: missing; route \"by-cluster\" reaches it by cluster: write the name of one",
            "providers[1].endpoint: missing; route \"in-pool\" reaches it in a pool: write its ip:port",
        ]
    );
    // One that no route uses needs neither.
    let unused = json!([{"name": "a", "cluster": "x"}, {"name": "spare"}]);
    assert_eq!(problems_with("/providers", unused), [""; 0]);
}

#[test]
fn a_variant_needs_the_way_of_its_route() {
    let document = json!({
        "providers": [{"name": "a", "endpoint": "10.0.0.1:8000"}, {"name": "b", "cluster": "x"}],
        "routes": [{
            "name": "r",
            "reach": "pool",
            "targets": ["a"],
            "variants": [{"name": "v", "weight": 5, "targets": ["b"]}],
        }],
    });
    assert_eq!(
        parse(&document).unwrap_err(),
        ["providers[1].endpoint: missing; route \"r\" reaches it in a pool: write its ip:port"]
    );
}

#[test]
fn a_mistaken_reach_is_not_held_against_the_providers() {
    let problems = problems_with("/routes/0/reach", json!("poll"));
    assert_eq!(
        problems,
        ["routes[0].reach: \"poll\"; write one of: cluster, pool"]
    );
    let mut document = two_ways(
        &json!({"name": "a"}),
        &json!({"name": "b", "endpoint": "1.2.3.4:5"}),
    );
    document["routes"][0]["reach"] = json!(7);
    assert_eq!(
        parse(&document).unwrap_err(),
        ["routes[0].reach: 7; write one of: cluster, pool"]
    );
}

#[test]
fn a_cluster_leads_to_one_provider_among_those_that_are_reached_by_cluster() {
    // Both in the same pool, under the name of the pool's cluster.
    let (a, b) = (
        json!({"name": "a", "cluster": "x"}),
        json!({"name": "b", "cluster": "x", "endpoint": "10.0.0.1:8000"}),
    );
    assert!(parse(&two_ways(&a, &b)).is_ok());
    let mut document = two_ways(&a, &b);
    document["routes"][1]["reach"] = json!("cluster");
    assert_eq!(
        parse(&document).unwrap_err(),
        ["providers[1].cluster: \"x\" leads to \"a\" already"]
    );
}

#[test]
fn an_endpoint_leads_to_one_provider_always() {
    let (a, b) = (
        json!({"name": "a", "cluster": "x", "endpoint": "[::1]:80"}),
        json!({"name": "b", "endpoint": "[0:0::1]:80"}),
    );
    assert_eq!(
        parse(&two_ways(&a, &b)).unwrap_err(),
        ["providers[1].endpoint: \"[::1]:80\" leads to \"a\" already"]
    );
}

#[test]
fn an_endpoint_is_an_address_with_a_port() {
    for good in ["10.0.0.1:8000", "[2001:db8::1]:8000", "127.0.0.1:1"] {
        let providers = pool_of(good, "10.9.9.9:1").unwrap();
        assert_eq!(providers[0].endpoint.as_ref().unwrap().to_string(), good);
    }
    for bad in [
        "vllm-a",
        "vllm a:8000",
        "vllm-a.:-8000",
        "-vllm:8000",
        "vllm..svc:8000",
        "10.0.0.256:8000",
        "10.0.0.1",
        "10.0.0.1:0",
        "::1:80",
        "[fe80::1%2]:80",
        "http://10.0.0.1:80",
        "",
    ] {
        // Twice the same mistake is no duplicate.
        assert_eq!(
            pool_of(bad, bad).unwrap_err(),
            [0, 1].map(|index| format!("providers[{index}].endpoint: {bad:?}; {ENDPOINT}"))
        );
    }
}

#[test]
fn each_mistake_of_a_provider_is_told_with_its_path() {
    each_makes_its_problem(vec![
        (
            "/providers/0/weight",
            json!(0),
            "providers[0].weight: 0; write a whole number from 1 to 1000",
        ),
        (
            "/providers/0/weight",
            json!(1001),
            "providers[0].weight: 1001; write a whole number from 1 to 1000",
        ),
        (
            "/providers/0/weight",
            json!("much"),
            "providers[0].weight: \"much\"; write a whole number from 1 to 1000",
        ),
        (
            "/providers/0/endpoint",
            json!(8000),
            &format!("providers[0].endpoint: 8000; {ENDPOINT}"),
        ),
    ]);
    assert_eq!(problems_with("/providers/0/weight", json!(1000)), [""; 0]);
}

#[test]
fn allowed_keys_are_hashes_in_order_each_once() {
    let (low, high) = ("00ff".repeat(16), "ABCDEF09".repeat(8));
    let keys = json!([high.to_lowercase(), low, high]);
    let config = parse(&json!({
        "providers": [{"name": "a", "cluster": "x", "allowed_keys": keys}, {"name": "b", "cluster": "y", "allowed_keys": []}],
        "routes": [{"name": "r", "targets": ["a", "b"]}],
    }))
    .unwrap();
    let first: [u8; 32] = std::array::from_fn(|index| if index % 2 == 0 { 0 } else { 0xff });
    let second: [u8; 32] = std::array::from_fn(|index| [0xab, 0xcd, 0xef, 0x09][index % 4]);
    assert_eq!(config.providers[0].allowed_keys, [first, second]);
    assert_eq!(config.providers[1].allowed_keys, [[0; 32]; 0]);
}

#[test]
fn a_key_that_was_written_in_the_place_of_its_hash_is_not_shown() {
    let entry = "providers[0].allowed_keys[0]: no SHA-256; write the 64 hex digits of a key's";
    let list = "providers[0].allowed_keys: no list; write a list of texts";
    for (value, expected) in [
        (json!(["sk-secret"]), entry),
        (json!(["a".repeat(63)]), entry),
        (json!(["a".repeat(66)]), entry),
        (json!(["g".repeat(64)]), entry),
        (json!(["\u{e9}".repeat(32)]), entry),
        (json!([""]), entry),
        (json!([123_456_789]), entry),
        (json!([["sk-secret"]]), entry),
        (json!("sk-secret"), list),
        (json!(123_456_789), list),
    ] {
        assert_eq!(
            problems_with("/providers/0/allowed_keys", value.clone()),
            [expected],
            "{value}"
        );
    }
}
