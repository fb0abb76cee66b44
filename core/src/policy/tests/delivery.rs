//! The steps of an answer.

use super::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const BASES: [Basis; 3] = [Basis::Upstream, Basis::Exact, Basis::Semantic];

fn plugins() -> Policy {
    policy(&json!({
        "plugins": [
            {"name": "first", "cluster": "one"},
            {"name": "second", "cluster": "two", "on_failure": "open"},
        ],
    }))
}

/// What the plugins are asked in turn, and what becomes of the answer where they say this; nothing
/// where one does not answer.
fn run(
    policy: &Policy,
    body: &str,
    replies: &[Option<&str>],
    context: &Context,
) -> (Vec<Value>, Delivery) {
    let mut asked = Vec::new();
    let mut delivery = policy.apply(body.as_bytes().to_vec(), context);
    for reply in replies {
        let Delivery::Ask(mut asking, answer) = delivery else {
            panic!("nobody is asked")
        };
        let question = policy.question(&answer, context);
        asked.push(serde_json::from_str(&question).unwrap());
        let verdict = reply.and_then(|reply| policy.verdict(reply.as_bytes()));
        // The answer is kept elsewhere meanwhile.
        let answer = asking.resume(answer.body.into_bytes()).unwrap();
        delivery = policy.answered(&asking, answer, verdict, context);
    }
    (asked, delivery)
}

fn delivered(delivery: Delivery) -> String {
    match delivery {
        Delivery::Deliver(answer) => answer.body,
        Delivery::Refuse(refusal, _) => panic!("refused: {refusal:?}"),
        Delivery::Pass => panic!("passed"),
        Delivery::Ask(..) => panic!("somebody is asked"),
    }
}

fn refused(delivery: Delivery) -> Refusal {
    match delivery {
        Delivery::Refuse(refusal, _) => refusal,
        _ => panic!("not refused"),
    }
}

#[test]
fn an_answer_that_nothing_is_done_about_stays_as_it_came() {
    let policy = policy(&json!({
        "guardrails": [{"name": "r", "keywords": ["forbidden"], "action": "block"}],
    }));
    for basis in BASES {
        let Delivery::Deliver(answer) = policy.apply(says("hello").into(), &context(basis)) else {
            panic!("not delivered")
        };
        assert_eq!((&*answer.body, answer.is_changed), (&*says("hello"), false));
    }
}

