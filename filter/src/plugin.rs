//! A configuration at work in one worker: it finds the route of each request, and counts it where it
//! goes.

use crate::cache::Wish;
use crate::capture::Cached;
use crate::headers::RequestHeaders;
use crate::host;
use crate::lookup::{Lookup, NoHit};
use crate::mark::Mark;
use crate::matching::Matcher;
use crate::metrics::Histogram;
use crate::question::{Answers, Question, Tokenize, Tokens};
use crate::route::{NoTarget, Route};
use crate::routed::Routed;
use crate::vm::Vm;
use fastrand::Rng;
use rolter_core::balance::Request;
use rolter_core::cache::Bypass;
use rolter_core::caller::{key_hash, session_hash};
use rolter_core::config::Config;
use rolter_core::kv::tokens::{TOKEN_IDS_HEADER, read_token_ids};
use rolter_core::prompt::{Dialect, Prompt};
use rolter_core::time::Millis;
use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) struct Plugin {
    pub(crate) max_request_bytes: usize,
    pub(crate) debug_headers: bool,
    session_header: String,
    key_header: String,
    matcher: Matcher,
    routes: Vec<Rc<Route>>,
    /// The cluster of the sidecar, where there is one.
    sidecar: Option<Rc<str>>,
    deciding: Histogram,
    vm: Rc<Vm>,
    rng: RefCell<Rng>,
}

/// A request as it is known from its headers.
pub(crate) struct Head {
    /// The dialect that the path tells. Of the path itself nothing is kept: it is as long as the
    /// client likes, and a request is held for as long.
    dialect: Option<Dialect>,
    /// The routes that it may belong to, in order; which one it is may depend on the model.
    routes: Vec<usize>,
    /// A hash of the session that it names, where a route asks for it.
    session: Option<u64>,
    /// A hash of the caller's key, where a route asks for it.
    key: Option<[u8; 32]>,
    /// Its token ids as the client has sent them, where a route asks for them.
    tokens: Option<Vec<u8>>,
    /// What it says about the cache, where a route has one.
    wish: Wish,
    /// That the policy has been over it, where a route has one.
    mark: Mark,
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

/// What becomes of a request.
pub(crate) enum Verdict {
    /// It goes to a target, and its answer is for the cache of a route that has one.
    Routed(Routed, Option<Cached>),
    /// The caller may use none of the targets.
    Forbidden,
    /// It is not known where the targets are that the caller may use.
    Unavailable,
    /// The policy of its route has not been over it.
    Unguarded,
    /// No route is for it.
    Untouched,
    /// Something is to be asked first.
    Asks(Question),
}

impl Plugin {
    pub(crate) fn new(config: &Config) -> Self {
        let vm = Vm::get();
        let mut rng = Rng::new();
        let sidecar = config.sidecar.as_ref();
        let sidecar = sidecar.map(|sidecar| Rc::from(&*sidecar.cluster));
        if let Some(cluster) = &sidecar {
            vm.feed.add_cluster(cluster);
        }
        Self {
            sidecar,
            max_request_bytes: config.max_request_bytes,
            debug_headers: config.debug_headers,
            session_header: config.session_header.clone(),
            key_header: config.key_header.clone(),
            matcher: Matcher::new(config),
            routes: config
                .routes
                .iter()
                .map(|route| Rc::new(Route::new(route, config, &vm, &mut rng)))
                .collect(),
            deciding: Histogram::define("rolter_decision_microseconds", &[]),
            vm,
            rng: RefCell::new(rng),
        }
    }

    /// Goes by the targets that there are now.
    pub(crate) fn renew(&self) {
        let mut rng = self.rng.borrow_mut();
        for route in &self.routes {
            route.renew(&self.vm, &mut rng);
        }
    }

