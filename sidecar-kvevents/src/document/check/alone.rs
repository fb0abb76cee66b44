//! What is odd about a configuration without regard to an Envoy. Invariant: what the reader of the
//! configuration refuses is not looked for once more.

use super::address::{asked, host_ip};
use super::envoy::targets;
use crate::document::configuration::Ours;
use crate::document::value::at;
use rolter_core::balance::Strategy;
use rolter_core::config::{Conditions, Config, Endpoint, EventEndpoint, Problem, Provider};
use std::collections::{BTreeMap, BTreeSet};

/// The first route that matches decides.
pub(super) fn shadowed(ours: &Ours, config: &Config) -> Vec<Problem> {
    let routes = config.routes.iter().enumerate();
    let told = routes.filter_map(|(place, route)| {
        let mut before = config.routes.iter().take(place);
        let (own, name) = (&route.conditions, &route.name);
        let wider = before.find(|wider| covers(&wider.conditions, own))?;
        let what = format!(
            "no request gets to {name}, as all that match it match {} before; write the narrower \
             one first",
            wider.name
        );
        Some(ours.problem(&format!("routes[{place}].match"), what))
    });
    told.collect()
}

/// Whether all that match one match another, as far as can be told without patterns.
fn covers(wider: &Conditions, own: &Conditions) -> bool {
    own.path_prefix.starts_with(&wider.path_prefix)
        && (wider.hosts.is_empty() || wider.hosts == own.hosts)
        && (wider.models.is_empty() || wider.models == own.models)
        && (wider.route_name.is_none() || wider.route_name == own.route_name)
}

/// Nobody needs a provider that gets no requests, nor makes embeddings.
pub(super) fn unused(ours: &Ours, config: &Config) -> Vec<Problem> {
    let targets = config.routes.iter().flat_map(targets);
    let targets: BTreeSet<usize> = targets.collect();
    let semantic = |name: &str| {
        let routes = at(&ours.value, "/routes").as_array().into_iter().flatten();
        let mut named = routes.map(|route| at(route, "/cache/semantic/provider"));
        named.any(|provider| provider == name)
    };
    let providers = config.providers.iter().enumerate();
    let unused =
        providers.filter(|(place, provider)| !targets.contains(place) && !semantic(&provider.name));
    let told = unused.map(|(place, provider)| {
        let what = format!(
            "no route has {:?} as a target, so that it gets no requests; write it there, or remove \
             it",
            provider.name
        );
        ours.problem(&format!("providers[{place}].name"), what)
    });
    told.collect()
}

/// Two engines have two.
pub(super) fn same_api_base(ours: &Ours, config: &Config) -> Vec<Problem> {
    let mut owners = BTreeMap::new();
    let mut told = Vec::new();
    for (place, provider) in config.providers.iter().enumerate() {
        let Some(base) = &provider.api_base else {
            continue;
        };
        let Some(other) = owners.insert(base, &provider.name) else {
            continue;
        };
        let what = format!(
            "the same as that of {other:?}, so that one engine's health and load are taken for \
             both; write each engine's own"
        );
        told.push(ours.problem(&format!("providers[{place}].api_base"), what));
    }
    told
}

/// In a pool an engine's address is known from the configuration.
pub(super) fn endpoint_elsewhere(ours: &Ours, config: &Config) -> Vec<Problem> {
    let mut told = Vec::new();
    for (place, provider) in config.providers.iter().enumerate() {
        let Some(Endpoint::Address(own)) = provider.endpoint else {
            continue;
        };
        // Where it binds, the sidecar listens.
        let events = provider.kv_events.as_ref().filter(|events| !events.bind);
        let of_events = |endpoint: Option<&EventEndpoint>| match endpoint {
            Some(EventEndpoint::Tcp { host, port }) => Some(format!("{host}:{port}")),
            _ => None,
        };
        let replay = events.and_then(|events| events.replay_endpoint.as_ref());
        let others = [
            ("api_base", asked(provider)),
            (
                "kv_events.endpoint",
                of_events(events.map(|events| &events.endpoint)),
            ),
            ("kv_events.replay_endpoint", of_events(replay)),
        ];
        for (key, other) in others {
            let Some(other) = other else { continue };
            if host_ip(&other).is_some_and(|other| other != own.ip()) {
                let what = format!(
                    "leads to {other}, but the engine's endpoint is {own}, so that another one's \
                     state may be taken for its; write the same host, unless that is another way \
                     to it"
                );
                told.push(ours.problem(&format!("providers[{place}].{key}"), what));
            }
        }
    }
    told
}

/// A target of which nothing is known is never warm.
pub(super) fn partial_signal(ours: &Ours, config: &Config) -> Vec<Problem> {
    let mut told = Vec::new();
    for (place, route) in config.routes.iter().enumerate() {
        let (key, has): (_, fn(&Provider) -> bool) = match route.strategy {
            Strategy::PreciseCacheAware(_) => {
                ("kv_events", |provider| provider.kv_events.is_some())
            }
            Strategy::LmcacheAware { .. } => ("lmcache", |provider| provider.lmcache.is_some()),
            _ => continue,
        };
        let without = targets(route).filter_map(|target| {
            let provider = config.providers.get(target)?;
            (!has(provider)).then_some(&*provider.name)
        });
        let without: Vec<&str> = without.collect();
        if !without.is_empty() {
            let what = format!(
                "goes by {key}, which {} does not have, so that it counts as knowing no prompt; \
                 write {key} for it, or another strategy",
                without.join(", ")
            );
            told.push(ours.problem(&format!("routes[{place}].strategy"), what));
        }
    }
    told
}
