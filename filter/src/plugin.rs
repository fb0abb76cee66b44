//! What the requests of one worker share: it finds the route of each, and counts it where it goes.

use crate::host;
use crate::metrics::Histogram;
use crate::route::{Route, Target};
use fastrand::Rng;
use rolter_core::balance::Pick;
use rolter_core::config::Config;
use rolter_core::prompt::Prompt;
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) struct Plugin {
    pub(crate) max_request_bytes: usize,
    pub(crate) debug_headers: bool,
    routes: Vec<Route>,
    /// Whether a route depends on the name of the Envoy route, which is dear to read.
    asks_route_name: bool,
    deciding: Histogram,
    rng: RefCell<Rng>,
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
        let mut rng = Rng::new();
        Self {
            max_request_bytes: config.max_request_bytes,
            debug_headers: config.debug_headers,
            asks_route_name: config
                .routes
                .iter()
                .any(|route| route.conditions.route_name.is_some()),
            routes: config
                .routes
                .iter()
                .map(|route| Route::new(route, config, &mut rng))
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
            if route.conditions.head(host, &path, route_name.as_deref()) {
                routes.push(index);
                if route.conditions.models.is_empty() {
                    break;
                }
            }
        }
        (!routes.is_empty()).then_some(Head { path, routes })
    }

    /// Whether the decision depends on the request's body.
    pub(crate) fn asks_body(&self, head: &Head) -> bool {
        self.asks_prompt(head) || self.asks_model(head)
    }

    /// Whether the decision depends on the model, so that the beginning of a body is of use.
    pub(crate) fn asks_model(&self, head: &Head) -> bool {
        self.candidates(head)
            .any(|(_, route)| !route.conditions.models.is_empty())
    }

    fn asks_prompt(&self, head: &Head) -> bool {
        self.candidates(head).any(|(_, route)| route.reads_prompt())
    }

    /// The route of a request. One whose model is not known must still go somewhere: to a route
    /// for any model if there is one, else to the first.
    fn matching<'a>(&'a self, head: &'a Head, model: Option<&str>) -> Option<(usize, &'a Route)> {
        let Some(model) = model else {
            let any = |(_, route): &(usize, &Route)| route.conditions.models.is_empty();
            return self
                .candidates(head)
                .find(any)
                .or(self.candidates(head).next());
        };
        self.candidates(head)
            .find(|(_, route)| route.conditions.model(model))
    }

    /// Decides where a request goes and counts it there. Nothing where its model is no route's.
    pub(crate) fn route(self: &Rc<Self>, head: &Head, body: &Body) -> Option<Routed> {
        let start = host::now_micros();
        let prompt = match body {
            Body::Whole(body) if self.asks_prompt(head) => Some(Prompt::read(&head.path, body)),
            _ => None,
        };
        let model = match (&prompt, body) {
            (Some(prompt), _) => prompt.model.as_deref().map(Cow::Borrowed),
            (None, Body::Whole(start) | Body::Oversized(start)) => Prompt::model_of_start(start),
            (None, Body::Unread) => None,
        };
        let (index, route) = self.matching(head, model.as_deref())?;
        match (body, &prompt) {
            (Body::Oversized(_), _) => route.oversized.add(1),
            (_, Some(prompt)) if prompt.dialect.is_none() => route.unreadable.add(1),
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

    fn candidates<'a>(&'a self, head: &'a Head) -> impl Iterator<Item = (usize, &'a Route)> {
        head.routes
            .iter()
            .filter_map(|&index| Some((index, self.routes.get(index)?)))
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
