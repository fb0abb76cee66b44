//! How well gateways route: each plays each workload before fleets of simulated engines, and the
//! engines say what it came to.
//!
//! Invariant: within a round all players are asked exactly the same, of engines that are alike, fresh
//! and tell of their caches. Rounds take turns, so that what else goes on in the machine strikes all.

mod client;
mod fleet;
mod look;
mod oracle;
mod play;

use crate::gateway::{Contender, Strategy};
use crate::results::{Routing, RoutingRound, RoutingRow, percentile, write};
use crate::workload::{Kind, Settings, Workload, generate, read_trace};
use play::Played;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A client that is later than this, for one request in a hundred, measures itself.
const LATE: Duration = Duration::from_millis(20);
/// Answers that are shown of those that failed.
const SHOWN: usize = 3;

/// How well gateways route: fleets of simulated engines behind each of them.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// How often all of it is played.
    #[arg(long, default_value_t = 3)]
    rounds: u64,
    /// How long requests come, in seconds.
    #[arg(long, default_value_t = 12)]
    secs: u64,
    /// Where results go.
    #[arg(long, default_value = "target/peers")]
    out: PathBuf,
    /// Engines of a fleet; may be given more than once.
    #[arg(long, default_values_t = [4, 16], value_delimiter = ',')]
    engines: Vec<usize>,
    /// A workload; may be given more than once. All, if none is.
    #[arg(long)]
    workload: Vec<Kind>,
    /// A gateway by its name, or the oracle; may be given more than once. All, if none is.
    #[arg(long)]
    gateway: Vec<Player>,
    /// A trace in Mooncake's format, which makes another workload.
    #[arg(long, env = "TRACE")]
    trace: Option<PathBuf>,
}

/// The oracle is called.
pub(crate) const ORACLE: &str = "oracle";

/// Who decides where requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Player {
    Gateway(Contender),
    /// A picker in the client that sees all caches and queues.
    Oracle,
}

impl Player {
    const ALL: [Self; 8] = [
        Self::Gateway(Contender::Rolter(Strategy::RoundRobin)),
        Self::Gateway(Contender::Rolter(Strategy::CacheAware)),
        Self::Gateway(Contender::Rolter(Strategy::Pipeline)),
        Self::Gateway(Contender::Rolter(Strategy::PreciseCacheAware)),
        Self::Gateway(Contender::Sglang),
        Self::Gateway(Contender::Vllm),
        Self::Gateway(Contender::VllmKvAware),
        Self::Oracle,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Gateway(contender) => contender.name(),
            Self::Oracle => ORACLE,
        }
    }
}

impl FromStr for Player {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|one| one.name() == name);
        found.ok_or_else(|| {
            let all = Self::ALL.map(Self::name).join(", ");
            format!("nobody is called {name:?}; there are {all}")
        })
    }
}

impl fmt::Display for Player {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl Options {
    fn kinds(&self) -> Vec<Kind> {
        if !self.workload.is_empty() {
            return self.workload.clone();
        }
        let trace = self.trace.is_some().then_some(Kind::Trace);
        Kind::GENERATED.into_iter().chain(trace).collect()
    }

    fn players(&self) -> &[Player] {
        match self.gateway.as_slice() {
            [] => &Player::ALL,
            some => some,
        }
    }

    fn workload(
        &self,
        kind: Kind,
        settings: &Settings,
        engines: usize,
        round: u64,
    ) -> io::Result<Workload> {
        let play = settings.play(engines, Duration::from_secs(self.secs), round);
        match (kind, &self.trace) {
            (Kind::Trace, Some(trace)) => read_trace(trace, &play).map_err(io::Error::other),
            (Kind::Trace, None) => Err(io::Error::other("the workload trace needs --trace FILE")),
            _ => Ok(generate(kind, &play)),
        }
    }
}

/// Plays everything, and leaves `routing.json`, which is written after every play.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let runtime = tokio::runtime::Runtime::new();
    let played = runtime.and_then(|runtime| runtime.block_on(play_all(options)));
    played.map_err(|error| error.to_string())
}

async fn play_all(options: &Options) -> io::Result<()> {
    let mut rows: BTreeMap<(usize, usize, usize), RoutingRow> = BTreeMap::new();
    for round in 1..=options.rounds {
        for (size, &engines) in options.engines.iter().enumerate() {
            for (place, kind) in options.kinds().into_iter().enumerate() {
                let settings = Settings::of(kind);
                let workload = options.workload(kind, &settings, engines, round)?;
                println!(
                    "round {round}: {}, {engines} engines, {} requests",
                    workload.name,
                    workload.requests.len()
                );
                println!("{}", Line::HEAD);
                for (nth, &player) in options.players().iter().enumerate() {
                    let played = play::play(player, engines, &settings, &workload).await?;
                    let line = Line(player, &played, &settings);
                    println!("{line}");
                    let row = rows
                        .entry((size, place, nth))
                        .or_insert_with(|| RoutingRow {
                            workload: workload.name.to_owned(),
                            engines,
                            gateway: player.name().to_owned(),
                            rounds: Vec::new(),
                        });
                    row.rounds.push(line.round());
                    let rows = rows.values().cloned().collect();
                    write(&options.out, "routing", &Routing { rows }).map_err(io::Error::other)?;
                }
            }
        }
    }
    Ok(())
}

/// One play, as it is told at once.
struct Line<'a>(Player, &'a Played, &'a Settings);

impl Line<'_> {
    const HEAD: &'static str = "gateway                       hit   TTFT p50    p90    p99  goodput  spread  load  failed   busy gateway  late p99";

    fn round(&self) -> RoutingRound {
        let Self(_, played, settings) = self;
        let millis = |percent| 1e3 * percentile(&played.first_tokens, percent).as_secs_f64();
        let within = u32::try_from(played.within(settings.first_token_bound));
        RoutingRound {
            requests: played.requests,
            failures: played.failures.len(),
            hit_rate: played.counts.hit_rate(),
            ttft_p50_ms: millis(50),
            ttft_p90_ms: millis(90),
            ttft_p99_ms: millis(99),
            goodput_per_sec: f64::from(within.unwrap_or(u32::MAX)) / played.lasted.as_secs_f64(),
            load_spread: played.counts.spread(),
            busy: played.busy,
            late_p99_ms: 1e3 * percentile(&played.late, 99).as_secs_f64(),
        }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(who, played, settings) = self;
        let round = self.round();
        write!(
            f,
            "{who:26} {:5.1} % {:7.0} {:6.0} {:6.0} {:8.1} {:7.2} {:3.0} % {:7} {:4.0} % {:4.0} % {:6.1}",
            100.0 * round.hit_rate,
            round.ttft_p50_ms,
            round.ttft_p90_ms,
            round.ttft_p99_ms,
            round.goodput_per_sec,
            round.load_spread,
            100.0 * played.utilisation(settings.prefill_tokens_per_sec),
            round.failures,
            100.0 * round.busy,
            100.0 * played.gateway_busy,
            round.late_p99_ms,
        )?;
        let late = percentile(&played.late, 99);
        if late > LATE {
            write!(
                f,
                "\n  the client was late: this machine is too busy for this play"
            )?;
        }
        let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
        for failure in &played.failures {
            *kinds.entry(failure.to_string()).or_default() += 1;
        }
        for (failure, count) in kinds.iter().take(SHOWN) {
            write!(f, "\n  {count} × {failure}")?;
        }
        Ok(())
    }
}
