//! W-TinyLFU: a small LRU window, and a main part that a row enters only by being asked for more often than the one it
//! pushes out.
//!
//! New rows come into the window. The row that drops out of it is compared with the next to leave the main part, by what a
//! sketch of all recent requests says of both; the one asked for less often leaves. The main part is a segmented LRU: a
//! row comes in on probation, and a hit protects it.
//!
//! 13 bytes a slot, and 8 to 16 in the sketch.
//!
//! Source: Einziger, Friedman and Manes, TinyLFU: A Highly Efficient Cache Admission Policy (ACM Transactions on Storage,
//! 2017). The window has the paper's one per cent and does not adapt.

use super::list::Lists;
use super::sketch::Sketch;
use super::{Policy, Slot, fingerprint, set};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// See the module.
#[derive(Default)]
pub(super) struct WTinyLfu {
    segments: Lists<3>,
    fingerprints: Vec<u32>,
    /// In which segment a row is.
    homes: Vec<u8>,
    sketch: Sketch,
}

impl WTinyLfu {
    fn held(&self) -> usize {
        self.window() + self.main()
    }

    fn window(&self) -> usize {
        self.segments.len(WINDOW)
    }

    fn main(&self) -> usize {
        self.segments.len(PROBATION) + self.segments.len(PROTECTED)
    }

    /// How many rows the window is meant to hold.
    fn window_share(&self) -> usize {
        (self.held() / 100).max(1)
    }

    fn move_young(&mut self, slot: Slot, to: usize) {
        let home = &mut self.homes[slot as usize];
        self.segments.move_young(usize::from(*home), to, slot);
        *home = to as u8;
    }

    fn count(&self, slot: Slot) -> u64 {
        self.sketch.count(self.fingerprints[slot as usize])
    }
}

impl Policy for WTinyLfu {
    fn on_insert(&mut self, slot: Slot, hash: u64) {
        let fingerprint = fingerprint(hash);
        set(&mut self.fingerprints, slot, fingerprint, 0);
        set(&mut self.homes, slot, WINDOW as u8, 0);
        self.segments.push_young(WINDOW, slot);
        self.sketch.grow(self.held());
        self.sketch.add(fingerprint);
        // No row had to leave, or one of the main part did: there is room beyond the window.
        while self.window() > self.window_share() {
            self.move_young(self.segments.oldest(WINDOW), PROBATION);
        }
    }

    fn on_hit(&mut self, slot: Slot) {
        self.sketch.add(self.fingerprints[slot as usize]);
        match usize::from(self.homes[slot as usize]) {
            WINDOW => self.move_young(slot, WINDOW),
            _ => self.move_young(slot, PROTECTED),
        }
        // Four fifths of the main part are protected, no more: the others must have time to be asked for.
        if self.segments.len(PROTECTED) * 5 > self.main() * 4 && self.segments.len(PROTECTED) > 1 {
            self.move_young(self.segments.oldest(PROTECTED), PROBATION);
        }
    }

    fn on_remove(&mut self, slot: Slot) {
        self.segments.unlink(usize::from(self.homes[slot as usize]), slot);
    }

    fn victim(&mut self) -> Slot {
        if self.main() == 0 {
            return self.segments.oldest(WINDOW);
        }
        let of_main = if self.segments.len(PROBATION) > 0 { PROBATION } else { PROTECTED };
        let resident = self.segments.oldest(of_main);
        // The row that room is made for comes into the window, so a window that has its share has one too many.
        if self.window() < self.window_share() {
            return resident;
        }
        let candidate = self.segments.oldest(WINDOW);
        // A tie is the resident's: among rows asked for once, the resident stays, and a scan does not enter.
        if self.count(candidate) <= self.count(resident) {
            return candidate;
        }
        self.move_young(candidate, PROBATION);
        resident
    }
}

#[cfg(test)]
mod tests {
    use super::super::check;

    #[test]
    fn who_was_asked_for_less_often_does_not_come_in() {
        // The window holds one row; the main part is full of rows asked for as often.
        check("w-tinylfu", 3, "a b c d e f", "c d e");
        check("w-tinylfu", 3, "a a b b c d e", "c d");
    }

    #[test]
    fn who_was_asked_for_more_often_comes_in() {
        check("w-tinylfu", 3, "a b c d c d", "c d a");
        check("w-tinylfu", 3, "a b c c d", "a");
    }

    #[test]
    fn a_hit_protects() {
        check("w-tinylfu", 3, "a b c a c d", "b");
        check("w-tinylfu", 3, "a b c a -c d d e", "b");
    }
}
