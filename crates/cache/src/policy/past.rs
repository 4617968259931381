//! Which rows left lately: fingerprints and the times they left, 8 to 16 bytes for each that is to be remembered.
//!
//! A hash table that forgets instead of overflowing: a bucket is a cache line of eight, and the one that left longest
//! ago makes room. While the table is all but full that drops about one in eight early, and those are the oldest.

/// A row that left. Time 0: none.
#[derive(Clone, Copy, Default)]
struct Left {
    fingerprint: u32,
    time: u32,
}

const BUCKET: usize = 8;

/// See the module.
#[derive(Default)]
pub(super) struct Past {
    /// Empty, or a power of two of them.
    buckets: Vec<[Left; BUCKET]>,
    /// Counts the rows that left.
    now: u32,
}

impl Past {
    /// Remembers that a row left, in place of the one that did so `span` rows before.
    pub(super) fn remember(&mut self, fingerprint: u32, span: usize) {
        while self.buckets.len() * BUCKET < span.max(1) {
            self.grow();
        }
        self.now = self.now.wrapping_add(1).max(1);
        let (now, at) = (self.now, self.bucket(fingerprint));
        // A free place has time 0, which is longer ago than any other.
        let age = |left: &&mut Left| match left.fingerprint == fingerprint {
            true => u32::MAX,
            false => now.wrapping_sub(left.time),
        };
        if let Some(place) = self.buckets[at].iter_mut().max_by_key(age) {
            *place = Left { fingerprint, time: now };
        }
    }

    /// Whether a row with this fingerprint is among the last `span` that left; it is forgotten by that.
    pub(super) fn take(&mut self, fingerprint: u32, span: usize) -> bool {
        if self.buckets.is_empty() {
            return false;
        }
        let at = self.bucket(fingerprint);
        let found = self.buckets[at].iter_mut().find(|left| left.fingerprint == fingerprint && left.time > 0);
        let Some(place) = found else { return false };
        let left = std::mem::take(place);
        (self.now.wrapping_sub(left.time) as usize) < span
    }

    fn bucket(&self, fingerprint: u32) -> usize {
        fingerprint as usize & (self.buckets.len() - 1)
    }

    /// Twice the buckets. Each of the old ones is shared out between two new ones, so none can overflow.
    fn grow(&mut self) {
        let doubled = (self.buckets.len() * 2).max(1);
        let old = std::mem::replace(&mut self.buckets, vec![[Left::default(); BUCKET]; doubled]);
        for left in old.into_iter().flatten().filter(|left| left.time > 0) {
            let at = self.bucket(left.fingerprint);
            if let Some(place) = self.buckets[at].iter_mut().find(|place| place.time == 0) {
                *place = left;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_ones_are_remembered_once() {
        let mut past = Past::default();
        assert!(!past.take(1, 10), "nothing left yet");
        for fingerprint in 1..=5 {
            past.remember(fingerprint, 3);
        }
        assert!(!past.take(2, 3), "three left after it");
        assert!(past.take(3, 3));
        assert!(!past.take(3, 3), "forgotten by asking");
        past.remember(4, 3);
        past.remember(9, 3);
        past.remember(10, 3);
        assert!(past.take(4, 3), "it left again");
    }

    #[test]
    fn a_table_that_grows_forgets_nothing_and_a_full_one_little() {
        let mut past = Past::default();
        let fingerprint = |i: u32| i.wrapping_mul(0x9E37_79B9);
        for i in 0..1024 {
            past.remember(fingerprint(i), 8 + i as usize);
        }
        let kept = (0..1024).filter(|i| past.take(fingerprint(*i), 1024)).count();
        assert!(kept > 1024 * 6 / 7, "{kept}");
    }
}
