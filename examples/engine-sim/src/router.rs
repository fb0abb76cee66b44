//! From a request to its response: read it, write it down, let a fault strike, answer it.

use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{Method, Request, StatusCode};
use serde_json::{Value, json};

use crate::api::{self, Api};
use crate::faults::{FAULT_HEADER, Fault};
use crate::kv_events::KvFault;
use crate::metrics;
use crate::occupancy::Occupancy;
use crate::receive::{Received, receive};
use crate::reply::{self, ApiError, ErrorShape, Reply};
use crate::server::Abort;
use crate::state::Shared;

/// What a path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Route {
    Infer(Api),
    Render(Api),
    Embeddings,
    Tokenize,
    Models,
    ResetPrefixCache,
    Health,
    Metrics,
    Occupancy,
    SimState,
    SimFault,
    SimKvEvents,
    SimOccupancy,
    SimReset,
}

impl Route {
    fn of(path: &str) -> Option<Self> {
        Some(match path {
            "/v1/embeddings" => Self::Embeddings,
            "/tokenize" => Self::Tokenize,
            "/v1/models" => Self::Models,
            "/reset_prefix_cache" => Self::ResetPrefixCache,
            "/v1/occupancy" => Self::Occupancy,
            "/sim/kv-events" => Self::SimKvEvents,
            "/sim/occupancy" => Self::SimOccupancy,
            "/health" => Self::Health,
            "/metrics" => Self::Metrics,
            "/sim/state" => Self::SimState,
            "/sim/fault" => Self::SimFault,
            "/sim/reset" => Self::SimReset,
            _ => match Api::from_path(path) {
                Some(api) => Self::Infer(api),
                None => Self::Render(Api::rendered_at(path)?),
            },
        })
    }

    fn method(self) -> Method {
        match self {
            Self::Models | Self::Health | Self::Metrics | Self::Occupancy | Self::SimState => {
                Method::GET
            }
            _ => Method::POST,
        }
    }

    /// Routes about the simulator itself: no part of an engine, so neither counted nor faulty.
    fn is_sim(self) -> bool {
        matches!(
            self,
            Self::SimState
                | Self::SimFault
                | Self::SimKvEvents
                | Self::SimOccupancy
                | Self::SimReset
        )
    }

    /// Routes that others poll: not kept as recent, and left alone by a fault of the whole engine.
    fn is_spared(self) -> bool {
        self.is_sim() || matches!(self, Self::Health | Self::Metrics | Self::Occupancy)
    }
}

/// Answers a request.
pub(crate) async fn answer(shared: Arc<Shared>, abort: Abort, request: Request<Incoming>) -> Reply {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path();
    let route = Route::of(path);
    let Received { record, body } = receive(&shared, &parts, body).await;
    if !route.is_some_and(Route::is_sim) {
        shared.count(route.map(|_| path));
    }
    // Those who poll would push out all that is worth a look.
    if !route.is_some_and(Route::is_spared) {
        shared.record(record);
    }

    let api = match route {
        Some(Route::Infer(api)) => Some(api),
        _ => None,
    };
    let answered = match fault(&shared, &parts, route) {
        Ok(None) => dispatch(&shared, route, &parts, body).await,
        Ok(Some(fault)) => match fault.strike(&abort).await {
            Ok(()) => dispatch(&shared, route, &parts, body)
                .await
                .map(|reply| fault.spoil(api, reply, abort)),
            Err(error) => Err(error),
        },
        Err(error) => Err(error),
    };
    let shape = api.map_or(ErrorShape::OpenAi, Api::error_shape);
    let mut reply = answered.unwrap_or_else(|error| error.reply(shape));
    reply::set(
        &mut reply,
        HeaderName::from_static("x-engine"),
        &shared.config.name,
    );
    reply
}

/// The fault that strikes a request: its own, or else the engine's.
fn fault(shared: &Shared, parts: &Parts, route: Option<Route>) -> Result<Option<Fault>, ApiError> {
    if route.is_some_and(Route::is_sim) {
        return Ok(None);
    }
    if let Some(value) = parts.headers.get(FAULT_HEADER) {
        let value = String::from_utf8_lossy(value.as_bytes());
        return parse_fault(&value).map(Some);
    }
    let left_alone = route.is_some_and(Route::is_spared);
    Ok(shared.fault().filter(|_| !left_alone))
}

