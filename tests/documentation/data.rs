//! JSON, and what else is neither a command nor YAML.

use crate::blocks::Block;
use crate::{ask, ask_check, read};
use serde_json::{Deserializer, Value};
use std::collections::BTreeSet;

/// Objects of JSON by keys that tell them, and all keys that they may have.
const OBJECTS: &[(&[&str], &[&str])] = &[
    // What a client gets in the place of an answer.
    (&["error"], &["error", "type"]),
    // What a plugin is asked, and what it replies.
    (&["request", "answer"], &["request", "answer"]),
    (&["verdict"], &["verdict", "reason", "answer"]),
    // What an LMCache says.
    (&["occupancy"], &["occupancy", "cache_available"]),
];

/// A block of values: each is of a kind that is known.
pub(crate) fn json(block: &Block) -> Result<(), String> {
    let values: Vec<Value> = Deserializer::from_str(&block.text)
        .into_iter()
        .collect::<Result<_, _>>()
        .map_err(|error| error.to_string())?;
    if values.is_empty() {
        return Err("it is empty".into());
    }
    values.iter().try_for_each(|value| known(value, block))
}

fn known(value: &Value, block: &Block) -> Result<(), String> {
    let fields = value.as_object().ok_or("no object")?;
    let keys: BTreeSet<&str> = fields.keys().map(String::as_str).collect();
    if keys.contains("time") && keys.contains("route") {
        let logged = access_log();
        let unknown: Vec<_> = keys.iter().filter(|key| !logged.contains(**key)).collect();
        let is_known = unknown.is_empty();
        return is_known
            .then_some(())
            .ok_or(format!("no access log has {unknown:?}"));
    }
    if keys.contains("providers") {
        return ask_check("configuration.json", &block.text);
    }
    let is_one = |(marks, all): &&(&[&str], &[&str])| {
        marks.iter().all(|mark| keys.contains(mark)) && keys.iter().all(|key| all.contains(key))
    };
    let kind = OBJECTS.iter().find(is_one);
    kind.map(|_| ())
        .ok_or(format!("there is no rule for {keys:?}"))
}

/// The fields of the documented access logs.
fn access_log() -> BTreeSet<String> {
    let mut fields = BTreeSet::new();
    for path in ["envoy/envoy.yaml", "envoy/policy.yaml", "envoy/pool.yaml"] {
        let document: Value = serde_saphyr::from_str(&read(path)).unwrap();
        let format = document.pointer(
            "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/access_log/0\
             /typed_config/log_format/json_format",
        );
        let own = format.and_then(Value::as_object).unwrap();
        fields.extend(own.keys().cloned());
    }
    fields
}

/// Rules of Prometheus: each asks for metrics that are documented.
pub(crate) fn alerts(rules: &Value) -> Result<(), String> {
    let documented = read("docs/metrics.md");
    let groups = rules["groups"].as_array().ok_or("groups is no list")?;
    for rule in groups
        .iter()
        .flat_map(|group| group["rules"].as_array().into_iter().flatten())
    {
        let name = rule["alert"].as_str().ok_or("a rule without alert")?;
        let expr = rule["expr"]
            .as_str()
            .ok_or_else(|| format!("{name} has no expr"))?;
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = expr.split(|c| !is_part(c));
        let mut metrics = words.filter(|word| word.starts_with("rolter_")).peekable();
        if metrics.peek().is_none() {
            return Err(format!("{name} asks for no metric of ours"));
        }
        for metric in metrics {
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| metric.strip_suffix(suffix))
                .unwrap_or(metric);
            if ![metric, base]
                .iter()
                .any(|name| documented.contains(&format!("`{name}`")))
            {
                return Err(format!(
                    "{name} asks for {metric}, which docs/metrics.md does not have"
                ));
            }
        }
    }
    Ok(())
}

/// Python compiles.
pub(crate) fn python(block: &Block) -> Result<(), String> {
    let compile = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    ask(&["python3", "-c", compile], "block.py", &block.text).map(|_| ())
}

/// A diagram begins with its kind.
pub(crate) fn mermaid(block: &Block) -> Result<(), String> {
    let kinds = ["flowchart ", "sequenceDiagram", "stateDiagram"];
    let is_known = kinds.iter().any(|kind| block.text.starts_with(kind));
    is_known
        .then_some(())
        .ok_or("no diagram of a known kind".into())
}
