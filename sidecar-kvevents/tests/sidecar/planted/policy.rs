//! Mistakes about the filter of the policy.

use super::edits::{remove, reorder, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::Policy;
    vec![
        plant(
            "policy_missing",
            Policy,
            [remove("@filters/0")],
            "@filters",
            "write a filter with root_id: rolter_policy before http_filters[0]",
        ),
        // A misspelt one is no filter of the policy.
        plant(
            "policy_missing",
            Policy,
            [set("@plugin/root_id", json!("rolter_polcy"))],
            "@filters",
            "write a filter with root_id: rolter_policy",
        )
        .also(&["two_routing"]),
        plant(
            "policy_after",
            Policy,
            [reorder("@filters", 0, 1)],
            "@filters/1",
            "write it before that",
        ),
        plant(
            "policy_vm_id",
            Policy,
            [set("@plugin/vm_config/vm_id", json!("policy"))],
            "@plugin/vm_config/vm_id",
            "\"policy\", but http_filters[1], which routes, has \"rolter\"",
        ),
        plant(
            "policy_vm",
            Policy,
            [set(
                "@plugin/vm_config/code/local/filename",
                json!("/etc/rolter/another.wasm"),
            )],
            "@plugin/vm_config",
            "vm_config: *vm in the other",
        ),
        plant(
            "policy_configuration",
            Policy,
            [set("@value/debug_headers", json!(true))],
            "@plugin/configuration",
            "configuration: *rolter in the other",
        ),
        plant(
            "policy_fails_open",
            Policy,
            [set("@plugin/failure_policy", json!("FAIL_OPEN"))],
            "@plugin/failure_policy",
            "Envoy delivers answers without the policy",
        ),
        plant(
            "policy_elsewhere",
            Policy,
            [set(
                "@filters/0",
                json!({"name": "rolter_policy", "config_discovery": {}}),
            )],
            "@filters/0",
            "is in another file",
        ),
    ]
}
