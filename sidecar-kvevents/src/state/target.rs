//! A target and its ranks, and what is known of them.

use super::lock;
use crate::metrics::{ReplicaCounts, TargetCounts};
use rolter_core::config::{Endpoint, Provider};
use rolter_core::kv::feed::{LmCacheState, LoadState, ReplicaId, ReplicaState, TargetState};
use rolter_core::kv::index::Index;
use rolter_core::kv::mirror::REPORT_STALE_MILLIS;
use rolter_core::kv::stream;
use rolter_core::time::Millis;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A rank of an engine.
pub struct Replica {
    /// The target's name.
    pub target: String,
    /// The rank.
    pub rank: u16,
    /// Its place in the index.
    pub id: ReplicaId,
    /// What has happened.
    pub counts: ReplicaCounts,
    pub(super) view: Mutex<StreamView>,
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
    /// The provider's name, with the address where that is one of several.
    pub name: String,
    /// The place of its provider in the configuration.
    pub provider: usize,
    /// Where it is, where the configuration or DNS says so.
    pub address: Option<SocketAddr>,
    /// Where its API is.
    pub api_base: Option<String>,
    /// Whether some route has it as a target.
    pub is_routed: bool,
    /// Its ranks, where it publishes events.
    pub replicas: Vec<Arc<Replica>>,
    /// What has happened.
    pub counts: TargetCounts,
    /// Whether the provider's name has its address, where there is a name. It changes while the index is
    /// locked.
    pub(super) is_present: AtomicBool,
    pub(super) seen: Mutex<Seen>,
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

impl Replica {
    fn new(target: &str, rank: u16, id: ReplicaId) -> Self {
        Self {
            target: target.to_owned(),
            rank,
            id,
            counts: ReplicaCounts::default(),
            view: Mutex::default(),
        }
    }

    /// How its event stream is.
    pub fn view(&self) -> StreamView {
        *lock(&self.view)
    }

    pub(super) fn state(&self, index: &Index, now: Millis) -> ReplicaState {
        let view = self.view();
        let fresh_at = view.fresh_at.filter(|_| view.trusted);
        ReplicaState {
            target: self.target.clone(),
            rank: self.rank,
            block_size: index.block_size(self.id),
            age_ms: fresh_at.map(|at| now.since(at)),
        }
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
    /// Of which nothing is known yet, with these numbers for its ranks.
    pub(super) fn new(
        provider: &Provider,
        place: usize,
        is_routed: bool,
        ids: &[ReplicaId],
    ) -> Self {
        let replicas = (0..).zip(ids);
        let replicas = replicas.map(|(rank, &id)| Arc::new(Replica::new(&provider.name, rank, id)));
        Self {
            name: provider.name.clone(),
            provider: place,
            address: match provider.endpoint {
                Some(Endpoint::Address(address)) => Some(address),
                _ => None,
            },
            api_base: provider.api_base.clone(),
            is_routed,
            replicas: replicas.collect(),
            counts: TargetCounts::default(),
            is_present: AtomicBool::new(true),
            seen: Mutex::default(),
        }
    }

    /// How it was when it was last asked.
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Whether it may get requests, as far as DNS goes.
    pub fn is_present(&self) -> bool {
        self.is_present.load(Ordering::Relaxed)
    }

    pub(super) fn ids(&self) -> Vec<ReplicaId> {
        self.replicas.iter().map(|replica| replica.id).collect()
    }

    pub(super) fn state(&self, seen: &Seen, now: Millis) -> TargetState {
        TargetState {
            target: self.name.clone(),
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
}
