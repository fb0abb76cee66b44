//! The sidecar, and what it watches of an engine.

use super::fields::Fields;
use std::fmt;
use std::net::SocketAddr;

/// Where the sidecar listens, and how Envoy gets to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sidecar {
    /// The Envoy cluster that leads to it.
    pub cluster: String,
    /// Where it listens for Envoy.
    pub listen: Listen,
    /// Where it listens for who collects metrics, if anywhere else.
    pub metrics_listen: Option<SocketAddr>,
    /// Whether it may listen where other machines reach it. It knows no callers: who reaches it can
    /// read what engines hold.
    pub allow_remote: bool,
    /// How it looks for the addresses of providers that have a name.
    pub dns: Dns,
}

/// How names are looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dns {
    /// The servers to ask, in order; those of the machine where there are none.
    pub servers: Vec<SocketAddr>,
    /// How often, in seconds.
    pub refresh_secs: u64,
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// The path of a Unix socket.
    Unix(String),
    /// A port of this machine.
    Tcp(SocketAddr),
}

/// The events by which an engine tells which blocks are in its KV cache.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEvents {
    /// Where they come from; with several ranks, rank 0's, and each further one's port is one more.
    pub endpoint: EventEndpoint,
    /// Where to ask for events that were missed, if anywhere; with several ranks as above.
    pub replay_endpoint: Option<EventEndpoint>,
    /// The topic under which they are published; empty for any.
    pub topic: String,
    /// Whether the engine connects to the endpoint, so that the sidecar has to listen there.
    pub bind: bool,
    /// The engine's data-parallel ranks.
    pub ranks: u16,
    /// Blocks that are remembered of the engine, in equal parts for its ranks.
    pub max_blocks: usize,
    /// After so long without a sign of life nothing is concluded from the events, in seconds.
    pub stale_secs: u64,
    /// What to do about events that cannot be had any more.
    pub on_gap: OnGap,
}

/// A ZMQ endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventEndpoint {
    /// `tcp://host:port`.
    Tcp {
        /// A name, an address, or `*`; an IPv6 address has its brackets.
        host: String,
        /// Of rank 0.
        port: u16,
    },
    /// `ipc://path`.
    Ipc(String),
}

/// What to do where events are missing and cannot be had any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnGap {
    /// Forget what the engine has, and conclude nothing until it has cleared its cache.
    Clear,
    /// Forget what the engine has, and learn anew from what comes: less than it really has.
    Rebuild,
}

/// The occupancy that an `LMCache` controller tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LmCache {
    /// The URL to ask.
    pub endpoint: String,
    /// How often, in seconds.
    pub refresh_secs: u64,
    /// After so long without an answer nothing is known, in seconds.
    pub stale_secs: u64,
}

/// As long as the DNS of a Kubernetes cluster lets its answers be kept.
const REFRESH_SECS: u64 = 5;

const LISTEN: &str = "unix:///run/rolter/sidecar.sock";

impl Sidecar {
    pub(super) fn read(document: &Fields<'_>) -> Option<Self> {
        let fields = document.object("sidecar")?;
        if !fields.has("cluster") {
            fields.add("cluster", "missing; write the name of the Envoy cluster");
        }
        let allow_remote = fields.boolean("allow_remote", false);
        let listen = fields.parsed(
            "listen",
            "write unix:///path or ip:port, as in 127.0.0.1:9463",
            Listen::parse,
        );
        let listen = listen.unwrap_or_else(|| Listen::Unix(LISTEN.replacen("unix://", "", 1)));
        let metrics_listen = fields.parsed("metrics_listen", "write ip:port", |text| {
            text.parse::<SocketAddr>().ok()
        });
        let ways = [
            ("listen", listen.address()),
            ("metrics_listen", metrics_listen),
        ];
        for (key, address) in ways {
            if !allow_remote && address.is_some_and(|address| !address.ip().is_loopback()) {
                let what =
                    "other machines reach it; write a loopback address, or allow_remote: true";
                fields.add(key, what);
            }
        }
        Some(Self {
            cluster: fields.string("cluster").unwrap_or_default().to_owned(),
            listen,
            metrics_listen,
            allow_remote,
            dns: Dns::read(&fields),
        })
    }
}

impl Dns {
    fn read(sidecar: &Fields<'_>) -> Self {
        let Some(fields) = sidecar.object("dns") else {
            return Self {
                servers: Vec::new(),
                refresh_secs: REFRESH_SECS,
            };
        };
        let mut servers = Vec::new();
        for (path, text) in fields.strings("servers") {
            match text.parse() {
                Ok(server) => servers.push(server),
                Err(_) => fields.add(
                    &path,
                    format!("{text:?}; write ip:port, as in 10.96.0.10:53"),
                ),
            }
        }
        Self {
            servers,
            refresh_secs: fields.integer("refresh_secs", 1..=3600, REFRESH_SECS),
        }
    }
}

