//! Who routes, as it is written on the command line: `NAME` or `NAME:KEY=VALUE,…`.
//!
//! The filter's own strategies and their options have the names that they have in its
//! configuration, and its configuration reads them.

use rolter_core::balance::Strategy;
use rolter_core::config::Config;
use serde_json::{Map, Value, json};

/// One who routes.
#[derive(Clone, Debug)]
pub(crate) struct Contender {
    /// As it was written.
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    /// This filter.
    Filter(Filter),
    /// Who sees all queues and all caches.
    Oracle,
    /// sglang-router's `cache_aware`.
    CacheAware,
    /// vllm-router's `kv_aware`.
    KvAware,
}

/// A strategy of this filter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Filter {
    pub(crate) strategy: Strategy,
    /// Distinct bytes of prompts that are remembered for a target.
    pub(crate) max_nodes: usize,
}

/// Those that are compared where nothing else is said.
pub(crate) const ALL: [&str; 8] = [
    "round_robin",
    "least_load",
    "cache_aware",
    "pipeline",
    "precise_cache_aware",
    "sglang",
    "kv_aware",
    "oracle",
];

impl Contender {
    /// Reads a contender. Options that are given for all of the filter's strategies go to those
    /// that have them.
    pub(crate) fn parse(text: &str, for_all: &[String]) -> Result<Self, String> {
        let (name, options) = text.split_once(':').unwrap_or((text, ""));
        let options = options.split(',').filter(|option| !option.is_empty());
        let kind = match name {
            "oracle" => Kind::Oracle,
            "sglang" => Kind::CacheAware,
            "kv_aware" => Kind::KvAware,
            _ => Kind::Filter(Filter::read(name, options, for_all)?),
        };
        Ok(Self {
            name: text.to_owned(),
            kind,
        })
    }
}

impl Filter {
    fn read<'a>(
        name: &str,
        options: impl Iterator<Item = &'a str>,
        for_all: &[String],
    ) -> Result<Self, String> {
        let mut own = Map::new();
        for option in options {
            let (key, value) = assignment(option)?;
            own.insert(key, value);
        }
        for option in for_all {
            let (key, value) = assignment(option)?;
            let mut with = own.clone();
            with.entry(&key).or_insert(value);
            let one = json!({ &key: with[&key] });
            if configured(name, one.as_object().unwrap_or(&with)).is_ok() {
                own = with;
            }
        }
        configured(name, &own)
    }
}

/// A strategy with options, as the filter's configuration has it.
fn configured(name: &str, options: &Map<String, Value>) -> Result<Filter, String> {
    let mut document = json!({
        "sidecar": { "cluster": "sidecar" },
        "providers": [{
            "name": "a",
            "cluster": "a",
            "api_base": "http://10.0.0.1:8000",
            "kv_events": { "endpoint": "tcp://10.0.0.1:5557" },
            "lmcache": { "endpoint": "http://10.0.0.1:9000/v1/occupancy" },
        }],
        "routes": [{ "name": "r", "strategy": name, "targets": ["a"] }],
    });
    if !options.is_empty() {
        document["routes"][0][name] = Value::Object(options.clone());
    }
    let config = Config::read(&document).map_err(|errors| errors.to_string())?;
    let route = config.routes.first().ok_or("no route")?;
    Ok(Filter {
        strategy: route.strategy,
        max_nodes: route.max_nodes.unwrap_or(0),
    })
}

fn assignment(option: &str) -> Result<(String, Value), String> {
    let (key, value) = option
        .split_once('=')
        .ok_or_else(|| format!("{option}: write KEY=VALUE"))?;
    let value = serde_json::from_str(value).unwrap_or_else(|_| json!(value));
    Ok((key.to_owned(), value))
}
