//! What the VMs tell each other: a ring of records for each slot, in the shared data.
//!
//! A ring is a log of which the last [`SEGMENTS`] segments are kept. Its writer, who holds the slot,
//! appends to the newest segment and puts the address of its end into a gauge, which tells the
//! others in one cheap read whether there is anything new. A reader has an address of its own for
//! each ring; a VM that starts late begins at the oldest segment, so the log is the database.
//!
//! Invariants: a segment is written as a whole, so a reader never sees half a record; a number is
//! given to one segment of a ring only, because the next holder of a slot begins after the last
//! one's; keys and bytes are bounded by the number of slots.

use super::host::Host;
use super::slots::{MAX_SLOTS, SlotId};

/// Segments that are kept of a ring.
pub const SEGMENTS: u64 = 64;

/// What a segment may hold: any one record, or many short ones. All of it is copied when
/// one record is added or read, which takes a few microseconds.
pub const SEGMENT_BYTES: usize = 40 << 10;

/// The longest record.
pub const MAX_RECORD_BYTES: usize = SEGMENT_BYTES - HEADER_BYTES - LENGTH_BYTES;

/// What a record costs beside its bytes, in bytes: short ones take as long as that to learn.
const RECORD_COST: usize = 256;

/// A segment begins with its number and the number of records in all segments before it.
const HEADER_BYTES: usize = 16;
/// A record begins with its length.
const LENGTH_BYTES: usize = 4;

/// The end of a record in a ring: the number of the segment, and the offset in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Address {
    segment: u64,
    offset: usize,
}

impl Address {
    const OFFSET_BITS: u32 = 16;

    fn read(gauge: u64) -> Self {
        let offset = gauge & ((1 << Self::OFFSET_BITS) - 1);
        Self {
            segment: gauge >> Self::OFFSET_BITS,
            offset: usize::try_from(offset).unwrap_or(0),
        }
    }

    fn gauge(self) -> u64 {
        self.segment << Self::OFFSET_BITS | self.offset as u64
    }

    /// Where the first record of a segment begins.
    fn start_of(segment: u64) -> Self {
        Self {
            segment,
            offset: HEADER_BYTES,
        }
    }
}

/// The one who writes a ring.
pub struct Writer<H: Host> {
    slot: SlotId,
    head: H::Gauge,
    /// The newest segment.
    number: u64,
    segment: Vec<u8>,
    /// Records in the ring so far.
    records: u64,
    /// Whether some of the newest segment is not in the shared data yet.
    is_dirty: bool,
}

impl<H: Host> Writer<H> {
    /// Goes on with the ring of a slot that this VM holds, after what earlier holders wrote.
    pub fn new(host: &H, slot: SlotId) -> Self {
        let head = head(host, slot);
        let last = Address::read(host.read(head)).segment;
        let stored = host.get(&key(slot, last)).map(|stored| stored.value);
        let records = stored.and_then(|value| {
            let segment = Segment::read(&value).filter(|segment| segment.number == last)?;
            Some(segment.before + segment.records(HEADER_BYTES).count() as u64)
        });
        let mut writer = Self {
            slot,
            head,
            number: last,
            segment: Vec::new(),
            records: records.unwrap_or(0),
            is_dirty: false,
        };
        writer.begin();
        writer
    }

    /// Appends a record, which the others see after a [`flush`](Self::flush). Whether it was not too
    /// long.
    pub fn append(&mut self, host: &H, record: &[u8]) -> bool {
        let Some(length) = u32::try_from(record.len())
            .ok()
            .filter(|_| record.len() <= MAX_RECORD_BYTES)
        else {
            return false;
        };
        if self.segment.len() + LENGTH_BYTES + record.len() > SEGMENT_BYTES {
            self.flush(host);
            self.begin();
        }
        self.segment.extend_from_slice(&length.to_le_bytes());
        self.segment.extend_from_slice(record);
        self.records += 1;
        self.is_dirty = true;
        true
    }

    /// Shows the others all that was appended.
    pub fn flush(&mut self, host: &H) {
        if std::mem::take(&mut self.is_dirty) {
            host.set(&key(self.slot, self.number), &self.segment, None);
            host.put(self.head, self.end().gauge());
        }
    }

    /// Begins the next segment.
    fn begin(&mut self) {
        self.number += 1;
        self.segment.clear();
        self.segment.extend_from_slice(&self.number.to_le_bytes());
        self.segment.extend_from_slice(&self.records.to_le_bytes());
    }

    fn end(&self) -> Address {
        Address {
            segment: self.number,
            offset: self.segment.len(),
        }
    }
}

/// How far a VM has read each ring.
pub struct Reader<H: Host> {
    rings: Vec<Cursor<H>>,
    /// The ring to begin with, so that a busy one does not keep the others waiting.
    first: usize,
    lost: u64,
}

struct Cursor<H: Host> {
    head: H::Gauge,
    at: Address,
    /// Records up to there; nothing before the first was read.
    records: Option<u64>,
}

impl<H: Host> Reader<H> {
    /// Has read nothing.
    pub fn new() -> Self {
        Self {
            rings: Vec::new(),
            first: 0,
            lost: 0,
        }
    }

