//! What is known of the engines, and waking whoever waits for news of it.
//!
//! Targets come and go while this is there. Three invariants:
//! - Whatever a [page](State::page) would show differently is followed by a [wake](State::wake), and
//!   a reader that has not been told is not [current](State::is_current). Times alone are no news:
//!   they go on by themselves.
//! - The numbers of ranks and those who have them change together, while the index is locked. Whoever
//!   removes a target has ended all that writes into the index for it.
//! - What one answer of DNS changes is on one page: no page has a name without those that left it and
//!   without those that came in their place.

mod cursor;
mod target;
#[cfg(test)]
mod tests;

pub use cursor::FeedCursor;
pub use target::{LmCache, Load, Replica, Seen, StreamView, Target};

use crate::metrics::LookupCounts;
use rolter_core::config::{Config, Provider};
use rolter_core::kv::feed::{Page, ReplicaState};
use rolter_core::kv::identity::Seed;
use rolter_core::kv::index::Index;
use rolter_core::kv::members::{Member, Members};
use rolter_core::time::Millis;
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tokio::sync::watch;

/// The bytes of changes that a page has at most, about.
const PAGE_BYTES: usize = 256 << 10;

/// What is known.
pub struct State {
    began: Instant,
    index: Mutex<Index>,
    /// In the order of their providers, those of one in the order in which they came.
    targets: Mutex<Arc<[Arc<Target>]>>,
    /// The places of providers that routes have as targets.
    routed: BTreeSet<usize>,
    names: Vec<Name>,
    /// How often something beside the blocks has changed.
    version: AtomicU64,
    news: watch::Sender<()>,
}

/// What one look at a name changes.
#[derive(Default)]
pub struct Turnover {
    /// What the provider is at addresses that are there for the first time.
    pub came: Vec<Provider>,
    /// The name has these again.
    pub back: Vec<Arc<Target>>,
    /// The name does not have these any more.
    pub gone: Vec<Arc<Target>>,
    /// Of these nothing stays.
    pub forgotten: Vec<Arc<Target>>,
}

/// A provider whose targets are the addresses of a DNS name.
pub struct Name {
    /// The provider's name.
    pub provider: String,
    /// The name that has the addresses, and the port.
    pub endpoint: String,
    /// Its place in the configuration.
    pub place: usize,
    /// What has come of looking for the addresses.
    pub counts: LookupCounts,
}

