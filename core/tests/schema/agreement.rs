//! What schema and reader do not agree about.

use crate::places::{Place, all, properties};
use jsonschema::Validator;
use rolter_core::config::Config;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// All of it, of this schema.
pub(crate) fn disagreements(schema: &Value) -> Vec<String> {
    let validator = jsonschema::validator_for(schema).unwrap();
    let both = Both { validator };
    let mut found = Vec::new();
    let places = all(schema);
    for example in schema["examples"].as_array().into_iter().flatten() {
        if both.take(example) != Taken::Everywhere {
            found.push(format!("an example is refused by one: {example}"));
        }
    }
    let mut by_property: BTreeMap<&str, Vec<&Place<'_>>> = BTreeMap::new();
    for place in &places {
        by_property.entry(&place.what).or_default().push(place);
    }
    for what in properties(schema) {
        let places = by_property.remove(what.as_str()).unwrap_or_default();
        let has_it = |place: &&Place<'_>| place.value.is_some();
        let (places, without): (Vec<_>, Vec<_>) = places.into_iter().partition(has_it);
        match &*places {
            [] => found.push(format!("{what}: no example has it")),
            [..] => {
                let property = Property {
                    both: &both,
                    places,
                    is_absent_somewhere: !without.is_empty(),
                };
                let problems = property.problems();
                found.extend(
                    problems
                        .into_iter()
                        .map(|problem| format!("{what}: {problem}")),
                );
            }
        }
    }
    found.extend(other_keys(&both, &places));
    found
}

/// Objects that have other keys for the reader than for the schema.
fn other_keys(both: &Both, places: &[Place<'_>]) -> Vec<String> {
    const UNKNOWN: &str = "no_such_key";
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    for place in places {
        if !seen.insert((std::ptr::from_ref(place.example), &place.object)) {
            continue;
        }
        let mut document = place.example.clone();
        document.pointer_mut(&place.object).unwrap()[UNKNOWN] = json!(1);
        if both.validator.is_valid(&document) {
            found.push(format!("{}: the schema takes any key", place.object));
        }
        let errors = Config::read(&document).expect_err("a key that nobody knows");
        let path = format!("{}/{UNKNOWN}", place.object);
        let known = errors.0.iter().find_map(|problem| {
            let is_here = pointer(&problem.path) == path;
            problem.what.split_once("known here: ").filter(|_| is_here)
        });
        let Some((_, known)) = known else {
            found.push(format!("{}: the reader takes any key", place.object));
            continue;
        };
        let known: BTreeSet<&str> = known.split(", ").collect();
        let names: BTreeSet<&str> = place.names.iter().copied().collect();
        if known != names {
            let object = &place.object;
            found.push(format!(
                "{object}: the reader has {known:?}, the schema {names:?}"
            ));
        }
    }
    found
}

/// A place as the reader writes it, `routes[0].targets`, as a pointer.
fn pointer(path: &str) -> String {
    format!(
        "/{}",
        path.replace('[', "/").replace(']', "").replace('.', "/")
    )
}

struct Both {
    validator: Validator,
}

/// Who takes a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    Everywhere,
    Nowhere,
    InSchema,
    InReader,
}

/// What only the reader knows, as it is about several values together.
const OF_SEVERAL: &[&str] = &[
    "no provider",
    "is taken by",
    "leads to \"",
    "can be asked",
    "cannot be asked",
    "knows nothing of any target",
    "other machines reach it",
    "leads elsewhere than endpoint",
    "is many targets",
    "each address is asked by itself",
    "the ports of all ranks must be",
    "ranks differ by their ports",
    "nothing can be reached at *",
];

impl Both {
    fn take(&self, document: &Value) -> Taken {
        let read = match Config::read(document) {
            Ok(_) => true,
            Err(errors) => errors.0.iter().all(|problem| {
                let is_of_several = |what: &&str| problem.what.contains(*what);
                OF_SEVERAL.iter().any(is_of_several)
            }),
        };
        match (self.validator.is_valid(document), read) {
            (true, true) => Taken::Everywhere,
            (false, false) => Taken::Nowhere,
            (true, false) => Taken::InSchema,
            (false, true) => Taken::InReader,
        }
    }
}

/// A property with all places that have it.
struct Property<'a> {
    both: &'a Both,
    places: Vec<&'a Place<'a>>,
    /// Whether an example has its object without it.
    is_absent_somewhere: bool,
}

