//! Engines behind a real Envoy with the filter, started on free ports of this machine and stopped
//! when the [`Fleet`] is dropped.
//!
//! Envoy's configuration is the documented `envoy/envoy.yaml` with other ports and engines, so what
//! runs here is what users are told to run.

#![forbid(unsafe_code)]

mod bootstrap;
mod envoy;
mod stats;

pub use envoy::{envoy_binary, module};
pub use stats::Stats;

use bootstrap::{Bootstrap, FILTER_FILE};
use engine_sim::{Engine, EngineConfig};
use envoy::Envoy;
use serde_json::Value;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// What to start.
pub struct Setup {
    /// One provider each, in this order, under their names.
    pub engines: Vec<EngineConfig>,
    /// Envoy's worker threads.
    pub workers: usize,
    /// The address for clients; port 0 for any free one.
    pub listen: SocketAddr,
    /// Changes the filter's configuration, which has the engines as providers and as targets of
    /// every route already.
    pub configure: Box<dyn FnOnce(&mut Value) + Send>,
}

impl Setup {
    /// So many engines named `vllm-a`, `vllm-b` and so on, behind one worker.
    pub fn of(engines: usize, engine: &EngineConfig) -> Self {
        let names = ('a'..='z').map(|letter| format!("vllm-{letter}"));
        Self {
            engines: names
                .take(engines)
                .map(|name| EngineConfig {
                    name,
                    ..engine.clone()
                })
                .collect(),
            workers: 1,
            listen: any_port(),
            configure: Box::new(|_| ()),
        }
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

/// Engines and Envoy, running.
pub struct Fleet {
    engines: Vec<Engine>,
    envoy: Envoy,
    /// The filter's part of Envoy's configuration, and how often it has changed.
    filter: Value,
    version: usize,
}

impl Fleet {
    /// Starts the engines, then Envoy, and waits until it takes requests.
    ///
    /// # Errors
    /// Where something does not start; the error shows the end of Envoy's log.
    pub async fn start(setup: Setup) -> io::Result<Self> {
        let engines = setup
            .engines
            .into_iter()
            .map(|config| Engine::start(config, any_port()))
            .collect::<io::Result<Vec<_>>>()?;
        let names: Vec<(&str, SocketAddr)> = engines
            .iter()
            .map(|engine| (engine.name(), engine.addr()))
            .collect();
        let folder = tempfile::tempdir()?;
        let Bootstrap { document, filter } =
            bootstrap::bootstrap(folder.path(), &names, setup.listen, setup.configure)?;
        let discovery = bootstrap::discovery(&filter, 0).to_string();
        fs::write(folder.path().join("envoy.json"), document.to_string())?;
        fs::write(folder.path().join(FILTER_FILE), discovery)?;
        let envoy = Envoy::start(folder, setup.workers).await?;
        Ok(Self {
            engines,
            envoy,
            filter,
            version: 0,
        })
    }

    /// Changes the filter's configuration under way, and waits until Envoy has taken it.
    ///
    /// # Errors
    /// Where Envoy refuses it, or does not answer.
    pub async fn reconfigure(&mut self, change: impl FnOnce(&mut Value)) -> io::Result<()> {
        const TAKEN: &str = "extension_config_discovery.http_filter.rolter.config_reload";
        change(bootstrap::configuration(&mut self.filter)?);
        self.version += 1;
        let discovery = bootstrap::discovery(&self.filter, self.version).to_string();
        let wanted = self.stats().await?.envoy(TAKEN) + 1;
        self.envoy.put(FILTER_FILE, &discovery)?;
        let stats = self
            .stats_when(|stats| stats.envoy(TAKEN) == wanted)
            .await?;
        if stats.envoy(TAKEN) != wanted {
            return Err(io::Error::other("Envoy did not take the configuration"));
        }
        Ok(())
    }

    /// Where clients send their requests.
    pub fn addr(&self) -> SocketAddr {
        self.envoy.listener
    }

    /// Where Envoy's admin interface listens.
    pub fn admin(&self) -> SocketAddr {
        self.envoy.admin
    }

    /// What the admin interface answers for a path.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn ask_admin(&self, path: &str) -> io::Result<String> {
        envoy::get(self.admin(), path)
            .await
            .map_err(io::Error::other)
    }

    /// The URL of a path behind Envoy.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.addr())
    }

    /// The engines, in the order of the setup.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// Envoy's numbers at this moment.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn stats(&self) -> io::Result<Stats> {
        Stats::read(self.admin()).await
    }

    /// Waits until Envoy's numbers are as wanted, up to five seconds, and returns the last ones.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn stats_when(&self, wanted: impl Fn(&Stats) -> bool) -> io::Result<Stats> {
        for _ in 0..100 {
            let stats = self.stats().await?;
            if wanted(&stats) {
                return Ok(stats);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        self.stats().await
    }

    /// What Envoy has written to its log and access log so far.
    pub fn log(&self) -> String {
        self.envoy.log()
    }
}

fn any_port() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 0).into()
}
