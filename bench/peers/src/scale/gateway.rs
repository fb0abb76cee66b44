//! Envoys with this filter, each with VMs that share what they learn: the filter's core, driven as
//! the filter drives it.
//!
//! What is real: balancers, trees, the rings by which VMs tell each other, the mirror of the engines'
//! blocks. What is not: health (all are well), and the sidecar, in whose place changes of blocks
//! arrive some time after the engine made them.

use super::asked::{SEED, tokens};
use super::engine::{Change, Engine};
use super::host::Envoy;
use super::play::{Asking, Router};
use super::strategy;
use crate::workload::MODEL;
use engine_sim::CacheEvent;
use fastrand::Rng;
use rolter_core::affinity::Limits;
use rolter_core::balance::{
    Asks, Balancer, Decision, Fleet, MAX_FOLLOWERS, Request, Scores, Signal, TargetInfo,
};
use rolter_core::caller::session_hash;
use rolter_core::kv::feed::{self, LoadState, Page, ReplicaId, ReplicaState, TargetState};
use rolter_core::kv::identity::Identity;
use rolter_core::kv::mirror::Mirror;
use rolter_core::kv::{Media, Medium};
use rolter_core::memory::{Lesson, Memory};
use rolter_core::prompt::{Dialect, Prompt};
use rolter_core::shared::Worker;
use rolter_core::shared::in_flight::InFlight;
use rolter_core::shared::slots::SlotId;
use rolter_core::target::{MAX_TARGETS, TargetId, TargetSet};
use rolter_core::time::Millis;
use rolter_core::wire::{Message, NameHash};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hint::black_box;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// How long it takes until a gateway knows what an engine has told of its blocks.
pub(crate) const EVENT_DELAY: Duration = Duration::from_millis(10);

/// How often VMs look for something to do, and how much they read then and before a decision.
const TICK: Duration = Duration::from_millis(100);
const READ_AT_ONCE: usize = 1 << 20;
const READ_IN_BETWEEN: usize = 128 << 10;
const ENGINES_IN_BETWEEN: usize = 32 << 10;

/// How long the sidecar gathers news.
const GATHER: Duration = Duration::from_millis(5);

/// How often engines are asked for their load.
const REPORT: Duration = Duration::from_secs(1);

/// After how long what an engine tells of its blocks is of no use any more.
const STALE_MILLIS: u64 = 30_000;

/// What the trees of a VM may take.
const MAX_TREE_BYTES: usize = 256 << 20;

/// Where decisions are timed: requests at a target at once, and new blocks for each.
const AT_ONCE: usize = 2;
const COMPUTED: usize = 8;

/// The time at which plays begin.
const START: Millis = Millis(1_800_000_000_000);

/// How many gateways there are, of how many VMs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) engines: usize,
    pub(crate) gateways: usize,
    pub(crate) workers: usize,
    /// Whether gateways hear from engines how many requests they have.
    pub(crate) reports: bool,
}

/// All gateways. Each request comes to any VM of any of them.
pub(crate) struct Filters {
    gateways: Vec<Gateway>,
    sent: HashMap<usize, Sent>,
    reasons: BTreeMap<&'static str, usize>,
    reports: bool,
    rng: Rng,
}

/// What one VM did for a request.
pub(crate) struct Timed {
    pub(crate) took: Duration,
    pub(crate) host_calls: u64,
}

struct Sent {
    gateway: usize,
    vm: usize,
    target: TargetId,
    tokens: u32,
    /// Those of the prompt that the target has yet to compute.
    pending: Cell<u32>,
    at: Duration,
}

impl Filters {
    pub(crate) fn new(filter: &strategy::Filter, shape: &Shape, mut rng: Rng) -> Self {
        let gateways = (0..shape.gateways).map(|_| Gateway::new(filter, shape, &mut rng));
        Self {
            gateways: gateways.collect(),
            sent: HashMap::new(),
            reasons: BTreeMap::new(),
            reports: shape.reports,
            rng,
        }
    }

