//! The filter's configuration in a file of Envoy's. Invariant: each different one is read once,
//! however many filters have it.

use super::value::Walk;
use rolter_core::config::{Config, Errors, Policy, Problem};
use rolter_core::policy;
use serde_json::Value;

/// One that a file has.
pub(super) struct Ours {
    pub(super) value: Value,
    /// Nothing where something is wrong with it.
    pub(super) config: Option<Config>,
    pub(super) problems: Vec<Problem>,
    /// Where in the file, unless that is clear.
    prefix: String,
}

impl Ours {
    pub(super) fn read(value: Value, prefix: String) -> Self {
        let (config, problems) = match checked(&value) {
            Ok(config) => (Some(config), Vec::new()),
            Err(Errors(problems)) => (None, problems),
        };
        Self {
            value,
            config,
            problems,
            prefix,
        }
    }

    /// A problem with something in it.
    pub(super) fn problem(&self, path: &str, what: impl Into<String>) -> Problem {
        let path = match &*self.prefix {
            "" => path.to_owned(),
            prefix => format!("{prefix}.{path}"),
        };
        let what = what.into();
        Problem { path, what }
    }

    /// A text of a provider, as it is written.
    pub(super) fn of_provider(&self, place: usize, pointer: &str) -> &str {
        let pointer = format!("/providers/{place}/{pointer}");
        let text = self.value.pointer(&pointer).and_then(Value::as_str);
        text.unwrap_or_default()
    }
}

/// A configuration whose patterns can be compiled, too.
pub(super) fn checked(document: &Value) -> Result<Config, Errors> {
    let config = Config::read(document)?;
    policy::compile(&config.policies)?;
    Ok(config)
}

/// All different ones in a file.
pub(super) fn all(document: &Value) -> Vec<Ours> {
    let found = find(document);
    let is_clear = found.len() == 1;
    let read = found.into_iter().map(|(path, value)| {
        let prefix = if is_clear { String::new() } else { path };
        Ours::read(value, prefix)
    });
    read.collect()
}

/// All different values of `configuration` that are ours, wherever they are, with their paths.
pub(super) fn find(document: &Value) -> Vec<(String, Value)> {
    let mut found = Vec::new();
    visit(&Walk::root(document), &mut found);
    found
}

/// The depth is bounded by the parsers.
fn visit(walk: &Walk<'_>, found: &mut Vec<(String, Value)>) {
    if let Some(ours) = readable(walk.value)
        && !found.iter().any(|(_, known)| *known == ours)
    {
        found.push((format!("{}.configuration.value", walk.path), ours));
    }
    walk.fields().for_each(|(_, inner)| visit(&inner, found));
    walk.items().for_each(|inner| visit(&inner, found));
}

/// What Envoy hands over to a filter of ours: a `Struct`, or a `StringValue` that is JSON. Filters of
/// others have `providers`, too, or `routes`.
pub(super) fn readable(filter: &Value) -> Option<Value> {
    let ours: Value = match filter.get("configuration")?.get("value")? {
        Value::String(text) => serde_json::from_str(text).ok()?,
        value => value.clone(),
    };
    let [providers, routes] = ["providers", "routes"].map(|key| ours.get(key).is_some());
    let is_ours = providers && routes || (providers || routes) && looks_ours(filter);
    is_ours.then_some(ours)
}

/// By the names of a filter, where its configuration does not tell.
pub(super) fn looks_ours(filter: &Value) -> bool {
    let fields = [
        "/name",
        "/root_id",
        "/vm_config/vm_id",
        "/vm_config/code/local/filename",
    ];
    let mut texts = fields
        .iter()
        .filter_map(|field| filter.pointer(field)?.as_str());
    texts.any(|text| text.contains("rolter"))
}

/// The policies that routes have.
pub(super) fn with_policy(config: &Config) -> Vec<&Policy> {
    let used = |place: usize| {
        let mut routes = config.routes.iter();
        routes.any(|route| route.policy == Some(place))
    };
    let policies = config.policies.iter().enumerate();
    let policies = policies.filter(|(place, _)| used(*place));
    policies.map(|(_, policy)| policy).collect()
}
