//! The digests of the last batches that were taken in. They tell a batch that comes twice from one
//! of another engine with the same sequence.

use super::held::MAX_HELD;
use std::collections::VecDeque;

/// As many as can have been held while a replay brought them too.
const MAX_RECENT: usize = MAX_HELD;

#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<u64>);

impl Recent {
    pub(super) fn push(&mut self, digest: u64) {
        if self.0.len() >= MAX_RECENT {
            self.0.pop_front();
        }
        self.0.push_back(digest);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// The digest of the batch `seq`, given which comes next.
    pub(super) fn get(&self, next: u64, seq: u64) -> Option<u64> {
        let back = usize::try_from(next.checked_sub(seq)?).ok()?;
        self.0.get(self.0.len().checked_sub(back)?).copied()
    }

    /// Sequence and digest of the last batch.
    pub(super) fn last(&self, next: u64) -> Option<(u64, u64)> {
        let seq = next.checked_sub(1)?;
        Some((seq, self.get(next, seq)?))
    }
}
