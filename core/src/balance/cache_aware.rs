//! `cache_aware`: to where the prompt costs least, by what the targets were given before.

use super::cost::Costs;
use super::decision::{Pick, Reason};
use super::guard::Margins;
use super::view::View;
use crate::target::TargetId;
use fastrand::Rng;

/// The rule of the strategy.
pub(super) struct CacheAware(pub(super) Margins);

impl CacheAware {
    pub(super) fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        let mut pick = self.costs(view).pick(held(view), rng)?;
        if view.lookup.request.prompt.is_none() {
            pick.reason = Reason::NoPrompt;
        }
        Some(pick)
    }

    /// What goes by the text that is compared is taken to go for all of the prompt: what follows a
    /// long text that a target has is mostly the rest of a conversation that it has as well.
    pub(super) fn costs<'a>(&self, view: &'a View<'a>) -> Costs<'a, impl Fn(TargetId) -> f64> {
        Costs {
            margins: self.0,
            view,
            tokens: view.lookup.request.tokens(),
            share: |target| view.lookup.share(target),
        }
    }
}

/// Equal costs go to the least-warmed target, which spreads prompts over the fleet.
fn held(view: &View<'_>) -> impl Fn(TargetId) -> usize {
    let tree = &view.memory.tree;
    |target| tree.held(target)
}
