//! What the routes of this VM have learnt, and the memory that it takes.
//!
//! What is learnt outlives a configuration: a route that is still there keeps its memory, and a
//! target that is still among its targets keeps its id in it. A target that is new gets an id that
//! nobody has, and what other workers know of it from the rings. An id is free again once the last
//! request under a configuration with its target is over.

use crate::metrics::{Counter, Gauge};
use crate::replicas::Replica;
use rolter_core::affinity::Limits;
use rolter_core::memory::Memory;
use rolter_core::target::{MAX_TARGETS, TargetId};
use rolter_core::time::Millis;
use rolter_core::wire::{Message, NameHash};
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};

/// What the trees of all memories may take together, in bytes. A VM may use a gibibyte, and needs
/// more than the parts of a tree take: what grows is there twice for a moment, and leaves holes.
const MAX_TREE_BYTES: usize = 256 << 20;

/// The memories that some configuration has, or had until a moment ago.
#[derive(Default)]
pub(crate) struct Memories(RefCell<Vec<Known>>);

/// A memory by its name: a route's, or `route/variant`.
struct Known {
    name: String,
    hash: NameHash,
    memory: Weak<RefCell<Memory>>,
    /// By target id; nothing where the id is free.
    targets: Vec<Option<Weak<Learner>>>,
    /// What Envoy's stats say of it, where a strategy remembers anything.
    numbers: Option<Numbers>,
}

/// A target in a memory: about whom something is learnt.
pub(crate) struct Learner {
    pub(crate) id: TargetId,
    pub(crate) replica: Rc<Replica>,
    /// What stands for it in messages to other workers.
    pub(crate) hash: NameHash,
    /// What it had before this has been forgotten.
    forgotten: Cell<Millis>,
    /// Distinct bytes of prompts.
    held: Gauge,
}

/// A memory for the targets of a route.
pub(crate) struct Lease {
    pub(crate) memory: Rc<RefCell<Memory>>,
    /// What stands for it in messages to other workers.
    pub(crate) hash: NameHash,
    /// The targets, in the order in which they were given.
    pub(crate) targets: Vec<Rc<Learner>>,
    /// Whether there is something in the rings that it should have and has not.
    pub(crate) is_behind: bool,
}

struct Numbers {
    nodes: Gauge,
    prompts: Gauge,
    text: Gauge,
    memory: Gauge,
    sessions: Gauge,
    evictions: Counter,
    /// How many of the evictions have been counted.
    evicted: Cell<u64>,
}

impl Memories {
    /// The memory of this name, with these targets among others. Prompts are remembered where there
    /// is a limit to those of a target.
    pub(crate) fn get(
        &self,
        name: &str,
        targets: &[Rc<Replica>],
        max_nodes: Option<usize>,
    ) -> Lease {
        let mut all = self.0.borrow_mut();
        sweep(&mut all);
        let place = all.iter().position(|known| known.name == name);
        let kept = place.and_then(|place| all.get_mut(place)?.lease(targets));
        let lease = kept.unwrap_or_else(|| {
            // Where old requests have too many of the ids, they keep the old memory to themselves.
            all.retain(|known| known.name != name);
            let (known, lease) = Known::new(name, targets);
            all.push(known);
            lease
        });
        if let (Some(max_nodes), Some(known)) =
            (max_nodes, all.iter_mut().find(|known| known.name == name))
        {
            known.remember(max_nodes);
        }
        share(&all);
        lease
    }

    /// Takes in what another worker tells, where it is about a memory and a target of this VM.
    pub(crate) fn learn(&self, message: &Message<'_>) {
        let all = self.0.borrow();
        let Some(known) = all.iter().find(|known| known.hash == message.memory) else {
            return;
        };
        let mut named = known.learners();
        let Some(target) = named.find(|target| target.hash == message.target) else {
            return;
        };
        if message.at <= target.forgotten.get() {
            return;
        }
        if let Some(memory) = known.memory.upgrade() {
            let mut memory = memory.borrow_mut();
            memory.learn(target.id, message.at, &message.lesson);
        }
    }

    /// Forgets what targets had that have been away for long.
    pub(crate) fn forget_away(&self) {
        for known in self.0.borrow().iter() {
            let Some(memory) = known.memory.upgrade() else {
                continue;
            };
            for target in known.learners() {
                let forgotten = target.replica.health.forgotten();
                if target.forgotten.replace(forgotten) < forgotten {
                    memory.borrow_mut().forget(target.id);
                }
            }
        }
    }

    /// Brings Envoy's stats up to date with what the memories hold, and their limits with their
    /// number. All workers come to know the same, so each may speak for all.
    pub(crate) fn report(&self) {
        let mut all = self.0.borrow_mut();
        sweep(&mut all);
        share(&all);
        all.iter().for_each(Known::report);
    }
}

/// Drops memories that nobody has, and what the others know of targets that nobody has.
fn sweep(all: &mut Vec<Known>) {
    all.retain(|known| known.memory.strong_count() > 0);
    all.iter_mut().for_each(Known::sweep);
}

/// Gives each tree its part of the memory that there is.
fn share(all: &[Known]) {
    let trees = || all.iter().filter(|known| known.numbers.is_some());
    let max_memory = MAX_TREE_BYTES / trees().count().max(1);
    for memory in trees().filter_map(|known| known.memory.upgrade()) {
        let tree = &mut memory.borrow_mut().tree;
        let limits = Limits {
            max_memory,
            ..tree.limits()
        };
        tree.set_limits(limits);
    }
}

