//! What the VMs count together: the requests in flight at a target, and the tokens of their prompts
//! that it has yet to compute.
//!
//! Each amount is counted twice: in the target's gauge, which everybody reads, and in a share of
//! it that belongs to the slot of the VM. A share is written whole, from a count that the VM keeps
//! for itself, so it is right again with the next write whatever happened to it.
//!
//! Invariant: the shares of the live slots are the truth, and the gauge follows them. A VM that
//! dies leaves its part in the gauge; once its shares are cleared, the gauge differs from their sum
//! for longer than any request under way explains, and the VM that leads takes the difference out.

use super::host::Host;
use super::slots::SlotId;
use crate::time::Millis;
use std::cell::{Cell, RefCell};

/// So many audits in a row have to find the same difference before it is taken out. Between its two
/// counts an amount makes a difference that is no fault, and that the next audit hardly meets again.
/// Should it all the same, the next three find that out.
const SURE: u32 = 3;

/// Of so many targets a VM reads in a millisecond what others have there.
const READ_IN_A_MILLI: usize = 64;

/// What is in flight at one target, as one VM counts and sees it.
pub struct InFlight<H: Host> {
    target: String,
    /// The name of the shares' gauge.
    share: &'static str,
    /// The name of the VMs that share; see [`Host::vm`].
    vm: String,
    total: H::Gauge,
    /// The parts of all slots, as far as they were asked for.
    shares: RefCell<Vec<Option<H::Gauge>>>,
    /// This VM's slot, and its part of the gauge.
    slot: Cell<Option<SlotId>>,
    mine: Cell<u64>,
    /// The parts of the others, and when they were read.
    others: Cell<(u64, Millis)>,
    /// The difference that the last audits found, and how many of them.
    found: Cell<(i64, u32)>,
}

impl<H: Host> InFlight<H> {
    /// The requests at a target of this name.
    pub fn requests(host: &H, target: &str) -> Self {
        Self::new(host, target, "rolter_in_flight", "rolter_in_flight_share")
    }

    /// The tokens of prompts that a target of this name has yet to compute, as far as is known.
    pub fn tokens(host: &H, target: &str) -> Self {
        Self::new(
            host,
            target,
            "rolter_pending_tokens",
            "rolter_pending_tokens_share",
        )
    }

    fn new(host: &H, target: &str, total: &str, share: &'static str) -> Self {
        let vm = host.vm();
        let labels = [("target", target), ("vm", &*vm)];
        Self {
            target: target.to_owned(),
            share,
            total: host.tally(total, &labels),
            vm,
            shares: RefCell::default(),
            slot: Cell::new(None),
            mine: Cell::new(0),
            others: Cell::default(),
            found: Cell::new((0, 0)),
        }
    }

    /// So much more.
    pub fn begin(&self, host: &H, amount: u32) {
        self.count(host, amount.into());
    }

    /// So much less, of what this VM has begun.
    pub fn end(&self, host: &H, amount: u32) {
        let amount = self.mine.get().min(amount.into());
        self.count(host, -amount.cast_signed());
    }

    /// What is in flight through all VMs.
    pub fn total(&self, host: &H) -> u32 {
        positive(host.read(self.total))
            .try_into()
            .unwrap_or(u32::MAX)
    }

    /// The same as a decision over so many targets needs it: what this VM has counted itself, and what
    /// others had a moment ago. To read that of each target for every request would cost more than all
    /// the rest of the decision, and the more targets there are, the slower is what any of them has.
    pub fn load(&self, host: &H, now: Millis, targets: usize) -> u32 {
        let (others, read) = self.others.get();
        let moment = (targets / READ_IN_A_MILLI) as u64;
        let others = if now.apart(read) <= moment {
            others
        } else {
            let others = host.read(self.total).wrapping_sub(self.mine.get());
            self.others.set((others, now));
            others
        };
        let total = positive(others.wrapping_add(self.mine.get()));
        total.try_into().unwrap_or(u32::MAX)
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
        if amount == 0 {
            return;
        }
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
            host.tally(self.share, &labels)
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
