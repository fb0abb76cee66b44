//! A request and its answer under the policy of their route.
//!
//! The request is held until its body is known, and the answer until it is whole. Invariant: an
//! answer that the policy is to judge goes on by [`Guarded::deliver`] alone.

use crate::answer::{self, Dropped, Form, Passing, lay_down};
use crate::headers::RequestHeaders;
use crate::host::{self, Micros};
use crate::policy::{Guard, Head, Outcome, Policies, Which};
use crate::room::Room;
use proxy_wasm::traits::{Context as Callouts, HttpContext};
use proxy_wasm::types::Action;
use rolter_core::config::Unchecked;
use rolter_core::kv::tokens::TOKEN_IDS_HEADER;
use rolter_core::policy::{Asking, Body, Context, Delivery, Refusal, Request};
use rolter_core::prompt::Prompt;
use std::borrow::Cow;
use std::rc::Rc;

pub(crate) struct Guarded {
    policies: Rc<Policies>,
    stage: Stage,
}

/// How far a request is. It only moves down this list.
enum Stage {
    /// Its headers have not been read.
    New,
    /// It is held until its body is known.
    Held(Head),
    /// It has gone on.
    Sent(Box<Watched>),
    /// Its answer is held until that is whole.
    Holding(Box<Watched>),
    /// Its answer is held until somebody has said something about it.
    Asking(Box<Asked>),
    /// Its answer is dropped.
    Dropping(Dropped),
    /// Its answer passes by.
    Passing(Box<Watched>, Passing),
    /// Nothing more to do.
    Over,
}

/// A request whose answer is awaited.
struct Watched {
    guard: Rc<Guard>,
    context: Context,
    /// That its ticket takes.
    _room: Room,
}

/// An answer about which somebody has been asked.
struct Asked {
    watched: Box<Watched>,
    asking: Asking,
    /// The number of the call.
    token: u32,
    start: Micros,
}

impl Guarded {
    pub(crate) fn new(policies: Rc<Policies>) -> Self {
        Self {
            policies,
            stage: Stage::New,
        }
    }

