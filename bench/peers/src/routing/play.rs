//! One play: a fresh fleet behind a fresh gateway, asked all of a workload at its times.
//!
//! Open loop: a request leaves at its time whatever has become of those before it, and its time to
//! first token counts from there, so a client that is late is no excuse.

use super::Player;
use super::client::{Ask, Client, Failure, PATH};
use super::fleet::{self, Counts};
use super::look::Look;
use super::oracle::Oracle;
use crate::gateway::Gateway;
use crate::workload::{MODEL, Request, Settings, Workload};
use engine_sim::{Engine, EngineConfig, Question};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

/// What precedes the first request: connections are made, subscriptions arrive.
const SETTLING: Duration = Duration::from_millis(500);
/// How long after the last request answers may come.
const PATIENCE: Duration = Duration::from_secs(30);
/// Requests that are made before their time. The longest are half a megabyte.
const AHEAD: usize = 32;
/// The part of the requests, in per cent, that fills caches and memories and is not counted.
const WARM_UP: usize = 20;

/// What came of it, of the requests that count.
pub(crate) struct Played {
    /// How many there were.
    pub(crate) requests: usize,
    /// Time to first token of each right answer, shortest first.
    pub(crate) first_tokens: Vec<Duration>,
    /// What went wrong, of all requests.
    pub(crate) failures: Vec<Failure>,
    /// How late requests left, shortest first.
    pub(crate) late: Vec<Duration>,
    /// How long these requests came.
    pub(crate) lasted: Duration,
    pub(crate) counts: Counts,
    /// The share of this machine's processors that all took together.
    pub(crate) busy: f64,
    /// Processors that the gateway took.
    pub(crate) gateway_busy: f64,
    engines: usize,
}

impl Played {
    /// Right answers that began within a bound.
    pub(crate) fn within(&self, bound: Duration) -> usize {
        self.first_tokens.partition_point(|&time| time <= bound)
    }

    /// The share of the time that engines of this speed computed prompts.
    #[expect(clippy::cast_precision_loss, reason = "tokens of a minute")]
    pub(crate) fn utilisation(&self, tokens_per_sec: f64) -> f64 {
        let computing = self.counts.computed() as f64 / tokens_per_sec;
        computing / self.lasted.as_secs_f64() / self.engines as f64
    }
}

/// Who decides where a request goes.
enum Way {
    Gateway(Gateway),
    Oracle(Arc<Mutex<Oracle>>),
}

impl Way {
    fn gateway(&self) -> Option<&Gateway> {
        match self {
            Self::Gateway(gateway) => Some(gateway),
            Self::Oracle(_) => None,
        }
    }

    fn oracle(&self) -> Option<Arc<Mutex<Oracle>>> {
        match self {
            Self::Gateway(_) => None,
            Self::Oracle(oracle) => Some(Arc::clone(oracle)),
        }
    }

    fn choose(&self, engines: &[Engine], id: usize, question: &Arc<Question>) -> SocketAddr {
        match self {
            Self::Gateway(gateway) => gateway.addr(),
            Self::Oracle(oracle) => engines[lock(oracle).pick(id, question)].addr(),
        }
    }
}

fn lock(oracle: &Mutex<Oracle>) -> std::sync::MutexGuard<'_, Oracle> {
    oracle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays a workload.
///
/// # Errors
/// Where the fleet or the gateway does not start. Failed requests are no error.
pub(crate) async fn play(
    player: Player,
    engines: usize,
    settings: &Settings,
    workload: &Workload,
) -> io::Result<Played> {
    let engines = fleet::start(engines, settings)?;
    let way = match player {
        Player::Oracle => {
            let oracle = Oracle::new(Arc::clone(&engines), 1);
            Way::Oracle(Arc::new(Mutex::new(oracle)))
        }
        Player::Gateway(contender) => {
            let upstreams = fleet::upstreams(&engines);
            Way::Gateway(Gateway::start(contender, &upstreams, MODEL, &[]).await?)
        }
    };
    sleep(SETTLING).await;
    ask_all(&way, &engines, workload).await
}

