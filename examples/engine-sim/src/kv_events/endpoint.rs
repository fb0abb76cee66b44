//! Where sockets are: endpoints as vLLM has them, and listeners on them.
//!
//! A place to bind is taken from the moment that it exists, so its address is known before
//! anything runs.

use std::fmt;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use zeromq::Listener;

/// How often a run of free ports is looked for.
const FREE_PORT_TRIES: usize = 64;

/// Whether vLLM binds an endpoint.
pub(crate) fn binds(endpoint: &str) -> bool {
    endpoint.contains('*') || endpoint.contains("::") || endpoint.starts_with("ipc://")
}

/// What a socket does with its endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Bind,
    Connect,
}

/// One socket's place.
#[derive(Debug)]
pub(crate) enum Place {
    /// Where it binds, and the listener if nobody has used it yet.
    Tcp(SocketAddr, Option<TcpListener>),
    /// The same on a path.
    Ipc(PathBuf, Option<UnixListener>),
    /// Where it connects to.
    Peer(String),
}

impl Place {
    /// The places of `ranks` sockets: rank r is at the endpoint's port + r.
    pub(crate) fn take(endpoint: &str, role: Role, ranks: usize) -> io::Result<Vec<Self>> {
        if let Some(path) = endpoint.strip_prefix("ipc://") {
            if ranks > 1 {
                return Err(refused(
                    endpoint,
                    "with more than one rank it must be tcp://",
                ));
            }
            return Ok(vec![match role {
                Role::Bind => Self::Ipc(path.into(), Some(listen_at(Path::new(path))?)),
                Role::Connect => Self::Peer(endpoint.to_owned()),
            }]);
        }
        let wanted = "it must be tcp://<host>:<port> or ipc://<path>";
        let (host, port) = endpoint
            .strip_prefix("tcp://")
            .and_then(|address| address.rsplit_once(':'))
            .ok_or_else(|| refused(endpoint, wanted))?;
        let port = match port {
            "*" => 0,
            _ => port.parse().map_err(|_| refused(endpoint, wanted))?,
        };
        match role {
            Role::Connect if port == 0 || host == "*" => Err(refused(
                endpoint,
                "to connect, it must name a host and a port",
            )),
            Role::Connect => {
                let peer = |rank| Ok(Self::Peer(format!("tcp://{host}:{}", offset(port, rank)?)));
                (0..ranks).map(peer).collect()
            }
            Role::Bind => {
                let host = match host {
                    "*" => "0.0.0.0",
                    host => host.trim_start_matches('[').trim_end_matches(']'),
                };
                let first = (host, port).to_socket_addrs()?.next();
                let first = first.ok_or_else(|| refused(endpoint, wanted))?;
                take_ports(first, ranks)
            }
        }
    }

    /// The listener of a place to bind, taken anew if it was used before.
    pub(crate) fn listener(&mut self) -> io::Result<Listener> {
        match self {
            Self::Tcp(addr, listener) => match listener.take() {
                Some(listener) => Ok(listener.into()),
                None => Ok(TcpListener::bind(*addr)?.into()),
            },
            Self::Ipc(path, listener) => match listener.take() {
                Some(listener) => Ok(listener.into()),
                None => Ok(listen_at(path)?.into()),
            },
            Self::Peer(endpoint) => Err(refused(endpoint, "it is not one to bind")),
        }
    }

    /// The endpoint that a peer on this machine uses.
    pub(crate) fn reachable(&self) -> String {
        match self {
            Self::Tcp(addr, _) if addr.ip().is_unspecified() => {
                format!("tcp://{}:{}", Ipv4Addr::LOCALHOST, addr.port())
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr, _) => write!(f, "tcp://{addr}"),
            Self::Ipc(path, _) => write!(f, "ipc://{}", path.display()),
            Self::Peer(endpoint) => f.write_str(endpoint),
        }
    }
}

/// Ports that follow each other, from the one that is asked for or from any that is free.
fn take_ports(first: SocketAddr, ranks: usize) -> io::Result<Vec<Place>> {
    let take = || -> io::Result<Vec<Place>> {
        let mut taken: Vec<Place> = Vec::new();
        let mut addr = first;
        for rank in 0..ranks {
            let listener = TcpListener::bind(addr)?;
            let taken_at = listener.local_addr()?;
            let start = if rank == 0 { taken_at } else { addr };
            addr.set_port(offset(start.port(), 1)?);
            taken.push(Place::Tcp(taken_at, Some(listener)));
        }
        Ok(taken)
    };
    let tries = if first.port() == 0 {
        FREE_PORT_TRIES
    } else {
        1
    };
    let mut last = take();
    for _ in 1..tries {
        if last.is_ok() {
            break;
        }
        last = take();
    }
    last
}

fn listen_at(path: &Path) -> io::Result<UnixListener> {
    // As ZeroMQ does: a socket that a dead process left there is in nobody's way.
    if fs::metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    UnixListener::bind(path)
}

fn offset(port: u16, rank: usize) -> io::Result<u16> {
    u16::try_from(rank)
        .ok()
        .and_then(|rank| port.checked_add(rank))
        .ok_or_else(|| {
            let message = format!("port {port} plus rank {rank} is no port");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })
}

fn refused(endpoint: &str, why: &str) -> io::Error {
    let message = format!("kv events cannot use the endpoint {endpoint:?}: {why}");
    io::Error::new(io::ErrorKind::InvalidInput, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_binds_where_vllm_does() {
        for (endpoint, bound) in [
            ("tcp://*:5557", true),
            ("tcp://[::]:5557", true),
            ("ipc:///run/kv", true),
            ("tcp://127.0.0.1:*", true),
            ("tcp://127.0.0.1:5557", false),
            ("tcp://index:5557", false),
        ] {
            assert_eq!(binds(endpoint), bound, "{endpoint}");
        }
    }

    #[test]
    fn a_rank_is_at_its_own_port() {
        let places = Place::take("tcp://index:5557", Role::Connect, 3).expect("places");
        let places: Vec<_> = places.iter().map(Place::to_string).collect();
        assert_eq!(
            places,
            ["tcp://index:5557", "tcp://index:5558", "tcp://index:5559"]
        );
        let places = Place::take("tcp://127.0.0.1:*", Role::Bind, 3).expect("free ports");
        let ports = places.iter().map(|place| match place {
            Place::Tcp(addr, _) => usize::from(addr.port()),
            _ => 0,
        });
        let ports: Vec<_> = ports.collect();
        assert_eq!((ports[1], ports[2]), (ports[0] + 1, ports[0] + 2));
    }

    #[test]
    fn what_cannot_be_bound_or_connected_is_refused() {
        for (endpoint, role, ranks) in [
            ("", Role::Bind, 1),
            ("tcp://127.0.0.1", Role::Bind, 1),
            ("tcp://127.0.0.1:many", Role::Bind, 1),
            ("inproc://kv", Role::Bind, 1),
            ("tcp://127.0.0.1:*", Role::Connect, 1),
            ("tcp://*:5557", Role::Connect, 1),
            ("tcp://index:65535", Role::Connect, 2),
            ("ipc:///run/kv", Role::Bind, 2),
        ] {
            assert!(Place::take(endpoint, role, ranks).is_err(), "{endpoint}");
        }
    }
}
