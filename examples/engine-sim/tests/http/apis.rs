//! Each API, whole and as a stream.

use engine_sim::expected_answer;
use serde_json::{Value, json};

use super::client::{Answered, fast, get, post, start};
use engine_sim::{Embeddings, EngineConfig};

const CHAT: &str = "/v1/chat/completions";

fn chat(content: &str) -> Value {
    json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": content}]})
}

fn streamed(mut body: Value) -> Value {
    body["stream"] = true.into();
    body
}

/// The text of a whole answer and the same as streamed; `delta` finds the text of an event.
fn same(whole: &str, stream: &Answered, delta: impl Fn(&Value) -> Option<&str>) {
    let data = stream.data();
    let text: String = data.iter().filter_map(delta).collect();
    assert_eq!(
        stream.header("content-type"),
        Some("text/event-stream; charset=utf-8")
    );
    assert_eq!(whole, text);
    assert!(!stream.cut);
}

#[tokio::test]
async fn chat_answers_its_own_prompt_whole_and_streamed() {
    let engine = fast();
    let body = chat("hello there, engine");
    let whole = post(&engine, CHAT, &body).await;
    assert_eq!(
        (whole.status.as_u16(), whole.header("x-engine")),
        (200, Some("sim-a"))
    );
    let answer = whole.json();
    let text = answer["choices"][0]["message"]["content"]
        .as_str()
        .expect("text");
    assert!(text.starts_with(&expected_answer(CHAT, &body).expect("an answer")));
    assert_eq!(text.len(), 32);
    assert_eq!(answer["object"], "chat.completion");
    assert_eq!(answer["choices"][0]["finish_reason"], "length");
    assert_eq!(answer["usage"]["completion_tokens"], 8);

    let mut body = streamed(body);
    body["stream_options"] = json!({"include_usage": true});
    let stream = post(&engine, CHAT, &body).await;
    same(text, &stream, |chunk| {
        chunk["choices"][0]["delta"]["content"].as_str()
    });
    assert_eq!(
        stream.events().last().map(|(_, data)| data.as_str()),
        Some("[DONE]")
    );
    let data = stream.data();
    assert_eq!(data[0]["choices"][0]["delta"]["role"], "assistant");
    let [.., finish, usage] = data.as_slice() else {
        panic!("{data:?}")
    };
    assert_eq!(finish["choices"][0]["finish_reason"], "length");
    assert_eq!(usage["choices"], json!([]));
    let (prompt, total) = (
        &usage["usage"]["prompt_tokens"],
        &usage["usage"]["total_tokens"],
    );
    assert_eq!(prompt.as_u64().map(|prompt| prompt + 8), total.as_u64());
}

#[tokio::test]
async fn an_answer_without_a_length_stops_by_itself() {
    let engine = fast();
    let mut body = chat("hello");
    body["max_tokens"] = Value::Null;
    let answer = post(&engine, CHAT, &body).await.json();
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
    assert_eq!(answer["usage"]["completion_tokens"], 10);
}

#[tokio::test]
async fn completions_take_text_or_token_ids() {
    let engine = fast();
    let path = "/v1/completions";
    let body = json!({"model": "m", "max_tokens": 7, "prompt": "once upon a time"});
    let whole = post(&engine, path, &body).await.json();
    let text = whole["choices"][0]["text"].as_str().expect("text");
    assert!(text.starts_with(&expected_answer(path, &body).expect("an answer")));
    assert_eq!(whole["object"], "text_completion");
    assert_eq!(whole["usage"]["prompt_tokens"], 4);

    let stream = post(&engine, path, &streamed(body.clone())).await;
    same(text, &stream, |chunk| chunk["choices"][0]["text"].as_str());

    let tokens = post(&engine, "/tokenize", &json!({"prompt": "once upon a time"}))
        .await
        .json();
    for ids in [tokens["tokens"].clone(), json!([tokens["tokens"]])] {
        let by_ids = json!({"model": "m", "max_tokens": 7, "prompt": ids});
        assert_eq!(
            post(&engine, path, &by_ids).await.json()["choices"][0]["text"],
            text
        );
    }
}

