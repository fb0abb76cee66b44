//! What the requests of one worker share: the routes, their balancers, and what is counted.

use crate::host;
use crate::metrics::{Counter, Gauge, Histogram, Share};
use fastrand::Rng;
use rolter_core::affinity::{Limits, Tree};
use rolter_core::balance::{Balancer, Fleet, Pick, Reason, RoundRobin};
use rolter_core::config::{Config, Match, Route as RouteConfig, Strategy};
use rolter_core::prompt::Prompt;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What the affinity trees of one worker may take together, in bytes: half of what a VM may use.
const TREES_MEMORY: usize = 512 << 20;

pub(crate) struct Plugin {
    pub(crate) max_request_bytes: usize,
    pub(crate) debug_headers: bool,
    routes: Vec<Route>,
    /// Whether a route depends on the name of the Envoy route, which is dear to read.
    asks_route_name: bool,
    deciding: Histogram,
    rng: RefCell<Rng>,
}

/// A route of the configuration at work.
struct Route {
    name: String,
    matches: Match,
    targets: Vec<Target>,
    balancer: RefCell<Balancer>,
    unreadable: Counter,
    oversized: Counter,
    tree: Option<TreeShares>,
}

struct Target {
    name: String,
    cluster: String,
    in_flight: Gauge,
    /// By reason, defined when they are first needed.
    decisions: [Cell<Option<Counter>>; Reason::ALL.len()],
}

/// This worker's part in what the trees of a route hold.
struct TreeShares {
    nodes: Share,
    prompts: Share,
    text: Share,
    memory: Share,
    evictions: Share,
}

/// A request as it is known from its headers.
pub(crate) struct Head {
    path: Vec<u8>,
    /// The routes that it may belong to, in order; which one it is may depend on the model.
    routes: Vec<usize>,
}

/// The body of a request, as far as it is known.
pub(crate) enum Body {
    /// There is none, or no route asks for it.
    Unread,
    /// All of it.
    Whole(Vec<u8>),
    /// It is over the limit; this is its beginning.
    Oversized(Vec<u8>),
}

/// Where a request goes. While this lives, the request counts as in flight there.
pub(crate) struct Routed {
    plugin: Rc<Plugin>,
    route: usize,
    pick: Pick,
}

impl Plugin {
    pub(crate) fn new(config: &Config) -> Self {
        let trees = config
            .routes
            .iter()
            .filter(|route| matches!(route.strategy, Strategy::CacheAware { .. }))
            .count();
        let max_memory = TREES_MEMORY / trees.max(1);
        let mut rng = Rng::new();
        Self {
            max_request_bytes: config.max_request_bytes,
            debug_headers: config.debug_headers,
            asks_route_name: config
                .routes
                .iter()
                .any(|route| route.matches.route_name.is_some()),
            routes: config
                .routes
                .iter()
                .map(|route| Route::new(route, config, max_memory, &mut rng))
                .collect(),
            deciding: Histogram::define("rolter_decision_microseconds", &[]),
            rng: RefCell::new(rng),
        }
    }

    /// What a request may match. Nothing where no route is for it.
    pub(crate) fn head(&self, host: &[u8], path: Vec<u8>) -> Option<Head> {
        let route_name = self.asks_route_name.then(host::route_name).flatten();
        let mut routes = Vec::new();
        for (index, route) in self.routes.iter().enumerate() {
            if route.matches.head(host, &path, route_name.as_deref()) {
                routes.push(index);
                if route.matches.models.is_empty() {
                    break;
                }
            }
        }
        (!routes.is_empty()).then_some(Head { path, routes })
    }

    /// Whether the decision depends on the request's body.
    pub(crate) fn asks_body(&self, head: &Head) -> bool {
        self.candidates(head).any(|(_, route)| {
            !route.matches.models.is_empty() || route.balancer.borrow().reads_prompt()
        })
    }

    /// Whether the decision depends on the model, so that the beginning of a body is of use.
    pub(crate) fn asks_model(&self, head: &Head) -> bool {
        self.candidates(head)
            .any(|(_, route)| !route.matches.models.is_empty())
    }

