//! Whether a target may be used, as all workers see it.
//!
//! A target that asks for a pause gets one (cooldown). One that fails too often in a row, or cannot
//! be reached at all, gets no traffic for a while (breaker); after that a single request, the
//! probe, finds out whether it is back, and each further failure doubles the while. What a target
//! had in its caches is forgotten once it has failed for [`FORGET_AFTER_MILLIS`].
//!
//! The state is in gauges, so that all workers agree. Reading them for every target with every pick
//! would cost more than the pick, so a worker keeps what it read until a gauge that counts the
//! changes tells that there was one.

mod outcome;
mod retry_after;
#[cfg(test)]
mod tests;

pub use outcome::{Outcome, Response};
pub use retry_after::retry_after;

use crate::shared::{Host, NO_VERSION};
use crate::time::Millis;
use std::cell::Cell;

/// Failures in a row that open the breaker. More than a burst of bad luck, fewer than it takes to
/// be noticed.
pub const MAX_FAILURES: u64 = 5;

/// How long the breaker is open at first.
pub const OPEN_MILLIS: u64 = 1_000;

/// The longest that the breaker is open: a target that comes back has traffic again soon after.
pub const MAX_OPEN_MILLIS: u64 = 8_000;

/// More make no difference, and would shift the wait out of its number.
const MAX_DOUBLINGS: u64 = 10;

/// How long one probe keeps others away. A probe that has not been answered by then says nothing
/// about the target: answers may take minutes.
pub const PROBE_MILLIS: u64 = 5_000;

/// The longest cooldown, whatever the target asks for: a mistake must not take it away for long.
pub const MAX_COOLDOWN_MILLIS: u64 = 60_000;

/// The cooldown of a target that says it is too busy, but not for how long, and of one that a
/// retry has passed over.
pub const COOLDOWN_MILLIS: u64 = 1_000;

/// A target that has failed for so long counts as started anew, with nothing in its caches. No engine
/// loads a model in less.
pub const FORGET_AFTER_MILLIS: u64 = 30_000;

/// Whether a request may go to a target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Granted,
    /// It may, and finds out for all whether the target is back.
    Probe,
    /// It may not.
    Refused,
}

/// Whether a target may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It may.
    Ready,
    /// It asked for a pause, which is not over.
    Cooling,
    /// It failed, and is left alone for a while.
    Open,
    /// The while is over: one request may find out.
    HalfOpen,
}

impl State {
    /// The number in metrics.
    pub const fn number(self) -> u64 {
        match self {
            Self::Ready => 0,
            Self::Cooling => 1,
            Self::Open => 2,
            Self::HalfOpen => 3,
        }
    }
}

/// The count of changes to the health of any target.
pub struct Changes<H: Host> {
    gauge: H::Gauge,
    seen: Cell<Option<u64>>,
}

impl<H: Host> Changes<H> {
    /// Has seen none.
    pub fn new(host: &H) -> Self {
        Self {
            gauge: host.gauge("rolter_health_changes", &[]),
            seen: Cell::new(None),
        }
    }

    /// Whether there were changes since this was asked last, so that [`Health::refresh`] is due.
    pub fn any(&self, host: &H) -> bool {
        let count = Some(host.read(self.gauge));
        self.seen.replace(count) != count
    }

    fn tell(&self, host: &H) {
        host.add(self.gauge, 1);
    }
}

/// The health of one target, as one worker sees it.
pub struct Health<H: Host> {
    probe_key: String,
    /// See [`Until`].
    until: H::Gauge,
    /// Failures since the last answer.
    failures: H::Gauge,
    /// How often the breaker has opened since the last answer.
    opened: H::Gauge,
    /// When it opened first since the last answer, zero where it has not.
    away_since: H::Gauge,
    /// What the target had before this is forgotten.
    forgotten: H::Gauge,
    /// What was read last.
    known: Cell<Known>,
}

#[derive(Clone, Copy, Default)]
struct Known {
    until: Until,
    /// Whether an answer would change anything.
    blamed: bool,
    forgotten: Millis,
}

