//! This VM among the others: what all of its plugins share, and how it keeps in touch.
//!
//! A worker has one VM for all its plugins of the same module and `vm_id`. A new configuration
//! gets no new VM, and requests under an old one keep that alive, so what lives longer than a
//! configuration is here.

use crate::feed::{Answer, Feed};
use crate::host::{self, Envoy, Micros};
use crate::memories::Memories;
use crate::metrics::{self, Counter, Gauge};
use crate::replicas::{Replica, Replicas};
use crate::room::Taken;
use crate::stores::Stores;
use fastrand::Rng;
use rolter_core::health::{Changes, Health};
use rolter_core::kv::members::Roster;
use rolter_core::kv::mirror::Mirror;
use rolter_core::memory::Lesson;
use rolter_core::shared::Worker;
use rolter_core::time::Millis;
use rolter_core::wire::{Message, NameHash};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// What other workers tell is read before a decision, but this many times as long as it took is
/// left to decisions then. On a busy Envoy a look finds much and takes long; on any other the next
/// request sees it all.
const REST: u64 = 20;

/// The longest that what others tell may wait for that, in microseconds. A look may have taken long
/// because the thread stood still, not because there was much.
const LONGEST_REST: u64 = 2_000;

/// Bytes of the rings that are read at once, during a tick or in the way of the first request. A
/// worker that starts late has up to some milliseconds of work with each of these.
const READ_AT_ONCE: usize = 1 << 20;

/// The same for any other request.
const READ_IN_BETWEEN: usize = 128 << 10;

/// Bytes of what engines tell that are read at once during a tick, and before a decision.
const ENGINES_AT_ONCE: usize = 1 << 20;
const ENGINES_IN_BETWEEN: usize = 32 << 10;

/// How long decisions are counted before it is judged whether they are many: more than one in each of
/// these milliseconds.
const LOOK_MILLIS: u64 = 100;

/// Where decisions are many, one of so many is timed.
const TIMED: u64 = 8;

thread_local! {
    static VM: Rc<Vm> = Rc::new(Vm::new());
}

pub(crate) struct Vm {
    pub(crate) replicas: Replicas,
    pub(crate) memories: Memories,
    pub(crate) changes: Changes<Envoy>,
    /// What engines tell of themselves.
    pub(crate) engines: RefCell<Mirror<Envoy>>,
    /// The targets of providers that have a DNS name for them.
    pub(crate) roster: RefCell<Roster<Envoy>>,
    pub(crate) feed: Feed,
    pub(crate) taken: Taken,
    pub(crate) stores: Stores,
    rng: RefCell<Rng>,
    worker: RefCell<Worker<Envoy>>,
    /// Whether requests come here. They never do on Envoy's main thread, which has a VM as well:
    /// that one need not learn anything.
    serves: Cell<bool>,
    /// When something was read last, and for how long it is enough, in microseconds.
    read: Cell<(Micros, u64)>,
    /// Decisions since a time, and whether there were many before. Where there are, others hear of each
    /// no sooner than with the first one of a later millisecond: to tell each at once would be most of
    /// what they cost Envoy. Where there are few, nobody would come so soon to tell.
    decisions: Cell<(u64, Millis)>,
    is_busy: Cell<bool>,
    /// The milliseconds in which it was last asked what others have told, and how targets are. More
    /// often makes no difference to anybody, and each is a call of the host.
    prepared: Cell<Millis>,
    woken: Cell<Millis>,
    /// Whether what is being read has been read before, by some memory of this VM.
    replays: Cell<bool>,
    message: RefCell<Vec<u8>>,
    lost: Counter,
    reaped: Counter,
    known_blocks: Gauge,
    passed_over: Counter,
}

impl Vm {
    /// The VM of this thread.
    pub(crate) fn get() -> Rc<Self> {
        VM.with(Rc::clone)
    }

    fn new() -> Self {
        Self {
            replicas: Replicas::default(),
            memories: Memories::default(),
            changes: Changes::new(&Envoy),
            engines: RefCell::new(Mirror::new(&Envoy)),
            roster: RefCell::new(Roster::new(&Envoy)),
            feed: Feed::new(),
            taken: Taken::default(),
            stores: Stores::new(),
            rng: RefCell::new(Rng::new()),
            worker: RefCell::new(Worker::new(&Envoy, Rng::new().u64(..))),
            serves: Cell::new(false),
            read: Cell::default(),
            decisions: Cell::default(),
            is_busy: Cell::new(false),
            prepared: Cell::default(),
            woken: Cell::default(),
            replays: Cell::new(true),
            message: RefCell::default(),
            lost: Counter::define("rolter_lost_lessons", &[]),
            reaped: Counter::define("rolter_reaped_workers", &[]),
            known_blocks: Gauge::define("rolter_known_blocks", &[]),
            passed_over: Counter::define("rolter_passed_over_blocks", &[]),
        }
    }

    /// What has to be done every now and then.
    pub(crate) fn tick(&self, asker: &Rc<()>, time: Micros) {
        let now = time.millis();
        if self.worker.borrow().is_due(now) {
            self.beat(now);
            self.refresh_health();
            if self.worker.borrow().leads() {
                self.replicas.report(&self.engines.borrow(), now);
            }
            if self.serves.get() {
                self.memories.report();
                let blocks = self.engines.borrow().residents();
                self.known_blocks.put(blocks as u64);
            }
        }
        self.look(now);
        self.stores.tick();
        self.roster.borrow_mut().refresh(&Envoy);
        if self.serves.get() {
            self.read(READ_AT_ONCE);
            self.refresh_engines(ENGINES_AT_ONCE);
        }
        if self.worker.borrow().leads() {
            self.feed.ask(asker, self.engines.borrow().cursor(), now);
        } else {
            self.engines.borrow_mut().leave();
        }
    }

