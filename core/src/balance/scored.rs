//! The strategies that go by what the sidecar tells of the targets: `precise_cache_aware`, by the
//! blocks of the prompt that they have, and `lmcache_aware`, by the room that they have for more.
//!
//! A target of which nothing is known is not preferred for blocks, as it may have none, and counts as
//! having as much room as the others on average.

use super::cost::Costs;
use super::decision::{Followers, Pick, Reason};
use super::guard::{Guard, Margins, Preference};
use super::view::View;
use crate::kv::MediumWeights;
use crate::target::TargetId;
use fastrand::Rng;

/// The options of `precise_cache_aware`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact {
    /// How much of the prompt a target must have, and how busy it may be.
    pub margins: Margins,
    /// What a block is worth, by where it is.
    pub weights: MediumWeights,
}

impl Default for Exact {
    fn default() -> Self {
        Self {
            // What is certain to be there is worth having, even where it is little; but with the few
            // blocks with which all prompts of a service begin whoever has them would get all that is
            // new while nobody waits.
            margins: Margins {
                threshold: 0.1,
                ..Margins::default()
            },
            weights: MediumWeights::default(),
        }
    }
}

/// What a strategy is told of the targets.
#[derive(Clone, Copy, Debug)]
pub struct Scores<'a> {
    /// By the target's number, from 0 to 1; nothing where it is not known.
    pub of: &'a [Option<f64>],
    /// Scores that differ by no more count as equal.
    pub grain: f64,
}

impl Scores<'_> {
    /// A target's score, where it is known.
    pub fn get(&self, target: TargetId) -> Option<f64> {
        *self.of.get(target.index())?
    }
}

/// The rule of `precise_cache_aware`: to where the prompt costs least, by the blocks that engines say
/// they have, and by what they were given a moment ago and have not told of.
pub(super) struct Precise(pub(super) Exact);

/// How long a target is taken to have what it was given, whatever its engine has told: it tells what
/// it has computed, and few prompts wait longer for that.
pub(super) const EXPECTED_MILLIS: u64 = 2_000;

impl Precise {
    pub(super) fn pick(&self, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
        match self.costs(view) {
            Some(costs) => costs.pick(|_| (), rng),
            None => neutral(view, rng),
        }
    }

    /// Nothing where nothing is known of any candidate.
    pub(super) fn costs<'a>(
        &self,
        view: &'a View<'a>,
    ) -> Option<Costs<'a, impl Fn(TargetId) -> f64>> {
        let scores = view.fleet.scores?;
        let mut candidates = view.candidates.iter();
        let is_known = candidates.any(|target| scores.get(target).is_some());
        is_known.then_some(Costs {
            margins: self.0.margins,
            view,
            tokens: view.lookup.request.tokens(),
            share: move |target| {
                let told = scores.get(target).unwrap_or(0.0);
                told.max(view.lookup.share_of_all(target))
            },
        })
    }
}

/// The least loaded of those that have most room.
pub(super) fn lmcache(guard: Guard, view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
    let Some(preference) = room(view) else {
        return neutral(view, rng);
    };
    let mut pick = preference.pick(guard, view, |_| (), rng)?;
    if pick.reason == Reason::Affinity {
        pick.reason = Reason::Occupancy;
    }
    Some(pick)
}

/// Those that [`lmcache`] would take next.
pub(super) fn rank_by_room(
    guard: Guard,
    view: &View<'_>,
    count: usize,
    rng: &mut Rng,
) -> Followers {
    match room(view) {
        Some(preference) => preference.rank(guard, view, |_| (), count, rng),
        None => view.rank_by_load(count, rng),
    }
}

/// Nothing where nothing is known of any candidate. One of which nothing is known has as much room
/// as the others have on average.
fn room(view: &View<'_>) -> Option<Preference<impl Fn(TargetId) -> f64>> {
    let scores = view.fleet.scores?;
    let known = view
        .candidates
        .iter()
        .filter_map(|target| scores.get(target));
    let (count, sum) = known.fold((0.0, 0.0), |(count, sum), score| (count + 1.0, sum + score));
    (count > 0.0).then_some(Preference {
        score: move |target| scores.get(target).unwrap_or(sum / count),
        enough: 0.0,
        grain: scores.grain,
    })
}

/// Nothing is known of anyone.
fn neutral(view: &View<'_>, rng: &mut Rng) -> Option<Pick> {
    let target = view.least_loaded(rng)?;
    Some(Pick::new(target, Reason::Unknown))
}
