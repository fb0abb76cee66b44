//! Where answers are kept: in Redis, or in this process.
//!
//! Invariant: whatever is there, who asks gets an entry, a candidate, or none. Each question ends at
//! its deadline.

mod link;
mod memory;
mod redis;
mod servers;

pub use link::Failure;
pub use memory::Memory;
pub use redis::Redis;

use crate::cache::bounded::Size;
use rolter_core::cache::entry::{Entry, TextId};
use rolter_core::cache::vector::Vector;
use rolter_core::cache::{ExactKey, Partition};
use rolter_core::time::Millis;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of the vectors that a text is compared with, at most: what takes a core about a
/// millisecond. Of the vectors of usual models it is more than there are candidates.
const MAX_WINDOW_BYTES: usize = 16 << 20;

/// The name of what is comparable: the texts of a partition, by the vectors of one model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Index(pub [u8; 32]);

impl Index {
    /// Of a partition, and of who made the vectors and how.
    pub fn of(partition: Partition, provider: &str, model: &str, dimension: usize) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(partition.0);
        for name in [provider, model] {
            // With its length, so that nothing can move from one to the next.
            hasher.update((name.len() as u64).to_le_bytes());
            hasher.update(name);
        }
        hasher.update((dimension as u64).to_le_bytes());
        Self(hasher.finalize().into())
    }
}

/// A text that there was an answer to.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Which text.
    pub id: TextId,
    /// When it leaves the window.
    pub expires: Millis,
    /// What is known of it.
    pub item: Arc<Item>,
}

/// What is known of a text that there was an answer to.
#[derive(Debug)]
pub struct Item {
    /// The key of the answer.
    pub exact: ExactKey,
    /// What it means.
    pub vector: Vector,
}

/// The bytes of an item with a vector of this dimension.
const fn item_bytes(dimension: usize) -> usize {
    size_of::<ExactKey>() + size_of::<f32>() * dimension
}

impl Item {
    fn bytes(&self) -> usize {
        item_bytes(self.vector.dimension())
    }
}

/// The most recent candidates of an index that there may be.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Of which index.
    pub index: Index,
    /// The dimension of its vectors.
    pub dimension: usize,
    /// How many.
    len: usize,
}

impl Window {
    /// With so many at most, and fewer where they would take too long to be compared.
    pub fn new(index: Index, dimension: usize, max_candidates: usize) -> Self {
        let len = max_candidates.min(MAX_WINDOW_BYTES / item_bytes(dimension));
        Self {
            index,
            dimension,
            len,
        }
    }
}

/// Where answers are kept.
pub enum Store {
    /// In this process.
    Memory(Memory),
    /// In Redis.
    Redis(Redis),
}

impl Store {
    /// The answer under a key, of `max_bytes` at most.
    pub async fn get(
        &self,
        key: ExactKey,
        max_bytes: usize,
        deadline: Instant,
    ) -> Result<Option<Arc<Entry>>, Failure> {
        match self {
            Self::Memory(memory) => Ok(memory.get(key)),
            Self::Redis(redis) => redis.get(key, max_bytes, deadline).await,
        }
    }

    /// Keeps an answer under its key for so long.
    pub async fn put(
        &self,
        entry: Entry,
        lifetime: Duration,
        deadline: Instant,
    ) -> Result<(), Failure> {
        match self {
            Self::Memory(memory) => {
                memory.put(entry, lifetime);
                Ok(())
            }
            Self::Redis(redis) => redis.put(entry, lifetime, deadline).await,
        }
    }

    /// The candidates of a window that have not expired.
    pub async fn candidates(
        &self,
        window: &Window,
        now: Millis,
        deadline: Instant,
    ) -> Result<Vec<Candidate>, Failure> {
        match self {
            Self::Memory(memory) => Ok(memory.candidates(window, now)),
            Self::Redis(redis) => redis.candidates(window, now, deadline).await,
        }
    }

    /// Adds a candidate to a window. Others leave it that have expired, or for whom there is no
    /// room.
    pub async fn add(
        &self,
        window: &Window,
        candidate: Candidate,
        now: Millis,
        deadline: Instant,
    ) -> Result<(), Failure> {
        match self {
            Self::Memory(memory) => {
                memory.add(window, candidate, now);
                Ok(())
            }
            Self::Redis(redis) => redis.add(window, &candidate, now, deadline).await,
        }
    }

    /// Takes a candidate out of its window, as its answer is gone. Waits for nothing.
    pub fn forget(&self, index: &Index, candidate: &Candidate, now: Millis) {
        match self {
            Self::Memory(memory) => memory.forget(*index, candidate, now),
            Self::Redis(redis) => redis.forget(index, candidate),
        }
    }

    /// What it holds in this process, and how much of it.
    pub fn held(&self) -> (&'static str, Size) {
        match self {
            Self::Memory(memory) => ("answers", memory.size()),
            Self::Redis(redis) => ("candidates", redis.size()),
        }
    }

    /// Whether Redis can be reached; nothing where there is none to be reached.
    pub fn is_connected(&self) -> Option<bool> {
        match self {
            Self::Memory(_) => None,
            Self::Redis(redis) => Some(redis.is_connected()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_makes_vectors_comparable_is_in_the_name_of_an_index() {
        let names = [
            Index::of(Partition([1; 32]), "openai", "small", 256),
            Index::of(Partition([2; 32]), "openai", "small", 256),
            Index::of(Partition([1; 32]), "other", "small", 256),
            Index::of(Partition([1; 32]), "openai", "large", 256),
            Index::of(Partition([1; 32]), "openai", "small", 512),
            Index::of(Partition([1; 32]), "openais", "mall", 256),
        ];
        for (place, name) in names.iter().enumerate() {
            assert_eq!(names.iter().position(|other| other == name), Some(place));
        }
        assert_eq!(
            names[0],
            Index::of(Partition([1; 32]), "openai", "small", 256)
        );
    }

    #[test]
    fn a_window_is_no_longer_than_can_be_compared() {
        let index = Index([0; 32]);
        assert_eq!(Window::new(index, 1536, 256).len, 256);
        let window = Window::new(index, 65_536, 4_096);
        assert!(window.len * item_bytes(window.dimension) <= MAX_WINDOW_BYTES && window.len > 0);
    }
}
