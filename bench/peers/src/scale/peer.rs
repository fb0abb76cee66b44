//! Models of others, by the rules that their documentation and sources give, and of who sees all.

use super::engine::{Change, Engine};
use super::gateway::EVENT_DELAY;
use super::play::{Asking, Router};
use crate::workload::Message;
use engine_sim::{BlockHash, CacheEvent};
use fastrand::Rng;
use kv_index::StringTree;
use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

/// Sends each request to where its answer begins first: it sees all queues and all caches.
pub(crate) struct Oracle(Rng);

impl Oracle {
    pub(crate) fn new(rng: Rng) -> Self {
        Self(rng)
    }
}

impl Router for Oracle {
    fn route(&mut self, asking: &Asking<'_>) -> usize {
        let cost = |engine: &Engine| {
            let cached = engine.promised(asking.asked);
            let own = engine.compute(asking.asked.prompt_tokens - cached);
            (engine.backlog(asking.now) + own, std::cmp::Reverse(cached))
        };
        let costs = asking.engines.iter().map(cost);
        least(costs, &mut self.0)
    }

    fn first_token(&mut self, _: usize, _: Duration) {}
    fn finished(&mut self, _: usize) {}
    fn heard(&mut self, _: usize, _: &[Change], _: Duration) {}
}

/// The place of the least, any of several.
fn least<K: Ord>(keys: impl Iterator<Item = K>, rng: &mut Rng) -> usize {
    let mut best: Vec<usize> = Vec::new();
    let mut least = None;
    for (place, key) in keys.enumerate() {
        match least.as_ref().map(|least| key.cmp(least)) {
            Some(std::cmp::Ordering::Greater) => continue,
            Some(std::cmp::Ordering::Equal) => {}
            _ => {
                best.clear();
                least = Some(key);
            }
        }
        best.push(place);
    }
    rng.choice(best).unwrap_or(0)
}

/// sglang-router's `cache_aware` with its defaults, one process a gateway.
///
/// Where loads are too far apart, the least loaded; else who has most of the text, if that is more
/// than a threshold of it; else the least loaded. What it is given, it is taken to have.
pub(crate) struct CacheAware {
    gateways: Vec<Guess>,
    names: Vec<String>,
    /// The gateway and the engine of requests under way.
    sent: HashMap<usize, (usize, usize)>,
    rng: Rng,
}

struct Guess {
    tree: StringTree,
    loads: Vec<usize>,
    evicted: Duration,
}

impl CacheAware {
    const THRESHOLD: f64 = 0.3;
    const BALANCE_ABS: usize = 64;
    const BALANCE_REL: f64 = 1.5;
    const MAX_TREE_SIZE: usize = 64 << 20;
    const EVICTION_INTERVAL: Duration = Duration::from_mins(1);

    pub(crate) fn new(gateways: usize, engines: usize, rng: Rng) -> Self {
        let gateway = |_| Guess {
            tree: StringTree::new(),
            loads: vec![0; engines],
            evicted: Duration::ZERO,
        };
        Self {
            gateways: (0..gateways).map(gateway).collect(),
            names: (0..engines).map(|n| format!("http://engine-{n}")).collect(),
            sent: HashMap::new(),
            rng,
        }
    }
}

impl Guess {
    fn pick(&mut self, text: &str, names: &[String]) -> usize {
        let first_least = || {
            let loads = self.loads.iter().enumerate();
            loads.min_by_key(|(_, load)| **load).map_or(0, |(n, _)| n)
        };
        let least = self.loads.iter().min().copied().unwrap_or(0);
        let most = self.loads.iter().max().copied().unwrap_or(0);
        let is_imbalanced = most - least > CacheAware::BALANCE_ABS
            && approximate(most) > approximate(least) * CacheAware::BALANCE_REL;
        let picked = if is_imbalanced {
            first_least()
        } else {
            let found = self.tree.match_prefix_with_counts(text);
            let rate = approximate(found.matched_char_count) / approximate(text.len()).max(1.0);
            let who = names.iter().position(|name| **name == *found.tenant);
            who.filter(|_| rate > CacheAware::THRESHOLD)
                .unwrap_or_else(first_least)
        };
        self.tree.insert_text(text, &names[picked]);
        picked
    }
}

