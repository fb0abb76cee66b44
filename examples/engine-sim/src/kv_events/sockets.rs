//! The sockets of one rank: PUB, which binds or connects, and ROUTER for replays.
//!
//! Invariant: nothing here holds up the engine. Publications that find no open socket are dropped.

use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use zeromq::{PubSocket, RouterSocket, Socket, SocketEvent, SocketOptions, SocketRecv, SocketSend};

use super::endpoint::Place;
use super::publisher::{Command, Publisher};

/// Pause before a place that could not be had is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// How long a connection may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a replay may wait for an asker who does not read, and all who ask after it.
const REPLAY_PATIENCE: Duration = Duration::from_secs(5);

/// What the sockets of one rank need.
#[derive(Debug)]
pub(crate) struct Sockets {
    pub(crate) place: Place,
    pub(crate) replay: Option<Place>,
    pub(crate) commands: mpsc::Receiver<Command>,
    pub(crate) publisher: Arc<Publisher>,
}

impl Sockets {
    /// Runs both sockets for as long as it is polled.
    pub(crate) async fn run(self) {
        let replay = async {
            match self.replay {
                Some(place) => answer_replays(place, &self.publisher).await,
                None => pending().await,
            }
        };
        tokio::join!(publish(self.place, self.commands), replay);
    }
}

/// Why a socket takes no publications any more.
enum Closed {
    /// Its peer is gone.
    Lost,
    /// It was told to close.
    Down,
    /// The engine is gone.
    End,
}

struct Open {
    socket: PubSocket,
    /// For a socket that connects, what becomes of its one peer.
    events: Option<Pin<Box<dyn Stream<Item = SocketEvent> + Send>>>,
}

async fn publish(mut place: Place, mut commands: mpsc::Receiver<Command>) {
    loop {
        let closed = match opened(&mut place, &mut commands).await {
            Ok(open) => open.serve(&mut commands).await,
            Err(closed) => closed,
        };
        match closed {
            Closed::Lost => {}
            Closed::Down => loop {
                match commands.recv().await {
                    Some(Command::Up) => break,
                    Some(_) => {}
                    None => return,
                }
            },
            Closed::End => return,
        }
    }
}

/// Waits for an open socket. What is to be published meanwhile has no subscriber.
async fn opened(place: &mut Place, commands: &mut mpsc::Receiver<Command>) -> Result<Open, Closed> {
    let mut opening = pin!(Open::at(place));
    loop {
        tokio::select! {
            biased;
            open = &mut opening => return Ok(open),
            command = commands.recv() => match command {
                Some(Command::Down) => return Err(Closed::Down),
                Some(Command::Publish(_) | Command::Up) => {}
                None => return Err(Closed::End),
            },
        }
    }
}

impl Open {
    /// Binds or connects, however often it takes.
    async fn at(place: &mut Place) -> Self {
        loop {
            let mut options = SocketOptions::default();
            options.connect_timeout(CONNECT_TIMEOUT);
            let mut socket = PubSocket::with_options(options);
            match &*place {
                Place::Peer(endpoint) => {
                    let events = Box::pin(socket.monitor());
                    if socket.connect(endpoint).await.is_ok() {
                        let events = Some(events as _);
                        return Self { socket, events };
                    }
                }
                _ => {
                    if let Ok(listener) = place.listener()
                        && socket.bind_listener(listener).await.is_ok()
                    {
                        let events = None;
                        return Self { socket, events };
                    }
                }
            }
            sleep(RETRY_PAUSE).await;
        }
    }

    async fn serve(mut self, commands: &mut mpsc::Receiver<Command>) -> Closed {
        loop {
            let lost = async {
                match &mut self.events {
                    Some(events) => loop {
                        if let None | Some(SocketEvent::Disconnected(_)) = events.next().await {
                            return;
                        }
                    },
                    None => pending().await,
                }
            };
            tokio::select! {
                command = commands.recv() => match command {
                    // It queues for each subscriber, and drops where a queue is full.
                    Some(Command::Publish(message)) => drop(self.socket.send(message).await),
                    Some(Command::Down) => return Closed::Down,
                    Some(Command::Up) => {}
                    None => return Closed::End,
                },
                () = lost => return Closed::Lost,
            }
        }
    }
}

async fn answer_replays(mut place: Place, publisher: &Publisher) {
    let mut socket = RouterSocket::new();
    // Taken before the engine started, so this is there.
    let Ok(listener) = place.listener() else {
        return;
    };
    if socket.bind_listener(listener).await.is_err() {
        return;
    }
    loop {
        let Ok(request) = socket.recv().await else {
            sleep(RETRY_PAUSE).await;
            continue;
        };
        let frames = request.into_vec();
        let Some((asker, request)) = frames.split_first() else {
            continue;
        };
        let answers = publisher.replay(request);
        let sending = async {
            for mut answer in answers {
                answer.push_front(asker.clone());
                if socket.send(answer).await.is_err() {
                    return;
                }
            }
        };
        // Who asks and does not read gets no more.
        drop(timeout(REPLAY_PATIENCE, sending).await);
    }
}
