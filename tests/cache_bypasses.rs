//! Requests that are not for the response cache, or not for the comparison by meaning.

use e2e::cached::{
    ALICE, COMPLETIONS, Cached, EMBEDDINGS, MESSAGES, RESPONSES, asked, cached, embedder, reply,
    with,
};
use e2e::{CHAT, Caller, say};
use engine_sim::Embeddings;
use reqwest::Method;
use serde_json::{Value, json};

#[tokio::test]
async fn other_methods_and_paths_are_not_for_the_cache() {
    let cached = Cached::start(cached(1, 1)).await;
    let caller = Caller::new(&cached.fleet);
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let put = client
        .request(Method::PUT, cached.fleet.url(CHAT))
        .json(&say("hello"));
    let requests = || {
        [
            (caller.bodiless("/v1/models"), 200),
            (caller.bodiless(CHAT), 405),
            (put.try_clone().unwrap(), 405),
            (caller.request("/tokenize").json(&say("hello")), 200),
            (caller.request(CHAT), 400),
        ]
    };
    for _ in 0..2 {
        for (request, status) in requests() {
            let reply = reply(request.bearer_auth(ALICE)).await;
            assert_eq!(reply.told(), (status, "bypass", ""), "{reply:?}");
        }
    }
}

/// What a text would not say: none of it is embedded, and all of it is found again word for word.
#[tokio::test]
async fn what_is_more_than_text_asks_for_no_embedding() {
    let embedder = embedder(Embeddings::Equal);
    let cached = Cached::start(cached(1, 1).semantic(&embedder)).await;
    let user = |content: Value| json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": content}]});
    let after = |turns: Value| {
        let mut body = user(json!("Which book?"));
        for turn in turns.as_array().unwrap() {
            body = with(&body, "/messages/-", turn.clone());
        }
        with(
            &body,
            "/messages/-",
            json!({"role": "user", "content": "Where?"}),
        )
    };
    let text = json!({"type": "text", "text": "What is it?"});
    let call = json!({"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let requests = [
        (
            CHAT,
            user(json!([text, {"type": "image_url", "image_url": {"url": "data:,a"}}])),
        ),
        (
            CHAT,
            user(json!([text, {"type": "input_audio", "input_audio": {"data": "a"}}])),
        ),
        (
            CHAT,
            user(json!([{"type": "text", "text": "a", "more": 1}])),
        ),
        (CHAT, with(&user(json!("a")), "/messages/0/more", json!(1))),
        (CHAT, user(json!(""))),
        (CHAT, user(json!([{"type": "text", "text": " \n "}]))),
        (
            CHAT,
            after(json!([
                {"role": "assistant", "content": null, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "1", "content": "a"},
            ])),
        ),
        (
            CHAT,
            after(json!([{"role": "assistant", "content": "a", "tool_calls": [call]}])),
        ),
        (
            CHAT,
            after(json!([{"role": "function", "name": "f", "content": "a"}])),
        ),
        (
            MESSAGES,
            user(json!([text, {"type": "image", "source": {"type": "base64", "data": "a"}}])),
        ),
        (
            MESSAGES,
            after(json!([
                {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1", "content": "a"}]},
            ])),
        ),
        (
            MESSAGES,
            after(
                json!([{"role": "assistant", "content": [{"type": "thinking", "thinking": "a"}]}]),
            ),
        ),
        (COMPLETIONS, json!({"model": "m", "prompt": [1, 2, 3]})),
        (COMPLETIONS, json!({"model": "m", "prompt": [[1, 2, 3]]})),
        (COMPLETIONS, json!({"model": "m", "prompt": ["a"]})),
        (RESPONSES, json!({"model": "m", "input": "Which book?"})),
        (EMBEDDINGS, json!({"model": "m", "input": "Which book?"})),
    ];
    for (path, body) in &requests {
        let first = cached.store(cached.request(path, body), "exact").await;
        let again = cached.ask(path, body).await;
        assert_eq!(again.told(), (200, "hit", "exact"), "{path} {body}");
        assert_eq!(again.body, first.body);
    }
    // Engines refuse these.
    for prompt in [json!(["a", "b"]), json!([[1], [2]]), json!("")] {
        let body = json!({"model": "m", "prompt": prompt});
        let reply = cached.ask(COMPLETIONS, &body).await;
        assert_eq!(reply.told(), (400, "miss", ""), "{body}");
    }
    assert_eq!(asked(&embedder), 0, "{:?}", embedder.embedded_texts());
}
