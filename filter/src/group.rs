//! Targets that share what they learn: a route's own, or those of a variant.
//!
//! Invariant: what a group is made of does not change. Where a provider's targets come and go, a new
//! group takes the place of the old one, with the same memory; requests under way keep theirs.

use crate::host::Envoy;
use crate::memories::Learner;
use crate::metrics::{Counter, Counters};
use crate::replicas::Replica;
use crate::route::Route;
use crate::vm::Vm;
use fastrand::Rng;
use rolter_core::balance::{Asks, Balancer, Reason, Request, Strategy, TargetInfo};
use rolter_core::config::{Config, Group as GroupConfig, Provider, Reach, Route as RouteConfig};
use rolter_core::health::State;
use rolter_core::kv::members::{Member, Roster};
use rolter_core::kv::mirror::Mirror;
use rolter_core::memory::Memory;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use rolter_core::wire::NameHash;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

pub(crate) struct Group {
    pub(crate) plan: Rc<Plan>,
    /// What stands for the memory in messages to other workers.
    pub(crate) hash: NameHash,
    pub(crate) memory: Rc<RefCell<Memory>>,
    pub(crate) balancer: RefCell<Balancer>,
    /// By target id, with gaps.
    targets: Vec<Option<Target>>,
    /// Those that may get requests. The others are here to be remembered, should they be back.
    all: TargetSet,
    /// Whether these are for every caller.
    is_open: bool,
    /// The members that it is made of, and the [turnovers](Roster::turnovers) that it knows of.
    members: Vec<Member>,
    turnovers: Cell<u64>,
}

/// What the configuration says of a group.
pub(crate) struct Plan {
    /// The route's name, or `route/variant`.
    name: String,
    pub(crate) percent: u32,
    reach: Reach,
    strategy: Strategy,
    max_nodes: Option<usize>,
    providers: Vec<Provider>,
    /// Whether some provider's targets come and go.
    has_names: bool,
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

impl Plan {
    pub(crate) fn new(group: &GroupConfig, route: &RouteConfig, config: &Config) -> Self {
        let providers = group.targets.iter();
        let providers = providers.filter_map(|&index| config.providers.get(index));
        let providers: Vec<Provider> = providers.cloned().collect();
        Self {
            name: match &group.name {
                Some(variant) => format!("{}/{variant}", route.name),
                None => route.name.clone(),
            },
            percent: group.percent,
            reach: route.reach,
            strategy: route.strategy,
            max_nodes: route.max_nodes,
            has_names: providers
                .iter()
                .any(|provider| provider.dns_name().is_some()),
            providers,
        }
    }

    /// Whether it matters who the caller is.
    pub(crate) fn asks_key(&self) -> bool {
        let is_for_all = |provider: &Provider| provider.allowed_keys.is_empty();
        !self.providers.iter().all(is_for_all)
    }

    /// Whether none of its targets, whichever there are, is for the caller with this key.
    pub(crate) fn forbids(&self, key: Option<&[u8; 32]>) -> bool {
        let mut providers = self.providers.iter();
        !providers.any(|provider| is_open(&provider.allowed_keys, key))
    }

    /// The members of all its providers.
    fn members(&self, roster: &Roster<Envoy>) -> Vec<Member> {
        let providers = self.providers.iter();
        let members = providers.filter_map(|provider| members_of(provider, roster));
        members.flatten().copied().collect()
    }

