//! One event stream of an engine (one endpoint and rank): which batches are taken in, in which
//! order, and what the replay socket is asked for.
//!
//! The invariant: what a trusted stream has taken in since the last clear is the engine's complete
//! history since a moment when its cache was empty, each batch once and in order. (With
//! [`OnGap::Rebuild`]: complete since some moment, so that it may know less than there is.) A
//! trusted stream may lag; [`Stream::fresh_at`] is when it was last known not to.
//!
//! A request to the replay socket begins with the last batch that was taken in. An engine that
//! still has that batch, byte for byte, is the same one; another answer, or none, comes from one
//! that has restarted, so its cache is empty and its history is asked for from the beginning. Such
//! a request follows each connection, each gap and each silence, and publications are held
//! meanwhile. A history is begun over a new connection only: what is still under way over an old
//! one may be another engine's.

mod held;
mod recent;
mod replay;
mod terms;
#[cfg(test)]
mod tests;

pub use terms::{Blocks, Counts, Read, Request, Settings};

use crate::config::OnGap;
use crate::time::Millis;
use held::Held;
use recent::Recent;
use replay::{MIN_PAUSE_MILLIS, REPLAY_TIMEOUT_MILLIS, Replay, Why};
use xxhash_rust::xxh3::xxh3_64;

/// What was taken in, as a part of the engine's history up to there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    /// All of it.
    Complete,
    /// Its beginning is missing, and the replay socket may have it.
    Wanted,
    /// Its beginning is missing, and the engine has it no more.
    Gone,
}

/// The state of one event stream. `P` is a payload.
#[derive(Debug)]
pub struct Stream<P> {
    settings: Settings,
    /// The sequence after the last that was taken in.
    next: Option<u64>,
    recent: Recent,
    history: History,
    /// Whether what was taken in has been all that there was, at some time.
    caught_up: bool,
    replay: Option<Replay>,
    requests: u64,
    connections_wanted: u64,
    /// Whether there has been a connection since another was wanted last.
    connected: bool,
    held: Held<P>,
    heard_at: Millis,
    fresh_at: Option<Millis>,
    may_ask_at: Millis,
    pause: u64,
    counts: Counts,
}

