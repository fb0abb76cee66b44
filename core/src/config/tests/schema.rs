//! What the reader takes in these tests, the schema takes, too.

use jsonschema::Validator;
use serde_json::Value;
use std::sync::LazyLock;

static SCHEMA: LazyLock<Validator> = LazyLock::new(|| {
    let schema = include_str!("../../../../docs/rolter.schema.json");
    jsonschema::validator_for(&serde_json::from_str(schema).unwrap()).unwrap()
});

/// Asserts that the schema takes a document that the reader has taken.
pub(super) fn takes(document: &Value) {
    let document = as_people_write(document);
    let wrong: Vec<String> = SCHEMA
        .iter_errors(&document)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect();
    assert!(wrong.is_empty(), "{wrong:?}\nin {document:#}");
}

/// Without what only Envoy and programs make: null in the place of what is not there, and fractions
/// as texts.
fn as_people_write(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !value.is_null());
            let fields = fields.map(|(key, value)| (key.clone(), as_people_write(value)));
            fields.collect()
        }
        Value::Array(list) => list.iter().map(as_people_write).collect(),
        Value::String(text) => match text.parse::<f64>() {
            Ok(number) if text.len() < 16 => number.into(),
            _ => value.clone(),
        },
        other => other.clone(),
    }
}
