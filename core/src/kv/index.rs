//! Which blocks the engines have, and what of that has changed.
//!
//! A block is in an engine as long as a copy of it is: each copy is stored and removed on its own.
//! Where an engine has more blocks than are to be remembered of it, those that were stored longest
//! ago are forgotten, so that less is claimed than there is and never more.
//!
//! Changes go into a journal of the latest ones, from which pages of the [feed](super::feed) are
//! made. Who has missed some gets everything anew, page by page, while it goes on changing.
//!
//! Invariant: the ranks of an engine have numbers that follow one another. A number is given again
//! only after the journal says that nothing is there any more, so a reader that knows the present
//! takes nothing of who had it before for something of who has it now.

use super::feed::{Change, Cursor, ReplicaId};
use super::identity::Seed;
use super::journal::Journal;
use super::names::{Names, Told};
use super::payload::Batch;
use std::collections::BTreeMap;

/// There are no numbers for more ranks than these, of all engines together.
const MAX_REPLICAS: usize = 1 << 16;

/// Which blocks the engines have.
pub struct Index {
    seed: Seed,
    /// What tells this index from all others that anybody can have read from.
    instance: u64,
    /// By their numbers; nothing where nobody has the number.
    replicas: Vec<Option<Names>>,
    /// The first numbers of runs that nobody has, by their length.
    free: BTreeMap<u16, Vec<u16>>,
    journal: Journal,
}

/// What a batch has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Copies of blocks that were stored.
    pub stored: u64,
    /// Copies of blocks that were removed.
    pub removed: u64,
    /// Blocks of which it is not known what they are: what they follow was never told, or has been
    /// forgotten.
    pub orphans: u64,
    /// Blocks that were forgotten for want of room.
    pub evicted: u64,
    /// Times that all was cleared.
    pub cleared: u64,
    /// Events of unknown types.
    pub unknown: u64,
}

/// Changes for a reader, and where it is then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Where to go on.
    pub cursor: Cursor,
    /// [`Change`]s as they are written.
    pub bytes: Vec<u8>,
    /// Whether there is more, so that the reader does not know the present yet.
    pub more: bool,
    /// Whether this begins anew, so that what the reader knew is void.
    pub anew: bool,
}

impl Index {
    /// Knows of no engine. The seed and the number of the instance are drawn at random.
    pub fn new(seed: Seed, instance: u64) -> Self {
        Self {
            seed,
            instance,
            replicas: Vec::new(),
            free: BTreeMap::new(),
            journal: Journal::default(),
        }
    }

    /// What identities are made with.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Adds an engine of one rank, of which so many blocks are remembered at most. Nothing where
    /// there is no number for it.
    pub fn add(&mut self, max_blocks: usize) -> Option<ReplicaId> {
        self.add_ranks(1, max_blocks)?.first().copied()
    }

    /// Adds all ranks of an engine, of each of which so many blocks are remembered at most. Nothing
    /// where there are not so many numbers for them.
    pub fn add_ranks(&mut self, ranks: u16, max_blocks: usize) -> Option<Vec<ReplicaId>> {
        let first = match self.free.get_mut(&ranks).and_then(Vec::pop) {
            Some(first) => first,
            None => self.new_run(ranks)?,
        };
        let ids: Vec<_> = ids(first, ranks).collect();
        for id in &ids {
            if let Some(names) = self.replicas.get_mut(usize::from(id.0)) {
                *names = Some(Names::new(max_blocks));
            }
        }
        Some(ids)
    }

    /// The first of so many numbers that nobody had before.
    fn new_run(&mut self, ranks: u16) -> Option<u16> {
        let first = self.replicas.len();
        let end = first + usize::from(ranks);
        if end > MAX_REPLICAS {
            return None;
        }
        self.replicas.resize_with(end, || None);
        u16::try_from(first).ok()
    }

    /// Removes an engine: forgets what its ranks have, and gives up their numbers. They are all that
    /// were added together.
    pub fn remove(&mut self, ids: &[ReplicaId]) {
        let there = ids.first().filter(|&&id| self.names(id).is_some());
        let Some(&ReplicaId(first)) = there else {
            return;
        };
        for &id in ids {
            if let Some(names) = self.replicas.get_mut(usize::from(id.0)) {
                *names = None;
                self.journal.push(Change::Clear(id));
            }
        }
        let ranks = u16::try_from(ids.len()).unwrap_or(u16::MAX);
        self.free.entry(ranks).or_default().push(first);
    }

