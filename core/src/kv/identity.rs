//! What a block is known by: its tokens, those before it, and what else sets it apart.
//!
//! The sidecar computes it from what an engine tells, the filter from a request, and where both mean
//! the same block it is the same number. A seed that the sidecar draws goes into all of them, so
//! that nobody can make up prompts whose blocks are taken for those of others.

use super::payload::ExtraKeys;
use std::hash::{BuildHasherDefault, Hasher};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// What is drawn at random for each life of the sidecar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seed(pub u64);

/// What a block is known by. 64 bits are enough: of ten million blocks the chance that any two are
/// taken for one another is one in 400,000, and the price is a request that goes to the wrong engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Identity(pub u64);

/// Bytes of a token id, as identities are computed from them: little-endian.
pub const TOKEN_BYTES: usize = 4;

impl Seed {
    /// What stands before the first block of a prompt, for the base model or for an adapter of it.
    pub fn root(self, lora_name: Option<&str>) -> Identity {
        match lora_name {
            None => Identity(xxh3_64_with_seed(b"base", self.0)),
            Some(name) => Identity(xxh3_64_with_seed(name.as_bytes(), !self.0)),
        }
    }
}

impl Identity {
    /// The block after this one with these tokens, [`TOKEN_BYTES`] each, and these further keys, as
    /// [`ExtraKeys::beside`] has them.
    #[must_use]
    pub fn child(self, tokens: &[u8], keys: &[u8]) -> Self {
        let hash = xxh3_64_with_seed(tokens, self.0);
        if keys.is_empty() {
            return Self(hash);
        }
        Self(xxh3_64_with_seed(keys, !hash))
    }
}

/// The blocks of a prompt for which an engine may use its cache: whole ones, and never the one with
/// the last token, which is always computed.
#[derive(Clone, Debug)]
pub struct Chain<'a> {
    /// The tokens of the blocks that are left.
    tokens: &'a [u8],
    block_bytes: usize,
    parent: Identity,
    /// The keys of the next block.
    keys: Vec<u8>,
}

impl<'a> Chain<'a> {
    /// The blocks of a prompt of these tokens, [`TOKEN_BYTES`] each.
    pub fn new(
        seed: Seed,
        lora_name: Option<&str>,
        salt: Option<&str>,
        tokens: &'a [u8],
        block_size: u32,
    ) -> Self {
        let block_bytes = (block_size as usize).saturating_mul(TOKEN_BYTES);
        let usable = tokens.len().saturating_sub(TOKEN_BYTES);
        let blocks = usable.checked_div(block_bytes).unwrap_or(0);
        // Engines take an empty salt for none.
        let salt = salt.filter(|salt| !salt.is_empty()).map(ExtraKeys::of_salt);
        Self {
            tokens: tokens.get(..blocks * block_bytes).unwrap_or_default(),
            block_bytes,
            parent: seed.root(lora_name),
            keys: salt.map_or_else(Vec::new, |keys| keys.beside(None).to_vec()),
        }
    }

    /// How many blocks are left.
    pub fn blocks(&self) -> usize {
        self.tokens.len().checked_div(self.block_bytes).unwrap_or(0)
    }
}

impl Iterator for Chain<'_> {
    type Item = Identity;

    fn next(&mut self) -> Option<Identity> {
        if self.tokens.is_empty() {
            return None;
        }
        let (block, rest) = self.tokens.split_at_checked(self.block_bytes)?;
        self.tokens = rest;
        self.parent = self.parent.child(block, &self.keys);
        self.keys.clear();
        Some(self.parent)
    }
}

/// Hashes numbers that are hashes already, or nearly: an engine's names for blocks, and identities.
/// Nobody outside can choose them.
#[derive(Clone, Copy, Default)]
pub(super) struct NumberHasher(u64);

pub(super) type Numbers = BuildHasherDefault<NumberHasher>;

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0 ^ self.0 >> 32
    }

    fn write_u64(&mut self, number: u64) {
        // Spreads what is not spread yet, as the small numbers of an engine that counts.
        self.0 = (self.0 ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    fn write(&mut self, bytes: &[u8]) {
        self.write_u64(xxh3_64_with_seed(bytes, self.0));
    }
}