/// Texts of which each is right for some property and wrong for others.
const TEXTS: &[&str] = &[
    "a",
    "A-1._",
    "",
    " ",
    "*",
    "a*",
    "a*b*c",
    "two words",
    "é",
    "/",
    "/v1/",
    "/a b",
    "/v1/?x=1",
    "/*",
    "a:b",
    ":path",
    "X_Y",
    "1X",
    "sk-1",
    "x-rolter-target",
    "X-Rolter-Target",
    "x-gateway-destination-endpoint",
    "10.0.0.7",
    "10.0.0.7:8000",
    "10.0.0.7:0",
    "127.0.0.1:1",
    "10.0.0.300:8000",
    "10.0.7:8000",
    "vllm:8000",
    "vllm.llm.svc.cluster.local:8000",
    "a_b.c.:8000",
    "a..b:8000",
    "-a:8000",
    "vllm:0",
    "vllm:",
    "[::1]:8000",
    "::1:8000",
    "unix:///run/x.sock",
    "unix://x.sock",
    "/run/x.sock",
    "http://10.0.0.1:8000",
    "http://10.0.0.1:8000/",
    "http://ann:secret@a/",
    "http://a/v1",
    "https://a/v1/",
    "https://a/b c",
    "http://",
    "http:///x",
    "tcp://a:5557",
    "tcp://a",
    "tcp://a:0",
    "tcp://[::1]:1",
    "tcp://::1:1",
    "tcp://a/b:1",
    "tcp://:1",
    "ipc:///run/events",
    "ipc://",
    "redis://a",
    "redis://a:6379/2",
    "redis://a,b",
    "rediss://ann@a",
    "redis://ann:secret@a",
    "redis-cluster://a,b:7000",
    "redis-cluster://a/1",
    "redis-sentinel://a,b/2#main",
    "redis-sentinel://a",
    "redis://a#main",
    "redis://",
];

