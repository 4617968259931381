//! S3-FIFO: a small queue on trial, a main queue, and a memory of what failed the trial.
//!
//! A new row comes into the small queue. When it reaches the old end it moves to the main queue if it was asked for at
//! least twice meanwhile; if not, it leaves, and only its fingerprint is remembered. A row that comes back while it is
//! remembered goes to the main queue at once. The main queue is a CLOCK with up to three rounds. What is read once
//! passes through a tenth of the cache and leaves the rest alone.
//!
//! 14 bytes a slot, and 8 to 16 for what is remembered.
//!
//! Source: Yang, Zhang, Qiu, Yue and Rashmi, FIFO queues are all you need for cache eviction (SOSP 2023).

use super::list::Lists;
use super::recent_evictions::RecentEvictions;
use super::{Policy, Slot, fingerprint, set};

const SMALL: usize = 0;
const MAIN: usize = 1;

/// The small queue's share of the rows held: one tenth, as in the paper.
const SMALL_SHARE: usize = 10;
/// Counting further would keep a row that has gone cold for many rounds.
const ASKED_MAX: u8 = 3;
/// How often a row must be asked for in the small queue to move on.
const ASKED_TO_STAY: u8 = 2;

/// See the module.
#[derive(Default)]
pub(super) struct S3Fifo {
    queues: Lists<2>,
    fingerprints: Vec<u32>,
    states: Vec<State>,
    recent: RecentEvictions,
}

#[derive(Clone, Copy, Default)]
struct State {
    /// In which of the queues.
    queue: u8,
    /// How often it was asked for and has not paid for with a round, up to [`ASKED_MAX`].
    asked: u8,
}

impl S3Fifo {
    fn held(&self) -> usize {
        self.queues.len(SMALL) + self.queues.len(MAIN)
    }

    /// As many as the main queue is meant to hold.
    fn remembered(&self) -> usize {
        self.held() - self.held() / SMALL_SHARE
    }

    fn put(&mut self, slot: Slot, queue: usize) {
        self.queues.push_young(queue, slot);
        set(&mut self.states, slot, State { queue: queue as u8, asked: 0 }, State::default());
    }
}

impl Policy for S3Fifo {
    fn on_insert(&mut self, slot: Slot, hash: u64) {
        let fingerprint = fingerprint(hash);
        set(&mut self.fingerprints, slot, fingerprint, 0);
        // The row that made room has left `held` already: it counts.
        let is_back = self.recent.take(fingerprint, self.remembered() + 1);
        self.put(slot, if is_back { MAIN } else { SMALL });
    }

    fn on_hit(&mut self, slot: Slot) {
        let asked = &mut self.states[slot as usize].asked;
        *asked = (*asked + 1).min(ASKED_MAX);
    }

    fn on_remove(&mut self, slot: Slot) {
        self.queues.unlink(usize::from(self.states[slot as usize].queue), slot);
    }

    fn victim(&mut self) -> Slot {
        // Every step but the last takes back at least one of the hits that were counted: hits pay for them.
        loop {
            let from_small =
                self.queues.len(SMALL) * SMALL_SHARE >= self.held() || self.queues.len(MAIN) == 0;
            let slot = self.queues.oldest(if from_small { SMALL } else { MAIN });
            let asked = self.states[slot as usize].asked;
            if from_small && asked >= ASKED_TO_STAY {
                self.queues.unlink(SMALL, slot);
                self.put(slot, MAIN);
            } else if from_small {
                self.recent.remember(self.fingerprints[slot as usize], self.remembered());
                return slot;
            } else if asked > 0 {
                self.states[slot as usize].asked = asked - 1;
                self.queues.move_young(MAIN, MAIN, slot);
            } else {
                return slot;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;

    #[test]
    fn what_was_not_asked_for_twice_fails_the_trial() {
        check("s3fifo", 3, "a b c d", "a");
        check("s3fifo", 3, "a a b c d", "a");
        check("s3fifo", 3, "a a a b c d e f", "b c d");
    }

    #[test]
    fn what_comes_back_soon_stays() {
        check("s3fifo", 3, "a b c d a e f g h", "a b c d e f");
        // Too late: three others left since, and as many are remembered as are held.
        check("s3fifo", 3, "a b c d e f g a h i j", "a b c d e f g a");
    }

    #[test]
    fn a_deleted_row_is_not_remembered() {
        check("s3fifo", 3, "a b c -a a d e f", "b c a");
        check("s3fifo", 3, "a a a b c d -a e f", "b c");
    }

    #[test]
    fn the_main_queue_gives_a_round_for_each_hit() {
        // All three pass the trial when d comes, and a leaves the main queue; b is asked for there.
        check("s3fifo", 3, "a a a b b b c c c d b d d e", "a c");
    }
}
