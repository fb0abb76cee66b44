//! `cache_aware`: to the target that has the prompt's prefix, unless that one is too busy.

use super::least_load::least;
use super::{Fleet, Pick, Reason};
use crate::affinity::{Match, Tree};
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// Bytes of text in one KV block: 16 tokens of four bytes, the default block of vLLM. Engines reuse
/// whole blocks only, so targets whose matches differ by less are equally warm.
pub const BLOCK_BYTES: usize = 64;

/// The margins of the strategy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CacheAware {
    /// The share of the prompt, 0 to 1, that a target must have to be preferred for it.
    pub threshold: f64,
    /// How many requests a warm target may be ahead of the least loaded one.
    pub balance_abs: u32,
    /// How many times the least load a warm target's load may be. The warm target is passed over
    /// only where both margins are exceeded.
    pub balance_rel: f64,
}

impl Default for CacheAware {
    fn default() -> Self {
        Self {
            threshold: 0.5,
            balance_abs: 2,
            balance_rel: 1.5,
        }
    }
}

/// What the tree knows about a prompt.
#[derive(Clone, Copy)]
pub struct Warmth<'a> {
    /// The tree of the route.
    pub tree: &'a Tree,
    /// How much of the prompt each target has.
    pub found: &'a Match,
    /// The length of the text that was looked up.
    pub text_len: usize,
}

impl CacheAware {
    /// Picks a target for a prompt. Nothing only where the route has no targets.
    pub fn pick(&self, fleet: &Fleet<'_>, warmth: &Warmth<'_>, rng: &mut Rng) -> Option<Pick> {
        let candidates = fleet.candidates();
        // Equal loads go to the least-warmed target, which spreads prompts over the fleet.
        let coldest =
            |targets, rng: &mut Rng| least(targets, |t| (fleet.load(t), warmth.tree.held(t)), rng);
        let coolest = coldest(candidates, rng)?;
        let best = candidates.iter().map(|t| warmth.found.len(t)).max()?;
        #[expect(clippy::cast_precision_loss, reason = "a text has 32 KiB at most")]
        let enough = best as f64 >= self.threshold * warmth.text_len as f64;
        if best == 0 || !enough {
            return Some(Pick {
                target: coolest,
                reason: Reason::Miss,
            });
        }
        let close = |t: &TargetId| warmth.found.len(*t) + BLOCK_BYTES >= best;
        let warm = coldest(candidates.iter().filter(close).collect::<TargetSet>(), rng)?;
        let (load, least) = (fleet.load(warm), fleet.load(coolest));
        let overloaded = load.saturating_sub(least) > self.balance_abs
            && f64::from(load) > self.balance_rel * f64::from(least);
        let (target, reason) = if overloaded {
            (coolest, Reason::Spill)
        } else if warmth.found.len(warm) == 0 {
            // The best match is less than a block, which no engine reuses.
            (warm, Reason::Miss)
        } else {
            (warm, Reason::Affinity)
        };
        Some(Pick { target, reason })
    }

    /// Picks a target for a request whose prompt is not known: the least loaded one.
    pub fn pick_blind(fleet: &Fleet<'_>, tree: &Tree, rng: &mut Rng) -> Option<Pick> {
        let target = least(fleet.candidates(), |t| (fleet.load(t), tree.held(t)), rng)?;
        Some(Pick {
            target,
            reason: Reason::NoPrompt,
        })
    }
}
