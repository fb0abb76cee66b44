//! One a request: when to wait, when to decide, when it is over.

use crate::host;
use crate::plugin::{Body, Head, Plugin, Routed};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use std::rc::Rc;

/// The header by which the Envoy route finds the cluster.
const CLUSTER: &str = "x-rolter-cluster";

/// Headers that only this filter sets. Under these names neither Envoy, nor a log, nor an engine
/// ever sees what a client wrote: the first two would choose the upstream.
const RESERVED: [&str; 6] = [
    CLUSTER,
    "x-gateway-destination-endpoint",
    "x-rolter-cache",
    "x-rolter-cache-kind",
    TARGET,
    DECISION,
];

const TARGET: &str = "x-rolter-target";
const DECISION: &str = "x-rolter-decision";

pub(crate) struct Request {
    plugin: Option<Rc<Plugin>>,
    stage: Stage,
}

/// How far a request is. It only moves down this list.
enum Stage {
    /// Its headers have not been read.
    New,
    /// Held until its body is known.
    Held(Head),
    /// Under way, and in flight at its target.
    Routed(Routed),
    /// Nothing more to do: it has ended, or no route is for it.
    Over,
}

impl Request {
    pub(crate) fn new(plugin: Option<Rc<Plugin>>) -> Self {
        Self {
            plugin,
            stage: Stage::New,
        }
    }

    /// Decides on a request that is not under way yet, and lets it go.
    fn decide(&mut self, head: &Head, body: &Body) -> Action {
        let plugin = self.plugin.as_ref();
        self.stage = match plugin.and_then(|plugin| plugin.route(head, body)) {
            Some(routed) => {
                host::set_request_header(CLUSTER, routed.cluster());
                Stage::Routed(routed)
            }
            None => Stage::Over,
        };
        Action::Continue
    }

    /// Decides on a request that is held, if it is, with what `body` makes of its head.
    fn release(&mut self, body: impl FnOnce(&Head) -> Body) -> Action {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Held(head) => {
                let body = body(&head);
                self.decide(&head, &body)
            }
            stage => {
                self.stage = stage;
                Action::Continue
            }
        }
    }
}

/// The body that Envoy holds, all of it.
fn whole_body() -> Body {
    match host::request_body(usize::MAX) {
        Some(body) if !body.is_empty() => Body::Whole(body),
        _ => Body::Unread,
    }
}

/// The length that the request announces, or zero.
fn content_length() -> usize {
    host::request_header("content-length")
        .and_then(|digits| std::str::from_utf8(&digits).ok()?.parse().ok())
        .unwrap_or(0)
}

/// Whether the request opens a tunnel, whose body ends with the connection.
fn is_tunnel() -> bool {
    host::request_header("upgrade").is_some()
        || host::request_header(":method").is_some_and(|method| method == b"CONNECT")
}

impl Context for Request {}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        RESERVED.into_iter().for_each(host::remove_request_header);
        let Some(plugin) = &self.plugin else {
            return Action::Continue;
        };
        let host = host::request_header(":authority").unwrap_or_default();
        let path = host::request_header(":path").unwrap_or_default();
        let Some(head) = plugin.head(&host, path) else {
            self.stage = Stage::Over;
            return Action::Continue;
        };
        if end_of_stream || !plugin.asks_body(&head) || is_tunnel() {
            return self.decide(&head, &Body::Unread);
        }
        // What is known to be over the limit need not be held at all, unless its beginning tells
        // the model that the route depends on.
        if !plugin.asks_model(&head) && content_length() > plugin.max_request_bytes {
            return self.decide(&head, &Body::Oversized(Vec::new()));
        }
        self.stage = Stage::Held(head);
        Action::Pause
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        let (Stage::Held(_), Some(plugin)) = (&self.stage, self.plugin.clone()) else {
            return Action::Continue;
        };
        let max = plugin.max_request_bytes;
        if size > max {
            return self.release(|head| {
                let start = plugin.asks_model(head).then(|| host::request_body(max));
                Body::Oversized(start.flatten().unwrap_or_default())
            });
        }
        if end_of_stream {
            return self.release(|_| whole_body());
        }
        Action::Pause
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.release(|_| whole_body())
    }

    fn on_http_response_headers(&mut self, _count: usize, _end_of_stream: bool) -> Action {
        if let Stage::Routed(routed) = &self.stage
            && let Some((target, reason)) = routed.receipt()
        {
            host::set_response_header(TARGET, target);
            host::set_response_header(DECISION, reason);
        }
        Action::Continue
    }

    /// Comes once for each request, whatever became of it.
    fn on_log(&mut self) {
        self.stage = Stage::Over;
    }
}
