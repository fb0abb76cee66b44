//! Points in time, as they are told to this crate: it reads no clock of its own.

/// Milliseconds since the epoch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    /// So many milliseconds later.
    #[must_use]
    pub fn plus(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// The milliseconds since an earlier point; zero where it is later, as after the clock was set
    /// back.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}
