//! What a compatibility API counts for its own statistics pages, and the hashes that one of them remembers.
//!
//! Only requests to the API count. `/metrics` of the plain interface counts everything.

use crate::tiered::CacheCounts;
use kv::counters::Counter;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::time::Duration;

/// The counters of an API.
#[derive(Debug, Default)]
pub(super) struct Counts {
    counters: [Counter; Count::ALL],
    /// What the counters held when they were last set to zero.
    zero: Mutex<[u64; Count::ALL]>,
}

/// What is counted.
#[derive(Clone, Copy, Debug)]
pub(super) enum Count {
    Gets,
    Puts,
    Deletes,
    Hits,
    Misses,
    StoreReads,
    StoreReadMicros,
    StoreWrites,
    StoreWriteMicros,
    HashHits,
    HashMisses,
}

impl Count {
    const ALL: usize = Count::HashMisses as usize + 1;
}

impl Counts {
    pub(super) fn add(&self, count: Count) {
        self.add_many(count, 1);
    }

    /// Counts a call of the store.
    pub(super) fn add_call(&self, calls: Count, micros: Count, took: Duration) {
        self.add(calls);
        self.add_many(micros, took.as_micros() as u64);
    }

    fn add_many(&self, count: Count, by: u64) {
        self.counters[count as usize].add(by);
    }

    /// Begins anew.
    pub(super) fn reset(&self) {
        *self.zero.lock() = self.read();
    }

    /// What there was since the last reset.
    pub(super) fn since_reset(&self) -> [u64; Count::ALL] {
        let zero = *self.zero.lock();
        let mut now = self.read();
        now.iter_mut().zip(zero).for_each(|(now, zero)| *now = now.saturating_sub(zero));
        now
    }

    fn read(&self) -> [u64; Count::ALL] {
        std::array::from_fn(|i| self.counters[i].get())
    }
}

/// Everything that statistics pages show.
pub(super) struct Figures {
    pub(super) counts: [u64; Count::ALL],
    /// The cache of the tiers, whoever filled it.
    pub(super) cache: CacheCounts,
    pub(super) cache_entries_max: usize,
    /// Hashes remembered, and pushed out.
    pub(super) hashes: (usize, u64),
}

impl Figures {
    pub(super) fn of(&self, count: Count) -> u64 {
        self.counts[count as usize]
    }

    /// Hits in percent of all reads.
    pub(super) fn hit_rate(&self) -> f64 {
        let hits = self.of(Count::Hits);
        super::percent(hits, hits + self.of(Count::Misses))
    }

    /// Mean of a kind of store call.
    pub(super) fn mean_millis(&self, calls: Count, micros: Count) -> f64 {
        super::percent(self.of(micros), self.of(calls)) / 100.0 / 1000.0
    }
}

/// Texts whose hash is known: the least recently asked for leaves.
#[derive(Default)]
pub(super) struct Hashes {
    /// The hash, and when it was last asked for.
    known: HashMap<Vec<u8>, (u32, u64)>,
    /// Counts the questions.
    now: u64,
    evictions: u64,
}

/// As many as the system whose shape this is remembers. So few that the oldest is found by looking at all.
const HASHES_MAX: usize = 500;

impl Hashes {
    pub(super) fn get(&mut self, text: &[u8]) -> Option<u32> {
        self.now += 1;
        let (hash, asked) = self.known.get_mut(text)?;
        *asked = self.now;
        Some(*hash)
    }

    pub(super) fn insert(&mut self, text: Vec<u8>, hash: u32) {
        if self.known.len() >= HASHES_MAX && !self.known.contains_key(&text) {
            let oldest = self.known.iter().min_by_key(|(_, (_, asked))| *asked);
            if let Some(text) = oldest.map(|(text, _)| text.clone()) {
                self.known.remove(&text);
                self.evictions += 1;
            }
        }
        self.now += 1;
        self.known.insert(text, (hash, self.now));
    }

    /// Hashes known, and pushed out.
    pub(super) fn counts(&self) -> (usize, u64) {
        (self.known.len(), self.evictions)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reset_begins_anew() {
        let counts = Counts::default();
        counts.add(Count::Gets);
        counts.reset();
        counts.add_call(Count::StoreReads, Count::StoreReadMicros, Duration::from_millis(3));
        let since = counts.since_reset();
        assert_eq!((since[Count::Gets as usize], since[Count::StoreReadMicros as usize]), (0, 3000));
    }

    #[test]
    fn the_hash_not_asked_for_the_longest_is_forgotten() {
        let mut hashes = Hashes::default();
        let text = |i: usize| i.to_string().into_bytes();
        (0..HASHES_MAX).for_each(|i| hashes.insert(text(i), i as u32));
        assert_eq!(hashes.get(&text(0)), Some(0));
        hashes.insert(text(HASHES_MAX), 7);
        assert_eq!((hashes.get(&text(0)), hashes.get(&text(1))), (Some(0), None));
        assert_eq!(hashes.counts(), (HASHES_MAX, 1));
    }
}
