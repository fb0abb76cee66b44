//! What passes over answers.

use super::*;
use serde_json::json;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn with_policy(policy: &Value) -> Value {
    let mut document = smallest();
    document["policy"] = policy.clone();
    document
}

#[test]
fn a_policy_has_its_defaults() {
    let config = parse(&with_policy(&json!({}))).unwrap();
    let empty = Policy {
        path: "policy".into(),
        guardrails: Vec::new(),
        plugins: Vec::new(),
        pii: None,
        on_stream: Unchecked::Refuse,
        on_unread: Unchecked::Refuse,
        max_answer_bytes: 1 << 20,
    };
    assert!(!empty.judges());
    assert_eq!(config.policies, [empty]);
    assert_eq!(config.routes[0].policy, Some(0));
    let policy = json!({
        "plugins": [{"name": "p", "cluster": "plugin"}],
        "guardrails": [
            {"name": "r", "pattern": "secret", "action": "redact"},
            {"name": "k", "keywords": ["one", "two"], "action": "report"},
            {"name": "l", "max_chars": 100, "action": "block"},
        ],
        "pii": {},
    });
    let config = parse(&with_policy(&policy)).unwrap();
    let [policy] = &config.policies[..] else {
        panic!("one policy")
    };
    assert!(policy.judges());
    let plugin = &policy.plugins[0];
    assert_eq!((&*plugin.path, plugin.timeout_ms), ("/", 1_000));
    // What cannot be asked about is not delivered, unless somebody says so.
    assert!(!plugin.fails_open);
    let what: Vec<_> = policy
        .guardrails
        .iter()
        .map(|rule| (rule.looks_for.clone(), rule.action.clone()))
        .collect();
    let words = vec!["one".to_owned(), "two".to_owned()];
    assert_eq!(
        what,
        [
            (
                LooksFor::Pattern("secret".into()),
                Action::Redact("[redacted]".into())
            ),
            (LooksFor::Keywords(words), Action::Report),
            (LooksFor::Length(100), Action::Block),
        ]
    );
    assert_eq!(policy.pii.as_ref().unwrap().kinds, PiiKind::ALL);
}

#[test]
fn a_route_has_its_own_policy_or_that_of_all() {
    let document = json!({
        "policy": {"on_stream": "skip"},
        "providers": [{"name": "a", "cluster": "cluster-a"}],
        "routes": [
            {"name": "one", "targets": ["a"]},
            {"name": "two", "targets": ["a"], "policy": {"on_unread": "skip"}},
            {"name": "none", "targets": ["a"], "policy": {"enabled": false}},
            {"name": "three", "targets": ["a"]},
        ],
    });
    let config = parse(&document).unwrap();
    let places: Vec<_> = config.routes.iter().map(|route| route.policy).collect();
    assert_eq!(places, [Some(0), Some(1), None, Some(0)]);
    let read = |policy: &Policy| (policy.on_stream, policy.on_unread);
    let policies: Vec<_> = config.policies.iter().map(read).collect();
    let (skip, refuse) = (Unchecked::Skip, Unchecked::Refuse);
    assert_eq!(policies, [(skip, refuse), (refuse, skip)]);
    let config = parse(&with_policy(&json!({"enabled": false, "pii": {}}))).unwrap();
    assert_eq!((config.routes[0].policy, config.policies), (None, vec![]));
}

