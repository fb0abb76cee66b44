//! What users of other balancers complain of, on a real Envoy with real connections. Complaints
//! about choosing alone are tested beside the strategies.

use e2e::{
    CHAT, Caller, all_in_flight, all_know, all_released, answer, hang, in_flight, say, setup,
    start, strategy, text,
};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn load_counts_before_the_first_byte_of_the_answer_and_on_every_endpoint() {
    let fleet = start(strategy(setup(2, 4), "least_load")).await;
    for engine in fleet.engines() {
        engine.set_fault(Some(engine_sim::Fault::Hang));
    }
    let caller = Caller::concurrent(&fleet);
    let mut hung = tokio::task::JoinSet::new();
    let paths = [
        CHAT,
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/embeddings",
        "/v1/audio/transcriptions",
        "/tokenize",
        "/v1/models",
    ];
    for (number, path) in (1..).zip(paths) {
        let request = caller.request(path).json(&say("Hi"));
        hung.spawn(async move {
            let _ = request.send().await;
        });
        let stats = fleet
            .stats_when(|stats| all_in_flight(stats) == number)
            .await
            .unwrap();
        assert_eq!(all_in_flight(&stats), number, "{path}");
        let difference = in_flight(&stats, "vllm-a").abs_diff(in_flight(&stats, "vllm-b"));
        assert!(
            difference <= 1,
            "not all on one replica: {difference} after {path}"
        );
    }
    drop(hung);
    all_released(&fleet).await;
}

#[tokio::test]
async fn no_worker_sees_only_its_part_of_the_load_and_of_the_prompts() {
    let setup = setup(2, 4).with("/routes/0/cache_aware/balance_abs", 2);
    let fleet = start(setup).await;
    let prompt = text("seen by one", 40);
    let home = Caller::new(&fleet).say(&prompt).await.engine;
    all_know().await;
    // Three requests on one connection are on one worker …
    let caller = Caller::concurrent(&fleet);
    let hung = hang(&caller, &fleet, &home, &say(&prompt), 3).await;
    // … and any other knows of them, and of the prompt.
    for round in 0..16 {
        let spilled = Caller::new(&fleet).say(&prompt).await;
        assert_ne!(spilled.engine, home);
        let unrelated = Caller::new(&fleet)
            .say(&text(&format!("unrelated {round}"), 4))
            .await;
        assert_ne!(unrelated.engine, home);
    }
    drop(hung);
    all_released(&fleet).await;
}

#[tokio::test]
async fn the_envelope_of_the_json_is_no_reason_for_affinity() {
    let fleet = start(setup(4, 1)).await;
    let caller = Caller::new(&fleet);
    for number in 0..12 {
        let mut body = say(&text(&format!("question {number}"), 2));
        body["temperature"] = json!(0.7);
        body["metadata"] = json!({"application": text("the same for all", 50)});
        let answer = caller.send(CHAT, &body).await;
        assert_eq!(answer.decision, "miss", "{number}");
    }
}

#[tokio::test]
async fn a_slow_replica_does_not_keep_winning_because_it_is_cold() {
    let fleet = start(setup(3, 2)).await;
    fleet.engines()[0].set_fault(Some("slow=400".parse().unwrap()));
    let requests = (0..60_u64).map(|number| {
        let caller = Caller::new(&fleet);
        async move {
            tokio::time::sleep(Duration::from_millis(number * 10)).await;
            caller.say(&text(&format!("cold {number}"), 8)).await.engine
        }
    });
    let engines = futures_util::future::join_all(requests).await;
    let slow = engines.iter().filter(|engine| *engine == "vllm-a").count();
    // A third if load did not count; what arrives while one is there goes elsewhere.
    assert!(slow < 15, "{slow} of 60 waited for the slow one");
}

#[tokio::test]
async fn one_shared_prefix_does_not_pile_up_on_one_replica() {
    for strategy_name in ["cache_aware", "pipeline"] {
        let setup = match strategy_name {
            "pipeline" => strategy(setup(4, 2), "pipeline"),
            _ => setup(4, 2),
        };
        let fleet = start(setup).await;
        for engine in fleet.engines() {
            // So long that all are under way at once, on a busy machine too.
            engine.set_fault(Some("slow=1000".parse().unwrap()));
        }
        let system = text("system", 100);
        let requests = (0..48).map(|number| {
            let caller = Caller::new(&fleet);
            let prompt = format!("{system} {number}?");
            async move { caller.say(&prompt).await.engine }
        });
        let engines = futures_util::future::join_all(requests).await;
        for engine in fleet.engines() {
            let got = engines.iter().filter(|name| *name == engine.name()).count();
            // Twelve each, give or take; all of them, or none, without a guard.
            assert!((4..=24).contains(&got), "{strategy_name}: {engines:?}");
        }
    }
}

#[tokio::test]
async fn each_decision_has_a_reason_in_metrics_log_and_receipt() {
    let fleet = start(setup(2, 1)).await;
    let caller = Caller::new(&fleet);
    let prompt = text("receipt", 16);
    for reason in ["miss", "affinity"] {
        let answer = caller.say(&prompt).await;
        assert_eq!(answer.pick().1, reason);
        let labels = [
            ("route", "chat"),
            ("target", &*answer.engine),
            ("reason", reason),
        ];
        let stats = fleet.stats().await.unwrap();
        assert_eq!(stats.filter("rolter_decisions", &labels), 1, "{reason}");
    }
    let bodiless = answer(caller.bodiless("/v1/models")).await;
    assert_eq!(bodiless.pick().1, "no_prompt");
    let log = fleet.access_log(3).await;
    let field = |line: usize, name: &str| log[line][name].as_str().unwrap_or("").to_owned();
    for (line, reason, matched) in [
        (0, "miss", "0"),
        (1, "affinity", "100"),
        (2, "no_prompt", ""),
    ] {
        assert_eq!(field(line, "route"), "chat");
        assert!(field(line, "target").starts_with("vllm-"), "{log:?}");
        assert_eq!(field(line, "reason"), reason);
        assert_eq!(field(line, "match_percent"), matched);
        assert_eq!(field(line, "tried"), "1");
    }
    assert!(field(0, "prompt_bytes").parse::<usize>().unwrap() >= 16 * 64);
}
