//! One a request: when to wait, when to decide, when it is over.

use crate::capture::Cached;
use crate::headers::RequestHeaders;
use crate::host;
use crate::plugin::{Body, Head, Plugin, Verdict};
use crate::question::{Answers, Question};
use crate::routed::{CLUSTER, ENDPOINTS, Routed};
use proxy_wasm::traits::{Context, HttpContext};
use proxy_wasm::types::Action;
use rolter_core::cache::headers::{CACHE, KIND};
use std::rc::Rc;

/// Headers that only this filter sets. Under these names neither Envoy, nor a log, nor an engine
/// ever sees what a client wrote: the first two would choose the upstream.
const RESERVED: [&str; 6] = [CLUSTER, ENDPOINTS, CACHE, KIND, TARGET, DECISION];

const TARGET: &str = "x-rolter-target";
const DECISION: &str = "x-rolter-decision";

/// What a caller reads that may use none of the targets, in a shape that the clients of either API
/// understand.
const FORBIDDEN: &str = concat!(
    r#"{"type":"error","error":{"type":"permission_error","code":"no_allowed_target","param":null,"#,
    r#""message":"No target of this route is for the key of this request."}}"#
);

/// For who may use some targets, in the shape of both APIs, where it is not known where they are.
const UNAVAILABLE: &str = concat!(
    r#"{"type":"error","error":{"type":"api_error","code":"no_known_target","param":null,"#,
    r#""message":"No target of this route is known yet."}}"#
);

/// What a caller reads whose request the policy has not seen.
const UNGUARDED: &str = concat!(
    r#"{"type":"error","error":{"type":"api_error","code":"no_policy_filter","param":null,"#,
    r#""message":"The policy of this route cannot be applied; its operators find why in Envoy's log."}}"#
);

pub(crate) struct Request {
    plugin: Option<Rc<Plugin>>,
    stage: Stage,
    /// Whether all of the request has come.
    is_complete: bool,
}

/// How far a request is. It only moves down this list.
enum Stage {
    /// Its headers have not been read.
    New,
    /// Held until its body is known.
    Held(Head),
    /// Held until the sidecar has answered.
    Asking(Box<Asking>),
    /// Under way, and in flight at its target; its answer may be for the cache.
    Routed(Routed, Option<Cached>),
    /// Nothing more to do: it has ended, or no route is for it.
    Over,
}

/// A request about which the sidecar has been asked.
struct Asking {
    head: Head,
    question: Question,
    /// What it has answered before.
    answers: Answers,
    /// The number of the call.
    token: u32,
}

impl Request {
    pub(crate) fn new(plugin: Option<Rc<Plugin>>) -> Self {
        Self {
            plugin,
            stage: Stage::New,
            is_complete: false,
        }
    }

    /// Decides on a request that is not under way yet, and lets it go or answers it.
    fn decide(&mut self, head: Head, body: &Body, mut answers: Answers) -> Action {
        let Some(plugin) = self.plugin.clone() else {
            return Action::Continue;
        };
        let verdict = loop {
            let mut question = match plugin.route(&head, body, &mut answers) {
                Verdict::Asks(question) => question,
                verdict => break verdict,
            };
            let call = match body {
                Body::Whole(bytes) => plugin.ask(&mut question, bytes),
                Body::Unread | Body::Oversized(_) => None,
            };
            let Some(token) = call else {
                question.give_up(&mut answers);
                continue;
            };
            // Envoy holds the body, and has it then.
            self.stage = Stage::Asking(Box::new(Asking {
                head,
                question,
                answers,
                token,
            }));
            return Action::Pause;
        };
        match verdict {
            Verdict::Routed(routed, cached) => {
                routed.point_the_way();
                self.stage = Stage::Routed(routed, cached);
                Action::Continue
            }
            Verdict::Forbidden => {
                self.stage = Stage::Over;
                let headers = [("content-type", "application/json")];
                host::reply(403, &headers, FORBIDDEN.as_bytes());
                Action::Pause
            }
            Verdict::Unavailable => {
                self.stage = Stage::Over;
                // As long as it takes the sidecar to look the names up.
                let headers = [("content-type", "application/json"), ("retry-after", "1")];
                host::reply(503, &headers, UNAVAILABLE.as_bytes());
                Action::Pause
            }
            Verdict::Unguarded => {
                self.stage = Stage::Over;
                let headers = [("content-type", "application/json")];
                host::reply(500, &headers, UNGUARDED.as_bytes());
                Action::Pause
            }
            Verdict::Untouched | Verdict::Asks(_) => {
                self.stage = Stage::Over;
                Action::Continue
            }
        }
    }

