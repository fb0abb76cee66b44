//! The document as a whole, and what is said about mistakes in general.

mod cache;
mod endpoint;
mod matching;
mod policy;
mod providers;
mod routes;
#[cfg(not(target_arch = "wasm32"))]
mod schema;
mod sidecar;
mod strategies;

use super::*;
use crate::balance::{Guard, Margins, Strategy};
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The smallest document that works.
fn smallest() -> Value {
    json!({
        "providers": [{"name": "a", "cluster": "cluster-a"}],
        "routes": [{"name": "chat", "targets": ["a"]}],
    })
}

fn parse(document: &Value) -> Result<Config, Vec<String>> {
    let config = Config::read(document);
    #[cfg(not(target_arch = "wasm32"))]
    if config.is_ok() {
        schema::takes(document);
    }
    config.map_err(|errors| errors.0.iter().map(ToString::to_string).collect())
}

/// Each of these values, put in its place of the smallest document, makes this problem.
fn each_makes_its_problem(cases: Vec<(&str, Value, &str)>) {
    for (pointer, value, expected) in cases {
        let problems = problems_with(pointer, value);
        assert!(
            problems.iter().any(|problem| problem == expected),
            "{expected}\nnot in {problems:#?}"
        );
    }
}

/// The problems of the smallest document with one value put in its place.
fn problems_with(pointer: &str, value: Value) -> Vec<String> {
    let mut document = smallest();
    match document.pointer_mut(pointer) {
        Some(place) => *place = value,
        None => {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            document.pointer_mut(parent).unwrap()[key] = value;
        }
    }
    parse(&document).err().unwrap_or_default()
}

#[test]
fn what_is_not_given_has_its_default() {
    let config = parse(&smallest()).unwrap();
    assert_eq!(config.max_request_bytes, 1_048_576);
    assert!(!config.debug_headers);
    assert!(config.log_fields);
    assert_eq!(config.session_header, "x-session-id");
    assert_eq!(config.key_header, "authorization");
    assert_eq!(
        config.providers,
        [Provider {
            name: "a".into(),
            cluster: Some("cluster-a".into()),
            endpoint: None,
            weight: 1,
            allowed_keys: Vec::new(),
            api_base: None,
            api_key_env: None,
            kv_events: None,
            lmcache: None,
        }]
    );
    let [route] = &config.routes[..] else {
        panic!()
    };
    assert_eq!(route.conditions, Conditions::default());
    assert_eq!(route.reach, Reach::Cluster);
    assert_eq!(
        route.groups,
        [Group {
            name: None,
            percent: 100,
            targets: vec![0],
        }]
    );
    assert_eq!(
        route.strategy,
        Strategy::CacheAware {
            margins: Margins {
                threshold: 0.5,
                miss_weight: 12.0,
                guard: Guard {
                    balance_abs: 8,
                    balance_rel: 1.5
                },
            },
        }
    );
    assert_eq!(route.max_nodes, Some(1_000_000));
}

#[test]
fn what_is_given_is_read() {
    let config = parse(&json!({
        // Envoy hands numbers over as floating point.
        "max_request_bytes": 2048.0,
        "debug_headers": true,
        "log_fields": false,
        "session_header": "X-Conversation",
        "key_header": "api-key",
        "providers": [
            {"name": "a", "cluster": "cluster-a"},
            {"name": "b.1_x-y", "cluster": "outbound|80||b.svc"},
        ],
        "routes": [
            {
                "name": "chat",
                "match": {"hosts": ["*.Example.com:8080"], "path_prefix": "/v1/", "models": ["llama-*"], "route_name": "r"},
                "strategy": "cache_aware",
                "targets": ["b.1_x-y", "a"],
                // Its YAML reader makes texts of fractions.
                "cache_aware": {"threshold": "0.25", "miss_weight": 3, "balance_abs": 4, "balance_rel": 2, "max_nodes": 5000},
            },
            {"name": "rest", "strategy": "round_robin", "targets": ["a"], "match": null},
            {"name": "more", "strategy": "least_load", "targets": ["a"]},
        ],
    }))
    .unwrap();
    assert_eq!(config.max_request_bytes, 2048);
    assert!(config.debug_headers);
    assert!(!config.log_fields);
    assert_eq!(config.session_header, "x-conversation");
    assert_eq!(config.key_header, "api-key");
    assert_eq!(
        config.providers[1].cluster.as_deref(),
        Some("outbound|80||b.svc")
    );
    assert_eq!(config.routes[0].groups[0].targets, [1, 0]);
    let host = |host: &[u8]| config.routes[0].conditions.head(host, b"/v1/", Some(b"r"));
    assert!(host(b"llm.example.com") && host(b"LLM.EXAMPLE.COM:80") && !host(b"example.com"));
    assert_eq!(
        config.routes[0].strategy,
        Strategy::CacheAware {
            margins: Margins {
                threshold: 0.25,
                miss_weight: 3.0,
                guard: Guard {
                    balance_abs: 4,
                    balance_rel: 2.0
                },
            },
        }
    );
    assert_eq!(config.routes[0].max_nodes, Some(5000));
    assert_eq!(config.routes[1].strategy, Strategy::RoundRobin);
    assert_eq!(config.routes[2].strategy, Strategy::LeastLoad);
}

