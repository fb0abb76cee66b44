//! The configuration, from a file of its own (YAML, TOML or JSON) or out of Envoy's, and whether the
//! rest of Envoy's goes with it.
//!
//! | module | idea |
//! |---|---|
//! | `doubts` | what in Envoy's file is odd, though Envoy accepts it |
//! | `filter` | whether one of Envoy's filters can be that of the policy |
//! | `filters` | whether each list of them has it |
//! | `unguarded` | routes by which clients get round a policy |

mod doubts;
mod filter;
mod filters;
mod unguarded;

use rolter_core::config::{Config, Errors, Policy};
use rolter_core::policy;
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
    checked(&document).map_err(|errors| Unusable::Content(name, errors))
}

/// Reads the configuration of the filter in a file of Envoy's.
pub fn read_envoy(path: &Path) -> Result<Config, Unusable> {
    let name = path.display().to_string();
    let document = parse(path, &name)?;
    let mut found = Vec::new();
    find(&document, &mut found);
    match &*found {
        [] => Err(Unusable::NoFilter(name)),
        [one] => checked(one).map_err(|errors| Unusable::Content(name, errors)),
        several => Err(Unusable::Several(name, several.len())),
    }
}

/// A configuration whose patterns can be compiled, too.
fn checked(document: &Value) -> Result<Config, Errors> {
    let config = Config::read(document)?;
    policy::compile(&config.policies)?;
    Ok(config)
}

/// Whether a file of Envoy's has the filter of the policy wherever a route has a policy.
///
/// # Errors
/// All that is wrong with it there, or why the file cannot be read.
pub fn check_filters(path: &Path) -> Result<(), Unusable> {
    let name = path.display().to_string();
    let problems = filters::check(&parse(path, &name)?).problems;
    if problems.is_empty() {
        return Ok(());
    }
    Err(Unusable::Content(name, Errors(problems)))
}

/// What is odd about a configuration in a file of Envoy's, though it is accepted.
///
/// # Errors
/// Why the file cannot be read.
pub fn doubts(path: &Path, config: &Config) -> Result<Vec<String>, Unusable> {
    let document = parse(path, &path.display().to_string())?;
    let mut doubts = filters::check(&document).doubts;
    doubts.extend(doubts::of(&document, config));
    doubts.extend(unguarded::doubts(config));
    Ok(doubts)
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

/// The policies that routes have.
fn with_policy(config: &Config) -> Vec<&Policy> {
    let used = |place: usize| {
        config
            .routes
            .iter()
            .any(|route| route.policy == Some(place))
    };
    let policies = config.policies.iter().enumerate();
    let policies = policies.filter(|(place, _)| used(*place));
    policies.map(|(_, policy)| policy).collect()
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
    fn envoys_files_of_this_project_are_as_they_should_be() {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../envoy");
        let files = std::fs::read_dir(directory).unwrap();
        let paths = files.map(|file| file.unwrap().path());
        let yaml: Vec<_> = paths
            .filter(|path| {
                path.extension()
                    .is_some_and(|extension| extension == "yaml")
            })
            .collect();
        assert!(yaml.len() >= 2);
        for path in yaml {
            check_filters(&path).unwrap();
            let config = read_envoy(&path).unwrap();
            assert_eq!(doubts(&path, &config).unwrap(), [""; 0], "{path:?}");
        }
    }
}
