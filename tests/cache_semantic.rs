//! The response cache by meaning. Where every text has the same vector, each hit shows that the
//! request may differ so, and each miss that it may not.

use e2e::CHAT;
use e2e::cached::{
    ALICE, COMPLETIONS, Cached, EMBEDDINGS, MESSAGES, asked, cached, embedder, reply, with, without,
};
use engine_sim::{Embeddings, Engine};
use fleet::Redis;
use serde_json::{Value, json};

async fn all_alike() -> (Cached, Engine) {
    let embedder = embedder(Embeddings::Equal);
    let cached = Cached::start(cached(1, 1).semantic(&embedder)).await;
    (cached, embedder)
}

/// A request that has nothing to do with those of other numbers: the cache does not know the field,
/// and so it parts them.
fn numbered(body: &Value, number: usize) -> Value {
    let mut body = body.clone();
    body["number"] = json!(number);
    body
}

fn tool(description: &str) -> Value {
    json!([{"type": "function", "function": {
        "name": "find",
        "description": description,
        "parameters": {"type": "object", "properties": {}},
    }}])
}

/// A chat with all that an answer may depend on.
fn chat() -> Value {
    json!({
        "model": "m",
        "max_tokens": 8,
        "temperature": 0.5,
        "tools": tool("Finds a book."),
        "tool_choice": "auto",
        "response_format": {"type": "text"},
        "messages": [
            {"role": "system", "content": "Answer in German."},
            {"role": "user", "content": "Which book?"},
            {"role": "assistant", "content": "That of boats."},
            {"role": "user", "content": "Where is it?"},
        ],
    })
}

