//! Publications that wait for a replay to end, in the order in which they came; bounded in number
//! and bytes. Once one has found no room, none that follows is kept either, so what is held has no
//! hole of its own.

/// The most publications. An engine publishes some tens a second.
pub(super) const MAX_HELD: usize = 8_192;
/// The most bytes of their payloads.
pub(super) const MAX_HELD_BYTES: usize = 64 << 20;

#[derive(Debug)]
pub(super) struct Held<P> {
    batches: Vec<(u64, P)>,
    bytes: usize,
    overflowed: bool,
}

impl<P> Default for Held<P> {
    fn default() -> Self {
        Self {
            batches: Vec::new(),
            bytes: 0,
            overflowed: false,
        }
    }
}

impl<P: AsRef<[u8]>> Held<P> {
    /// Whether there was room.
    pub(super) fn push(&mut self, seq: u64, batch: P) -> bool {
        let bytes = self.bytes.saturating_add(batch.as_ref().len());
        self.overflowed |= self.batches.len() >= MAX_HELD || bytes > MAX_HELD_BYTES;
        if !self.overflowed {
            self.batches.push((seq, batch));
            self.bytes = bytes;
        }
        !self.overflowed
    }

    /// Whether one has found no room.
    pub(super) fn overflowed(&self) -> bool {
        self.overflowed
    }

    pub(super) fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// All of them; none is held afterwards.
    pub(super) fn take(&mut self) -> Vec<(u64, P)> {
        std::mem::take(self).batches
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}
