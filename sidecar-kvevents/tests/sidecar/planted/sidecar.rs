//! Mistakes in the clusters of the sidecar and of plugins.

use super::edits::{set, sidecar};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Policy};
    let http2 = json!({"explicit_http_config": {"http2_protocol_options": {}}});
    vec![
        plant(
            "sidecar_cluster",
            Envoy,
            [set("@value/sidecar", json!({"cluster": "rolter_sidcar"}))],
            "sidecar.cluster",
            "no cluster \"rolter_sidcar\" in this file",
        ),
        plant(
            "sidecar_listen",
            Envoy,
            [
                set("@value/sidecar", sidecar()),
                set("@value/sidecar/listen", json!("127.0.0.1:9463")),
            ],
            "sidecar.listen",
            "127.0.0.1:9463, but the cluster \"rolter_sidecar\" leads to unix:///run/rolter/",
        ),
        plant(
            "sidecar_listen",
            Envoy,
            [
                set("@value/sidecar", sidecar()),
                set("@value/sidecar/listen", json!("127.0.0.1:9463")),
                set(
                    "@clusters/2/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address",
                    json!({"socket_address": {"address": "localhost", "port_value": 9464}}),
                ),
            ],
            "sidecar.listen",
            "127.0.0.1:9463, but the cluster \"rolter_sidecar\" leads to localhost:9464",
        ),
        plant(
            "sidecar_protocol",
            Envoy,
            [
                set("@value/sidecar", sidecar()),
                set("@clusters/2/@http", http2),
            ],
            "@clusters/2/typed_extension_protocol_options",
            "the sidecar speaks HTTP/1.1",
        ),
        plant(
            "policy_plugin",
            Policy,
            [set("@clusters/2/name", json!("moderator"))],
            "policy.plugins",
            "moderation: no cluster \"moderation\" in this file",
        ),
    ]
}