    /// Its targets as providers of their own, and whether they may get requests. Those
    /// that may come first, so that the others are left out where there are too many.
    fn targets(&self, roster: &Roster<Envoy>) -> Vec<(Cow<'_, Provider>, bool)> {
        let mut targets = Vec::new();
        for provider in &self.providers {
            let Some(members) = members_of(provider, roster) else {
                targets.push((Cow::Borrowed(provider), true));
                continue;
            };
            targets.extend(members.iter().map(|member| {
                let target = provider.at(member.address);
                (Cow::Owned(target), member.present)
            }));
        }
        targets.sort_by_key(|&(_, present)| !present);
        if targets.len() > MAX_TARGETS {
            let (name, count) = (&self.name, targets.len());
            log::warn!("{name} has {count} targets, of which only {MAX_TARGETS} are used");
            targets.truncate(MAX_TARGETS);
        }
        targets
    }
}

/// The members of a provider that has a name for them.
fn members_of<'a>(provider: &Provider, roster: &'a Roster<Envoy>) -> Option<&'a [Member]> {
    let endpoint = provider
        .endpoint
        .as_ref()
        .filter(|_| provider.dns_name().is_some())?;
    Some(roster.members(&provider.name, &endpoint.to_string()))
}

/// Whether something with these keys is for the caller with this one.
fn is_open(allowed_keys: &[[u8; 32]], key: Option<&[u8; 32]>) -> bool {
    allowed_keys.is_empty() || key.is_some_and(|key| allowed_keys.binary_search(key).is_ok())
}

impl Group {
    pub(crate) fn new(plan: Rc<Plan>, vm: &Vm, rng: &mut Rng) -> Self {
        let roster = vm.roster.borrow();
        let (members, turnovers) = (plan.members(&roster), roster.turnovers());
        let providers = plan.targets(&roster);
        drop(roster);
        let replicas: Vec<Rc<Replica>> = providers
            .iter()
            .map(|(provider, _)| vm.replica(&provider.name))
            .collect();
        let lease = vm.memories.get(&plan.name, &replicas, plan.max_nodes);
        if lease.is_behind {
            vm.replay();
        }
        let mut infos = Vec::new();
        let mut targets: Vec<Option<Target>> = Vec::new();
        targets.resize_with(MAX_TARGETS, || None);
        for ((provider, present), learner) in providers.iter().zip(&lease.targets) {
            if let Some(place) = targets.get_mut(learner.id.index()) {
                *place = Some(Target::new(provider, learner, plan.reach));
            }
            if *present {
                infos.push(TargetInfo {
                    id: learner.id,
                    seed: learner.hash.0,
                    weight: provider.weight,
                });
            }
        }
        drop(providers);
        let memory = Rc::clone(&lease.memory);
        Self {
            hash: lease.hash,
            balancer: RefCell::new(Balancer::new(plan.strategy, &infos, memory, rng)),
            memory: lease.memory,
            targets,
            all: infos.iter().map(|info| info.id).collect(),
            is_open: !plan.asks_key(),
            members,
            turnovers: Cell::new(turnovers),
            plan,
        }
    }

    /// Whether its targets are not the present ones any more.
    pub(crate) fn is_outdated(&self, roster: &Roster<Envoy>) -> bool {
        self.plan.has_names
            && self.turnovers.replace(roster.turnovers()) != roster.turnovers()
            && self.members != self.plan.members(roster)
    }

    /// What its strategy takes into account.
    pub(crate) fn asks(&self) -> Asks {
        self.balancer.borrow().asks()
    }

    pub(crate) fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(id.index())?.as_ref()
    }

    /// Those that may get requests.
    pub(crate) fn targets(&self) -> impl Iterator<Item = (TargetId, &Target)> {
        self.all
            .iter()
            .filter_map(|id| Some((id, self.target(id)?)))
    }

    /// The targets that are for the caller with this key.
    pub(crate) fn allowed(&self, key: Option<&[u8; 32]>) -> TargetSet {
        if self.is_open {
            return self.all;
        }
        let allowed = self.targets();
        let allowed = allowed.filter(|(_, target)| is_open(&target.allowed_keys, key));
        allowed.map(|(id, _)| id).collect()
    }

    /// Those of the targets that may be used, as far as is known without asking.
    pub(crate) fn eligible(
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
            Reach::Pool => provider.endpoint.as_ref().map(ToString::to_string),
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
