//! Which strings are texts, and that nothing else of a body changes.

use super::super::texts::{Error, Leg, edit, forget_tokens, json};
use serde_json::{Value, json};
use std::convert::Infallible;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

/// The texts in their order.
fn texts(leg: Leg, body: &str) -> Result<Vec<String>, Error<Infallible>> {
    assert!(json(body.as_bytes()).is_some());
    let mut texts = Vec::new();
    let edited = edit(body, leg, usize::MAX, |text| {
        texts.push(text.to_owned());
        Ok(None)
    })?;
    assert_eq!(edited, None);
    Ok(texts)
}

fn assert_texts(leg: Leg, body: &Value, expected: &[&str]) {
    assert_eq!(texts(leg, &body.to_string()).unwrap(), expected, "{body}");
}

/// With a sign after each text.
fn marked(leg: Leg, body: &str) -> String {
    let mark = |text: &str| Ok::<_, Infallible>(Some(format!("{text}\"!")));
    let marked = edit(body, leg, usize::MAX, mark).unwrap();
    marked.unwrap_or_else(|| body.to_owned())
}

#[test]
fn a_body_is_an_object_as_json_has_it() {
    for body in ["{}", " {\"a\":[1,{\"b\":null}]}\n", "{\"a\":\"\\ud83d\"}"] {
        assert_eq!(json(body.as_bytes()), Some(body));
    }
    for body in [
        "",
        "[]",
        "1",
        "\"a\"",
        "null",
        "{",
        "{}x",
        "{'a':1}",
        "{\"a\":01}",
        "{\"a\":\"\n\"}",
        "{\"a\":\"\\x\"}",
        "{\"a\" 1}",
        "{\"a\":1,}",
        "\u{feff}{}",
    ] {
        assert_eq!(json(body.as_bytes()), None, "{body}");
    }
    assert_eq!(json(b"{\"a\":\"\xff\"}"), None);
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    assert!(json(nested(127).as_bytes()).is_some());
    assert_eq!(json(nested(128).as_bytes()), None);
    assert_eq!(json(nested(1_000_000).as_bytes()), None);
}

#[test]
fn what_the_model_reads_of_a_request_is_text() {
    let cases = [
        (
            json!({"model": "no", "user": "no", "metadata": {"a": "no"}, "stop": ["no"], "tools": [{"description": "no"}], "messages": [
                {"role": "system", "content": "1"},
                {"role": "user", "name": "no", "content": [
                    {"type": "text", "text": "2", "cache_control": {"type": "no"}},
                    {"type": "image_url", "image_url": {"url": "no", "detail": "no"}},
                    {"type": "input_audio", "input_audio": {"data": "no", "format": "no"}},
                    {"type": "file", "file": {"file_data": "no", "filename": "3"}},
                ]},
                {"role": "assistant", "content": null, "reasoning_content": "4", "tool_calls": [
                    {"id": "no", "type": "function", "function": {"name": "no", "arguments": "not JSON"}},
                ]},
                {"role": "tool", "tool_call_id": "no", "content": "{\"a\":\"b\"}"},
            ], "prediction": {"type": "content", "content": "5"}, "documents": [{"title": "6"}]}),
            vec!["1", "2", "3", "4", "not JSON", "a", "b", "5", "6"],
        ),
        (json!({"prompt": "1", "suffix": "2"}), vec!["1", "2"]),
        (json!({"prompt": ["1", "2"]}), vec!["1", "2"]),
        (
            json!({"input": ["1", "2"], "encoding_format": "no"}),
            vec!["1", "2"],
        ),
        (
            json!({"instructions": "1", "prompt": {"id": "no", "variables": {"who": "2"}}, "input": [
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "3"}, {"type": "input_image", "image_url": "no"}]},
                {"type": "reasoning", "id": "no", "summary": [{"type": "summary_text", "text": "4"}], "encrypted_content": "no"},
                {"type": "custom_tool_call", "call_id": "no", "name": "no", "input": "5"},
                {"type": "function_call_output", "call_id": "no", "output": "6"},
                {"type": "image_generation_call", "result": "no"},
                {"type": "mcp_call", "result": "7"},
            ]}),
            vec!["1", "2", "3", "4", "5", "6", "7"],
        ),
        (
            json!({"system": [{"type": "text", "text": "1"}], "messages": [{"role": "user", "content": [
                {"type": "document", "source": {"type": "text", "media_type": "no", "data": "2"}},
                {"type": "document", "source": {"data": "no", "type": "base64", "media_type": "no"}},
                {"type": "tool_result", "tool_use_id": "no", "content": [{"type": "text", "text": "3"}]},
                {"type": "thinking", "thinking": "4", "signature": "no"},
                {"type": "redacted_thinking", "data": "no"},
            ]}]}),
            vec!["1", "2", "3", "4"],
        ),
    ];
    for (body, expected) in cases {
        let mut found = texts(Leg::Request, &body.to_string()).unwrap();
        // The order is that of the document, which is that of the names here.
        found.sort();
        let mut expected = expected;
        expected.sort_unstable();
        assert_eq!(found, expected, "{body}");
    }
}

