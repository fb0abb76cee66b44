//! A route at work: its groups of targets, each with its balancer, and its numbers.

use crate::cache::Cache;
use crate::host::Envoy;
use crate::known::Known;
use crate::mark::{Mark, ORDER};
use crate::memories::Learner;
use crate::metrics::{Counter, Counters};
use crate::replicas::Replica;
use crate::vm::Vm;
use fastrand::Rng;
use rolter_core::balance::{
    Asks, Balancer, Decision, Fleet, MAX_FOLLOWERS, Reason, Request, Signal, TargetInfo, split,
};
use rolter_core::config::{
    Config, Group as GroupConfig, Precise, Provider, Reach, Route as RouteConfig,
};
use rolter_core::health::{Admission, State};
use rolter_core::kv::mirror::Mirror;
use rolter_core::memory::Memory;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use rolter_core::time::Millis;
use rolter_core::wire::NameHash;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A route of the configuration at work.
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) reach: Reach,
    /// What its balancers take into account, which is the same for all of them.
    pub(crate) asks: Asks,
    /// Whether it matters who the caller is.
    pub(crate) asks_key: bool,
    /// Where it gets token ids and sends ranks, where it has any use for them.
    pub(crate) precise: Option<Precise>,
    pub(crate) cache: Option<Rc<Cache>>,
    /// Whether it has a policy, which the filter above passes over its requests and answers.
    pub(crate) is_guarded: bool,
    has_complained: Cell<bool>,
    unguarded: Counter,
    groups: Vec<Rc<Group>>,
    pub(crate) unreadable: Counter,
    pub(crate) oversized: Counter,
    pub(crate) moved: Counter,
    pub(crate) refused: Counter,
    pub(crate) tokenized: Counter,
    pub(crate) untokenized: Counter,
}

/// Targets that share what they learn: a route's own, or those of a variant.
pub(crate) struct Group {
    percent: u32,
    /// What stands for the memory in messages to other workers.
    pub(crate) hash: NameHash,
    pub(crate) memory: Rc<RefCell<Memory>>,
    balancer: RefCell<Balancer>,
    /// By target id, with gaps.
    targets: Vec<Option<Target>>,
    all: TargetSet,
}

pub(crate) struct Target {
    pub(crate) replica: Rc<Replica>,
    /// While this is there, the target keeps its id.
    pub(crate) learner: Rc<Learner>,
    /// The cluster or the endpoint that leads to it.
    pub(crate) destination: String,
    allowed_keys: Vec<[u8; 32]>,
    /// After how long what its events, and its `LMCache`, say is of no use any more.
    pub(crate) kv_stale_millis: Option<u64>,
    pub(crate) lmcache_stale_millis: Option<u64>,
    /// Decisions for it, by reason.
    decisions: Counters<Reason>,
}

/// What a request may use.
struct Usable<'a> {
    group: &'a Rc<Group>,
    /// Those of its targets that are for the caller.
    targets: TargetSet,
    /// Those of these that are well, as far as is known without asking.
    eligible: TargetSet,
}

/// Where a request goes.
pub(crate) struct Sent {
    pub(crate) group: Rc<Group>,
    pub(crate) decision: Decision,
    /// Whether it finds out for all whether the target is back.
    pub(crate) is_probe: bool,
    /// The share of the prompt's blocks that the target has, and the rank that it was chosen for, as
    /// far as the strategy asks for that.
    pub(crate) share: Option<f64>,
    pub(crate) rank: Option<u16>,
}

/// Why there is no decision.
pub(crate) enum NoTarget {
    /// All targets are for other callers.
    Forbidden,
    /// There are none.
    None,
}

impl Route {
    pub(crate) fn new(route: &RouteConfig, config: &Config, vm: &Vm, rng: &mut Rng) -> Self {
        let groups: Vec<_> = route
            .groups
            .iter()
            .map(|group| Rc::new(Group::new(group, route, config, vm, rng)))
            .collect();
        let labels = [("route", route.name.as_str())];
        let counter = |name| Counter::define(name, &labels);
        let for_all = |target: &Target| target.allowed_keys.is_empty();
        let asks_key = groups
            .iter()
            .any(|group| group.targets().any(|(_, target)| !for_all(target)));
        Self {
            name: route.name.clone(),
            reach: route.reach,
            asks: groups
                .first()
                .map_or(Asks::NOTHING, |group| group.balancer.borrow().asks()),
            asks_key: asks_key || route.cache.is_some(),
            precise: route.precise,
            cache: route
                .cache
                .as_ref()
                .map(|cache| Rc::new(Cache::new(cache, &route.name))),
            is_guarded: route.policy.is_some(),
            has_complained: Cell::new(false),
            unguarded: counter("rolter_unguarded_requests"),
            tokenized: counter("rolter_tokenized_requests"),
            untokenized: counter("rolter_untokenized_requests"),
            unreadable: counter("rolter_unreadable_bodies"),
            oversized: counter("rolter_oversized_bodies"),
            moved: counter("rolter_moved_requests"),
            refused: counter("rolter_refused_requests"),
            groups,
        }
    }

