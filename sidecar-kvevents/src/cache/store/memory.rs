//! Answers in this process, for one sidecar alone.
//!
//! Invariant: answers and windows together take about the limit at most.

use super::{Candidate, Index, Window};
use crate::cache::bounded::{Bounded, Size};
use rolter_core::cache::ExactKey;
use rolter_core::cache::entry::Entry;
use rolter_core::time::Millis;
use std::sync::Arc;
use std::time::Duration;

/// Answers in this process.
pub struct Memory {
    kept: Bounded<Name, Kept>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Name {
    Answer(ExactKey),
    Window(Index),
}

#[derive(Clone)]
enum Kept {
    Answer(Arc<Entry>),
    /// The latest last.
    Window(Arc<Vec<Candidate>>),
}

impl Memory {
    /// With so many bytes at most.
    pub fn new(max_bytes: u64) -> Self {
        Self {
            kept: Bounded::new(max_bytes, Kept::bytes),
        }
    }

    pub(super) fn get(&self, key: ExactKey) -> Option<Arc<Entry>> {
        match self.kept.get(&Name::Answer(key))? {
            Kept::Answer(entry) => Some(entry),
            Kept::Window(_) => None,
        }
    }

    pub(super) fn put(&self, entry: Entry, lifetime: Duration) {
        let name = Name::Answer(entry.exact);
        self.kept.put(name, Kept::Answer(Arc::new(entry)), lifetime);
    }

    pub(super) fn candidates(&self, window: &Window, now: Millis) -> Vec<Candidate> {
        let kept = self.kept.get(&Name::Window(window.index));
        let candidates = kept.as_ref().map_or(&[][..], Kept::candidates);
        let alive = candidates.iter().filter(|other| other.expires > now);
        alive.cloned().collect()
    }

    pub(super) fn add(&self, window: &Window, candidate: Candidate, now: Millis) {
        self.change(window.index, now, |candidates| {
            candidates.retain(|other| other.id != candidate.id);
            candidates.push(candidate);
            let over = candidates.len().saturating_sub(window.len);
            candidates.drain(..over);
        });
    }

    pub(super) fn forget(&self, index: Index, gone: &Candidate, now: Millis) {
        self.change(index, now, |candidates| {
            candidates.retain(|other| (other.id, other.expires) != (gone.id, gone.expires));
        });
    }

    fn change(&self, index: Index, now: Millis, change: impl FnOnce(&mut Vec<Candidate>)) {
        self.kept.change(Name::Window(index), |old| {
            let old = old.as_ref().map_or(&[][..], Kept::candidates);
            let mut candidates = old.to_vec();
            candidates.retain(|other| other.expires > now);
            change(&mut candidates);
            let last = candidates.iter().map(|other| other.expires).max()?;
            let lifetime = Duration::from_millis(last.since(now));
            Some((Kept::Window(Arc::new(candidates)), lifetime))
        });
    }

    pub(super) fn size(&self) -> Size {
        self.kept.size()
    }
}

impl Kept {
    fn bytes(&self) -> usize {
        /// An item, its place in a list and what counts who has it, beside its bytes.
        const AN_ITEM: usize = 128;
        match self {
            Self::Answer(entry) => entry.content_type.len() + entry.body.len(),
            Self::Window(candidates) => {
                let items = candidates.iter().map(|other| AN_ITEM + other.item.bytes());
                items.sum::<usize>()
            }
        }
    }

    fn candidates(&self) -> &[Candidate] {
        match self {
            Self::Answer(_) => &[],
            Self::Window(candidates) => candidates,
        }
    }
}
