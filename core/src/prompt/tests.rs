use super::*;
use proptest::prelude::*;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;
use xxhash_rust::xxh3::xxh3_64;

const CHAT: &[u8] = b"/v1/chat/completions";
const COMPLETIONS: &[u8] = b"/v1/completions";
const RESPONSES: &[u8] = b"/v1/responses";
const EMBEDDINGS: &[u8] = b"/v1/embeddings";
const MESSAGES: &[u8] = b"/v1/messages";

fn read<'a>(path: &[u8], body: &'a str) -> Prompt<'a> {
    Prompt::read(path, body.as_bytes())
}

fn text(path: &[u8], body: &str) -> String {
    let prompt = read(path, body);
    assert!(prompt.dialect.is_some(), "not read: {body}");
    String::from_utf8(prompt.text).unwrap()
}

/// Digest and length of a readable request.
fn measured(path: &[u8], body: &Value) -> (u64, u64) {
    let body = body.to_string();
    let prompt = read(path, &body);
    assert!(prompt.dialect.is_some(), "not read: {body}");
    (prompt.digest, prompt.len)
}

fn assert_raw(path: &[u8], body: &[u8]) {
    let prompt = Prompt::read(path, body);
    assert_eq!(prompt.dialect, None, "{}", String::from_utf8_lossy(body));
    assert_eq!(prompt.text, body);
    assert_eq!(prompt.len, body.len() as u64);
    assert_eq!(prompt.digest, xxh3_64(body));
}