    /// Takes what the sidecar answers, and asks for more.
    pub(crate) fn hear(&self, asker: &Rc<()>, token: u32, headers: usize, size: usize) {
        let now = host::now().millis();
        let page = match self.feed.answer(token, headers, size, now) {
            Some(Answer::Page(page)) => page,
            // What was asked may be what is wrong.
            Some(Answer::Failure) => return self.engines.borrow_mut().leave(),
            None => return,
        };
        self.wake(now);
        let worker = self.worker.borrow();
        let Some(slot) = worker.slot().filter(|_| worker.leads()) else {
            return;
        };
        for target in self.roster.borrow_mut().hear(&Envoy, &page.members) {
            // Who comes at its address is another one.
            Health::new(&Envoy, &target).begin_anew(&Envoy, now, &self.changes);
        }
        let mut engines = self.engines.borrow_mut();
        let passed_over = engines.passed_over();
        engines.hear(&Envoy, slot, &page, now, self.rng.borrow_mut().u64(..));
        self.passed_over.add(engines.passed_over() - passed_over);
        self.feed.ask(asker, engines.cursor(), now);
    }

    /// Brings what is known up to date, before a decision.
    pub(crate) fn prepare(&self, time: Micros) {
        let now = time.millis();
        let (decisions, since) = self.decisions.get();
        self.decisions.set((decisions + 1, since));
        if self.prepared.replace(now) == now {
            return;
        }
        let (read, rest) = self.read.get();
        if !self.serves.replace(true) {
            self.read(READ_AT_ONCE);
        } else if time.apart(read) >= rest {
            self.read(READ_IN_BETWEEN);
        }
        self.roster.borrow_mut().refresh(&Envoy);
        self.refresh_engines(ENGINES_IN_BETWEEN);
        self.wake(now);
        self.flush();
    }

    /// Whether there are many decisions, so that each is to call the host as little as it can.
    pub(crate) fn is_busy(&self) -> bool {
        self.is_busy.get()
    }

    /// Whether this decision is one of those that are timed: all, or where they are many some of them,
    /// which tell as much.
    pub(crate) fn is_timed(&self) -> bool {
        let (decisions, _) = self.decisions.get();
        !self.is_busy() || decisions.is_multiple_of(TIMED)
    }

    /// Makes sure of this VM's place and of the health of the targets, before anything is told or
    /// judged. Other workers may take one for dead whose thread stood still.
    pub(crate) fn wake(&self, now: Millis) {
        if self.woken.replace(now) == now {
            return;
        }
        if self.worker.borrow().is_late(now) {
            self.beat(now);
        }
        self.refresh_health();
    }

    /// The target of this name, whose requests count as this VM's from now on.
    pub(crate) fn replica(&self, name: &str) -> Rc<Replica> {
        let replica = self.replicas.get(name);
        let slot = self.worker.borrow().slot();
        replica.in_flight.write_share(&Envoy, slot);
        replica.pending.write_share(&Envoy, slot);
        replica
    }

    /// Tells the other workers what this one has learnt.
    pub(crate) fn tell(&self, memory: NameHash, target: NameHash, at: Millis, lesson: Lesson<'_>) {
        let mut message = self.message.borrow_mut();
        Message {
            memory,
            target,
            at,
            lesson,
        }
        .write(&mut message);
        let mut worker = self.worker.borrow_mut();
        worker.append(&Envoy, &message);
        if !self.is_busy() {
            worker.flush(&Envoy);
        }
    }

    /// Has the others see all that waits to be told.
    fn flush(&self) {
        metrics::tell();
        self.worker.borrow_mut().flush(&Envoy);
    }

    /// Looks whether decisions are many, and tells what has waited since the last one.
    fn look(&self, now: Millis) {
        self.flush();
        let (decisions, since) = self.decisions.get();
        let passed = now.apart(since);
        if passed >= LOOK_MILLIS {
            self.decisions.set((0, now));
            self.is_busy.set(decisions > passed);
            metrics::wait(self.is_busy());
        }
    }

    /// Goes through what the rings still have once more: there is a memory that missed it.
    pub(crate) fn replay(&self) {
        self.worker.borrow_mut().rewind();
        self.replays.set(true);
    }

    fn beat(&self, now: Millis) {
        let counts = self.replicas.counts();
        let mut worker = self.worker.borrow_mut();
        let beat = worker.beat(&Envoy, now, &counts);
        self.reaped.add(beat.reaped.into());
    }

    fn read(&self, budget: usize) {
        let start = host::now();
        let mut worker = self.worker.borrow_mut();
        let lost = worker.lost();
        let replays = self.replays.get();
        let all = worker.read(&Envoy, budget, |record| {
            // To learn prompts and sessions twice makes no difference; latencies would count twice.
            let is_latency =
                |message: &Message<'_>| matches!(message.lesson, Lesson::FirstToken { .. });
            if let Some(message) = Message::read(record)
                && !(replays && is_latency(&message))
            {
                self.memories.learn(&message);
            }
        });
        if all {
            self.replays.set(false);
        }
        self.lost.add(worker.lost() - lost);
        let end = host::now();
        let rest = (REST * end.since(start)).min(LONGEST_REST);
        self.read.set((end, rest));
    }

    fn refresh_engines(&self, budget: usize) {
        let mut engines = self.engines.borrow_mut();
        let passed_over = engines.passed_over();
        engines.refresh(&Envoy, budget);
        self.passed_over.add(engines.passed_over() - passed_over);
    }

    fn refresh_health(&self) {
        if self.changes.any(&Envoy) {
            self.replicas.refresh();
            self.memories.forget_away();
        }
    }
}
