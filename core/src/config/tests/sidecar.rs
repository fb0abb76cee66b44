//! The sidecar, what it watches of engines, and the strategies that go by that.

use super::{each_makes_its_problem, parse, problems_with};
use crate::balance::{Exact, Guard, Margins, Strategy};
use crate::config::{Dns, EventEndpoint, KvEvents, Listen, LmCache, OnGap, Precise, Sidecar};
use crate::kv::MediumWeights;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// A document with a sidecar, an engine that tells everything, and a route by this strategy.
fn document(strategy: &str) -> Value {
    json!({
        "sidecar": {"cluster": "rolter_sidecar"},
        "providers": [{
            "name": "a",
            "cluster": "a",
            "api_base": "http://10.0.0.1:8000/",
            "kv_events": {"endpoint": "tcp://10.0.0.1:5557"},
            "lmcache": {"endpoint": "http://lmcache-a:9000/v1/occupancy"},
        }],
        "routes": [{"name": "r", "strategy": strategy, "targets": ["a"]}],
    })
}

fn tcp(host: &str, port: u16) -> EventEndpoint {
    EventEndpoint::Tcp {
        host: host.into(),
        port,
    }
}

#[test]
fn what_is_not_given_has_its_default() {
    let config = parse(&document("precise_cache_aware")).unwrap();
    assert_eq!(
        config.sidecar,
        Some(Sidecar {
            cluster: "rolter_sidecar".into(),
            listen: Listen::Unix("/run/rolter/sidecar.sock".into()),
            metrics_listen: None,
            allow_remote: false,
            dns: Dns {
                servers: Vec::new(),
                refresh_secs: 5,
            },
        })
    );
    let [provider] = &config.providers[..] else {
        panic!()
    };
    assert_eq!(provider.api_base.as_deref(), Some("http://10.0.0.1:8000"));
    assert_eq!(
        provider.kv_events,
        Some(KvEvents {
            endpoint: tcp("10.0.0.1", 5557),
            replay_endpoint: None,
            topic: String::new(),
            bind: false,
            ranks: 1,
            max_blocks: 1_000_000,
            stale_secs: 30,
            on_gap: OnGap::Clear,
        })
    );
    assert_eq!(
        provider.lmcache,
        Some(LmCache {
            endpoint: "http://lmcache-a:9000/v1/occupancy".into(),
            refresh_secs: 2,
            stale_secs: 10,
        })
    );
    let [route] = &config.routes[..] else {
        panic!()
    };
    assert_eq!(
        route.strategy,
        Strategy::PreciseCacheAware(Exact::default())
    );
    let precise = Precise {
        tokenize_ms: None,
        rank_header: false,
    };
    let nodes = Some(1_000_000);
    assert_eq!((route.precise, route.max_nodes), (Some(precise), nodes));
    let config = parse(&document("lmcache_aware")).unwrap();
    let guard = Guard::default();
    assert_eq!(config.routes[0].strategy, Strategy::LmcacheAware { guard });
    assert_eq!(config.routes[0].precise, None);
}

