//! What is odd about a file of Envoy's, though Envoy accepts it: clusters that are not there or lead
//! elsewhere, and buffers that are too small. Invariant: what may be right in spite of it is no more
//! than doubtful, as the file may not be all that Envoy gets.

use super::{find, with_policy};
use rolter_core::config::Config;
use serde_json::Value;
use std::collections::BTreeSet;

/// What Envoy takes where a listener does not say.
const DEFAULT_BUFFER: u64 = 1 << 20;

/// All of it.
pub(super) fn of(document: &Value, config: &Config) -> Vec<String> {
    let mut doubts = Vec::new();
    doubts.extend(about_sidecar(document, config));
    doubts.extend(about_plugins(document, config));
    doubts.extend(about_buffers(document, config));
    doubts
}

/// The things of a kind that the file itself has.
fn listed<'a>(document: &'a Value, kind: &str) -> impl Iterator<Item = &'a Value> {
    let list = document.pointer(&format!("/static_resources/{kind}"));
    list.and_then(Value::as_array).into_iter().flatten()
}

fn about_sidecar(document: &Value, config: &Config) -> Option<String> {
    let sidecar = config.sidecar.as_ref()?;
    let (name, listen) = (&sidecar.cluster, sidecar.listen.to_string());
    let mut clusters = listed(document, "clusters");
    let Some(cluster) = clusters.find(|cluster| cluster["name"] == **name) else {
        let what = "nothing reaches the sidecar, unless Envoy gets it from elsewhere";
        return Some(format!(
            "sidecar.cluster: no cluster {name:?} in this file; {what}"
        ));
    };
    let mut leads_to = Vec::new();
    addresses(cluster, &mut leads_to);
    if leads_to.is_empty() || leads_to.contains(&listen) {
        return None;
    }
    let leads_to = leads_to.join(", ");
    Some(format!(
        "sidecar.listen: {listen}, but the cluster {name:?} leads to {leads_to}"
    ))
}

/// All addresses in a cluster, as `sidecar.listen` has them.
fn addresses(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| addresses(value, found)),
        Value::Object(fields) => {
            if let Some(path) = value.pointer("/pipe/path").and_then(Value::as_str) {
                found.push(format!("unix://{path}"));
            }
            if let Some(socket) = fields.get("socket_address")
                && let (Some(host), Some(port)) =
                    (socket["address"].as_str(), socket["port_value"].as_u64())
            {
                found.push(format!("{host}:{port}"));
            }
            fields.values().for_each(|value| addresses(value, found));
        }
        _ => {}
    }
}

/// Plugins of which the file has no cluster.
fn about_plugins(document: &Value, config: &Config) -> Vec<String> {
    let has = |name: &str| listed(document, "clusters").any(|cluster| cluster["name"] == name);
    let policies = with_policy(config).into_iter();
    let plugins = policies.flat_map(|policy| &policy.plugins);
    // Several policies may name the same.
    let unknown: BTreeSet<_> = plugins
        .filter(|plugin| !has(&plugin.cluster))
        .map(|plugin| (&plugin.name, &plugin.cluster))
        .collect();
    let told = unknown.into_iter().map(|(plugin, cluster)| {
        format!(
            "plugins: {plugin}: no cluster {cluster:?} in this file; nothing reaches the plugin, \
             unless Envoy gets it from elsewhere"
        )
    });
    told.collect()
}

/// Listeners that cannot hold an answer as long as a policy lets through. How much Envoy can hold is
/// the larger one of the listener's limit and the route's.
fn about_buffers(document: &Value, config: &Config) -> Vec<String> {
    let policies = with_policy(config).into_iter();
    let judging = policies.filter(|policy| policy.judges());
    let Some(longest) = judging.map(|policy| policy.max_answer_bytes).max() else {
        return Vec::new();
    };
    let listeners = listed(document, "listeners").enumerate();
    let ours = listeners.filter(|(_, listener)| {
        let mut found = Vec::new();
        find(listener, &mut found);
        !found.is_empty()
    });
    let told = ours.filter_map(|(place, listener)| {
        let field = "per_connection_buffer_limit_bytes";
        let limit = listener.get(field);
        let limit = limit.map_or(Some(DEFAULT_BUFFER), bytes)?;
        let of_routes = largest_of_routes(listener);
        (limit.max(of_routes) < longest as u64).then(|| {
            format!(
                "static_resources.listeners[{place}].{field}: {limit}, but a policy lets answers \
                 through up to a max_answer_bytes of {longest}, and Envoy cannot hold those; write \
                 more here or in the route's request_body_buffer_limit, or less there"
            )
        })
    });
    told.collect()
}

