//! A route's targets by number, and sets of them in a few machine words.

/// How many targets a route may have. A set of targets is this many bits, copied by value, so a
/// pick over all of them allocates nothing.
pub const MAX_TARGETS: usize = 512;

const WORD_BITS: usize = u64::BITS as usize;
const WORDS: usize = MAX_TARGETS / WORD_BITS;

/// A target of one route, by a number below [`MAX_TARGETS`]. A target keeps its number while
/// configurations come and go, so that what was learnt about it stays true; there may be gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId(pub u16);

impl TargetId {
    /// The place in a table of all targets.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of targets of one route. Ids from [`MAX_TARGETS`] on are never members.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetSet([u64; WORDS]);

impl TargetSet {
    /// The set without members.
    pub const EMPTY: Self = Self([0; WORDS]);

    /// The `count` targets with the lowest numbers.
    pub fn first(count: usize) -> Self {
        let mut set = Self::EMPTY;
        for (word, bits) in set.0.iter_mut().enumerate() {
            let here = count.saturating_sub(word * WORD_BITS);
            *bits = if here >= WORD_BITS {
                u64::MAX
            } else {
                (1 << here) - 1
            };
        }
        set
    }

    /// Adds a target.
    pub fn insert(&mut self, target: TargetId) {
        if let Some(word) = self.0.get_mut(target.index() / WORD_BITS) {
            *word |= 1 << (target.index() % WORD_BITS);
        }
    }

    /// Takes a target out.
    pub fn remove(&mut self, target: TargetId) {
        if let Some(word) = self.0.get_mut(target.index() / WORD_BITS) {
            *word &= !(1 << (target.index() % WORD_BITS));
        }
    }

    /// Whether the target is a member.
    pub fn contains(self, target: TargetId) -> bool {
        self.0
            .get(target.index() / WORD_BITS)
            .is_some_and(|word| word >> (target.index() % WORD_BITS) & 1 == 1)
    }

    /// Whether there are no members.
    pub fn is_empty(self) -> bool {
        self == Self::EMPTY
    }

    /// How many members there are.
    pub fn len(self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// The member that so many lower ones precede.
    pub fn nth(self, mut before: usize) -> Option<TargetId> {
        for (base, mut word) in (0_u16..).step_by(WORD_BITS).zip(self.0) {
            let here = word.count_ones() as usize;
            if before >= here {
                before -= here;
                continue;
            }
            for _ in 0..before {
                word &= word - 1;
            }
            let bit = u16::try_from(word.trailing_zeros()).ok()?;
            return Some(TargetId(base + bit));
        }
        None
    }

    /// The members that are in both sets.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        self.zip(other, |a, b| a & b)
    }

    /// The members that are not in `other`.
    #[must_use]
    pub fn without(self, other: Self) -> Self {
        self.zip(other, |a, b| a & !b)
    }

    fn zip(mut self, other: Self, op: impl Fn(u64, u64) -> u64) -> Self {
        for (mine, theirs) in self.0.iter_mut().zip(other.0) {
            *mine = op(*mine, theirs);
        }
        self
    }

    /// The members in ascending order.
    pub fn iter(self) -> impl Iterator<Item = TargetId> {
        let mut words = self.0.into_iter();
        let (mut word, mut base) = (words.next().unwrap_or(0), 0_u16);
        std::iter::from_fn(move || {
            while word == 0 {
                word = words.next()?;
                base += 64;
            }
            let bit = u16::try_from(word.trailing_zeros()).ok()?;
            word &= word - 1;
            Some(TargetId(base + bit))
        })
    }
}

impl FromIterator<TargetId> for TargetSet {
    fn from_iter<I: IntoIterator<Item = TargetId>>(targets: I) -> Self {
        let mut set = Self::EMPTY;
        targets.into_iter().for_each(|target| set.insert(target));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_set_holds_what_was_inserted_and_not_removed() {
        let mut set = TargetSet::EMPTY;
        let mut model = BTreeSet::new();
        for step in 0u16..1_700 {
            let id = step * 37 % 512;
            if step % 3 == 0 {
                set.remove(TargetId(id));
                model.remove(&id);
            } else {
                set.insert(TargetId(id));
                model.insert(id);
            }
            assert_eq!(set.contains(TargetId(id)), model.contains(&id));
        }
        let members: Vec<u16> = set.iter().map(|target| target.0).collect();
        assert_eq!(members, model.into_iter().collect::<Vec<_>>());
        assert_eq!(set.len(), members.len());
        let by_rank: Vec<u16> = (0..).map_while(|n| set.nth(n)).map(|t| t.0).collect();
        assert_eq!(by_rank, members);
    }

    #[test]
    fn the_first_targets_of_any_count_are_a_set_of_that_many() {
        for count in 0..=MAX_TARGETS {
            let set = TargetSet::first(count);
            assert_eq!(set.iter().count(), count);
            assert!(set.iter().all(|target| target.index() < count));
        }
        assert_eq!(TargetSet::first(10_000), TargetSet::first(MAX_TARGETS));
    }

    #[test]
    fn an_id_out_of_range_is_never_a_member() {
        let mut set = TargetSet::first(MAX_TARGETS);
        set.insert(TargetId(512));
        set.remove(TargetId(u16::MAX));
        assert!(!set.contains(TargetId(512)));
        assert_eq!(set, TargetSet::first(MAX_TARGETS));
    }

    #[test]
    fn sets_intersect_and_subtract() {
        let low = TargetSet::first(100);
        let odd: TargetSet = (0..512).filter(|id| id % 2 == 1).map(TargetId).collect();
        assert_eq!(low.and(odd).iter().count(), 50);
        assert_eq!(low.without(odd).iter().count(), 50);
        assert!(low.without(low).is_empty());
    }
}
