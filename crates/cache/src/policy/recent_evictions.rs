//! The rows evicted most recently: fingerprints and eviction times, 8 to 16 bytes for each row to be remembered.
//!
//! A hash table that drops entries instead of overflowing: a bucket is a cache line of eight entries, and the oldest is
//! replaced. In a nearly full table about one in eight is dropped early; those are among the oldest.

/// An evicted row. Time 0: none.
#[derive(Clone, Copy, Default)]
struct Eviction {
    fingerprint: u32,
    time: u32,
}

const BUCKET: usize = 8;

/// See the module.
#[derive(Default)]
pub(super) struct RecentEvictions {
    /// Empty, or a power of two of them.
    buckets: Vec<[Eviction; BUCKET]>,
    /// Counts the evictions.
    now: u32,
}

impl RecentEvictions {
    /// Remembers an eviction; the one `span` evictions before may be dropped.
    pub(super) fn remember(&mut self, fingerprint: u32, span: usize) {
        while self.buckets.len() * BUCKET < span.max(1) {
            self.grow();
        }
        self.now = self.now.wrapping_add(1).max(1);
        let (now, at) = (self.now, self.bucket(fingerprint));
        // A free entry has time 0, which is older than any other.
        let age = |left: &&mut Eviction| match left.fingerprint == fingerprint {
            true => u32::MAX,
            false => now.wrapping_sub(left.time),
        };
        if let Some(place) = self.buckets[at].iter_mut().max_by_key(age) {
            *place = Eviction { fingerprint, time: now };
        }
    }

    /// Whether this fingerprint is among the last `span` evictions; removes it.
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
        let old = std::mem::replace(&mut self.buckets, vec![[Eviction::default(); BUCKET]; doubled]);
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
        let mut recent = RecentEvictions::default();
        assert!(!recent.take(1, 10), "nothing was evicted yet");
        for fingerprint in 1..=5 {
            recent.remember(fingerprint, 3);
        }
        assert!(!recent.take(2, 3), "three were evicted after it");
        assert!(recent.take(3, 3));
        assert!(!recent.take(3, 3), "forgotten by asking");
        recent.remember(4, 3);
        recent.remember(9, 3);
        recent.remember(10, 3);
        assert!(recent.take(4, 3), "evicted again");
    }

    #[test]
    fn a_table_that_grows_forgets_nothing_and_a_full_one_little() {
        let mut recent = RecentEvictions::default();
        let fingerprint = |i: u32| i.wrapping_mul(0x9E37_79B9);
        for i in 0..1024 {
            recent.remember(fingerprint(i), 8 + i as usize);
        }
        let found = (0..1024).filter(|i| recent.take(fingerprint(*i), 1024)).count();
        assert!(found > 1024 * 6 / 7, "{found}");
    }
}
