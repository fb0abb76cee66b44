//! Which answers may be kept.

use super::super::answer::{Refusal, check};
use crate::prompt::Dialect;
use proptest::prelude::*;
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const JSON: &str = "application/json";
const STREAM: &str = "text/event-stream; charset=utf-8";

fn json_answer(dialect: Dialect, answer: &Value) -> Result<(), Refusal> {
    check(dialect, false, JSON, answer.to_string().as_bytes())
}

fn stream_answer(dialect: Dialect, stream: &str) -> Result<(), Refusal> {
    check(dialect, true, STREAM, stream.as_bytes())
}

/// A stream of these data, each an event.
fn stream(data: &[Value]) -> String {
    data.iter()
        .map(|data| match data {
            Value::String(text) => format!("data: {text}\n\n"),
            data => match data["type"].as_str() {
                Some(kind) => format!("event: {kind}\ndata: {data}\n\n"),
                None => format!("data: {data}\n\n"),
            },
        })
        .collect()
}

fn chunk(index: u64, content: &str, reason: impl Into<Value>) -> Value {
    let reason: Value = reason.into();
    json!({"choices": [{"index": index, "delta": {"content": content}, "finish_reason": reason}]})
}

fn whole(dialect: Dialect) -> Value {
    match dialect {
        Dialect::Chat => json!({"id": "1", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]}),
        Dialect::Completions => json!({"choices": [{"text": "Hi", "finish_reason": "length"}]}),
        Dialect::Responses => json!({"status": "completed", "error": null, "output": []}),
        Dialect::Embeddings => json!({"data": [{"embedding": [0.5]}]}),
        Dialect::Messages => {
            json!({"type": "message", "content": [], "stop_reason": "end_turn"})
        }
    }
}

fn streamed(dialect: Dialect) -> String {
    match dialect {
        Dialect::Chat | Dialect::Completions | Dialect::Embeddings => stream(&[
            chunk(0, "Hi", json!(null)),
            chunk(1, "Ho", json!(null)),
            chunk(0, "", json!("stop")),
            chunk(1, "", json!("tool_calls")),
            json!({"choices": [], "usage": {}}),
            json!("[DONE]"),
        ]),
        Dialect::Messages => stream(&[
            json!({"type": "message_start"}),
            json!({"type": "ping"}),
            json!({"type": "content_block_delta", "delta": {"text": "Hi"}}),
            json!({"type": "message_delta", "delta": {"stop_reason": null}}),
            json!({"type": "message_delta", "delta": {"stop_reason": "end_turn"}}),
            json!({"type": "message_stop"}),
        ]),
        Dialect::Responses => stream(&[
            json!({"type": "response.created"}),
            json!({"type": "response.output_text.delta", "delta": "Hi"}),
            json!({"type": "response.completed", "response": {"status": "completed", "error": null}}),
        ]),
    }
}

const ALL: [Dialect; 5] = [
    Dialect::Chat,
    Dialect::Completions,
    Dialect::Responses,
    Dialect::Embeddings,
    Dialect::Messages,
];
const STREAMED: [Dialect; 4] = [
    Dialect::Chat,
    Dialect::Completions,
    Dialect::Responses,
    Dialect::Messages,
];

#[test]
fn what_is_whole_is_kept() {
    for dialect in ALL {
        assert_eq!(json_answer(dialect, &whole(dialect)), Ok(()), "{dialect:?}");
    }
    for dialect in STREAMED {
        let stream = streamed(dialect);
        for text in [
            stream.clone(),
            stream.replace('\n', "\r\n"),
            stream.replace('\n', "\r"),
            stream.replace("data: ", "data:"),
            format!(": a comment\n\n{stream}"),
            format!("{stream}: a comment\n\n"),
        ] {
            assert_eq!(stream_answer(dialect, &text), Ok(()), "{text}");
        }
    }
    for dialect in [Dialect::Responses, Dialect::Messages] {
        let done = format!("{}data: [DONE]\n\n", streamed(dialect));
        assert_eq!(stream_answer(dialect, &done), Ok(()));
    }
}

