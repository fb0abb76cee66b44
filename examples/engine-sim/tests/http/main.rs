//! The engine over real connections.

mod apis;
mod client;
mod faults;
mod life;
