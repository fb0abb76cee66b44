//! Mistakes in Envoy's routes.

use super::edits::{copy, remove, second_listener, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Pool};
    const POOL_HEADER: &str = "x-gateway-destination-endpoint";
    vec![
        plant(
            "open_cluster_header",
            Envoy,
            [second_listener(), remove("@second/http_filters/0")],
            "@second/route_config/virtual_hosts/0/routes/0/route/cluster_header",
            "clients choose any cluster",
        ),
        plant(
            "open_pool",
            Pool,
            [second_listener(), remove("@second/http_filters/0")],
            "@second/route_config/virtual_hosts/0/routes/0/route/cluster",
            "clients choose any endpoint",
        ),
        plant(
            "cluster_header",
            Envoy,
            [set("@route/route/cluster_header", json!("x-rolter-target"))],
            "@route/route/cluster_header",
            "the filter sets x-rolter-cluster",
        ),
        plant(
            "cluster_header",
            Envoy,
            [
                remove("@route/route/cluster_header"),
                set(
                    "@route/route/weighted_clusters",
                    json!({"clusters": [{"cluster_header": "x-rolter-target", "weight": 1}]}),
                ),
            ],
            "@route/route/weighted_clusters",
            "\"x-rolter-target\", but the filter sets x-rolter-cluster",
        ),
        plant(
            "fixed_cluster",
            Envoy,
            [
                remove("@route/route/cluster_header"),
                set("@route/route/cluster", json!("vllm-a")),
            ],
            "@route/route/cluster",
            "write cluster_header: x-rolter-cluster",
        ),
        plant(
            "also_fixed",
            Envoy,
            [
                copy("@host/routes", 0, 0),
                remove("@route/route/cluster_header"),
                set(
                    "@route/route/weighted_clusters",
                    json!({"clusters": [{"name": "vllm-a", "weight": 1}]}),
                ),
            ],
            "@route/route/weighted_clusters",
            "\"vllm-a\" is a provider's",
        ),
        plant(
            "removed_header",
            Pool,
            [set("@host/request_headers_to_remove", json!([POOL_HEADER]))],
            "@host/request_headers_to_remove",
            "removed before Envoy chooses the endpoint",
        ),
        plant(
            "set_header",
            Pool,
            [set(
                "@route/request_headers_to_add",
                json!([{
                    "header": {"key": POOL_HEADER, "value": "127.0.0.1:8001"},
                    "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
                }]),
            )],
            "@route/request_headers_to_add/0",
            "is what the filter sets",
        ),
        plant(
            "route_name",
            Envoy,
            [set("@value/routes/0/match/route_name", json!("engine"))],
            "routes[0].match.route_name",
            "write one of these, or name it: engines",
        ),
        plant(
            "mirrored",
            Envoy,
            [set(
                "@route/route/request_mirror_policies",
                json!([{"cluster": "vllm-b"}]),
            )],
            "@route/route/request_mirror_policies",
            "that nobody counts",
        ),
    ]
}
