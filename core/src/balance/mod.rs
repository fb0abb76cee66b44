//! Which target a request goes to, and why.
//!
//! A decision sees the targets that may be used, their loads and what the route has learnt. It
//! never takes a target outside the eligible ones unless there are none at all, it breaks ties at
//! random, and choosing allocates nothing (teaching what follows from the choice does).
//!
//! Each strategy is a rule in a module of its own: of some candidates it picks one. The
//! [`Balancer`] asks it again where the pick may not be used, and for those that are next in rank.

mod balancer;
mod cache_aware;
mod consistent_hash;
mod cost;
mod decision;
mod few;
mod guard;
mod least_load;
mod pipeline;
mod random;
mod round_robin;
mod scored;
mod split;
#[cfg(test)]
mod tests;
mod view;
mod weighted;

pub use balancer::Balancer;
pub use decision::{Choice, Decision, Followers, MAX_FOLLOWERS, News, Reason};
pub use guard::{Guard, Margins};
pub use pipeline::Pipeline;
pub use scored::{Exact, Scores};
pub use split::split;
pub use view::{Fleet, Lookup, Request};

use crate::kv::MediumWeights;
use crate::target::{MAX_TARGETS, TargetId};

/// How a target is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Strategy {
    /// The target at which the prompt costs least, by what the targets were given before.
    CacheAware {
        /// The margins.
        margins: Margins,
    },
    /// The target at which the prompt costs least, by the blocks that engines say they have.
    PreciseCacheAware(Exact),
    /// The target whose `LMCache` has most room.
    LmcacheAware {
        /// How busy it may be.
        guard: Guard,
    },
    /// The target with the least load.
    LeastLoad,
    /// The targets in turn.
    RoundRobin,
    /// Any target.
    Random,
    /// The less loaded of two targets that are drawn at random.
    PowerOfTwo,
    /// The targets in turn, as often as their weights say.
    Weighted,
    /// The target that is fixed for the session or, without one, for the prompt.
    ConsistentHash,
    /// The target with the best sum of scores.
    Pipeline(Pipeline),
}

/// A target as strategies need to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TargetInfo {
    /// Its number.
    pub id: TargetId,
    /// A hash of its name, by which `consistent_hash` tells it from others: the same in every
    /// worker, whatever other targets there are.
    pub seed: u64,
    /// Its share of the requests against that of others, at least 1.
    pub weight: u32,
}

/// What a strategy takes into account, so that nothing is read in vain.
#[derive(Clone, Copy, Debug, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "each is asked for by itself")]
pub struct Asks {
    /// The prompt.
    pub prompt: Need,
    /// The digest of the prompt, where that is needed.
    pub digest: bool,
    /// The session.
    pub session: bool,
    /// The tokens of prompts that targets have yet to compute, of which it is to be told how many
    /// each request adds.
    pub pending: bool,
    /// The time to the first token, of which the memory is to be told.
    pub first_token: bool,
    /// Scores of the targets, from what the sidecar tells of them.
    pub scores: Option<Signal>,
}

/// What the sidecar tells of targets, by which they are scored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signal {
    /// The blocks of the prompt that they have, each worth this.
    Blocks(MediumWeights),
    /// How full their `LMCache` is.
    Occupancy,
}

impl Asks {
    /// Nothing but the loads.
    pub const NOTHING: Self = Self {
        prompt: Need::Never,
        digest: false,
        session: false,
        pending: false,
        first_token: false,
        scores: None,
    };
}

/// When something is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Never.
    Never,
    /// For a request that has no session.
    WithoutSession,
    /// For every request.
    Always,
}

impl Need {
    /// Whether it is needed for a request that has a session, or has none.
    pub fn with_session(self, has_session: bool) -> bool {
        match self {
            Self::Never => false,
            Self::WithoutSession => !has_session,
            Self::Always => true,
        }
    }
}

/// A table of something by target.
fn by_id<T: Clone>(targets: &[TargetInfo], none: T, of: impl Fn(&TargetInfo) -> T) -> Vec<T> {
    let mut table = vec![none; MAX_TARGETS];
    for target in targets {
        if let Some(entry) = table.get_mut(target.id.index()) {
            *entry = of(target);
        }
    }
    table
}