impl Property<'_> {
    fn problems(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.presence(&mut found);
        self.default(&mut found);
        self.types(&mut found);
        self.bounds(&mut found);
        self.choices(&mut found);
        self.lengths(&mut found);
        self.texts(&mut found);
        self.examples(&mut found);
        found
    }

    fn first(&self) -> &Place<'_> {
        self.places[0]
    }

    /// Both take it at some place.
    fn somewhere(&self, value: Option<&Value>) -> bool {
        let take = |place: &&Place<'_>| self.both.take(&place.with(value)) == Taken::Everywhere;
        self.places.iter().any(take)
    }

    /// Neither takes it at any place.
    fn nowhere(&self, value: Option<&Value>) -> bool {
        let refuse = |place: &&Place<'_>| self.both.take(&place.with(value)) == Taken::Nowhere;
        self.places.iter().all(refuse)
    }

    fn presence(&self, found: &mut Vec<String>) {
        if self.first().is_required && !self.nowhere(None) {
            found.push("required, and read without it".into());
        }
        if !self.first().is_required && !self.is_absent_somewhere && !self.somewhere(None) {
            found.push("not required, and not read without it".into());
        }
    }

    /// What is filled in is the default, and anything else has an effect.
    fn default(&self, found: &mut Vec<String>) {
        let with = |place: &Place<'_>, value| Config::read(&place.with(value)).ok();
        let default = self.first().node.get("default");
        if let Some(default) = default {
            let pairs = self
                .places
                .iter()
                .filter_map(|place| Some((with(place, None)?, with(place, Some(default))?)));
            let same: Vec<bool> = pairs.map(|(absent, given)| absent == given).collect();
            if same.is_empty() || same.contains(&false) {
                found.push(format!("{default} is not what the reader fills in"));
            }
        }
        let examples = self.first().node.get("examples").and_then(Value::as_array);
        let is_same = |place: &&&Place<'_>, example| {
            let absent = with(place, None);
            absent.is_some() && absent == with(place, Some(example))
        };
        for example in examples.into_iter().flatten() {
            let places = self.places.iter();
            let all = places.clone().count();
            if places.filter(|place| is_same(place, example)).count() == all {
                found.push(format!("{example} has no effect"));
            }
        }
    }

    fn types(&self, found: &mut Vec<String>) {
        let node = &self.first().node;
        let others = [
            ("boolean", json!(true)),
            ("string", json!("text")),
            ("array", json!([{"x": 1}])),
            ("object", json!({"x": 1})),
            ("integer", json!(7.5)),
            ("number", json!(-7)),
        ];
        for (kind, value) in others {
            let may_be =
                node.is(kind) && kind != "integer" || node.is("number") && kind == "integer";
            if !may_be && !self.nowhere(Some(&value)) {
                found.push(format!("{value} is taken"));
            }
        }
        let has_kind = ["type", "enum"]
            .iter()
            .any(|keyword| node.get(keyword).is_some());
        if !has_kind {
            found.push("it has no type".into());
        }
    }

    fn bounds(&self, found: &mut Vec<String>) {
        let node = &self.first().node;
        if !node.is("integer") && !node.is("number") {
            return;
        }
        let step = if node.is("integer") { 1.0 } else { 0.01 };
        for (keyword, direction) in [("minimum", -1.0), ("maximum", 1.0)] {
            let Some(bound) = node.number(keyword) else {
                found.push(format!("no {keyword}"));
                continue;
            };
            if !self.somewhere(Some(&json!(bound))) {
                found.push(format!("{bound} is refused"));
            }
            if keyword == "minimum"
                && node.is("number")
                && !self.somewhere(Some(&json!(bound + 0.5)))
            {
                found.push("a fraction is refused".into());
            }
            let beyond = bound + direction * step;
            if !self.nowhere(Some(&json!(beyond))) {
                found.push(format!("{beyond} is taken"));
            }
        }
    }

    /// The choices, also of the elements of a list.
    fn choices(&self, found: &mut Vec<String>) {
        let node = &self.first().node;
        let (choices, wrap): (_, fn(Value) -> Value) = match (node.get("enum"), node.items()) {
            (Some(choices), _) => (Some(choices), |choice| choice),
            (None, Some(items)) => (items.get("enum"), |choice| json!([choice])),
            _ => return,
        };
        let Some(choices) = choices.and_then(Value::as_array) else {
            return;
        };
        for choice in choices {
            if !self.somewhere(Some(&wrap(choice.clone()))) {
                found.push(format!("{choice} is refused"));
            }
        }
        if !self.nowhere(Some(&wrap(json!("no_such_choice")))) {
            found.push("any text is taken".into());
        }
        // The reader tells what it takes.
        let wrong = self.first().with(Some(&wrap(json!("no_such_choice"))));
        let errors = Config::read(&wrong).err();
        let told = errors
            .iter()
            .flat_map(|errors| &errors.0)
            .find_map(|problem| {
                let (_, told) = problem.what.split_once("write one of: ")?;
                Some(
                    told.split(", ")
                        .map(|choice| json!(choice))
                        .collect::<Vec<_>>(),
                )
            });
        if told.as_ref() != Some(choices) {
            found.push(format!("the reader takes {told:?}"));
        }
    }

    /// The longest texts and lists.
    fn lengths(&self, found: &mut Vec<String>) {
        let node = &self.first().node;
        let text = |length: usize| json!("a".repeat(length));
        if let Some(longest) = node.count("maxLength") {
            self.longest(&text(longest), &text(longest + 1), found);
        }
        let Some(items) = node.items() else { return };
        if let Some(longest) = items.count("maxLength") {
            let list = |length| json!([text(length)]);
            self.longest(&list(longest), &list(longest + 1), found);
        }
        let empty = json!([]);
        let taken = self.somewhere(Some(&empty));
        let must_have_some = node.count("minItems").is_some();
        if taken == must_have_some || (must_have_some && !self.nowhere(Some(&empty))) {
            found.push("an empty list".into());
        }
        // Of targets there are no more than providers.
        if let Some(most) = node
            .count("maxItems")
            .filter(|_| items.get("maxLength").is_some() || node.has_objects())
        {
            self.longest(&self.many(most), &self.many(most + 1), found);
        }
        if node.get("uniqueItems").is_some() {
            let twice = |place: &&Place<'_>| {
                let list = place.value.and_then(Value::as_array).unwrap();
                let twice = json!([list[0], list[0]]);
                self.both.take(&place.with(Some(&twice))) == Taken::Nowhere
            };
            if !self.places.iter().all(twice) {
                found.push("the same element twice".into());
            }
        }
    }

    fn longest(&self, longest: &Value, longer: &Value, found: &mut Vec<String>) {
        if !self.somewhere(Some(longest)) {
            found.push("the longest is refused".into());
        }
        if !self.nowhere(Some(longer)) {
            found.push("a longer one is taken".into());
        }
    }

    /// A list of so many elements that differ.
    fn many(&self, count: usize) -> Value {
        let list = self.first().value.and_then(Value::as_array).unwrap();
        let element = |number: usize| match &list[0] {
            Value::Object(object) => {
                let mut object = object.clone();
                object.insert("name".into(), format!("n{number}").into());
                Value::Object(object)
            }
            _ => format!("w{number}").into(),
        };
        (0..count).map(element).collect()
    }

    /// Texts, also as elements of a list.
    fn texts(&self, found: &mut Vec<String>) {
        let node = &self.first().node;
        let wrap: fn(&str) -> Value = match node.items() {
            None if node.is("string") => |text| json!(text),
            Some(items) if items.is("string") => |text| json!([text]),
            _ => return,
        };
        for text in TEXTS {
            for place in &self.places {
                let document = place.with(Some(&wrap(text)));
                let taken = self.both.take(&document);
                if matches!(taken, Taken::InSchema | Taken::InReader) {
                    let errors = Config::read(&document).err();
                    let why = errors.map(|errors| errors.to_string()).unwrap_or_default();
                    found.push(format!("{text:?} is taken {taken:?} alone {why}"));
                }
            }
        }
    }

    fn examples(&self, found: &mut Vec<String>) {
        let examples = self.first().node.get("examples").and_then(Value::as_array);
        for example in examples.into_iter().flatten() {
            // It may name a provider that there is not.
            if !self.somewhere(Some(example)) {
                found.push(format!("its example {example} is refused"));
            }
        }
    }
}
