//! What goes into a stream and comes out of it.

use crate::config::OnGap;

/// How a stream is to behave.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Whether there is a replay socket to ask.
    pub has_replay: bool,
    /// What is done where a part of the history cannot be had.
    pub on_gap: OnGap,
    /// A third of this may pass in silence before the replay socket is asked for proof of life.
    pub stale_millis: u64,
}

/// What takes the batches in.
pub trait Blocks<P> {
    /// Forgets all that was taken in.
    fn clear(&mut self);

    /// Takes a batch in. Where what came before is not `known`, a batch counts only if it empties
    /// the engine's cache; any other is to be left out.
    fn apply(&mut self, batch: &P, known: bool) -> Read;
}

/// What a batch was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Read {
    /// One like most.
    Plain,
    /// One that emptied the engine's cache.
    Cleared,
    /// None that can be read. Nothing of it was taken in.
    Malformed,
}

/// What the replay socket is to be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// Differs from that of any earlier request. Answers to those must not be passed on.
    pub id: u64,
    /// All batches from this sequence on.
    pub from: u64,
}

/// What has happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sequences were missing, or a batch could not be read.
    pub gaps: u64,
    /// The engine began anew.
    pub restarts: u64,
    /// Parts of the history could not be had.
    pub losses: u64,
    /// Replays that brought all that was asked for.
    pub replays_complete: u64,
    /// Replays that broke off or were not answered.
    pub replays_failed: u64,
    /// Publications that found no room while a replay ran. They are asked for again.
    pub overflows: u64,
}
