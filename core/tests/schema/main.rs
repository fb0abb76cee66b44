//! The schema of the configuration and its reader say the same.
//!
//! The schema's own examples are the ground: at each place of theirs where the schema has a property,
//! the value is taken away and changed, and schema and reader have to agree about what comes of it. So
//! a key, a bound, a choice or a default that is added to one and not to the other is found.

#![cfg(not(target_arch = "wasm32"))]

mod agreement;
mod documents;
mod places;

use agreement::disagreements;
use jsonschema::Validator;
use rolter_core::config::Config;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path)
}

fn schema() -> Value {
    let text = fs::read_to_string(file("docs/rolter.schema.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

#[test]
fn the_schema_and_the_reader_agree_about_every_property() {
    let found = disagreements(&schema());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn every_property_is_explained_and_has_its_default_told() {
    let schema = schema();
    let places = places::all(&schema);
    for place in places {
        let what = &place.what;
        for keyword in ["title", "description"] {
            assert!(place.node.get(keyword).is_some(), "{what} has no {keyword}");
        }
        let holds_others = place.node.get("properties").is_some()
            || place.node.has_objects()
            || place.node.get("default").is_some_and(|it| it == &json!([]));
        let is_told = ["default", "x-default"]
            .iter()
            .any(|keyword| place.node.get(keyword).is_some());
        assert!(
            is_told || place.is_required || holds_others,
            "{what}: is it required, and what is its default?"
        );
        assert!(
            holds_others || place.node.get("examples").is_some(),
            "{what} has no example"
        );
    }
}

#[test]
fn every_configuration_of_this_repository_is_valid_and_read() {
    let schema = schema();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let documents = documents::all();
    assert!(documents.len() >= 8, "{}", documents.len());
    for (place, document) in documents {
        let wrong = wrong(&validator, &document);
        assert!(wrong.is_empty(), "{place}: {wrong:?}\nin {document:#}");
        let read = Config::read(&document);
        assert!(read.is_ok(), "{place}: {}", read.unwrap_err());
    }
}

/// What the schema has against a document.
fn wrong(validator: &Validator, document: &Value) -> Vec<String> {
    let errors = validator.iter_errors(document);
    errors
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

#[test]
fn each_disagreement_is_found() {
    type Change = fn(&mut Value);
    let changes: &[(&str, Change)] = &[
        ("a key that the reader does not have", |schema| {
            let mine = json!({"type": "integer", "default": 1, "examples": [2]});
            schema["$defs"]["sidecar"]["properties"]["mine"] = mine;
        }),
        ("a key that the schema does not have", |schema| {
            remove(schema, "/$defs/route_cache/properties", "lookup_timeout_ms");
            remove(schema, "/examples/0/routes/0/cache", "lookup_timeout_ms");
        }),
        ("a higher least value", |schema| {
            schema["$defs"]["cache"]["properties"]["max_memory_bytes"]["minimum"] =
                2_097_152.into();
        }),
        ("a lower highest value", |schema| {
            schema["$defs"]["pipeline"]["properties"]["load"]["maximum"] = 99.into();
        }),
        ("a higher highest value", |schema| {
            schema["$defs"]["kv_events"]["properties"]["stale_secs"]["maximum"] = 3601.into();
        }),
        ("another default", |schema| {
            schema["$defs"]["semantic"]["properties"]["threshold"]["default"] = 0.93.into();
        }),
        ("another default, of a text", |schema| {
            schema["properties"]["session_header"]["default"] = "x-session".into();
        }),
        ("a choice too many", |schema| {
            schema["$defs"]["route"]["properties"]["reach"]["enum"] =
                json!(["cluster", "pool", "mesh"]);
        }),
        ("a choice too few", |schema| {
            let mut choices = schema["$defs"]["route"]["properties"]["strategy"]["enum"].clone();
            choices.as_array_mut().unwrap().remove(5);
            schema["$defs"]["route"]["properties"]["strategy"]["enum"] = choices;
        }),
        ("a key that need not be there", |schema| {
            schema["$defs"]["plugin"]["required"] = json!(["name"]);
        }),
        ("a key that has to be there", |schema| {
            schema["$defs"]["plugin"]["required"] = json!(["name", "cluster", "path"]);
        }),
        ("a longer text", |schema| {
            schema["$defs"]["name"]["maxLength"] = 65.into();
        }),
        ("a shorter list", |schema| {
            schema["$defs"]["policy"]["properties"]["plugins"]["maxItems"] = 255.into();
        }),
        ("any text", |schema| {
            remove(schema, "/$defs/variable", "pattern");
        }),
        ("another type", |schema| {
            schema["$defs"]["policy"]["properties"]["max_answer_bytes"]["type"] = "number".into();
        }),
        ("a key without a place in an example", |schema| {
            remove(schema, "/examples/0/providers/0", "weight");
        }),
    ];
    assert_eq!(disagreements(&schema()), [""; 0]);
    for (what, change) in changes {
        let mut schema = schema();
        change(&mut schema);
        assert!(!disagreements(&schema).is_empty(), "not found: {what}");
    }
}

fn remove(schema: &mut Value, pointer: &str, key: &str) {
    let parent = schema.pointer_mut(pointer).unwrap();
    parent.as_object_mut().unwrap().remove(key).unwrap();
}
