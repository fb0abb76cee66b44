//! The same questions twice, to a fleet with a response cache: what the engines answer the first
//! time, the cache answers the second.

use crate::client::{Answer, Asker, Failure};
use crate::play::{Strategy, setup};
use crate::traffic::Traffic;
use engine_sim::EngineConfig;
use fleet::Fleet;
use futures_util::stream::{self, StreamExt};
use serde_json::json;
use std::io;
use std::time::Duration;

/// How many questions are asked twice.
const QUESTIONS: usize = 24;
/// How many ask at once: few, so that it is the engines and the cache whose time is told.
const CLIENTS: usize = 4;
/// How long clients do something else in between.
const PAUSE: Duration = Duration::from_secs(1);
/// How long a request waits for the cache. In production tens of milliseconds are enough. Here
/// clients, Envoy, sidecar and four engines share what cores there are.
const LOOKUP_MILLIS: u64 = 1_000;

/// What came of it.
#[derive(Clone, Debug, Default)]
pub struct Repeated {
    /// How many questions were asked twice.
    pub requests: usize,
    /// How many of them the cache answered the second time.
    pub from_cache: usize,
    /// The time to the end of each right answer of an engine, shortest first.
    pub engines: Vec<Duration>,
    /// Likewise of the cache.
    pub cache: Vec<Duration>,
    /// What went wrong.
    pub failures: Vec<Failure>,
}

/// Asks some of the traffic's single questions twice. The fleet is gone when this returns or is
/// dropped.
///
/// # Errors
/// Where the fleet does not start. Failed requests are no error but part of the outcome.
pub async fn repeat(traffic: &Traffic, engine: &EngineConfig) -> io::Result<Repeated> {
    let setup = setup(Strategy::CacheAware, engine)
        .cached()
        // Demo clients have no keys.
        .with("/routes/0/cache/scope", "route")
        .with("/routes/0/cache/lookup_timeout_ms", LOOKUP_MILLIS);
    let fleet = Fleet::start(setup).await?;
    let asker =
        Asker::new(&fleet.url("")).map_err(|failure| io::Error::other(failure.to_string()))?;
    let single = traffic.tasks.iter().filter(|task| task.turns.len() == 1);
    let questions: Vec<_> = single
        .take(QUESTIONS)
        .flat_map(|task| task.turns.iter().map(|turn| (&task.system, turn)))
        .map(|(system, turn)| {
            let messages = [
                json!({"role": "system", "content": system}),
                json!({"role": "user", "content": turn.question}),
            ];
            (messages, turn.answer_tokens)
        })
        .collect();
    let ask_all = || {
        let answers = stream::iter(&questions);
        let answers = answers.map(|(messages, tokens)| asker.ask(messages, *tokens));
        answers.buffered(CLIENTS).collect::<Vec<_>>()
    };
    let first = ask_all().await;
    tokio::time::sleep(PAUSE).await;
    let second = ask_all().await;

    let mut repeated = Repeated {
        requests: questions.len(),
        ..Repeated::default()
    };
    let is_cached = |answer: &&Result<Answer, _>| matches!(answer, Ok(answer) if answer.from_cache);
    repeated.from_cache = second.iter().filter(is_cached).count();
    for answer in first.into_iter().chain(second) {
        match answer {
            Ok(answer) if answer.from_cache => repeated.cache.push(answer.whole),
            Ok(answer) => repeated.engines.push(answer.whole),
            Err(failure) => repeated.failures.push(failure),
        }
    }
    repeated.engines.sort_unstable();
    repeated.cache.sort_unstable();
    Ok(repeated)
}
