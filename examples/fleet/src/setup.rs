//! What to start: engines, how they are reached, what else there is, and how the filter is configured.

use engine_sim::{Engine, EngineConfig, KvEvents};
use serde_json::{Value, json};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// What to start.
pub struct Setup {
    /// One provider each, in this order, under their names.
    pub engines: Vec<EngineConfig>,
    /// Names and addresses of engines that run already, which are providers after these.
    pub others: Vec<(String, SocketAddr)>,
    /// How Envoy reaches them.
    pub reach: Reach,
    /// Whether there is a sidecar, which Envoy asks.
    pub sidecar: bool,
    /// Whether it watches the engines; see [`Setup::watched`].
    pub watched: bool,
    /// Envoy's worker threads.
    pub workers: usize,
    /// The filter, where it is another one than [`module`](crate::module).
    pub module: Option<PathBuf>,
    /// The policy of all routes, where the filter of the policy is there; see [`Setup::guarded`].
    pub policy: Option<Value>,
    /// Names and addresses of what Envoy can reach beside engines and sidecar, a cluster each.
    pub clusters: Vec<(String, SocketAddr)>,
    /// The address for clients; port 0 for any free one.
    pub listen: SocketAddr,
    /// Changes the filter's configuration, which has the engines as providers and as targets of
    /// every route already.
    pub configure: Box<dyn FnOnce(&mut Value) + Send>,
    /// Changes all of Envoy's configuration, last.
    pub finish: Box<dyn FnOnce(&mut Value) + Send>,
}

/// How Envoy reaches the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Each has a cluster of its name, as in `envoy/envoy.yaml`.
    Cluster,
    /// All are endpoints of one cluster, as in `envoy/pool.yaml`.
    Pool,
}

impl Setup {
    /// So many engines named `vllm-a`, `vllm-b` and so on, behind one worker.
    pub fn of(engines: usize, engine: &EngineConfig) -> Self {
        Self {
            engines: (0..engines)
                .map(|place| EngineConfig {
                    name: name(place),
                    ..engine.clone()
                })
                .collect(),
            others: Vec::new(),
            reach: Reach::Cluster,
            sidecar: false,
            watched: false,
            workers: 1,
            module: None,
            policy: None,
            clusters: Vec::new(),
            listen: any_port(),
            configure: Box::new(|_| ()),
            finish: Box::new(|_| ()),
        }
    }

    /// Before engines that run already, behind one worker.
    pub fn before(others: impl IntoIterator<Item = (String, SocketAddr)>) -> Self {
        Self {
            others: others.into_iter().collect(),
            ..Self::of(0, &EngineConfig::default())
        }
    }

    /// With all engines in one cluster.
    #[must_use]
    pub fn pool(self) -> Self {
        let reach = Reach::Pool;
        Self { reach, ..self }
    }

    /// With a sidecar, and engines that tell it everything that they can: KV events with replay,
    /// health and load, and the occupancy of an `LMCache`.
    #[must_use]
    pub fn watched(mut self) -> Self {
        for engine in &mut self.engines {
            engine.kv_events.get_or_insert_with(KvEvents::default);
        }
        self.sidecar = true;
        self.watched = true;
        self
    }

    /// With a sidecar, and a cache in its memory for every route. It is in Redis with
    /// `.with("/cache/redis", redis.url())`.
    #[must_use]
    pub fn cached(self) -> Self {
        let sidecar = true;
        let setup = Self { sidecar, ..self };
        setup.configure(|config| {
            config["cache"] = json!({"enabled": true});
            let routes = config["routes"].as_array_mut();
            for route in routes.into_iter().flatten() {
                route["cache"] = json!({"enabled": true});
            }
        })
    }

    /// With this policy for all routes, and the filter of the policy before the one that routes, as in
    /// `envoy/policy.yaml`.
    #[must_use]
    pub fn guarded(self, policy: Value) -> Self {
        let policy = Some(policy);
        Self { policy, ..self }
    }

    /// With a cluster of this name that leads there.
    #[must_use]
    pub fn cluster(mut self, name: &str, addr: SocketAddr) -> Self {
        self.clusters.push((name.to_owned(), addr));
        self
    }

    /// With answers to other words for every route that has a cache: this engine, which is none of
    /// the setup's, makes the embeddings.
    #[must_use]
    pub fn semantic(self, embedder: &Engine) -> Self {
        let name = embedder.name().to_owned();
        let provider = json!({"name": name, "api_base": api(embedder)});
        self.configure(move |config| {
            if let Value::Array(providers) = &mut config["providers"] {
                providers.push(provider);
            }
            let routes = config["routes"].as_array_mut();
            let caches = routes
                .into_iter()
                .flatten()
                .filter_map(|route| route.get_mut("cache"));
            for cache in caches {
                cache["semantic"] = json!({"provider": name, "model": "embeddings"});
            }
        })
    }

    /// With another filter in the place of [`module`](crate::module).
    #[must_use]
    pub fn module(self, module: PathBuf) -> Self {
        let module = Some(module);
        Self { module, ..self }
    }

    /// With so many worker threads in Envoy.
    #[must_use]
    pub fn workers(self, workers: usize) -> Self {
        Self { workers, ..self }
    }

    /// With a change to the filter's configuration.
    #[must_use]
    pub fn configure(self, change: impl FnOnce(&mut Value) + Send + 'static) -> Self {
        let before = self.configure;
        Self {
            configure: Box::new(|config| {
                before(config);
                change(config);
            }),
            ..self
        }
    }

    /// With a change to all of Envoy's configuration, after all others.
    #[must_use]
    pub fn finish(self, change: impl FnOnce(&mut Value) + Send + 'static) -> Self {
        let before = self.finish;
        Self {
            finish: Box::new(|document| {
                before(document);
                change(document);
            }),
            ..self
        }
    }

    /// With a value at a place of the filter's configuration, as in `/routes/0/strategy`.
    ///
    /// # Panics
    /// On the start, where the configuration has no such place.
    #[must_use]
    pub fn with(self, pointer: &'static str, value: impl Into<Value>) -> Self {
        let value = value.into();
        self.configure(move |config| {
            let (parent, key) = pointer.rsplit_once('/').unwrap_or_default();
            match config.pointer_mut(parent) {
                Some(parent) => parent[key] = value,
                None => panic!("the configuration has nothing at {parent:?}"),
            }
        })
    }
}

/// The name of an engine by its place: `vllm-a` to `vllm-z`, then `vllm-aa` and so on.
fn name(place: usize) -> String {
    let mut letters = Vec::new();
    let mut rest = place + 1;
    while rest > 0 {
        letters.push(char::from(b"abcdefghijklmnopqrstuvwxyz"[(rest - 1) % 26]));
        rest = (rest - 1) / 26;
    }
    let letters: String = letters.into_iter().rev().collect();
    format!("vllm-{letters}")
}

pub(crate) fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}

/// Where an engine is asked.
pub(crate) fn api(engine: &Engine) -> String {
    format!("http://{}", engine.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_engines_have_one_name() {
        let setup = Setup::of(1_000, &EngineConfig::default());
        let names: Vec<&str> = setup.engines.iter().map(|engine| &*engine.name).collect();
        assert_eq!(
            (names[0], names[25], names[26]),
            ("vllm-a", "vllm-z", "vllm-aa")
        );
        let distinct: std::collections::HashSet<_> = names.iter().collect();
        assert_eq!(distinct.len(), 1_000);
    }
}
