//! The sidecar as a whole: everything that the configuration asks for, until it is to stop.

use crate::http::{self, App, Bound};
use crate::secrets::Secrets;
use crate::state::State;
use crate::{poll, subscriber};
use rolter_core::config::{Config, Listen};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What was begun may take so long to end. Readers of the feed wait longer, for nothing.
const GRACE: Duration = Duration::from_secs(2);

/// A sidecar whose sockets listen.
pub struct Sidecar {
    app: Arc<App>,
    for_envoy: Bound,
    for_operators: Option<Bound>,
}

impl Sidecar {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// Where that cannot be, with the address.
    pub async fn bind(config: Config) -> io::Result<Self> {
        let Some(sidecar) = config.sidecar.clone() else {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "the configuration has no `sidecar`; write one, as in sidecar: { cluster: rolter_sidecar }",
            ));
        };
        let secrets = Secrets::read(&config, |name| std::env::var(name).ok());
        let secrets = Arc::new(secrets.map_err(io::Error::other)?);
        let for_envoy = bind("sidecar.listen", &sidecar.listen).await?;
        let for_operators = match sidecar.metrics_listen {
            Some(address) => Some(bind("sidecar.metrics_listen", &Listen::Tcp(address)).await?),
            None => None,
        };
        let client = poll::client().map_err(io::Error::other)?;
        let state = Arc::new(State::new(&config));
        Ok(Self {
            app: Arc::new(App::new(state, config, client, secrets)),
            for_envoy,
            for_operators,
        })
    }

    /// What requests are answered from.
    pub fn app(&self) -> &Arc<App> {
        &self.app
    }

    /// The port for Envoy, where it is one.
    pub fn address(&self) -> Option<SocketAddr> {
        self.for_envoy.address()
    }

    /// The port for who collects metrics alone.
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.for_operators.as_ref().and_then(Bound::address)
    }

    /// Works until it is to stop.
    pub async fn run(self, stop: CancellationToken) {
        let mut watching = JoinSet::new();
        self.watch(&mut watching);
        let for_envoy = http::for_envoy(&self.app);
        let for_operators = http::for_operators(&self.app);
        let socket = match &self
            .app
            .config
            .sidecar
            .as_ref()
            .map(|sidecar| &sidecar.listen)
        {
            Some(Listen::Unix(path)) => Some(path.clone()),
            _ => None,
        };
        let serving = async {
            let envoy = http::serve(self.for_envoy, for_envoy, stop.clone());
            match self.for_operators {
                Some(bound) => {
                    let operators = http::serve(bound, for_operators, stop.clone());
                    tokio::join!(envoy, operators);
                }
                None => envoy.await,
            }
        };
        let overdue = async {
            stop.cancelled().await;
            // Whoever waits for news gets what there is.
            self.app.state.wake();
            tokio::time::sleep(GRACE).await;
        };
        tokio::select! {
            () = serving => {}
            () = overdue => {}
        }
        watching.shutdown().await;
        if let Some(path) = socket {
            // Whoever started another one may have taken the path; then it is not ours.
            crate::zmtp::remove_stale_socket(&path);
        }
    }

    /// Follows and asks all that the configuration names.
    fn watch(&self, watching: &mut JoinSet<()>) {
        let state = &self.app.state;
        let client = &self.app.client;
        let mut replica = 0;
        for (place, provider) in self.app.config.providers.iter().enumerate() {
            if let Some(events) = &provider.kv_events {
                for _ in 0..events.ranks {
                    let state = Arc::clone(state);
                    watching.spawn(subscriber::follow(state, events.clone(), replica));
                    replica += 1;
                }
            }
            // Who only makes embeddings is no engine of ours, and may charge for questions.
            let is_target = state
                .targets()
                .get(place)
                .is_some_and(|target| target.is_routed);
            if provider.api_base.is_some() && is_target {
                let secrets = Arc::clone(&self.app.secrets);
                let watch = poll::watch_engine(Arc::clone(state), client.clone(), secrets, place);
                watching.spawn(watch);
            }
            if let Some(lmcache) = provider.lmcache.clone() {
                let state = Arc::clone(state);
                watching.spawn(poll::watch_lmcache(state, client.clone(), lmcache, place));
            }
        }
    }
}

async fn bind(key: &str, listen: &Listen) -> io::Result<Bound> {
    Bound::bind(listen).await.map_err(|error| {
        let hint = match error.kind() {
            io::ErrorKind::NotFound => "; make its directory first",
            io::ErrorKind::AddrInUse => "; is there another sidecar?",
            _ => "",
        };
        io::Error::new(
            error.kind(),
            format!("{key}: cannot listen on {listen}: {error}{hint}"),
        )
    })
}
