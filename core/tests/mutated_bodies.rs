//! A million damaged bodies are read: whatever a client sends, reading neither panics nor takes
//! memory in proportion to it, and what is still a plain request is read as such.
//!
//! Each body follows from its number, so one that fails can be read again on its own.

#![cfg(not(target_arch = "wasm32"))]

#[allow(unreachable_pub, reason = "it is public where it comes from")]
mod counting;

use counting::{Counting, count};
use fastrand::Rng;
use rolter_core::prompt::{Dialect, MAX_TEXT_BYTES, Prompt};
use serde_json::Value;
use std::borrow::Cow;
use xxhash_rust::xxh3::xxh3_64;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const BODIES: u64 = 1_000_000;

/// What reading may take beside the kept text and the model's name.
const CHANGE: usize = 4 << 10;

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RESPONSES: &str = "/v1/responses";
const EMBEDDINGS: &str = "/v1/embeddings";
const MESSAGES: &str = "/v1/messages";
const PATHS: [&str; 6] = [
    CHAT,
    COMPLETIONS,
    RESPONSES,
    EMBEDDINGS,
    MESSAGES,
    "/generate",
];

/// Good bodies of every dialect, with what makes reading hard: tools, media, escapes, surrogates,
/// token ids, batches, nesting, white space, fields in odd order and more than once.
const GOOD: [(&str, &str); 16] = [
    (
        CHAT,
        r#"{"model":"llama-3","stream":true,"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}"#,
    ),
    (
        CHAT,
        r#"{"messages":[{"role":"user","content":"fn main() {\n\tprintln!(\"\\u00e9 \\\\ {}\", 1);\r\n}\b\f\/"},{"content":"\u0416\ud83d\ude00\ud83d x \ude00","role":"assistant"}],"model":"q\u0077en\/2"}"#,
    ),
    (
        CHAT,
        "{\n  \"messages\" : [ {\"role\" : \"user\" ,\r\n\t\"content\" : \"Füchse 狐 🦊 und mehr\"} ] , \"model\" : \"m\" , \"stream\" : false \n}\n",
    ),
    (
        CHAT,
        r#"{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"What is this?"},{"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo="}},"plain",{"input_audio":{"data":"UklGR","format":"wav"}}]}]}"#,
    ),
    (
        CHAT,
        r#"{"model":"m","tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"a":{"type":"string"}}}}}],"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"a\": \"b c\"}"}}]},{"role":"tool","tool_call_id":"1","content":"42"},{"role":"assistant","function_call":{"name":"g","arguments":"{}"}}]}"#,
    ),
    (
        CHAT,
        r#"{"messages":[{"role":"user","content":"first"}],"model":"a","messages":[{"role":"x","content":"c","role":"user","content":"last"}],"model":"b","n":-1.5e+3,"x":[[[[{"a":[null,true,false]}]]]]}"#,
    ),
    (
        COMPLETIONS,
        r#"{"model":"m","prompt":"Once upon a time\n"}"#,
    ),
    (
        COMPLETIONS,
        r#"{"prompt":["one","two","three"],"model":"m"}"#,
    ),
    (
        COMPLETIONS,
        r#"{"prompt":[1,2,3,128000,4294967295],"model":"m"}"#,
    ),
    (COMPLETIONS, r#"{"prompt":[[1, 2, 3],[4, 5]],"model":"m"}"#),
    (
        EMBEDDINGS,
        r#"{"input":["The food was good","and the waiter"],"model":"e"}"#,
    ),
    (
        EMBEDDINGS,
        r#"{"input":[[101,7592,102]],"model":"e","encoding_format":"float"}"#,
    ),
    (
        RESPONSES,
        r#"{"model":"m","instructions":"Be brief.","input":"Hi","stream":true}"#,
    ),
    (
        RESPONSES,
        r#"{"input":[{"role":"user","content":[{"type":"input_text","text":"Look"},{"type":"input_image","image_url":"https://a/b.png"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output","call_id":"c","output":"7"},{"type":"reasoning","summary":[]},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"Ho"}]}],"model":"m"}"#,
    ),
    (
        MESSAGES,
        r#"{"model":"claude","max_tokens":9,"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"f","input":{"q":[1,2]}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"r"},{"type":"image","source":{"type":"base64","data":"AAAA"}}]}]}],"system":"Be brief."}"#,
    ),
    (
        MESSAGES,
        r#"{"system":[{"type":"text","text":"Be ","cache_control":{"type":"ephemeral"}},{"type":"text","text":"brief."}],"messages":[{"role":"user","content":[{"type":"document","source":{"type":"text","data":"x"}}]}],"model":"claude"}"#,
    ),
];

/// What grammar is made of, and what breaks it.
const PIECES: [&[u8]; 24] = [
    b"\"",
    b"\\",
    b"[",
    b"]",
    b"{",
    b"}",
    b",",
    b":",
    b" ",
    b"\n",
    b"\\u",
    b"\\ud83d",
    b"\\n",
    b"\\\"",
    b"null",
    b"true",
    b"-1",
    b"\0",
    b"\x80",
    b"\xF0\x9F",
    b"\xFF",
    b"{}",
    b"\"\"",
    b"\"role\":\"tool\"",
];

/// Where a body can grow without end and stay well formed, and by what.
const GROWTH: [(&str, &str); 12] = [
    ("[", "1,"),
    ("[", "{},"),
    ("[", "[],"),
    ("[", "\"\","),
    ("[", "{\"type\":\"text\",\"text\":\"a\"},"),
    (":\"", "word "),
    (":\"", "狐"),
    (":\"", "\\n"),
    (":\"", "\\\""),
    (":\"", "\\u00e9"),
    (":\"", "\\ud83d\\ude00"),
    ("{", "\"model\":\"\\n\","),
];

#[test]
fn a_million_mutated_bodies_are_read_within_bounds() {
    let mut tally = Tally::default();
    for number in 0..BODIES {
        let mut rng = Rng::with_seed(number);
        let (path, body) = mutated(&mut rng);
        let blame = Blame(number, path, &body);
        check(path, &body, number, &mut tally);
        drop(blame);
    }
    // Damage that leaves nothing to read, or nothing damaged, would prove little.
    assert!(tally.read > BODIES / 10, "{tally:?}");
    assert!(tally.raw > BODIES / 10, "{tally:?}");
    assert!(tally.plain > BODIES / 100, "{tally:?}");
    assert!(tally.cut > BODIES / 10_000, "{tally:?}");
}

/// What became of the bodies.
#[derive(Debug, Default)]
struct Tally {
    read: u64,
    raw: u64,
    plain: u64,
    cut: u64,
}

/// Names the body that is being read when the test fails, or when reading panics.
struct Blame<'a>(u64, &'a str, &'a [u8]);

impl Drop for Blame<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(number, path, body) = self;
            let start = body.get(..2_000).unwrap_or(body).escape_ascii();
            eprintln!("body {number} for {path}, {} bytes: {start}", body.len());
        }
    }
}

