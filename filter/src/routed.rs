//! A request under way: counted at its target from the decision on, and followed to its end.

use crate::group::{Group, Target};
use crate::host::{self, Envoy, Micros};
use crate::route::{Route, Sent};
use crate::vm::Vm;
use rolter_core::affinity::PromptRef;
use rolter_core::balance::{Followers, MAX_FOLLOWERS, Reason, Request};
use rolter_core::config::Reach;
use rolter_core::health::{Outcome, Response, retry_after};
use rolter_core::memory::Lesson;
use rolter_core::prompt::Prompt;
use rolter_core::target::TargetId;
use rolter_core::time::Millis;
use std::cell::LazyCell;
use std::ops::Deref;
use std::rc::Rc;

/// Names the cluster of the target.
pub(crate) const CLUSTER: &str = "x-rolter-cluster";
/// Names the endpoints of the targets in a pool, best first.
pub(crate) const ENDPOINTS: &str = "x-gateway-destination-endpoint";
/// Envoy's own header for the retries of one request, in place of the route's number, which is to be
/// [`MAX_FOLLOWERS`]; no engine sees it.
const MAX_RETRIES: &str = "x-envoy-max-retries";
/// vLLM's header for the data-parallel rank that is to serve a request.
const RANK: &str = "x-data-parallel-rank";

/// A request under way. While this lives, it counts as in flight at its target.
pub(crate) struct Routed {
    vm: Rc<Vm>,
    route: Rc<Route>,
    group: Rc<Group>,
    /// Who serves it, as far as is known.
    target: TargetId,
    /// Who was to serve it, and those behind in rank.
    picked: TargetId,
    followers: Followers,
    /// Whether all wait for what becomes of it at the one who was to serve it.
    is_probe: bool,
    reason: Reason,
    /// The rank of the engine that is to serve it.
    rank: Option<u16>,
    /// Where the prompt is in the memory.
    prompt: Option<PromptRef>,
    session: Option<u64>,
    measures: Measures,
    start: Micros,
    /// How many targets it was sent to.
    tried: u64,
    /// Tokens of the prompt that the target has yet to compute: none after its first answer.
    pending: u32,
    /// What the time to the first token is to be noted for: a prompt of so many tokens.
    awaits_first_token: Option<u32>,
    /// Whether nothing more can be learnt of the target: it has failed, or has sent all.
    is_settled: bool,
}

/// What was measured of a prompt, for the access log.
#[derive(Clone, Copy, Default)]
struct Measures {
    /// How much of it the target had, of what was compared.
    percent: Option<usize>,
    /// Bytes of the whole prompt.
    len: u64,
}

impl Routed {
    /// Counts a request where the decision sends it.
    pub(crate) fn new(
        vm: &Rc<Vm>,
        route: &Rc<Route>,
        sent: Sent,
        request: &Request<'_>,
        start: Micros,
    ) -> Self {
        let Request {
            prompt,
            session,
            now,
        } = *request;
        let Sent {
            group,
            decision,
            is_probe,
            share,
            rank,
        } = sent;
        if let Some(target) = group.target(decision.target) {
            target.replica.in_flight.begin(&Envoy, 1);
            target.replica.pending.begin(&Envoy, decision.missing);
            target.count(decision.reason, route);
        }
        let streamed = prompt.filter(|prompt| route.asks.first_token && prompt.stream);
        let routed = Self {
            vm: Rc::clone(vm),
            route: Rc::clone(route),
            group,
            target: decision.target,
            picked: decision.target,
            followers: decision.followers,
            is_probe,
            reason: decision.reason,
            rank,
            prompt: decision.prompt,
            session: session.filter(|_| route.asks.session),
            measures: prompt.map_or(Measures::default(), |prompt| Measures {
                percent: match route.asks.scores {
                    Some(_) => share.map(percent),
                    None => (decision.matched * 100).checked_div(prompt.text.len()),
                },
                len: prompt.len,
            }),
            start,
            tried: 1,
            pending: decision.missing,
            awaits_first_token: streamed.map(Prompt::tokens),
            is_settled: false,
        };
        if let Some(prompt) = prompt.filter(|_| decision.news.prompt) {
            let model = prompt.model.as_deref().unwrap_or_default().as_bytes();
            let text = &prompt.text;
            routed.tell(decision.target, now, Lesson::Prompt { model, text });
        }
        if let Some(session) = session.filter(|_| decision.news.session) {
            routed.tell(decision.target, now, Lesson::Session { session });
        }
        routed
    }

