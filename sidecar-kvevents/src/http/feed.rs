//! The feed: what has changed since the reader asked last, as soon as there is something.

use super::App;
use crate::state::FeedCursor;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// The longest that a reader may wait.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// After the first news, more of them are gathered for so long: an engine's batches come in bursts,
/// and a page costs all workers of Envoy some work.
const GATHER: Duration = Duration::from_millis(5);

#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    cursor: String,
    #[serde(default)]
    wait_ms: u64,
}

pub(super) async fn feed(State(app): State<Arc<App>>, Query(asked): Query<Asked>) -> Response {
    // What is no cursor is as good as none: who has it would come with it again and again.
    let cursor = asked.cursor.parse::<FeedCursor>().ok();
    let behind = cursor.map_or(0, |cursor| app.state.index().behind(&cursor.blocks));
    app.counts.feed_lag.store(behind, Ordering::Relaxed);
    let _reading = Reading::new(&app.counts.feed_readers);
    let mut news = app.state.news();
    if cursor.is_some_and(|cursor| app.state.is_current(&cursor)) {
        let wait = Duration::from_millis(asked.wait_ms).min(MAX_WAIT);
        if tokio::time::timeout(wait, news.changed()).await.is_ok() {
            tokio::time::sleep(GATHER.min(wait)).await;
        }
    }
    let page = app.state.page(cursor);
    app.counts.feed_pages.fetch_add(1, Ordering::Relaxed);
    (
        [(header::CONTENT_TYPE, "application/msgpack")],
        page.to_bytes(),
    )
        .into_response()
}

/// Counts a reader for as long as it is there, which it may cease to be at any time.
struct Reading<'a>(&'a AtomicU64);

impl<'a> Reading<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Reading<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
