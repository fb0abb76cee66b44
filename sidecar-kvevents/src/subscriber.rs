//! One event stream, followed: sockets on one side, the decisions of
//! [`Stream`] on the other, the index behind it.
//!
//! Invariant: the connection and the replay are those that the stream wants. What it has given up
//! is closed before anything more is read from it. Where publishers connect, one that delivers stays:
//! another takes its place only once what is known by it is stale, so that an engine which has
//! restarted gets past what is left of its old connection, and no stranger past a live one.

use crate::state::{Replica, State, StreamView};
use crate::zmtp::{self, Event, Events, Io, Listener, Received};
use bytes::Bytes;
use futures_util::{StreamExt, future};
use rolter_core::config::KvEvents;
use rolter_core::kv::payload::{self, Event as KvEvent};
use rolter_core::kv::stream::{Blocks, Read, Settings, Stream};
use rolter_core::time::Millis;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The pause before a connection is made again, doubled each time that it does not last.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// An engine that comes up is found within so long, which without a replay socket is what its first
/// batches have to wait to be missed.
const MAX_BACKOFF: Duration = Duration::from_secs(2);
/// A connection that has lasted so long counts as one.
const LASTING_MILLIS: u64 = 5_000;
/// The pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Where there is nothing to wait for.
const FAR: Duration = Duration::from_hours(1);

type Answers = Pin<Box<dyn futures_util::Stream<Item = Result<Received, zmtp::Error>> + Send>>;

/// Follows the event stream of a rank for as long as it is polled.
pub async fn follow(state: Arc<State>, events: KvEvents, replica: Arc<Replica>) {
    let listener = if events.bind {
        Some(bind(&events, &replica).await)
    } else {
        None
    };
    let settings = Settings {
        has_replay: events.replay_endpoint.is_some(),
        on_gap: events.on_gap,
        stale_millis: events.stale_secs.saturating_mul(1000),
    };
    let subscriber = Subscriber {
        state: &state,
        replica: &replica,
        events: &events,
        listener,
        stream: Stream::new(settings),
        link: None,
        pending: None,
        connections_wanted: 0,
        connected_at: None,
        heard: false,
        told: Told::Nothing,
        refused: false,
        backoff: MIN_BACKOFF,
        retry_at: Instant::now(),
        answers: None,
    };
    subscriber.run().await;
}

/// Listens where the publisher connects to, as soon as that can be had.
async fn bind(events: &KvEvents, replica: &Replica) -> Listener {
    loop {
        match Listener::bind(&events.endpoint, replica.rank).await {
            Ok(listener) => return listener,
            Err(error) => {
                replica.counts.failed();
                tracing::error!(
                    provider = replica.target, rank = replica.rank, %error,
                    "cannot listen for KV events"
                );
                tokio::time::sleep(MAX_BACKOFF).await;
            }
        }
    }
}

struct Subscriber<'a> {
    state: &'a State,
    replica: &'a Replica,
    events: &'a KvEvents,
    listener: Option<Listener>,
    stream: Stream<Bytes>,
    link: Option<Events>,
    /// What becomes the link once it is connected.
    pending: Option<Events>,
    /// How often the stream has wanted another link so far.
    connections_wanted: u64,
    connected_at: Option<Millis>,
    /// Whether anything was published since the link is there.
    heard: bool,
    /// What was said last of what is known.
    told: Told,
    /// Whether a publisher has been turned away since the link is there.
    refused: bool,
    backoff: Duration,
    retry_at: Instant,
    /// What comes in answer to the request with this number.
    answers: Option<(u64, Answers)>,
}

/// What the log says of what is known of an engine.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Told {
    Nothing,
    Known,
    Unknown,
}

/// What can happen next.
enum Happening {
    Link(Option<Result<Event, zmtp::Error>>),
    Pending(Option<Result<Event, zmtp::Error>>),
    Accepted(std::io::Result<Box<dyn Io>>),
    Answer(Option<Result<Received, zmtp::Error>>),
    Retry,
    Tick,
}

impl<'a> Subscriber<'a> {
    async fn run(mut self) {
        loop {
            let happening = self.next().await;
            self.handle(happening).await;
            self.follow_wishes();
            self.tell();
            let view = StreamView {
                trusted: self.stream.trusted(),
                fresh_at: self.stream.fresh_at(),
                counts: self.stream.counts(),
            };
            self.state.note_stream(self.replica, view);
        }
    }

