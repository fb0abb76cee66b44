//! What the sidecar tells Envoy, page by page: which blocks came and went, and how each target is.
//!
//! A page is msgpack. Its changes are packed by hand, as there can be half a million a second.

use super::Media;
use super::identity::Identity;
use super::members::Members;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A rank of an engine: its place in [`Page::replicas`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplicaId(pub u16);

impl ReplicaId {
    /// By its place. There are no places beyond the last number.
    pub(super) fn of(place: usize) -> Self {
        Self(u16::try_from(place).unwrap_or(u16::MAX))
    }
}

/// Where a reader of the feed is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// The index that it reads from.
    pub instance: u64,
    /// The first change that it has not been told.
    pub change: u64,
    /// Where in the blocks it is, while it is told of all that there are: the replica, and the place
    /// among its blocks.
    pub scan: Option<(ReplicaId, u32)>,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}-{:x}", self.instance, self.change)?;
        match self.scan {
            None => Ok(()),
            Some((ReplicaId(replica), place)) => write!(f, "-{replica:x}-{place:x}"),
        }
    }
}

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let read = || {
            let mut numbers = text
                .split('-')
                .map(|digits| u64::from_str_radix(digits, 16).ok());
            let (instance, change) = (numbers.next()??, numbers.next()??);
            let scan = match numbers.next() {
                None => None,
                Some(replica) => {
                    let replica = ReplicaId(replica?.try_into().ok()?);
                    Some((replica, numbers.next()??.try_into().ok()?))
                }
            };
            numbers.next().is_none().then_some(Self {
                instance,
                change,
                scan,
            })
        };
        read().ok_or(NoCursor)
    }
}

/// What is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoCursor;

impl fmt::Display for NoCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no cursor of this feed")
    }
}

impl std::error::Error for NoCursor {}

/// A change of what is where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// A replica has nothing any more.
    Clear(ReplicaId),
    /// A replica has a block in these kinds of memory, which may be none, and in no others.
    Put(ReplicaId, Identity, Media),
}

/// Stands where the kinds of memory are otherwise.
const CLEAR: u8 = 0xff;

impl Change {
    /// Appends it.
    pub fn write(&self, to: &mut Vec<u8>) {
        match *self {
            Self::Clear(ReplicaId(replica)) => {
                to.push(CLEAR);
                to.extend_from_slice(&replica.to_le_bytes());
            }
            Self::Put(ReplicaId(replica), Identity(block), media) => {
                to.push(media.bits());
                to.extend_from_slice(&replica.to_le_bytes());
                to.extend_from_slice(&block.to_le_bytes());
            }
        }
    }

    /// Takes the first off what was written. Nothing at the end, and from where it is no change.
    pub fn read(from: &mut &[u8]) -> Option<Self> {
        let (&kind, rest) = from.split_first()?;
        let (&replica, rest) = rest.split_first_chunk()?;
        let replica = ReplicaId(u16::from_le_bytes(replica));
        if kind == CLEAR {
            *from = rest;
            return Some(Self::Clear(replica));
        }
        let media = Media::from_bits(kind)?;
        let (&block, rest) = rest.split_first_chunk()?;
        *from = rest;
        let block = Identity(u64::from_le_bytes(block));
        Some(Self::Put(replica, block, media))
    }
}

/// What the sidecar tells at once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Page {
    /// Where to go on, in the words of the sidecar, which are for nobody else to read.
    pub cursor: String,
    /// Whether there is more to be had at once, so that what was told is not the present yet.
    pub more: bool,
    /// Whether this tells of everything anew, from the beginning: what was told before is void.
    pub anew: bool,
    /// What identities are made with; see [`Seed`](super::identity::Seed).
    pub seed: u64,
    /// The ranks of engines that publish events, by their numbers. Those of one target follow one
    /// another. A number that nobody has any more has no target's name.
    pub replicas: Vec<ReplicaState>,
    /// How targets are, as far as the sidecar looks.
    pub targets: Vec<TargetState>,
    /// [`Change`]s, one after another.
    #[serde(with = "serde_bytes")]
    pub changes: Vec<u8>,
    /// The targets of each provider that has a DNS name for them. A page of a sidecar that looks for
    /// no names may be without.
    #[serde(default, with = "super::members")]
    pub members: Vec<Members>,
}

/// How a rank of an engine is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaState {
    /// The provider's name.
    pub target: String,
    /// The rank.
    pub rank: u16,
    /// Tokens in a block; zero where none was told.
    pub block_size: u32,
    /// How long ago there was a sign of life of its events, in milliseconds. Nothing where what is
    /// known of its blocks is not to be trusted.
    pub age_ms: Option<u64>,
}

/// How a target is.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TargetState {
    /// The provider's name.
    pub target: String,
    /// Whether the engine says that it is well, where it was asked.
    pub healthy: Option<bool>,
    /// How busy the engine says it is, where it was asked and told.
    pub load: Option<LoadState>,
    /// What its `LMCache` says, where it was asked and told.
    pub lmcache: Option<LmCacheState>,
    /// The `LoRA` adapters that it has.
    pub adapters: Vec<String>,
}

/// How busy an engine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadState {
    /// Requests that it works on.
    pub running: u32,
    /// Requests that it has not begun with.
    pub waiting: u32,
    /// How long ago it said so, in milliseconds.
    pub age_ms: u64,
}

/// How full an `LMCache` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LmCacheState {
    /// From 0 to 1.
    pub occupancy: f64,
    /// Whether it can be used at all.
    pub available: bool,
    /// How long ago it said so, in milliseconds.
    pub age_ms: u64,
}

impl Page {
    /// The page as msgpack.
    pub fn to_bytes(&self) -> Vec<u8> {
        // Nothing in it can be refused: it has no maps with odd keys, and memory takes all.
        rmp_serde::to_vec(self).unwrap_or_default()
    }

    /// A page from msgpack.
    ///
    /// # Errors
    /// Where it is none, as one of another version of the sidecar.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, rmp_serde::decode::Error> {
        rmp_serde::from_slice(bytes)
    }
}
