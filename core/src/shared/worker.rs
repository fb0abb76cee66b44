//! One VM's part in what all share: its slot, its ring, and how far it has read those of the others.

use super::host::Host;
use super::in_flight::InFlight;
use super::ring::{Reader, Writer};
use super::slots::{Beat, DEAD_AFTER, Member, SlotId};
use crate::time::Millis;
use std::borrow::Borrow;

/// How far apart beats should be.
pub const BEAT_MILLIS: u64 = 1_000;

/// After so long without a beat a VM may be about to count as dead, and beats before it writes.
const LATE_MILLIS: u64 = BEAT_MILLIS * DEAD_AFTER as u64 / 2;

/// What one VM has of all that is shared.
pub struct Worker<H: Host> {
    member: Member<H>,
    /// Where there is a slot.
    writer: Option<Writer<H>>,
    reader: Reader<H>,
    beaten: Millis,
}

impl<H: Host> Worker<H> {
    /// Takes part under an id that was drawn at random, from the first beat on.
    pub fn new(host: &H, id: u64) -> Self {
        Self {
            member: Member::new(host, id),
            writer: None,
            reader: Reader::new(),
            beaten: Millis::default(),
        }
    }

    /// The slot that this VM holds, as far as it knows.
    pub fn slot(&self) -> Option<SlotId> {
        self.member.slot()
    }

    /// Whether this VM does what only one of them should do.
    pub fn leads(&self) -> bool {
        self.member.leads()
    }

    /// Whether a beat is due, by a clock that may have been set in either direction.
    pub fn is_due(&self, now: Millis) -> bool {
        now.apart(self.beaten) >= BEAT_MILLIS
    }

    /// Whether a beat is so late that another VM may have this one's slot by now.
    pub fn is_late(&self, now: Millis) -> bool {
        now.apart(self.beaten) >= LATE_MILLIS
    }

    /// Shows that this VM lives, states what it counts, and puts right what VMs that have died left
    /// behind in these counts.
    pub fn beat<C: Borrow<InFlight<H>>>(&mut self, host: &H, now: Millis, counts: &[C]) -> Beat {
        let counts = || counts.iter().map(Borrow::borrow);
        let beat = self.member.beat(host, |dead| {
            counts().for_each(|count| count.clear(host, dead));
        });
        let slot = self.member.slot();
        if beat.moved {
            self.writer = slot.map(|slot| Writer::new(host, slot));
        }
        for count in counts() {
            count.write_share(host, slot);
            if self.member.leads() {
                count.audit(host, self.member.held());
            }
        }
        self.beaten = now;
        beat
    }

    /// Tells the others, once this is [flushed](Self::flush). Whether they will hear it: not without a
    /// slot, nor of what is too long.
    pub fn append(&mut self, host: &H, record: &[u8]) -> bool {
        self.writer
            .as_mut()
            .is_some_and(|writer| self.reader.append(host, writer, record))
    }

    /// Has the others see all that they are to be told.
    pub fn flush(&mut self, host: &H) {
        if let Some(writer) = &mut self.writer {
            writer.flush(host);
        }
    }

    /// Tells the others at once. Whether they will hear it.
    pub fn publish(&mut self, host: &H, record: &[u8]) -> bool {
        let will_hear = self.append(host, record);
        self.flush(host);
        will_hear
    }

    /// Reads what others have told, up to about so many bytes. Whether that was all.
    pub fn read(&mut self, host: &H, budget: usize, each: impl FnMut(&[u8])) -> bool {
        self.reader.read(host, self.member.high(host), budget, each)
    }

    /// Goes through all that is still kept of what anybody has told, once more.
    pub fn rewind(&mut self) {
        self.reader.rewind();
    }

    /// Records of others that were overwritten before this VM could read them.
    pub fn lost(&self) -> u64 {
        self.reader.lost()
    }
}
