//! What an Envoy knows of the engines, in common for all of its VMs.
//!
//! The VM that [leads](super::leader) hears it from the sidecar and writes it into the shared data:
//! what is short onto the board, blocks into a log a replica. Each VM reads it there into a form in
//! which it can be asked at once.
//!
//! Invariant: nothing is concluded from a part of what is known of a replica.

use super::MediumWeights;
use super::board::{Board, Replica, Target};
use super::feed::ReplicaId;
use super::identity::{Chain, Numbers, Seed};
use super::leader::Leader;
use super::log::{Place, Reader};
use super::residents::Residents;
use crate::shared::Host;
use crate::time::Millis;
use crate::wire::NameHash;
use fastrand::Rng;
use std::cell::Cell;
use std::collections::HashMap;
use std::ops::Range;

/// Blocks that a VM remembers of all engines together. They take some 350 MiB: 34 bytes each in a
/// table that is half full with so many, and ten in the list of who has it.
pub const MAX_RESIDENTS: usize = 8 << 20;

/// Sizes of blocks that are told apart; of engines with further ones nothing is found. Those of one
/// model have one size, or a few.
const MAX_SIZES: usize = 8;

/// After so long nothing is concluded from what an engine said of itself. It is asked every second.
pub const REPORT_STALE_MILLIS: u64 = 5_000;

/// What one VM knows of the engines.
pub struct Mirror<H: Host> {
    pub(super) version: H::Gauge,
    /// The version up to which everything was read.
    pub(super) read: Option<u64>,
    pub(super) board: Board,
    /// Where on the board a target and its replicas are, by the hash of its name.
    places: HashMap<u64, Places, Numbers>,
    /// The first replica after the target that was asked for last. Who asks for all of them asks in
    /// about the order of the board, and then nothing has to be looked up.
    next: Cell<usize>,
    /// By their numbers on the board.
    pub(super) blocks: Vec<Blocks>,
    pub(super) residents: Residents,
    /// The replica to read first, so that none has to wait for ever for the others.
    first: usize,
    /// Blocks that there was no room for.
    pub(super) passed_over: u64,
    /// Where this VM hears it from the sidecar itself.
    pub(super) leader: Option<Leader>,
}

#[derive(Clone, Default)]
struct Places {
    replicas: Range<usize>,
    target: Option<usize>,
}

/// How far the blocks of a replica were read.
#[derive(Default)]
pub(super) struct Blocks {
    of: Option<(u64, u16)>,
    pub(super) at: Place,
    /// Whether all of them were read once: a part would be taken for all that there is.
    pub(super) is_whole: bool,
}

/// How the events of an engine are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Events {
    /// Ranks whose events are to be trusted.
    pub trusted: u64,
    /// How long ago there was a sign of life of the one of these that has been silent longest, in
    /// milliseconds.
    pub age_millis: u64,
}

/// How much of a prompt each rank of the engines has.
#[derive(Clone, Debug, Default)]
pub struct Parts(Vec<Part>);

/// What one rank has of it, by its number on the board.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Tokens in a block there.
    size: u32,
    /// Blocks from the beginning on.
    found: usize,
    worth: f64,
    /// The share of the prompt that is one block.
    block: f64,
}

/// How much of a prompt a target has, in the rank that has most of it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Score {
    /// From 0 to 1, of the blocks of the prompt that could be there: those that are, by their worth.
    pub share: f64,
    /// The rank.
    pub rank: u16,
    /// The share that is one block.
    pub block: f64,
}

impl<H: Host> Mirror<H> {
    /// Knows nothing.
    pub fn new(host: &H) -> Self {
        Self {
            version: host.gauge("rolter_engines_version", &[("vm", &host.vm())]),
            read: None,
            board: Board::default(),
            places: HashMap::default(),
            next: Cell::new(0),
            blocks: Vec::new(),
            residents: Residents::new(MAX_RESIDENTS),
            first: 0,
            passed_over: 0,
            leader: None,
        }
    }

