//! `peers simulate`: what routers come to, on the same workload, in seconds.

use super::asked::Asked;
use super::figures::Figures;
use super::gateway::{Filters, Shape};
use super::peer::{CacheAware, KvAware, Oracle};
use super::play::{Router, play};
use super::strategy::{self, Contender};
use crate::workload::{self, Kind, Settings, Workload};
use fastrand::Rng;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Compares routers on the same requests, without sockets and in virtual time.
#[derive(clap::Args)]
pub(crate) struct Simulate {
    /// What is asked; all that need no file, where none is named.
    #[arg(long, value_enum)]
    workload: Vec<Kind>,
    /// Engines of the fleet.
    #[arg(long, default_values_t = [4, 16], value_delimiter = ',')]
    engines: Vec<usize>,
    /// Who routes: a strategy of the filter, `oracle`, `sglang` or `kv_aware`; with options of its own
    /// as NAME:KEY=VALUE,KEY=VALUE. All where none is named.
    #[arg(long)]
    strategy: Vec<String>,
    /// An option for all of the filter's strategies that have it, as KEY=VALUE.
    #[arg(long)]
    set: Vec<String>,
    /// Gateways, each of which gets its part of the requests.
    #[arg(long, default_value_t = 1)]
    gateways: usize,
    /// Workers of each gateway.
    #[arg(long, default_value_t = 2)]
    workers: usize,
    /// Lets gateways hear from engines every second how many requests they have.
    #[arg(long)]
    reports: bool,
    /// A trace in Mooncake's format, for the workload of that name.
    #[arg(long)]
    trace: Option<PathBuf>,
    /// For how long requests come.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// How many requests come, as a multiple of what is usual.
    #[arg(long, default_value_t = 1.0)]
    load: f64,
    /// Blocks of an engine's cache, as a multiple of what is usual.
    #[arg(long, default_value_t = 1.0)]
    cache: f64,
    /// Plays of each, with other requests.
    #[arg(long, default_value_t = 1)]
    rounds: u64,
    /// The first play's requests.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Runs the command.
pub(crate) fn simulate(options: &Simulate) -> Result<(), String> {
    let strategies: Vec<&str> = match options.strategy.as_slice() {
        [] => strategy::ALL.to_vec(),
        given => given.iter().map(String::as_str).collect(),
    };
    let contenders = strategies.iter();
    let contenders = contenders.map(|text| Contender::parse(text, &options.set));
    let contenders: Vec<Contender> = contenders.collect::<Result<_, _>>()?;
    let kinds: Vec<Kind> = match options.workload.as_slice() {
        [] => {
            let trace = options.trace.as_ref().map(|_| Kind::Trace);
            Kind::GENERATED.into_iter().chain(trace).collect()
        }
        given => given.to_vec(),
    };
    for kind in kinds {
        for &engines in &options.engines {
            compare(options, kind, engines, &contenders)?;
        }
    }
    Ok(())
}

fn compare(
    options: &Simulate,
    kind: Kind,
    engines: usize,
    contenders: &[Contender],
) -> Result<(), String> {
    let settings = options.settings(kind);
    let mut all = vec![Figures::default(); contenders.len()];
    let mut remarks = vec![String::new(); contenders.len()];
    let mut took = vec![Duration::ZERO; contenders.len()];
    let mut requests = 0;
    for round in 0..options.rounds {
        let seed = options.seed + round;
        let workload = options.workload(kind, &settings, engines, seed)?;
        let asked = Asked::all(&workload, settings.block_tokens);
        requests += asked.len();
        let shape = options.shape(engines);
        for (place, contender) in contenders.iter().enumerate() {
            let start = Instant::now();
            let mut router = router(contender, &shape, &settings, Rng::with_seed(!seed));
            let figures = play(&workload, &asked, engines, &settings, &mut *router);
            all[place].add(figures);
            remarks[place] = router.remarks();
            took[place] += start.elapsed();
        }
    }
    println!(
        "\n{}, {engines} engines, {} gateways of {} workers, {requests} requests",
        kind.name(),
        options.gateways,
        options.workers,
    );
    println!(
        "{:<36} {:>6} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>6}",
        "", "hits", "mean ms", "p50", "p90", "p99", "spread", "busy", "took"
    );
    for (((contender, figures), remarks), took) in
        contenders.iter().zip(&all).zip(&remarks).zip(&took)
    {
        println!(
            "{:<36} {:>5.1}% {:>8.0} {:>8.0} {:>8.0} {:>8.0} {:>6.2} {:>5.0}% {:>5.1}s  {remarks}",
            contender.name,
            100.0 * figures.hit_rate(),
            figures.mean_ttft_ms(),
            figures.ttft_ms(0.5),
            figures.ttft_ms(0.9),
            figures.ttft_ms(0.99),
            figures.spread(),
            100.0 * figures.utilisation(),
            took.as_secs_f64(),
        );
    }
    Ok(())
}

impl Simulate {
    fn settings(&self, kind: Kind) -> Settings {
        let mut settings = Settings::of(kind);
        settings.requests_per_sec *= self.load;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "some thousand blocks"
        )]
        let blocks = (settings.kv_blocks as f64 * self.cache) as usize;
        settings.kv_blocks = blocks;
        settings
    }

    fn shape(&self, engines: usize) -> Shape {
        Shape {
            engines,
            gateways: self.gateways,
            workers: self.workers,
            reports: self.reports,
        }
    }

    fn workload(
        &self,
        kind: Kind,
        settings: &Settings,
        engines: usize,
        seed: u64,
    ) -> Result<Workload, String> {
        let duration =
            Duration::try_from_secs_f64(self.seconds).map_err(|error| error.to_string())?;
        let play = settings.play(engines, duration, seed);
        if kind != Kind::Trace {
            return Ok(workload::generate(kind, &play));
        }
        let path = self.trace.as_ref().ok_or("write --trace FILE")?;
        workload::read_trace(path, &play)
    }
}

/// A router with nothing learnt.
pub(crate) fn router(
    contender: &Contender,
    shape: &Shape,
    settings: &Settings,
    rng: Rng,
) -> Box<dyn Router> {
    let &Shape {
        engines, gateways, ..
    } = shape;
    match &contender.kind {
        strategy::Kind::Filter(filter) => Box::new(Filters::new(filter, shape, rng)),
        strategy::Kind::Oracle => Box::new(Oracle::new(rng)),
        strategy::Kind::CacheAware => Box::new(CacheAware::new(gateways, engines, rng)),
        strategy::Kind::KvAware => {
            Box::new(KvAware::new(gateways, engines, settings.block_tokens, rng))
        }
    }
}
