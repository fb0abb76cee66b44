//! What a decision says.

use crate::affinity::PromptRef;
use crate::target::TargetId;

/// How many targets are ranked behind the chosen one at most, and so how often a request is retried.
/// Where four targets in a row fail, a fifth is no likelier to help, and each one costs a prefill.
pub const MAX_FOLLOWERS: usize = 3;

/// A decision, of which the memory knows already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Where the request goes.
    pub target: TargetId,
    /// Why.
    pub reason: Reason,
    /// The leading bytes of the prompt's text that the target had before, where the strategy looks.
    pub matched: usize,
    /// The tokens of the prompt that it has to compute, where the strategy asks for what is pending.
    pub missing: u32,
    /// Where it is to go if the target fails.
    pub followers: Followers,
    /// The prompt as the target has it now, where the strategy remembers it.
    pub prompt: Option<PromptRef>,
    /// What other workers should be told.
    pub news: News,
}

/// A target that is chosen, before the memory knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Where the request goes.
    pub target: TargetId,
    /// Why.
    pub reason: Reason,
    /// Where it is to go if the target fails.
    pub followers: Followers,
}

/// Which lessons a decision has for other workers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct News {
    /// That the target has the prompt.
    pub prompt: bool,
    /// That the target has the session.
    pub session: bool,
}

/// The next targets in rank, best first: candidates, none twice, without the chosen one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Followers {
    targets: [TargetId; MAX_FOLLOWERS],
    count: usize,
}

impl Followers {
    pub(super) const NONE: Self = Self {
        targets: [TargetId(0); MAX_FOLLOWERS],
        count: 0,
    };

    /// Adds one behind the others, as far as there is room.
    pub(super) fn push(&mut self, target: TargetId) {
        if let Some(next) = self.targets.get_mut(self.count) {
            *next = target;
            self.count += 1;
        }
    }

    /// The first of these, so many at most.
    pub(super) fn first(self, count: usize) -> Self {
        Self {
            count: self.count.min(count),
            ..self
        }
    }

    /// The targets that were tried before the one that served the request, itself one of these or
    /// `first`, where it was sent so many times. Nothing where that is not certain: Envoy passes
    /// over endpoints that it does not know without trying them.
    pub fn passed_over(
        &self,
        first: TargetId,
        server: TargetId,
        attempts: u64,
    ) -> impl Iterator<Item = TargetId> {
        let ranked = std::iter::once(first).chain(self.as_slice().iter().copied());
        let before = ranked
            .clone()
            .take_while(|&target| target != server)
            .count();
        let is_certain = (before as u64) < attempts;
        ranked.take(if is_certain { before } else { 0 })
    }

    /// The targets, best first.
    pub fn as_slice(&self) -> &[TargetId] {
        self.targets.get(..self.count).unwrap_or_default()
    }
}

impl FromIterator<TargetId> for Followers {
    fn from_iter<I: IntoIterator<Item = TargetId>>(targets: I) -> Self {
        let mut followers = Self::NONE;
        targets
            .into_iter()
            .for_each(|target| followers.push(target));
        followers
    }
}

/// Why a target was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It has most of the prompt.
    Affinity,
    /// The target that has most of the prompt is too busy; this one is less so.
    Spill,
    /// No target has enough of the prompt; this one is the least busy.
    Miss,
    /// There was no prompt to go by (no body, or one over the limit); this one is the least loaded.
    NoPrompt,
    /// Nothing is known of what the targets hold, or there are no token ids to compare with it; this
    /// one is the least loaded.
    Unknown,
    /// It has most room for more.
    Occupancy,
    /// It is the least loaded, which is all that the strategy asks.
    LeastLoad,
    /// It is its turn.
    RoundRobin,
    /// It was drawn.
    Random,
    /// It is the less loaded of two that were drawn.
    PowerOfTwo,
    /// It is its turn, by the weights.
    Weighted,
    /// The hash of the session, or of the prompt, is for it.
    Hash,
    /// `pipeline`: it is ahead of the average candidate mostly because it has the session.
    Session,
    /// `pipeline`: likewise, because it has most of the prompt.
    Prefix,
    /// `pipeline`: likewise, because it has little load.
    Load,
    /// `pipeline`: likewise, because of its weight.
    Weight,
    /// `pipeline`: likewise, because it answers soon.
    Latency,
    /// `pipeline`: no scorer prefers it to the average candidate.
    Even,
}

impl Reason {
    /// The name in metrics and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Spill => "spill",
            Self::Miss => "miss",
            Self::NoPrompt => "no_prompt",
            Self::Unknown => "unknown",
            Self::Occupancy => "occupancy",
            Self::LeastLoad => "least_load",
            Self::RoundRobin => "round_robin",
            Self::Random => "random",
            Self::PowerOfTwo => "power_of_two",
            Self::Weighted => "weighted",
            Self::Hash => "hash",
            Self::Session => "session",
            Self::Prefix => "prefix",
            Self::Load => "load",
            Self::Weight => "weight",
            Self::Latency => "latency",
            Self::Even => "even",
        }
    }
}

/// What a strategy picks of some candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pick {
    pub(super) target: TargetId,
    pub(super) reason: Reason,
    /// The next in rank, where the strategy has ranked the candidates to pick one.
    pub(super) followers: Option<Followers>,
}

impl Pick {
    pub(super) fn new(target: TargetId, reason: Reason) -> Self {
        Self {
            target,
            reason,
            followers: None,
        }
    }
}