    /// Serves a request by one of the first gateway's VMs, each in its turn: all that is done for it,
    /// from reading what the other VMs and the engines have told to telling what is learnt.
    pub(crate) fn time(
        &mut self,
        number: usize,
        prompt: &Prompt<'_>,
        tokens: &[u8],
        now: Duration,
    ) -> Timed {
        let request = Request {
            prompt: Some(prompt),
            session: Some(session_hash(&prompt.digest.to_le_bytes())),
            now: millis(now),
        };
        let gateway = &mut self.gateways[0];
        let vm = number % gateway.vms.len();
        gateway.pass(now);
        let calls = gateway.host.calls();
        let start = Instant::now();
        gateway.catch_up(vm);
        let decision = black_box(gateway.decide(vm, &request, Some(tokens)));
        gateway.tell(vm, &request, &decision);
        gateway.begin(vm, &decision);
        let timed = Timed {
            took: start.elapsed(),
            host_calls: gateway.host.calls() - calls,
        };
        gateway.compute(decision.target, now, &mut self.rng);
        let at_once = AT_ONCE * gateway.names.len();
        let sent = Sent {
            gateway: 0,
            vm,
            target: decision.target,
            tokens: prompt.tokens(),
            pending: Cell::new(decision.missing),
            at: now,
        };
        self.sent.insert(number, sent);
        if let Some(over) = number.checked_sub(at_once) {
            self.first_token(over, now);
            self.finished(over);
        }
        timed
    }

    /// The memory of one VM, and of the mirror that it has.
    pub(crate) fn memory_of_one(&self) -> usize {
        let gateway = self.gateways.first();
        gateway.map_or(0, Gateway::memory_of_one)
    }
}

impl Router for Filters {
    fn route(&mut self, asking: &Asking<'_>) -> usize {
        let number = self.rng.usize(..self.gateways.len());
        let gateway = &mut self.gateways[number];
        let vm = self.rng.usize(..gateway.vms.len());
        let body = asking.request.body();
        let prompt = Prompt::read_as(Some(Dialect::Chat), body.as_bytes());
        let session = asking.request.session_name();
        let request = Request {
            prompt: Some(&prompt),
            session: session.map(|name| session_hash(name.as_bytes())),
            now: millis(asking.now),
        };
        let tokens = gateway.mirror.is_some().then(|| tokens(asking.request));
        if self.reports {
            gateway.report(asking.engines, asking.now);
        }
        gateway.prepare(vm, asking.now);
        let decision = gateway.decide(vm, &request, tokens.as_deref());
        gateway.tell(vm, &request, &decision);
        let target = decision.target;
        gateway.begin(vm, &decision);
        *self.reasons.entry(decision.reason.as_str()).or_default() += 1;
        let sent = Sent {
            gateway: number,
            vm,
            target,
            tokens: prompt.tokens(),
            pending: Cell::new(decision.missing),
            at: asking.now,
        };
        self.sent.insert(asking.number, sent);
        target.index()
    }

    fn first_token(&mut self, number: usize, now: Duration) {
        if let Some(sent) = self.sent.get(&number) {
            self.gateways[sent.gateway].first_token(sent, now);
        }
    }

    fn finished(&mut self, number: usize) {
        if let Some(sent) = self.sent.remove(&number) {
            let gateway = &self.gateways[sent.gateway];
            gateway.vms[sent.vm].in_flight[sent.target.index()].end(&gateway.host, 1);
        }
    }

    fn heard(&mut self, engine: usize, changes: &[Change], now: Duration) {
        for gateway in &mut self.gateways {
            gateway.hear(engine, changes, now);
        }
    }

    fn remarks(&self) -> String {
        let all: usize = self.reasons.values().sum();
        let shares = self.reasons.iter().map(|(reason, count)| {
            let percent = (100 * count + all / 2) / all.max(1);
            format!("{reason} {percent} %")
        });
        shares.collect::<Vec<_>>().join(", ")
    }
}

