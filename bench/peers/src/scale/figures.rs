//! What a play comes to.

use super::engine::Counts;
use std::time::Duration;

/// What plays come to. Several of the same kind add up.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    /// In ascending order.
    ttft: Vec<Duration>,
    pub(crate) unanswered: usize,
    queried: u64,
    hit: u64,
    /// Tokens that all engines together had time to compute.
    capacity: f64,
    /// By play.
    spread: Vec<f64>,
}

impl Figures {
    /// Of one play: times to the first token, the engines' counts at its end and when it began to
    /// count, and the tokens that one of them had time to compute.
    pub(crate) fn new(
        ttft: &[Option<Duration>],
        counts: impl Iterator<Item = (Counts, Counts)>,
        capacity: f64,
    ) -> Self {
        let mut figures = Self {
            ttft: ttft.iter().flatten().copied().collect(),
            unanswered: ttft.iter().filter(|ttft| ttft.is_none()).count(),
            ..Self::default()
        };
        figures.ttft.sort_unstable();
        let (mut engines, mut most) = (0_u32, 0);
        for (after, before) in counts {
            let queried = after.queried - before.queried;
            let hit = after.hit - before.hit;
            engines += 1;
            figures.queried += queried;
            figures.hit += hit;
            most = most.max(queried - hit);
        }
        figures.capacity = capacity * f64::from(engines);
        let average = approximate(figures.computed()) / f64::from(engines.max(1));
        figures.spread.push(approximate(most) / average.max(1.0));
        figures
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.ttft.extend(other.ttft);
        self.ttft.sort_unstable();
        self.unanswered += other.unanswered;
        self.queried += other.queried;
        self.hit += other.hit;
        self.capacity += other.capacity;
        self.spread.extend(other.spread);
    }

    pub(crate) fn hit_rate(&self) -> f64 {
        approximate(self.hit) / approximate(self.queried).max(1.0)
    }

    /// The share of the time in which the engines computed.
    pub(crate) fn utilisation(&self) -> f64 {
        approximate(self.computed()) / self.capacity.max(1.0)
    }

    /// The busiest engine's tokens to compute, by the average engine's; the average of all plays.
    pub(crate) fn spread(&self) -> f64 {
        let plays = approximate(self.spread.len() as u64).max(1.0);
        self.spread.iter().sum::<f64>() / plays
    }

    /// The time to the first token that this share of the requests did not exceed, in milliseconds.
    pub(crate) fn ttft_ms(&self, share: f64) -> f64 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a number of requests"
        )]
        let place = (share * approximate(self.ttft.len() as u64)) as usize;
        let last = self.ttft.len().saturating_sub(1);
        let ttft = self.ttft.get(place.min(last)).copied().unwrap_or_default();
        ttft.as_secs_f64() * 1e3
    }

    pub(crate) fn mean_ttft_ms(&self) -> f64 {
        let sum: Duration = self.ttft.iter().sum();
        sum.as_secs_f64() * 1e3 / approximate(self.ttft.len() as u64).max(1.0)
    }

    fn computed(&self) -> u64 {
        self.queried - self.hit
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^53")]
fn approximate(count: u64) -> f64 {
    count as f64
}
