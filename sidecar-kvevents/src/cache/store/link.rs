//! The way to Redis: a connection that is there or not, and the task that sees to it.
//!
//! Invariant: nobody waits for a connection, nor for a Redis that is not known to answer. Whoever
//! finds that it does not answer takes the connection away from all, and it comes back after a rest,
//! once Redis has answered again.

use super::servers::{Connection, Servers};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, ServerErrorKind, Value};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

/// How long nothing is asked after a failure.
const REST: Duration = Duration::from_millis(250);
/// What the answer to a ping may take.
const PING: Duration = Duration::from_millis(250);
/// How often a connection that nobody complains of is looked at, which may be as nobody uses it.
const LOOK: Duration = Duration::from_secs(1);
/// What it may take to connect, sentinels and slots included.
const CONNECT: Duration = Duration::from_secs(2);
/// An answer that was waited for for less says nothing of Redis by not coming.
const FAIR: Duration = Duration::from_millis(20);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// Redis cannot be reached, or could not a moment ago, or it says that it cannot answer.
    Redis,
    /// The caller has no time left.
    Time,
    /// What is there is not what was put there.
    Garbage,
}

/// What is to be thought of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    /// It may be as good as ever; a ping will tell.
    Hurry,
    /// No answer came in time, or none that is of use now.
    Silence,
    /// It is of no use any more.
    Broken,
}

/// The way to Redis.
pub(super) struct Link {
    line: Arc<Line>,
    keeper: AbortHandle,
}

struct Line {
    now: Mutex<Now>,
    doubts: watch::Sender<Option<(u64, Doubt)>>,
}

#[derive(Default)]
struct Now {
    connection: Option<Connection>,
    /// Counts connections, so that news of an old one does not count against the next.
    number: u64,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

impl Link {
    /// Begins to connect.
    pub(super) fn new(servers: Arc<Servers>, told: Arc<Told>) -> Self {
        let line = Arc::new(Line {
            now: Mutex::default(),
            doubts: watch::channel(None).0,
        });
        let keeper = tokio::spawn(keep(Arc::clone(&line), servers, told)).abort_handle();
        Self { line, keeper }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.line.now().connection.is_some()
    }

    /// What Redis answers to one command.
    pub(super) async fn ask(&self, command: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        let answer = self.asked(deadline, async |connection| connection.ask(command).await);
        match answer.await? {
            (Value::ServerError(error), number) => Err(self.refused(&error.into(), number)),
            (value, _) => Ok(value),
        }
    }

    /// What it answers to several. That it cannot answer one of them is an answer.
    pub(super) async fn ask_all(
        &self,
        commands: &Pipeline,
        deadline: Instant,
    ) -> Result<Vec<Result<Value, Failure>>, Failure> {
        let answers = self.asked(deadline, async |connection| {
            connection.ask_all(commands).await
        });
        let (values, number) = answers.await?;
        let answer = |value| match value {
            Value::ServerError(error) => Err(self.refused(&error.into(), number)),
            value => Ok(value),
        };
        Ok(values.into_iter().map(answer).collect())
    }

    async fn asked<T>(
        &self,
        deadline: Instant,
        ask: impl AsyncFnOnce(&mut Connection) -> RedisResult<T>,
    ) -> Result<(T, u64), Failure> {
        let (connection, number) = {
            let now = self.line.now();
            (now.connection.clone(), now.number)
        };
        let Some(mut connection) = connection else {
            return Err(Failure::Redis);
        };
        let began = Instant::now();
        if deadline <= began {
            return Err(Failure::Time);
        }
        match timeout_at(deadline, ask(&mut connection)).await {
            Ok(Ok(answer)) => Ok((answer, number)),
            // A cluster mends its connections itself, and all but one may be well.
            Ok(Err(error)) if error.is_io_error() && connection.is_of_several() => {
                self.line.doubt(number, Doubt::Hurry);
                Err(Failure::Redis)
            }
            Ok(Err(error)) => Err(self.refused(&error, number)),
            Err(_) if began.elapsed() < FAIR => {
                self.line.doubt(number, Doubt::Hurry);
                Err(Failure::Time)
            }
            Err(_) => {
                self.line.doubt(number, Doubt::Silence);
                Err(Failure::Redis)
            }
        }
    }

    fn refused(&self, error: &RedisError, number: u64) -> Failure {
        if let Some(doubt) = doubt(error) {
            self.line.doubt(number, doubt);
        }
        tracing::debug!(
            why = describe(error),
            "Redis does not do what it was asked to"
        );
        Failure::Redis
    }
}

/// What an error says of the connection, and nothing where it concerns one key alone, or all but in
/// a way that no rest mends.
fn doubt(error: &RedisError) -> Option<Doubt> {
    use ServerErrorKind as Server;
    match error.kind() {
        ErrorKind::Server(Server::BusyLoading | Server::MasterDown | Server::ClusterDown) => {
            Some(Doubt::Silence)
        }
        // Another server is to be written to by now, where there are several.
        ErrorKind::Server(Server::ReadOnly) => Some(Doubt::Broken),
        ErrorKind::Extension => matches!(error.code(), Some("NOAUTH")).then_some(Doubt::Broken),
        ErrorKind::Server(_) | ErrorKind::UnexpectedReturnType | ErrorKind::Client => None,
        ErrorKind::Io if error.is_timeout() => Some(Doubt::Silence),
        _ => Some(Doubt::Broken),
    }
}

impl Line {
    fn now(&self) -> MutexGuard<'_, Now> {
        // What a panic elsewhere has left is whole.
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn doubt(&self, number: u64, doubt: Doubt) {
        let mut now = self.now();
        if now.number == number && now.connection.take().is_some() {
            self.doubts.send_replace(Some((number, doubt)));
        }
    }

