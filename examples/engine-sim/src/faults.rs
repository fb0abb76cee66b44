//! Faults on request: for one request through its `x-sim-fault` header, or for the whole engine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::StatusCode;
use hyper::body::{Body as _, Frame};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE};

use crate::reply::{ApiError, Body, EVENT_STREAM, Reply, set};
use crate::server::Abort;

/// Header that asks for a fault on the request that carries it.
pub(crate) const FAULT_HEADER: &str = "x-sim-fault";

/// Frames of an event stream that a client gets before a reset, if the fault names no number.
const DEFAULT_FRAMES: usize = 3;
/// Time for what was sent before a reset to reach the client.
const LINGER: Duration = Duration::from_millis(5);

/// What goes wrong. Written and read as the value of `x-sim-fault`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// `slow=<ms>`: this long passes before the request is so much as queued.
    Slow(Duration),
    /// `500`: an internal error.
    InternalError,
    /// `429` or `429=<secs>`: too many requests, with `retry-after` in seconds if given.
    TooManyRequests(Option<u64>),
    /// `503` or `503=<secs>`: unavailable, with `retry-after` in seconds if given.
    Unavailable(Option<u64>),
    /// `reset` or `reset=<frames>`: the answer begins, then the connection is reset. A stream is
    /// cut after that many events (one token each, 3 if not given), and at its end if it has
    /// fewer; any other answer is cut in its middle.
    Reset(usize),
    /// `reset-before-headers`: the request is read, then the connection is reset.
    ResetBeforeHeaders,
    /// `hang`: the request is read and never answered.
    Hang,
}

/// Text that names no fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownFault(
    /// The text.
    pub String,
);

impl fmt::Display for UnknownFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a fault; use slow=<ms>, 500, 429[=<secs>], 503[=<secs>], \
             reset[=<events>], reset-before-headers or hang",
            self.0
        )
    }
}

impl std::error::Error for UnknownFault {}

impl FromStr for Fault {
    type Err = UnknownFault;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let unknown = || UnknownFault(text.chars().take(64).collect());
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value.parse::<u32>().map_err(|_| unknown())?)),
            None => (text, None),
        };
        let secs = value.map(u64::from);
        match (name, value) {
            ("slow", Some(millis)) => Ok(Self::Slow(Duration::from_millis(millis.into()))),
            ("500", None) => Ok(Self::InternalError),
            ("429", _) => Ok(Self::TooManyRequests(secs)),
            ("503", _) => Ok(Self::Unavailable(secs)),
            ("reset", None) => Ok(Self::Reset(DEFAULT_FRAMES)),
            ("reset", Some(frames)) => {
                Ok(Self::Reset(usize::try_from(frames).unwrap_or(usize::MAX)))
            }
            ("reset-before-headers", None) => Ok(Self::ResetBeforeHeaders),
            ("hang", None) => Ok(Self::Hang),
            _ => Err(unknown()),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Slow(delay) => write!(f, "slow={}", delay.as_millis()),
            Self::InternalError => f.write_str("500"),
            Self::TooManyRequests(None) => f.write_str("429"),
            Self::TooManyRequests(Some(secs)) => write!(f, "429={secs}"),
            Self::Unavailable(None) => f.write_str("503"),
            Self::Unavailable(Some(secs)) => write!(f, "503={secs}"),
            Self::Reset(frames) => write!(f, "reset={frames}"),
            Self::ResetBeforeHeaders => f.write_str("reset-before-headers"),
            Self::Hang => f.write_str("hang"),
        }
    }
}

impl Fault {
    /// What happens before a request is looked at: it goes on, fails, or never returns.
    pub(crate) async fn strike(self, abort: &Abort) -> Result<(), ApiError> {
        match self {
            Self::Slow(delay) => tokio::time::sleep(delay).await,
            Self::InternalError => {
                return Err(ApiError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "Internal server error",
                ));
            }
            Self::TooManyRequests(secs) => {
                let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "Too many requests");
                return Err(error.retry_after(secs));
            }
            Self::Unavailable(secs) => {
                return Err(ApiError::unavailable("Service unavailable").retry_after(secs));
            }
            Self::Reset(_) => {}
            Self::ResetBeforeHeaders => abort.reset_connection().await,
            Self::Hang => std::future::pending().await,
        }
        Ok(())
    }

    /// What happens to the answer.
    pub(crate) fn spoil(self, reply: Reply, abort: Abort) -> Reply {
        let Self::Reset(frames) = self else {
            return reply;
        };
        let streamed = reply
            .headers()
            .get(CONTENT_TYPE)
            .is_some_and(|kind| kind == EVENT_STREAM);
        let (frames, length) = match reply.body().size_hint().exact() {
            Some(length) if !streamed => (1, Some(length)),
            _ => (frames, None),
        };
        let mut reply = reply.map(|body| cut(body, frames, length.is_some(), abort));
        if let Some(length) = length {
            // Promised in full, so the client can tell that it did not come.
            set(&mut reply, CONTENT_LENGTH, &length.to_string());
        }
        reply
    }
}

/// The first `frames` of a body, then a reset. With `halve`, each is half of what it was.
fn cut(body: Body, frames: usize, halve: bool, abort: Abort) -> Body {
    let frames = stream::unfold(
        (body, frames, abort),
        move |(mut body, left, abort)| async move {
            if left > 0
                && let Some(Ok(frame)) = body.frame().await
            {
                let mut data: Bytes = frame.into_data().unwrap_or_default();
                if halve {
                    data.truncate(data.len() / 2);
                }
                return Some((Ok(Frame::data(data)), (body, left - 1, abort)));
            }
            tokio::time::sleep(LINGER).await;
            abort.reset_connection().await;
            None
        },
    );
    StreamBody::new(frames).boxed_unsync()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_read_as_it_is_written() {
        for text in [
            "slow=250",
            "500",
            "429",
            "429=7",
            "503",
            "503=0",
            "reset=3",
            "reset-before-headers",
            "hang",
        ] {
            assert_eq!(
                text.parse::<Fault>().map(|fault| fault.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!("reset".parse(), Ok(Fault::Reset(3)));
    }

    #[test]
    fn other_text_is_no_fault() {
        for text in [
            "",
            "slow",
            "slow=",
            "slow=-1",
            "500=1",
            "hang=1",
            "429=soon",
            "418",
            "reset=99999999999",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