    /// Decides on a request of whose body this is known; `start` is how it begins, where that is all.
    fn admit(&mut self, head: &Head, body: Body<'_>, start: &[u8]) -> Action {
        self.stage = Stage::Over;
        let prompt = match body {
            Body::Whole(body) => Some(Prompt::read_undigested(head.dialect, body)),
            Body::None | Body::Unknown => None,
        };
        let model = match &prompt {
            Some(prompt) => prompt.model.as_deref().map(Cow::Borrowed),
            None => Prompt::model_of_start(start),
        };
        let dialect = prompt.as_ref().and_then(|prompt| prompt.dialect);
        // What cannot be read as a whole may name another model behind that.
        let is_known = dialect.is_some() || matches!(body, Body::None);
        let (guard, is_certain) = match self.policies.of(head, model.as_deref(), is_known) {
            Which::None => return Action::Continue,
            Which::One(guard) => (guard, true),
            Which::OneOf(guard) => (guard, false),
        };
        let began = host::now();
        let request = Request {
            dialect,
            stream: head.is_tunnel || prompt.as_ref().is_some_and(|prompt| prompt.stream),
            body,
        };
        // Who hides the model does not choose the policy.
        let admitted = if is_certain {
            guard.policy.admit(&request)
        } else {
            Err(Refusal::UnreadRequest)
        };
        // The path tells the API, too, of a request that cannot be read.
        let dialect = dialect.or(head.dialect);
        guard.took(host::now().since(began));
        let mut room = Room::new();
        let admitted = admitted.and_then(|admitted| {
            let taken = room.take(admitted.ticket.bytes());
            taken.map(|()| admitted).ok_or(Refusal::NoRoom)
        });
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err(refusal) => {
                guard.refuse(&refusal);
                let headers = [("content-type", "application/json")];
                let body = refusal.body(dialect);
                host::reply(refusal.status().into(), &headers, body.as_bytes());
                return Action::Pause;
            }
        };
        if let Some(body) = &admitted.body {
            host::replace_request_body(body.as_bytes());
            if host::request_header("content-length").is_some() {
                host::set_request_header("content-length", &body.len().to_string());
            }
        }
        let config = guard.policy.config();
        if config.pii.is_some() {
            // They are those of the prompt as it came.
            host::remove_request_header(TOKEN_IDS_HEADER);
        }
        if config.judges() {
            // What is encoded cannot be read.
            host::remove_request_header("accept-encoding");
        }
        guard.mark(admitted.is_unsanitized);
        let context = guard.context(head, dialect, model.as_deref(), admitted.ticket);
        self.stage = Stage::Sent(Box::new(Watched {
            guard: Rc::clone(guard),
            context,
            _room: room,
        }));
        Action::Continue
    }

    /// Decides on a request that is held, if it is.
    fn release(&mut self) -> Action {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Held(head) => match host::request_body(usize::MAX) {
                Some(body) if !body.is_empty() => self.admit(&head, Body::Whole(&body), &[]),
                _ => self.admit(&head, Body::None, &[]),
            },
            stage => {
                self.stage = stage;
                Action::Continue
            }
        }
    }

    /// Whether an answer goes on, where there is nothing to decide.
    fn action(&self) -> Action {
        match self.stage {
            Stage::Asking(_) => Action::Pause,
            _ => Action::Continue,
        }
    }

    /// Begins with an answer.
    fn receive(&mut self, mut watched: Box<Watched>) -> Action {
        watched.context.basis = answer::basis();
        let form = Form::read();
        let config = watched.guard.policy.config();
        let unchecked = match form {
            _ if !config.judges() => Unchecked::Skip,
            Form::Whole => {
                self.stage = Stage::Holding(watched);
                return Action::Pause;
            }
            Form::Events => config.on_stream,
            Form::Encoded | Form::Media => config.on_unread,
        };
        if unchecked == Unchecked::Refuse {
            return self.drop_answer(&watched, Refusal::UnreadAnswer);
        }
        let outcome = if config.judges() {
            Outcome::Skipped
        } else {
            Outcome::Delivered
        };
        watched.guard.count(watched.context.basis, outcome);
        self.stage = Stage::Passing(watched, Passing::of(form));
        Action::Continue
    }

    /// Waits for the end of an answer that the client does not get.
    fn drop_answer(&mut self, watched: &Watched, refusal: Refusal) -> Action {
        let Watched { guard, context, .. } = watched;
        guard.account(context.basis, None);
        guard.withhold(context.basis, &refusal);
        self.stage = Stage::Dropping(Dropped {
            refusal,
            dialect: context.dialect,
            has_body: false,
        });
        Action::Pause
    }

    /// Passes the policy over an answer that is whole.
    fn judge(&mut self, watched: Box<Watched>) -> Action {
        let body = host::response_body(usize::MAX).unwrap_or_default();
        if body.is_empty() {
            // There is nothing to be judged, as where it ends with the headers.
            self.stage = Stage::Over;
            return Action::Continue;
        }
        let Watched { guard, context, .. } = &*watched;
        guard.account(context.basis, answer::usage(&body));
        let start = host::now();
        let delivery = guard.policy.apply(body, context);
        guard.took(host::now().since(start));
        self.deliver(watched, delivery)
    }

    /// Does what the policy has decided about an answer that is held.
    fn deliver(&mut self, watched: Box<Watched>, mut delivery: Delivery) -> Action {
        let Watched { guard, context, .. } = &*watched;
        self.stage = Stage::Over;
        loop {
            match delivery {
                Delivery::Deliver(answer) => {
                    if answer.is_changed {
                        lay_down(&answer.body);
                    }
                    guard.deliver(context.basis, &answer);
                    return Action::Continue;
                }
                Delivery::Pass => {
                    guard.count(context.basis, Outcome::Skipped);
                    return Action::Continue;
                }
                Delivery::Refuse(refusal, findings) => {
                    guard.found(&findings);
                    guard.withhold(context.basis, &refusal);
                    answer::withhold(&refusal, context.dialect);
                    return Action::Continue;
                }
                Delivery::Ask(asking, answer) => {
                    let start = host::now();
                    if let Some(token) = guard.ask(&asking, &answer, context) {
                        // Envoy holds the answer, as it is by now.
                        if answer.is_changed {
                            lay_down(&answer.body);
                        }
                        self.stage = Stage::Asking(Box::new(Asked {
                            watched,
                            asking,
                            token,
                            start,
                        }));
                        return Action::Pause;
                    }
                    guard.failed(&asking);
                    delivery = guard.policy.answered(&asking, answer, None, context);
                }
            }
        }
    }
}

