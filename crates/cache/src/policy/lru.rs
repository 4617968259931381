//! LRU and FIFO: one list by age, and its old end leaves. Eight bytes a slot.
//!
//! LRU moves a row that is asked for to the young end. In FIFO hits change nothing.

use super::list::{ALL, Lists};
use super::{Policy, Slot};

/// See the module.
#[derive(Default)]
pub(super) struct ByAge<const HIT_RENEWS: bool>(Lists<1>);

/// Least recently used.
pub(super) type Lru = ByAge<true>;
/// First in, first out.
pub(super) type Fifo = ByAge<false>;

impl<const HIT_RENEWS: bool> Policy for ByAge<HIT_RENEWS> {
    fn on_insert(&mut self, slot: Slot, _hash: u64) {
        self.0.push_young(ALL, slot);
    }

    fn on_hit(&mut self, slot: Slot) {
        if HIT_RENEWS {
            self.0.move_young(ALL, ALL, slot);
        }
    }

    fn on_hits(&mut self, slots: &[Slot]) {
        if HIT_RENEWS {
            self.0.fetch(slots);
            slots.iter().for_each(|slot| self.on_hit(*slot));
        }
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

    #[test]
    fn the_row_that_came_in_first_leaves_asked_for_or_not() {
        check("fifo", 2, "a b a c", "a");
        check("fifo", 3, "a b c a b d e", "a b");
        check("fifo", 2, "a b a a c b d", "a b");
        check("fifo", 2, "a b -a a c", "b");
    }
}