#[test]
fn each_mistake_is_told_with_its_path() {
    let cases = vec![
        (
            "/providers/0/cluster",
            json!("a b"),
            "providers[0].cluster: a cluster's name has no spaces or control characters",
        ),
        (
            "/routes/0/cache_aware",
            json!({"balance_abs": "2.5", "max_nodes": -1.0}),
            "routes[0].cache_aware.balance_abs: 2.5; write a whole number from 0 to 1000000",
        ),
        (
            "/providers/0/cluster",
            Value::Null,
            "providers[0].cluster: missing; route \"chat\" reaches it by cluster: write the name of one",
        ),
        (
            "/providers/0/cluster",
            json!(7),
            "providers[0].cluster: 7; write a text",
        ),
        (
            "/providers/0/name",
            json!("a;b"),
            "providers[0].name: \"a;b\"; write up to 64 letters, digits, \".\", \"_\" and \"-\"",
        ),
        (
            "/providers/0/url",
            json!("x"),
            "providers[0].url: unknown key; known here: name, cluster, endpoint, weight, allowed_keys, api_base, api_key_env, kv_events, lmcache",
        ),
        (
            "/providers",
            json!([]),
            "providers: empty; write at least one",
        ),
        (
            "/providers",
            json!({}),
            "providers: an object; write a list",
        ),
        ("/routes", Value::Null, "routes: missing; write a list"),
        (
            "/routes/0",
            json!(true),
            "routes[0]: true is no object; write `key: value` pairs",
        ),
        (
            "/routes/0/targets",
            json!(["a", "vllm-x"]),
            "routes[0].targets[1]: no provider \"vllm-x\"; there are: a",
        ),
        (
            "/routes/0/targets",
            json!(["a", "a"]),
            "routes[0].targets[1]: \"a\" is a target here already",
        ),
        (
            "/routes/0/targets",
            json!([1]),
            "routes[0].targets[0]: 1 is no text",
        ),
        (
            "/routes/0/targets",
            json!([]),
            "routes[0].targets: empty; write at least one",
        ),
        (
            "/routes/0/targets",
            json!("a"),
            "routes[0].targets: \"a\"; write a list of texts",
        ),
        (
            "/routes/0/strategy",
            json!("fastest"),
            "routes[0].strategy: \"fastest\"; write one of: cache_aware, consistent_hash, power_of_two, least_load, round_robin, random, weighted, pipeline, precise_cache_aware, lmcache_aware",
        ),
        (
            "/routes/0/cache_aware",
            json!({"treshold": 0.5}),
            "routes[0].cache_aware.treshold: unknown key; known here: threshold, miss_weight, balance_abs, balance_rel, max_nodes",
        ),
        (
            "/routes/0/cache_aware",
            json!({"threshold": 1.5}),
            "routes[0].cache_aware.threshold: 1.5; write a number from 0 to 1",
        ),
        (
            "/routes/0/cache_aware",
            json!({"balance_abs": -1}),
            "routes[0].cache_aware.balance_abs: -1; write a whole number from 0 to 1000000",
        ),
        (
            "/routes/0/cache_aware",
            json!({"balance_rel": "x"}),
            "routes[0].cache_aware.balance_rel: \"x\"; write a number from 1 to 1000000",
        ),
        (
            "/routes/0/cache_aware",
            json!({"max_nodes": 0}),
            "routes[0].cache_aware.max_nodes: 0; write a whole number from 1 to 100000000",
        ),
        (
            "/routes/0/match",
            json!({"hosts": ["a*b*"]}),
            "routes[0].match.hosts[0]: a pattern has one \"*\" at most, and is not empty",
        ),
        (
            "/routes/0/match",
            json!({"models": [""]}),
            "routes[0].match.models[0]: a pattern has one \"*\" at most, and is not empty",
        ),
        (
            "/routes/0/match",
            json!({"path_prefix": "v1"}),
            "routes[0].match.path_prefix: a path begins with \"/\"",
        ),
        (
            "/routes/0/match",
            json!({"path_prefix": "/v1/*"}),
            "routes[0].match.path_prefix: write the beginning of a path, without pattern or query",
        ),
        (
            "/max_request_bytes",
            json!(0),
            "max_request_bytes: 0; write a whole number from 1 to 67108864",
        ),
        (
            "/max_request_bytes",
            json!(1.5),
            "max_request_bytes: 1.5; write a whole number from 1 to 67108864",
        ),
        (
            "/debug_headers",
            json!("yes"),
            "debug_headers: \"yes\"; write true or false",
        ),
        (
            "/log_fields",
            json!(0),
            "log_fields: 0; write true or false",
        ),
        (
            "/cach",
            json!({}),
            "cach: unknown key; known here: sidecar, providers, cache, policy, routes, max_request_bytes, debug_headers, log_fields, session_header, key_header",
        ),
    ];
    each_makes_its_problem(cases);
}

