//! Sockets to listen on, and serving what comes until it is to stop.

use crate::zmtp::{Io, remove_stale_socket};
use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rolter_core::config::Listen;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

/// Connections at once: more than requests of all kinds, as each has one at a time.
const MAX_CONNECTIONS: usize = 2048;
/// What a connection may take until the next request has begun. Envoy opens another where it needs one.
const HEADER_TIMEOUT: Duration = Duration::from_mins(1);
/// What is buffered of a request, so also the most that its headers have.
const MAX_HEADER_BYTES: usize = 64 << 10;
/// The pause after a failed accept, which is mostly a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A socket that listens.
#[derive(Debug)]
pub enum Bound {
    /// At a path.
    Unix(UnixListener),
    /// At a port.
    Tcp(TcpListener),
}

impl Bound {
    /// Listens where the configuration says. A socket that nobody listens on any more is replaced.
    pub async fn bind(listen: &Listen) -> io::Result<Self> {
        match listen {
            Listen::Unix(path) => {
                remove_stale_socket(path);
                UnixListener::bind(path).map(Self::Unix)
            }
            Listen::Tcp(address) => TcpListener::bind(address).await.map(Self::Tcp),
        }
    }

    async fn accept(&self) -> io::Result<Box<dyn Io>> {
        match self {
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
            Self::Tcp(listener) => {
                let stream = listener.accept().await?.0;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream))
            }
        }
    }

    /// The address, where it is a port.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(listener) => listener.local_addr().ok(),
        }
    }
}

/// Serves until it is to stop and what was begun is answered.
pub async fn serve(bound: Bound, router: Router, stop: CancellationToken) {
    let service = TowerToHyperService::new(router);
    let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let connections = GracefulShutdown::new();
    loop {
        // Those for whom there is no place wait where the kernel has them.
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, bound.accept().await)
        };
        let (place, io) = tokio::select! {
            accepted = accepted => accepted,
            () = stop.cancelled() => break,
        };
        let Ok(io) = io else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEADER_TIMEOUT)
            .max_buf_size(MAX_HEADER_BYTES)
            .serve_connection(TokioIo::new(io), service.clone());
        let connection = connections.watch(connection);
        tokio::spawn(async move {
            // How it ends is the peer's affair.
            drop(connection.await);
            drop(place);
        });
    }
    connections.shutdown().await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;

    #[tokio::test(start_paused = true)]
    async fn who_never_ends_a_request_is_cut_off() {
        let any = Listen::Tcp("127.0.0.1:0".parse().unwrap());
        let bound = Bound::bind(&any).await.unwrap();
        let address = bound.address().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(serve(bound, Router::new(), stop.clone()));
        for begun in ["", "GET /healthz HT"] {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(begun.as_bytes()).await.unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.unwrap();
        }
        stop.cancel();
        serving.await.unwrap();
    }
}