impl fmt::Display for Listen {
    /// As it is written.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix://{path}"),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Listen {
    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("unix://") {
            return path.starts_with('/').then(|| Self::Unix(path.to_owned()));
        }
        text.parse().ok().map(Self::Tcp)
    }

    /// The address, where it is no Unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Unix(_) => None,
            Self::Tcp(address) => Some(*address),
        }
    }
}

impl KvEvents {
    pub(super) fn read(provider: &Fields<'_>) -> Option<Self> {
        let fields = provider.object("kv_events")?;
        let endpoint = |key| {
            let wanted = "write tcp://host:port or ipc:///path, as in tcp://10.0.0.1:5557";
            fields.parsed(key, wanted, EventEndpoint::parse)
        };
        if !fields.has("endpoint") {
            fields.add(
                "endpoint",
                "missing; write the engine's, as in tcp://10.0.0.1:5557",
            );
        }
        let bind = fields.boolean("bind", false);
        let ranks = fields.integer("ranks", 1..=MAX_RANKS, 1);
        let (own, replay) = (endpoint("endpoint"), endpoint("replay_endpoint"));
        for (key, endpoint, binds) in [
            ("endpoint", &own, bind),
            ("replay_endpoint", &replay, false),
        ] {
            if let Some(problem) = endpoint.as_ref().and_then(|e| e.problem(binds, ranks)) {
                fields.add(key, problem);
            }
        }
        let topic = fields.unseen("topic").unwrap_or_default();
        let on_gap = match fields.one_of("on_gap", &["clear", "rebuild"]) {
            Some("rebuild") => OnGap::Rebuild,
            _ => OnGap::Clear,
        };
        Some(Self {
            endpoint: own.unwrap_or(EventEndpoint::Ipc(String::new())),
            replay_endpoint: replay,
            topic: topic.to_owned(),
            bind,
            ranks,
            max_blocks: fields.integer("max_blocks", 1..=100_000_000, 1_000_000),
            stale_secs: fields.integer("stale_secs", 1..=3600, 30),
            on_gap,
        })
    }
}

/// More ranks than any engine has; the number of a block's holder has room for them.
const MAX_RANKS: u64 = 256;

impl EventEndpoint {
    fn parse(text: &str) -> Option<Self> {
        if let Some(path) = text.strip_prefix("ipc://") {
            return (!path.is_empty()).then(|| Self::Ipc(path.to_owned()));
        }
        let (host, port) = text.strip_prefix("tcp://")?.rsplit_once(':')?;
        let port = port.parse().ok().filter(|&port| port != 0)?;
        let is_host = |byte: u8| byte.is_ascii_graphic() && !b"/?#@".contains(&byte);
        let whole = !host.contains(':') || (host.starts_with('[') && host.ends_with(']'));
        let host = (!host.is_empty() && host.bytes().all(is_host) && whole).then_some(host)?;
        Some(Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }

    /// What is wrong with it, given who listens there and for how many ranks.
    fn problem(&self, binds: bool, ranks: u16) -> Option<&'static str> {
        match self {
            Self::Tcp { host, .. } if host == "*" && !binds => {
                Some("nothing can be reached at *; write the engine's host")
            }
            Self::Tcp { port, .. } if port.checked_add(ranks - 1).is_none() => {
                Some("the ports of all ranks must be below 65536; write a lower one")
            }
            Self::Ipc(_) if ranks > 1 => Some("ranks differ by their ports; write tcp://host:port"),
            _ => None,
        }
    }

    /// The endpoint of a rank, as ZMQ takes it.
    pub fn of_rank(&self, rank: u16) -> String {
        match self {
            Self::Tcp { host, port } => format!("tcp://{host}:{}", port.saturating_add(rank)),
            Self::Ipc(path) => format!("ipc://{path}"),
        }
    }
}

impl LmCache {
    pub(super) fn read(provider: &Fields<'_>) -> Option<Self> {
        let fields = provider.object("lmcache")?;
        if !fields.has("endpoint") {
            fields.add("endpoint", "missing; write the controller's URL");
        }
        let refresh_secs = fields.integer("refresh_secs", 1..=3600, 2);
        let stale_secs = fields.integer("stale_secs", 1..=3600, 10);
        if stale_secs < refresh_secs {
            let what = format!("less than refresh_secs; write {refresh_secs} or more");
            fields.add("stale_secs", what);
        }
        Some(Self {
            endpoint: read_url(&fields, "endpoint").unwrap_or_default(),
            refresh_secs,
            stale_secs,
        })
    }
}

/// The URL of an HTTP server, without a slash at its end. No message shows it: it may have a
/// password in it, by mistake.
pub(super) fn read_url(fields: &Fields<'_>, key: &'static str) -> Option<String> {
    let url = fields.unseen(key)?;
    let rest = url
        .strip_prefix("http://")
        .or(url.strip_prefix("https://"))
        .unwrap_or_default();
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if host.contains('@') {
        fields.add(key, "no place for a user or a password; remove it");
    } else if host.is_empty() || !url.bytes().all(|byte| byte.is_ascii_graphic()) {
        fields.add(key, "no URL; write one, as in http://10.0.0.1:8000");
    }
    Some(url.trim_end_matches('/').to_owned())
}
