//! Keys and partitions of any two documents, against the dumbest model: are they equal, once what
//! may differ is taken out?

use super::*;
use proptest::prelude::*;
use serde_json::{Map, Number, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// Values that are easily taken for each other.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        (-2i64..3).prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-4i32..5).prop_map(|quarters| json!(f64::from(quarters) / 4.0 + 0.125)),
        any::<f64>()
            .prop_filter("one that is written as it is", |x| x.abs() < 1e15
                && x.fract() != 0.0)
            .prop_map(|x| Number::from_f64(x).map_or(Value::Null, Value::Number)),
        "[ab\"\\\\\n1é]{0,3}".prop_map(Value::String),
    ];
    leaf.prop_recursive(3, 16, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::Array),
            prop::collection::btree_map("[ab]{0,2}", inner, 0..3)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    })
}

/// A chat with fields that matter, fields that do not, and some that are unknown.
fn chat() -> impl Strategy<Value = Value> {
    let turn = prop_oneof![
        ("(user|assistant)", "[a b]{1,3}", prop::option::of("[ab]")).prop_map(
            |(role, content, name)| match name {
                Some(name) => json!({"role": role, "content": content, "name": name}),
                None => json!({"role": role, "content": content}),
            }
        ),
        ("(system|developer)", "[ab]{0,2}")
            .prop_map(|(role, content)| json!({"role": role, "content": content})),
    ];
    let field = "(model|user|metadata|stream|temperature|tools|tool_choice|response_format|x)";
    let fields = prop::collection::btree_map(field, value(), 0..4);
    (prop::collection::vec(turn, 0..3), fields).prop_map(|(mut turns, fields)| {
        turns.push(json!({"role": "user", "content": "a"}));
        let mut body: Map<String, Value> = fields.into_iter().collect();
        if let Some(stream) = body.get_mut("stream") {
            *stream = json!(*stream == json!(true));
        }
        body.insert("messages".into(), Value::Array(turns));
        Value::Object(body)
    })
}

/// The document in other words: keys the other way round, white space, escapes, numbers.
fn rewritten(value: &Value, out: &mut String) {
    match value {
        Value::Object(fields) => {
            out.push_str("{ ");
            for (index, (name, value)) in fields.iter().rev().enumerate() {
                out.push_str(if index == 0 { "" } else { "\n," });
                rewritten(&json!(name), out);
                out.push_str(" :\t");
                rewritten(value, out);
            }
            out.push('}');
        }
        Value::Array(list) => {
            out.push_str("[\r\n");
            for (index, value) in list.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { " , " });
                rewritten(value, out);
            }
            out.push_str(" ]");
        }
        Value::String(text) => {
            out.push('"');
            for unit in text.encode_utf16() {
                out.push_str(&format!("\\u{unit:04x}"));
            }
            out.push('"');
        }
        Value::Number(number) => {
            let digits = number.to_string();
            let is_small = number.as_i64().is_some_and(|n| n.abs() < 1 << 50);
            match (is_small, digits.as_str()) {
                (true, "0") => out.push_str("0.0e1"),
                (true, digits) => out.push_str(&format!("{digits}.0")),
                (false, digits) => out.push_str(digits),
            }
        }
        other => out.push_str(&other.to_string()),
    }
}

/// Numbers as JSON has them: one and one point zero are the same.
fn plain(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(plain).collect(),
        Value::Object(fields) => Value::Object(
            fields
                .iter()
                .map(|(name, value)| (name.clone(), plain(value)))
                .collect(),
        ),
        Value::Number(number) => match number.as_f64() {
            #[expect(clippy::cast_possible_truncation)]
            Some(float) if number.is_f64() && float.fract() == 0.0 && float != 0.0 => {
                json!(float as i64)
            }
            _ => value.clone(),
        },
        other => other.clone(),
    }
}

fn without_stream_false(body: &Value) -> Value {
    let mut body = plain(body);
    if let Some(fields) = body.as_object_mut() {
        fields.retain(|name, value| name != "stream" || *value != json!(false));
    }
    body
}

/// What must be equal for a comparison by meaning.
fn skeleton(body: &Value) -> Value {
    let mut body = without_stream_false(body);
    let fields = body.as_object_mut().unwrap();
    fields.retain(|name, _| name != "user" && name != "metadata");
    for message in fields["messages"].as_array_mut().unwrap() {
        if message["role"] == "user" || message["role"] == "assistant" {
            message["content"] = json!(());
            if message.get("name").is_some() {
                message["name"] = json!(());
            }
        }
    }
    body
}

proptest! {
    #[test]
    fn two_bodies_have_one_key_if_and_only_if_they_say_the_same(
        one in prop::collection::btree_map("[ab]{1,2}", value(), 0..3),
        other in prop::collection::btree_map("[ab]{1,2}", value(), 0..3),
    ) {
        let (one, other) = (json!(one), json!(other));
        prop_assert_eq!(
            exact(CHAT, &one) == exact(CHAT, &other),
            without_stream_false(&one) == without_stream_false(&other)
        );
    }

    #[test]
    fn no_way_of_writing_makes_another_key_or_partition(body in chat()) {
        let mut text = String::new();
        rewritten(&body, &mut text);
        prop_assert_eq!(read(CHAT, &text), Ok(question(CHAT, &body)));
    }

    #[test]
    fn two_chats_share_a_partition_if_and_only_if_their_words_alone_differ(
        one in chat(),
        other in chat(),
        share in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
    ) {
        // Most chats of chance have nothing in common, so some get fields of the other.
        let mut other = other;
        let names: Vec<String> = one.as_object().unwrap().keys().cloned().collect();
        for index in share {
            let name = index.get(&names);
            other[name] = one[name].clone();
        }
        let partition = |body: &Value| question(CHAT, body).semantic.map(|it| it.partition);
        let (first, second) = (partition(&one), partition(&other));
        prop_assume!(first.is_ok() && second.is_ok());
        prop_assert_eq!(first == second, skeleton(&one) == skeleton(&other));
    }

    #[test]
    fn a_change_of_one_field_changes_the_key_and_the_partition_where_it_must(
        body in chat(),
        name in "(model|user|metadata|temperature|tools|max_tokens|seed|x)",
        value in value(),
    ) {
        let mut other = body.clone();
        other[&name] = value;
        let is_same = plain(&other) == plain(&body);
        prop_assert_eq!(exact(CHAT, &body) == exact(CHAT, &other), is_same);
        let partition = |body: &Value| question(CHAT, body).semantic.map(|it| it.partition);
        let is_attribution = name == "user" || name == "metadata";
        if let (Ok(first), Ok(second)) = (partition(&body), partition(&other)) {
            prop_assert_eq!(first == second, is_same || is_attribution);
        }
    }

    #[test]
    fn nothing_that_comes_makes_it_panic(
        path in "(/v1/chat/completions|/v1/completions|/v1/messages|/v1/responses|/v1/embeddings)",
        body in prop::collection::vec(any::<u8>(), 0..64),
        document in value(),
        messages in value(),
    ) {
        let _ = Question::read(&asked(&path, &body));
        let _ = read(&path, &document.to_string());
        let text = json!({"messages": messages, "prompt": document}).to_string();
        let _ = read(&path, &text);
    }
}
