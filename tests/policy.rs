//! The policy passes over every answer alike, whether an engine has made it or the cache had it:
//! those who are asked about it.

use e2e::cached::{ALICE, Cached, Reply, fetch, reply, with};
use e2e::guarded::{
    Ways, allows, blocks, chat, code, guarded, is_sound, parrot, plugin, replaces, with_cache,
};
use e2e::server::{Reply as Says, Server};
use e2e::{CHAT, Caller, setup};
use fleet::Redis;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// A policy of these plugins.
fn asking(plugins: &[Value]) -> Value {
    json!({"plugins": plugins})
}

fn said(got: &[Reply]) -> Vec<(u16, String)> {
    got.iter().map(|got| (got.status, got.said())).collect()
}

/// The values of all keys.
async fn entries(redis: &Redis) -> Vec<Vec<u8>> {
    let keys = redis::cmd("KEYS").arg("*").to_owned();
    let keys: Vec<Vec<u8>> = redis.ask(&keys).await.unwrap();
    let mut values = vec![];
    for key in keys {
        let kind = redis::cmd("TYPE").arg(&key).to_owned();
        if redis.ask::<String>(&kind).await.unwrap() == "string" {
            let get = redis::cmd("GET").arg(&key).to_owned();
            values.push(redis.ask(&get).await.unwrap());
        }
    }
    values
}

fn has(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

#[tokio::test]
async fn a_plugin_that_blocks_does_so_whichever_way_an_answer_came() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    let policy = asking(&[plugin("judge", &json!({}))]);
    let setup = || guarded(&engine, policy.clone()).cluster("judge", judge.addr());
    let ways = Ways::start(setup).await;
    let question = ways.question("Which birds?");
    for got in ways.ask(&question).await {
        assert_eq!(code(&got), (403, "withheld_by_policy".into()), "{got:?}");
        let body: Value = serde_json::from_slice(&got.body).unwrap();
        let message = body["error"]["message"].as_str().unwrap();
        assert!(message.contains("judge") && message.contains("It is about birds."));
        assert!(!got.text().contains("You said"), "{}", got.text());
    }
    assert_eq!((engine.asked(), judge.asked()), (2, 4));
    // It was kept as it came all the same.
    judge.answer(allows);
    for got in ways.again(&question).await {
        assert_eq!((got.status, &*got.said()), (200, "You said: Which birds?"));
    }
    ways.is_sound().await;
}

#[tokio::test]
async fn a_plugin_that_a_reload_adds_reaches_what_was_stored_before() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    let setup = || guarded(&engine, json!({})).cluster("judge", judge.addr());
    let mut ways = Ways::start(setup).await;
    let question = ways.question("Which birds?");
    for got in ways.ask(&question).await {
        assert_eq!(got.status, 200);
    }
    ways.reload(&asking(&[plugin("judge", &json!({}))])).await;
    for got in ways.again(&question).await {
        assert_eq!(code(&got), (403, "withheld_by_policy".into()), "{got:?}");
    }
    ways.reload(&json!({})).await;
    for got in ways.again(&question).await {
        assert_eq!(got.status, 200);
    }
    assert_eq!(judge.asked(), 3);
    ways.is_sound().await;
}