impl<P: AsRef<[u8]>> Stream<P> {
    /// A stream of which nothing is known.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            next: None,
            recent: Recent::default(),
            history: History::Wanted,
            caught_up: false,
            replay: None,
            requests: 0,
            connections_wanted: 0,
            connected: false,
            held: Held::default(),
            heard_at: Millis::default(),
            fresh_at: None,
            may_ask_at: Millis::default(),
            pause: MIN_PAUSE_MILLIS,
            counts: Counts::default(),
        }
    }

    /// Whether what was taken in may be believed.
    pub fn trusted(&self) -> bool {
        self.is_complete() && self.caught_up
    }

    /// When all that the engine had published was last known to be taken in.
    pub fn fresh_at(&self) -> Option<Millis> {
        self.fresh_at
    }

    /// What has happened so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// The request whose answer is being waited for. Another one, or none, ends the earlier.
    pub fn request(&self) -> Option<Request> {
        self.replay.as_ref().map(|replay| replay.request)
    }

    /// How often another connection was wanted: the present one has to be given up when this
    /// changes, as what comes by it may be of an engine that is gone, or nothing comes.
    pub fn connections_wanted(&self) -> u64 {
        self.connections_wanted
    }

    /// When [`tick`](Self::tick) is due.
    pub fn due_at(&self) -> Option<Millis> {
        if let Some(replay) = &self.replay {
            return Some(replay.heard_at.plus(REPLAY_TIMEOUT_MILLIS));
        }
        let silent_at = self.heard_at.plus(self.settings.stale_millis / 3);
        if !self.settings.has_replay {
            None
        } else if !self.wants_beginning() {
            Some(silent_at.max(self.may_ask_at))
        } else {
            // It takes another connection to begin, so there is nothing to do without one.
            self.connected.then_some(self.may_ask_at)
        }
    }

    /// A connection has been made, the first or another. Publications may have been missed before.
    pub fn connected(&mut self, now: Millis, blocks: &mut impl Blocks<P>) {
        // They come again with the replay; after a restart they are of the past.
        self.held.clear();
        self.connected = true;
        if self.settings.has_replay {
            let last = self.last();
            self.request_from(last, Why::Missing, now);
        } else if self.next.is_some() {
            self.lose(blocks);
        }
    }

    /// A batch was published.
    pub fn published(&mut self, seq: u64, batch: P, now: Millis, blocks: &mut impl Blocks<P>) {
        self.heard_at = now;
        if self.replay.is_some() {
            if !self.held.push(seq, batch) {
                self.counts.overflows = self.counts.overflows.saturating_add(1);
            }
            return;
        }
        self.take_published(seq, batch, now, blocks);
        self.refresh();
    }

    fn take_published(&mut self, seq: u64, batch: P, now: Millis, blocks: &mut impl Blocks<P>) {
        match self.next {
            Some(next) if seq > next => self.gap(seq, batch, now, blocks),
            Some(next) if seq < next => {
                if self.recent.get(next, seq) != Some(digest(&batch)) {
                    self.begin_anew(seq, batch, now, blocks);
                }
            }
            Some(_) => self.take_live(seq, batch, now, blocks),
            None => {
                self.begin(seq, blocks);
                self.take_live(seq, batch, now, blocks);
            }
        }
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Millis, blocks: &mut impl Blocks<P>) {
        if self.due_at().is_none_or(|at| now < at) {
            return;
        }
        if self.replay.is_some() {
            self.replay_failed(now, blocks);
        } else if self.wants_beginning() {
            self.wait(now);
            self.renew(blocks);
        } else {
            self.ask(Why::Silence, now, blocks);
        }
    }

    /// Whether asking for the whole history may bring trust.
    fn wants_beginning(&self) -> bool {
        self.history == History::Wanted
    }

    fn is_complete(&self) -> bool {
        self.history == History::Complete
    }

    /// Sequence and digest of the batch that was taken in last.
    fn last(&self) -> Option<(u64, u64)> {
        self.recent
            .last(self.next.filter(|_| !self.wants_beginning())?)
    }

    /// Another engine answers than before. Its cache was empty when it began.
    fn restarted(&mut self, blocks: &mut impl Blocks<P>) {
        self.counts.restarts = self.counts.restarts.saturating_add(1);
        self.renew(blocks);
    }

    /// Gives all up, the connection too. The next one asks for the whole history.
    fn renew(&mut self, blocks: &mut impl Blocks<P>) {
        self.replay = None;
        self.held.clear();
        self.forget(blocks);
        self.want_connection();
    }

    fn want_connection(&mut self) {
        self.connections_wanted = self.connections_wanted.wrapping_add(1);
        self.connected = false;
    }

    /// Another engine publishes than before. With the first of its batches its history is whole.
    fn begin_anew(&mut self, seq: u64, batch: P, now: Millis, blocks: &mut impl Blocks<P>) {
        if seq > 0 && self.settings.has_replay {
            self.restarted(blocks);
            return;
        }
        self.counts.restarts = self.counts.restarts.saturating_add(1);
        self.begin(seq, blocks);
        self.take_live(seq, batch, now, blocks);
    }

    fn gap(&mut self, seq: u64, batch: P, now: Millis, blocks: &mut impl Blocks<P>) {
        self.counts.gaps = self.counts.gaps.saturating_add(1);
        if self.is_complete() && self.can_ask(now) {
            self.ask(Why::Missing, now, blocks);
            if self.replay.is_some() {
                self.held.push(seq, batch);
            }
            return;
        }
        let before = self.history;
        self.lose(blocks);
        self.begin(seq, blocks);
        if before == History::Gone {
            self.history = before;
        }
        self.take_live(seq, batch, now, blocks);
    }

    /// Takes in the next batch as it was published. One that cannot be read may be whole in the
    /// replay.
    fn take_live(&mut self, seq: u64, batch: P, now: Millis, blocks: &mut impl Blocks<P>) {
        let read = blocks.apply(&batch, self.is_complete());
        if read == Read::Malformed && self.is_complete() && self.can_ask(now) {
            self.counts.gaps = self.counts.gaps.saturating_add(1);
            self.ask(Why::Missing, now, blocks);
            return;
        }
        self.taken(seq, digest(&batch), read, blocks);
        self.caught_up = true;
    }

    fn take(&mut self, seq: u64, batch: &P, blocks: &mut impl Blocks<P>) {
        let read = blocks.apply(batch, self.is_complete());
        self.taken(seq, digest(batch), read, blocks);
    }

    fn taken(&mut self, seq: u64, digest: u64, read: Read, blocks: &mut impl Blocks<P>) {
        match read {
            Read::Plain => {}
            Read::Cleared => self.history = History::Complete,
            Read::Malformed if !self.is_complete() => {}
            Read::Malformed => {
                // The whole history has this batch in it, so asking for that is of no use.
                self.lose(blocks);
                self.history = self.without_beginning(History::Gone);
            }
        }
        self.next = Some(seq.saturating_add(1));
        self.recent.push(digest);
    }

    /// From here on nothing is missed: it is the engine's whole history where this is its first batch.
    fn begin(&mut self, seq: u64, blocks: &mut impl Blocks<P>) {
        self.forget(blocks);
        self.next = Some(seq);
        self.history = match seq {
            0 => History::Complete,
            // It has answered what it still has.
            _ if self.replay.is_some() => self.without_beginning(History::Gone),
            _ => self.without_beginning(History::Wanted),
        };
    }

    /// What a history without its beginning is taken for.
    fn without_beginning(&self, missing: History) -> History {
        match self.settings.on_gap {
            OnGap::Clear => missing,
            OnGap::Rebuild => History::Complete,
        }
    }

    /// A part of the history cannot be had.
    fn lose(&mut self, blocks: &mut impl Blocks<P>) {
        self.counts.losses = self.counts.losses.saturating_add(1);
        self.forget(blocks);
    }

    fn forget(&mut self, blocks: &mut impl Blocks<P>) {
        blocks.clear();
        self.next = None;
        self.recent.clear();
        self.history = History::Wanted;
        self.caught_up = false;
    }

    /// Whatever was heard is taken in, unless it waits for a replay.
    fn refresh(&mut self) {
        if self.replay.is_none() && self.next.is_some() {
            self.fresh_at = Some(self.heard_at);
        }
    }
}

fn digest(batch: &impl AsRef<[u8]>) -> u64 {
    xxh3_64(batch.as_ref())
}
