//! The configuration, from a file of its own (YAML, TOML or JSON) or out of Envoy's.

use rolter_core::config::{Config, Errors};
use serde_json::Value;
use std::path::Path;
use thiserror::Error;

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum Unusable {
    /// The file cannot be read.
    #[error("{0}: {1}")]
    File(String, std::io::Error),
    /// It is not of the kind that its name says.
    #[error("{0}: {1}")]
    Syntax(String, String),
    /// Its name does not say of which kind it is.
    #[error("{0}: of what kind is it? name it .yaml, .yml, .toml or .json")]
    Kind(String),
    /// Something in it is wrong, each at a path.
    #[error("{0}:\n{1}")]
    Content(String, Errors),
    /// Envoy's file has no filter of this kind.
    #[error(
        "{0}: no wasm filter in it has a configuration with `providers`; files that it refers to are not read"
    )]
    NoFilter(String),
    /// Envoy's file has several that differ.
    #[error(
        "{0}: it has wasm filters with {1} different configurations; write the one to use into a file of its own, for --config"
    )]
    Several(String, usize),
}

/// Reads a configuration from a file of its own.
pub fn read(path: &Path) -> Result<Config, Unusable> {
    let name = path.display().to_string();
    let document = parse(path, &name)?;
    Config::read(&document).map_err(|errors| Unusable::Content(name, errors))
}

/// Reads the configuration of the filter in a file of Envoy's.
pub fn read_envoy(path: &Path) -> Result<Config, Unusable> {
    let name = path.display().to_string();
    let document = parse(path, &name)?;
    let mut found = Vec::new();
    find(&document, &mut found);
    match &*found {
        [] => Err(Unusable::NoFilter(name)),
        [one] => Config::read(one).map_err(|errors| Unusable::Content(name, errors)),
        several => Err(Unusable::Several(name, several.len())),
    }
}

/// What is odd about a configuration in a file of Envoy's, though it is accepted: that Envoy cannot
/// get to the sidecar, as far as the file tells.
pub fn doubts(path: &Path, config: &Config) -> Result<Vec<String>, Unusable> {
    let document = parse(path, &path.display().to_string())?;
    let Some(sidecar) = &config.sidecar else {
        return Ok(Vec::new());
    };
    let (name, listen) = (&sidecar.cluster, sidecar.listen.to_string());
    let clusters = document.pointer("/static_resources/clusters");
    let mut clusters = clusters.and_then(Value::as_array).into_iter().flatten();
    let Some(cluster) = clusters.find(|cluster| cluster["name"] == **name) else {
        let what = "nothing reaches the sidecar, unless Envoy gets it from elsewhere";
        return Ok(vec![format!(
            "sidecar.cluster: no cluster {name:?} in this file; {what}"
        )]);
    };
    let mut leads_to = Vec::new();
    addresses(cluster, &mut leads_to);
    if leads_to.is_empty() || leads_to.contains(&listen) {
        return Ok(Vec::new());
    }
    let leads_to = leads_to.join(", ");
    Ok(vec![format!(
        "sidecar.listen: {listen}, but the cluster {name:?} leads to {leads_to}"
    )])
}

/// All addresses in a cluster, as `sidecar.listen` has them.
fn addresses(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| addresses(value, found)),
        Value::Object(fields) => {
            if let Some(path) = value.pointer("/pipe/path").and_then(Value::as_str) {
                found.push(format!("unix://{path}"));
            }
            if let Some(socket) = fields.get("socket_address")
                && let (Some(host), Some(port)) =
                    (socket["address"].as_str(), socket["port_value"].as_u64())
            {
                found.push(format!("{host}:{port}"));
            }
            fields.values().for_each(|value| addresses(value, found));
        }
        _ => {}
    }
}

fn parse(path: &Path, name: &str) -> Result<Value, Unusable> {
    let text =
        std::fs::read_to_string(path).map_err(|error| Unusable::File(name.to_owned(), error))?;
    let syntax = |error: String| Unusable::Syntax(name.to_owned(), error);
    match path.extension().and_then(|extension| extension.to_str()) {
        // JSON is YAML, too, but this says better what is wrong with it.
        Some("json") => serde_json::from_str(&text).map_err(|error| syntax(error.to_string())),
        Some("yaml" | "yml") => {
            serde_saphyr::from_str(&text).map_err(|error| syntax(error.to_string()))
        }
        Some("toml") => toml::from_str(&text).map_err(|error| syntax(error.to_string())),
        _ => Err(Unusable::Kind(name.to_owned())),
    }
}

/// All different values of `configuration` that are ours, wherever they are. The depth is bounded by
/// the parsers.
fn find(value: &Value, found: &mut Vec<Value>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| find(value, found)),
        Value::Object(fields) => {
            if let Some(ours) = fields.get("configuration").and_then(configuration)
                && !found.contains(&ours)
            {
                found.push(ours);
            }
            fields.values().for_each(|value| find(value, found));
        }
        _ => {}
    }
}

