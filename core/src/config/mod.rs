//! The configuration document: parsed and checked as a whole, before anything of it is used.
//!
//! All that is wrong is reported at once, each with the path to it and what to write instead. What
//! passes is resolved: names have become indices, defaults are filled in.

mod cache;
mod endpoint;
mod fields;
mod matching;
mod policy;
mod provider;
mod redis;
mod route;
mod sidecar;
mod strategy;
#[cfg(test)]
mod tests;

pub use cache::{Cache, RouteCache, Scope, SemanticCache};
pub use endpoint::{DnsName, Endpoint};
pub use fields::{Errors, Problem};
pub use matching::{Conditions, Pattern};
pub use policy::{Action, LooksFor, Pii, PiiKind, PiiPattern, Plugin, Policy, Rule, Unchecked};
pub use provider::Provider;
pub use redis::{Redis, RedisKind, RedisNode};
pub use route::{Group, Reach, Route};
pub use sidecar::{Dns, EventEndpoint, KvEvents, Listen, LmCache, OnGap, Sidecar};
pub use strategy::Precise;

use fields::{Fields, Report};
use policy::Policies;
use serde_json::Value;

/// The whole document.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// Request bodies up to this many bytes are read; 1 MiB by default. Envoy has to hold so much,
    /// and as much more as it reads from a connection at once.
    pub max_request_bytes: usize,
    /// Whether answers carry `x-rolter-target` and `x-rolter-decision`.
    pub debug_headers: bool,
    /// Whether each request gets the fields that an access log may have of it.
    pub log_fields: bool,
    /// The request header that names the session, in lower case.
    pub session_header: String,
    /// The request header whose value identifies the caller, in lower case.
    pub key_header: String,
    /// The process beside Envoy that knows what engines tell of themselves, if there is one.
    pub sidecar: Option<Sidecar>,
    /// Where answers are kept, if any route keeps some.
    pub cache: Option<Cache>,
    /// The engines.
    pub providers: Vec<Provider>,
    /// What passes over the answers of routes.
    pub policies: Vec<Policy>,
    /// In the order in which they are tried: the first that matches decides.
    pub routes: Vec<Route>,
}

impl Config {
    /// Reads a document.
    ///
    /// # Errors
    /// All problems that the document has.
    pub fn read(document: &Value) -> Result<Self, Errors> {
        let report = Report::default();
        let config = read_config(&Fields::root(document, &report));
        report.verdict(config)
    }
}

/// What is wrong is reported and a default takes its place, so that the reading goes on.
fn read_config(document: &Fields<'_>) -> Config {
    let sidecar = Sidecar::read(document);
    let (providers, names) = provider::read_all(document);
    let cache = Cache::read(document);
    let mut policies = Policies::read(document);
    let (mut routes, uses) = route::read_all(document, &names, &mut policies);
    provider::check_ways(document, &providers, &uses, sidecar.is_some());
    route::check_signals(document, &routes, &providers, sidecar.is_some());
    cache::check(document, &routes, &providers, sidecar.is_some());
    // What is switched off is checked all the same.
    if cache.is_none() {
        for route in &mut routes {
            route.cache = None;
        }
    }
    let any = routes.iter().any(|route| route.cache.is_some());
    Config {
        cache: cache.filter(|_| any),
        max_request_bytes: document.integer("max_request_bytes", 1..=64 << 20, 1 << 20),
        debug_headers: document.boolean("debug_headers", false),
        log_fields: document.boolean("log_fields", true),
        session_header: read_header_name(document, "session_header", "x-session-id"),
        key_header: read_header_name(document, "key_header", "authorization"),
        sidecar,
        providers,
        policies: policies.finish(),
        routes,
    }
}

/// The name of a header that clients send. No message shows what is wrong with it: it may be the
/// value that somebody wrote there.
fn read_header_name(document: &Fields<'_>, key: &'static str, default: &str) -> String {
    // What RFC 9110 allows in a token.
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let name = document.unseen(key).unwrap_or(default).to_ascii_lowercase();
    if name.starts_with(':') {
        document.add(key, "clients cannot set this one; write another header's");
    } else if name.is_empty() || !name.bytes().all(allowed) {
        document.add(key, "no name of a header; write one, as in x-session-id");
    } else if name.starts_with("x-rolter-") || name == "x-gateway-destination-endpoint" {
        document.add(key, "only the filter sets this one; write another header's");
    }
    name
}
