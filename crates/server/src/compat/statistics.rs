//! What a compatibility API counts for its own statistics pages, and the hashes that one of them remembers.
//!
//! Only requests to the API count. `/metrics` of the plain interface counts everything.

use std::collections::HashMap;
use std::time::Duration;

/// The counts of an API since they were last reset.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) gets: u64,
    pub(super) puts: u64,
    pub(super) deletes: u64,
    pub(super) hits: u64,
    pub(super) misses: u64,
    pub(super) store_reads: Calls,
    pub(super) store_writes: Calls,
    pub(super) hash_hits: u64,
    pub(super) hash_misses: u64,
}

/// Calls of the store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Calls {
    pub(super) count: u64,
    micros: u64,
}

impl Calls {
    pub(super) fn add(&mut self, took: Duration) {
        self.count += 1;
        self.micros += took.as_micros() as u64;
    }

    pub(super) fn mean_millis(self) -> f64 {
        self.micros as f64 / self.count.max(1) as f64 / 1000.0
    }
}

impl Counts {
    /// Hits in percent of all reads.
    pub(super) fn hit_rate(&self) -> f64 {
        percent(self.hits, self.hits + self.misses)
    }

    /// The same of hashes.
    pub(super) fn hash_hit_rate(&self) -> f64 {
        percent(self.hash_hits, self.hash_hits + self.hash_misses)
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    part as f64 * 100.0 / whole.max(1) as f64
}

/// An LRU cache of hashes.
#[derive(Default)]
pub(super) struct HashCache {
    /// The hash of a text, and when it was last used.
    hashes: HashMap<Vec<u8>, (u32, u64)>,
    /// Counts the uses.
    now: u64,
    pub(super) evictions: u64,
}

/// As many as the original system keeps. So few that the oldest is found by a scan.
const HASHES_MAX: usize = 500;

impl HashCache {
    pub(super) fn len(&self) -> usize {
        self.hashes.len()
    }

    pub(super) fn get(&mut self, text: &[u8]) -> Option<u32> {
        self.now += 1;
        let (hash, used) = self.hashes.get_mut(text)?;
        *used = self.now;
        Some(*hash)
    }

    pub(super) fn insert(&mut self, text: Vec<u8>, hash: u32) {
        if self.hashes.len() >= HASHES_MAX && !self.hashes.contains_key(&text) {
            let oldest = self.hashes.iter().min_by_key(|(_, (_, used))| *used);
            if let Some(text) = oldest.map(|(text, _)| text.clone()) {
                self.hashes.remove(&text);
                self.evictions += 1;
            }
        }
        self.now += 1;
        self.hashes.insert(text, (hash, self.now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_and_means_of_nothing_are_zero() {
        let mut counts = Counts::default();
        assert_eq!((counts.hit_rate(), counts.store_reads.mean_millis()), (0.0, 0.0));
        counts.store_reads.add(Duration::from_millis(3));
        counts.store_reads.add(Duration::from_millis(1));
        (counts.hits, counts.misses) = (3, 1);
        assert_eq!((counts.hit_rate(), counts.store_reads.mean_millis()), (75.0, 2.0));
    }

    #[test]
    fn the_least_recently_used_hash_is_evicted() {
        let mut hashes = HashCache::default();
        let text = |i: usize| i.to_string().into_bytes();
        (0..HASHES_MAX).for_each(|i| hashes.insert(text(i), i as u32));
        assert_eq!(hashes.get(&text(0)), Some(0));
        hashes.insert(text(HASHES_MAX), 7);
        assert_eq!((hashes.get(&text(0)), hashes.get(&text(1))), (Some(0), None));
        assert_eq!((hashes.len(), hashes.evictions), (HASHES_MAX, 1));
    }
}
