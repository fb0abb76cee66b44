//! Parts of Envoy's configuration, put into a whole one: all those of a page go into
//! `envoy/envoy.yaml`, or into `envoy/policy.yaml` where the filter of the policy is among them, each
//! list in the place of what is there.
//!
//! - HTTP filters (elements with a `typed_config`) take the place of all that come before the router,
//!   and of the router, where they have one;
//! - routes of Envoy's (with `match` and `route`) take the place of the routes;
//! - clusters (with a `name` and `load_assignment`) join the others;
//! - lines of a cluster (`load_assignment`, and what goes with it) take the place of those of the
//!   cluster that `load_assignment` names; where that is `engines`, the whole is `envoy/pool.yaml`;
//! - `stats_config` takes the place of the one there.

use crate::blocks::Block;
use crate::{ask, read};
use e2e::validation::{shown, validate};
use serde_json::Value;

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";

/// A part, and where it goes.
enum Part {
    Filters(Vec<Value>),
    Routes(Vec<Value>),
    Clusters(Vec<Value>),
    Lines(Value),
    Stats(Value),
}

pub(crate) fn is_part(document: &Value) -> bool {
    parts(document).is_some()
}

/// Nothing where anything in it has no place.
fn parts(document: &Value) -> Option<Vec<Part>> {
    match document {
        Value::Array(list) => Some(vec![of_list(list)?]),
        Value::Object(fields) if fields.contains_key("load_assignment") => {
            Some(vec![Part::Lines(document.clone())])
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(key, value)| match (&**key, value) {
                ("http_filters" | "routes" | "clusters", Value::Array(list)) => of_list(list),
                ("stats_config", _) => Some(Part::Stats(value.clone())),
                _ => None,
            })
            .collect(),
        _ => None,
    }
}

fn of_list(list: &[Value]) -> Option<Part> {
    let all_have = |keys: &[&str]| {
        let has = |element: &Value| keys.iter().all(|key| element.get(key).is_some());
        !list.is_empty() && list.iter().all(has)
    };
    let list = list.to_vec();
    if all_have(&["name", "typed_config"]) {
        Some(Part::Filters(list))
    } else if all_have(&["match", "route"]) {
        Some(Part::Routes(list))
    } else if all_have(&["name", "load_assignment"]) {
        Some(Part::Clusters(list))
    } else {
        None
    }
}

/// Whether Envoy and the sidecar take these parts of a page together.
pub(crate) fn check(blocks: &[&Block]) -> Result<(), String> {
    let mut found = Vec::new();
    for block in blocks {
        let document: Value =
            serde_saphyr::from_str(&block.text).map_err(|error| error.to_string())?;
        found.extend(parts(&document).unwrap_or_default());
    }
    let is_pools =
        |part: &Part| matches!(part, Part::Lines(lines) if of_cluster(lines) == "engines");
    let is_policys = |part: &Part| {
        let is_it = |filter: &Value| filter["name"] == "rolter_policy";
        matches!(part, Part::Filters(filters) if filters.iter().any(is_it))
    };
    let base = if found.iter().any(is_pools) {
        "envoy/pool.yaml"
    } else if found.iter().any(is_policys) {
        "envoy/policy.yaml"
    } else {
        "envoy/envoy.yaml"
    };
    let mut whole: Value = serde_saphyr::from_str(&read(base)).unwrap();
    for part in found {
        put(&mut whole, part)?;
    }
    check_whole(&whole.to_string())
}

/// The name of the cluster that some lines are of.
fn of_cluster(lines: &Value) -> &str {
    lines["load_assignment"]["cluster_name"]
        .as_str()
        .unwrap_or_default()
}

fn put(whole: &mut Value, part: Part) -> Result<(), String> {
    let manager = whole.pointer_mut(MANAGER).expect("a connection manager");
    match part {
        Part::Filters(mut filters) => {
            let there = manager["http_filters"].as_array_mut().unwrap();
            let router = there.pop();
            let is_router = |filter: &Value| filter["name"] == "envoy.filters.http.router";
            if !filters.last().is_some_and(is_router) {
                filters.extend(router);
            }
            *there = filters;
        }
        Part::Routes(routes) => {
            manager["route_config"]["virtual_hosts"][0]["routes"] = routes.into();
        }
        Part::Clusters(clusters) => {
            let there = whole["static_resources"]["clusters"]
                .as_array_mut()
                .unwrap();
            for cluster in clusters {
                there.retain(|other| other["name"] != cluster["name"]);
                there.push(cluster);
            }
        }
        Part::Lines(lines) => {
            let name = of_cluster(&lines);
            let there = whole["static_resources"]["clusters"]
                .as_array_mut()
                .unwrap();
            let cluster = there.iter_mut().find(|cluster| cluster["name"] == name);
            let cluster = cluster.ok_or_else(|| format!("there is no cluster {name:?}"))?;
            for (key, value) in lines.as_object().into_iter().flatten() {
                cluster[key] = value.clone();
            }
        }
        Part::Stats(stats) => whole["stats_config"] = stats,
    }
    Ok(())
}

/// Whether Envoy and the sidecar take this, without a doubt.
pub(crate) fn check_whole(text: &str) -> Result<(), String> {
    let program = fleet::sidecar_binary().unwrap_or_else(|error| panic!("{error}"));
    let program = program.display().to_string();
    let said = ask(&[&program, "check", "--envoy-config"], "envoy.yaml", text)?;
    let mut doubts = said.lines().filter(|line| line.starts_with("but "));
    if let Some(doubt) = doubts.next() {
        return Err(doubt.to_owned());
    }
    let output = validate(text);
    if output.status.success() {
        return Ok(());
    }
    Err(shown(&output))
}
