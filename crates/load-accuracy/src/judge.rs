//! Statistics of samples, and comparisons with what they should be: pure functions.

use kv::proto::{Bucket, Latency, LoadReport};

/// How far a summary may be from its histogram: three digits are kept.
const GRAIN: f64 = 1e-3;

/// Critical value of [`anderson_darling_exponential`] at 1 %: of samples that are exponential, one in a hundred is above.
///
/// Source: Stephens, EDF Statistics for Goodness of Fit and Some Comparisons (1974); D'Agostino & Stephens,
/// Goodness-of-Fit Techniques (1986), table 4.11.
pub(super) const ANDERSON_DARLING_1_PERCENT: f64 = 1.959;

/// The Anderson–Darling statistic of `gaps` against the exponential distribution with their own mean, with Stephens'
/// correction for the estimated mean: A² · (1 + 0.6/n). `None` where there are fewer than two or all are zero.
pub(super) fn anderson_darling_exponential(gaps: &[f64]) -> Option<f64> {
    let n = gaps.len() as f64;
    let mean = gaps.iter().sum::<f64>() / n;
    if gaps.len() < 2 || mean <= 0.0 {
        return None;
    }
    let mut sorted = gaps.to_vec();
    sorted.sort_by(f64::total_cmp);
    let terms = sorted.iter().zip(sorted.iter().rev()).enumerate().map(|(i, (low, high))| {
        // ln F(x) and ln(1 − F(x)) = −x/mean. A gap of nothing would be infinitely unlikely; the clock has a grain of 1 ns.
        let ln_below = (-(-(low / mean).max(1e-12)).exp_m1()).ln();
        (2.0 * i as f64 + 1.0) * (ln_below - high / mean)
    });
    let squared = -n - terms.sum::<f64>() / n;
    Some(squared * (1.0 + 0.6 / n))
}

/// How many samples of a histogram are longer than `ns`. A bucket that holds `ns` counts as not longer.
pub(super) fn longer_than(buckets: &[Bucket], ns: u64) -> u64 {
    buckets.iter().filter(|[from, _, _]| *from > ns).map(|[_, _, count]| count).sum()
}

/// The Kolmogorov–Smirnov distance of the samples between `from` and `to` (nanoseconds) from the uniform distribution
/// there: the largest difference of the two shares below any instant. What is longer than `to` counts as its end. 1 where
/// there are no samples.
pub(super) fn distance_from_uniform(buckets: &[Bucket], from: f64, to: f64) -> f64 {
    let delayed = || buckets.iter().filter(|[low, _, _]| *low as f64 > from);
    let all: u64 = delayed().map(|[_, _, count]| count).sum();
    if all == 0 {
        return 1.0;
    }
    let expected = |ns: u64| ((ns as f64 - from) / (to - from)).clamp(0.0, 1.0);
    let mut below = 0;
    let mut distance = 0.0_f64;
    for [low, high, count] in delayed() {
        // Where the samples lie within a bucket is not known, so the two curves are compared at its ends only.
        distance = distance.max((below as f64 / all as f64 - expected(*low)).abs());
        below += count;
        distance = distance.max((below as f64 / all as f64 - expected(*high)).abs());
    }
    distance
}

/// The percentiles of a summary, by their quantile; the last is its longest.
pub(super) fn percentiles(latency: &Latency) -> [(f64, f64); 5] {
    let Latency { us_p50, us_p90, us_p99, us_p999, us_max, .. } = *latency;
    [(0.5, us_p50), (0.9, us_p90), (0.99, us_p99), (0.999, us_p999), (1.0, us_max)]
}

/// Whether a summary is one of these samples: as many, and its percentiles in order and in the buckets where they have
/// to be, give or take one sample, for a rank may be rounded either way.
pub(super) fn agrees(latency: &Latency, buckets: &[Bucket]) -> bool {
    let all: u64 = buckets.iter().map(|[_, _, count]| count).sum();
    let at = |rank: u64| {
        let mut below = 0;
        buckets.iter().find(|[_, _, count]| {
            below += count;
            below >= rank.clamp(1, all)
        })
    };
    let fits = |(q, us): (f64, f64)| {
        let rank = (all as f64 * q).ceil() as u64;
        let (Some([low, _, _]), Some([_, high, _])) = (at(rank.saturating_sub(1)), at(rank + 1)) else {
            return us == 0.0;
        };
        us * 1e3 >= *low as f64 * (1.0 - GRAIN) && us * 1e3 <= *high as f64 * (1.0 + GRAIN)
    };
    let percentiles = percentiles(latency);
    latency.count == all
        && percentiles.into_iter().all(fits)
        && percentiles.windows(2).all(|pair| pair[0].1 <= pair[1].1 * (1.0 + GRAIN))
        && latency.us_min <= latency.us_p50 * (1.0 + GRAIN)
}

