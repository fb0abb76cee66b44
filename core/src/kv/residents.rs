//! Which blocks one rank of an engine has.

use super::Media;
use super::identity::{Identity, Numbers};
use std::collections::HashMap;
use std::collections::hash_map::Entry;

/// The blocks that are there, each with the kinds of memory that it is in.
#[derive(Clone, Debug, Default)]
pub struct Residents(HashMap<Identity, Media, Numbers>);

impl Residents {
    /// A block is in these kinds of memory now, and in no others. `room` is for how many more blocks
    /// there is room; whether there was.
    pub fn put(&mut self, block: Identity, media: Media, room: &mut usize) -> bool {
        if media.is_empty() {
            *room += usize::from(self.0.remove(&block).is_some());
            return true;
        }
        match self.0.entry(block) {
            Entry::Occupied(mut entry) => {
                entry.insert(media);
            }
            Entry::Vacant(entry) => {
                let Some(left) = room.checked_sub(1) else {
                    return false;
                };
                *room = left;
                entry.insert(media);
            }
        }
        true
    }

    /// The kinds of memory that a block is in, if it is there.
    pub fn get(&self, block: Identity) -> Option<Media> {
        self.0.get(&block).copied()
    }

    /// Nothing is there any more. The room that it took is given back.
    pub fn clear(&mut self) {
        self.0 = HashMap::default();
    }

    /// How many blocks are there.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether nothing is there.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All blocks, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Identity, Media)> {
        self.0.iter().map(|(&block, &media)| (block, media))
    }
}
