//! A TCP proxy that breaks connections in the ways in which networks do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Bytes that pass until the connection breaks.
const ALL: usize = usize::MAX;

pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

struct State {
    /// Of what the peer sends on the connections of now.
    left: AtomicUsize,
    generation: watch::Sender<usize>,
    stalled: watch::Sender<bool>,
    accepted: AtomicUsize,
}

impl Proxy {
    pub(crate) async fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().port();
        let state = Arc::new(State {
            left: AtomicUsize::new(ALL),
            generation: watch::channel(0).0,
            stalled: watch::channel(false).0,
            accepted: AtomicUsize::new(0),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                shared.accepted.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(pass(client, port, Arc::clone(&shared)));
            }
        });
        Self { port: own, state }
    }

    /// Breaks all connections of now.
    pub(crate) fn cut(&self) {
        self.state
            .generation
            .send_modify(|generation| *generation += 1);
    }

    /// Breaks the connection once so many more bytes have come from the peer.
    pub(crate) fn cut_after(&self, bytes: usize) {
        self.state.left.store(bytes, Ordering::SeqCst);
    }

    /// Passes nothing on any more over the connections of now, which stay open. Later ones are fine.
    pub(crate) fn stall(&self) {
        self.state.stalled.send_replace(true);
    }

    pub(crate) fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::SeqCst)
    }
}

async fn pass(mut client: TcpStream, port: u16, state: Arc<State>) {
    let mut cut = state.generation.subscribe();
    state.stalled.send_replace(false);
    let mut stalled = state.stalled.subscribe();
    let Ok(mut peer) = TcpStream::connect(("127.0.0.1", port)).await else {
        return;
    };
    let (mut up, mut down) = ([0; 4096], [0; 4096]);
    loop {
        tokio::select! {
            _ = cut.changed() => return,
            _ = stalled.changed() => {
                if *stalled.borrow_and_update() {
                    // Until it is cut, or given up.
                    let _ = cut.changed().await;
                    return;
                }
            }
            read = client.read(&mut up) => match read {
                Ok(len) if len > 0 && peer.write_all(&up[..len]).await.is_ok() => {}
                _ => return,
            },
            read = peer.read(&mut down) => {
                let Ok(len) = read else { return };
                let left = state.left.load(Ordering::SeqCst);
                let passed = len.min(left);
                if len == 0 || client.write_all(&down[..passed]).await.is_err() {
                    return;
                }
                if left != ALL {
                    state.left.store(if passed < len { ALL } else { left - passed }, Ordering::SeqCst);
                }
                if passed < len {
                    return;
                }
            }
        }
    }
}