#[tokio::test]
async fn responses_stream_named_events_in_sequence() {
    let engine = fast();
    let path = "/v1/responses";
    let body = json!({"model": "m", "input": "hello", "instructions": "be brief"});
    let whole = post(&engine, path, &body).await.json();
    let text = whole["output"][0]["content"][0]["text"]
        .as_str()
        .expect("text");
    assert!(text.starts_with(&expected_answer(path, &body).expect("an answer")));
    assert_eq!(
        (&whole["object"], &whole["status"]),
        (&json!("response"), &json!("completed"))
    );
    assert_eq!(whole["usage"]["output_tokens"], 10);

    let stream = post(&engine, path, &streamed(body)).await;
    same(text, &stream, |event| event["delta"].as_str());
    let names: Vec<String> = stream.events().into_iter().map(|(name, _)| name).collect();
    let deltas = vec!["response.output_text.delta"; 10];
    let opening = [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ];
    let closing = [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ];
    assert_eq!(names, [&opening[..], &deltas, &closing].concat());
    for (place, event) in stream.data().iter().enumerate() {
        assert_eq!(event["sequence_number"], place);
        assert_eq!(event["type"], names[place]);
    }
    let data = stream.data();
    let last = &data[data.len() - 1]["response"];
    assert_eq!(last["output"][0]["content"][0]["text"], text);
}

#[tokio::test]
async fn messages_stream_as_anthropic_does() {
    let engine = fast();
    let path = "/v1/messages";
    let body = json!({"model": "m", "max_tokens": 9, "system": "be brief", "messages": [
        {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "2"}]},
    ]});
    let whole = post(&engine, path, &body).await.json();
    let text = whole["content"][0]["text"].as_str().expect("text");
    assert!(text.starts_with(&expected_answer(path, &body).expect("an answer")));
    assert_eq!(
        (&whole["type"], &whole["stop_reason"]),
        (&json!("message"), &json!("max_tokens"))
    );

    let stream = post(&engine, path, &streamed(body.clone())).await;
    same(text, &stream, |event| event["delta"]["text"].as_str());
    let names: Vec<String> = stream.events().into_iter().map(|(name, _)| name).collect();
    let deltas = vec!["content_block_delta"; 9];
    let expected = [
        &["message_start", "content_block_start"][..],
        &deltas,
        &["content_block_stop", "message_delta", "message_stop"],
    ];
    assert_eq!(names, expected.concat());
    let data = stream.data();
    let usage = &data[0]["message"]["usage"];
    let input = usage["input_tokens"].as_u64().unwrap_or(0)
        + usage["cache_read_input_tokens"].as_u64().unwrap_or(0);
    assert_eq!(whole["usage"]["input_tokens"], input);
    assert_eq!(data[data.len() - 2]["usage"]["output_tokens"], 9);

    let error = post(&engine, path, &json!({"messages": []})).await;
    assert_eq!(
        (error.status.as_u16(), &error.json()["type"]),
        (400, &json!("error"))
    );
}

#[tokio::test]
async fn every_api_tells_how_much_of_the_prompt_was_cached() {
    let engine = fast();
    let content = "long enough for some blocks ".repeat(20);
    let messages = json!([{"role": "user", "content": content}]);
    let body = json!({"max_tokens": 1, "messages": messages, "input": messages});
    let first = post(&engine, CHAT, &body).await.json();
    let prompt = first["usage"]["prompt_tokens"].as_u64().expect("a number");
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let cached = (prompt - 1) / 16 * 16;
    let again = post(&engine, CHAT, &body).await.json();
    assert_eq!(
        again["usage"]["prompt_tokens_details"]["cached_tokens"],
        cached
    );
    let responses = post(&engine, "/v1/responses", &body).await.json();
    assert_eq!(
        responses["usage"]["input_tokens_details"]["cached_tokens"],
        cached
    );
    let messages = post(&engine, "/v1/messages", &body).await.json();
    assert_eq!(messages["usage"]["cache_read_input_tokens"], cached);
    assert_eq!(messages["usage"]["input_tokens"], prompt - cached);
}

