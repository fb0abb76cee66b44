//! Time as it comes in through arguments: nothing in this crate reads a clock. A clock may step
//! back, so no difference is taken that could underflow.

use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Millis(pub u64);

impl Millis {
    /// The milliseconds from `earlier` until now; none where that is not earlier.
    pub fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The milliseconds between two times, whichever came first.
    pub fn apart(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// So many milliseconds earlier.
    #[must_use]
    pub fn minus(self, millis: u64) -> Self {
        Self(self.0.saturating_sub(millis))
    }

    /// So many milliseconds later.
    #[must_use]
    pub fn plus(self, millis: u64) -> Self {
        Self(self.0.saturating_add(millis))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "wasm32")]
    use wasm_bindgen_test::wasm_bindgen_test as test;

    #[test]
    fn a_clock_that_steps_back_makes_no_time_pass() {
        assert_eq!(Millis(5).since(Millis(3)), 2);
        assert_eq!(Millis(3).since(Millis(5)), 0);
        assert_eq!(Millis(3).apart(Millis(5)), 2);
        assert_eq!(Millis(u64::MAX).apart(Millis(0)), u64::MAX);
    }
}