impl State {
    /// Nothing is known of these engines yet. Those of DNS names are still to come.
    pub fn new(config: &Config) -> Self {
        let routed = config.routes.iter().flat_map(|route| &route.groups);
        let routed = routed.flat_map(|group| &group.targets).copied().collect();
        let names = config.providers.iter().enumerate();
        let names = names.filter(|(_, provider)| provider.dns_name().is_some());
        let names = names.map(|(place, provider)| Name {
            provider: provider.name.clone(),
            endpoint: provider
                .endpoint
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            place,
            counts: LookupCounts::default(),
        });
        let state = Self {
            began: Instant::now(),
            index: Mutex::new(Index::new(Seed(fastrand::u64(..)), fastrand::u64(..))),
            targets: Mutex::new(Arc::new([])),
            routed,
            names: names.collect(),
            version: AtomicU64::new(0),
            news: watch::channel(()).0,
        };
        for (place, provider) in config.providers.iter().enumerate() {
            if provider.dns_name().is_none() {
                let came = vec![provider.clone()];
                let turnover = Turnover {
                    came,
                    ..Turnover::default()
                };
                state.turn_over(place, &turnover);
            }
        }
        state
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

    /// The targets that there are now.
    pub fn targets(&self) -> Arc<[Arc<Target>]> {
        Arc::clone(&lock(&self.targets))
    }

    /// The ranks of these.
    pub fn replicas(&self) -> Vec<Arc<Replica>> {
        let targets = self.targets();
        let replicas = targets.iter().flat_map(|target| &target.replicas);
        replicas.map(Arc::clone).collect()
    }

    /// The providers whose targets come and go.
    pub fn names(&self) -> &[Name] {
        &self.names
    }

    /// Changes the targets of the provider at this place, all at once, and returns those that came.
    pub fn turn_over(&self, place: usize, turnover: &Turnover) -> Vec<Arc<Target>> {
        let mut index = self.index();
        let mut targets = lock(&self.targets);
        let mut all = targets.to_vec();
        for forgotten in &turnover.forgotten {
            index.remove(&forgotten.ids());
            all.retain(|target| !Arc::ptr_eq(target, forgotten));
        }
        let came = turnover.came.iter();
        let came: Vec<_> = came
            .map(|provider| self.make(&mut index, provider, place))
            .collect();
        all.extend(came.iter().map(Arc::clone));
        all.sort_by_key(|target| target.provider);
        *targets = all.into();
        for (noted, is_present) in [(&turnover.back, true), (&turnover.gone, false)] {
            for target in noted {
                target.is_present.store(is_present, Ordering::Relaxed);
            }
        }
        drop((index, targets));
        self.changed();
        came
    }

    /// A target, with numbers for its ranks.
    fn make(&self, index: &mut Index, provider: &Provider, place: usize) -> Arc<Target> {
        let ids = match &provider.kv_events {
            None => Vec::new(),
            Some(events) => {
                let part = events.max_blocks.div_ceil(events.ranks.into());
                index.add_ranks(events.ranks, part).unwrap_or_else(|| {
                    let provider = &provider.name;
                    tracing::error!(
                        provider,
                        "too many ranks in all; its events are not followed"
                    );
                    Vec::new()
                })
            }
        };
        let is_routed = self.routed.contains(&place);
        Arc::new(Target::new(provider, place, is_routed, &ids))
    }

    /// Wakes all who wait for news.
    pub fn wake(&self) {
        self.news.send_replace(());
    }

    /// Hears of what is news from now on.
    pub fn news(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// Something beside the blocks is different now.
    fn changed(&self) {
        self.version.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Notes how a rank's event stream is.
    pub fn note_stream(&self, replica: &Replica, view: StreamView) {
        let before = std::mem::replace(&mut *lock(&replica.view), view);
        if before.trusted != view.trusted {
            self.changed();
        }
    }

    /// Notes how a target is.
    pub fn note_target(&self, target: &Target, note: impl FnOnce(&mut Seen)) {
        let mut seen = lock(&target.seen);
        let before = target.state(&seen, Millis(0));
        note(&mut seen);
        let changed = before != target.state(&seen, Millis(0));
        drop(seen);
        if changed {
            self.changed();
        }
    }

    /// Whether who is there knows of everything.
    pub fn is_current(&self, cursor: &FeedCursor) -> bool {
        cursor.version == self.version.load(Ordering::SeqCst)
            && self.index().is_current(&cursor.blocks)
    }

    /// What is to be told to who is there.
    pub fn page(&self, since: Option<FeedCursor>) -> Page {
        let now = self.now();
        // Before all else: what changes from here on is told again, rather than not at all.
        let version = self.version.load(Ordering::SeqCst);
        let index = self.index();
        let changes = index.changes(since.map(|cursor| cursor.blocks), PAGE_BYTES);
        let targets = self.targets();
        let mut replicas = vec![ReplicaState::default(); index.numbers()];
        for replica in targets.iter().flat_map(|target| &target.replicas) {
            if let Some(state) = replicas.get_mut(usize::from(replica.id.0)) {
                *state = replica.state(&index, now);
            }
        }
        let members = self.names.iter().map(|name| name.members(&targets));
        let members = members.collect();
        let seed = index.seed().0;
        drop(index);
        let routed = targets.iter().filter(|target| target.is_routed);
        let states = routed.map(|target| target.state(&lock(&target.seen), now));
        let cursor = FeedCursor {
            blocks: changes.cursor,
            version,
        };
        Page {
            cursor: cursor.to_string(),
            more: changes.more,
            anew: changes.anew,
            seed,
            replicas,
            targets: states.collect(),
            changes: changes.bytes,
            members,
        }
    }
}

impl Name {
    /// Those of the targets that are its own.
    fn members(&self, targets: &[Arc<Target>]) -> Members {
        let own = targets
            .iter()
            .filter(|target| target.provider == self.place);
        let members = own.filter_map(|target| {
            Some(Member {
                address: target.address?,
                present: target.is_present(),
            })
        });
        let members: Vec<Member> = members.collect();
        Members {
            provider: self.provider.clone(),
            endpoint: self.endpoint.clone(),
            // No answer takes the last one away, so there were none yet.
            members: (!members.is_empty()).then_some(members),
        }
    }
}

/// What a panic elsewhere has left is whole: nothing is changed in two steps.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
