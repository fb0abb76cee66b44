//! `pipeline`: the target with the best sum of scores, each from 0 to 1 and times a weight.
//!
//! What is not known is the same for all candidates, so that it decides nothing.

use super::decision::{Followers, Pick, Reason};
use super::few::Few;
use super::view::View;
use super::{Asks, Need, TargetInfo, by_id};
use crate::target::TargetId;
use fastrand::Rng;
use std::time::Duration;

/// The weights of the scorers. One with a weight of zero is not asked, and one with a weight that
/// is negative or no number neither.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pipeline {
    /// Who has the session: 1, all others 0.
    pub session: f64,
    /// How long a session is remembered after its last request.
    pub session_ttl: Duration,
    /// The share of the prompt's text that the target has.
    pub prefix: f64,
    /// One plus the least load over one plus the target's: it falls with the ratio between them,
    /// so one hot prefix cannot pile up on a target. With `prefix` 1 and `load` 2, a target that
    /// has all of a prompt is passed over where its load is about twice the least.
    pub load: f64,
    /// The target's weight over the highest one.
    pub weight: f64,
    /// The shortest predicted time to the first token over the target's.
    pub latency: f64,
}

impl Default for Pipeline {
    fn default() -> Self {
        Self {
            session: 0.5,
            session_ttl: Duration::from_mins(10),
            prefix: 1.0,
            load: 2.0,
            weight: 0.0,
            latency: 0.0,
        }
    }
}

/// The scorers in the order of [`REASONS`], by what is known of a target.
type Scores = [f64; 5];

const REASONS: [Reason; 5] = [
    Reason::Session,
    Reason::Prefix,
    Reason::Load,
    Reason::Weight,
    Reason::Latency,
];

/// How far ahead a target must be for a scorer to be called the reason: less is rounding.
const LEAD: f64 = 1e-9;

/// The rule of the strategy.
pub(super) struct Scorers {
    factors: Scores,
    weights: Vec<u32>,
}

/// What the scores of some candidates are measured by.
struct Measure {
    /// One plus the least load.
    load: f64,
    /// The highest weight.
    weight: f64,
    /// The shortest time to the first token.
    micros: f64,
    /// The length of the prompt.
    text: f64,
}

impl Scorers {
    pub(super) fn new(pipeline: &Pipeline, targets: &[TargetInfo]) -> Self {
        let &Pipeline {
            session,
            session_ttl: _,
            prefix,
            load,
            weight,
            latency,
        } = pipeline;
        let factors = [session, prefix, load, weight, latency];
        Self {
            // In this order, what is no number is zero as well.
            factors: factors.map(|factor| 0.0_f64.max(factor).min(f64::from(u32::MAX))),
            weights: by_id(targets, 1, |target| target.weight.max(1)),
        }
    }

    pub(super) fn asks(&self) -> Asks {
        let [.., latency] = self.factors;
        let first_token = latency > 0.0;
        let reads_prompt = self.reads_prefix() || first_token;
        Asks {
            prompt: if reads_prompt {
                Need::Always
            } else {
                Need::Never
            },
            digest: false,
            session: self.keeps_sessions(),
            pending: false,
            first_token,
            scores: None,
        }
    }

    pub(super) fn keeps_sessions(&self) -> bool {
        let [session, ..] = self.factors;
        session > 0.0
    }

    pub(super) fn reads_prefix(&self) -> bool {
        let [_, prefix, ..] = self.factors;
        prefix > 0.0
    }

    pub(super) fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        let measure = self.measure(view);
        let mut all = [0.0; 5];
        let mut best = Few::new(1);
        for target in view.candidates.iter() {
            let scores = self.scores(target, &measure, view);
            best.offer(target, -scores.iter().sum::<f64>(), rng);
            let sums = all.iter_mut().zip(scores);
            sums.for_each(|(sum, score)| *sum += score);
        }
        let target = best.first()?;
        let scores = self.scores(target, &measure, view);
        let reason = reason(scores, all, view.candidates.len());
        Some(Pick::new(target, reason))
    }

    /// The candidates with the best sums of scores.
    pub(super) fn rank(&self, view: &View<'_>, count: usize, rng: &mut Rng) -> Followers {
        let measure = self.measure(view);
        let sum = |target| -self.scores(target, &measure, view).iter().sum::<f64>();
        Few::of(view.candidates, count, sum, rng).iter().collect()
    }

    fn measure(&self, view: &View<'_>) -> Measure {
        let text = view
            .lookup
            .request
            .prompt
            .map_or(0, |prompt| prompt.text.len());
        let [.., by_weight, _] = self.factors;
        let (mut load, mut weight, mut micros) = (u32::MAX, 1, f64::MAX);
        for target in view.candidates.iter() {
            load = load.min(view.load(target));
            if by_weight > 0.0 {
                weight = weight.max(self.weight(target));
            }
            if let Some(predicted) = &view.lookup.predicted {
                micros = micros.min(predicted.micros(target));
            }
        }
        Measure {
            load: 1.0 + f64::from(load),
            weight: f64::from(weight),
            micros,
            text: approximate(text.max(1)),
        }
    }

    /// The scores of a target, times their weights.
    fn scores(&self, target: TargetId, best: &Measure, view: &View<'_>) -> Scores {
        let lookup = view.lookup;
        let [session, prefix, load, weight, latency] = self.factors;
        // What makes no difference need not be divided.
        let share = |factor: f64, of: f64, whole: f64| {
            if factor * of > 0.0 {
                factor * (of / whole)
            } else {
                0.0
            }
        };
        let has_session = lookup.session == Some(target);
        let predicted = lookup.predicted.as_ref();
        [
            if has_session { session } else { 0.0 },
            share(prefix, approximate(lookup.matched(target)), best.text),
            share(load, best.load, 1.0 + f64::from(view.load(target))),
            share(weight, f64::from(self.weight(target)), best.weight),
            predicted.map_or(latency, |predicted| {
                share(latency, best.micros, predicted.micros(target))
            }),
        ]
    }

    fn weight(&self, target: TargetId) -> u32 {
        self.weights.get(target.index()).copied().unwrap_or(1)
    }
}

/// The scorer that does most to put a target of these scores ahead of the average of so many.
fn reason(mut leads: Scores, all: Scores, count: usize) -> Reason {
    let count = approximate(count.max(1));
    let averages = leads.iter_mut().zip(all);
    averages.for_each(|(lead, all)| *lead -= all / count);
    let mut most = (LEAD, Reason::Even);
    for (lead, reason) in leads.into_iter().zip(REASONS) {
        if lead > most.0 {
            most = (lead, reason);
        }
    }
    most.1
}

#[expect(
    clippy::cast_precision_loss,
    reason = "no text and no fleet is so large"
)]
fn approximate(count: usize) -> f64 {
    count as f64
}
