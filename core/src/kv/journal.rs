//! The latest changes of the index, numbered in the order in which they happened.

use super::feed::Change;
use std::collections::VecDeque;

/// Changes that are kept. Who comes back later than these gets everything anew. A busy engine stores
/// some thousand blocks a second and evicts as many: one takes minutes to get there, 64 some seconds.
/// At sixteen bytes each it is 16 MiB.
pub(super) const KEPT: usize = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Journal {
    kept: VecDeque<Change>,
    /// The number of the oldest that is kept.
    first: u64,
}

impl Journal {
    pub(super) fn push(&mut self, change: Change) {
        if self.kept.len() == KEPT {
            self.kept.pop_front();
            self.first += 1;
        }
        self.kept.push_back(change);
    }

    /// The number of the next change.
    pub(super) fn next(&self) -> u64 {
        self.first + self.kept.len() as u64
    }

    /// The changes from this number on. Nothing where they are not all kept, or not all made.
    pub(super) fn since(&self, number: u64) -> Option<impl ExactSizeIterator<Item = &Change>> {
        let place = usize::try_from(number.checked_sub(self.first)?).ok()?;
        (place <= self.kept.len()).then(|| self.kept.range(place..))
    }
}
