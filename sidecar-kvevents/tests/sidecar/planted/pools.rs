//! Mistakes in the cluster of a pool.

use super::edits::{Edit, copy, joined, remove, set, sidecar};
use super::{Base, Plant, plant};
use serde_json::json;

/// A provider that is all addresses of a name.
fn of_a_name() -> Vec<Edit> {
    let provider = json!({"name": "vllm", "endpoint": "vllm.llm.svc:8000"});
    vec![
        set("@value/sidecar", sidecar()),
        set("@value/providers", json!([provider])),
        set("@value/routes/0/targets", json!(["vllm"])),
        set("@value/routes/1/targets", json!(["vllm"])),
    ]
}

pub(super) fn plants() -> Vec<Plant> {
    use Base::Pool;
    let endpoints = "@clusters/0/load_assignment/endpoints/0/lb_endpoints";
    let round_robin = json!([{"typed_extension_config": {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {
            "@type": "type.googleapis.com/\
                      envoy.extensions.load_balancing_policies.round_robin.v3.RoundRobin",
        },
    }}]);
    vec![
        plant(
            "override_host",
            Pool,
            [remove("@clusters/0/load_balancing_policy")],
            "@clusters/0/load_balancing_policy",
            "Envoy chooses the endpoint",
        ),
        plant(
            "override_host",
            Pool,
            [
                remove("@route/route/cluster"),
                set(
                    "@route/route/weighted_clusters",
                    json!({"clusters": [{"name": "engines", "weight": 1}]}),
                ),
                remove("@clusters/0/load_balancing_policy"),
            ],
            "@clusters/0/load_balancing_policy",
            "Envoy chooses the endpoint",
        ),
        plant(
            "override_header",
            Pool,
            [set(
                "@override/override_host_sources/0/header",
                json!("x-endpoint"),
            )],
            "@override/override_host_sources",
            "write [{ header: x-gateway-destination-endpoint }]",
        ),
        plant(
            "pool_endpoint",
            Pool,
            [set("@value/providers/1/endpoint", json!("127.0.0.1:8003"))],
            "providers[1].endpoint",
            "\"127.0.0.1:8003\" is no endpoint of the cluster engines",
        )
        .also(&["pool_stranger"]),
        plant(
            "pool_stranger",
            Pool,
            [
                copy(endpoints, 1, 2),
                set(
                    &format!("{endpoints}/2/endpoint/address/socket_address/port_value"),
                    json!(8003),
                ),
            ],
            "@clusters/0/load_assignment",
            "no provider has 127.0.0.1:8003",
        ),
        plant(
            "pool_name",
            Pool,
            of_a_name(),
            "providers[0].endpoint",
            "write type: STRICT_DNS there, with the same name and port",
        ),
        plant(
            "pool_name_type",
            Pool,
            joined([
                of_a_name(),
                vec![
                    set("@clusters/0/type", json!("LOGICAL_DNS")),
                    remove(&format!("{endpoints}/1")),
                    set(
                        &format!("{endpoints}/0/endpoint/address/socket_address"),
                        json!({"address": "vllm.llm.svc", "port_value": 8000}),
                    ),
                ],
            ]),
            "@clusters/0/type",
            "write STRICT_DNS",
        ),
        plant(
            "pool_fallback",
            Pool,
            [
                set("@value/providers/0/allowed_keys", json!(["ab".repeat(32)])),
                set("@override/fallback_policy/policies", round_robin),
            ],
            "@override/fallback_policy",
            "allowed_keys are not for the caller",
        ),
        plant(
            "pool_health",
            Pool,
            [set("@clusters/0/outlier_detection", json!({}))],
            "@clusters/0/outlier_detection",
            "healthy or not",
        ),
    ]
}
