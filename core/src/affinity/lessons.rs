//! What the tree is taught: by this worker's decisions, by other workers, and by responses that
//! came from another target than the decision's.
//!
//! An observation is news for other workers at most once a second for a target's prompt; one that
//! comes from another worker never is. A withdrawal never undoes an observation made after the one
//! that it withdraws.

use super::found::Match;
use super::prompts::PromptRef;
use super::tree::{MAX_MODEL_BYTES, Tree};
use super::{NodeId, PromptId};
use crate::target::{MAX_TARGETS, TargetId};
use crate::time::Millis;

/// What came of an observation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The prompt as the target holds it now, unless no tree of such limits could hold it.
    pub prompt: Option<PromptRef>,
    /// Whether other workers should be told.
    pub news: bool,
}

/// A prompt that another target served than the one that it was first given to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The prompt's model.
    pub model: Vec<u8>,
    /// The prompt's text, as far as it was held.
    pub text: Vec<u8>,
    /// Whether other workers should be told that the serving target has it.
    pub news: bool,
    /// Where the first target no longer counts as having it: the time of the observation that is
    /// undone, at which other workers are to be told.
    pub withdrawn: Option<Millis>,
}

impl Tree {
    /// Records that the target is given the text: it holds all of it from now on, and what it was
    /// given least recently goes where a limit is passed. `found` is what [`find`](Self::find) told
    /// of the same model and text, and saves walking it again.
    pub fn observe(
        &mut self,
        model: &[u8],
        text: &[u8],
        target: TargetId,
        found: &Match,
        at: Millis,
    ) -> Observed {
        let Some(end) = self.end(model, text, target, Some(found)) else {
            return Observed::default();
        };
        let observed = match self.prompt_at(end, target) {
            Some(prompt) => match self.prompts.renew(prompt, at) {
                Some((prompt, news)) => (Some(prompt), news),
                None => (None, false),
            },
            None => (self.add_prompt(end, target, at), true),
        };
        self.shrink(target);
        let (prompt, news) = observed;
        Observed { prompt, news }
    }

    /// Records what another worker observed at that time.
    pub fn learn(&mut self, model: &[u8], text: &[u8], target: TargetId, at: Millis) {
        let Some(end) = self.end(model, text, target, None) else {
            return;
        };
        match self.prompt_at(end, target) {
            Some(prompt) => self.prompts.learn(prompt, at),
            None => {
                self.add_prompt(end, target, at);
            }
        }
        self.shrink(target);
    }

    /// Takes back that the target was given the text at that time, unless it was given it again
    /// since.
    pub fn withdraw(&mut self, model: &[u8], text: &[u8], target: TargetId, at: Millis) {
        let text = text.get(..self.room(model)).unwrap_or(text);
        let Some(place) = self.find(model, text).place else {
            return;
        };
        let Some(node) = self.node(place.node) else {
            return;
        };
        if place.depth < text.len() || place.within < node.label.len() {
            return;
        }
        if let Some(prompt) = self.prompt_at(place.node, target)
            && !self.prompts.is_after(prompt, at)
        {
            self.remove(prompt, place.node, target);
        }
    }

    /// Records that another target served a prompt than the one that was observed to be given it.
    /// That one no longer counts as having it, where this observation is the only reason why it
    /// did. Nothing where the prompt is not held any more, or the target is the same.
    pub fn moved(&mut self, prompt: PromptRef, to: TargetId, at: Millis) -> Option<Moved> {
        let held = self.prompts.held(prompt)?;
        if held.target == to {
            return None;
        }
        let (model, text) = self.read(held.node)?;
        if held.alone {
            self.remove(held.id, held.node, held.target);
        }
        let found = self.find(&model, &text);
        let observed = self.observe(&model, &text, to, &found, at);
        Some(Moved {
            model,
            text,
            news: observed.news,
            withdrawn: held.alone.then_some(held.seen),
        })
    }

    /// A target no longer counts as having a prompt, however often it was given it: it has refused it,
    /// and what it has of it is known from elsewhere.
    pub fn give_up(&mut self, prompt: PromptRef) {
        if let Some(held) = self.prompts.held(prompt) {
            self.remove(held.id, held.node, held.target);
        }
    }

    /// The node at which the text ends, with the target as a holder of it. Nothing where the tree
    /// cannot hold prompts of that model.
    fn end(
        &mut self,
        model: &[u8],
        text: &[u8],
        target: TargetId,
        found: Option<&Match>,
    ) -> Option<NodeId> {
        let room = self.room(model);
        if target.index() >= MAX_TARGETS || room == 0 || model.len() > MAX_MODEL_BYTES {
            return None;
        }
        let current = found.filter(|found| found.changes == self.changes && text.len() <= room);
        let text = text.get(..room).unwrap_or(text);
        let place = match current.and_then(|found| found.place) {
            Some(place) => place,
            None => {
                let place = self.find(model, text).place;
                place.unwrap_or_else(|| self.add_root(model))
            }
        };
        let end = self.end_of(place, text);
        self.hold(end, target);
        Some(end)
    }

    /// How much of a text a target can hold.
    fn room(&self, model: &[u8]) -> usize {
        self.limits.max_nodes.saturating_sub(model.len())
    }

    fn prompt_at(&self, end: NodeId, target: TargetId) -> Option<PromptId> {
        self.prompts.find(self.node(end)?.prompts, target)
    }

    fn add_prompt(&mut self, end: NodeId, target: TargetId, at: Millis) -> Option<PromptRef> {
        let node = self.nodes.get_mut(end as usize)?;
        Some(self.prompts.insert(target, end, &mut node.prompts, at))
    }

    /// Model and text of a prompt that ends at a node. The root's label is the model.
    fn read(&self, end: NodeId) -> Option<(Vec<u8>, Vec<u8>)> {
        let mut above = self.node(end);
        let labels = std::iter::from_fn(|| {
            let node = above?;
            above = self.node(node.parent);
            Some(&*node.label)
        });
        let mut labels: Vec<&[u8]> = labels.collect();
        let model = labels.pop()?.to_vec();
        labels.reverse();
        Some((model, labels.concat()))
    }
}
