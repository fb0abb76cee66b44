//! Mistakes in the list of filters.

use super::edits::{copy, filter, insert, remove, reorder, set};
use super::{Base, Plant, plant};
use serde_json::json;

pub(super) fn plants() -> Vec<Plant> {
    use Base::{Envoy, Policy, Pool};
    let off = json!({
        "@type": "type.googleapis.com/envoy.config.route.v3.FilterConfig",
        "disabled": true,
    });
    let wasm = json!({"@type": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm"});
    vec![
        plant(
            "router",
            Envoy,
            [reorder("@filters", 0, 1)],
            "@filters/1",
            "after the router, http_filters[0]",
        ),
        plant(
            "router",
            Envoy,
            [remove("@filters/1")],
            "@filters/0",
            "write the router",
        ),
        plant(
            "two_routing",
            Envoy,
            [copy("@filters", 0, 1)],
            "@routing/root_id",
            "http_filters[0] routes already",
        ),
        plant(
            "disabled",
            Envoy,
            [set("@route/typed_per_filter_config/rolter", off.clone())],
            "@route/typed_per_filter_config/rolter/disabled",
            "clients choose the engine",
        ),
        plant(
            "disabled",
            Pool,
            [set("@host/typed_per_filter_config/rolter", off.clone())],
            "@host/typed_per_filter_config/rolter/disabled",
            "remove it",
        ),
        plant(
            "disabled",
            Policy,
            [set("@filters/0/disabled", json!(true))],
            "@filters/0/disabled",
            "requests of routes with a policy are refused",
        ),
        plant(
            "per_route_configuration",
            Envoy,
            [set("@host/typed_per_filter_config/rolter", wasm)],
            "@host/typed_per_filter_config/rolter",
            "Envoy refuses the file",
        ),
        plant(
            "compressed_answers",
            Policy,
            [insert("@filters", 2, filter("compressor.v3.Compressor"))],
            "@filters/2",
            "its cache keeps none",
        ),
        plant(
            "compressed_requests",
            Envoy,
            [insert(
                "@filters",
                1,
                filter("decompressor.v3.Decompressor"),
            )],
            "@filters/1",
            "reads no compressed prompt",
        ),
        plant(
            "admitted_late",
            Envoy,
            [insert(
                "@filters",
                1,
                filter("jwt_authn.v3.JwtAuthentication"),
            )],
            "@filters/1",
            "have been counted",
        ),
        plant(
            "admitted_late",
            Policy,
            [insert("@filters", 2, filter("ext_authz.v3.ExtAuthz"))],
            "@filters/2",
            "the cache answers whom it would refuse",
        ),
    ]
}
