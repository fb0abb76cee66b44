//! The blocks of one rank of an engine, by its own names for them.
//!
//! Invariant: `residents` counts, for each identity and medium, the names that have a copy there.

use super::identity::{Identity, Numbers, Seed};
use super::index::Applied;
use super::payload::{Batch, Event, Removed, Stored};
use super::{Media, Medium};
use crate::queue::{Linked, Links, Queue};
use slab::Slab;
use std::collections::HashMap;

/// Blocks without a copy whose identity is kept. A block that was removed from one medium may be
/// announced in another, without its tokens, a moment later.
const MAX_GONE: usize = 4096;

/// What a rank has told of its blocks.
pub(super) struct Names {
    max_blocks: usize,
    known: HashMap<u64, u32, Numbers>,
    blocks: Slab<Block>,
    /// Blocks that have a copy, and those that have none any more, from the longest known on.
    live: Queue,
    gone: Queue,
    residents: HashMap<Identity, [u16; Medium::COUNT], Numbers>,
    block_size: u32,
    /// The group of layers whose blocks are counted, once there is one.
    group: Option<u32>,
    tokens: Vec<u8>,
}

/// A block by one name.
struct Block {
    name: u64,
    identity: Identity,
    /// Real ones are as many as requests that computed the same block at once. An engine that tells
    /// of hits as of stored blocks makes a count run high, until it clears its cache.
    copies: [u8; Medium::COUNT],
    links: Links,
}

impl Linked for Block {
    fn links(&mut self) -> &mut Links {
        &mut self.links
    }
}

impl Block {
    fn is_gone(&self) -> bool {
        self.copies == [0; Medium::COUNT]
    }
}

impl Names {
    pub(super) fn new(max_blocks: usize) -> Self {
        Self {
            // Places in a slab have 32 bits here.
            max_blocks: max_blocks.clamp(1, 1 << 31),
            known: HashMap::default(),
            blocks: Slab::new(),
            live: Queue::EMPTY,
            gone: Queue::EMPTY,
            residents: HashMap::default(),
            block_size: 0,
            group: None,
            tokens: Vec::new(),
        }
    }

    /// How many blocks are resident.
    pub(super) fn len(&self) -> usize {
        self.residents.len()
    }

    /// Tokens in a block; zero where none was told.
    pub(super) fn block_size(&self) -> u32 {
        self.block_size
    }

    /// How many places there may be blocks at.
    pub(super) fn places(&self) -> usize {
        self.blocks.capacity()
    }

    /// The block at a place, where it is resident. A block keeps its place, so all can be gone
    /// through while they change.
    pub(super) fn resident_at(&self, place: usize) -> Option<(Identity, Media)> {
        let identity = self.blocks.get(place)?.identity;
        let copies = self.residents.get(&identity)?;
        Some((identity, media(*copies)))
    }

    /// Takes in what has happened. `tell` is called with each change of what is resident.
    pub(super) fn apply(
        &mut self,
        batch: &Batch<'_>,
        seed: Seed,
        tell: &mut impl FnMut(Told),
    ) -> Applied {
        let mut applied = Applied::default();
        for event in &batch.events {
            match event {
                Event::Stored(stored) => self.store(stored, seed, &mut applied, tell),
                Event::Removed(removed) => self.remove(removed, &mut applied, tell),
                Event::Cleared => {
                    applied.cleared += 1;
                    self.clear();
                    tell(Told::Cleared);
                }
                Event::Unknown => applied.unknown += 1,
            }
        }
        applied
    }