#[test]
fn what_has_a_place_of_its_own_before_the_conversation_can_be_read_alone() {
    let body = json!({"messages": [{"content": "no"}], "system": [{"type": "no", "text": "1"}]});
    assert_texts(Leg::Instructions, &body, &["1"]);
    let body = json!({"input": [7], "instructions": "1"});
    assert_texts(Leg::Instructions, &body, &["1"]);
}

#[test]
fn a_prompt_of_token_ids_cannot_be_read() {
    for body in [
        json!({"prompt": [1, 2]}),
        json!({"prompt": [[1, 2], [3]]}),
        json!({"prompt": ["a", [1]]}),
        json!({"input": [1]}),
        json!({"prompt": 1}),
        json!({"prompt": "a", "prompt_embeds": "AAAA"}),
        json!({"input_ids": [1]}),
    ] {
        assert_eq!(
            texts(Leg::Request, &body.to_string()),
            Err(Error::Unread),
            "{body}"
        );
    }
    for body in [
        json!({"prompt": []}),
        json!({"prompt": null, "prompt_embeds": null}),
        json!({"input": [{"content": [1]}]}),
    ] {
        assert_texts(Leg::Request, &body, &[]);
    }
}

#[test]
fn all_of_an_answer_is_text_but_what_is_known_not_to_be() {
    let cases = [
        (
            json!({"id": "no", "object": "no", "model": "no", "system_fingerprint": "no", "metadata": {"a": "no"}, "choices": [
                {"finish_reason": "no", "logprobs": {"content": [{"token": "no"}]}, "message": {
                    "role": "no", "content": "1", "reasoning_content": "2", "reasoning_text": "3", "refusal": "4",
                    "audio": {"id": "no", "data": "no", "transcript": "5"},
                    "tool_calls": [{"id": "no", "type": "no", "function": {"name": "no", "arguments": "6"}}],
                }},
                {"text": "7"},
            ], "usage": {"x": "no"}}),
            vec!["1", "2", "3", "4", "5", "6", "7"],
        ),
        (
            json!({"object": "no", "tools": [{"description": "no"}], "text": {"format": {"type": "no"}}, "output": [
                {"type": "reasoning", "summary": [{"type": "no", "text": "1"}], "encrypted_content": "no"},
                {"type": "message", "status": "no", "content": [{"type": "no", "text": "2", "logprobs": [{"token": "no"}],
                    "annotations": [{"type": "no", "url": "3", "title": "4"}]}]},
                {"type": "image_generation_call", "result": "no"},
                {"type": "code_interpreter_call", "code": "5", "outputs": [{"logs": "6"}]},
            ]}),
            vec!["1", "2", "3", "4", "5", "6"],
        ),
        (
            json!({"type": "no", "stop_reason": "no", "content": [
                {"type": "redacted_thinking", "data": "no"},
                {"type": "thinking", "thinking": "1", "signature": "no"},
                {"type": "new", "data": "2"},
            ]}),
            vec!["1", "2"],
        ),
        (
            json!({"data": [{"object": "no", "embedding": "no"}, {"embedding": [0.5]}]}),
            vec![],
        ),
        // Where a name is known for strings, other values may have texts in them.
        (
            json!({"status": {"new": "1"}, "name": ["2"]}),
            vec!["1", "2"],
        ),
    ];
    for (body, expected) in cases {
        let mut found = texts(Leg::Answer, &body.to_string()).unwrap();
        found.sort();
        assert_eq!(found, expected, "{body}");
    }
}

