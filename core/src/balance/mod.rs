//! Which target a request goes to, and why.
//!
//! A pick sees the targets that may be used, their loads and, where the strategy asks for it, how
//! much of the prompt each of them has. Choosing allocates nothing (teaching the tree does), and
//! never takes a target outside the eligible ones unless there are none at all.

mod cache_aware;
mod least_load;
mod round_robin;
#[cfg(test)]
mod tests;

pub use cache_aware::Margins;
pub use round_robin::RoundRobin;

use crate::affinity::Tree;
use crate::prompt::Prompt;
use crate::target::{TargetId, TargetSet};
use cache_aware::{Warmth, pick_blind};
use fastrand::Rng;
use least_load::least_load;
use std::cell::RefCell;
use std::rc::Rc;

/// The targets of a route as they are at the moment of a pick.
#[derive(Clone, Copy, Debug)]
pub struct Fleet<'a> {
    /// How many targets the route has.
    pub targets: usize,
    /// Those that may be used. Where that is none, all are weighed.
    pub eligible: TargetSet,
    /// Requests in flight, by target; nothing where no load is known.
    pub load: Option<&'a [u32]>,
}

impl Fleet<'_> {
    /// The targets to weigh: the eligible ones or, failing open, all.
    fn candidates(&self) -> TargetSet {
        let all = TargetSet::first(self.targets);
        let eligible = self.eligible.and(all);
        if eligible.is_empty() { all } else { eligible }
    }

    /// A target's load; zero for all where none is known, so that they compare as equal.
    fn load(&self, target: TargetId) -> u32 {
        let known = self.load.and_then(|load| load.get(target.index()));
        known.copied().unwrap_or(0)
    }
}

/// A decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Where the request goes.
    pub target: TargetId,
    /// Why.
    pub reason: Reason,
}

/// Why a target was picked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It has enough of the prompt.
    Affinity,
    /// The target that has the prompt is too busy; this one is the least loaded.
    Spill,
    /// No target has enough of the prompt; this one is the least loaded.
    Miss,
    /// There was no prompt to go by (no body, or one over the limit); this one is the least loaded.
    NoPrompt,
    /// It is the least loaded, which is all that the strategy asks.
    LeastLoad,
    /// It is its turn.
    RoundRobin,
}

impl Reason {
    /// The name in metrics and headers.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Affinity => "affinity",
            Self::Spill => "spill",
            Self::Miss => "miss",
            Self::NoPrompt => "no_prompt",
            Self::LeastLoad => "least_load",
            Self::RoundRobin => "round_robin",
        }
    }
}

/// A strategy with its state, for one route.
pub enum Balancer {
    /// Prefix affinity within the margins of the load guard.
    CacheAware {
        /// The margins.
        margins: Margins,
        /// Who has which prompts. Shared, so that what was learnt can outlive a configuration.
        tree: Rc<RefCell<Tree>>,
    },
    /// The fewest requests in flight; any of them where several have it.
    LeastLoad,
    /// See [`RoundRobin`].
    RoundRobin(RoundRobin),
}

impl Balancer {
    /// Whether a pick takes the prompt into account, so that the body is worth waiting for.
    pub fn reads_prompt(&self) -> bool {
        matches!(self, Self::CacheAware { .. })
    }

    /// Picks a target, and teaches the affinity tree that it now has the prompt: a request that
    /// follows at once finds it there. Nothing only where the route has no targets.
    pub fn pick(
        &mut self,
        fleet: &Fleet<'_>,
        prompt: Option<&Prompt<'_>>,
        rng: &mut Rng,
    ) -> Option<Pick> {
        match (self, prompt) {
            (Self::LeastLoad, _) => least_load(fleet, rng),
            (Self::RoundRobin(turns), _) => turns.pick(fleet),
            (Self::CacheAware { tree, .. }, None) => pick_blind(fleet, &tree.borrow(), rng),
            (Self::CacheAware { margins, tree }, Some(prompt)) => {
                let model = prompt.model.as_deref().unwrap_or_default().as_bytes();
                let mut tree = tree.borrow_mut();
                let found = tree.find(model, &prompt.text);
                let warmth = Warmth {
                    tree: &tree,
                    found: &found,
                    text_len: prompt.text.len(),
                };
                let pick = margins.pick(fleet, &warmth, rng)?;
                tree.observe(model, &prompt.text, pick.target, &found);
                Some(pick)
            }
        }
    }
}