/// One Envoy.
pub(crate) struct Gateway {
    host: Envoy,
    vms: Vec<Vm>,
    asks: Asks,
    targets: TargetSet,
    names: Vec<NameHash>,
    ids: HashMap<u64, TargetId>,
    /// Where the strategy goes by what engines tell: the mirror of the VM that leads.
    mirror: Option<Mirror<Envoy>>,
    /// That of another VM, from when decisions are timed.
    follower: Option<Mirror<Envoy>>,
    page: Page,
    told: VecDeque<(Duration, feed::Change)>,
    ticked: Duration,
    heard: Duration,
    reported: Option<Duration>,
}

struct Vm {
    worker: Worker<Envoy>,
    memory: Rc<RefCell<Memory>>,
    balancer: Balancer,
    /// Requests at each target.
    in_flight: Vec<InFlight<Envoy>>,
    /// Tokens that each has yet to compute.
    pending: Vec<InFlight<Envoy>>,
    rng: Rng,
    message: Vec<u8>,
}

impl Gateway {
    pub(crate) fn new(filter: &strategy::Filter, shape: &Shape, rng: &mut Rng) -> Self {
        let names: Vec<String> = (0..shape.engines).map(|n| format!("engine-{n}")).collect();
        let hashes: Vec<_> = names.iter().map(|name| NameHash::of(name)).collect();
        let ids = hashes
            .iter()
            .zip(0..)
            .map(|(hash, id)| (hash.0, TargetId(id)));
        let infos: Vec<_> = (hashes.iter().zip(0..))
            .map(|(hash, id)| TargetInfo {
                id: TargetId(id),
                seed: hash.0,
                weight: 1,
            })
            .collect();
        let host = Envoy::default();
        let limits = Limits {
            max_nodes: filter.max_nodes,
            max_memory: MAX_TREE_BYTES,
        };
        let vm = |_| {
            let memory = Rc::new(RefCell::new(Memory::new(limits)));
            let mut rng = rng.fork();
            let in_flight = names.iter().map(|name| InFlight::requests(&host, name));
            let pending = names.iter().map(|name| InFlight::tokens(&host, name));
            Vm {
                in_flight: in_flight.collect(),
                pending: pending.collect(),
                worker: Worker::new(&host, rng.u64(1..)),
                balancer: Balancer::new(filter.strategy, &infos, Rc::clone(&memory), &mut rng),
                memory,
                rng,
                message: Vec::new(),
            }
        };
        let vms: Vec<Vm> = (0..shape.workers).map(vm).collect();
        let asks = vms.first().map_or(Asks::NOTHING, |vm| vm.balancer.asks());
        let hears = asks.scores.is_some() || shape.reports;
        let replicas = names.iter().map(|name| ReplicaState {
            target: name.clone(),
            rank: 0,
            block_size: 16,
            age_ms: Some(0),
        });
        let mut gateway = Self {
            mirror: hears.then(|| Mirror::new(&host)),
            page: Page {
                anew: true,
                seed: SEED.0,
                replicas: replicas.collect(),
                ..Page::default()
            },
            host,
            vms,
            asks,
            targets: TargetSet::first(shape.engines),
            ids: ids.collect(),
            names: hashes,
            told: VecDeque::new(),
            follower: None,
            ticked: Duration::ZERO,
            heard: Duration::ZERO,
            reported: None,
        };
        gateway.beat(START);
        gateway
    }

    /// Brings a VM up to date before a decision.
    pub(crate) fn prepare(&mut self, vm: usize, now: Duration) {
        if now.saturating_sub(self.ticked) >= TICK {
            self.ticked = now;
            self.beat(millis(now));
            for vm in 0..self.vms.len() {
                self.read(vm, READ_AT_ONCE);
            }
        }
        self.read(vm, READ_IN_BETWEEN);
        self.hear_page(now);
    }

    /// Has the leader do what is due, so that a VM has something to read.
    fn pass(&mut self, now: Duration) {
        if now.saturating_sub(self.ticked) >= TICK {
            self.ticked = now;
            self.beat(millis(now));
        }
        if now.saturating_sub(self.heard) >= GATHER {
            self.heard = now;
            self.hear_page(now);
        }
    }

