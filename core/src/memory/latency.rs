//! How long a target takes to the first token of a prompt, predicted from what it took lately.
//!
//! A line through the observations of each target, time over prompt length, in which old ones fade
//! away. Each line is drawn as if there were a few observations more that are as the whole fleet's:
//! so a target with few of its own, or none lately, is predicted as the fleet is. Every prediction
//! is finite and at least [`FLOOR_MICROS`].

use crate::target::{MAX_TARGETS, TargetId, TargetSet};
use crate::time::Millis;

/// The time in which an observation loses half of its weight. The time to the first token follows
/// the queue in front of the engine, which builds up and drains within tens of seconds.
const HALF_LIFE: u64 = 30_000;

/// How many observations of its own a target needs to be judged by itself as much as by the fleet.
/// A single slow answer is no reason to shun a target.
const FLEET_WEIGHT: f64 = 4.0;

/// What is left of the fleet's observations when they tell nothing any more: that of a single one
/// after ten half-lives, five minutes.
const TOO_OLD: f64 = 1.0 / 1024.0;

/// The least that is ever predicted, in microseconds: an engine does not answer sooner, and a line
/// through scattered points may come near zero or below.
const FLOOR_MICROS: f64 = 1_000.0;

/// The latency of all targets of one route.
pub struct Latency {
    targets: Vec<Sums>,
    fleet: Sums,
}

/// Predictions for one prompt, by target.
#[derive(Clone)]
pub(crate) struct Predictions([f64; MAX_TARGETS]);

impl Predictions {
    /// The time to the first token in microseconds.
    pub(crate) fn micros(&self, target: TargetId) -> f64 {
        let known = self.0.get(target.index());
        known.map_or(FLOOR_MICROS, |micros| micros.max(FLOOR_MICROS))
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self {
            targets: vec![Sums::default(); MAX_TARGETS],
            fleet: Sums::default(),
        }
    }
}

impl Latency {
    /// Records that the target just took `micros` to the first token of a prompt of so many tokens.
    pub fn observe(&mut self, target: TargetId, tokens: u32, micros: u32, now: Millis) {
        self.add(target, tokens, micros, |sums| sums.move_to(now));
    }

    /// Records what another worker observed at that time.
    pub fn learn(&mut self, target: TargetId, tokens: u32, micros: u32, at: Millis) {
        self.add(target, tokens, micros, |sums| sums.weight_at(at));
    }

    /// The time to the first token of a prompt of so many tokens, in microseconds. Nothing where
    /// nothing has been heard of any target lately.
    pub fn predict(&self, target: TargetId, tokens: u32, now: Millis) -> Option<f64> {
        let fleet = self.fleet_at(now)?;
        Some(self.of(target, now).plus(fleet).line_at(tokens))
    }

    /// Predictions for these targets, at once.
    pub(crate) fn predict_all(
        &self,
        targets: TargetSet,
        tokens: u32,
        now: Millis,
    ) -> Option<Predictions> {
        let fleet = self.fleet_at(now)?;
        let mut predictions = Predictions([FLOOR_MICROS; MAX_TARGETS]);
        for target in targets.iter() {
            if let Some(micros) = predictions.0.get_mut(target.index()) {
                *micros = self.of(target, now).plus(fleet).line_at(tokens);
            }
        }
        Some(predictions)
    }

    /// Drops what was observed of a target; what the fleet is like does not depend on it.
    pub fn forget(&mut self, target: TargetId) {
        if let Some(sums) = self.targets.get_mut(target.index()) {
            *sums = Sums::default();
        }
    }

    fn add(
        &mut self,
        target: TargetId,
        tokens: u32,
        micros: u32,
        weight: impl Fn(&mut Sums) -> f64,
    ) {
        if let Some(sums) = self.targets.get_mut(target.index()) {
            for sums in [sums, &mut self.fleet] {
                let weight = weight(sums);
                sums.moments = sums
                    .moments
                    .plus(Moments::one(tokens, micros).times(weight));
            }
        }
    }

