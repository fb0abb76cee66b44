//! One a request: when to wait, when to decide, when it is over.

use crate::host;
use crate::plugin::{Body, Head, Plugin, Routed};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use std::rc::Rc;

/// The header by which the Envoy route finds the cluster.
const CLUSTER: &str = "x-rolter-cluster";

/// Headers that only this filter or Envoy may set: a client's copy would choose the upstream or
/// forge a receipt.
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
    /// Its headers have not been read, or no route is for it.
    Untouched,
    /// Held until its body is known.
    Held(Head),
    /// Under way, and in flight at its target.
    Routed(Routed),
    /// Over.
    Done,
}

impl Request {
    pub(crate) fn new(plugin: Option<Rc<Plugin>>) -> Self {
        Self {
            plugin,
            stage: Stage::Untouched,
        }
    }

    /// Routes a request that is not under way yet, and lets it go.
    fn decide(&mut self, head: &Head, body: &Body) -> Action {
        self.stage = match self
            .plugin
            .as_ref()
            .and_then(|plugin| plugin.route(head, body))
        {
            Some(routed) => {
                host::set_request_header(CLUSTER, routed.cluster());
                Stage::Routed(routed)
            }
            None => Stage::Untouched,
        };
        Action::Continue
    }

    /// Ends the holding of a request whose body is complete in Envoy's buffer.
    fn decide_on_buffer(&mut self) -> Action {
        match std::mem::replace(&mut self.stage, Stage::Untouched) {
            Stage::Held(head) => {
                let body = host::request_body(usize::MAX).unwrap_or_default();
                self.decide(&head, &Body::Whole(body))
            }
            stage => {
                self.stage = stage;
                Action::Continue
            }
        }
    }
}

/// The length that the request announces, or zero.
fn content_length() -> usize {
    host::request_header("content-length")
        .and_then(|digits| std::str::from_utf8(&digits).ok()?.parse().ok())
        .unwrap_or(0)
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
            return Action::Continue;
        };
        if end_of_stream || !plugin.asks_body(&head) {
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
        let (Stage::Held(head), Some(plugin)) = (&self.stage, &self.plugin) else {
            return Action::Continue;
        };
        let max = plugin.max_request_bytes;
        if size > max {
            let start = if plugin.asks_model(head) { max } else { 0 };
            let start = host::request_body(start).unwrap_or_default();
            if let Stage::Held(head) = std::mem::replace(&mut self.stage, Stage::Untouched) {
                return self.decide(&head, &Body::Oversized(start));
            }
        }
        if end_of_stream {
            return self.decide_on_buffer();
        }
        Action::Pause
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.decide_on_buffer()
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
        self.stage = Stage::Done;
    }
}
