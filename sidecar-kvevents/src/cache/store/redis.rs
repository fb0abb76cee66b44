//! Answers in Redis, for all sidecars of a fleet.
//!
//! Invariant: what is read is bounded by what was asked for, whatever is there. What is not as it
//! was put there is no answer and no candidate, and is counted.

use super::link::{Failure, Link};
use super::servers::Servers;
use super::{Candidate, Index, Item, Window, item_bytes};
use crate::cache::bounded::{Bounded, Size};
use crate::metrics::CacheCounts;
use redis::{Cmd, Pipeline, Value, cmd};
use rolter_core::cache::entry::{Entry, OVERHEAD, TextId};
use rolter_core::cache::vector::Vector;
use rolter_core::cache::{EXACT_LAYOUT, ExactKey, SEMANTIC_LAYOUT};
use rolter_core::config;
use rolter_core::hex::to_hex;
use rolter_core::time::Millis;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

/// Bytes of candidates that were read and are kept at hand.
const MAX_KNOWN_BYTES: u64 = 64 << 20;
/// Bytes of candidates that are read at a time: so few that each time brings some.
const BATCH_BYTES: usize = 128 << 10;
/// Who needs candidates that another one is reading waits for them. Indices share so many places.
const READERS: usize = 64;
/// What it may take to take out what is gone.
const FORGET: Duration = Duration::from_secs(2);

/// Answers in Redis.
pub struct Redis {
    namespace: String,
    /// Apart from the other, so that answers on their way there hold up nobody who looks for one.
    reads: Link,
    writes: Arc<Link>,
    /// Candidates that were read. Their time is in their names, so that what is stored anew is read
    /// anew.
    known: Bounded<(Index, TextId, Millis), Arc<Item>>,
    readers: Vec<Mutex<()>>,
    counts: Arc<CacheCounts>,
}

impl Redis {
    /// Begins to connect. Until that is done, there is nothing.
    pub fn new(
        settings: config::Redis,
        password: Option<&str>,
        namespace: String,
        counts: Arc<CacheCounts>,
    ) -> Self {
        let servers = Arc::new(Servers::new(settings, password.map(str::to_owned)));
        let told = Arc::default();
        Self {
            namespace,
            reads: Link::new(Arc::clone(&servers), Arc::clone(&told)),
            writes: Arc::new(Link::new(servers, told)),
            known: Bounded::new(MAX_KNOWN_BYTES, |item| item.bytes()),
            readers: (0..READERS).map(|_| Mutex::default()).collect(),
            counts,
        }
    }

    pub(super) fn is_connected(&self) -> bool {
        self.reads.is_connected() && self.writes.is_connected()
    }

    /// Of the candidates at hand.
    pub(super) fn size(&self) -> Size {
        self.known.size()
    }

    pub(super) async fn get(
        &self,
        key: ExactKey,
        max_bytes: usize,
        deadline: Instant,
    ) -> Result<Option<Arc<Entry>>, Failure> {
        let most = max_bytes + OVERHEAD;
        let command = read(&self.name_of_answer(key), most);
        match self.reads.ask(&command, deadline).await? {
            Value::Nil => Ok(None),
            Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
            Value::BulkString(bytes) if bytes.len() <= most => {
                let entry = Entry::from_bytes(&bytes).ok_or(Failure::Garbage)?;
                Ok(Some(Arc::new(entry)))
            }
            _ => Err(Failure::Garbage),
        }
    }

    pub(super) async fn put(
        &self,
        entry: Entry,
        lifetime: Duration,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let name = self.name_of_answer(entry.exact);
        let command = write(&name, &entry.to_bytes(), lifetime);
        // The command has a copy, and a slow Redis makes many wait.
        drop(entry);
        self.writes.ask(&command, deadline).await.map(drop)
    }

    pub(super) async fn candidates(
        &self,
        window: &Window,
        now: Millis,
        deadline: Instant,
    ) -> Result<Vec<Candidate>, Failure> {
        let listed = self.listed(window, now, deadline).await?;
        let (mut found, missing) = self.at_hand(window, listed);
        if !missing.is_empty() {
            // Half of the time: what was found so far is of use only if there is time to read the
            // answer. Who asks next reads on.
            let began = Instant::now();
            let half = began + deadline.saturating_duration_since(began) / 2;
            found.extend(self.read(window, missing, half).await);
        }
        Ok(found)
    }