#[tokio::test]
async fn the_next_turn_finds_prompt_and_answer_in_the_cache() {
    let engine = fast();
    let mut messages = vec![json!({"role": "user", "content": "tell me a story"})];
    let body = json!({"model": "m", "max_tokens": 200, "messages": messages});
    let answer = post(&engine, CHAT, &body).await.json();
    messages.push(answer["choices"][0]["message"].clone());
    messages.push(json!({"role": "user", "content": "another"}));
    let body = json!({"model": "m", "max_tokens": 1, "messages": messages});
    let next = post(&engine, CHAT, &body).await.json();
    let computed = answer["usage"]["total_tokens"].as_u64().expect("a number") - 1;
    assert_eq!(
        next["usage"]["prompt_tokens_details"]["cached_tokens"],
        computed / 16 * 16
    );
}

#[tokio::test]
async fn salts_and_adapters_keep_caches_apart_and_names_of_the_base_model_do_not() {
    let engine = start(EngineConfig {
        adapters: vec!["adapter".to_owned()],
        ..EngineConfig::default()
    });
    let hit = async |model: &str, salt: Value| {
        let mut body = chat(&"the same words for all ".repeat(10));
        body["model"] = model.into();
        body["cache_salt"] = salt;
        let answer = post(&engine, CHAT, &body).await.json();
        answer["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64() > Some(0)
    };
    assert!(!hit("m", Value::Null).await);
    assert!(hit("m", Value::Null).await);
    assert!(!hit("m", json!("tenant")).await);
    assert!(!hit("adapter", Value::Null).await);
    assert!(hit("adapter", Value::Null).await);
    assert!(hit("another name", Value::Null).await);
    assert!(hit("m", json!("tenant")).await);
}

#[tokio::test]
async fn only_served_models_answer_when_some_are_named() {
    let engine = start(EngineConfig {
        models: vec!["one".to_owned(), "two".to_owned()],
        ..EngineConfig::default()
    });
    let listed = get(&engine, "/v1/models").await.json();
    assert_eq!(
        (&listed["data"][0]["id"], &listed["data"][1]["id"]),
        (&json!("one"), &json!("two"))
    );
    let mut body = chat("hello");
    for (model, status) in [("one", 200), ("two", 200), ("m", 404)] {
        body["model"] = model.into();
        let answer = post(&engine, CHAT, &body).await;
        assert_eq!(answer.status, status);
        if status == 404 {
            assert_eq!(answer.json()["error"]["type"], "NotFoundError");
        } else {
            assert_eq!(answer.json()["model"], model);
        }
    }
    body.as_object_mut().expect("an object").remove("model");
    assert_eq!(post(&engine, CHAT, &body).await.json()["model"], "one");
}

#[tokio::test]
async fn tokenize_counts_what_chat_will_use() {
    let engine = fast();
    let body = chat("how many tokens is this?");
    let tokens = post(&engine, "/tokenize", &body).await.json();
    let count = tokens["count"].as_u64().expect("a number");
    assert_eq!(
        tokens["tokens"].as_array().map(Vec::len),
        usize::try_from(count).ok()
    );
    assert_eq!(
        post(&engine, CHAT, &body).await.json()["usage"]["prompt_tokens"],
        count
    );
    assert_eq!(tokens["max_model_len"], 32_768);
}

#[tokio::test]
async fn a_rendered_request_has_the_ids_that_the_engine_will_use() {
    let engine = fast();
    let tools = json!([{"type": "function", "function": {"name": "look"}}]);
    let mut asked = chat("how many tokens is this?");
    asked["tools"] = tools;
    let rendered = post(&engine, "/v1/chat/completions/render", &asked).await;
    assert_eq!(rendered.status.as_u16(), 200);
    let rendered = rendered.json();
    let ids = &rendered["token_ids"];
    let tokens = post(&engine, "/tokenize", &asked).await.json();
    assert_eq!(ids, &tokens["tokens"]);
    assert_eq!(rendered["sampling_params"]["max_tokens"], 8);
    assert!(rendered["request_id"].is_string());

    let text = json!({"model": "m", "max_tokens": 7, "prompt": "once upon a time"});
    let rendered = post(&engine, "/v1/completions/render", &text).await.json();
    let by_ids = json!({"model": "m", "max_tokens": 7, "prompt": rendered[0]["token_ids"]});
    let answer = |body| post(&engine, "/v1/completions", body);
    let (by_text, by_ids) = (answer(&text).await.json(), answer(&by_ids).await.json());
    assert_eq!(by_text["choices"], by_ids["choices"]);
}

#[tokio::test]
async fn rendering_computes_nothing_and_refuses_what_would_be_refused() {
    let engine = start(EngineConfig {
        models: vec!["one".to_owned()],
        ..EngineConfig::default()
    });
    let path = "/v1/chat/completions/render";
    let mut body = chat("hello");
    assert_eq!(post(&engine, path, &body).await.status.as_u16(), 404);
    body["model"] = "one".into();
    assert_eq!(post(&engine, path, &body).await.status.as_u16(), 200);
    body["max_tokens"] = 1_000_000.into();
    assert_eq!(post(&engine, path, &body).await.status.as_u16(), 400);
    let stats = engine.stats();
    assert_eq!((stats.prompt_tokens, stats.served[path]), (0, 3));
}

#[tokio::test]
async fn embeddings_depend_on_the_input_alone() {
    let engine = fast();
    let body = json!({"model": "m", "input": ["one", "two", "one"]});
    let answer = post(&engine, "/v1/embeddings", &body).await.json();
    let vector = |index: usize| &answer["data"][index]["embedding"];
    assert_eq!(vector(0), vector(2));
    assert_ne!(vector(0), vector(1));
    assert_eq!(vector(0).as_array().map(Vec::len), Some(8));
    assert_eq!(engine.embedded_texts(), ["one", "two", "one"]);
    let shorter = json!({"model": "m", "input": "one", "dimensions": 3});
    let answer = post(&engine, "/v1/embeddings", &shorter).await.json();
    let vector = &answer["data"][0]["embedding"];
    assert_eq!(vector.as_array().map(Vec::len), Some(3));
}

#[tokio::test]
async fn embeddings_can_all_be_equal() {
    let engine = start(EngineConfig {
        embeddings: Embeddings::Equal,
        embedding_dimensions: 16,
        ..EngineConfig::default()
    });
    let body = json!({"model": "m", "input": ["one", "two"]});
    let answer = post(&engine, "/v1/embeddings", &body).await.json();
    let vector = |index: usize| &answer["data"][index]["embedding"];
    assert_eq!(vector(0), vector(1));
    assert_eq!(vector(0).as_array().map(Vec::len), Some(16));
}

#[tokio::test]
async fn what_cannot_be_served_gets_an_openai_error() {
    let engine = fast();
    for body in [
        json!([]),
        json!({}),
        json!({"messages": []}),
        json!({"messages": [{"content": "no role"}]}),
        json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}),
        json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": -1}),
        json!({"messages": [{"role": "user", "content": "a"}], "max_tokens": 1_000_000}),
        json!({"messages": [{"role": "user", "content": "a".repeat(1 << 20)}]}),
        json!({"messages": [{"role": "user", "content": "a"}], "stream": "yes"}),
        json!({"messages": [{"role": "user", "content": "a"}], "n": 2}),
    ] {
        let answer = post(&engine, CHAT, &body).await;
        assert_eq!(answer.status, 400, "{}", answer.body);
        assert_eq!(answer.json()["error"]["type"], "BadRequestError");
        assert_eq!(answer.json()["error"]["code"], 400);
    }
    assert_eq!(get(&engine, CHAT).await.status, 405);
    assert_eq!(engine.stats().running, 0);
}