#[test]
fn what_is_given_is_read() {
    let mut given = document("precise_cache_aware");
    given["sidecar"] = json!({
        "cluster": "s", "listen": "0.0.0.0:9463", "metrics_listen": "[::]:9464", "allow_remote": true,
    });
    given["providers"][0]["kv_events"] = json!({
        "endpoint": "tcp://*:5557", "replay_endpoint": "tcp://[2001:db8::1]:5600", "topic": "events", "bind": true,
        "ranks": 4, "max_blocks": 5000, "stale_secs": 60, "on_gap": "rebuild",
    });
    given["providers"][0]["lmcache"] =
        json!({"endpoint": "https://l/", "refresh_secs": 1, "stale_secs": 1});
    given["routes"][0]["precise_cache_aware"] = json!({
        "threshold": "0.25", "miss_weight": 5, "balance_abs": 4, "balance_rel": 2, "tokenize": true, "tokenize_timeout_ms": 50,
        "rank_header": true, "weights": {"cpu": "0.7", "other": 0},
    });
    let config = parse(&given).unwrap();
    let sidecar = config.sidecar.unwrap();
    assert_eq!(sidecar.listen, Listen::Tcp("0.0.0.0:9463".parse().unwrap()));
    assert_eq!(sidecar.metrics_listen, "[::]:9464".parse().ok());
    assert!(sidecar.allow_remote);
    let events = config.providers[0].kv_events.as_ref().unwrap();
    assert_eq!(events.endpoint, tcp("*", 5557));
    assert_eq!(events.replay_endpoint, Some(tcp("[2001:db8::1]", 5600)));
    assert_eq!(events.endpoint.of_rank(3), "tcp://*:5560");
    assert_eq!(
        (&*events.topic, events.bind, events.ranks),
        ("events", true, 4)
    );
    assert_eq!(
        (events.max_blocks, events.stale_secs, events.on_gap),
        (5000, 60, OnGap::Rebuild)
    );
    assert_eq!(
        config.providers[0].lmcache.as_ref().unwrap().endpoint,
        "https://l"
    );
    let route = &config.routes[0];
    assert_eq!(
        route.strategy,
        Strategy::PreciseCacheAware(Exact {
            margins: Margins {
                threshold: 0.25,
                miss_weight: 5.0,
                guard: Guard {
                    balance_abs: 4,
                    balance_rel: 2.0,
                },
            },
            weights: MediumWeights {
                gpu: 1.0,
                cpu: 0.7,
                other: 0.0,
            },
        })
    );
    let precise = Precise {
        tokenize_ms: Some(50),
        rank_header: true,
    };
    assert_eq!(route.precise, Some(precise));
    let mut by_path = document("precise_cache_aware");
    by_path["sidecar"]["listen"] = json!("unix:///run/s.sock");
    by_path["providers"][0]["kv_events"]["endpoint"] = json!("ipc:///run/events");
    let config = parse(&by_path).unwrap();
    assert_eq!(
        config.sidecar.unwrap().listen,
        Listen::Unix("/run/s.sock".into())
    );
    let events = config.providers[0].kv_events.as_ref().unwrap();
    assert_eq!(events.endpoint.of_rank(0), "ipc:///run/events");
}