    /// How many numbers there are, those that nobody has any more included.
    pub fn numbers(&self) -> usize {
        self.replicas.len()
    }

    /// Takes in what has happened in a rank of an engine.
    pub fn apply(&mut self, id: ReplicaId, batch: &Batch<'_>) -> Applied {
        let Some(Some(names)) = self.replicas.get_mut(usize::from(id.0)) else {
            return Applied::default();
        };
        let journal = &mut self.journal;
        let mut tell = |told| {
            journal.push(match told {
                Told::Cleared => Change::Clear(id),
                Told::Put(block, media) => Change::Put(id, block, media),
            });
        };
        names.apply(batch, self.seed, &mut tell)
    }

    /// Forgets what a rank has.
    pub fn clear(&mut self, id: ReplicaId) {
        if let Some(Some(names)) = self.replicas.get_mut(usize::from(id.0)) {
            names.clear();
            self.journal.push(Change::Clear(id));
        }
    }

    /// How many different blocks a rank has.
    pub fn blocks(&self, id: ReplicaId) -> usize {
        self.names(id).map_or(0, Names::len)
    }

    /// How many tokens a block of this rank has; zero before it told of one.
    pub fn block_size(&self, id: ReplicaId) -> u32 {
        self.names(id).map_or(0, Names::block_size)
    }

    fn names(&self, ReplicaId(place): ReplicaId) -> Option<&Names> {
        self.replicas.get(usize::from(place))?.as_ref()
    }

    /// Whether a reader that is there has missed nothing.
    pub fn is_current(&self, cursor: &Cursor) -> bool {
        cursor.instance == self.instance
            && cursor.scan.is_none()
            && cursor.change == self.journal.next()
    }

    /// How many changes a reader that is there has not been told; none where it has to begin anew.
    pub fn behind(&self, cursor: &Cursor) -> u64 {
        let known = cursor.instance == self.instance;
        let changes = self.journal.since(cursor.change).filter(|_| known);
        changes.map_or(0, |changes| changes.len() as u64)
    }

    /// What has changed since a reader was there, up to about so many bytes. Where that is not known,
    /// all that there is, which takes several of these.
    pub fn changes(&self, since: Option<Cursor>, max_bytes: usize) -> Changes {
        let known = since.filter(|cursor| cursor.instance == self.instance);
        let known = known.filter(|cursor| self.journal.since(cursor.change).is_some());
        let cursor = known.unwrap_or(Cursor {
            instance: self.instance,
            change: self.journal.next(),
            scan: Some((ReplicaId(0), 0)),
        });
        let (cursor, bytes) = match cursor.scan {
            Some(place) => self.scan(cursor, place, max_bytes),
            None => self.tail(cursor, max_bytes),
        };
        Changes {
            bytes,
            more: !self.is_current(&cursor),
            anew: known.is_none(),
            cursor,
        }
    }

    fn tail(&self, mut cursor: Cursor, max_bytes: usize) -> (Cursor, Vec<u8>) {
        let mut bytes = Vec::new();
        for change in self.journal.since(cursor.change).into_iter().flatten() {
            if bytes.len() >= max_bytes {
                break;
            }
            change.write(&mut bytes);
            cursor.change += 1;
        }
        (cursor, bytes)
    }

    /// The blocks that are there now, from a place on. What changes meanwhile is in the journal from
    /// where this began, and is told once all places have been passed: every change says what is the
    /// case then, so to hear of an older one in between does no lasting harm.
    fn scan(
        &self,
        mut cursor: Cursor,
        (ReplicaId(first), place): (ReplicaId, u32),
        max_bytes: usize,
    ) -> (Cursor, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut start = place as usize;
        let replicas = (0..=u16::MAX).map(ReplicaId).zip(&self.replicas);
        for (replica, names) in replicas.skip(usize::from(first)) {
            let places = names.as_ref().map_or(0, Names::places);
            for place in start..places {
                if bytes.len() >= max_bytes {
                    let place = u32::try_from(place).unwrap_or(u32::MAX);
                    cursor.scan = Some((replica, place));
                    return (cursor, bytes);
                }
                let resident = names.as_ref().and_then(|names| names.resident_at(place));
                if let Some((block, media)) = resident {
                    Change::Put(replica, block, media).write(&mut bytes);
                }
            }
            start = 0;
        }
        cursor.scan = None;
        (cursor, bytes)
    }
}

/// So many numbers, from the first on.
fn ids(first: u16, ranks: u16) -> impl Iterator<Item = ReplicaId> {
    (first..=u16::MAX).take(ranks.into()).map(ReplicaId)
}
