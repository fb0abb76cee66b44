//! Finding who has a prompt and noting who is given it, over eight targets.
//!
//! Cold: the prompts go into an empty tree one after the other, so each finds the head that it
//! shares with the others and adds its tail. Warm: each is there already and goes to the target
//! that has it. Both are the best case of `kv-index`: ASCII, one call, the target known beforehand.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use kv_index::StringTree;
use rolter_balancer::trie::Trie;
use rolter_bench::prompts::sharing_a_head;
use rolter_bench::verdict::{Amount, Comparison, Estimates};
use rolter_core::affinity::{Limits, Tree};
use rolter_core::target::TargetId;
use rolter_core::time::Millis;
use std::time::Duration;

pub(crate) const TARGETS: u16 = 8;
const PROMPTS: usize = 256;
/// A byte trie takes milliseconds and tens of megabytes a prompt, so it gets few.
const TRIE_PROMPTS: usize = 16;
const SIZES: [usize; 3] = [1, 8, 32];

/// The limits that a route has by default.
pub(crate) const LIMITS: Limits = Limits {
    max_nodes: 1_000_000,
    max_memory: 64 << 20,
};

/// A structure that learns which of [`TARGETS`] targets has which prompts.
pub(crate) trait Index {
    const NAME: &'static str;
    const PROMPTS: usize = PROMPTS;

    fn empty() -> Self;
    /// Looks a prompt up, then notes that it was given to a target.
    fn match_and_insert(&mut self, prompt: &str, target: u16) -> usize;

    fn filled(prompts: &[String]) -> Self
    where
        Self: Sized,
    {
        let mut index = Self::empty();
        index.take_all(prompts);
        index
    }

    fn take_all(&mut self, prompts: &[String]) -> usize {
        let targets = (0..TARGETS).cycle();
        let both = prompts.iter().zip(targets);
        both.map(|(prompt, target)| self.match_and_insert(prompt, target))
            .sum()
    }
}

pub(crate) struct Ours(pub(crate) Tree);

impl Index for Ours {
    const NAME: &'static str = "ours";

    fn empty() -> Self {
        Self(Tree::new(LIMITS))
    }

    fn match_and_insert(&mut self, prompt: &str, target: u16) -> usize {
        let (model, prompt) = (b"meta-llama/Llama-3.1-8B-Instruct", prompt.as_bytes());
        let found = self.0.find(model, prompt);
        let target = TargetId(target);
        self.0.observe(model, prompt, target, &found, Millis(0));
        (0..TARGETS)
            .map(|target| found.len(TargetId(target)))
            .max()
            .unwrap_or(0)
    }
}

struct KvIndex {
    tree: StringTree,
    names: Vec<String>,
}

impl Index for KvIndex {
    const NAME: &'static str = "kv-index";

    fn empty() -> Self {
        let name = |target| format!("http://worker-{target:03}.inference.svc.cluster.local:8000");
        Self {
            tree: StringTree::new(),
            names: (0..TARGETS).map(name).collect(),
        }
    }

    fn match_and_insert(&mut self, prompt: &str, target: u16) -> usize {
        let name = &self.names[usize::from(target)];
        self.tree.match_and_insert(prompt, name).matched_char_count
    }
}

pub(crate) struct Tries(Vec<Trie>);

impl Index for Tries {
    const NAME: &'static str = "rolter-balancer";
    const PROMPTS: usize = TRIE_PROMPTS;

    fn empty() -> Self {
        let trie = |_| Trie::with_capacity(LIMITS.max_nodes);
        Self((0..TARGETS).map(trie).collect())
    }

    fn match_and_insert(&mut self, prompt: &str, target: u16) -> usize {
        let matched = self.0.iter().map(|trie| trie.longest_prefix(prompt));
        let best = matched.max().unwrap_or(0);
        self.0[usize::from(target)].insert(prompt);
        best
    }
}

pub(crate) fn bench(criterion: &mut Criterion) {
    for kib in SIZES {
        let prompts = sharing_a_head(PROMPTS, kib * 1024);
        bench_index::<Ours>(criterion, kib, &prompts);
        bench_index::<KvIndex>(criterion, kib, &prompts);
        bench_index::<Tries>(criterion, kib, &prompts);
    }
}

fn bench_index<I: Index>(criterion: &mut Criterion, kib: usize, prompts: &[String]) {
    let prompts = &prompts[..I::PROMPTS];
    let size = format!("{kib}KiB");
    let mut group = criterion.benchmark_group("tree");
    group.throughput(Throughput::Elements(prompts.len() as u64));
    if I::PROMPTS < PROMPTS {
        group.sample_size(10);
        group.warm_up_time(Duration::from_millis(50));
        group.measurement_time(Duration::from_millis(500));
    }
    group.bench_function(BenchmarkId::new(format!("{} cold", I::NAME), &size), |b| {
        b.iter_batched(
            I::empty,
            |mut index| {
                index.take_all(prompts);
                // Dropped by criterion, which does not time that.
                index
            },
            BatchSize::PerIteration,
        );
    });
    let mut full = None;
    group.bench_function(BenchmarkId::new(format!("{} warm", I::NAME), &size), |b| {
        let index = full.get_or_insert_with(|| I::filled(prompts));
        b.iter(|| index.take_all(prompts));
    });
    group.finish();
}

pub(crate) fn compare(estimates: &Estimates) -> Vec<Comparison> {
    let mut comparisons = Vec::new();
    for kib in SIZES {
        for warmth in ["cold", "warm"] {
            let at_most = (kib == 32).then_some(1.0 / 3.0);
            comparisons.push(versus::<KvIndex>(estimates, kib, warmth, at_most));
            comparisons.push(versus::<Tries>(estimates, kib, warmth, None));
        }
    }
    comparisons
}

fn versus<I: Index>(
    estimates: &Estimates,
    kib: usize,
    warmth: &str,
    at_most: Option<f64>,
) -> Comparison {
    Comparison {
        what: format!("match and insert {kib} KiB {warmth}, against {}", I::NAME),
        ours: median::<Ours>(estimates, kib, warmth),
        theirs: median::<I>(estimates, kib, warmth),
        at_most,
    }
}

fn median<I: Index>(estimates: &Estimates, kib: usize, warmth: &str) -> Option<Amount> {
    estimates.median(&format!("tree/{} {warmth}/{kib}KiB", I::NAME), I::PROMPTS)
}