#[test]
fn what_is_wrong_with_a_policy_is_told_with_its_path() {
    let rule = |rule: Value| json!({"guardrails": [rule]});
    let pii = |pattern: Value| json!({"pii": {"patterns": [pattern]}});
    let plugin = |plugin: Value| json!({"plugins": [plugin]});
    each_makes_its_problem(vec![
        (
            "/policy",
            json!({"on_stream": "pass"}),
            "policy.on_stream: \"pass\"; write one of: refuse, skip",
        ),
        (
            "/policy",
            json!({"on_failure": "open"}),
            "policy.on_failure: unknown key; known here: enabled, guardrails, plugins, pii, \
             on_stream, on_unread, max_answer_bytes",
        ),
        (
            "/routes/0/policy",
            json!({"guardrails": []}),
            "routes[0].policy.guardrails: empty; write at least one",
        ),
        (
            "/policy",
            rule(json!({"name": "r", "action": "block"})),
            "policy.guardrails[0]: write one of pattern, keywords and max_chars, and no more",
        ),
        (
            "/policy",
            rule(json!({"name": "r", "pattern": "a", "max_chars": 1, "action": "block"})),
            "policy.guardrails[0]: write one of pattern, keywords and max_chars, and no more",
        ),
        (
            "/policy",
            rule(json!({"name": "r", "pattern": "a"})),
            "policy.guardrails[0].action: missing; write one of: block, redact, report",
        ),
        (
            "/policy",
            rule(json!({"name": "r", "pattern": "a", "action": "block", "replacement": "x"})),
            "policy.guardrails[0].replacement: is for action: redact alone; remove it",
        ),
        (
            "/policy",
            rule(json!({"name": "r", "keywords": [" "], "action": "block"})),
            "policy.guardrails[0].keywords[0]: write a word of up to 1024 bytes",
        ),
        (
            "/policy",
            rule(json!({"name": "r", "keywords": [], "action": "block"})),
            "policy.guardrails[0].keywords: empty; write at least one",
        ),
        (
            "/policy",
            plugin(json!({"name": "p"})),
            "policy.plugins[0].cluster: missing; write the name of the Envoy cluster that leads to \
             it",
        ),
        (
            "/policy",
            plugin(json!({"name": "p", "cluster": "c", "path": "check"})),
            "policy.plugins[0].path: a path begins with \"/\", and has no spaces or control \
             characters",
        ),
        (
            "/policy",
            plugin(json!({"name": "p", "cluster": "c", "on_failure": "maybe"})),
            "policy.plugins[0].on_failure: \"maybe\"; write one of: closed, open",
        ),
        (
            "/policy",
            json!({"pii": {"kinds": ["phones"]}}),
            "policy.pii.kinds[0]: \"phones\"; write one of: email, phone, card, iban, ssn, ip",
        ),
        (
            "/policy",
            json!({"pii": {"kinds": []}}),
            "policy.pii: looks for nothing; write kinds or patterns",
        ),
        (
            "/policy",
            pii(json!({"name": "text", "pattern": "a"})),
            "policy.pii.patterns[0].name: \"text\" is a kind of its own; write another name",
        ),
        (
            "/policy",
            pii(json!({"name": "Staff-Id", "pattern": "a"})),
            "policy.pii.patterns[0].name: \"Staff-Id\"; write a lower-case letter, then up to 31 \
             lower-case letters and digits",
        ),
        (
            "/policy",
            pii(json!({"name": "staff"})),
            "policy.pii.patterns[0].pattern: missing; write a regular expression",
        ),
    ]);
}

#[test]
fn a_pattern_that_cannot_be_compiled_is_told_with_its_path() {
    let guardrail = |pattern: &str| json!({"guardrails": [{"name": "r", "pattern": pattern, "action": "block"}]});
    let pii = json!({"pii": {"patterns": [{"name": "staff", "pattern": "["}]}});
    let mut document = with_policy(&guardrail("("));
    document["routes"][0]["policy"] = guardrail("a*");
    let other = json!({"name": "other", "targets": ["a"], "policy": pii});
    document["routes"].as_array_mut().unwrap().push(other);
    let config = parse(&document).unwrap();
    let Err(Errors(problems)) = crate::policy::compile(&config.policies) else {
        panic!("compiled")
    };
    let paths: Vec<_> = problems.iter().map(|problem| &*problem.path).collect();
    assert_eq!(
        paths,
        [
            "policy.guardrails[0].pattern",
            "routes[0].policy.guardrails[0].pattern",
            "routes[1].policy.pii.patterns[0].pattern",
        ]
    );
}

#[test]
fn a_list_that_is_too_long_is_told() {
    let rule =
        |index: usize| json!({"name": format!("r{index}"), "pattern": "a", "action": "block"});
    let rules: Vec<Value> = (0..300).map(rule).collect();
    let problems = parse(&with_policy(&json!({"guardrails": rules}))).unwrap_err();
    assert_eq!(
        problems,
        ["policy.guardrails: 300 of them; write 256 at most"]
    );
}
