//! The Helm chart, as Helm renders it.

use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The release and the namespace that it is rendered for.
pub const RELEASE: &str = "rolter";
const NAMESPACE: &str = "llm";

/// A digest as an image has one.
pub const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// The objects of a release.
pub struct Rendered(Vec<Value>);

/// A file that a variable names, else one by its path in the project.
pub(crate) fn find(variable: &str, default: &str) -> PathBuf {
    match std::env::var_os(variable) {
        Some(path) => PathBuf::from(path),
        None => project().join(default),
    }
}

/// The folder of the project.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The Helm that `make test` installs.
pub fn helm() -> PathBuf {
    find("ROLTER_HELM", ".tools/helm-3.17.3.post1/bin/helm")
}

/// Renders the chart with these values.
///
/// # Errors
/// What Helm says, where it refuses.
///
/// # Panics
/// Where Helm cannot be run, or renders what is no YAML.
pub fn render(values: &Value) -> Result<Rendered, String> {
    let helm = helm();
    let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
    let file = folder.path().join("values.json");
    fs::write(&file, values.to_string()).unwrap_or_else(|error| panic!("{error}"));
    let output = Command::new(&helm)
        .args(["template", RELEASE, "--namespace", NAMESPACE, "--values"])
        .arg(&file)
        .arg(project().join("envoy/chart"))
        .env("HOME", folder.path())
        .output();
    let output = output.unwrap_or_else(|error| {
        let helm = helm.display();
        panic!("{helm}: {error}; run `make test`, or set ROLTER_HELM")
    });
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let documents = text.split("\n---\n").map(|text| {
        let object: Value = serde_saphyr::from_str(text.trim_start_matches("---\n"))
            .unwrap_or_else(|error| panic!("{error}:\n{text}"));
        object
    });
    Ok(Rendered(
        documents.filter(|object| !object.is_null()).collect(),
    ))
}

impl Rendered {
    /// All of them.
    pub fn objects(&self) -> &[Value] {
        &self.0
    }

    /// Those of a kind.
    pub fn of_kind(&self, kind: &str) -> Vec<&Value> {
        let objects = self.0.iter();
        objects.filter(|object| object["kind"] == kind).collect()
    }

    /// The one of a kind that has this name.
    ///
    /// # Panics
    /// Where there is none.
    pub fn named(&self, kind: &str, name: &str) -> &Value {
        let mut of_kind = self.of_kind(kind).into_iter();
        of_kind
            .find(|object| object["metadata"]["name"] == name)
            .unwrap_or_else(|| panic!("no {kind} {name}"))
    }

    /// The entry of the release's `ConfigMap` under this key.
    ///
    /// # Panics
    /// Where there is none.
    pub fn entry(&self, key: &str) -> &str {
        let map = self.named("ConfigMap", RELEASE);
        let entry = map["data"][key].as_str();
        entry.unwrap_or_else(|| panic!("the ConfigMap has no {key}"))
    }
}

/// Values over others: objects are merged, everything else replaced, as Helm does it.
pub fn over(below: &mut Value, above: &Value) {
    match (below, above) {
        (Value::Object(below), Value::Object(above)) => {
            for (key, value) in above {
                over(below.entry(key).or_insert(Value::Null), value);
            }
        }
        (below, above) => *below = above.clone(),
    }
}

/// The values of a mode, with what it requires.
pub fn mode(mode: &str) -> Value {
    let mut values = json!({"mode": mode, "filter": {"digest": DIGEST}});
    if mode == "engines" {
        values["engines"] = json!({"model": "facebook/opt-125m"});
    }
    if mode == "istio-sidecar" {
        values["istio"] = json!({"selector": {"app": "client"}});
        values["rolter"] = json!({"routes": [{
            "name": "chat",
            "match": {"route_name": "engines"},
            "reach": "pool",
            "targets": ["vllm"],
        }]});
    }
    values
}