impl Router for CacheAware {
    fn route(&mut self, asking: &Asking<'_>) -> usize {
        let number = self.rng.usize(..self.gateways.len());
        let gateway = &mut self.gateways[number];
        if asking.now.saturating_sub(gateway.evicted) >= Self::EVICTION_INTERVAL {
            gateway.evicted = asking.now;
            gateway.tree.evict_tenant_by_size(Self::MAX_TREE_SIZE);
        }
        let texts = asking.request.messages.iter().map(Message::text);
        let text = texts.collect::<Vec<_>>().join(" ");
        let engine = gateway.pick(&text, &self.names);
        gateway.loads[engine] += 1;
        self.sent.insert(asking.number, (number, engine));
        engine
    }

    fn first_token(&mut self, _: usize, _: Duration) {}

    fn finished(&mut self, number: usize) {
        if let Some((gateway, engine)) = self.sent.remove(&number) {
            self.gateways[gateway].loads[engine] -= 1;
        }
    }

    fn heard(&mut self, _: usize, _: &[Change], _: Duration) {}
}

/// vllm-router's `kv_aware`, one process a gateway: the least prompt tokens to compute, those of
/// requests that it sent before and that have not begun to answer, and those that the engine's
/// events have not told of; of equals, the least load.
pub(crate) struct KvAware {
    gateways: Vec<Known>,
    block_tokens: usize,
    blocks: Vec<HashSet<BlockHash>>,
    /// What engines told, which is on its way.
    events: VecDeque<(Duration, usize, Vec<Change>)>,
    sent: HashMap<usize, Sent>,
    rng: Rng,
}

#[derive(Clone)]
struct Known {
    pending: Vec<usize>,
    loads: Vec<usize>,
}

struct Sent {
    gateway: usize,
    engine: usize,
    pending: usize,
}

impl KvAware {
    pub(crate) fn new(gateways: usize, engines: usize, block_tokens: usize, rng: Rng) -> Self {
        let known = Known {
            pending: vec![0; engines],
            loads: vec![0; engines],
        };
        Self {
            gateways: vec![known; gateways],
            block_tokens,
            blocks: vec![HashSet::new(); engines],
            events: VecDeque::new(),
            sent: HashMap::new(),
            rng,
        }
    }

    fn listen(&mut self, now: Duration) {
        while let Some((at, ..)) = self.events.front()
            && *at + EVENT_DELAY <= now
        {
            let Some((_, engine, changes)) = self.events.pop_front() else {
                return;
            };
            let blocks = &mut self.blocks[engine];
            for change in changes {
                match change {
                    CacheEvent::Stored(block) => _ = blocks.insert(block),
                    CacheEvent::Removed(block) => _ = blocks.remove(&block),
                    CacheEvent::Cleared => blocks.clear(),
                }
            }
        }
    }
}

impl Router for KvAware {
    fn route(&mut self, asking: &Asking<'_>) -> usize {
        self.listen(asking.now);
        let gateway = self.rng.usize(..self.gateways.len());
        let known = &mut self.gateways[gateway];
        let missing = |engine: usize| {
            let blocks = &self.blocks[engine];
            let prefix = asking.asked.prefix();
            let found = prefix.partition_point(|block| blocks.contains(block));
            asking.asked.prompt_tokens - found * self.block_tokens
        };
        let engines = 0..known.loads.len();
        let costs = engines.map(|engine| {
            let tokens = known.pending[engine] + missing(engine);
            (tokens, known.loads[engine])
        });
        let engine = least(costs, &mut self.rng);
        let pending = missing(engine);
        known.pending[engine] += pending;
        known.loads[engine] += 1;
        let sent = Sent {
            gateway,
            engine,
            pending,
        };
        self.sent.insert(asking.number, sent);
        engine
    }

    fn first_token(&mut self, number: usize, _: Duration) {
        if let Some(sent) = self.sent.get_mut(&number) {
            let pending = std::mem::take(&mut sent.pending);
            self.gateways[sent.gateway].pending[sent.engine] -= pending;
        }
    }

    fn finished(&mut self, number: usize) {
        if let Some(sent) = self.sent.remove(&number) {
            self.gateways[sent.gateway].loads[sent.engine] -= 1;
        }
    }

    fn heard(&mut self, engine: usize, changes: &[Change], now: Duration) {
        self.events.push_back((now, engine, changes.to_vec()));
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn approximate(count: usize) -> f64 {
    count as f64
}
