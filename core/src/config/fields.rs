//! Reading a JSON document field by field, with the path to each, collecting what is wrong.
//!
//! A reader that finds a problem reports it and returns a stand-in, so that one pass finds all of
//! them. What was read is worth nothing unless no problem was reported.

use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::RangeInclusive;

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Where, as in `routes[0].targets[1]`; empty for the document itself.
    pub path: String,
    /// What, and what to write instead.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return f.write_str(&self.what);
        }
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// All that is wrong with a document, in the order of reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Errors(pub Vec<Problem>);

impl fmt::Display for Errors {
    /// One problem a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Errors {}

/// Where the readers of a document report what is wrong.
#[derive(Default)]
pub(super) struct Report(RefCell<Vec<Problem>>);

impl Report {
    fn add(&self, path: &str, what: impl Into<String>) {
        self.0.borrow_mut().push(Problem {
            path: path.to_owned(),
            what: what.into(),
        });
    }

    /// The value that was read, if nothing was wrong with it.
    pub(super) fn verdict<T>(self, value: T) -> Result<T, Errors> {
        let problems = self.0.into_inner();
        if problems.is_empty() {
            Ok(value)
        } else {
            Err(Errors(problems))
        }
    }
}

/// The fields of one object. Keys that nobody asked for are reported when it is dropped.
pub(super) struct Fields<'a> {
    path: String,
    /// Nothing where the value is no object, which was reported.
    map: Option<&'a Map<String, Value>>,
    known: RefCell<Vec<&'static str>>,
    report: &'a Report,
}

impl<'a> Fields<'a> {
    pub(super) fn root(document: &'a Value, report: &'a Report) -> Self {
        Self::new(String::new(), document, report)
    }

    fn new(path: String, value: &'a Value, report: &'a Report) -> Self {
        let fields = Self {
            path,
            map: value.as_object(),
            known: RefCell::default(),
            report,
        };
        if fields.map.is_none() {
            let what = format!("{} is no object; write `key: value` pairs", kind(value));
            fields.add_here(what);
        }
        fields
    }

    /// The path to the whole.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// Reports a problem with a field or with something inside it.
    pub(super) fn add(&self, key: &str, what: impl Into<String>) {
        self.report.add(&self.path_of(key), what);
    }

    /// Reports a problem with the whole.
    pub(super) fn add_here(&self, what: impl Into<String>) {
        self.report.add(&self.path, what);
    }

    /// Whether the field is there. Null is as good as absent.
    pub(super) fn has(&self, key: &'static str) -> bool {
        self.get(key).is_some()
    }

    pub(super) fn boolean(&self, key: &'static str, default: bool) -> bool {
        self.read(key, "write true or false", Value::as_bool)
            .unwrap_or(default)
    }