fn parse_fault(text: &str) -> Result<Fault, ApiError> {
    text.parse()
        .map_err(|error: crate::UnknownFault| ApiError::bad_request(error.to_string()))
}

async fn dispatch(
    shared: &Arc<Shared>,
    route: Option<Route>,
    parts: &Parts,
    body: Result<Bytes, ApiError>,
) -> Result<Reply, ApiError> {
    let body = body?;
    let route =
        route.ok_or_else(|| ApiError::not_found(format!("There is no {}.", parts.uri.path())))?;
    if parts.method != route.method() {
        let message = format!("Use {} here.", route.method());
        return Err(ApiError::new(StatusCode::METHOD_NOT_ALLOWED, message));
    }
    Ok(match route {
        Route::Infer(api) => {
            let mut request = api::parse(api, &parse_json(&body)?)?;
            request.rank = asked_rank(parts);
            drop(body);
            return api::infer(shared, request).await;
        }
        Route::Render(api) => api::render(shared, api, &parse_json(&body)?)?,
        Route::Embeddings => ok(&api::embeddings(shared, &parse_json(&body)?)?),
        Route::Tokenize => ok(&api::tokenize(shared, &parse_json(&body)?)?),
        Route::Models => ok(&api::models(&shared.config)),
        Route::Health => reply::whole(StatusCode::OK, reply::JSON, Bytes::new()),
        Route::Metrics => {
            let kind = "text/plain; version=0.0.4; charset=utf-8";
            reply::whole(StatusCode::OK, kind, metrics::render(shared))
        }
        Route::ResetPrefixCache => {
            shared.clear_caches();
            reply::whole(StatusCode::OK, reply::JSON, Bytes::new())
        }
        Route::Occupancy => shared.occupancy().reply(&shared.stats())?,
        Route::SimKvEvents => {
            strike_kv_events(shared, &parse_json(&body)?)?;
            ok(&json!({}))
        }
        Route::SimOccupancy => {
            shared.set_occupancy(Occupancy::asked(&parse_json(&body)?)?);
            ok(&json!({}))
        }
        Route::SimState => ok(&shared.snapshot()),
        Route::SimFault => {
            shared.set_fault(asked_fault(&parse_json(&body)?)?);
            ok(&json!({"fault": shared.stats().fault}))
        }
        Route::SimReset => {
            shared.reset();
            ok(&json!({}))
        }
    })
}

/// The data-parallel rank that a request names. What is no number is ignored, as vLLM does.
fn asked_rank(parts: &Parts) -> Option<usize> {
    let rank = parts.headers.get("x-data-parallel-rank")?;
    rank.to_str().ok()?.trim().parse().ok()
}

/// `{"fault": "drop=3", "rank": 0}`, where no rank means all of them.
fn strike_kv_events(shared: &Shared, body: &Value) -> Result<(), ApiError> {
    let fault = body
        .get("fault")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let fault: KvFault = fault
        .parse()
        .map_err(|error: crate::UnknownKvFault| ApiError::bad_request(error.to_string()))?;
    let ranks = match body.get("rank") {
        None | Some(Value::Null) => 0..shared.ranks.len(),
        Some(rank) => {
            let rank = rank.as_u64().and_then(|rank| usize::try_from(rank).ok());
            let rank = rank.ok_or_else(|| ApiError::bad_request("rank must be a number"))?;
            rank..rank.saturating_add(1)
        }
    };
    for rank in ranks {
        shared
            .strike_kv_events(rank, fault)
            .map_err(|_| ApiError::bad_request(format!("rank {rank} publishes no KV events")))?;
    }
    Ok(())
}

fn asked_fault(body: &Value) -> Result<Option<Fault>, ApiError> {
    match body.get("fault") {
        Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => parse_fault(text).map(Some),
        _ => Err(ApiError::bad_request("fault must be a string or null")),
    }
}

fn parse_json(body: &[u8]) -> Result<Value, ApiError> {
    let malformed =
        |error| ApiError::bad_request(format!("The body is not JSON that can be read: {error}"));
    serde_json::from_slice(body).map_err(malformed)
}

fn ok(body: &Value) -> Reply {
    reply::json(StatusCode::OK, body)
}
