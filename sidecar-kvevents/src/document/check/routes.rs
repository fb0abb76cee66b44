//! Which of Envoy's routes follow a decision: by the header that names the cluster, or into a pool.
//! Invariant: a connection manager that gets its routes from elsewhere is not judged by them.

use super::envoy::{
    CLUSTER_HEADER, Cluster, Envoy, List, POOL_HEADER, Route, on_levels, problem, reaches,
};
use crate::document::value::{Walk, at, text};
use rolter_core::config::{Problem, Reach};
use serde_json::Value;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Filters that may set headers, or take them away, as it pleases whoever has written them.
const SETTING: [&str; 7] = [
    "Config", // of Go's
    "DynamicModuleFilter",
    "ExtAuthz",
    "ExternalProcessor",
    "HeaderMutation",
    "Lua",
    "Wasm",
];

/// Whether clients on other machines reach it, and not only what is in this Envoy or beside it, as an
/// inner one behind that in which something of ours routes.
fn is_open(list: &List<'_>) -> bool {
    let Some((_, listener)) = &list.listener else {
        return false;
    };
    let host = text(at(listener, "/address/socket_address"), "address");
    let ip = host.parse::<IpAddr>();
    !host.is_empty() && !ip.is_ok_and(|ip| ip.is_loopback())
}

/// The routes of connection managers that clients reach, and in which nothing minds headers, as far
/// as the file tells.
fn unrouted<'a, 'b>(envoy: &'a Envoy<'b>) -> impl Iterator<Item = (&'a List<'b>, &'a Route<'b>)> {
    let lists = envoy.lists.iter().enumerate();
    let bare = lists.filter(|(place, list)| {
        let is_routed = envoy.routing_in(*place).next().is_some();
        let mut kinds = list.kinds();
        let is_set = kinds.any(|(_, kind)| SETTING.contains(&kind));
        is_open(list) && !is_routed && !is_set && !list.has_discovered()
    });
    bare.flat_map(|(_, list)| list.routes.iter().map(move |route| (list, route)))
}

/// Where nothing removes a client's copy of the header, it chooses any cluster.
pub(super) fn open_header(envoy: &Envoy<'_>) -> Vec<Problem> {
    let open = unrouted(envoy).filter(|(_, route)| route.by_header());
    let told = open.map(|(list, route)| {
        let what = format!(
            "{CLUSTER_HEADER}, and no filter of ours is in {}, so that clients choose any cluster \
             by that header; write that filter there, or a cluster here",
            list.path
        );
        leading(route, what)
    });
    told.collect()
}

/// And in a pool any endpoint.
pub(super) fn open_pool(envoy: &Envoy<'_>) -> Vec<Problem> {
    let open = unrouted(envoy);
    let open = open.filter(|(_, route)| envoy.pools_of(route).any(Cluster::reads_ours));
    let told = open.map(|(list, route)| {
        let what = format!(
            "leads to a pool, and no filter of ours is in {}, so that clients choose any endpoint \
             by {POOL_HEADER}; write that filter there, or remove that header above",
            list.path
        );
        leading(route, what)
    });
    told.collect()
}

/// A problem with where a route leads.
fn leading(route: &Route<'_>, what: String) -> Problem {
    let field = route.field().unwrap_or_default();
    route.problem(&format!("route.{field}"), what)
}

/// Connection managers with routes of ours by cluster, of which none follows the decision. What an
/// extension makes of it, nobody knows here.
fn ignoring<'a, 'b>(envoy: &'a Envoy<'b>) -> impl Iterator<Item = &'a List<'b>> {
    let routed = envoy.routed().filter(|(list, _, config)| {
        let mut routes = list.routes.iter();
        let is_followed = routes
            .any(|route| envoy.follows(route) || route.matches_header() || route.field().is_none());
        reaches(config, Reach::Cluster) && !reaches(config, Reach::Pool) && !is_followed
    });
    routed.map(|(list, ..)| list)
}

/// A header that the filter does not set.
pub(super) fn other_header(envoy: &Envoy<'_>) -> Vec<Problem> {
    let routes = ignoring(envoy).flat_map(|list| &list.routes);
    let told = routes.filter_map(|route| {
        let header = route.headers().next()?;
        let what = format!(
            "{header:?}, but the filter sets {CLUSTER_HEADER}, so that clients choose the cluster, or \
             get 503; write that"
        );
        Some(leading(route, what))
    });
    told.collect()
}

