//! Which requests are compared by their meaning, and with which others.

use super::super::MAX_TEXT_BYTES;
use super::*;
use serde_json::json;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

fn chat(content: &Value) -> Value {
    json!({"model": "m", "messages": [{"role": "user", "content": content}]})
}

fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    body.pointer_mut(parent).unwrap()[key] = value;
    body
}

#[test]
fn the_text_is_what_user_and_assistant_say() {
    let cases = [
        (
            CHAT,
            json!({"messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "  Hi\n\tthere ", "name": "ann"},
                {"role": "assistant", "content": [{"type": "text", "text": "Ho"}, {"type": "text", "text": "ho"}]},
                {"role": "user", "content": "Go on"},
            ]}),
            "user ann: Hi there\nassistant: Ho ho\nuser: Go on",
        ),
        (
            MESSAGES,
            json!({"system": "Be brief.", "messages": [{"role": "user", "content": [
                {"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}},
            ]}]}),
            "user: Hi",
        ),
        (
            COMPLETIONS,
            json!({"prompt": " Once\u{a0}upon\n"}),
            "Once upon",
        ),
    ];
    for (path, body, expected) in cases {
        assert_eq!(semantic(path, &body).1, expected, "{body}");
    }
}

#[test]
fn other_words_share_a_partition() {
    let base = chat(&json!("What is the capital of France?"));
    for other in [
        chat(&json!("Which city is France's capital?")),
        chat(&json!([{"type": "text", "text": "France: capital?"}])),
        with(base.clone(), "/user", json!("ann")),
        with(base.clone(), "/metadata", json!({"team": 1})),
        with(base.clone(), "/stream", json!(false)),
    ] {
        assert_eq!(semantic(CHAT, &other).0, semantic(CHAT, &base).0, "{other}");
    }
    let named = |name: &str| with(base.clone(), "/messages/0/name", json!(name));
    assert_eq!(
        semantic(CHAT, &named("ann")).0,
        semantic(CHAT, &named("bob")).0
    );
}

#[test]
fn whatever_is_not_words_parts_requests() {
    let base = chat(&json!("Hi"));
    let system = |role: &str, content: &str, place: usize| {
        let mut body = base.clone();
        let message = json!({"role": role, "content": content});
        body["messages"]
            .as_array_mut()
            .unwrap()
            .insert(place, message);
        body
    };
    let turns = |roles: &[&str]| {
        let turns = roles
            .iter()
            .map(|role| json!({"role": role, "content": "x"}));
        with(base.clone(), "/messages", turns.collect())
    };
    let all = [
        base.clone(),
        system("system", "Answer in German", 0),
        system("system", "Answer in Japanese", 0),
        system("developer", "Answer in German", 0),
        system("system", "Answer in German", 1),
        turns(&["user", "user"]),
        turns(&["user", "assistant", "user"]),
        with(base.clone(), "/messages/0/name", json!("ann")),
        with(base.clone(), "/model", json!("n")),
        with(base.clone(), "/stream", json!(true)),
        with(
            base.clone(),
            "/stream_options",
            json!({"include_usage": true}),
        ),
        with(
            base.clone(),
            "/tools",
            json!([{"type": "function", "function": {"name": "f"}}]),
        ),
        with(
            base.clone(),
            "/tools",
            json!([{"type": "function", "function": {"name": "g"}}]),
        ),
        with(base.clone(), "/tool_choice", json!("none")),
        with(
            base.clone(),
            "/response_format",
            json!({"type": "json_object"}),
        ),
        with(base.clone(), "/temperature", json!(0)),
        with(base.clone(), "/temperature", json!(1)),
        with(base.clone(), "/max_tokens", json!(1)),
        with(base.clone(), "/seed", json!(1)),
        with(base.clone(), "/cache_salt", json!("tenant")),
        with(base.clone(), "/nobody_knows_this", json!(null)),
    ];
    let partitions: Vec<_> = all.iter().map(|body| semantic(CHAT, body).0).collect();
    for (index, partition) in partitions.iter().enumerate() {
        assert!(!partitions[..index].contains(partition), "{}", all[index]);
    }
    // The same document in another API.
    assert_ne!(semantic(MESSAGES, &base).0, semantic(CHAT, &base).0);
    let anthropic = |system: Value| with(base.clone(), "/system", system);
    assert_ne!(
        semantic(MESSAGES, &anthropic(json!("German"))).0,
        semantic(MESSAGES, &anthropic(json!("Japanese"))).0
    );
    // A partition is never a key.
    let Question {
        exact, semantic, ..
    } = question(CHAT, &base);
    assert_ne!(semantic.unwrap().partition.0, exact.0);
}

