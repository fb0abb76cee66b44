//! The blocks of a prompt, computed as far as anyone asks and no block twice.

use super::identity::{Chain, Identity, Seed};

/// Sizes of blocks that are told apart; of engines with further ones nothing is found.
const MAX_SIZES: usize = 8;

/// The blocks of a prompt, by the size of blocks.
pub struct Prefix<'a> {
    seed: Seed,
    lora_name: Option<&'a str>,
    salt: Option<&'a str>,
    tokens: &'a [u8],
    /// Engines of one model have one size of blocks, or a few.
    chains: Vec<Known<'a>>,
}

struct Known<'a> {
    size: u32,
    count: usize,
    blocks: Vec<Identity>,
    rest: Chain<'a>,
}

impl<'a> Prefix<'a> {
    /// Of these tokens, as [`Chain::new`] takes them.
    pub fn new(
        seed: Seed,
        lora_name: Option<&'a str>,
        salt: Option<&'a str>,
        tokens: &'a [u8],
    ) -> Self {
        Self {
            seed,
            lora_name,
            salt,
            tokens,
            chains: Vec::new(),
        }
    }

    /// How many blocks of a size there are that an engine may have.
    pub fn blocks(&mut self, size: u32) -> usize {
        self.chain(size).map_or(0, |known| known.count)
    }

    /// A block of a size, by its place.
    pub fn block(&mut self, size: u32, place: usize) -> Option<Identity> {
        let known = self.chain(size)?;
        while known.blocks.len() <= place {
            known.blocks.push(known.rest.next()?);
        }
        known.blocks.get(place).copied()
    }

    fn chain(&mut self, size: u32) -> Option<&mut Known<'a>> {
        let place = self.chains.iter().position(|known| known.size == size);
        if place.is_none() && self.chains.len() >= MAX_SIZES {
            return None;
        }
        let place = place.unwrap_or_else(|| {
            let rest = Chain::new(self.seed, self.lora_name, self.salt, self.tokens, size);
            self.chains.push(Known {
                size,
                count: rest.blocks(),
                blocks: Vec::new(),
                rest,
            });
            self.chains.len() - 1
        });
        self.chains.get_mut(place)
    }
}
