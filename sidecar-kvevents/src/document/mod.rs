//! The configuration, from a file of its own (YAML, TOML or JSON) or out of Envoy's, and whether the
//! rest of Envoy's goes with it.
//!
//! | module | idea |
//! |---|---|
//! | `configuration` | the filter's configuration in a file of Envoy's |
//! | `check` | a table of mistakes, and looking for them |
//! | `value` | parts of a document with their paths |

mod check;
mod configuration;
mod value;

pub use check::{Finding, Gravity, Report, rules};

use configuration::checked;
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
        "{0}: no wasm filter in it has a configuration with `providers` and `routes`; files that it refers to are not read"
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
    match &*configuration::find(&document) {
        [] => Err(Unusable::NoFilter(name)),
        [(_, one)] => checked(one).map_err(|errors| Unusable::Content(name, errors)),
        several => Err(Unusable::Several(name, several.len())),
    }
}

/// Looks for all that is wrong or odd about a configuration in a file of its own.
///
/// # Errors
/// Why the file cannot be read.
pub fn check(path: &Path) -> Result<Report, Unusable> {
    let name = path.display().to_string();
    Ok(check::config(parse(path, &name)?))
}

/// Looks for all that is wrong or odd about a file of Envoy's and the configurations in it.
///
/// # Errors
/// Why the file cannot be read, or that it has nothing of ours.
pub fn check_envoy(path: &Path) -> Result<Report, Unusable> {
    let name = path.display().to_string();
    let document = parse(path, &name)?;
    check::envoy(&document).ok_or(Unusable::NoFilter(name))
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
        let of_others = r#"{"@type": "StringValue", "value": "{\"providers\": [{\"id\": 1}]}"}"#;
        let filters = [other, of_others, &structure, &text];
        let (_dir, path) = written("envoy.yaml", &envoy(&filters));
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
            r#"{"value": {"providers": 1, "routes": 1}}"#,
            r#"{"value": {"providers": 2, "routes": 1}}"#,
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
}
