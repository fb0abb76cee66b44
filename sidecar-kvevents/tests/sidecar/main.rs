//! The sidecar against real peers: publishers on libzmq, engines, Redis, sockets that break.

mod cache;
mod cache_embedder;
mod cache_failures;
mod cache_semantic;
mod cache_servers;
mod cached;
mod check;
mod discovery;
mod discovery_churn;
mod discovery_dns;
mod docs;
mod embedder;
mod events;
mod http;
mod planted;
mod pods;
mod proxy;
mod publisher;
mod redis_server;
mod support;
