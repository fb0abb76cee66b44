//! What no rule may say anything about: what the file leaves to others, and what is right in another
//! way than in the documented files.

mod elsewhere;

use super::{Gravity, envoy};
use serde_json::{Value, json};
use std::path::Path;

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

fn documented(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../envoy")
        .join(name);
    serde_saphyr::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What is found in a file once this is done to it, and to its connection manager.
fn found(name: &str, edit: impl Fn(&mut Value)) -> Vec<String> {
    let mut document = documented(name);
    edit(&mut document);
    let findings = envoy(&document).unwrap().findings;
    let told = findings.iter().map(|finding| {
        let is_error = finding.gravity == Gravity::Error;
        format!("{} {finding}", if is_error { "error" } else { "doubt" })
    });
    told.collect()
}

fn manager(document: &mut Value) -> &mut Value {
    document.pointer_mut(MANAGER).unwrap()
}

fn plugin(document: &mut Value) -> &mut Value {
    &mut manager(document)["http_filters"][0]["typed_config"]["config"]
}

fn route(document: &mut Value) -> &mut Value {
    &mut manager(document)["route_config"]["virtual_hosts"][0]["routes"][0]
}

fn cluster(document: &mut Value, place: usize) -> &mut Value {
    &mut document["static_resources"]["clusters"][place]
}

fn without(value: &mut Value, key: &str) {
    value.as_object_mut().unwrap().remove(key).unwrap();
}

#[test]
fn a_filter_is_found_in_what_istio_writes_and_outside_of_lists() {
    let wrapped = |document: &mut Value| {
        without(plugin(document), "failure_policy");
        let config = plugin(document).clone();
        manager(document)["http_filters"][0]["typed_config"] = json!({
            "@type": "type.googleapis.com/udpa.type.v1.TypedStruct",
            "type_url": "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm",
            "value": {"config": config},
        });
    };
    let [doubt] = &found("envoy.yaml", wrapped)[..] else {
        panic!("one doubt")
    };
    let field = "typed_config.value.config.failure_policy: not there";
    assert!(doubt.contains(field), "{doubt}");
    let mut document = documented("envoy.yaml");
    let mut config = plugin(&mut document).clone();
    config["allow_on_headers_stop_iteration"] = json!(false);
    let discovered = json!({"resources": [{"name": "rolter", "typed_config": {"config": config}}]});
    let findings = envoy(&discovered).unwrap().findings;
    let [finding] = &findings[..] else {
        panic!("{findings:?}")
    };
    let path = "resources[0].typed_config.config.allow_on_headers_stop_iteration";
    assert_eq!(finding.problem.path, path);
}

#[test]
fn the_same_in_other_words_is_as_good() {
    type Edit = fn(&mut Value);
    let cases: [(&str, Edit); 15] = [
        ("envoy.yaml", |document| {
            plugin(document)["failure_policy"] = json!(1);
            plugin(document)["allow_on_headers_stop_iteration"] = json!({"value": true});
            without(&mut plugin(document)["vm_config"], "runtime");
            without(plugin(document), "root_id");
        }),
        ("envoy.yaml", |document| {
            let ours = plugin(document)["configuration"]["value"].to_string();
            plugin(document)["configuration"] = json!({
                "@type": "type.googleapis.com/google.protobuf.StringValue",
                "value": ours,
            });
        }),
        // Another way to follow a decision.
        ("envoy.yaml", |document| {
            let header = json!([{"name": "x-rolter-cluster", "string_match": {"exact": "vllm-a"}}]);
            route(document)["match"]["headers"] = header;
            without(&mut route(document)["route"], "cluster_header");
            route(document)["route"]["cluster"] = json!("vllm-a");
        }),
        ("envoy.yaml", |document| {
            route(document)["route"]["cluster_header"] = json!("X-Rolter-Cluster");
            route(document)["request_body_buffer_limit"] = json!("4194304");
        }),
        // A listener's limit counts as well.
        ("envoy.yaml", |document| {
            without(route(document), "request_body_buffer_limit");
            plugin(document)["configuration"]["value"]["max_request_bytes"] = json!(1024);
            route(document)["request_body_buffer_limit"] = json!(1024 + (1 << 20));
        }),
        // Beside a route that follows, one to something else.
        ("envoy.yaml", |document| {
            let other =
                json!({"match": {"prefix": "/api/"}, "route": {"cluster": "rolter_sidecar"}});
            let host = &mut manager(document)["route_config"]["virtual_hosts"][0];
            host["routes"].as_array_mut().unwrap().insert(0, other);
        }),
        ("envoy.yaml", |document| {
            let action = &mut route(document)["route"];
            action["timeout"] = json!("600s");
            action["idle_timeout"] = json!("0s");
            action["retry_policy"]["per_try_timeout"] = json!("300s");
            action["max_stream_duration"] = json!({"max_stream_duration": "1800s"});
        }),
        ("envoy.yaml", |document| {
            let thresholds = &mut cluster(document, 0)["circuit_breakers"]["thresholds"];
            let mut default = thresholds[0].clone();
            without(&mut default, "max_retries");
            default["retry_budget"] = json!({"budget_percent": {"value": 50}});
            *thresholds = json!([{"priority": "HIGH"}, default]);
        }),
        // Others before the one that routes.
        ("policy.yaml", |document| {
            let kinds = [
                "compressor.v3.Compressor",
                "decompressor.v3.Decompressor",
                "rbac.v3.RBAC",
            ];
            for kind in kinds {
                let kind = format!("type.googleapis.com/envoy.extensions.filters.http.{kind}");
                let filter = json!({"name": "other", "typed_config": {"@type": kind}});
                let filters = manager(document)["http_filters"].as_array_mut().unwrap();
                filters.insert(0, filter);
            }
        }),
        // Only requests of other routes go by it.
        ("envoy.yaml", |document| {
            let off = "type.googleapis.com/envoy.config.route.v3.FilterConfig";
            let other = json!({
                "match": {"prefix": "/health"},
                "direct_response": {"status": 200},
                "typed_per_filter_config": {"rolter": {"@type": off, "disabled": true}},
            });
            let host = &mut manager(document)["route_config"]["virtual_hosts"][0];
            host["routes"].as_array_mut().unwrap().insert(0, other);
        }),
        // Switched off, and on again where it is needed.
        ("envoy.yaml", |document| {
            let on = "type.googleapis.com/envoy.config.route.v3.FilterConfig";
            manager(document)["http_filters"][0]["disabled"] = json!(true);
            route(document)["typed_per_filter_config"] =
                json!({"rolter": {"@type": on, "config": {}}});
        }),
        // A fallback that takes any endpoint, where all are for everyone.
        ("pool.yaml", |document| {
            let policy = cluster(document, 0)["load_balancing_policy"]["policies"][0].take();
            let mut policy = policy;
            let config = &mut policy["typed_extension_config"]["typed_config"];
            config["fallback_policy"] = json!({"policies": []});
            cluster(document, 0)["load_balancing_policy"]["policies"][0] = policy;
        }),
        // What is appended comes last.
        ("pool.yaml", |document| {
            let header =
                json!({"key": "x-gateway-destination-endpoint", "value": "127.0.0.1:8001"});
            route(document)["request_headers_to_add"] = json!([{"header": header}]);
        }),
        // IPv6, in brackets there and without here.
        ("pool.yaml", |document| {
            let providers = &mut plugin(document)["configuration"]["value"]["providers"];
            providers[0]["endpoint"] = json!("[2001:db8::1]:8001");
            let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
            let address = cluster(document, 0).pointer_mut(address).unwrap();
            address["socket_address"]["address"] = json!("2001:db8::1");
        }),
        // And in another spelling, as the port.
        ("pool.yaml", |document| {
            let providers = &mut plugin(document)["configuration"]["value"]["providers"];
            providers[0]["endpoint"] = json!("[2001:0db8:0::1]:8001");
            providers[0]["api_base"] = json!("http://[2001:DB8::1]:8001");
            let address = "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address";
            let address = cluster(document, 0).pointer_mut(address).unwrap();
            address["socket_address"] = json!({"address": "2001:db8::1", "port_value": "8001"});
        }),
    ];
    for (place, (name, edit)) in cases.into_iter().enumerate() {
        assert_eq!(found(name, edit), [""; 0], "case {place}");
    }
}

#[test]
fn places_in_lists_come_by_number() {
    let mut paths = ["a[10].b", "a[2].c[1]", "a[2].b", "a"];
    paths.sort_by_cached_key(|path| super::order(path));
    assert_eq!(paths, ["a", "a[2].b", "a[2].c[1]", "a[10].b"]);
}
