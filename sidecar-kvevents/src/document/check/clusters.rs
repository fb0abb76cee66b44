//! The clusters of the providers: whether each is there, leads to one engine, that one, and takes what
//! is sent to it. Invariant: an address and a name are never taken for two engines.

use super::address::{asked, host_ip};
use super::envoy::{Cluster, Envoy};
use crate::document::configuration::Ours;
use crate::document::value::Walk;
use rolter_core::config::{Problem, Reach};
use std::collections::{BTreeMap, BTreeSet};

/// Providers by cluster that a route reaches so, with their places.
fn by_cluster<'a>(envoy: &'a Envoy<'_>) -> impl Iterator<Item = (&'a Ours, usize, &'a str)> {
    envoy.configs().flat_map(|(ours, config)| {
        let routes = config.routes.iter();
        let routes = routes.filter(|route| route.reach == Reach::Cluster);
        let used: BTreeSet<usize> = routes.flat_map(super::envoy::targets).collect();
        let used = used.into_iter();
        used.filter_map(move |place| {
            let cluster = config.providers.get(place)?.cluster.as_deref()?;
            Some((ours, place, cluster))
        })
    })
}

/// Envoy answers 503 then, and says nothing at the start.
pub(super) fn unknown(envoy: &Envoy<'_>) -> Vec<Problem> {
    if !envoy.is_whole() {
        return Vec::new();
    }
    let unknown = by_cluster(envoy).filter(|(_, _, name)| envoy.cluster(name).is_none());
    let told = unknown.map(|(ours, place, name)| {
        let known: Vec<&str> = envoy.clusters.iter().map(|cluster| cluster.name).collect();
        let what = format!(
            "no cluster {name:?} in this file, so that its requests get 503, unless Envoy gets it \
             from elsewhere; write one of these, or add it: {}",
            known.join(", ")
        );
        ours.problem(&format!("providers[{place}].cluster"), what)
    });
    told.collect()
}

/// The clusters of providers, each once, with the provider's place.
fn engines<'a, 'b>(envoy: &'a Envoy<'b>) -> Vec<(&'a Ours, usize, &'a Cluster<'b>)> {
    let mut seen = BTreeSet::new();
    let found = by_cluster(envoy);
    let found = found.filter_map(|(ours, place, name)| Some((ours, place, envoy.cluster(name)?)));
    found
        .filter(|(_, _, cluster)| seen.insert(cluster.name))
        .collect()
}

/// Within one Envoy balances as it likes.
pub(super) fn several(envoy: &Envoy<'_>) -> Vec<Problem> {
    let told = engines(envoy).into_iter().filter_map(|(.., cluster)| {
        let count = cluster.endpoints().len();
        (count > 1).then(|| {
            let what = format!(
                "{count} endpoints, among which Envoy chooses without regard to their caches; \
                 write a cluster and a provider for each, or a pool (reach: pool)"
            );
            cluster.problem("load_assignment", what)
        })
    });
    told.collect()
}

/// Two providers are two engines.
pub(super) fn shared(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    let mut told = Vec::new();
    for (.., cluster) in engines(envoy) {
        for endpoint in cluster.endpoints() {
            if let Some(other) = owners.get(&endpoint) {
                let what = format!(
                    "{endpoint} is an endpoint of {other:?}, too, so that one engine counts as two; \
                     write each engine's own"
                );
                told.push(cluster.problem("load_assignment", what));
            } else {
                owners.insert(endpoint, cluster.name);
            }
        }
    }
    told
}

/// What the sidecar asks should be the engine that Envoy sends requests to.
pub(super) fn other_engine(envoy: &Envoy<'_>) -> Vec<Problem> {
    let engines = engines(envoy);
    let mut told = Vec::new();
    for (ours, place, cluster) in &engines {
        let own = cluster.endpoints();
        let others = engines
            .iter()
            .filter(|(.., other)| other.name != cluster.name);
        let others: BTreeMap<String, &str> = others
            .flat_map(|(.., other)| other.endpoints().into_iter().map(|at| (at, other.name)))
            .collect();
        let provider = ours.config.as_ref();
        let provider = provider.and_then(|config| config.providers.get(*place));
        let Some(asked) = provider.and_then(asked) else {
            continue;
        };
        if own.is_empty() || own.contains(&asked) {
            continue;
        }
        let hosts: Vec<_> = own.iter().filter_map(|own| host_ip(own)).collect();
        let path = format!("providers[{place}].api_base");
        if let Some(other) = others.get(&asked) {
            let what = format!(
                "{asked} is the engine of the cluster {other:?}, but requests go to {}; write that",
                own.join(", ")
            );
            told.push(ours.problem(&path, what));
        } else if let Some(host) = host_ip(&asked)
            && hosts.len() == own.len()
            && !hosts.contains(&host)
        {
            let what = format!(
                "{asked} is asked how the engine is, but the cluster {:?} leads to {}; write the \
                 same, unless that is another way to it",
                cluster.name,
                own.join(", ")
            );
            told.push(ours.problem(&path, what));
        }
    }
    told
}

/// The clusters by which engines are reached, those of pools included.
fn all<'a>(envoy: &'a Envoy<'_>) -> Vec<&'a Cluster<'a>> {
    let mut clusters: Vec<&Cluster<'_>> = Vec::new();
    let pools = envoy
        .following()
        .flat_map(|(route, ..)| envoy.pools_of(route));
    let engines = engines(envoy).into_iter().map(|(.., cluster)| cluster);
    for cluster in engines.chain(pools) {
        if !clusters.iter().any(|known| known.path == cluster.path) {
            clusters.push(cluster);
        }
    }
    clusters
}

/// Engines queue for themselves.
pub(super) fn breakers(envoy: &Envoy<'_>) -> Vec<Problem> {
    const LIMITS: [&str; 4] = [
        "max_connections",
        "max_pending_requests",
        "max_requests",
        "max_retries",
    ];
    let told = all(envoy).into_iter().filter_map(|cluster| {
        let breakers = Walk::root(cluster.value).at(&["circuit_breakers"]);
        let thresholds: Vec<_> = breakers.at(&["thresholds"]).items().collect();
        let is_default = |threshold: &&Walk<'_>| {
            let priority = threshold.value.get("priority");
            priority.is_none_or(|priority| priority == "DEFAULT" || priority == 0)
        };
        let given = thresholds.iter().find(is_default);
        let has_budget = given.is_some_and(|given| given.value.get("retry_budget").is_some());
        let missing = LIMITS.into_iter().filter(|limit| {
            let is_given = given.is_some_and(|given| given.value.get(limit).is_some());
            !(is_given || has_budget && *limit == "max_retries")
        });
        let missing: Vec<&str> = missing.collect();
        (!missing.is_empty()).then(|| {
            let what = format!(
                "no {}, and Envoy's defaults of 1024 at once, and 3 retries, answer 503 where an \
                 engine would queue; write 100000 for each",
                missing.join(", ")
            );
            cluster.problem("circuit_breakers.thresholds", what)
        })
    });
    told.collect()
}

/// Engines' servers seldom speak it.
pub(super) fn http2(envoy: &Envoy<'_>) -> Vec<Problem> {
    let told = all(envoy).into_iter().filter_map(|cluster| {
        let field = cluster.speaks_http2()?;
        let what = "HTTP/2, which vLLM's own server does not speak, so that each request to it \
                    fails; write explicit_http_config: { http_protocol_options: {} }, unless what \
                    is there speaks HTTP/2";
        Some(cluster.problem(field, what))
    });
    told.collect()
}