    /// The names of the candidates, the latest first, with their times.
    async fn listed(
        &self,
        window: &Window,
        now: Millis,
        deadline: Instant,
    ) -> Result<Vec<(TextId, Millis)>, Failure> {
        let mut command = cmd("ZREVRANGEBYSCORE");
        command
            .arg(self.name_of_window(&window.index))
            .arg("+inf")
            .arg(format!("({}", now.0))
            .arg("LIMIT")
            .arg(0)
            .arg(window.len)
            .arg("WITHSCORES");
        let Value::Array(members) = self.reads.ask(&command, deadline).await? else {
            return Err(Failure::Garbage);
        };
        let (pairs, _) = members.as_chunks::<2>();
        let mut listed = Vec::with_capacity(pairs.len());
        for [member, score] in pairs {
            match (text_id(member), time(score)) {
                (Some(id), Some(expires)) => listed.push((id, expires)),
                _ => self.counts.failed(Failure::Garbage),
            }
        }
        Ok(listed)
    }

    /// Those that are at hand, and those that are not.
    fn at_hand(
        &self,
        window: &Window,
        listed: Vec<(TextId, Millis)>,
    ) -> (Vec<Candidate>, Vec<(TextId, Millis)>) {
        let mut found = Vec::with_capacity(listed.len());
        let mut missing = Vec::new();
        for (id, expires) in listed {
            match self.known.get(&(window.index, id, expires)) {
                Some(item) => found.push(Candidate { id, expires, item }),
                None => missing.push((id, expires)),
            }
        }
        (found, missing)
    }

    /// As many as there is time for.
    async fn read(
        &self,
        window: &Window,
        missing: Vec<(TextId, Millis)>,
        deadline: Instant,
    ) -> Vec<Candidate> {
        let place = usize::from(window.index.0[0]) % READERS;
        let Some(place) = self.readers.get(place) else {
            return Vec::new();
        };
        let Ok(_reading) = timeout_at(deadline, place.lock()).await else {
            return Vec::new();
        };
        // Another one may have read them meanwhile.
        let (mut found, missing) = self.at_hand(window, missing);
        let bytes = item_bytes(window.dimension);
        let batch = (BATCH_BYTES / bytes).max(1);
        for names in missing.chunks(batch) {
            match self.read_batch(window, names, deadline).await {
                Ok(candidates) => found.extend(candidates),
                Err(failure) => {
                    self.counts.failed(failure);
                    break;
                }
            }
        }
        found
    }

    async fn read_batch(
        &self,
        window: &Window,
        names: &[(TextId, Millis)],
        deadline: Instant,
    ) -> Result<Vec<Candidate>, Failure> {
        let bytes = item_bytes(window.dimension);
        let mut commands = Pipeline::with_capacity(names.len());
        for (id, _) in names {
            let name = self.name_of_item(&window.index, id);
            commands.add_command(read(&name, bytes));
        }
        let values = self.reads.ask_all(&commands, deadline).await?;
        if values.len() != names.len() {
            return Err(Failure::Garbage);
        }
        let now = crate::cache::now();
        let mut found = Vec::with_capacity(names.len());
        let mut gone = Vec::new();
        for (&(id, expires), value) in names.iter().zip(values) {
            match value.and_then(|value| item(&value, window)) {
                Ok(Some(item)) => {
                    let item = Arc::new(item);
                    let lifetime = Duration::from_millis(expires.since(now));
                    let key = (window.index, id, expires);
                    self.known.put(key, Arc::clone(&item), lifetime);
                    found.push(Candidate { id, expires, item });
                }
                Ok(None) => gone.push(id),
                Err(failure) => {
                    self.counts.failed(failure);
                    gone.push(id);
                }
            }
        }
        if !gone.is_empty() {
            self.take_out(&window.index, &gone);
        }
        Ok(found)
    }

