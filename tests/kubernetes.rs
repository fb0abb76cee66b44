//! What the chart renders without Istio, served; and how pods of it end.

use e2e::chart::{Rendered, mode, render};
use e2e::pods::Pods;
use e2e::rolled::{Rolled, rolled, until_asked};
use e2e::{CHAT, Caller, all_released, answer, hang, say, setup, start, text};
use fleet::{Fleet, Setup, envoy_binary};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn values() -> Value {
    let mut values = mode("envoy");
    values["rolter"] = json!({});
    values
}

async fn roll(setup: Setup) -> (Fleet, SocketAddr) {
    // Envoy's own metrics come from its admin interface, whose port stands in a cluster.
    let admin = TcpListener::bind(("127.0.0.1", 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let Rolled { setup, folder: _ } = rolled(setup, values());
    let setup = setup.finish(move |document| {
        document["admin"]["address"]["socket_address"]["port_value"] = json!(admin.port());
        let clusters = document["static_resources"]["clusters"]
            .as_array_mut()
            .unwrap();
        let cluster = clusters
            .iter_mut()
            .find(|known| known["name"] == "admin")
            .unwrap();
        let place = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address";
        let address = cluster.pointer_mut(place).unwrap();
        assert_eq!(
            *address,
            json!({"address": "127.0.0.1", "port_value": 9901})
        );
        address["port_value"] = json!(admin.port());
    });
    let fleet = start(setup).await;
    let listeners = fleet.ask_admin("/listeners?format=json").await.unwrap();
    let listeners: Value = serde_json::from_str(&listeners).unwrap();
    let mut listeners = listeners["listener_statuses"].as_array().unwrap().iter();
    let metrics = listeners.find(|known| known["name"] == "metrics").unwrap();
    let address = &metrics["local_address"]["socket_address"];
    let port = address["port_value"].as_u64().unwrap();
    let metrics = format!("127.0.0.1:{port}").parse().unwrap();
    (fleet, metrics)
}

async fn status(method: reqwest::Method, metrics: SocketAddr, path: &str) -> u16 {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let request = client.request(method, format!("http://{metrics}{path}"));
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test]
async fn a_prompt_lands_where_its_prefix_is() {
    for pool in [true, false] {
        let setup = setup(3, 2).watched();
        let (fleet, _) = roll(if pool { setup.pool() } else { setup }).await;
        let caller = Caller::new(&fleet);
        let home = caller.say(&text("home", 16)).await;
        assert_eq!((home.status, home.pick().1), (200, "miss"));
        for _ in 0..3 {
            let next = caller.say(&text("home", 16)).await;
            assert_eq!(next.pick(), (home.engine.as_str(), "affinity"));
        }
        let hears = |stats: &fleet::Stats| stats.filter("rolter_feed_connected", &[]) == 1;
        assert!(hears(&fleet.stats_when(hears).await.unwrap()));
        all_released(&fleet).await;
        let log = fleet.access_log(4).await;
        assert_eq!(log.last().unwrap()["reason"], "affinity");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_behind_a_name_come_and_go() {
    let mut pods = Pods::new().ready(2);
    let (fleet, _) = roll(pods.setup(2)).await;
    until_asked(&fleet, &pods, &[1, 2]).await;
    pods.start(3);
    pods.admit(3);
    pods.withdraw(1);
    until_asked(&fleet, &pods, &[2, 3]).await;
    all_released(&fleet).await;
}

/// What becomes of a chat while the sidecar has found no address behind the name, and Envoy has one.
async fn early(setup: impl Fn(Setup) -> Setup) -> (u16, bool) {
    let mut pods = Pods::new();
    let target = pods.start(1);
    pods.fail_names();
    let address = target.strip_prefix("vllm/").unwrap().to_owned();
    let Rolled { setup, folder: _ } = rolled(setup(pods.setup(1)), values());
    let setup = setup.finish(move |document| {
        let place = "/static_resources/clusters/0/load_assignment/endpoints/0/lb_endpoints/0\
                     /endpoint/address/socket_address/address";
        let (ip, _) = address.split_once(':').unwrap();
        *document.pointer_mut(place).unwrap() = json!(ip);
    });
    let fleet = start(setup).await;
    let request = Caller::new(&fleet).request(CHAT).json(&say("Hello?"));
    let answer = answer(request.header("authorization", "Bearer me")).await;
    assert_eq!(answer.target, "");
    (answer.status, answer.engine == target)
}

#[tokio::test(flavor = "multi_thread")]
async fn until_names_are_known_any_engine_serves_but_not_where_callers_are_told_apart() {
    assert_eq!(early(|setup| setup).await, (200, true));
    let told_apart = |setup: Setup| {
        setup.configure(|config| {
            config["providers"][0]["allowed_keys"] = json!([format!("{:x}", Sha256::digest("me"))]);
        })
    };
    assert_eq!(early(told_apart).await, (503, false));
}

#[tokio::test]
async fn a_policy_is_passed_over_answers() {
    let setup = setup(2, 1).pool().cached().configure(|config| {
        let rule = json!({"name": "words", "pattern": "[a-z]", "action": "block"});
        config["policy"] = json!({"guardrails": [rule]});
    });
    let (fleet, _) = roll(setup).await;
    let withheld = Caller::new(&fleet).say("Say something.").await;
    assert_ne!(withheld.status, 200);
    assert!(withheld.body.contains("words"), "{withheld:?}");
}

#[tokio::test]
async fn of_the_admin_interface_others_reach_no_more_than_metrics() {
    use reqwest::Method;
    let (fleet, metrics) = roll(setup(1, 1).pool().watched()).await;
    assert_eq!(status(Method::GET, metrics, "/ready").await, 200);
    assert_eq!(status(Method::GET, metrics, "/stats/prometheus").await, 200);
    for (method, path) in [
        (Method::POST, "/quitquitquit"),
        (Method::POST, "/ready"),
        (Method::GET, "/config_dump"),
        (Method::GET, "/ready/../config_dump"),
        (Method::GET, "/"),
    ] {
        assert_eq!(status(method, metrics, path).await, 404, "{path}");
    }
    drop(fleet);
}

/// The hook by which the pods of an object end.
fn hook(rendered: &Rendered, kind: &str) -> Vec<String> {
    let object = rendered.of_kind(kind)[0];
    let container = &object["spec"]["template"]["spec"]["containers"][0];
    let command = &container["lifecycle"]["preStop"]["exec"]["command"];
    let command = command.as_array().unwrap().iter();
    command
        .map(|word| word.as_str().unwrap().to_owned())
        .collect()
}

fn run(hook: &[String]) -> Child {
    let mut command = Command::new(&hook[0]);
    command
        .args(&hook[1..])
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

async fn ends(child: &mut Child) -> bool {
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if child.try_wait().unwrap().is_some() {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    false
}

#[tokio::test]
async fn a_pod_that_ends_waits_for_the_answers_that_are_under_way() {
    let (fleet, metrics) = roll(setup(1, 1).pool().watched()).await;
    let hook = hook(&render(&mode("envoy")).unwrap(), "Deployment");
    let hook: Vec<String> = hook
        .iter()
        .map(|word| {
            let port = fleet.admin().port().to_string();
            word.replace("9901", &port).replace("sleep 5", "sleep 0")
        })
        .collect();
    let caller = Caller::new(&fleet);
    let hung = hang(&caller, &fleet, "vllm-a", &say("Hang."), 1).await;
    let mut ending = run(&hook);
    // It has told everybody.
    let start = Instant::now();
    while status(reqwest::Method::GET, metrics, "/ready").await == 200 {
        assert!(start.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let last = caller.request(CHAT).json(&say("Hi")).send().await.unwrap();
    assert_eq!(last.status(), 200);
    assert_eq!(last.headers()["connection"], "close");
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        ending.try_wait().unwrap().is_none(),
        "it left a request behind"
    );
    drop(hung);
    drop((caller, last));
    assert!(ends(&mut ending).await);
}

#[tokio::test]
async fn an_engine_that_ends_waits_for_the_answers_that_are_under_way() {
    let mut setup = setup(1, 1).pool();
    setup.engines[0].decode_time_per_token = Duration::from_millis(20);
    let fleet = start(setup).await;
    let engine = fleet.engines()[0].addr().to_string();
    let hook = hook(&render(&mode("engines")).unwrap(), "StatefulSet");
    let hook: Vec<String> = hook
        .iter()
        .map(|word| {
            let word = word.replace("127.0.0.1:8000", &engine);
            word.replace("time.sleep(15)", "time.sleep(0)")
        })
        .collect();
    let mut body = say("Tell me a long story.");
    body["stream"] = true.into();
    body["max_tokens"] = 1_000_000.into();
    let request = Caller::new(&fleet).request(CHAT).json(&body);
    let story = request.send().await.unwrap();
    assert_eq!(story.status(), 200);
    let mut ending = run(&hook);
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(
        ending.try_wait().unwrap().is_none(),
        "it left a request behind"
    );
    drop(story);
    assert!(ends(&mut ending).await);
}

#[test]
fn envoy_takes_the_arguments_of_its_container() {
    let rendered = render(&mode("envoy")).unwrap();
    let pod = &rendered.of_kind("Deployment")[0]["spec"]["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array().unwrap().iter();
    let arguments = arguments.map(|word| word.as_str().unwrap());
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("envoy.yaml");
    let module = fleet::module().unwrap().display().to_string();
    let text = rendered.entry("envoy.yaml");
    std::fs::write(
        &file,
        text.replace("/etc/rolter-filter/plugin.wasm", &module),
    )
    .unwrap();
    let output = Command::new(envoy_binary().unwrap())
        .args(arguments.map(|word| word.replace("/etc/rolter/envoy.yaml", file.to_str().unwrap())))
        .args(["--mode", "validate", "--use-dynamic-base-id"])
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{told}");
}
