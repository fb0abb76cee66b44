//! Mistakes in a wasm filter of ours: its configuration, its failures.

use super::edits::{remove, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Policy};
    let protobuf = |kind: &str| format!("type.googleapis.com/google.protobuf.{kind}");
    vec![
        plant(
            "plugin_configuration",
            Envoy,
            [remove("@plugin/configuration")],
            "@plugin/configuration",
            "not there",
        ),
        plant(
            "plugin_configuration",
            Envoy,
            [remove("@plugin/configuration/@type")],
            "@plugin/configuration/@type",
            "write type.googleapis.com/google.protobuf.Struct",
        ),
        plant(
            "plugin_configuration",
            Envoy,
            [
                remove("@plugin/configuration"),
                set(
                    "@plugin/vm_config/configuration/@type",
                    json!(protobuf("Struct")),
                ),
            ],
            "@plugin/vm_config/configuration",
            "write it one level up",
        ),
        plant(
            "plugin_configuration_value",
            Envoy,
            [set(
                "@plugin/configuration",
                json!({"@type": protobuf("Struct"), "providers": [], "routes": []}),
            )],
            "@plugin/configuration/value",
            "write providers and all else below value",
        ),
        plant(
            "plugin_configuration_value",
            Envoy,
            [set(
                "@plugin/configuration",
                json!({"@type": protobuf("StringValue"), "value": "{\"providers\": [}"}),
            )],
            "@plugin/configuration/value",
            "no JSON: expected value at line 1 column 16",
        ),
        plant(
            "plugin_configuration_bytes",
            Envoy,
            [set(
                "@plugin/configuration",
                json!({"@type": protobuf("BytesValue"), "value": "e30="}),
            )],
            "@plugin/configuration/@type",
            "BytesValue",
        ),
        plant(
            "holding",
            Envoy,
            [remove("@plugin/allow_on_headers_stop_iteration")],
            "@plugin/allow_on_headers_stop_iteration",
            "write true",
        ),
        plant(
            "holding",
            Policy,
            [set(
                "@routing/allow_on_headers_stop_iteration",
                json!(false),
            )],
            "@routing/allow_on_headers_stop_iteration",
            "false, with which requests with a body hang",
        ),
        plant(
            "failure_policy",
            Envoy,
            [remove("@plugin/failure_policy")],
            "@plugin/failure_policy",
            "not there, with which a worker answers 503",
        ),
        plant(
            "failure_policy",
            Envoy,
            [set("@plugin/failure_policy", json!("FAIL_CLOSED"))],
            "@plugin/failure_policy",
            "write FAIL_RELOAD",
        ),
        plant(
            "fails_open",
            Envoy,
            [set("@plugin/failure_policy", json!("FAIL_OPEN"))],
            "@plugin/failure_policy",
            "clients choose it",
        ),
        plant(
            "fails_open",
            Envoy,
            [
                remove("@plugin/failure_policy"),
                set("@plugin/fail_open", json!(true)),
            ],
            "@plugin/fail_open",
            "write failure_policy: FAIL_RELOAD",
        ),
        plant(
            "two_failure_policies",
            Envoy,
            [set("@plugin/fail_open", json!(true))],
            "@plugin/fail_open",
            "Envoy refuses the file",
        ),
    ]
}
