//! What the VMs of one Envoy share, so that they route as one.
//!
//! Each worker thread of Envoy runs a VM of its own. What they have in common is the host: a map of
//! shared data with compare-and-swap, and gauges, which are atomics of the process. On these stand
//!
//! | module | idea |
//! |---|---|
//! | [`slots`] | who is there: a VM holds a slot for as long as its heart beats |
//! | [`ring`] | what they tell each other: a ring of records a slot, written by its holder |
//! | [`in_flight`] | what they count together: requests in flight and what is left of their prompts, by target |
//! | [`Worker`] | one VM's part in all of it |
//!
//! A VM may die between any two calls of the host. What it leaves behind is put right by the others
//! once its heart has been still for [`slots::DEAD_AFTER`] of their own beats. Beats are counted, not
//! timed, so a clock that jumps makes nobody dead.

mod host;
pub mod in_flight;
pub mod ring;
#[cfg(test)]
pub(crate) mod simulated;
pub mod slots;
#[cfg(test)]
mod tests;
mod worker;

pub use host::{Host, NO_VERSION, Stored};
pub use worker::{BEAT_MILLIS, Worker};
