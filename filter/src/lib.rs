//! The Envoy filter: a thin shell around `rolter-core`, and the only crate that knows proxy-wasm.
//!
//! | module | idea |
//! |---|---|
//! | `root` | one a worker: configuration and the tick |
//! | `request` | one a request: when to wait, when to decide, when it is over |
//! | `plugin` | what the requests of a worker share: the route of each, and where it counts |
//! | `route` | a route at work: targets, balancer, numbers |
//! | `trees` | what routes have learnt, which outlives a configuration |
//! | `metrics` | the numbers in Envoy's stats |
//! | `configuration` | the forms in which Envoy hands over a document |
//! | `host` | Envoy's calls, without the SDK's panics |

#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::indexing_slicing
    )
)]
// The entry point that the macro makes takes no documentation.
#![allow(missing_docs)]

mod configuration;
mod host;
mod metrics;
mod plugin;
mod request;
mod root;
mod route;
mod trees;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