    /// What a request may match, and what its routes ask of its headers. Nothing where no route is for
    /// it.
    pub(crate) fn head(&self, headers: &RequestHeaders) -> Option<Head> {
        let path = headers.get(":path").unwrap_or_default();
        let routes = self.matcher.candidates(headers);
        if routes.is_empty() {
            return None;
        }
        let mut head = Head {
            dialect: Dialect::of_path(path),
            routes,
            session: None,
            key: None,
            tokens: None,
            wish: Wish::default(),
            mark: Mark::default(),
        };
        let (mut asks_session, mut asks_key, mut asks_tokens) = (false, false, false);
        let (mut asks_cache, mut is_guarded) = (false, false);
        for route in self.candidates(&head) {
            asks_session |= route.asks_session();
            asks_key |= route.asks_key;
            asks_tokens |= route.precise.is_some();
            asks_cache |= route.cache.is_some();
            is_guarded |= route.is_guarded;
        }
        let header = |asks: bool, name| headers.get(name).filter(|_| asks);
        let session = header(asks_session, &self.session_header);
        let key = header(asks_key, &self.key_header);
        head.session = session
            .filter(|session| !session.is_empty())
            .map(session_hash);
        head.key = key.and_then(key_hash);
        if let Some(list) = header(asks_tokens, TOKEN_IDS_HEADER) {
            head.tokens = read_token_ids(list);
            // The engine has no use for it, and it is long.
            host::remove_request_header(TOKEN_IDS_HEADER);
        }
        if asks_cache {
            head.wish = Wish::of(headers);
        }
        if is_guarded {
            head.mark = Mark::read();
        }
        Some(head)
    }

    /// Whether the decision depends on the request's body.
    pub(crate) fn asks_body(&self, head: &Head) -> bool {
        let has_cache = |route: &Rc<Route>| route.cache.is_some();
        self.asks_prompt(head) || self.asks_model(head) || self.candidates(head).any(has_cache)
    }

    /// Whether the decision depends on the model, so that the beginning of a body is of use.
    pub(crate) fn asks_model(&self, head: &Head) -> bool {
        self.matcher.asks_model(&head.routes)
    }

    fn asks_prompt(&self, head: &Head) -> bool {
        self.candidates(head)
            .any(|route| route.asks.prompt.with_session(head.session.is_some()))
    }

    fn asks_digest(&self, head: &Head) -> bool {
        self.candidates(head).any(|route| route.asks.digest)
    }

    /// The route of a request.
    fn matching(&self, head: &Head, model: Option<&str>) -> Option<&Rc<Route>> {
        let place = self.matcher.matching(&head.routes, model)?;
        self.routes.get(place)
    }

    /// Decides where a request goes and counts it there, given what the sidecar has answered.
    pub(crate) fn route(&self, head: &Head, body: &Body, answers: &mut Answers) -> Verdict {
        let asks_model = self.asks_model(head);
        // A hit needs no prompt, so where the route is known without one the cache comes first.
        if !asks_model
            && let Some(route) = self.matching(head, None)
            && let Some(lookup) = lookup(route, head, body, answers)
        {
            return Verdict::Asks(Question::Cache(lookup));
        }
        let start = host::now();
        let now = start.millis();
        self.vm.prepare(start);
        let prompt = match body {
            Body::Whole(body) if self.asks_prompt(head) => Some(if self.asks_digest(head) {
                Prompt::read_as(head.dialect, body)
            } else {
                Prompt::read_undigested(head.dialect, body)
            }),
            _ => None,
        };
        let model = match (&prompt, body) {
            (Some(prompt), _) => prompt.model.as_deref().map(Cow::Borrowed),
            (None, Body::Whole(start) | Body::Oversized(start)) if asks_model => {
                Prompt::model_of_start(start)
            }
            (None, _) => None,
        };
        let Some(route) = self.matching(head, model.as_deref()) else {
            return Verdict::Untouched;
        };
        if !route.is_open_to(&head.mark) {
            route.complain();
            return Verdict::Unguarded;
        }
        if let Some(lookup) = lookup(route, head, body, answers) {
            return Verdict::Asks(Question::Cache(lookup));
        }
        match (body, &prompt) {
            (Body::Oversized(_), _) => route.oversized.add(1),
            (_, Some(prompt)) if prompt.dialect.is_none() => route.unreadable.add(1),
            _ => {}
        }
        route.renew(&self.vm, &mut self.rng.borrow_mut());
        let request = Request {
            prompt: prompt.as_ref(),
            session: head.session,
            now,
        };
        let ids = match self.token_ids(route, head, &request, &answers.tokens) {
            Ok(ids) => ids,
            Err(tokenize) => return Verdict::Asks(Question::Tokens(tokenize)),
        };
        let (key, mut rng) = (head.key.as_ref(), self.rng.borrow_mut());
        let sent = match route.decide(&self.vm, &request, ids.as_deref(), key, &mut rng) {
            Ok(sent) => sent,
            Err(NoTarget::Forbidden) => {
                route.refused.add(1);
                route.log.tell("rolter_route", &route.name);
                route.log.tell("rolter_reason", "forbidden");
                return Verdict::Forbidden;
            }
            Err(NoTarget::None) => {
                route.untargeted.add(1);
                route.log.tell("rolter_route", &route.name);
                route.log.tell("rolter_reason", "untargeted");
                // Envoy would choose among all hosts, and not all are for everybody.
                return if route.is_restricted {
                    Verdict::Unavailable
                } else {
                    Verdict::Untouched
                };
            }
        };
        let routed = Routed::new(&self.vm, route, sent, &request, start);
        if self.vm.is_timed() {
            self.deciding.record(host::now().since(start));
        }
        let cached = route.cache.as_ref().zip(answers.cache.take());
        let cached = cached.map(|(cache, no_hit)| {
            let sidecar = self.sidecar.as_ref();
            Cached::new(cache, sidecar, no_hit)
        });
        Verdict::Routed(routed, cached)
    }

