//! What may come from elsewhere, be reached in another way, or be of others.

use super::{MANAGER, cluster, documented, found, manager, plugin, route, without};
use crate::document::check::envoy;
use serde_json::{Value, json};

#[test]
fn routes_and_filters_from_elsewhere_are_not_judged() {
    let by_rds = found("envoy.yaml", |document| {
        without(manager(document), "route_config");
        manager(document)["rds"] = json!({"route_config_name": "llm"});
    });
    assert_eq!(by_rds, [""; 0]);
    for name in ["envoy.yaml", "pool.yaml"] {
        let discovered = found(name, |document| {
            let listeners = &mut document["static_resources"]["listeners"];
            let mut second = listeners[0].clone();
            let pointer = MANAGER
                .strip_prefix("/static_resources/listeners/0")
                .unwrap();
            second.pointer_mut(pointer).unwrap()["http_filters"][0] =
                json!({"name": "rolter", "config_discovery": {}});
            listeners.as_array_mut().unwrap().push(second);
        });
        assert_eq!(discovered, [""; 0]);
    }
}

#[test]
fn endpoints_from_elsewhere_or_behind_names_are_not_judged() {
    let discovered = found("pool.yaml", |document| {
        without(cluster(document, 0), "load_assignment");
        cluster(document, 0)["type"] = json!("EDS");
    });
    assert_eq!(discovered, [""; 0]);
    let named = found("pool.yaml", |document| {
        cluster(document, 0)["type"] = json!("STRICT_DNS");
        let endpoints = "/load_assignment/endpoints/0/lb_endpoints";
        let endpoints = cluster(document, 0).pointer_mut(endpoints).unwrap();
        let address = json!({"socket_address": {"address": "vllm.llm.svc", "port_value": 8001}});
        *endpoints = json!([{"endpoint": {"address": address}}]);
    });
    assert_eq!(named, [""; 0]);
    // A name may be the same engine.
    let asked = found("envoy.yaml", |document| {
        let provider = &mut plugin(document)["configuration"]["value"]["providers"][0];
        provider["api_base"] = json!("http://vllm-a:8001");
    });
    assert_eq!(asked, [""; 0]);
}

/// A route before the others, to a cluster of its own that is no pool.
fn with_pages(document: &mut Value) {
    let address = json!({"socket_address": {"address": "10.9.9.9", "port_value": 80}});
    let endpoints = json!([{"lb_endpoints": [{"endpoint": {"address": address}}]}]);
    let pages = json!({"name": "pages", "load_assignment": {"endpoints": endpoints}});
    let clusters = document["static_resources"]["clusters"].as_array_mut();
    clusters.unwrap().push(pages);
    let route = json!({"match": {"prefix": "/ui"}, "route": {"cluster": "pages"}});
    let host = &mut manager(document)["route_config"]["virtual_hosts"][0];
    host["routes"].as_array_mut().unwrap().insert(0, route);
}

/// In place of the one cluster that a route leads to.
fn leads(document: &mut Value, place: usize, key: &str, to: Value) {
    let host = &mut manager(document)["route_config"]["virtual_hosts"][0];
    let action = &mut host["routes"][place]["route"];
    without(action, "cluster");
    action[key] = to;
}

#[test]
fn no_cluster_is_asked_to_be_a_pool_that_may_be_elsewhere() {
    let by_cds = found("pool.yaml", |document| {
        with_pages(document);
        cluster(document, 0)["name"] = json!("another");
    });
    assert_eq!(by_cds, [""; 0]);
    let of_a_name = found("pool.yaml", |document| {
        with_pages(document);
        let ours = &mut plugin(document)["configuration"]["value"];
        ours["sidecar"] = json!({"cluster": "rolter_sidecar"});
        ours["sidecar"]["listen"] = json!("unix:///run/rolter/sidecar.sock");
        ours["providers"][0]["endpoint"] = json!("vllm.llm.svc:8000");
        without(cluster(document, 0), "load_assignment");
        cluster(document, 0)["type"] = json!("EDS");
    });
    assert_eq!(of_a_name, [""; 0]);
    let chosen = [
        ("cluster_header", json!("x-pool")),
        ("cluster_specifier_plugin", json!("chooses")),
        (
            "weighted_clusters",
            json!({"clusters": [{"name": "engines"}, {"name": "by_cds"}]}),
        ),
    ];
    for (key, to) in chosen {
        let found = found("pool.yaml", |document| {
            with_pages(document);
            leads(document, 1, key, to.clone());
            without(cluster(document, 0), "load_balancing_policy");
        });
        assert_eq!(found, [""; 0], "{key}");
    }
}

#[test]
fn pools_with_weights_are_pools() {
    let weighted = |document: &mut Value| {
        with_pages(document);
        let mut canary = cluster(document, 0).clone();
        canary["name"] = json!("canary");
        let clusters = document["static_resources"]["clusters"].as_array_mut();
        clusters.unwrap().push(canary);
        let both = [("engines", 90), ("canary", 10)];
        let both = both.map(|(name, weight)| json!({"name": name, "weight": weight}));
        leads(document, 1, "weighted_clusters", json!({"clusters": both}));
    };
    assert_eq!(found("pool.yaml", weighted), [""; 0]);
    let unseen = found("pool.yaml", |document| {
        weighted(document);
        cluster(document, 3)["outlier_detection"] = json!({});
    });
    let [doubt] = &unseen[..] else {
        panic!("{unseen:?}")
    };
    assert!(doubt.contains("clusters[3].outlier_detection"), "{doubt}");
}

