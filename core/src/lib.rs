//! Every decision of rolter-envoy, as pure code.
//!
//! Nothing here does I/O, knows Envoy, reads a clock or draws randomness of its own, so that every
//! decision can be replayed in a test. The filter and the sidecar are shells around this crate.
//!
//! | module | idea |
//! |---|---|
//! | [`cache`] | which requests may share an answer, and which answers may be kept |
//! | [`caller`] | who sends a request, as hashes |
//! | [`config`] | the configuration document, checked as a whole |
//! | [`health`] | whether a target may be used |
//! | [`hex`] | bytes as digits |
//! | [`kv`] | which blocks the engines have, as they tell themselves |
//! | [`memory`] | what a route has learnt, and the lessons for other workers |
//! | [`policy`] | what passes over every answer, whichever way it came |
//! | [`prompt`] | what the model will see of a request, read from its body |
//! | [`affinity`] | which target has how much of a prompt |
//! | [`balance`] | which target a request goes to, and why |
//! | [`shared`] | what the VMs of one Envoy share, so that they route as one |
//! | [`target`] | a route's targets, and sets of them |
//! | [`time`] | points in time |
//! | [`wire`] | the records that workers write for each other |

#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]

pub mod affinity;
pub mod balance;
pub mod cache;
pub mod caller;
pub mod config;
pub mod health;
pub mod hex;
pub mod kv;
pub mod memory;
pub mod policy;
pub mod prompt;
mod queue;
pub mod shared;
pub mod target;
pub mod time;
pub mod wire;