    /// Says once when it is for good that nothing is known, and what would mend it.
    fn tell(&mut self) {
        let (provider, rank) = (&self.replica.target, self.replica.rank);
        let trusted = self.stream.trusted();
        let for_good = self.heard && !trusted && self.stream.request().is_none();
        if trusted && self.told != Told::Known {
            self.told = Told::Known;
            tracing::info!(provider, rank, "it is known which blocks the engine has");
        } else if for_good && self.told != Told::Unknown {
            self.told = Told::Unknown;
            tracing::warn!(
                provider,
                rank,
                "it is not known which blocks the engine has until it clears its cache or starts \
                 anew: the beginning of its events cannot be had. To go by what comes from now on, \
                 write on_gap: rebuild; to have more of the beginning, a replay_endpoint"
            );
        }
    }

    async fn next(&mut self) -> Happening {
        let now = self.state.now();
        let due = self
            .stream
            .due_at()
            .map_or(FAR, |at| Duration::from_millis(at.since(now)));
        let due = Instant::now() + due;
        let idle = self.link.is_none() && self.pending.is_none() && self.listener.is_none();
        let answers = self.answers.as_mut().map(|(_, answers)| answers);
        tokio::select! {
            event = next_of(self.link.as_mut()) => Happening::Link(event),
            event = next_of(self.pending.as_mut()) => Happening::Pending(event),
            answer = next_of(answers) => Happening::Answer(answer),
            // Whoever else comes meanwhile waits where the kernel has it.
            accepted = accept(self.listener.as_ref()), if self.pending.is_none() => Happening::Accepted(accepted),
            () = sleep_until(self.retry_at), if idle => Happening::Retry,
            () = sleep_until(due) => Happening::Tick,
        }
    }

    async fn handle(&mut self, happening: Happening) {
        let now = self.state.now();
        match happening {
            Happening::Link(Some(Ok(Event::Published(Received::Batch { seq, payload })))) => {
                self.replica.counts.received();
                self.heard = true;
                let mut blocks = self.blocks();
                self.stream.published(seq, payload, now, &mut blocks);
            }
            Happening::Link(Some(Ok(Event::Published(Received::Malformed)))) => {
                self.replica.counts.malformed();
            }
            Happening::Link(Some(Ok(Event::Connected))) => {}
            Happening::Link(Some(Err(error))) => self.lost(&error),
            Happening::Link(None) => self.lost(&zmtp::Error::Closed),
            Happening::Accepted(Ok(_)) | Happening::Pending(Some(Ok(_))) if self.delivers(now) => {
                self.refuse();
            }
            Happening::Pending(Some(Ok(_))) => self.connected(now),
            Happening::Pending(Some(Err(error))) => {
                self.pending = None;
                self.replica.counts.failed();
                let (provider, rank) = (&self.replica.target, self.replica.rank);
                // Those that follow say the same.
                if self.backoff == MIN_BACKOFF {
                    tracing::warn!(provider, rank, %error, "cannot connect to KV events");
                } else {
                    tracing::debug!(provider, rank, %error, "cannot connect to KV events");
                }
                self.retry_later();
            }
            Happening::Pending(None) => self.pending = None,
            Happening::Accepted(Ok(io)) => {
                self.pending = Some(zmtp::follow(
                    future::ready(Ok(io)),
                    self.events.topic.clone(),
                ));
            }
            Happening::Accepted(Err(_)) => tokio::time::sleep(ACCEPT_PAUSE).await,
            Happening::Answer(answer) => self.answered(answer, now),
            Happening::Retry => {
                let (endpoint, rank) = (self.events.endpoint.clone(), self.replica.rank);
                let connecting = async move { zmtp::connect(&endpoint, rank).await };
                self.pending = Some(zmtp::follow(connecting, self.events.topic.clone()));
            }
            Happening::Tick => {
                let mut blocks = self.blocks();
                self.stream.tick(now, &mut blocks);
            }
        }
    }

    fn connected(&mut self, now: Millis) {
        tracing::info!(
            provider = self.replica.target,
            rank = self.replica.rank,
            "connected to KV events"
        );
        self.link = self.pending.take();
        self.heard = false;
        self.connected_at = Some(now);
        self.refused = false;
        let mut blocks = self.blocks();
        self.stream.connected(now, &mut blocks);
    }

    /// Whether there is a link, and what is known by it is not stale.
    fn delivers(&self, now: Millis) -> bool {
        let fresh_at = self.stream.fresh_at().max(self.connected_at);
        let stale = self.events.stale_secs.saturating_mul(1000);
        self.link.is_some() && fresh_at.is_some_and(|at| now.since(at) <= stale)
    }