    pub(super) async fn add(
        &self,
        window: &Window,
        candidate: &Candidate,
        now: Millis,
        deadline: Instant,
    ) -> Result<(), Failure> {
        let lifetime = Duration::from_millis(candidate.expires.since(now));
        let Candidate { id, expires, item } = candidate;
        let mut bytes = item.exact.0.to_vec();
        bytes.extend(item.vector.to_bytes());
        let list = self.name_of_window(&window.index);
        let mut commands = Pipeline::with_capacity(5);
        commands.add_command(write(
            &self.name_of_item(&window.index, id),
            &bytes,
            lifetime,
        ));
        commands.cmd("ZADD").arg(&list).arg(expires.0).arg(&id.0);
        commands
            .cmd("ZREMRANGEBYSCORE")
            .arg(&list)
            .arg("-inf")
            .arg(now.0);
        let most = i64::try_from(window.len).unwrap_or(i64::MAX - 1) + 1;
        commands.cmd("ZREMRANGEBYRANK").arg(&list).arg(0).arg(-most);
        // Longer than any of its candidates.
        let longer = millis(lifetime.mul_f64(1.5));
        commands.cmd("PEXPIRE").arg(&list).arg(longer);
        let answers = self.writes.ask_all(&commands, deadline).await?;
        answers.into_iter().try_for_each(|answer| answer.map(drop))
    }

    pub(super) fn forget(&self, index: &Index, gone: &Candidate) {
        self.known.remove(&(*index, gone.id, gone.expires));
        self.take_out(index, &[gone.id]);
    }

    /// Takes them out of the window, when there is time for it.
    fn take_out(&self, index: &Index, gone: &[TextId]) {
        let mut command = cmd("ZREM");
        command.arg(self.name_of_window(index));
        for id in gone {
            command.arg(&id.0);
        }
        let writes = Arc::clone(&self.writes);
        tokio::spawn(async move {
            // Where it does not work out, whoever finds them next tries again.
            drop(writes.ask(&command, Instant::now() + FORGET).await);
        });
    }

    fn name_of_answer(&self, key: ExactKey) -> String {
        format!("{}:exact:{EXACT_LAYOUT}:{}", self.namespace, to_hex(&key.0))
    }

    /// In braces is what decides where a cluster has it: a window and its items are together.
    fn name_of_window(&self, index: &Index) -> String {
        let index = to_hex(&index.0);
        format!("{}:semantic:{SEMANTIC_LAYOUT}:{{{index}}}", self.namespace)
    }

    fn name_of_item(&self, index: &Index, id: &TextId) -> String {
        format!("{}:{}", self.name_of_window(index), to_hex(&id.0))
    }
}

/// Reads one byte more than there should be at most, so that what is too long is seen to be.
fn read(name: &str, most: usize) -> Cmd {
    let mut command = cmd("GETRANGE");
    command.arg(name).arg(0).arg(most);
    command
}

fn write(name: &str, bytes: &[u8], lifetime: Duration) -> Cmd {
    let mut command = cmd("SET");
    command.arg(name).arg(bytes).arg("PX").arg(millis(lifetime));
    command
}

/// At least one, as Redis takes no zero.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis())
        .unwrap_or(u64::MAX)
        .max(1)
}

fn text_id(value: &Value) -> Option<TextId> {
    match value {
        Value::BulkString(bytes) => bytes.as_slice().try_into().ok().map(TextId),
        _ => None,
    }
}

fn time(value: &Value) -> Option<Millis> {
    /// Later than anything that is kept expires, and exact.
    const LAST: f64 = 1e15;
    let score = match value {
        Value::BulkString(bytes) => str::from_utf8(bytes).ok()?.parse().ok()?,
        Value::Double(score) => *score,
        _ => return None,
    };
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is in the range"
    )]
    (0.0..LAST).contains(&score).then_some(Millis(score as u64))
}

fn item(value: &Value, window: &Window) -> Result<Option<Item>, Failure> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) if bytes.is_empty() => Ok(None),
        Value::BulkString(bytes) if bytes.len() == item_bytes(window.dimension) => {
            let (exact, vector) = bytes.split_first_chunk().ok_or(Failure::Garbage)?;
            Ok(Some(Item {
                exact: ExactKey(*exact),
                vector: Vector::from_bytes(vector).ok_or(Failure::Garbage)?,
            }))
        }
        _ => Err(Failure::Garbage),
    }
}
