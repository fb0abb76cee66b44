//! TCP and Unix sockets as one.

use rolter_core::config::EventEndpoint;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

/// A connection.
pub trait Io: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// The silence after which the kernel asks whether the peer is there, and how often it asks again.
/// Where there is no replay socket, nothing else finds a peer that went without a word.
const KEEPALIVE: Duration = Duration::from_secs(10);

/// Connects to a rank's endpoint.
pub async fn connect(endpoint: &EventEndpoint, rank: u16) -> io::Result<Box<dyn Io>> {
    match endpoint {
        EventEndpoint::Tcp { host, port } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            tcp(TcpStream::connect((host, port.saturating_add(rank))).await?)
        }
        EventEndpoint::Ipc(path) => Ok(Box::new(UnixStream::connect(path).await?)),
    }
}

fn tcp(stream: TcpStream) -> io::Result<Box<dyn Io>> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(KEEPALIVE)
        .with_interval(KEEPALIVE);
    SockRef::from(&stream).set_tcp_keepalive(&keepalive)?;
    Ok(Box::new(stream))
}

/// Where publishers connect to.
#[derive(Debug)]
pub enum Listener {
    /// A port.
    Tcp(TcpListener),
    /// A Unix socket.
    Unix(UnixListener),
}

impl Listener {
    /// Listens at a rank's endpoint.
    pub async fn bind(endpoint: &EventEndpoint, rank: u16) -> io::Result<Self> {
        match endpoint {
            EventEndpoint::Tcp { host, port } => {
                let port = port.saturating_add(rank);
                let host = host.trim_start_matches('[').trim_end_matches(']');
                let listener = if host == "*" {
                    // Both families, where there are two.
                    match TcpListener::bind(("::", port)).await {
                        Err(_) => TcpListener::bind(("0.0.0.0", port)).await,
                        both => both,
                    }
                } else {
                    TcpListener::bind((host, port)).await
                };
                listener.map(Self::Tcp)
            }
            EventEndpoint::Ipc(path) => {
                remove_stale(path);
                UnixListener::bind(path).map(Self::Unix)
            }
        }
    }

    /// The next connection.
    pub async fn accept(&self) -> io::Result<Box<dyn Io>> {
        match self {
            Self::Tcp(listener) => tcp(listener.accept().await?.0),
            Self::Unix(listener) => Ok(Box::new(listener.accept().await?.0)),
        }
    }
}

/// Removes a socket that a process which is gone has left behind, and nothing else.
pub(crate) fn remove_stale(path: &str) {
    use std::os::unix::fs::FileTypeExt;
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    let refused = || {
        let kind = std::os::unix::net::UnixStream::connect(path)
            .err()
            .map(|error| error.kind());
        kind == Some(io::ErrorKind::ConnectionRefused)
    };
    if is_socket && refused() {
        // Should it fail, so does what follows, which says why.
        drop(std::fs::remove_file(path));
    }
}