/// What Envoy hands over: a `Struct`, or a `StringValue` that is JSON.
fn configuration(any: &Value) -> Option<Value> {
    let ours = match any.get("value")? {
        Value::String(text) => serde_json::from_str(text).ok()?,
        value => value.clone(),
    };
    ours.get("providers").is_some().then_some(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "
sidecar: { cluster: rolter_sidecar }
providers: [{ name: a, cluster: a, kv_events: { endpoint: 'tcp://127.0.0.1:5557' } }]
routes: [{ name: chat, targets: [a] }]
";

    fn written(name: &str, text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        (dir, path)
    }

    fn envoy(configurations: &[&str]) -> String {
        let filters = configurations.iter().map(|configuration| {
            format!(
                r#"{{"name": "f", "typed_config": {{"config": {{"configuration": {configuration}}}}}}}"#
            )
        });
        let filters: Vec<_> = filters.collect();
        format!(
            r#"{{"static_resources": {{"listeners": [{{"filters": [{}]}}]}}}}"#,
            filters.join(",")
        )
    }

    #[test]
    fn the_same_document_may_be_yaml_toml_or_json() {
        let (_dir, path) = written("a.yaml", OURS);
        let yaml = read(&path).unwrap();
        let toml = "
            [sidecar]
            cluster = 'rolter_sidecar'
            [[providers]]
            name = 'a'
            cluster = 'a'
            [providers.kv_events]
            endpoint = 'tcp://127.0.0.1:5557'
            [[routes]]
            name = 'chat'
            targets = ['a']";
        let (_dir, path) = written("a.toml", toml);
        assert_eq!(read(&path).unwrap(), yaml);
        let document: Value = serde_saphyr::from_str(OURS).unwrap();
        let (_dir, path) = written("a.json", &document.to_string());
        assert_eq!(read(&path).unwrap(), yaml);
        let structure = format!(r#"{{"@type": "Struct", "value": {document}}}"#);
        let text = Value::String(document.to_string());
        let text = format!(r#"{{"@type": "StringValue", "value": {text}}}"#);
        let other = r#"{"@type": "Struct", "value": {"rules": []}}"#;
        let (_dir, path) = written("envoy.yaml", &envoy(&[other, &structure, &text]));
        assert_eq!(read_envoy(&path).unwrap(), yaml);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let cases = [
            ("a.yaml", "providers: [", "a.yaml"),
            ("a.ini", "", "name it .yaml"),
            ("a.yaml", "providers: []\nroutes: []", "providers: empty"),
            ("a.toml", "providers = 3", "providers: 3"),
        ];
        for (name, text, expected) in cases {
            let (_dir, path) = written(name, text);
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let (_dir, path) = written("envoy.yaml", &envoy(&[]));
        assert!(matches!(read_envoy(&path), Err(Unusable::NoFilter(_))));
        let two = [
            r#"{"value": {"providers": 1}}"#,
            r#"{"value": {"providers": 2}}"#,
        ];
        let (_dir, path) = written("envoy.yaml", &envoy(&two));
        assert!(matches!(read_envoy(&path), Err(Unusable::Several(_, 2))));
        assert!(
            read(Path::new("/nowhere.yaml"))
                .unwrap_err()
                .to_string()
                .contains("/nowhere.yaml")
        );
    }

    #[test]
    fn envoys_files_of_this_project_have_one_configuration() {
        for name in ["envoy.yaml", "pool.yaml"] {
            let path = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../envoy")
                .join(name);
            let config = read_envoy(&path).unwrap();
            assert_eq!(doubts(&path, &config).unwrap(), [""; 0]);
        }
    }

    #[test]
    fn a_cluster_that_does_not_lead_to_the_sidecar_is_doubtful() {
        let document = |listen: &str, cluster: &str| {
            let ours: Value = serde_saphyr::from_str(OURS).unwrap();
            let mut document = serde_json::json!({"static_resources": {
                "filter": {"configuration": {"value": ours}},
                "clusters": [{"name": cluster, "endpoints": [
                    {"address": {"pipe": {"path": "/run/a.sock"}}},
                ]}],
            }});
            document["static_resources"]["filter"]["configuration"]["value"]["sidecar"]["listen"] =
                listen.into();
            let (_dir, path) = written("envoy.json", &document.to_string());
            doubts(&path, &read_envoy(&path).unwrap()).unwrap()
        };
        let well = document("unix:///run/a.sock", "rolter_sidecar");
        assert_eq!(well, [""; 0]);
        let [misspelt] = &document("unix:///run/a.sock", "rolter_sidcar")[..] else {
            panic!("one doubt")
        };
        assert!(misspelt.starts_with("sidecar.cluster: no cluster \"rolter_sidecar\""));
        let [elsewhere] = &document("127.0.0.1:9463", "rolter_sidecar")[..] else {
            panic!("one doubt")
        };
        let expected = "sidecar.listen: 127.0.0.1:9463, but the cluster \"rolter_sidecar\" leads to \
                        unix:///run/a.sock";
        assert_eq!(elsewhere, expected);
    }
}
