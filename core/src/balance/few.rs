//! The least of some targets, a few of them in order.

use super::decision::MAX_FOLLOWERS;
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// As many as a decision ever asks for at once: a target and those behind it.
pub(super) const MOST: usize = 1 + MAX_FOLLOWERS;

/// The targets with the least keys, least first. Of equal ones any comes first, each as likely as
/// the others: ties broken by index would all fall on the first replica.
pub(super) struct Few<K> {
    entries: [Option<Entry<K>>; MOST],
    count: usize,
}

struct Entry<K> {
    key: K,
    /// Drawn at random for each, and compared where keys are equal.
    draw: u32,
    target: TargetId,
}

impl<K: PartialOrd> Few<K> {
    /// None yet of so many at most.
    pub(super) fn new(count: usize) -> Self {
        Self {
            entries: [const { None }; MOST],
            count: count.min(MOST),
        }
    }

    /// The least of these.
    pub(super) fn of(
        targets: TargetSet,
        count: usize,
        key: impl Fn(TargetId) -> K,
        rng: &mut Rng,
    ) -> Self {
        let mut few = Self::new(count);
        for target in targets.iter() {
            few.offer(target, key(target), rng);
        }
        few
    }

    /// Takes a target if it is among the least so far.
    pub(super) fn offer(&mut self, target: TargetId, key: K, rng: &mut Rng) {
        let places = self.entries.get_mut(..self.count).unwrap_or_default();
        if let Some(Some(last)) = places.last()
            && key > last.key
        {
            return;
        }
        let draw = rng.u32(..);
        let mut entry = Some(Entry { key, draw, target });
        for place in places {
            let goes_on = match (&entry, &*place) {
                (Some(entry), Some(other)) => !entry.is_before(other),
                (Some(_), None) => false,
                (None, _) => return,
            };
            if !goes_on {
                std::mem::swap(place, &mut entry);
            }
        }
    }

    /// The least.
    pub(super) fn first(&self) -> Option<TargetId> {
        self.iter().next()
    }

    /// All, least first.
    pub(super) fn iter(&self) -> impl Iterator<Item = TargetId> {
        self.entries
            .iter()
            .map_while(|entry| Some(entry.as_ref()?.target))
    }
}

impl<K: PartialOrd> Entry<K> {
    fn is_before(&self, other: &Self) -> bool {
        self.key < other.key || (self.key == other.key && self.draw < other.draw)
    }
}
