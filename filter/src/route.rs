//! A route at work: its groups of targets, each with its balancer, and its numbers.

use crate::access_log::AccessLog;
use crate::cache::Cache;
use crate::group::{Group, Plan};
use crate::host::Envoy;
use crate::known::Known;
use crate::mark::{Mark, ORDER};
use crate::metrics::{Counter, Gauge};
use crate::vm::Vm;
use fastrand::Rng;
use rolter_core::balance::{Asks, Decision, Fleet, MAX_FOLLOWERS, Reason, Request, Signal, split};
use rolter_core::config::{Config, Precise, Provider, Reach, Route as RouteConfig};
use rolter_core::health::Admission;
use rolter_core::kv::mirror::Mirror;
use rolter_core::target::{MAX_TARGETS, TargetSet};
use rolter_core::time::Millis;
use rolter_core::wire::NameHash;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// A route of the configuration at work.
pub(crate) struct Route {
    pub(crate) name: String,
    pub(crate) reach: Reach,
    pub(crate) log: AccessLog,
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
    /// Each gives way to another when its targets are others.
    groups: RefCell<Vec<Rc<Group>>>,
    /// How many targets may get requests.
    targets: Gauge,
    /// Whether some of what Envoy could choose for its requests is not for everybody.
    pub(crate) is_restricted: bool,
    pub(crate) untargeted: Counter,
    pub(crate) unreadable: Counter,
    pub(crate) oversized: Counter,
    pub(crate) moved: Counter,
    pub(crate) refused: Counter,
    pub(crate) tokenized: Counter,
    pub(crate) untokenized: Counter,
}

/// What a request may use.
struct Usable {
    group: Rc<Group>,
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
    /// There are none, as far as is known.
    None,
}

impl Route {
    pub(crate) fn new(route: &RouteConfig, config: &Config, vm: &Vm, rng: &mut Rng) -> Self {
        let plans = route.groups.iter();
        let plans = plans.map(|group| Rc::new(Plan::new(group, route, config)));
        let groups: Vec<_> = plans
            .map(|plan| Rc::new(Group::new(plan, vm, rng)))
            .collect();
        let is_restricted = groups.iter().any(|group| group.plan.asks_key());
        // A pool may have the engines of other routes as well.
        let has_keys = |of: &Provider| of.endpoint.is_some() && !of.allowed_keys.is_empty();
        let pool_is_restricted =
            route.reach == Reach::Pool && config.providers.iter().any(has_keys);
        let labels = [("route", route.name.as_str())];
        let counter = |name| Counter::define(name, &labels);
        let this = Self {
            name: route.name.clone(),
            reach: route.reach,
            log: AccessLog::of(config),
            asks: groups.first().map_or(Asks::NOTHING, |group| group.asks()),
            asks_key: is_restricted || route.cache.is_some(),
            is_restricted: is_restricted || pool_is_restricted,
            precise: route.precise,
            cache: route
                .cache
                .as_ref()
                .map(|cache| Rc::new(Cache::new(cache, &route.name, AccessLog::of(config)))),
            is_guarded: route.policy.is_some(),
            has_complained: Cell::new(false),
            unguarded: counter("rolter_unguarded_requests"),
            tokenized: counter("rolter_tokenized_requests"),
            untokenized: counter("rolter_untokenized_requests"),
            unreadable: counter("rolter_unreadable_bodies"),
            oversized: counter("rolter_oversized_bodies"),
            moved: counter("rolter_moved_requests"),
            refused: counter("rolter_refused_requests"),
            untargeted: counter("rolter_untargeted_requests"),
            targets: Gauge::define("rolter_targets", &labels),
            groups: RefCell::new(groups),
        };
        this.count_targets();
        this
    }

    /// Goes by the targets that its providers have now.
    pub(crate) fn renew(&self, vm: &Vm, rng: &mut Rng) {
        let mut is_other = false;
        for group in self.groups.borrow_mut().iter_mut() {
            if group.is_outdated(&vm.roster.borrow()) {
                // The old one is there until the new one has what both know.
                *group = Rc::new(Group::new(Rc::clone(&group.plan), vm, rng));
                is_other = true;
            }
        }
        if is_other {
            self.count_targets();
        }
    }

    fn count_targets(&self) {
        let groups = self.groups.borrow();
        let targets = groups.iter().map(|group| group.targets().count());
        self.targets.put(targets.sum::<usize>() as u64);
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
        let mut pending = [0; MAX_TARGETS];
        let fleet = Fleet {
            targets,
            eligible,
            load: None,
            pending: None,
            scores: None,
        };
        let count = fleet.candidates().len();
        for id in fleet.candidates().iter() {
            if let (Some(load), Some(target)) = (load.get_mut(id.index()), group.target(id)) {
                // The engine knows of requests that came another way, and not yet of the last ones.
                let reported = engines.load(target.learner.hash, request.now);
                let in_flight = target.replica.in_flight.load(&Envoy, request.now, count);
                *load = in_flight.max(reported.unwrap_or(0));
                if let Some(pending) = pending.get_mut(id.index()).filter(|_| self.asks.pending) {
                    *pending = target.replica.pending.load(&Envoy, request.now, count);
                }
            }
        }
        let candidates = (&*group, fleet.candidates());
        let known = self.asks.scores.map(|signal| match signal {
            Signal::Blocks(weights) => {
                Known::blocks(engines, candidates, (request, tokens), &weights, rng)
            }
            Signal::Occupancy => Known::room(engines, candidates, request.now),
        });
        let fleet = Fleet {
            load: Some(&load),
            pending: self.asks.pending.then_some(&pending),
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
        drop(balancer);
        let of_target = known.as_ref().and_then(|known| known.of(decision.target));
        let (share, rank) = of_target.unzip();
        let sends_rank = self.precise.is_some_and(|precise| precise.rank_header)
            && decision.reason == Reason::Affinity
            // It may have been chosen for what it was sent a moment ago, to whatever rank.
            && share.is_some_and(|share| share > 0.0)
            // A retry may lead to any of these, and must find the rank there.
            && [decision.target].iter().chain(decision.followers.as_slice()).all(|&id| {
                let target = group.target(id);
                let ranks = target.map_or(0, |target| engines.ranks(target.learner.hash));
                ranks > 1 && rank.is_some_and(|rank| usize::from(rank) < ranks)
            });
        Ok(Sent {
            group,
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
    ) -> Result<Usable, NoTarget> {
        let groups = self.groups.borrow();
        let first = match groups.as_slice() {
            [_] => 0,
            groups => {
                let percents = groups.iter().map(|group| group.plan.percent);
                let NameHash(seed) = NameHash::of(&self.name);
                split(percents, request.session, seed, rng)
            }
        };
        let in_turn = groups.iter().cycle().skip(first).take(groups.len());
        let mut fallback = Err(NoTarget::Forbidden);
        for group in in_turn.filter(|group| !group.plan.forbids(key)) {
            let targets = group.allowed(key);
            let usable = Usable {
                group: Rc::clone(group),
                targets,
                eligible: group.eligible(engines, targets, request),
            };
            if !usable.eligible.is_empty() {
                return Ok(usable);
            }
            match fallback {
                Err(_) if !targets.is_empty() => fallback = Ok(usable),
                Err(_) => fallback = Err(NoTarget::None),
                Ok(_) => {}
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
        self.groups.borrow().iter().any(|group| {
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
        let groups = self.groups.borrow();
        groups.iter().all(|group| group.plan.forbids(key))
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
        self.asks.session || self.groups.borrow().len() > 1
    }
}
