//! What a compatibility API counts for its own statistics pages.
//!
//! Only requests to the API count. `/metrics` of the plain interface counts everything.

use lru::LruCache;
use parking_lot::Mutex;
use std::time::Duration;

/// Of an API, over all of its addresses.
pub(crate) struct Statistics {
    pub(super) counts: Mutex<Counts>,
    /// The hashes of texts.
    pub(super) hashes: Mutex<LruCache<Vec<u8>, u32>>,
}

impl Statistics {
    pub(crate) fn new() -> Statistics {
        Statistics { counts: Mutex::default(), hashes: Mutex::new(LruCache::unbounded()) }
    }
}

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
    pub(super) hash_evictions: u64,
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
}
