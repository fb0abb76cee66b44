//! Fleets without sockets and in virtual time: what routing comes to, and what it costs, as fleets
//! grow.
//!
//! The filter's own core decides (its balancers, trees, rings and mirrors, driven as the filter
//! drives them), or a model of another router; [`engine`]s compute what engine-sim's would, with its
//! prefix cache, and take the time by the clock of the simulation.
//!
//! | module | idea |
//! |---|---|
//! | [`asked`] | requests as engines and gateways see them |
//! | [`engine`] | one engine: its queue, its accelerator, its cache |
//! | [`play`] | a workload, a router and a fleet, event by event |
//! | [`gateway`] | Envoys with this filter |
//! | [`peer`] | models of others, and the oracle |
//! | [`simulate`] | the command that compares them |
//! | [`cost`] | the command that times decisions |

mod asked;
mod cost;
mod engine;
mod figures;
mod gateway;
mod host;
mod peer;
mod play;
mod simulate;
mod strategy;
#[cfg(test)]
mod tests;

pub(crate) use cost::{Cost, cost};
pub(crate) use simulate::{Simulate, simulate};
