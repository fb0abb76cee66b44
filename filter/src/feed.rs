//! What this VM asks of the sidecar in the background: what engines have, how they are.
//!
//! The VM that leads asks for all of them. The sidecar holds a question until there is something to
//! tell, so the next one follows each answer at once.

use crate::host;
use crate::metrics::{Counter, Gauge};
use proxy_wasm::hostcalls;
use rolter_core::kv::feed::Page;
use rolter_core::time::Millis;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::time::Duration;

/// How long the sidecar may hold a question. What it tells of ages is renewed with each answer.
const WAIT_MILLIS: u64 = 1_000;

/// How long its answer may take, with the way there and back.
const PATIENCE_MILLIS: u64 = WAIT_MILLIS + 2_000;

/// How long after a question without an answer the next one follows.
const REST_MILLIS: u64 = 250;

pub(crate) struct Feed {
    /// The clusters of the sidecar that configurations name, the newest last.
    clusters: RefCell<Vec<Weak<str>>>,
    /// The question that is under way.
    asked: RefCell<Option<Asked>>,
    /// When to ask again.
    rests_until: Cell<Millis>,
    pages: Counter,
    failures: Counter,
    connected: Gauge,
}

/// What came of a question.
pub(crate) enum Answer {
    Page(Page),
    /// The sidecar could not be reached, or did not answer with a page.
    Failure,
}

struct Asked {
    /// The number of the call.
    token: u32,
    /// When it is given up.
    until: Millis,
    /// What gets the answer: without it, none comes.
    asker: Weak<()>,
}

impl Feed {
    pub(crate) fn new() -> Self {
        Self {
            clusters: RefCell::default(),
            asked: RefCell::default(),
            rests_until: Cell::default(),
            pages: Counter::define("rolter_feed_pages", &[]),
            failures: Counter::define("rolter_feed_failures", &[]),
            connected: Gauge::define("rolter_feed_connected", &[]),
        }
    }

    /// Asks this cluster for as long as somebody has it and there is no newer one.
    pub(crate) fn add_cluster(&self, cluster: &Rc<str>) {
        self.clusters.borrow_mut().push(Rc::downgrade(cluster));
    }

    /// Asks on behalf of a root context, unless a question is under way or one has failed a moment
    /// ago. `cursor` is where to go on, or nothing to begin anew.
    pub(crate) fn ask(&self, asker: &Rc<()>, cursor: Option<&str>, now: Millis) {
        let Some(cluster) = self.cluster() else {
            self.connected.put(0);
            return;
        };
        if let Some(asked) = self.asked.take() {
            let patience = asked.until.since(now);
            if asked.asker.strong_count() > 0 && (1..=PATIENCE_MILLIS).contains(&patience) {
                self.asked.replace(Some(asked));
                return;
            }
            if patience == 0 {
                self.fail(now);
            }
        }
        let rest = self.rests_until.get();
        if now < rest && rest.since(now) <= REST_MILLIS {
            return;
        }
        let mut path = format!("/v1/feed?wait_ms={WAIT_MILLIS}");
        if let Some(cursor) = cursor {
            path.extend(["&cursor=", cursor]);
        }
        let headers = vec![
            (":method", "GET"),
            (":path", &path),
            (":authority", host::SIDECAR),
        ];
        let timeout = Duration::from_millis(PATIENCE_MILLIS);
        let call = hostcalls::dispatch_http_call(&cluster, headers, None, vec![], timeout);
        match call {
            Ok(token) => {
                self.asked.replace(Some(Asked {
                    token,
                    until: now.plus(PATIENCE_MILLIS),
                    asker: Rc::downgrade(asker),
                }));
            }
            // There is no such cluster, or none of its hosts is well.
            Err(_) => self.fail(now),
        }
    }

    /// Takes an answer. Nothing where it is to an older question.
    pub(crate) fn answer(
        &self,
        token: u32,
        headers: usize,
        size: usize,
        now: Millis,
    ) -> Option<Answer> {
        let mut asked = self.asked.borrow_mut();
        asked.take_if(|asked| asked.token == token)?;
        drop(asked);
        let body = host::call_body(headers, size);
        let page = body.and_then(|body| Page::from_bytes(&body).ok());
        let Some(page) = page else {
            self.fail(now);
            return Some(Answer::Failure);
        };
        self.pages.add(1);
        self.connected.put(1);
        Some(Answer::Page(page))
    }

    fn cluster(&self) -> Option<Rc<str>> {
        let mut clusters = self.clusters.borrow_mut();
        clusters.retain(|cluster| cluster.strong_count() > 0);
        clusters.last()?.upgrade()
    }

    fn fail(&self, now: Millis) {
        self.failures.add(1);
        self.connected.put(0);
        self.rests_until.set(now.plus(REST_MILLIS));
    }
}
