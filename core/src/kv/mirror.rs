//! What an Envoy knows of the engines, in common for all of its VMs.
//!
//! The VM that [leads](super::leader) hears it from the sidecar and writes it into the shared data:
//! what is short onto the board, blocks into a log a replica. Each VM reads it there into a form in
//! which it can be asked at once.
//!
//! Invariant: nothing is concluded from a part of what is known of a replica.

use super::MediumWeights;
use super::board::{Board, Replica, Target};
use super::identity::{Numbers, Seed};
use super::leader::Leader;
use super::log::{Place, Reader};
use super::prefix::Prefix;
use super::residents::Residents;
use crate::shared::Host;
use crate::time::Millis;
use crate::wire::NameHash;
use fastrand::Rng;
use std::collections::HashMap;
use std::ops::Range;

/// Blocks that a VM remembers of all engines together. They take some 300 MiB.
pub const MAX_RESIDENTS: usize = 8 << 20;

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
    /// By their numbers on the board.
    pub(super) blocks: Vec<Blocks>,
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

/// The blocks of a replica, as far as they were read.
#[derive(Default)]
pub(super) struct Blocks {
    of: Option<(u64, u16)>,
    pub(super) at: Place,
    /// Whether all of them were read once: a part would be taken for all that there is.
    pub(super) is_whole: bool,
    pub(super) residents: Residents,
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
            blocks: Vec::new(),
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
            room: MAX_RESIDENTS.saturating_sub(self.residents()),
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
            let is_end = reader.read(number, log, &mut blocks.at, &mut blocks.residents);
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
        self.blocks
            .iter()
            .map(|blocks| blocks.residents.len())
            .sum()
    }

    /// Blocks that there was no room for, so far.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// The blocks of a request with these tokens, [`TOKEN_BYTES`](super::identity::TOKEN_BYTES)
    /// each, for a model that may be an adapter of some engine.
    pub fn prefix<'a>(
        &self,
        tokens: &'a [u8],
        model: Option<&'a str>,
        salt: Option<&'a str>,
    ) -> Prefix<'a> {
        let adapter = model.filter(|model| {
            let NameHash(hash) = NameHash::of(model);
            self.board.adapters.binary_search(&hash).is_ok()
        });
        Prefix::new(Seed(self.board.seed), adapter, salt, tokens)
    }

    /// Whether it is known which blocks a target has.
    pub fn knows(&self, target: NameHash, now: Millis, stale_millis: u64) -> bool {
        self.known(target, now, stale_millis).next().is_some()
    }

    /// How a target's events are, where its engine publishes any.
    pub fn events(&self, target: NameHash, now: Millis) -> Option<Events> {
        let mut replicas = self.replicas_of(target).peekable();
        replicas.peek()?;
        let alive = replicas.filter_map(|(replica, _)| replica.alive);
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
        prefix: &mut Prefix<'_>,
        weights: &MediumWeights,
        (now, stale_millis): (Millis, u64),
        rng: &mut Rng,
    ) -> Option<Score> {
        let mut best: Option<Score> = None;
        let mut ties = 1_u32;
        for (replica, blocks) in self.known(target, now, stale_millis) {
            let score = score(replica, blocks, prefix, weights);
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
    ) -> impl Iterator<Item = (&Replica, &Blocks)> {
        self.replicas_of(target).filter(move |(replica, blocks)| {
            let alive = replica.alive.map(|at| ((), at));
            blocks.is_whole && fresh(alive, now, stale_millis).is_some()
        })
    }

    fn target(&self, NameHash(hash): NameHash) -> Option<&Target> {
        self.board.targets.get(self.places.get(&hash)?.target?)
    }

    fn replicas_of(&self, NameHash(hash): NameHash) -> impl Iterator<Item = (&Replica, &Blocks)> {
        let Places { replicas, .. } = self.places.get(&hash).cloned().unwrap_or_default();
        let blocks = self.blocks.get(replicas.clone());
        let replicas = self.board.replicas.get(replicas);
        replicas
            .into_iter()
            .flatten()
            .zip(blocks.into_iter().flatten())
    }

    /// Goes by this board from now on.
    pub(super) fn show(&mut self, board: Board) {
        // As nearly always: what engines have changes all the time, who they are hardly ever.
        if self.blocks.len() == board.replicas.len() && self.board.has_places_of(&board) {
            self.board = board;
            return;
        }
        self.places.clear();
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

/// How much of a prompt is in one rank.
fn score(
    replica: &Replica,
    blocks: &Blocks,
    prefix: &mut Prefix<'_>,
    weights: &MediumWeights,
) -> Score {
    let mut found = 0;
    let mut worth = 0.0;
    while let Some(media) = prefix
        .block(replica.block_size, found)
        .and_then(|block| blocks.residents.get(block))
    {
        found += 1;
        worth += weights.best(media);
    }
    // One that has told of no block yet has none, of whatever size.
    #[expect(clippy::cast_precision_loss, reason = "a prompt has far fewer blocks")]
    let block = match prefix.blocks(replica.block_size) {
        0 => 0.0,
        blocks => 1.0 / blocks as f64,
    };
    Score {
        share: worth * block,
        rank: replica.rank,
        block,
    }
}

fn fresh<T: Copy>(told: Option<(T, Millis)>, now: Millis, stale_millis: u64) -> Option<T> {
    let (value, at) = told?;
    // What seems to come from the future was told before the clock was set back.
    (now.apart(at) <= stale_millis).then_some(value)
}
