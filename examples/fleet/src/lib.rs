//! Engines behind a real Envoy with the filter, started on free ports of this machine and stopped
//! when the [`Fleet`] is dropped; or such an Envoy before engines that run already.
//!
//! Envoy's configuration is one of those documented in `envoy/` with other ports and engines, so what
//! runs here is what users are told to run.

#![forbid(unsafe_code)]

mod bootstrap;
mod dns;
mod envoy;
mod pods;
pub mod process;
mod redis;
mod setup;
mod sidecar;
mod stats;

pub use dns::{Dns, DnsAnswer};
pub use envoy::{envoy_binary, module, trap_module};
pub use pods::Pods;
pub use redis::{Redis, redis_binary};
pub use setup::{Reach, Setup};
pub use sidecar::sidecar_binary;
pub use stats::Stats;

use bootstrap::{Bootstrap, Filter, Parts};
use engine_sim::Engine;
use envoy::Envoy;
use serde_json::{Value, json};
use setup::{any_port, api};
use sidecar::Sidecar;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long Envoy's numbers may take to be as wanted.
const PATIENCE: Duration = Duration::from_secs(20);

/// Engines and Envoy, running.
pub struct Fleet {
    engines: Vec<Engine>,
    envoy: Envoy,
    sidecar: Option<Sidecar>,
    /// The filters of the module, in their order, and the configuration that they share.
    filters: Vec<Filter>,
    configuration: Value,
}

impl Fleet {
    /// Starts the engines, then Envoy, and waits until it takes requests.
    ///
    /// # Errors
    /// Where something does not start; the error shows the end of Envoy's log.
    pub async fn start(setup: Setup) -> io::Result<Self> {
        // Where this is built together with the sidecar, HTTP clients can do TLS, and want to know by
        // whose code. Who has told them before is content with that.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let engines = setup
            .engines
            .iter()
            .map(|config| Engine::start(config.clone(), any_port()))
            .collect::<io::Result<Vec<_>>>()?;
        let others = setup.others.iter();
        let names: Vec<(&str, SocketAddr)> = engines
            .iter()
            .map(|engine| (engine.name(), engine.addr()))
            .chain(others.map(|(name, addr)| (&**name, *addr)))
            .collect();
        let folder = tempfile::tempdir()?;
        let socket = setup.sidecar.then(|| sidecar::socket(folder.path()));
        let mut configure = setup.configure;
        if let Some(socket) = &socket {
            let told = |engine| {
                if setup.watched {
                    watching(engine)
                } else {
                    json!({})
                }
            };
            let watched: Vec<Value> = engines.iter().map(told).collect();
            let listen = format!("unix://{}", socket.display());
            configure = Box::new(move |config| {
                config["sidecar"] = json!({"cluster": "rolter_sidecar", "listen": listen});
                let providers = config["providers"].as_array_mut();
                for (provider, watched) in providers.into_iter().flatten().zip(watched) {
                    let watched = watched.as_object().into_iter().flatten();
                    for (key, value) in watched {
                        provider[key] = value.clone();
                    }
                }
                configure(config);
            });
        }
        let module = setup.module.map_or_else(module, Ok)?;
        let Bootstrap {
            document,
            filters,
            configuration,
        } = bootstrap::bootstrap(
            folder.path(),
            &Parts {
                engines: &names,
                reach: setup.reach,
                policy: setup.policy.as_ref(),
                clusters: &setup.clusters,
                sidecar: socket.as_deref(),
                listen: setup.listen,
                envoy: envoy::version()?,
                module: &module,
            },
            configure,
            setup.finish,
        )?;
        let sidecar = match socket {
            None => None,
            Some(_) => Some(Sidecar::start(folder.path(), &configuration.to_string()).await?),
        };
        fs::write(folder.path().join("envoy.json"), document.to_string())?;
        for filter in &filters {
            fs::write(folder.path().join(filter.file()), filter.discovery())?;
        }
        let envoy = Envoy::start(folder, setup.workers).await?;
        Ok(Self {
            engines,
            envoy,
            sidecar,
            filters,
            configuration,
        })
    }

    /// Changes the filters' configuration under way, and waits until Envoy has taken it.
    ///
    /// # Errors
    /// Where Envoy refuses it, or does not answer.
    pub async fn reconfigure(&mut self, change: impl FnOnce(&mut Value)) -> io::Result<()> {
        change(&mut self.configuration);
        for place in 0..self.filters.len() {
            self.configure(place, &self.configuration.clone()).await?;
        }
        Ok(())
    }

    /// Gives one of the filters, counted as they come, a configuration that the others do not have.
    ///
    /// # Errors
    /// Where there is none, or Envoy refuses it, or does not answer.
    pub async fn configure(&mut self, filter: usize, configuration: &Value) -> io::Result<()> {
        let Some(filter) = self.filters.get_mut(filter) else {
            return Err(io::Error::other(format!("there is no filter {filter}")));
        };
        filter.change(configuration)?;
        let (taken, file, discovery) = (filter.taken(), filter.file(), filter.discovery());
        let wanted = self.stats().await?.envoy(&taken) + 1;
        self.envoy.put(&file, &discovery)?;
        let stats = self
            .stats_when(|stats| stats.envoy(&taken) == wanted)
            .await?;
        if stats.envoy(&taken) != wanted {
            return Err(io::Error::other("Envoy did not take the configuration"));
        }
        Ok(())
    }

