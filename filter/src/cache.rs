//! A route's response cache as the filter sees it: who uses it, and what becomes of their requests.
//!
//! The sidecar is asked before a request is routed, and gets the answer once that is complete.
//! Whatever goes wrong with either, the request goes on.

use crate::access_log::AccessLog;
use crate::headers::RequestHeaders;
use crate::metrics::{Counter, Counters, Histogram};
use rolter_core::cache::control::Control;
use rolter_core::cache::{Bypass, admits};
use rolter_core::config::RouteCache;
use rolter_core::prompt::Dialect;
use std::cell::Cell;

pub(crate) struct Cache {
    pub(crate) config: RouteCache,
    pub(crate) route: String,
    log: AccessLog,
    outcomes: Counters<Outcome>,
    bypasses: Counters<Bypass>,
    captures: Counters<&'static str>,
    looking: Histogram,
    has_complained: Cell<bool>,
}

/// What a request says about the cache.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wish {
    pub(crate) control: Control,
    /// Whether it is a `POST` whose answer has a body of its own, which gRPC's has not.
    pub(crate) is_post: bool,
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Exact,
    Semantic,
    Miss,
    Bypass,
    /// The sidecar did not answer in time, or not as it should.
    Failed,
}

impl Outcome {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Semantic => "semantic",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
            Self::Failed => "failed",
        }
    }

    /// What the client is told.
    pub(crate) fn told(self) -> &'static str {
        match self {
            Self::Exact | Self::Semantic => "hit",
            Self::Miss | Self::Failed => "miss",
            Self::Bypass => "bypass",
        }
    }
}

impl Wish {
    /// What a request's headers say.
    pub(crate) fn of(headers: &RequestHeaders) -> Self {
        let control = headers.get("cache-control");
        let content_type = headers.get("content-type");
        let is_grpc = content_type.is_some_and(|value| value.starts_with(b"application/grpc"));
        Self {
            control: control.map_or(Control::Any, Control::of),
            is_post: headers.get(":method") == Some(b"POST") && !is_grpc,
        }
    }
}

impl Cache {
    pub(crate) fn new(config: &RouteCache, route: &str, log: AccessLog) -> Self {
        Self {
            log,
            config: config.clone(),
            route: route.to_owned(),
            outcomes: Counters::default(),
            bypasses: Counters::default(),
            captures: Counters::default(),
            looking: Histogram::define("rolter_cache_lookup_microseconds", &[]),
            has_complained: Cell::new(false),
        }
    }

    /// Whether a request may be looked for.
    pub(crate) fn admits(
        &self,
        wish: Wish,
        dialect: Option<Dialect>,
        caller: Option<&[u8; 32]>,
        has_body: bool,
    ) -> Result<(), Bypass> {
        let conditions = [
            (wish.control != Control::NoStore, Bypass::NoStore),
            (wish.is_post, Bypass::Method),
            (dialect.is_some(), Bypass::Path),
        ];
        if let Some((_, bypass)) = conditions.into_iter().find(|(holds, _)| !holds) {
            return Err(bypass);
        }
        admits(&self.config, caller)?;
        has_body.then_some(()).ok_or(Bypass::Body)
    }

    /// Counts what became of a request, and tells the access log. `detail` is the kind of a hit, the
    /// reason for a bypass, or that the sidecar did not answer.
    pub(crate) fn count(&self, outcome: Outcome, detail: &str) {
        self.outcomes.add_one(outcome, || {
            let labels = [("route", &*self.route), ("outcome", outcome.as_str())];
            Counter::define("rolter_cache_requests", &labels)
        });
        self.log.tell("rolter_route", &self.route);
        self.log.tell("rolter_cache", outcome.told());
        if !detail.is_empty() {
            self.log.tell("rolter_cache_detail", detail);
        }
    }

    /// Counts a request that is not for the cache.
    pub(crate) fn bypass(&self, reason: Bypass) {
        self.bypasses.add_one(reason, || {
            let labels = [("route", &*self.route), ("reason", reason.as_str())];
            Counter::define("rolter_cache_bypasses", &labels)
        });
        self.count(Outcome::Bypass, reason.as_str());
    }

    /// Counts an answer that was to be stored: `sent` to the sidecar, or why not.
    pub(crate) fn captured(&self, outcome: &'static str) {
        self.captures.add_one(outcome, || {
            let labels = [("route", &*self.route), ("outcome", outcome)];
            Counter::define("rolter_cache_captures", &labels)
        });
    }

    /// Tells operators, once, that Envoy cannot call the sidecar.
    pub(crate) fn complain(&self, cluster: &str) {
        if !self.has_complained.replace(true) {
            let route = &self.route;
            log::warn!(
                "the cache of route {route} is of no use now: Envoy has no cluster {cluster:?} with a \
                 host that is well"
            );
        }
    }

    /// Takes note of how long a lookup took.
    pub(crate) fn looked(&self, micros: u64) {
        self.looking.record(micros);
    }
}