    /// Reads what is new in the first `high` rings, up to about so many bytes of segments, short
    /// records counted as longer ones. Whether that was all.
    pub fn read(
        &mut self,
        host: &H,
        high: usize,
        budget: usize,
        mut each: impl FnMut(&[u8]),
    ) -> bool {
        self.watch(host, high);
        let mut left = budget;
        let rings = self.rings.len();
        for turn in 0..rings {
            let index = (self.first + turn) % rings;
            let slot = SlotId(u8::try_from(index).unwrap_or(u8::MAX));
            let Some(cursor) = self.rings.get_mut(index) else {
                continue;
            };
            if !cursor.read(host, slot, &mut left, &mut self.lost, &mut each) {
                self.first = index;
                return false;
            }
        }
        self.first = 0;
        true
    }

    /// Appends a record of this VM's own, which it passes over itself unless there is more to
    /// read before it: read again, it would count as what another VM has seen too. Whether it was
    /// not too long.
    pub fn append(&mut self, host: &H, writer: &mut Writer<H>, record: &[u8]) -> bool {
        let slot = usize::from(writer.slot.0);
        self.watch(host, slot + 1);
        let cursor = self.rings.get_mut(slot);
        // Not where this writer was: it begins a segment before it has anything to write there.
        let cursor = cursor.filter(|cursor| cursor.at >= cursor.head(host));
        let written = writer.append(host, record);
        if let Some(cursor) = cursor.filter(|_| written) {
            cursor.at = writer.end();
            cursor.records = Some(writer.records);
        }
        written
    }

    /// Has a cursor for each of the first `high` rings.
    fn watch(&mut self, host: &H, high: usize) {
        for slot in self.rings.len()..high.min(MAX_SLOTS) {
            let slot = SlotId(u8::try_from(slot).unwrap_or(u8::MAX));
            self.rings.push(Cursor {
                head: head(host, slot),
                at: Address::default(),
                records: None,
            });
        }
    }

    /// Begins anew with the oldest that is kept.
    pub fn rewind(&mut self) {
        self.rings.clear();
        self.first = 0;
    }

    /// Records that were overwritten before this VM could read them.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl<H: Host> Default for Reader<H> {
    fn default() -> Self {
        Self::new()
    }
}

impl<H: Host> Cursor<H> {
    /// The end of the ring.
    fn head(&self, host: &H) -> Address {
        Address::read(host.read(self.head))
    }

    /// Reads what is new, as far as there are bytes left. Whether that was all.
    fn read(
        &mut self,
        host: &H,
        slot: SlotId,
        left: &mut usize,
        lost: &mut u64,
        each: &mut impl FnMut(&[u8]),
    ) -> bool {
        loop {
            let head = self.head(host);
            if self.at >= head {
                return true;
            }
            if *left == 0 {
                return false;
            }
            let oldest = head.segment.saturating_sub(SEGMENTS - 1);
            self.at = self.at.max(Address::start_of(oldest));
            let stored = host.get(&key(slot, self.at.segment));
            let value = stored.map(|stored| stored.value).unwrap_or_default();
            *left = left.saturating_sub(value.len().max(HEADER_BYTES));
            // What is not there any more is missed by the count of the next segment.
            let segment = Segment::read(&value).filter(|found| found.number == self.at.segment);
            // A record is read once the gauge tells of it, so that all readers see the same ones.
            let newest = self.at.segment == head.segment;
            if let Some(segment) = segment {
                let end = if newest { head.offset } else { value.len() };
                let records = self.take(&segment.until(end), lost, each);
                *left = left.saturating_sub(records * RECORD_COST);
            }
            self.at = if newest {
                head
            } else {
                Address::start_of(self.at.segment + 1)
            };
        }
    }

    /// Takes the records of a segment from the cursor on, and tells how many they are.
    fn take(
        &mut self,
        segment: &Segment<'_>,
        lost: &mut u64,
        each: &mut impl FnMut(&[u8]),
    ) -> usize {
        let mut taken = 0;
        let mut records = segment.before;
        if self.at.offset == HEADER_BYTES {
            *lost += records.saturating_sub(self.records.unwrap_or(records));
        } else {
            records = self.records.unwrap_or(records);
        }
        for record in segment.records(self.at.offset) {
            each(record);
            records += 1;
            taken += 1;
        }
        self.records = Some(records);
        taken
    }
}

/// A segment as it is stored.
struct Segment<'a> {
    number: u64,
    /// Records in all segments before it.
    before: u64,
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    fn read(bytes: &'a [u8]) -> Option<Self> {
        let (&number, rest) = bytes.split_first_chunk()?;
        let (&before, _) = rest.split_first_chunk()?;
        Some(Self {
            number: u64::from_le_bytes(number),
            before: u64::from_le_bytes(before),
            bytes,
        })
    }

    fn until(&self, end: usize) -> Self {
        Self {
            bytes: self.bytes.get(..end).unwrap_or(self.bytes),
            ..*self
        }
    }

    /// The records from an offset on.
    fn records(&self, offset: usize) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.bytes.get(offset..).unwrap_or_default();
        std::iter::from_fn(move || {
            let (&length, after) = rest.split_first_chunk()?;
            let length = usize::try_from(u32::from_le_bytes(length)).ok()?;
            let (record, after) = after.split_at_checked(length)?;
            rest = after;
            Some(record)
        })
    }
}

fn head<H: Host>(host: &H, SlotId(slot): SlotId) -> H::Gauge {
    let labels = [("slot", &*slot.to_string()), ("vm", &host.vm())];
    host.gauge("rolter_ring_head", &labels)
}

fn key(SlotId(slot): SlotId, segment: u64) -> String {
    format!("rolter/1/ring/{slot}/{}", segment % SEGMENTS)
}
