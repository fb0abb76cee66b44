//! What the tests of this module share.

mod cache_aware;
mod complaints;
mod consistent_hash;
mod decisions;
mod few;
mod pipeline;
mod scored;
mod split;
mod turns;

use super::{
    Balancer, Decision, Exact, Fleet, Guard, Margins, Pipeline, Request, Strategy, TargetInfo,
};
use crate::affinity::Limits;
use crate::memory::Memory;
use crate::prompt::Prompt;
use crate::target::{TargetId, TargetSet};
use crate::time::Millis;
use fastrand::Rng;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

const LIMITS: Limits = Limits {
    max_nodes: 1_000_000,
    max_memory: 1 << 30,
};
const NOW: Millis = Millis(1_000_000);
/// Bytes of text in one KV block: 16 tokens of four bytes.
const BLOCK_BYTES: usize = 64;
const DECISIONS: u32 = 300;
const MARGINS: Margins = Margins {
    threshold: 0.5,
    miss_weight: 4.0,
    guard: Guard {
        balance_abs: 2,
        balance_rel: 1.5,
    },
};
const CACHE_AWARE: Strategy = Strategy::CacheAware { margins: MARGINS };

fn strategies() -> [Strategy; 10] {
    [
        CACHE_AWARE,
        Strategy::PreciseCacheAware(Exact::default()),
        Strategy::LmcacheAware {
            guard: Guard::default(),
        },
        Strategy::LeastLoad,
        Strategy::RoundRobin,
        Strategy::Random,
        Strategy::PowerOfTwo,
        Strategy::Weighted,
        Strategy::ConsistentHash,
        Strategy::Pipeline(Pipeline::default()),
    ]
}

/// Text of so many KV blocks, different for each name.
fn text(name: &str, blocks: usize) -> String {
    name.repeat(BLOCK_BYTES * blocks)
        .chars()
        .take(BLOCK_BYTES * blocks)
        .collect()
}

fn prompt(text: &str) -> Prompt<'static> {
    Prompt {
        text: text.into(),
        len: text.len() as u64,
        digest: 0,
        model: Some(Cow::Borrowed("m")),
        cache_salt: None,
        stream: false,
        token_ids: None,
        dialect: None,
    }
}

const NO_PROMPT: Request<'_> = Request {
    prompt: None,
    session: None,
    now: NOW,
};

fn asking<'a>(prompt: &'a Prompt<'a>) -> Request<'a> {
    Request {
        prompt: Some(prompt),
        ..NO_PROMPT
    }
}

/// Targets with these numbers, all of the same weight.
fn infos(ids: impl IntoIterator<Item = u16>) -> Vec<TargetInfo> {
    let info = |id: u16| TargetInfo {
        id: TargetId(id),
        seed: xxhash_rust::xxh3::xxh3_64(&id.to_le_bytes()),
        weight: 1,
    };
    ids.into_iter().map(info).collect()
}

/// Targets with these weights.
fn weighted(weights: &[u32]) -> Vec<TargetInfo> {
    let mut infos = infos((0..).take(weights.len()));
    for (info, &weight) in infos.iter_mut().zip(weights) {
        info.weight = weight;
    }
    infos
}

/// A memory in which the targets have been given these texts.
fn memory(given: &[(u16, &str)]) -> Rc<RefCell<Memory>> {
    let mut memory = Memory::new(LIMITS);
    for (target, text) in given {
        memory
            .tree
            .learn(b"m", text.as_bytes(), TargetId(*target), Millis(0));
    }
    Rc::new(RefCell::new(memory))
}

fn balancer(strategy: Strategy, targets: &[TargetInfo], given: &[(u16, &str)]) -> Balancer {
    Balancer::new(strategy, targets, memory(given), &mut Rng::with_seed(5))
}

/// As many targets as there are loads.
fn fleet(load: &[u32]) -> Fleet<'_> {
    let targets = TargetSet::first(load.len());
    Fleet {
        targets,
        eligible: targets,
        load: Some(load),
        pending: None,
        scores: None,
    }
}

fn without(fleet: Fleet<'_>, target: u16) -> Fleet<'_> {
    let mut eligible = fleet.eligible;
    eligible.remove(TargetId(target));
    Fleet { eligible, ..fleet }
}

fn decide(
    balancer: &mut Balancer,
    fleet: &Fleet<'_>,
    request: &Request<'_>,
    rng: &mut Rng,
) -> Option<Decision> {
    balancer.decide(fleet, request, 0, rng, |_| true)
}

/// What is decided for a request. The state is made anew each time, so decisions are independent,
/// and their number by target and reason is returned.
fn decisions(
    mut balancer: impl FnMut() -> Balancer,
    fleet: &Fleet<'_>,
    request: &Request<'_>,
) -> BTreeMap<(u16, &'static str), u32> {
    let mut decisions = BTreeMap::new();
    let mut rng = Rng::with_seed(7);
    for _ in 0..DECISIONS {
        let decision = decide(&mut balancer(), fleet, request, &mut rng).unwrap();
        *decisions
            .entry((decision.target.0, decision.reason.as_str()))
            .or_default() += 1;
    }
    decisions
}

/// The one decision that is made every time.
fn the_decision(
    balancer: impl FnMut() -> Balancer,
    fleet: &Fleet<'_>,
    request: &Request<'_>,
) -> (u16, &'static str) {
    let decisions = decisions(balancer, fleet, request);
    assert_eq!(decisions.len(), 1, "{decisions:?}");
    *decisions.keys().next().unwrap()
}
