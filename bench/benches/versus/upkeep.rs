//! What happens beside finding a prompt: picks, evictions, and targets that go.

use crate::tree::{Index, LIMITS, Ours, TARGETS};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use fastrand::Rng;
use rolter_bench::prompts::sharing_a_head;
use rolter_core::affinity::{Limits, Tree};
use rolter_core::balance::{Balancer, Fleet, Margins, Request, Strategy, TargetInfo};
use rolter_core::memory::Memory;
use rolter_core::prompt::Prompt;
use rolter_core::target::{TargetId, TargetSet};
use rolter_core::time::Millis;
use std::cell::RefCell;
use std::rc::Rc;

pub(crate) fn bench(criterion: &mut Criterion) {
    forget(criterion);
    evict(criterion);
    pick(criterion);
}

/// A target that holds a million bytes is forgotten: alone, so that its nodes go, and among others
/// that hold the same, so that they stay.
fn forget(criterion: &mut Criterion) {
    const BYTES: usize = 8 << 10;
    let prompts = sharing_a_head(2 * 1_000_000 / BYTES, BYTES);
    let mut group = criterion.benchmark_group("forget 1 MB");
    for holders in [1, TARGETS] {
        let filled = || {
            let mut index = Ours::empty();
            for prompt in &prompts {
                for target in 0..holders {
                    index.match_and_insert(prompt, target);
                }
            }
            index.0
        };
        assert!(filled().held(TargetId(0)) > 990_000);
        group.bench_function(BenchmarkId::new("holders", holders), |bencher| {
            bencher.iter_batched_ref(
                filled,
                |tree| tree.forget(TargetId(0)),
                BatchSize::PerIteration,
            );
        });
    }
    group.finish();
}

/// Prompts that come round only after they were evicted, in a tree that is full: each of them
/// makes another one go.
fn evict(criterion: &mut Criterion) {
    const BYTES: usize = 4 << 10;
    let prompts = sharing_a_head(2 * LIMITS.max_nodes / BYTES, BYTES);
    let limits = Limits {
        max_nodes: LIMITS.max_nodes / 2,
        ..LIMITS
    };
    let mut full = Ours(Tree::new(limits));
    let mut take_all = || {
        for prompt in &prompts {
            full.match_and_insert(prompt, 0);
        }
        full.0.usage().evictions
    };
    let evicted = take_all();
    assert_eq!(take_all() - evicted, prompts.len() as u64);
    let mut group = criterion.benchmark_group("evict");
    group.throughput(Throughput::Elements(prompts.len() as u64));
    group.bench_function("4KiB", |bencher| bencher.iter(&mut take_all));
    group.finish();
}

/// A whole decision about a prompt of 4 KiB that some target has.
fn pick(criterion: &mut Criterion) {
    let bodies = sharing_a_head(256, 4 << 10);
    // A body that is no JSON is its own text.
    let prompts: Vec<Prompt<'_>> = bodies
        .iter()
        .map(|body| Prompt::read(b"/", body.as_bytes()))
        .collect();
    let mut group = criterion.benchmark_group("pick");
    group.throughput(Throughput::Elements(prompts.len() as u64));
    for targets in [usize::from(TARGETS), 64] {
        let load: Vec<u32> = (0..).take(targets).map(|target| target % 4).collect();
        let fleet = Fleet {
            targets: TargetSet::first(targets),
            eligible: TargetSet::first(targets),
            load: Some(&load),
            pending: None,
            scores: None,
        };
        let infos: Vec<TargetInfo> = (fleet.targets.iter())
            .map(|id| TargetInfo {
                id,
                seed: 0,
                weight: 1,
            })
            .collect();
        let strategy = Strategy::CacheAware {
            margins: Margins::default(),
        };
        let memory = Rc::new(RefCell::new(Memory::new(LIMITS)));
        let mut rng = Rng::with_seed(64);
        let balancer = RefCell::new(Balancer::new(strategy, &infos, memory, &mut rng));
        group.bench_function(BenchmarkId::new("targets", targets), |bencher| {
            bencher.iter(|| {
                let balancer = &mut *balancer.borrow_mut();
                for prompt in &prompts {
                    let request = Request {
                        prompt: Some(prompt),
                        session: None,
                        now: Millis(0),
                    };
                    balancer.decide(&fleet, &request, 0, &mut rng, |_| true);
                }
            });
        });
    }
    group.finish();
}
