//! `peers scale`: what a decision costs as fleets grow, what a worker remembers, and what it is good
//! for.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts of a simulation, to be read by people"
)]

use super::asked::{Asked, tokens};
use super::gateway::{Filters, Shape};
use super::play::play;
use super::strategy::{Contender, Kind as Routed};
use crate::results::{Scale, ScaleRow};
use crate::workload::{self, Kind, Settings, Workload};
use fastrand::Rng;
use rolter_core::prompt::{Dialect, Prompt};
use std::path::PathBuf;
use std::time::Duration;

/// Decisions of one VM that are timed, after as many that are not.
const DECISIONS: usize = 1_000;

/// Times decisions as fleets grow, and simulates what they come to.
#[derive(clap::Args)]
pub(crate) struct Cost {
    /// Targets of the route.
    #[arg(long, default_values_t = [8, 64, 512], value_delimiter = ',')]
    targets: Vec<usize>,
    /// A strategy of the filter; three of them where none is named.
    #[arg(long, default_values_t = ["cache_aware", "pipeline", "precise_cache_aware"].map(String::from))]
    strategy: Vec<String>,
    /// Gateways, each of which gets its part of the requests.
    #[arg(long, default_value_t = 4)]
    gateways: usize,
    /// Workers of each gateway.
    #[arg(long, default_value_t = 16)]
    workers: usize,
    /// For how long requests come.
    #[arg(long, default_value_t = 20.0)]
    seconds: f64,
    /// Where to leave the figures.
    #[arg(long, default_value = "target/peers")]
    out: PathBuf,
}

/// Runs the command.
pub(crate) fn cost(options: &Cost) -> Result<(), String> {
    let mut scale = Scale { rows: Vec::new() };
    println!(
        "{:<24} {:>8} {:>12} {:>11} {:>12} {:>8}",
        "", "targets", "a decision", "host calls", "a worker", "hits"
    );
    for strategy in &options.strategy {
        let contender = Contender::parse(strategy, &[])?;
        for &targets in &options.targets {
            let row = row(options, &contender, targets)?;
            println!(
                "{:<24} {:>8} {:>9.2} µs {:>11.1} {:>9.1} MB {:>7.1}%",
                row.strategy,
                row.targets,
                row.decision_nanos / 1e3,
                row.host_calls,
                row.memory_bytes as f64 / 1e6,
                100.0 * row.hit_rate
            );
            scale.rows.push(row);
            crate::results::write(&options.out, "scale", &scale)?;
        }
    }
    Ok(())
}

fn row(options: &Cost, contender: &Contender, targets: usize) -> Result<ScaleRow, String> {
    let Routed::Filter(filter) = &contender.kind else {
        return Err(format!("{} is no strategy of the filter", contender.name));
    };
    let settings = Settings::of(Kind::SharedPrefix);
    let duration = Duration::try_from_secs_f64(options.seconds);
    let duration = duration.map_err(|error| error.to_string())?;
    let mut play_of = settings.play(targets, duration, 1);
    let timed = (2 * DECISIONS * options.workers) as f64 / play_of.requests_per_sec;
    play_of.duration += Duration::from_secs_f64(timed);
    let mut workload = workload::generate(Kind::SharedPrefix, &play_of);
    let later = workload.requests.partition_point(|r| r.at < duration);
    let later = Workload {
        name: workload.name,
        requests: workload.requests.split_off(later),
    };
    let asked = Asked::all(&workload, settings.block_tokens);
    let shape = Shape {
        engines: targets,
        gateways: options.gateways,
        workers: options.workers,
        reports: false,
    };
    let mut filters = Filters::new(filter, &shape, Rng::with_seed(1));
    let figures = play(&workload, &asked, targets, &settings, &mut filters);
    let memory_bytes = filters.memory_of_one();
    let (decision_nanos, host_calls) = decisions(&mut filters, &later, options);
    Ok(ScaleRow {
        strategy: contender.name.clone(),
        targets,
        workers: options.workers,
        gateways: options.gateways,
        memory_bytes,
        decision_nanos,
        host_calls,
        hit_rate: figures.hit_rate(),
    })
}

/// The median of many decisions of one VM, in nanoseconds and in calls of its host. Its neighbours
/// have the requests between them, so that what there is to learn, to hear and to count is what it would
/// be.
fn decisions(filters: &mut Filters, workload: &Workload, options: &Cost) -> (f64, f64) {
    let (mut nanos, mut calls) = (Vec::new(), Vec::new());
    let gateways = options.gateways as f64;
    for (number, request) in workload.requests.iter().enumerate() {
        let body = request.body();
        let prompt = Prompt::read_as(Some(Dialect::Chat), body.as_bytes());
        let tokens = tokens(request);
        // The other gateways have the rest of the requests.
        let since = request.at.as_secs_f64() - options.seconds;
        let now = Duration::from_secs_f64(options.seconds + gateways * since.max(0.0));
        let timed = filters.time(number, &prompt, &tokens, now);
        if number % options.workers == 0 && number >= workload.requests.len() / 2 {
            nanos.push(timed.took.as_secs_f64() * 1e9);
            calls.push(timed.host_calls as f64);
        }
    }
    (median(nanos), median(calls))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}
