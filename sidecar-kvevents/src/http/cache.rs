//! Looking for an answer, and storing one: what the filter asks of the response cache.

use super::App;
use crate::cache::{Cache, Found, NotStored, Request, Route};
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Query, State};
use axum::http::header::{AGE, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use rolter_core::cache::answer::Refusal;
use rolter_core::cache::entry::{Entry, Ticket};
use rolter_core::cache::{VERSION_HEADERS, headers};
use rolter_core::hex::from_hex;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

const CACHE: HeaderName = HeaderName::from_static(headers::CACHE);
const KIND: HeaderName = HeaderName::from_static(headers::KIND);
const REASON: HeaderName = HeaderName::from_static(headers::REASON);
const TICKET: HeaderName = HeaderName::from_static(headers::TICKET);

const DEFAULT_TIMEOUT_MILLIS: u64 = 50;
const MAX_TIMEOUT_MILLIS: u64 = 10_000;

#[derive(Deserialize)]
pub(super) struct Asked {
    route: String,
    /// Who shares answers, as the filter has it.
    scope: String,
    timeout_ms: Option<u64>,
    #[serde(default)]
    refresh: bool,
}

#[derive(Deserialize)]
pub(super) struct Stored {
    route: String,
}

/// Why there is no answer at all, and so a miss for the filter.
struct Refused(StatusCode, String);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, self.1 + "\n").into_response()
    }
}

pub(super) async fn look_up(
    State(app): State<Arc<App>>,
    Query(asked): Query<Asked>,
    given: HeaderMap,
    body: Bytes,
) -> Response {
    let began = Instant::now();
    let (cache, route) = match of_route(&app, &asked.route) {
        Ok(found) => found,
        Err(refused) => return refused.into_response(),
    };
    // The filter may have another configuration by now, and who is not to share any more must not.
    if asked.scope != route.cache.scope.as_str() {
        let what = "the cache of this route has another scope here; start the sidecar anew";
        return Refused(StatusCode::CONFLICT, what.into()).into_response();
    }
    let value = |name: &str| given.get(name).map_or(&b""[..], HeaderValue::as_bytes);
    let caller = match given.get(headers::CALLER) {
        None => None,
        Some(caller) => match caller.to_str().ok().and_then(from_hex) {
            Some(caller) => Some(caller),
            None => {
                let what = "x-rolter-caller is no SHA-256; write its 64 hex digits";
                return Refused(StatusCode::BAD_REQUEST, what.into()).into_response();
            }
        },
    };
    let request = Request {
        path: value(headers::PATH),
        caller,
        versions: VERSION_HEADERS.map(value),
        body,
        refresh: asked.refresh,
    };
    let deadline = began + within(asked.timeout_ms.unwrap_or(DEFAULT_TIMEOUT_MILLIS));
    match cache.look_up(route, request, deadline).await {
        Found::Hit(kind, entry, age) => hit(kind.as_str(), entry, age),
        Found::Miss(ticket) => [(CACHE, "miss"), (TICKET, &ticket.to_text())].into_response(),
        Found::Bypass(why) => [(CACHE, "bypass"), (REASON, why.as_str())].into_response(),
    }
}

/// What is left of the filter's patience when the way to it is taken off, so that a miss is there in
/// time.
fn within(timeout_millis: u64) -> Duration {
    let timeout = Duration::from_millis(timeout_millis.min(MAX_TIMEOUT_MILLIS));
    let way = (timeout / 10).clamp(Duration::from_millis(1), Duration::from_millis(10));
    timeout.saturating_sub(way)
}

fn hit(kind: &'static str, entry: Arc<Entry>, age: Duration) -> Response {
    let Ok(content_type) = HeaderValue::from_str(&entry.content_type) else {
        // What was stored came as a header.
        return Refused(StatusCode::INTERNAL_SERVER_ERROR, "no content type".into())
            .into_response();
    };
    let headers = [
        (CACHE, HeaderValue::from_static("hit")),
        (KIND, HeaderValue::from_static(kind)),
        (AGE, HeaderValue::from(age.as_secs())),
        (CONTENT_TYPE, content_type),
    ];
    (headers, Bytes::from_owner(Body(entry))).into_response()
}

/// The body of an answer where it is, without a copy.
struct Body(Arc<Entry>);

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        &self.0.body
    }
}

pub(super) async fn store(
    State(app): State<Arc<App>>,
    Query(asked): Query<Stored>,
    given: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let text = |name| {
        given
            .get(name)
            .and_then(|value: &HeaderValue| value.to_str().ok())
    };
    let (cache, route) = match of_route(&app, &asked.route) {
        Ok(found) => found,
        Err(refused) => return refused.into_response(),
    };
    let Some(ticket) = text(TICKET).and_then(Ticket::from_text) else {
        let what = "x-rolter-ticket is none of a lookup's";
        return Refused(StatusCode::BAD_REQUEST, what.into()).into_response();
    };
    let content_type = text(CONTENT_TYPE).unwrap_or_default();
    let stored = match body {
        Ok(body) => cache.store(route, &ticket, content_type, body).await,
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            Err(NotStored::Refused(cache.refuse(route, Refusal::TooLarge)))
        }
        Err(error) => return error.into_response(),
    };
    match stored {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(NotStored::Refused(why)) => {
            let headers = [(REASON, why.as_str())];
            (StatusCode::UNPROCESSABLE_ENTITY, headers).into_response()
        }
        Err(NotStored::Failed) => {
            let what = "the store cannot be written to now";
            Refused(StatusCode::SERVICE_UNAVAILABLE, what.into()).into_response()
        }
    }
}

fn of_route<'a>(app: &'a App, name: &str) -> Result<(&'a Arc<Cache>, &'a Arc<Route>), Refused> {
    let cache = app.cache.as_ref();
    let found = cache.and_then(|cache| Some((cache, cache.route(name)?)));
    found.ok_or_else(|| {
        let what = format!("no route {name:?} that has a cache");
        Refused(StatusCode::NOT_FOUND, what)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_filter_has_an_answer_before_it_gives_up() {
        for (timeout, within_millis) in [(0, 0), (1, 0), (5, 4), (50, 45), (1_000, 990)] {
            let expected = Duration::from_millis(within_millis);
            assert_eq!(within(timeout), expected, "{timeout}");
        }
        assert!(within(u64::MAX) <= Duration::from_millis(MAX_TIMEOUT_MILLIS));
    }
}
