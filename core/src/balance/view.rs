//! What a decision is made from.

use super::decision::Followers;
use super::few::Few;
use super::least_load::least;
use super::scored::Scores;
use crate::affinity::Match;
use crate::memory::{Memory, Predictions};
use crate::prompt::Prompt;
use crate::target::{TargetId, TargetSet};
use crate::time::Millis;
use fastrand::Rng;

/// The targets of a route as they are at the moment of a decision.
#[derive(Clone, Copy, Debug)]
pub struct Fleet<'a> {
    /// The route's targets.
    pub targets: TargetSet,
    /// Those that may be used. Where that is none, all are weighed.
    pub eligible: TargetSet,
    /// Requests in flight, by the target's number; nothing where no load is known.
    pub load: Option<&'a [u32]>,
    /// Tokens of prompts that are to be computed, likewise, where the strategy asks for that.
    pub pending: Option<&'a [u32]>,
    /// What the strategy scores them by, where it asks for that and something is known.
    pub scores: Option<Scores<'a>>,
}

impl Fleet<'_> {
    /// The targets to weigh: the eligible ones or, failing open, all.
    pub fn candidates(&self) -> TargetSet {
        if self.fails_open() {
            self.targets
        } else {
            self.eligible.and(self.targets)
        }
    }

    /// Whether no target may be used.
    pub(super) fn fails_open(&self) -> bool {
        self.eligible.and(self.targets).is_empty()
    }

    /// A target's load; zero for all where none is known, so that they compare as equal.
    pub(super) fn load(&self, target: TargetId) -> u32 {
        let known = self.load.and_then(|load| load.get(target.index()));
        known.copied().unwrap_or(0)
    }

    fn pending(&self, target: TargetId) -> u32 {
        let known = self.pending.and_then(|pending| pending.get(target.index()));
        known.copied().unwrap_or(0)
    }
}

/// What a decision needs to know of a request.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The prompt, where it is known.
    pub prompt: Option<&'a Prompt<'a>>,
    /// The hash of what identifies the session, where it has one.
    pub session: Option<u64>,
    /// The present.
    pub now: Millis,
}

impl Request<'_> {
    /// The model that the prompt is for, as the request names it.
    pub(super) fn model(&self) -> &[u8] {
        let model = self.prompt.and_then(|prompt| prompt.model.as_deref());
        model.unwrap_or_default().as_bytes()
    }

    /// The tokens of the prompt, none where it is not known.
    pub(super) fn tokens(&self) -> f64 {
        self.prompt.map_or(0, Prompt::tokens).into()
    }
}

/// A request, with what the memory knows about it as far as the strategy asks.
pub struct Lookup<'a> {
    pub(super) request: Request<'a>,
    /// Who has how much of the prompt.
    pub(super) found: Option<Match>,
    /// Who has the session.
    pub(super) session: Option<TargetId>,
    /// How soon the targets would answer.
    pub(super) predicted: Option<Predictions>,
}

impl Lookup<'_> {
    /// The leading bytes of the prompt that the target has.
    pub fn matched(&self, target: TargetId) -> usize {
        self.found.as_ref().map_or(0, |found| found.len(target))
    }

    /// The share that the target has of all that the model sees, as far as the text tells.
    #[expect(clippy::cast_precision_loss, reason = "no prompt is so long")]
    pub(super) fn share_of_all(&self, target: TargetId) -> f64 {
        match self.matched(target) {
            // As of nearly all targets: there may be hundreds.
            0 => 0.0,
            matched => {
                let bytes = self.request.prompt.map_or(0, |prompt| prompt.len);
                matched as f64 / bytes.max(1) as f64
            }
        }
    }

    /// The share of the text that the target has.
    #[expect(clippy::cast_precision_loss, reason = "a text has 32 KiB at most")]
    pub(super) fn share(&self, target: TargetId) -> f64 {
        let bytes = self.request.prompt.map_or(0, |prompt| prompt.text.len());
        self.matched(target) as f64 / bytes.max(1) as f64
    }
}

/// What a strategy picks from: the candidates, and all that is known of them.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub(super) candidates: TargetSet,
    pub(super) fleet: &'a Fleet<'a>,
    pub(super) lookup: &'a Lookup<'a>,
    pub(super) memory: &'a Memory,
}

impl View<'_> {
    pub(super) fn load(&self, target: TargetId) -> u32 {
        self.fleet.load(target)
    }

    pub(super) fn pending(&self, target: TargetId) -> f64 {
        self.fleet.pending(target).into()
    }

    /// A candidate with the least load.
    pub(super) fn least_loaded(&self, rng: &mut Rng) -> Option<TargetId> {
        least(self.candidates, |target| self.load(target), rng)
    }

    /// The candidates with the least load, as many as asked for.
    pub(super) fn rank_by_load(&self, count: usize, rng: &mut Rng) -> Followers {
        let few = Few::of(self.candidates, count, |target| self.load(target), rng);
        few.iter().collect()
    }
}
