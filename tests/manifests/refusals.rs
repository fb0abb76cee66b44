//! What the chart refuses, and what it says then.

use crate::with;
use e2e::chart::render;
use serde_json::{Value, json};

#[test]
fn what_is_missing_is_told_with_what_to_write() {
    let pool = |provider: Value| json!({"rolter": {"providers": [provider]}});
    let cases = [
        ("envoy", json!({"mode": "istio"}), "mode must be one of"),
        ("envoy", json!({"replica": 1}), "replica"),
        (
            "istio-gateway",
            json!({"filter": {"digest": ""}}),
            "write the digest of the filter's image",
        ),
        (
            "istio-gateway",
            json!({"filter": {"digest": "sha256:0"}}),
            "filter.digest",
        ),
        (
            "istio-sidecar",
            json!({"istio": {"selector": null}}),
            "istio.selector: write labels",
        ),
        (
            "istio-gateway",
            json!({"istio": {"gateway": {"create": false}}}),
            "istio.selector: write labels",
        ),
        (
            "istio-sidecar",
            json!({"rolter": {"routes": [{"name": "chat", "reach": "pool", "targets": ["vllm"]}]}}),
            "write match: { route_name: engines }",
        ),
        (
            "envoy",
            json!({"rolter": {"routes": [{"name": "a", "reach": "pool"}, {"name": "b"}]}}),
            "write the same reach for all routes",
        ),
        (
            "envoy",
            json!({"rolter": {"routes": [{"name": "a", "targets": ["a"]}],
                                    "providers": [{"name": "a", "cluster": "a"}]}}),
            "write clusters: { a: HOST:PORT }",
        ),
        (
            "envoy",
            pool(json!({"name": "vllm", "endpoint": "vllm"})),
            "write HOST:PORT",
        ),
        ("envoy", pool(json!({"name": "vllm"})), "write HOST:PORT"),
        (
            "envoy",
            json!({"rolter": {"sidecar": {"cluster": "mine"}}}),
            "leave it out",
        ),
        (
            "engines",
            json!({"engines": {"model": null}}),
            "engines.model: write the model",
        ),
        (
            "istio-gateway",
            json!({"istio": {"selector": {"a": "b"}, "gateway": {"create": false}}}),
            "write match: { route_name: engines }",
        ),
        (
            "istio-gateway",
            json!({"rolter": {"routes": [{"name": "chat", "reach": "pool", "targets": ["vllm"],
                                          "match": {"route_name": "default"}}]}}),
            "write the same in match.route_name and istio.route",
        ),
        (
            "istio-gateway",
            json!({"istio": {"mtls": {"enabled": true}}}),
            "write who they are",
        ),
        (
            "envoy",
            json!({"sidecar": {"enabled": false}}),
            "write sidecar.enabled: true",
        ),
        (
            "envoy",
            json!({"pool": {"fallback": "least_request"}, "rolter": {"providers": [
                {"name": "vllm", "endpoint": "10.0.0.1:8000", "allowed_keys": ["0".repeat(64)]}]}}),
            "pass over allowed_keys",
        ),
        (
            "istio-gateway",
            json!({"rolter": {"max_request_bytes": 8_388_608}}),
            "write 9437184 or more",
        ),
        (
            "istio-gateway",
            json!({"rolter": {"policy": {"max_answer_bytes": 8_388_608}}}),
            "write 8388608 or more",
        ),
        (
            "istio-gateway",
            json!({"filter": {"volume": {"emptyDir": {}}}}),
            "filter.volume: nothing",
        ),
        (
            "istio-sidecar",
            json!({"podLabels": {"a": "b"}}),
            "podLabels: nothing",
        ),
        (
            "engines",
            json!({"networkPolicy": {"egress": [{}]}}),
            "networkPolicy.egress: nothing",
        ),
        (
            "envoy",
            json!({"rolter": {"routes": [{"name": "a", "targets": ["a"]}],
                              "providers": [{"name": "a", "cluster": "outbound|80||a"}]}}),
            "is unknown; write clusters",
        ),
        (
            "istio-gateway",
            pool(json!({"name": "vllm", "endpoint": "10.0.0.1:8000"})),
            "write host and hostPort",
        ),
    ];
    for (mode, values, told) in cases {
        let refused = render(&with(mode, &values)).err();
        let refused = refused.unwrap_or_else(|| panic!("{values} is taken"));
        assert!(refused.contains(told), "{values}: {refused}");
    }
}