impl<H: Host> Health<H> {
    /// The health of a target of this name.
    pub fn new(host: &H, target: &str) -> Self {
        let gauge = |name: &str| host.gauge(name, &[("target", target)]);
        let health = Self {
            probe_key: format!("rolter/1/probe/{target}"),
            until: gauge("rolter_unavailable_until"),
            failures: gauge("rolter_failures_in_a_row"),
            opened: gauge("rolter_breaker_openings"),
            away_since: gauge("rolter_away_since"),
            forgotten: gauge("rolter_forgotten_at"),
            known: Cell::default(),
        };
        health.refresh(host);
        health
    }

    /// Reads the gauges again.
    pub fn refresh(&self, host: &H) {
        let until = Until::read(host.read(self.until));
        self.known.set(Known {
            until,
            blamed: host.read(self.failures) != 0 || until.breaker,
            forgotten: Millis(host.read(self.forgotten)),
        });
    }

    /// Whether the target may be used, going by what was read last.
    pub fn state(&self, now: Millis) -> State {
        self.known.get().until.state(now)
    }

    /// Whether this request may go to the target after all. Where one may find out whether it is
    /// back, the first to ask is that one.
    pub fn admit(&self, host: &H, now: Millis, changes: &Changes<H>) -> Admission {
        match self.state(now) {
            State::Ready => Admission::Granted,
            State::HalfOpen if self.claim_probe(host, now, changes) => Admission::Probe,
            State::Cooling | State::Open | State::HalfOpen => Admission::Refused,
        }
    }

    /// Lets another request find out: the probe has ended without an outcome, as when its client
    /// has left.
    pub fn give_up_probe(&self, host: &H, now: Millis, changes: &Changes<H>) {
        if Until::read(host.read(self.until)).probing {
            // Later than when this probe was claimed, so that it is another claim.
            self.put(host, Until::breaker(now.plus(1)));
            self.tell(host, changes);
        }
    }

    /// Takes in what became of a request, after a [`refresh`](Self::refresh) where one is due.
    /// `others` is whether further requests are under way at the
    /// target, which show that it lives.
    pub fn learn(
        &self,
        host: &H,
        outcome: Outcome,
        others: bool,
        now: Millis,
        changes: &Changes<H>,
    ) {
        if outcome.is_failure() && !others {
            self.forget_if_away(host, now, changes);
        }
        match outcome {
            Outcome::Answered => self.close(host, changes),
            Outcome::Busy(pause) => self.cool(host, pause, now, changes),
            Outcome::PassedOver => {
                self.blame(host, 1, now, changes);
                self.rest(host, now, changes);
            }
            Outcome::Failed => self.blame(host, 1, now, changes),
            Outcome::Unreachable => self.blame(host, MAX_FAILURES, now, changes),
        }
    }

    /// Whether anything is held against the target, going by what was read last. Where nothing is, an
    /// answer teaches nothing.
    pub fn is_blamed(&self) -> bool {
        self.known.get().blamed
    }

    /// What the target had before this is forgotten, going by what was read last.
    pub fn forgotten(&self) -> Millis {
        self.known.get().forgotten
    }

    /// Has another target come in the place of this one, of which nothing is known: what the one before
    /// had is forgotten, and nothing is held against this one.
    pub fn begin_anew(&self, host: &H, now: Millis, changes: &Changes<H>) {
        for gauge in [self.until, self.failures, self.opened, self.away_since] {
            host.put(gauge, 0);
        }
        host.put(self.forgotten, now.0);
        self.tell(host, changes);
    }

    /// Has forgotten what the target had if it has failed for long, once each time.
    fn forget_if_away(&self, host: &H, now: Millis, changes: &Changes<H>) {
        let away_since = Millis(host.read(self.away_since));
        let is_away = away_since != Millis::default()
            && now.since(away_since) >= FORGET_AFTER_MILLIS
            && Millis(host.read(self.forgotten)) < away_since;
        if is_away {
            host.put(self.forgotten, now.0);
            self.tell(host, changes);
        }
    }

    fn close(&self, host: &H, changes: &Changes<H>) {
        if !self.is_blamed() {
            return;
        }
        // A pause is a wish of the target, which its answers to older requests do not end.
        if Until::read(host.read(self.until)).breaker {
            host.put(self.until, 0);
        }
        for gauge in [self.failures, self.opened, self.away_since] {
            host.put(gauge, 0);
        }
        self.tell(host, changes);
    }

