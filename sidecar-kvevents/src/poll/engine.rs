//! How an engine is: its health, its load, its adapters.

use super::{Failure, ask_briefly, exposition};
use crate::metrics::add;
use crate::secrets::Secrets;
use crate::state::{Load, State, Target};
use reqwest::Client;
use rolter_core::time::Millis;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

const EVERY: Duration = Duration::from_secs(1);
/// Adapters come and go by an operator's hand.
const MODELS_EVERY: u32 = 15;

const MAX_HEALTH_BYTES: usize = 64 << 10;
const MAX_METRICS_BYTES: usize = 4 << 20;
const MAX_MODELS_BYTES: usize = 1 << 20;
const MAX_ADAPTERS: usize = 1024;

/// Where an engine's API is, and who asks.
struct Api<'a> {
    client: Client,
    secrets: Arc<Secrets>,
    provider: usize,
    base: &'a str,
}

impl Api<'_> {
    async fn get(&self, path: &str, max_bytes: usize) -> Result<Vec<u8>, Failure> {
        let request = self.client.get(format!("{}{path}", self.base));
        ask_briefly(self.secrets.authorize(self.provider, request), max_bytes).await
    }
}

/// Asks for as long as it is polled.
pub async fn watch(state: Arc<State>, client: Client, secrets: Arc<Secrets>, target: Arc<Target>) {
    let Some(base) = target.api_base.as_deref() else {
        return;
    };
    let api = Api {
        client,
        secrets,
        provider: target.provider,
        base,
    };
    let mut ticks = interval(EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = None;
    for round in 0_u32.. {
        ticks.tick().await;
        tokio::join!(
            health(&state, &api, &target, &mut last),
            load(&state, &api, &target),
            async {
                if round % MODELS_EVERY == 0 {
                    adapters(&state, &api, &target).await;
                }
            },
        );
    }
}

async fn health(state: &State, api: &Api<'_>, target: &Target, last: &mut Option<bool>) {
    let answer = api.get("/health", MAX_HEALTH_BYTES).await;
    let healthy = match &answer {
        Ok(_) => Some(true),
        Err(failure) => {
            add(&target.counts.health_failures, 1);
            tracing::debug!(provider = target.name, %failure, "the engine does not say that it is well");
            is_ill(failure).then_some(false)
        }
    };
    let known = match (std::mem::replace(last, healthy), healthy) {
        (_, Some(true)) => healthy,
        // An engine in the middle of a long step may miss one.
        (Some(true), _) => return,
        (before, _) => healthy.filter(|_| before == healthy),
    };
    state.note_target(target, |seen| seen.healthy = known);
}

/// Whether an engine says by this that it is ill. Anything else may be for want of a way from here to
/// there, of a key, or of a `/health`, and Envoy has ways of its own to find out.
fn is_ill(failure: &Failure) -> bool {
    matches!(failure, Failure::Status(status) if status.is_server_error())
}

async fn load(state: &State, api: &Api<'_>, target: &Target) {
    let body = api.get("/metrics", MAX_METRICS_BYTES).await;
    let now = state.now();
    match body.and_then(|body| read_load(&body, now)) {
        Ok(load) => state.note_target(target, |seen| seen.load = Some(load)),
        // What it said last ages.
        Err(failure) => {
            add(&target.counts.metrics_failures, 1);
            tracing::debug!(provider = target.name, %failure, "the engine does not tell its load");
        }
    }
}

fn read_load(body: &[u8], at: Millis) -> Result<Load, Failure> {
    let said = std::str::from_utf8(body).ok().and_then(exposition::read);
    let said = said.ok_or(Failure::Malformed(
        "no numbers of running and waiting requests",
    ))?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it saturates, and there are not so many requests"
    )]
    let whole = |number: f64| number.round() as u32;
    Ok(Load {
        running: whole(said.running),
        waiting: whole(said.waiting),
        kv_usage: said.kv_usage,
        at,
    })
}

#[derive(Deserialize)]
struct Models {
    data: Vec<Model>,
}

#[derive(Deserialize)]
struct Model {
    id: String,
    parent: Option<String>,
}

async fn adapters(state: &State, api: &Api<'_>, target: &Target) {
    let body = api.get("/v1/models", MAX_MODELS_BYTES).await;
    match body.and_then(|body| read_adapters(&body)) {
        Ok(adapters) => state.note_target(target, |seen| seen.adapters = adapters),
        Err(failure) => {
            add(&target.counts.models_failures, 1);
            tracing::debug!(provider = target.name, %failure, "the engine does not tell its models");
        }
    }
}

/// What has a parent is an adapter.
fn read_adapters(body: &[u8]) -> Result<Vec<String>, Failure> {
    let models: Models =
        serde_json::from_slice(body).map_err(|_| Failure::Malformed("no list of models"))?;
    let adapters = models
        .data
        .into_iter()
        .filter(|model| model.parent.is_some());
    Ok(adapters.map(|model| model.id).take(MAX_ADAPTERS).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_a_parent_is_an_adapter() {
        let body = br#"{"object": "list", "data": [
            {"id": "base", "parent": null}, {"id": "other"}, {"id": "sql", "parent": "base"}
        ]}"#;
        assert_eq!(read_adapters(body).unwrap(), ["sql"]);
        assert!(read_adapters(b"[]").is_err());
    }
}
