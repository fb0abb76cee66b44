//! Mistakes about admin, metrics, spellings of paths.

use super::edits::{insert, remove, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Policy};
    let by_path = json!({
        "name": "metrics",
        "match": {"path_prefix": "/metrics"},
        "targets": ["vllm-a"],
        "policy": {"enabled": false},
    });
    let [in_one, in_other] = ["@plugin", "@routing"].map(|plugin| {
        let routes = format!("{plugin}/configuration/value/routes");
        insert(&routes, 0, by_path.clone())
    });
    vec![
        plant(
            "admin",
            Envoy,
            [set(
                "/admin/address/socket_address/address",
                json!("0.0.0.0"),
            )],
            "/admin/address/socket_address/address",
            "write 127.0.0.1",
        ),
        plant(
            "path_spelling",
            Policy,
            [in_one, in_other, remove("@hcm/normalize_path")],
            "@hcm/normalize_path",
            "another spelling of the same path",
        ),
        plant(
            "stats_tags",
            Envoy,
            [remove("/stats_config/stats_tags/1")],
            "stats_config.stats_tags",
            "write { tag_name: target, regex: \"(;target=([^;]+))\" }",
        ),
        plant(
            "stats_tags",
            Policy,
            [remove("/stats_config")],
            "stats_config.stats_tags",
            "nothing for route, target, reason, outcome, slot, vm, rule, plugin, kind, basis",
        ),
    ]
}
