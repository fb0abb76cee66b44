//! The prompts that the targets hold: for each target in the order of their insertion, for each
//! node the ones that end there.

use super::{NONE, NodeId, PromptId};
use crate::queue::{Linked, Links, Queue};
use crate::target::{MAX_TARGETS, TargetId};
use crate::time::Millis;
use slab::Slab;

/// How long an observation of a prompt stands for further ones of the same: they are no news. A
/// second keeps a hot prompt from filling the workers' streams, and is short against the time that
/// a prompt stays in an engine's cache.
const NEWS_AFTER: u64 = 1_000;

/// That `target` was given the prompt that ends at `node`.
struct Prompt {
    node: NodeId,
    target: TargetId,
    links: Links,
    /// Another target's prompt that ends at the same node.
    next_at_node: PromptId,
    /// Tells this entry from others that had its place in the slab.
    born: u32,
    /// Tells this observation from later ones of the same prompt.
    renewed: u32,
    /// The last observation that all workers know.
    seen: Millis,
    /// The last observation of all. One that was no news is in no stream, but a withdrawal of what
    /// was before it must not undo it.
    last: Millis,
}

impl Linked for Prompt {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// A prompt that a target was given, as one observation saw it. Outlives the prompt, and is then
/// recognised as outdated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PromptRef {
    id: PromptId,
    born: u32,
    renewed: u32,
    /// Whether it was this observation that made the entry.
    made: bool,
}

/// What there is to know of a prompt that is still held.
#[derive(Clone, Copy)]
pub(super) struct Held {
    pub(super) id: PromptId,
    pub(super) node: NodeId,
    pub(super) target: TargetId,
    pub(super) seen: Millis,
    /// Whether a single observation is all there is to it: it made the entry, and no other
    /// followed.
    pub(super) alone: bool,
}

/// All prompts of all targets, in one slab.
pub(super) struct Prompts {
    slab: Slab<Prompt>,
    queues: Vec<Queue>,
    observations: u32,
}

/// What one prompt takes in the slab, which has up to twice the room it needs.
pub(super) const PROMPT_BYTES: usize = 2 * (size_of::<Prompt>() + size_of::<usize>());

impl Prompts {
    pub(super) fn new() -> Self {
        Self {
            slab: Slab::new(),
            queues: vec![Queue::EMPTY; MAX_TARGETS],
            observations: 0,
        }
    }

    /// Drops all prompts, and the room that they took. What was handed out for them stays invalid.
    pub(super) fn start_over(&mut self) {
        self.slab = Slab::new();
        self.queues.fill(Queue::EMPTY);
    }

    /// How many prompts there is room for.
    pub(super) fn capacity(&self) -> usize {
        self.slab.capacity()
    }

    pub(super) fn len(&self) -> usize {
        self.slab.len()
    }

    /// The target with the most prompts.
    pub(super) fn fullest(&self) -> Option<TargetId> {
        let targets = (0..).map(TargetId).zip(&self.queues);
        targets
            .max_by_key(|(_, queue)| queue.len())
            .map(|(target, _)| target)
    }

    /// The node at which the target's least recently inserted prompt ends.
    pub(super) fn oldest(&self, target: TargetId) -> Option<(PromptId, NodeId)> {
        let id = self.queues.get(target.index())?.oldest()?;
        Some((id, self.get(id)?.node))
    }

    /// The target's prompt among those that end at a node, `first` being the first of them.
    pub(super) fn find(&self, first: PromptId, target: TargetId) -> Option<PromptId> {
        let mut id = first;
        while let Some(prompt) = self.get(id) {
            if prompt.target == target {
                return Some(id);
            }
            id = prompt.next_at_node;
        }
        None
    }

