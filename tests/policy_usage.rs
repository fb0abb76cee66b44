//! What answers have cost: those of engines what they say, delivered or not, and those of the cache
//! nothing.

use e2e::cached::{COMPLETIONS, Cached, EMBEDDINGS, each_api, with};
use e2e::guarded::{
    USED, Ways, allows, blocks, chat, guarded, is_sound, logged, parrot, plugin, with_cache,
};
use e2e::server::Server;
use e2e::{CHAT, setup};
use fleet::Stats;
use serde_json::{Value, json};

/// What a line of the access log says of the cost.
fn cost(line: &Value) -> [Value; 4] {
    [
        "cost_basis",
        "prompt_tokens",
        "completion_tokens",
        "cached_tokens",
    ]
    .map(|key| line[key].clone())
}

/// As they are in the access log.
fn billed([prompt, completion, of_cache]: [u64; 3]) -> [Value; 4] {
    let tokens = |tokens: u64| json!(tokens.to_string());
    [
        json!("upstream"),
        tokens(prompt),
        tokens(completion),
        tokens(of_cache),
    ]
}

fn saved() -> [Value; 4] {
    [json!("cache"), json!("0"), json!("0"), json!("0")]
}

fn tokens(stats: &Stats, basis: &str) -> [u64; 3] {
    ["prompt", "completion", "cached"].map(|kind| {
        let labels = [("route", "chat"), ("basis", basis), ("kind", kind)];
        stats.filter("rolter_tokens", &labels)
    })
}

#[tokio::test]
async fn a_refused_hit_costs_nothing_and_a_refused_answer_of_an_engine_what_it_has_used() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let policy = json!({"plugins": [plugin("judge", &json!({}))]});
    let setup = || guarded(&engine, policy.clone()).cluster("judge", judge.addr());
    let ways = Ways::start(setup).await;
    ways.ask(&ways.question("Which birds?")).await;
    judge.answer(blocks);
    for got in ways.ask(&ways.question("Which birds?")).await {
        assert_eq!(got.status, 403);
    }
    let on = logged(&ways.on, 6).await;
    for (place, line) in on.iter().enumerate() {
        let withheld = if place < 3 {
            json!(null)
        } else {
            json!("plugin:judge")
        };
        assert_eq!(line["withheld"], withheld);
        let cost_of = if place % 3 == 0 {
            billed(USED)
        } else {
            saved()
        };
        assert_eq!(cost(line), cost_of, "{place}");
    }
    for line in logged(&ways.off, 2).await {
        assert_eq!(cost(&line), billed(USED));
    }
    // Of what the cache has answered the metrics tell what it has saved.
    let [two, four] = [2, 4].map(|times| USED.map(|tokens| times * tokens));
    let stats = ways
        .on
        .fleet
        .stats_when(|stats| tokens(stats, "cache") == four)
        .await;
    let stats = stats.unwrap();
    assert_eq!(tokens(&stats, "upstream"), two);
    assert_eq!(tokens(&stats, "cache"), four);
    for (basis, outcome, count) in [
        ("upstream", "delivered", 1),
        ("upstream", "withheld", 1),
        ("cache", "delivered", 2),
        ("cache", "withheld", 2),
    ] {
        let labels = [("route", "chat"), ("basis", basis), ("outcome", outcome)];
        assert_eq!(stats.filter("rolter_policy_answers", &labels), count);
    }
    let labels = [("route", "chat"), ("reason", "plugin:judge")];
    assert_eq!(stats.filter("rolter_policy_withheld_answers", &labels), 3);
    ways.is_sound().await;
}

#[tokio::test]
async fn a_refused_request_costs_nothing_at_all() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let policy = json!({"plugins": [plugin("judge", &json!({}))]});
    let cached = Cached::start(guarded(&engine, policy).cluster("judge", judge.addr())).await;
    let body = with(&chat("hello"), "/stream", json!(true));
    assert_eq!(cached.ask(CHAT, &body).await.status, 400);
    let [line] = &logged(&cached, 1).await[..] else {
        panic!("one line");
    };
    assert_eq!(
        (&line["withheld"], &line["route"]),
        (&json!("stream"), &json!("chat"))
    );
    assert_eq!(cost(line), [const { Value::Null }; 4]);
    is_sound(&cached.fleet).await;
}

/// Each API tells it in another way, and those that stream it, at their end.
#[tokio::test]
async fn every_api_tells_what_its_answers_have_used() {
    let policy = json!({"on_stream": "skip", "guardrails": [
        {"name": "none", "pattern": "no such words", "action": "block"},
    ]});
    let cached = Cached::start(with_cache(setup(1, 1).guarded(policy))).await;
    let requests = each_api();
    for (path, body) in &requests {
        let mut body = body.clone();
        if body["stream"] == true && [CHAT, COMPLETIONS].contains(path) {
            body["stream_options"] = json!({"include_usage": true});
        }
        let first = cached.store(cached.request(path, &body), "exact").await;
        assert_eq!(cached.ask(path, &body).await.body, first.body);
    }
    let log = logged(&cached, 2 * requests.len()).await;
    for ((path, _), pair) in requests.iter().zip(log.chunks(2)) {
        let [live, hit] = pair else {
            panic!("two lines");
        };
        let used: Vec<u64> = cost(live)[1..3]
            .iter()
            .map(|tokens| tokens.as_str().unwrap_or_default().parse().unwrap())
            .collect();
        let has_words = *path != EMBEDDINGS;
        assert!(used[0] > 0 && (used[1] > 0) == has_words, "{path}: {live}");
        assert_eq!(live["cost_basis"], "upstream");
        assert_eq!(cost(hit), saved(), "{path}");
    }
    let stats = cached.fleet.stats().await.unwrap();
    assert_eq!(tokens(&stats, "upstream"), tokens(&stats, "cache"));
    is_sound(&cached.fleet).await;
}
