//! A closed loop: connections that ask one request at a time each, without a pause, and look at every
//! answer whole.

use super::http::Incoming;
use super::upstream::COMPLETION;
use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{sleep, timeout};

/// The longest that an answer may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Connections at work, until they are dropped.
pub(super) struct Client {
    tally: Rc<Cell<Tally>>,
    connections: JoinSet<()>,
}

/// What came of the requests so far, and is taken away for each window.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// How long each right answer took.
    pub(super) latencies: Vec<Duration>,
    pub(super) failures: usize,
    /// What was wrong first.
    pub(super) failure: Option<String>,
}

impl Client {
    /// Begins to ask these requests, again and again in their order, within the thread's `LocalSet`.
    pub(super) fn start(addr: SocketAddr, connections: usize, requests: &Rc<Vec<Vec<u8>>>) -> Self {
        let tally = Rc::new(Cell::new(Tally::default()));
        let next = Rc::new(Cell::new(0));
        let mut asking = JoinSet::new();
        for _ in 0..connections {
            let (tally, next) = (Rc::clone(&tally), Rc::clone(&next));
            let requests = Rc::clone(requests);
            asking.spawn_local(async move {
                loop {
                    let Err(failure) = ask(addr, &requests, &next, &tally).await;
                    change(&tally, |tally| {
                        tally.failures += 1;
                        tally.failure.get_or_insert_with(|| failure.to_string());
                    });
                    // So that one who refuses all is not asked without end.
                    sleep(Duration::from_millis(10)).await;
                }
            });
        }
        Self {
            tally,
            connections: asking,
        }
    }

    /// What came since this was asked last.
    pub(super) fn take(&self) -> Tally {
        self.tally.take()
    }

    /// Ends the connections.
    pub(super) async fn stop(mut self) {
        self.connections.shutdown().await;
        // The tasks at the other ends notice.
        yield_now().await;
    }
}

/// Asks over one connection until something is wrong.
async fn ask(
    addr: SocketAddr,
    requests: &[Vec<u8>],
    next: &Cell<usize>,
    tally: &Cell<Tally>,
) -> io::Result<std::convert::Infallible> {
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    let mut incoming = Incoming::new();
    loop {
        let place = next.get();
        next.set((place + 1) % requests.len());
        let start = Instant::now();
        timeout(
            PATIENCE,
            exchange(&mut stream, &mut incoming, &requests[place]),
        )
        .await??;
        let latency = start.elapsed();
        change(tally, |tally| tally.latencies.push(latency));
    }
}

/// Asks one request, and is content with the right answer alone.
async fn exchange(
    stream: &mut TcpStream,
    incoming: &mut Incoming,
    request: &[u8],
) -> io::Result<()> {
    stream.write_all(request).await?;
    let ended = || io::Error::new(io::ErrorKind::UnexpectedEof, "there was no answer");
    let head = incoming.response(stream).await?.ok_or_else(ended)?;
    let (mut right, mut length) = (true, 0);
    let piece = |piece: &[u8]| {
        right &= COMPLETION.as_bytes().get(length..length + piece.len()) == Some(piece);
        length += piece.len();
    };
    incoming.body(stream, head.framing, piece).await?;
    if head.status == 200 && right && length == COMPLETION.len() {
        return Ok(());
    }
    let status = head.status;
    let what = format!("status {status} with {length} bytes which are not the upstream's answer");
    Err(io::Error::other(what))
}

fn change(tally: &Cell<Tally>, change: impl FnOnce(&mut Tally)) {
    let mut all = tally.take();
    change(&mut all);
    tally.set(all);
}
