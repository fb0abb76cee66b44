//! Which requests are looked for under one key.

use super::super::control::Control;
use super::super::{ExactKey, admits};
use super::*;
use crate::config::RouteCache;
use serde_json::json;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn key(text: &str) -> ExactKey {
    read(CHAT, text)
        .unwrap_or_else(|bypass| panic!("{bypass:?}: {text}"))
        .exact
}

#[test]
fn how_a_document_is_written_makes_no_difference() {
    let plain = r#"{"model":"m","messages":[{"role":"user","content":"é\n"}],"n":1,"t":0.5}"#;
    for same in [
        r#"{ "n":1 ,"messages" : [ {"content":"é\n","role":"user"} ],"t":0.5,"model":"m"}"#,
        "{\"model\":\"m\",\n\t\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\\u000A\"}],\"n\":1,\"t\":0.5}",
        r#"{"mod\u0065l":"m","messages":[{"role":"us\u0065r","content":"é\n"}],"n":1.0,"t":5e-1}"#,
        r#"{"model":"m","messages":[{"role":"user","content":"é\n"}],"n":10e-1,"t":0.50,"stream":false}"#,
    ] {
        assert_eq!(key(same), key(plain), "{same}");
    }
    assert_eq!(key(r#"{"a":"\ud83d\ude00"}"#), key(r#"{"a":"😀"}"#));
}

#[test]
fn everything_else_does() {
    let documents = [
        r#"{"a":1}"#,
        r#"{"a":"1"}"#,
        r#"{"a":[1]}"#,
        r#"{"a":{"1":1}}"#,
        r#"{"a":true}"#,
        r#"{"a":null}"#,
        r#"{"a":-1}"#,
        r#"{"a":1.5}"#,
        r#"{"a":1.5000000000000002}"#,
        r#"{"a":0}"#,
        r#"{"a":-0.0}"#,
        r#"{"a":18446744073709551615}"#,
        r#"{"a":18446744073709551614}"#,
        r#"{"a":-9223372036854775808}"#,
        r#"{"a":-9223372036854775807}"#,
        r#"{"a":9007199254740993}"#,
        r#"{"a":9007199254740992}"#,
        r#"{"a":"é"}"#,
        "{\"a\":\"e\u{301}\"}",
        r#"{"a":" 1"}"#,
        r#"{"a":"1\u0000"}"#,
        r#"{"A":1}"#,
        r#"{"a":1,"b":null}"#,
        r#"{"a":[1,2]}"#,
        r#"{"a":[2,1]}"#,
        r#"{"a":[[1],2]}"#,
        r#"{"a":1,"stream":true}"#,
        r#"{"a":1,"stream":null}"#,
        r#"{"a":1,"user":"x"}"#,
        r#"{"a":1,"metadata":{}}"#,
        "{}",
    ];
    for (index, one) in documents.iter().enumerate() {
        for other in &documents[..index] {
            assert_ne!(key(one), key(other), "{one} {other}");
        }
    }
}

#[test]
fn what_readers_may_take_for_different_things_is_not_for_the_cache() {
    for (body, expected) in [
        (r#"{"a":1,"a":1}"#, Bypass::Ambiguous),
        (r#"{"a":1,"\u0061":2}"#, Bypass::Ambiguous),
        (r#"{"x":[{"a":1,"b":2,"a":3}]}"#, Bypass::Ambiguous),
        (r#"{"a":18446744073709551616}"#, Bypass::Ambiguous),
        (r#"{"a":9007199254740993.0}"#, Bypass::Ambiguous),
        (r#"{"a":1e300}"#, Bypass::Ambiguous),
        (r#"{"stream":"true"}"#, Bypass::Ambiguous),
        (r#"{"stream":1}"#, Bypass::Ambiguous),
        (r#"{"a":1e999}"#, Bypass::Unreadable),
        (r#"{"a":"\ud800"}"#, Bypass::Unreadable),
        (r#"{"a":1}x"#, Bypass::Unreadable),
        (r#"{"a":1"#, Bypass::Unreadable),
        (r#"{"a":NaN}"#, Bypass::Unreadable),
        (r#"{"a":01}"#, Bypass::Unreadable),
        ("[1]", Bypass::Unreadable),
        ("", Bypass::Unreadable),
        (
            &format!("{}1{}", r#"{"a":"#.repeat(200), "}".repeat(200)),
            Bypass::Unreadable,
        ),
    ] {
        assert_eq!(read(CHAT, body), Err(expected), "{body}");
    }
    let bytes = asked(CHAT, b"{\"a\":\"\xff\"}");
    assert_eq!(Question::read(&bytes), Err(Bypass::Unreadable));
}

#[test]
fn what_an_engine_remembers_is_not_for_the_cache() {
    for (path, name) in [
        (RESPONSES, "conversation"),
        (RESPONSES, "previous_response_id"),
        (RESPONSES, "prompt"),
        (MESSAGES, "container"),
        (COMPLETIONS, "kv_transfer_params"),
        (CHAT, "ec_transfer_params"),
    ] {
        let remembered = json!({"input": "Go on", name: {"id": "1"}});
        let read = read(path, &remembered.to_string());
        assert_eq!(read, Err(Bypass::Stateful), "{name}");
    }
    let not = json!({"input": "Go on", "conversation": null});
    assert!(read(RESPONSES, &not.to_string()).is_ok());
}

#[test]
fn only_apis_whose_answers_can_be_judged_are_for_the_cache() {
    for path in [
        CHAT,
        COMPLETIONS,
        RESPONSES,
        EMBEDDINGS,
        MESSAGES,
        "/team/v1/chat/completions?x=1",
    ] {
        assert!(read(path, "{}").is_ok(), "{path}");
    }
    for path in ["/v1/models", "/v1/rerank", "/v1/messages/count_tokens", "/"] {
        assert_eq!(read(path, "{}"), Err(Bypass::Path), "{path}");
    }
}

#[test]
fn where_a_request_comes_from_makes_a_difference() {
    let (me, you) = (Some([1; 32]), Some([2; 32]));
    let base = asked(CHAT, b"{}");
    let by_key = Asked {
        scope: Scope::Key,
        caller: me,
        ..base
    };
    let all = [
        base,
        Asked {
            namespace: "other",
            ..base
        },
        Asked {
            route: "other",
            ..base
        },
        Asked {
            path: b"/v1/completions",
            ..base
        },
        Asked {
            path: b"/v1/chat/completions?api-version=2",
            ..base
        },
        // What one field loses the next one gains.
        Asked {
            namespace: "rolterc",
            route: "hat",
            ..base
        },
        Asked {
            versions: [b"2023-06-01", b"", b""],
            ..base
        },
        Asked {
            versions: [b"", b"2023-06-01", b""],
            ..base
        },
        by_key,
        Asked {
            caller: you,
            ..by_key
        },
    ];
    let keys: Vec<_> = all
        .iter()
        .map(|asked| Question::read(asked).unwrap().exact)
        .collect();
    for (index, key) in keys.iter().enumerate() {
        assert!(!keys[..index].contains(key), "{:?}", all[index]);
    }
    // Who asks makes none where answers are everyone's.
    let mine = Asked { caller: me, ..base };
    assert_eq!(Question::read(&mine).unwrap().exact, keys[0]);
    let nobodys = Asked {
        caller: None,
        ..by_key
    };
    assert_eq!(Question::read(&nobodys), Err(Bypass::NoKey));
}

#[test]
fn callers_use_a_cache_that_is_theirs() {
    let cache = |scope, keys| RouteCache {
        ttl_secs: 300,
        scope,
        keys,
        max_entry_bytes: 1 << 20,
        lookup_timeout_ms: 50,
        semantic: None,
    };
    let (me, you) = ([1; 32], [2; 32]);
    for (scope, keys, caller, expected) in [
        (Scope::Key, vec![], Some(&me), Ok(())),
        (Scope::Key, vec![], None, Err(Bypass::NoKey)),
        (Scope::Key, vec![me], Some(&me), Ok(())),
        (Scope::Key, vec![me], Some(&you), Err(Bypass::KeyNotListed)),
        (Scope::Route, vec![], None, Ok(())),
        (Scope::Route, vec![me, you], Some(&you), Ok(())),
        (
            Scope::Route,
            vec![me],
            Some(&you),
            Err(Bypass::KeyNotListed),
        ),
        (Scope::Route, vec![me], None, Err(Bypass::KeyNotListed)),
    ] {
        let told = format!("{scope:?} {keys:?} {caller:?}");
        assert_eq!(admits(&cache(scope, keys), caller), expected, "{told}");
    }
}

#[test]
fn clients_say_what_they_want_of_the_cache() {
    for (header, expected) in [
        ("", Control::Any),
        ("max-age=0", Control::Any),
        ("no-cache", Control::NoCache),
        (" No-Cache ", Control::NoCache),
        ("no-store", Control::NoStore),
        ("no-cache, NO-STORE", Control::NoStore),
        ("max-age=0,no-cache", Control::NoCache),
        ("no-cachex", Control::Any),
    ] {
        assert_eq!(Control::of(header.as_bytes()), expected, "{header:?}");
    }
}
