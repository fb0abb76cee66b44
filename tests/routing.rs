//! Where requests go.

use e2e::{Caller, all_know, all_released, answer, hang, in_flight, say, setup, start, text};
use serde_json::{Value, json};

/// The requests of a conversation in each dialect: a first one, and one that continues it.
fn conversations() -> Vec<(&'static str, &'static str, Value, Value)> {
    let (long, more) = (|name: &str| text(name, 16), text("more", 2));
    let turns = |name: &str| {
        json!([
            {"role": "user", "content": long(name)},
            {"role": "assistant", "content": "Yes."},
            {"role": "user", "content": more},
        ])
    };
    let first = |name: &str| json!([{"role": "user", "content": long(name)}]);
    let ids: Vec<u32> = (0..400).map(|n| n * 7919 % 32_000).collect();
    vec![
        (
            "chat",
            "/v1/chat/completions",
            json!({"model": "m", "messages": first("chat")}),
            json!({"messages": turns("chat"), "model": "m"}),
        ),
        (
            "chat in parts",
            "/v1/chat/completions",
            json!({"model": "m", "messages": [{"role": "user", "content": long("parts")}]}),
            json!({"model": "m", "messages": [
                {"content": [
                    {"type": "text", "text": long("parts")},
                    {"type": "text", "text": more},
                ], "role": "user"},
            ]}),
        ),
        (
            "streamed chat",
            "/v1/chat/completions",
            json!({"model": "m", "stream": true, "messages": first("stream")}),
            json!({"model": "m", "stream": true, "messages": turns("stream")}),
        ),
        (
            "completions",
            "/v1/completions",
            json!({"model": "m", "prompt": long("completions")}),
            json!({"model": "m", "prompt": long("completions") + &more}),
        ),
        (
            "completions of token ids",
            "/v1/completions",
            json!({"model": "m", "prompt": ids[..300]}),
            json!({"model": "m", "prompt": ids}),
        ),
        (
            "responses",
            "/v1/responses",
            json!({"model": "m", "input": "Hi", "instructions": long("responses")}),
            json!({"model": "m", "instructions": long("responses"), "input": [{"role": "user", "content": more}]}),
        ),
        (
            "messages",
            "/v1/messages",
            json!({"model": "m", "max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}], "system": long("messages")}),
            json!({"model": "m", "max_tokens": 8, "system": [{"type": "text", "text": long("messages")}], "messages": [{"role": "user", "content": "Ho"}]}),
        ),
        (
            "embeddings",
            "/v1/embeddings",
            json!({"model": "m", "input": long("embeddings")}),
            json!({"model": "m", "input": [long("embeddings"), "b"]}),
        ),
    ]
}

#[tokio::test]
async fn each_dialect_lands_where_its_prefix_is() {
    for workers in [1, 4] {
        let fleet = start(setup(3, workers)).await;
        let caller = Caller::new(&fleet);
        let mut homes = Vec::new();
        for (name, path, first, _) in &conversations() {
            let home = caller.send(path, first).await;
            assert_eq!(home.status, 200, "{name}: {home:?}");
            assert_eq!(home.pick().1, "miss", "{name}");
            homes.push(home.engine);
        }
        assert!(
            homes.iter().any(|home| *home != homes[0]),
            "all went to one engine"
        );
        // In another order, so that it is not the turn that decides.
        for (home, (name, path, _, next)) in homes.iter().zip(&conversations()).rev() {
            let next = caller.send(path, next).await;
            assert_eq!(next.status, 200, "{name}: {next:?}");
            assert_eq!(next.pick(), (home.as_str(), "affinity"), "{name}");
        }
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn an_engine_that_has_the_prefix_finds_it_in_its_cache() {
    let fleet = start(setup(4, 1)).await;
    let caller = Caller::new(&fleet);
    let system = text("system", 30);
    for question in 0..12 {
        let answer = caller.say(&format!("{system} Question {question}?")).await;
        assert_eq!(answer.status, 200);
    }
    let hits: Vec<_> = fleet
        .engines()
        .iter()
        .map(engine_sim::Engine::stats)
        .collect();
    let (hit, queried) = hits.iter().fold((0, 0), |(hit, queried), stats| {
        (
            hit + stats.prefix_hit_tokens,
            queried + stats.prefix_queried_tokens,
        )
    });
    // Eleven of twelve found all but the end of it.
    assert!(hit * 100 > queried * 80, "{hit} of {queried} tokens");
}

#[tokio::test]
async fn an_unrelated_prompt_does_not_follow() {
    for workers in [1, 4] {
        let fleet = start(setup(2, workers)).await;
        let caller = Caller::new(&fleet);
        // With a role, a model and JSON around it in common, and no more.
        let first = caller.say(&text("one", 16)).await;
        let other = caller.say(&text("two", 16)).await;
        assert_eq!(other.pick().1, "miss");
        assert_ne!(first.engine, other.engine);
    }
}

#[tokio::test]
async fn another_model_does_not_follow() {
    let fleet = start(setup(2, 1)).await;
    let caller = Caller::new(&fleet);
    let first = caller.say(&text("one", 16)).await;
    let mut body = say(&text("one", 16));
    body["model"] = json!("other");
    let other = caller.send(e2e::CHAT, &body).await;
    assert_eq!(other.pick().1, "miss");
    assert_ne!(first.engine, other.engine);
}

#[tokio::test]
async fn a_prompt_leaves_where_too_much_is_to_be_computed_before_it() {
    for workers in [1, 4] {
        let setup = setup(2, workers).with("/routes/0/cache_aware/miss_weight", 1);
        let fleet = start(setup).await;
        let caller = Caller::concurrent(&fleet);
        let prompt = text("hot", 16);
        let home = caller.say(&prompt).await.engine;
        let longer = prompt.clone() + &text("and more", 15);
        let hung = hang(&caller, &fleet, &home, &say(&longer), 1).await;
        let pending =
            |stats: &fleet::Stats| stats.filter("rolter_pending_tokens", &[("target", &home)]);
        let before = pending(&fleet.stats().await.unwrap());
        // About 15 blocks of 16 tokens.
        assert!((220..=260).contains(&before), "{before}");
        // What it lacks elsewhere, 16 blocks, is less than this.
        let more = hang(&caller, &fleet, &home, &say(&(longer + &text("on", 20))), 1).await;
        all_know().await;
        let away = caller.say(&prompt).await;
        assert_eq!(away.decision, "spill");
        assert_ne!(away.engine, home);
        drop((hung, more));
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn the_guard_spills_and_the_spill_sticks() {
    for workers in [1, 4] {
        let setup = setup(2, workers).with("/routes/0/cache_aware/balance_abs", 2);
        let fleet = start(setup).await;
        let caller = Caller::concurrent(&fleet);
        let prompt = text("hot", 16);
        let home = caller.say(&prompt).await.engine;
        let hung = hang(&caller, &fleet, &home, &say(&prompt), 3).await;
        let spill = caller.say(&prompt).await;
        assert_eq!(spill.pick().1, "spill");
        assert_ne!(spill.engine, home);
        let next = caller.say(&prompt).await;
        assert_eq!(next.pick(), (spill.engine.as_str(), "affinity"));
        drop(hung);
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn a_miss_avoids_what_other_workers_have_loaded() {
    let fleet = start(setup(3, 4)).await;
    let busy = Caller::concurrent(&fleet);
    let body = say(&text("busy", 16));
    let home = busy.send(e2e::CHAT, &body).await.engine;
    let hung = hang(&busy, &fleet, &home, &body, 2).await;
    // Each of these connections may be another worker's.
    for caller in 0..12 {
        let answer = Caller::new(&fleet)
            .say(&text(&format!("caller {caller}"), 16))
            .await;
        assert_ne!(answer.pick().0, home);
    }
    drop(hung);
    all_released(&fleet).await;
}

#[tokio::test]
async fn a_client_cannot_choose_the_upstream_nor_forge_a_receipt() {
    let forged = [
        ("x-rolter-cluster", "vllm-a"),
        ("X-Rolter-Cluster", "vllm-b"),
        ("x-gateway-destination-endpoint", "127.0.0.1:1"),
        ("x-rolter-target", "vllm-z"),
        ("x-rolter-decision", "affinity"),
        ("x-rolter-cache", "hit"),
    ];
    for workers in [1, 4] {
        let only_v1 = json!({"path_prefix": "/v1/"});
        let setup = setup(3, workers).configure(move |config| {
            config["routes"].as_array_mut().unwrap().truncate(1);
            config["routes"][0]["match"] = only_v1;
        });
        let fleet = start(setup).await;
        let caller = Caller::new(&fleet);
        let forge = |request: reqwest::RequestBuilder| {
            forged.iter().fold(request, |request, (name, value)| {
                request.header(*name, *value)
            })
        };
        let prompt = text("honest", 16);
        let home = caller.say(&prompt).await.engine;
        for _ in 0..4 {
            let request = forge(caller.request(e2e::CHAT).json(&say(&prompt)));
            assert_eq!(answer(request).await.pick(), (home.as_str(), "affinity"));
        }
        // Nor where no route of the filter is for the request.
        let unrouted = answer(forge(caller.bodiless("/sim/state"))).await;
        assert_eq!(
            (unrouted.status, unrouted.engine.as_str()),
            (503, ""),
            "{unrouted:?}"
        );
        for engine in fleet.engines() {
            for request in engine.recent_requests() {
                let seen = |(name, _): &(String, String)| {
                    name.starts_with("x-rolter") || name.starts_with("x-gateway")
                };
                assert!(!request.headers.iter().any(seen), "{:?}", request.headers);
            }
        }
    }
}

#[tokio::test]
async fn a_request_without_a_body_goes_to_the_least_loaded_engine() {
    let fleet = start(setup(2, 1)).await;
    let caller = Caller::concurrent(&fleet);
    let body = say(&text("busy", 16));
    let home = caller.send(e2e::CHAT, &body).await.engine;
    let hung = hang(&caller, &fleet, &home, &body, 1).await;
    for (path, reason) in [("/v1/models", "no_prompt"), ("/health", "least_load")] {
        let answer = answer(caller.bodiless(path)).await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.pick().1, reason, "{path}");
        assert_ne!(answer.engine, home, "{path}");
    }
    drop(hung);
}

#[tokio::test]
async fn the_first_route_that_matches_decides() {
    let setup = setup(3, 1).configure(|config| {
        config["routes"] = json!([
            {"name": "models", "strategy": "least_load", "targets": ["vllm-a"], "match": {"models": ["llama-*"], "path_prefix": "/v1/"}},
            {"name": "hosts", "strategy": "least_load", "targets": ["vllm-b"], "match": {"hosts": ["*.example.com"]}},
            {"name": "envoy", "strategy": "least_load", "targets": ["vllm-c"], "match": {"route_name": "engines", "path_prefix": "/v1/"}},
        ]);
    });
    let fleet = start(setup).await;
    let caller = Caller::new(&fleet);
    let send = |model: &'static str, host: &'static str| {
        let mut body = say("Hi");
        body["model"] = json!(model);
        answer(caller.request(e2e::CHAT).json(&body).header("host", host))
    };
    assert_eq!(send("llama-3", "x").await.engine, "vllm-a");
    assert_eq!(send("mistral", "LLM.example.com:80").await.engine, "vllm-b");
    assert_eq!(send("mistral", "x").await.engine, "vllm-c");
    // A body that tells no model goes to a route for any.
    let unreadable = answer(
        caller
            .request(e2e::CHAT)
            .body("garbage")
            .header("host", "x"),
    )
    .await;
    assert_eq!(unreadable.engine, "vllm-c");
}

#[tokio::test]
async fn round_robin_takes_turns() {
    let fleet = start(setup(3, 1).configure(|config| {
        let route = config["routes"][0].as_object_mut().unwrap();
        route.insert("strategy".into(), json!("round_robin"));
        route.remove("cache_aware");
    }))
    .await;
    let caller = Caller::new(&fleet);
    let mut engines = Vec::new();
    for _ in 0..6 {
        let answer = caller.say(&text("same", 16)).await;
        assert_eq!(answer.pick().1, "round_robin");
        engines.push(answer.engine);
    }
    let (first, second) = engines.split_at(3);
    assert_eq!(first, second);
    assert!(
        ["vllm-a", "vllm-b", "vllm-c"]
            .iter()
            .all(|name| first.contains(&(*name).to_owned()))
    );
}

#[tokio::test]
async fn requests_and_decisions_add_up_in_the_metrics() {
    let fleet = start(setup(3, 4)).await;
    for number in 0..10 {
        let caller = Caller::new(&fleet);
        for _ in 0..3 {
            caller.say(&text(&format!("caller {number}"), 16)).await;
        }
    }
    let held = |stats: &fleet::Stats| stats.filter("rolter_tree_text_bytes", &[("route", "chat")]);
    let stats = fleet
        .stats_when(|stats| held(stats) > 10_000)
        .await
        .unwrap();
    let decisions =
        |reason| stats.filter("rolter_decisions", &[("route", "chat"), ("reason", reason)]);
    assert_eq!(decisions("miss") + decisions("affinity"), 30);
    assert_eq!(
        decisions("affinity"),
        20,
        "the second and third of each connection"
    );
    for engine in fleet.engines() {
        let decided = stats.filter("rolter_decisions", &[("target", engine.name())]);
        assert_eq!(
            decided,
            engine.stats().served.values().sum::<u64>(),
            "{}",
            engine.name()
        );
        assert_eq!(in_flight(&stats, engine.name()), 0);
    }
    assert!(stats.filter("rolter_tree_memory_bytes", &[]) > held(&stats));
    assert!(stats.filter("rolter_tree_nodes", &[]) >= 10);
    assert!(stats.filter("rolter_tree_prompts", &[]) >= 10);
}
