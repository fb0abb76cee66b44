//! An engine over the wire: HTTP as clients and proxies speak it, and its KV events.

mod apis;
mod client;
mod faults;
mod kv_events;
mod kv_model;
mod life;
mod signals;
