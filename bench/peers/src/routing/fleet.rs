//! Fleets of simulated engines, and what they say of themselves.

use crate::gateway::Upstream;
use crate::workload::{MODEL, Settings};
use engine_sim::{Engine, EngineConfig, KvEvents};
use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// As many engines, fresh, that all tell of their caches.
pub(crate) fn start(count: usize, settings: &Settings) -> io::Result<Arc<[Engine]>> {
    let start = |place: usize| {
        let config = EngineConfig {
            name: format!("engine-{place:02}"),
            models: vec![MODEL.to_owned()],
            kv_blocks: settings.kv_blocks,
            block_tokens: settings.block_tokens,
            // What the cache holds bounds it.
            max_model_len: usize::MAX,
            prefill_tokens_per_sec: settings.prefill_tokens_per_sec,
            decode_time_per_token: settings.decode_time_per_token,
            max_batch: settings.max_batch,
            kv_events: Some(kv_events()),
            ..EngineConfig::default()
        };
        Engine::start(config, (Ipv4Addr::LOCALHOST, 0).into())
    };
    (0..count).map(start).collect()
}

/// Under vLLM's default topic, which is empty: vllm-router hears no other.
fn kv_events() -> KvEvents {
    KvEvents {
        topic: String::new(),
        ..KvEvents::default()
    }
}

/// As gateways are told of them.
pub(crate) fn upstreams(engines: &[Engine]) -> Vec<Upstream> {
    let upstream = |engine: &Engine| Upstream {
        name: engine.name().to_owned(),
        addr: engine.addr(),
        kv_events: engine.kv_events().first().cloned(),
    };
    engines.iter().map(upstream).collect()
}

/// What the engines have counted, one by one.
#[derive(Clone, Debug)]
pub(crate) struct Counts(Vec<Count>);

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    queried: u64,
    hit: u64,
}

impl Counts {
    pub(crate) fn of(engines: &[Engine]) -> Self {
        let count = |engine: &Engine| {
            let stats = engine.stats();
            Count {
                queried: stats.prefix_queried_tokens,
                hit: stats.prefix_hit_tokens,
            }
        };
        Self(engines.iter().map(count).collect())
    }

    /// What was counted since.
    pub(crate) fn since(&self, before: &Self) -> Self {
        let both = self.0.iter().zip(&before.0);
        let since = |(now, before): (&Count, &Count)| Count {
            queried: now.queried - before.queried,
            hit: now.hit - before.hit,
        };
        Self(both.map(since).collect())
    }

    /// Prompt tokens found in caches, of all that were looked up.
    pub(crate) fn hit_rate(&self) -> f64 {
        let sum = |of: fn(&Count) -> u64| self.0.iter().map(of).sum::<u64>();
        ratio(sum(|count| count.hit), sum(|count| count.queried))
    }

    /// Prompt tokens that were computed, by all engines together.
    pub(crate) fn computed(&self) -> u64 {
        self.0.iter().map(Count::computed).sum()
    }

    /// What the busiest engine computed, by what the average one did.
    pub(crate) fn spread(&self) -> f64 {
        let busiest = self.0.iter().map(Count::computed).max().unwrap_or(0);
        let engines = u64::try_from(self.0.len()).unwrap_or(u64::MAX);
        ratio(busiest * engines, self.computed())
    }
}

impl Count {
    fn computed(&self) -> u64 {
        self.queried - self.hit
    }
}

/// A share; zero of nothing.
#[expect(clippy::cast_precision_loss, reason = "counts of a minute's traffic")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_tell_what_was_found_and_who_had_most_to_do() {
        let counts = |all: &[(u64, u64)]| {
            let count = |&(queried, hit): &(u64, u64)| Count { queried, hit };
            Counts(all.iter().map(count).collect())
        };
        let since = counts(&[(300, 100), (250, 200)]).since(&counts(&[(100, 0), (50, 100)]));
        assert_eq!(since.computed(), 200);
        assert!((since.hit_rate() - 0.5).abs() < 1e-9);
        assert!((since.spread() - 1.0).abs() < 1e-9);
        assert!((counts(&[(300, 0), (100, 0)]).spread() - 1.5).abs() < 1e-9);
        assert!(counts(&[]).spread().abs() < 1e-9);
    }
}