#[test]
fn each_dialect_reads_its_conversation_in_the_order_of_the_model() {
    let cases = [
        (
            CHAT,
            r#"{"model":"m","messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}"#,
            "system: Be brief.\nuser: Hi\n",
        ),
        (COMPLETIONS, r#"{"prompt":"Once upon"}"#, "Once upon"),
        (COMPLETIONS, r#"{"prompt":["a","b"]}"#, "a\nb"),
        (
            RESPONSES,
            r#"{"input":"Hi","instructions":"Be brief."}"#,
            "system: Be brief.\nuser: Hi\n",
        ),
        (
            RESPONSES,
            r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"Hi"}]},
                {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Ho"}]}]}"#,
            "user: Hi\nassistant: Ho\n",
        ),
        (EMBEDDINGS, r#"{"input":["a","b"]}"#, "a\nb"),
        (EMBEDDINGS, r#"{"input":"a"}"#, "a"),
        (
            MESSAGES,
            r#"{"messages":[{"role":"user","content":"Hi"}],"system":"Be brief."}"#,
            "system: Be brief.\nuser: Hi\n",
        ),
        (
            MESSAGES,
            r#"{"system":[{"type":"text","text":"Be "},{"type":"text","text":"brief."}],"messages":[]}"#,
            "system: Be brief.\n",
        ),
    ];
    for (path, body, expected) in cases {
        assert_eq!(text(path, body), expected, "{body}");
        let prompt = read(path, body);
        assert_eq!(prompt.len, expected.len() as u64);
        assert_eq!(prompt.digest, xxh3_64(expected.as_bytes()));
    }
}

#[test]
fn a_path_is_known_by_its_end() {
    let cases = [
        ("/v1/chat/completions", Some(Dialect::Chat)),
        (
            "/team-a/openai/v1/chat/completions?x=/y",
            Some(Dialect::Chat),
        ),
        ("/v1/completions/", Some(Dialect::Completions)),
        ("/anthropic/v1/messages?beta=true", Some(Dialect::Messages)),
        ("/v1/responses", Some(Dialect::Responses)),
        ("/v1/embeddings", Some(Dialect::Embeddings)),
        ("/v1/rerank", None),
        ("/", None),
        ("", None),
    ];
    for (path, dialect) in cases {
        assert_eq!(Dialect::of_path(path.as_bytes()), dialect, "{path}");
    }
}

#[test]
fn an_unknown_path_is_read_by_the_shape_of_the_body() {
    let cases = [
        (
            r#"{"messages":[{"role":"user","content":"a"}]}"#,
            "user: a\n",
        ),
        (r#"{"system":"s","messages":[]}"#, "system: s\n"),
        (r#"{"input":"a"}"#, "user: a\n"),
        (r#"{"prompt":"a"}"#, "a"),
    ];
    for (body, expected) in cases {
        assert_eq!(text(b"/generate", body), expected, "{body}");
    }
}

#[test]
fn content_may_be_a_string_a_list_null_or_absent() {
    let cases = [
        (r#"{"role":"user","content":"ab"}"#, "user: ab\n"),
        (r#"{"content":"ab","role":"user"}"#, "user: ab\n"),
        (
            r#"{"role":"user","content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]}"#,
            "user: ab\n",
        ),
        (
            r#"{"role":"user","content":["a",{"text":"b"}]}"#,
            "user: ab\n",
        ),
        (
            r#"{"role":"user","content":{"type":"text","text":"ab"}}"#,
            "user: ab\n",
        ),
        (r#"{"role":"user","content":[]}"#, "user: \n"),
        (r#"{"role":"user","content":null}"#, "user: \n"),
        (r#"{"role":"assistant"}"#, "assistant: \n"),
        (r#"{"content":"ab"}"#, "user: ab\n"),
    ];
    for (message, expected) in cases {
        let body = format!(r#"{{"messages":[{message}]}}"#);
        assert_eq!(text(CHAT, &body), expected, "{message}");
    }
}

#[test]
fn model_and_stream_are_read_wherever_they_stand() {
    let prompt = read(CHAT, r#"{"stream":true,"messages":[],"model":"llama-3"}"#);
    assert_eq!(prompt.model.as_deref(), Some("llama-3"));
    assert!(matches!(prompt.model, Some(Cow::Borrowed(_))));
    assert!(prompt.stream);
    let prompt = read(
        CHAT,
        r#"{"messages":[],"model":"llama\u002d3","stream":null}"#,
    );
    assert_eq!(prompt.model.as_deref(), Some("llama-3"));
    assert!(!prompt.stream);
    assert_eq!(read(CHAT, r#"{"messages":[],"model":7}"#).model, None);
    // A conversation of an unexpected shape still has a model.
    assert_eq!(
        read(CHAT, r#"{"messages":5,"model":"m"}"#).model.as_deref(),
        Some("m")
    );
}

#[test]
fn of_duplicate_keys_the_last_counts() {
    let body = r#"{"model":"a","messages":[{"role":"user","content":"a"}],
        "messages":[{"role":"x","content":"c","role":"user","content":"b"}],"model":"b"}"#;
    assert_eq!(text(CHAT, body), "user: b\n");
    assert_eq!(read(CHAT, body).model.as_deref(), Some("b"));
}

#[test]
fn keys_may_be_escaped() {
    let body = r#"{"m\u0065ssages":[{"r\u006fle":"user","conten\u0074":"a"}]}"#;
    assert_eq!(text(CHAT, body), "user: a\n");
    let long = format!(r#"{{"\n{}":1,"messages":[]}}"#, "messages".repeat(100));
    assert_eq!(text(CHAT, &long), "");
}

#[test]
fn tool_calls_and_results_count_to_length_and_digest() {
    let calls = |argument: &str| {
        [
            (
                CHAT,
                json!({"messages":[{"role":"assistant","content":"a","tool_calls":[{"id":"1","function":{"name":"f","arguments":argument}}]}]}),
            ),
            (
                CHAT,
                json!({"messages":[{"role":"assistant","content":"a","function_call":{"name":"f","arguments":argument}}]}),
            ),
            (
                CHAT,
                json!({"messages":[{"role":"tool","tool_call_id":"1","content":argument}]}),
            ),
            (
                CHAT,
                json!({"messages":[{"role":"tool","content":[{"type":"text","text":argument}]}]}),
            ),
            (
                MESSAGES,
                json!({"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"x":argument}}]}]}),
            ),
            (
                MESSAGES,
                json!({"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":argument}]}]}),
            ),
            (
                MESSAGES,
                json!({"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"text","text":argument}]}]}]}),
            ),
            (
                RESPONSES,
                json!({"input":[{"type":"function_call","call_id":"1","name":"f","arguments":argument}]}),
            ),
            (
                RESPONSES,
                json!({"input":[{"type":"function_call_output","call_id":"1","output":argument}]}),
            ),
        ]
    };
    for ((path, short), (_, long)) in calls("PARIS").into_iter().zip(calls("LONDON")) {
        let prompt_text = text(path, &short.to_string());
        assert!(!prompt_text.contains("PARIS"), "{prompt_text}");
        let (short_digest, short_len) = measured(path, &short);
        let (long_digest, long_len) = measured(path, &long);
        assert_eq!(long_len, short_len + 1, "{short}");
        assert!(short_len > prompt_text.len() as u64 + 4);
        assert_ne!(short_digest, long_digest, "{short}");
    }
}

#[test]
fn media_counts_to_the_digest_only() {
    let media = |data: &str| {
        [
            (
                CHAT,
                json!({"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":data}}]}]}),
            ),
            (
                CHAT,
                json!({"messages":[{"role":"user","content":[{"type":"input_audio","input_audio":{"data":data}}]}]}),
            ),
            (
                CHAT,
                json!({"messages":[{"role":"user","content":[{"image_url":data}]}]}),
            ),
            (
                CHAT,
                json!({"messages":[{"role":"tool","content":[{"type":"image_url","image_url":data}]}]}),
            ),
            (
                MESSAGES,
                json!({"messages":[{"role":"user","content":[{"type":"image","source":{"data":data}}]}]}),
            ),
            (
                MESSAGES,
                json!({"messages":[{"role":"user","content":[{"type":"document","source":{"data":data}}]}]}),
            ),
            (
                MESSAGES,
                json!({"messages":[{"role":"user","content":[{"type":"tool_result","content":[{"type":"image","source":{"data":data}}]}]}]}),
            ),
            (
                RESPONSES,
                json!({"input":[{"role":"user","content":[{"type":"input_file","file_data":data}]}]}),
            ),
            (
                RESPONSES,
                json!({"input":[{"type":"image_generation_call","result":data}]}),
            ),
            (
                RESPONSES,
                json!({"input":[{"type":"computer_call_output","output":{"type":"computer_screenshot","image_url":data}}]}),
            ),
            (
                CHAT,
                json!({"messages":[{"role":"user","content":[{"text":"beside it","image_url":data}]}]}),
            ),
        ]
    };
    for ((path, small), (_, large)) in media("a").into_iter().zip(media(&"b".repeat(5_000))) {
        let (small_digest, small_len) = measured(path, &small);
        let (large_digest, large_len) = measured(path, &large);
        assert_eq!(small_len, large_len, "{small}");
        assert_ne!(small_digest, large_digest, "{small}");
        assert!(!text(path, &large.to_string()).contains("bbb"));
    }
}

#[test]
fn the_digest_of_a_tool_call_does_not_depend_on_how_its_json_is_written() {
    let digests = |path: &[u8], bodies: [&str; 2]| bodies.map(|body| read(path, body).digest);
    let [first, second] = digests(
        MESSAGES,
        [
            r#"{"messages":[{"role":"assistant","content":[{"type":"tool_use","id":"1","name":"f","input":{"x":"é/"}}]}]}"#,
            r#"{"messages":[{"role":"assistant","content":[{"input":{ "x" : "\u00e9\/" },"name":"f","id":"1","type":"tool_use"}]}]}"#,
        ],
    );
    assert_eq!(first, second);
    let [first, second] = digests(
        CHAT,
        [
            r#"{"messages":[{"role":"assistant","tool_calls":[{"function":"é"}]}]}"#,
            r#"{"messages":[{"role":"assistant","tool_calls":[{"function":"\u00e9"}]}]}"#,
        ],
    );
    assert_eq!(first, second);
}

#[test]
fn text_cannot_imitate_a_tool_call() {
    let call = json!({"messages":[{"role":"a","content":"x","tool_calls":["y"]}]});
    let said = json!({"messages":[{"role":"a","content":"x[\"y\"]"}]});
    assert_ne!(measured(CHAT, &call).0, measured(CHAT, &said).0);
}

#[test]
fn white_space_outside_strings_changes_nothing() {
    let tight =
        r#"{"messages":[{"role":"assistant","content":"a b","tool_calls":[{"x":[1,"c  d"]}]}]}"#;
    let loose = "\n{ \"messages\" :\t[ {\"role\" : \"assistant\",\r\n\"content\": \"a b\" , \"tool_calls\" : [ { \"x\" : [ 1 , \"c  d\" ] } ] } ] } \n";
    let (tight, loose) = (read(CHAT, tight), read(CHAT, loose));
    assert_eq!(tight, loose);
    assert!(tight.dialect.is_some());
}

#[test]
fn token_ids_are_text_of_four_bytes_each() {
    for (body, ids) in [
        (
            r#"{"prompt":[1, 300 ,4294967295]}"#,
            Some(vec![1, 300, u32::MAX]),
        ),
        (
            r#"{"prompt":[[1,300,4294967295]]}"#,
            Some(vec![1, 300, u32::MAX]),
        ),
    ] {
        let prompt = read(COMPLETIONS, body);
        assert_eq!(prompt.text, [1, 0, 0, 0, 44, 1, 0, 0, 255, 255, 255, 255]);
        assert_eq!(prompt.len / 4, 3, "a quarter of the length is the tokens");
        assert_eq!(prompt.token_ids.map(|ids| ids.to_vec()), ids);
    }
    let batch = read(COMPLETIONS, r#"{"prompt":[[1],[2]]}"#);
    assert_eq!(batch.text, [1, 0, 0, 0, b'\n', 2, 0, 0, 0]);
    assert_eq!(batch.token_ids, None);
    for not_ids in [
        r#"{"prompt":[1,-2]}"#,
        r#"{"prompt":[1,2.5]}"#,
        r#"{"prompt":[1,4294967296]}"#,
        r#"{"prompt":[1,"a"]}"#,
        r#"{"prompt":["a",1]}"#,
        r#"{"prompt":[true]}"#,
        r#"{"prompt":{"id":"template"}}"#,
    ] {
        assert_raw(COMPLETIONS, not_ids.as_bytes());
    }
}

#[test]
fn the_text_is_cut_between_characters_and_nothing_follows_the_cut() {
    for lead in 0..4 {
        // Characters of three bytes, so that the cut falls inside one for most of the leads.
        let content = "x".repeat(lead) + &"語".repeat(20_000);
        let body = json!({"messages":[
            {"role":"user","content":content},
            {"role":"user","content":"y"},
        ]})
        .to_string();
        let prompt = read(CHAT, &body);
        let whole = format!("user: {content}\nuser: y\n");
        assert!(prompt.text.len() > MAX_TEXT_BYTES - 3 && prompt.text.len() <= MAX_TEXT_BYTES);
        assert!(whole.starts_with(std::str::from_utf8(&prompt.text).unwrap()));
        assert_eq!(prompt.len, whole.len() as u64);
        assert_eq!(prompt.digest, xxh3_64(whole.as_bytes()));
    }
}

#[test]
fn a_prompt_that_fits_exactly_is_not_cut() {
    for len in [MAX_TEXT_BYTES - 1, MAX_TEXT_BYTES, MAX_TEXT_BYTES + 1] {
        let content = "z".repeat(len);
        let body = json!({ "prompt": content }).to_string();
        let prompt = read(COMPLETIONS, &body);
        assert_eq!(prompt.text.len(), len.min(MAX_TEXT_BYTES));
        assert_eq!(prompt.len, len as u64);
        assert_eq!(prompt.digest, xxh3_64(content.as_bytes()));
    }
}

#[test]
fn what_cannot_be_read_is_taken_raw() {
    let deep = "[".repeat(10_000);
    let deep_body = format!(r#"{{"messages":{deep}"#);
    let closed = format!(r#"{{"messages":[],"x":{deep}{}}}"#, "]".repeat(10_000));
    let bodies: [&[u8]; 22] = [
        b"",
        b" ",
        b"hello",
        b"[]",
        b"\"\"",
        b"{",
        b"{}",
        br#"{"model":"m"}"#,
        br#"{"messages":null}"#,
        br#"{"messages":"Hi"}"#,
        br#"{"messages":{}}"#,
        br#"{"messages":["Hi"]}"#,
        br#"{"messages":[]"#,
        br#"{"messages":[]} x"#,
        br#"{"messages":[],}"#,
        br#"{"messages":[} ]}"#,
        br#"{"messages":[{"role":"user" "content":"a"}]}"#,
        br#"{"messages":[{"role":"user","content":"\x"}]}"#,
        br#"{"messages":[{"role":"user","content":"\u12"}]}"#,
        b"\x1f\x8b\x08\x00\xff\xfe",
        deep_body.as_bytes(),
        closed.as_bytes(),
    ];
    for body in bodies {
        assert_raw(CHAT, body);
    }
}

#[test]
fn bytes_that_are_not_utf8_are_carried_through() {
    let prompt = Prompt::read(
        CHAT,
        b"{\"messages\":[{\"role\":\"user\",\"content\":\"a\xFFb\"}]}",
    );
    assert_eq!(prompt.text, b"user: a\xFFb\n");
    let prompt = Prompt::read(CHAT, b"{\"messages\":[],\"model\":\"\xFF\"}");
    assert_eq!(prompt.model, None);
    let raw = vec![0x80; MAX_TEXT_BYTES + 9];
    assert_eq!(Prompt::read(CHAT, &raw).text.len(), MAX_TEXT_BYTES);
}

#[test]
fn nesting_up_to_the_limit_is_read() {
    for (depth, readable) in [(126, true), (128, true), (129, false)] {
        let body = format!(
            r#"{{"messages":[],"x":{}{}}}"#,
            "[".repeat(depth),
            "]".repeat(depth)
        );
        assert_eq!(read(CHAT, &body).dialect.is_some(), readable, "{depth}");
    }
}

#[test]
fn surrogate_pairs_join_and_halves_are_replaced() {
    let cases = [
        (r"\ud83d\ude00", "\u{1f600}"),
        (r"a\u00e9\n\t\r\b\f\/\\\u0022", "aé\n\t\r\u{8}\u{c}/\\\""),
        (r"\ud83d", "\u{fffd}"),
        (r"\ud83dx", "\u{fffd}x"),
        (r"\ude00\ud83d", "\u{fffd}\u{fffd}"),
        (r"\ud83d\ud83d\ude00", "\u{fffd}\u{1f600}"),
        (r"\ud83d\n", "\u{fffd}\n"),
    ];
    for (escaped, expected) in cases {
        assert_eq!(
            text(COMPLETIONS, &format!(r#"{{"prompt":"{escaped}"}}"#)),
            expected
        );
    }
}

#[test]
fn the_model_is_known_from_the_start_of_a_body() {
    let start = br#"{"model":"llama-3","messages":[{"role":"user","content":"never en"#;
    assert_eq!(Prompt::model_of_start(start).as_deref(), Some("llama-3"));
    assert_eq!(Prompt::model_of_start(br#"{"messages":["#), None);
    assert_eq!(Prompt::model_of_start(b""), None);
}

/// JSON for a string in which every character may or may not be escaped.
fn escaped(text: &str, choices: &[bool]) -> String {
    let mut json = String::from('"');
    for (index, character) in text.chars().enumerate() {
        let must = matches!(character, '"' | '\\') || character < ' ';
        if must || choices.get(index % choices.len().max(1)) == Some(&true) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                json += &format!("\\u{unit:04x}");
            }
        } else {
            json.push(character);
        }
    }
    json + "\""
}

/// Cuts `text` at some of its characters.
fn split(text: &str, every: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    characters.chunks(every).map(String::from_iter).collect()
}

#[test]
fn without_its_digest_a_prompt_is_the_same() {
    let body = json!({"model":"m","messages":[
        {"role":"user","content":[{"type":"text","text":"a".repeat(40_000)},{"type":"image_url"}]},
        {"role":"tool","content":"b"},
    ]})
    .to_string();
    for body in [body.as_bytes(), b"no JSON"] {
        let undigested = Prompt::read_undigested(Some(Dialect::Chat), body);
        let digest = Prompt::read(CHAT, body).digest;
        assert_ne!(digest, 0);
        let digested = Prompt {
            digest,
            ..undigested
        };
        assert_eq!(digested, Prompt::read(CHAT, body));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_as_it_was_meant(content in any::<String>(), choices in any::<[bool; 5]>()) {
        let body = format!(r#"{{"prompt":{}}}"#, escaped(&content, &choices));
        prop_assert_eq!(text(COMPLETIONS, &body), content);
    }

    #[test]
    fn the_digest_does_not_depend_on_how_text_is_split(
        content in "[a-zà-ý\"\\\\\n]{1,60}",
        repeats in prop_oneof![Just(1_usize), Just(1_000)],
        every in 1_usize..20,
    ) {
        let content = content.repeat(repeats);
        let parts: Vec<Value> = split(&content, every * repeats)
            .into_iter()
            .map(|text| json!({"type":"text","text":text}))
            .collect();
        let whole = json!({"messages":[{"role":"user","content":content}]}).to_string();
        let split = json!({"messages":[{"role":"user","content":parts}]}).to_string();
        prop_assert_eq!(read(CHAT, &whole), read(CHAT, &split));
    }

    #[test]
    fn a_conversation_reads_as_its_turns(
        turns in prop::collection::vec(("[a-z]{1,9}", any::<String>(), any::<bool>()), 0..8),
        system in any::<Option<String>>(),
        system_first in any::<bool>(),
    ) {
        let mut expected = String::new();
        if let Some(system) = &system {
            expected += &format!("system: {system}\n");
        }
        let mut messages = Vec::new();
        for (role, content, content_first) in &turns {
            // No role of tools, whose content is not text.
            let role = format!("x{role}");
            expected += &format!("{role}: {content}\n");
            let (role, content) = (json!(role), json!(content));
            messages.push(if *content_first {
                format!(r#"{{"content":{content},"role":{role}}}"#)
            } else {
                format!(r#"{{"role":{role},"extra":[{{}}],"content":{content}}}"#)
            });
        }
        let messages = format!(r#""messages":[{}]"#, messages.join(","));
        let system = format!(r#""system":{}"#, json!(system));
        let body = if system_first {
            format!("{{{system},{messages}}}")
        } else {
            format!("{{{messages},{system}}}")
        };
        prop_assert_eq!(text(MESSAGES, &body), expected);
    }
}
