//! Which blocks the ranks of engines have: one table for all of them, so that a prompt is followed
//! once, however many ranks have a part of it.
//!
//! Invariant: a block is in the table while somebody has it, and in each holder's list at the place
//! that the table says.

use super::Media;
use super::feed::ReplicaId;
use super::identity::{Identity, Numbers};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZeroU8;
use std::slice;

/// The table is so many small ones, each of which grows at a time of its own: nobody waits while
/// millions of entries move at once.
const SHARDS: usize = 1 << u8::BITS;

/// A table that is full, or has too many traces of blocks that have gone, is made anew with room for
/// this part of its blocks more, and at least [`LEAST_MORE`]. So it is never less than three eighths
/// full, whatever came and went.
const PART_MORE: usize = 8;
const LEAST_MORE: usize = 4;

type Shard = HashMap<Identity, Holders, Numbers>;

/// The blocks that are there, by who has them, each with the kinds of memory that it is in.
#[derive(Clone, Debug)]
pub struct Residents {
    shards: Vec<Shard>,
    /// Each replica's blocks, in no order.
    lists: Vec<Vec<Identity>>,
    /// Blocks in all lists, and the most that there may be.
    count: usize,
    max: usize,
}

/// Who has a block, by their numbers. Nearly always that is one, so an entry of the table is made
/// for one: it has sixteen bytes in wasm.
#[derive(Clone, Debug)]
enum Holders {
    One(Holder),
    #[expect(clippy::box_collection, reason = "an entry would be larger without")]
    Many(Box<Vec<Holder>>),
}

#[cfg(target_arch = "wasm32")]
const _: () = assert!(size_of::<(Identity, Holders)>() == 16);

#[derive(Clone, Copy, Debug)]
struct Holder {
    /// Where the block is in the replica's list.
    place: u32,
    replica: u16,
    /// As bits, which leave a value for what tells one holder from many.
    media: NonZeroU8,
}

impl Residents {
    /// With room for so many blocks, those of different replicas counted each.
    pub fn new(max: usize) -> Self {
        Self {
            shards: vec![Shard::default(); SHARDS],
            lists: Vec::new(),
            count: 0,
            max,
        }
    }

    /// A replica has a block in these kinds of memory now, and in no others. Whether there was room.
    pub fn put(&mut self, ReplicaId(replica): ReplicaId, block: Identity, media: Media) -> bool {
        let Some(media) = NonZeroU8::new(media.bits()) else {
            self.remove(replica, block);
            return true;
        };
        let number = usize::from(replica);
        if self.lists.len() <= number {
            self.lists.resize_with(number + 1, Vec::new);
        }
        let (Some(list), Some(shard)) = (
            self.lists.get_mut(number),
            self.shards.get_mut(shard_of(block)),
        ) else {
            return false;
        };
        let holder = Holder {
            place: u32::try_from(list.len()).unwrap_or(u32::MAX),
            replica,
            media,
        };
        let is_full = self.count >= self.max;
        make_room(shard);
        match shard.entry(block) {
            Entry::Vacant(_) if is_full => return false,
            Entry::Vacant(entry) => {
                entry.insert(Holders::One(holder));
            }
            Entry::Occupied(entry) => {
                let holders = entry.into_mut();
                match holders.get_mut(replica) {
                    Some(known) => {
                        known.media = media;
                        return true;
                    }
                    None if is_full => return false,
                    None => holders.insert(holder),
                }
            }
        }
        if list.len() == list.capacity() {
            // Less than twice as much, as there may be millions.
            list.reserve_exact(list.len() / 4 + LEAST_MORE);
        }
        list.push(block);
        self.count += 1;
        true
    }

    /// The kinds of memory in which a replica has a block, if it has it.
    pub fn get(&self, ReplicaId(replica): ReplicaId, block: Identity) -> Option<Media> {
        let holders = self.holders(block);
        let place = position(holders, replica).ok()?;
        Some(holders.get(place)?.media())
    }

    /// A replica has nothing any more.
    pub fn clear(&mut self, ReplicaId(replica): ReplicaId) {
        let Some(list) = self.lists.get_mut(usize::from(replica)) else {
            return;
        };
        let list = std::mem::take(list);
        self.count -= list.len();
        for block in list {
            self.take(replica, block);
        }
    }

    /// How many blocks are there, those of different replicas counted each.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many blocks a replica has.
    pub fn count(&self, replica: ReplicaId) -> usize {
        self.list(replica).len()
    }

    /// All blocks of a replica, in no order.
    pub fn iter(&self, replica: ReplicaId) -> impl Iterator<Item = (Identity, Media)> {
        let media = move |&block| Some((block, self.get(replica, block)?));
        self.list(replica).iter().filter_map(media)
    }

