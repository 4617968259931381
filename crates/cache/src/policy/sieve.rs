//! SIEVE: a queue in which rows keep their place, and a hand that sifts it. Nine bytes a slot.
//!
//! The hand walks from the old end to the young one and begins anew there. It spares what was asked for since it last
//! came by and evicts the first row that was not. Unlike in CLOCK, what is spared stays where it is: the hand stays among
//! the rows that came lately and sifts those soon, the old and popular ones rarely. The price: the hand gains on the
//! young end only by what it spares, and stands still while deletes make the room. What was popular once stays long then.
//!
//! Source: Zhang, Yang, Yue, Vigfusson and Rashmi, SIEVE is Simpler than LRU: an Efficient Turn-Key Eviction Algorithm
//! for Web Caches (NSDI 2024).

use super::list::{ALL, Lists};
use super::{Policy, Slot, set};

/// See the module.
#[derive(Default)]
pub(super) struct Sieve {
    queue: Lists<1>,
    /// Whether the row was asked for since it came in or since the hand passed it.
    asked: Vec<bool>,
    /// Where the hand is; `None` for the oldest.
    hand: Option<Slot>,
}

impl Policy for Sieve {
    fn on_insert(&mut self, slot: Slot, _hash: u64) {
        self.queue.push_young(ALL, slot);
        set(&mut self.asked, slot, false, false);
    }

    fn on_hit(&mut self, slot: Slot) {
        self.asked[slot as usize] = true;
    }

    fn on_remove(&mut self, slot: Slot) {
        if self.hand == Some(slot) {
            self.hand = self.queue.younger(slot);
        }
        self.queue.unlink(ALL, slot);
    }

    fn victim(&mut self) -> Slot {
        let mut slot = self.hand.unwrap_or_else(|| self.queue.oldest(ALL));
        // Every step but the last takes back a flag that a hit has set: hits pay for them.
        while std::mem::take(&mut self.asked[slot as usize]) {
            slot = self.queue.younger(slot).unwrap_or_else(|| self.queue.oldest(ALL));
        }
        self.hand = Some(slot);
        slot
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;

    #[test]
    fn the_hand_spares_what_was_asked_for_and_leaves_it_in_its_place() {
        check("sieve", 3, "a b c d", "a");
        check("sieve", 3, "a b c a d", "b");
        // CLOCK would have moved a behind c and d, and evicted it third.
        check("sieve", 3, "a b c a d e f", "b c d");
        check("sieve", 2, "a a b b c d", "a b");
    }

    #[test]
    fn a_hand_whose_row_is_deleted_goes_on_with_the_next() {
        check("sieve", 3, "a b c a d -c e f", "b d");
        check("sieve", 3, "a b c c b a d -a -b -c -d e f g h", "a e");
        check("sieve", 1, "a b -b c d", "a c");
    }
}
