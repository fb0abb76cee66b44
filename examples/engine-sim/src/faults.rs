//! Faults on request: for one request through its `x-sim-fault` header, or for the whole engine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use hyper::StatusCode;

use crate::reply::ApiError;
use crate::server::Abort;

/// Header that asks for a fault on the request that carries it.
pub(crate) const FAULT_HEADER: &str = "x-sim-fault";

/// Frames of an event stream that a client gets before it breaks, if the fault names no number.
const DEFAULT_FRAMES: usize = 3;

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
    /// `cut` or `cut=<frames>`: likewise, but the answer ends there as a whole one does: a stream
    /// without its last event, JSON that breaks off in its middle.
    Cut(usize),
    /// `error` or `error=<frames>`: likewise, but a stream goes on with an event that tells an
    /// internal error and then ends as if all were well, as vLLM's do. Any other answer is an error
    /// with the status of success.
    Error(usize),
    /// `stall` or `stall=<frames>`: likewise, but nothing more comes then, not even the end.
    Stall(usize),
    /// `gzip`: the answer is compressed, whether the client takes that or not.
    Gzip,
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
             reset[=<events>], cut[=<events>], error[=<events>], stall[=<events>], gzip, reset-before-headers or hang",
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
        let frames = value.map_or(DEFAULT_FRAMES, |frames| {
            usize::try_from(frames).unwrap_or(usize::MAX)
        });
        match (name, value) {
            ("slow", Some(millis)) => Ok(Self::Slow(Duration::from_millis(millis.into()))),
            ("500", None) => Ok(Self::InternalError),
            ("429", _) => Ok(Self::TooManyRequests(secs)),
            ("503", _) => Ok(Self::Unavailable(secs)),
            ("reset", _) => Ok(Self::Reset(frames)),
            ("cut", _) => Ok(Self::Cut(frames)),
            ("error", _) => Ok(Self::Error(frames)),
            ("stall", _) => Ok(Self::Stall(frames)),
            ("gzip", None) => Ok(Self::Gzip),
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
            Self::Cut(frames) => write!(f, "cut={frames}"),
            Self::Error(frames) => write!(f, "error={frames}"),
            Self::Stall(frames) => write!(f, "stall={frames}"),
            Self::Gzip => f.write_str("gzip"),
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
                return Err(ApiError::internal());
            }
            Self::TooManyRequests(secs) => {
                let error = ApiError::new(StatusCode::TOO_MANY_REQUESTS, "Too many requests");
                return Err(error.retry_after(secs));
            }
            Self::Unavailable(secs) => {
                return Err(ApiError::unavailable("Service unavailable").retry_after(secs));
            }
            Self::Reset(_) | Self::Cut(_) | Self::Error(_) | Self::Stall(_) | Self::Gzip => {}
            Self::ResetBeforeHeaders => abort.reset_connection().await,
            Self::Hang => std::future::pending().await,
        }
        Ok(())
    }
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
            "cut=0",
            "error=2",
            "stall=1",
            "gzip",
            "reset-before-headers",
            "hang",
        ] {
            assert_eq!(
                text.parse::<Fault>().map(|fault| fault.to_string()),
                Ok(text.to_owned())
            );
        }
        assert_eq!("reset".parse(), Ok(Fault::Reset(3)));
        assert_eq!("cut".parse(), Ok(Fault::Cut(3)));
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
            "gzip=9",
            "429=soon",
            "418",
            "reset=99999999999",
        ] {
            assert!(text.parse::<Fault>().is_err(), "{text}");
        }
    }
}