#[test]
fn plugins_are_asked_in_turn_and_told_of_the_request() {
    let policy = plugins();
    for (basis, source) in BASES.into_iter().zip(["upstream", "exact", "semantic"]) {
        let replaced = says("replaced");
        let reply = format!(r#"{{"verdict":"replace","answer":{replaced}}}"#);
        let allow = r#"{"verdict":"allow"}"#;
        let replies = [Some(&*reply), Some(allow)];
        let (asked, delivery) = run(&policy, &says("hello"), &replies, &context(basis));
        assert_eq!(delivered(delivery), replaced);
        let request = json!({
            "route": "chat", "api": "chat_completions", "model": "m", "caller": "07".repeat(32),
            "source": source,
        });
        let parsed = |text: String| serde_json::from_str::<Value>(&text).unwrap();
        assert_eq!(
            asked,
            [
                json!({"request": request, "answer": parsed(says("hello"))}),
                json!({"request": request, "answer": parsed(replaced)}),
            ]
        );
    }
}

#[test]
fn a_plugin_blocks_whatever_the_answer_is_based_on() {
    let policy = plugins();
    for basis in BASES {
        let reply = "{\"verdict\":\"block\",\"reason\":\"not\\u0000 today\"}";
        let (_, delivery) = run(&policy, &says("hello"), &[Some(reply)], &context(basis));
        let refusal = refused(delivery);
        let wanted = Refusal::Plugin("first".into(), "not today".into());
        assert_eq!(refusal, wanted);
        assert_eq!(refusal.reason(), "plugin:first");
        assert_eq!(refusal.status(), 403);
    }
}

#[test]
fn a_plugin_that_does_not_answer_as_it_should_fails_as_the_configuration_says() {
    let policy = plugins();
    let allow = Some(r#"{"verdict":"allow"}"#);
    let failures = [
        None,
        Some(""),
        Some("[]"),
        Some("{}"),
        Some(r#"{"verdict":true}"#),
        Some(r#"{"verdict":"ALLOW"}"#),
        Some(r#"{"verdict":"allow"} and more"#),
        Some(r#"{"verdict":"replace"}"#),
        Some(r#"{"verdict":"replace","answer":"text"}"#),
        Some(r#"{"verdict":"replace","answer":[]}"#),
    ];
    for failure in failures {
        let context = context(Basis::Exact);
        let (_, delivery) = run(&policy, &says("hello"), &[failure], &context);
        let refusal = refused(delivery);
        assert_eq!(
            refusal,
            Refusal::PluginFailed("first".into()),
            "{failure:?}"
        );
        assert_eq!(refusal.status(), 503);
        let (_, delivery) = run(&policy, &says("hello"), &[allow, failure], &context);
        assert_eq!(delivered(delivery), says("hello"), "{failure:?}");
    }
}

#[test]
fn what_cannot_be_read_is_withheld_unless_the_configuration_says_otherwise() {
    let rule = json!([{"name": "r", "keywords": ["forbidden"], "action": "block"}]);
    let strict = policy(&json!({"guardrails": rule}));
    let lenient = policy(&json!({"guardrails": rule, "on_unread": "skip"}));
    let half = says("hello");
    let half = &half[..half.len() - 1];
    let nested = format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200));
    let unreadable: [&[u8]; 7] = [
        b"",
        b"hello",
        b"[1]",
        b"data: {}\n\n",
        b"{\"a\": \"\xff\"}",
        half.as_bytes(),
        nested.as_bytes(),
    ];
    for body in unreadable {
        let context = context(Basis::Upstream);
        let refusal = refused(strict.apply(body.to_vec(), &context));
        assert_eq!(refusal, Refusal::UnreadAnswer);
        assert!(matches!(
            lenient.apply(body.to_vec(), &context),
            Delivery::Pass
        ));
    }
}

#[test]
fn no_answer_is_longer_than_it_may_be_as_it_came_or_as_it_was_made() {
    let policy = policy(&json!({
        "max_answer_bytes": 200,
        "plugins": [{"name": "p", "cluster": "c"}],
    }));
    let context = context(Basis::Upstream);
    let long = says(&"long ".repeat(100));
    assert_eq!(
        refused(policy.apply(long.clone().into(), &context)),
        Refusal::TooLarge
    );
    let reply = format!(r#"{{"verdict":"replace","answer":{long}}}"#);
    let (_, delivery) = run(&policy, &says("hello"), &[Some(&reply)], &context);
    assert_eq!(refused(delivery), Refusal::PluginFailed("p".into()));
}

#[test]
fn guardrails_come_first_and_what_was_taken_out_comes_back_last() {
    let policy = policy(&json!({
        "guardrails": [
            {"name": "mail", "pattern": "alice@", "action": "block"},
            {"name": "secret", "keywords": ["secret"], "action": "redact", "replacement": "***"},
        ],
        "plugins": [{"name": "p", "cluster": "c"}],
        "pii": {},
    }));
    let admitted = admit(&policy, &asks("I am alice@example.com")).unwrap();
    assert_eq!(admitted.body.as_deref(), Some(&*asks("I am [EMAIL-1]")));
    let context = Context {
        ticket: admitted.ticket,
        ..context(Basis::Exact)
    };
    let upstream = says("a secret of [EMAIL-1], not of [EMAIL-2]");
    let reply = Some(r#"{"verdict":"allow"}"#);
    let (asked, delivery) = run(&policy, &upstream, &[reply], &context);
    let seen = asked[0]["answer"]["choices"][0]["message"]["content"].clone();
    assert_eq!(seen, "a *** of [EMAIL-1], not of [EMAIL-2]");
    let Delivery::Deliver(answer) = delivery else {
        panic!("not delivered")
    };
    let wanted = says("a *** of alice@example.com, not of [EMAIL-2]");
    assert_eq!(answer.body, wanted);
    assert_eq!(answer.findings, [1]);
}

#[test]
fn a_guardrail_that_blocks_is_named() {
    let policy = policy(&json!({
        "guardrails": [{"name": "words", "keywords": ["forbidden"], "action": "block"}],
    }));
    for basis in BASES {
        let delivery = policy.apply(says("It is forbidden.").into(), &context(basis));
        let Delivery::Refuse(refusal, findings) = delivery else {
            panic!("not refused")
        };
        assert_eq!(findings, [0]);
        assert_eq!(refusal.reason(), "guardrail:words");
        let body: Value = serde_json::from_str(&refusal.body(Some(Dialect::Chat))).unwrap();
        assert_eq!(body["error"]["code"], "withheld_by_policy");
        assert_eq!(body.get("type"), None);
        let body: Value = serde_json::from_str(&refusal.body(Some(Dialect::Messages))).unwrap();
        assert_eq!(body["type"], "error");
    }
}

#[test]
fn an_answer_from_the_cache_costs_nothing() {
    let usage = Usage {
        prompt: 3,
        completion: 2,
        cached: 1,
    };
    assert_eq!(Basis::Upstream.billed(usage), usage);
    assert_eq!(Basis::Exact.billed(usage), Usage::default());
    assert_eq!(Basis::Semantic.billed(usage), Usage::default());
}
