//! The sidecar as a whole: everything that the configuration asks for, until it is to stop.

use crate::discover::Lookout;
use crate::http::{self, App, Bound};
use crate::poll;
use crate::secrets::Secrets;
use crate::state::State;
use crate::watch::Watch;
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
    /// Those who look for the addresses of names.
    lookouts: Vec<Lookout>,
    for_envoy: Bound,
    for_operators: Option<Bound>,
    /// Something has ended that should go on.
    broken: CancellationToken,
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
        let lookouts = Lookout::all(&config, &sidecar.dns)?;
        let state = Arc::new(State::new(&config));
        Ok(Self {
            lookouts,
            app: Arc::new(App::new(state, config, client, secrets)),
            for_envoy,
            for_operators,
            broken: CancellationToken::new(),
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
    ///
    /// # Errors
    /// Where something of it has ended before.
    pub async fn run(mut self, stop: CancellationToken) -> io::Result<()> {
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
        let ended = tokio::select! {
            () = serving => Ok(()),
            () = overdue => Ok(()),
            () = self.broken.cancelled() => {
                Err(io::Error::other("a task has ended that should go on; the log says which"))
            }
        };
        watching.shutdown().await;
        if let Some(path) = socket {
            // Whoever started another one may have taken the path; then it is not ours.
            crate::zmtp::remove_stale_socket(&path);
        }
        ended
    }

    /// Follows and asks all that the configuration names.
    fn watch(&mut self, watching: &mut JoinSet<()>) {
        let watch = Watch {
            state: Arc::clone(&self.app.state),
            client: self.app.client.clone(),
            secrets: Arc::clone(&self.app.secrets),
            broken: self.broken.clone(),
        };
        for target in watch.state.targets().iter() {
            if let Some(provider) = self.app.config.providers.get(target.provider) {
                watch.follow(provider, target, watching);
            }
        }
        for lookout in self.lookouts.drain(..) {
            let provider = lookout.provider().to_owned();
            watch.spawn(watching, &provider, lookout.run(watch.clone()));
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[tokio::test]
    async fn it_ends_where_a_task_has_that_should_go_on_but_not_where_one_was_stopped() {
        let document = json!({
            "sidecar": {"cluster": "s", "listen": "127.0.0.1:0"},
            "providers": [{"name": "p", "cluster": "p"}],
            "routes": [{"name": "r", "targets": ["p"]}],
        });
        let bind = || Sidecar::bind(Config::read(&document).unwrap());
        for is_broken in [false, true] {
            let sidecar = bind().await.unwrap();
            let watch = Watch {
                state: Arc::clone(&sidecar.app.state),
                client: sidecar.app.client.clone(),
                secrets: Arc::clone(&sidecar.app.secrets),
                broken: sidecar.broken.clone(),
            };
            let mut tasks = JoinSet::new();
            watch.spawn(&mut tasks, "stopped", std::future::pending());
            tasks.shutdown().await;
            let stop = CancellationToken::new();
            if is_broken {
                watch.spawn(&mut tasks, "p", async { panic!("as is to be seen") });
            } else {
                stop.cancel();
            }
            assert_eq!(sidecar.run(stop).await.is_err(), is_broken);
        }
    }
}
