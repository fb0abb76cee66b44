//! Who is there: a table of slots in the shared data, each held by one VM for as long as its heart
//! beats.
//!
//! A slot is the identity under which a VM contributes to what all share. A beat raises the number
//! in its entry; a VM whose number has not moved for [`DEAD_AFTER`] beats of another is dead to that
//! one, who takes the slot, clears what it stood for and frees it. Should the taker die in between,
//! its entry stands still too, and the next one takes over.
//!
//! Invariant: no slot has two holders, because every change of the table is a compare-and-swap. A
//! VM that was only slow finds its entry taken with its next beat, and claims another slot.

use super::host::{Host, NO_VERSION};

/// How many VMs can take part. More route all the same, each with what it learns by itself.
pub const MAX_SLOTS: usize = 256;

/// Beats without a sign of life after which a VM is dead. With a beat a second it takes five
/// seconds, more than any thread of a healthy Envoy stands still.
pub const DEAD_AFTER: u32 = 5;

const KEY: &str = "rolter/1/slots";
const ENTRY_BYTES: usize = 16;
/// The holder of a free slot.
const NOBODY: u64 = 0;
/// Attempts at a compare-and-swap, each of which fails only where another VM's has succeeded.
const ATTEMPTS: usize = 64;

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotId(pub u8);

/// One VM's part in the table.
pub struct Member<H: Host> {
    /// Drawn at random: that two VMs have the same is less likely than any fault of a machine.
    id: u64,
    slot: Option<SlotId>,
    /// The table as it was when it was last read.
    table: Table,
    /// Each slot's entry as it was with the last beat, and for how many beats it has been so.
    watched: Vec<(Entry, u32)>,
    /// One more than the highest slot that was ever held.
    high: H::Gauge,
}

/// What a beat has brought.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Beat {
    /// The slot is another one than before.
    pub moved: bool,
    /// How many dead VMs were cleared away.
    pub reaped: u32,
}

impl<H: Host> Member<H> {
    /// Takes part under an id that was drawn at random, from the first beat on.
    pub fn new(host: &H, id: u64) -> Self {
        Self {
            id: if id == NOBODY { 1 } else { id },
            slot: None,
            table: Table::empty(),
            watched: vec![(Entry::default(), 0); MAX_SLOTS],
            high: host.gauge("rolter_slots", &[("vm", &host.vm())]),
        }
    }

    /// The slot that this VM holds, as far as it knows.
    pub fn slot(&self) -> Option<SlotId> {
        self.slot
    }

    /// Shows that this VM lives, and holds a slot if there is one. `clear` is called for each slot
    /// of a VM that has died, while no other VM can have it.
    pub fn beat(&mut self, host: &H, mut clear: impl FnMut(SlotId)) -> Beat {
        let before = self.slot;
        self.hold(host);
        let mut beat = Beat {
            moved: self.slot != before,
            reaped: 0,
        };
        for (slot, entry) in self.watch() {
            beat.reaped += u32::from(self.reap(host, slot, entry, &mut clear));
        }
        beat
    }

    /// The slots that were held with the last beat, this one's among them.
    pub fn held(&self) -> impl Iterator<Item = SlotId> {
        self.table
            .entries()
            .filter(|(_, entry)| entry.holder != NOBODY)
            .map(|(slot, _)| slot)
    }

    /// Whether this VM does what only one of them should do: its slot is the lowest.
    pub fn leads(&self) -> bool {
        self.slot.is_some() && self.held().next() == self.slot
    }

    /// How many slots may have something to read: all that were ever held.
    pub fn high(&self, host: &H) -> usize {
        usize::try_from(host.read(self.high)).map_or(MAX_SLOTS, |high| high.min(MAX_SLOTS))
    }

    /// Raises the number in this VM's entry, or claims a free one.
    fn hold(&mut self, host: &H) {
        let (id, mut slot) = (self.id, self.slot);
        let held = self.change(host, |table| {
            let mine = slot.filter(|&slot| table.entry(slot).holder == id);
            slot = mine.or_else(|| table.free());
            slot.is_some_and(|slot| table.replace(slot, |_| true, id))
        });
        self.slot = slot.filter(|_| held);
        if let Some(SlotId(slot)) = self.slot {
            // Two who raise it at once may leave the lower value; the next beat mends that.
            let needed = u64::from(slot) + 1;
            if host.read(self.high) < needed {
                host.put(self.high, needed);
            }
        }
    }

