//! What a block of YAML is, and who reads it.

use crate::blocks::Block;
use crate::{ask_check, data, envoy, read};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The pages that the chart's tests read.
const OF_THE_CHART: [&str; 2] = ["docs/istio.md", "docs/kubernetes.md"];

/// What a block is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Kind {
    /// All of Envoy's configuration.
    Envoy,
    /// Lists that go somewhere into Envoy's.
    PartOfEnvoy,
    /// The filter's and the sidecar's, or a part of it that was put into a whole one.
    Configuration(Value),
    /// Rules of Prometheus.
    Alerts(Value),
    /// What Kubernetes takes, which the chart's tests have a schema for; or values of the chart.
    Kubernetes,
}

/// # Errors
/// Where it cannot be read, or there is no rule for it.
pub(crate) fn kind(block: &Block) -> Result<Kind, String> {
    let documents: Vec<Value> =
        serde_saphyr::from_multiple(&block.text).map_err(|error| error.to_string())?;
    let is_manifest = |document: &Value| {
        ["apiVersion", "kind", "metadata"]
            .iter()
            .all(|key| document.get(key).is_some())
    };
    if !documents.is_empty() && documents.iter().all(is_manifest) {
        return Ok(Kind::Kubernetes);
    }
    let [document] = &*documents else {
        return Err("write one document a block".into());
    };
    if document.get("static_resources").is_some() {
        return Ok(Kind::Envoy);
    }
    if envoy::is_part(document) {
        return Ok(Kind::PartOfEnvoy);
    }
    if document.get("groups").is_some() {
        return Ok(Kind::Alerts(document.clone()));
    }
    if let Some(whole) = whole(document) {
        return Ok(Kind::Configuration(whole));
    }
    let values: Value = serde_saphyr::from_str(&read("envoy/chart/values.yaml")).unwrap();
    let values = keys(&values).unwrap();
    if block.text.starts_with("# values: ")
        && keys(document).is_some_and(|own| own.is_subset(&values))
    {
        return Ok(Kind::Kubernetes);
    }
    Err("there is no rule for what this is".into())
}

pub(crate) fn check(block: &Block, kind: Kind) -> Result<(), String> {
    match kind {
        Kind::Envoy => envoy::check_whole(&block.text),
        Kind::PartOfEnvoy => Ok(()),
        Kind::Kubernetes if OF_THE_CHART.contains(&&*block.page) => Ok(()),
        Kind::Kubernetes => Err("the chart's tests do not read this page".into()),
        // As it is written, where it is whole.
        Kind::Configuration(whole) => {
            let text = if serde_saphyr::from_str::<Value>(&block.text).is_ok_and(|it| it == whole) {
                block.text.clone()
            } else {
                whole.to_string()
            };
            ask_check("configuration.yaml", &text)
        }
        Kind::Alerts(rules) => data::alerts(&rules),
    }
}

/// A whole configuration with this one in it: as it stands, at its top, or in its route or provider.
fn whole(part: &Value) -> Option<Value> {
    let own = keys(part)?;
    let schema: Value = serde_json::from_str(&read("docs/rolter.schema.json")).unwrap();
    let of = |pointer: &str| schema.pointer(pointer).and_then(keys).unwrap();
    let mut whole = json!({
        "sidecar": {"cluster": "rolter_sidecar"},
        "providers": [{"name": "a", "cluster": "vllm-a"}],
        "routes": [{"name": "chat", "targets": ["a"]}],
    });
    let place = if own.is_subset(&of("/properties")) {
        if own.is_superset(&["providers".to_owned(), "routes".to_owned()].into()) {
            return Some(part.clone());
        }
        &mut whole
    } else if own.is_subset(&of("/$defs/route/properties")) {
        &mut whole["routes"][0]
    } else if own.is_subset(&of("/$defs/provider/properties")) {
        &mut whole["providers"][0]
    } else {
        return None;
    };
    for (key, value) in part.as_object()? {
        place[key] = value.clone();
    }
    Some(whole)
}

fn keys(value: &Value) -> Option<BTreeSet<String>> {
    Some(value.as_object()?.keys().cloned().collect())
}
