//! One part of the comparison: a fresh fleet under one strategy, all of the traffic, the figures.

use crate::client::{Asker, Failure, PATH};
use crate::traffic::Traffic;
use engine_sim::{Engine, EngineConfig};
use fleet::{Fleet, Setup};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

const ENGINES: usize = 4;
/// How long `precise_cache_aware` waits for token ids, which these clients do not send. In
/// production a few milliseconds are enough. Here clients, Envoy, sidecar and four engines share
/// what cores there are, and a request without token ids says nothing about the strategy.
const TOKENIZE_MILLIS: u64 = 1_000;
/// The longest that the traffic may take, once the fleet is ready.
const PATIENCE: Duration = Duration::from_mins(2);
/// How often the engines are asked how much they have to do.
const SAMPLING: Duration = Duration::from_millis(5);

/// How the filter chooses an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// Each in its turn.
    RoundRobin,
    /// The one that has the prompt's prefix, as far as can be told from what was sent where.
    CacheAware,
    /// The one that has the prompt's prefix, as the engines tell themselves.
    PreciseCacheAware,
}

impl Strategy {
    /// All that are compared, the one first that the others are held against.
    pub const ALL: [Self; 3] = [Self::RoundRobin, Self::CacheAware, Self::PreciseCacheAware];

    /// Its name in the filter's configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RoundRobin => "round_robin",
            Self::CacheAware => "cache_aware",
            Self::PreciseCacheAware => "precise_cache_aware",
        }
    }
}

/// How far a play is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The fleet is ready, after so long.
    Ready(Duration),
    /// So many requests are over, so long after the first.
    Over(usize, Duration),
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The strategy.
    pub strategy: Strategy,
    /// How many requests there were to make.
    pub requests: usize,
    /// Time to first token of each right answer, shortest first.
    pub first_tokens: Vec<Duration>,
    /// What went wrong, once for each request that did.
    pub failures: Vec<Failure>,
    /// The engines' own counts, in their order.
    pub engines: Vec<Work>,
    /// Decisions by reason, from Envoy's stats.
    pub decisions: BTreeMap<String, u64>,
}

/// What one engine had to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// The engine's name.
    pub name: String,
    /// Requests that it got.
    pub requests: u64,
    /// The most requests that it had at once, running or waiting.
    pub peak: usize,
    /// Prompt tokens that it looked up in its prefix cache.
    pub queried_tokens: u64,
    /// Those that it found.
    pub hit_tokens: u64,
}

impl Outcome {
    /// Whether every request got its right answer.
    pub fn is_right(&self) -> bool {
        self.failures.is_empty() && self.first_tokens.len() == self.requests
    }

    /// The share of all prompt tokens that the engines found in their caches.
    pub fn hit_rate(&self) -> f64 {
        let sum = |tokens: fn(&Work) -> u64| self.engines.iter().map(tokens).sum::<u64>();
        ratio(sum(|work| work.hit_tokens), sum(|work| work.queried_tokens))
    }

    /// The time to first token that so many per cent of the requests did not exceed; zero where
    /// none was answered.
    pub fn first_token(&self, percent: usize) -> Duration {
        percentile(&self.first_tokens, percent)
    }
}

/// The time that so many per cent of these, shortest first, did not exceed; zero where there is none.
pub(crate) fn percentile(times: &[Duration], percent: usize) -> Duration {
    let rank = (times.len() * percent).div_ceil(100);
    let time = times.get(rank.saturating_sub(1));
    time.copied().unwrap_or_default()
}

/// An engine of the demo: about an 8B model on one accelerator, with a cache that is small beside
/// what the traffic has in use, as caches are in production.
pub fn engine() -> EngineConfig {
    EngineConfig {
        kv_blocks: 1024,
        prefill_tokens_per_sec: 8_000.0,
        decode_time_per_token: Duration::from_millis(10),
        ..EngineConfig::default()
    }
}

/// The fleet of the demo under a strategy.
pub fn setup(strategy: Strategy, engine: &EngineConfig) -> Setup {
    let setup = Setup::of(ENGINES, engine)
        .with("/routes/0/strategy", strategy.as_str())
        .configure(move |config| {
            // The filter refuses options that have no effect.
            if strategy != Strategy::CacheAware
                && let Some(route) = config
                    .pointer_mut("/routes/0")
                    .and_then(Value::as_object_mut)
            {
                route.remove(Strategy::CacheAware.as_str());
            }
        });
    if strategy != Strategy::PreciseCacheAware {
        return setup;
    }
    let options = json!({"tokenize": true, "tokenize_timeout_ms": TOKENIZE_MILLIS});
    setup
        .watched()
        .with("/routes/0/precise_cache_aware", options)
}