/// A cluster that is written down.
pub(super) fn fixed(envoy: &Envoy<'_>) -> Vec<Problem> {
    let lists = ignoring(envoy).filter(|list| {
        let mut routes = list.routes.iter();
        !routes.any(|route| route.headers().next().is_some())
    });
    let told = lists.flat_map(|list| &list.routes).map(|route| {
        let what = format!(
            "fixed, so that requests go there whatever is decided; write cluster_header: \
             {CLUSTER_HEADER} instead"
        );
        leading(route, what)
    });
    told.collect()
}

/// Beside routes that follow there may be one to an engine, for what only that one is asked.
pub(super) fn also_fixed(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (list, _, config) in envoy.routed() {
        if !list.routes.iter().any(Route::by_header) {
            continue;
        }
        let providers = config.providers.iter();
        let clusters: BTreeSet<&str> = providers
            .filter_map(|provider| provider.cluster.as_deref())
            .collect();
        for route in list.routes.iter().filter(|route| !route.matches_header()) {
            let mut named = route.clusters();
            if let Some(cluster) = named.find(|name| clusters.contains(name)) {
                let what = format!(
                    "{cluster:?} is a provider's, and fixed here, so that requests go there \
                     whatever is decided, and count for the target that was; write \
                     cluster_header: {CLUSTER_HEADER} instead"
                );
                told.push(leading(route, what));
            }
        }
    }
    told
}

/// Before Envoy has looked at it.
pub(super) fn removed(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told: Vec<Problem> = Vec::new();
    for (route, ..) in envoy.following().filter(|(route, ..)| !route.by_header()) {
        for (path, removed) in on_levels(route, "request_headers_to_remove") {
            let mut removed = removed.iter();
            let is_ours = removed.any(|name| name.eq_ignore_ascii_case(POOL_HEADER));
            // A level is told once, however many routes are below.
            if is_ours && !told.iter().any(|told| told.path == path) {
                let what = format!(
                    "{POOL_HEADER} is removed before Envoy chooses the endpoint, so that no \
                     decision is followed; remove it in the cluster, by a header_mutation among \
                     its http_filters"
                );
                told.push(problem(&path, what));
            }
        }
    }
    told
}

/// Whether a header that is added takes the place of one that is there. What is appended comes after
/// all that the filter has named.
fn overwrites(added: &Value) -> bool {
    let action = text(added, "append_action");
    let old = &added["append"];
    action.starts_with("OVERWRITE_") || *old == false
}

/// In place of what the filter has set.
pub(super) fn set(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told: Vec<Problem> = Vec::new();
    for (route, ..) in envoy.following().filter(|(route, ..)| !route.by_header()) {
        for (path, level) in &route.levels {
            let added = Walk::new(path.clone(), level).at(&["request_headers_to_add"]);
            for added in added.items() {
                let header = &added.value["header"];
                let is_ours = text(header, "key").eq_ignore_ascii_case(POOL_HEADER)
                    && overwrites(added.value);
                if is_ours && !told.iter().any(|told| told.path == added.path) {
                    let what = format!(
                        "{POOL_HEADER} is what the filter sets, and this takes its place, so that no \
                         decision is followed; remove it"
                    );
                    told.push(problem(&added.path, what));
                }
            }
        }
    }
    told
}

/// A name by which routes of ours choose requests.
pub(super) fn name(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (list, ours, config) in envoy.routed() {
        if list.routes.is_empty() {
            continue;
        }
        let known: BTreeSet<&str> = list
            .routes
            .iter()
            .map(|route| text(route.value, "name"))
            .filter(|name| !name.is_empty())
            .collect();
        for (place, route) in config.routes.iter().enumerate() {
            let Some(name) = route.conditions.route_name.as_deref() else {
                continue;
            };
            if !known.contains(name) {
                let known = known.iter().copied().collect::<Vec<_>>().join(", ");
                let what = format!(
                    "no route of Envoy's is named {name:?} here, so that no request takes this one; \
                     write one of these, or name it: {known}"
                );
                let path = format!("routes[{place}].match.route_name");
                told.push(ours.problem(&path, what));
            }
        }
    }
    told
}

/// Copies of requests are work for engines that nobody counts.
pub(super) fn mirrored(envoy: &Envoy<'_>) -> Vec<Problem> {
    let told = envoy.following().filter_map(|(route, ..)| {
        let key = "request_mirror_policies";
        let policies = route.action.get(key)?.as_array()?;
        (!policies.is_empty()).then(|| {
            let what = "copies of requests are work for engines that nobody counts; remove it, or write \
                        clusters that lead to no target";
            route.problem(&format!("route.{key}"), what)
        })
    });
    told.collect()
}
