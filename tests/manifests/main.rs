//! What the chart renders, against the schemas of Kubernetes and Istio, and what it refuses.

mod documented;
mod injection;
mod refusals;

use e2e::chart::{DIGEST, Rendered, mode, over, project, render};
use e2e::rolled::{meshed, started};
use e2e::schemas::Schemas;
use e2e::validation::{shown, validate};
use fleet::{module, sidecar_binary};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::Command;

const MODES: [&str; 3] = ["envoy", "istio-gateway", "istio-sidecar"];

/// The values of a mode, with these over them.
fn with(name: &str, values: &Value) -> Value {
    let mut all = mode(name);
    over(&mut all, values);
    all
}

fn rendered(values: &Value) -> Rendered {
    render(values).unwrap_or_else(|error| panic!("{values}: {error}"))
}

/// What people would set in a mode.
fn variants(mode: &str) -> Vec<(&'static str, Value)> {
    let policy = json!({"rolter": {
        "policy": {"guardrails": [{"name": "keys", "pattern": "AKIA[0-9A-Z]{16}", "action": "block"}],
                   "plugins": [{"name": "moderation", "cluster": "moderation", "on_failure": "closed"}]},
    }, "clusters": {"moderation": "moderation.llm.svc.cluster.local:8100"}});
    let engine = |name: &str, host: &str| {
        json!({"name": name, "cluster": name, "api_base": format!("http://{host}:8000"),
               "kv_events": {"endpoint": format!("tcp://{host}:5557")}})
    };
    let clusters = json!({"clusters": {"a": "vllm-0.vllm:8000", "b": "vllm-1.vllm:8000"}, "rolter": {
        "providers": [engine("a", "vllm-0.vllm"), engine("b", "vllm-1.vllm")],
        "routes": [{"name": "chat", "strategy": "precise_cache_aware", "targets": ["a", "b"],
                    "match": {"route_name": "engines"}}],
    }, "istio": {"host": "vllm.llm.svc.cluster.local", "hostPort": 8000}});
    let addresses = json!({"rolter": {
        "providers": [{"name": "a", "endpoint": "10.0.0.1:8000"}, {"name": "b", "endpoint": "[fd00::1]:8000"}],
        "routes": [{"name": "chat", "reach": "pool", "targets": ["a", "b"],
                    "match": {"route_name": "engines"}}],
    }, "sidecar": {"enabled": false}, "istio": {"host": "vllm.llm.svc.cluster.local", "hostPort": 8000}});
    let redis = json!({"rolter": {
        "cache": {"enabled": true, "redis": "redis://redis:6379", "redis_password_env": "REDIS_PASSWORD"},
        "routes": [{"name": "chat", "reach": "pool", "targets": ["vllm"], "cache": {"enabled": true},
                    "match": {"route_name": "engines"}}],
    }, "sidecar": {"env": [{"name": "REDIS_PASSWORD",
        "valueFrom": {"secretKeyRef": {"name": "redis", "key": "password"}}}]}});
    let mut everything = json!({
        "image": {"pullSecrets": ["registry"], "tag": "1.2.3"},
        "filter": {"digest": DIGEST},
        "istio": {"mtls": {"enabled": true, "subjectAltNames": ["spiffe://cluster.local/ns/llm/sa/vllm"]},
                  "gateway": {"revision": "canary", "hosts": ["llm.example.com"],
                              "tls": {"mode": "SIMPLE", "credentialName": "llm"}}},
    });
    let of_pods = json!({
        "replicas": null, "drainDelaySeconds": 30,
        "service": {"type": "LoadBalancer", "annotations": {"a": "b"},
                    "spec": {"externalTrafficPolicy": "Local", "loadBalancerClass": "example.com/lb"}},
        "podAnnotations": {"a": "b"}, "podLabels": {"team": "llm"}, "nodeSelector": {"pool": "edge"},
        "tolerations": [{"key": "edge", "operator": "Exists"}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1,
            "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}}]}},
        "networkPolicy": {"from": [{"namespaceSelector": {}}], "metricsFrom": [{"podSelector": {}}],
                          "egress": [{"ports": [{"port": 8000}]}]},
    });
    if mode != "istio-sidecar" {
        over(&mut everything, &of_pods);
    }
    if mode == "envoy" {
        everything["filter"]["volume"] = json!({"persistentVolumeClaim": {"claimName": "filter"}});
    }
    vec![
        ("as it is", json!({})),
        ("a policy", policy),
        ("clusters", clusters),
        ("addresses", addresses),
        ("Redis", redis),
        ("everything", everything),
    ]
}

fn each_variant(check: impl Fn(&str, &str, &Rendered)) {
    for mode in MODES {
        for (variant, values) in variants(mode) {
            check(mode, variant, &rendered(&with(mode, &values)));
        }
    }
}

#[test]
fn every_manifest_is_valid() {
    let schemas = Schemas::fetched();
    each_variant(|mode, variant, rendered| {
        let problems: Vec<String> = rendered
            .objects()
            .iter()
            .flat_map(|object| schemas.problems(object))
            .collect();
        assert!(problems.is_empty(), "{mode}, {variant}: {problems:#?}");
    });
}

#[test]
fn engines_are_a_release_of_their_own() {
    let schemas = Schemas::fetched();
    let everything = json!({"engines": {
        "args": ["--max-model-len", "8192"],
        "env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "hf", "key": "token"}}}],
        "nodeSelector": {"pool": "gpu"}, "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "modelCache": {"persistentVolumeClaim": {"claimName": "models"}}},
        "networkPolicy": {"from": [{"namespaceSelector": {}}], "eventsFrom": [{"podSelector": {}}]}});
    let mut peers = Vec::new();
    for values in [json!({}), everything] {
        let rendered = rendered(&with("engines", &values));
        let objects = rendered.objects().iter();
        let problems = objects.flat_map(|object| schemas.problems(object));
        assert_eq!(problems.collect::<Vec<_>>(), Vec::<String>::new());
        let kinds = rendered.objects().iter().map(|object| &object["kind"]);
        assert_eq!(
            kinds.collect::<Vec<_>>(),
            ["NetworkPolicy", "Service", "StatefulSet"]
        );
        let pod = &rendered.of_kind("StatefulSet")[0]["spec"]["template"]["metadata"]["labels"];
        let policy = &rendered.of_kind("NetworkPolicy")[0]["spec"];
        assert_eq!(&policy["podSelector"]["matchLabels"], pod);
        assert_eq!(&rendered.of_kind("Service")[0]["spec"]["selector"], pod);
        let events = &policy["ingress"][1];
        assert_eq!(events["ports"], json!([{"port": 5557}, {"port": 5558}]));
        peers.push(events["from"].clone());
    }
    // Without a word, those who route.
    let ours = &rendered(&mode("envoy")).of_kind("Deployment")[0]["spec"]["template"].clone();
    let named = peers[0][0]["podSelector"]["matchLabels"]
        .as_object()
        .unwrap();
    for (label, value) in named {
        assert_eq!(&ours["metadata"]["labels"][label], value);
    }
    assert_eq!(peers[1], json!([{"podSelector": {}}]));
    each_variant(|mode, variant, rendered| {
        assert!(
            rendered.of_kind("StatefulSet").is_empty(),
            "{mode}, {variant}"
        );
    });
}

#[test]
fn a_gateway_finds_its_own_pods_and_their_certificate() {
    let tls = json!({"istio": {"gateway": {"tls": {"mode": "SIMPLE", "credentialName": "llm"}}}});
    for (values, name, port) in [(json!({}), "http", 80), (tls, "https", 443)] {
        let rendered = rendered(&with("istio-gateway", &values));
        let gateway = &rendered.of_kind("Gateway")[0]["spec"];
        let pod = &rendered.of_kind("Deployment")[0]["spec"]["template"];
        // Gateways look for pods in all namespaces.
        let selector = gateway["selector"].as_object().unwrap();
        assert!(selector.values().any(|value| value == "llm"));
        for (label, value) in selector {
            assert_eq!(&pod["metadata"]["labels"][label], value);
        }
        let service = &rendered.named("Service", "rolter")["spec"]["ports"][0];
        assert_eq!(
            (&service["name"], &service["port"]),
            (&json!(name), &json!(port))
        );
        assert_eq!(gateway["servers"][0]["port"]["number"], port);
        let is_secret = name == "https";
        assert_eq!(rendered.of_kind("Role").len(), usize::from(is_secret));
        if is_secret {
            let rules = &rendered.of_kind("Role")[0]["rules"][0];
            assert_eq!(rules["resources"], json!(["secrets"]));
            assert!(rules["verbs"].as_array().unwrap().contains(&json!("list")));
            let binding = rendered.of_kind("RoleBinding")[0];
            assert_eq!(
                binding["roleRef"]["name"],
                rendered.of_kind("Role")[0]["metadata"]["name"]
            );
            let account = &pod["spec"]["serviceAccountName"];
            assert_eq!(&binding["subjects"][0]["name"], account);
            assert_eq!(
                &rendered.of_kind("ServiceAccount")[0]["metadata"]["name"],
                account
            );
        }
    }
}

/// The connection manager that the filter is in.
fn manager(rendered: &Rendered, mode: &str) -> Value {
    let bootstrap = if mode == "envoy" {
        serde_saphyr::from_str(rendered.entry("envoy.yaml")).unwrap()
    } else {
        meshed(rendered, mode).unwrap().bootstrap
    };
    let place = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
    bootstrap.pointer(place).unwrap().clone()
}

#[test]
fn paths_have_one_spelling_where_routes_differ() {
    let route = json!({"name": "chat", "reach": "pool", "targets": ["a"],
                       "match": {"route_name": "engines"}});
    let with_keys = |keys: Value| {
        json!({"rolter": {"routes": [route], "providers": [
            {"name": "a", "endpoint": "10.0.0.1:8000", "allowed_keys": keys}]},
            "istio": {"host": "vllm.llm.svc.cluster.local", "hostPort": 8000}})
    };
    let keys = with_keys(json!(["0".repeat(64)]));
    for mode in MODES {
        let of = |values: &Value| manager(&rendered(&with(mode, values)), mode);
        let policy = &variants(mode)[1].1;
        for values in [&keys, policy] {
            let manager = of(values);
            assert_eq!(manager["normalize_path"], true);
            assert_eq!(manager["merge_slashes"], true);
            let escaped = &manager["path_with_escaped_slashes_action"];
            assert_eq!(escaped, "REJECT_REQUEST", "{mode}");
        }
        // Where clients call other Services as well, only what must be.
        let merges = &of(&with_keys(json!([])))["merge_slashes"];
        assert_eq!(*merges == true, mode == "envoy", "{mode}");
    }
}

#[test]
fn headers_have_room_for_token_ids_where_clients_send_them() {
    let strategy = |tokenize: bool| {
        json!({"rolter": {"routes": [{"name": "chat", "reach": "pool", "targets": ["vllm"],
            "strategy": "precise_cache_aware", "precise_cache_aware": {"tokenize": tokenize}}]}})
    };
    for (values, room) in [
        (strategy(false), json!(1024)),
        (strategy(true), Value::Null),
        (json!({}), Value::Null),
    ] {
        let manager = manager(&rendered(&with("envoy", &values)), "envoy");
        assert_eq!(manager["max_request_headers_kb"], room, "{values}");
    }
}

#[test]
fn mistakes_in_manifests_are_found() {
    let schemas = Schemas::fetched();
    let gateway = rendered(&mode("istio-gateway"));
    let mistakes: [(&str, &str, Value); 9] = [
        ("Deployment", "/spec/replicas", json!("two")),
        ("Deployment", "/spec/template/spec/container", json!([])),
        (
            "Deployment",
            "/spec/template/spec/containers/0/ports/0/containerport",
            json!(1),
        ),
        ("Service", "/spec/ports/0/port", json!("http")),
        ("NetworkPolicy", "/spec/podSelector/matchLabel", json!({})),
        (
            "EnvoyFilter",
            "/spec/configPatches/0/applyTo",
            json!("EXTENSION"),
        ),
        (
            "EnvoyFilter",
            "/spec/configPatches/0/patch/operaton",
            json!("ADD"),
        ),
        (
            "EnvoyFilter",
            "/spec/configPatches/1/match/listener/port",
            json!(8080),
        ),
        (
            "VirtualService",
            "/spec/http/0/route/0/destination/port/name",
            json!("http"),
        ),
    ];
    for (kind, place, value) in mistakes {
        let mut object = gateway.of_kind(kind)[0].clone();
        assert_eq!(schemas.problems(&object), Vec::<String>::new());
        let (parent, field) = place.rsplit_once('/').unwrap();
        object.pointer_mut(parent).unwrap()[field] = value;
        assert!(!schemas.problems(&object).is_empty(), "{kind}{place}");
    }
    let unknown = json!({"apiVersion": "v2", "kind": "Pod"});
    assert!(!schemas.problems(&unknown).is_empty());
}

/// The document that a release gives the sidecar.
fn document(rendered: &Rendered) -> Value {
    serde_saphyr::from_str(rendered.entry("rolter.yaml")).unwrap()
}

#[test]
fn filter_and_sidecar_have_one_document_and_it_is_read() {
    let folder = tempfile::tempdir().unwrap();
    each_variant(|mode, variant, rendered| {
        let told = document(rendered);
        let filters: Vec<Value> = if mode == "envoy" {
            let envoy: Value = serde_saphyr::from_str(rendered.entry("envoy.yaml")).unwrap();
            let place =
                "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/http_filters";
            let filters = envoy.pointer(place).unwrap().as_array().unwrap().iter();
            filters
                .map(|filter| filter["typed_config"].clone())
                .collect()
        } else {
            let mesh = meshed(rendered, mode).unwrap();
            let extensions = mesh.extensions.iter();
            extensions
                .map(|extension| extension["typed_config"].clone())
                .collect()
        };
        let ours = filters.iter().filter_map(|filter| filter.get("config"));
        let ours: Vec<&Value> = ours.collect();
        let expected: &[&str] = match variant {
            "a policy" => &["rolter_policy", "rolter"],
            _ => &["rolter"],
        };
        let ids: Vec<&Value> = ours.iter().map(|config| &config["root_id"]).collect();
        assert_eq!(ids, expected, "{mode}, {variant}");
        for config in ours {
            assert_eq!(config["configuration"]["value"], told, "{mode}, {variant}");
            assert_eq!(config["allow_on_headers_stop_iteration"], true);
            assert_eq!(config["vm_config"]["vm_id"], "rolter");
            assert_eq!(config["failure_policy"], "FAIL_RELOAD");
        }

        let file = folder.path().join("rolter.yaml");
        fs::write(&file, rendered.entry("rolter.yaml")).unwrap();
        check(&file, &format!("{mode}, {variant}"));
    });
}

#[test]
fn fields_are_set_only_for_a_log_that_is_there() {
    for (envoy, own, expected) in [
        (json!({}), json!({}), Value::Null),
        (json!({"accessLog": false}), json!({}), json!(false)),
        (
            json!({"accessLog": false}),
            json!({"log_fields": true}),
            json!(true),
        ),
        (json!({}), json!({"log_fields": false}), json!(false)),
    ] {
        let values = with("envoy", &json!({"envoy": envoy, "rolter": own}));
        assert_eq!(
            document(&rendered(&values))["log_fields"],
            expected,
            "{values}"
        );
    }
    // Which logs a mesh has the chart does not know.
    for mode in ["istio-gateway", "istio-sidecar"] {
        let values = with(mode, &json!({"envoy": {"accessLog": false}}));
        assert!(document(&rendered(&values)).get("log_fields").is_none());
    }
}

/// Whether the sidecar reads a document.
fn check(file: &Path, what: &str) {
    let checked = Command::new(sidecar_binary().unwrap())
        .args(["check", "--config"])
        .arg(file)
        .output()
        .unwrap();
    assert!(checked.status.success(), "{what}: {}", shown(&checked));
}

#[test]
fn envoy_accepts_every_variant() {
    let folder = tempfile::tempdir().unwrap();
    let module = module().unwrap();
    each_variant(|mode, variant, rendered| {
        let text = if mode == "envoy" {
            let path = module.display().to_string();
            let text = rendered.entry("envoy.yaml");
            let text = text.replace("/etc/rolter-filter/plugin.wasm", &path);
            let file = folder.path().join("envoy.yaml");
            fs::write(&file, &text).unwrap();
            let checked = Command::new(sidecar_binary().unwrap())
                .args(["check", "--envoy-config"])
                .arg(&file)
                .output()
                .unwrap();
            let told = shown(&checked);
            assert!(checked.status.success(), "{variant}: {told}");
            assert!(!told.contains("but "), "{variant}: {told}");
            text
        } else {
            let mut mesh = meshed(rendered, mode).unwrap();
            mesh.fetch(folder.path(), &module).unwrap();
            let mut bootstrap = started(mesh.bootstrap, rendered);
            bootstrap["node"] = json!({"id": "envoy", "cluster": "envoy"});
            bootstrap.to_string()
        };
        let output = validate(&text);
        assert!(
            output.status.success(),
            "{mode}, {variant}: {}",
            shown(&output)
        );
    });
}

#[test]
fn a_patch_without_effect_is_found() {
    let gateway = rendered(&mode("istio-gateway"));
    let filter = gateway.of_kind("EnvoyFilter")[0];
    let patches = filter["spec"]["configPatches"].as_array().unwrap();
    let place = |to: &str| {
        patches
            .iter()
            .position(|patch| patch["applyTo"] == to)
            .unwrap()
    };
    let (http, route) = (place("HTTP_FILTER"), place("HTTP_ROUTE"));
    let mistakes = [
        (http, "/match/listener/portNumber", json!(8081)),
        (
            http,
            "/match/listener/filterChain/filter/subFilter/name",
            json!("router"),
        ),
        (http, "/patch/operation", json!("INSERT_AFTER")),
        (http, "/match/context", json!("SIDECAR_OUTBOUND")),
        (
            route,
            "/match/routeConfiguration/vhost/route/name",
            json!("engine"),
        ),
        (
            route,
            "/match/routeConfiguration/vhost/route/path",
            json!("/"),
        ),
        (place("LISTENER"), "/applyTo", json!("FILTER_CHAIN")),
    ];
    let base = fs::read_to_string(project().join("tests/istio/gateway.yaml")).unwrap();
    let base: Value = serde_saphyr::from_str(&base).unwrap();
    for (patch, place, value) in mistakes {
        let mut filter = filter.clone();
        let patch = &mut filter["spec"]["configPatches"][patch];
        let (parent, field) = place.rsplit_once('/').unwrap();
        patch.pointer_mut(parent).unwrap()[field] = value;
        let made = e2e::mesh::Mesh::of(base.clone(), &filter, "GATEWAY");
        assert!(made.is_err(), "{place}");
    }
    let mut filter = filter.clone();
    filter["spec"]["configPatches"]
        .as_array_mut()
        .unwrap()
        .remove(http);
    let mut mesh = e2e::mesh::Mesh::of(base, &filter, "GATEWAY").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let unused = mesh.fetch(folder.path(), &module().unwrap());
    assert!(unused.unwrap_err().contains("no filter asks for"));
}

#[test]
fn no_container_may_do_more_than_it_must() {
    for mode in ["envoy", "istio-gateway"] {
        let rendered = rendered(&with(mode, &json!({})));
        let pod = &rendered.of_kind("Deployment")[0]["spec"]["template"]["spec"];
        let containers = [&pod["containers"], &pod["initContainers"]];
        let containers: Vec<&Value> = containers
            .into_iter()
            .flat_map(|list| list.as_array().unwrap())
            .collect();
        assert_eq!(containers.len(), 2);
        for container in containers {
            let may = &container["securityContext"];
            assert_eq!(may["allowPrivilegeEscalation"], false);
            assert_eq!(may["readOnlyRootFilesystem"], true);
            assert_eq!(may["runAsNonRoot"], true);
            assert_eq!(may["capabilities"]["drop"], json!(["ALL"]));
            assert_eq!(may["seccompProfile"]["type"], "RuntimeDefault");
            assert!(container["resources"]["limits"]["memory"].is_string());
            assert!(container["resources"]["requests"]["cpu"].is_string());
        }
        // Nobody else may write to the socket.
        let sidecar = &pod["initContainers"][0]["securityContext"];
        assert_eq!(sidecar["runAsUser"], pod["securityContext"]["runAsUser"]);
        assert_eq!(sidecar["runAsGroup"], pod["securityContext"]["runAsGroup"]);
    }
}

#[test]
fn the_version_is_that_of_the_project() {
    let cargo = fs::read_to_string(project().join("Cargo.toml")).unwrap();
    let (_, package) = cargo.split_once("[workspace.package]").unwrap();
    let version = package
        .lines()
        .find_map(|line| line.strip_prefix("version = "));
    let version = version.unwrap().trim_matches('"');
    let chart = fs::read_to_string(project().join("envoy/chart/Chart.yaml")).unwrap();
    let chart: Value = serde_saphyr::from_str(&chart).unwrap();
    assert_eq!(
        [&chart["version"], &chart["appVersion"]],
        [version, version]
    );
}
