//! Room for answers that are taken down in a VM, until they are handed over.
//!
//! Invariant: all of them together take no more than [`MAX_BYTES`], and give back what they took.

use crate::vm::Vm;
use std::cell::Cell;
use std::rc::Rc;

/// Bytes of answers in a VM. Most answers are some KiB; there is no room for many at the limit of an
/// entry.
const MAX_BYTES: usize = 64 << 20;

/// How many bytes are taken at this moment.
#[derive(Default)]
pub(crate) struct Taken(Cell<usize>);

/// Bytes that count for as long as this is there.
pub(crate) struct Room {
    vm: Rc<Vm>,
    bytes: usize,
}

impl Room {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            vm: Vm::get(),
            bytes: 0,
        }
    }

    /// Takes so many more, where there is room for them.
    pub(crate) fn take(&mut self, more: usize) -> Option<()> {
        let Taken(taken) = &self.vm.taken;
        let all = taken.get().saturating_add(more);
        if all > MAX_BYTES {
            return None;
        }
        taken.set(all);
        self.bytes += more;
        Some(())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let Taken(taken) = &self.vm.taken;
        taken.set(taken.get().saturating_sub(self.bytes));
    }
}
