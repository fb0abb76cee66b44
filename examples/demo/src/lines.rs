//! What to type to try a running fleet.

use crate::background::Addresses;
use serde_json::Value;

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";

const LIBRARIAN: &str = "You are the librarian of a small town. Name the book, then the shelf.";
const QUESTION: &str = "Which book tells how to build a boat that can cross the sea?";
/// The length of answers, in tokens: the part that can be told before it is asked for.
const LENGTH: usize = 6;

/// The addresses, and commands that work as they are printed, all at once or one by one.
pub(crate) fn to_try(addresses: Addresses) -> String {
    let Addresses { clients, admin } = addresses;
    let post = |options: &str, path: &str, body: &str| {
        let json = "-H 'content-type: application/json'";
        format!("curl {options} http://{clients}{path} {json} -d '\n{body}'")
    };
    let asked = format!(
        r#"{{"model": "demo", "max_tokens": {LENGTH}, "messages": [
  {{"role": "system", "content": "{LIBRARIAN}"}},
  {{"role": "user", "content": "{QUESTION}"}}"#
    );
    let first = format!("{asked}]}}");
    let further = format!(
        r#"{asked},
  {{"role": "assistant", "content": "{answer}"}},
  {{"role": "user", "content": "And where do I find it?"}}]}}"#,
        answer = answer(&first)
    );
    let anthropic = format!(
        r#"{{"model": "demo", "max_tokens": {LENGTH},
  "system": "{LIBRARIAN}",
  "messages": [{{"role": "user", "content": "{QUESTION}"}}]}}"#
    );
    let streamed = r#"{"model": "demo", "max_tokens": 20, "stream": true, "messages": [
  {"role": "user", "content": "Tell me a story about a lighthouse and the sea."}]}"#;
    let lines = [
        (
            "A chat. x-rolter-target is the engine, and x-rolter-decision why it was picked: a miss, \
             as no\n# engine has this prompt yet.",
            post("-i", CHAT, &first),
        ),
        (
            "The same once more: x-rolter-cache is hit, and no engine has been asked.",
            post("-i", CHAT, &first),
        ),
        (
            "A further turn of it: by affinity to the same engine, where cached_tokens is not 0.",
            post("-i", CHAT, &further),
        ),
        (
            "The first turn through another API: the prompt is the same, and so is the engine.",
            post("-i", MESSAGES, &anthropic),
        ),
        ("A streamed answer.", post("-iN", CHAT, streamed)),
        (
            "What the filter counts. Some of it comes with a delay of a few seconds.",
            format!("curl -s http://{admin}/stats/prometheus | grep ^rolter_"),
        ),
        ("Stop it all.", "make down".to_owned()),
    ];
    let lines = lines.map(|(what, command)| format!("# {what}\n{command}\n"));
    format!(
        "Clients  http://{clients}\nAdmin    http://{admin}\n\n{}",
        lines.join("\n")
    )
}

/// What any engine answers to a chat, as far as [`LENGTH`] goes.
fn answer(body: &str) -> String {
    serde_json::from_str::<Value>(body)
        .ok()
        .and_then(|body| engine_sim::expected_answer(CHAT, &body))
        .unwrap_or_default()
}
