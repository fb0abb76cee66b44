//! All that follows one target: its event streams, and the questions how it is.
//!
//! Invariant: a task that ends though nobody has stopped it is not missed: the log says so, and the
//! sidecar ends. Whoever starts it anew has all of it again, and Envoy keeps what it knows meanwhile;
//! one that went on would tell of the past for ever.

use crate::secrets::Secrets;
use crate::state::{State, Target};
use crate::{poll, subscriber};
use futures_util::FutureExt;
use reqwest::Client;
use rolter_core::config::Provider;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// What it takes to follow targets.
#[derive(Clone)]
pub struct Watch {
    /// Where it is written what is known.
    pub state: Arc<State>,
    /// Who asks engines.
    pub client: Client,
    /// What authorizes there.
    pub secrets: Arc<Secrets>,
    /// Something has ended that should go on.
    pub broken: CancellationToken,
}

impl Watch {
    /// Follows a target, which is what this provider says, for as long as the tasks go on.
    pub fn follow(&self, provider: &Provider, target: &Arc<Target>, tasks: &mut JoinSet<()>) {
        if let Some(events) = &provider.kv_events {
            for replica in &target.replicas {
                let (state, replica) = (Arc::clone(&self.state), Arc::clone(replica));
                let task = subscriber::follow(state, events.clone(), replica);
                self.spawn(tasks, &target.name, task);
            }
        }
        // Who only makes embeddings is no engine of ours, and may charge for questions.
        if provider.api_base.is_some() && target.is_routed {
            let (client, secrets) = (self.client.clone(), Arc::clone(&self.secrets));
            let (state, of) = (Arc::clone(&self.state), Arc::clone(target));
            let task = poll::watch_engine(state, client, secrets, of);
            self.spawn(tasks, &target.name, task);
        }
        if let Some(lmcache) = provider.lmcache.clone() {
            let (state, of) = (Arc::clone(&self.state), Arc::clone(target));
            let task = poll::watch_lmcache(state, self.client.clone(), lmcache, of);
            self.spawn(tasks, &target.name, task);
        }
    }

    /// Does what is to go on until it is stopped.
    pub fn spawn(
        &self,
        tasks: &mut JoinSet<()>,
        provider: &str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let (broken, provider) = (self.broken.clone(), provider.to_owned());
        tasks.spawn(async move {
            // The panic itself is on stderr by then.
            let panicked = AssertUnwindSafe(task).catch_unwind().await.is_err();
            tracing::error!(provider, panicked, "what follows it has ended by itself");
            broken.cancel();
        });
    }
}
