//! Guardrails find the same in every answer, whether an engine has made it or the cache had it.

use e2e::CHAT;
use e2e::cached::{Cached, MESSAGES, Reply};
use e2e::guarded::{Ways, chat, code, guarded, is_sound, logged, parrot};
use e2e::server::Reply as Says;
use serde_json::{Value, json};

const WORDS: &str = "My secret is sk-abcdefgh, my bird a Bluebird, see https://example.com/.";

fn rule(name: &str, looks_for: &Value, action: &str) -> Value {
    let mut rule = json!({"name": name, "action": action});
    for (key, value) in looks_for.as_object().into_iter().flatten() {
        rule[key] = value.clone();
    }
    rule
}

fn secrets(action: &str) -> Value {
    rule("secrets", &json!({"pattern": "sk-[a-z]{8}"}), action)
}

fn birds(action: &str) -> Value {
    rule(
        "birds",
        &json!({"keywords": ["bluebird", "night heron"]}),
        action,
    )
}

fn policy(rules: &[Value]) -> Value {
    if rules.is_empty() {
        return json!({});
    }
    json!({"guardrails": rules})
}

/// The findings of a rule so far, whatever became of the answers.
async fn findings(cached: &Cached, rule: &str, wanted: u64) {
    let labels = [("route", "chat"), ("rule", rule)];
    let counted = |stats: &fleet::Stats| stats.filter("rolter_policy_findings", &labels);
    let stats = cached
        .fleet
        .stats_when(|stats| counted(stats) == wanted)
        .await;
    assert_eq!(counted(&stats.unwrap()), wanted, "{rule}");
}

#[tokio::test]
async fn a_rule_blocks_redacts_or_reports_whichever_way_an_answer_came() {
    let engine = parrot().await;
    let setup = || guarded(&engine, policy(&[]));
    let mut ways = Ways::start(setup).await;
    let question = ways.question(WORDS);
    ways.ask(&question).await;

    ways.reload(&policy(&[birds("report"), secrets("block")]))
        .await;
    let again = ways.again(&question).await;
    let fresh = ways.ask(&ways.question(WORDS)).await;
    for got in again.iter().chain(&fresh) {
        assert_eq!(code(got), (403, "withheld_by_policy".into()), "{got:?}");
        let text = got.text();
        assert!(
            text.contains("(secrets)") && !text.contains("sk-"),
            "{text}"
        );
    }
    findings(&ways.on, "secrets", 5).await;

    let mut redact = secrets("redact");
    redact["replacement"] = json!("\"***\"");
    ways.reload(&policy(&[redact, birds("redact")])).await;
    let again = ways.again(&question).await;
    let fresh = ways.ask(&ways.question(WORDS)).await;
    for got in again.iter().chain(&fresh) {
        let said =
            "You said: My secret is \"***\", my bird a [redacted], see https://example.com/.";
        assert_eq!((got.status, &*got.said()), (200, said));
        let bare = got.text().replace("\\\"***\\\"", "sk-abcdefgh");
        assert_eq!(bare.replace("[redacted]", "Bluebird"), with_number(got));
    }

    ways.reload(&policy(&[secrets("report"), birds("report")]))
        .await;
    let again = ways.again(&question).await;
    let fresh = ways.ask(&ways.question(WORDS)).await;
    for got in again.iter().chain(&fresh) {
        assert_eq!(
            (got.status, got.said()),
            (200, format!("You said: {WORDS}"))
        );
    }
    findings(&ways.on, "birds", 10).await;
    // What was redacted on its way to a client never was in the cache.
    ways.reload(&policy(&[])).await;
    for got in ways.again(&question).await {
        assert_eq!(got.said(), format!("You said: {WORDS}"));
    }
    ways.is_sound().await;
}

/// The answer as the engine has written it, with what it numbers its answers by.
fn with_number(got: &Reply) -> String {
    let answer: Value = serde_json::from_slice(&got.body).unwrap();
    let number = answer["id"].as_str().unwrap();
    let said = json!(format!("You said: {WORDS}"));
    format!(
        r#"{{ "odd":1.50e1, "object":"chat.completion","id" :"{number}", "created": 1,"model":"m",
          "choices":[{{"index":0,"message":{{"role":"assistant","content":{said}}},"finish_reason":
          "stop"}}],"usage":{{"prompt_tokens":11,"completion_tokens":7,
          "total_tokens":18,"prompt_tokens_details":{{"cached_tokens":5}}}}}}"#
    )
}

