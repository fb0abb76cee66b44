//! A route at work: its targets, its balancer with what that has learnt, and its numbers.

use crate::metrics::{Counter, Gauge, Share};
use fastrand::Rng;
use rolter_core::affinity::{Limits, Tree};
use rolter_core::balance::{Balancer, Fleet, Pick, Reason, RoundRobin};
use rolter_core::config::{Conditions, Config, Route as RouteConfig, Strategy};
use rolter_core::prompt::Prompt;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use std::cell::{Cell, RefCell};

/// A route of the configuration at work.
pub(crate) struct Route {
    name: String,
    pub(crate) conditions: Conditions,
    targets: Vec<Target>,
    balancer: RefCell<Balancer>,
    pub(crate) unreadable: Counter,
    pub(crate) oversized: Counter,
    tree: Option<TreeShares>,
}

pub(crate) struct Target {
    pub(crate) name: String,
    pub(crate) cluster: String,
    pub(crate) in_flight: Gauge,
    /// Distinct bytes of prompts that it is remembered to have.
    held: Option<Share>,
    /// Decisions for it, by reason, as far as there were any.
    decisions: RefCell<Vec<(Reason, Counter)>>,
}

/// This worker's part in what the trees of a route hold.
struct TreeShares {
    nodes: Share,
    prompts: Share,
    text: Share,
    memory: Share,
    evictions: Counter,
    /// How many of the evictions have been counted.
    evicted: Cell<u64>,
}

impl Route {
    pub(crate) fn new(
        route: &RouteConfig,
        config: &Config,
        max_memory: usize,
        rng: &mut Rng,
    ) -> Self {
        let labels = [("route", route.name.as_str())];
        let balancer = match route.strategy {
            Strategy::CacheAware { margins, max_nodes } => {
                let limits = Limits {
                    max_nodes,
                    max_memory,
                };
                Balancer::CacheAware {
                    margins,
                    tree: Tree::new(route.targets.len(), limits),
                }
            }
            Strategy::LeastLoad => Balancer::LeastLoad,
            Strategy::RoundRobin => Balancer::RoundRobin(RoundRobin::new(route.targets.len(), rng)),
        };
        let remembers = balancer.reads_prompt();
        let providers = route
            .targets
            .iter()
            .filter_map(|&index| config.providers.get(index));
        Self {
            name: route.name.clone(),
            conditions: route.conditions.clone(),
            targets: providers
                .map(|provider| Target {
                    name: provider.name.clone(),
                    cluster: provider.cluster.clone(),
                    in_flight: Gauge::define("rolter_in_flight", &[("target", &provider.name)]),
                    held: remembers.then(|| {
                        Share::define(
                            "rolter_tree_held_bytes",
                            &[labels[0], ("target", &provider.name)],
                        )
                    }),
                    decisions: RefCell::default(),
                })
                .collect(),
            unreadable: Counter::define("rolter_unreadable_bodies", &labels),
            oversized: Counter::define("rolter_oversized_bodies", &labels),
            tree: remembers.then(|| TreeShares {
                nodes: Share::define("rolter_tree_nodes", &labels),
                prompts: Share::define("rolter_tree_prompts", &labels),
                text: Share::define("rolter_tree_text_bytes", &labels),
                memory: Share::define("rolter_tree_memory_bytes", &labels),
                evictions: Counter::define("rolter_tree_evictions", &labels),
                evicted: Cell::new(0),
            }),
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

    /// Brings Envoy's stats up to date with what the tree holds.
    pub(crate) fn report(&self) {
        let balancer = self.balancer.borrow();
        let (Some(shares), Balancer::CacheAware { tree, .. }) = (&self.tree, &*balancer) else {
            return;
        };
        let usage = tree.usage();
        shares.nodes.set(usage.nodes);
        shares.prompts.set(usage.prompts);
        shares.text.set(usage.text);
        shares.memory.set(usage.memory);
        let counted = shares.evicted.replace(usage.evictions);
        shares.evictions.add(usage.evictions - counted);
        for (id, target) in (0..).map(TargetId).zip(&self.targets) {
            if let Some(held) = &target.held {
                held.set(tree.held(id));
            }
        }
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
