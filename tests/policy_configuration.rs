//! A policy is never left out by mistake: without its filter, or with that in the wrong place, Envoy
//! refuses the configuration, and what gets past that is refused request by request.

use e2e::CHAT;
use e2e::cached::{ALICE, Cached, reply};
use e2e::guarded::{allows, chat, code, guarded, is_sound, parrot, plugin, with_cache};
use e2e::server::Server;
use e2e::validation::{shown, validate};
use fleet::Fleet;
use serde_json::{Value, json};

const DOCUMENTED: &str = include_str!("../envoy/policy.yaml");
const FILTERS: &str =
    "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";

fn filters(document: &mut Value) -> &mut Vec<Value> {
    let filters = document.pointer_mut(FILTERS).unwrap();
    filters.as_array_mut().unwrap()
}

#[test]
fn a_policy_is_refused_where_nothing_would_pass_it_over_answers() {
    type Change = fn(&mut Value);
    let changes: [(&str, Change); 4] = [
        ("missing", |document| {
            filters(document).remove(0);
        }),
        ("below", |document| filters(document).swap(0, 1)),
        ("routing twice", |document| {
            let filters = filters(document);
            let root = "/typed_config/config/root_id";
            *filters[0].pointer_mut(root).unwrap() = json!("rolter");
        }),
        ("in another VM", |document| {
            let filters = filters(document);
            let vm = "/typed_config/config/vm_config/vm_id";
            *filters[0].pointer_mut(vm).unwrap() = json!("other");
        }),
    ];
    for (name, change) in changes {
        let mut document: Value = serde_saphyr::from_str(DOCUMENTED).unwrap();
        change(&mut document);
        let output = validate(&document.to_string());
        assert!(!output.status.success(), "{name}: {}", shown(&output));
        for part in [
            "configuration refused: policy: nothing would pass it over requests and answers",
            "in http_filters, put a filter with the same module, vm_id and configuration and with \
             root_id: rolter_policy somewhere before the one with root_id: rolter",
        ] {
            assert!(shown(&output).contains(part), "{name}: {}", shown(&output));
        }
        // Without a policy there is nothing to be left out.
        for filter in filters(&mut document) {
            let policy = "/typed_config/config/configuration/value/policy";
            if let Some(policy) = filter.pointer_mut(policy) {
                *policy = json!({"enabled": false});
            }
        }
        let output = validate(&document.to_string());
        assert!(output.status.success(), "{name}: {}", shown(&output));
    }
}

#[test]
fn both_filters_name_every_mistake_of_a_policy() {
    let mistaken = DOCUMENTED
        .replace("action: block", "action: hide")
        .replace("on_failure: closed", "on_failure: maybe")
        .replace("on_stream: refuse", "on_stream: ignore")
        .replace("kinds: [email,", "kinds: [mail,");
    let output = validate(&mistaken);
    assert!(!output.status.success());
    for problem in [
        "configuration refused: policy.guardrails[0].action:",
        "configuration refused: policy.plugins[0].on_failure:",
        "configuration refused: policy.on_stream:",
        "configuration refused: policy.pii.kinds[0]: \"mail\"; write one of: email, phone",
    ] {
        assert!(
            shown(&output).contains(problem),
            "{problem}\n{}",
            shown(&output)
        );
    }
}

/// The URL of a path behind the listener of this name.
async fn url(fleet: &Fleet, listener: &str, path: &str) -> String {
    let listeners = fleet.ask_admin("/listeners?format=json").await.unwrap();
    let listeners: Value = serde_json::from_str(&listeners).unwrap();
    let statuses = listeners["listener_statuses"].as_array().unwrap();
    let found = statuses.iter().find(|status| status["name"] == listener);
    let port = &found.unwrap()["local_address"]["socket_address"]["port_value"];
    format!("http://127.0.0.1:{port}{path}")
}

/// Another listener for the same filters, with a change to their list. When the filter that routes
/// is configured there, the one of the policy has been, elsewhere.
fn another(document: &mut Value, name: &str, change: impl FnOnce(&mut Vec<Value>)) {
    let listeners = document["static_resources"]["listeners"].as_array_mut();
    let listeners = listeners.unwrap();
    let mut other = listeners[0].clone();
    other["name"] = json!(name);
    let filters = "/filter_chains/0/filters/0/typed_config/http_filters";
    change(other.pointer_mut(filters).unwrap().as_array_mut().unwrap());
    listeners.push(other);
}

#[tokio::test]
async fn a_request_that_no_policy_has_been_over_is_refused_and_answered_by_nobody() {
    for workers in [1, 4] {
        let engine = parrot().await;
        let judge = Server::start(allows).await;
        let policy = json!({"plugins": [plugin("judge", &json!({}))]});
        let setup = with_cache(guarded(&engine, policy)).workers(workers);
        let setup = setup.cluster("judge", judge.addr()).finish(|document| {
            another(document, "missing", |filters| {
                filters.remove(0);
            });
            another(document, "below", |filters| filters.swap(0, 1));
        });
        let cached = Cached::start(setup).await;
        let body = chat("hello");
        cached.store(cached.request(CHAT, &body), "exact").await;
        assert_eq!(cached.ask(CHAT, &body).await.cache, "hit");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        for listener in ["missing", "below"] {
            for question in ["hello", "something else"] {
                for path in [CHAT, "/v1/embeddings", "/tokenize"] {
                    let url = url(&cached.fleet, listener, path).await;
                    let request = client.post(url).bearer_auth(ALICE).json(&chat(question));
                    let got = reply(request).await;
                    assert_eq!(code(&got), (500, "no_policy_filter".into()), "{got:?}");
                }
            }
            let models = url(&cached.fleet, listener, "/v1/models").await;
            assert_eq!(code(&reply(client.get(models)).await).0, 500);
        }
        assert_eq!((engine.asked(), judge.asked()), (1, 2));
        // The log says why, and what to do.
        let log = cached.fleet.log();
        assert!(
            log.contains("root_id: rolter_policy somewhere before"),
            "{log}"
        );
        assert_eq!(cached.ask(CHAT, &body).await.cache, "hit");
        is_sound(&cached.fleet).await;
    }
}

#[tokio::test]
async fn a_filter_that_has_another_policy_or_none_of_a_route_is_as_good_as_none() {
    let engine = parrot().await;
    let judge = Server::start(allows).await;
    let policy = json!({"plugins": [plugin("judge", &json!({}))]});
    let setup = with_cache(guarded(&engine, policy)).cluster("judge", judge.addr());
    let mut cached = Cached::start(setup).await;
    let body = chat("hello");
    cached.store(cached.request(CHAT, &body), "exact").await;
    let configuration = cached.fleet.configuration().clone();
    let without = |pointer: &str| {
        let mut changed = configuration.clone();
        *changed.pointer_mut(pointer).unwrap() = json!({"enabled": false});
        changed
    };
    let none = without("/policy");
    let mut renamed = configuration.clone();
    renamed["routes"][0]["name"] = json!("chats");
    for other in [none, renamed] {
        cached.fleet.configure(0, &other).await.unwrap();
        let got = cached.ask(CHAT, &body).await;
        assert_eq!(code(&got), (500, "no_policy_filter".into()), "{got:?}");
        cached.fleet.configure(0, &configuration).await.unwrap();
        assert_eq!(cached.ask(CHAT, &body).await.told(), (200, "hit", "exact"));
    }
    assert_eq!(engine.asked(), 1);
    is_sound(&cached.fleet).await;
}
