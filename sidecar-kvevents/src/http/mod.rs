//! What Envoy and whoever collects metrics can ask.
//!
//! Invariant: connections, and requests of each kind, are bounded in number, size and time, so that
//! whoever asks too much of one kind is refused and the others go on.

mod cache;
mod feed;
mod listen;
mod tokenize;

pub use listen::{Bound, serve};

use crate::cache::Cache;
use crate::metrics::{self, HttpCounts};
use crate::secrets::Secrets;
use crate::state::State;
use axum::Router;
use axum::extract::{self, DefaultBodyLimit, Request};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rolter_core::config::Config;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

/// Readers of the feed at once. One worker of each Envoy reads it for all.
const MAX_READERS: usize = 64;
/// Prompts that wait for their tokens at once.
const MAX_PROMPTS: usize = 512;
/// Requests that answers are looked for at once.
const MAX_LOOKUPS: usize = 1024;
/// KiB of answers that are being stored at once, each of which is there up to three times: as it came,
/// as it is stored, and on its way. Their number is bounded by that of connections.
const MAX_STORED_KIB: usize = 64 << 10;
/// KiB of requests that answers are looked for at once.
const MAX_ASKED_KIB: usize = 256 << 10;
/// How long answers wait for room. No request waits for that.
const ROOM_TIMEOUT: Duration = Duration::from_secs(5);
/// Operators' requests at once.
const MAX_OPERATORS: usize = 16;
/// The longest that any of them takes.
const TIMEOUT: Duration = Duration::from_secs(40);
/// An Envoy that waits for longer than this would serve those targets that are known no more.
pub const NAMES_PATIENCE: Duration = Duration::from_mins(1);

/// What requests are answered from.
pub struct App {
    /// What is known.
    pub state: Arc<State>,
    /// The routes and their targets.
    pub config: Config,
    /// Who asks engines.
    pub client: reqwest::Client,
    /// What authorizes there.
    pub secrets: Arc<Secrets>,
    /// The response cache, if any route has one.
    pub cache: Option<Arc<Cache>>,
    /// What has happened.
    pub counts: HttpCounts,
    began: Instant,
}

impl App {
    /// Answers from these.
    pub fn new(
        state: Arc<State>,
        config: Config,
        client: reqwest::Client,
        secrets: Arc<Secrets>,
    ) -> Self {
        Self {
            cache: Cache::new(&config, &secrets, client.clone()).map(Arc::new),
            state,
            secrets,
            config,
            client,
            counts: HttpCounts::default(),
            began: Instant::now(),
        }
    }
}

/// All that Envoy asks.
pub fn for_envoy(app: &Arc<App>) -> Router {
    let feed = Router::new().route("/v1/feed", get(feed::feed));
    let tokenize = Router::new()
        .route("/v1/tokenize", post(tokenize::tokenize))
        .layer(DefaultBodyLimit::max(app.config.max_request_bytes));
    let room = |kib, longest, patience| Room {
        app: Arc::clone(app),
        kib: Arc::new(Semaphore::new(kib)),
        longest,
        patience,
    };
    let longest = app.config.max_request_bytes;
    let asked = room(MAX_ASKED_KIB, longest, Duration::ZERO);
    let lookups = Router::new()
        .route("/v1/cache/lookup", post(cache::look_up))
        .layer(DefaultBodyLimit::max(longest))
        .layer(from_fn_with_state(asked, with_room));
    let longest = app.cache.as_deref().map_or(0, Cache::max_entry_bytes);
    let answered = room(MAX_STORED_KIB, longest, ROOM_TIMEOUT);
    let stores = Router::new()
        .route("/v1/cache/entries", post(cache::store))
        .layer(DefaultBodyLimit::max(longest))
        .layer(from_fn_with_state(answered, with_room));
    bounded(app, feed, MAX_READERS)
        .merge(bounded(app, tokenize, MAX_PROMPTS))
        .merge(bounded(app, lookups, MAX_LOOKUPS))
        .merge(stores)
        .with_state(Arc::clone(app))
        .merge(for_operators(app))
}