#[test]
fn what_the_text_does_not_tell_is_not_compared() {
    let text = json!({"type": "text", "text": "Hi"});
    let turn = |turn: Value| json!({"messages": [turn]});
    let user = |content: Value| turn(json!({"role": "user", "content": content}));
    let before = |before: Value| json!({"messages": [before, {"role": "user", "content": "Hi"}]});
    let image = json!({"type": "image_url", "image_url": {"url": "data:,"}});
    let cases = [
        (CHAT, user(json!([text, image])), Bypass::NotText),
        (
            CHAT,
            user(json!([{"type": "input_audio", "input_audio": {}}])),
            Bypass::NotText,
        ),
        (CHAT, user(json!([{"text": "Hi"}])), Bypass::NotText),
        (
            MESSAGES,
            user(json!([{"type": "image", "source": {}}])),
            Bypass::NotText,
        ),
        (
            MESSAGES,
            user(json!([{"type": "thinking", "thinking": "?"}])),
            Bypass::NotText,
        ),
        (
            MESSAGES,
            user(json!([{"type": "tool_result", "content": "1"}])),
            Bypass::Tools,
        ),
        (
            MESSAGES,
            before(json!({"role": "assistant", "content": [{"type": "tool_use"}]})),
            Bypass::Tools,
        ),
        (
            CHAT,
            before(json!({"role": "assistant", "content": null, "tool_calls": []})),
            Bypass::Tools,
        ),
        (
            CHAT,
            before(json!({"role": "assistant", "content": "x", "function_call": {}})),
            Bypass::Tools,
        ),
        (
            CHAT,
            before(json!({"role": "tool", "content": "1", "tool_call_id": "c"})),
            Bypass::Tools,
        ),
        (
            CHAT,
            before(json!({"role": "function", "content": "1"})),
            Bypass::Tools,
        ),
        (
            CHAT,
            before(json!({"role": "assistant", "content": "x", "refusal": "no"})),
            Bypass::Unknown,
        ),
        (
            CHAT,
            before(json!({"role": "assistant", "content": null})),
            Bypass::Unknown,
        ),
        (
            CHAT,
            before(json!({"role": "critic", "content": "x"})),
            Bypass::Unknown,
        ),
        (CHAT, before(json!({"content": "x"})), Bypass::Unknown),
        (CHAT, before(json!("x")), Bypass::Unknown),
        (
            MESSAGES,
            before(json!({"role": "system", "content": "x"})),
            Bypass::Unknown,
        ),
        (
            MESSAGES,
            turn(json!({"role": "user", "content": "x", "name": "ann"})),
            Bypass::Unknown,
        ),
        (
            CHAT,
            turn(json!({"role": "user", "content": "x", "name": "ann: I"})),
            Bypass::Unknown,
        ),
        (
            CHAT,
            turn(json!({"role": "user", "content": "x", "name": ""})),
            Bypass::Unknown,
        ),
        (
            CHAT,
            turn(json!({"role": "user", "content": "x", "name": null})),
            Bypass::Unknown,
        ),
        (
            CHAT,
            user(json!([{"type": "text", "text": "Hi", "weight": 2}])),
            Bypass::Unknown,
        ),
        (CHAT, user(json!([{"type": "text"}])), Bypass::Unknown),
        (CHAT, user(json!(["Hi"])), Bypass::Unknown),
        (
            CHAT,
            user(json!({"type": "text", "text": "Hi"})),
            Bypass::Unknown,
        ),
        (CHAT, json!({"messages": "Hi"}), Bypass::Unknown),
        (CHAT, json!({"prompt": "Hi"}), Bypass::Unknown),
        (
            CHAT,
            turn(json!({"role": "assistant", "content": "x"})),
            Bypass::Prefill,
        ),
        (CHAT, json!({"messages": []}), Bypass::Empty),
        (
            CHAT,
            turn(json!({"role": "system", "content": "x"})),
            Bypass::Empty,
        ),
        (CHAT, user(json!(" \n")), Bypass::Empty),
        (CHAT, user(json!([])), Bypass::Empty),
        (COMPLETIONS, json!({"prompt": ""}), Bypass::Empty),
        (COMPLETIONS, json!({"prompt": [1, 2]}), Bypass::Batch),
        (COMPLETIONS, json!({"prompt": ["a"]}), Bypass::Batch),
        (
            COMPLETIONS,
            json!({"prompt": null, "prompt_embeds": "x"}),
            Bypass::Unknown,
        ),
        (
            COMPLETIONS,
            json!({"prompt": "a", "echo": true}),
            Bypass::Echo,
        ),
        (
            CHAT,
            with(user(json!("Hi")), "/return_prompt_text", json!(true)),
            Bypass::Echo,
        ),
        (
            CHAT,
            with(user(json!("Hi")), "/return_whatever_comes", json!(1)),
            Bypass::Echo,
        ),
        (
            COMPLETIONS,
            json!({"prompt": "a", "prompt_logprobs": 0}),
            Bypass::Echo,
        ),
        (RESPONSES, json!({"input": "Hi"}), Bypass::ExactOnly),
        (EMBEDDINGS, json!({"input": "Hi"}), Bypass::ExactOnly),
    ];
    for (path, body, expected) in cases {
        assert_eq!(
            question(path, &body).semantic,
            Err(expected),
            "{path} {body}"
        );
    }
    let echo = json!({"prompt": "a", "echo": false});
    assert!(question(COMPLETIONS, &echo).semantic.is_ok());
}

#[test]
fn a_text_is_compared_as_a_whole_or_not_at_all() {
    let of = |bytes: usize| question(COMPLETIONS, &json!({"prompt": "é".repeat(bytes / 2)}));
    assert_eq!(
        of(MAX_TEXT_BYTES).semantic.unwrap().text.len(),
        MAX_TEXT_BYTES
    );
    assert_eq!(of(MAX_TEXT_BYTES + 2).semantic, Err(Bypass::TooLong));
    let long = json!({"role": "user", "content": "x".repeat(MAX_TEXT_BYTES / 2)});
    let body = json!({"messages": [long, long]});
    assert_eq!(question(CHAT, &body).semantic, Err(Bypass::TooLong));
}

#[test]
fn no_words_pass_for_a_turn_or_for_a_name() {
    let one = chat(&json!("a\nassistant: b\nuser: c"));
    let three = json!({"model": "m", "messages": [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": "c"},
    ]});
    let (one, three) = (semantic(CHAT, &one), semantic(CHAT, &three));
    assert!(one.0 != three.0 && one.1 != three.1);
    let turn = |turn: Value| semantic(CHAT, &json!({"messages": [turn]})).0;
    assert_ne!(
        turn(json!({"role": "user", "name": "ann", "content": "b"})),
        turn(json!({"role": "user", "content": "b"}))
    );
}
