//! The configuration as Envoy takes it.

use e2e::validation::{shown, validate};
use e2e::{Caller, all_released, hang, say, setup, start, text};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

const DOCUMENTED: &str = include_str!("../envoy/envoy.yaml");
const POOL: &str = include_str!("../envoy/pool.yaml");
const POLICY: &str = include_str!("../envoy/policy.yaml");

/// The documented configuration with its plain YAML replaced by text, as control planes send it.
fn with_text(json: &str) -> String {
    let mut document: Value = serde_saphyr::from_str(DOCUMENTED).unwrap();
    let configuration = document
        .pointer_mut(
            "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters/0\
             /typed_config/config/configuration",
        )
        .unwrap();
    *configuration =
        json!({"@type": "type.googleapis.com/google.protobuf.StringValue", "value": json});
    document.to_string()
}

#[test]
fn the_documented_configurations_are_accepted_as_they_stand() {
    for documented in [DOCUMENTED, POOL, POLICY] {
        let output = validate(documented);
        assert!(output.status.success(), "{}", shown(&output));
    }
}

#[test]
fn json_text_is_accepted_like_plain_yaml() {
    let smallest = r#"{"providers": [{"name": "a", "cluster": "vllm-a"}], "routes": [{"name": "r", "targets": ["a"]}]}"#;
    let output = validate(&with_text(smallest));
    assert!(output.status.success(), "{}", shown(&output));
}

#[test]
fn a_refused_configuration_names_every_mistake_in_the_log() {
    let mistaken = DOCUMENTED
        .replace("targets: [vllm-a, vllm-b]", "targets: [vllm-a, vllm-x]")
        .replace("threshold: 0.5", "threshold: 5.5")
        .replace("debug_headers:", "debug_header:");
    let output = validate(&mistaken);
    assert!(!output.status.success());
    for problem in [
        "configuration refused: routes[0].targets[1]: no provider \"vllm-x\"; there are: vllm-a, vllm-b",
        "configuration refused: routes[1].targets[1]: no provider \"vllm-x\"; there are: vllm-a, vllm-b",
        "configuration refused: routes[0].cache_aware.threshold: 5.5; write a number from 0 to 1",
        "configuration refused: debug_header: unknown key",
    ] {
        assert!(
            shown(&output).contains(problem),
            "{problem}\nnot in {}",
            shown(&output)
        );
    }
    for text in ["", "{", "[]", "\u{0}"] {
        assert!(!validate(&with_text(text)).status.success(), "{text:?}");
    }
}

/// The YAML blocks of the README, in order.
fn readme_blocks() -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let readme = fs::read_to_string(root.join("README.md")).unwrap();
    let blocks = readme.split("```yaml\n").skip(1);
    let yaml = blocks.map(|rest| rest.split("```").next().unwrap());
    yaml.map(|yaml| serde_saphyr::from_str(yaml).unwrap())
        .collect()
}

#[test]
fn the_smallest_configuration_in_the_readme_is_valid() {
    let [filters, route] = &readme_blocks()[..] else {
        panic!("two blocks of YAML in README.md")
    };
    let mut document: Value = serde_saphyr::from_str(DOCUMENTED).unwrap();
    let manager = document
        .pointer_mut("/static_resources/listeners/0/filter_chains/0/filters/0/typed_config")
        .unwrap();
    manager["http_filters"] = filters.clone();
    manager["route_config"]["virtual_hosts"][0]["routes"] = route["routes"].clone();
    let output = validate(&document.to_string());
    assert!(output.status.success(), "{}", shown(&output));
}

#[tokio::test]
async fn the_metrics_have_labels_in_prometheus() {
    let fleet = start(setup(2, 1)).await;
    let answer = Caller::new(&fleet).say(&text("labels", 16)).await;
    all_released(&fleet).await;
    let metrics = fleet.ask_admin("/stats/prometheus").await.unwrap();
    for line in [
        format!(
            "rolter_decisions{{route=\"chat\",target=\"{}\",reason=\"miss\"}} 1",
            answer.engine
        ),
        format!(
            "rolter_in_flight{{target=\"{}\",vm=\"rolter\"}} 0",
            answer.engine
        ),
        "# TYPE rolter_tree_evictions counter".into(),
        "# TYPE rolter_decision_microseconds histogram".into(),
    ] {
        assert!(
            metrics.lines().any(|known| known == line),
            "{line}\nnot in {metrics}"
        );
    }
}

#[tokio::test]
async fn fields_for_the_access_log_are_there_unless_they_are_not_wanted() {
    for wanted in [true, false] {
        let rule = json!({"name": "any", "pattern": ".", "action": "report"});
        let setup = setup(2, 1).guarded(json!({"guardrails": [rule]}));
        let fleet = start(setup.with("/log_fields", wanted)).await;
        let answer = Caller::new(&fleet).say("Hi").await;
        // What is told to others than the log is told all the same, as the policy's word to the
        // filter that routes.
        assert_eq!((answer.status, answer.pick().1), (200, "miss"));
        let log = fleet.access_log(1).await;
        assert_eq!(log[0]["status"], 200);
        for field in [
            "route",
            "target",
            "reason",
            "tried",
            "match_percent",
            "prompt_bytes",
            "findings",
        ] {
            assert_eq!(!log[0][field].is_null(), wanted, "{field}: {}", log[0]);
        }
    }
}