fn mutated(rng: &mut Rng) -> (&'static str, Vec<u8>) {
    let (path, good) = GOOD[rng.usize(..GOOD.len())];
    let mut body = good.as_bytes().to_vec();
    for _ in 0..rng.usize(..4) {
        mutate(rng, &mut body);
    }
    match rng.u32(..100) {
        0 => {
            let (from, to) = range(rng, body.len());
            repeat(&mut body, from, to, rng.usize(..100_000));
        }
        1 => grow(rng, &mut body),
        _ => {}
    }
    let path = if rng.bool() {
        path
    } else {
        PATHS[rng.usize(..PATHS.len())]
    };
    (path, body)
}

fn mutate(rng: &mut Rng, body: &mut Vec<u8>) {
    let (from, to) = range(rng, body.len());
    match rng.u32(..9) {
        0 => {
            if let Some(byte) = body.get_mut(from) {
                *byte ^= 1 << rng.u32(..8);
            }
        }
        1 => {
            if let Some(byte) = body.get_mut(from) {
                *byte = rng.u8(..);
            }
        }
        2 => drop(body.drain(from..to.min(from + 8))),
        3 => drop(body.drain(from..to)),
        4 => {
            let piece = PIECES[rng.usize(..PIECES.len())];
            body.splice(from..from, piece.iter().copied());
        }
        5 => {
            let (_, other) = GOOD[rng.usize(..GOOD.len())];
            let (start, _) = range(rng, other.len());
            body.truncate(from);
            body.extend_from_slice(&other.as_bytes()[start..]);
        }
        6 => body.truncate(from),
        7 => repeat(body, from, to, (to - from) * 3),
        _ => nest(rng, body, from),
    }
}

fn range(rng: &mut Rng, len: usize) -> (usize, usize) {
    let (a, b) = (rng.usize(..=len), rng.usize(..=len));
    (a.min(b), a.max(b))
}

/// Inserts copies of a range after it, as many as so many bytes hold.
fn repeat(body: &mut Vec<u8>, from: usize, to: usize, bytes: usize) {
    let copies = body[from..to].repeat(bytes / (to - from).max(1));
    body.splice(to..to, copies);
}

/// Inserts copies of something that may stand there, as many as some 100 KB hold.
fn grow(rng: &mut Rng, body: &mut Vec<u8>) {
    let (after, piece) = GROWTH[rng.usize(..GROWTH.len())];
    let seams = body.windows(after.len()).enumerate();
    let seams: Vec<usize> = seams
        .filter(|(_, window)| *window == after.as_bytes())
        .map(|(at, _)| at + after.len())
        .collect();
    if let Some(at) = rng.choice(seams) {
        let run = piece.repeat(rng.usize(..100_000) / piece.len());
        body.splice(at..at, run.into_bytes());
    }
}

/// Inserts brackets around nothing, up to twice as deep as any reader goes.
fn nest(rng: &mut Rng, body: &mut Vec<u8>, at: usize) {
    let (open, close) = *rng
        .choice(&[("[", "]"), ("{\"a\":", "}"), ("[{\"content\":", "}]")])
        .unwrap_or(&("[", "]"));
    let depth = rng.usize(..256);
    let closed = if rng.bool() { depth } else { 0 };
    let run = open.repeat(depth) + "0" + &close.repeat(closed);
    body.splice(at..at, run.into_bytes());
}