    fn put(&self, connection: Connection) -> u64 {
        let mut now = self.now();
        now.connection = Some(connection);
        now.number += 1;
        now.number
    }
}

/// What operators were told last is wrong with Redis, by any of its links.
#[derive(Default)]
pub(super) struct Told(Mutex<String>);

impl Told {
    fn swap(&self, why: String) -> String {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut told, why)
    }
}

/// Connects again and again, for as long as it is polled.
async fn keep(line: Arc<Line>, servers: Arc<Servers>, told: Arc<Told>) {
    let mut doubts = line.doubts.subscribe();
    loop {
        match connect(&servers).await {
            Ok(connection) => {
                if !told.swap(String::new()).is_empty() {
                    tracing::info!("Redis answers again");
                }
                while_it_answers(&line, &mut doubts, connection).await;
            }
            Err(why) => {
                if told.swap(why.clone()) != why {
                    tracing::warn!(
                        why,
                        "Redis cannot be reached; until it can, nothing is cached"
                    );
                }
                sleep(REST).await;
            }
        }
    }
}

/// A connection over which Redis has answered.
async fn connect(servers: &Servers) -> Result<Connection, String> {
    let connecting = async {
        let mut connection = servers.connect().await?;
        connection.ping().await?;
        Ok(connection)
    };
    match timeout(CONNECT, connecting).await {
        Ok(connected) => connected.map_err(|error: RedisError| describe(&error)),
        Err(_) => Err("no answer in time".to_owned()),
    }
}

/// By its kind and code alone: Redis's own words may show names of users and of keys.
fn describe(error: &RedisError) -> String {
    match error.code() {
        Some("NOAUTH") => "it wants a password; write cache.redis_password_env".to_owned(),
        Some(code) => format!("it answers {code}"),
        None if error.is_connection_refusal() => "cannot connect".to_owned(),
        None => error.category().to_owned(),
    }
}

/// Lets all have the connection until it is of no use any more.
async fn while_it_answers(
    line: &Line,
    doubts: &mut watch::Receiver<Option<(u64, Doubt)>>,
    mut connection: Connection,
) {
    loop {
        let number = line.put(connection.clone());
        let about_it = |doubt: &Option<(u64, Doubt)>| doubt.is_some_and(|(of, _)| of == number);
        while timeout(LOOK, doubts.wait_for(about_it)).await.is_err() {
            if !answers(&mut connection).await {
                line.doubt(number, Doubt::Broken);
            }
        }
        let doubt = doubts.borrow().map(|(_, doubt)| doubt);
        if doubt != Some(Doubt::Hurry) {
            sleep(REST).await;
        }
        if doubt == Some(Doubt::Broken) || !answers(&mut connection).await {
            return;
        }
    }
}

async fn answers(connection: &mut Connection) -> bool {
    matches!(timeout(PING, connection.ping()).await, Ok(Ok(())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(kind: ErrorKind) -> Option<Doubt> {
        doubt(&RedisError::from((kind, "")))
    }

    #[test]
    fn what_concerns_one_key_alone_is_no_reason_to_doubt_a_connection() {
        use ServerErrorKind as Server;
        for kind in [
            ErrorKind::UnexpectedReturnType,
            ErrorKind::Extension,
            ErrorKind::Server(Server::ResponseError),
            ErrorKind::Server(Server::NoPerm),
            ErrorKind::Server(Server::CrossSlot),
            ErrorKind::Server(Server::Moved),
        ] {
            assert_eq!(of(kind), None, "{kind:?}");
        }
    }

    #[test]
    fn a_server_that_cannot_answer_is_asked_later_and_one_of_no_use_is_left() {
        use ServerErrorKind as Server;
        for kind in [Server::BusyLoading, Server::MasterDown, Server::ClusterDown] {
            assert_eq!(of(ErrorKind::Server(kind)), Some(Doubt::Silence));
        }
        for kind in [
            ErrorKind::Io,
            ErrorKind::Parse,
            ErrorKind::AuthenticationFailed,
            ErrorKind::Server(Server::ReadOnly),
        ] {
            assert_eq!(of(kind), Some(Doubt::Broken), "{kind:?}");
        }
        let late = std::io::Error::from(std::io::ErrorKind::TimedOut);
        assert_eq!(doubt(&RedisError::from(late)), Some(Doubt::Silence));
    }
}
