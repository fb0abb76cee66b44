//! What an Envoy knows of the engines beside their blocks: one value of the shared data, which the
//! leader writes and all VMs read.

use super::feed::{Page, ReplicaState, TargetState};
use super::log::Log;
use super::packed;
use crate::shared::{Host, NO_VERSION};
use crate::time::Millis;
use crate::wire::NameHash;

const KEY: &str = "rolter/2/engines";

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Board {
    /// Drawn at random by the leader that has written it.
    pub(super) leader: u64,
    /// The slot under whose keys the logs are.
    pub(super) slot: u8,
    /// What identities are made with.
    pub(super) seed: u64,
    /// By their numbers in the logs' keys. Those of one target follow one another.
    pub(super) replicas: Vec<Replica>,
    pub(super) targets: Vec<Target>,
    /// Hashes of the names of all adapters that some engine has, in ascending order.
    pub(super) adapters: Vec<u64>,
}

/// A rank of an engine.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Replica {
    /// The hash of the target's name.
    pub(super) target: u64,
    pub(super) rank: u16,
    pub(super) block_size: u32,
    /// When there was a sign of life of its events; nothing where they are not to be trusted.
    pub(super) alive: Option<Millis>,
    pub(super) log: Log,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Target {
    /// The hash of its name.
    pub(super) name: u64,
    /// Requests that the engine says it has, and when it said so.
    pub(super) load: Option<(u32, Millis)>,
    /// When the engine said that it is not well, if it does.
    pub(super) ill: Option<Millis>,
    /// How much room its `LMCache` has, 0 to 1, and when it said so.
    pub(super) room: Option<(f64, Millis)>,
}

impl Board {
    /// Without logs.
    pub(super) fn of(page: &Page, now: Millis) -> Self {
        let names = page.targets.iter().flat_map(|target| &target.adapters);
        let mut adapters: Vec<u64> = names.map(|name| NameHash::of(name).0).collect();
        adapters.sort_unstable();
        adapters.dedup();
        Self {
            seed: page.seed,
            replicas: page
                .replicas
                .iter()
                .map(|of| Replica::of(of, now))
                .collect(),
            targets: page.targets.iter().map(|of| Target::of(of, now)).collect(),
            adapters,
            ..Self::default()
        }
    }

    /// The board where there is one that can be read, and what [`write`](Self::write) expects.
    pub(super) fn read<H: Host>(host: &H) -> (Option<Self>, u32) {
        match host.get(KEY) {
            Some(stored) => (packed::read(&stored.value), stored.version),
            None => (None, NO_VERSION),
        }
    }

    /// Puts it in the place of the one that was read. Whether that was still the one.
    pub(super) fn write<H: Host>(&self, host: &H, expected: u32) -> bool {
        host.set(KEY, &packed::write(self), Some(expected))
    }

    /// Whether it is about the same replicas and targets, in the same places.
    pub(super) fn has_places_of(&self, other: &Self) -> bool {
        let replica = |of: &Replica| (of.target, of.rank);
        let name = |of: &Target| of.name;
        self.replicas
            .iter()
            .map(replica)
            .eq(other.replicas.iter().map(replica))
            && self
                .targets
                .iter()
                .map(name)
                .eq(other.targets.iter().map(name))
    }
}

impl Replica {
    /// Without its log.
    pub(super) fn of(state: &ReplicaState, now: Millis) -> Self {
        let NameHash(target) = NameHash::of(&state.target);
        Self {
            target,
            rank: state.rank,
            block_size: state.block_size,
            alive: state.age_ms.map(|age| now.minus(age)),
            log: Log::default(),
        }
    }
}

impl Target {
    pub(super) fn of(state: &TargetState, now: Millis) -> Self {
        let NameHash(name) = NameHash::of(&state.target);
        let load = state.load.map(|load| {
            let requests = load.running.saturating_add(load.waiting);
            (requests, now.minus(load.age_ms))
        });
        let room = state.lmcache.map(|lmcache| {
            let room = if lmcache.available {
                1.0 - lmcache.occupancy
            } else {
                0.0
            };
            (room.clamp(0.0, 1.0), now.minus(lmcache.age_ms))
        });
        Self {
            name,
            load,
            ill: (state.healthy == Some(false)).then_some(now),
            room,
        }
    }
}
