//! The response cache.

use super::*;
use serde_json::json;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The smallest document with a cache, and with a provider that makes embeddings.
fn with_cache() -> Value {
    json!({
        "sidecar": {"cluster": "rolter_sidecar"},
        "providers": [
            {"name": "a", "cluster": "cluster-a"},
            {"name": "openai", "api_base": "https://embeddings.example/", "api_key_env": "OPENAI_API_KEY"},
        ],
        "routes": [{"name": "chat", "targets": ["a"], "cache": {"enabled": true}}],
    })
}

fn changed(pointer: &str, value: Value) -> Value {
    let mut document = with_cache();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key] = value;
    document
}

#[test]
fn a_cache_has_its_defaults() {
    let config = parse(&with_cache()).unwrap();
    assert_eq!(
        config.cache,
        Some(Cache {
            redis: None,
            namespace: "rolter".into(),
            max_memory_bytes: 256 << 20,
        })
    );
    assert_eq!(
        config.routes[0].cache,
        Some(RouteCache {
            ttl_secs: 300,
            scope: Scope::Key,
            keys: Vec::new(),
            max_entry_bytes: 1 << 20,
            lookup_timeout_ms: 50,
            semantic: None,
        })
    );
    assert_eq!(
        config.providers[1].api_key_env.as_deref(),
        Some("OPENAI_API_KEY")
    );
    let semantic = json!({"semantic": {"provider": "openai", "model": "e"}});
    let config = parse(&changed("/routes/0/cache", semantic)).unwrap();
    assert_eq!(
        config.routes[0]
            .cache
            .as_ref()
            .and_then(|cache| cache.semantic.clone()),
        Some(SemanticCache {
            provider: 1,
            model: "e".into(),
            dimensions: None,
            threshold: 0.92,
            max_candidates: 256,
            timeout_ms: 10_000,
        })
    );
}

#[test]
fn nothing_is_kept_that_nobody_asked_for() {
    assert_eq!(parse(&smallest()).unwrap().cache, None);
    for (pointer, value) in [
        ("/cache", json!({"enabled": false})),
        ("/routes/0/cache", json!({"enabled": false})),
    ] {
        let config = parse(&changed(pointer, value)).unwrap();
        assert_eq!((config.cache, &config.routes[0].cache), (None, &None));
    }
}

#[test]
fn what_is_given_of_a_cache_is_read() {
    let config = parse(&changed(
        "/routes/0/cache",
        json!({
            "ttl_secs": 60.0, "scope": "route", "keys": ["00".repeat(32)], "max_entry_bytes": 10,
            "lookup_timeout_ms": 20,
            "semantic": {"provider": "openai", "model": "e", "dimensions": 256, "threshold": "0.5",
                         "max_candidates": 8, "timeout_ms": 100},
        }),
    ))
    .unwrap();
    let cache = config.routes[0].cache.clone().unwrap();
    assert_eq!(
        (cache.ttl_secs, cache.scope, cache.max_entry_bytes),
        (60, Scope::Route, 10)
    );
    assert_eq!((cache.keys, cache.lookup_timeout_ms), (vec![[0; 32]], 20));
    let semantic = cache.semantic.unwrap();
    assert_eq!(
        (semantic.dimensions, semantic.max_candidates),
        (Some(256), 8)
    );
    assert!((semantic.threshold - 0.5).abs() < f64::EPSILON);
    let config = parse(&changed(
        "/cache",
        json!({"namespace": "a.b", "max_memory_bytes": 1 << 20}),
    ));
    let cache = config.unwrap().cache.unwrap();
    assert_eq!(
        (&*cache.namespace, cache.max_memory_bytes),
        ("a.b", 1 << 20)
    );
}

#[test]
fn a_redis_is_found_by_its_url() {
    let node = |host: &str, port| RedisNode {
        host: host.into(),
        port,
    };
    let single = Redis {
        kind: RedisKind::Single,
        tls: false,
        nodes: vec![node("10.0.0.1", 6379)],
        database: 0,
        user: None,
        password_env: Some("REDIS_PASSWORD".into()),
    };
    for (url, expected) in [
        ("redis://10.0.0.1", single.clone()),
        ("redis://10.0.0.1:6379/", single.clone()),
        (
            "rediss://ann@[::1]:7000/3",
            Redis {
                tls: true,
                nodes: vec![node("::1", 7000)],
                database: 3,
                user: Some("ann".into()),
                ..single.clone()
            },
        ),
        (
            "redis-cluster://a,b:7001",
            Redis {
                kind: RedisKind::Cluster,
                nodes: vec![node("a", 6379), node("b", 7001)],
                ..single.clone()
            },
        ),
        (
            "rediss-sentinel://a,b:7001/2#main",
            Redis {
                kind: RedisKind::Sentinel {
                    service: "main".into(),
                },
                tls: true,
                nodes: vec![node("a", 26379), node("b", 7001)],
                database: 2,
                ..single.clone()
            },
        ),
    ] {
        let cache = json!({"redis": url, "redis_password_env": "REDIS_PASSWORD"});
        let config = parse(&changed("/cache", cache)).unwrap();
        assert_eq!(config.cache.unwrap().redis, Some(expected), "{url}");
    }
}

