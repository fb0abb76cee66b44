//! Answers to equal requests: what is replayed to whom, and what is kept.

use super::cached::{ALICE, BOB, Cached, Request, answer, chat, document, stream};
use super::redis_server::RedisServer;
use super::support::PATIENCE;
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A sidecar that keeps answers in memory, and one that keeps them in Redis.
async fn both(route_cache: &Value) -> [(Cached, Option<RedisServer>); 2] {
    let redis = RedisServer::start(&[]).await;
    let in_redis = json!({"redis": redis.url()});
    let in_memory = Cached::start(&document(&json!({}), route_cache, None)).await;
    let in_redis = Cached::start(&document(&in_redis, route_cache, None)).await;
    in_redis.connected().await;
    [(in_memory, None), (in_redis, Some(redis))]
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_is_replayed_byte_for_byte_to_equal_requests() {
    for (cached, _redis) in both(&json!({})).await {
        let request = Request::new(&chat("hello"));
        let began = Instant::now();
        cached.answered(&request, &answer("hi")).await;
        let hit = cached.look_up(&request).await;
        assert_eq!((hit.status, hit.outcome()), (StatusCode::OK, "exact"));
        assert_eq!(hit.body, answer("hi").as_bytes());
        assert_eq!(hit.content_type, "application/json");
        let age: u64 = hit.age.parse().unwrap();
        assert!(age <= began.elapsed().as_secs(), "{age}");
        let same = r#" {"stream":false, "messages" : [{"content":"h\u0065llo","role":"user"}],"model":"m"}"#;
        assert_eq!(cached.outcome(&Request::new(&same)).await, "exact");
        let different = [
            Request::new(&chat("hello ")),
            Request {
                path: "/v1/chat/completions?x=1",
                ..request.clone()
            },
            Request {
                headers: vec![("openai-beta", "x")],
                ..request.clone()
            },
            Request {
                caller: Some(BOB),
                ..request.clone()
            },
        ];
        for other in different {
            assert_eq!(cached.outcome(&other).await, "miss");
        }
        assert_eq!(cached.metric("lookups_total", &["exact"]), 2);
        assert_eq!(cached.metric("lookups_total", &["miss"]), 5);
        assert_eq!(cached.metric("stores_total", &["exact"]), 1);
        let bytes = |direction| cached.metric("bytes_total", &[direction]);
        assert_eq!(bytes("replayed"), 2 * bytes("stored"));
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_never_answers_json_nor_the_reverse() {
    for (cached, _redis) in both(&json!({})).await {
        let whole = Request::new(&chat("hello"));
        let mut body = chat("hello");
        body["stream"] = json!(true);
        let streamed = Request::new(&body);
        cached.answered(&streamed, &stream("hi")).await;
        cached.answered(&whole, &answer("hi")).await;
        let hit = cached.look_up(&streamed).await;
        assert_eq!(hit.content_type, "text/event-stream");
        assert_eq!(hit.body, stream("hi").as_bytes());
        assert_eq!(cached.look_up(&whole).await.body, answer("hi").as_bytes());
        let ticket = cached
            .look_up(&Request {
                refresh: true,
                ..streamed
            })
            .await
            .ticket;
        let refused = cached
            .store(&ticket, "application/json", &answer("hi"))
            .await;
        assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(refused.reason, "content_type");
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_whole_or_too_long_is_not_stored() {
    for (cached, _redis) in both(&json!({"max_entry_bytes": 1_000})).await {
        let request = Request::new(&chat("hello"));
        let ticket = cached.look_up(&request).await.ticket;
        let whole = answer("hi");
        let long = answer(&"word ".repeat(1_000));
        let cases = [
            (&whole[..whole.len() - 3], "incomplete"),
            (r#"{"error": {"message": "no"}}"#, "error"),
            (&long, "too_large"),
        ];
        for (body, reason) in cases {
            let refused = cached.store(&ticket, "application/json", body).await;
            assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
            assert_eq!(refused.reason, reason);
            assert_eq!(cached.metric("refusals_total", &[reason]), 1);
        }
        let kind = format!("application/json; x={}", "x".repeat(1_000));
        let refused = cached.store(&ticket, &kind, &whole).await;
        assert_eq!(refused.reason, "content_type");
        assert_eq!(cached.outcome(&request).await, "miss");
        cached.answered(&request, &whole).await;
        assert_eq!(cached.outcome(&request).await, "exact");
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_wants_a_new_answer_is_not_looked_for_and_it_replaces_the_old_one() {
    for (cached, _redis) in both(&json!({})).await {
        let request = Request::new(&chat("hello"));
        cached.answered(&request, &answer("old")).await;
        let anew = Request {
            refresh: true,
            ..request.clone()
        };
        cached.answered(&anew, &answer("new")).await;
        assert_eq!(
            cached.look_up(&request).await.body,
            answer("new").as_bytes()
        );
        assert_eq!(cached.metric("lookups_total", &["refresh"]), 1);
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_not_for_the_cache_is_told_why() {
    let listed = json!({"keys": [ALICE]});
    for (cached, _redis) in both(&listed).await {
        let request = Request::new(&chat("hello"));
        let cases = [
            (
                Request {
                    caller: Some(BOB),
                    ..request.clone()
                },
                "key_not_listed",
            ),
            (
                Request {
                    caller: None,
                    ..request.clone()
                },
                "no_key",
            ),
            (
                Request {
                    path: "/v1/models",
                    ..request.clone()
                },
                "path",
            ),
            (Request::new(&"nonsense"), "unreadable"),
        ];
        for (request, reason) in cases {
            let said = cached.look_up(&request).await;
            assert_eq!((said.status, said.outcome()), (StatusCode::OK, reason));
            assert!(said.ticket.is_empty());
            let counted = cached.metric("bypasses_total", &["exact", reason]);
            assert_eq!(counted, 1);
        }
        assert_eq!(cached.outcome(&request).await, "miss");
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_route_may_share_answers_among_callers() {
    for (cached, _redis) in both(&json!({"scope": "route"})).await {
        let request = Request {
            scope: "route",
            ..Request::new(&chat("hello"))
        };
        cached.answered(&request, &answer("hi")).await;
        for caller in [Some(BOB), None] {
            let request = Request {
                caller,
                ..request.clone()
            };
            assert_eq!(cached.outcome(&request).await, "exact");
        }
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_question_of_the_filters_is_refused() {
    let cached = Cached::start(&document(&json!({}), &json!({}), None)).await;
    let request = Request::new(&chat("hello"));
    for route in ["none", "nowhere"] {
        let said = cached
            .look_up(&Request {
                route,
                ..request.clone()
            })
            .await;
        assert_eq!(said.status, StatusCode::NOT_FOUND);
    }
    // Who shares by now, by the filter's configuration, is another question.
    let said = cached
        .look_up(&Request {
            scope: "route",
            ..request.clone()
        })
        .await;
    assert_eq!(said.status, StatusCode::CONFLICT);
    let caller = Some("alice");
    let said = cached
        .look_up(&Request {
            caller,
            ..request.clone()
        })
        .await;
    assert_eq!(said.status, StatusCode::BAD_REQUEST);
    for ticket in ["", "nonsense", "chat-json-00"] {
        let said = cached
            .store(ticket, "application/json", &answer("hi"))
            .await;
        assert_eq!(said.status, StatusCode::BAD_REQUEST, "{ticket}");
    }
    cached.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_lives_no_longer_than_its_time() {
    for (cached, _redis) in both(&json!({"ttl_secs": 4})).await {
        let request = Request::new(&chat("hello"));
        cached.answered(&request, &answer("hi")).await;
        assert_eq!(cached.outcome(&request).await, "exact");
        let began = Instant::now();
        while cached.outcome(&request).await == "exact" {
            assert!(began.elapsed() < PATIENCE, "it lives on");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        cached.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_is_bounded_and_what_came_last_stays() {
    let settings = json!({"max_memory_bytes": 1 << 20});
    let cached = Cached::start(&document(&settings, &json!({}), None)).await;
    let request = |number: usize| Request::new(&chat(&format!("question {number}")));
    for number in 0..40 {
        let long = answer(&"x".repeat(100_000));
        cached.answered(&request(number), &long).await;
        let held = cached.metric("memory_bytes", &["answers"]);
        assert!(held <= 1 << 20, "{held}");
    }
    assert!(cached.metric("memory_entries", &["answers"]) >= 9);
    assert_eq!(cached.outcome(&request(39)).await, "exact");
    assert_eq!(cached.outcome(&request(0)).await, "miss");
    cached.stop().await;
}
