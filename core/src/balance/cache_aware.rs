//! `cache_aware`: to the target that has the prompt's prefix, unless that one is too busy.

use super::decision::{Pick, Reason};
use super::guard::{Margins, Preference};
use super::least_load::least;
use super::view::View;
use crate::target::TargetId;
use fastrand::Rng;

/// Bytes of text in one KV block: 16 tokens of four bytes, the default block of vLLM. Engines reuse
/// whole blocks only, so targets whose matches differ by no more count as equally warm.
pub(super) const BLOCK_BYTES: usize = 64;

/// The rule of the strategy.
pub(super) struct CacheAware(pub(super) Margins);

impl CacheAware {
    #[expect(clippy::cast_precision_loss, reason = "a text has 32 KiB at most")]
    pub(super) fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        // Equal loads go to the least-warmed target, which spreads prompts over the fleet.
        let held = |target| view.memory.tree.held(target);
        let Some(prompt) = view.lookup.request.prompt else {
            let key = |target| (view.load(target), held(target));
            let target = least(view.candidates, key, rng)?;
            let reason = Reason::NoPrompt;
            return Some(Pick { target, reason });
        };
        let preference = Preference {
            score: |target: TargetId| view.lookup.matched(target) as f64,
            enough: self.0.threshold * prompt.text.len() as f64,
            grain: BLOCK_BYTES as f64,
        };
        preference.pick(self.0.guard, view, held, rng)
    }
}
