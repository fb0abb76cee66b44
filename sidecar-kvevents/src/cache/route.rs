//! How a route uses the cache.

use super::embedder::Model;
use super::store::{Index, Window};
use rolter_core::cache::Partition;
use rolter_core::cache::answer::{self, Refusal};
use rolter_core::cache::entry::{MAX_CONTENT_TYPE_BYTES, Ticket};
use rolter_core::cache::vector::Vector;
use rolter_core::config::{Provider, RouteCache};
use std::sync::Arc;
use std::time::Duration;

/// The least part of its time that an answer lives. Lifetimes differ, so that what was stored together
/// does not expire together.
const LEAST_LIFETIME: f64 = 0.9;

/// A route that has a cache.
pub struct Route {
    /// Its name.
    pub name: String,
    /// How it uses the cache.
    pub cache: RouteCache,
    /// Who makes vectors for it, where requests in other words are looked for.
    pub(super) model: Option<Arc<Model>>,
}

impl Route {
    pub(super) fn new(name: String, cache: RouteCache, providers: &[Provider]) -> Self {
        let semantic = cache.semantic.as_ref();
        let model = semantic.and_then(|semantic| Model::new(semantic, providers));
        Self {
            name,
            model: model.map(Arc::new),
            cache,
        }
    }

    /// How long an answer is kept.
    pub(super) fn lifetime(&self) -> Duration {
        let most = Duration::from_secs(self.cache.ttl_secs);
        most.mul_f64(LEAST_LIFETIME + (1.0 - LEAST_LIFETIME) * fastrand::f64())
    }

    /// How long its text is compared: the same for all, so that what expires first was stored first,
    /// and no longer than there is an answer.
    pub(super) fn least_lifetime(&self) -> Duration {
        Duration::from_secs(self.cache.ttl_secs).mul_f64(LEAST_LIFETIME)
    }

    /// What a text of a partition is compared with. Nothing where requests in other words are not looked for.
    pub(super) fn window(
        &self,
        model: &Model,
        partition: Partition,
        vector: &Vector,
    ) -> Option<Window> {
        let most = self.cache.semantic.as_ref()?.max_candidates;
        let dimension = vector.dimension();
        let index = Index::of(partition, &model.provider, &model.name, dimension);
        Some(Window::new(index, dimension, most))
    }

    /// Whether it keeps an answer to the request that the ticket is of.
    pub(super) fn check(
        &self,
        ticket: &Ticket,
        content_type: &str,
        body: &[u8],
    ) -> Result<(), Refusal> {
        if content_type.len() > MAX_CONTENT_TYPE_BYTES {
            return Err(Refusal::ContentType);
        }
        if body.len() > self.cache.max_entry_bytes {
            return Err(Refusal::TooLarge);
        }
        answer::check(ticket.dialect, ticket.stream, content_type, body)
    }
}
