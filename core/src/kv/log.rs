//! The blocks of one replica in the shared data: a log of what came and went, in chunks.
//!
//! The leader appends, and writes the log anew once most of it is of the past. Others read on from
//! where they are. Each writing anew is an epoch, which is in every chunk, so a reader never takes
//! the chunk of one for that of another.
//!
//! Invariant: a log has a number of records that its number of blocks bounds, and the keys of chunks
//! that a log does not need any more are empty.

use super::Media;
use super::feed::ReplicaId;
use super::identity::Identity;
use super::residents::Residents;
use crate::shared::Host;
use std::ops::Range;

/// Records in a chunk. A chunk is written as a whole for each batch of changes, and read as a whole
/// by each VM, which takes about two microseconds at this size.
const CHUNK: u32 = 1_800;

/// Media, then the identity.
const RECORD_BYTES: usize = 9;

/// A log is written anew once it has so many times as many records as there are blocks, and
/// [`CHUNK`] more.
const MAX_PAST: usize = 3;

/// How far a log has got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Log {
    pub(super) now: Place,
    /// The place in the epoch before that says the same as the beginning of this one, and how far
    /// that goes: who had read so far has read this.
    pub(super) before: Option<(Place, u32)>,
}

/// A place in a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) epoch: u64,
    /// Records before it.
    pub(super) records: u32,
}

/// The one who writes a log.
pub(super) struct Writer {
    number: usize,
    log: Log,
    /// The last chunk, as far as it is full.
    chunk: Vec<u8>,
    /// Whether the last chunk has changed since it was written.
    is_dirty: bool,
    /// Chunks that are not empty in the shared data.
    chunks: u32,
}

impl Writer {
    /// An empty log under this number, where so many chunks are not; nothing where it is the first
    /// there. No other log has this epoch.
    pub(super) fn new<H: Host>(
        host: &H,
        slot: u8,
        number: usize,
        epoch: u64,
        chunks: Option<u32>,
    ) -> Self {
        if chunks.is_none() {
            // So that whoever looks for all numbers does not stop at one that has nothing to say.
            host.set(&key(slot, number, 0), &[], None);
        }
        let mut writer = Self {
            number,
            log: Log::default(),
            chunk: Vec::new(),
            is_dirty: false,
            chunks: chunks.unwrap_or(0),
        };
        writer.begin(epoch);
        writer
    }

    pub(super) fn log(&self) -> Log {
        self.log
    }

    /// Begins anew, with nothing.
    pub(super) fn begin(&mut self, epoch: u64) {
        self.log = Log {
            now: Place { epoch, records: 0 },
            before: None,
        };
        self.begin_chunk();
    }

    /// Appends what became of a block.
    pub(super) fn push<H: Host>(&mut self, host: &H, slot: u8, block: Identity, media: Media) {
        self.chunk.push(media.bits());
        self.chunk.extend_from_slice(&block.0.to_le_bytes());
        self.is_dirty = true;
        self.log.now.records += 1;
        if self.log.now.records.is_multiple_of(CHUNK) {
            self.put(host, slot, self.log.now.records / CHUNK - 1);
            self.begin_chunk();
        }
    }

    /// Makes sure that all is in the shared data, and little of it of the past. `epoch` gives one
    /// that no log had before.
    pub(super) fn flush<H: Host>(
        &mut self,
        host: &H,
        slot: u8,
        residents: &Residents,
        epoch: impl FnOnce() -> u64,
    ) {
        let replica = ReplicaId::of(self.number);
        let past = residents.count(replica).saturating_mul(MAX_PAST);
        if self.log.now.records as usize > past.saturating_add(CHUNK as usize) {
            let before = self.log.now;
            self.begin(epoch());
            for (block, media) in residents.iter(replica) {
                self.push(host, slot, block, media);
            }
            self.log.before = Some((before, self.log.now.records));
        }
        let full = self.log.now.records / CHUNK;
        if self.is_dirty {
            self.put(host, slot, full);
        }
        let needed = self.log.now.records.div_ceil(CHUNK);
        empty(host, slot, self.number, needed..self.chunks);
        self.chunks = needed;
    }