    fn cool(&self, host: &H, pause: Option<u64>, now: Millis, changes: &Changes<H>) {
        // A pause of nothing is as good as none: whoever fails fast would draw traffic by it.
        let pause = pause.filter(|&pause| pause > 0);
        let pause = pause.unwrap_or(COOLDOWN_MILLIS).min(MAX_COOLDOWN_MILLIS);
        let until = Until::read(host.read(self.until));
        let wanted = now.plus(pause);
        // Whoever asks for a pause is there: the pause takes the place of an open breaker.
        let longer = until.at < wanted || until.state(now) == State::Ready;
        if until.breaker || longer {
            self.close(host, changes);
            self.put(host, Until::cooldown(wanted));
            self.tell(host, changes);
        }
    }

    /// Leaves the target alone for a moment, if it is not already.
    fn rest(&self, host: &H, now: Millis, changes: &Changes<H>) {
        if Until::read(host.read(self.until)).state(now) == State::Ready {
            self.put(host, Until::cooldown(now.plus(COOLDOWN_MILLIS)));
            self.tell(host, changes);
        }
    }

    fn blame(&self, host: &H, failures: u64, now: Millis, changes: &Changes<H>) {
        let until = Until::read(host.read(self.until));
        let again = until.probing || until.state(now) == State::HalfOpen;
        if until.state(now) == State::Open && !again {
            // An echo of what opened the breaker.
            return;
        }
        host.add(self.failures, failures.cast_signed());
        if again || host.read(self.failures) >= MAX_FAILURES {
            let opened = host.read(self.opened);
            let open = (OPEN_MILLIS << opened.min(MAX_DOUBLINGS)).min(MAX_OPEN_MILLIS);
            self.put(host, Until::breaker(now.plus(open)));
            host.put(self.opened, opened.saturating_add(1));
            if host.read(self.away_since) == 0 {
                host.put(self.away_since, now.0);
            }
        }
        self.tell(host, changes);
    }

    /// Makes this request the probe, if no other is.
    fn claim_probe(&self, host: &H, now: Millis, changes: &Changes<H>) -> bool {
        // The claim is on this very end of the wait, which stays in the shared data ever after.
        let claim = self.known.get().until.gauge().to_le_bytes();
        let version = match host.get(&self.probe_key) {
            Some(stored) if stored.value == claim => return false,
            Some(stored) => stored.version,
            None => NO_VERSION,
        };
        let claimed = host.set(&self.probe_key, &claim, Some(version));
        if claimed {
            let until = Until {
                probing: true,
                ..Until::breaker(now.plus(PROBE_MILLIS))
            };
            self.put(host, until);
            self.tell(host, changes);
        }
        claimed
    }

    fn put(&self, host: &H, until: Until) {
        host.put(self.until, until.gauge());
    }

    /// Tells all workers, this one first, that something has changed.
    fn tell(&self, host: &H, changes: &Changes<H>) {
        changes.tell(host);
        self.refresh(host);
    }
}

/// Until when a target is not to be used, and why. Past it, the reason decides what is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Until {
    at: Millis,
    /// Because it failed, not because it asked.
    breaker: bool,
    /// While one request finds out.
    probing: bool,
}

impl Until {
    fn cooldown(at: Millis) -> Self {
        Self {
            at,
            ..Self::default()
        }
    }

    fn breaker(at: Millis) -> Self {
        Self {
            at,
            breaker: true,
            probing: false,
        }
    }

    /// As it is in its gauge: milliseconds since the epoch, then two bits.
    fn read(gauge: u64) -> Self {
        Self {
            at: Millis(gauge >> 2),
            breaker: gauge & 1 != 0,
            probing: gauge & 2 != 0,
        }
    }

    fn gauge(self) -> u64 {
        self.at.0 << 2 | u64::from(self.probing) << 1 | u64::from(self.breaker)
    }

    fn state(self, now: Millis) -> State {
        // Nothing is that far away; the clock was set back.
        let waits = self.at > now && self.at.since(now) <= MAX_COOLDOWN_MILLIS;
        match (waits, self.breaker) {
            (true, false) => State::Cooling,
            (true, true) => State::Open,
            (false, true) => State::HalfOpen,
            (false, false) => State::Ready,
        }
    }
}