fn message() -> Value {
    json!({
        "model": "m",
        "max_tokens": 8,
        "temperature": 0.5,
        "system": "Answer in German.",
        "tools": [{"name": "find", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "auto"},
        "messages": [{"role": "user", "content": "Which book?"}],
    })
}

fn completion() -> Value {
    json!({"model": "m", "max_tokens": 8, "temperature": 0.5, "prompt": "The book is"})
}

/// The same in other words.
fn reworded(path: &str, body: &Value) -> Value {
    match path {
        COMPLETIONS => with(body, "/prompt", json!("It is that book which")),
        _ => {
            let last = body["messages"].as_array().unwrap().len() - 1;
            let content = format!("/messages/{last}/content");
            with(body, &content, json!("And on which shelf?"))
        }
    }
}

#[tokio::test]
async fn other_words_have_the_answer_and_reach_no_engine() {
    let (cached, embedder) = all_alike().await;
    let pairs = [
        (CHAT, chat(), reworded(CHAT, &chat())),
        (
            CHAT,
            chat(),
            with(&chat(), "/messages/2/content", json!("In that of ships.")),
        ),
        (
            CHAT,
            chat(),
            with(
                &chat(),
                "/messages/3/content",
                json!([
                    {"type": "text", "text": "On which"},
                    {"type": "text", "text": "shelf?", "cache_control": {"type": "ephemeral"}},
                ]),
            ),
        ),
        (CHAT, chat(), with(&chat(), "/user", json!("bob"))),
        (CHAT, chat(), with(&chat(), "/metadata", json!({"a": [1]}))),
        (
            CHAT,
            with(&chat(), "/messages/1/name", json!("Ann")),
            with(&chat(), "/messages/1/name", json!("Ben")),
        ),
        (
            CHAT,
            with(&chat(), "/stream", json!(true)),
            reworded(CHAT, &with(&chat(), "/stream", json!(true))),
        ),
        (
            CHAT,
            with(&chat(), "/stream", json!(false)),
            reworded(CHAT, &chat()),
        ),
        (MESSAGES, message(), reworded(MESSAGES, &message())),
        (
            MESSAGES,
            message(),
            with(&message(), "/metadata", json!({"user_id": "bob"})),
        ),
        (
            COMPLETIONS,
            completion(),
            reworded(COMPLETIONS, &completion()),
        ),
    ];
    for (number, (path, one, other)) in pairs.iter().enumerate() {
        let (one, other) = (numbered(one, number), numbered(other, number));
        let first = cached.store(cached.request(path, &one), "semantic").await;
        let served = cached.served();
        for _ in 0..2 {
            let again = cached.ask(path, &other).await;
            assert_eq!(again.told(), (200, "hit", "semantic"), "{other}");
            assert_eq!(again.content_type, first.content_type);
            assert_eq!(again.body, first.body);
            assert!(again.age.is_some());
        }
        let exact = cached.ask(path, &one).await;
        assert_eq!(
            (exact.told(), exact.body.len()),
            ((200, "hit", "exact"), first.body.len())
        );
        assert_eq!(cached.served(), served);
    }
    // Instructions are not compared, so they are not embedded; nothing else is asked of whoever
    // embeds.
    let texts = embedder.embedded_texts();
    let has = |what: &str| texts.iter().any(|text| text.contains(what));
    assert!(has("Which book?") && has("That of boats.") && has("And on which shelf?"));
    assert!(has("Ann") && has("Ben"));
    assert!(!has("German") && !has("Finds a book"), "{texts:?}");
    let served = embedder.stats().served;
    assert_eq!(served.keys().collect::<Vec<_>>(), [EMBEDDINGS]);
    assert!(!cached.fleet.panicked());
}

#[tokio::test]
async fn whatever_else_differs_never_shares() {
    let (cached, _embedder) = all_alike().await;
    let system = |content: &str| json!({"role": "system", "content": content});
    let chats = [
        with(&chat(), "/model", json!("n")),
        with(&chat(), "/max_tokens", json!(9)),
        with(&chat(), "/max_completion_tokens", json!(8)),
        with(&chat(), "/temperature", json!(0.6)),
        with(&chat(), "/top_p", json!(0.9)),
        with(&chat(), "/stop", json!(["x"])),
        with(&chat(), "/nobody_knows_it", json!(null)),
        with(&chat(), "/stream", json!(true)),
        with(&chat(), "/stream_options", json!({"include_usage": true})),
        with(&chat(), "/tools", tool("Finds a ship.")),
        without(&chat(), "tools"),
        with(&chat(), "/tool_choice", json!("none")),
        with(&chat(), "/response_format", json!({"type": "json_object"})),
        with(&chat(), "/messages/0", system("Answer in Japanese.")),
        with(&chat(), "/messages/0/role", json!("developer")),
        with(&chat(), "/messages/0/name", json!("n")),
        with(&chat(), "/messages/0", chat()["messages"][1].clone()),
        with(&chat(), "/messages/2", system("Be brief.")),
        with(&chat(), "/messages/1/name", json!("Ann")),
        with(
            &chat(),
            "/messages",
            json!([
                chat()["messages"][1],
                chat()["messages"][0],
                chat()["messages"][3]
            ]),
        ),
        with(
            &chat(),
            "/messages",
            json!([chat()["messages"][0], chat()["messages"][3]]),
        ),
    ];
    let messages = [
        with(&message(), "/model", json!("n")),
        with(&message(), "/max_tokens", json!(9)),
        with(&message(), "/temperature", json!(0.6)),
        with(&message(), "/top_k", json!(5)),
        with(&message(), "/system", json!("Answer in Japanese.")),
        with(
            &message(),
            "/system",
            json!([{"type": "text", "text": "Answer in Japanese."}]),
        ),
        without(&message(), "system"),
        without(&message(), "tools"),
        with(&message(), "/tools/0/name", json!("seek")),
        with(&message(), "/tool_choice", json!({"type": "any"})),
        with(&message(), "/thinking", json!({"type": "disabled"})),
        with(&message(), "/stream", json!(true)),
    ];
    let completions = [
        with(&completion(), "/model", json!("n")),
        with(&completion(), "/temperature", json!(0.6)),
        with(&completion(), "/suffix", json!("x")),
        with(&completion(), "/stream", json!(true)),
    ];
    let cases = [
        (CHAT, chat(), &chats[..]),
        (MESSAGES, message(), &messages),
        (COMPLETIONS, completion(), &completions),
    ];
    let mut number = 0;
    for (path, body, others) in cases {
        for other in others {
            number += 1;
            let (body, other) = (numbered(&body, number), numbered(other, number));
            cached.store(cached.request(path, &body), "semantic").await;
            // What could be taken is there.
            let alike = cached.ask(path, &reworded(path, &body)).await;
            assert_eq!(alike.told(), (200, "hit", "semantic"), "{body}");
            // Missed, and stored before anything else is.
            cached.store(cached.request(path, &other), "semantic").await;
        }
    }
}

#[tokio::test]
async fn other_apis_versions_and_callers_never_share() {
    let (cached, _embedder) = all_alike().await;
    // As far as this engine is concerned, the same in both APIs.
    let body =
        json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "a"}]});
    cached.store(cached.request(CHAT, &body), "semantic").await;
    let other = || with(&body, "/messages/0/content", json!("b"));
    let alike = cached.ask(CHAT, &other()).await;
    assert_eq!(alike.told(), (200, "hit", "semantic"));
    for request in [
        cached.request(MESSAGES, &other()),
        cached.request(&format!("{CHAT}?a"), &other()),
        cached.request(CHAT, &other()).header("openai-beta", "a"),
        cached
            .request(CHAT, &other())
            .header("anthropic-version", "a"),
        cached
            .anonymous(CHAT)
            .bearer_auth("bob's key")
            .json(&other()),
    ] {
        assert_eq!(reply(request).await.told(), (200, "miss", ""));
    }
    let request = cached.anonymous(CHAT).bearer_auth(ALICE).json(&other());
    assert_eq!(reply(request).await.told(), (200, "hit", "semantic"));
}