#[test]
fn no_message_shows_what_is_wrong_with_a_url_of_redis() {
    for url in [
        "",
        "10.0.0.1:6379",
        "http://a",
        "redis:///",
        "redis://a:0",
        "redis://a:b",
        "redis://a,b",
        "redis://a/x",
        "redis://a#main",
        "redis-cluster://a/1",
        "redis-sentinel://a",
        "redis-sentinel://a#",
        "redis-x://a",
        "redis://[a]:1",
        "redis://a b",
        "redis://a?x=1",
        "rediss-cluster://a,,b",
    ] {
        let problems = parse(&changed("/cache", json!({"redis": url}))).unwrap_err();
        let [problem] = &problems[..] else {
            panic!("{url}: {problems:?}")
        };
        assert!(
            problem.starts_with("cache.redis: no URL of a Redis; write redis://"),
            "{problem}"
        );
    }
    for url in [
        "redis://:secret@a",
        "redis://ann:secret@a:1/0",
        "redis-cluster://x:secret@a,b",
    ] {
        let problems = parse(&changed("/cache", json!({"redis": url}))).unwrap_err();
        let expected = "cache.redis: no place for a password; \
                        write redis_password_env: NAME_OF_A_VARIABLE";
        assert_eq!(problems, [expected]);
    }
}

#[test]
fn mistakes_about_a_cache_name_their_places() {
    let semantic = |value: Value| json!({"semantic": value});
    for (pointer, value, expected) in [
        (
            "/cache",
            json!({"namespace": "a:b"}),
            "cache.namespace: \"a:b\"; write up to 64 letters, digits, \".\", \"_\" and \"-\"",
        ),
        (
            "/cache",
            json!({"redis_password_env": "X"}),
            "cache.redis_password_env: has no effect without redis",
        ),
        (
            "/cache",
            json!({"redis": "redis://a", "redis_password_env": "sk-secret"}),
            "cache.redis_password_env: no name of a variable; write one, as in REDIS_PASSWORD",
        ),
        (
            "/cache",
            json!({"redis": "redis://a", "max_memory_bytes": 2_000_000}),
            "cache.max_memory_bytes: has no effect with redis, which has a limit of its own; remove it",
        ),
        (
            "/cache",
            json!({"ttl": 1}),
            "cache.ttl: unknown key; known here: enabled, redis_password_env, redis, namespace, max_memory_bytes",
        ),
        (
            "/sidecar",
            json!(null),
            "routes[0].cache: keeps nothing without the sidecar; write sidecar: { cluster: … }",
        ),
        (
            "/routes/0/cache",
            json!({"scope": "user"}),
            "routes[0].cache.scope: \"user\"; write one of: key, route",
        ),
        (
            "/routes/0/cache",
            json!({"keys": ["sk-1"]}),
            "routes[0].cache.keys[0]: no SHA-256; write the 64 hex digits of a key's",
        ),
        (
            "/routes/0/cache",
            json!({"ttl_secs": 0}),
            "routes[0].cache.ttl_secs: 0; write a whole number from 1 to 2592000",
        ),
        (
            "/routes/0/cache",
            semantic(json!({"model": "e"})),
            "routes[0].cache.semantic.provider: missing; write the name of one that makes embeddings",
        ),
        (
            "/routes/0/cache",
            semantic(json!({"provider": "openai"})),
            "routes[0].cache.semantic.model: missing; write the name of an embedding model",
        ),
        (
            "/routes/0/cache",
            semantic(json!({"provider": "x", "model": "e"})),
            "routes[0].cache.semantic.provider: no provider \"x\"; there are: a, openai",
        ),
        (
            "/routes/0/cache",
            semantic(json!({"provider": "a", "model": "e"})),
            "routes[0].cache.semantic.provider: \"a\" cannot be asked; write an api_base for it",
        ),
        (
            "/routes/0/cache",
            semantic(json!({"provider": "openai", "model": "e", "threshold": 2})),
            "routes[0].cache.semantic.threshold: 2; write a number from 0 to 1",
        ),
        (
            "/providers/1/api_base",
            json!("https://embeddings.example/v1/"),
            "providers[1].api_base: ends in /v1, which is added to it; remove that",
        ),
        (
            "/providers/1/api_base",
            json!(null),
            "providers[1].api_key_env: has no effect without api_base",
        ),
        (
            "/providers/1/api_key_env",
            json!("sk-1 2"),
            "providers[1].api_key_env: no name of a variable; write one, as in OPENAI_API_KEY",
        ),
    ] {
        let problems = parse(&changed(pointer, value)).unwrap_err();
        assert!(
            problems.iter().any(|problem| problem == expected),
            "{expected}\nnot in {problems:#?}"
        );
        assert!(!format!("{problems:?}").contains("sk-"), "{problems:?}");
    }
}

#[test]
fn a_provider_that_is_not_there_is_not_told_to_have_an_api_base() {
    let semantic = json!({"semantic": {"provider": "x", "model": "e"}});
    let problems = parse(&changed("/routes/0/cache", semantic)).unwrap_err();
    assert_eq!(problems.len(), 1, "{problems:?}");
}

#[test]
fn answers_are_not_shared_across_targets_that_are_for_others() {
    let (one, other) = ("00".repeat(32), "01".repeat(32));
    let document = |scope: &str, a: Value, b: Value| {
        let mut document = with_cache();
        document["providers"][0]["allowed_keys"] = a;
        let providers = document["providers"].as_array_mut().unwrap();
        providers.push(json!({"name": "b", "cluster": "cluster-b", "allowed_keys": b}));
        document["routes"][0]["targets"] = json!(["a", "b"]);
        document["routes"][0]["cache"]["scope"] = json!(scope);
        parse(&document)
    };
    let problems = document("route", json!([one]), json!([])).unwrap_err();
    assert!(
        problems[0].starts_with("routes[0].cache.scope: its targets have different allowed_keys"),
        "{problems:?}"
    );
    assert!(document("key", json!([one]), json!([])).is_ok());
    assert!(document("route", json!([one, other]), json!([other, one])).is_ok());
}
