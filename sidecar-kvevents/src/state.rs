//! What is known of the engines, and waking whoever waits for news of it.
//!
//! Invariant: whatever a [page](State::page) would show differently is followed by a
//! [wake](State::wake). Times alone are no news: they go on by themselves.

use crate::metrics::{ReplicaCounts, TargetCounts};
use rolter_core::config::{Config, Provider};
use rolter_core::kv::feed::{
    Cursor, LmCacheState, LoadState, Page, ReplicaId, ReplicaState, TargetState,
};
use rolter_core::kv::identity::Seed;
use rolter_core::kv::index::Index;
use rolter_core::kv::mirror::REPORT_STALE_MILLIS;
use rolter_core::kv::stream;
use rolter_core::time::Millis;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// The bytes of changes that a page has at most, about.
const PAGE_BYTES: usize = 256 << 10;

/// What is known.
pub struct State {
    began: Instant,
    index: Mutex<Index>,
    replicas: Vec<Replica>,
    targets: Vec<Target>,
    news: watch::Sender<()>,
}

/// A rank of an engine.
pub struct Replica {
    /// The provider's name.
    pub target: String,
    /// The rank.
    pub rank: u16,
    /// Its place in the index.
    pub id: ReplicaId,
    /// What has happened.
    pub counts: ReplicaCounts,
    view: Mutex<StreamView>,
}

/// How an event stream is.
#[derive(Clone, Copy, Debug, Default)]
pub struct StreamView {
    /// Whether what is known of its blocks may be believed.
    pub trusted: bool,
    /// When it was last known to be up to date.
    pub fresh_at: Option<Millis>,
    /// What has happened to it.
    pub counts: stream::Counts,
}

/// An engine.
pub struct Target {
    /// The provider's name.
    pub name: String,
    /// Where its API is.
    pub api_base: Option<String>,
    /// Whether some route has it as a target.
    pub is_routed: bool,
    /// What has happened.
    pub counts: TargetCounts,
    seen: Mutex<Seen>,
}

/// How a target was when it was last asked.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Whether it is well.
    pub healthy: Option<bool>,
    /// How busy it is.
    pub load: Option<Load>,
    /// How full its cache is.
    pub lmcache: Option<LmCache>,
    /// Its `LoRA` adapters.
    pub adapters: Vec<String>,
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Requests that it works on.
    pub running: u32,
    /// Requests that wait.
    pub waiting: u32,
    /// How full its KV cache is, from 0 to 1, where it says.
    pub kv_usage: Option<f64>,
    /// When it said so.
    pub at: Millis,
}

/// How full an `LMCache` is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LmCache {
    /// From 0 to 1.
    pub occupancy: f64,
    /// Whether it can be used.
    pub available: bool,
    /// When it said so.
    pub at: Millis,
}

impl State {
    /// Nothing is known of these engines yet.
    pub fn new(config: &Config) -> Self {
        let mut index = Index::new(Seed(fastrand::u64(..)), fastrand::u64(..));
        let mut replicas = Vec::new();
        for provider in &config.providers {
            let Some(events) = &provider.kv_events else {
                continue;
            };
            for rank in 0..events.ranks {
                let part = events.max_blocks.div_ceil(events.ranks.into());
                let Some(id) = index.add(part) else {
                    tracing::error!(provider = provider.name, rank, "too many ranks in all");
                    break;
                };
                replicas.push(Replica {
                    target: provider.name.clone(),
                    rank,
                    id,
                    counts: ReplicaCounts::default(),
                    view: Mutex::default(),
                });
            }
        }
        let routed = config.routes.iter().flat_map(|route| &route.groups);
        let routed: BTreeSet<usize> = routed.flat_map(|group| &group.targets).copied().collect();
        let targets = config.providers.iter().enumerate();
        let targets =
            targets.map(|(place, provider)| Target::new(provider, routed.contains(&place)));
        Self {
            began: Instant::now(),
            index: Mutex::new(index),
            replicas,
            targets: targets.collect(),
            news: watch::channel(()).0,
        }
    }