    /// Decides where a request goes, as loads and health are at this moment.
    pub(crate) fn decide(
        &self,
        vm: &Vm,
        request: &Request<'_>,
        tokens: Option<&[u8]>,
        key: Option<&[u8; 32]>,
        rng: &mut Rng,
    ) -> Result<Sent, NoTarget> {
        let engines = &*vm.engines.borrow();
        let Usable {
            group,
            targets,
            eligible,
        } = self.usable(engines, request, key, rng)?;
        let mut load = [0; MAX_TARGETS];
        let fleet = Fleet {
            targets,
            eligible,
            load: None,
            scores: None,
        };
        for id in fleet.candidates().iter() {
            if let (Some(load), Some(target)) = (load.get_mut(id.index()), group.target(id)) {
                // The engine knows of requests that came another way, and not yet of the last ones.
                let reported = engines.load(target.learner.hash, request.now);
                *load = target
                    .replica
                    .in_flight
                    .total(&Envoy)
                    .max(reported.unwrap_or(0));
            }
        }
        let candidates = (&**group, fleet.candidates());
        let known = self.asks.scores.map(|signal| match signal {
            Signal::Blocks(weights) => {
                Known::blocks(engines, candidates, (request, tokens), &weights, rng)
            }
            Signal::Occupancy => Known::room(engines, candidates, request.now),
        });
        let fleet = Fleet {
            load: Some(&load),
            scores: known.as_ref().map(Known::scores),
            ..fleet
        };
        let followers = match self.reach {
            Reach::Cluster => 0,
            Reach::Pool => MAX_FOLLOWERS,
        };
        let mut admission = Admission::Granted;
        let admit = |target| {
            if let Some(target) = group.target(target) {
                let health = &target.replica.health;
                admission = health.admit(&Envoy, request.now, &vm.changes);
            }
            admission != Admission::Refused
        };
        let mut balancer = group.balancer.borrow_mut();
        let decision = balancer
            .decide(&fleet, request, followers, rng, admit)
            .ok_or(NoTarget::None)?;
        let of_target = known.as_ref().and_then(|known| known.of(decision.target));
        let (share, rank) = of_target.unzip();
        let sends_rank = self.precise.is_some_and(|precise| precise.rank_header)
            && decision.reason == Reason::Affinity
            // A retry may lead to any of these, and must find the rank there.
            && [decision.target].iter().chain(decision.followers.as_slice()).all(|&id| {
                let target = group.target(id);
                let ranks = target.map_or(0, |target| engines.ranks(target.learner.hash));
                ranks > 1 && rank.is_some_and(|rank| usize::from(rank) < ranks)
            });
        Ok(Sent {
            group: Rc::clone(group),
            decision,
            is_probe: admission == Admission::Probe,
            share: share.filter(|_| self.precise.is_some()),
            rank: rank.filter(|_| sends_rank),
        })
    }

    /// The group for a request, and what of it may be used. A group of which nothing may be used
    /// gives way to another.
    fn usable(
        &self,
        engines: &Mirror<Envoy>,
        request: &Request<'_>,
        key: Option<&[u8; 32]>,
        rng: &mut Rng,
    ) -> Result<Usable<'_>, NoTarget> {
        let first = match self.groups.as_slice() {
            [_] => 0,
            groups => {
                let percents = groups.iter().map(|group| group.percent);
                let NameHash(seed) = NameHash::of(&self.name);
                split(percents, request.session, seed, rng)
            }
        };
        let groups = self.groups.iter().cycle().skip(first);
        let mut fallback = Err(NoTarget::None);
        for group in groups.take(self.groups.len()) {
            let targets = group.allowed(key);
            let usable = Usable {
                group,
                targets,
                eligible: group.eligible(engines, targets, request),
            };
            if !usable.eligible.is_empty() {
                return Ok(usable);
            }
            match fallback {
                Err(_) if !targets.is_empty() => fallback = Ok(usable),
                Err(NoTarget::None) => fallback = Err(NoTarget::Forbidden),
                _ => {}
            }
        }
        fallback
    }

    /// Whether token ids could make a difference: some target of the caller's tells its blocks.
    pub(crate) fn asks_tokens(
        &self,
        engines: &Mirror<Envoy>,
        key: Option<&[u8; 32]>,
        now: Millis,
    ) -> bool {
        self.groups.iter().any(|group| {
            let allowed = group.allowed(key);
            group.targets().any(|(id, target)| {
                let stale = target.kv_stale_millis;
                let knows = |stale| engines.knows(target.learner.hash, now, stale);
                allowed.contains(id) && stale.is_some_and(knows)
            })
        })
    }

    /// Whether none of its targets is for the caller.
    pub(crate) fn forbids(&self, key: Option<&[u8; 32]>) -> bool {
        self.groups
            .iter()
            .all(|group| group.allowed(key).is_empty())
    }

    /// Whether the policy has been over a request as far as the route has one.
    pub(crate) fn is_open_to(&self, mark: &Mark) -> bool {
        !self.is_guarded || mark.is_of(&self.name)
    }

    /// Counts a request that the policy has not seen, and tells operators, once.
    pub(crate) fn complain(&self) {
        self.unguarded.add(1);
        if !self.has_complained.replace(true) {
            let route = &self.name;
            log::error!(
                "route {route} has a policy that no filter passes over its requests, so they are \
                 refused; {ORDER}"
            );
        }
    }

    /// Whether a decision depends on the session.
    pub(crate) fn asks_session(&self) -> bool {
        self.asks.session || self.groups.len() > 1
    }
}

