//! The response cache: the same question, asked again, has the same answer from the cache, and
//! nothing else has.

use e2e::cached::{ALICE, Cached, cached, each_api, reply, with};
use e2e::{CHAT, CONNECTIONS, Caller, all_in_flight, all_released, say};
use engine_sim::body_hash;
use fleet::{Redis, Setup, Stats};
use futures_util::stream;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::time::Duration;

const BOB: &str = "bob's key";

fn sha256(key: &str) -> String {
    format!("{:x}", Sha256::digest(key))
}

/// A cache in memory, and one in Redis.
async fn each_store(setup: impl Fn() -> Setup) -> Vec<(Cached, Option<Redis>)> {
    let redis = Redis::start().await.unwrap();
    let in_redis = setup().with("/cache/redis", redis.url());
    let in_redis = Cached::start(in_redis).await;
    in_redis.until_connected().await;
    vec![
        (Cached::start(setup()).await, None),
        (in_redis, Some(redis)),
    ]
}

#[tokio::test]
async fn an_answer_is_replayed_byte_for_byte_and_reaches_no_engine() {
    for workers in [1, 4] {
        for (cached, _redis) in each_store(|| cached(2, workers)).await {
            for (path, body) in each_api() {
                let first = cached.store(cached.request(path, &body), "exact").await;
                assert!(first.engine.starts_with("vllm-"), "{first:?}");
                let served = cached.served();
                let again = cached.ask(path, &body).await;
                assert_eq!(again.told(), (200, "hit", "exact"), "{path} {body}");
                assert_eq!((again.age.is_some(), &*again.engine), (true, ""));
                assert_eq!(again.content_type, first.content_type);
                assert_eq!(again.body, first.body);
                let is_stream = again.content_type.starts_with("text/event-stream");
                assert_eq!(is_stream, body["stream"] == true);
                assert_eq!(cached.served(), served);
            }
            all_released(&cached.fleet).await;
            assert!(!cached.fleet.panicked());
        }
    }
}

#[tokio::test]
async fn every_worker_has_what_one_has_stored() {
    let cached = Cached::start(cached(2, 4)).await;
    let body = say("hello");
    let first = cached.store(cached.request(CHAT, &body), "exact").await;
    for _ in 0..CONNECTIONS {
        let caller = Caller::new(&cached.fleet);
        let again = reply(caller.request(CHAT).bearer_auth(ALICE).json(&body)).await;
        assert_eq!(
            (again.told(), &again.body),
            ((200, "hit", "exact"), &first.body)
        );
    }
}

#[tokio::test]
async fn two_envoys_share_what_is_in_redis_unless_their_namespaces_differ() {
    let redis = Redis::start().await.unwrap();
    let setup = || cached(1, 1).with("/cache/redis", redis.url());
    let one = Cached::start(setup()).await;
    one.until_connected().await;
    let body = say("hello");
    let first = one.store(one.request(CHAT, &body), "exact").await;
    let other = Cached::start(setup()).await;
    other.until_connected().await;
    let again = other.ask(CHAT, &body).await;
    assert_eq!(
        (again.told(), &again.body),
        ((200, "hit", "exact"), &first.body)
    );
    let apart = Cached::start(setup().with("/cache/namespace", "apart")).await;
    apart.until_connected().await;
    assert_eq!(apart.ask(CHAT, &body).await.told(), (200, "miss", ""));
}

