//! Which policy is a request's, and which answers it passes over: no client chooses either.

use e2e::CHAT;
use e2e::cached::{Cached, Reply, reply, with};
use e2e::guarded::{blocks, chat, code, guarded, is_sound, parrot, plugin};
use e2e::server::{Reply as Says, Server};
use fleet::Setup;
use serde_json::{Value, json};

fn judged(more: &Value) -> Value {
    let mut policy = json!({"plugins": [plugin("judge", &json!({}))]});
    for (key, value) in more.as_object().into_iter().flatten() {
        policy[key] = value.clone();
    }
    policy
}

/// A route for some models with this policy, and one for all others without any.
fn by_model(engine: &Server, policy: &Value) -> Setup {
    let routes = json!([
        {
            "name": "secret", "match": {"models": ["secret-*"]}, "targets": ["engine"],
            "policy": policy,
        },
        {"name": "open", "targets": ["engine"], "policy": {"enabled": false}},
    ]);
    guarded(engine, json!({})).configure(move |config| config["routes"] = routes)
}

async fn send(cached: &Cached, body: impl Into<Vec<u8>>) -> Reply {
    let request = cached.anonymous(CHAT);
    let request = request.header("content-type", "application/json");
    reply(request.body(body.into())).await
}

#[tokio::test]
async fn who_hides_the_model_does_not_choose_the_policy() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    for policy in [judged(&json!({})), judged(&json!({"on_unread": "skip"}))] {
        let setup = by_model(&engine, &policy).cluster("judge", judge.addr());
        let cached = Cached::start(setup).await;
        let (asked, judged) = (engine.asked(), judge.asked());
        let open = send(&cached, chat("hello").to_string()).await;
        assert_eq!(open.status, 200, "{}", open.text());
        let secret = with(&chat("hello"), "/model", json!("secret-1")).to_string();
        let got = send(&cached, secret.clone()).await;
        assert_eq!(code(&got), (403, "withheld_by_policy".into()), "{got:?}");
        assert_eq!((engine.asked(), judge.asked()), (asked + 2, judged + 1));

        let inside = secret.strip_prefix('{').unwrap();
        let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
        let long = "long ".repeat(300_000);
        let utf_16 = secret.encode_utf16().flat_map(u16::to_le_bytes);
        let hidden: [Vec<u8>; 7] = [
            format!("\u{feff}{secret}").into(),
            format!(r#"{{"top_p":NaN,{inside}"#).into(),
            format!(r#"{{"model":"open","top_p":Infinity,{inside}"#).into(),
            format!(r#"{{"x":{deep},{inside}"#).into(),
            format!(r#"{{"user":"{long}",{inside}"#).into(),
            format!(r#"{{"model":"open","user":"{long}",{inside}"#).into(),
            utf_16.collect(),
        ];
        for body in hidden {
            let start = String::from_utf8_lossy(&body[..60]).into_owned();
            let got = send(&cached, body).await;
            assert_eq!(code(&got), (400, "refused_by_policy".into()), "{start}");
        }
        // The last of several is what engines read.
        let twice = format!(r#"{{"model":"open",{inside}"#);
        let got = send(&cached, twice).await;
        assert_eq!(code(&got), (403, "withheld_by_policy".into()), "{got:?}");
        assert_eq!((engine.asked(), judge.asked()), (asked + 3, judged + 2));
        is_sound(&cached.fleet).await;
    }
}

#[tokio::test]
async fn an_answer_that_is_no_stream_is_judged_whatever_the_request_asks_for() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    let policy = judged(&json!({"on_stream": "skip", "on_unread": "skip"}));
    let setup = guarded(&engine, policy).cluster("judge", judge.addr());
    let cached = Cached::start(setup).await;
    let asks = with(&chat("hello"), "/stream", json!(true));
    let answer = Says::json(&json!({"choices": [{"message": {"content": "hello"}}]})).body();
    // What it is shows in its bytes, not in what it is called.
    for kind in [
        "application/json",
        "text/plain",
        "application/problem+json",
        "",
    ] {
        let body = answer.clone();
        engine.answer(move |_| Says::new(200, kind, body.clone()));
        for question in [&asks, &chat("hello")] {
            let got = cached.ask(CHAT, question).await;
            assert_eq!(code(&got), (403, "withheld_by_policy".into()), "{kind}");
        }
    }
    assert_eq!(judge.asked(), 8);
    for (kind, body) in [
        ("text/event-stream", "data: [DONE]\n\n"),
        ("audio/mpeg", "\u{1}\u{2}"),
        ("text/plain", "no JSON"),
    ] {
        engine.answer(move |_| Says::new(200, kind, body));
        let got = cached.ask(CHAT, &asks).await;
        assert_eq!((got.status, got.text().as_str()), (200, body), "{kind}");
    }
    assert_eq!(judge.asked(), 8);
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn a_policy_that_judges_nothing_holds_nothing_and_counts_what_was_used() {
    let engine = parrot().await;
    let cached = Cached::start(guarded(&engine, json!({}))).await;
    let answer = |bytes: usize| {
        let text = "x".repeat(bytes);
        let usage = json!({"prompt_tokens": 3, "completion_tokens": 2});
        json!({"choices": [{"message": {"content": text}}], "usage": usage}).to_string()
    };
    // More than Envoy can hold, and more than is read for its usage.
    for (bytes, tokens) in [(1_000, 3), (8 << 20, 3)] {
        let body = answer(bytes);
        let whole = body.clone();
        engine.answer(move |_| Says::new(200, "application/json", body.clone()).in_pieces(50_000));
        let got = cached.ask(CHAT, &chat("hello")).await;
        assert_eq!((got.status, got.body.len()), (200, whole.len()));
        let labels = [("kind", "prompt"), ("basis", "upstream")];
        let counted = |stats: &fleet::Stats| stats.filter("rolter_tokens", &labels);
        let stats = cached
            .fleet
            .stats_when(|stats| counted(stats) == tokens)
            .await;
        assert_eq!(counted(&stats.unwrap()), tokens, "{bytes}");
    }
    is_sound(&cached.fleet).await;
}