    /// Forgets everything, and gives back the room that it took.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.max_blocks);
    }

    fn store(
        &mut self,
        stored: &Stored<'_>,
        seed: Seed,
        applied: &mut Applied,
        tell: &mut impl FnMut(Told),
    ) {
        if !self.counts(stored) {
            return;
        }
        let medium = Medium::of(stored.medium);
        if stored.token_ids.is_empty() {
            for hash in &stored.hashes {
                match self.known.get(&hash.name()) {
                    Some(&id) => self.add_copy(id, medium, applied, tell),
                    None => applied.orphans += 1,
                }
            }
            return;
        }
        self.block_size = self.block_size.max(stored.block_size);
        let Some(mut identity) = self.before(stored, seed) else {
            applied.orphans += stored.hashes.len() as u64;
            return;
        };
        let mut tokens = std::mem::take(&mut self.tokens);
        let blocks = stored
            .token_ids
            .chunks_exact(stored.block_size.max(1) as usize);
        for (place, (hash, block)) in stored.hashes.iter().zip(blocks).enumerate() {
            tokens.clear();
            tokens.extend(block.iter().flat_map(|id| id.to_le_bytes()));
            let keys = stored.extra_keys.as_ref().and_then(|keys| keys.get(place));
            let keys = keys.map_or(&[][..], |keys| keys.beside(stored.lora_name));
            identity = identity.child(&tokens, keys);
            let id = self.name(hash.name(), identity, tell);
            self.add_copy(id, medium, applied, tell);
        }
        self.tokens = tokens;
    }

    /// Whether the blocks of this group of layers are those that count. For a model with several
    /// groups it is the first that attends to the whole prompt: where that one has a block, it has
    /// all before it. Of one with none nothing can be concluded from the leading blocks.
    fn counts(&mut self, stored: &Stored<'_>) -> bool {
        let is_whole = stored
            .spec_kind
            .is_none_or(|kind| kind.contains("full") || kind.contains("mla"));
        if is_whole && self.group.is_none() {
            self.group = stored.group_idx;
        }
        // What is told without a group, as offloaded blocks are, is told of all of them.
        stored.group_idx.is_none() || self.group == stored.group_idx
    }

    /// The identity of what the blocks follow, where it is known.
    fn before(&self, stored: &Stored<'_>, seed: Seed) -> Option<Identity> {
        let Some(parent) = stored.parent else {
            return match (stored.lora_name, stored.lora_id) {
                // What has a number alone can be asked for by no request.
                (None, Some(_)) => None,
                (name, _) => Some(seed.root(name)),
            };
        };
        let id = *self.known.get(&parent.name())?;
        Some(self.blocks.get(id as usize)?.identity)
    }

    fn remove(
        &mut self,
        removed: &Removed<'_>,
        applied: &mut Applied,
        tell: &mut impl FnMut(Told),
    ) {
        let other = |group| self.group.is_some_and(|counted| counted != group);
        if removed.group_idx.is_some_and(other) {
            return;
        }
        let medium = Medium::of(removed.medium);
        for hash in &removed.hashes {
            if let Some(&id) = self.known.get(&hash.name()) {
                self.drop_copy(id, medium, applied, tell);
            }
        }
    }

    /// The place of the block of this name and identity, which has no copy yet where it is new.
    fn name(&mut self, name: u64, identity: Identity, tell: &mut impl FnMut(Told)) -> u32 {
        if let Some(&id) = self.known.get(&name) {
            if self
                .blocks
                .get(id as usize)
                .is_some_and(|block| block.identity == identity)
            {
                return id;
            }
            // The engine has given the name to something else.
            self.forget(id, tell);
        }
        let block = Block {
            name,
            identity,
            copies: [0; Medium::COUNT],
            links: Links::NONE,
        };
        let id = u32::try_from(self.blocks.insert(block)).unwrap_or(u32::MAX);
        self.gone.push(&mut self.blocks, id);
        self.known.insert(name, id);
        id
    }

    fn add_copy(
        &mut self,
        id: u32,
        medium: Medium,
        applied: &mut Applied,
        tell: &mut impl FnMut(Told),
    ) {
        let Some(block) = self.blocks.get_mut(id as usize) else {
            return;
        };
        applied.stored += 1;
        let was_gone = block.is_gone();
        let identity = block.identity;
        let Some(copies) = block.copies.get_mut(medium.index()) else {
            return;
        };
        let is_first = *copies == 0;
        *copies = copies.saturating_add(1);
        if was_gone {
            self.gone.unlink(&mut self.blocks, id);
            self.live.push(&mut self.blocks, id);
        } else {
            self.live.renew(&mut self.blocks, id);
        }
        if is_first {
            let counts = self.residents.entry(identity).or_default();
            count(counts, medium, 1);
            tell(Told::Put(identity, media(*counts)));
        }
        if self.live.len() > self.max_blocks
            && let Some(oldest) = self.live.oldest()
        {
            applied.evicted += 1;
            self.forget(oldest, tell);
        }
    }

    fn drop_copy(
        &mut self,
        id: u32,
        medium: Medium,
        applied: &mut Applied,
        tell: &mut impl FnMut(Told),
    ) {
        let Some(block) = self.blocks.get_mut(id as usize) else {
            return;
        };
        let Some(copies) = block.copies.get_mut(medium.index()) else {
            return;
        };
        let Some(left) = copies.checked_sub(1) else {
            return;
        };
        *copies = left;
        applied.removed += 1;
        let (identity, is_gone) = (block.identity, block.is_gone());
        if left == 0 {
            self.take(identity, medium, tell);
        }
        if is_gone {
            self.live.unlink(&mut self.blocks, id);
            self.gone.push(&mut self.blocks, id);
            if self.gone.len() > MAX_GONE
                && let Some(oldest) = self.gone.oldest()
            {
                self.forget(oldest, tell);
            }
        }
    }

    /// Forgets a block.
    fn forget(&mut self, id: u32, tell: &mut impl FnMut(Told)) {
        let Some(block) = self.blocks.get(id as usize) else {
            return;
        };
        let Block {
            name,
            identity,
            copies,
            ..
        } = *block;
        let queue = if block.is_gone() {
            &mut self.gone
        } else {
            &mut self.live
        };
        queue.unlink(&mut self.blocks, id);
        self.blocks.try_remove(id as usize);
        self.known.remove(&name);
        for (medium, copies) in Medium::ALL.into_iter().zip(copies) {
            if copies > 0 {
                self.take(identity, medium, tell);
            }
        }
    }

    /// One name less has a copy of this block in this medium.
    fn take(&mut self, identity: Identity, medium: Medium, tell: &mut impl FnMut(Told)) {
        let Some(counts) = self.residents.get_mut(&identity) else {
            return;
        };
        count(counts, medium, -1);
        let media = media(*counts);
        if media.is_empty() {
            self.residents.remove(&identity);
        }
        tell(Told::Put(identity, media));
    }
}

/// A change of what is resident.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// Nothing is.
    Cleared,
    /// A block is in these kinds of memory.
    Put(Identity, Media),
}

fn count(counts: &mut [u16; Medium::COUNT], medium: Medium, amount: i16) {
    if let Some(count) = counts.get_mut(medium.index()) {
        *count = count.saturating_add_signed(amount);
    }
}

fn media(counts: [u16; Medium::COUNT]) -> Media {
    let there = Medium::ALL.into_iter().zip(counts);
    there
        .filter(|(_, count)| *count > 0)
        .fold(Media::NONE, |media, (medium, _)| media.with(medium))
}
