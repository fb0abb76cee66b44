//! Connections: HTTP/1.1 or HTTP/2 with prior knowledge, and the means to reset one.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, Semaphore};

use crate::router;
use crate::state::Shared;

/// The most connections at once; more wait in the kernel's queue.
const MAX_CONNECTIONS: usize = 1024;
/// The most requests at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 256;
/// Pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Resets the connection that a request came on.
#[derive(Debug, Clone, Default)]
pub(crate) struct Abort(Arc<AbortState>);

#[derive(Debug, Default)]
struct AbortState {
    asked: AtomicBool,
    wake: Notify,
}

impl Abort {
    /// Resets the connection. Never returns: whoever asked is dropped with it.
    pub(crate) async fn reset_connection(&self) {
        self.0.asked.store(true, Ordering::Relaxed);
        self.0.wake.notify_one();
        std::future::pending::<()>().await;
    }

    async fn asked(&self) {
        self.0.wake.notified().await;
    }
}

/// Serves connections for as long as it is polled.
pub(crate) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    while let Ok(place) = Arc::clone(&places).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let shared = Arc::clone(&shared);
                tokio::spawn(async move {
                    connection(stream, shared).await;
                    drop(place);
                });
            }
            Err(_) => tokio::time::sleep(ACCEPT_PAUSE).await,
        }
    }
}

async fn connection(stream: TcpStream, shared: Arc<Shared>) {
    // Tokens are small and must not wait for each other. Only a dead socket refuses this.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let abort = Abort::default();
    let socket = Socket {
        stream,
        abort: abort.clone(),
    };
    let service = service_fn(|request| {
        let (shared, abort) = (Arc::clone(&shared), abort.clone());
        async move { Ok::<_, Infallible>(router::answer(shared, abort, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http2().max_concurrent_streams(MAX_STREAMS);
    // A connection's errors are its client's; the engine lives on.
    tokio::select! {
        _ = builder.serve_connection(TokioIo::new(socket), service) => {}
        () = abort.asked() => {}
    }
}

/// A TCP stream that closes with a reset if one was asked for.
struct Socket {
    stream: TcpStream,
    abort: Abort,
}

impl Drop for Socket {
    fn drop(&mut self) {
        if self.abort.0.asked.load(Ordering::Relaxed) {
            // Should it fail, the connection still closes short of its end.
            drop(self.stream.set_zero_linger());
        }
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
