//! An order of age over the entries of a slab: which came first, and which goes first.
//!
//! The links are in the entries, so an entry moves to the end in a few writes, however many there
//! are. An entry is in one queue at a time.

use slab::Slab;

/// No entry.
const NONE: u32 = u32::MAX;

/// An entry's neighbours in its queue.
#[derive(Clone, Copy)]
pub(crate) struct Links {
    older: u32,
    newer: u32,
}

impl Links {
    /// Those of an entry that is in no queue yet.
    pub(crate) const NONE: Self = Self {
        older: NONE,
        newer: NONE,
    };
}

/// An entry that can be in a queue.
pub(crate) trait Linked {
    fn links(&mut self) -> &mut Links;
}

/// Entries of a slab, oldest to newest.
#[derive(Clone, Copy)]
pub(crate) struct Queue {
    oldest: u32,
    newest: u32,
    length: usize,
}

impl Queue {
    pub(crate) const EMPTY: Self = Self {
        oldest: NONE,
        newest: NONE,
        length: 0,
    };

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn oldest(&self) -> Option<u32> {
        (self.oldest != NONE).then_some(self.oldest)
    }

    /// Adds an entry that is in no queue, as the newest.
    pub(crate) fn push<T: Linked>(&mut self, slab: &mut Slab<T>, id: u32) {
        self.length += 1;
        let before = std::mem::replace(&mut self.newest, id);
        if before == NONE {
            self.oldest = id;
        }
        set(slab, id, |links| {
            *links = Links {
                older: before,
                newer: NONE,
            };
        });
        set(slab, before, |links| links.newer = id);
    }

    /// Takes out an entry that is in this queue.
    pub(crate) fn unlink<T: Linked>(&mut self, slab: &mut Slab<T>, id: u32) {
        let Some(&mut Links { older, newer }) = slab.get_mut(id as usize).map(Linked::links) else {
            return;
        };
        set(slab, older, |links| links.newer = newer);
        set(slab, newer, |links| links.older = older);
        self.length -= 1;
        if self.oldest == id {
            self.oldest = newer;
        }
        if self.newest == id {
            self.newest = older;
        }
    }

    /// Makes an entry that is in this queue the newest.
    pub(crate) fn renew<T: Linked>(&mut self, slab: &mut Slab<T>, id: u32) {
        if self.newest != id {
            self.unlink(slab, id);
            self.push(slab, id);
        }
    }
}

fn set<T: Linked>(slab: &mut Slab<T>, id: u32, change: impl FnOnce(&mut Links)) {
    if let Some(entry) = slab.get_mut(id as usize) {
        change(entry.links());
    }
}