    /// Goes along the blocks of a prompt as long as somebody is told to have had all so far: `found`
    /// hears the place of a block and each of its holders, and says whether that one had.
    pub fn follow(
        &self,
        blocks: impl Iterator<Item = Identity>,
        mut found: impl FnMut(usize, ReplicaId, Media) -> bool,
    ) {
        /// Entries of a large table have to be fetched from far: so many are on their way at once.
        const AT_ONCE: usize = 16;
        let mut blocks = blocks.enumerate().peekable();
        while blocks.peek().is_some() {
            let mut ahead = [const { None }; AT_ONCE];
            for (to, (place, block)) in ahead.iter_mut().zip(&mut blocks) {
                *to = self.entry(block).map(|holders| (place, holders));
            }
            for of in ahead {
                let Some((place, holders)) = of else {
                    return;
                };
                let mut goes_on = false;
                for holder in Holders::as_slice(holders) {
                    goes_on |= found(place, ReplicaId(holder.replica), holder.media());
                }
                if !goes_on {
                    return;
                }
            }
        }
    }

    fn entry(&self, block: Identity) -> Option<&Holders> {
        self.shards.get(shard_of(block))?.get(&block)
    }

    fn holders(&self, block: Identity) -> &[Holder] {
        self.entry(block).map_or(&[], Holders::as_slice)
    }

    fn list(&self, ReplicaId(replica): ReplicaId) -> &[Identity] {
        let list = self.lists.get(usize::from(replica));
        list.map_or(&[], Vec::as_slice)
    }

    fn remove(&mut self, replica: u16, block: Identity) {
        let Some(Holder { place, .. }) = self.take(replica, block) else {
            return;
        };
        self.count -= 1;
        let Some(list) = self.lists.get_mut(usize::from(replica)) else {
            return;
        };
        // The last one gets the place that is free now, unless it is that one.
        let Some(moved) = list.pop().filter(|&moved| moved != block) else {
            return;
        };
        if let Some(free) = list.get_mut(place as usize) {
            *free = moved;
        }
        let shard = self.shards.get_mut(shard_of(moved));
        let holders = shard.and_then(|shard| shard.get_mut(&moved));
        if let Some(holder) = holders.and_then(|holders| holders.get_mut(replica)) {
            holder.place = place;
        }
    }

    /// Takes a holder of a block out of the table.
    fn take(&mut self, replica: u16, block: Identity) -> Option<Holder> {
        let shard = self.shards.get_mut(shard_of(block))?;
        let Entry::Occupied(mut entry) = shard.entry(block) else {
            return None;
        };
        match entry.get_mut() {
            &mut Holders::One(holder) => (holder.replica == replica).then(|| {
                entry.remove();
                holder
            }),
            holders @ Holders::Many(_) => holders.remove(replica),
        }
    }
}

impl Holders {
    fn as_slice(&self) -> &[Holder] {
        match self {
            Self::One(holder) => slice::from_ref(holder),
            Self::Many(holders) => holders,
        }
    }

    fn get_mut(&mut self, replica: u16) -> Option<&mut Holder> {
        let place = position(self.as_slice(), replica).ok()?;
        match self {
            Self::One(holder) => Some(holder),
            Self::Many(holders) => holders.get_mut(place),
        }
    }

    /// Adds one that is none yet.
    fn insert(&mut self, holder: Holder) {
        match self {
            Self::One(first) => {
                let mut both = vec![*first, holder];
                both.sort_unstable_by_key(|holder| holder.replica);
                *self = Self::Many(Box::new(both));
            }
            Self::Many(holders) => {
                if let Err(place) = position(holders, holder.replica) {
                    holders.insert(place, holder);
                }
            }
        }
    }

    /// Takes one out of several.
    fn remove(&mut self, replica: u16) -> Option<Holder> {
        let Self::Many(holders) = self else {
            return None;
        };
        let holder = holders.remove(position(holders, replica).ok()?);
        if let &[last] = holders.as_slice() {
            *self = Self::One(last);
        } else if holders.capacity() > 4 * holders.len() {
            holders.shrink_to(2 * holders.len());
        }
        Some(holder)
    }
}

impl Holder {
    fn media(self) -> Media {
        Media::from_bits(self.media.get()).unwrap_or(Media::NONE)
    }
}

/// By the highest byte, as the small tables go by all of them.
fn shard_of(Identity(block): Identity) -> usize {
    let [highest, ..] = block.to_be_bytes();
    highest.into()
}

/// Where a replica is among holders, or would be.
fn position(holders: &[Holder], replica: u16) -> Result<usize, usize> {
    holders.binary_search_by_key(&replica, |holder| holder.replica)
}

fn make_room(shard: &mut Shard) {
    if shard.len() == shard.capacity() {
        let room = shard.len() + (shard.len() / PART_MORE).max(LEAST_MORE);
        let old = std::mem::replace(
            shard,
            Shard::with_capacity_and_hasher(room, Numbers::default()),
        );
        shard.extend(old);
    }
}