/// A request that has its answer, or none.
struct Over {
    counted: bool,
    first_token: Result<Duration, Failure>,
}

async fn ask_all(way: &Way, engines: &[Engine], workload: &Workload) -> io::Result<Played> {
    let client = Arc::new(Client::default());
    let requests = &workload.requests;
    let warm_up = requests.len() * WARM_UP / 100;
    let mut before = Look::new(way.gateway(), engines)?;
    let start = Instant::now() + Duration::from_millis(50);
    let mut asked = JoinSet::new();
    let mut late = Vec::with_capacity(requests.len());
    let mut prepared = prepare_all(workload, engines[0].config());
    for (id, request) in requests.iter().enumerate() {
        let next = prepared.recv().await;
        let Prepared { ask, question } =
            next.ok_or_else(|| io::Error::other("a request that no engine would answer"))?;
        let due = start + request.at;
        sleep_until(due).await;
        let counted = id >= warm_up;
        if id == warm_up {
            before = Look::new(way.gateway(), engines)?;
        }
        late.extend(counted.then(|| due.elapsed()));
        let addr = way.choose(engines, id, &question);
        let (client, oracle) = (Arc::clone(&client), way.oracle());
        asked.spawn(async move {
            let begun = || {
                if let Some(oracle) = &oracle {
                    lock(oracle).begun(id);
                }
            };
            let mut first = due;
            let answer = client.ask(addr, ask, &question, |at| {
                first = at;
                begun();
            });
            let answer = answer.await;
            begun();
            let first_token = answer.map(|()| first - due);
            Over {
                counted,
                first_token,
            }
        });
    }
    let last = Look::new(way.gateway(), engines)?;
    let overs = wait(&mut asked).await?;
    let after = Look::new(way.gateway(), engines)?;
    let counts = after.counts_since(&before);
    let between = last.since(&before)?;
    late.sort_unstable();
    let unanswered = requests.len() - overs.len();
    let mut failures = vec![Failure::Unanswered; unanswered];
    let mut first_tokens = Vec::with_capacity(requests.len());
    for over in overs {
        match over.first_token {
            Ok(first_token) if over.counted => first_tokens.push(first_token),
            Ok(_) => {}
            Err(failure) => failures.push(failure),
        }
    }
    first_tokens.sort_unstable();
    Ok(Played {
        requests: requests.len() - warm_up,
        first_tokens,
        failures,
        late,
        lasted: between.lasted,
        counts,
        busy: between.busy,
        gateway_busy: between.gateway_busy,
        engines: engines.len(),
    })
}

/// A request as it leaves, and what its answer must be.
struct Prepared {
    ask: Ask,
    question: Arc<Question>,
}

/// Makes requests a little before their time, in their order and on a thread of its own, so that none
/// is late because it or the one before it is long. Ends early at one that no engine would answer.
fn prepare_all(workload: &Workload, config: &EngineConfig) -> mpsc::Receiver<Prepared> {
    let (sender, receiver) = mpsc::channel(AHEAD);
    let (requests, config) = (workload.requests.clone(), config.clone());
    spawn_blocking(move || {
        let prepared = requests.iter().map_while(|one| prepare(one, &config));
        for prepared in prepared {
            // Without anyone to take it, the play is over.
            if sender.blocking_send(prepared).is_err() {
                return;
            }
        }
    });
    receiver
}

fn prepare(request: &Request, config: &EngineConfig) -> Option<Prepared> {
    let body = request.body();
    let read = serde_json::from_str(&body).ok()?;
    let question = Arc::new(Question::read(config, PATH, &read)?);
    let answer_tokens = request.answer_tokens;
    let ask = Ask {
        body: body.into(),
        answer_tokens,
    };
    Some(Prepared { ask, question })
}

/// Collects answers for as long as is reasonable.
async fn wait(asked: &mut JoinSet<Over>) -> io::Result<Vec<Over>> {
    let deadline = Instant::now() + PATIENCE;
    let mut overs = Vec::new();
    while let Ok(Some(over)) = timeout_at(deadline, asked.join_next()).await {
        overs.push(over.map_err(io::Error::other)?);
    }
    Ok(overs)
}
