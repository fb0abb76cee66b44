//! Who sees everything: a picker that knows all caches, and all that is under way.
//!
//! It takes the engine that will have a request's first token soonest: the tokens that it has to
//! compute before, and those of the request itself that it does not have by then. As all requests are
//! its own, what an engine has to compute is what it was sent and has not begun to answer, less what
//! its cache has of that by now.

use engine_sim::{Engine, Question};
use fastrand::Rng;
use std::sync::Arc;

/// The picker, and what it has sent where.
pub(crate) struct Oracle {
    engines: Arc<[Engine]>,
    /// By engine, in the order in which they were sent: requests without a first token.
    pending: Vec<Vec<(usize, Arc<Question>)>>,
    rng: Rng,
}

impl Oracle {
    pub(crate) fn new(engines: Arc<[Engine]>, seed: u64) -> Self {
        Self {
            pending: engines.iter().map(|_| Vec::new()).collect(),
            engines,
            rng: Rng::with_seed(seed),
        }
    }

    /// The engine for a request, which is sent there now. Of equals the one that has most of it, then
    /// any.
    pub(crate) fn pick(&mut self, id: usize, question: &Arc<Question>) -> usize {
        let rng = &mut self.rng;
        let price = |(engine, pending): (&Engine, &Vec<(usize, Arc<Question>)>)| {
            let before = pending.iter().map(|(_, question)| question.as_ref());
            let all: Vec<&Question> = before.chain([question.as_ref()]).collect();
            let compute = engine.would_compute(&all);
            let own = compute.last().copied().unwrap_or(0);
            (compute.iter().sum::<usize>(), own, rng.u32(..))
        };
        let prices = self.engines.iter().zip(&self.pending).map(price);
        let cheapest = prices.enumerate().min_by_key(|(_, price)| *price);
        let picked = cheapest.map_or(0, |(place, _)| place);
        self.pending[picked].push((id, Arc::clone(question)));
        picked
    }

    /// The first token of a request has come, or will not.
    pub(crate) fn begun(&mut self, id: usize) {
        for pending in &mut self.pending {
            pending.retain(|(other, _)| *other != id);
        }
    }
}