#[tokio::test]
async fn a_hit_is_no_load_no_decision_and_no_lesson() {
    let cached = Cached::start(cached(2, 1)).await;
    let body = say(&e2e::text("long", 16));
    cached.store(cached.request(CHAT, &body), "exact").await;
    all_released(&cached.fleet).await;
    let figures = |stats: &Stats| {
        [
            "rolter_decisions",
            "rolter_outcomes",
            "rolter_tree_prompts",
            "rolter_tree_text_bytes",
            "rolter_ring_head",
        ]
        .map(|name| stats.filter(name, &[]))
    };
    let before = cached.fleet.stats().await.unwrap();
    assert_eq!(figures(&before)[0], 1);
    for hits in 1..=20 {
        assert_eq!(cached.ask(CHAT, &body).await.told(), (200, "hit", "exact"));
        let counted = [("route", "chat"), ("outcome", "exact")];
        let counted = |stats: &Stats| stats.filter("rolter_cache_requests", &counted);
        let stats = cached
            .fleet
            .stats_when(|stats| counted(stats) == hits)
            .await;
        let stats = stats.unwrap();
        assert_eq!(counted(&stats), hits);
        assert_eq!(all_in_flight(&stats), 0);
        assert_eq!(figures(&stats), figures(&before));
    }
}

#[tokio::test]
async fn a_long_question_reaches_its_engine_whole_and_once() {
    let cached = Cached::start(cached(1, 1)).await;
    for (number, length) in [100, 70_000, 900_000].into_iter().enumerate() {
        let body = say(&"a long question ".repeat(length / 16)).to_string();
        let pieces = body.as_bytes().chunks(30_000).map(<[u8]>::to_vec);
        let pieces = pieces.map(Ok::<_, std::io::Error>);
        let chunked =
            || reqwest::Body::wrap_stream(stream::iter(pieces.clone().collect::<Vec<_>>()));
        let request = || cached.anonymous(CHAT).bearer_auth(ALICE);
        let first = cached.store(request().body(chunked()), "exact").await;
        for again in [request().body(chunked()), request().body(body.clone())] {
            let again = reply(again).await;
            assert_eq!(again.told(), (200, "hit", "exact"));
            assert_eq!(again.body, first.body);
        }
        let seen = cached.fleet.engines()[0].recent_requests();
        assert_eq!(seen.len(), number + 1);
        assert_eq!(seen[number].body_hash, body_hash(body.as_bytes()));
    }
}

#[tokio::test]
async fn a_question_is_the_same_however_it_is_written() {
    let cached = Cached::start(cached(1, 1)).await;
    let written = |body: &'static str| {
        let request = cached.anonymous(CHAT).bearer_auth(ALICE);
        request
            .header("content-type", "application/json")
            .body(body)
    };
    let one =
        r#"{"model":"m","temperature":1,"messages":[{"role":"user","content":"Zoë says \"hi\""}]}"#;
    let first = cached.store(written(one), "exact").await;
    for other in [
        one,
        r#"{"messages":[{"content":"Zoë says \"hi\"","role":"user"}],"temperature":1,"model":"m"}"#,
        "\n{ \"model\" :\t\"m\", \"temperature\": 1, \"messages\": [ { \"role\": \"user\",\r\n\"content\": \"Zoë says \\\"hi\\\"\" } ] }\n",
        r#"{"model":"m","temperature":1.0,"stream":false,"messages":[{"role":"user","content":"Zo\u00eb says \u0022hi\u0022"}]}"#,
        r#"{"model":"m","temperature":10e-1,"messages":[{"\u0072ole":"user","content":"Zoë says \"hi\""}]}"#,
    ] {
        let again = reply(written(other)).await;
        assert_eq!(again.told(), (200, "hit", "exact"), "{other}");
        assert_eq!(again.body, first.body);
    }
}

