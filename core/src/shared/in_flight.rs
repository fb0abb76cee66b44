//! What the VMs count together: requests in flight at a target.
//!
//! Each request is counted twice: in the target's gauge, which everybody reads, and in a share of
//! it that belongs to the slot of the VM. A share is written whole, from a count that the VM keeps
//! for itself, so it is right again with the next write whatever happened to it.
//!
//! Invariant: the shares of the live slots are the truth, and the gauge follows them. A VM that
//! dies leaves its part in the gauge; once its shares are cleared, the gauge differs from their sum
//! for longer than any request under way explains, and the VM that leads takes the difference out.

use super::host::Host;
use super::slots::SlotId;
use std::cell::{Cell, RefCell};

/// So many audits in a row have to find the same difference before it is taken out. Between its two
/// counts a request makes a difference that is no fault, and that the next audit hardly meets again.
/// Should it all the same, the next three find that out.
const SURE: u32 = 3;

/// The requests in flight at one target, as one VM counts and sees them.
pub struct InFlight<H: Host> {
    target: String,
    /// The name of the VMs that share; see [`Host::vm`].
    vm: String,
    total: H::Gauge,
    /// The parts of all slots, as far as they were asked for.
    shares: RefCell<Vec<Option<H::Gauge>>>,
    /// This VM's slot, and its part of the gauge.
    slot: Cell<Option<SlotId>>,
    mine: Cell<u64>,
    /// The difference that the last audits found, and how many of them.
    found: Cell<(i64, u32)>,
}

impl<H: Host> InFlight<H> {
    /// Counts for a target of this name, from zero.
    pub fn new(host: &H, target: &str) -> Self {
        let vm = host.vm();
        let labels = [("target", target), ("vm", &*vm)];
        Self {
            target: target.to_owned(),
            total: host.gauge("rolter_in_flight", &labels),
            vm,
            shares: RefCell::default(),
            slot: Cell::new(None),
            mine: Cell::new(0),
            found: Cell::new((0, 0)),
        }
    }

    /// One request more.
    pub fn begin(&self, host: &H) {
        self.count(host, 1);
    }

    /// One request less, of those that this VM has begun.
    pub fn end(&self, host: &H) {
        if self.mine.get() > 0 {
            self.count(host, -1);
        }
    }

    /// The requests in flight through all VMs.
    pub fn total(&self, host: &H) -> u32 {
        positive(host.read(self.total))
            .try_into()
            .unwrap_or(u32::MAX)
    }

    /// Writes this VM's share to its slot: after each beat, because a slot that a VM has claimed
    /// may have been another's, who can have written to it until that moment.
    pub fn write_share(&self, host: &H, slot: Option<SlotId>) {
        self.slot.set(slot);
        self.put(host);
    }

    /// Clears what a VM that has died left in its slot.
    pub fn clear(&self, host: &H, dead: SlotId) {
        host.put(self.share_of(host, dead), 0);
    }

    /// Compares the gauge with the shares of all slots that are held, and takes out what should not
    /// be there. For the VM that leads.
    pub fn audit(&self, host: &H, held: impl Iterator<Item = SlotId>) {
        let before = host.read(self.total);
        let shares = held.map(|slot| host.read(self.share_of(host, slot)));
        let shares = shares.fold(0, u64::wrapping_add);
        if host.read(self.total) != before {
            return;
        }
        let difference = before.wrapping_sub(shares).cast_signed();
        let (known, times) = self.found.get();
        let times = if difference == known { times + 1 } else { 1 };
        let sure = difference != 0 && times >= SURE;
        if sure {
            host.add(self.total, difference.wrapping_neg());
        }
        self.found
            .set(if sure { (0, 0) } else { (difference, times) });
    }

    fn count(&self, host: &H, amount: i64) {
        self.mine.set(self.mine.get().saturating_add_signed(amount));
        host.add(self.total, amount);
        self.put(host);
    }

    fn put(&self, host: &H) {
        if let Some(slot) = self.slot.get() {
            host.put(self.share_of(host, slot), self.mine.get());
        }
    }

    fn share_of(&self, host: &H, SlotId(slot): SlotId) -> H::Gauge {
        let mut shares = self.shares.borrow_mut();
        let place = usize::from(slot);
        if shares.len() <= place {
            shares.resize(place + 1, None);
        }
        let define = || {
            let slot = slot.to_string();
            let labels = [
                ("target", &*self.target),
                ("slot", &*slot),
                ("vm", &*self.vm),
            ];
            host.gauge("rolter_in_flight_share", &labels)
        };
        match shares.get_mut(place) {
            Some(share) => *share.get_or_insert_with(define),
            None => define(),
        }
    }
}

/// What a gauge reads, or zero where it has wrapped below.
fn positive(value: u64) -> u64 {
    if value.cast_signed() < 0 { 0 } else { value }
}