    /// A whole number. Envoy hands all numbers over as floating point, so `1.0` is one.
    pub(super) fn integer<T: TryFrom<u64>>(
        &self,
        key: &'static str,
        range: RangeInclusive<u64>,
        default: T,
    ) -> T {
        let wanted = format!(
            "write a whole number from {} to {}",
            range.start(),
            range.end()
        );
        let read = |value: &Value| {
            let number = value.as_u64().or_else(|| {
                let number = value.as_f64()?;
                let whole = number.fract() == 0.0 && (0.0..9e15).contains(&number);
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "the line above makes sure that nothing is lost"
                )]
                whole.then_some(number as u64)
            })?;
            range.contains(&number).then_some(number)?.try_into().ok()
        };
        self.read(key, &wanted, read).unwrap_or(default)
    }

    /// A number, or a text that is one: Envoy's YAML reader makes texts of fractions.
    pub(super) fn number(
        &self,
        key: &'static str,
        range: RangeInclusive<f64>,
        default: f64,
    ) -> f64 {
        let wanted = format!("write a number from {} to {}", range.start(), range.end());
        let read = |value: &Value| {
            let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
            number.filter(|number| range.contains(number))
        };
        self.read(key, &wanted, read).unwrap_or(default)
    }

    /// A text that is not empty.
    pub(super) fn string(&self, key: &'static str) -> Option<&'a str> {
        self.read(key, "write a text", |value| {
            value.as_str().filter(|text| !text.is_empty())
        })
    }

    /// A text that no message shows.
    pub(super) fn unseen(&self, key: &'static str) -> Option<&'a str> {
        let value = self.get(key)?;
        if !value.is_string() {
            self.add(key, "no text; write one");
        }
        value.as_str()
    }

    /// What a text says. `wanted` is what to write where it says nothing.
    pub(super) fn parsed<T>(
        &self,
        key: &'static str,
        wanted: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        self.read(key, wanted, |value| parse(value.as_str()?))
    }

    /// One of a few texts, the first of which is the default. Nothing where it is none of them.
    pub(super) fn one_of(
        &self,
        key: &'static str,
        choices: &[&'static str],
    ) -> Option<&'static str> {
        if !self.has(key) {
            return choices.first().copied();
        }
        let wanted = format!("write one of: {}", choices.join(", "));
        self.parsed(key, &wanted, |text| {
            choices.iter().find(|&&choice| choice == text).copied()
        })
    }

    /// The field `name`, which metrics and other fields refer to, and which no other element of the
    /// list has. `names` collects them with their places.
    pub(super) fn unique_name(&self, names: &mut BTreeMap<String, usize>, index: usize) -> String {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !self.has("name") {
            self.add("name", "missing; write a name");
        }
        let name = self.string("name").unwrap_or_default();
        if name.is_empty() {
            return String::new();
        }
        if name.len() > 64 || !name.bytes().all(allowed) {
            self.add(
                "name",
                format!("{name:?}; write up to 64 letters, digits, \".\", \"_\" and \"-\""),
            );
        }
        match names.entry(name.to_owned()) {
            Entry::Vacant(entry) => {
                entry.insert(index);
            }
            Entry::Occupied(entry) => {
                let what = format!("{name:?} is taken by [{}]; names differ", entry.get());
                self.add("name", what);
            }
        }
        name.to_owned()
    }

    /// Reports a list that is absent or empty.
    pub(super) fn require_some(&self, key: &'static str) {
        match self.get(key) {
            None => self.add(key, "missing; write a list"),
            Some(Value::Array(list)) if list.is_empty() => {
                self.add(key, "empty; write at least one");
            }
            Some(_) => {}
        }
    }

    /// The texts of a list with their places in it, `key[0]` and so on.
    pub(super) fn strings(
        &self,
        key: &'static str,
    ) -> impl Iterator<Item = (String, &'a str)> + use<'_, 'a> {
        self.list(key, "write a list of texts")
            .filter_map(move |(path, value)| {
                let text = value.as_str();
                if text.is_none() {
                    self.add(&path, format!("{} is no text", kind(value)));
                }
                Some((path, text?))
            })
    }

    /// The elements of a list that no message shows, with their places in it; nothing for one that
    /// is no text.
    pub(super) fn unseen_strings(
        &self,
        key: &'static str,
    ) -> impl Iterator<Item = (String, Option<&'a str>)> + use<'a> {
        let value = self.get(key);
        if value.is_some_and(|value| !value.is_array()) {
            self.add(key, "no list; write a list of texts");
        }
        let list = value.and_then(Value::as_array).into_iter().flatten();
        list.enumerate()
            .map(move |(index, value)| (format!("{key}[{index}]"), value.as_str()))
    }

    /// An object, where there is one.
    pub(super) fn object(&self, key: &'static str) -> Option<Fields<'a>> {
        let value = self.get(key)?;
        Some(Fields::new(self.path_of(key), value, self.report))
    }

    /// The objects of a list that must have some.
    pub(super) fn objects(
        &self,
        key: &'static str,
    ) -> impl Iterator<Item = Fields<'a>> + use<'_, 'a> {
        self.require_some(key);
        self.list(key, "write a list")
            .map(|(path, value)| Fields::new(self.path_of(&path), value, self.report))
    }

    fn list(
        &self,
        key: &'static str,
        wanted: &str,
    ) -> impl Iterator<Item = (String, &'a Value)> + use<'a> {
        self.read(key, wanted, Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
            .map(move |(index, value)| (format!("{key}[{index}]"), value))
    }

    fn read<T>(
        &self,
        key: &'static str,
        wanted: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.get(key)?;
        let result = read(value);
        if result.is_none() {
            self.add(key, format!("{}; {wanted}", kind(value)));
        }
        result
    }

    fn get(&self, key: &'static str) -> Option<&'a Value> {
        let mut known = self.known.borrow_mut();
        if !known.contains(&key) {
            known.push(key);
        }
        self.map?.get(key).filter(|value| !value.is_null())
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() {
            return key.to_owned();
        }
        format!("{}.{key}", self.path)
    }
}

impl Drop for Fields<'_> {
    fn drop(&mut self) {
        let known = self.known.borrow();
        let given = self.map.into_iter().flat_map(Map::keys);
        for key in given.filter(|key| !known.contains(&key.as_str())) {
            self.add(
                key,
                format!("unknown key; known here: {}", known.join(", ")),
            );
        }
    }
}

/// A value as a message shows it: what is short as it stands, the rest by its kind.
fn kind(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.len() > 64 => "a long text".into(),
        // As it was written, not as Envoy's YAML reader has it.
        Value::String(text) if text.parse::<f64>().is_ok() => text.clone(),
        Value::Number(number) => number.to_string().trim_end_matches(".0").to_owned(),
        short => short.to_string(),
    }
}
