//! The plugin that the documentation shows does what it says, and the metrics of the cache are those that
//! exist. All else that it shows is tested end to end.

use super::cached::{Cached, Request, answer, chat};
use super::redis_server::{RedisServer, free_port};
use super::support::within_patience;
use rolter_core::config::Config;
use rolter_core::policy::{Answer, Basis, Context, Policy, Ticket, Verdict};
use rolter_core::prompt::Dialect;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tokio::net::TcpStream;

/// All pages, one after the other.
fn pages() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::read_dir(docs)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect()
}

/// What is shown in a language.
fn shown<'a>(pages: &'a str, language: &str) -> Vec<&'a str> {
    let opening = format!("```{language}\n");
    let blocks = pages.split(&*opening).skip(1);
    let blocks: Vec<_> = blocks.filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty());
    blocks
}

/// The plugin of the documentation, until this is dropped.
struct Shown(Child);

impl Drop for Shown {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn the_plugin_of_the_documentation_does_what_it_says() {
    let pages = pages();
    let [plugin] = shown(&pages, "python")[..] else {
        panic!("one plugin")
    };
    let port = free_port();
    let mut python = Command::new("python3");
    python.args(["-c", plugin, &port.to_string()]);
    python.stderr(Stdio::null());
    let _shown = Shown(python.spawn().expect("python3 runs"));
    within_patience("the plugin listens", async {
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;

    let config = json!({
        "policy": {"plugins": [{"name": "names", "cluster": "names"}]},
        "providers": [{"name": "a", "cluster": "a"}],
        "routes": [{"name": "chat", "targets": ["a"]}],
    });
    let policy = Policy::new(&Config::read(&config).unwrap().policies[0]).unwrap();
    let context = Context {
        route: "chat".to_owned(),
        dialect: Some(Dialect::Chat),
        model: None,
        caller: None,
        basis: Basis::Upstream,
        ticket: Ticket::default(),
    };
    let client = rolter_sidecar::poll::client().unwrap();
    let ask = |says: Value| {
        let answer = Answer {
            body: json!({"choices": [{"message": {"content": says}}]}).to_string(),
            is_changed: false,
            findings: Vec::new(),
        };
        let question = policy.question(&answer, &context);
        let asked = client.post(format!("http://127.0.0.1:{port}/"));
        let asked = asked.body(question).send();
        let policy = &policy;
        async move {
            let reply = asked.await.unwrap();
            assert_eq!(reply.status(), 200);
            policy.verdict(&reply.bytes().await.unwrap())
        }
    };
    let blocked = ask("About Bluebird …".into()).await;
    let reason = "It names a project.".to_owned();
    assert_eq!(blocked, Some(Verdict::Block(reason)));
    let Some(Verdict::Replace(signed)) = ask("Hello".into()).await else {
        panic!("signed")
    };
    let signed: Value = serde_json::from_str(&signed).unwrap();
    let text = &signed["choices"][0]["message"]["content"];
    assert_eq!(text, "Hello\n\n(Written by a machine.)");
    assert_eq!(ask(Value::Null).await, Some(Verdict::Allow));
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_documented_one_of_the_cache_exists() {
    let pages = pages();
    let rows = pages
        .lines()
        .filter_map(|line| line.strip_prefix("| `rolter_sidecar_"));
    let names = rows.filter_map(|row| row.split('|').next());
    let documented: BTreeSet<String> = names
        .flat_map(|names| names.split('`').step_by(2))
        .map(|name| name.trim_start_matches("rolter_sidecar_"))
        .map(|name| name.trim_end_matches("_total").to_owned())
        .filter(|name| !name.trim().is_empty())
        .collect();
    let mut redis = RedisServer::start(&[]).await;
    let cached = Cached::in_redis(&redis.url()).await;
    cached.connected().await;
    // Metrics with labels are there once something has happened.
    let request = Request::new(&chat("hello"));
    cached.answered(&request, &answer("hi")).await;
    let ticket = cached.look_up(&Request::new(&chat("ho"))).await.ticket;
    let refused = cached.store(&ticket, "application/json", "cut").await;
    assert_eq!(refused.reason, "incomplete");
    let unread = cached.outcome(&Request::new(&"no JSON")).await;
    assert_eq!(unread, "unreadable");
    redis.kill();
    assert_eq!(cached.outcome(&request).await, "miss");
    let text = cached.exposition();
    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let names = types.filter_map(|line| line.split(' ').next());
    let existing: BTreeSet<String> = names
        .filter_map(|name| name.strip_prefix("rolter_sidecar_"))
        .map(str::to_owned)
        .collect();
    let unknown: Vec<_> = existing.difference(&documented).collect();
    assert!(unknown.is_empty(), "not documented: {unknown:?}");
    let of_the_cache = |names: &BTreeSet<String>| {
        let names = names.iter().filter(|name| name.starts_with("cache_"));
        names.cloned().collect::<Vec<_>>()
    };
    assert_eq!(of_the_cache(&documented), of_the_cache(&existing));
    cached.stop().await;
}