    fn begin_chunk(&mut self) {
        self.chunk.clear();
        self.chunk
            .extend_from_slice(&self.log.now.epoch.to_le_bytes());
        self.is_dirty = false;
    }

    fn put<H: Host>(&mut self, host: &H, slot: u8, chunk: u32) {
        host.set(&key(slot, self.number, chunk), &self.chunk, None);
        self.is_dirty = false;
        self.chunks = self.chunks.max(chunk + 1);
    }
}

impl Log {
    /// Whether it begins with what had been said at a place in the epoch before.
    pub(super) fn follows(&self, place: Place) -> bool {
        self.before.is_some_and(|(before, _)| before == place)
    }
}

/// How many chunks under a number are not empty; nothing where there never were any. Chunks are
/// written first to last and emptied last to first, so that there is no hole to stop at.
pub(super) fn chunks<H: Host>(host: &H, slot: u8, number: usize) -> Option<u32> {
    let mut count = 0;
    loop {
        match host.get(&key(slot, number, count)) {
            None if count == 0 => return None,
            Some(stored) if !stored.value.is_empty() => count += 1,
            _ => return Some(count),
        }
    }
}

/// Empties all chunks under a slot that nobody is to read any more.
pub(super) fn wipe<H: Host>(host: &H, slot: u8) {
    for number in 0.. {
        let Some(count) = chunks(host, slot, number) else {
            return;
        };
        empty(host, slot, number, 0..count);
    }
}

fn empty<H: Host>(host: &H, slot: u8, number: usize, chunks: Range<u32>) {
    for chunk in chunks.rev() {
        host.set(&key(slot, number, chunk), &[], None);
    }
}

/// One who reads logs.
pub(super) struct Reader<'a, H: Host> {
    pub(super) host: &'a H,
    pub(super) slot: u8,
    /// Bytes that are to be read at most, as far as whole chunks go.
    pub(super) budget: usize,
    pub(super) residents: &'a mut Residents,
    /// Blocks that there was no room for.
    pub(super) passed_over: u64,
}

impl<H: Host> Reader<'_, H> {
    /// Reads on from a place in the log of this number. Whether it has come to the end.
    pub(super) fn read(&mut self, number: usize, log: &Log, at: &mut Place) -> bool {
        let replica = ReplicaId::of(number);
        let Place {
            epoch,
            records: end,
        } = log.now;
        if at.epoch != epoch {
            let known = log.before.filter(|(before, _)| before == at);
            if known.is_none() {
                self.residents.clear(replica);
            }
            let records = known.map_or(0, |(_, records)| records);
            *at = Place { epoch, records };
        }
        while at.records < end {
            if self.budget == 0 {
                return false;
            }
            let stored = self.host.get(&key(self.slot, number, at.records / CHUNK));
            let chunk = stored.map(|stored| stored.value).unwrap_or_default();
            self.budget = self.budget.saturating_sub(chunk.len());
            let records = chunk
                .split_first_chunk()
                .filter(|&(&of, _)| u64::from_le_bytes(of) == epoch)
                .map_or(&[][..], |(_, records)| records);
            let (records, _) = records.as_chunks::<RECORD_BYTES>();
            let news = records.iter().skip((at.records % CHUNK) as usize);
            let news = news.take((end - at.records) as usize);
            if news.len() == 0 {
                // It is being written anew, of which the board will tell.
                return false;
            }
            for [media, block @ ..] in news {
                at.records += 1;
                let block = Identity(u64::from_le_bytes(*block));
                let media = Media::from_bits(*media).unwrap_or(Media::NONE);
                if !self.residents.put(replica, block, media) {
                    self.passed_over += 1;
                }
            }
        }
        true
    }
}

fn key(slot: u8, number: usize, chunk: u32) -> String {
    format!("rolter/1/blocks/{slot}/{number}/{chunk}")
}
