//! The response cache: where it is kept, and which routes use it how.

use super::Provider;
use super::fields::Fields;
use super::provider::read_keys;
use super::redis::Redis;
use super::route::Route;
use std::collections::BTreeMap;

/// What the caches of all routes have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Where entries are kept; nothing: in the sidecar's memory.
    pub redis: Option<Redis>,
    /// What all keys begin with.
    pub namespace: String,
    /// Bytes of entries in the sidecar's memory, where they are kept there.
    pub max_memory_bytes: u64,
}

/// A route's cache.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteCache {
    /// How long an answer is good for, in seconds.
    pub ttl_secs: u64,
    /// Who shares answers.
    pub scope: Scope,
    /// SHA-256 of the keys of the callers who use it, in ascending order; empty: everyone.
    pub keys: Vec<[u8; 32]>,
    /// The longest answer that is kept, in bytes.
    pub max_entry_bytes: usize,
    /// How long a request waits for it, in milliseconds.
    pub lookup_timeout_ms: u64,
    /// How answers to requests in other words are found, if they are.
    pub semantic: Option<SemanticCache>,
}

/// Who shares answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The requests of one caller's key.
    Key,
    /// All requests of a route.
    Route,
}

/// How answers to requests in other words are found.
#[derive(Clone, Debug, PartialEq)]
pub struct SemanticCache {
    /// Who makes vectors of texts: a place in [`Config::providers`](super::Config::providers), with
    /// an `api_base`.
    pub provider: usize,
    /// With this model.
    pub model: String,
    /// Of this dimension; nothing: the model's own.
    pub dimensions: Option<usize>,
    /// The least cosine of two texts of which one may have the other's answer.
    pub threshold: f64,
    /// The most recent entries that a request is compared with.
    pub max_candidates: usize,
    /// How long a vector may take, in milliseconds. A request waits for the lookup's time at most;
    /// a vector that is late is of use for storing the answer.
    pub timeout_ms: u64,
}

/// Below this, as `OpenAI`'s models measure it, texts have little more than their subject in common.
const THRESHOLD: f64 = 0.92;

impl Scope {
    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Route => "route",
        }
    }
}

impl Cache {
    /// Nothing where it is switched off.
    pub(super) fn read(document: &Fields<'_>) -> Option<Self> {
        let mut cache = Self {
            redis: None,
            namespace: "rolter".to_owned(),
            max_memory_bytes: 256 << 20,
        };
        let Some(fields) = document.object("cache") else {
            return Some(cache);
        };
        let enabled = fields.boolean("enabled", true);
        cache.redis = Redis::read(&fields);
        if let Some(namespace) = fields.string("namespace") {
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
            if namespace.len() > 64 || !namespace.bytes().all(allowed) {
                let what = "write up to 64 letters, digits, \".\", \"_\" and \"-\"";
                fields.add("namespace", format!("{namespace:?}; {what}"));
            }
            namespace.clone_into(&mut cache.namespace);
        }
        if cache.redis.is_some() && fields.has("max_memory_bytes") {
            let what = "has no effect with redis, which has a limit of its own; remove it";
            fields.add("max_memory_bytes", what);
        }
        let bytes = 1 << 20..=1 << 40;
        cache.max_memory_bytes = fields.integer("max_memory_bytes", bytes, cache.max_memory_bytes);
        enabled.then_some(cache)
    }
}

impl RouteCache {
    /// Nothing where the route has none, or has it switched off. `providers` are their places by
    /// name.
    pub(super) fn read(route: &Fields<'_>, providers: &BTreeMap<String, usize>) -> Option<Self> {
        let fields = route.object("cache")?;
        let enabled = fields.boolean("enabled", true);
        let scope = match fields.one_of("scope", &["key", "route"]) {
            Some("route") => Scope::Route,
            _ => Scope::Key,
        };
        let semantic = fields.object("semantic");
        let cache = Self {
            ttl_secs: fields.integer("ttl_secs", 1..=30 * 24 * 60 * 60, 300),
            scope,
            keys: read_keys(&fields, "keys"),
            max_entry_bytes: fields.integer("max_entry_bytes", 1..=16 << 20, 1 << 20),
            lookup_timeout_ms: fields.integer("lookup_timeout_ms", 1..=10_000, 50),
            semantic: semantic.map(|fields| SemanticCache::read(&fields, providers)),
        };
        enabled.then_some(cache)
    }
}

impl SemanticCache {
    fn read(fields: &Fields<'_>, providers: &BTreeMap<String, usize>) -> Self {
        // No place at all where there is none, which is reported here.
        let mut provider = usize::MAX;
        match fields.string("provider") {
            None if !fields.has("provider") => {
                let what = "missing; write the name of one that makes embeddings";
                fields.add("provider", what);
            }
            None => {}
            Some(name) => match providers.get(name) {
                Some(&place) => provider = place,
                None => {
                    let known: Vec<&str> = providers.keys().take(8).map(String::as_str).collect();
                    let known = known.join(", ");
                    let what = format!("no provider {name:?}; there are: {known}");
                    fields.add("provider", what);
                }
            },
        }
        if !fields.has("model") {
            fields.add("model", "missing; write the name of an embedding model");
        }
        let model = fields.string("model").unwrap_or_default();
        let dimensions = fields.integer("dimensions", 1..=65_536, 0);
        Self {
            provider,
            model: model.to_owned(),
            dimensions: Some(dimensions).filter(|&dimensions| dimensions > 0),
            threshold: fields.number("threshold", 0.0..=1.0, THRESHOLD),
            max_candidates: fields.integer("max_candidates", 1..=4096, 256),
            timeout_ms: fields.integer("timeout_ms", 1..=60_000, 10_000),
        }
    }
}

/// Reports caches that cannot work, or that would hand answers to whom they are not for.
pub(super) fn check(
    document: &Fields<'_>,
    routes: &[Route],
    providers: &[Provider],
    has_sidecar: bool,
) {
    for (index, route) in routes.iter().enumerate() {
        let Some(cache) = &route.cache else { continue };
        let add = |key: &str, what: &str| {
            document.add(&format!("routes[{index}].cache{key}"), what);
        };
        if !has_sidecar {
            add(
                "",
                "keeps nothing without the sidecar; write sidecar: { cluster: … }",
            );
        }
        let targets = route.groups.iter().flat_map(|group| &group.targets);
        let mut allowed = targets
            .filter_map(|&target| providers.get(target))
            .map(|provider| &provider.allowed_keys);
        let first = allowed.next();
        if cache.scope == Scope::Route && allowed.any(|keys| Some(keys) != first) {
            add(
                ".scope",
                "its targets have different allowed_keys, so callers would get answers of targets \
                 that are not for them; write scope: key, or give all targets the same allowed_keys",
            );
        }
        if let Some(semantic) = &cache.semantic
            && let Some(provider) = providers.get(semantic.provider)
            && provider.api_base.is_none()
        {
            let name = &provider.name;
            let what = format!("{name:?} cannot be asked; write an api_base for it");
            add(".semantic.provider", &what);
        }
    }
}