#[test]
fn what_a_tool_is_called_with_is_text_numbers_as_well_and_so_are_keys() {
    let input = json!({"type": {"id": "a"}, "data": ["b", -1.5], "x": 1, "y": [true, false, null]});
    let expected = ["data", "b", "-1.5", "type", "id", "a", "x", "1", "y"];
    let anthropic = json!({"content": [{"type": "tool_use", "id": "no", "input": input}]});
    assert_texts(Leg::Answer, &anthropic, &expected);
    let request = json!({"messages": [anthropic]});
    assert_texts(Leg::Request, &request, &expected);
    // As JSON text, as OpenAI has it, also in the form before `tools`, and as such.
    for arguments in [json!(input.to_string()), input] {
        let body = json!({"choices": [{"message": {"function_call": {"arguments": arguments}}}]});
        assert_texts(Leg::Answer, &body, &expected);
    }
    let cases = [
        ("{\"a\":", vec!["{\"a\":"]),
        ("411", vec!["411"]),
        ("\"a\"", vec!["a"]),
        ("[\"a\"]", vec!["a"]),
        ("", vec![""]),
    ];
    for (arguments, expected) in cases {
        assert_texts(Leg::Answer, &json!({"arguments": arguments}), &expected);
    }
}

#[test]
fn texts_change_in_place_and_nothing_else_does() {
    let cases = [
        (
            "{ \"n\":1e5,\t\"content\" : \"a\" , \"content\":\"b\\/\", \"id\":\"\\u0061\" }\n",
            "{ \"n\":1e5,\t\"content\" : \"a\\\"!\" , \"content\":\"b/\\\"!\", \"id\":\"\\u0061\" }\n",
        ),
        // A name that is written with an escape is the same name.
        (
            "{\"\\u0069d\":\"a\",\"c\":[]}",
            "{\"\\u0069d\":\"a\",\"c\":[]}",
        ),
        (
            "{\"arguments\":\"{ \\\"a\\\" : 1.50, \\\"b\\\":\\\"\\\\\\\"c\\\" }\"}",
            "{\"arguments\":\"{ \\\"a\\\\\\\"!\\\" : \\\"1.50\\\\\\\"!\\\", \\\"b\\\\\\\"!\\\":\\\"\\\\\\\"c\\\\\\\"!\\\" }\"}",
        ),
        // Of a tool's input, numbers as well.
        (
            "{\"n\":1.50,\"input\":{\"n\":1.50 ,\"b\":true}}",
            "{\"n\":1.50,\"input\":{\"n\\\"!\":\"1.50\\\"!\" ,\"b\\\"!\":true}}",
        ),
        (
            "{\"a\":\"\\ud83d\\ude00 \\ud83d\"}",
            "{\"a\":\"😀 \u{fffd}\\\"!\"}",
        ),
    ];
    for (body, expected) in cases {
        assert_eq!(marked(Leg::Answer, body), expected);
        assert!(json(expected.as_bytes()).is_some());
    }
}

#[test]
fn the_result_is_as_long_as_it_may_be_and_no_longer() {
    for body in [
        "{\"a\":\"b\",\"c\":1}",
        "{\"arguments\":\"[\\\"b\\\"]\",\"c\":1}",
    ] {
        let marked = marked(Leg::Answer, body);
        let edited = |max| {
            edit(body, Leg::Answer, max, |text| {
                Ok::<_, ()>(Some(format!("{text}\"!")))
            })
        };
        assert_eq!(edited(marked.len()), Ok(Some(marked.clone())));
        for max in 0..marked.len() {
            assert_eq!(edited(max), Err(Error::TooLarge), "{max}");
        }
        assert_eq!(edit(body, Leg::Answer, 0, |_| Ok::<_, ()>(None)), Ok(None));
    }
}

#[test]
fn what_the_caller_says_of_a_text_ends_it() {
    for body in [
        "{\"a\":\"b\",\"c\":\"d\"}",
        "{\"arguments\":\"[\\\"b\\\",1]\"}",
    ] {
        let mut calls = 0;
        let edited = edit(body, Leg::Answer, 99, |_| {
            calls += 1;
            Err("no")
        });
        assert_eq!((edited, calls), (Err(Error::Edit("no")), 1));
    }
}

