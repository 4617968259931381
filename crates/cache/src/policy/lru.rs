//! Least recently used: a hit moves the row to the young end, the old end leaves. Eight bytes a slot.

use super::list::Lists;
use super::{Policy, Slot};

/// See the module.
#[derive(Default)]
pub struct Lru(Lists<1>);

/// The only list there is.
const ALL: usize = 0;

impl Policy for Lru {
    fn on_insert(&mut self, slot: Slot, _hash: u64) {
        self.0.push_young(ALL, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        self.0.move_young(ALL, ALL, slot);
    }

    fn on_hits(&mut self, slots: &[Slot]) {
        self.0.fetch(slots);
        slots.iter().for_each(|slot| self.on_hit(*slot));
    }

    fn on_remove(&mut self, slot: Slot) {
        self.0.unlink(ALL, slot);
    }

    fn victim(&mut self) -> Slot {
        self.0.oldest(ALL)
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;

    #[test]
    fn the_row_not_asked_for_the_longest_leaves() {
        check("lru", 2, "a b a c", "b");
        check("lru", 2, "a b c d", "a b");
        check("lru", 3, "a b c a b d e", "c a");
        check("lru", 1, "a a b a", "a b");
        check("lru", 3, "a b c -a d e", "b");
    }
}
