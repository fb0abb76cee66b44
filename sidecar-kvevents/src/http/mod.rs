//! What Envoy and whoever collects metrics can ask.
//!
//! Invariant: connections, and requests of each kind, are bounded in number, size and time, so that
//! whoever asks too much of one kind is refused and the others go on.

mod feed;
mod listen;
mod tokenize;

pub use listen::{Bound, serve};

use crate::metrics::{self, HttpCounts};
use crate::state::State;
use axum::Router;
use axum::extract::{self, DefaultBodyLimit, Request};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use rolter_core::config::Config;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

/// Readers of the feed at once. One worker of each Envoy reads it for all.
const MAX_READERS: usize = 64;
/// Prompts that wait for their tokens at once.
const MAX_PROMPTS: usize = 512;
/// Operators' requests at once.
const MAX_OPERATORS: usize = 16;
/// The longest that any of them takes.
const TIMEOUT: Duration = Duration::from_secs(40);

/// What requests are answered from.
pub struct App {
    /// What is known.
    pub state: Arc<State>,
    /// The routes and their targets.
    pub config: Config,
    /// Who asks engines.
    pub client: reqwest::Client,
    /// What has happened.
    pub counts: HttpCounts,
}

impl App {
    /// Answers from these.
    pub fn new(state: Arc<State>, config: Config, client: reqwest::Client) -> Self {
        Self {
            state,
            config,
            client,
            counts: HttpCounts::default(),
        }
    }
}

/// All that Envoy asks.
pub fn for_envoy(app: &Arc<App>) -> Router {
    let feed = Router::new().route("/v1/feed", get(feed::feed));
    let tokenize = Router::new()
        .route("/v1/tokenize", post(tokenize::tokenize))
        .layer(DefaultBodyLimit::max(app.config.max_request_bytes));
    bounded(feed, MAX_READERS)
        .merge(bounded(tokenize, MAX_PROMPTS))
        .with_state(Arc::clone(app))
        .merge(for_operators(app))
}

/// What tells how the sidecar is.
pub fn for_operators(app: &Arc<App>) -> Router {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .route("/metrics", get(exposition));
    bounded(router, MAX_OPERATORS).with_state(Arc::clone(app))
}

/// Ready as soon as it is there: a target of which nothing is known is a neutral one.
async fn ready(extract::State(app): extract::State<Arc<App>>) -> String {
    let replicas = app.state.replicas();
    let trusted = replicas
        .iter()
        .filter(|replica| replica.view().trusted)
        .count();
    format!(
        "ok, {trusted} of {} event streams are trusted\n",
        replicas.len()
    )
}

async fn exposition(extract::State(app): extract::State<Arc<App>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let text = metrics::render(&app.state, &app.counts);
    ([(header::CONTENT_TYPE, kind)], text).into_response()
}

/// With so many requests at once at most.
fn bounded(router: Router<Arc<App>>, places: usize) -> Router<Arc<App>> {
    router.layer(from_fn_with_state(Arc::new(Semaphore::new(places)), bound))
}

async fn bound(
    extract::State(places): extract::State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let Ok(_place) = places.try_acquire() else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            "too many requests at once\n",
        )
            .into_response();
    };
    match tokio::time::timeout(TIMEOUT, next.run(request)).await {
        Ok(response) => response,
        Err(_) => (StatusCode::REQUEST_TIMEOUT, "it took too long\n").into_response(),
    }
}