#[tokio::test]
async fn texts_below_the_threshold_do_not_share() {
    let embedder = embedder(Embeddings::ByInput);
    let cached = Cached::start(cached(1, 1).semantic(&embedder)).await;
    let first = cached
        .store(cached.request(CHAT, &chat()), "semantic")
        .await;
    let other = cached.ask(CHAT, &reworded(CHAT, &chat())).await;
    assert_eq!(other.told(), (200, "miss", ""));
    // White space is no other text, and that is found with the vector that is known already.
    let known = asked(&embedder);
    let spaced = with(&chat(), "/messages/3/content", json!(" Where  is\nit?"));
    let spaced = cached.ask(CHAT, &spaced).await;
    assert_eq!(
        (spaced.told(), &spaced.body),
        ((200, "hit", "semantic"), &first.body)
    );
    assert_eq!(asked(&embedder), known);
}

#[tokio::test]
async fn no_cache_brings_a_new_answer_for_other_words_too() {
    let (cached, _embedder) = all_alike().await;
    let old = cached
        .store(cached.request(CHAT, &chat()), "semantic")
        .await;
    let refreshing = cached.request(CHAT, &chat());
    let refreshing = refreshing.header("cache-control", "no-cache");
    let new = cached.store(refreshing, "semantic").await;
    assert_ne!(new.body, old.body);
    let alike = cached.ask(CHAT, &reworded(CHAT, &chat())).await;
    assert_eq!(alike.told(), (200, "hit", "semantic"));
    assert_eq!(alike.body, new.body);
}

#[tokio::test]
async fn entries_of_an_older_layout_are_never_read() {
    let redis = Redis::start().await.unwrap();
    let embedder = embedder(Embeddings::Equal);
    let setup = cached(1, 1)
        .semantic(&embedder)
        .with("/cache/redis", redis.url());
    let cached = Cached::start(setup).await;
    cached.until_connected().await;
    for (number, old) in ["rolter:semantic:v1:", "rolter:semantic:"]
        .iter()
        .enumerate()
    {
        let body = numbered(&chat(), number);
        cached.store(cached.request(CHAT, &body), "semantic").await;
        let other = reworded(CHAT, &body);
        assert_eq!(cached.ask(CHAT, &other).await.kind, "semantic");
        let new = "rolter:semantic:v2:";
        let keys = redis::cmd("KEYS").arg(format!("{new}*")).to_owned();
        let keys: Vec<String> = redis.ask(&keys).await.unwrap();
        // The index, and one text in it.
        assert_eq!(keys.len(), 2, "{keys:?}");
        for key in keys {
            let renamed = key.replace(new, old);
            let rename = redis::cmd("RENAME").arg(key).arg(renamed).to_owned();
            let _: String = redis.ask(&rename).await.unwrap();
        }
        cached.store(cached.request(CHAT, &other), "semantic").await;
        let flush: String = redis.ask(&redis::cmd("FLUSHALL")).await.unwrap();
        assert_eq!(flush, "OK");
    }
}
