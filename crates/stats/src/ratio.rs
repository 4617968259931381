//! The ratio of two samples with its interval, on logarithms so that neither sample is privileged; and Holm's correction.

use crate::{freedom, mean, sequential, student, student_p, variance};
use serde::Serialize;
use statrs::distribution::ContinuousCDF;

/// A ratio of two figures and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quotient {
    /// The second over the first: the quotient of geometric means over the runs.
    pub ratio: f64,
    /// Lower and upper end of the interval; `None` with too few runs: fewer than two on a side, or five of [`Method::Sequential`].
    pub interval: Option<(f64, f64)>,
    /// How it was computed.
    pub method: Method,
    /// Pairs of runs, or runs of the side that has fewer.
    pub runs: u32,
    /// Two-sided p-value: how likely a ratio at least as far from 1 is if there is no difference; `None` without an interval.
    pub p: Option<f64>,
}

/// How a ratio and its interval are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Repetition by repetition of one interleaved run: Student's t on the logarithms of the ratios.
    Paired,
    /// Independent runs: Welch's t on the logarithms of both.
    Welch,
    /// Pairs, whose number depended on what they showed: the interval of [`crate::sequential`].
    Sequential,
}

/// More runs than this are not predicted.
const RUNS_MAX: u32 = 10_000;

impl Method {
    /// How many standard errors the interval reaches to either side, if the true ratio may be outside with a probability of `alpha`.
    fn critical(self, runs: usize, freedom: f64, alpha: f64) -> f64 {
        match self {
            Method::Paired | Method::Welch => student(freedom).inverse_cdf(1.0 - alpha / 2.0),
            Method::Sequential => sequential::critical(runs, alpha),
        }
    }
}

impl Quotient {
    /// How many more runs (of independent runs: on either side) it will probably take until the interval, made for this `alpha`, reaches
    /// less than `gap` to either side, on the scale of logarithms. `None` where nothing can be said of their spread, or too many.
    pub fn runs_until(&self, gap: f64, alpha: f64) -> Option<u32> {
        let critical = |runs: u32| {
            let freedom = if self.method == Method::Welch { 2 * runs - 2 } else { runs - 1 };
            self.method.critical(runs as usize, freedom.into(), alpha) / f64::from(runs).sqrt()
        };
        let (low, high) = self.interval?;
        let deviation = (high / low).ln() / 2.0 / critical(self.runs);
        let is_enough = |runs: &u32| deviation * critical(*runs) < gap;
        (self.runs..RUNS_MAX).find(is_enough).map(|runs| runs - self.runs)
    }
}

/// A value, the variance of its error, and the degrees of freedom with which that is known.
#[derive(Clone, Copy, Debug)]
struct Uncertain {
    value: f64,
    variance: f64,
    freedom: f64,
}

impl Uncertain {
    /// The mean of the logarithms of `values`; one value has no variance.
    fn of_logs(values: impl Iterator<Item = f64>) -> Option<Uncertain> {
        let logs: Vec<f64> = values.map(log).collect();
        let (value, n) = (mean(&logs)?, logs.len() as f64);
        Some(Uncertain { value, variance: variance(&logs, value) / n, freedom: n - 1.0 })
    }

    /// The difference of independent values.
    fn minus(self, other: Uncertain) -> Uncertain {
        let freedom = freedom(&[self, other].map(|of| (of.variance, of.freedom)));
        Uncertain { value: self.value - other.value, variance: self.variance + other.variance, freedom }
    }

    /// As the logarithm of a ratio.
    fn quotient(self, resolution: f64, method: Method, runs: usize, alpha: f64) -> Quotient {
        let Uncertain { value, variance, freedom } = self;
        let critical = method.critical(runs, freedom, alpha);
        // With one run the variance is not a number.
        let error = Some(variance.sqrt()).filter(|error| error.is_finite() && critical.is_finite());
        let half = |error: f64| (critical * error).max(resolution);
        let beyond = if value.abs() <= resolution { 0.0 } else { value };
        let p = |error: f64| match (error > 0.0, method) {
            (false, _) => f64::from(value.abs() <= resolution),
            (true, Method::Sequential) => sequential::p(beyond / error, runs),
            (true, _) => student_p(beyond / error, freedom),
        };
        Quotient {
            ratio: value.exp(),
            interval: error.map(half).map(|half| ((value - half).exp(), (value + half).exp())),
            method,
            runs: runs as u32,
            p: error.map(p),
        }
    }
}

