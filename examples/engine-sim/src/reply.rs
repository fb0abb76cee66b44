//! Responses: JSON, event streams, and errors in the shape of the API that was asked.

use std::convert::Infallible;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

/// A response body.
pub(crate) type Body = UnsyncBoxBody<Bytes, Infallible>;
/// A response.
pub(crate) type Reply = Response<Body>;

pub(crate) const JSON: &str = "application/json";
pub(crate) const EVENT_STREAM: &str = "text/event-stream; charset=utf-8";

/// A response with a whole body.
pub(crate) fn whole(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Reply {
    with_body(status, content_type, Full::new(body.into()).boxed_unsync())
}

/// A response with this body.
pub(crate) fn with_body(status: StatusCode, content_type: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    set(&mut reply, CONTENT_TYPE, content_type);
    reply
}

/// A response of JSON.
pub(crate) fn json(status: StatusCode, body: &Value) -> Reply {
    whole(status, JSON, body.to_string())
}

/// Sets a header, unless the value cannot be one.
pub(crate) fn set(reply: &mut Reply, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        reply.headers_mut().insert(name, value);
    }
}

/// Why a request has no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    status: StatusCode,
    message: String,
    retry_after_secs: Option<u64>,
}

/// In whose words an error is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorShape {
    OpenAi,
    Anthropic,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
            retry_after_secs: None,
        }
    }

    pub(crate) fn internal() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "Internal server error")
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The same error, with a `retry-after` header if there is a time.
    pub(crate) fn retry_after(mut self, secs: Option<u64>) -> Self {
        self.retry_after_secs = secs;
        self
    }

    /// The response that tells it.
    pub(crate) fn reply(&self, shape: ErrorShape) -> Reply {
        let mut reply = json(self.status, &self.body(shape));
        if let Some(secs) = self.retry_after_secs {
            set(&mut reply, RETRY_AFTER, &secs.to_string());
        }
        reply
    }

    /// The body of that response.
    pub(crate) fn body(&self, shape: ErrorShape) -> Value {
        match shape {
            ErrorShape::OpenAi => json!({"error": {
                "message": self.message,
                "type": openai_kind(self.status),
                "param": null,
                "code": self.status.as_u16(),
            }}),
            ErrorShape::Anthropic => json!({"type": "error", "error": {
                "type": anthropic_kind(self.status),
                "message": self.message,
            }}),
        }
    }
}

fn openai_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "NotFoundError",
        405 => "MethodNotAllowedError",
        413 => "RequestEntityTooLargeError",
        429 => "RateLimitError",
        503 => "ServiceUnavailableError",
        500..=599 => "InternalServerError",
        _ => "BadRequestError",
    }
}

fn anthropic_kind(status: StatusCode) -> &'static str {
    match status.as_u16() {
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 => "overloaded_error",
        500..=599 => "api_error",
        _ => "invalid_request_error",
    }
}