    /// Brings a VM up to date, which keeps a mirror of its own.
    fn catch_up(&mut self, vm: usize) {
        self.read(vm, READ_IN_BETWEEN);
        if self.mirror.is_some() {
            let follower = (self.follower).get_or_insert_with(|| Mirror::new(&self.host));
            follower.refresh(&self.host, ENGINES_IN_BETWEEN);
        }
    }

    fn begin(&self, vm: usize, decision: &Decision) {
        let (vm, target) = (&self.vms[vm], decision.target.index());
        vm.in_flight[target].begin(&self.host, 1);
        vm.pending[target].begin(&self.host, decision.missing);
    }

    /// Has an engine tell of blocks that it has computed.
    fn compute(&mut self, target: TargetId, now: Duration, rng: &mut Rng) {
        let there = Media::NONE.with(Medium::Gpu);
        let blocks = std::iter::repeat_with(|| Identity(rng.u64(..)));
        let changes = blocks
            .take(COMPUTED)
            .map(|block| feed::Change::Put(ReplicaId(target.0), block, there));
        if self.asks.scores.is_some() {
            self.told.extend(changes.map(|change| (now, change)));
        }
    }

    fn hear_page(&mut self, now: Duration) {
        if let Some(mirror) = &mut self.mirror {
            self.page.changes.clear();
            while let Some((at, change)) = self.told.front()
                && *at + EVENT_DELAY <= now
            {
                change.write(&mut self.page.changes);
                self.told.pop_front();
            }
            let goes_on = mirror.hear(&self.host, SlotId(0), &self.page, millis(now), 1);
            assert!(goes_on, "a mirror that hears all from one");
            self.page.anew = false;
        }
    }

    /// Decides where a request goes, as the filter does.
    pub(crate) fn decide(
        &mut self,
        vm: usize,
        request: &Request<'_>,
        tokens: Option<&[u8]>,
    ) -> Decision {
        let vm = &mut self.vms[vm];
        let mirror = self.follower.as_ref().or(self.mirror.as_ref());
        let is_well = |id: &TargetId| {
            let name = self.names[id.index()];
            !mirror.is_some_and(|mirror| mirror.is_ill(name, request.now))
        };
        let eligible = self.targets.iter().filter(is_well).collect();
        let mut load = [0; MAX_TARGETS];
        let mut pending = [0; MAX_TARGETS];
        for id in self.targets.iter() {
            let reported =
                mirror.and_then(|mirror| mirror.load(self.names[id.index()], request.now));
            let in_flight =
                vm.in_flight[id.index()].load(&self.host, request.now, self.names.len());
            load[id.index()] = in_flight.max(reported.unwrap_or(0));
            if self.asks.pending {
                pending[id.index()] =
                    vm.pending[id.index()].load(&self.host, request.now, self.names.len());
            }
        }
        let mut scores = [None; MAX_TARGETS];
        let mut grain = 0.0;
        if let (Some(mirror), Some(Signal::Blocks(weights)), Some(prompt), Some(tokens)) =
            (mirror, self.asks.scores, request.prompt, tokens)
        {
            let parts = mirror.parts(tokens, (prompt.model.as_deref(), None), &weights);
            let mut best = 0.0;
            for id in self.targets.iter() {
                let times = (request.now, STALE_MILLIS);
                let name = self.names[id.index()];
                let score = mirror.score(name, &parts, times, &mut vm.rng);
                if let Some(score) = score {
                    scores[id.index()] = Some(score.share);
                    if score.share > best {
                        (best, grain) = (score.share, score.block);
                    }
                }
            }
        }
        let fleet = Fleet {
            targets: self.targets,
            eligible,
            load: Some(&load),
            pending: self.asks.pending.then_some(&pending),
            scores: self.asks.scores.map(|_| Scores { of: &scores, grain }),
        };
        let decision = (vm.balancer).decide(&fleet, request, MAX_FOLLOWERS, &mut vm.rng, |_| true);
        decision.expect("a fleet has targets")
    }

