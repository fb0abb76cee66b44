//! How full an `LMCache` is, as its controller says.

use super::{Failure, ask_briefly};
use crate::metrics::add;
use crate::state::{LmCache, State, Target};
use reqwest::Client;
use rolter_core::config;
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{MissedTickBehavior, interval};

const MAX_BYTES: usize = 64 << 10;

#[derive(Deserialize)]
struct Answer {
    occupancy: f64,
    cache_available: bool,
}

/// Asks for as long as it is polled.
pub async fn watch(
    state: Arc<State>,
    client: Client,
    settings: config::LmCache,
    target: Arc<Target>,
) {
    let mut ticks = interval(Duration::from_secs(settings.refresh_secs));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let answer = ask_briefly(client.get(&settings.endpoint), MAX_BYTES).await;
        let cache = match answer.and_then(|body| read(&body)) {
            Ok(answer) => Some(LmCache {
                occupancy: answer.occupancy.clamp(0.0, 1.0),
                available: answer.cache_available,
                at: state.now(),
            }),
            // It prefers and avoids nobody at once.
            Err(failure) => {
                add(&target.counts.lmcache_failures, 1);
                tracing::debug!(provider = target.name, %failure, "LMCache does not say how full it is");
                None
            }
        };
        state.note_target(&target, |seen| seen.lmcache = cache);
    }
}

fn read(body: &[u8]) -> Result<Answer, Failure> {
    let answer: Answer = serde_json::from_slice(body)
        .map_err(|_| Failure::Malformed("no occupancy and cache_available"))?;
    if answer.occupancy.is_finite() {
        Ok(answer)
    } else {
        Err(Failure::Malformed("an occupancy that is no number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_signal_counts() {
        let answer = read(br#"{"occupancy": 0.42, "cache_available": true, "more": 1}"#).unwrap();
        assert!(answer.cache_available && (answer.occupancy - 0.42).abs() < 1e-9);
        for body in [
            "",
            "{}",
            r#"{"occupancy": 0.5}"#,
            r#"{"occupancy": "0.5", "cache_available": true}"#,
            r#"{"occupancy": null, "cache_available": true}"#,
            r#"{"occupancy": 0.5, "cache_available": 1}"#,
        ] {
            assert!(read(body.as_bytes()).is_err(), "{body}");
        }
    }
}