#[tokio::test]
async fn a_plugin_that_rewrites_does_so_each_time_and_the_entry_stays_the_engines_own() {
    let engine = parrot().await;
    let editor = Server::start(replaces("birds", "fish")).await;
    let policy = asking(&[plugin("editor", &json!({}))]);
    let setup = || guarded(&engine, policy.clone()).cluster("editor", editor.addr());
    let mut ways = Ways::start(setup).await;
    let question = ways.question("Which birds?");
    for got in ways.ask(&question).await {
        assert_eq!((got.status, &*got.said()), (200, "You said: Which fish?"));
    }
    editor.answer(replaces("birds", "\\\"trees\\\" 🌳"));
    for got in ways.again(&question).await {
        let said = "You said: Which \"trees\" 🌳?";
        assert_eq!((got.status, &*got.said()), (200, said));
    }
    ways.reload(&json!({})).await;
    let [_, bare, _] = ways.again(&question).await;
    let entries = entries(&ways.redis).await;
    let own: Vec<_> = entries
        .iter()
        .filter(|entry| has(entry, &bare.body))
        .collect();
    assert!(!own.is_empty());
    assert!(has(&bare.body, br#"{ "odd":1.50e1, "object""#));
    for entry in &entries {
        assert!(!has(entry, b"fish") && !has(entry, b"trees"));
    }
    ways.is_sound().await;
}

#[tokio::test]
async fn a_plugin_that_cannot_be_asked_follows_its_failure_mode_whichever_way_an_answer_came() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    // Whoever listened there is gone.
    let gone = Server::start(allows).await.addr();
    let setup = || {
        let setup = guarded(&engine, json!({})).cluster("judge", judge.addr());
        setup.cluster("gone", gone)
    };
    let mut ways = Ways::start(setup).await;
    let huge = "x".repeat(2 << 20);
    let answers: Vec<(&str, Says)> = vec![
        ("judge", Says::never()),
        (
            "judge",
            Says::new(500, "application/json", r#"{"verdict":"allow"}"#),
        ),
        ("judge", Says::new(204, "application/json", "")),
        ("judge", Says::new(200, "text/plain", "all is well")),
        ("judge", Says::json(&r#"{"verdict":"allow"} "#.repeat(2))),
        ("judge", Says::json(&r#"["allow"]"#)),
        ("judge", Says::json(&r#"{"verdict":"maybe"}"#)),
        ("judge", Says::json(&r#"{"verdict":"replace"}"#)),
        (
            "judge",
            Says::json(&r#"{"verdict":"replace","answer":"text"}"#),
        ),
        (
            "judge",
            Says::json(&r#"{"verdict":"replace","answer":{"a":}}"#),
        ),
        (
            "judge",
            Says::json(&json!({"verdict": "replace", "answer": {"a": huge}})),
        ),
        ("gone", Says::never()),
        ("nobody", Says::never()),
    ];
    for (name, says) in answers {
        judge.answer({
            let says = says.clone();
            move |_| says.clone()
        });
        // Shorter where it never comes.
        let timeout = if says.is_never() { 300 } else { 20_000 };
        for mode in ["closed", "open"] {
            let options = json!({"on_failure": mode, "timeout_ms": timeout});
            ways.reload(&asking(&[plugin(name, &options)])).await;
            for got in ways.ask(&ways.question("Which birds?")).await {
                if mode == "open" {
                    let said = "You said: Which birds?";
                    assert_eq!((got.status, &*got.said()), (200, said), "{name} {says:?}");
                } else {
                    let code = code(&got);
                    assert_eq!(code, (503, "withheld_by_policy".into()), "{name} {got:?}");
                }
            }
        }
    }
    // By each answer that came by, whatever the mode.
    for (name, answers) in [("judge", 11), ("gone", 1), ("nobody", 1)] {
        let labels = [("route", "chat"), ("plugin", name)];
        let stats = ways.on.fleet.stats().await.unwrap();
        let failures = stats.filter("rolter_policy_plugin_failures", &labels);
        assert_eq!(failures, answers * 2 * 3, "{name}");
    }
    ways.is_sound().await;
}

#[tokio::test]
async fn a_reload_while_somebody_is_asked_loses_no_answer() {
    let engine = parrot().await;
    let judge = Server::start(|_| Says::never()).await;
    let policy = asking(&[plugin(
        "judge",
        &json!({"timeout_ms": 3_000, "on_failure": "open"}),
    )]);
    let setup = guarded(&engine, policy).cluster("judge", judge.addr());
    let mut cached = Cached::start(setup).await;
    for times in 1..=3 {
        let request = cached.request(CHAT, &chat("Which birds?"));
        let waiting = tokio::spawn(reply(request));
        while judge.asked() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let change = |config: &mut Value| {
            config["policy"]["plugins"][0]["path"] = json!(format!("/{times}"));
        };
        cached.fleet.reconfigure(change).await.unwrap();
        let got = waiting.await.unwrap();
        assert_eq!((got.status, &*got.said()), (200, "You said: Which birds?"));
    }
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn plugins_are_asked_in_order_and_each_sees_what_those_before_have_made() {
    let engine = parrot().await;
    let first = Server::start(replaces("birds", "fish")).await;
    let second = Server::start(replaces("fish", "trees")).await;
    let third = Server::start(allows).await;
    let policy = asking(&["first", "second", "third"].map(|name| plugin(name, &json!({}))));
    let setup = || {
        let setup = guarded(&engine, policy.clone()).cluster("first", first.addr());
        let setup = setup.cluster("second", second.addr());
        setup.cluster("third", third.addr())
    };
    let ways = Ways::start(setup).await;
    let question = ways.question("Which birds?");
    let content = "/answer/choices/0/message/content";
    let seen = |server: &Server| server.last().json().pointer(content).cloned();
    let got = ways.ask(&question).await;
    assert!(
        said(&got)
            .iter()
            .all(|said| said.1 == "You said: Which trees?")
    );
    assert_eq!(seen(&first), Some(json!("You said: Which birds?")));
    assert_eq!(seen(&second), Some(json!("You said: Which fish?")));
    assert_eq!(seen(&third), Some(json!("You said: Which trees?")));
    // Nobody is asked about what was blocked already, and who fails is left out.
    second.answer(blocks);
    let [_, exact, _] = ways.again(&question).await;
    assert_eq!(code(&exact).0, 403);
    assert_eq!([&first, &second, &third].map(Server::asked), [7, 7, 4]);
    ways.is_sound().await;
}

#[tokio::test]
async fn a_question_tells_what_the_request_is_and_where_the_answer_came_from() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let policy = asking(&[plugin("judge", &json!({"path": "/check?strict=1"}))]);
    let setup = || guarded(&engine, policy.clone()).cluster("judge", judge.addr());
    let ways = Ways::start(setup).await;
    let question = ways.question("Which \"birds\"?");
    let caller = format!("{:x}", Sha256::digest(ALICE));
    ways.ask(&question).await;
    let asked = judge.all();
    // Without a cache the engine is asked last but two here.
    let sources = ["upstream", "upstream", "exact", "semantic"];
    for (asked, source) in asked.iter().zip(sources) {
        assert_eq!(asked.path, "/check?strict=1");
        assert_eq!(asked.headers["content-type"], "application/json");
        let told = asked.json();
        let request = json!({
            "route": "chat", "api": "chat_completions", "model": "m", "caller": caller,
            "source": source,
        });
        assert_eq!(told["request"], request);
        let said = &told["answer"]["choices"][0]["message"]["content"];
        assert_eq!(said, "You said: Which \"birds\"?");
        // The answer's own bytes.
        assert!(asked.text().contains(r#"{ "odd":1.50e1, "object""#));
    }
    let anonymous = ways
        .off
        .anonymous("/v1/messages?beta=true")
        .json(&chat("hi"));
    assert_eq!(reply(anonymous).await.status, 200);
    let told = judge.last().json();
    assert_eq!(told["request"]["api"], "messages");
    assert_eq!(told["request"]["caller"], Value::Null);
    assert_eq!(told["answer"]["content"][0]["text"], "You said: hi");
    ways.is_sound().await;
}

#[tokio::test]
async fn routes_have_policies_of_their_own() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    let policy = asking(&[plugin("judge", &json!({}))]);
    let setup = guarded(&engine, policy).cluster("judge", judge.addr());
    let setup = with_cache(setup).configure(|config| {
        let mut birds = config["routes"][0].clone();
        birds["name"] = json!("birds");
        birds["match"]["models"] = json!(["bird-*"]);
        birds["policy"] = json!({"enabled": false});
        let routes = config["routes"].as_array_mut().unwrap();
        routes.insert(0, birds);
    });
    let cached = Cached::start(setup).await;
    for (model, status) in [("bird-1", 200), ("m", 403), ("bird-2", 200)] {
        let body = with(&chat("hello"), "/model", json!(model));
        for _ in 0..2 {
            assert_eq!(cached.ask(CHAT, &body).await.status, status, "{model}");
        }
    }
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_never_delivered() {
    let judge = Server::start(allows).await;
    let setup = setup(1, 1).guarded(asking(&[plugin("judge", &json!({}))]));
    let cached = Cached::start(setup.cluster("judge", judge.addr())).await;
    for fault in [
        "reset",
        "cut",
        "error",
        "stall",
        "reset-before-headers",
        "hang",
    ] {
        for _ in 0..2 {
            let caller = Caller::new(&cached.fleet);
            let request = caller.request(CHAT).json(&chat("hello"));
            let request = request.header("x-sim-fault", fault);
            let got = fetch(request.timeout(Duration::from_secs(1))).await;
            match got {
                Ok(got) if fault == "error" => assert_eq!(got.status, 200),
                Ok(got) => assert!(
                    fault == "cut" && got.status == 403 || got.status >= 500,
                    "{fault} {got:?}"
                ),
                Err(_) => {}
            }
        }
        is_sound(&cached.fleet).await;
    }
    assert_eq!(judge.asked(), 2);
    assert_eq!(cached.ask(CHAT, &chat("hello")).await.status, 200);
}

#[tokio::test]
async fn a_client_that_leaves_while_somebody_is_asked_leaves_nothing_behind() {
    let engine = parrot().await;
    let judge = Server::start(|_| Says::never()).await;
    let setup = guarded(&engine, asking(&[plugin("judge", &json!({}))]));
    let cached = Cached::start(setup.cluster("judge", judge.addr())).await;
    for times in 1..=5 {
        let caller = Caller::new(&cached.fleet);
        let request = caller.request(CHAT).json(&chat("hello"));
        let waiting = tokio::spawn(fetch(request));
        while judge.asked() < times {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        waiting.abort();
        drop(caller);
    }
    is_sound(&cached.fleet).await;
    judge.answer(allows);
    let got = cached.ask(CHAT, &chat("hello")).await;
    assert_eq!((got.status, &*got.said()), (200, "You said: hello"));
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn no_spelling_of_a_path_chooses_a_route_without_a_policy() {
    let engine = parrot().await;
    let judge = Server::start(blocks).await;
    let policy = asking(&[plugin("judge", &json!({}))]);
    let setup = guarded(&engine, policy).cluster("judge", judge.addr());
    let setup = setup.with("/routes/1/policy", json!({"enabled": false}));
    let cached = e2e::cached::Cached::start(setup).await;
    for (path, status) in [
        (CHAT, 403),
        ("/%761/chat/completions", 403),
        ("/%76%31/chat/completions", 403),
        ("//v1/chat/completions", 403),
        ("/v1%2Fchat/completions", 400),
        ("/%2fv1/chat/completions", 400),
        ("/v1%5cchat/completions", 400),
        // Another path, which is for the other route.
        ("/other/chat/completions", 200),
    ] {
        let got = cached.ask(path, &chat("hello")).await;
        assert_eq!(got.status, status, "{path}");
    }
    e2e::guarded::is_sound(&cached.fleet).await;
}