    /// Whether it goes on, where there is nothing to decide.
    fn action(&self) -> Action {
        match self.stage {
            Stage::Asking(_) => Action::Pause,
            _ => Action::Continue,
        }
    }

    /// Decides on a request that is held, if it is, with what `body` makes of its head.
    fn release(&mut self, body: impl FnOnce(&Head) -> Body) -> Action {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Held(head) => {
                let body = body(&head);
                self.decide(head, &body, Answers::default())
            }
            stage => {
                self.stage = stage;
                self.action()
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

impl Context for Request {
    fn on_http_call_response(&mut self, token: u32, headers: usize, size: usize, _trailers: usize) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asking(asking) if asking.token == token => {
                let Asking {
                    head,
                    question,
                    answers,
                    ..
                } = *asking;
                let Some(answers) = question.take_answer(answers, headers, size) else {
                    return;
                };
                if self.decide(head, &whole_body(), answers) == Action::Continue {
                    host::resume_request();
                }
            }
            stage => self.stage = stage,
        }
    }
}

impl HttpContext for Request {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        self.is_complete = end_of_stream;
        let headers = RequestHeaders::read();
        headers.remove(&RESERVED);
        #[cfg(feature = "trap")]
        if headers.get("x-rolter-trap").is_some() {
            std::process::abort();
        }
        let Some(plugin) = &self.plugin else {
            return Action::Continue;
        };
        let Some(head) = plugin.head(&headers) else {
            self.stage = Stage::Over;
            return Action::Continue;
        };
        if end_of_stream || !plugin.asks_body(&head) || headers.is_tunnel() {
            return self.decide(head, &Body::Unread, Answers::default());
        }
        // What is known to be over the limit need not be held at all, unless its beginning tells
        // the model that the route depends on.
        if !plugin.asks_model(&head) && headers.content_length() > plugin.max_request_bytes {
            return self.decide(head, &Body::Oversized(Vec::new()), Answers::default());
        }
        self.stage = Stage::Held(head);
        Action::Pause
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        self.is_complete |= end_of_stream;
        let (Stage::Held(_), Some(plugin)) = (&self.stage, self.plugin.clone()) else {
            return self.action();
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
        self.is_complete = true;
        self.release(|_| whole_body())
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        if let Stage::Routed(routed, cached) = &mut self.stage {
            let status = host::response_status();
            if let Some(cached) = cached {
                cached.on_headers(status, end_of_stream);
            }
            routed.on_headers(status, self.is_complete, end_of_stream);
            if self
                .plugin
                .as_ref()
                .is_some_and(|plugin| plugin.debug_headers)
                && let Some((target, reason)) = routed.receipt()
            {
                host::set_response_header(TARGET, target);
                host::set_response_header(DECISION, reason);
            }
        }
        Action::Continue
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        if let Stage::Routed(routed, cached) = &mut self.stage {
            if let Some(cached) = cached {
                cached.on_body(size, end_of_stream);
            }
            routed.on_body(size, end_of_stream);
        }
        Action::Continue
    }

    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        if let Stage::Routed(routed, cached) = &mut self.stage {
            if let Some(cached) = cached {
                cached.on_complete();
            }
            routed.on_trailers();
        }
        Action::Continue
    }

    /// Comes once for each request, whatever became of it.
    fn on_log(&mut self) {
        if let Stage::Routed(mut routed, cached) = std::mem::replace(&mut self.stage, Stage::Over) {
            if let Some(mut cached) = cached {
                cached.on_end();
            }
            routed.on_end();
        }
    }
}
