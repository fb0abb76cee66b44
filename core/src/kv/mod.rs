//! Which blocks the engines have in their KV caches, as they tell themselves.
//!
//! An engine names its blocks by hashes that nobody else can compute. Here a block is known by what
//! is in it: its tokens, those before it, and what else sets it apart. The sidecar reads the events,
//! knows each engine's names for blocks, and tells Envoy what is where; the filter computes what the
//! blocks of a request would be, and looks who has them.
//!
//! | module | idea |
//! |---|---|
//! | [`mirror`] | what an Envoy knows of the engines, in common for all of its VMs |
//! | [`members`] | which targets providers have whose DNS names have several |
//! | [`payload`] | what an engine publishes, decoded |
//! | [`identity`] | what a block is known by |
//! | [`index`] | which blocks the engines have, and what of that has changed |
//! | [`feed`] | what the sidecar tells Envoy, page by page |
//! | [`residents`] | which blocks the ranks of engines have |
//! | [`stream`] | which of an engine's batches are taken in, and when they may be believed |
//! | [`tokens`] | token ids as clients write them |

mod board;
pub mod feed;
pub mod identity;
pub mod index;
mod journal;
mod leader;
mod log;
pub mod members;
pub mod mirror;
mod msgpack;
mod names;
mod packed;
pub mod payload;
pub mod residents;
pub mod stream;
#[cfg(test)]
mod tests;
pub mod tokens;

pub use msgpack::Malformed;

/// The kinds of memory that an engine keeps blocks in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Medium {
    /// The accelerator's own.
    Gpu,
    /// The host's.
    Cpu,
    /// Disks, object stores, whatever else.
    Other,
}

impl Medium {
    /// How many kinds there are.
    pub const COUNT: usize = 3;

    const ALL: [Self; Self::COUNT] = [Self::Gpu, Self::Cpu, Self::Other];

    /// By an engine's word. Where it says none, it has only its accelerator's.
    pub fn of(name: Option<&str>) -> Self {
        match name {
            None | Some("GPU" | "gpu") => Self::Gpu,
            Some("CPU" | "cpu" | "CPU_PINNED" | "CPU_TIER1" | "CPU_TIER2") => Self::Cpu,
            Some(_) => Self::Other,
        }
    }

    /// Its number, from 0.
    pub fn index(self) -> usize {
        self as usize
    }
}

/// Some kinds of memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Media(u8);

impl Media {
    /// None.
    pub const NONE: Self = Self(0);

    /// With one more.
    #[must_use]
    pub fn with(self, medium: Medium) -> Self {
        Self(self.0 | 1 << medium.index())
    }

    /// Whether it is none.
    pub fn is_empty(self) -> bool {
        self == Self::NONE
    }

    /// The bits of the kinds, the first kind's the lowest.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// By the bits. Nothing where they mean something else.
    pub fn from_bits(bits: u8) -> Option<Self> {
        (bits < 1 << Medium::COUNT).then_some(Self(bits))
    }

    /// The kinds.
    pub fn iter(self) -> impl Iterator<Item = Medium> {
        let has = move |medium: &Medium| self.0 & 1 << medium.index() != 0;
        Medium::ALL.into_iter().filter(has)
    }
}

/// What a block is worth, from 0 to 1, by the kind of memory that it is in: to copy one from
/// elsewhere takes time, though less than to compute it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MediumWeights {
    /// The accelerator's own.
    pub gpu: f64,
    /// The host's.
    pub cpu: f64,
    /// Anything else.
    pub other: f64,
}

impl Default for MediumWeights {
    fn default() -> Self {
        Self {
            gpu: 1.0,
            cpu: 0.8,
            other: 0.5,
        }
    }
}

impl MediumWeights {
    /// What a block is worth that is in these.
    pub fn best(&self, media: Media) -> f64 {
        let worth = media.iter().map(|medium| match medium {
            Medium::Gpu => self.gpu,
            Medium::Cpu => self.cpu,
            Medium::Other => self.other,
        });
        worth.fold(0.0, f64::max)
    }
}