    /// Adds the target's newest prompt, at the head of the list of its node.
    pub(super) fn insert(
        &mut self,
        target: TargetId,
        node: NodeId,
        first: &mut PromptId,
        at: Millis,
    ) -> PromptRef {
        let now = self.count_observation();
        let id = self.slab.insert(Prompt {
            node,
            target,
            links: Links::NONE,
            next_at_node: *first,
            born: now,
            renewed: now,
            seen: at,
            last: at,
        });
        let id = PromptId::try_from(id).unwrap_or(NONE);
        *first = id;
        if let Some(queue) = self.queues.get_mut(target.index()) {
            queue.push(&mut self.slab, id);
        }
        PromptRef {
            id,
            born: now,
            renewed: now,
            made: true,
        }
    }

    /// Makes a prompt its target's newest, because the target was given it again. Tells whether
    /// that is news for other workers.
    pub(super) fn renew(&mut self, id: PromptId, at: Millis) -> Option<(PromptRef, bool)> {
        let renewed = self.touch(id)?;
        let prompt = self.slab.get_mut(id as usize)?;
        // Apart, not later: after a clock stepped back, nothing would be news for as long.
        let news = at.apart(prompt.seen) >= NEWS_AFTER;
        if news {
            (prompt.seen, prompt.last) = (at, at);
        } else {
            prompt.last = prompt.last.max(at);
        }
        Some((renewed, news))
    }

    /// Makes a prompt its target's newest, because another worker told that the target was given
    /// it at that time.
    pub(super) fn learn(&mut self, id: PromptId, at: Millis) {
        self.touch(id);
        if let Some(prompt) = self.slab.get_mut(id as usize) {
            prompt.seen = prompt.seen.max(at);
            prompt.last = prompt.last.max(at);
        }
    }

    /// Whether the target was given the prompt after that time.
    pub(super) fn is_after(&self, id: PromptId, at: Millis) -> bool {
        self.get(id).is_some_and(|prompt| prompt.last > at)
    }

    /// Whether the target was given the prompt for the last time longer ago than that, by a clock that
    /// may have been set in either direction.
    pub(super) fn is_older(&self, id: PromptId, now: Millis, millis: u64) -> bool {
        self.get(id)
            .is_some_and(|prompt| now.apart(prompt.last) > millis)
    }

    /// What an observation refers to, while it is there.
    pub(super) fn held(&self, prompt: PromptRef) -> Option<Held> {
        let held = self.get(prompt.id)?;
        (held.born == prompt.born).then_some(Held {
            id: prompt.id,
            node: held.node,
            target: held.target,
            seen: held.seen,
            alone: prompt.made && held.renewed == prompt.renewed,
        })
    }

    /// Removes a prompt, from the list that begins with `first` as well.
    pub(super) fn remove(&mut self, id: PromptId, first: &mut PromptId) {
        let Some(target) = self.get(id).map(|prompt| prompt.target) else {
            return;
        };
        if let Some(queue) = self.queues.get_mut(target.index()) {
            queue.unlink(&mut self.slab, id);
        }
        let Some(removed) = self.slab.try_remove(id as usize) else {
            return;
        };
        if *first == id {
            *first = removed.next_at_node;
            return;
        }
        let mut at = *first;
        while let Some(prompt) = self.slab.get_mut(at as usize) {
            if prompt.next_at_node == id {
                prompt.next_at_node = removed.next_at_node;
                return;
            }
            at = prompt.next_at_node;
        }
    }

    fn get(&self, id: PromptId) -> Option<&Prompt> {
        self.slab.get(id as usize)
    }

    fn touch(&mut self, id: PromptId) -> Option<PromptRef> {
        let now = self.count_observation();
        let prompt = self.slab.get_mut(id as usize)?;
        prompt.renewed = now;
        let (target, born) = (prompt.target, prompt.born);
        let queue = self.queues.get_mut(target.index())?;
        queue.renew(&mut self.slab, id);
        Some(PromptRef {
            id,
            born,
            renewed: now,
            made: false,
        })
    }

    /// The number of a new observation. It comes round after four billion of them, by when no
    /// request is left that refers to one of the same number.
    fn count_observation(&mut self) -> u32 {
        self.observations = self.observations.wrapping_add(1);
        self.observations
    }
}
