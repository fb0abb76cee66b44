//! `cache_aware`: to the target that has the prompt's prefix, unless that one is too busy.

use super::least_load::least;
use super::{Fleet, Pick, Reason};
use crate::affinity::{Match, Tree};
use crate::target::{TargetId, TargetSet};
use fastrand::Rng;

/// Bytes of text in one KV block: 16 tokens of four bytes, the default block of vLLM. Engines reuse
/// whole blocks only, so targets whose matches differ by no more count as equally warm.
pub(super) const BLOCK_BYTES: usize = 64;

/// The margins of the strategy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Margins {
    /// The share of the prompt, 0 to 1, that a target must have to be preferred for it.
    pub threshold: f64,
    /// How many requests a warm target may be ahead of the least loaded one.
    pub balance_abs: u32,
    /// How many times the least load a warm target's load may be. The warm target is passed over
    /// only where both margins are exceeded.
    pub balance_rel: f64,
}

impl Default for Margins {
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
pub(super) struct Warmth<'a> {
    /// The tree of the route.
    pub(super) tree: &'a Tree,
    /// How much of the prompt each target has.
    pub(super) found: &'a Match,
    /// The length of the text that was looked up.
    pub(super) text_len: usize,
}

impl Margins {
    /// Picks a target for a prompt. Nothing only where the route has no targets.
    pub(super) fn pick(
        &self,
        fleet: &Fleet<'_>,
        warmth: &Warmth<'_>,
        rng: &mut Rng,
    ) -> Option<Pick> {
        let candidates = fleet.candidates();
        let least_loaded = pick_least(candidates, fleet, warmth.tree, rng)?;
        let best = candidates.iter().map(|t| warmth.found.len(t)).max()?;
        let warm = candidates.iter().filter(|&t| {
            let len = warmth.found.len(t);
            self.is_enough(len, warmth.text_len) && len + BLOCK_BYTES >= best
        });
        let warm = pick_least(warm.collect(), fleet, warmth.tree, rng);
        let (target, reason) = match warm {
            None => (least_loaded, Reason::Miss),
            Some(warm) if self.is_overloaded(fleet.load(warm), fleet.load(least_loaded)) => {
                (least_loaded, Reason::Spill)
            }
            Some(warm) => (warm, Reason::Affinity),
        };
        Some(Pick { target, reason })
    }

    /// Whether so many leading bytes of a text are reason to prefer who has them.
    #[expect(clippy::cast_precision_loss, reason = "a text has 32 KiB at most")]
    fn is_enough(&self, len: usize, text_len: usize) -> bool {
        len > 0 && len as f64 >= self.threshold * text_len as f64
    }

    /// Whether a target is too far ahead of the least load, by both margins.
    fn is_overloaded(&self, load: u32, least: u32) -> bool {
        load.saturating_sub(least) > self.balance_abs
            && f64::from(load) > self.balance_rel * f64::from(least)
    }
}

/// Picks a target for a request whose prompt is not known. Nothing only where the route has no
/// targets.
pub(super) fn pick_blind(fleet: &Fleet<'_>, tree: &Tree, rng: &mut Rng) -> Option<Pick> {
    Some(Pick {
        target: pick_least(fleet.candidates(), fleet, tree, rng)?,
        reason: Reason::NoPrompt,
    })
}

/// The least loaded of some targets. Equal loads go to the least-warmed target, which spreads
/// prompts over the fleet.
fn pick_least(
    targets: TargetSet,
    fleet: &Fleet<'_>,
    tree: &Tree,
    rng: &mut Rng,
) -> Option<TargetId> {
    least(targets, |t| (fleet.load(t), tree.held(t)), rng)
}