    /// The token ids of a request, where the route has any use for them and they are known, or a
    /// question for them.
    fn token_ids<'a>(
        &self,
        route: &Rc<Route>,
        head: &'a Head,
        request: &Request<'_>,
        asked: &'a Tokens,
    ) -> Result<Option<Cow<'a, [u8]>>, Tokenize> {
        match (&head.tokens, asked) {
            (Some(ids), _) | (None, Tokens::Asked(Some(ids))) => {
                return Ok(Some(Cow::Borrowed(ids)));
            }
            (None, Tokens::Asked(None)) => return Ok(None),
            (None, Tokens::Unasked) => {}
        }
        let given = request.prompt.and_then(|prompt| prompt.token_ids.as_ref());
        if let Some(ids) = given.filter(|_| route.precise.is_some()) {
            return Ok(Some(Cow::Owned(ids.to_bytes())));
        }
        let question = self.tokenize(route, request.prompt, head.key.as_ref(), request.now);
        question.map_or(Ok(None), Err)
    }

    /// What to ask the sidecar for a request that has no token ids, where the route wants that and an
    /// answer could make a difference.
    fn tokenize(
        &self,
        route: &Rc<Route>,
        prompt: Option<&Prompt<'_>>,
        key: Option<&[u8; 32]>,
        now: Millis,
    ) -> Option<Tokenize> {
        let millis = route.precise?.tokenize_ms?;
        let dialect = prompt?.dialect?;
        let can_be_read = matches!(dialect, Dialect::Chat | Dialect::Completions);
        let engines = self.vm.engines.borrow();
        (can_be_read && route.asks_tokens(&engines, key, now)).then(|| Tokenize {
            route: Rc::clone(route),
            dialect,
            millis,
        })
    }

    /// Asks the sidecar, out of a request. The number of the call, where there is one.
    pub(crate) fn ask(&self, question: &mut Question, body: &[u8]) -> Option<u32> {
        question.ask(self.sidecar.as_deref()?, body)
    }

    fn candidates<'a>(&'a self, head: &'a Head) -> impl Iterator<Item = &'a Rc<Route>> {
        head.routes
            .iter()
            .filter_map(|&index| self.routes.get(index))
    }
}

/// What to ask the cache of a route, unless it was asked already, or need not be.
fn lookup(route: &Route, head: &Head, body: &Body, answers: &mut Answers) -> Option<Lookup> {
    let cache = route.cache.as_ref().filter(|_| answers.cache.is_none())?;
    let key = head.key.as_ref();
    // Whoever may use none of the targets gets none of their answers, nor does whom the policy has
    // not seen.
    if route.forbids(key) || !route.is_open_to(&head.mark) {
        return None;
    }
    let has_body = matches!(body, Body::Whole(_));
    let is_sanitized = !head.mark.is_unsanitized;
    let lookup = is_sanitized
        .then_some(())
        .ok_or(Bypass::Unsanitized)
        .and_then(|()| cache.admits(head.wish, head.dialect, key, has_body))
        .and_then(|()| Lookup::new(cache, key, head.wish.control));
    if let Err(bypass) = lookup {
        cache.bypass(bypass);
        answers.cache = Some(NoHit::Bypass);
    }
    lookup.ok()
}
