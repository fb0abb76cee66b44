//! A route by which clients get round a policy.

use super::edits::insert;
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::Policy;
    let rest = json!({"name": "open", "targets": ["vllm-a"], "policy": {"enabled": false}});
    let [in_one, in_other] = ["@plugin", "@routing"].map(|plugin| {
        let routes = format!("{plugin}/configuration/value/routes");
        insert(&routes, 1, rest.clone())
    });
    vec![
        plant(
            "unguarded",
            Policy,
            [in_one, in_other],
            "routes[1]",
            "open has no policy",
        )
        .also(&["shadowed"]),
    ]
}
