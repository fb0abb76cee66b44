//! What is asked: chats of a given size as whole HTTP requests, made once. Some share a system prompt
//! and the turns after it, as in production, and no two are the same.

use fastrand::Rng;
use std::fmt::Write;

/// So many requests, or as many as are of this many bytes together.
const REQUESTS: usize = 512;
const ALL_BYTES: usize = 16 << 20;
/// Chats that begin alike.
const SHARING: usize = 16;
/// Turns before the last question, of user and assistant.
const TURNS: usize = 4;

/// Whole HTTP requests whose bodies have exactly so many bytes, in the order in which to ask them.
pub(super) fn requests(body_bytes: usize) -> Vec<Vec<u8>> {
    let rng = &mut Rng::with_seed(1);
    let count = REQUESTS.min(ALL_BYTES / body_bytes);
    let mut requests: Vec<Vec<u8>> = (0..count.div_ceil(SHARING))
        .flat_map(|_| {
            let head = head(rng, body_bytes / 2);
            let bodies: Vec<String> = (0..SHARING).map(|_| body(rng, &head, body_bytes)).collect();
            bodies
        })
        .map(|body| {
            let head = format!(
                "POST /v1/chat/completions HTTP/1.1\r\nhost: llm.test\r\n\
                 content-type: application/json\r\ncontent-length: {}\r\n\r\n",
                body.len()
            );
            (head + &body).into_bytes()
        })
        .collect();
    rng.shuffle(&mut requests);
    requests
}

/// The system prompt and the turns that some chats share, of about so many bytes.
fn head(rng: &mut Rng, bytes: usize) -> String {
    let mut head = String::from(r#"{"model":"m","messages":["#);
    let turn = bytes / (2 * TURNS);
    push(&mut head, "system", &prose(rng, bytes / 2));
    for place in 0..TURNS {
        let role = ["user", "assistant"][place % 2];
        push(&mut head, role, &prose(rng, turn));
    }
    head
}

/// A chat with this head and a question of its own, of exactly so many bytes.
fn body(rng: &mut Rng, head: &str, bytes: usize) -> String {
    let end = r#"],"max_tokens":16,"temperature":0.7}"#;
    let mut body = head.to_owned();
    let mut question = body.clone();
    push(&mut question, "user", "");
    let left = bytes.saturating_sub(question.len() - 1 + end.len());
    push(&mut body, "user", &prose(rng, left));
    body.pop();
    body + end
}

fn push(body: &mut String, role: &str, content: &str) {
    // Prose has nothing in it that JSON escapes.
    let _ = write!(body, r#"{{"role":"{role}","content":"{content}"}},"#);
}

/// Words of no language, of so many bytes.
fn prose(rng: &mut Rng, bytes: usize) -> String {
    let mut text = String::with_capacity(bytes + 16);
    while text.len() < bytes {
        for _ in 0..rng.usize(2..9) {
            text.push(rng.lowercase());
        }
        text.push(' ');
    }
    text.truncate(bytes);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use std::collections::HashSet;

    #[test]
    fn bodies_are_distinct_chats_of_the_given_size() {
        for bytes in [512, 4 << 10, 32 << 10, 256 << 10] {
            let requests = requests(bytes);
            assert!(requests.len() >= 64, "{bytes}: {}", requests.len());
            let distinct: HashSet<&[u8]> = requests.iter().map(|one| &**one).collect();
            assert_eq!(distinct.len(), requests.len());
            let body = &requests[0][requests[0].len() - bytes..];
            let chat: Value = serde_json::from_slice(body).unwrap();
            assert_eq!(chat["messages"].as_array().unwrap().len(), TURNS + 2);
        }
    }

    #[test]
    fn some_chats_begin_alike_and_others_do_not() {
        let requests = requests(4 << 10);
        let shared =
            |one: &[u8], other: &[u8]| one.iter().zip(other).take_while(|(a, b)| a == b).count();
        let others = requests[1..]
            .iter()
            .map(|other| shared(&requests[0], other));
        let alike = others.filter(|shared| *shared > 2_000).count();
        assert_eq!(alike, SHARING - 1);
    }
}
