//! Which target has which session, for as long as the session is used.
//!
//! What one worker decides, it tells the others, but no more often than they need to know: a
//! session that goes on is news four times in its time to live.

use crate::queue::{Linked, Links, Queue};
use crate::target::TargetId;
use crate::time::Millis;
use slab::Slab;
use std::collections::HashMap;
use std::time::Duration;

/// How many sessions are remembered; the least recently used one goes first. At some 100 bytes
/// each, which [`Sessions::memory`] tells, this is less than a route's tree usually has.
pub(super) const MAX_SESSIONS: usize = 100_000;

/// How long a session is remembered where nobody says otherwise.
const DEFAULT_TTL: Duration = Duration::from_mins(10);

struct Session {
    id: u64,
    target: TargetId,
    links: Links,
    /// Its last request, from which it lives for the time to live.
    used: Millis,
    /// The last request that all workers know of.
    seen: Millis,
}

impl Linked for Session {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

/// What one session takes in the slab.
const SLOT_BYTES: usize = size_of::<Session>() + size_of::<usize>();

/// What one session takes in the table, an eighth of which stays empty.
const ENTRY_BYTES: usize = (size_of::<(u64, u32)>() + 1) * 8 / 7;

/// The sessions of one route, by the hash of what identifies them.
pub struct Sessions {
    ttl: u64,
    max: usize,
    by_id: HashMap<u64, u32>,
    slab: Slab<Session>,
    queue: Queue,
}

impl Default for Sessions {
    fn default() -> Self {
        Self::new(MAX_SESSIONS)
    }
}

impl Sessions {
    pub(super) fn new(max: usize) -> Self {
        let mut sessions = Self {
            ttl: 0,
            max,
            by_id: HashMap::new(),
            slab: Slab::new(),
            queue: Queue::EMPTY,
        };
        sessions.set_ttl(DEFAULT_TTL);
        sessions
    }

    /// Sets how long a session is remembered after its last request.
    pub fn set_ttl(&mut self, ttl: Duration) {
        self.ttl = u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX);
    }

    /// The target that has a session.
    pub fn find(&self, session: u64, now: Millis) -> Option<TargetId> {
        let &id = self.by_id.get(&session)?;
        let session = self.slab.get(id as usize)?;
        self.is_alive(session, now).then_some(session.target)
    }

    /// Records that the target is given a request of the session. Tells whether that is news for
    /// other workers.
    pub fn remember(&mut self, session: u64, target: TargetId, at: Millis) -> bool {
        let ttl = self.ttl;
        let Some(known) = self.renew(session) else {
            self.insert(session, target, at);
            return true;
        };
        // Apart, not later: after a clock stepped back, nothing would be news for as long.
        let news = known.target != target || at.apart(known.seen) >= ttl / 4;
        known.target = target;
        known.used = at;
        if news {
            known.seen = at;
        }
        news
    }

    /// Records what another worker decided at that time, unless something later is known.
    pub fn learn(&mut self, session: u64, target: TargetId, at: Millis) {
        let id = self.by_id.get(&session);
        let known = id.and_then(|&id| self.slab.get(id as usize));
        if known.is_some_and(|known| known.used > at) {
            return;
        }
        match self.renew(session) {
            Some(known) => {
                known.target = target;
                known.used = at;
                known.seen = known.seen.max(at);
            }
            None => self.insert(session, target, at),
        }
    }

    /// Drops all sessions that the target has, in time proportional to the sessions there are.
    pub fn forget(&mut self, target: TargetId) {
        let gone = |(id, session): (usize, &Session)| {
            (session.target == target).then(|| u32::try_from(id).ok())?
        };
        let gone: Vec<u32> = self.slab.iter().filter_map(gone).collect();
        for id in gone {
            self.remove(id);
        }
    }

    /// How many sessions there are, those included that expired and have not been noticed yet.
    pub fn len(&self) -> usize {
        self.slab.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.slab.is_empty()
    }

    /// Estimated memory in bytes, from the sizes of the parts and the room there is for them.
    pub fn memory(&self) -> usize {
        self.slab.capacity() * SLOT_BYTES + self.by_id.capacity() * ENTRY_BYTES
    }

    fn is_alive(&self, session: &Session, now: Millis) -> bool {
        now.since(session.used) < self.ttl
    }

    /// Makes a session the newest.
    fn renew(&mut self, session: u64) -> Option<&mut Session> {
        let &id = self.by_id.get(&session)?;
        self.queue.renew(&mut self.slab, id);
        self.slab.get_mut(id as usize)
    }

    /// Adds a session that is not there yet. Whatever has expired goes, so that a rush of sessions
    /// does not take memory for good.
    fn insert(&mut self, session: u64, target: TargetId, at: Millis) {
        while let Some(oldest) = self.queue.oldest()
            && self
                .slab
                .get(oldest as usize)
                .is_some_and(|session| self.slab.len() >= self.max || !self.is_alive(session, at))
        {
            self.remove(oldest);
        }
        let id = self.slab.insert(Session {
            id: session,
            target,
            links: Links::NONE,
            used: at,
            seen: at,
        });
        if let Ok(id) = u32::try_from(id) {
            self.queue.push(&mut self.slab, id);
            self.by_id.insert(session, id);
        }
    }

    fn remove(&mut self, id: u32) {
        self.queue.unlink(&mut self.slab, id);
        if let Some(session) = self.slab.try_remove(id as usize) {
            self.by_id.remove(&session.id);
        }
    }
}
