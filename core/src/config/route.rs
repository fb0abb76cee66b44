//! The routes, and how their requests are split among groups of targets.

use super::fields::Fields;
use super::policy::Policies;
use super::strategy::Choosing;
use super::{Conditions, Precise, Provider, RouteCache, strategy};
use crate::balance::Strategy;
use crate::target::MAX_TARGETS;
use std::collections::{BTreeMap, BTreeSet};

/// What happens to some of the requests.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its name in metrics.
    pub name: String,
    /// Which requests it is for.
    pub conditions: Conditions,
    /// How Envoy gets to its targets.
    pub reach: Reach,
    /// How a target is chosen.
    pub strategy: Strategy,
    /// Distinct bytes of prompts that are remembered for a target, where the strategy remembers
    /// anything.
    pub max_nodes: Option<usize>,
    /// Where to get token ids and where to send ranks, with `precise_cache_aware`.
    pub precise: Option<Precise>,
    /// Its cache of responses, if it has one.
    pub cache: Option<RouteCache>,
    /// What passes over its answers: a place in [`Config::policies`](super::Config::policies).
    pub policy: Option<usize>,
    /// Its own targets, unless its variants take all requests, and then the variants. Their
    /// percents add up to 100, and they have [`MAX_TARGETS`] different targets at most.
    pub groups: Vec<Group>,
}

/// How Envoy gets to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// Each has an Envoy cluster.
    Cluster,
    /// All are endpoints of one Envoy cluster.
    Pool,
}

/// Targets that get a share of a route's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The variant's name; nothing for the route's own targets.
    pub name: Option<String>,
    /// Its share of the route's requests, from 1 to 100.
    pub percent: u32,
    /// Indices into [`Config::providers`](super::Config::providers), at least one, each at most
    /// once.
    pub targets: Vec<usize>,
}

/// The name of the first route that uses a provider, by the provider's place and the way to it.
pub(super) type Uses = BTreeMap<(usize, Reach), String>;

/// The routes, given the places of the providers by name.
pub(super) fn read_all(
    document: &Fields<'_>,
    providers: &BTreeMap<String, usize>,
    policies: &mut Policies,
) -> (Vec<Route>, Uses) {
    let mut names = BTreeMap::new();
    let mut uses = Uses::new();
    let routes = document
        .objects("routes")
        .enumerate()
        .map(|(index, route)| {
            let name = route.unique_name(&mut names, index);
            let conditions = Conditions::read(&route);
            let reach = Reach::read(&route);
            let Choosing {
                strategy,
                max_nodes,
                precise,
            } = strategy::read(&route);
            let groups = read_groups(&route, providers);
            let targets: BTreeSet<usize> = groups
                .iter()
                .flat_map(|group| group.targets.iter().copied())
                .collect();
            if targets.len() > MAX_TARGETS {
                let count = targets.len();
                let what = format!("{count} of them in all; a route has {MAX_TARGETS} at most");
                route.add("targets", what);
            }
            if let Some(reach) = reach {
                for target in targets {
                    uses.entry((target, reach)).or_insert_with(|| name.clone());
                }
            }
            Route {
                name,
                conditions,
                reach: reach.unwrap_or(Reach::Cluster),
                strategy,
                max_nodes,
                precise,
                cache: RouteCache::read(&route, providers),
                policy: policies.of_route(&route),
                groups,
            }
        })
        .collect();
    (routes, uses)
}

/// Reports strategies that need to know what nobody tells them.
pub(super) fn check_signals(
    document: &Fields<'_>,
    routes: &[Route],
    providers: &[Provider],
    has_sidecar: bool,
) {
    for (index, route) in routes.iter().enumerate() {
        let (name, signal): (_, fn(&Provider) -> bool) = match route.strategy {
            Strategy::PreciseCacheAware(_) => {
                ("kv_events", |provider| provider.kv_events.is_some())
            }
            Strategy::LmcacheAware { .. } => ("lmcache", |provider| provider.lmcache.is_some()),
            _ => continue,
        };
        let any = |signal: fn(&Provider) -> bool| {
            let targets = route.groups.iter().flat_map(|group| &group.targets);
            let mut providers = targets.filter_map(|&target| providers.get(target));
            // Where it has none, that was reported.
            providers.clone().next().is_none() || providers.any(signal)
        };
        let path = format!("routes[{index}].strategy");
        if !has_sidecar {
            let what = "knows nothing without the sidecar; write sidecar: { cluster: … }";
            document.add(&path, what);
        }
        if !any(signal) {
            let what = format!("knows nothing of any target; write {name} for the providers");
            document.add(&path, what);
        }
        let tokenizes = route
            .precise
            .is_some_and(|precise| precise.tokenize_ms.is_some());
        if tokenizes && !any(|provider| provider.api_base.is_some()) {
            let path = format!("routes[{index}].precise_cache_aware.tokenize");
            let what = "no target can be asked; write api_base for the providers";
            document.add(&path, what);
        }
    }
}

impl Reach {
    /// Nothing where what is there is neither, so that its targets' ways are not checked in vain.
    fn read(route: &Fields<'_>) -> Option<Self> {
        Some(match route.one_of("reach", &["cluster", "pool"])? {
            "pool" => Self::Pool,
            _ => Self::Cluster,
        })
    }
}

fn read_groups(route: &Fields<'_>, providers: &BTreeMap<String, usize>) -> Vec<Group> {
    let variants = read_variants(route, providers);
    let taken: u32 = variants.iter().map(|variant| variant.percent).sum();
    let left = 100u32.saturating_sub(taken);
    if taken > 100 {
        let what = format!("{taken} percent in all; a route has 100 to give");
        route.add("variants", what);
    }
    if taken == 100 {
        if route.has("targets") {
            route.add("targets", "get nothing beside the variants; remove it");
        }
        return variants;
    }
    if variants.is_empty() || route.has("targets") {
        route.require_some("targets");
    } else if left > 0 {
        let what = format!("missing; the variants leave {left} percent: write a list");
        route.add("targets", what);
    }
    let own = Group {
        name: None,
        percent: left,
        targets: read_targets(route, providers),
    };
    [own].into_iter().chain(variants).collect()
}

fn read_variants(route: &Fields<'_>, providers: &BTreeMap<String, usize>) -> Vec<Group> {
    if !route.has("variants") {
        return Vec::new();
    }
    let mut names = BTreeMap::new();
    route
        .objects("variants")
        .enumerate()
        .map(|(index, variant)| {
            let name = variant.unique_name(&mut names, index);
            if !variant.has("weight") {
                variant.add("weight", "missing; write the percent of requests it gets");
            }
            variant.require_some("targets");
            Group {
                name: Some(name),
                percent: variant.integer("weight", 1..=100, 0),
                targets: read_targets(&variant, providers),
            }
        })
        .collect()
}

fn read_targets(fields: &Fields<'_>, providers: &BTreeMap<String, usize>) -> Vec<usize> {
    let mut targets = Vec::new();
    let mut seen = BTreeSet::new();
    for (path, name) in fields.strings("targets") {
        match providers.get(name) {
            None => {
                let known: Vec<&str> = providers.keys().take(8).map(String::as_str).collect();
                let known = known.join(", ");
                fields.add(&path, format!("no provider {name:?}; there are: {known}"));
            }
            Some(&index) if seen.insert(index) => targets.push(index),
            Some(_) => fields.add(&path, format!("{name:?} is a target here already")),
        }
    }
    targets
}
