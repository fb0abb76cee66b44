//! Fields of a request: absent or `null` is none, and another type is an error that names it.

use serde_json::Value;

use crate::reply::ApiError;

/// A field, unless it is absent or `null`.
pub(super) fn field<'a>(object: &'a Value, name: &str) -> Option<&'a Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// A string.
pub(super) fn text<'a>(object: &'a Value, name: &str) -> Result<Option<&'a str>, ApiError> {
    let read = |value: &'a Value| value.as_str().ok_or_else(|| wrong(name, "a string"));
    field(object, name).map(read).transpose()
}

/// A boolean.
pub(super) fn flag(object: &Value, name: &str) -> Result<Option<bool>, ApiError> {
    let read = |value: &Value| value.as_bool().ok_or_else(|| wrong(name, "a boolean"));
    field(object, name).map(read).transpose()
}

/// A positive integer.
pub(super) fn count(object: &Value, name: &str) -> Result<Option<usize>, ApiError> {
    let read = |value: &Value| {
        let count = value.as_u64().and_then(|count| usize::try_from(count).ok());
        count
            .filter(|count| *count > 0)
            .ok_or_else(|| wrong(name, "a positive integer"))
    };
    field(object, name).map(read).transpose()
}

/// The messages of a chat, of which there is at least one.
pub(super) fn messages<'a>(object: &'a Value, name: &str) -> Result<&'a [Value], ApiError> {
    let messages = field(object, name).and_then(Value::as_array);
    let messages = messages.ok_or_else(|| wrong(name, "a list of messages"))?;
    if messages.is_empty() {
        return Err(wrong(name, "a list of at least one message"));
    }
    Ok(messages)
}

/// The role of a message.
pub(super) fn role(message: &Value) -> Result<&str, ApiError> {
    text(message, "role")?.ok_or_else(|| wrong("role", "given for every message"))
}

/// The error of a field that is not what it must be.
pub(super) fn wrong(name: &str, must_be: &str) -> ApiError {
    ApiError::bad_request(format!("{name} must be {must_be}"))
}
