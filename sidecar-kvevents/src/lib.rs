//! The sidecar: what takes sockets, so that the filter needs none on the request path.
//!
//! It follows the engines' KV events, asks engines how they are, and tells Envoy, which asks for
//! what has changed. What is decided about any of it is decided in `rolter_core`.
//!
//! | module | idea |
//! |---|---|
//! | [`zmtp`] | subscriptions and replays on the wire |
//! | [`subscriber`] | one event stream, followed |
//! | [`poll`] | what engines and `LMCache` controllers are asked now and then |
//! | [`watch`] | both for one target |
//! | [`discover`] | targets that are the addresses of a DNS name, which come and go |
//! | [`state`] | what is known, and waking whoever waits for news |
//! | [`cache`] | the response cache: looking for answers, and storing them |
//! | [`http`] | what Envoy and whoever collects metrics can ask |
//! | [`metrics`] | what operators see |
//! | [`secrets`] | keys and passwords, out of the environment |
//! | [`document`] | the configuration, from a file of its own or from Envoy's |
//! | [`run`] | all of that together, until it is to stop |
//! | [`capture`], [`explain`] | tools for the command line |

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod cache;
pub mod capture;
pub mod discover;
pub mod document;
pub mod explain;
pub mod http;
pub mod metrics;
pub mod poll;
pub mod run;
pub mod secrets;
pub mod state;
pub mod subscriber;
pub mod watch;
pub mod zmtp;
