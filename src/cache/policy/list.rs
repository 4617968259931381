//! Slots in the order of their age: a doubly linked list in one vector, eight bytes a slot.

use super::Slot;

const NONE: Slot = Slot::MAX;

#[derive(Clone, Copy)]
struct Links {
    older: Slot,
    younger: Slot,
}

/// A list of distinct slots, from the oldest to the youngest.
pub(super) struct List {
    links: Vec<Links>,
    oldest: Slot,
    youngest: Slot,
}

impl Default for List {
    fn default() -> List {
        List { links: Vec::new(), oldest: NONE, youngest: NONE }
    }
}

impl List {
    /// Adds a slot that is not in the list.
    pub(super) fn push_young(&mut self, slot: Slot) {
        let links = Links { older: self.youngest, younger: NONE };
        let index = slot as usize;
        if index >= self.links.len() {
            self.links.resize(index + 1, Links { older: NONE, younger: NONE });
        }
        self.links[index] = links;
        match self.youngest {
            NONE => self.oldest = slot,
            youngest => self.links[youngest as usize].younger = slot,
        }
        self.youngest = slot;
    }

    /// Takes out a slot that is in the list.
    pub(super) fn unlink(&mut self, slot: Slot) {
        let Links { older, younger } = self.links[slot as usize];
        match older {
            NONE => self.oldest = younger,
            older => self.links[older as usize].younger = younger,
        }
        match younger {
            NONE => self.youngest = older,
            younger => self.links[younger as usize].older = older,
        }
    }

    /// The slot longest in the list, which must not be empty.
    pub(super) fn oldest(&self) -> Slot {
        debug_assert_ne!(self.oldest, NONE, "asked for the oldest slot of an empty list");
        self.oldest
    }
}