    /// Decides where a request goes and counts it there. Nothing where its model is no route's.
    pub(crate) fn route(self: &Rc<Self>, head: &Head, body: &Body) -> Option<Routed> {
        let start = host::now_micros();
        let prompt = match body {
            Body::Whole(body) => Some(Prompt::read(&head.path, body)),
            Body::Unread | Body::Oversized(_) => None,
        };
        let model = match (&prompt, body) {
            (Some(prompt), _) => prompt.model.as_deref().map(Cow::Borrowed),
            (None, Body::Oversized(start)) => Prompt::model_of_start(start),
            (None, _) => None,
        };
        let (index, route) = self
            .candidates(head)
            .find(|(_, route)| route.matches.model(model.as_deref()))?;
        match (body, &prompt) {
            (Body::Oversized(_), _) => route.oversized.increment(),
            (_, Some(prompt)) if prompt.dialect.is_none() => route.unreadable.increment(),
            _ => {}
        }
        let pick = route.pick(prompt.as_ref(), &mut self.rng.borrow_mut())?;
        let target = route.target(pick.target)?;
        target.in_flight.add(1);
        target.count(pick.reason, route);
        let routed = Routed {
            plugin: Rc::clone(self),
            route: index,
            pick,
        };
        let elapsed = host::now_micros().saturating_sub(start);
        self.deciding.record(elapsed);
        Some(routed)
    }

    /// Brings Envoy's stats up to date with what the trees hold.
    pub(crate) fn report(&self) {
        for route in &self.routes {
            if let (Some(shares), Balancer::CacheAware { tree, .. }) =
                (&route.tree, &*route.balancer.borrow())
            {
                let usage = tree.usage();
                shares.nodes.state(usage.nodes as u64);
                shares.prompts.state(usage.prompts as u64);
                shares.text.state(usage.text as u64);
                shares.memory.state(usage.memory as u64);
                shares.evictions.state(usage.evictions);
            }
        }
    }

    fn candidates<'a>(&'a self, head: &'a Head) -> impl Iterator<Item = (usize, &'a Route)> {
        head.routes
            .iter()
            .filter_map(|&index| Some((index, self.routes.get(index)?)))
    }
}

impl Route {
    fn new(route: &RouteConfig, config: &Config, max_memory: usize, rng: &mut Rng) -> Self {
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
        let providers = route
            .targets
            .iter()
            .filter_map(|&index| config.providers.get(index));
        Self {
            name: route.name.clone(),
            matches: route.matches.clone(),
            targets: providers
                .map(|provider| Target {
                    name: provider.name.clone(),
                    cluster: provider.cluster.clone(),
                    in_flight: Gauge::define("rolter_in_flight", &[("target", &provider.name)]),
                    decisions: Default::default(),
                })
                .collect(),
            unreadable: Counter::define("rolter_unreadable_bodies", &labels),
            oversized: Counter::define("rolter_oversized_bodies", &labels),
            tree: balancer.reads_prompt().then(|| TreeShares {
                nodes: Share::of_gauge("rolter_tree_nodes", &labels),
                prompts: Share::of_gauge("rolter_tree_prompts", &labels),
                text: Share::of_gauge("rolter_tree_text_bytes", &labels),
                memory: Share::of_gauge("rolter_tree_memory_bytes", &labels),
                evictions: Share::of_counter("rolter_tree_evictions", &labels),
            }),
            balancer: RefCell::new(balancer),
        }
    }

    fn pick(&self, prompt: Option<&Prompt<'_>>, rng: &mut Rng) -> Option<Pick> {
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

    fn target(&self, id: TargetId) -> Option<&Target> {
        self.targets.get(id.index())
    }
}

impl Target {
    fn count(&self, reason: Reason, route: &Route) {
        let Some(place) = self.decisions.get(reason as usize) else {
            return;
        };
        let counter = place.get().unwrap_or_else(|| {
            let labels = [
                ("route", route.name.as_str()),
                ("target", &self.name),
                ("reason", reason.as_str()),
            ];
            Counter::define("rolter_decisions", &labels)
        });
        place.set(Some(counter));
        counter.increment();
    }
}

impl Routed {
    /// The Envoy cluster that leads to the target.
    pub(crate) fn cluster(&self) -> &str {
        self.target().map_or("", |target| &target.cluster)
    }

    /// The target's name and the reason for it, where clients may know them.
    pub(crate) fn receipt(&self) -> Option<(&str, &'static str)> {
        let target = self.target().filter(|_| self.plugin.debug_headers)?;
        Some((&target.name, self.pick.reason.as_str()))
    }

    fn target(&self) -> Option<&Target> {
        self.plugin.routes.get(self.route)?.target(self.pick.target)
    }
}

impl Drop for Routed {
    fn drop(&mut self) {
        if let Some(target) = self.target() {
            target.in_flight.add(-1);
        }
    }
}