#[test]
fn an_answer_has_the_form_that_was_asked_for() {
    let answer = whole(Dialect::Chat).to_string();
    let stream = streamed(Dialect::Chat);
    for (asks_stream, content_type, body, expected) in [
        (false, "application/json; charset=utf-8", &answer, Ok(())),
        (false, "Application/JSON", &answer, Ok(())),
        (false, STREAM, &stream, Err(Refusal::ContentType)),
        (true, JSON, &answer, Err(Refusal::ContentType)),
        (
            false,
            "application/jsonl",
            &answer,
            Err(Refusal::ContentType),
        ),
        (false, "text/html", &answer, Err(Refusal::ContentType)),
        (false, "", &answer, Err(Refusal::ContentType)),
        // The types agree, and the answers have another form all the same.
        (false, JSON, &stream, Err(Refusal::Incomplete)),
        (true, STREAM, &answer, Err(Refusal::Incomplete)),
    ] {
        let checked = check(Dialect::Chat, asks_stream, content_type, body.as_bytes());
        assert_eq!(checked, expected, "{content_type} {body}");
    }
}

#[test]
fn no_failure_is_kept() {
    let with = |dialect, key: &str, value: Value| {
        let mut answer = whole(dialect);
        answer[key] = value;
        answer
    };
    let cases = [
        (
            Dialect::Chat,
            with(Dialect::Chat, "error", json!({"code": 500})),
            Refusal::Error,
        ),
        (
            Dialect::Chat,
            with(Dialect::Chat, "object", json!("error")),
            Refusal::Error,
        ),
        (Dialect::Chat, json!({"error": "no"}), Refusal::Error),
        (
            Dialect::Messages,
            json!({"type": "error", "error": {}}),
            Refusal::Error,
        ),
        (
            Dialect::Responses,
            with(Dialect::Responses, "error", json!({})),
            Refusal::Error,
        ),
        (
            Dialect::Responses,
            with(Dialect::Responses, "status", json!("failed")),
            Refusal::Error,
        ),
        (
            Dialect::Responses,
            with(Dialect::Responses, "status", json!("incomplete")),
            Refusal::Unfinished,
        ),
        (
            Dialect::Responses,
            with(Dialect::Responses, "status", json!("queued")),
            Refusal::Unfinished,
        ),
        (
            Dialect::Messages,
            with(Dialect::Messages, "stop_reason", json!(null)),
            Refusal::Unfinished,
        ),
        (
            Dialect::Chat,
            json!({"choices": [{"finish_reason": null}]}),
            Refusal::Unfinished,
        ),
        (
            Dialect::Chat,
            json!({"choices": [{"finish_reason": "abort"}]}),
            Refusal::Unfinished,
        ),
        (
            Dialect::Chat,
            json!({"choices": [{"finish_reason": "stop"}, {"finish_reason": "error"}]}),
            Refusal::Error,
        ),
        (Dialect::Chat, json!({"choices": []}), Refusal::Unknown),
        (
            Dialect::Chat,
            json!({"choices": [{"finish_reason": "stop", "error": {"code": 502}}]}),
            Refusal::Error,
        ),
        (
            Dialect::Chat,
            json!({"detail": "Not Found"}),
            Refusal::Unknown,
        ),
        (Dialect::Chat, json!([]), Refusal::Unknown),
        (Dialect::Chat, json!("choices"), Refusal::Unknown),
        (Dialect::Embeddings, json!({"data": []}), Refusal::Unknown),
        (
            Dialect::Messages,
            json!({"stop_reason": "end_turn"}),
            Refusal::Unknown,
        ),
    ];
    for (dialect, answer, expected) in cases {
        assert_eq!(
            json_answer(dialect, &answer),
            Err(expected),
            "{dialect:?} {answer}"
        );
    }
}

