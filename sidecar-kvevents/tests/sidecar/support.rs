//! A sidecar in this process, and waiting for what is to become true.

use rolter_core::config::Config;
use rolter_sidecar::http::App;
use rolter_sidecar::run::Sidecar;
use rolter_sidecar::state::State;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Long enough for a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

pub(crate) struct Running {
    pub(crate) state: Arc<State>,
    pub(crate) app: Arc<App>,
    pub(crate) address: SocketAddr,
    pub(crate) metrics: SocketAddr,
    stop: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

/// With these providers, all of them targets of the route `chat`.
pub(crate) async fn sidecar(providers: &[Value]) -> Running {
    let named = |(index, provider): (usize, &Value)| {
        let mut provider = provider.clone();
        provider["name"] = json!(format!("e{index}"));
        provider["cluster"] = json!(format!("e{index}"));
        provider
    };
    let providers: Vec<_> = providers.iter().enumerate().map(named).collect();
    let targets: Vec<_> = providers.iter().map(|provider| &provider["name"]).collect();
    let document = json!({
        "sidecar": {
            "cluster": "rolter_sidecar", "listen": "127.0.0.1:0", "metrics_listen": "127.0.0.1:0",
        },
        "providers": providers,
        "routes": [{"name": "chat", "targets": targets}],
    });
    sidecar_of(&document).await
}

/// With this configuration.
pub(crate) async fn sidecar_of(document: &Value) -> Running {
    let sidecar = Sidecar::bind(Config::read(document).unwrap())
        .await
        .unwrap();
    let stop = CancellationToken::new();
    Running {
        state: Arc::clone(&sidecar.app().state),
        app: Arc::clone(sidecar.app()),
        address: sidecar.address().unwrap(),
        metrics: sidecar.metrics_address().unwrap(),
        stop: stop.clone(),
        task: tokio::spawn(async move { sidecar.run(stop).await.unwrap() }),
    }
}

/// The events of a publisher.
pub(crate) fn events(port: u16, replay_port: u16) -> Value {
    let mut events = json!({"endpoint": format!("tcp://127.0.0.1:{port}"), "stale_secs": 3});
    if replay_port != 0 {
        events["replay_endpoint"] = json!(format!("tcp://127.0.0.1:{replay_port}"));
    }
    json!({"kv_events": events})
}

impl Running {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }

    /// Waits until the first stream is trusted and has so many blocks.
    pub(crate) async fn knows(&self, blocks: usize) {
        let wanted = (true, blocks);
        eventually(
            || (self.trusted(), self.blocks()),
            |seen| *seen == wanted,
            &format!("{wanted:?}"),
        )
        .await;
    }

    pub(crate) fn trusted(&self) -> bool {
        self.state.replicas()[0].view().trusted
    }

    pub(crate) fn blocks(&self) -> usize {
        self.state.index().blocks(self.state.replicas()[0].id)
    }

    pub(crate) fn counts(&self) -> rolter_core::kv::stream::Counts {
        self.state.replicas()[0].view().counts
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Waits for what is to happen.
pub(crate) async fn within_patience<F: Future>(what: &str, future: F) -> F::Output {
    let output = tokio::time::timeout(PATIENCE, future).await;
    output.unwrap_or_else(|_| panic!("wanted {what}"))
}

/// Waits until something becomes true.
pub(crate) async fn eventually<T: std::fmt::Debug>(
    mut look: impl FnMut() -> T,
    mut is_it: impl FnMut(&T) -> bool,
    wanted: &str,
) -> T {
    let began = tokio::time::Instant::now();
    loop {
        let seen = look();
        if is_it(&seen) {
            return seen;
        }
        assert!(began.elapsed() < PATIENCE, "wanted {wanted}, has {seen:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
