//! The policies of one configuration at work: finds the policy of each request, and counts what it
//! does.

use crate::access_log::AccessLog;
use crate::headers::RequestHeaders;
use crate::host;
use crate::mark::Mark;
use crate::matching::Matcher;
use crate::metrics::{Counter, Counters, Histogram};
use rolter_core::caller::key_hash;
use rolter_core::config::{Config, Errors};
use rolter_core::policy::{self, Answer, Asking, Basis, Context, Refusal, Ticket, Usage};
use rolter_core::prompt::Dialect;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

/// Bytes of the name of a model that plugins are told.
const MAX_MODEL_BYTES: usize = 256;

/// Shared data that says that a filter of the policy was configured, for the one that routes: Envoy
/// configures filters in the order of the list.
const CONFIGURED: &str = "rolter_policy_configured";

/// The policies of one configuration.
pub(crate) struct Policies {
    pub(crate) max_request_bytes: usize,
    key_header: String,
    matcher: Matcher,
    /// By the places of the routes.
    routes: Vec<Option<Rc<Guard>>>,
}

/// A route's policy.
pub(crate) struct Guard {
    route: String,
    log: AccessLog,
    pub(crate) policy: Rc<policy::Policy>,
    outcomes: Counters<(Outcome, &'static str)>,
    findings: Vec<Counter>,
    pii: Vec<Counter>,
    plugins: Vec<Plugin>,
    /// By reason, which the configuration bounds.
    refusals: RefCell<HashMap<(bool, String), Counter>>,
    tokens: Counters<(&'static str, &'static str)>,
    took: Histogram,
}

struct Plugin {
    failures: Counter,
    took: Histogram,
}

/// Which policy is a request's.
pub(crate) enum Which<'a> {
    /// None.
    None,
    One(&'a Rc<Guard>),
    /// This or another: the model decides, and cannot be read.
    OneOf(&'a Rc<Guard>),
}

/// What has become of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Delivered,
    Withheld,
    /// The policy was not passed over it, as it says itself.
    Skipped,
}

/// A request as it is known from its headers.
pub(crate) struct Head {
    pub(crate) dialect: Option<Dialect>,
    /// Whether it opens a tunnel, which is a stream in both directions.
    pub(crate) is_tunnel: bool,
    /// The routes that it may be for.
    candidates: Vec<usize>,
    caller: Option<[u8; 32]>,
}

impl Policies {
    pub(crate) fn new(config: &Config) -> Result<Self, Errors> {
        let policies = policy::compile(&config.policies)?;
        let policies: Vec<Rc<_>> = policies.into_iter().map(Rc::new).collect();
        let guard = |route: &rolter_core::config::Route| {
            let policy = policies.get(route.policy?)?;
            Some(Rc::new(Guard::new(
                &route.name,
                policy,
                AccessLog::of(config),
            )))
        };
        Ok(Self {
            max_request_bytes: config.max_request_bytes,
            key_header: config.key_header.clone(),
            matcher: Matcher::new(config),
            routes: config.routes.iter().map(guard).collect(),
        })
    }

    /// Tells the filter that routes that there is one of the policy.
    pub(crate) fn announce() {
        host::share(CONFIGURED, b"1");
    }

    /// Whether there is one.
    pub(crate) fn are_announced() -> bool {
        host::is_shared(CONFIGURED)
    }

    /// What a request may be for. Nothing where no route with a policy is.
    pub(crate) fn head(&self, headers: &RequestHeaders) -> Option<Head> {
        let candidates = self.matcher.candidates(headers);
        let has_policy = |&place: &usize| self.guard(place).is_some();
        if !candidates.iter().any(has_policy) {
            return None;
        }
        Some(Head {
            dialect: Dialect::of_path(headers.get(":path").unwrap_or_default()),
            is_tunnel: headers.is_tunnel(),
            candidates,
            caller: headers.get(&self.key_header).and_then(key_hash),
        })
    }

    /// Whether the model decides which policy is a request's.
    pub(crate) fn asks_model(&self, head: &Head) -> bool {
        self.matcher.asks_model(&head.candidates)
    }

    /// The policy of a request. `is_known` says whether the model is all that the engine may read
    /// there: else the request may be any model's.
    pub(crate) fn of(&self, head: &Head, model: Option<&str>, is_known: bool) -> Which<'_> {
        let candidates = head.candidates.iter().map(|&place| self.guard(place));
        if !is_known && self.asks_model(head) {
            let policy = |guard: Option<&Rc<Guard>>| guard.map(|guard| Rc::as_ptr(&guard.policy));
            let mut policies = candidates.clone().map(policy);
            let first = policies.next();
            if policies.any(|other| Some(other) != first) {
                // Which of them it is refused by makes no difference.
                return candidates
                    .flatten()
                    .next()
                    .map_or(Which::None, Which::OneOf);
            }
        }
        let place = self.matcher.matching(&head.candidates, model);
        let guard = place.and_then(|place| self.guard(place));
        guard.map_or(Which::None, Which::One)
    }

    fn guard(&self, place: usize) -> Option<&Rc<Guard>> {
        self.routes.get(place)?.as_ref()
    }
}

impl Guard {
    fn new(route: &str, policy: &Rc<policy::Policy>, log: AccessLog) -> Self {
        let counter =
            |name, label, value: &str| Counter::define(name, &[("route", route), (label, value)]);
        let config = policy.config();
        let findings = config.guardrails.iter();
        let pii = policy.kinds().iter();
        let plugins = config.plugins.iter().map(|plugin| {
            let labels = [("route", route), ("plugin", &plugin.name)];
            Plugin {
                failures: Counter::define("rolter_policy_plugin_failures", &labels),
                took: Histogram::define("rolter_policy_plugin_microseconds", &labels),
            }
        });
        Self {
            log,
            route: route.to_owned(),
            outcomes: Counters::default(),
            findings: findings
                .map(|rule| counter("rolter_policy_findings", "rule", &rule.name))
                .collect(),
            pii: pii
                .map(|kind| counter("rolter_policy_pii", "kind", kind))
                .collect(),
            plugins: plugins.collect(),
            refusals: RefCell::default(),
            tokens: Counters::default(),
            took: Histogram::define("rolter_policy_microseconds", &[]),
            policy: Rc::clone(policy),
        }
    }

