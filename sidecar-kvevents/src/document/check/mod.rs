//! What is wrong or odd about a configuration and the Envoy that it is in: a table of rules, of which
//! each knows one mistake.
//!
//! | module | what its rules look at |
//! |---|---|
//! | `plugin` | a wasm filter of ours: its configuration, its failures |
//! | `module` | where it gets the module, and its VM |
//! | `filters` | the list that it is in |
//! | `policy` | whether the filter of the policy is there, and goes with the one that routes |
//! | `routes` | which of Envoy's routes follow a decision |
//! | `patience` | what they do to answers that take long |
//! | `pools` | the cluster of a pool |
//! | `clusters` | those of the providers |
//! | `sidecar` | that of the sidecar, and those of plugins |
//! | `buffers` | what Envoy can hold |
//! | `surroundings` | admin, metrics, spellings of paths |
//! | `alone` | the configuration without an Envoy |
//! | `unguarded` | routes by which clients get round a policy |
//!
//! What they look at is read by `envoy` and `address`.
//!
//! Invariant: an error is what cannot work, whatever else Envoy gets; what may be right in spite of it
//! is no more than doubtful.

mod address;
mod alone;
mod buffers;
mod clusters;
mod envoy;
mod filters;
mod module;
mod patience;
mod plugin;
mod policy;
mod pools;
mod routes;
mod sidecar;
mod surroundings;
#[cfg(test)]
mod tests;
mod unguarded;

use super::configuration::Ours;
use envoy::Envoy;
use rolter_core::config::{Config, Problem};
use serde_json::Value;
use std::fmt;

/// What becomes of a file with a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gravity {
    /// It cannot work as it is.
    Error,
    /// It may be meant.
    Doubt,
}

/// Something that is wrong, or odd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// By which rule; `configuration` where the configuration itself cannot be read.
    pub rule: &'static str,
    /// What becomes of the file.
    pub gravity: Gravity,
    /// Where and what.
    pub problem: Problem,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.problem.fmt(f)
    }
}

/// What a check comes to.
pub struct Report {
    /// The configurations that could be read.
    pub configs: Vec<Config>,
    /// Errors first, each by path.
    pub findings: Vec<Finding>,
}

impl Report {
    /// Whether nothing is wrong. Something may be odd all the same.
    pub fn is_ok(&self) -> bool {
        let mut findings = self.findings.iter();
        !findings.any(|finding| finding.gravity == Gravity::Error)
    }

    fn new(configs: Vec<Ours>, mut findings: Vec<Finding>) -> Self {
        for Ours { problems, .. } in &configs {
            findings.extend(problems.iter().map(|problem| Finding {
                rule: "configuration",
                gravity: Gravity::Error,
                problem: problem.clone(),
            }));
        }
        findings.sort_by_cached_key(|finding| (finding.gravity, order(&finding.problem.path)));
        findings.dedup();
        let configs = configs.into_iter().filter_map(|ours| ours.config);
        Self {
            configs: configs.collect(),
            findings,
        }
    }
}

