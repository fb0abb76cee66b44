//! How many tokens answers tell of.

use super::super::usage::{StreamUsage, Usage};
use proptest::prelude::*;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[expect(clippy::unnecessary_wraps, reason = "as it is compared")]
fn usage(prompt: u64, completion: u64, cached: u64) -> Option<Usage> {
    Some(Usage {
        prompt,
        completion,
        cached,
    })
}

fn of_stream(stream: &str) -> Option<Usage> {
    let mut read = StreamUsage::default();
    read.add(stream.as_bytes());
    read.usage()
}

#[test]
fn an_answer_tells_in_the_words_of_its_api() {
    for (body, expected) in [
        (
            r#"{"choices":[{"message":{"content":"{\"usage\":{\"prompt_tokens\":9}}"}}],
               "usage":{"prompt_tokens":12,"total_tokens":15,"completion_tokens":3,
               "prompt_tokens_details":{"audio_tokens":0,"cached_tokens":8}}}"#,
            usage(12, 3, 8),
        ),
        (
            r#"{"usage":{"prompt_tokens":12,"completion_tokens":3,"prompt_tokens_details":null}}"#,
            usage(12, 3, 0),
        ),
        (
            r#"{"object":"response","usage":{"input_tokens":12,
               "input_tokens_details":{"cached_tokens":8},"output_tokens":3,
               "output_tokens_details":{"reasoning_tokens":2},"total_tokens":15}}"#,
            usage(12, 3, 8),
        ),
        (
            r#"{"type":"message","usage":{"input_tokens":1,"cache_creation_input_tokens":4,
               "cache_read_input_tokens":7,"output_tokens":3}}"#,
            usage(12, 3, 7),
        ),
        (
            r#"{"object":"list","data":[{"embedding":[0.5]}],
               "usage":{"prompt_tokens":12,"total_tokens":12}}"#,
            usage(12, 0, 0),
        ),
        // Enough to end up beyond what a number has room for.
        (
            r#"{"usage":{"input_tokens":18446744073709551615,"cache_read_input_tokens":1}}"#,
            usage(u64::MAX, 0, 1),
        ),
    ] {
        assert_eq!(Usage::of_answer(body), expected, "{body}");
    }
}

#[test]
fn what_tells_nothing_has_no_usage() {
    for body in [
        "",
        "{}",
        "[]",
        r#"{"usage":null}"#,
        r#"{"usage":{}}"#,
        r#"{"usage":"12"}"#,
        r#"{"usage":{"prompt_tokens":-1,"completion_tokens":"3","total_tokens":1}}"#,
        r#"{"choices":[{"usage":{"prompt_tokens":9}}]}"#,
        r#"{"usage":{"prompt"#,
    ] {
        assert_eq!(Usage::of_answer(body), None, "{body}");
    }
}

const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"é\"}}],\"usage\":null}\n\n\
    : a comment\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":12,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":8}}}\n\n\
    data: [DONE]\n\n";

const MESSAGES: &str = "event: message_start\r\n\
    data: {\"type\":\"message_start\",\"message\":{\"content\":[],\"usage\":{\"input_tokens\":1,\"cache_creation_input_tokens\":4,\"cache_read_input_tokens\":7,\"output_tokens\":1}}}\r\n\r\n\
    event: content_block_delta\r\n\
    data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\"\"}}\r\n\r\n\
    event: message_delta\r\n\
    data: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":3}}\r\n\r\n";

const RESPONSES: &str = "event: response.created\n\
    data: {\"type\":\"response.created\",\"response\":{\"output\":[],\"usage\":null}}\n\n\
    event: response.completed\n\
    data:{\"type\":\"response.completed\",\"response\":{\"output\":[{\"usage\":{\"input_tokens\":99}}],\"usage\":{\"input_tokens\":12,\"input_tokens_details\":{\"cached_tokens\":8},\"output_tokens\":3}}}\n\n";

#[test]
fn a_stream_tells_in_the_words_of_its_api() {
    assert_eq!(of_stream(CHAT), usage(12, 3, 8));
    assert_eq!(of_stream(MESSAGES), usage(12, 3, 7));
    assert_eq!(of_stream(RESPONSES), usage(12, 3, 8));
}

#[test]
fn the_last_that_is_told_counts() {
    let chunk = |count: u64| {
        format!("data: {{\"usage\":{{\"prompt_tokens\":5,\"completion_tokens\":{count}}}}}\n\n")
    };
    assert_eq!(of_stream(&(chunk(1) + &chunk(2))), usage(5, 2, 0));
    // What no line break ends is not complete.
    assert_eq!(of_stream((chunk(1) + &chunk(2)).trim_end()), usage(5, 1, 0));
}

#[test]
fn a_line_that_is_too_long_is_passed_over_alone() {
    let line = "data: {\"usage\":{\"prompt_tokens\":1},\"text\":\"";
    let stream = format!("{CHAT}{line}{}\"}}\n\n", "a".repeat(256 << 10));
    for size in [1_000, 262_144, 262_145, 1 << 20] {
        let mut read = StreamUsage::default();
        for piece in stream.as_bytes().chunks(size) {
            read.add(piece);
        }
        assert_eq!(read.usage(), usage(12, 3, 8), "{size}");
        read.add(MESSAGES.as_bytes());
        assert_eq!(read.usage().map(|usage| usage.completion), Some(3));
    }
    // Of the longest that is read, each byte counts.
    let fits = format!("{line}{}\"}}\n", "a".repeat((256 << 10) - line.len() - 2));
    assert_eq!(of_stream(&fits), usage(1, 0, 0));
    let mut read = StreamUsage::default();
    fits.as_bytes()
        .chunks(999)
        .for_each(|piece| read.add(piece));
    assert_eq!(read.usage(), usage(1, 0, 0));
}

#[test]
fn the_last_event_of_responses_is_read_though_it_has_all_of_the_answer() {
    let text = "a".repeat(200_000);
    let stream = RESPONSES.replace(
        "[{\"usage\"",
        &format!("[{{\"text\":\"{text}\"}},{{\"usage\""),
    );
    assert!(stream.len() > text.len());
    for size in [100, 16_384, 1 << 20] {
        let mut read = StreamUsage::default();
        stream
            .as_bytes()
            .chunks(size)
            .for_each(|piece| read.add(piece));
        assert_eq!(read.usage(), usage(12, 3, 8), "{size}");
    }
}

#[test]
fn a_stream_without_line_breaks_ends() {
    let mut read = StreamUsage::default();
    for _ in 0..100_000 {
        read.add(&[b'a'; 100]);
    }
    assert_eq!(read.usage(), None);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn it_does_not_matter_where_a_stream_is_cut(
        stream in proptest::sample::select(vec![CHAT, MESSAGES, RESPONSES]),
        cuts in proptest::collection::vec(1..80usize, 0..40),
    ) {
        let mut read = StreamUsage::default();
        let mut rest = stream.as_bytes();
        for cut in cuts {
            let (piece, after) = rest.split_at(cut.min(rest.len()));
            read.add(piece);
            rest = after;
        }
        read.add(rest);
        prop_assert_eq!(read.usage(), of_stream(stream));
    }

    #[test]
    fn no_bytes_are_a_problem(pieces in proptest::collection::vec("(data: ?)?[\\{\\}\"a:\n]{0,9}(\"usage\":)?\\PC{0,9}", 0..9)) {
        let mut read = StreamUsage::default();
        for piece in &pieces {
            read.add(piece.as_bytes());
        }
        Usage::of_answer(&pieces.concat());
    }
}