    /// Sets the request headers by which Envoy finds the target, and the target its rank.
    pub(crate) fn point_the_way(&self) {
        let Some(target) = self.target() else { return };
        if let Some(rank) = self.rank {
            host::set_request_header(RANK, &rank.to_string());
        }
        match self.route.reach {
            Reach::Cluster => host::set_request_header(CLUSTER, &target.destination),
            Reach::Pool => {
                // Room for all of them: addresses are about as long.
                let followers = self.followers.as_slice();
                let each = target.destination.len() + 8;
                let mut ranked = String::with_capacity(each * (1 + followers.len()));
                ranked.push_str(&target.destination);
                for &follower in followers {
                    if let Some(target) = self.group.target(follower) {
                        ranked.extend([",", &target.destination]);
                    }
                }
                host::set_request_header(ENDPOINTS, &ranked);
                // No more than there are to go to: one more would hide the last answer behind
                // Envoy's own. The usual number is the route's, which spares a call of the host.
                if followers.len() < MAX_FOLLOWERS {
                    let retries = followers.len().to_string();
                    host::set_request_header(MAX_RETRIES, &retries);
                }
            }
        }
    }

    /// The target's name and the reason for it.
    pub(crate) fn receipt(&self) -> Option<(&str, &'static str)> {
        Some((&self.target()?.replica.name, self.reason.as_str()))
    }

    /// Takes in the response headers: who served the request, and what that says about them.
    pub(crate) fn on_headers(
        &mut self,
        status: u16,
        is_request_complete: bool,
        end_of_stream: bool,
    ) {
        let vm = Rc::clone(&self.vm);
        let now = LazyCell::new(|| {
            let now = host::now().millis();
            vm.wake(now);
            now
        });
        // Where decisions are many, the last one has looked how targets are a moment ago.
        if !vm.is_busy() {
            LazyCell::force(&now);
        }
        if self.route.reach == Reach::Pool {
            self.find_server(&now);
        }
        // Most responses are the target's own, and only others are worth the question.
        let is_targets_own = status < 400 || host::is_upstreams_own();
        let pause = (is_targets_own && matches!(status, 429 | 503))
            .then(|| host::response_header("retry-after"))
            .flatten();
        let outcome = Outcome::of_response(Response {
            status,
            is_targets_own,
            is_request_complete,
            flags: if is_targets_own {
                0
            } else {
                host::response_flags()
            },
            pause: pause.and_then(|value| retry_after(&value, *now)),
        });
        if status != 200 {
            self.awaits_first_token = None;
            self.is_computed();
            self.expect_nothing();
        }
        self.is_settled = end_of_stream || !matches!(outcome, Some(Outcome::Answered));
        if let Some(outcome) = outcome {
            self.learn(self.target, outcome, || *now);
        }
    }

    /// Takes in a part of the response's body.
    pub(crate) fn on_body(&mut self, size: usize, end_of_stream: bool) {
        self.is_settled |= end_of_stream;
        if size == 0 {
            return;
        }
        self.is_computed();
        if let Some(tokens) = self.awaits_first_token.take() {
            let now = host::now();
            self.vm.wake(now.millis());
            let micros = u32::try_from(now.since(self.start)).unwrap_or(u32::MAX);
            let at = now.millis();
            let latency = &mut self.group.memory.borrow_mut().latency;
            latency.observe(self.target, tokens, micros, at);
            self.tell(self.target, at, Lesson::FirstToken { tokens, micros });
        }
    }

    /// The response is complete.
    pub(crate) fn on_trailers(&mut self) {
        self.is_settled = true;
    }

    /// Takes in how the request ended, when everything is known, and tells the access log.
    pub(crate) fn on_end(&mut self) {
        if !self.is_settled
            && let Some(outcome) = Outcome::of_broken_off(host::response_flags())
        {
            self.learn(self.target, outcome, || host::now().millis());
        }
        self.log();
    }