/// A histogram of a report, by its name.
pub(super) fn histogram<'r>(report: &'r LoadReport, name: &str) -> Result<&'r [Bucket], String> {
    let histogram = report.histograms.get(name).map(Vec::as_slice);
    histogram.ok_or_else(|| format!("the load generator's report has no histogram {name:?}"))
}

/// The middle one; 0 where there are none.
pub(super) fn median(samples: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = samples.into_iter().collect();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}

/// The mean; 0 where there are no samples.
pub(super) fn mean(samples: &[u64]) -> f64 {
    samples.iter().map(|sample| *sample as f64).sum::<f64>() / samples.len().max(1) as f64
}

/// The differences of neighbours.
pub(super) fn gaps(instants_ns: &[u64]) -> Vec<f64> {
    instants_ns.windows(2).map(|pair| pair[1].saturating_sub(pair[0]) as f64).collect()
}

/// Why there is no rate.
pub(super) const TOO_FEW: &str = "the test server received fewer than two requests";

/// Events per second from the first to the last instant.
pub(super) fn rate(instants_ns: &[u64]) -> Result<f64, &'static str> {
    match (instants_ns.first(), instants_ns.last()) {
        (Some(first), Some(last)) if last > first => {
            Ok((instants_ns.len() - 1) as f64 * 1e9 / (last - first) as f64)
        }
        _ => Err(TOO_FEW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    /// Numbers in 0–1, open at both ends.
    fn units(seed: u64) -> impl Iterator<Item = f64> {
        let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
        std::iter::repeat_with(move || ((random.next_u64() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64)
    }

    fn exponential(seed: u64, count: usize) -> Vec<f64> {
        units(seed).map(|unit| -unit.ln() * 2e6).take(count).collect()
    }

    #[test]
    fn gaps_of_a_poisson_process_pass_as_often_as_they_should() {
        let passed = |seed: &u64| {
            anderson_darling_exponential(&exponential(*seed, 500)).unwrap() < ANDERSON_DARLING_1_PERCENT
        };
        let failed = 1000 - (0..1000).filter(passed).count();
        // Ten of them on average; by chance alone fewer than two or more than twenty-two are one in a thousand.
        assert!((2..=22).contains(&failed), "{failed} of 1000 samples failed at 1 %");
    }

    #[test]
    fn gaps_of_other_processes_do_not_pass() {
        let regular: Vec<f64> = vec![2e6; 500];
        let uniform: Vec<f64> = units(3).map(|unit| unit * 4e6).take(500).collect();
        // Whole milliseconds, as a sleep with a coarse timer makes them.
        let coarse: Vec<f64> =
            exponential(4, 500).iter().map(|gap| (gap / 1e6).round().max(0.1) * 1e6).collect();
        // Every tenth request waited for the one before.
        let mut bursts = exponential(5, 500);
        bursts.iter_mut().step_by(10).for_each(|gap| *gap = 1e3);
        for (what, gaps) in
            [("regular", regular), ("uniform", uniform), ("coarse", coarse), ("bursts", bursts)]
        {
            let squared = anderson_darling_exponential(&gaps).unwrap();
            assert!(squared > ANDERSON_DARLING_1_PERCENT, "{what}: {squared}");
        }
        assert_eq!(anderson_darling_exponential(&[1.0]), None);
        assert_eq!(anderson_darling_exponential(&[0.0, 0.0]), None);
    }

    #[test]
    fn the_statistic_is_that_of_the_formula() {
        // By hand: gaps 1, 2, 3 with mean 2.
        let squared = anderson_darling_exponential(&[3.0, 1.0, 2.0]).unwrap();
        let below = |x: f64| 1.0 - (-x / 2.0_f64).exp();
        let by_hand = -3.0
            - ((below(1.0).ln() - 1.5) + 3.0 * (below(2.0).ln() - 1.0) + 5.0 * (below(3.0).ln() - 0.5)) / 3.0;
        assert!((squared - by_hand * 1.2).abs() < 1e-12, "{squared}");
    }

    /// One bucket for each sample.
    fn buckets(samples_ms: impl IntoIterator<Item = f64>) -> Vec<Bucket> {
        let mut all: Vec<u64> = samples_ms.into_iter().map(|ms| (ms * 1e6) as u64).collect();
        all.sort_unstable();
        all.into_iter().map(|ns| [ns, ns, 1]).collect()
    }

    #[test]
    fn a_stall_seen_from_the_intended_starts_is_uniform() {
        // One request each millisecond; the first of the second that stood still waits for all of it.
        let stall = buckets((0..1000).map(|ms| 1000.0 - f64::from(ms)).chain((0..3000).map(|_| 0.05)));
        assert!(distance_from_uniform(&stall, 10e6, 1000e6) < 0.003);
        assert_eq!(longer_than(&stall, 10_000_000), 990);
        let random = buckets(units(1).map(|unit| unit * 1000.0).take(10_000));
        assert!(distance_from_uniform(&random, 0.0, 1000e6) < 0.02);
    }

    #[test]
    fn a_stall_seen_in_any_other_way_is_not() {
        // Uncorrected: the one request that was under way.
        let uncorrected = buckets([1000.0].into_iter().chain((0..3000).map(|_| 0.05)));
        assert!(distance_from_uniform(&uncorrected, 10e6, 1000e6) > 0.9);
        // Half of them reported at half their length.
        let halved =
            buckets((0..1000).map(|ms| (1000.0 - f64::from(ms)) * if ms % 2 == 0 { 0.5 } else { 1.0 }));
        assert!(distance_from_uniform(&halved, 10e6, 1000e6) > 0.2);
        // A tenth longer than it was.
        let longer = buckets((0..1000).map(|ms| (1000.0 - f64::from(ms)) * 1.1));
        assert!(distance_from_uniform(&longer, 10e6, 1000e6) > 0.05);
        assert_eq!(distance_from_uniform(&buckets([0.05; 9]), 10e6, 1000e6), 1.0);
    }

    #[test]
    fn a_summary_agrees_with_its_own_samples_only() {
        let samples = buckets((1..=2000).map(f64::from));
        let us = |ms: f64| ms * 1e3;
        let summary = Latency {
            count: 2000,
            us_mean: us(1000.5),
            us_min: us(1.0),
            us_p50: us(1000.0),
            us_p90: us(1800.0),
            us_p95: us(1900.0),
            us_p99: us(1980.0),
            us_p999: us(1998.0),
            us_max: us(2000.0),
            clipped: 0,
        };
        assert!(agrees(&summary, &samples));
        assert!(agrees(&Latency::default(), &[]));
        for (what, wrong) in [
            ("count", Latency { count: 1999, ..summary }),
            ("p50", Latency { us_p50: us(990.0), ..summary }),
            ("p90", Latency { us_p90: us(1830.0), ..summary }),
            ("p99", Latency { us_p99: us(1990.0), ..summary }),
            ("p999", Latency { us_p999: us(1980.0), ..summary }),
            ("max", Latency { us_max: us(1000.0), ..summary }),
            ("min", Latency { us_min: us(1100.0), ..summary }),
        ] {
            assert!(!agrees(&wrong, &samples), "{what}");
        }
    }

    #[test]
    fn gaps_and_rates_are_those_of_the_samples() {
        assert_eq!(gaps(&[0, 10, 40]), [10.0, 30.0]);
        assert_eq!(rate(&[0, 500_000_000, 1_000_000_000]), Ok(2.0));
        assert_eq!((rate(&[5]), rate(&[])), (Err(TOO_FEW), Err(TOO_FEW)));
        assert_eq!((median([3.0, 1.0, 2.0]), mean(&[1, 2, 6])), (2.0, 3.0));
        assert_eq!((median([]), mean(&[])), (0.0, 0.0));
    }
}
