//! `cache_aware`: to the target that has the prompt's prefix, unless that one is too busy.

use super::decision::{Pick, Reason};
use super::least_load::least;
use super::view::View;
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

/// The rule of the strategy.
pub(super) struct CacheAware(pub(super) Margins);

impl CacheAware {
    pub(super) fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        let least_loaded = pick_least(view.candidates, view, rng)?;
        let (target, reason) = match view.lookup.request.prompt {
            None => (least_loaded, Reason::NoPrompt),
            Some(prompt) => match self.warm(prompt.text.len(), view, rng) {
                None => (least_loaded, Reason::Miss),
                Some(warm) if self.is_overloaded(view.load(warm), view.load(least_loaded)) => {
                    (least_loaded, Reason::Spill)
                }
                Some(warm) => (warm, Reason::Affinity),
            },
        };
        Some(Pick { target, reason })
    }

    /// The target to prefer for what it has of a text.
    fn warm(&self, text_len: usize, view: &View<'_>, rng: &mut Rng) -> Option<TargetId> {
        let matched = |target| view.lookup.matched(target);
        let best = view.candidates.iter().map(matched).max()?;
        if !self.is_enough(best, text_len) {
            return None;
        }
        let warm = view.candidates.iter().filter(|&target| {
            let len = matched(target);
            self.is_enough(len, text_len) && len + BLOCK_BYTES >= best
        });
        pick_least(warm.collect(), view, rng)
    }

    /// Whether so many leading bytes of a text are reason to prefer who has them.
    #[expect(clippy::cast_precision_loss, reason = "a text has 32 KiB at most")]
    fn is_enough(&self, len: usize, text_len: usize) -> bool {
        len > 0 && len as f64 >= self.0.threshold * text_len as f64
    }

    /// Whether a target is too far ahead of the least load, by both margins.
    fn is_overloaded(&self, load: u32, least: u32) -> bool {
        load.saturating_sub(least) > self.0.balance_abs
            && f64::from(load) > self.0.balance_rel * f64::from(least)
    }
}

/// The least loaded of some targets. Equal loads go to the least-warmed target, which spreads
/// prompts over the fleet.
fn pick_least(targets: TargetSet, view: &View<'_>, rng: &mut Rng) -> Option<TargetId> {
    let key = |target| (view.load(target), view.memory.tree.held(target));
    least(targets, key, rng)
}
