//! Pods of clients, as Istio's injection makes them.

use crate::{rendered, variants, with};
use e2e::chart::{over, project};
use e2e::schemas::Schemas;
use serde_json::{Value, json};
use std::fs;

const LISTS: [&str; 3] = ["containers", "initContainers", "volumes"];

/// A pod's spec over that of another: lists by name.
fn overlay(below: &mut Value, above: &Value) {
    for name in LISTS {
        for item in above[name].as_array().into_iter().flatten() {
            let list = below[name].as_array_mut().unwrap();
            match list.iter_mut().find(|known| known["name"] == item["name"]) {
                Some(known) => over(known, item),
                None => list.push(item.clone()),
            }
        }
    }
}

/// Where a list of a pod has its proxy.
fn proxy(spec: &Value, list: &str) -> Option<usize> {
    let mut items = spec[list].as_array().unwrap().iter();
    items.position(|item| item["name"] == "istio-proxy")
}

/// What Istio makes of a client's pod by these templates: each goes over the pod and over what the
/// templates before it say; and a proxy that these have among the init containers is taken there.
fn injected(templates: &[&Value]) -> Value {
    let none = json!({"containers": [], "initContainers": [], "volumes": []});
    let mut pod = none.clone();
    overlay(
        &mut pod,
        &json!({"containers": [{"name": "app", "image": "app"}]}),
    );
    let mut said = none;
    for template in templates {
        overlay(&mut said, template);
        if let (Some(_), Some(place)) = (proxy(&said, "initContainers"), proxy(&pod, "containers"))
        {
            let moved = pod["containers"].as_array_mut().unwrap().remove(place);
            pod["initContainers"].as_array_mut().unwrap().push(moved);
        }
        overlay(&mut pod, template);
    }
    pod
}

fn names_are_unique(spec: &Value) -> bool {
    let lists = LISTS[..2].iter();
    let names = lists.flat_map(|list| spec[*list].as_array().unwrap());
    let names: Vec<&Value> = names.map(|container| &container["name"]).collect();
    let mut known = std::collections::HashSet::new();
    names.iter().all(|name| known.insert(name.to_string()))
}

/// The annotations that the documentation gives to clients' pods.
fn annotations() -> Value {
    let page = fs::read_to_string(project().join("docs/istio.md")).unwrap();
    let line = page
        .lines()
        .find(|line| line.contains("patch deployment client"));
    let patch = line.unwrap().split('\'').nth(1).unwrap();
    let patch: Value = serde_json::from_str(patch).unwrap();
    patch["spec"]["template"]["metadata"]["annotations"].clone()
}

#[test]
fn an_injected_pod_is_valid_and_shares_the_socket() {
    let schemas = Schemas::fetched();
    let annotations = annotations();
    let order = annotations["inject.istio.io/templates"].as_str().unwrap();
    let init = json!({"name": "istio-init", "image": "proxyv2"});
    let of_istio = [
        json!({"containers": [{"name": "istio-proxy", "image": "proxyv2"}], "initContainers": [init]}),
        json!({"initContainers": [init,
            {"name": "istio-proxy", "image": "proxyv2", "restartPolicy": "Always"}]}),
    ];
    for (variant, values) in variants("istio-sidecar") {
        let release = rendered(&with("istio-sidecar", &values));
        // Labels of metrics come from there. Istio reads it off the pod, not off templates.
        let bootstrap = annotations["sidecar.istio.io/bootstrapOverride"].as_str();
        let bootstrap = release.named("ConfigMap", bootstrap.unwrap());
        assert!(bootstrap["data"]["custom_bootstrap.json"].is_string());
        let map = release.named("ConfigMap", "rolter-injection");
        let values: Value =
            serde_saphyr::from_str(map["data"]["istiod-values.yaml"].as_str().unwrap()).unwrap();
        let template = &values["sidecarInjectorWebhook"]["templates"]["rolter"];
        let template = template.as_str().unwrap();
        assert!(!template.contains("{{"), "Istio would evaluate it");
        let more: Value = serde_saphyr::from_str(template).unwrap();
        assert_eq!(more.get("metadata"), None);
        for istio in &of_istio {
            let of = |name: &str| match name {
                "rolter" => &more["spec"],
                "sidecar" => istio,
                _ => panic!("what is {name}?"),
            };
            let templates: Vec<&Value> = order.split(',').map(of).collect();
            let spec = injected(&templates);
            assert!(names_are_unique(&spec), "{spec}");
            let pod = json!({"metadata": {"name": "client"}, "spec": spec});
            assert_eq!(schemas.problems_of_pod(&pod), Vec::<String>::new());
            let containers = LISTS[..2]
                .iter()
                .flat_map(|list| spec[*list].as_array().unwrap());
            let containers: Vec<&Value> = containers.collect();
            let named = |name: &str| containers.iter().find(|known| known["name"] == name);
            let Some(sidecar) = named("rolter-sidecar") else {
                assert_eq!(variant, "addresses");
                continue;
            };
            assert_eq!(sidecar["restartPolicy"], "Always");
            // The user of istio-proxy, whose traffic Istio does not take.
            assert_eq!(sidecar["securityContext"]["runAsUser"], 1337);
            let proxy = named("istio-proxy").unwrap();
            assert_eq!(proxy["image"], "proxyv2");
            for container in [sidecar, proxy] {
                let mounts = container["volumeMounts"].as_array().unwrap();
                let socket = json!({"name": "rolter-run", "mountPath": "/run/rolter"});
                assert!(mounts.contains(&socket));
            }
        }
        // After Istio's own it would be a second proxy.
        let late = injected(&[&of_istio[1], &more["spec"]]);
        assert_eq!(names_are_unique(&late), variant == "addresses");
    }
}
