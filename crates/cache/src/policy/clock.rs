//! CLOCK: a queue in which a row that was asked for gets a second round. Nine bytes a slot.
//!
//! The hand of the clock stands at the old end of the queue: passing a row on moves it to the young end. A hit sets one
//! flag and moves nothing. A new row comes in without the flag: being read once is not yet being asked for again.
//!
//! Source: Corbató, A Paging Experiment with the Multics System (1968).

use super::list::{ALL, Lists};
use super::{Policy, Slot, set};

/// See the module.
#[derive(Default)]
pub(super) struct Clock {
    round: Lists<1>,
    /// Whether the row was asked for since it came in or since the hand passed it.
    asked: Vec<bool>,
}

impl Policy for Clock {
    fn on_insert(&mut self, slot: Slot, _hash: u64) {
        self.round.push_young(ALL, slot);
        set(&mut self.asked, slot, false, false);
    }

    fn on_hit(&mut self, slot: Slot) {
        self.asked[slot as usize] = true;
    }

    fn on_remove(&mut self, slot: Slot) {
        self.round.unlink(ALL, slot);
    }

    fn victim(&mut self) -> Slot {
        // Every step but the last takes back a flag that a hit has set: hits pay for them.
        loop {
            let slot = self.round.oldest(ALL);
            if !std::mem::take(&mut self.asked[slot as usize]) {
                return slot;
            }
            self.round.move_young(ALL, ALL, slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;

    #[test]
    fn a_row_that_was_asked_for_gets_a_second_round() {
        check("clock", 3, "a b c d", "a");
        check("clock", 3, "a b c a d", "b");
        check("clock", 3, "a b c a d e f", "b c a");
        check("clock", 2, "a a a b b c d", "a b");
        check("clock", 3, "a b c a -a d e", "b");
    }
}
