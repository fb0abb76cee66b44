//! What the tests of targets that come and go share: a sidecar that knows pods by their name, and a
//! reader of its feed.

use super::support::{PATIENCE, Running, eventually, sidecar_of};
use engine_sim::{Engine, EngineConfig};
use fleet::Pods;
use reqwest::Client;
use rolter_core::kv::feed::{Change, Page, ReplicaId};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub(crate) const NAME: &str = Pods::NAME;

/// Pods of a service.
pub(crate) fn service() -> Pods {
    Pods::new().unwrap()
}

/// A pod that runs an engine, whether the name has its address or not.
pub(crate) fn started(service: &Pods, pod: u16) -> Engine {
    let config = EngineConfig {
        models: vec!["m".into()],
        ..EngineConfig::default()
    };
    service.start(pod, config).unwrap()
}

/// A configuration with the name as a provider.
pub(crate) fn document(service: &Pods) -> Value {
    let mut provider = service.provider();
    provider["kv_events"]["stale_secs"] = json!(30);
    json!({
        "sidecar": {
            "cluster": "rolter_sidecar",
            "listen": "127.0.0.1:0",
            "metrics_listen": "127.0.0.1:0",
            "dns": {"servers": [service.dns.addr().to_string()], "refresh_secs": 1},
        },
        "providers": [provider],
        "routes": [{"name": "chat", "reach": "pool", "targets": ["vllm"]}],
    })
}

/// A sidecar with this one.
pub(crate) async fn sidecar(service: &Pods) -> Running {
    sidecar_of(&document(service)).await
}

/// Has an engine compute a prompt, of which it tells in events.
pub(crate) async fn prompt(engine: &Engine, words: &str) {
    let body = json!({"model": "m", "prompt": words.repeat(40), "max_tokens": 1});
    let client = Client::builder().no_proxy().build().unwrap();
    let url = format!("http://{}/v1/completions", engine.addr());
    let request = client.post(url).body(body.to_string());
    let answer = request.timeout(PATIENCE).send().await.unwrap();
    assert!(answer.status().is_success(), "{}", answer.status());
}

/// Lets so much time pass at once, for all that waits. Only where there is one thread.
pub(crate) async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// Whether each target is present, by name.
pub(crate) fn presence(sidecar: &Running) -> BTreeMap<String, bool> {
    let targets = sidecar.state.targets();
    let targets = targets.iter();
    targets
        .map(|target| (target.name.clone(), target.is_present()))
        .collect()
}

/// Waits until these are the targets, with what is said of their presence.
pub(crate) async fn targets_are(sidecar: &Running, wanted: &[(String, bool)]) {
    let wanted: BTreeMap<_, _> = wanted.iter().cloned().collect();
    let look = || presence(sidecar);
    eventually(look, |seen| *seen == wanted, &format!("{wanted:?}")).await;
}

/// A reader of the feed.
#[derive(Default)]
pub(crate) struct Reader {
    pub(crate) page: Page,
    blocks: BTreeMap<u16, BTreeSet<u64>>,
}

impl Reader {
    /// Reads all that there is now.
    pub(crate) async fn read(&mut self, sidecar: &Running) -> &Page {
        loop {
            let url = sidecar.url(&format!("/v1/feed?cursor={}", self.page.cursor));
            let client = Client::builder().no_proxy().build().unwrap();
            let answer = client.get(url).timeout(PATIENCE).send().await.unwrap();
            self.page = Page::from_bytes(&answer.bytes().await.unwrap()).unwrap();
            if self.page.anew {
                self.blocks.clear();
            }
            let mut bytes = &*self.page.changes;
            while let Some(change) = Change::read(&mut bytes) {
                match change {
                    Change::Clear(ReplicaId(id)) => {
                        self.blocks.remove(&id);
                    }
                    Change::Put(ReplicaId(id), block, media) if media.is_empty() => {
                        self.blocks.entry(id).or_default().remove(&block.0);
                    }
                    Change::Put(ReplicaId(id), block, _) => {
                        self.blocks.entry(id).or_default().insert(block.0);
                    }
                }
            }
            if !self.page.more {
                return &self.page;
            }
        }
    }

    /// Reads until a target has blocks, and returns them.
    pub(crate) async fn blocks_of(&mut self, sidecar: &Running, target: &str) -> BTreeSet<u64> {
        let began = std::time::Instant::now();
        loop {
            self.read(sidecar).await;
            let places = self.page.replicas.iter().enumerate();
            let own = places.filter(|(_, replica)| replica.target == target);
            let blocks: BTreeSet<u64> = own
                .filter_map(|(place, _)| self.blocks.get(&u16::try_from(place).unwrap()))
                .flatten()
                .copied()
                .collect();
            if !blocks.is_empty() {
                return blocks;
            }
            assert!(began.elapsed() < PATIENCE, "no blocks of {target}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// All blocks of all targets.
    pub(crate) fn blocks(&self) -> BTreeSet<u64> {
        self.blocks.values().flatten().copied().collect()
    }
}
