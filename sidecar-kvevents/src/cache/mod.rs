//! The response cache: looks for answers to requests, and stores answers.
//!
//! Which requests may share an answer, and which answers may be kept, is decided in
//! `rolter_core::cache`; here it is carried out. Invariant: whatever fails, a request has an answer
//! in its time, and where there is nothing else to say it is a miss.
//!
//! | module | idea |
//! |---|---|
//! | [`store`] | where answers are kept |
//! | [`embedder`] | vectors of texts, from a provider of embeddings |
//! | `route` | how a route uses the cache |
//! | `storing` | an answer is stored |
//! | `bounded` | a map that is bounded in bytes, with lifetimes |

mod bounded;
pub mod embedder;
mod route;
pub mod store;
mod storing;

pub use bounded::Size;
pub use route::Route;
pub use store::Failure;
pub use storing::NotStored;

use crate::metrics::{CacheCounts, Kind, Outcome, Part};
use crate::secrets::Secrets;
use bytes::Bytes;
use embedder::{Embedder, Model};
use rolter_core::cache::entry::{Entry, Ticket};
use rolter_core::cache::nearest::nearest;
use rolter_core::cache::{Asked, Bypass, ExactKey, Question, Semantic, admits};
use rolter_core::config::Config;
use rolter_core::time::Millis;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use store::{Memory, Redis, Store};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Candidates that are close enough and whose answers are looked for, one after the other.
const MAX_TRIES: usize = 3;

/// The response cache.
pub struct Cache {
    namespace: String,
    routes: Vec<Arc<Route>>,
    store: Store,
    embedder: Arc<Embedder>,
    counts: Arc<CacheCounts>,
    /// Places for those who wait to be compared with.
    waiting: Arc<Semaphore>,
}

/// A request as the filter asks about it.
pub struct Request<'a> {
    /// The path with its query.
    pub path: &'a [u8],
    /// SHA-256 of the caller's key.
    pub caller: Option<[u8; 32]>,
    /// See [`Asked::versions`].
    pub versions: [&'a [u8]; 3],
    /// The body.
    pub body: Bytes,
    /// Whether the client wants a new answer.
    pub refresh: bool,
}

/// What there is for a request.
pub enum Found {
    /// An answer.
    Hit(Kind, Arc<Entry>, Duration),
    /// None; what to store one with.
    Miss(Ticket),
    /// None, nor is one to be stored.
    Bypass(Bypass),
}

/// The present, as other machines know it, too.
pub fn now() -> Millis {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let millis = since.unwrap_or_default().as_millis();
    Millis(u64::try_from(millis).unwrap_or(u64::MAX))
}

impl Cache {
    /// The cache of a configuration, if any route has one. Begins to connect, where there is
    /// something to connect to.
    pub fn new(config: &Config, secrets: &Arc<Secrets>, client: reqwest::Client) -> Option<Self> {
        let settings = config.cache.clone()?;
        let route = |route: &rolter_core::config::Route| {
            let cache = route.cache.clone()?;
            let route = Route::new(route.name.clone(), cache, &config.providers);
            Some(Arc::new(route))
        };
        let counts = Arc::<CacheCounts>::default();
        let store = match settings.redis {
            None => Store::Memory(Memory::new(settings.max_memory_bytes)),
            Some(redis) => Store::Redis(Redis::new(
                redis,
                secrets.redis_password(),
                settings.namespace.clone(),
                Arc::clone(&counts),
            )),
        };
        let embedder = Embedder::new(client, Arc::clone(secrets), Arc::clone(&counts));
        Some(Self {
            namespace: settings.namespace,
            routes: config.routes.iter().filter_map(route).collect(),
            store,
            embedder: Arc::new(embedder),
            counts,
            waiting: storing::places(),
        })
    }

    /// A route that has a cache, by its name.
    pub fn route(&self, name: &str) -> Option<&Arc<Route>> {
        self.routes.iter().find(|route| route.name == name)
    }

    /// The longest answer that any route keeps.
    pub fn max_entry_bytes(&self) -> usize {
        let each = self.routes.iter().map(|route| route.cache.max_entry_bytes);
        each.max().unwrap_or(0)
    }

    /// What has happened.
    pub fn counts(&self) -> &CacheCounts {
        &self.counts
    }

