//! KV events: an engine tells over `ZeroMQ` which blocks its cache has, as vLLM does.
//!
//! Each rank has a publisher of its own, with a sequence from 0 at each start of the engine. A
//! publication never waits for anybody: who reads too slowly loses some, and can ask for them on
//! the replay socket.

mod endpoint;
mod fault;
mod payload;
mod publisher;
mod sockets;

use std::io;
use std::sync::Arc;

use serde::Serialize;

use endpoint::{Place, Role};

pub use fault::{KvFault, UnknownKvFault};
pub(crate) use publisher::Publisher;
pub(crate) use sockets::Sockets;

/// How an engine publishes KV events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KvEvents {
    /// Where rank 0 publishes; rank r does on port + r. As with vLLM, it binds if this has a `*`
    /// or `::` or starts with `ipc://`, and else connects. `*` as the host stands for every
    /// address, and as the port for any free one.
    pub endpoint: String,
    /// Binds wherever `endpoint` is: for a given port on loopback, which vLLM cannot bind.
    pub bind: bool,
    /// Where rank 0 answers what was published; rank r does on port + r. It always binds.
    pub replay_endpoint: Option<String>,
    /// The first frame of every publication. May be empty.
    pub topic: String,
    /// How events are written.
    pub encoding: KvEncoding,
    /// How names of blocks are written.
    pub hashes: KvHashes,
    /// How replays are answered.
    pub replay_form: KvReplayForm,
    /// Announces blocks that a request finds as stored once more.
    pub full_report: bool,
}

/// How events are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KvEncoding {
    /// Maps with a `type`, as vLLM from 0.24 on.
    Map,
    /// Arrays that begin with the type, as vLLM up to 0.23.
    Array,
}

/// How names of blocks are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KvHashes {
    /// Unsigned integers of 64 bits.
    Int,
    /// Strings of 32 bytes.
    Bytes,
}

/// How replays are answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum KvReplayForm {
    /// Topic, sequence and payload, as vLLM from 0.26 on.
    Topic,
    /// Sequence and payload, as vLLM up to 0.25.
    NoTopic,
}

impl Default for KvEvents {
    /// Both sockets on free ports of loopback, and what vLLM 0.32 writes.
    fn default() -> Self {
        Self {
            endpoint: "tcp://127.0.0.1:*".to_owned(),
            bind: false,
            replay_endpoint: Some("tcp://127.0.0.1:*".to_owned()),
            topic: "kv-events".to_owned(),
            encoding: KvEncoding::Map,
            hashes: KvHashes::Int,
            replay_form: KvReplayForm::Topic,
            full_report: false,
        }
    }
}

/// Where one rank publishes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KvAddress {
    /// Where a subscriber connects to; or, if the engine connects, where it has to bind.
    pub endpoint: String,
    /// Where replays are asked for.
    pub replay: Option<String>,
}

/// The publishers of an engine, their sockets and where those are, by rank.
pub(crate) struct Started {
    pub(crate) publishers: Vec<Arc<Publisher>>,
    pub(crate) sockets: Vec<Sockets>,
    pub(crate) addresses: Vec<KvAddress>,
}

/// Takes the places of all ranks. In `config`, free ports become the ones that were taken.
pub(crate) fn start(config: &mut KvEvents, ranks: usize) -> io::Result<Started> {
    let role = if config.bind || endpoint::binds(&config.endpoint) {
        Role::Bind
    } else {
        Role::Connect
    };
    let places = Place::take(&config.endpoint, role, ranks)?;
    let replays = match &config.replay_endpoint {
        Some(endpoint) => Some(Place::take(endpoint, Role::Bind, ranks)?),
        None => None,
    };
    config.bind |= role == Role::Bind;
    if let Some(first) = places.first() {
        config.endpoint = first.to_string();
    }
    if let Some(first) = replays.as_ref().and_then(|places| places.first()) {
        config.replay_endpoint = Some(first.to_string());
    }
    let mut replays = replays.map(Vec::into_iter);
    let mut started = Started {
        publishers: Vec::new(),
        sockets: Vec::new(),
        addresses: Vec::new(),
    };
    for (rank, place) in places.into_iter().enumerate() {
        let replay = replays.as_mut().and_then(Iterator::next);
        started.addresses.push(KvAddress {
            endpoint: place.reachable(),
            replay: replay.as_ref().map(Place::reachable),
        });
        let (publisher, commands) = Publisher::new(config.clone(), rank);
        let publisher = Arc::new(publisher);
        started.sockets.push(Sockets {
            place,
            replay,
            commands,
            publisher: Arc::clone(&publisher),
        });
        started.publishers.push(publisher);
    }
    Ok(started)
}