#[tokio::test]
async fn whatever_else_differs_is_another_question() {
    let cached = Cached::start(cached(1, 1)).await;
    let body = json!({
        "model": "m",
        "max_tokens": 8,
        "temperature": 0.5,
        "messages": [{"role": "user", "content": "Which book?"}],
    });
    cached.store(cached.request(CHAT, &body), "exact").await;
    for other in [
        with(&body, "/model", json!("n")),
        with(&body, "/max_tokens", json!(9)),
        with(&body, "/temperature", json!(0.500_000_1)),
        with(&body, "/temperature", json!("0.5")),
        with(&body, "/stream", json!(true)),
        with(&body, "/user", json!("u")),
        with(&body, "/metadata", json!({"a": 1})),
        with(&body, "/seed", json!(1)),
        with(&body, "/nobody_knows_it", json!(null)),
        with(&body, "/messages/0/content", json!("Which book? ")),
        with(&body, "/messages/0/content", json!("which book?")),
        with(
            &body,
            "/messages/0/content",
            json!([{"type": "text", "text": "Which book?"}]),
        ),
        with(&body, "/messages/0/name", json!("n")),
        with(&body, "/messages/0/role", json!("system")),
    ] {
        let reply = cached.ask(CHAT, &other).await;
        assert_eq!(reply.told(), (200, "miss", ""), "{other}");
    }
    let request = || cached.request(CHAT, &body);
    for request in [
        cached.request(&format!("{CHAT}?a=1"), &body),
        cached.request("/openai/v1/chat/completions", &body),
        request().header("openai-beta", "assistants=v2"),
        request().header("anthropic-version", "2023-06-01"),
        request().header("anthropic-beta", "a"),
    ] {
        let reply = reply(request).await;
        assert_ne!(reply.cache, "hit", "{reply:?}");
    }
    // A header that comes twice is a list of two.
    let betas = |one, other| {
        request()
            .header("anthropic-beta", one)
            .header("anthropic-beta", other)
    };
    cached.store(betas("b", "c"), "exact").await;
    for others in [betas("b", "d"), request().header("anthropic-beta", "b")] {
        let reply = reply(others).await;
        assert_ne!(reply.cache, "hit", "{reply:?}");
    }
    assert_eq!(cached.ask(CHAT, &body).await.told(), (200, "hit", "exact"));
}

#[tokio::test]
async fn a_stream_never_answers_who_wants_json_nor_the_reverse() {
    let cached = Cached::start(cached(1, 1)).await;
    let requests = each_api();
    for pair in requests[1..].chunks(2) {
        for order in [[0, 1], [1, 0]] {
            let [one, other] = order.map(|place| {
                let (path, mut body) = pair[place].clone();
                body["top_p"] = json!(1.0 / f64::from(u8::from(order == [0, 1]) + 2));
                (path, body)
            });
            let first = cached.store(cached.request(one.0, &one.1), "exact").await;
            let second = cached.ask(other.0, &other.1).await;
            assert_eq!(second.told(), (200, "miss", ""), "{other:?}");
            assert_ne!(second.content_type, first.content_type);
        }
    }
}

#[tokio::test]
async fn no_cache_brings_a_new_answer_for_all_and_no_store_leaves_no_trace() {
    for (cached, _redis) in each_store(|| cached(1, 1)).await {
        let body = say("hello");
        let request = || cached.request(CHAT, &body);
        let old = cached.store(request(), "exact").await;
        let refreshing = request().header("cache-control", "max-age=0, No-Cache");
        let new = cached.store(refreshing, "exact").await;
        assert_ne!(new.body, old.body);
        let after = reply(request()).await;
        assert_eq!(
            (after.told(), &after.body),
            ((200, "hit", "exact"), &new.body)
        );

        let aside = reply(request().header("cache-control", "no-store")).await;
        assert_eq!(aside.told(), (200, "bypass", ""));
        assert_ne!(aside.body, new.body);
        assert_eq!(reply(request()).await.body, new.body);
        let (body, path) = (say("secret"), CHAT);
        let secret = cached.request(path, &body);
        let secret = reply(secret.header("cache-control", "no-store")).await;
        assert_eq!(secret.told(), (200, "bypass", ""));
        // By the time that another one is stored, this one would be.
        cached
            .store(cached.request(CHAT, &say("another")), "exact")
            .await;
        assert_eq!(cached.ask(path, &body).await.cache, "miss");
    }
}

#[tokio::test]
async fn a_route_without_a_cache_says_nothing_of_one() {
    let setup = cached(1, 1).configure(|config| {
        let route = config["routes"][0].as_object_mut().unwrap();
        route.remove("cache");
    });
    let cached = Cached::start(setup).await;
    for _ in 0..2 {
        let reply = cached.ask(CHAT, &say("hello")).await;
        assert_eq!(reply.told(), (200, "", ""));
    }
}

