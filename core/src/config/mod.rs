//! The configuration document: parsed and checked as a whole, before anything of it is used.
//!
//! All that is wrong is reported at once, each with the path to it and what to write instead. What
//! passes is resolved: names have become indices, defaults are filled in.

mod fields;
mod matching;
#[cfg(test)]
mod tests;

pub use fields::{Errors, Problem};
use matching::without_port;
pub use matching::{Conditions, Pattern};

use crate::balance::Margins;
use crate::target::MAX_TARGETS;
use fields::{Fields, Report};
use serde_json::Value;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The whole document.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Request bodies up to this many bytes are read; 1 MiB by default. Envoy has to hold so much,
    /// and as much more as it reads from a connection at once.
    pub max_request_bytes: usize,
    /// Whether answers carry `x-rolter-target` and `x-rolter-decision`.
    pub debug_headers: bool,
    /// The engines.
    pub providers: Vec<Provider>,
    /// In the order in which they are tried: the first that matches decides.
    pub routes: Vec<Route>,
}

/// An engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its name in routes, metrics and headers.
    pub name: String,
    /// The Envoy cluster that leads to it.
    pub cluster: String,
}

/// What happens to some of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its name in metrics.
    pub name: String,
    /// Which requests it is for.
    pub conditions: Conditions,
    /// How a target is chosen.
    pub strategy: Strategy,
    /// Indices into [`Config::providers`], at least one, each at most once.
    pub targets: Vec<usize>,
}

/// How a target is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// The target that has the prompt's prefix, within the margins of the load guard.
    CacheAware {
        /// The margins.
        margins: Margins,
        /// Distinct bytes of prompts that are remembered for a target.
        max_nodes: usize,
    },
    /// The target with the fewest requests in flight.
    LeastLoad,
    /// The targets in turn.
    RoundRobin,
}

impl Config {
    /// Reads a document.
    ///
    /// # Errors
    /// All problems that the document has.
    pub fn read(document: &Value) -> Result<Self, Errors> {
        let report = Report::default();
        let config = read_config(&Fields::root(document, &report));
        report.verdict(config)
    }
}

/// What is wrong is reported and a default takes its place, so that the reading goes on.
fn read_config(document: &Fields<'_>) -> Config {
    let mut names = BTreeMap::new();
    let mut clusters = BTreeMap::new();
    let providers: Vec<Provider> = document
        .objects("providers")
        .enumerate()
        .map(|(index, provider)| {
            let name = provider.unique_name(&mut names, index);
            let cluster = provider.required_string("cluster", "write the name of an Envoy cluster");
            if !cluster.bytes().all(|byte| byte.is_ascii_graphic()) {
                provider.add(
                    "cluster",
                    "a cluster's name has no spaces or control characters",
                );
            }
            match clusters.entry(cluster) {
                Entry::Vacant(entry) => {
                    entry.insert(name.clone());
                }
                Entry::Occupied(entry) if !cluster.is_empty() => {
                    let other = entry.get();
                    provider.add("cluster", format!("{cluster:?} leads to {other:?} already"));
                }
                Entry::Occupied(_) => {}
            }
            Provider {
                name,
                cluster: cluster.to_owned(),
            }
        })
        .collect();
    let mut route_names = BTreeMap::new();
    let routes = document
        .objects("routes")
        .enumerate()
        .map(|(index, route)| Route {
            name: route.unique_name(&mut route_names, index),
            conditions: read_conditions(&route),
            strategy: read_strategy(&route),
            targets: read_targets(&route, &names),
        })
        .collect();
    Config {
        max_request_bytes: document.integer("max_request_bytes", 1..=64 << 20, 1 << 20),
        debug_headers: document.boolean("debug_headers", false),
        providers,
        routes,
    }
}

fn read_conditions(route: &Fields<'_>) -> Conditions {
    let Some(fields) = route.object("match") else {
        return Conditions::default();
    };
    let path_prefix = fields.string("path_prefix").unwrap_or("/");
    if !path_prefix.starts_with('/') {
        fields.add("path_prefix", "a path begins with \"/\"");
    }
    if path_prefix.contains(['*', '?', '#']) {
        fields.add(
            "path_prefix",
            "write the beginning of a path, without pattern or query",
        );
    }
    let patterns = |key, normal: fn(&[u8]) -> &[u8]| {
        fields
            .strings(key)
            .filter_map(|(path, text)| {
                let text = str::from_utf8(normal(text.as_bytes())).unwrap_or(text);
                let pattern = Pattern::new(text);
                if pattern.is_none() {
                    fields.add(&path, "a pattern has one \"*\" at most, and is not empty");
                }
                pattern
            })
            .collect()
    };
    Conditions {
        hosts: patterns("hosts", without_port),
        path_prefix: path_prefix.to_owned(),
        models: patterns("models", |model| model),
        route_name: fields.string("route_name").map(str::to_owned),
    }
}

fn read_strategy(route: &Fields<'_>) -> Strategy {
    let options = route.object("cache_aware");
    // Read for its mistakes even where another strategy makes no use of it.
    let cache_aware = read_cache_aware(options.as_ref());
    let strategy = match route.one_of("strategy", &["cache_aware", "least_load", "round_robin"]) {
        "least_load" => Strategy::LeastLoad,
        "round_robin" => Strategy::RoundRobin,
        _ => return cache_aware,
    };
    if options.is_some() {
        route.add("cache_aware", "has no effect with this strategy; remove it");
    }
    strategy
}

fn read_cache_aware(options: Option<&Fields<'_>>) -> Strategy {
    let defaults = Margins::default();
    let max_nodes = 1_000_000;
    match options {
        None => Strategy::CacheAware {
            margins: defaults,
            max_nodes,
        },
        Some(fields) => Strategy::CacheAware {
            margins: Margins {
                threshold: fields.number("threshold", 0.0..=1.0, defaults.threshold),
                balance_abs: fields.integer("balance_abs", 0..=1_000_000, defaults.balance_abs),
                balance_rel: fields.number("balance_rel", 1.0..=1e6, defaults.balance_rel),
            },
            max_nodes: fields.integer("max_nodes", 1..=100_000_000, max_nodes),
        },
    }
}

fn read_targets(route: &Fields<'_>, providers: &BTreeMap<String, usize>) -> Vec<usize> {
    route.require_some("targets");
    let mut targets = Vec::new();
    for (path, name) in route.strings("targets") {
        match providers.get(name) {
            None => {
                let known: Vec<&str> = providers.keys().take(8).map(String::as_str).collect();
                let known = known.join(", ");
                route.add(&path, format!("no provider {name:?}; there are: {known}"));
            }
            Some(index) if targets.contains(index) => {
                route.add(&path, format!("{name:?} is a target of this route already"));
            }
            Some(&index) => targets.push(index),
        }
    }
    if targets.len() > MAX_TARGETS {
        let what = format!(
            "{} of them; a route has {MAX_TARGETS} at most",
            targets.len()
        );
        route.add("targets", what);
    }
    targets
}
