//! What the chart renders for Istio, served: the patches on what istiod sends, in a real Envoy, to
//! engines, with a real sidecar.

use e2e::chart::mode;
use e2e::pods::Pods;
use e2e::rolled::{Rolled, ask, rolled, until_asked};
use e2e::{CHAT, Caller, all_released, answer, say, setup, start, text};
use engine_sim::Fault;
use fleet::{Fleet, Setup, Stats};
use serde_json::{Value, json};

const GATEWAY: &str = "istio-gateway";
const SIDECAR: &str = "istio-sidecar";

/// The values of a mode, for engines of which the chart knows no name.
fn values(name: &str) -> Value {
    let mut values = mode(name);
    // The setup has them.
    values["rolter"] = json!({});
    values["istio"]["host"] = json!("vllm.llm.svc.cluster.local");
    values["istio"]["hostPort"] = json!(8000);
    values
}

/// A setup whose routes are for what the chart has renamed.
fn named(setup: Setup) -> Setup {
    setup.configure(|config| {
        for route in config["routes"].as_array_mut().unwrap() {
            route["match"]["route_name"] = json!("engines");
        }
    })
}

async fn roll(setup: Setup, values: Value) -> (Fleet, tempfile::TempDir) {
    let Rolled { setup, folder } = rolled(setup, values);
    (start(setup).await, folder)
}

/// A prompt stays where its prefix is, and the sidecar is heard.
async fn is_at_home(fleet: &Fleet) {
    let home = ask(fleet, &text("home", 16)).await;
    assert_eq!((home.status, home.pick().1), (200, "miss"), "{home:?}");
    for _ in 0..3 {
        let next = ask(fleet, &text("home", 16)).await;
        assert_eq!(next.pick(), (home.engine.as_str(), "affinity"));
    }
    let hears = |stats: &Stats| stats.filter("rolter_feed_connected", &[]) == 1;
    assert!(hears(&fleet.stats_when(hears).await.unwrap()));
    all_released(fleet).await;
}

#[tokio::test]
async fn a_gateway_sends_a_prompt_where_its_prefix_is() {
    let (fleet, _files) = roll(setup(3, 2).pool().watched(), values(GATEWAY)).await;
    is_at_home(&fleet).await;
}

#[tokio::test]
async fn a_gateway_with_a_cluster_each_does_too() {
    let (fleet, _files) = roll(setup(3, 2).watched(), values(GATEWAY)).await;
    is_at_home(&fleet).await;
}