impl Known {
    /// A memory that remembers no prompts yet, and its first lease.
    fn new(name: &str, targets: &[Rc<Replica>]) -> (Self, Lease) {
        let memory = Rc::new(RefCell::new(Memory::new(Limits {
            max_nodes: 0,
            max_memory: MAX_TREE_BYTES,
        })));
        let hash = NameHash::of(name);
        let ids = (0..).map(TargetId).take(MAX_TARGETS);
        let learners: Vec<_> = ids
            .zip(targets)
            .map(|(id, replica)| Learner::new(name, id, replica))
            .collect();
        let known = Self {
            name: name.to_owned(),
            hash,
            memory: Rc::downgrade(&memory),
            targets: learners.iter().map(Rc::downgrade).map(Some).collect(),
            numbers: None,
        };
        let lease = Lease {
            memory,
            hash,
            targets: learners,
            is_behind: true,
        };
        (known, lease)
    }

    /// A lease for these targets, each under the id that it has or under a free one. Nothing where
    /// there are not enough of those.
    fn lease(&mut self, targets: &[Rc<Replica>]) -> Option<Lease> {
        let mut lease = Lease {
            memory: self.memory.upgrade()?,
            hash: self.hash,
            targets: Vec::new(),
            is_behind: false,
        };
        for replica in targets {
            let mut known = self.learners();
            let found = known.find(|target| target.replica.name == replica.name);
            drop(known);
            let target = match found {
                Some(target) => target,
                None => {
                    lease.is_behind = true;
                    self.admit(replica)?
                }
            };
            lease.targets.push(target);
        }
        Some(lease)
    }

    /// Gives a new target a free id.
    fn admit(&mut self, replica: &Rc<Replica>) -> Option<Rc<Learner>> {
        let place = self.targets.iter().position(Option::is_none);
        let place = place.unwrap_or(self.targets.len());
        let id = u16::try_from(place).ok().map(TargetId);
        let id = id.filter(|_| place < MAX_TARGETS)?;
        let learner = Learner::new(&self.name, id, replica);
        match self.targets.get_mut(place) {
            Some(target) => *target = Some(Rc::downgrade(&learner)),
            None => self.targets.push(Some(Rc::downgrade(&learner))),
        }
        Some(learner)
    }

    fn learners(&self) -> impl Iterator<Item = Rc<Learner>> {
        self.targets.iter().flatten().filter_map(Weak::upgrade)
    }

    /// Forgets targets that nobody has any more.
    fn sweep(&mut self) {
        let Some(memory) = self.memory.upgrade() else {
            return;
        };
        for (id, target) in (0..).map(TargetId).zip(&mut self.targets) {
            if target
                .take_if(|target| target.strong_count() == 0)
                .is_some()
            {
                memory.borrow_mut().forget(id);
            }
        }
    }

    /// Remembers so many bytes of prompts for each target from now on.
    fn remember(&mut self, max_nodes: usize) {
        if let Some(memory) = self.memory.upgrade() {
            let tree = &mut memory.borrow_mut().tree;
            let limits = Limits {
                max_nodes,
                ..tree.limits()
            };
            tree.set_limits(limits);
        }
        self.numbers.get_or_insert_with(|| Numbers::new(&self.name));
    }

    fn report(&self) {
        let (Some(memory), Some(numbers)) = (self.memory.upgrade(), &self.numbers) else {
            return;
        };
        let memory = memory.borrow();
        numbers.report(&memory);
        for target in self.learners() {
            target.held.put(memory.tree.held(target.id) as u64);
        }
    }
}

impl Learner {
    fn new(memory: &str, id: TargetId, replica: &Rc<Replica>) -> Rc<Self> {
        let labels = [("route", memory), ("target", &*replica.name)];
        Rc::new(Self {
            id,
            hash: NameHash::of(&replica.name),
            replica: Rc::clone(replica),
            forgotten: Cell::new(replica.health.forgotten()),
            held: Gauge::define("rolter_tree_held_bytes", &labels),
        })
    }
}

impl Drop for Learner {
    fn drop(&mut self) {
        self.held.put(0);
    }
}

impl Numbers {
    fn new(route: &str) -> Self {
        let labels = [("route", route)];
        Self {
            nodes: Gauge::define("rolter_tree_nodes", &labels),
            prompts: Gauge::define("rolter_tree_prompts", &labels),
            text: Gauge::define("rolter_tree_text_bytes", &labels),
            memory: Gauge::define("rolter_tree_memory_bytes", &labels),
            sessions: Gauge::define("rolter_sessions", &labels),
            evictions: Counter::define("rolter_tree_evictions", &labels),
            evicted: Cell::new(0),
        }
    }

    fn report(&self, memory: &Memory) {
        let usage = memory.tree.usage();
        self.put([
            usage.nodes,
            usage.prompts,
            usage.text,
            usage.memory,
            memory.sessions.len(),
        ]);
        let counted = self.evicted.replace(usage.evictions);
        self.evictions.add(usage.evictions - counted);
    }

    fn put(&self, values: [usize; 5]) {
        let gauges = [
            self.nodes,
            self.prompts,
            self.text,
            self.memory,
            self.sessions,
        ];
        for (gauge, value) in gauges.into_iter().zip(values) {
            gauge.put(value as u64);
        }
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.put([0; 5]);
    }
}