    /// The configuration that the filters share.
    pub fn configuration(&self) -> &Value {
        &self.configuration
    }

    /// Where clients send their requests.
    pub fn addr(&self) -> SocketAddr {
        self.envoy.listener
    }

    /// The processes of Envoy and, where there is one, of the sidecar.
    ///
    /// # Errors
    /// Where one of them does not run.
    pub fn processes(&self) -> io::Result<Vec<u32>> {
        let sidecar = self.sidecar.iter().map(Sidecar::id);
        std::iter::once(self.envoy.id()).chain(sidecar).collect()
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

    /// Kills an engine, where it still lives, and starts it anew on its ports: with nothing in its
    /// cache and no fault. Its handle in [`Fleet::engines`] is a new one.
    ///
    /// # Errors
    /// Where there is no such engine, or somebody else has taken its port.
    pub fn restart(&mut self, index: usize) -> io::Result<()> {
        let Some(engine) = self.engines.get_mut(index) else {
            return Err(io::Error::other(format!("there is no engine {index}")));
        };
        engine.kill();
        *engine = Engine::start(engine.config().clone(), engine.addr())?;
        Ok(())
    }

    /// Ends the sidecar at once.
    ///
    /// # Errors
    /// Where there is none that runs.
    pub fn kill_sidecar(&mut self) -> io::Result<()> {
        match &mut self.sidecar {
            Some(sidecar) => sidecar.kill(),
            None => Err(io::Error::other("there is no sidecar")),
        }
    }

    /// Starts the sidecar again after it was killed, and waits until it listens.
    ///
    /// # Errors
    /// Where there is none, or it does not start.
    pub async fn restart_sidecar(&mut self) -> io::Result<()> {
        match &mut self.sidecar {
            Some(sidecar) => sidecar.run().await,
            None => Err(io::Error::other("there is no sidecar")),
        }
    }

    /// What the sidecar answers for a path.
    ///
    /// # Errors
    /// Where there is none, or it does not answer.
    pub async fn ask_sidecar(&self, path: &str) -> io::Result<String> {
        match &self.sidecar {
            Some(sidecar) => sidecar.get(path).await.map_err(io::Error::other),
            None => Err(io::Error::other("there is no sidecar")),
        }
    }

    /// What the sidecar has written to its log so far.
    pub fn sidecar_log(&self) -> String {
        self.sidecar.as_ref().map(Sidecar::log).unwrap_or_default()
    }

    /// Ends Envoy and starts it again, at other addresses.
    ///
    /// # Errors
    /// Where it does not start.
    pub async fn restart_envoy(&mut self) -> io::Result<()> {
        self.envoy.restart().await
    }

    /// Envoy's numbers at this moment.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn stats(&self) -> io::Result<Stats> {
        Stats::read(self.admin()).await
    }

    /// Waits until Envoy's numbers are as wanted, as long as a busy machine may take, and returns the
    /// last ones.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn stats_when(&self, wanted: impl Fn(&Stats) -> bool) -> io::Result<Stats> {
        self.stats_within(PATIENCE, wanted).await
    }

    /// Waits so long at most until Envoy's numbers are as wanted, and returns the last ones.
    ///
    /// # Errors
    /// Where Envoy does not answer.
    pub async fn stats_within(
        &self,
        patience: Duration,
        wanted: impl Fn(&Stats) -> bool,
    ) -> io::Result<Stats> {
        let start = Instant::now();
        loop {
            let stats = self.stats().await?;
            if wanted(&stats) || start.elapsed() > patience {
                return Ok(stats);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Whether a filter has panicked or trapped so far. Envoy's count of reloads tells it later, and
    /// only where more requests came.
    pub fn panicked(&self) -> bool {
        let log = self.log();
        log.contains("panicked at") || log.contains("RuntimeError")
    }

    /// The access log once it has so many lines, or what it has after 15 seconds: Envoy writes it
    /// with a delay.
    pub async fn access_log(&self, lines: usize) -> Vec<Value> {
        let mut found = Vec::new();
        for _ in 0..150 {
            let log = self.log();
            let parsed = log.lines().map(serde_json::from_str);
            found = parsed.filter_map(Result::ok).collect();
            if found.len() >= lines {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        found
    }

    /// Empties the file with Envoy's log and access log, which under load is long soon.
    ///
    /// # Errors
    /// Where the file is gone.
    pub fn forget_log(&self) -> io::Result<()> {
        self.envoy.forget_log()
    }

    /// What Envoy has written to its log and access log so far, or since they were forgotten.
    pub fn log(&self) -> String {
        self.envoy.log()
    }
}

/// What a sidecar is told of an engine, in its provider.
fn watching(engine: &Engine) -> Value {
    let api = api(engine);
    let mut told = json!({
        "api_base": api,
        "lmcache": {"endpoint": format!("{api}/v1/occupancy"), "refresh_secs": 1},
    });
    if let (Some(events), Some(first)) = (&engine.config().kv_events, engine.kv_events().first()) {
        told["kv_events"] = json!({
            "endpoint": first.endpoint,
            "replay_endpoint": first.replay,
            "topic": events.topic,
            "ranks": engine.kv_events().len(),
        });
    }
    told
}