#[tokio::test]
async fn neither_prompts_nor_keys_are_logged() {
    let fleet = start(setup(2, 1)).await;
    let caller = Caller::new(&fleet);
    let request = caller
        .request(e2e::CHAT)
        .header("authorization", "Bearer xyzzy-key");
    let body = e2e::say("the xyzzy of the prompt");
    assert_eq!(e2e::answer(request.json(&body)).await.status, 200);
    caller
        .request(e2e::CHAT)
        .body("the xyzzy of garbage")
        .send()
        .await
        .unwrap();
    drop(caller);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(15);
    // Envoy writes its access log with a delay.
    while !fleet.log().contains(e2e::CHAT) && std::time::Instant::now() < deadline {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let log = fleet.log();
    assert!(log.contains(e2e::CHAT), "{log}");
    assert!(!log.contains("xyzzy"), "{log}");
}

#[tokio::test]
async fn a_new_configuration_keeps_what_was_learnt_and_fails_no_request() {
    let mut fleet = start(setup(3, 1)).await;
    let caller = Caller::concurrent(&fleet);
    let prompts: Vec<String> = (0..6).map(|n| text(&format!("prompt {n}"), 16)).collect();
    let mut homes = Vec::new();
    for prompt in &prompts {
        homes.push(caller.say(prompt).await.engine);
    }
    // Requests under an old configuration keep it alive.
    let hung = hang(&caller, &fleet, &homes[0], &say(&prompts[0]), 1).await;
    let held = |stats: &fleet::Stats| stats.filter("rolter_tree_text_bytes", &[]);
    let before = held(&fleet.stats_when(|stats| held(stats) > 6_000).await.unwrap());
    for threshold in [0.4, 0.5, 0.6, 0.7] {
        fleet
            .reconfigure(|config| {
                config["routes"][0]["cache_aware"]["threshold"] = threshold.into();
            })
            .await
            .unwrap();
        for (prompt, home) in prompts.iter().zip(&homes) {
            let answer = caller.say(prompt).await;
            assert_eq!(answer.pick(), (home.as_str(), "affinity"), "{threshold}");
        }
    }
    drop(hung);
    all_released(&fleet).await;
    tokio::time::sleep(std::time::Duration::from_millis(1_500)).await;
    assert_eq!(
        held(&fleet.stats().await.unwrap()),
        before,
        "one tree, counted once"
    );
    assert!(!fleet.panicked(), "{}", fleet.log());
}

#[tokio::test]
async fn a_hundred_configurations_under_load_fail_no_request_and_lose_no_affinity() {
    let mut fleet = start(setup(4, 4)).await;
    let (stop, stopped) = tokio::sync::watch::channel(false);
    let clients: Vec<_> = (0..12_usize)
        .map(|client| {
            let caller = if client % 2 == 0 {
                Caller::new(&fleet)
            } else {
                Caller::concurrent(&fleet)
            };
            let stopped = stopped.clone();
            tokio::spawn(async move {
                let mut answers = Vec::new();
                while !*stopped.borrow() {
                    // Conversations of ten turns.
                    let turn = answers.len();
                    let mut prompt = text(&format!("{client} {}", turn / 10), 8);
                    prompt += &text("turns", turn % 10);
                    answers.push(caller.say(&prompt).await);
                }
                answers
            })
        })
        .collect();
    let settle = || tokio::time::sleep(std::time::Duration::from_secs(3));
    settle().await;
    let before = hit_rate(&fleet, None);
    let mark = tokens(&fleet);
    for round in 0..100 {
        fleet
            .reconfigure(|config| {
                // Something of the route, and now and then its targets' order and number.
                config["routes"][0]["cache_aware"]["balance_abs"] = (3 + round % 2).into();
                let targets = match round % 20 {
                    7 => json!(["vllm-d", "vllm-c", "vllm-b", "vllm-a"]),
                    13 => json!(["vllm-a", "vllm-b", "vllm-d"]),
                    _ => json!(["vllm-a", "vllm-b", "vllm-c", "vllm-d"]),
                };
                config["routes"][0]["targets"] = targets;
            })
            .await
            .unwrap();
    }
    let during = hit_rate(&fleet, Some(mark));
    let mark = tokens(&fleet);
    settle().await;
    let after = hit_rate(&fleet, Some(mark));
    stop.send(true).unwrap();
    let mut answers = 0;
    for client in clients {
        for answer in client.await.unwrap() {
            assert_eq!(answer.status, 200, "{answer:?}");
            assert_eq!(answer.engine, answer.target);
            answers += 1;
        }
    }
    eprintln!(
        "hit rate: {before:.1} % before, {during:.1} % during, {after:.1} % after; {answers} answers"
    );
    assert!(answers > 1_000, "{answers}");
    assert!(after > before - 5.0, "{before:.1} %, then {after:.1} %");
    all_released(&fleet).await;
    let stats = fleet
        .stats_when(|stats| {
            stats
                .labelled("rolter_in_flight_share")
                .all(|(_, share)| share == 0)
        })
        .await
        .unwrap();
    let shares: Vec<_> = stats.labelled("rolter_in_flight_share").collect();
    assert!(shares.iter().all(|(_, share)| *share == 0), "{shares:?}");
    assert!(!fleet.panicked(), "{}", fleet.log());
}

/// The tokens that engines looked up in their caches, and those that they found.
fn tokens(fleet: &fleet::Fleet) -> [u64; 2] {
    let stats = fleet.engines().iter().map(engine_sim::Engine::stats);
    stats.fold([0, 0], |[queried, hit], stats| {
        [
            queried + stats.prefix_queried_tokens,
            hit + stats.prefix_hit_tokens,
        ]
    })
}

/// The engines' hit rate in per cent since a mark.
#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds")]
fn hit_rate(fleet: &fleet::Fleet, since: Option<[u64; 2]>) -> f64 {
    let [queried, hit] = tokens(fleet);
    let [queried_before, hit_before] = since.unwrap_or_default();
    100.0 * (hit - hit_before) as f64 / (queried - queried_before).max(1) as f64
}
