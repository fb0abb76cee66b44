//! The cluster of a pool: whether it goes where the filter says, and has the endpoints that the
//! providers are. Invariants: names are not resolved, so that a cluster of names is judged by names;
//! where a cluster that routes lead to is not in the file, that may be the pool, and no other is asked
//! to be it.

use super::envoy::{
    CLUSTER_HEADER, Cluster, Envoy, List, POOL_HEADER, Route, problem, reaches, targets,
};
use crate::document::configuration::Ours;
use crate::document::value::{at, text};
use rolter_core::config::{Config, Endpoint, Problem, Reach};
use std::collections::BTreeSet;

/// The clusters that routes lead to, in connection managers with routes of ours into a pool, where
/// the file has all of them.
fn named<'a, 'b>(
    envoy: &'a Envoy<'b>,
) -> impl Iterator<Item = (&'a Ours, &'a Config, Vec<&'a Cluster<'b>>)> {
    let routed = envoy.routed();
    let pooled = routed.filter(|(_, _, config)| reaches(config, Reach::Pool));
    pooled.filter_map(|(list, ours, config)| Some((ours, config, all(envoy, list)?)))
}

fn all<'a, 'b>(envoy: &'a Envoy<'b>, list: &List<'_>) -> Option<Vec<&'a Cluster<'b>>> {
    let is_of_others = |route: &Route<'_>| {
        let mut headers = route.headers();
        let is_other = headers.any(|header| !header.eq_ignore_ascii_case(CLUSTER_HEADER));
        is_other || route.field().is_none()
    };
    if list.routes.iter().any(is_of_others) || !at(list.owner, "/route_config/vhds").is_null() {
        return None;
    }
    let names = list.routes.iter().flat_map(Route::clusters);
    names.map(|name| envoy.cluster(name)).collect()
}

/// Pools that follow decisions, each once.
fn followed<'a>(envoy: &'a Envoy<'_>) -> Vec<(&'a Cluster<'a>, &'a Config)> {
    let mut pools: Vec<(&Cluster<'_>, &Config)> = Vec::new();
    for (route, config, _) in envoy
        .following()
        .filter(|(route, ..)| !Route::by_header(route))
    {
        for pool in envoy.pools_of(route).filter(|pool| pool.reads_ours()) {
            if !pools.iter().any(|(known, _)| known.path == pool.path) {
                pools.push((pool, config));
            }
        }
    }
    pools
}

/// Without it Envoy balances by itself.
pub(super) fn policy(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (_, _, clusters) in named(envoy) {
        let mut each = clusters.iter();
        if each.any(|cluster| cluster.overriding().is_some()) {
            continue;
        }
        for cluster in clusters {
            let what = format!(
                "no override_host, so that Envoy chooses the endpoint whatever is decided; write \
                 envoy.load_balancing_policies.override_host with override_host_sources: \
                 [{{ header: {POOL_HEADER} }}]"
            );
            told.push(cluster.problem("load_balancing_policy", what));
        }
    }
    told.dedup();
    told
}

/// One that the filter does not set.
pub(super) fn header(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (_, _, clusters) in named(envoy) {
        let mut each = clusters.iter();
        if each.any(|cluster| cluster.reads_ours()) {
            continue;
        }
        for cluster in clusters {
            let Some((path, _)) = cluster.overriding() else {
                continue;
            };
            let what = format!(
                "not {POOL_HEADER}, which the filter sets, so that no decision is followed; write \
                 [{{ header: {POOL_HEADER} }}]"
            );
            told.push(cluster.problem(&format!("{path}.override_host_sources"), what));
        }
    }
    told.dedup();
    told
}

/// Those that follow decisions. Where none does, another rule tells.
fn reading<'a, 'b>(mut clusters: Vec<&'a Cluster<'b>>) -> Vec<&'a Cluster<'b>> {
    clusters.retain(|cluster| cluster.reads_ours());
    clusters
}

/// Where targets in pools are, with their places.
fn endpoints(config: &Config) -> impl Iterator<Item = (usize, &Endpoint)> {
    let pooled = config.routes.iter();
    let pooled = pooled.filter(|route| route.reach == Reach::Pool);
    let places: BTreeSet<usize> = pooled.flat_map(targets).collect();
    let places = places.into_iter();
    places.filter_map(move |place| Some((place, config.providers.get(place)?.endpoint.as_ref()?)))
}

/// A provider that no endpoint is.
pub(super) fn endpoint(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (ours, config, clusters) in named(envoy) {
        let pools = reading(clusters);
        if !pools.iter().all(|pool| pool.is_literal()) || pools.is_empty() {
            continue;
        }
        let known: BTreeSet<String> = pools.iter().flat_map(|pool| pool.endpoints()).collect();
        let names: Vec<&str> = pools.iter().map(|pool| pool.name).collect();
        for (place, endpoint) in endpoints(config) {
            // What a name has for addresses, nobody knows here.
            let Endpoint::Address(address) = endpoint else {
                continue;
            };
            if known.contains(&address.to_string()) {
                continue;
            }
            let endpoint = ours.of_provider(place, "endpoint");
            let some: Vec<&str> = known.iter().take(8).map(String::as_str).collect();
            let what = format!(
                "{endpoint:?} is no endpoint of the cluster {}, so that Envoy passes it over in \
                 silence; write it there, or one of these here: {}",
                names.join(" or "),
                some.join(", ")
            );
            told.push(ours.problem(&format!("providers[{place}].endpoint"), what));
        }
    }
    told
}

/// An endpoint that no provider is.
pub(super) fn stranger(envoy: &Envoy<'_>) -> Vec<Problem> {
    let providers = envoy.configs().flat_map(|(_, config)| &config.providers);
    let endpoints: Vec<&Endpoint> = providers
        .filter_map(|provider| provider.endpoint.as_ref())
        .collect();
    // Any of its addresses may be a name's.
    let mut each = endpoints.iter();
    if each.any(|endpoint| matches!(endpoint, Endpoint::Name(_))) {
        return Vec::new();
    }
    let known: BTreeSet<String> = endpoints.iter().map(ToString::to_string).collect();
    let pools = followed(envoy).into_iter();
    let pools = pools.filter(|(pool, config)| pool.is_literal() && reaches(config, Reach::Pool));
    let told = pools.filter_map(|(pool, _)| {
        let mut strangers = pool.endpoints();
        strangers.retain(|endpoint| !known.contains(endpoint));
        (!strangers.is_empty()).then(|| {
            let what = format!(
                "no provider has {}, so that no request of ours goes there; write a provider, or \
                 remove it",
                strangers.join(", ")
            );
            pool.problem("load_assignment", what)
        })
    });
    told.collect()
}

/// Of the policies that are there where nothing that was named can be had, the first.
const FIRST: &str = "/fallback_policy/policies/0/typed_extension_config/typed_config";

/// Where nothing that was named can be had.
pub(super) fn fallback(envoy: &Envoy<'_>) -> Vec<Problem> {
    let told = followed(envoy).into_iter().filter_map(|(pool, config)| {
        let mut providers = config.providers.iter();
        providers.find(|provider| !provider.allowed_keys.is_empty())?;
        let (path, policy) = pool.overriding()?;
        let first = at(policy, FIRST);
        let refuses = text(first, "@type").ends_with(".Subset")
            && ["", "NO_FALLBACK"].contains(&text(first, "fallback_policy"));
        (!refuses).then(|| {
            let what = "takes any endpoint where none that was named is left, also one whose \
                        allowed_keys are not for the caller; write the subset policy of \
                        envoy/pool.yaml, which takes none";
            pool.problem(&format!("{path}.fallback_policy"), what)
        })
    });
    told.collect()
}

/// The policy does not ask who is healthy.
pub(super) fn health(envoy: &Envoy<'_>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (pool, _) in followed(envoy) {
        for key in ["health_checks", "outlier_detection"] {
            let value = &pool.value[key];
            if value.is_null() || value.as_array().is_some_and(Vec::is_empty) {
                continue;
            }
            let what = "override_host goes where the filter says, healthy or not, so that this keeps \
                        no request of ours from an engine; the filter has health of its own, and \
                        the sidecar's where a provider has api_base; remove it";
            told.push(problem(&format!("{}.{key}", pool.path), what));
        }
    }
    told
}

