//! First in, first out: hits change nothing. Eight bytes a slot.

use super::list::Lists;
use super::{Policy, Slot};

/// See the module.
#[derive(Default)]
pub struct Fifo(Lists<1>);

/// The only list there is.
const ALL: usize = 0;

impl Policy for Fifo {
    fn on_insert(&mut self, slot: Slot, _hash: u64) {
        self.0.push_young(ALL, slot);
    }

    fn on_hit(&mut self, _slot: Slot) {}

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
    fn the_row_that_came_in_first_leaves_asked_for_or_not() {
        check("fifo", 2, "a b a c", "a");
        check("fifo", 3, "a b c a b d e", "a b");
        check("fifo", 2, "a b a a c b d", "a b");
        check("fifo", 2, "a b -a a c", "b");
    }
}
