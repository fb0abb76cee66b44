//! What the benches share: their inputs, a count of allocations, and the verdict on what was
//! measured.
//!
//! Everything here is the same on every run: inputs come from fixed seeds, so two runs differ by
//! the machine alone.

pub mod bodies;
#[path = "../../core/tests/counting/mod.rs"]
pub mod counting;
pub mod prompts;
pub mod verdict;
