//! The sidecar against real peers: publishers on libzmq, engines, sockets that break.

mod docs;
mod events;
mod http;
mod proxy;
mod publisher;
mod support;
