//! What stands around: the admin interface, spellings of paths, labels of metrics. Invariant: nothing
//! here keeps requests from being routed.

use super::envoy::{Envoy, problem};
use crate::document::configuration::with_policy;
use crate::document::value::{Walk, text};
use rolter_core::config::Problem;
use serde_json::Value;
use std::net::IpAddr;

/// Whoever reaches it can stop Envoy.
pub(super) fn admin(envoy: &Envoy<'_>) -> Vec<Problem> {
    let address = Walk::root(envoy.document).at(&["admin", "address", "socket_address", "address"]);
    let given = address.value.as_str().unwrap_or_default();
    let ip = given.parse::<IpAddr>();
    if ip.is_ok_and(|ip| !ip.is_loopback()) {
        let what = format!(
            "{given}, where other machines can reach the admin interface, read the configuration, \
             and stop Envoy; write 127.0.0.1"
        );
        return vec![problem(&address.path, what)];
    }
    Vec::new()
}

/// Each path has one, where paths decide on the policy.
pub(super) fn spelling(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (list, _, config) in envoy.routed() {
        let routes = &config.routes;
        let first = routes.first().and_then(|route| route.policy);
        let is_chosen = routes.iter().any(|route| route.policy != first);
        let by_path = routes
            .iter()
            .any(|route| route.conditions.path_prefix != "/");
        if with_policy(config).is_empty() || !is_chosen || !by_path || list.owner_path.is_empty() {
            continue;
        }
        let expected = [
            ("normalize_path", "true"),
            ("merge_slashes", "true"),
            ("path_with_escaped_slashes_action", "REJECT_REQUEST"),
        ];
        for (field, wanted) in expected {
            let given = &list.owner[field];
            // These unescape as engines do, and then look again.
            let others = ["UNESCAPE_AND_REDIRECT", "UNESCAPE_AND_FORWARD"];
            let is_well =
                *given == true || given == wanted || others.iter().any(|other| given == other);
            if !is_well {
                let given = match given {
                    Value::Null => "not there".to_owned(),
                    given => given.to_string(),
                };
                let what = format!(
                    "{given}, so that clients choose among routes with and without a policy by \
                     another spelling of the same path, such as /%761/; write {wanted}"
                );
                told.push(problem(&format!("{}.{field}", list.owner_path), what));
            }
        }
    }
    told
}

/// The filter's metrics have their labels in their names.
pub(super) fn tags(envoy: &Envoy<'_>) -> Vec<Problem> {
    const ALWAYS: [&str; 6] = ["route", "target", "reason", "outcome", "slot", "vm"];
    const OF_POLICY: [&str; 4] = ["rule", "plugin", "kind", "basis"];
    if !envoy.is_whole() {
        return Vec::new();
    }
    let has_policy = envoy
        .configs()
        .any(|(_, config)| !with_policy(config).is_empty());
    let of_policy = if has_policy { &OF_POLICY[..] } else { &[] };
    let tags = Walk::root(envoy.document).at(&["stats_config", "stats_tags"]);
    let tags: Vec<_> = tags.items().collect();
    let is_missing = |label: &&&str| {
        let begin = format!(";{label}=");
        // The first group is what is taken out of the name, the second one the value.
        let takes = |tag: &Walk<'_>| {
            let regex = text(tag.value, "regex");
            regex.contains(&begin) && regex.contains('(')
        };
        !tags.iter().any(takes)
    };
    let missing = ALWAYS.iter().chain(of_policy).filter(is_missing);
    let missing: Vec<&str> = missing.copied().collect();
    let Some(first) = missing.first() else {
        return Vec::new();
    };
    let what = format!(
        "nothing for {}, so that metrics have those in their names and not as labels; write \
         {{ tag_name: {first}, regex: \"(;{first}=([^;]+))\" }}, and likewise for each",
        missing.join(", ")
    );
    vec![problem("stats_config.stats_tags", what)]
}
