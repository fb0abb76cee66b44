//! Requests before anybody is asked for an answer.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn request(stream: bool, dialect: Option<Dialect>, body: Body<'_>) -> Request<'_> {
    Request {
        dialect,
        stream,
        body,
    }
}

#[test]
fn a_policy_that_does_nothing_refuses_nothing() {
    let policy = policy(&json!({}));
    for stream in [true, false] {
        for body in [Body::None, Body::Unknown, Body::Whole(b"\x1f\x8b")] {
            let admitted = policy.admit(&request(stream, None, body)).unwrap();
            assert!(!admitted.is_unsanitized);
            assert!(admitted.body.is_none() && admitted.ticket.is_empty());
        }
    }
}

#[test]
fn a_stream_is_refused_or_goes_on_without_the_policy() {
    let body = asks("I am alice@example.com");
    let stream = || request(true, Some(Dialect::Chat), Body::Whole(body.as_bytes()));
    let rules = json!([{"name": "r", "keywords": ["forbidden"], "action": "block"}]);
    let strict = policy(&json!({"guardrails": rules}));
    let refusal = strict.admit(&stream()).err();
    assert_eq!(refusal, Some(Refusal::Stream));
    // With nothing to take out, its answer may be kept; else what should have been would be in it.
    for (pii, is_unsanitized) in [(Value::Null, false), (json!({}), true)] {
        let lenient = policy(&json!({"guardrails": rules, "pii": pii, "on_stream": "skip"}));
        let admitted = lenient.admit(&stream()).unwrap();
        assert_eq!(admitted.is_unsanitized, is_unsanitized);
        assert!(admitted.body.is_none());
    }
}

#[test]
fn what_the_sanitizer_cannot_read_is_refused_unless_the_configuration_says_otherwise() {
    let strict = policy(&json!({"pii": {}}));
    let lenient = policy(&json!({"pii": {}, "on_unread": "skip"}));
    let chat = Some(Dialect::Chat);
    let text = asks("I am alice@example.com");
    let requests = [
        (chat, Body::Unknown),
        (chat, Body::Whole(b"\x1f\x8b\x08")),
        (chat, Body::Whole(b"[]")),
        (None, Body::Whole(text.as_bytes())),
        (
            Some(Dialect::Completions),
            Body::Whole(br#"{"prompt":[1,2,3]}"#),
        ),
        (
            Some(Dialect::Responses),
            Body::Whole(br#"{"input":"go on","previous_response_id":"resp_1"}"#),
        ),
    ];
    for (dialect, body) in requests {
        let refusal = strict.admit(&request(false, dialect, body)).err();
        assert_eq!(refusal, Some(Refusal::UnreadRequest));
        let admitted = lenient.admit(&request(false, dialect, body)).unwrap();
        assert!(admitted.is_unsanitized);
        assert!(admitted.body.is_none() && admitted.ticket.is_empty());
    }
    // A policy that takes nothing out need not read requests.
    let other = policy(&json!({"plugins": [{"name": "p", "cluster": "c"}]}));
    let admitted = other.admit(&request(false, None, Body::Unknown)).unwrap();
    assert!(!admitted.is_unsanitized);
    let admitted = strict.admit(&request(false, None, Body::None)).unwrap();
    assert!(!admitted.is_unsanitized);
}

#[test]
fn a_request_with_nothing_to_take_out_stays_as_it_came() {
    let policy = policy(&json!({"pii": {}}));
    let admitted = admit(&policy, &asks("hello")).unwrap();
    assert!(!admitted.is_unsanitized);
    assert!(admitted.body.is_none() && admitted.ticket.is_empty());
}