    /// Turns away who has connected while another publisher delivers.
    fn refuse(&mut self) {
        self.pending = None;
        self.replica.counts.refused();
        // It comes again and again.
        if !std::mem::replace(&mut self.refused, true) {
            tracing::warn!(
                provider = self.replica.target,
                rank = self.replica.rank,
                "another publisher connects here while one delivers; give each its own endpoint"
            );
        }
    }

    fn lost(&mut self, error: &zmtp::Error) {
        self.replica.counts.failed();
        tracing::warn!(
            provider = self.replica.target, rank = self.replica.rank, %error,
            "lost the connection to KV events"
        );
        self.drop_link();
    }

    fn drop_link(&mut self) {
        self.link = None;
        let lasted = self
            .connected_at
            .take()
            .is_some_and(|at| self.state.now().since(at) >= LASTING_MILLIS);
        if lasted {
            self.backoff = MIN_BACKOFF;
        }
        self.retry_later();
    }

    fn retry_later(&mut self) {
        // Many sidecars lose an engine at the same time.
        let jittered = self.backoff.mul_f64(0.5 + fastrand::f64() / 2.0);
        self.retry_at = Instant::now() + jittered;
        self.backoff = (self.backoff * 2).min(MAX_BACKOFF);
    }

    fn answered(&mut self, answer: Option<Result<Received, zmtp::Error>>, now: Millis) {
        let mut blocks = self.blocks();
        match answer {
            Some(Ok(Received::Batch { seq, payload })) => {
                self.stream.replayed(seq, &payload, now, &mut blocks);
            }
            None => {
                self.answers = None;
                self.stream.replay_ended(now, &mut blocks);
            }
            Some(Ok(Received::Malformed)) => self.failed("it makes no sense", now),
            Some(Err(error)) => self.failed(&error.to_string(), now),
        }
    }

    fn failed(&mut self, error: &str, now: Millis) {
        tracing::warn!(
            provider = self.replica.target,
            rank = self.replica.rank,
            error,
            "a replay of KV events failed"
        );
        self.answers = None;
        let mut blocks = self.blocks();
        self.stream.replay_failed(now, &mut blocks);
    }

    /// Makes the sockets what the stream wants them to be.
    fn follow_wishes(&mut self) {
        let wanted = self.stream.connections_wanted();
        if std::mem::replace(&mut self.connections_wanted, wanted) != wanted && self.link.is_some()
        {
            self.drop_link();
            // It is not for want of a peer.
            self.retry_at = Instant::now();
        }
        let request = self.stream.request();
        let asked = self.answers.as_ref().map(|(id, _)| *id);
        if asked == request.map(|request| request.id) {
            return;
        }
        let endpoint = self.events.replay_endpoint.clone();
        self.answers = request.zip(endpoint).map(|(request, endpoint)| {
            let rank = self.replica.rank;
            (request.id, zmtp::replay(endpoint, rank, request.from))
        });
    }

    fn blocks(&self) -> IndexOf<'a> {
        IndexOf {
            state: self.state,
            replica: self.replica,
        }
    }
}

/// The index, as far as it is about one rank.
struct IndexOf<'a> {
    state: &'a State,
    replica: &'a Replica,
}

impl Blocks<Bytes> for IndexOf<'_> {
    fn clear(&mut self) {
        self.state.index().clear(self.replica.id);
        self.state.wake();
    }

    fn apply(&mut self, batch: &Bytes, known: bool) -> Read {
        let Ok(batch) = payload::decode(batch) else {
            self.replica.counts.malformed();
            return Read::Malformed;
        };
        let rank = self.replica.rank;
        if let Some(told) = batch.rank.filter(|&told| told != u32::from(rank))
            && self.replica.counts.is_of_another_rank()
        {
            tracing::warn!(
                provider = self.replica.target,
                rank,
                told,
                "KV events say that they are of another rank; is the endpoint that of rank 0, and `ranks` right?"
            );
        }
        let cleared = batch
            .events
            .iter()
            .any(|event| matches!(event, KvEvent::Cleared));
        if known || cleared {
            let applied = self.state.index().apply(self.replica.id, &batch);
            self.replica.counts.applied(&applied);
            self.state.wake();
        }
        if cleared { Read::Cleared } else { Read::Plain }
    }
}

/// The next of what there may be; waits where there is nothing.
async fn next_of<S: futures_util::Stream + Unpin>(stream: Option<&mut S>) -> Option<S::Item> {
    match stream {
        Some(stream) => stream.next().await,
        None => future::pending().await,
    }
}

async fn accept(listener: Option<&Listener>) -> std::io::Result<Box<dyn Io>> {
    match listener {
        Some(listener) => listener.accept().await,
        None => future::pending().await,
    }
}
