//! Routes without a policy by which clients get round that of another one: they lead to a target of
//! its, and have paths at which engines make answers. Invariant: a route with a path of its own that
//! is for something else, such as `/metrics`, is not doubtful.

use crate::document::configuration::Ours;
use rolter_core::config::{Config, Policy, Problem, Route};
use std::collections::BTreeSet;

/// Where engines make texts, those beside the APIs included that some have.
const ANSWERING: [&str; 14] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/messages",
    "/v1/responses",
    "/chat/completions",
    "/completion",
    "/infill",
    "/generate",
    "/vertex_generate",
    "/inference/v1/generate",
    "/invocations",
    "/api/chat",
    "/api/generate",
    "/v2/models",
];

/// One doubt for each.
pub(super) fn doubts(ours: &Ours, config: &Config) -> Vec<Problem> {
    let is_guarded = |route: &Route| {
        let policy = route.policy.and_then(|place| config.policies.get(place));
        policy.is_some_and(Policy::judges)
    };
    let routes = config.routes.iter().enumerate();
    let (guarded, unguarded): (Vec<_>, Vec<_>) = routes.partition(|(_, route)| is_guarded(route));
    let guarded: Vec<_> = guarded.into_iter().map(|(_, route)| route).collect();
    let told = unguarded.into_iter().filter_map(|(place, route)| {
        let targets = targets(route);
        let mut others = guarded.iter();
        let other = others
            .find(|other| !targets.is_disjoint(&self::targets(other)) && answers(route, other))?;
        let (name, other) = (&route.name, &other.name);
        let path = &route.conditions.path_prefix;
        let what = format!(
            "{name} has no policy, and leads to targets for which {other} has one; by paths \
             that begin with {path:?}, clients get their answers without it; write match: \
             {{ path_prefix: … }} with what the route is for, such as /metrics, or give it \
             a policy"
        );
        Some(ours.problem(&format!("routes[{place}]"), what))
    });
    told.collect()
}

fn targets(route: &Route) -> BTreeSet<usize> {
    let groups = route.groups.iter();
    groups.flat_map(|group| &group.targets).copied().collect()
}

/// Whether engines make answers at a path that a route takes, as far as one can know.
fn answers(route: &Route, guarded: &Route) -> bool {
    let prefix = &*route.conditions.path_prefix;
    let overlaps = |path: &str| path.starts_with(prefix) || prefix.starts_with(path);
    // Envoy may rewrite the paths of an API that begin as no engine's do.
    guarded.conditions.path_prefix.starts_with(prefix) || ANSWERING.into_iter().any(overlaps)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// What is doubtful about a route for this, beside one that has a policy.
    fn doubts(conditions: &Value, targets: &[&str], policy: &Value) -> Vec<String> {
        let document = json!({
            "policy": {"pii": {}},
            "providers": [{"name": "a", "cluster": "a"}, {"name": "b", "cluster": "b"}],
            "routes": [
                {"name": "chat", "match": {"path_prefix": "/openai/v1/"}, "targets": ["a"]},
                {"name": "rest", "match": conditions, "targets": targets, "policy": policy},
            ],
        });
        let ours = Ours::read(document, String::new());
        let doubts = super::doubts(&ours, ours.config.as_ref().unwrap());
        doubts.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_route_without_a_policy_to_the_same_engines_is_doubtful() {
        let off = json!({"enabled": false});
        for prefix in [
            "/",
            "/v1/",
            "/v1/chat/completions",
            "/invocations",
            "/gen",
            "/api/",
            "/openai/",
        ] {
            let doubts = doubts(&json!({"path_prefix": prefix}), &["b", "a"], &off);
            let [doubt] = &doubts[..] else {
                panic!("one doubt about {prefix}, not {doubts:?}")
            };
            let begin =
                "routes[1]: rest has no policy, and leads to targets for which chat has one";
            assert!(doubt.starts_with(begin), "{doubt}");
            assert!(doubt.contains(&format!("{prefix:?}")), "{doubt}");
        }
        // Whoever is asked for by other means may be asked so by everyone.
        assert_eq!(doubts(&json!({"hosts": ["b"]}), &["a"], &off).len(), 1);
        // This one does nothing.
        assert_eq!(doubts(&json!({}), &["a"], &json!({})).len(), 1);
    }

    #[test]
    fn a_route_for_something_else_or_to_other_engines_is_not() {
        let off = json!({"enabled": false});
        for prefix in [
            "/metrics",
            "/health",
            "/v1/models",
            "/v1/embeddings",
            "/api/tags",
        ] {
            let found = doubts(&json!({"path_prefix": prefix}), &["a"], &off);
            assert_eq!(found, [""; 0]);
        }
        assert_eq!(doubts(&json!({}), &["b"], &off), [""; 0]);
        assert_eq!(doubts(&json!({}), &["a"], &json!({"pii": {}})), [""; 0]);
    }
}