/// Plays the traffic to a fresh fleet, behind an Envoy with so many workers. All of it is gone when
/// this returns or is dropped.
///
/// # Errors
/// Where the fleet does not start, its stats cannot be read, or the traffic takes too long. Failed
/// requests are no error but part of the outcome.
pub async fn play(
    strategy: Strategy,
    workers: usize,
    traffic: &Arc<Traffic>,
    engine: &EngineConfig,
    mut progress: impl FnMut(Progress),
) -> io::Result<Outcome> {
    let start = Instant::now();
    let fleet = Fleet::start(setup(strategy, engine).workers(workers)).await?;
    progress(Progress::Ready(start.elapsed()));

    let asker =
        Asker::new(&fleet.url("")).map_err(|failure| io::Error::other(failure.to_string()))?;
    let (told, answers) = mpsc::unbounded_channel();
    let start = Instant::now();
    let clients = clients(&asker, traffic, &told);
    drop(told);
    let watched = watch(answers, fleet.engines(), |over| {
        progress(Progress::Over(over, start.elapsed()));
    });
    let (mut results, peaks) = timeout(PATIENCE, watched).await.map_err(|_| {
        let what = format!("the traffic is not over after {} s", PATIENCE.as_secs());
        io::Error::new(io::ErrorKind::TimedOut, what)
    })?;
    clients.join_all().await;

    let failures = results.extract_if(.., |result| result.is_err());
    let failures = failures.filter_map(Result::err).collect();
    let mut first_tokens: Vec<Duration> = results.into_iter().flatten().collect();
    first_tokens.sort_unstable();
    Ok(Outcome {
        strategy,
        requests: traffic.requests(),
        first_tokens,
        failures,
        engines: fleet.engines().iter().zip(peaks).map(work).collect(),
        decisions: decisions(&fleet).await?,
    })
}

/// Sets the clients to work.
fn clients(
    asker: &Asker,
    traffic: &Arc<Traffic>,
    told: &UnboundedSender<Result<Duration, Failure>>,
) -> JoinSet<()> {
    let next = Arc::new(AtomicUsize::new(0));
    let mut clients = JoinSet::new();
    for _ in 0..traffic.clients {
        let (asker, traffic) = (asker.clone(), Arc::clone(traffic));
        let (next, told) = (Arc::clone(&next), told.clone());
        clients.spawn(async move {
            while let Some(task) = traffic.tasks.get(next.fetch_add(1, Ordering::Relaxed)) {
                asker.perform(task, &told).await;
            }
        });
    }
    clients
}

/// Collects answers until all clients are done, and the most that each engine had at once.
async fn watch(
    mut answers: UnboundedReceiver<Result<Duration, Failure>>,
    engines: &[Engine],
    mut over: impl FnMut(usize),
) -> (Vec<Result<Duration, Failure>>, Vec<usize>) {
    let mut results = Vec::new();
    let mut peaks = vec![0; engines.len()];
    let mut samples = interval(SAMPLING);
    samples.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            answer = answers.recv() => match answer {
                Some(answer) => {
                    results.push(answer);
                    over(results.len());
                }
                None => return (results, peaks),
            },
            _ = samples.tick() => for (peak, engine) in peaks.iter_mut().zip(engines) {
                let stats = engine.stats();
                // Between two looks the engine keeps its own count, of those that run.
                *peak = stats.peak_running.max(stats.running + stats.waiting).max(*peak);
            },
        }
    }
}

fn work((engine, peak): (&Engine, usize)) -> Work {
    let stats = engine.stats();
    Work {
        name: stats.name,
        // A sidecar asks for this and that as well.
        requests: stats.served.get(PATH).copied().unwrap_or(0),
        peak,
        queried_tokens: stats.prefix_queried_tokens,
        hit_tokens: stats.prefix_hit_tokens,
    }
}

async fn decisions(fleet: &Fleet) -> io::Result<BTreeMap<String, u64>> {
    let stats = fleet.stats().await?;
    let mut decisions = BTreeMap::new();
    for (labels, count) in stats.labelled("rolter_decisions") {
        let reasons = labels.iter().filter(|(label, _)| *label == "reason");
        for (_, reason) in reasons {
            *decisions.entry((*reason).to_owned()).or_default() += count;
        }
    }
    Ok(decisions)
}

/// A share; zero of nothing.
#[expect(clippy::cast_precision_loss, reason = "counts of a minute's traffic")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}
