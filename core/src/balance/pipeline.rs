//! `pipeline`: the target with the best sum of scores, each from 0 to 1 and times a weight.
//!
//! What is not known is the same for all candidates, so that it decides nothing.

use super::decision::{Pick, Reason};
use super::least_load::least;
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
struct Best {
    load: u32,
    weight: u32,
    micros: f64,
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
            session: self.keeps_sessions(),
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
        let target = self.best(view, rng)?;
        let reason = self.reason(target, view);
        Some(Pick { target, reason })
    }

    /// The candidate with the best sum of scores.
    pub(super) fn best(&self, view: &View<'_>, rng: &mut Rng) -> Option<TargetId> {
        let best = self.measure(view);
        let sum = |target| self.scores(target, &best, view).iter().sum::<f64>();
        least(view.candidates, |target| -sum(target), rng)
    }

    /// The scorer that does most to put a target ahead of the average candidate.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a route has 256 targets at most"
    )]
    fn reason(&self, target: TargetId, view: &View<'_>) -> Reason {
        let best = self.measure(view);
        let count = view.candidates.len().max(1) as f64;
        let mut leads = self.scores(target, &best, view);
        for other in view.candidates.iter() {
            let others = self.scores(other, &best, view);
            leads
                .iter_mut()
                .zip(others)
                .for_each(|(lead, other)| *lead -= other / count);
        }
        let mut most = (LEAD, Reason::Even);
        for (lead, reason) in leads.into_iter().zip(REASONS) {
            if lead > most.0 {
                most = (lead, reason);
            }
        }
        most.1
    }

    fn measure(&self, view: &View<'_>) -> Best {
        let mut best = Best {
            load: u32::MAX,
            weight: 1,
            micros: f64::MAX,
        };
        for target in view.candidates.iter() {
            best.load = best.load.min(view.load(target));
            best.weight = best.weight.max(self.weight(target));
            if let Some(predicted) = &view.lookup.predicted {
                best.micros = best.micros.min(predicted.micros(target));
            }
        }
        best
    }

    /// The scores of a target, times their weights.
    fn scores(&self, target: TargetId, best: &Best, view: &View<'_>) -> Scores {
        let lookup = view.lookup;
        let has_session = lookup.session == Some(target);
        let text = lookup.request.prompt.map_or(0, |prompt| prompt.text.len());
        let predicted = lookup.predicted.as_ref();
        let scores = [
            f64::from(u8::from(has_session)),
            share(lookup.matched(target), text),
            (1.0 + f64::from(best.load)) / (1.0 + f64::from(view.load(target))),
            f64::from(self.weight(target)) / f64::from(best.weight),
            predicted.map_or(1.0, |predicted| best.micros / predicted.micros(target)),
        ];
        let mut weighted = self.factors;
        weighted
            .iter_mut()
            .zip(scores)
            .for_each(|(factor, score)| *factor *= score);
        weighted
    }

    fn weight(&self, target: TargetId) -> u32 {
        self.weights.get(target.index()).copied().unwrap_or(1)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a text has 32 KiB at most")]
fn share(len: usize, text_len: usize) -> f64 {
    len as f64 / text_len.max(1) as f64
}
