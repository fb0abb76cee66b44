//! Providers by a DNS name, whose addresses are their targets.

use super::{parse, problems_with};
use crate::config::{Dns, Endpoint, EventEndpoint};
use serde_json::{Value, json};
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

const NAME: &str = "vllm.llm.svc.cluster.local";

/// A document with one provider that has a name in every place.
fn document() -> Value {
    json!({
        "sidecar": {"cluster": "rolter_sidecar"},
        "providers": [{
            "name": "vllm",
            "endpoint": format!("{NAME}:8000"),
            "api_base": format!("http://{NAME}:8000/base"),
            "kv_events": {
                "endpoint": format!("tcp://{NAME}:5557"),
                "replay_endpoint": format!("tcp://{}:5558", NAME.to_uppercase()),
            },
            "lmcache": {"endpoint": format!("http://{NAME}:9000/v1/occupancy?host={NAME}")},
        }],
        "routes": [{"name": "chat", "reach": "pool", "targets": ["vllm"]}],
    })
}

/// What is wrong with that after this.
fn problems(pointer: &str, value: Value) -> Vec<String> {
    let mut document = document();
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    document.pointer_mut(parent).unwrap()[key] = value;
    parse(&document).err().unwrap_or_default()
}

#[test]
fn a_name_gives_way_to_each_of_its_addresses_wherever_it_is() {
    let config = parse(&document()).unwrap();
    let provider = &config.providers[0];
    let name = provider.dns_name().unwrap();
    assert_eq!((name.name.as_str(), name.port), (NAME, 8000));
    for (address, host) in [
        ("10.0.0.7:8000", "10.0.0.7"),
        ("[2001:db8::7]:8000", "[2001:db8::7]"),
    ] {
        let socket = address.parse().unwrap();
        let member = provider.at(socket);
        assert_eq!(member.name, format!("vllm/{address}"));
        assert_eq!(member.endpoint, Some(Endpoint::Address(socket)));
        let base = format!("http://{host}:8000/base");
        assert_eq!(member.api_base.as_ref(), Some(&base));
        // What is no host stays.
        let occupancy = format!("http://{host}:9000/v1/occupancy?host={NAME}");
        assert_eq!(member.lmcache.as_ref().unwrap().endpoint, occupancy);
        let events = member.kv_events.as_ref().unwrap();
        let of_port = |port| EventEndpoint::Tcp {
            host: host.into(),
            port,
        };
        assert_eq!(events.endpoint, of_port(5557));
        assert_eq!(events.replay_endpoint, Some(of_port(5558)));
        // It has no name of its own any more.
        assert_eq!(member.at(socket), member);
    }
}

#[test]
fn names_are_without_case_and_may_be_absolute() {
    for (written, read) in [
        ("Vllm.Svc:80", "vllm.svc:80"),
        ("vllm.svc.:80", "vllm.svc.:80"),
        ("_vllm-0.a:65535", "_vllm-0.a:65535"),
        ("localhost:1", "localhost:1"),
    ] {
        let document = json!({
            "sidecar": {"cluster": "rolter_sidecar"},
            "providers": [{"name": "vllm", "endpoint": written}],
            "routes": [{"name": "chat", "reach": "pool", "targets": ["vllm"]}],
        });
        let config = parse(&document).unwrap();
        assert_eq!(
            config.providers[0].endpoint.as_ref().unwrap().to_string(),
            read
        );
    }
}

#[test]
fn what_cannot_stand_for_each_address_is_told() {
    let elsewhere = format!(
        "leads elsewhere than endpoint; write {NAME} for its host, which stands for each address"
    );
    let path = |key: &str| format!("/providers/0/{}", key.replace('.', "/"));
    for (key, value) in [
        ("api_base", json!("http://10.0.0.1:8000")),
        ("api_base", json!(format!("http://{NAME}.example:8000"))),
        ("kv_events.endpoint", json!("tcp://10.0.0.1:5557")),
        ("kv_events.endpoint", json!("ipc:///run/events")),
        ("kv_events.replay_endpoint", json!("tcp://other:5558")),
        ("lmcache.endpoint", json!("http://lmcache:9000/")),
    ] {
        let expected = [format!("providers[0].{key}: {elsewhere}")];
        assert_eq!(problems(&path(key), value.clone()), expected, "{value}");
    }
    assert_eq!(
        problems(
            "/providers/0/api_base",
            json!(format!("https://{NAME}:8443"))
        ),
        [
            "providers[0].api_base: each address is asked by itself, which no certificate is for; write http://"
        ]
    );
    assert_eq!(
        problems("/providers/0/kv_events/bind", json!(true)),
        [
            "providers[0].kv_events.bind: who connects cannot be told from the others; remove it, and have engines listen"
        ]
    );
}

#[test]
fn a_name_is_for_pools_and_takes_the_sidecar() {
    assert_eq!(
        problems("/routes/0/reach", json!("cluster")),
        [format!(
            "providers[0].endpoint: {NAME} is many targets, but route \"chat\" reaches it by cluster, where it would be one; write reach: pool there"
        )]
    );
    assert_eq!(
        problems("/sidecar", Value::Null),
        [format!(
            "providers[0].endpoint: {NAME} is a name, and nobody looks for its addresses; write sidecar: {{ cluster: … }}"
        )]
    );
}

#[test]
fn servers_and_the_time_between_two_looks_can_be_given() {
    let mut document = document();
    document["sidecar"]["dns"] =
        json!({"servers": ["10.96.0.10:53", "[::1]:5353"], "refresh_secs": 1});
    let dns = parse(&document).unwrap().sidecar.unwrap().dns;
    let expected = Dns {
        servers: vec![
            "10.96.0.10:53".parse().unwrap(),
            "[::1]:5353".parse().unwrap(),
        ],
        refresh_secs: 1,
    };
    assert_eq!(dns, expected);
    assert_eq!(
        problems(
            "/sidecar/dns",
            json!({"servers": ["10.96.0.10"], "refresh_secs": 0})
        ),
        [
            "sidecar.dns.servers[0]: \"10.96.0.10\"; write ip:port, as in 10.96.0.10:53",
            "sidecar.dns.refresh_secs: 0; write a whole number from 1 to 3600",
        ]
    );
    assert_eq!(problems_with("/providers/0/endpoint", Value::Null), [""; 0]);
}
