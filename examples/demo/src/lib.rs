//! The same traffic through a real Envoy under one strategy after another, measured by what the
//! engines, Envoy and the clients count themselves.
//!
//! Everything about the traffic is drawn from one seed: who asks what, in which order, how long an
//! answer is wanted, how long a client thinks. Answers depend on nothing but the prompt, so even
//! the conversations that repeat them are the same under every strategy.

#![forbid(unsafe_code)]

mod client;
mod play;
mod repeat;
mod table;
mod traffic;

pub use client::Failure;
pub use play::{Outcome, Progress, Strategy, Work, engine, play, setup};
pub use repeat::{Repeated, repeat};
pub use table::{again, closing, table};
pub use traffic::{Shape, Task, Traffic, Turn};