#[tokio::test]
async fn the_envoy_beside_a_client_does_too() {
    for pool in [true, false] {
        let setup = setup(3, 2).watched();
        let setup = if pool { setup.pool() } else { setup };
        let (fleet, _files) = roll(named(setup), values(SIDECAR)).await;
        is_at_home(&fleet).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_behind_a_name_come_and_go() {
    for name in [GATEWAY, SIDECAR] {
        let mut pods = Pods::new().ready(2);
        let (fleet, _files) = roll(named(pods.setup(2)), values(name)).await;
        until_asked(&fleet, &pods, &[1, 2]).await;
        is_at_home(&fleet).await;
        pods.start(3);
        pods.admit(3);
        pods.withdraw(1);
        until_asked(&fleet, &pods, &[2, 3]).await;
        all_released(&fleet).await;
    }
}

#[tokio::test]
async fn what_a_client_sends_elsewhere_is_left_alone() {
    let setup = named(setup(2, 1).pool().watched());
    let other = engine_sim::Engine::start(
        engine_sim::EngineConfig {
            name: "other".into(),
            ..setup.engines[0].clone()
        },
        ([127, 0, 0, 1], 0).into(),
    )
    .unwrap();
    let addr = other.addr();
    let Rolled { setup, folder } = rolled(setup, values(SIDECAR));
    let setup = setup.finish(move |document| {
        let clusters = document["static_resources"]["clusters"]
            .as_array_mut()
            .unwrap();
        let name = "outbound|8000||other.llm.svc.cluster.local";
        let cluster = clusters
            .iter_mut()
            .find(|known| known["name"] == name)
            .unwrap();
        let place = json!({"address": addr.ip().to_string(), "port_value": addr.port()});
        cluster["load_assignment"] = json!({"cluster_name": name, "endpoints": [{"lb_endpoints": [
            {"endpoint": {"address": {"socket_address": place}}}]}]});
    });
    let fleet = start(setup).await;
    let request = Caller::new(&fleet).request(CHAT).json(&say("Hi"));
    let got = answer(request.header("host", "other.llm:8000")).await;
    assert_eq!((got.status, &*got.engine, &*got.target), (200, "other", ""));
    drop(folder);
}

#[tokio::test]
async fn what_an_engine_does_not_answer_the_next_in_rank_does() {
    for name in [GATEWAY, SIDECAR] {
        let setup = named(setup(3, 1).pool().watched());
        let (fleet, _files) = roll(setup, values(name)).await;
        for fault in [Fault::ResetBeforeHeaders, Fault::Unavailable(None)] {
            let prompt = text(&format!("{fault}"), 16);
            let home = ask(&fleet, &prompt).await;
            let engines = fleet.engines().iter();
            let mut at_home = engines.filter(|known| known.name() == home.engine);
            let engine = at_home.next().unwrap();
            engine.set_fault(Some(fault));
            let moved = ask(&fleet, &prompt).await;
            assert_eq!(moved.status, 200, "{name}, {fault}: {moved:?}");
            assert_ne!(moved.engine, home.engine, "{name}, {fault}");
            engine.set_fault(None);
        }
    }
}

#[tokio::test]
async fn a_policy_comes_before_the_cache_and_the_engines() {
    for pool in [true, false] {
        let setup = setup(2, 1).watched().cached().configure(|config| {
            let rule = json!({"name": "words", "pattern": "[a-z]", "action": "block"});
            config["policy"] = json!({"guardrails": [rule]});
        });
        let setup = if pool { setup.pool() } else { setup };
        let (fleet, _files) = roll(setup, values(GATEWAY)).await;
        let withheld = ask(&fleet, "Say something.").await;
        assert_ne!(withheld.status, 200, "{withheld:?}");
        assert!(withheld.body.contains("words"), "{withheld:?}");
        // One spelling for each path.
        let escaped = Caller::new(&fleet).request("/v1%2Fchat/completions");
        assert_eq!(answer(escaped.json(&say("Hi"))).await.status, 400);
    }
}

#[tokio::test]
async fn what_was_asked_before_the_cache_answers() {
    let (fleet, _files) = roll(setup(2, 1).pool().cached(), values(GATEWAY)).await;
    let caller = Caller::new(&fleet);
    let ask = || {
        let request = caller.request(CHAT).json(&say("Again?"));
        request.header("authorization", "Bearer me").send()
    };
    let cached = |response: &reqwest::Response| {
        let cache = response.headers().get("x-rolter-cache");
        cache.is_some_and(|cache| cache == "hit")
    };
    for _ in 0..100 {
        if cached(&ask().await.unwrap()) {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("it never does: {}", fleet.sidecar_log());
}

#[tokio::test]
async fn metrics_have_labels() {
    let (fleet, _files) = roll(setup(1, 1).pool().watched(), values(GATEWAY)).await;
    assert_eq!(ask(&fleet, "Hi").await.status, 200);
    let mut told = String::new();
    for _ in 0..100 {
        told = fleet.ask_admin("/stats/prometheus").await.unwrap();
        if told.contains("rolter_outcomes{") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    let lines = told.lines().filter(|line| line.contains("rolter_outcomes"));
    let lines: Vec<&str> = lines.collect();
    assert!(
        lines.iter().any(|line| line.contains("target=\"vllm-a\"") && line.contains("outcome=\"answered\"")),
        "{lines:?}"
    );
}