/// The ratio of paired runs, (first, second), by [`Method::Paired`] or [`Method::Sequential`].
///
/// `None` where there is no pair, or a figure that is not positive and so has no logarithm. `resolution` is the relative
/// resolution of a figure, `alpha` how improbable it is that the interval misses the true ratio: 0.05.
pub fn paired(pairs: &[(f64, f64)], method: Method, resolution: f64, alpha: f64) -> Option<Quotient> {
    let ratio = Uncertain::of_logs(pairs.iter().map(|(first, second)| second / first))?;
    Some(ratio.quotient(resolution, method, pairs.len(), alpha))
}

/// The ratio of two independent samples. `None` as in [`paired`].
/// Source: Welch, The generalization of ‘Student’s’ problem when several different population variances are involved (1947).
pub fn welch(first: &[f64], second: &[f64], resolution: f64, alpha: f64) -> Option<Quotient> {
    let of = |runs: &[f64]| Uncertain::of_logs(runs.iter().copied());
    let difference = of(second)?.minus(of(first)?);
    Some(difference.quotient(resolution, Method::Welch, first.len().min(second.len()), alpha))
}

/// Corrects p-values for the number of tests, in their order, by Holm's step-down method.
/// Source: Holm, A Simple Sequentially Rejective Multiple Test Procedure (1979).
pub fn holm(p: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|a, b| p[*a].total_cmp(&p[*b]));
    let (mut corrected, mut largest) = (vec![0.0; p.len()], 0.0_f64);
    for (rank, i) in order.into_iter().enumerate() {
        largest = largest.max(p[i] * (p.len() - rank) as f64).min(1.0);
        corrected[i] = largest;
    }
    corrected
}