#[test]
fn each_mistake_is_told_with_its_path() {
    let events = |field: &str, value: Value| {
        let mut events = json!({"endpoint": "tcp://h:5557"});
        events[field] = value;
        events
    };
    let tcp = "write tcp://host:port or ipc:///path, as in tcp://10.0.0.1:5557";
    each_makes_its_problem(vec![
        (
            "/sidecar",
            json!({}),
            "sidecar.cluster: missing; write the name of the Envoy cluster",
        ),
        (
            "/sidecar",
            json!({"cluster": "s", "listen": "unix://relative"}),
            "sidecar.listen: \"unix://relative\"; write unix:///path or ip:port, as in 127.0.0.1:9463",
        ),
        (
            "/sidecar",
            json!({"cluster": "s", "listen": "0.0.0.0:1"}),
            "sidecar.listen: other machines reach it; write a loopback address, or allow_remote: true",
        ),
        (
            "/sidecar",
            json!({"cluster": "s", "metrics_listen": "10.0.0.1:1"}),
            "sidecar.metrics_listen: other machines reach it; write a loopback address, or allow_remote: true",
        ),
        (
            "/providers/0/kv_events",
            json!({}),
            "providers[0].kv_events.endpoint: missing; write the engine's, as in tcp://10.0.0.1:5557",
        ),
        (
            "/providers/0/kv_events",
            events("endpoint", json!("http://h:1")),
            &format!("providers[0].kv_events.endpoint: \"http://h:1\"; {tcp}"),
        ),
        (
            "/providers/0/kv_events",
            events("replay_endpoint", json!("tcp://h")),
            &format!("providers[0].kv_events.replay_endpoint: \"tcp://h\"; {tcp}"),
        ),
        (
            "/providers/0/kv_events",
            events("endpoint", json!("tcp://*:1")),
            "providers[0].kv_events.endpoint: nothing can be reached at *; write the engine's host",
        ),
        (
            "/providers/0/kv_events",
            json!({"endpoint": "tcp://h:65535", "ranks": 2}),
            "providers[0].kv_events.endpoint: the ports of all ranks must be below 65536; write a lower one",
        ),
        (
            "/providers/0/kv_events",
            json!({"endpoint": "ipc:///p", "ranks": 2}),
            "providers[0].kv_events.endpoint: ranks differ by their ports; write tcp://host:port",
        ),
        (
            "/providers/0/kv_events",
            events("on_gap", json!("ignore")),
            "providers[0].kv_events.on_gap: \"ignore\"; write one of: clear, rebuild",
        ),
        (
            "/providers/0/kv_events",
            events("hwm", json!(1)),
            "providers[0].kv_events.hwm: unknown key; known here: endpoint, bind, ranks, replay_endpoint, topic, on_gap, max_blocks, stale_secs",
        ),
        (
            "/providers/0/lmcache",
            json!({"endpoint": "http://l", "refresh_secs": 20}),
            "providers[0].lmcache.stale_secs: less than refresh_secs; write 20 or more",
        ),
        (
            "/providers/0/lmcache",
            json!({}),
            "providers[0].lmcache.endpoint: missing; write the controller's URL",
        ),
        (
            "/providers/0/api_base",
            json!("10.0.0.1:8000"),
            "providers[0].api_base: no URL; write one, as in http://10.0.0.1:8000",
        ),
        (
            "/providers/0/api_base",
            json!("http://user:secret@h"),
            "providers[0].api_base: no place for a user or a password; remove it",
        ),
    ]);
    let told = problems_with("/providers/0/api_base", json!("http://user:secret@h"));
    assert!(!told.concat().contains("secret"));
}

#[test]
fn a_strategy_that_would_know_nothing_is_refused() {
    for (strategy, signal) in [
        ("precise_cache_aware", "kv_events"),
        ("lmcache_aware", "lmcache"),
    ] {
        let mut without = document(strategy);
        without["providers"][0][signal] = Value::Null;
        without["sidecar"] = Value::Null;
        assert_eq!(
            parse(&without).unwrap_err(),
            [
                "routes[0].strategy: knows nothing without the sidecar; write sidecar: { cluster: … }".to_owned(),
                format!("routes[0].strategy: knows nothing of any target; write {signal} for the providers"),
            ]
        );
    }
    let mut mute = document("precise_cache_aware");
    mute["providers"][0]["api_base"] = Value::Null;
    mute["routes"][0]["precise_cache_aware"] = json!({"tokenize": true});
    assert_eq!(
        parse(&mute).unwrap_err(),
        [
            "routes[0].precise_cache_aware.tokenize: no target can be asked; write api_base for the providers"
        ]
    );
    let mut idle = document("precise_cache_aware");
    idle["routes"][0]["precise_cache_aware"] = json!({"tokenize_timeout_ms": 5});
    assert_eq!(
        parse(&idle).unwrap_err(),
        [
            "routes[0].precise_cache_aware.tokenize_timeout_ms: has no effect without tokenize: true; remove it"
        ]
    );
    let mut other = document("cache_aware");
    other["routes"][0]["lmcache_aware"] = json!({});
    assert_eq!(
        parse(&other).unwrap_err(),
        ["routes[0].lmcache_aware: has no effect with this strategy; remove it"]
    );
}

#[test]
fn two_providers_cannot_have_the_same_events() {
    let mut twice = document("precise_cache_aware");
    let mut other = twice["providers"][0].clone();
    other["name"] = json!("b");
    other["cluster"] = json!("b");
    twice["providers"].as_array_mut().unwrap().push(other);
    assert_eq!(
        parse(&twice).unwrap_err(),
        ["providers[1].kv_events.endpoint: \"a\" has these events already; write the engine's own"]
    );
}
