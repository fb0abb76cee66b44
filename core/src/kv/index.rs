//! Which blocks the engines have, and what of that has changed.
//!
//! A block is in an engine as long as a copy of it is: each copy is stored and removed on its own.
//! Where an engine has more blocks than are to be remembered of it, those that were stored longest
//! ago are forgotten, so that less is claimed than there is and never more.
//!
//! Changes go into a journal of the latest ones, from which pages of the [feed](super::feed) are
//! made. Who has missed some gets everything anew, page by page, while it goes on changing.

use super::feed::{Change, Cursor, ReplicaId};
use super::identity::Seed;
use super::journal::Journal;
use super::names::{Names, Told};
use super::payload::Batch;

/// Which blocks the engines have.
pub struct Index {
    seed: Seed,
    /// What tells this index from all others that anybody can have read from.
    instance: u64,
    replicas: Vec<Names>,
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
            journal: Journal::default(),
        }
    }

    /// What identities are made with.
    pub fn seed(&self) -> Seed {
        self.seed
    }

    /// Adds a rank of an engine, of which so many blocks are remembered at most. Nothing where there
    /// are 65,536 already.
    pub fn add(&mut self, max_blocks: usize) -> Option<ReplicaId> {
        let id = u16::try_from(self.replicas.len()).ok()?;
        self.replicas.push(Names::new(max_blocks));
        Some(ReplicaId(id))
    }

    /// Takes in what has happened in a rank of an engine.
    pub fn apply(&mut self, id: ReplicaId, batch: &Batch<'_>) -> Applied {
        let Some(names) = self.replicas.get_mut(usize::from(id.0)) else {
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
        if let Some(names) = self.replicas.get_mut(usize::from(id.0)) {
            names.clear();
            self.journal.push(Change::Clear(id));
        }
    }

    /// How many different blocks a rank has.
    pub fn blocks(&self, id: ReplicaId) -> usize {
        self.replicas.get(usize::from(id.0)).map_or(0, Names::len)
    }

    /// How many tokens a block of this rank has; zero before it told of one.
    pub fn block_size(&self, id: ReplicaId) -> u32 {
        let names = self.replicas.get(usize::from(id.0));
        names.map_or(0, Names::block_size)
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
        let replicas = (0..).map(ReplicaId).zip(&self.replicas);
        for (replica, names) in replicas.skip(usize::from(first)) {
            for place in start..names.places() {
                if bytes.len() >= max_bytes {
                    let place = u32::try_from(place).unwrap_or(u32::MAX);
                    cursor.scan = Some((replica, place));
                    return (cursor, bytes);
                }
                if let Some((block, media)) = names.resident_at(place) {
                    Change::Put(replica, block, media).write(&mut bytes);
                }
            }
            start = 0;
        }
        cursor.scan = None;
        (cursor, bytes)
    }
}