/// Not a number where there is no logarithm, and so is all that is computed from it.
fn log(value: f64) -> f64 {
    if value > 0.0 { value.ln() } else { f64::NAN }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_pairs(pairs: &[(f64, f64)], resolution: f64) -> Option<Quotient> {
        paired(pairs, Method::Paired, resolution, 0.05)
    }

    fn of_both(first: &[f64], second: &[f64], resolution: f64) -> Option<Quotient> {
        welch(first, second, resolution, 0.05)
    }

    fn near(seen: Option<(f64, f64)>, low: f64, high: f64) {
        let (a, b) = seen.unwrap();
        assert!((a / low - 1.0).abs() < 2e-3 && (b / high - 1.0).abs() < 2e-3, "{a}–{b}, not {low}–{high}");
    }

    #[test]
    fn pairs_take_out_what_both_sides_share() {
        // The machine became four times as fast in between; the ratio stayed near two.
        let pairs = [(100.0, 200.0), (200.0, 404.0), (400.0, 792.0)];
        let of = of_pairs(&pairs, 0.0).unwrap();
        assert!((of.ratio / 2.0 - 1.0).abs() < 1e-3, "{of:?}");
        near(of.interval, 1.951, 2.050);
        let (first, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let (low, high) = of_both(&first, &other, 0.0).unwrap().interval.unwrap();
        assert!(low < 1.0 && high > 4.0, "without pairs nothing is shown: {low}–{high}");
    }

    // By hand: means 1 and 2, variances 0.01 and 0.04 with four and six runs; t at 7.66 degrees is 2.324.
    #[test]
    fn welch_counts_degrees_of_freedom_as_welch_did() {
        let around = |middle: f64, spread: f64, n: usize| -> Vec<f64> {
            let half = spread * ((n - 1) as f64 / n as f64).sqrt();
            (0..n).map(|i| (if i % 2 == 0 { middle - half } else { middle + half }).exp()).collect()
        };
        let of = of_both(&around(1.0, 0.1, 4), &around(2.0, 0.2, 6), 0.0).unwrap();
        assert!((of.ratio.ln() - 1.0).abs() < 1e-9 && of.runs == 4);
        let half = 2.324 * (0.01 / 4.0 + 0.04 / 6.0_f64).sqrt();
        near(of.interval, (1.0 - half).exp(), (1.0 + half).exp());
    }

    #[test]
    fn one_run_has_a_ratio_and_no_interval() {
        let of = of_pairs(&[(10.0, 15.0)], 0.001).unwrap();
        assert!((of.ratio - 1.5).abs() < 1e-12 && of.interval.is_none() && of.runs == 1);
        assert_eq!(of_both(&[10.0, 11.0], &[15.0], 0.0).unwrap().interval, None);
    }

    #[test]
    fn what_has_no_logarithm_has_no_ratio() {
        assert_eq!((of_pairs(&[], 0.0), of_pairs(&[(0.0, 1.0), (1.0, 1.0)], 0.0)), (None, None));
        assert_eq!((of_both(&[], &[1.0], 0.0), of_both(&[1.0, 1.0], &[1.0, -1.0], 0.0)), (None, None));
    }

    #[test]
    fn a_ratio_is_as_unlikely_as_its_interval_is_far_from_one() {
        // At the edge of its own 95 % interval: t of 2.776 with four degrees of freedom.
        let edge: Vec<(f64, f64)> =
            [-2.0, -1.0, 0.0, 1.0, 2.0_f64].iter().map(|x| (1.0, (0.1 * x + 0.196_293).exp())).collect();
        let of = of_pairs(&edge, 0.0).unwrap();
        assert!((of.p.unwrap() - 0.05).abs() < 1e-3 && (of.interval.unwrap().0 - 1.0).abs() < 1e-3, "{of:?}");
        assert_eq!(of_pairs(&[(1.0, 2.0), (1.0, 2.0)], 0.0).unwrap().p, Some(0.0));
        assert_eq!(of_both(&[1.0, 1.0], &[1.0, 1.0], 0.0).unwrap().p, Some(1.0));
    }

    #[test]
    fn a_side_that_never_varies_does_not_hide_what_the_other_varies_by() {
        let (still, noisy) = ([100.0; 4], [50.0, 151.0, 50.0, 151.0]);
        for (first, other) in [(still, noisy), (noisy, still)] {
            let of = of_both(&first, &other, 0.0).unwrap();
            let (low, high) = of.interval.unwrap();
            assert!(low < 0.9 && high > 1.1 && of.p.unwrap() > 0.5, "{of:?}");
        }
    }

    #[test]
    fn runs_that_agree_to_the_last_digit_know_no_more_than_their_histogram() {
        near(of_pairs(&[(100.0, 100.0), (100.0, 100.0)], 0.001).unwrap().interval, 0.999, 1.001);
        near(of_both(&[100.0; 3], &[100.0; 3], 0.001).unwrap().interval, 0.999, 1.001);
    }

    #[test]
    fn the_more_is_tested_the_larger_every_p_becomes() {
        let corrected = holm(&[0.03, 0.01, 0.001, 0.6]);
        let rounded: Vec<f64> = corrected.iter().map(|p| (p * 1e3).round() / 1e3).collect();
        assert_eq!(rounded, [0.06, 0.03, 0.004, 0.6]);
    }

    #[test]
    fn as_many_more_runs_as_are_said_decide() {
        let noisy = |runs: usize| -> Vec<f64> {
            (0..runs).map(|i| (0.03 * if i % 2 == 0 { 1.0 } else { -1.0_f64 }).exp()).collect()
        };
        for method in [Method::Paired, Method::Sequential, Method::Welch] {
            let of = |runs: usize| match method {
                Method::Welch => welch(&noisy(runs), &noisy(runs), 0.0, 0.01).unwrap(),
                _ => {
                    let pairs: Vec<(f64, f64)> = noisy(runs).into_iter().map(|x| (1.0, x)).collect();
                    paired(&pairs, method, 0.0, 0.01).unwrap()
                }
            };
            let more = of(8).runs_until(0.02, 0.01).unwrap();
            let half = |runs: usize| of(runs).interval.unwrap().1.ln();
            // The spread of few runs is a little larger.
            assert!(
                (4..60).contains(&more) && half(8 + more as usize + more as usize % 2) < 0.02,
                "{method:?}: {more}"
            );
            assert!(half(8) > 0.02, "{method:?}");
        }
        assert_eq!(of_pairs(&[(1.0, 1.0)], 0.0).unwrap().runs_until(0.1, 0.05), None);
    }
}
