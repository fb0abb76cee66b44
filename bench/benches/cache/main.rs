//! What it takes to compare a text with those that there are answers to, once their vectors are in
//! memory.
//!
//! `cargo bench -p rolter-bench --bench cache` runs it on one core.

use criterion::Criterion;
use fastrand::Rng;
use rolter_bench::verdict::{self, Amount, Comparison, Estimates};
use rolter_core::cache::nearest::nearest;
use rolter_core::cache::vector::Vector;
use std::hint::black_box;
use std::time::Duration;

/// As many as there are by default.
const CANDIDATES: usize = 256;
/// That of `text-embedding-3-small`.
const DIMENSION: usize = 1_536;
const THRESHOLD: f64 = 0.92;
const TRIES: usize = 3;

/// What a scan may take, in microseconds.
const WANTED: f64 = 1_000.0;

fn main() {
    let estimates = Estimates::from_now(env!("CARGO_TARGET_TMPDIR"));
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_millis(1_500))
        .configure_from_args();
    let mut rng = Rng::with_seed(1);
    let asked = vector(&mut rng);
    let candidates: Vec<Vector> = (0..CANDIDATES).map(|_| vector(&mut rng)).collect();
    let mut group = criterion.benchmark_group("cache");
    group.bench_function("scan", |bencher| {
        bencher.iter(|| {
            let candidates = black_box(&candidates).iter().enumerate();
            black_box(nearest(&asked, candidates, THRESHOLD, TRIES))
        });
    });
    group.finish();
    criterion.final_summary();

    verdict::print(&[Comparison {
        what: format!("{CANDIDATES} texts of {DIMENSION} numbers, beside what is wanted"),
        ours: estimates.median("cache/scan", 1),
        theirs: Some(Amount::Microseconds(WANTED)),
        at_most: Some(1.0),
    }]);
}

/// In any direction.
fn vector(rng: &mut Rng) -> Vector {
    let numbers = (0..DIMENSION).map(|_| rng.f32() - 0.5).collect();
    Vector::new(numbers).unwrap_or_else(|| panic!("it has a direction"))
}
