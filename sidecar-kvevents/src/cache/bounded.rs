//! A map whose values take no more than so many bytes, and each of which has a lifetime of its own.
//! What was used longest ago goes first.

use moka::Expiry;
use moka::ops::compute::Op;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use std::hash::Hash;
use std::time::{Duration, Instant};

/// What a value takes beside its bytes, by measure of a process with a hundred thousand of them.
const OVERHEAD: usize = 640;

pub(super) struct Bounded<K, V>(Cache<K, Held<V>>);

#[derive(Clone)]
struct Held<V> {
    value: V,
    lifetime: Duration,
}

/// What a map holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Size {
    /// Bytes, about.
    pub bytes: u64,
    /// Values.
    pub count: u64,
}

impl<K, V> Bounded<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Clone + Send + Sync + 'static,
{
    pub(super) fn new(max_bytes: u64, bytes: fn(&V) -> usize) -> Self {
        let weigh = move |_: &K, held: &Held<V>| {
            u32::try_from(OVERHEAD + bytes(&held.value)).unwrap_or(u32::MAX)
        };
        let cache = Cache::builder()
            .max_capacity(max_bytes)
            .eviction_policy(EvictionPolicy::lru())
            .weigher(weigh)
            .expire_after(Lifetime)
            .build();
        Self(cache)
    }

    pub(super) fn get(&self, key: &K) -> Option<V> {
        self.0.get(key).map(|held| held.value)
    }

    pub(super) fn put(&self, key: K, value: V, lifetime: Duration) {
        self.0.insert(key, Held { value, lifetime });
        // Otherwise much can be put before anything goes.
        self.0.run_pending_tasks();
    }

    pub(super) fn remove(&self, key: &K) {
        self.0.invalidate(key);
    }

    /// Replaces a value by one that is made of it, with no other change in between.
    pub(super) fn change(&self, key: K, change: impl FnOnce(Option<V>) -> Option<(V, Duration)>) {
        self.0.entry(key).and_compute_with(|old| {
            let was_there = old.is_some();
            match change(old.map(|old| old.into_value().value)) {
                Some((value, lifetime)) => Op::Put(Held { value, lifetime }),
                None if was_there => Op::Remove,
                None => Op::Nop,
            }
        });
    }

    pub(super) fn size(&self) -> Size {
        self.0.run_pending_tasks();
        Size {
            bytes: self.0.weighted_size(),
            count: self.0.entry_count(),
        }
    }
}

struct Lifetime;

impl<K, V> Expiry<K, Held<V>> for Lifetime {
    fn expire_after_create(&self, _: &K, held: &Held<V>, _: Instant) -> Option<Duration> {
        Some(held.lifetime)
    }

    fn expire_after_update(
        &self,
        _: &K,
        held: &Held<V>,
        _: Instant,
        _: Option<Duration>,
    ) -> Option<Duration> {
        Some(held.lifetime)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_no_more_than_its_bytes_and_drops_what_was_used_longest_ago() {
        let map = Bounded::new(10 * 1024, |value: &Vec<u8>| value.len());
        let hour = Duration::from_hours(1);
        for key in 0..20_u32 {
            map.put(key, vec![0; 1024 - OVERHEAD], hour);
            map.size();
            map.get(&0);
        }
        assert_eq!(
            map.size(),
            Size {
                bytes: 10 * 1024,
                count: 10
            }
        );
        let there: Vec<u32> = (0..20).filter(|key| map.get(key).is_some()).collect();
        assert_eq!(there, [0, 11, 12, 13, 14, 15, 16, 17, 18, 19]);
        map.put(99, vec![0; 1 << 20], hour);
        assert!(map.size().bytes <= 10 * 1024);
        assert_eq!(map.get(&99), None, "more than there is room for");
    }

    #[test]
    fn each_value_has_a_lifetime_of_its_own() {
        let map = Bounded::new(1 << 20, |(): &()| 0);
        map.put(1, (), Duration::ZERO);
        map.put(2, (), Duration::from_hours(1));
        assert_eq!((map.get(&1), map.get(&2)), (None, Some(())));
        map.put(2, (), Duration::ZERO);
        assert_eq!(map.get(&2), None);
    }

    #[test]
    fn a_value_can_be_made_of_the_one_before() {
        let map = Bounded::new(1 << 20, |_: &u32| 0);
        let hour = Duration::from_hours(1);
        for _ in 0..3 {
            map.change(1, |old| Some((old.unwrap_or(0) + 1, hour)));
        }
        assert_eq!(map.get(&1), Some(3));
        map.change(1, |_| None);
        assert_eq!(map.get(&1), None);
    }
}
