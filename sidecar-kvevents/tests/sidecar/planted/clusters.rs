//! Mistakes in the clusters of providers.

use super::edits::{copy, remove, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::Envoy;
    let endpoints = "@clusters/0/load_assignment/endpoints/0/lb_endpoints";
    let http2 = json!({"explicit_http_config": {"http2_protocol_options": {}}});
    let port = "load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/\
                port_value";
    vec![
        plant(
            "provider_cluster",
            Envoy,
            [set("@value/providers/0/cluster", json!("vllm-x"))],
            "providers[0].cluster",
            "no cluster \"vllm-x\" in this file",
        ),
        plant(
            "several_endpoints",
            Envoy,
            [
                copy(endpoints, 0, 1),
                set(
                    &format!("{endpoints}/1/endpoint/address/socket_address/port_value"),
                    json!(8003),
                ),
            ],
            "@clusters/0/load_assignment",
            "2 endpoints",
        ),
        plant(
            "shared_endpoint",
            Envoy,
            [set(&format!("@clusters/1/{port}"), json!(8001))],
            "@clusters/1/load_assignment",
            "127.0.0.1:8001 is an endpoint of \"vllm-a\"",
        ),
        plant(
            "other_engine",
            Envoy,
            [set(
                "@value/providers/0/api_base",
                json!("http://127.0.0.1:8002"),
            )],
            "providers[0].api_base",
            "127.0.0.1:8002 is the engine of the cluster \"vllm-b\"",
        ),
        plant(
            "other_engine",
            Envoy,
            [set(
                "@value/providers/0/api_base",
                json!("http://127.0.0.2:8001"),
            )],
            "providers[0].api_base",
            "the cluster \"vllm-a\" leads to 127.0.0.1:8001",
        ),
        plant(
            "circuit_breakers",
            Envoy,
            [remove("@clusters/0/circuit_breakers")],
            "@clusters/0/circuit_breakers/thresholds",
            "no max_connections, max_pending_requests, max_requests, max_retries",
        ),
        plant(
            "engine_http2",
            Envoy,
            [set("@clusters/0/@http", http2.clone())],
            "@clusters/0/typed_extension_protocol_options",
            "write explicit_http_config",
        ),
    ]
}
