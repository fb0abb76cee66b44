//! The Envoy filter: a thin shell around `rolter-core`, and the only crate that knows proxy-wasm.
//!
//! | module | idea |
//! |---|---|
//! | `root` | one a worker and configuration: the configuration and the tick |
//! | `request` | one a request: when to wait, when to decide, when it is over |
//! | `plugin` | one configuration at work: finds the route of each request |
//! | `question` | what the sidecar is asked before a decision |
//! | `route` | a route at work: targets, balancers, numbers |
//! | `routed` | a request under way, followed to its end |
//! | `vm` | this VM among the others: what its plugins share, and how it keeps in touch |
//! | `replicas` | the targets as this VM sees them: load and health |
//! | `feed` | what the VM asks of the sidecar |
//! | `known` | what the sidecar tells of a request's targets |
//! | `cache` | a route's response cache: who uses it, and what becomes of their requests |
//! | `lookup` | what is asked of the cache before a request is routed |
//! | `capture` | an answer, taken down as it passes |
//! | `copied` | the bytes of an answer, copied as they pass |
//! | `stores` | answers on their way to the sidecar |
//! | `room` | how much of answers may be held |
//! | `memories` | what routes have learnt, which outlives a configuration |
//! | `matching` | which route a request is for |
//! | `mark` | what the filter of the policy leaves for the one that routes |
//! | `policy` | the policies of one configuration at work |
//! | `answer` | an answer under way to the client, as the policy sees and changes it |
//! | `guarded` | a request and its answer under a policy |
//! | `access_log` | what requests leave for the access log |
//! | `metrics` | the numbers in Envoy's stats |
//! | `configuration` | the forms in which Envoy hands over a document |
//! | `host` | Envoy's calls, without the SDK's panics |
//! | `headers` | the headers of a request |

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

mod access_log;
mod answer;
mod cache;
mod capture;
mod configuration;
mod copied;
mod feed;
mod group;
mod guarded;
mod headers;
mod host;
mod known;
mod lookup;
mod mark;
mod matching;
mod memories;
mod metrics;
mod plugin;
mod policy;
mod question;
mod replicas;
mod request;
mod room;
mod root;
mod route;
mod routed;
mod stores;
mod vm;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(proxy_wasm::types::LogLevel::Info);
    proxy_wasm::set_root_context(|_| Box::new(root::Root::default()));
}}
