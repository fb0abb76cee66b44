//! Which route of the configuration a request is for: its headers tell, and its model where routes
//! differ by that.
//!
//! The filter of the policy and the one that routes must agree on it, so both ask here.

use crate::headers::RequestHeaders;
use crate::host;
use rolter_core::config::{Conditions, Config};

pub(crate) struct Matcher {
    routes: Vec<Conditions>,
    /// Whether a route depends on the name of the Envoy route, which is dear to read.
    asks_route_name: bool,
}

impl Matcher {
    pub(crate) fn new(config: &Config) -> Self {
        let routes = config.routes.iter().map(|route| route.conditions.clone());
        let routes: Vec<_> = routes.collect();
        Self {
            asks_route_name: routes.iter().any(|route| route.route_name.is_some()),
            routes,
        }
    }

    /// The routes that a request may be for, by their places, in order; which one it is may depend on
    /// the model.
    pub(crate) fn candidates(&self, headers: &RequestHeaders) -> Vec<usize> {
        let [authority, path] =
            [":authority", ":path"].map(|name| headers.get(name).unwrap_or_default());
        let route_name = self.asks_route_name.then(host::route_name).flatten();
        let mut candidates = Vec::new();
        for (place, route) in self.routes.iter().enumerate() {
            if route.head(authority, path, route_name.as_deref()) {
                candidates.push(place);
                if route.models.is_empty() {
                    break;
                }
            }
        }
        candidates
    }

    /// Whether the model decides among them.
    pub(crate) fn asks_model(&self, candidates: &[usize]) -> bool {
        self.of(candidates)
            .any(|(_, route)| !route.models.is_empty())
    }

    /// The one that it is for. A request whose model is not known must still go somewhere: to a route
    /// for any model if there is one, else to the first.
    pub(crate) fn matching(&self, candidates: &[usize], model: Option<&str>) -> Option<usize> {
        let mut routes = self.of(candidates);
        let found = match model {
            Some(model) => return Some(routes.find(|(_, route)| route.model(model))?.0),
            None => routes.find(|(_, route)| route.models.is_empty()),
        };
        found
            .map(|(place, _)| place)
            .or(candidates.first().copied())
    }

    fn of<'a>(
        &'a self,
        candidates: &'a [usize],
    ) -> impl Iterator<Item = (usize, &'a Conditions)> + 'a {
        let route = |&place: &usize| Some((place, self.routes.get(place)?));
        candidates.iter().filter_map(route)
    }
}