    /// Reads what is new, up to about so many bytes. Whether that was all.
    pub fn refresh(&mut self, host: &H, budget: usize) -> bool {
        let version = host.read(self.version);
        if self.read == Some(version) || self.leader.is_some() {
            return true;
        }
        let (Some(board), _) = Board::read(host) else {
            self.read = Some(version);
            return true;
        };
        self.show(board);
        let mut reader = Reader {
            host,
            slot: self.board.slot,
            budget,
            residents: &mut self.residents,
            passed_over: 0,
        };
        let count = self.blocks.len();
        let (first, mut all) = (self.first, true);
        for number in (0..count).map(|turn| (first + turn) % count) {
            let replica = self.board.replicas.get(number);
            let (Some(replica), Some(blocks)) = (replica, self.blocks.get_mut(number)) else {
                continue;
            };
            let (at, log) = (blocks.at, &replica.log);
            let is_end = reader.read(number, log, &mut blocks.at);
            // Who was at the end of the epoch before is whole in this one, too.
            blocks.is_whole &= is_end || at.epoch == blocks.at.epoch || log.follows(at);
            blocks.is_whole |= is_end;
            if !is_end && all {
                (self.first, all) = (number, false);
            }
        }
        self.passed_over += reader.passed_over;
        self.read = all.then_some(version);
        all
    }

    /// How many blocks are known, replicas of the same one counted each.
    pub fn residents(&self) -> usize {
        self.residents.len()
    }

    /// Blocks that there was no room for, so far.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// Who has how much of a prompt of these tokens, [`TOKEN_BYTES`](super::identity::TOKEN_BYTES)
    /// each, for a model that may be an adapter of some engine. A prompt is followed once for all
    /// engines with blocks of a size.
    pub fn parts(
        &self,
        tokens: &[u8],
        (model, salt): (Option<&str>, Option<&str>),
        weights: &MediumWeights,
    ) -> Parts {
        let adapter = model.filter(|model| {
            let NameHash(hash) = NameHash::of(model);
            self.board.adapters.binary_search(&hash).is_ok()
        });
        let mut parts = Parts(self.board.replicas.iter().map(Part::nothing_in).collect());
        let mut sizes = Vec::new();
        for &Replica { block_size, .. } in &self.board.replicas {
            // One that has told of no block yet has none, of whatever size.
            if block_size == 0 || sizes.contains(&block_size) || sizes.len() == MAX_SIZES {
                continue;
            }
            sizes.push(block_size);
            let chain = Chain::new(Seed(self.board.seed), adapter, salt, tokens, block_size);
            parts.find(block_size, chain, &self.residents, weights);
        }
        parts
    }

    /// Whether it is known which blocks a target has.
    pub fn knows(&self, target: NameHash, now: Millis, stale_millis: u64) -> bool {
        self.known(target, now, stale_millis).next().is_some()
    }

    /// How a target's events are, where its engine publishes any.
    pub fn events(&self, target: NameHash, now: Millis) -> Option<Events> {
        let mut replicas = self.replicas_of(target).peekable();
        replicas.peek()?;
        let alive = replicas.filter_map(|(_, replica)| replica.alive);
        Some(alive.fold(Events::default(), |events, alive| Events {
            trusted: events.trusted + 1,
            age_millis: events.age_millis.max(now.apart(alive)),
        }))
    }

    /// How much of a prompt a target has; of several ranks that have as much, any. Nothing where it is
    /// not known, because no event has come for so long, the events are not to be trusted, or they
    /// have not all been read.
    pub fn score(
        &self,
        target: NameHash,
        parts: &Parts,
        (now, stale_millis): (Millis, u64),
        rng: &mut Rng,
    ) -> Option<Score> {
        let mut best: Option<Score> = None;
        let mut ties = 1_u32;
        for (number, replica) in self.known(target, now, stale_millis) {
            let score = parts.score(number, replica);
            let takes = match best {
                None => true,
                Some(best) if score.share > best.share => {
                    ties = 1;
                    true
                }
                Some(best) if score.share < best.share => false,
                Some(_) => {
                    ties += 1;
                    rng.u32(..ties) == 0
                }
            };
            if takes {
                best = Some(score);
            }
        }
        best
    }

    /// How many ranks a target has.
    pub fn ranks(&self, target: NameHash) -> usize {
        self.replicas_of(target).count()
    }

    /// Requests that a target's engine says it has, where it said so of late.
    pub fn load(&self, target: NameHash, now: Millis) -> Option<u32> {
        fresh(self.target(target)?.load, now, REPORT_STALE_MILLIS)
    }

    /// Whether a target's engine said of late that it is not well.
    pub fn is_ill(&self, target: NameHash, now: Millis) -> bool {
        let target = self.target(target);
        target.is_some_and(|target| {
            let ill = target.ill.map(|at| ((), at));
            fresh(ill, now, REPORT_STALE_MILLIS).is_some()
        })
    }