#[test]
fn all_mistakes_are_told_at_once_and_each_once() {
    let problems = parse(&json!({
        "debug_headers": 1,
        "providers": [{"name": "a", "cluster": "x"}, {"name": "a", "cluster": ""}, {"nam": "b"}],
        "routes": [
            {"name": "r", "targets": ["a", "b"], "strategy": "least_load", "cache_aware": {"threshold": 2}},
            {"name": "r", "targets": 3},
        ],
    }))
    .unwrap_err();
    let expected = [
        "providers[1].name: \"a\" is taken by [0]; names differ",
        "providers[1].cluster: \"\"; write a text",
        "providers[2].name: missing; write a name",
        "providers[2].nam: unknown key; known here: name, cluster, endpoint, weight, allowed_keys, api_base, api_key_env, kv_events, lmcache",
        "routes[0].cache_aware.threshold: 2; write a number from 0 to 1",
        "routes[0].cache_aware: has no effect with this strategy; remove it",
        "routes[0].targets[1]: no provider \"b\"; there are: a",
        "routes[1].name: \"r\" is taken by [0]; names differ",
        "routes[1].targets: 3; write a list of texts",
        "debug_headers: 1; write true or false",
    ];
    assert_eq!(problems, expected, "{problems:#?}");
}

#[test]
fn what_is_no_object_is_refused() {
    for document in [json!([]), json!("x"), Value::Null] {
        let problems = parse(&document).unwrap_err();
        assert!(
            problems[0].ends_with(" is no object; write `key: value` pairs"),
            "{problems:?}"
        );
    }
}

#[test]
fn a_long_value_is_not_repeated_in_the_message() {
    let secret = "s".repeat(100);
    let problems = problems_with("/debug_headers", json!(secret));
    assert_eq!(
        problems,
        ["debug_headers: a long text; write true or false"]
    );
}

#[test]
fn a_header_that_names_something_is_one_that_clients_send() {
    for key in ["session_header", "key_header"] {
        for (name, what) in [
            (
                "x-rolter-cluster",
                "only the filter sets this one; write another header's",
            ),
            (
                "X-Rolter-Target",
                "only the filter sets this one; write another header's",
            ),
            (
                "x-gateway-destination-endpoint",
                "only the filter sets this one; write another header's",
            ),
            (
                ":path",
                "clients cannot set this one; write another header's",
            ),
            ("", "no name of a header; write one, as in x-session-id"),
            (
                "x session",
                "no name of a header; write one, as in x-session-id",
            ),
            (
                "x-s\u{e9}ssion",
                "no name of a header; write one, as in x-session-id",
            ),
            // By mistake, the value in the place of the name.
            (
                "Bearer sk-secret",
                "no name of a header; write one, as in x-session-id",
            ),
        ] {
            let problems = problems_with(&format!("/{key}"), json!(name));
            assert_eq!(problems, [format!("{key}: {what}")], "{name:?}");
        }
        let problems = problems_with(&format!("/{key}"), json!(7));
        assert_eq!(problems, [format!("{key}: no text; write one")]);
    }
}
