//! Manifests against the schemas of Kubernetes, of the oldest and the newest release that the chart is
//! for, and of Istio. A field that a schema does not have is a mistake.

use crate::chart::find;
use jsonschema::Validator;
use serde_json::{Map, Value, json};
use std::fs;
use std::path::Path;

/// Kubernetes' groups, and the namespaces of their types in its schemas.
const GROUPS: [(&str, &str); 5] = [
    ("v1", "core.v1"),
    ("apps/v1", "apps.v1"),
    ("policy/v1", "policy.v1"),
    ("networking.k8s.io/v1", "networking.v1"),
    ("rbac.authorization.k8s.io/v1", "rbac.v1"),
];

/// The releases of Kubernetes.
const RELEASES: [&str; 2] = ["v1.31.0", "v1.37.0"];

/// What judges manifests.
pub struct Schemas {
    /// The definitions of each release.
    kubernetes: Vec<(&'static str, Value)>,
    istio: Vec<(&'static str, Validator)>,
}

impl Schemas {
    /// The schemas that `make test` fetches.
    ///
    /// # Panics
    /// Where they are not there, or not what they were.
    pub fn fetched() -> Self {
        let folder = find(
            "ROLTER_KUBERNETES_SCHEMAS",
            ".tools/kubernetes-validate-1.37.0",
        );
        let kubernetes = RELEASES.map(|release| {
            let text = read(&folder.join(format!("{release}.json")));
            // They refer to themselves by an address.
            let text = text.replace("/api/_definitions.json#", "#");
            let mut schemas: Value = parsed(&text);
            (release, schemas["$defs"].take())
        });
        let folder = find(
            "ROLTER_ISTIO_SCHEMAS",
            ".tools/kubernetes-models-istio-2.3.0",
        );
        let istio = ["EnvoyFilter", "Gateway", "VirtualService"].map(|kind| {
            let text = read(&folder.join(format!("{kind}.js")));
            let (_, schema) = text.split_once("const schema = ").unwrap_or_default();
            let (schema, _) = schema.split_once("};\n").unwrap_or_default();
            let mut schema: Value = parsed(&format!("{schema}}}"));
            // v1 is the v1beta1 of these.
            schema["properties"]["apiVersion"] = if kind == "EnvoyFilter" {
                json!({"const": "networking.istio.io/v1alpha3"})
            } else {
                json!({"const": "networking.istio.io/v1"})
            };
            schema["properties"]["metadata"] = json!({"required": ["name"]});
            close(&mut schema);
            (kind, compiled(&schema))
        });
        Self {
            kubernetes: kubernetes.into(),
            istio: istio.into(),
        }
    }

    /// What is wrong with an object.
    pub fn problems(&self, object: &Value) -> Vec<String> {
        let kind = object["kind"].as_str().unwrap_or_default();
        let version = object["apiVersion"].as_str().unwrap_or_default();
        if let Some((_, schema)) = self.istio.iter().find(|(known, _)| *known == kind) {
            return found(kind, schema, object);
        }
        let group = GROUPS.iter().find(|(known, _)| *known == version);
        let Some((_, namespace)) = group else {
            return vec![format!("{kind}: there is no schema of {version:?}")];
        };
        let of_release = |(release, definitions): &(&str, Value)| {
            let name = format!("io.k8s.api.{namespace}.{kind}");
            if definitions[&name].is_null() {
                return vec![format!("{kind}: Kubernetes {release} has no {name}")];
            }
            let schema = json!({"$ref": format!("#/$defs/{name}"), "$defs": definitions});
            found(&format!("{release} {kind}"), &compiled(&schema), object)
        };
        self.kubernetes.iter().flat_map(of_release).collect()
    }

    /// What is wrong with the part of an object that is a pod's.
    pub fn problems_of_pod(&self, pod: &Value) -> Vec<String> {
        let mut pod = pod.clone();
        pod["apiVersion"] = json!("v1");
        pod["kind"] = json!("Pod");
        self.problems(&pod)
    }
}

fn found(what: &str, schema: &Validator, object: &Value) -> Vec<String> {
    let errors = schema.iter_errors(object);
    errors
        .map(|error| format!("{what}{}: {error}", error.instance_path()))
        .collect()
}

/// Forbids fields that an object of a schema does not name.
fn close(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            let named = fields.get("properties").and_then(Value::as_object);
            let named = named.is_some_and(|named| !named.is_empty());
            // Conditions, as in `oneOf`, only add to what the object has.
            if named && fields.contains_key("type") && !fields.contains_key("additionalProperties")
            {
                fields.insert("additionalProperties".into(), false.into());
            }
            fields.values_mut().for_each(close);
        }
        Value::Array(values) => values.iter_mut().for_each(close),
        _ => {}
    }
}

fn compiled(schema: &Value) -> Validator {
    jsonschema::validator_for(schema).unwrap_or_else(|error| panic!("{error}"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| {
        let path = path.display();
        panic!("{path}: {error}; run `make test`")
    })
}

fn parsed(text: &str) -> Value {
    let object: Map<String, Value> =
        serde_json::from_str(text).unwrap_or_else(|error| panic!("no schema: {error}"));
    object.into()
}
