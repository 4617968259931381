//! Counters and histograms that any tier may keep and the server shows: relaxed atomics, never a lock.
//!
//! Knows nothing of ours. Values are read while others write; a sum over several counters is no snapshot.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, by: u64) {
        self.0.fetch_add(by, Relaxed);
    }

    /// Its value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// How a quantity is distributed, in buckets whose bounds double.
///
/// Bucket `i` counts the samples of at most `2^i` units; the last one those beyond.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BUCKETS],
    sum: Counter,
}

/// 2^25 µs are 33 s, longer than any deadline.
const BUCKETS: usize = 27;

impl Histogram {
    /// Counts one sample.
    pub fn record(&self, units: u64) {
        self.record_many(units, 1);
    }

    /// Counts `samples` samples of the same size.
    pub fn record_many(&self, units: u64, samples: u64) {
        let bucket = units.max(1).next_power_of_two().trailing_zeros() as usize;
        self.buckets[bucket.min(BUCKETS - 1)].add(samples);
        self.sum.add(units * samples);
    }

    /// Counts one duration, in microseconds rounded up.
    pub fn record_duration(&self, duration: Duration) {
        self.record(micros(duration));
    }

    /// Adds what this histogram holds to `total`.
    pub fn add_to(&self, total: &mut Distribution) {
        for (sum, bucket) in total.buckets.iter_mut().zip(&self.buckets) {
            *sum += bucket.get();
        }
        total.sum += self.sum.get();
    }
}

/// A duration in microseconds, rounded up. Durations of more than half a million years are not expected.
pub fn micros(duration: Duration) -> u64 {
    // In 64 bits: a division of 128 is a call.
    duration.as_secs() * 1_000_000 + u64::from(duration.subsec_nanos().div_ceil(1000))
}

/// What histograms held when they were read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    buckets: [u64; BUCKETS],
    /// Of all samples.
    pub sum: u64,
}

impl Distribution {
    /// `(bound, samples of at most that)` for every bucket but the last, whose bound is infinite: see [`Self::count`].
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        self.buckets[..BUCKETS - 1].iter().enumerate().scan(0, |below, (i, count)| {
            *below += count;
            Some((1 << i, *below))
        })
    }

    /// Samples in all.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_counts_in_the_bucket_that_bounds_it() {
        let histogram = Histogram::default();
        for units in [0, 1, 2, 3, 4, 5, 1 << 40] {
            histogram.record(units);
        }
        histogram.record_duration(Duration::from_nanos(7001));
        let mut total = Distribution::default();
        histogram.add_to(&mut total);
        let first: Vec<(u64, u64)> = total.cumulative().take(4).collect();
        assert_eq!(first, [(1, 2), (2, 3), (4, 5), (8, 7)]);
        assert_eq!((total.count(), total.sum), (8, 15 + (1 << 40) + 8));
    }
}
