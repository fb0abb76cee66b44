//! The forms in which Envoy hands over the plugin's configuration.
//!
//! A `StringValue` arrives as its text, which is JSON here. A `Struct`, which is what a user writes
//! as plain YAML, arrives as the bytes of the message, although Envoy's documentation says JSON.

use prost::Message;
use prost_types::value::Kind;
use prost_types::{Struct, Value as ProtoValue};
use rolter_core::config::{Config, Errors, Problem};
use serde_json::{Number, Value};

/// Reads the configuration in whichever form it came.
pub(crate) fn read(bytes: &[u8]) -> Result<Config, Errors> {
    // JSON is tried first: no message is JSON, while some JSON might pass for a message.
    if let Ok(document) = serde_json::from_slice(bytes) {
        return Config::read(&document);
    }
    match Struct::decode(bytes) {
        Ok(document) => Config::read(&object(document)),
        Err(error) => Err(Errors(vec![Problem {
            path: String::new(),
            what: format!(
                "the configuration is neither JSON text nor a Struct that can be read ({error})"
            ),
        }])),
    }
}

fn object(document: Struct) -> Value {
    let fields = document.fields.into_iter();
    Value::Object(fields.map(|(key, value)| (key, json(value))).collect())
}

/// Messages nest at most as deep as `prost` decodes, which bounds the recursion.
fn json(value: ProtoValue) -> Value {
    match value.kind {
        None | Some(Kind::NullValue(_)) => Value::Null,
        Some(Kind::BoolValue(boolean)) => Value::Bool(boolean),
        Some(Kind::NumberValue(number)) => {
            Number::from_f64(number).map_or(Value::Null, Value::Number)
        }
        Some(Kind::StringValue(text)) => Value::String(text),
        Some(Kind::ListValue(list)) => Value::Array(list.values.into_iter().map(json).collect()),
        Some(Kind::StructValue(fields)) => object(fields),
    }
}