    /// What is held in memory, by what it is.
    pub fn held(&self) -> [(&'static str, Size); 2] {
        [self.store.held(), ("embeddings", self.embedder.size())]
    }

    /// Whether Redis can be reached, where there is one.
    pub fn is_connected(&self) -> Option<bool> {
        self.store.is_connected()
    }

    /// Looks for an answer until the deadline at most.
    pub async fn look_up(&self, route: &Route, request: Request<'_>, deadline: Instant) -> Found {
        let began = Instant::now();
        let refresh = request.refresh;
        let question = self.read(route, &request);
        // Who waits for an answer holds no body meanwhile.
        drop(request);
        let question = match question {
            Ok(question) => question,
            Err(bypass) => {
                self.counts.bypassed(&route.name, Kind::Exact, bypass);
                let took = began.elapsed();
                self.counts.looked_up(&route.name, Outcome::Bypass, took);
                return Found::Bypass(bypass);
            }
        };
        let found = if refresh {
            self.prepare(route, &question);
            None
        } else {
            self.find(route, &question, deadline).await
        };
        let outcome = match &found {
            Some((Kind::Exact, _)) => Outcome::Exact,
            Some((Kind::Semantic, _)) => Outcome::Semantic,
            None if refresh => Outcome::Refresh,
            None => Outcome::Miss,
        };
        let took = began.elapsed();
        self.counts.looked_up(&route.name, outcome, took);
        match found {
            Some((kind, entry)) => {
                self.counts.bytes_replayed(entry.body.len());
                let age = Duration::from_millis(now().since(entry.stored));
                Found::Hit(kind, entry, age)
            }
            None => Found::Miss(Ticket::of(&question)),
        }
    }

    fn read(&self, route: &Route, request: &Request<'_>) -> Result<Question, Bypass> {
        admits(&route.cache, request.caller.as_ref())?;
        Question::read(&Asked {
            namespace: &self.namespace,
            route: &route.name,
            scope: route.cache.scope,
            path: request.path,
            caller: request.caller,
            versions: request.versions,
            body: &request.body,
        })
    }

    /// Sees to it that there is a vector by the time that an answer is stored.
    fn prepare(&self, route: &Route, question: &Question) {
        if let (Some(model), Ok(semantic)) = (&route.model, &question.semantic) {
            self.embedder.vector(model, &semantic.text);
        }
    }

    async fn find(
        &self,
        route: &Route,
        question: &Question,
        deadline: Instant,
    ) -> Option<(Kind, Arc<Entry>)> {
        match self.get(route, question.exact, deadline).await {
            Ok(Some(entry)) if entry.answers(question.exact, question.stream) => {
                return Some((Kind::Exact, entry));
            }
            // In the wrong place.
            Ok(Some(_)) => self.counts.failed(Part::Decode),
            Ok(None) | Err(Failure::Garbage) => {}
            // There is nothing to compare with, so no vector is paid for.
            Err(Failure::Redis | Failure::Time) => return None,
        }
        let model = route.model.as_ref()?;
        match &question.semantic {
            Ok(semantic) => {
                let alike = self.alike(route, model, semantic, question.stream, deadline);
                Some((Kind::Semantic, alike.await?))
            }
            Err(bypass) => {
                self.counts.bypassed(&route.name, Kind::Semantic, *bypass);
                None
            }
        }
    }

    /// An answer to a request in other words.
    async fn alike(
        &self,
        route: &Route,
        model: &Arc<Model>,
        semantic: &Semantic,
        stream: bool,
        deadline: Instant,
    ) -> Option<Arc<Entry>> {
        let threshold = route.cache.semantic.as_ref()?.threshold;
        let vector = self.embedder.vector(model, &semantic.text)?.wait();
        let Ok(vector) = timeout_at(deadline, vector).await else {
            self.counts.failed(Part::Time);
            return None;
        };
        let vector = vector?;
        let window = route.window(model, semantic.partition, &vector)?;
        let candidates = self.store.candidates(&window, now(), deadline).await;
        let candidates = candidates.map_err(|failure| self.counts.failed(failure));
        let candidates = candidates.ok()?;
        let vectors = candidates.iter().map(|other| (other, &other.item.vector));
        let nearest = nearest(&vector, vectors, threshold, MAX_TRIES);
        if let Some(best) = nearest.best {
            self.counts.compared(best);
        }
        for candidate in nearest.near {
            let key = candidate.item.exact;
            match self.get(route, key, deadline).await {
                Ok(Some(entry))
                    if entry.exact == key && entry.answers_alike(semantic.partition, stream) =>
                {
                    return Some(entry);
                }
                Ok(other) => {
                    if other.is_some() {
                        self.counts.failed(Part::Decode);
                    }
                    self.store.forget(&window.index, candidate, now());
                }
                Err(Failure::Garbage) => {
                    self.store.forget(&window.index, candidate, now());
                }
                Err(Failure::Redis | Failure::Time) => return None,
            }
        }
        None
    }

    async fn get(
        &self,
        route: &Route,
        key: ExactKey,
        deadline: Instant,
    ) -> Result<Option<Arc<Entry>>, Failure> {
        let most = route.cache.max_entry_bytes;
        let entry = self.store.get(key, most, deadline).await;
        entry.inspect_err(|failure| self.counts.failed(*failure))
    }
}