/// What tells how the sidecar is.
pub fn for_operators(app: &Arc<App>) -> Router {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposition));
    bounded(app, router, MAX_OPERATORS).with_state(Arc::clone(app))
}

/// Ready as soon as DNS has answered for each name, or has not for [`NAMES_PATIENCE`]: before that, Envoy
/// may have no target that it will have a moment later. A target of which nothing is known is a neutral
/// one.
async fn ready(extract::State(app): extract::State<Arc<App>>) -> (StatusCode, String) {
    let names = app.state.names();
    let waits: Vec<&str> = names
        .iter()
        .filter(|name| !name.counts.is_answered())
        .map(|name| name.provider.as_str())
        .collect();
    if !waits.is_empty() && app.began.elapsed() < NAMES_PATIENCE {
        let text = format!("looking for the addresses of {}\n", waits.join(", "));
        return (StatusCode::SERVICE_UNAVAILABLE, text);
    }
    let (targets, replicas) = (app.state.targets(), app.state.replicas());
    let trusted = replicas.iter().filter(|replica| replica.view().trusted);
    let (trusted, all) = (trusted.count(), replicas.len());
    let mut text = format!("ok, {trusted} of {all} event streams are trusted");
    for name in names {
        let own = targets
            .iter()
            .filter(|target| target.provider == name.place);
        let (present, gone): (Vec<_>, Vec<_>) = own.partition(|target| target.is_present());
        let (provider, present, gone) = (&name.provider, present.len(), gone.len());
        text += &format!("; targets of {provider}: {present}, gone: {gone}");
    }
    text.push('\n');
    (StatusCode::OK, text)
}

async fn exposition(extract::State(app): extract::State<Arc<App>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = metrics::render(&app.state, &app.counts, app.cache.as_deref());
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// Room for bodies, by what they announce.
#[derive(Clone)]
struct Room {
    app: Arc<App>,
    kib: Arc<Semaphore>,
    /// What one takes that announces nothing; far less than there is.
    longest: usize,
    /// How long one waits for room.
    patience: Duration,
}

impl Room {
    /// Of a body with these headers, its request included.
    fn of(&self, headers: &HeaderMap) -> u32 {
        let length = headers.get(header::CONTENT_LENGTH);
        let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
        let bytes = length.unwrap_or(self.longest).min(self.longest);
        u32::try_from(1 + bytes / 1024).unwrap_or(u32::MAX)
    }
}

/// Waits for room before it reads a body.
async fn with_room(
    extract::State(room): extract::State<Room>,
    request: Request,
    next: Next,
) -> Response {
    let kib = room.kib.acquire_many(room.of(request.headers()));
    let Ok(Ok(_room)) = timeout(room.patience, kib).await else {
        return too_many(&room.app);
    };
    in_time(next.run(request)).await
}

/// With so many requests at once at most.
fn bounded(app: &Arc<App>, router: Router<Arc<App>>, places: usize) -> Router<Arc<App>> {
    let bounds = (Arc::clone(app), Arc::new(Semaphore::new(places)));
    router.layer(from_fn_with_state(bounds, bound))
}

async fn bound(
    extract::State((app, places)): extract::State<(Arc<App>, Arc<Semaphore>)>,
    request: Request,
    next: Next,
) -> Response {
    let Ok(_place) = places.try_acquire() else {
        return too_many(&app);
    };
    in_time(next.run(request)).await
}

fn too_many(app: &App) -> Response {
    metrics::add(&app.counts.refused, 1);
    let what = "too many requests at once\n";
    (StatusCode::SERVICE_UNAVAILABLE, what).into_response()
}

async fn in_time(response: impl Future<Output = Response>) -> Response {
    let too_long = || (StatusCode::REQUEST_TIMEOUT, "it took too long\n").into_response();
    let response = timeout(TIMEOUT, response).await;
    response.unwrap_or_else(|_| too_long())
}
