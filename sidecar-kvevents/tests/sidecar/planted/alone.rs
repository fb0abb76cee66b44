//! Mistakes in a configuration without regard to an Envoy.

use super::edits::{joined, precise, reorder, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Pool};
    let base = |provider: usize| {
        let pointer = format!("@value/providers/{provider}/api_base");
        set(&pointer, json!("http://127.0.0.1:9000"))
    };
    vec![
        plant(
            "shadowed",
            Envoy,
            [reorder("@value/routes", 0, 1)],
            "routes[1].match",
            "no request gets to chat",
        ),
        plant(
            "unused",
            Envoy,
            [set(
                "@value/providers/2",
                json!({"name": "vllm-c", "cluster": "vllm-c"}),
            )],
            "providers[2].name",
            "no route has \"vllm-c\" as a target",
        ),
        plant(
            "same_api_base",
            Envoy,
            [base(0), base(1)],
            "providers[1].api_base",
            "the same as that of \"vllm-a\"",
        ),
        plant(
            "endpoint_elsewhere",
            Pool,
            [set(
                "@value/providers/0/api_base",
                json!("http://127.0.0.2:8001"),
            )],
            "providers[0].api_base",
            "the engine's endpoint is 127.0.0.1:8001",
        ),
        plant(
            "partial_signal",
            Envoy,
            joined([
                precise(&[0]),
                vec![set("@hcm/max_request_headers_kb", json!(1024))],
            ]),
            "routes[0].strategy",
            "goes by kv_events, which vllm-b does not have",
        ),
    ]
}