impl Callouts for Guarded {
    fn on_http_call_response(&mut self, token: u32, headers: usize, size: usize, _trailers: usize) {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Asking(asked) if asked.token == token => {
                let Asked {
                    watched,
                    mut asking,
                    start,
                    ..
                } = *asked;
                let guard = Rc::clone(&watched.guard);
                let now = host::now();
                guard.heard(&asking, now.since(start));
                let reply = host::call_body(headers, size);
                let verdict = reply.and_then(|reply| guard.policy.verdict(&reply));
                if verdict.is_none() {
                    guard.failed(&asking);
                }
                let body = host::response_body(usize::MAX).unwrap_or_default();
                let context = &watched.context;
                let delivery = match asking.resume(body) {
                    Some(answer) => guard.policy.answered(&asking, answer, verdict, context),
                    None => Delivery::Refuse(Refusal::UnreadAnswer, Vec::new()),
                };
                guard.took(host::now().since(now));
                if self.deliver(watched, delivery) == Action::Continue {
                    host::resume_response();
                }
            }
            stage => self.stage = stage,
        }
    }
}

impl HttpContext for Guarded {
    fn on_http_request_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        let headers = RequestHeaders::read();
        let Some(head) = self.policies.head(&headers) else {
            self.stage = Stage::Over;
            return Action::Continue;
        };
        if end_of_stream {
            return self.admit(&head, Body::None, &[]);
        }
        let is_oversized = headers.content_length() > self.policies.max_request_bytes;
        if head.is_tunnel || is_oversized && !self.policies.asks_model(&head) {
            return self.admit(&head, Body::Unknown, &[]);
        }
        self.stage = Stage::Held(head);
        Action::Pause
    }

    fn on_http_request_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        let max = self.policies.max_request_bytes;
        if size > max {
            match std::mem::replace(&mut self.stage, Stage::Over) {
                Stage::Held(head) => {
                    let start = host::request_body(max).unwrap_or_default();
                    return self.admit(&head, Body::Unknown, &start);
                }
                stage => self.stage = stage,
            }
        }
        match self.stage {
            Stage::Held(_) if end_of_stream => self.release(),
            Stage::Held(_) => Action::Pause,
            _ => Action::Continue,
        }
    }

    fn on_http_request_trailers(&mut self, _count: usize) -> Action {
        self.release()
    }

    fn on_http_response_headers(&mut self, _count: usize, end_of_stream: bool) -> Action {
        // Another answer than the one that is held is Envoy's own.
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Sent(watched) => {
                let is_success = (200..300).contains(&host::response_status());
                if end_of_stream || !is_success {
                    return Action::Continue;
                }
                self.receive(watched)
            }
            _ => Action::Continue,
        }
    }

    fn on_http_response_body(&mut self, size: usize, end_of_stream: bool) -> Action {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Holding(watched) => {
                let max = watched.guard.policy.config().max_answer_bytes;
                if size > max {
                    self.drop_answer(&watched, Refusal::TooLarge);
                    return self.on_http_response_body(size, end_of_stream);
                }
                if end_of_stream {
                    return self.judge(watched);
                }
                self.stage = Stage::Holding(watched);
                Action::Pause
            }
            Stage::Dropping(dropped) => {
                self.stage = Stage::Dropping(Dropped {
                    has_body: true,
                    ..dropped
                });
                if end_of_stream {
                    return self.on_http_response_trailers(0);
                }
                host::replace_response_body(&[]);
                Action::Pause
            }
            Stage::Passing(watched, mut passing) => {
                let max = watched.guard.policy.config().max_answer_bytes;
                passing.add(size, max);
                self.stage = Stage::Passing(watched, passing);
                Action::Continue
            }
            stage => {
                self.stage = stage;
                self.action()
            }
        }
    }

    /// The answer is whole, whether trailers follow or not.
    fn on_http_response_trailers(&mut self, _count: usize) -> Action {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Holding(watched) => self.judge(watched),
            Stage::Dropping(dropped) => {
                dropped.end();
                Action::Continue
            }
            stage => {
                self.stage = stage;
                self.action()
            }
        }
    }

    /// Comes once for each request, whatever became of it.
    fn on_log(&mut self) {
        let (watched, usage) = match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Passing(watched, passing) => (watched, passing.usage()),
            // The client has left, or the engine has.
            Stage::Holding(watched) => (watched, None),
            _ => return,
        };
        watched.guard.account(watched.context.basis, usage);
    }
}
