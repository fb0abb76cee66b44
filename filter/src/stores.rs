//! Complete answers on their way to the sidecar.
//!
//! Invariant: a worker hands over no more than so many between two ticks, so that no burst of them
//! holds up what it does for clients. What is beyond that waits, and is bounded.

use crate::cache::Cache;
use crate::host;
use crate::room::Room;
use proxy_wasm::hostcalls;
use rolter_core::cache::answer::Refusal;
use rolter_core::cache::headers::TICKET;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

/// Answers that are handed over between two ticks: more than engines complete, but for bursts.
const AT_ONCE: usize = 128;
/// Answers that wait, for a few seconds at most.
const MAX_WAITING: usize = 4096;
/// How long the sidecar may take for one. Nobody waits for it.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A complete answer.
pub(crate) struct Store {
    pub(crate) cache: Rc<Cache>,
    /// The cluster of the sidecar.
    pub(crate) cluster: Rc<str>,
    pub(crate) ticket: String,
    pub(crate) content_type: String,
    pub(crate) body: Vec<u8>,
    /// That the body takes.
    pub(crate) room: Room,
}

pub(crate) struct Stores {
    /// How many may be handed over until the next tick.
    left: Cell<usize>,
    waiting: RefCell<VecDeque<Store>>,
}

impl Stores {
    pub(crate) fn new() -> Self {
        Self {
            left: Cell::new(AT_ONCE),
            waiting: RefCell::default(),
        }
    }

    /// Hands an answer over, or lets it wait.
    pub(crate) fn add(&self, store: Store) {
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            return store.send();
        }
        let mut waiting = self.waiting.borrow_mut();
        if waiting.len() < MAX_WAITING {
            waiting.push_back(store);
        } else {
            store.cache.captured(Refusal::NoRoom.as_str());
        }
    }

    /// Hands over what has waited.
    pub(crate) fn tick(&self) {
        self.left.set(AT_ONCE);
        while self.left.get() > 0 {
            // Nothing is borrowed while one is sent.
            let next = self.waiting.borrow_mut().pop_front();
            let Some(store) = next else { break };
            self.left.set(self.left.get() - 1);
            store.send();
        }
    }
}

impl Store {
    fn send(self) {
        let query = format!("/v1/cache/entries?route={}", self.cache.route);
        let headers = vec![
            (":method", "POST"),
            (":path", &query),
            (":authority", host::SIDECAR),
            ("content-type", &self.content_type),
            (TICKET, &self.ticket),
        ];
        let body = Some(&*self.body);
        let call = hostcalls::dispatch_http_call(&self.cluster, headers, body, vec![], TIMEOUT);
        let outcome = if call.is_ok() { "sent" } else { "unsent" };
        self.cache.captured(outcome);
        // Envoy has a copy.
        drop(self.room);
    }
}