/// Providers that are all addresses of a name, with the pools, where their endpoints are in the file.
fn by_name(envoy: &Envoy<'_>, look: impl Fn(&Named<'_>) -> Option<Problem>) -> Vec<Problem> {
    let mut told = Vec::new();
    for (ours, config, clusters) in named(envoy) {
        let pools = reading(clusters);
        // Of endpoints that come from elsewhere nothing is known.
        if pools.iter().any(|pool| pool.endpoints().is_empty()) || pools.is_empty() {
            continue;
        }
        for (place, endpoint) in endpoints(config) {
            if matches!(endpoint, Endpoint::Name(_)) {
                told.extend(look(&Named {
                    ours,
                    place,
                    endpoint: endpoint.to_string(),
                    pools: &pools,
                }));
            }
        }
    }
    told
}

struct Named<'a> {
    ours: &'a Ours,
    place: usize,
    endpoint: String,
    pools: &'a [&'a Cluster<'a>],
}

impl Named<'_> {
    /// The cluster over that name.
    fn cluster(&self) -> Option<&Cluster<'_>> {
        let mut pools = self.pools.iter().copied();
        pools.find(|pool| {
            let mut endpoints = pool.endpoints().into_iter();
            endpoints.any(|endpoint| endpoint.eq_ignore_ascii_case(&self.endpoint))
        })
    }
}

/// The cluster should have the same one.
pub(super) fn name(envoy: &Envoy<'_>) -> Vec<Problem> {
    by_name(envoy, |named| {
        if named.cluster().is_some() {
            return None;
        }
        let names: Vec<&str> = named.pools.iter().map(|pool| pool.name).collect();
        let endpoint = &named.endpoint;
        let what = format!(
            "{endpoint} is no endpoint of the cluster {}, so that Envoy passes over addresses that \
             the name has and the cluster does not; write type: STRICT_DNS there, with the same \
             name and port",
            names.join(" or ")
        );
        let path = format!("providers[{}].endpoint", named.place);
        Some(named.ours.problem(&path, what))
    })
}

/// And all of its addresses.
pub(super) fn name_type(envoy: &Envoy<'_>) -> Vec<Problem> {
    by_name(envoy, |named| {
        let cluster = named.cluster()?;
        let kind = text(cluster.value, "type");
        (kind == "LOGICAL_DNS").then(|| {
            let what = "LOGICAL_DNS, which has one address of the name at a time, so that Envoy \
                        passes over the others; write STRICT_DNS";
            cluster.problem("type", what)
        })
    })
}
