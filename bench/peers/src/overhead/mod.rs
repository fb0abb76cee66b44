//! What a gateway costs: the rate, the latency and the processor time of each, alone on a core,
//! before upstreams that take no time. Client and upstreams share another core, and the same run says
//! how busy that was.
//!
//! Gateways of a round take turns under each load, so that what else the machine does strikes all. Those
//! that wait have next to nothing to do.

mod bodies;
mod client;
mod http;
mod upstream;

use crate::gateway::process::{Usage, cores, pin};
use crate::gateway::{Contender, Gateway, Strategy, Upstream as Target};
use crate::results::{Overhead, OverheadRound, OverheadRow, percentile, write};
use client::{Client, Tally};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::task::LocalSet;
use tokio::time::sleep;
use upstream::Upstream;

/// The upstreams that a gateway chooses from.
const UPSTREAMS: usize = 4;
/// The model that they have.
const MODEL: &str = "m";
const SIZES: [usize; 4] = [512, 4 << 10, 32 << 10, 256 << 10];
const CONNECTIONS: [usize; 3] = [1, 16, 64];
/// What `--quick` measures alone.
const QUICK: (usize, usize) = (4 << 10, 16);
/// What client and upstreams do without a gateway between them is called.
const ALONE: &str = "no gateway";
/// The gateways that are measured where none is named.
const GATEWAYS: [Contender; 6] = [
    Contender::PlainEnvoy,
    Contender::Floor,
    Contender::Rolter(Strategy::CacheAware),
    Contender::Rolter(Strategy::Pipeline),
    Contender::Sglang,
    Contender::Vllm,
];

/// What to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often, each time with fresh gateways
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where results are left
    #[arg(long, default_value = "target/peers")]
    out: PathBuf,
    /// A body of 4 KiB over 16 connections alone
    #[arg(long)]
    quick: bool,
    /// This one alone, by its name in the results; may be repeated
    #[arg(long = "gateway", value_name = "NAME")]
    gateways: Vec<Contender>,
    /// The core of client and upstreams; the first by default
    #[arg(long, value_name = "CORE")]
    client_core: Option<usize>,
    /// The core of the gateway; the last by default
    #[arg(long, value_name = "CORE")]
    gateway_core: Option<usize>,
    /// How long a gateway is under load before it is measured
    #[arg(long, default_value_t = 1_000, value_name = "MILLIS")]
    warm_up: u64,
    /// How long it is measured
    #[arg(long, default_value_t = 2_500, value_name = "MILLIS")]
    window: u64,
}

/// One load.
struct Load {
    body_bytes: usize,
    connections: usize,
    requests: Rc<Vec<Vec<u8>>>,
}

/// Measures all of it, and leaves `overhead.json`.
pub(crate) fn run(options: &Options) -> io::Result<()> {
    let cores = cores()?;
    let [first, last] = [cores.first(), cores.last()].map(|core| core.copied().unwrap_or(0));
    pin(&[options.client_core.unwrap_or(first)])?;
    let gateway_core = options.gateway_core.unwrap_or(last);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    LocalSet::new().block_on(&runtime, measure(options, gateway_core))
}

async fn measure(options: &Options, gateway_core: usize) -> io::Result<()> {
    let loads = loads(options.quick);
    let named = (!options.gateways.is_empty()).then_some(&*options.gateways);
    let gateways = named.unwrap_or(&GATEWAYS);
    let mut overhead = Overhead {
        alone: Vec::new(),
        rows: Vec::new(),
    };
    let mut failed = 0;

    let upstreams = start_upstreams().await?;
    for load in &loads {
        let round = play(upstreams[0].addr(), load, options, || Ok(Usage::default())).await?;
        println!("{}", line(ALONE, load, &round.0));
        row(&mut overhead.alone, ALONE, load).rounds.push(round.0);
    }
    let targets: Vec<Target> = upstreams.iter().enumerate().map(target).collect();
    for round in 1..=options.rounds {
        println!("round {round} of {}", options.rounds);
        let mut started = Vec::new();
        for contender in gateways {
            let gateway = Gateway::start(*contender, &targets, MODEL, &[gateway_core]).await?;
            started.push((contender.name(), gateway));
        }
        for load in &loads {
            for (name, gateway) in &started {
                let played = play(gateway.addr(), load, options, || gateway.usage()).await;
                gateway.forget_log()?;
                let (round, failure) = played?;
                println!("{}", line(name, load, &round));
                if let Some(failure) = failure {
                    println!("  {} failures: {failure}", round.failures);
                    failed += round.failures;
                }
                row(&mut overhead.rows, name, load).rounds.push(round);
            }
        }
        write(&options.out, "overhead", &overhead).map_err(io::Error::other)?;
    }
    if failed > 0 {
        return Err(io::Error::other(format!("{failed} requests failed")));
    }
    Ok(())
}