    /// Leaves word that the policy has been over a request.
    pub(crate) fn mark(&self, is_unsanitized: bool) {
        Mark::leave(&self.route, is_unsanitized);
        self.log.tell("rolter_route", &self.route);
    }

    /// What is known of a request that goes on, for its answer.
    pub(crate) fn context(
        &self,
        head: &Head,
        dialect: Option<Dialect>,
        model: Option<&str>,
        ticket: Ticket,
    ) -> Context {
        for (kind, count) in ticket.found() {
            if let Some(counter) = self.pii.get(kind) {
                counter.add(count);
            }
        }
        Context {
            route: self.route.clone(),
            dialect,
            model: model
                .filter(|model| model.len() <= MAX_MODEL_BYTES)
                .map(str::to_owned),
            caller: head.caller,
            basis: Basis::Upstream,
            ticket,
        }
    }

    /// Counts a request that does not go on.
    pub(crate) fn refuse(&self, refusal: &Refusal) {
        self.log.tell("rolter_route", &self.route);
        self.count_refusal(false, refusal);
    }

    /// Counts an answer that the client does not get.
    pub(crate) fn withhold(&self, basis: Basis, refusal: &Refusal) {
        self.count_refusal(true, refusal);
        self.count(basis, Outcome::Withheld);
    }

    fn count_refusal(&self, is_answer: bool, refusal: &Refusal) {
        let reason = refusal.reason();
        self.log.tell("rolter_withheld", &reason);
        let mut counters = self.refusals.borrow_mut();
        let counter = counters
            .entry((is_answer, reason))
            .or_insert_with_key(|(_, reason)| {
                let name = if is_answer {
                    "rolter_policy_withheld_answers"
                } else {
                    "rolter_policy_refused_requests"
                };
                Counter::define(name, &[("route", &self.route), ("reason", reason)])
            });
        counter.add(1);
    }

    /// Counts what has become of an answer.
    pub(crate) fn count(&self, basis: Basis, outcome: Outcome) {
        self.outcomes.add_one((outcome, basis.as_str()), || {
            let labels = [
                ("route", &*self.route),
                ("basis", basis.as_str()),
                ("outcome", outcome.as_str()),
            ];
            Counter::define("rolter_policy_answers", &labels)
        });
    }

    /// Counts which guardrails have found something.
    pub(crate) fn found(&self, findings: &[usize]) {
        let config = self.policy.config();
        let mut names = String::new();
        for &place in findings {
            if let (Some(counter), Some(rule)) =
                (self.findings.get(place), config.guardrails.get(place))
            {
                counter.add(1);
                let separator = if names.is_empty() { "" } else { "," };
                names.extend([separator, &rule.name]);
            }
        }
        if !names.is_empty() {
            self.log.tell("rolter_findings", &names);
        }
    }

    /// Takes note of what an answer has cost, or would have.
    pub(crate) fn account(&self, basis: Basis, usage: Option<Usage>) {
        self.log.tell("rolter_cost_basis", basis.as_str());
        let Some(usage) = usage else { return };
        let billed = basis.billed(usage);
        for (kind, tokens, billed) in [
            ("prompt", usage.prompt, billed.prompt),
            ("completion", usage.completion, billed.completion),
            ("cached", usage.cached, billed.cached),
        ] {
            self.log
                .tell_number(&format!("rolter_{kind}_tokens"), billed);
            self.tokens.add((kind, basis.as_str()), tokens, || {
                let labels = [
                    ("route", &*self.route),
                    ("kind", kind),
                    ("basis", basis.as_str()),
                ];
                Counter::define("rolter_tokens", &labels)
            });
        }
    }

    /// Asks somebody about an answer. The number of the call, where there is one.
    pub(crate) fn ask(&self, asking: &Asking, answer: &Answer, context: &Context) -> Option<u32> {
        let plugin = self.policy.config().plugins.get(asking.plugin())?;
        let headers = [
            (":method", "POST"),
            (":path", &plugin.path),
            (":authority", &plugin.cluster),
            ("content-type", "application/json"),
        ];
        let question = self.policy.question(answer, context);
        let timeout = Duration::from_millis(plugin.timeout_ms);
        host::call(&plugin.cluster, &headers, question.as_bytes(), timeout)
    }

    /// Takes note of how long somebody took to answer.
    pub(crate) fn heard(&self, asking: &Asking, micros: u64) {
        if let Some(plugin) = self.plugins.get(asking.plugin()) {
            plugin.took.record(micros);
        }
    }

    /// Counts that somebody could not be asked.
    pub(crate) fn failed(&self, asking: &Asking) {
        if let Some(plugin) = self.plugins.get(asking.plugin()) {
            plugin.failures.add(1);
        }
    }

    /// Takes note of how long the policy itself took.
    pub(crate) fn took(&self, micros: u64) {
        self.took.record(micros);
    }

    /// Counts an answer that the client gets.
    pub(crate) fn deliver(&self, basis: Basis, answer: &Answer) {
        self.found(&answer.findings);
        self.count(basis, Outcome::Delivered);
    }
}

impl Outcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Withheld => "withheld",
            Self::Skipped => "skipped",
        }
    }
}