#[test]
fn no_stream_with_a_failure_in_it_is_kept() {
    let hi = || chunk(0, "Hi", json!(null));
    let stop = || chunk(0, "", json!("stop"));
    let done = || json!("[DONE]");
    let error = || json!({"error": {"message": "boom", "code": 500}});
    let (message, response) = (
        |reason: Value| json!({"type": "message_delta", "delta": {"stop_reason": reason}}),
        |kind: &str| json!({"type": format!("response.{kind}"), "response": {"status": kind}}),
    );
    let end = || json!({"type": "message_stop"});
    let cases = [
        (Dialect::Chat, vec![hi(), error(), done()], Refusal::Error),
        (
            Dialect::Chat,
            vec![hi(), stop(), error(), done()],
            Refusal::Error,
        ),
        (
            Dialect::Chat,
            vec![hi(), chunk(0, "", json!("abort")), done()],
            Refusal::Unfinished,
        ),
        (
            Dialect::Chat,
            vec![
                json!({"choices": [{"index": 0, "finish_reason": "stop", "error": {"code": 502}}]}),
                done(),
            ],
            Refusal::Error,
        ),
        (
            Dialect::Chat,
            vec![hi(), chunk(0, "", json!("error")), done()],
            Refusal::Error,
        ),
        (Dialect::Chat, vec![hi(), done()], Refusal::Unfinished),
        (Dialect::Chat, vec![done()], Refusal::Unfinished),
        (
            Dialect::Chat,
            vec![hi(), chunk(1, "", json!("stop")), done()],
            Refusal::Unfinished,
        ),
        (Dialect::Chat, vec![hi(), stop()], Refusal::Incomplete),
        (Dialect::Chat, vec![], Refusal::Incomplete),
        (
            Dialect::Chat,
            vec![hi(), stop(), done(), hi()],
            Refusal::Unknown,
        ),
        (
            Dialect::Chat,
            vec![hi(), stop(), done(), done()],
            Refusal::Unknown,
        ),
        (
            Dialect::Chat,
            vec![hi(), json!("oops"), stop(), done()],
            Refusal::Unknown,
        ),
        (
            Dialect::Chat,
            vec![json!({"id": 1}), stop(), done()],
            Refusal::Unknown,
        ),
        (
            Dialect::Messages,
            vec![message(json!("end_turn"))],
            Refusal::Incomplete,
        ),
        (Dialect::Messages, vec![end()], Refusal::Unfinished),
        (
            Dialect::Messages,
            vec![message(json!(null)), end()],
            Refusal::Unfinished,
        ),
        (
            Dialect::Messages,
            vec![json!({"type": "error", "error": {}}), end()],
            Refusal::Error,
        ),
        (
            Dialect::Messages,
            vec![message(json!("end_turn")), end(), end()],
            Refusal::Unknown,
        ),
        (
            Dialect::Messages,
            vec![hi(), stop(), done()],
            Refusal::Unknown,
        ),
        (
            Dialect::Responses,
            vec![response("created")],
            Refusal::Incomplete,
        ),
        (Dialect::Responses, vec![response("failed")], Refusal::Error),
        (
            Dialect::Responses,
            vec![response("incomplete")],
            Refusal::Unfinished,
        ),
        (
            Dialect::Responses,
            vec![json!({"type": "response.completed"})],
            Refusal::Unknown,
        ),
        (
            Dialect::Responses,
            vec![json!({"type": "error"}), response("completed")],
            Refusal::Error,
        ),
    ];
    for (dialect, events, expected) in cases {
        let text = stream(&events);
        assert_eq!(
            stream_answer(dialect, &text),
            Err(expected),
            "{dialect:?} {text}"
        );
    }
    let named = "event: error\ndata: {}\n\n";
    assert_eq!(stream_answer(Dialect::Messages, named), Err(Refusal::Error));
}

proptest! {
    #[test]
    fn nothing_that_is_cut_is_kept(at in any::<prop::sample::Index>(), which in 0..4usize) {
        let dialect = STREAMED[which];
        let stream = streamed(dialect);
        let end = at.index(stream.len());
        prop_assert!(stream_answer(dialect, &stream[..end]).is_err(), "{}", &stream[..end]);
        let answer = whole(dialect).to_string();
        let end = at.index(answer.len());
        prop_assert!(check(dialect, false, JSON, &answer.as_bytes()[..end]).is_err());
    }

    #[test]
    fn nothing_that_comes_makes_it_panic(
        bytes in prop::collection::vec(any::<u8>(), 0..64),
        text in "(data|event|:| |\n|\r|\\{\\}|\\[DONE\\]|x){0,12}",
        stream in any::<bool>(),
        which in 0..5usize,
    ) {
        for body in [&bytes[..], text.as_bytes()] {
            let _ = check(ALL[which], stream, if stream { STREAM } else { JSON }, body);
        }
    }
}