fn loads(quick: bool) -> Vec<Load> {
    let mut loads = Vec::new();
    for body_bytes in SIZES {
        let wanted = CONNECTIONS
            .into_iter()
            .filter(|connections| !quick || (body_bytes, *connections) == QUICK);
        let wanted: Vec<usize> = wanted.collect();
        if wanted.is_empty() {
            continue;
        }
        let requests = Rc::new(bodies::requests(body_bytes));
        loads.extend(wanted.into_iter().map(|connections| Load {
            body_bytes,
            connections,
            requests: Rc::clone(&requests),
        }));
    }
    loads
}

async fn start_upstreams() -> io::Result<Vec<Upstream>> {
    let mut upstreams = Vec::new();
    for _ in 0..UPSTREAMS {
        upstreams.push(Upstream::start().await?);
    }
    Ok(upstreams)
}

fn target((place, upstream): (usize, &Upstream)) -> Target {
    Target {
        name: format!("upstream-{place}"),
        addr: upstream.addr(),
        kv_events: None,
    }
}

/// One load, warm-up and window; and what was wrong first, if something was, in the warm-up or later.
async fn play(
    addr: SocketAddr,
    load: &Load,
    options: &Options,
    usage: impl Fn() -> io::Result<Usage>,
) -> io::Result<(OverheadRound, Option<String>)> {
    let client = Client::start(addr, load.connections, &load.requests);
    sleep(Duration::from_millis(options.warm_up)).await;
    let before = client.take();
    let (start, own, used) = (Instant::now(), Usage::own()?, usage()?);
    sleep(Duration::from_millis(options.window)).await;
    let tally = client.take();
    let (elapsed, own, after) = (start.elapsed(), Usage::own()? - own, usage()?);
    client.stop().await;
    let failure = before.failure.or(tally.failure.clone());
    let mut round = summary(tally, elapsed, own, after - used);
    round.failures += before.failures;
    round.memory_bytes = after.memory_bytes;
    Ok((round, failure))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "there are not that many requests"
)]
fn summary(tally: Tally, elapsed: Duration, own: Duration, gateway: Duration) -> OverheadRound {
    let mut latencies = tally.latencies;
    latencies.sort_unstable();
    let micros = |percent| percentile(&latencies, percent).as_secs_f64() * 1e6;
    let requests = latencies.len() as f64;
    OverheadRound {
        requests_per_sec: requests / elapsed.as_secs_f64(),
        failures: tally.failures,
        p50_micros: micros(50),
        p99_micros: micros(99),
        cpu_secs_per_1000: gateway.as_secs_f64() / requests.max(1.0) * 1_000.0,
        memory_bytes: 0,
        harness_busy: own.as_secs_f64() / elapsed.as_secs_f64(),
    }
}

fn row<'a>(rows: &'a mut Vec<OverheadRow>, name: &str, load: &Load) -> &'a mut OverheadRow {
    let (body_bytes, connections) = (load.body_bytes, load.connections);
    let is_it = |row: &OverheadRow| {
        row.gateway == name && row.body_bytes == body_bytes && row.connections == connections
    };
    let place = rows.iter().position(is_it);
    let place = place.unwrap_or_else(|| {
        rows.push(OverheadRow {
            gateway: name.to_owned(),
            body_bytes,
            connections,
            rounds: Vec::new(),
        });
        rows.len() - 1
    });
    &mut rows[place]
}

fn line(name: &str, load: &Load, round: &OverheadRound) -> String {
    let memory = round.memory_bytes >> 20;
    format!(
        "{name:<26} {:>6} bytes {:>3} connections {:>7.0}/s  p50 {:>7.0} µs  p99 {:>7.0} µs  \
         {:>5.0} µs of processor  {memory:>4} MiB  client and upstream busy {:>3.0} %",
        load.body_bytes,
        load.connections,
        round.requests_per_sec,
        round.p50_micros,
        round.p99_micros,
        round.cpu_secs_per_1000 * 1e3,
        round.harness_busy * 100.0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::read;

    #[test]
    fn plain_envoy_is_measured_before_the_instant_upstreams() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().to_owned();
        let options = Options {
            rounds: 2,
            out: out.clone(),
            quick: true,
            gateways: vec![Contender::PlainEnvoy],
            client_core: None,
            gateway_core: None,
            warm_up: 50,
            window: 500,
        };
        std::thread::spawn(move || run(&options))
            .join()
            .unwrap()
            .unwrap();
        let overhead: Overhead = read(&out, "overhead").unwrap().unwrap();
        assert_eq!(overhead.rows.len(), 1);
        let rounds = &overhead.rows[0].rounds;
        assert_eq!(rounds.len(), 2);
        for round in rounds {
            assert!(
                round.requests_per_sec > 0.0 && round.memory_bytes > 0,
                "{round:?}"
            );
            assert!(
                0.0 < round.p50_micros && round.p50_micros <= round.p99_micros,
                "{round:?}"
            );
            assert!(
                round.cpu_secs_per_1000 > 0.0 && round.failures == 0,
                "{round:?}"
            );
        }
    }
}