#[tokio::test]
async fn answers_grow_old_and_are_gone() {
    for (cached, _redis) in each_store(|| cached(1, 1).with("/routes/0/cache/ttl_secs", 3)).await {
        let body = say("hello");
        let first = cached.store(cached.request(CHAT, &body), "exact").await;
        let mut ages = vec![];
        let last = loop {
            let reply = cached.ask(CHAT, &body).await;
            match reply.age {
                Some(age) => ages.push(age),
                None => break reply,
            }
            assert_eq!(reply.body, first.body);
            tokio::time::sleep(Duration::from_millis(100)).await;
        };
        assert_eq!(last.told(), (200, "miss", ""));
        assert_ne!(last.body, first.body);
        assert!(ages.is_sorted() && ages.contains(&1), "{ages:?}");
        assert!(ages.iter().all(|age| *age <= 3), "{ages:?}");
    }
}

#[tokio::test]
async fn callers_share_no_answers_unless_the_route_says_so() {
    for (scope, shared) in [(None, false), (Some("key"), false), (Some("route"), true)] {
        let mut setup = cached(1, 1);
        if let Some(scope) = scope {
            setup = setup.with("/routes/0/cache/scope", scope);
        }
        let cached = Cached::start(setup).await;
        let body = say("hello");
        let request = |key: Option<&str>| {
            let request = cached.anonymous(CHAT).json(&body);
            match key {
                Some(key) => request.bearer_auth(key),
                None => request,
            }
        };
        let alices = cached.store(request(Some(ALICE)), "exact").await;
        let bobs = reply(request(Some(BOB))).await;
        let nobodys = reply(request(None)).await;
        if shared {
            assert_eq!(
                (bobs.told(), &bobs.body),
                ((200, "hit", "exact"), &alices.body)
            );
            assert_eq!(nobodys.body, alices.body);
        } else {
            assert_eq!(bobs.told(), (200, "miss", ""));
            assert_ne!(bobs.body, alices.body);
            // Nobody knows whether two of them are one.
            assert_eq!(nobodys.told(), (200, "bypass", ""));
            assert_eq!(reply(request(None)).await.told(), (200, "bypass", ""));
        }
        // With and without "Bearer" it is one key.
        let again = request(None).header("authorization", ALICE);
        assert_eq!(reply(again).await.body, alices.body);
    }
}

#[tokio::test]
async fn who_is_not_listed_is_not_answered_from_the_cache_and_not_kept_there() {
    for scope in ["key", "route"] {
        let setup = cached(1, 1)
            .with("/routes/0/cache/scope", scope)
            .with("/routes/0/cache/keys", json!([sha256(ALICE)]));
        let cached = Cached::start(setup).await;
        let body = say("hello");
        cached.store(cached.request(CHAT, &body), "exact").await;
        assert_eq!(cached.ask(CHAT, &body).await.cache, "hit");
        let request = || cached.anonymous(CHAT).json(&body);
        for request in [request().bearer_auth(BOB), request()] {
            assert_eq!(reply(request).await.told(), (200, "bypass", ""));
        }
    }
}

#[tokio::test]
async fn who_may_use_no_target_gets_none_of_their_answers() {
    for scope in ["key", "route"] {
        let setup = cached(2, 1)
            .with("/routes/0/cache/scope", scope)
            .configure(|config| {
                for provider in config["providers"].as_array_mut().unwrap() {
                    provider["allowed_keys"] = json!([sha256(ALICE)]);
                }
            });
        let cached = Cached::start(setup).await;
        let body = say("hello");
        cached.store(cached.request(CHAT, &body), "exact").await;
        assert_eq!(cached.ask(CHAT, &body).await.cache, "hit");
        let request = || cached.anonymous(CHAT).json(&body);
        for request in [request().bearer_auth(BOB), request()] {
            let refused = reply(request).await;
            assert_eq!(refused.told(), (403, "", ""), "{refused:?}");
        }
    }
}