#[test]
fn tokens_are_forgotten_where_they_are_told() {
    let body = concat!(
        r#"{"choices":[{"text":"a","logprobs": {"tokens":["a"]},"token_ids":[1, 2],"prompt_token_ids":[3]},"#,
        r#"{"logprobs":null,"message":{"content":"logprobs"}}],"prompt_logprobs":[null,{"1":{}}],"#,
        r#""output":[{"content":[{"logprobs":[{"token":"a"}]}]}],"top_logprobs":2,"input":{"logprobs":[1]}}"#
    );
    let expected = concat!(
        r#"{"choices":[{"text":"a","logprobs": null,"token_ids":null,"prompt_token_ids":null},"#,
        r#"{"logprobs":null,"message":{"content":"logprobs"}}],"prompt_logprobs":null,"#,
        r#""output":[{"content":[{"logprobs":[]}]}],"top_logprobs":2,"input":{"logprobs":[1]}}"#
    );
    assert_eq!(forget_tokens(body).as_deref(), Some(expected));
    assert_eq!(
        forget_tokens(r#"{"choices":[{"text":"a","logprobs":null}]}"#),
        None
    );
}

#[test]
fn what_was_said_aloud_is_forgotten_with_the_tokens() {
    let told = r#"{"choices":[{"message":{"audio":{"id":"a","data":"UklG","transcript":"b"}}}],"data":"c"}"#;
    let forgotten = told.replace("\"UklG\"", "null");
    assert_eq!(forget_tokens(told), Some(forgotten.clone()));
    assert_eq!(forget_tokens(&forgotten), None);
    assert_eq!(forget_tokens(r#"{"audio":null,"data":["audio"]}"#), None);
}

#[test]
fn deep_and_crowded_bodies_take_linear_time() {
    let nested = format!("{}\"b\"{}", "{\"data\":".repeat(126), "}".repeat(126));
    let body = format!("{{\"messages\":[{}]}}", vec![&*nested; 1_000].join(","));
    assert_eq!(texts(Leg::Request, &body).unwrap().len(), 0);
    // Each asks for the object's type.
    let crowded = format!(
        "{{\"messages\":{{{}\"type\":\"text\"}}}}",
        "\"data\":\"a\",".repeat(100_000)
    );
    assert_eq!(texts(Leg::Request, &crowded).unwrap().len(), 100_000);
    let marked = marked(Leg::Request, &crowded);
    assert_eq!(marked.len(), crowded.len() + 3 * 100_000);
}

#[test]
fn json_in_json_is_read_some_levels_deep_and_then_as_it_is_written() {
    let within = |text: &str| format!("[{}]", Value::from(text));
    let once = within("a");
    let twice = within(&once);
    let thrice = within(&twice);
    for text in [&once, &twice, &thrice] {
        let body = json!({"prompt": text}).to_string();
        assert_eq!(texts(Leg::Request, &body).unwrap(), ["a"]);
    }
    let body = json!({"prompt": within(&thrice)}).to_string();
    assert_eq!(texts(Leg::Request, &body).unwrap(), [&*once]);
    // Many levels, each as deep as it may be.
    let mut doll = "a".to_owned();
    for _ in 0..14 {
        doll = format!(
            "{}{}{}",
            "[".repeat(126),
            Value::from(doll),
            "]".repeat(126)
        );
    }
    let body = json!({"prompt": doll}).to_string();
    assert_eq!(texts(Leg::Request, &body).unwrap().len(), 1);
    assert_eq!(texts(Leg::Answer, &body).unwrap().len(), 1);
}

#[test]
fn what_objects_are_is_not_looked_up_over_and_over() {
    let nested = |depth: usize, leaf: &str| {
        let open = "{\"data\":\"a\",\"x\":".repeat(depth);
        format!("{{\"messages\":{open}[{leaf}1]{}}}", "}".repeat(depth))
    };
    assert_eq!(texts(Leg::Request, &nested(7, "")), Ok(vec![]));
    // Each of these would pass over all of the leaf again.
    let leaf = "1,".repeat(8 << 20);
    assert_eq!(texts(Leg::Request, &nested(7, &leaf)), Ok(vec![]));
    assert_eq!(texts(Leg::Request, &nested(120, &leaf)), Err(Error::Unread));
    // Beside each other they are no trouble.
    let beside = vec![nested(3, ""); 10_000].join(",");
    let body = format!("{{\"messages\":[{beside}]}}");
    assert_eq!(texts(Leg::Request, &body), Ok(vec![]));
}