fn check(path: &str, body: &[u8], number: u64, tally: &mut Tally) {
    let (prompt, allocated) = count(|| Prompt::read(path.as_bytes(), body));
    let model = match &prompt.model {
        Some(Cow::Owned(name)) => name.capacity(),
        _ => 0,
    };
    let most = MAX_TEXT_BYTES + model + CHANGE;
    let peak = usize::try_from(allocated.peak).unwrap();
    assert!(peak <= most, "{peak} bytes were allocated, of {most}");
    assert!(allocated.left <= allocated.peak);

    assert!(prompt.text.len() <= MAX_TEXT_BYTES);
    assert!(prompt.len >= prompt.text.len() as u64);
    // No part of a conversation is more than three times as long as the JSON that it is told by.
    assert!(prompt.len <= 3 * body.len() as u64 + 16);
    match (prompt.dialect, Dialect::of_path(path.as_bytes())) {
        (None, _) => check_raw(&prompt, body),
        (Some(read), Some(told)) => assert_eq!(read, told),
        (Some(_), None) => {}
    }
    check_text(&prompt, body);
    check_token_ids(&prompt);
    if number.is_multiple_of(16) {
        check_repeatable(path, body, &prompt);
    }
    let plain = check_against_serde_json(&prompt, body);
    tally.read += u64::from(prompt.dialect.is_some());
    tally.raw += u64::from(prompt.dialect.is_none());
    tally.cut += u64::from(prompt.len > prompt.text.len() as u64 + 1_000);
    tally.plain += u64::from(plain);
}

/// What cannot be read is a prompt as it is.
fn check_raw(prompt: &Prompt<'_>, body: &[u8]) {
    assert!(body.starts_with(&prompt.text));
    assert!(is_whole_or_full(&prompt.text, body.len()));
    assert_eq!(prompt.len, body.len() as u64);
    assert_eq!(prompt.digest, xxh3_64(body));
    assert_eq!(prompt.token_ids, None);
}

/// Nothing is left out but what does not fit, up to the beginning of a character.
fn is_whole_or_full(text: &[u8], whole: usize) -> bool {
    text.len() == whole || (text.len() < whole && text.len() + 4 > MAX_TEXT_BYTES)
}

/// Characters are neither cut nor mixed up.
fn check_text(prompt: &Prompt<'_>, body: &[u8]) {
    let words = matches!(
        prompt.dialect,
        Some(Dialect::Chat | Dialect::Messages | Dialect::Responses)
    );
    if words && std::str::from_utf8(body).is_ok() {
        assert!(std::str::from_utf8(&prompt.text).is_ok());
    }
}

fn check_token_ids(prompt: &Prompt<'_>) {
    let Some(ids) = &prompt.token_ids else {
        return;
    };
    assert_eq!(prompt.len, 4 * ids.to_vec().len() as u64);
    let bytes = ids.to_vec().into_iter().flat_map(u32::to_le_bytes);
    assert!(
        bytes
            .take(prompt.text.len())
            .eq(prompt.text.iter().copied())
    );
}

/// Reading depends on the bytes of the body, not on where it lies or what comes after.
fn check_repeatable(path: &str, body: &[u8], prompt: &Prompt<'_>) {
    let elsewhere = [body, b"\"}]}"].concat();
    let again = Prompt::read(path.as_bytes(), &elsewhere[..body.len()]);
    assert_eq!(*prompt, again);
}

/// What a strict reader of JSON accepts is understood the same way. Tells whether it was a plain
/// chat, whose text is known.
fn check_against_serde_json(prompt: &Prompt<'_>, body: &[u8]) -> bool {
    let Ok(Value::Object(fields)) = serde_json::from_slice(body) else {
        return false;
    };
    let model = fields.get("model").and_then(Value::as_str);
    assert_eq!(prompt.model.as_deref(), model);
    let stream = fields.get("stream").and_then(Value::as_bool);
    assert_eq!(prompt.stream, stream == Some(true));
    if prompt.dialect != Some(Dialect::Chat) {
        return false;
    }
    let messages = fields.get("messages").and_then(Value::as_array);
    let turns: Option<String> = messages.into_iter().flatten().map(plain_turn).collect();
    let Some(turns) = turns else {
        return false;
    };
    assert!(turns.as_bytes().starts_with(&prompt.text));
    assert!(is_whole_or_full(&prompt.text, turns.len()));
    assert_eq!(prompt.len, turns.len() as u64);
    assert_eq!(prompt.digest, xxh3_64(turns.as_bytes()));
    true
}

/// How a message reads that is text alone.
fn plain_turn(message: &Value) -> Option<String> {
    let message = message.as_object()?;
    let field = |name| message.get(name).and_then(Value::as_str);
    let (role, content) = (field("role")?, field("content")?);
    let tools = ["tool_calls", "function_call"];
    let is_plain = !tools.iter().any(|name| message.contains_key(*name));
    let speaks = !matches!(role, "tool" | "function");
    (is_plain && speaks).then(|| format!("{role}: {content}\n"))
}