/// The largest limit of its routes, or zero. Which of them is for which answers, others know.
fn largest_of_routes(value: &Value) -> u64 {
    match value {
        Value::Array(list) => list.iter().map(largest_of_routes).max().unwrap_or(0),
        Value::Object(fields) => {
            let own = fields.get("request_body_buffer_limit").and_then(bytes);
            let inner = fields.values().map(largest_of_routes).max();
            own.max(inner).unwrap_or(0)
        }
        _ => 0,
    }
}

/// Envoy takes numbers as texts, too.
fn bytes(value: &Value) -> Option<u64> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    value.as_u64().or(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// What is doubtful about an Envoy with this configuration and these clusters, whose listener
    /// has these fields.
    fn doubts(ours: &Value, clusters: &Value, listener: &Value) -> Vec<String> {
        let mut listener = listener.clone();
        listener["filter"] = json!({"configuration": {"value": ours}});
        let document = json!({"static_resources": {
            "listeners": [{"name": "another's"}, listener],
            "clusters": clusters,
        }});
        of(&document, &Config::read(ours).unwrap())
    }

    #[test]
    fn a_cluster_that_does_not_lead_to_the_sidecar_is_doubtful() {
        let doubts = |listen: &str, cluster: &str| {
            let ours = json!({
                "sidecar": {"cluster": "rolter_sidecar", "listen": listen},
                "providers": [
                    {"name": "a", "cluster": "a", "kv_events": {"endpoint": "tcp://127.0.0.1:5557"}},
                ],
                "routes": [{"name": "chat", "targets": ["a"]}],
            });
            let pipe = json!({"address": {"pipe": {"path": "/run/a.sock"}}});
            let clusters = json!([{"name": cluster, "endpoints": [pipe]}]);
            doubts(&ours, &clusters, &json!({}))
        };
        let well = doubts("unix:///run/a.sock", "rolter_sidecar");
        assert_eq!(well, [""; 0]);
        let [misspelt] = &doubts("unix:///run/a.sock", "rolter_sidcar")[..] else {
            panic!("one doubt")
        };
        assert!(misspelt.starts_with("sidecar.cluster: no cluster \"rolter_sidecar\""));
        let [elsewhere] = &doubts("127.0.0.1:9463", "rolter_sidecar")[..] else {
            panic!("one doubt")
        };
        let expected = "sidecar.listen: 127.0.0.1:9463, but the cluster \"rolter_sidecar\" leads to \
                        unix:///run/a.sock";
        assert_eq!(elsewhere, expected);
    }

    fn with(policy: &Value) -> Value {
        json!({
            "policy": policy,
            "providers": [{"name": "a", "cluster": "a"}],
            "routes": [
                {"name": "chat", "targets": ["a"]},
                {"name": "rest", "targets": ["a"], "policy": policy},
            ],
        })
    }

    #[test]
    fn a_plugin_whose_cluster_is_not_there_is_doubtful() {
        let ours = with(&json!({"plugins": [
            {"name": "there", "cluster": "plugins"},
            {"name": "scan", "cluster": "scanner"},
        ]}));
        let clusters = json!([{"name": "plugins"}]);
        let [doubt] = &doubts(&ours, &clusters, &json!({}))[..] else {
            panic!("one doubt")
        };
        assert!(
            doubt.starts_with("plugins: scan: no cluster \"scanner\" in this file"),
            "{doubt}"
        );
    }

    #[test]
    fn a_listener_that_cannot_hold_an_answer_is_doubtful() {
        let pii = |max: usize| with(&json!({"pii": {}, "max_answer_bytes": max}));
        let bare = with(&json!({"max_answer_bytes": 4096}));
        let limit = "per_connection_buffer_limit_bytes";
        let route = |bytes: usize| json!({"routes": [{"request_body_buffer_limit": bytes}, {}]});
        let cases = [
            (pii(4096), json!({limit: 4096}), false),
            (pii(4096), json!({limit: 4095}), true),
            (pii(4096), json!({limit: "4095"}), true),
            (
                pii(4096),
                json!({limit: 4095, "config": route(4096)}),
                false,
            ),
            (pii(4096), json!({limit: 4095, "config": route(4095)}), true),
            // What Envoy takes, and what a policy lets through, where they do not say.
            (pii(1 << 20), json!({}), false),
            (pii((1 << 20) + 1), json!({}), true),
            // It holds no answer.
            (bare, json!({limit: 4095}), false),
        ];
        for (ours, listener, is_doubtful) in cases {
            let doubts = doubts(&ours, &json!([]), &listener);
            assert_eq!(!doubts.is_empty(), is_doubtful, "{listener}: {doubts:?}");
            for doubt in doubts {
                let path = format!("static_resources.listeners[1].{limit}: ");
                assert!(doubt.starts_with(&path), "{doubt}");
            }
        }
    }
}
