//! An answer is stored, and found by who asks the same or, once its text has a vector, in other words.
//!
//! Invariant: who waits for a vector takes no place of an answer that is to be stored.

use super::embedder::{Answer, Model};
use super::route::Route;
use super::store::{Candidate, Item};
use super::{Cache, now};
use crate::metrics::{Kind, Part};
use bytes::Bytes;
use rolter_core::cache::ExactKey;
use rolter_core::cache::answer::Refusal;
use rolter_core::cache::entry::{Compared, Entry, Ticket};
use rolter_core::cache::vector::Vector;
use rolter_core::time::Millis;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// What it may take to store an answer. No request waits for that.
const STORING: Duration = Duration::from_secs(5);
/// Answers whose texts wait for vectors. Each takes little, and a vector's own time at most.
const MAX_WAITING: usize = 4096;

pub(super) fn places() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_WAITING))
}

/// Why an answer was not stored.
#[derive(Debug)]
pub enum NotStored {
    /// It is not for the cache.
    Refused(Refusal),
    /// It could not be.
    Failed,
}

/// An answer that others may have who ask in other words.
struct Alike {
    route: Arc<Route>,
    model: Arc<Model>,
    exact: ExactKey,
    compared: Compared,
    expires: Millis,
}

impl Cache {
    /// Counts that an answer is not for the cache.
    pub fn refuse(&self, route: &Route, refusal: Refusal) -> Refusal {
        self.counts.refused(&route.name, refusal);
        refusal
    }

    /// Stores an answer to the request that the ticket is of.
    pub async fn store(
        self: &Arc<Self>,
        route: &Arc<Route>,
        ticket: &Ticket,
        content_type: &str,
        body: Bytes,
    ) -> Result<(), NotStored> {
        if let Err(refusal) = route.check(ticket, content_type, &body) {
            return Err(NotStored::Refused(self.refuse(route, refusal)));
        }
        let bytes = body.len();
        let stored = now();
        let entry = Entry {
            exact: ticket.exact,
            partition: ticket.compared.map(|compared| compared.partition),
            stored,
            stream: ticket.stream,
            content_type: content_type.to_owned(),
            body: body.into(),
        };
        let deadline = Instant::now() + STORING;
        if let Err(failure) = self.store.put(entry, route.lifetime(), deadline).await {
            self.counts.failed(failure);
            return Err(NotStored::Failed);
        }
        self.counts.stored(&route.name, Kind::Exact);
        self.counts.bytes_stored(bytes);
        if let (Some(model), Some(compared)) = (&route.model, ticket.compared) {
            let alike = Alike {
                route: Arc::clone(route),
                model: Arc::clone(model),
                exact: ticket.exact,
                compared,
                expires: stored.plus(millis(route.least_lifetime())),
            };
            match self.embedder.remembered(model, compared.text) {
                Some(Answer::Known(Some(vector))) => self.add(&alike, &vector).await,
                Some(Answer::Known(None)) | None => {}
                Some(answer) => self.add_later(alike, answer),
            }
        }
        Ok(())
    }

    /// Adds it to what others are compared with once its text has a vector.
    fn add_later(self: &Arc<Self>, alike: Alike, answer: Answer) {
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            return self.counts.failed(Part::Room);
        };
        let cache = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(vector) = answer.wait().await {
                cache.add(&alike, &vector).await;
            }
            drop(place);
        });
    }

    async fn add(&self, alike: &Alike, vector: &Vector) {
        let Alike { route, model, .. } = alike;
        let Some(window) = route.window(model, alike.compared.partition, vector) else {
            return;
        };
        let candidate = Candidate {
            id: alike.compared.text,
            expires: alike.expires,
            item: Arc::new(Item {
                exact: alike.exact,
                vector: vector.clone(),
            }),
        };
        let deadline = Instant::now() + STORING;
        match self.store.add(&window, candidate, now(), deadline).await {
            Ok(()) => self.counts.stored(&route.name, Kind::Semantic),
            Err(failure) => self.counts.failed(failure),
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
