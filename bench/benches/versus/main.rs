//! Ours against what others offer for the same, and at the end the ratios that are wanted of it.
//!
//! `cargo bench -p rolter-bench` runs all of it; a word after `--` picks benches by name. Peers run
//! beside ours in one process, because a time from another run is a time from another machine.

mod memory;
mod read;
mod tree;
mod upkeep;

use criterion::Criterion;
use rolter_bench::counting::Counting;
use rolter_bench::verdict::{self, Estimates};
use std::hint::black_box;
use std::time::Duration;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let estimates = Estimates::from_now(env!("CARGO_TARGET_TMPDIR"));
    let _pin = pin_a_warm_heap();
    let mut criterion = Criterion::default()
        .sample_size(30)
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_millis(1_500))
        .configure_from_args();
    read::bench(&mut criterion);
    tree::bench(&mut criterion);
    upkeep::bench(&mut criterion);
    criterion.final_summary();

    let mut comparisons = read::compare(&estimates);
    comparisons.extend(tree::compare(&estimates));
    comparisons.extend(memory::compare());
    verdict::print(&comparisons);
}

/// Frees some megabytes that the allocator then keeps, because something is left on top of them:
/// the heap of a process that has run for a while. Without it some benches would time the kernel
/// handing out pages, and others, by luck of the layout, would not.
fn pin_a_warm_heap() -> Vec<u8> {
    const CHUNK: usize = 64 << 10;
    let chunks: Vec<Vec<u8>> = (0..512).map(|_| vec![1; CHUNK]).collect();
    let pin = vec![1; CHUNK];
    drop(black_box(chunks));
    black_box(pin)
}
