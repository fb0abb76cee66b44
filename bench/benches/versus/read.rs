//! Reading a body, against parsing it into a tree of values as most proxies do.

use criterion::{BenchmarkId, Criterion, Throughput};
use rolter_bench::bodies;
use rolter_bench::verdict::{Comparison, Estimates};
use rolter_core::prompt::Prompt;
use serde_json::Value;
use std::hint::black_box;

pub(crate) fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    for body in bodies::all() {
        let json = body.json.as_bytes();
        let prompt = Prompt::read(body.path.as_bytes(), json);
        assert!(prompt.dialect.is_some(), "{} was not read", body.shape);
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_function(BenchmarkId::new("ours", body.shape), |bencher| {
            bencher.iter(|| Prompt::read(body.path.as_bytes(), black_box(json)));
        });
        group.bench_function(BenchmarkId::new("serde_json", body.shape), |bencher| {
            bencher.iter(|| serde_json::from_slice::<Value>(black_box(json)));
        });
    }
    group.finish();
}

pub(crate) fn compare(estimates: &Estimates) -> Vec<Comparison> {
    bodies::all()
        .into_iter()
        .map(|body| Comparison {
            what: format!("read 30 KB, {}, against Value", body.shape),
            ours: estimates.median(&format!("read/ours/{}", body.shape), 1),
            theirs: estimates.median(&format!("read/serde_json/{}", body.shape), 1),
            at_most: Some(1.0 / 2.0),
        })
        .collect()
}