    /// Its engine will not tell of what the target was sent, where that is expected of it.
    fn expect_nothing(&mut self) {
        if self.route.precise.is_some()
            && let Some(prompt) = self.prompt.take()
        {
            self.group.memory.borrow_mut().tree.give_up(prompt);
        }
    }

    /// The target has nothing left to compute of the prompt.
    fn is_computed(&mut self) {
        if let Some(target) = self.target() {
            target.replica.pending.end(&Envoy, self.pending);
        }
        self.pending = 0;
    }

    /// Finds out who has served the request after all.
    fn find_server(&mut self, now: &impl Deref<Target = Millis>) {
        let Some(address) = host::upstream_address() else {
            return;
        };
        let is_at = |target: &Target| target.destination.as_bytes() == address;
        if self.group.target(self.picked).is_some_and(is_at) {
            return;
        }
        let mut targets = self.group.targets();
        let server = targets.find(|(_, target)| is_at(target));
        drop(targets);
        match server.map(|(id, _)| id) {
            Some(server) if server != self.picked => self.move_to(server, **now),
            _ => {}
        }
    }

    /// Counts the request where a retry has led it, which has the prompt now in place of the first.
    fn move_to(&mut self, server: TargetId, now: Millis) {
        self.route.moved.add(1);
        self.tried = host::attempts().max(1);
        // What passed until the first token includes what others took.
        self.awaits_first_token = None;
        let passed = self.followers.passed_over(self.picked, server, self.tried);
        for target in passed.collect::<Vec<_>>() {
            self.learn(target, Outcome::PassedOver, || now);
        }
        if let (Some(from), Some(to)) = (self.target(), self.group.target(server)) {
            from.replica.in_flight.end(&Envoy, 1);
            to.replica.in_flight.begin(&Envoy, 1);
            from.replica.pending.end(&Envoy, self.pending);
            to.replica.pending.begin(&Envoy, self.pending);
        }
        self.target = server;
        self.expect_nothing();
        self.teach_server(now);
    }

    /// Takes in what became of the request at a target.
    fn learn(&mut self, target: TargetId, outcome: Outcome, now: impl FnOnce() -> Millis) {
        if target == self.picked {
            self.is_probe = false;
        }
        if let Some(target) = self.group.target(target) {
            target.replica.learn(outcome, now, &self.vm.changes);
        }
    }

    fn teach_server(&self, now: Millis) {
        let mut memory = self.group.memory.borrow_mut();
        if let Some(moved) = self
            .prompt
            .and_then(|prompt| memory.moved(prompt, self.target, now))
        {
            let (model, text) = (&*moved.model, &*moved.text);
            if moved.news {
                self.tell(self.target, now, Lesson::Prompt { model, text });
            }
            if let Some(at) = moved.withdrawn {
                self.tell(self.picked, at, Lesson::Withdrawn { model, text });
            }
        }
        if let Some(session) = self.session
            && memory.sessions.remember(session, self.target, now)
        {
            self.tell(self.target, now, Lesson::Session { session });
        }
    }

    fn tell(&self, target: TargetId, at: Millis, lesson: Lesson<'_>) {
        if let Some(target) = self.group.target(target) {
            let learner = &target.learner;
            self.vm.tell(self.group.hash, learner.hash, at, lesson);
        }
    }

    fn target(&self) -> Option<&Target> {
        self.group.target(self.target)
    }

    fn log(&self) {
        let Some(target) = self.target() else { return };
        let log = self.route.log;
        log.tell("rolter_route", &self.route.name);
        log.tell("rolter_target", &target.replica.name);
        log.tell("rolter_reason", self.reason.as_str());
        log.tell_number("rolter_tried", self.tried);
        let Measures { percent, len } = self.measures;
        if let Some(percent) = percent {
            log.tell_number("rolter_match_percent", percent as u64);
            log.tell_number("rolter_prompt_bytes", len);
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share is from 0 to 1"
)]
fn percent(share: f64) -> usize {
    (share * 100.0) as usize
}

impl Drop for Routed {
    fn drop(&mut self) {
        self.is_computed();
        if let Some(target) = self.target() {
            target.replica.in_flight.end(&Envoy, 1);
        }
        if let Some(target) = self.group.target(self.picked).filter(|_| self.is_probe) {
            let health = &target.replica.health;
            health.give_up_probe(&Envoy, host::now().millis(), &self.vm.changes);
        }
    }
}
