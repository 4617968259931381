//! Latencies as counts, sums and a histogram.

use hdrhistogram::Histogram;
use kv::proto::{Bucket, Latency};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// With a coarser unit the digits would be right only from a thousand units up.
const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// A latency distribution in the making: a histogram up to 60 s, three digits of it right unless fewer are asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Samples {
    #[serde(with = "as_buckets")]
    pub(super) histogram: Histogram<u64>,
    /// For the mean: the histogram alone would give it to three digits only.
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
    clipped: u64,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples::new(SIGNIFICANT_DIGITS)
    }
}

impl Samples {
    /// None yet, of which so many digits are to be right.
    pub(super) fn new(digits: u8) -> Samples {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, digits);
        Samples {
            histogram: histogram.expect("the bounds are constants that fit"),
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            clipped: 0,
        }
    }

    /// Keeps one latency.
    #[inline]
    pub fn record(&mut self, ns: u64) {
        self.record_n(ns, 1);
    }

    /// Keeps this latency as often as `count` says.
    #[inline]
    pub(super) fn record_n(&mut self, ns: u64, count: u64) {
        if count == 0 {
            return;
        }
        self.histogram.saturating_record_n(ns.min(HIGHEST_NS), count);
        self.sum_ns += u128::from(ns) * u128::from(count);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.clipped += if ns > HIGHEST_NS { count } else { 0 };
    }

    /// Adds those of `others` that are longer than this share of these samples, each as the middle of its bucket.
    pub(super) fn add_longer(&mut self, others: &Samples, quantile: f64) {
        let least = self.histogram.highest_equivalent(self.histogram.value_at_quantile(quantile));
        for at in others.histogram.iter_recorded().filter(|at| at.value_iterated_to() > least) {
            let ns = others.histogram.median_equivalent(at.value_iterated_to());
            self.record_n(ns.max(others.min_ns).min(others.max_ns), at.count_at_value());
            // It may be longer than a bucket can say.
            self.max_ns = self.max_ns.max(others.max_ns);
        }
    }

    /// The longest one; 0 where there is none.
    pub(super) fn longest(&self) -> Duration {
        Duration::from_nanos(self.max_ns)
    }

    /// How many are longer than this.
    pub(super) fn longer_than(&self, least: Duration) -> u64 {
        let counts = self.histogram.iter_recorded().map(|of| (of.value_iterated_to(), of.count_at_value()));
        counts.filter(|(ns, _)| u128::from(*ns) > least.as_nanos()).map(|(_, count)| count).sum()
    }

    pub(super) fn add(&mut self, other: &Samples) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.clipped += other.clipped;
    }

    /// Takes samples out that are among these.
    pub(super) fn subtract(&mut self, other: &Samples) {
        if other.histogram.is_empty() {
            return;
        }
        self.histogram.subtract(&other.histogram).expect("they are among these, with the same bounds");
        self.sum_ns = self.sum_ns.saturating_sub(other.sum_ns);
        self.clipped = self.clipped.saturating_sub(other.clipped);
        // The ends are known as well as the histogram knows them.
        self.min_ns = if self.histogram.is_empty() { u64::MAX } else { self.histogram.min() };
        self.max_ns = self.max_ns.min(self.histogram.max());
    }

    /// The buckets that hold samples, from the shortest latency to the longest.
    pub(super) fn buckets(&self) -> Vec<Bucket> {
        buckets_of(&self.histogram)
    }

    /// What was kept; all zero where nothing was.
    pub fn summary(&self) -> Latency {
        let count = self.histogram.len();
        if count == 0 {
            return Latency::default();
        }
        // The middle of the histogram's bucket, so that rounding leans neither way; but no further than what was seen.
        let us = |quantile: f64| {
            let ns = self.histogram.median_equivalent(self.histogram.value_at_quantile(quantile));
            // In two steps: what another process counted may contradict itself.
            ns.max(self.min_ns).min(self.max_ns) as f64 / 1e3
        };
        Latency {
            count,
            us_mean: self.sum_ns as f64 / count as f64 / 1e3,
            us_min: self.min_ns as f64 / 1e3,
            us_p50: us(0.5),
            us_p90: us(0.9),
            us_p95: us(0.95),
            us_p99: us(0.99),
            us_p999: us(0.999),
            us_max: self.max_ns as f64 / 1e3,
            clipped: self.clipped,
        }
    }
}

fn buckets_of(histogram: &Histogram<u64>) -> Vec<Bucket> {
    let recorded = histogram.iter_recorded().map(|at| {
        let value = at.value_iterated_to();
        [histogram.lowest_equivalent(value), histogram.highest_equivalent(value), at.count_at_value()]
    });
    recorded.collect()
}

/// Histograms in messages between processes: digits, and the buckets that hold samples.
mod as_buckets {
    use super::{Bucket, HIGHEST_NS, LOWEST_NS, buckets_of};
    use hdrhistogram::Histogram;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(histogram: &Histogram<u64>, to: S) -> Result<S::Ok, S::Error> {
        (histogram.sigfig(), buckets_of(histogram)).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Histogram<u64>, D::Error> {
        let (digits, buckets): (u8, Vec<Bucket>) = Deserialize::deserialize(from)?;
        let mut histogram =
            Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, digits).map_err(D::Error::custom)?;
        for [ns, _, count] in buckets {
            histogram.record_n(ns, count).map_err(D::Error::custom)?;
        }
        Ok(histogram)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_beyond_a_minute_are_counted_as_clipped_and_kept_in_mean_and_maximum() {
        let mut samples = Samples::default();
        samples.record(HIGHEST_NS);
        samples.record(3 * HIGHEST_NS);
        let latency = samples.summary();
        assert_eq!((latency.count, latency.clipped), (2, 1));
        assert_eq!((latency.us_mean, latency.us_max), (120e6, 180e6));
    }

    #[test]
    fn samples_that_are_longer_than_most_are_added_and_no_others() {
        let (mut ended, mut ages) = (Samples::default(), Samples::default());
        (1..=100).for_each(|ms| ended.record(ms * 1_000_000));
        ages.record_n(94_000_000, 7);
        ages.record_n(96_000_000, 2);
        ages.record(500_000_000);
        ended.add_longer(&ages, 0.95);
        let all = ended.summary();
        assert_eq!((all.count, all.us_max), (103, 500e3));
        assert!((all.us_mean - (5_050e3 + 692e3) / 103.0).abs() < 10.0, "{all:?}");
        let mut none = Samples::default();
        none.add_longer(&ages, 0.95);
        assert_eq!(none.summary().count, 10, "nothing ended");
    }

    #[test]
    fn buckets_hold_every_sample() {
        let mut samples = Samples::default();
        for ns in [1_500, 1_500, 2_000_000, 5_000_000_000] {
            samples.record(ns);
        }
        let buckets = samples.buckets();
        let counts: Vec<u64> = buckets.iter().map(|bucket| bucket[2]).collect();
        assert_eq!(counts, [2, 1, 1]);
        for ([low, high, _], ns) in buckets.iter().zip([1_500, 2_000_000, 5_000_000_000]) {
            assert!((low..=high).contains(&&ns) && (high - low) as f64 <= ns as f64 / 900.0, "{low} {high}");
        }
    }
}
