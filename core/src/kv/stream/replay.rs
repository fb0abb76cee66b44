//! What the replay socket is asked for, and what its answers mean. What an answer begins with tells
//! whether the engine is still the same.
//!
//! Invariant: there is one request at most, and what is published meanwhile is held until it ends.

use super::{Blocks, Request, Stream, digest};
use crate::time::Millis;

/// A replay that is silent for so long has failed. Engines answer between two steps, which take
/// some tenths of a second.
pub(super) const REPLAY_TIMEOUT_MILLIS: u64 = 5_000;
/// The pause after a replay that failed, doubled with each further one.
pub(super) const MIN_PAUSE_MILLIS: u64 = 1_000;
const MAX_PAUSE_MILLIS: u64 = 30_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    /// Something is missing, or may be.
    Missing,
    /// Nothing has come for long.
    Silence,
}

#[derive(Debug)]
pub(super) struct Replay {
    pub(super) request: Request,
    pub(super) why: Why,
    /// The digest of the batch that has to come first; nothing where the engine's whole history is
    /// asked for.
    expected: Option<u64>,
    /// Whether the first batch has come.
    begun: bool,
    /// Whether anything new has come.
    progressed: bool,
    /// Whether something is missing in what has come.
    hole: bool,
    pub(super) heard_at: Millis,
}

impl<P: AsRef<[u8]>> Stream<P> {
    /// The replay socket has sent a batch in answer to the present [`request`](Self::request).
    pub fn replayed(&mut self, seq: u64, batch: &P, now: Millis, blocks: &mut impl Blocks<P>) {
        let Some(replay) = &mut self.replay else {
            return;
        };
        replay.heard_at = now;
        if !std::mem::replace(&mut replay.begun, true) {
            match replay.expected {
                Some(expected) if seq == replay.request.from => {
                    if digest(batch) != expected {
                        self.restarted(blocks);
                    }
                    return;
                }
                // What was asked for is gone, so what follows cannot be joined to what is known.
                Some(_) => {
                    self.counts.losses = self.counts.losses.saturating_add(1);
                    self.renew(blocks);
                }
                None if replay.why == Why::Silence => self.renew(blocks),
                None => self.begin(seq, blocks),
            }
        }
        let Some(replay) = &mut self.replay else {
            return;
        };
        if self.next == Some(seq) && !replay.hole {
            replay.progressed = true;
            self.take(seq, batch, blocks);
        } else {
            replay.hole = true;
        }
    }

    /// The replay socket has said that this was all.
    pub fn replay_ended(&mut self, now: Millis, blocks: &mut impl Blocks<P>) {
        let Some(replay) = &self.replay else {
            return;
        };
        if !replay.begun && replay.expected.is_some() {
            self.restarted(blocks);
            return;
        }
        if replay.hole {
            self.replay_failed(now, blocks);
            return;
        }
        if !replay.begun {
            self.begin(0, blocks);
        } else if replay.why == Why::Silence && replay.progressed && self.held.is_empty() {
            // It should have been published.
            self.want_connection();
        }
        self.replay = None;
        self.counts.replays_complete = self.counts.replays_complete.saturating_add(1);
        self.pause = MIN_PAUSE_MILLIS;
        self.caught_up = true;
        self.heard_at = now;
        self.release(now, blocks);
    }

    /// The replay socket could not be reached, broke off or made no sense.
    pub fn replay_failed(&mut self, now: Millis, blocks: &mut impl Blocks<P>) {
        let Some(replay) = self.replay.take() else {
            return;
        };
        if replay.progressed {
            // The socket drops what does not fit into its queue. The rest is to be had as well.
            self.ask(Why::Missing, now, blocks);
            return;
        }
        self.counts.replays_failed = self.counts.replays_failed.saturating_add(1);
        self.wait(now);
        if replay.why == Why::Missing {
            self.lose(blocks);
        }
        self.release(now, blocks);
    }

    pub(super) fn can_ask(&self, now: Millis) -> bool {
        self.settings.has_replay && now >= self.may_ask_at
    }

    /// Asks nothing for a while.
    pub(super) fn wait(&mut self, now: Millis) {
        self.may_ask_at = now.plus(self.pause);
        self.pause = (self.pause * 2).min(MAX_PAUSE_MILLIS);
    }

    pub(super) fn ask(&mut self, why: Why, now: Millis, blocks: &mut impl Blocks<P>) {
        let last = self.last();
        if last.is_some() || (why == Why::Silence && self.next == Some(0)) {
            self.request_from(last, why, now);
        } else {
            self.renew(blocks);
        }
    }

    pub(super) fn request_from(&mut self, last: Option<(u64, u64)>, why: Why, now: Millis) {
        self.requests = self.requests.wrapping_add(1);
        self.replay = Some(Replay {
            request: Request {
                id: self.requests,
                from: last.map_or(0, |(seq, _)| seq),
            },
            why,
            expected: last.map(|(_, digest)| digest),
            begun: false,
            progressed: false,
            hole: false,
            heard_at: now,
        });
    }

    /// Takes in what was held back. What follows a new gap is held back again.
    fn release(&mut self, now: Millis, blocks: &mut impl Blocks<P>) {
        let overflowed = self.held.overflowed();
        for (seq, batch) in self.held.take() {
            if self.replay.is_some() {
                self.held.push(seq, batch);
            } else {
                self.take_published(seq, batch, now, blocks);
            }
        }
        if overflowed && self.replay.is_none() && self.can_ask(now) {
            self.ask(Why::Missing, now, blocks);
        }
        self.refresh();
    }
}