/// A path such that places come by number.
fn order(path: &str) -> String {
    let parts = path.split('[').map(|part| match part.split_once(']') {
        Some((place, rest)) => format!("{place:0>6}]{rest}"),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("[")
}

/// A mistake that is known.
struct Rule {
    name: &'static str,
    gravity: Gravity,
    look: Look,
}

/// What a rule looks at.
#[derive(Clone, Copy)]
enum Look {
    /// A file of Envoy's.
    Envoy(fn(&Envoy<'_>) -> Vec<Problem>),
    /// A configuration, wherever it is.
    Config(fn(&Ours, &Config) -> Vec<Problem>),
}

const fn error(name: &'static str, look: fn(&Envoy<'_>) -> Vec<Problem>) -> Rule {
    Rule {
        name,
        gravity: Gravity::Error,
        look: Look::Envoy(look),
    }
}

const fn doubt(name: &'static str, look: fn(&Envoy<'_>) -> Vec<Problem>) -> Rule {
    Rule {
        name,
        gravity: Gravity::Doubt,
        look: Look::Envoy(look),
    }
}

const fn alone(name: &'static str, look: fn(&Ours, &Config) -> Vec<Problem>) -> Rule {
    Rule {
        name,
        gravity: Gravity::Doubt,
        look: Look::Config(look),
    }
}

/// All of them.
const RULES: &[Rule] = &[
    error("plugin_configuration", plugin::configuration),
    error("plugin_configuration_value", plugin::value),
    doubt("plugin_configuration_bytes", plugin::bytes),
    error("holding", plugin::holding),
    doubt("failure_policy", plugin::closed_for_good),
    doubt("fails_open", plugin::fails_open),
    error("two_failure_policies", plugin::two_failure_policies),
    doubt("runtime", module::runtime),
    error("code", module::code),
    error("code_sha256", module::sha256),
    doubt("module_file", module::file),
    error("module_content", module::content),
    doubt("vm_id", module::vm_id),
    doubt("vm_ids", module::vm_ids),
    doubt("same_name", module::same_name),
    doubt("several_configurations", module::several),
    error("router", filters::router),
    doubt("two_routing", filters::two_routing),
    error("disabled", filters::disabled),
    error("per_route_configuration", filters::per_route),
    doubt("compressed_answers", filters::compressed_answers),
    doubt("compressed_requests", filters::compressed_requests),
    doubt("admitted_late", filters::admitted_late),
    error("policy_missing", policy::missing),
    error("policy_after", policy::after),
    error("policy_vm_id", policy::vm_id),
    error("policy_vm", policy::vm),
    error("policy_configuration", policy::configuration),
    error("policy_fails_open", policy::fails_open),
    doubt("policy_elsewhere", policy::elsewhere),
    error("open_cluster_header", routes::open_header),
    doubt("open_pool", routes::open_pool),
    error("cluster_header", routes::other_header),
    error("fixed_cluster", routes::fixed),
    doubt("also_fixed", routes::also_fixed),
    error("removed_header", routes::removed),
    error("set_header", routes::set),
    doubt("route_name", routes::name),
    doubt("mirrored", routes::mirrored),
    doubt("timeout", patience::timeout),
    doubt("idle_timeout", patience::idle_timeout),
    doubt("stream_duration", patience::stream_duration),
    doubt("per_try_timeout", patience::per_try_timeout),
    doubt("hedging", patience::hedging),
    doubt("retries", patience::retries),
    doubt("pool_retries", patience::pool_retries),
    error("override_host", pools::policy),
    error("override_header", pools::header),
    error("pool_endpoint", pools::endpoint),
    doubt("pool_stranger", pools::stranger),
    doubt("pool_name", pools::name),
    error("pool_name_type", pools::name_type),
    doubt("pool_fallback", pools::fallback),
    doubt("pool_health", pools::health),
    doubt("provider_cluster", clusters::unknown),
    doubt("several_endpoints", clusters::several),
    doubt("shared_endpoint", clusters::shared),
    doubt("other_engine", clusters::other_engine),
    doubt("circuit_breakers", clusters::breakers),
    doubt("engine_http2", clusters::http2),
    doubt("sidecar_cluster", sidecar::unknown),
    doubt("sidecar_listen", sidecar::elsewhere),
    error("sidecar_protocol", sidecar::protocol),
    doubt("policy_plugin", sidecar::plugins),
    doubt("request_buffer", buffers::requests),
    doubt("answer_buffer", buffers::answers),
    doubt("request_headers", buffers::headers),
    doubt("admin", surroundings::admin),
    doubt("path_spelling", surroundings::spelling),
    doubt("stats_tags", surroundings::tags),
    alone("unguarded", unguarded::doubts),
    alone("shadowed", alone::shadowed),
    alone("unused", alone::unused),
    alone("same_api_base", alone::same_api_base),
    alone("endpoint_elsewhere", alone::endpoint_elsewhere),
    alone("partial_signal", alone::partial_signal),
];

/// The names of all rules.
pub fn rules() -> impl Iterator<Item = (&'static str, Gravity)> {
    RULES.iter().map(|rule| (rule.name, rule.gravity))
}

/// About a configuration alone.
pub(super) fn config(document: Value) -> Report {
    let configs = vec![Ours::read(document, String::new())];
    let findings = of_configs(&configs);
    Report::new(configs, findings)
}

/// About a file of Envoy's and what is in it; nothing where it has nothing of ours.
pub(super) fn envoy(document: &Value) -> Option<Report> {
    let envoy = Envoy::read(document);
    if envoy.plugins.is_empty() && envoy.configs.is_empty() {
        return None;
    }
    let mut findings = of_configs(&envoy.configs);
    for rule in RULES {
        if let Look::Envoy(look) = rule.look {
            findings.extend(rule.found(look(&envoy)));
        }
    }
    Some(Report::new(envoy.configs, findings))
}

fn of_configs(configs: &[Ours]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for rule in RULES {
        let Look::Config(look) = rule.look else {
            continue;
        };
        for ours in configs {
            let problems = ours.config.as_ref().map(|config| look(ours, config));
            findings.extend(rule.found(problems.unwrap_or_default()));
        }
    }
    findings
}

impl Rule {
    fn found(&self, problems: Vec<Problem>) -> impl Iterator<Item = Finding> + use<> {
        let Self { name, gravity, .. } = *self;
        let problems = problems.into_iter();
        problems.map(move |problem| Finding {
            rule: name,
            gravity,
            problem,
        })
    }
}
