//! Slots in the order of their age: `N` doubly linked lists over one vector of links, eight bytes a slot.
//!
//! A slot is in one list at a time, so the lists of a policy can share the links.

use super::{Slot, set};

const NONE: Slot = Slot::MAX;
/// The only list of a policy with one.
pub(super) const ALL: usize = 0;

#[derive(Clone, Copy)]
struct Links {
    older: Slot,
    younger: Slot,
}

#[derive(Clone, Copy)]
struct Ends {
    oldest: Slot,
    youngest: Slot,
    len: usize,
}

/// Lists of distinct slots, each from its oldest to its youngest. A list is named by its number, `0..N`.
pub(super) struct Lists<const N: usize> {
    links: Vec<Links>,
    ends: [Ends; N],
}

impl<const N: usize> Default for Lists<N> {
    fn default() -> Lists<N> {
        Lists { links: Vec::new(), ends: [Ends { oldest: NONE, youngest: NONE, len: 0 }; N] }
    }
}

impl<const N: usize> Lists<N> {
    /// Adds a slot that is in no list.
    pub(super) fn push_young(&mut self, list: usize, slot: Slot) {
        let ends = &mut self.ends[list];
        let links = Links { older: ends.youngest, younger: NONE };
        set(&mut self.links, slot, links, Links { older: NONE, younger: NONE });
        match ends.youngest {
            NONE => ends.oldest = slot,
            youngest => self.links[youngest as usize].younger = slot,
        }
        ends.youngest = slot;
        ends.len += 1;
    }

    /// Takes out a slot that is in `list`.
    pub(super) fn unlink(&mut self, list: usize, slot: Slot) {
        let Links { older, younger } = self.links[slot as usize];
        let ends = &mut self.ends[list];
        match older {
            NONE => ends.oldest = younger,
            older => self.links[older as usize].younger = younger,
        }
        match younger {
            NONE => ends.youngest = older,
            younger => self.links[younger as usize].older = older,
        }
        ends.len -= 1;
    }

    /// Takes a slot out of one list and puts it at the young end of another, or of the same.
    pub(super) fn move_young(&mut self, from: usize, to: usize, slot: Slot) {
        if from == to && self.ends[to].youngest == slot {
            return;
        }
        self.unlink(from, slot);
        self.push_young(to, slot);
    }

    /// Reads what moving these slots will touch, so that the caches of the processor wait for all of it at once and not
    /// for one after the other. Changes nothing.
    pub(super) fn fetch(&self, slots: &[Slot]) {
        let seen = slots.iter().fold(0, |seen, slot| {
            let Links { older, younger } = self.links[*slot as usize];
            let of = |slot: Slot| self.links.get(slot as usize).map_or(NONE, |links| links.older);
            seen ^ of(older) ^ of(younger)
        });
        std::hint::black_box(seen);
    }

    /// The slot longest in `list`, which must not be empty.
    pub(super) fn oldest(&self, list: usize) -> Slot {
        debug_assert_ne!(self.len(list), 0, "asked for the oldest slot of an empty list");
        self.ends[list].oldest
    }

    /// The slot that came into its list right after `slot`; `None` for the youngest.
    pub(super) fn younger(&self, slot: Slot) -> Option<Slot> {
        Some(self.links[slot as usize].younger).filter(|younger| *younger != NONE)
    }

    /// How many slots are in `list`.
    pub(super) fn len(&self, list: usize) -> usize {
        self.ends[list].len
    }
}
