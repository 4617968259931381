//! The ratio of two samples of runs, with an interval: on logarithms, so that neither side is privileged.

use crate::lab::analysis::stats::{mean, student_t_between};
use serde::Serialize;

/// A ratio of two figures and what is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Quotient {
    /// The other's over the first's: the quotient of geometric means over the runs.
    pub ratio: f64,
    /// Lower and upper end of the 95 % interval; `None` where there are fewer than two runs on a side.
    pub interval: Option<(f64, f64)>,
    /// How it was made.
    pub method: Method,
    /// Pairs of runs, or runs of the side that has fewer.
    pub runs: u32,
}

/// How a ratio and its interval come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Repetition by repetition of one interleaved run: Student's t over the logarithms of their ratios.
    Paired,
    /// Runs of different days or machines: Welch's t over the logarithms of either.
    Welch,
}

/// The ratio of runs that belong together: one pair, (first, other), for each repetition that both sides have.
///
/// `None` where there is no pair, or a figure that is not positive, of which there is no logarithm. `resolution` is how
/// exactly a figure is known, as a share.
pub(super) fn paired(pairs: &[(f64, f64)], resolution: f64) -> Option<Quotient> {
    let logs: Vec<f64> = pairs.iter().map(|(first, other)| log(*other) - log(*first)).collect();
    let middle = mean(&logs)?;
    let n = logs.len();
    let half =
        (n > 1).then(|| student_t_between((n - 1) as f64) * (variance(&logs, middle) / n as f64).sqrt());
    Some(quotient(middle, half, resolution, Method::Paired, n))
}

/// The ratio of two samples that have nothing to do with each other.
///
/// `None` as in [`paired`].
/// Source: Welch, The generalization of ‘Student’s’ problem when several different population variances are involved
/// (1947).
pub(super) fn welch(first: &[f64], other: &[f64], resolution: f64) -> Option<Quotient> {
    let logs = |runs: &[f64]| runs.iter().copied().map(log).collect::<Vec<f64>>();
    let (a, b) = (logs(first), logs(other));
    let (mean_a, mean_b) = (mean(&a)?, mean(&b)?);
    let half = (a.len() > 1 && b.len() > 1).then(|| {
        let (n, m) = (a.len() as f64, b.len() as f64);
        let (of_a, of_b) = (variance(&a, mean_a) / n, variance(&b, mean_b) / m);
        let freedom = (of_a + of_b).powi(2) / (of_a.powi(2) / (n - 1.0) + of_b.powi(2) / (m - 1.0));
        // Without any spread there are no degrees of freedom, and no width either.
        if freedom.is_finite() { student_t_between(freedom) * (of_a + of_b).sqrt() } else { 0.0 }
    });
    Some(quotient(mean_b - mean_a, half, resolution, Method::Welch, a.len().min(b.len())))
}

fn quotient(middle: f64, half: Option<f64>, resolution: f64, method: Method, runs: usize) -> Quotient {
    let half = half.map(|half| half.max(resolution));
    let interval = half.map(|half| ((middle - half).exp(), (middle + half).exp()));
    Quotient { ratio: middle.exp(), interval, method, runs: runs as u32 }
}

/// Not a number where there is no logarithm; whatever it enters is not one either.
fn log(value: f64) -> f64 {
    if value > 0.0 { value.ln() } else { f64::NAN }
}

fn variance(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(seen: Option<(f64, f64)>, low: f64, high: f64) {
        let (a, b) = seen.unwrap();
        assert!((a / low - 1.0).abs() < 2e-3 && (b / high - 1.0).abs() < 2e-3, "{a}–{b}, not {low}–{high}");
    }

    #[test]
    fn pairs_take_out_what_both_sides_share() {
        // The machine became four times as fast in between; the ratio stayed near two.
        let pairs = [(100.0, 200.0), (200.0, 404.0), (400.0, 792.0)];
        let of = paired(&pairs, 0.0).unwrap();
        assert!((of.ratio / 2.0 - 1.0).abs() < 1e-3, "{of:?}");
        near(of.interval, 1.951, 2.050);
        let (first, other): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let (low, high) = welch(&first, &other, 0.0).unwrap().interval.unwrap();
        assert!(low < 1.0 && high > 4.0, "without pairs nothing is shown: {low}–{high}");
    }

    // By hand: means 1 and 2, variances 0.01 and 0.04 with four and six runs; t at 7.66 degrees is 2.324.
    #[test]
    fn welch_counts_degrees_of_freedom_as_welch_did() {
        let around = |middle: f64, spread: f64, n: usize| -> Vec<f64> {
            let half = spread * ((n - 1) as f64 / n as f64).sqrt();
            (0..n).map(|i| (if i % 2 == 0 { middle - half } else { middle + half }).exp()).collect()
        };
        let of = welch(&around(1.0, 0.1, 4), &around(2.0, 0.2, 6), 0.0).unwrap();
        assert!((of.ratio.ln() - 1.0).abs() < 1e-9 && of.runs == 4);
        let half = 2.324 * (0.01 / 4.0 + 0.04 / 6.0_f64).sqrt();
        near(of.interval, (1.0 - half).exp(), (1.0 + half).exp());
    }

    #[test]
    fn one_run_has_a_ratio_and_no_interval() {
        let of = paired(&[(10.0, 15.0)], 0.001).unwrap();
        assert!((of.ratio - 1.5).abs() < 1e-12 && of.interval.is_none() && of.runs == 1);
        assert_eq!(welch(&[10.0, 11.0], &[15.0], 0.0).unwrap().interval, None);
    }

    #[test]
    fn what_has_no_logarithm_has_no_ratio() {
        assert_eq!((paired(&[], 0.0), paired(&[(0.0, 1.0), (1.0, 1.0)], 0.0)), (None, None));
        assert_eq!((welch(&[], &[1.0], 0.0), welch(&[1.0, 1.0], &[1.0, -1.0], 0.0)), (None, None));
    }

    #[test]
    fn runs_that_agree_to_the_last_digit_know_no_more_than_their_histogram() {
        near(paired(&[(100.0, 100.0), (100.0, 100.0)], 0.001).unwrap().interval, 0.999, 1.001);
        near(welch(&[100.0; 3], &[100.0; 3], 0.001).unwrap().interval, 0.999, 1.001);
    }
}
