//! What the documentation shows is accepted, and what it names exists.

use super::cached::{Cached, Request, answer, chat};
use super::redis_server::RedisServer;
use rolter_sidecar::document;
use std::collections::BTreeSet;
use std::path::Path;

/// All pages, one after the other.
fn pages() -> String {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    std::fs::read_dir(docs)
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect()
}

#[test]
fn each_configuration_of_the_documentation_is_accepted() {
    let text = pages();
    let blocks: Vec<_> = text
        .split("```yaml\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .collect();
    assert!(!blocks.is_empty());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("configuration.yaml");
    for block in blocks {
        std::fs::write(&file, block).unwrap();
        if let Err(error) = document::read(&file) {
            panic!("{error}\nin\n{block}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_is_documented_and_every_documented_one_of_the_cache_exists() {
    let pages = pages();
    // A table of the sidecar's names begins with a sentence that says what they begin with.
    let tables = pages.split("names begin with `rolter_sidecar_`:").skip(1);
    let rows = tables.flat_map(|table| {
        let lines = table.lines().skip_while(|line| !line.starts_with('|'));
        lines.take_while(|line| line.starts_with('|')).skip(2)
    });
    let names = rows.filter_map(|row| row.split('|').nth(1));
    let documented: BTreeSet<String> = names
        .flat_map(|names| names.split('`').skip(1).step_by(2))
        .map(|name| name.trim_end_matches("_total").to_owned())
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