impl Group {
    fn new(
        group: &GroupConfig,
        route: &RouteConfig,
        config: &Config,
        vm: &Vm,
        rng: &mut Rng,
    ) -> Self {
        let name = match &group.name {
            Some(variant) => format!("{}/{variant}", route.name),
            None => route.name.clone(),
        };
        let providers = group.targets.iter();
        let providers = providers.filter_map(|&index| config.providers.get(index));
        let providers: Vec<&Provider> = providers.collect();
        let replicas: Vec<Rc<Replica>> = providers
            .iter()
            .map(|provider| vm.replica(&provider.name))
            .collect();
        let lease = vm.memories.get(&name, &replicas, route.max_nodes);
        if lease.is_behind {
            vm.replay();
        }
        let learners = providers.iter().zip(&lease.targets);
        let infos: Vec<TargetInfo> = learners
            .clone()
            .map(|(provider, learner)| TargetInfo {
                id: learner.id,
                seed: learner.hash.0,
                weight: provider.weight,
            })
            .collect();
        let mut targets: Vec<Option<Target>> = Vec::new();
        targets.resize_with(MAX_TARGETS, || None);
        for (provider, learner) in learners {
            if let Some(place) = targets.get_mut(learner.id.index()) {
                *place = Some(Target::new(provider, learner, route.reach));
            }
        }
        let memory = Rc::clone(&lease.memory);
        Self {
            percent: group.percent,
            hash: lease.hash,
            balancer: RefCell::new(Balancer::new(route.strategy, &infos, memory, rng)),
            memory: lease.memory,
            targets,
            all: infos.iter().map(|info| info.id).collect(),
        }
    }

    pub(crate) fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(id.index())?.as_ref()
    }

    pub(crate) fn targets(&self) -> impl Iterator<Item = (TargetId, &Target)> {
        self.all
            .iter()
            .filter_map(|id| Some((id, self.target(id)?)))
    }

    /// The targets that are for the caller with this key.
    fn allowed(&self, key: Option<&[u8; 32]>) -> TargetSet {
        let allowed = self.targets().filter(|(_, target)| {
            let keys = &target.allowed_keys;
            keys.is_empty() || key.is_some_and(|key| keys.binary_search(key).is_ok())
        });
        allowed.map(|(id, _)| id).collect()
    }

    /// Those of the targets that may be used, as far as is known without asking.
    fn eligible(
        &self,
        engines: &Mirror<Envoy>,
        allowed: TargetSet,
        request: &Request<'_>,
    ) -> TargetSet {
        let eligible = allowed.iter().filter(|&id| {
            self.target(id).is_some_and(|target| {
                let state = target.replica.health.state(request.now);
                matches!(state, State::Ready | State::HalfOpen)
                    && !engines.is_ill(target.learner.hash, request.now)
            })
        });
        eligible.collect()
    }
}

impl Target {
    fn new(provider: &Provider, learner: &Rc<Learner>, reach: Reach) -> Self {
        let destination = match reach {
            Reach::Cluster => provider.cluster.clone(),
            Reach::Pool => provider.endpoint.map(|endpoint| endpoint.to_string()),
        };
        Self {
            replica: Rc::clone(&learner.replica),
            learner: Rc::clone(learner),
            // The configuration has made sure that there is one.
            destination: destination.unwrap_or_default(),
            allowed_keys: provider.allowed_keys.clone(),
            kv_stale_millis: provider
                .kv_events
                .as_ref()
                .map(|events| events.stale_secs * 1_000),
            lmcache_stale_millis: provider
                .lmcache
                .as_ref()
                .map(|lmcache| lmcache.stale_secs * 1_000),
            decisions: Counters::default(),
        }
    }

    /// Counts a decision for this target.
    pub(crate) fn count(&self, reason: Reason, route: &Route) {
        self.decisions.add_one(reason, || {
            let labels = [
                ("route", route.name.as_str()),
                ("target", &self.replica.name),
                ("reason", reason.as_str()),
            ];
            Counter::define("rolter_decisions", &labels)
        });
    }
}