    /// The present. It never steps back.
    pub fn now(&self) -> Millis {
        // Not from zero, where there would be no past.
        Millis(1 << 40).plus(u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The blocks.
    pub fn index(&self) -> MutexGuard<'_, Index> {
        lock(&self.index)
    }

    /// The ranks, in the order of the configuration.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// The targets, in the order of the configuration.
    pub fn targets(&self) -> &[Target] {
        &self.targets
    }

    /// Wakes all who wait for news.
    pub fn wake(&self) {
        self.news.send_replace(());
    }

    /// Hears of what is news from now on.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Notes how a rank's event stream is.
    pub fn note_stream(&self, replica: &Replica, view: StreamView) {
        let before = std::mem::replace(&mut *lock(&replica.view), view);
        if before.trusted != view.trusted {
            self.wake();
        }
    }

    /// Notes how a target is.
    pub fn note_target(&self, target: &Target, note: impl FnOnce(&mut Seen)) {
        let mut seen = lock(&target.seen);
        let before = target_state(target, &seen, Millis(0));
        note(&mut seen);
        let changed = before != target_state(target, &seen, Millis(0));
        drop(seen);
        if changed {
            self.wake();
        }
    }

    /// Whether who is there knows of all blocks.
    pub fn is_current(&self, cursor: &Cursor) -> bool {
        self.index().is_current(cursor)
    }

    /// What is to be told to who is there.
    pub fn page(&self, since: Option<Cursor>) -> Page {
        let now = self.now();
        let index = self.index();
        let changes = index.changes(since, PAGE_BYTES);
        let replicas = self.replicas.iter().map(|replica| {
            let view = replica.view();
            let fresh_at = view.fresh_at.filter(|_| view.trusted);
            ReplicaState {
                target: replica.target.clone(),
                rank: replica.rank,
                block_size: index.block_size(replica.id),
                age_ms: fresh_at.map(|at| now.since(at)),
            }
        });
        let replicas = replicas.collect();
        let seed = index.seed().0;
        drop(index);
        let targets = self.targets.iter().filter(|target| target.is_routed);
        let targets = targets.map(|target| target_state(target, &lock(&target.seen), now));
        Page {
            cursor: changes.cursor.to_string(),
            more: changes.more,
            anew: changes.anew,
            seed,
            replicas,
            targets: targets.collect(),
            changes: changes.bytes,
        }
    }
}

fn target_state(target: &Target, seen: &Seen, now: Millis) -> TargetState {
    TargetState {
        target: target.name.clone(),
        healthy: seen.healthy,
        load: seen.load.map(|load| LoadState {
            running: load.running,
            waiting: load.waiting,
            age_ms: now.since(load.at),
        }),
        lmcache: seen.lmcache.map(|cache| LmCacheState {
            occupancy: cache.occupancy,
            available: cache.available,
            age_ms: now.since(cache.at),
        }),
        adapters: seen.adapters.clone(),
    }
}

impl Replica {
    /// How its event stream is.
    pub fn view(&self) -> StreamView {
        *lock(&self.view)
    }
}

impl Seen {
    /// How busy it is, where it said so of late: by the filter's own rule.
    pub fn load_at(&self, now: Millis) -> Option<Load> {
        self.load
            .filter(|load| now.since(load.at) <= REPORT_STALE_MILLIS)
    }
}

impl Target {
    fn new(provider: &Provider, is_routed: bool) -> Self {
        Self {
            is_routed,
            name: provider.name.clone(),
            api_base: provider.api_base.clone(),
            counts: TargetCounts::default(),
            seen: Mutex::default(),
        }
    }

    /// How it was when it was last asked.
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }
}

/// What a panic elsewhere has left is whole: nothing is changed in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
