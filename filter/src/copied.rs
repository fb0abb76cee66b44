//! The bytes of an answer, copied as they pass.
//!
//! Invariant: they are complete as far as they have come, have [`Room`], and are no more than they
//! may be.

use crate::host;
use crate::room::Room;
use rolter_core::cache::answer::Refusal;

pub(crate) struct Copied {
    pub(crate) bytes: Vec<u8>,
    pub(crate) room: Room,
}

impl Copied {
    /// None yet.
    pub(crate) fn new() -> Self {
        Self {
            bytes: Vec::new(),
            room: Room::new(),
        }
    }

    /// Adds the bytes of the body that are passing, in the phase of that, up to `max` in all.
    pub(crate) fn add(&mut self, size: usize, max: usize) -> Result<(), Refusal> {
        let len = self.bytes.len().saturating_add(size);
        if len > max {
            return Err(Refusal::TooLarge);
        }
        let capacity = self.bytes.capacity();
        if len > capacity {
            let wanted = len.max(capacity.saturating_mul(2)).min(max);
            self.room.take(wanted - capacity).ok_or(Refusal::NoRoom)?;
            self.bytes.reserve_exact(wanted - self.bytes.len());
        }
        match host::response_body(size) {
            Some(bytes) if bytes.len() == size => {
                self.bytes.extend_from_slice(&bytes);
                Ok(())
            }
            _ => Err(Refusal::Incomplete),
        }
    }
}