    /// How much room a target's `LMCache` has, from 0 to 1, where it is known.
    pub fn room(&self, target: NameHash, now: Millis, stale_millis: u64) -> Option<f64> {
        fresh(self.target(target)?.room, now, stale_millis)
    }

    /// The replicas of a target whose blocks are known.
    fn known(
        &self,
        target: NameHash,
        now: Millis,
        stale_millis: u64,
    ) -> impl Iterator<Item = (usize, &Replica)> {
        self.replicas_of(target).filter(move |(number, replica)| {
            let alive = replica.alive.map(|at| ((), at));
            let blocks = self.blocks.get(*number);
            blocks.is_some_and(|blocks| blocks.is_whole)
                && fresh(alive, now, stale_millis).is_some()
        })
    }

    fn target(&self, NameHash(hash): NameHash) -> Option<&Target> {
        if self.board.targets.is_empty() {
            return None;
        }
        self.board.targets.get(self.places.get(&hash)?.target?)
    }

    fn replicas_of(&self, NameHash(hash): NameHash) -> impl Iterator<Item = (usize, &Replica)> {
        let next = self.next.get();
        let rest = self.board.replicas.get(next..).unwrap_or_default();
        let ranks = rest.iter().take_while(|replica| replica.target == hash);
        let numbers = match ranks.count() {
            0 => {
                let places = self.places.get(&hash);
                places.map_or(0..0, |places| places.replicas.clone())
            }
            ranks => next..next + ranks,
        };
        self.next.set(numbers.end);
        let replicas = self.board.replicas.get(numbers.clone());
        numbers.zip(replicas.into_iter().flatten())
    }

    /// Goes by this board from now on.
    pub(super) fn show(&mut self, board: Board) {
        // As nearly always: what engines have changes all the time, who they are hardly ever.
        if self.blocks.len() == board.replicas.len() && self.board.has_places_of(&board) {
            self.board = board;
            return;
        }
        self.places.clear();
        self.next.set(0);
        for number in board.replicas.len()..self.blocks.len() {
            self.residents.clear(ReplicaId::of(number));
        }
        self.blocks
            .resize_with(board.replicas.len(), Blocks::default);
        for (number, (replica, blocks)) in board.replicas.iter().zip(&mut self.blocks).enumerate() {
            let places = self.places.entry(replica.target).or_default();
            if places.replicas.is_empty() {
                places.replicas.start = number;
            }
            places.replicas.end = number + 1;
            let of = Some((replica.target, replica.rank));
            if blocks.of != of {
                self.residents.clear(ReplicaId::of(number));
                *blocks = Blocks {
                    of,
                    ..Blocks::default()
                };
            }
        }
        for (number, target) in board.targets.iter().enumerate() {
            self.places.entry(target.name).or_default().target = Some(number);
        }
        self.board = board;
    }
}

impl Parts {
    /// Looks for blocks of a size.
    fn find(
        &mut self,
        size: u32,
        blocks: Chain<'_>,
        residents: &Residents,
        weights: &MediumWeights,
    ) {
        #[expect(clippy::cast_precision_loss, reason = "a prompt has far fewer blocks")]
        let block = match blocks.blocks() {
            0 => 0.0,
            blocks => 1.0 / blocks as f64,
        };
        let parts = self.0.iter_mut().filter(|part| part.size == size);
        parts.for_each(|part| part.block = block);
        residents.follow(blocks, |place, replica, media| {
            let part = self.0.get_mut(usize::from(replica.0));
            let part = part.filter(|part| part.size == size && part.found == place);
            let has_all = part.map(|part| {
                part.found += 1;
                part.worth += weights.best(media);
            });
            has_all.is_some()
        });
    }

    fn score(&self, number: usize, replica: &Replica) -> Score {
        let part = self.0.get(number);
        Score {
            share: part.map_or(0.0, |part| part.worth * part.block),
            rank: replica.rank,
            block: part.map_or(0.0, |part| part.block),
        }
    }
}

impl Part {
    fn nothing_in(replica: &Replica) -> Self {
        Self {
            size: replica.block_size,
            found: 0,
            worth: 0.0,
            block: 0.0,
        }
    }
}

fn fresh<T: Copy>(told: Option<(T, Millis)>, now: Millis, stale_millis: u64) -> Option<T> {
    let (value, at) = told?;
    // What seems to come from the future was told before the clock was set back.
    (now.apart(at) <= stale_millis).then_some(value)
}