#[tokio::test]
async fn rules_apply_to_every_text_of_an_answer() {
    let engine = parrot().await;
    let rules = policy(&[birds("redact"), secrets("block")]);
    let cached = Cached::start(guarded(&engine, rules)).await;
    let chats = |message: Value| json!({"choices": [{"message": {"content": "hi"}}, message]});
    let (fine, redacted) = ("a bluebird", "a [redacted]");
    let texts: Vec<(&str, Value)> = vec![
        (CHAT, chats(json!({"message": {"content": fine}}))),
        (
            CHAT,
            chats(json!({"message": {"content": null, "reasoning_content": fine}})),
        ),
        (CHAT, chats(json!({"message": {"refusal": fine}}))),
        (
            CHAT,
            chats(json!({"message": {"content": [{"type": "text", "text": fine}]}})),
        ),
        (
            MESSAGES,
            json!({"content": [{"type": "thinking", "thinking": fine}]}),
        ),
        (
            MESSAGES,
            json!({"content": [{"type": "tool_use", "name": "n", "input": {"id": fine}}]}),
        ),
        (
            "/v1/responses",
            json!({"output": [{"type": "message", "content": [{"type": "output_text", "text": fine}]}]}),
        ),
        ("/v1/completions", json!({"choices": [{"text": fine}]})),
    ];
    for (path, answer) in texts {
        let whole = answer.to_string();
        let secret = whole.replace("bluebird", "sk-abcdefgh");
        engine.answer({
            let whole = whole.clone();
            move |_| Says::json(&whole)
        });
        let got = cached.ask(path, &chat("hi")).await;
        assert_eq!(
            (got.status, got.text()),
            (200, whole.replace(fine, redacted))
        );
        engine.answer(move |_| Says::json(&secret));
        let got = cached.ask(path, &chat("hi")).await;
        assert_eq!(code(&got), (403, "withheld_by_policy".into()), "{whole}");
    }
    // JSON within JSON stays JSON.
    let arguments = json!({"query": "bluebird \"and\" more"}).to_string();
    let call = json!([{"function": {"name": "find", "arguments": arguments}}]);
    let answer = chats(json!({"message": {"tool_calls": call}})).to_string();
    engine.answer(move |_| Says::json(&answer));
    let got: Value = serde_json::from_slice(&cached.ask(CHAT, &chat("hi")).await.body).unwrap();
    let arguments = &got["choices"][1]["message"]["tool_calls"][0]["function"]["arguments"];
    let arguments: Value = serde_json::from_str(arguments.as_str().unwrap()).unwrap();
    assert_eq!(arguments, json!({"query": "[redacted] \"and\" more"}));
    is_sound(&cached.fleet).await;
}

#[tokio::test]
async fn the_access_log_names_what_was_found_and_why_an_answer_is_withheld() {
    let engine = parrot().await;
    let rules = policy(&[birds("report"), secrets("report")]);
    let mut cached = Cached::start(guarded(&engine, rules)).await;
    cached.ask(CHAT, &chat(WORDS)).await;
    cached.ask(CHAT, &chat("Hello.")).await;
    let change = |config: &mut Value| {
        config["policy"] = policy(&[birds("report"), secrets("block")]);
    };
    cached.fleet.reconfigure(change).await.unwrap();
    cached.ask(CHAT, &chat(WORDS)).await;
    let log = logged(&cached, 3).await;
    let told =
        |line: &Value| ["status", "findings", "withheld", "route"].map(|key| line[key].clone());
    assert_eq!(
        told(&log[0]),
        [
            json!(200),
            json!("birds,secrets"),
            json!(null),
            json!("chat")
        ]
    );
    assert_eq!(
        told(&log[1]),
        [json!(200), json!(null), json!(null), json!("chat")]
    );
    let withheld = json!("guardrail:secrets");
    assert_eq!(
        told(&log[2]),
        [json!(403), json!("secrets"), withheld, json!("chat")]
    );
    assert!(!cached.fleet.log().contains("sk-"));
    is_sound(&cached.fleet).await;
}
