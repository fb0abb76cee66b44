//! A route at work: its targets, its balancer with what that has learnt, and its numbers.

use crate::metrics::{Counter, Gauge};
use crate::trees;
use fastrand::Rng;
use rolter_core::balance::{Balancer, Fleet, Pick, Reason, RoundRobin};
use rolter_core::config::{Conditions, Config, Route as RouteConfig, Strategy};
use rolter_core::prompt::Prompt;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use std::cell::RefCell;

/// A route of the configuration at work.
pub(crate) struct Route {
    name: String,
    pub(crate) conditions: Conditions,
    targets: Vec<Target>,
    balancer: RefCell<Balancer>,
    pub(crate) unreadable: Counter,
    pub(crate) oversized: Counter,
}

pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) cluster: String,
    pub(crate) in_flight: Gauge,
    /// Decisions for it, by reason, as far as there were any.
    decisions: RefCell<Vec<(Reason, Counter)>>,
}

impl Route {
    pub(crate) fn new(route: &RouteConfig, config: &Config, rng: &mut Rng) -> Self {
        let providers = route
            .targets
            .iter()
            .filter_map(|&index| config.providers.get(index));
        let names: Vec<&str> = providers.clone().map(|provider| &*provider.name).collect();
        let balancer = match route.strategy {
            Strategy::CacheAware { margins, max_nodes } => Balancer::CacheAware {
                margins,
                tree: trees::tree(&route.name, &names, max_nodes),
            },
            Strategy::LeastLoad => Balancer::LeastLoad,
            Strategy::RoundRobin => Balancer::RoundRobin(RoundRobin::new(names.len(), rng)),
        };
        let labels = [("route", route.name.as_str())];
        Self {
            name: route.name.clone(),
            conditions: route.conditions.clone(),
            targets: providers
                .map(|provider| Target {
                    name: provider.name.clone(),
                    cluster: provider.cluster.clone(),
                    in_flight: Gauge::define("rolter_in_flight", &[("target", &provider.name)]),
                    decisions: RefCell::default(),
                })
                .collect(),
            unreadable: Counter::define("rolter_unreadable_bodies", &labels),
            oversized: Counter::define("rolter_oversized_bodies", &labels),
            balancer: RefCell::new(balancer),
        }
    }

    /// Picks a target, as the loads are at this moment, and teaches the tree.
    pub(crate) fn pick(&self, prompt: Option<&Prompt<'_>>, rng: &mut Rng) -> Option<Pick> {
        let mut load = [0; MAX_TARGETS];
        let mut known = true;
        for (load, target) in load.iter_mut().zip(&self.targets) {
            let in_flight = target.in_flight.read();
            known &= in_flight.is_some();
            *load = in_flight.map_or(0, |count| count.try_into().unwrap_or(u32::MAX));
        }
        let fleet = Fleet {
            targets: self.targets.len(),
            eligible: TargetSet::first(self.targets.len()),
            load: known.then_some(&load),
        };
        self.balancer.borrow_mut().pick(&fleet, prompt, rng)
    }

    /// Whether a pick takes the prompt into account.
    pub(crate) fn reads_prompt(&self) -> bool {
        self.balancer.borrow().reads_prompt()
    }

    pub(crate) fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(id.index())
    }
}

impl Target {
    /// Counts a decision for this target.
    pub(crate) fn count(&self, reason: Reason, route: &Route) {
        let mut decisions = self.decisions.borrow_mut();
        let known = decisions.iter().find(|(known, _)| *known == reason);
        let counter = match known {
            Some((_, counter)) => *counter,
            None => {
                let labels = [
                    ("route", route.name.as_str()),
                    ("target", &self.name),
                    ("reason", reason.as_str()),
                ];
                let counter = Counter::define("rolter_decisions", &labels);
                decisions.push((reason, counter));
                counter
            }
        };
        counter.add(1);
    }
}
