//! The VM that hears from the sidecar what engines tell, and writes it down for all.
//!
//! While the sidecar tells everything anew, the others go on with what they know; they are shown the
//! rest when it is complete.
//!
//! Invariant: the board and the logs that it names are of one leader. It is only replaced by
//! compare-and-swap, so a VM that takes itself for the leader finds out that another one is.

use super::board::Board;
use super::feed::{Change, Page};
use super::log::{self, Writer};
use super::mirror::{MAX_RESIDENTS, Mirror};
use super::residents::Residents;
use crate::shared::Host;
use crate::shared::slots::SlotId;
use crate::time::Millis;

/// What the leader has beside what all have.
pub(super) struct Leader {
    /// Drawn at random.
    id: u64,
    slot: u8,
    /// The last epoch that a log was given.
    epoch: u64,
    writers: Vec<Writer>,
    /// Where the sidecar is to go on.
    cursor: String,
    has_published: bool,
}

impl<H: Host> Mirror<H> {
    /// Takes what the sidecar tells, as the VM that leads and holds this slot. `id` is drawn at
    /// random. Whether it goes on; else what was heard is of no use, and is to be heard anew.
    pub fn hear(&mut self, host: &H, slot: SlotId, page: &Page, now: Millis, id: u64) -> bool {
        if page.anew {
            self.begin(host, slot, id);
        }
        let Some(leader) = &mut self.leader else {
            return false;
        };
        if leader.slot != slot.0 {
            self.leave();
            return false;
        }
        leader.cursor.clone_from(&page.cursor);
        self.show(Board::of(page, now));
        let goes_on = self.apply(host, &page.changes) && (page.more || self.publish(host));
        if !goes_on {
            self.leave();
            // Nobody reads what was written: the board is another leader's, or is to be.
            log::wipe(host, slot.0);
        }
        goes_on
    }

    /// Hears nothing any more: another VM leads.
    pub fn leave(&mut self) {
        if self.leader.take().is_some() {
            self.read = None;
        }
    }

    /// Where the sidecar is to go on; nothing where it is to begin anew.
    pub fn cursor(&self) -> Option<&str> {
        self.leader.as_ref().map(|leader| leader.cursor.as_str())
    }

    /// Begins to hear everything, under this slot.
    fn begin(&mut self, host: &H, slot: SlotId, id: u64) {
        let leader = self.leader.take().filter(|leader| leader.slot == slot.0);
        let mut leader = leader.unwrap_or_else(|| Leader::new(host, slot, id));
        for writer in &mut leader.writers {
            writer.begin(next(&mut leader.epoch));
        }
        self.leader = Some(leader);
        self.blocks.clear();
        self.residents = Residents::new(MAX_RESIDENTS);
    }

    /// Takes in changes. Whether they could all be read.
    fn apply(&mut self, host: &H, mut changes: &[u8]) -> bool {
        let Some(leader) = &mut self.leader else {
            return false;
        };
        for number in leader.writers.len()..self.blocks.len() {
            leader.write(host, number, None);
        }
        while let Some(change) = Change::read(&mut changes) {
            let (Change::Clear(replica) | Change::Put(replica, ..)) = change;
            let place = usize::from(replica.0);
            let writer = leader.writers.get_mut(place);
            let Some(writer) = writer.filter(|_| place < self.blocks.len()) else {
                continue;
            };
            match change {
                Change::Clear(_) => {
                    self.residents.clear(replica);
                    writer.begin(next(&mut leader.epoch));
                }
                Change::Put(_, block, media) => {
                    if self.residents.put(replica, block, media) {
                        writer.push(host, leader.slot, block, media);
                    } else {
                        self.passed_over += 1;
                    }
                }
            }
        }
        changes.is_empty()
    }

    /// Shows the others what was heard. Whether they see it: not where another VM leads.
    fn publish(&mut self, host: &H) -> bool {
        let Some(leader) = &mut self.leader else {
            return false;
        };
        let (before, version) = Board::read(host);
        let is_mine = before
            .as_ref()
            .is_some_and(|board| board.leader == leader.id);
        if leader.has_published && !is_mine {
            return false;
        }
        for (number, writer) in leader.writers.iter_mut().enumerate() {
            writer.flush(host, leader.slot, &self.residents, || {
                next(&mut leader.epoch)
            });
            if let Some(replica) = self.board.replicas.get_mut(number) {
                replica.log = writer.log();
            }
        }
        self.board.leader = leader.id;
        self.board.slot = leader.slot;
        if !self.board.write(host, version) {
            return false;
        }
        host.add(self.version, 1);
        for (blocks, writer) in self.blocks.iter_mut().zip(&leader.writers) {
            blocks.at = writer.log().now;
            blocks.is_whole = true;
        }
        leader.has_published = true;
        if let Some(other) = before.filter(|board| board.slot != leader.slot) {
            log::wipe(host, other.slot);
        }
        true
    }
}

impl Leader {
    /// Under the keys of a slot something of an earlier leader may be left.
    fn new<H: Host>(host: &H, SlotId(slot): SlotId, id: u64) -> Self {
        let mut leader = Self {
            id,
            slot,
            epoch: id,
            writers: Vec::new(),
            cursor: String::new(),
            has_published: false,
        };
        while let Some(chunks) = log::chunks(host, slot, leader.writers.len()) {
            leader.write(host, leader.writers.len(), Some(chunks));
        }
        leader
    }

    fn write<H: Host>(&mut self, host: &H, number: usize, chunks: Option<u32>) {
        let epoch = next(&mut self.epoch);
        let writer = Writer::new(host, self.slot, number, epoch, chunks);
        self.writers.push(writer);
    }
}

/// An epoch that no log had before.
fn next(epoch: &mut u64) -> u64 {
    *epoch = epoch.wrapping_add(1);
    *epoch
}
