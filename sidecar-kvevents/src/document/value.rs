//! Parts of a document with their paths, and values as Envoy takes them. Invariant: what is not there
//! is null, so that nobody has to ask twice.

use serde_json::Value;

static NULL: Value = Value::Null;

/// A value, and the path to it.
#[derive(Clone)]
pub(super) struct Walk<'a> {
    pub(super) path: String,
    pub(super) value: &'a Value,
}

impl<'a> Walk<'a> {
    pub(super) fn root(document: &'a Value) -> Self {
        Self::new(String::new(), document)
    }

    pub(super) fn new(path: String, value: &'a Value) -> Self {
        Self { path, value }
    }

    /// What these keys lead to, one after the other.
    pub(super) fn at(&self, keys: &[&str]) -> Self {
        keys.iter().fold(self.clone(), |walk, key| {
            let value = walk.value.get(key).unwrap_or(&NULL);
            Self::new(below(&walk.path, key), value)
        })
    }

    /// The fields of an object.
    pub(super) fn fields(&self) -> impl Iterator<Item = (&'a str, Self)> + use<'a> {
        let path = self.path.clone();
        let fields = self.value.as_object().into_iter().flatten();
        fields.map(move |(key, value)| (&**key, Self::new(below(&path, key), value)))
    }

    /// The elements of a list.
    pub(super) fn items(&self) -> impl Iterator<Item = Self> + use<'a> {
        let path = self.path.clone();
        let items = self.value.as_array().into_iter().flatten().enumerate();
        items.map(move |(place, value)| Self::new(format!("{path}[{place}]"), value))
    }
}

fn below(path: &str, key: &str) -> String {
    match path {
        "" => key.to_owned(),
        path => format!("{path}.{key}"),
    }
}

/// A text, or an empty one.
pub(super) fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A list of texts.
pub(super) fn texts(value: &Value) -> Vec<&str> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(Value::as_str).collect()
}

/// A whole number. Envoy takes numbers as texts, too.
pub(super) fn number(value: &Value) -> Option<u64> {
    let text = value.as_str().and_then(|text| text.parse().ok());
    value.as_u64().or(text)
}

/// A duration in seconds, as in `0.25s`.
pub(super) fn seconds(value: &Value) -> Option<f64> {
    value.as_str()?.strip_suffix('s')?.parse().ok()
}

/// What a JSON pointer leads to, or null.
pub(super) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&NULL)
}