    /// Counts how long entries have stood still, and returns those that have for too long.
    fn watch(&mut self) -> Vec<(SlotId, Entry)> {
        let mut dead = Vec::new();
        for ((slot, entry), (known, beats)) in self.table.entries().zip(&mut self.watched) {
            if *known == entry && entry.holder != NOBODY {
                *beats += 1;
            } else {
                (*known, *beats) = (entry, 0);
            }
            if *beats >= DEAD_AFTER && Some(slot) != self.slot {
                dead.push((slot, entry));
            }
        }
        dead
    }

    /// Takes a dead VM's slot, clears it and frees it. Whether it was for this VM to do.
    fn reap(
        &mut self,
        host: &H,
        slot: SlotId,
        dead: Entry,
        clear: &mut impl FnMut(SlotId),
    ) -> bool {
        let id = self.id;
        let taken = self.change(host, |table| table.replace(slot, |entry| entry == dead, id));
        if taken {
            clear(slot);
            self.change(host, |table| {
                table.replace(slot, |entry| entry.holder == id, NOBODY)
            });
        }
        taken
    }

    /// Changes the table, as often as it takes. Whether it was changed.
    fn change(&mut self, host: &H, mut change: impl FnMut(&mut Table) -> bool) -> bool {
        for _ in 0..ATTEMPTS {
            let (mut table, version) = match host.get(KEY) {
                Some(stored) => (Table::read(stored.value), stored.version),
                None => (Table::empty(), NO_VERSION),
            };
            if !change(&mut table) {
                self.table = table;
                return false;
            }
            if host.set(KEY, &table.0, Some(version)) {
                self.table = table;
                return true;
            }
        }
        false
    }
}

/// Who holds a slot. Every beat and every change of the holder raises the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Entry {
    holder: u64,
    beats: u64,
}

/// [`MAX_SLOTS`] entries as they are stored: holder, then beats, little-endian.
struct Table(Vec<u8>);

impl Table {
    fn empty() -> Self {
        Self(vec![0; MAX_SLOTS * ENTRY_BYTES])
    }

    fn read(mut bytes: Vec<u8>) -> Self {
        bytes.resize(MAX_SLOTS * ENTRY_BYTES, 0);
        Self(bytes)
    }

    fn entries(&self) -> impl Iterator<Item = (SlotId, Entry)> {
        let (numbers, _) = self.0.as_chunks::<8>();
        let (entries, _) = numbers.as_chunks::<2>();
        let entries = entries.iter().map(|&[holder, beats]| Entry {
            holder: u64::from_le_bytes(holder),
            beats: u64::from_le_bytes(beats),
        });
        (0..=u8::MAX).map(SlotId).zip(entries)
    }

    fn entry(&self, SlotId(slot): SlotId) -> Entry {
        let entry = self.entries().nth(usize::from(slot));
        entry.map_or(Entry::default(), |(_, entry)| entry)
    }

    fn free(&self) -> Option<SlotId> {
        self.entries()
            .find(|(_, entry)| entry.holder == NOBODY)
            .map(|(slot, _)| slot)
    }

    /// Gives a slot a holder if its entry is as it should be. Whether it was.
    fn replace(&mut self, slot: SlotId, expected: impl Fn(Entry) -> bool, holder: u64) -> bool {
        let entry = self.entry(slot);
        let at = usize::from(slot.0) * ENTRY_BYTES;
        let Some(bytes) = self.0.get_mut(at..at + ENTRY_BYTES) else {
            return false;
        };
        if !expected(entry) {
            return false;
        }
        let (to_holder, to_beats) = bytes.split_at_mut(ENTRY_BYTES / 2);
        to_holder.copy_from_slice(&holder.to_le_bytes());
        to_beats.copy_from_slice(&entry.beats.wrapping_add(1).to_le_bytes());
        true
    }
}
