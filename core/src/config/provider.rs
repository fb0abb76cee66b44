//! The engines, and the ways that lead to them.
//!
//! What a provider needs depends on the routes that use it, so the ways are checked when those are
//! known.

use super::endpoint::{DnsName, Endpoint, check_name};
use super::fields::Fields;
use super::redis::read_variable;
use super::route::{Reach, Uses};
use super::sidecar::{KvEvents, LmCache, read_url};
use crate::caller::is_hash_of_nothing;
use crate::hex::from_hex;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// An engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Provider {
    /// Its name in routes, metrics and headers.
    pub name: String,
    /// The Envoy cluster that leads to it. There is one, and no other provider's, where a route
    /// with [`Reach::Cluster`] has it as a target.
    pub cluster: Option<String>,
    /// Its address in the pool, or the name that has the addresses of its targets there, which no
    /// other provider has. There is one where a route with [`Reach::Pool`] has it as a target.
    pub endpoint: Option<Endpoint>,
    /// Its share where strategies weigh targets, from 1 to 1000.
    pub weight: u32,
    /// SHA-256 of the keys of the callers that it is for, in ascending order; empty: everyone.
    pub allowed_keys: Vec<[u8; 32]>,
    /// The URL of the engine's API for the sidecar, without a slash at its end, where it is to ask
    /// for health, load and tokens.
    pub api_base: Option<String>,
    /// The variable of the sidecar's environment that has the key for that, if it asks for one.
    pub api_key_env: Option<String>,
    /// How it tells which blocks it has, if it does.
    pub kv_events: Option<KvEvents>,
    /// Who tells how full its `LMCache` is, if anyone.
    pub lmcache: Option<LmCache>,
}

/// Stands in for what is no endpoint, so that it does not count as missing.
const NO_ENDPOINT: Endpoint =
    Endpoint::Address(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0));

/// The providers, and their places by name.
pub(super) fn read_all(document: &Fields<'_>) -> (Vec<Provider>, BTreeMap<String, usize>) {
    let mut names = BTreeMap::new();
    let providers = document
        .objects("providers")
        .enumerate()
        .map(|(index, fields)| {
            let provider = Provider {
                name: fields.unique_name(&mut names, index),
                cluster: read_cluster(&fields),
                endpoint: read_endpoint(&fields),
                weight: fields.integer("weight", 1..=1000, 1),
                allowed_keys: read_keys(&fields, "allowed_keys"),
                api_base: read_api_base(&fields),
                api_key_env: read_api_key_env(&fields),
                kv_events: KvEvents::read(&fields),
                lmcache: LmCache::read(&fields),
            };
            check_name(&fields, &provider);
            provider
        })
        .collect();
    (providers, names)
}

/// Reports providers that routes cannot reach, and ways that lead to two.
pub(super) fn check_ways(
    document: &Fields<'_>,
    providers: &[Provider],
    uses: &Uses,
    has_sidecar: bool,
) {
    let (mut clusters, mut endpoints) = (BTreeMap::new(), BTreeMap::new());
    let mut sources = BTreeMap::new();
    for (index, provider) in providers.iter().enumerate() {
        let add = |key, what| document.add(&format!("providers[{index}].{key}"), what);
        let taken = |way: &str, other: &str| format!("{way:?} leads to {other:?} already");
        if let Some(events) = &provider.kv_events {
            let source = events.endpoint.of_rank(0);
            if let Some(other) = sources.insert(source, &provider.name) {
                let what = format!("{other:?} has these events already; write the engine's own");
                add("kv_events.endpoint", what);
            }
        }
        let by_cluster = uses.get(&(index, Reach::Cluster));
        if let Some(DnsName { name, .. }) = provider.dns_name() {
            if !has_sidecar {
                let what = "nobody looks for its addresses; write sidecar: { cluster: … }";
                add("endpoint", format!("{name} is a name, and {what}"));
            }
            if let Some(route) = by_cluster {
                let what = format!("route {route:?} reaches it by cluster, where it would be one");
                add(
                    "endpoint",
                    format!("{name} is many targets, but {what}; write reach: pool there"),
                );
            }
        }
        match (&provider.cluster, by_cluster) {
            // What is wrong with it was told.
            _ if provider.dns_name().is_some() => {}
            (None, Some(route)) => {
                let why = format!("route {route:?} reaches it by cluster");
                add("cluster", format!("missing; {why}: write the name of one"));
            }
            (Some(cluster), Some(_)) if !cluster.is_empty() => {
                if let Some(other) = clusters.insert(cluster, &provider.name) {
                    add("cluster", taken(cluster, other));
                }
            }
            _ => {}
        }
        match (&provider.endpoint, uses.get(&(index, Reach::Pool))) {
            (None, Some(route)) => {
                let why = format!("route {route:?} reaches it in a pool");
                add("endpoint", format!("missing; {why}: write its ip:port"));
            }
            (Some(endpoint), _) if *endpoint != NO_ENDPOINT => {
                let endpoint = endpoint.to_string();
                if let Some(other) = endpoints.insert(endpoint.clone(), &provider.name) {
                    add("endpoint", taken(&endpoint, other));
                }
            }
            _ => {}
        }
    }
}

/// Empty where what is there is no cluster's name, so that it does not count as missing.
fn read_cluster(provider: &Fields<'_>) -> Option<String> {
    let cluster = provider.string("cluster").unwrap_or_default();
    if !cluster.bytes().all(|byte| byte.is_ascii_graphic()) {
        provider.add(
            "cluster",
            "a cluster's name has no spaces or control characters",
        );
    }
    provider.has("cluster").then(|| cluster.to_owned())
}

/// [`NO_ENDPOINT`] where what is there is none.
fn read_endpoint(provider: &Fields<'_>) -> Option<Endpoint> {
    let wanted = "write ip:port, as in 10.0.0.1:8000 or [2001:db8::1]:8000, or name:port with the \
                  DNS name of a headless service";
    let endpoint = provider.parsed("endpoint", wanted, Endpoint::parse);
    endpoint.or(provider.has("endpoint").then_some(NO_ENDPOINT))
}

/// Paths are added to it that begin with `/v1`, which clients of the API have in theirs.
fn read_api_base(provider: &Fields<'_>) -> Option<String> {
    let base = read_url(provider, "api_base")?;
    if base.ends_with("/v1") {
        provider.add("api_base", "ends in /v1, which is added to it; remove that");
    }
    Some(base)
}

fn read_api_key_env(provider: &Fields<'_>) -> Option<String> {
    let name = read_variable(provider, "api_key_env", "OPENAI_API_KEY");
    if name.is_some() && !provider.has("api_base") {
        provider.add("api_key_env", "has no effect without api_base");
    }
    name
}

/// SHA-256s of keys, in ascending order. No message shows anything of what is there: it may be the
/// key itself, by mistake.
pub(super) fn read_keys(fields: &Fields<'_>, key: &'static str) -> Vec<[u8; 32]> {
    let mut keys = Vec::new();
    for (path, text) in fields.unseen_strings(key) {
        match text.and_then(from_hex) {
            Some(key) if is_hash_of_nothing(&key) => {
                fields.add(
                    &path,
                    "the SHA-256 of nothing; was the key's variable not set?",
                );
            }
            Some(key) => keys.push(key),
            None => fields.add(&path, "no SHA-256; write the 64 hex digits of a key's"),
        }
    }
    keys.sort_unstable();
    keys.dedup();
    keys
}