#[test]
fn decisions_may_be_followed_by_weight_or_by_an_extension() {
    let clusters = json!({"clusters": [{"cluster_header": "x-rolter-cluster", "weight": 1}]});
    let ways = [
        ("weighted_clusters", clusters),
        ("cluster_specifier_plugin", json!("chooses")),
    ];
    for (key, to) in ways {
        let found = found("envoy.yaml", |document| {
            let action = &mut route(document)["route"];
            without(action, "cluster_header");
            action[key] = to.clone();
            with_pages(document);
        });
        assert_eq!(found, [""; 0], "{key}");
    }
}

#[test]
fn an_inner_tier_needs_no_filter() {
    type Edit = fn(&mut Value);
    let inner: [Edit; 4] = [
        |listener| {
            without(listener, "address");
            listener["internal_listener"] = json!({});
        },
        |listener| listener["address"] = json!({"pipe": {"path": "/run/inner.sock"}}),
        |listener| listener["address"]["socket_address"]["address"] = json!("127.0.0.1"),
        // What it does to headers, nobody knows here.
        |listener| {
            let lua = "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua";
            let pointer = "/filter_chains/0/filters/0/typed_config/http_filters";
            let filters = listener.pointer_mut(pointer).unwrap().as_array_mut();
            let lua = json!({"name": "lua", "typed_config": {"@type": lua}});
            filters.unwrap().insert(0, lua);
        },
    ];
    for name in ["envoy.yaml", "pool.yaml"] {
        for (place, edit) in inner.iter().enumerate() {
            let found = found(name, |document| {
                let listeners = &mut document["static_resources"]["listeners"];
                let mut second = listeners[0].clone();
                let pointer = "/filter_chains/0/filters/0/typed_config/http_filters";
                let filters = second.pointer_mut(pointer).unwrap().as_array_mut();
                filters.unwrap().remove(0);
                edit(&mut second);
                listeners.as_array_mut().unwrap().push(second);
            });
            assert_eq!(found, [""; 0], "{name}, case {place}");
        }
    }
}

#[test]
fn filters_of_others_may_have_providers() {
    let others = found("envoy.yaml", |document| {
        let string = "type.googleapis.com/google.protobuf.StringValue";
        let other = json!({
            "name": "ai-proxy",
            "vm_config": {"vm_id": "ai", "code": {"local": {"filename": "/x/ai.wasm"}}},
            "configuration": {"@type": string, "value": "{\"providers\": [{\"id\": \"a\"}]}"},
        });
        let kind = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
        let config = json!({"@type": kind, "config": other});
        let filter = json!({"name": "ai-proxy", "typed_config": config});
        let filters = manager(document)["http_filters"].as_array_mut();
        filters.unwrap().insert(0, filter);
    });
    assert_eq!(others, [""; 0]);
    for key in ["providers", "routes"] {
        let misspelt = found("envoy.yaml", |document| {
            let ours = &mut plugin(document)["configuration"]["value"];
            ours["misspelt"] = ours[key].take();
            without(ours, key);
        });
        let told = |begin: &str| misspelt.iter().any(|told| told.starts_with(begin));
        assert!(told(&format!("error {key}: ")), "{misspelt:?}");
        assert!(told("error misspelt: unknown key"), "{misspelt:?}");
    }
}

#[test]
fn the_sidecar_may_be_reached_by_a_name_or_on_any_address() {
    let found = |listen: &str, host: &str, port: Value| {
        found("envoy.yaml", |document| {
            plugin(document)["configuration"]["value"]["sidecar"] = json!({
                "cluster": "rolter_sidecar",
                "listen": listen,
                "allow_remote": true,
            });
            let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
            let address = cluster(document, 2).pointer_mut(address).unwrap();
            *address = json!({"socket_address": {"address": host, "port_value": port}});
        })
    };
    let reached = [
        ("0.0.0.0:9463", "sidecar.svc"),
        ("0.0.0.0:9463", "10.0.0.9"),
        ("[::]:9463", "::1"),
        ("127.0.0.1:9463", "localhost"),
        ("[2001:db8::1]:9463", "2001:0db8::1"),
    ];
    for (listen, host) in reached {
        assert_eq!(found(listen, host, json!(9463)), [""; 0], "{listen} {host}");
        assert_eq!(found(listen, host, json!("9463")), [""; 0]);
        assert_eq!(found(listen, host, json!(9464)).len(), 1, "{listen} {host}");
    }
    assert_eq!(found("10.0.0.8:9463", "10.0.0.9", json!(9463)).len(), 1);
}

#[test]
fn a_part_of_a_file_is_not_asked_for_the_rest() {
    let document = documented("policy.yaml");
    let filters = &document.pointer(MANAGER).unwrap()["http_filters"];
    let findings = envoy(&json!({"http_filters": filters})).unwrap().findings;
    assert_eq!(findings, []);
}

#[test]
fn another_picker_may_choose_in_a_pool() {
    let mut document = documented("pool.yaml");
    let picker = "type.googleapis.com/envoy.extensions.filters.http.ext_proc.v3.ExternalProcessor";
    let listeners = &mut document["static_resources"]["listeners"];
    let mut second = listeners[0].clone();
    let pointer = MANAGER
        .strip_prefix("/static_resources/listeners/0")
        .unwrap();
    second.pointer_mut(pointer).unwrap()["http_filters"][0] =
        json!({"name": "epp", "typed_config": {"@type": picker}});
    listeners.as_array_mut().unwrap().push(second);
    assert_eq!(envoy(&document).unwrap().findings, []);
}
