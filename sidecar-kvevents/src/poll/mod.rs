//! What engines and `LMCache` controllers are asked now and then.
//!
//! Invariant: an answer is bounded in bytes and in time, and one that is not as it should be says
//! nothing. When too old an answer says nothing any more, whoever reads it judges by its age.

mod engine;
mod exposition;
mod lmcache;

pub use engine::watch as watch_engine;
pub use lmcache::watch as watch_lmcache;

use reqwest::{Client, StatusCode};
use std::fmt;
use std::time::Duration;

/// What an answer may take.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A client that asks nobody but whom it is told to: no proxy, no redirects.
pub fn client() -> reqwest::Result<Client> {
    // Whoever installed one before is content with it, too.
    drop(rustls::crypto::ring::default_provider().install_default());
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(TIMEOUT)
        .pool_idle_timeout(Duration::from_secs(30))
        .build()
}

/// Why there is no good answer.
#[derive(Debug)]
pub enum Failure {
    /// None came, or it broke off.
    Http(reqwest::Error),
    /// It came with this status.
    Status(StatusCode),
    /// It is over this many bytes.
    TooLarge(usize),
    /// It is not what was asked for.
    Malformed(&'static str),
}

impl fmt::Display for Failure {
    /// Without the URL, which may have a secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Http(error) if error.is_timeout() => f.write_str("no answer in time"),
            Self::Http(error) if error.is_connect() => f.write_str("cannot connect"),
            Self::Http(_) => f.write_str("the answer broke off"),
            Self::Status(status) => write!(f, "the answer is {status}"),
            Self::TooLarge(limit) => write!(f, "the answer is over {limit} bytes"),
            Self::Malformed(what) => write!(f, "the answer has {what}"),
        }
    }
}

/// The body of the answer to a request, if it is 200.
pub(crate) async fn ask(
    request: reqwest::RequestBuilder,
    timeout: Duration,
    max_bytes: usize,
) -> Result<Vec<u8>, Failure> {
    let mut response = request
        .timeout(timeout)
        .send()
        .await
        .map_err(Failure::Http)?;
    if response.status() != StatusCode::OK {
        return Err(Failure::Status(response.status()));
    }
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(Failure::Http)? {
        if body.len() + chunk.len() > max_bytes {
            return Err(Failure::TooLarge(max_bytes));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The same, where it is given the usual time.
async fn ask_briefly(
    request: reqwest::RequestBuilder,
    max_bytes: usize,
) -> Result<Vec<u8>, Failure> {
    ask(request, TIMEOUT, max_bytes).await
}
