//! The list of HTTP filters that one of ours is in. Invariant: Envoy hands requests down the list, and
//! answers up.

use super::envoy::{Envoy, POLICY, Plugin, Route, problem};
use crate::document::value::text;
use rolter_core::config::Problem;
use serde_json::Value;

/// The last filter of a list, which sends requests on.
const ROUTER: &str = "Router";

/// Envoy refuses a list that does not end in its router.
pub(super) fn router(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (place, list) in envoy.lists.iter().enumerate() {
        let router = list.kinds().find(|(_, kind)| *kind == ROUTER);
        for (own, _) in envoy.plugins_of(place) {
            let path = format!("{}[{own}]", list.path);
            if let Some((router, _)) = router.filter(|(router, _)| *router < own) {
                let what = format!(
                    "after the router, http_filters[{router}], which has to be the last one, so \
                     that Envoy refuses the file; write it before that"
                );
                told.push(problem(&path, what));
            } else if own + 1 == list.filters.len() {
                let what = "the last one, so that Envoy refuses the file; write the router, \
                            envoy.filters.http.router, after it";
                told.push(problem(&path, what));
            }
        }
    }
    told
}

/// A misspelt `root_id` does that.
pub(super) fn two_routing(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for place in 0..envoy.lists.len() {
        let mut routing = envoy.routing_in(place);
        let Some((first, _)) = routing.next() else {
            continue;
        };
        for (_, plugin) in routing {
            let what = format!(
                "http_filters[{first}] routes already, so that each request is decided and counted \
                 twice; remove one, or write root_id: {POLICY} in the one that is for the policy"
            );
            told.push(plugin.problem("root_id", what));
        }
    }
    told
}

/// Whether an entry in `typed_per_filter_config` switches the filter.
fn switched(entry: &Value) -> Option<bool> {
    let is_switch = text(entry, "@type").ends_with(".FilterConfig");
    is_switch.then(|| entry["disabled"] == true)
}

/// What the levels of a route say of a filter, the nearest first.
fn said<'a>(route: &Route<'a>, name: &str) -> Option<(String, &'a Value)> {
    let key = "typed_per_filter_config";
    let mut levels = route.levels.iter();
    levels.find_map(|(path, level)| {
        let entry = level.get(key)?.get(name)?;
        Some((format!("{path}.{key}.{name}"), entry))
    })
}

/// Where it is switched off, clients choose.
pub(super) fn disabled(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (place, list) in envoy.lists.iter().enumerate() {
        for (own, plugin) in envoy.plugins_of(place) {
            let Some(filter) = list.filters.get(own) else {
                continue;
            };
            let is_off = filter["disabled"] == true;
            let why = if plugin.is_of_policy() {
                "requests of routes with a policy are refused"
            } else {
                "clients choose the engine by a header, or their requests get 503"
            };
            for route in list.routes.iter().filter(|route| envoy.follows(route)) {
                let said = said(route, text(filter, "name"));
                let entry = said.and_then(|(path, entry)| Some((path, switched(entry)?)));
                let path = match entry {
                    Some((path, true)) => path,
                    None if is_off => format!("{}[{own}]", list.path),
                    _ => continue,
                };
                let what = format!("true, so that {why} on {}; remove it", route.path);
                told.push(problem(&format!("{path}.disabled"), what));
            }
        }
    }
    // One for each place to mend.
    told.dedup_by(|one, other| one.path == other.path);
    told
}

/// Wasm filters have none.
pub(super) fn per_route(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told: Vec<Problem> = Vec::new();
    for (place, list) in envoy.lists.iter().enumerate() {
        let own: Vec<&str> = envoy
            .plugins_of(place)
            .filter_map(|(own, _)| Some(text(list.filters.get(own)?, "name")))
            .collect();
        for name in own {
            for (path, level) in list.routes.iter().flat_map(|route| &route.levels) {
                let entry = level["typed_per_filter_config"].get(name);
                if entry.is_none_or(|entry| switched(entry).is_some()) {
                    continue;
                }
                let what = "wasm filters have no configuration by route, so that Envoy refuses the \
                            file; remove it, and write routes in the filter's own configuration";
                let path = format!("{path}.typed_per_filter_config.{name}");
                if !told.iter().any(|told| told.path == path) {
                    told.push(problem(&path, what));
                }
            }
        }
    }
    told
}

/// Filters of such kinds after the first one that routes, each with it.
fn after<'a>(
    envoy: &'a Envoy<'_>,
    kinds: &'a [&str],
) -> impl Iterator<Item = (String, &'a str, &'a Plugin<'a>)> {
    let lists = envoy.lists.iter().enumerate();
    lists.flat_map(move |(place, list)| {
        let routing = envoy.routing_in(place).next();
        let found = list.kinds().filter(|(_, kind)| kinds.contains(kind));
        found.filter_map(move |(other, kind)| {
            let (own, plugin) = routing?;
            (other > own).then(|| (format!("{}[{other}]", list.path), kind, plugin))
        })
    })
}

/// The cache keeps what it can read.
pub(super) fn compressed_answers(envoy: &Envoy<'_>) -> Vec<Problem> {
    let found = after(envoy, &["Compressor"]);
    let caching = found.filter(|(_, _, plugin)| {
        let config = envoy.config_of(plugin);
        config.is_some_and(|config| config.cache.is_some())
    });
    let told = caching.map(|(path, ..)| {
        let what = "compresses answers before the filter that routes sees them, and its cache keeps \
                    none that is compressed; write it before that filter";
        problem(&path, what)
    });
    told.collect()
}

/// Prompts are read as they come.
pub(super) fn compressed_requests(envoy: &Envoy<'_>) -> Vec<Problem> {
    let told = after(envoy, &["Decompressor"]).map(|(path, ..)| {
        let what = "unpacks requests after the filter that routes has seen them, which reads no \
                    compressed prompt; write it before that filter";
        problem(&path, what)
    });
    told.collect()
}

/// Who may be asked, before anything is answered.
pub(super) fn admitted_late(envoy: &Envoy<'_>) -> Vec<Problem> {
    const ADMITTING: [&str; 6] = [
        "ApiKeyAuth",
        "BasicAuth",
        "ExtAuthz",
        "JwtAuthentication",
        "OAuth2",
        "RBAC",
    ];
    let told = after(envoy, &ADMITTING).map(|(path, kind, plugin)| {
        let config = envoy.config_of(plugin);
        let has_cache = config.is_some_and(|config| config.cache.is_some());
        let why = if has_cache {
            "the cache answers whom it would refuse"
        } else {
            "requests that it refuses have been counted, and count as seen by an engine"
        };
        let what = format!(
            "{kind} comes after the filter that routes, so that {why}; write it before that filter"
        );
        problem(&path, what)
    });
    told.collect()
}