    fn of(&self, target: TargetId, now: Millis) -> Moments {
        let sums = self.targets.get(target.index());
        sums.map_or(Moments::default(), |sums| sums.at(now))
    }

    /// The fleet as so many observations as every target's line is drawn with.
    fn fleet_at(&self, now: Millis) -> Option<Moments> {
        let fleet = self.fleet.at(now);
        (fleet.weight >= TOO_OLD).then(|| fleet.times(FLEET_WEIGHT / fleet.weight))
    }
}

/// Observations, each with the weight that it had at one time.
#[derive(Clone, Copy, Default)]
struct Sums {
    moments: Moments,
    at: Millis,
}

impl Sums {
    fn at(&self, now: Millis) -> Moments {
        self.moments.times(fade(now.since(self.at)))
    }

    /// Fades to the present and gives the weight of an observation made now. A clock that stepped
    /// back is followed, or it would be long until anything new had weight.
    fn move_to(&mut self, now: Millis) -> f64 {
        self.moments = self.at(now);
        self.at = now;
        1.0
    }

    /// The weight of an observation that may be older than others that are here already.
    fn weight_at(&mut self, at: Millis) -> f64 {
        if at > self.at {
            return self.move_to(at);
        }
        fade(self.at.since(at))
    }
}

/// What is left of a weight after so many milliseconds: half after each half-life, in a straight
/// line between those, which is near enough to need no power of two.
#[expect(
    clippy::cast_precision_loss,
    reason = "a part of a half-life is a small number"
)]
fn fade(millis: u64) -> f64 {
    let halves = i32::try_from(millis / HALF_LIFE).unwrap_or(i32::MAX);
    let part = (millis % HALF_LIFE) as f64 / HALF_LIFE as f64;
    // Below this all is zero anyway, and the power stays a number that can be taken quickly.
    if halves > 1_000 {
        return 0.0;
    }
    0.5_f64.powi(halves) * (1.0 - part / 2.0)
}

/// Weighted sums over points of x tokens and y microseconds.
#[derive(Clone, Copy, Default)]
struct Moments {
    weight: f64,
    x: f64,
    y: f64,
    xx: f64,
    xy: f64,
}

impl Moments {
    fn one(tokens: u32, micros: u32) -> Self {
        let (x, y) = (f64::from(tokens), f64::from(micros));
        Self {
            weight: 1.0,
            x,
            y,
            xx: x * x,
            xy: x * y,
        }
    }

    fn plus(self, other: Self) -> Self {
        Self {
            weight: self.weight + other.weight,
            x: self.x + other.x,
            y: self.y + other.y,
            xx: self.xx + other.xx,
            xy: self.xy + other.xy,
        }
    }

    fn times(self, factor: f64) -> Self {
        Self {
            weight: self.weight * factor,
            x: self.x * factor,
            y: self.y * factor,
            xx: self.xx * factor,
            xy: self.xy * factor,
        }
    }

    /// The value of the line of least squares at so many tokens. The weight is that of the fleet
    /// at least, which is not zero.
    fn line_at(self, tokens: u32) -> f64 {
        let weight = self.weight.max(f64::MIN_POSITIVE);
        let (x, y) = (self.x / weight, self.y / weight);
        let variance = self.xx / weight - x * x;
        let covariance = self.xy / weight - x * y;
        // Lengths that are all the same make no line: what differs then is rounding. And a longer
        // prompt is never answered sooner because it is longer.
        let is_line = variance > 1e-9 * x * x;
        let slope = if is_line {
            (covariance / variance).max(0.0)
        } else {
            0.0
        };
        let micros = y + slope * (f64::from(tokens) - x);
        // In this order, what is no number is the floor as well.
        FLOOR_MICROS.max(micros).min(f64::MAX)
    }
}