    /// Tells the other VMs what a decision has taught this one.
    fn tell(&mut self, vm: usize, request: &Request<'_>, decision: &Decision) {
        let target = self.names[decision.target.index()];
        let at = request.now;
        if let Some(prompt) = request.prompt.filter(|_| decision.news.prompt) {
            let model = prompt.model.as_deref().unwrap_or(MODEL).as_bytes();
            let text = &prompt.text;
            self.publish(vm, target, at, Lesson::Prompt { model, text });
        }
        if let Some(session) = request.session.filter(|_| decision.news.session) {
            self.publish(vm, target, at, Lesson::Session { session });
        }
    }

    fn first_token(&mut self, sent: &Sent, now: Duration) {
        let pending = &self.vms[sent.vm].pending[sent.target.index()];
        pending.end(&self.host, sent.pending.take());
        if !self.asks.first_token {
            return;
        }
        let micros = u32::try_from(now.saturating_sub(sent.at).as_micros()).unwrap_or(u32::MAX);
        let (tokens, at) = (sent.tokens, millis(now));
        let memory = Rc::clone(&self.vms[sent.vm].memory);
        let latency = &mut memory.borrow_mut().latency;
        latency.observe(sent.target, tokens, micros, at);
        let target = self.names[sent.target.index()];
        self.publish(sent.vm, target, at, Lesson::FirstToken { tokens, micros });
    }

    fn hear(&mut self, engine: usize, changes: &[Change], now: Duration) {
        if self.asks.scores.is_none() {
            return;
        }
        let replica = ReplicaId(u16::try_from(engine).unwrap_or(u16::MAX));
        let there = Media::NONE.with(Medium::Gpu);
        self.told.extend(changes.iter().map(|change| {
            let change = match change {
                CacheEvent::Stored(block) => feed::Change::Put(replica, Identity(block.0), there),
                CacheEvent::Removed(block) => {
                    feed::Change::Put(replica, Identity(block.0), Media::NONE)
                }
                CacheEvent::Cleared => feed::Change::Clear(replica),
            };
            (now, change)
        }));
    }

    /// Asks engines for their load, where it is time.
    fn report(&mut self, engines: &[Engine], now: Duration) {
        if self
            .reported
            .is_some_and(|last| now.saturating_sub(last) < REPORT)
        {
            return;
        }
        self.reported = Some(now);
        let states = engines.iter().zip(&self.page.replicas);
        let states = states.map(|(engine, replica)| TargetState {
            target: replica.target.clone(),
            healthy: Some(true),
            load: Some(LoadState {
                running: u32::try_from(engine.load()).unwrap_or(u32::MAX),
                ..LoadState::default()
            }),
            ..TargetState::default()
        });
        self.page.targets = states.collect();
    }

    fn publish(&mut self, vm: usize, target: NameHash, at: Millis, lesson: Lesson<'_>) {
        let vm = &mut self.vms[vm];
        Message {
            memory: NameHash(0),
            target,
            at,
            lesson,
        }
        .write(&mut vm.message);
        vm.worker.publish(&self.host, &vm.message);
    }

    fn read(&mut self, vm: usize, budget: usize) {
        let Vm { worker, memory, .. } = &mut self.vms[vm];
        let ids = &self.ids;
        worker.read(&self.host, budget, |record| {
            if let Some(message) = Message::read(record)
                && let Some(&target) = ids.get(&message.target.0)
            {
                let mut memory = memory.borrow_mut();
                memory.learn(target, message.at, &message.lesson);
            }
        });
    }

    fn beat(&mut self, now: Millis) {
        for vm in &mut self.vms {
            if vm.worker.is_due(now) {
                vm.worker.beat(&self.host, now, &vm.in_flight);
            }
        }
    }

    fn memory_of_one(&self) -> usize {
        /// What a block takes in a mirror: an entry of a table that is half full, and one of a list.
        const RESIDENT_BYTES: usize = 2 * 17 + 10;
        let blocks = self.mirror.as_ref().map_or(0, Mirror::residents);
        let memory = self.vms.first().map_or(0, |vm| {
            let memory = vm.memory.borrow();
            memory.tree.usage().memory + memory.sessions.memory()
        });
        memory + blocks * RESIDENT_BYTES
    }
}

fn millis(at: Duration) -> Millis {
    START.plus(u64::try_from(at.as_millis()).unwrap_or(u64::MAX))
}
