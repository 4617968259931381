//! The ratio of two samples of runs, with an interval: on logarithms, so that neither side is privileged.

use serde::Serialize;
use stats::{mean, student_p, student_t_between};

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
    /// How likely a ratio as far from 1, or further, is by chance if there is no difference; `None` without an interval.
    pub p: Option<f64>,
}

/// How a ratio and its interval come about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Repetition by repetition of one interleaved run: Student's t over the logarithms of their ratios.
    Paired,
    /// Runs of different days or machines: Welch's t over the logarithms of either.
    Welch,
    /// Fewer than three runs: Welch's t over the seconds within them, as many as there effectively are. It says nothing of
    /// differences between runs.
    Within,
}

/// How well the seconds of one run know their mean.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    /// Their mean.
    pub(super) mean: f64,
    /// The variance of its logarithm.
    variance: f64,
    /// With how many degrees of freedom that is known.
    freedom: f64,
}

impl Known {
    /// Of seconds that know their mean as well as `effective` independent ones would.
    pub(super) fn of(seconds: &[f64], effective: f64) -> Known {
        /// The effective number is made of ten batches, and known no better than they.
        const BATCHES: f64 = 10.0;
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        let variance = variance(seconds, mean) / effective / mean.powi(2);
        Known { mean, variance, freedom: (effective.min(BATCHES) - 1.0).max(1.0) }
    }
}

/// Mean, variance of its logarithm and degrees of freedom of the mean of several.
fn together(all: &[Known]) -> (f64, f64, f64) {
    let n = all.len() as f64;
    let variance = all.iter().map(|of| of.variance).sum::<f64>() / n.powi(2);
    let shares = all.iter().map(|of| (of.variance / n.powi(2)).powi(2) / of.freedom).sum::<f64>();
    // What never varies is known for certain, and leaves the other side its degrees of freedom.
    let freedom = if shares > 0.0 { variance.powi(2) / shares } else { f64::INFINITY };
    (all.iter().map(|of| of.mean).sum::<f64>() / n, variance, freedom)
}

/// The ratio of runs that are too few to say how runs differ, with what their seconds know.
///
/// `None` as in [`paired`].
pub(super) fn within(first: &[Known], other: &[Known]) -> Option<Quotient> {
    let (mean_a, of_a, freedom_a) = together(first);
    let (mean_b, of_b, freedom_b) = together(other);
    let middle = Some(log(mean_b) - log(mean_a)).filter(|middle| middle.is_finite())?;
    let freedom = (of_a + of_b).powi(2) / (of_a.powi(2) / freedom_a + of_b.powi(2) / freedom_b);
    let runs = first.len().min(other.len());
    Some(quotient(middle, Some(((of_a + of_b).sqrt(), freedom)), 0.0, Method::Within, runs))
}

/// The ratio of runs that belong together: one pair, (first, other), for each repetition that both sides have.
///
/// `None` where there is no pair, or a figure that is not positive, of which there is no logarithm. `resolution` is how
/// exactly a figure is known, as a share.
pub(super) fn paired(pairs: &[(f64, f64)], resolution: f64) -> Option<Quotient> {
    let logs: Vec<f64> = pairs.iter().map(|(first, other)| log(*other) - log(*first)).collect();
    let middle = mean(&logs)?;
    let n = logs.len();
    let error = (n > 1).then(|| ((variance(&logs, middle) / n as f64).sqrt(), (n - 1) as f64));
    Some(quotient(middle, error, resolution, Method::Paired, n))
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
    let error = (a.len() > 1 && b.len() > 1).then(|| {
        let (n, m) = (a.len() as f64, b.len() as f64);
        let (of_a, of_b) = (variance(&a, mean_a) / n, variance(&b, mean_b) / m);
        let freedom = (of_a + of_b).powi(2) / (of_a.powi(2) / (n - 1.0) + of_b.powi(2) / (m - 1.0));
        ((of_a + of_b).sqrt(), freedom)
    });
    Some(quotient(mean_b - mean_a, error, resolution, Method::Welch, a.len().min(b.len())))
}

/// A ratio by its logarithm, and the standard error of that with its degrees of freedom.
fn quotient(
    middle: f64,
    error: Option<(f64, f64)>,
    resolution: f64,
    method: Method,
    runs: usize,
) -> Quotient {
    // Without any spread there are no degrees of freedom, and no width either.
    let error = error.map(|(error, freedom)| if freedom.is_finite() { (error, freedom) } else { (0.0, 1.0) });
    let half = error.map(|(error, freedom)| (student_t_between(freedom) * error).max(resolution));
    let interval = half.map(|half| ((middle - half).exp(), (middle + half).exp()));
    let p = error.map(|(error, freedom)| match error > 0.0 {
        true => student_p(middle / error, freedom),
        false => f64::from(middle.abs() <= resolution),
    });
    Quotient { ratio: middle.exp(), interval, method, runs: runs as u32, p }
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
    fn a_ratio_is_as_unlikely_as_its_interval_is_far_from_one() {
        // At the edge of its own 95 % interval: t of 2.776 with four degrees of freedom.
        let edge: Vec<(f64, f64)> =
            [-2.0, -1.0, 0.0, 1.0, 2.0_f64].iter().map(|x| (1.0, (0.1 * x + 0.196_293).exp())).collect();
        let of = paired(&edge, 0.0).unwrap();
        assert!((of.p.unwrap() - 0.05).abs() < 1e-3 && (of.interval.unwrap().0 - 1.0).abs() < 1e-3, "{of:?}");
        assert_eq!(paired(&[(1.0, 2.0), (1.0, 2.0)], 0.0).unwrap().p, Some(0.0));
        assert_eq!(welch(&[1.0, 1.0], &[1.0, 1.0], 0.0).unwrap().p, Some(1.0));
    }

    #[test]
    fn a_side_that_never_varies_does_not_hide_what_the_other_varies_by() {
        let noisy: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 50.0 } else { 151.0 }).collect();
        let (still, noisy) = (Known::of(&[100.0; 40], 40.0), Known::of(&noisy, 40.0));
        for (first, other) in [(&still, &noisy), (&noisy, &still)] {
            let of = within(std::slice::from_ref(first), std::slice::from_ref(other)).unwrap();
            let (low, high) = of.interval.unwrap();
            assert!(low < 0.9 && high > 1.1 && of.p.unwrap() > 0.5, "{of:?}");
        }
        let of = within(std::slice::from_ref(&still), std::slice::from_ref(&still)).unwrap();
        assert_eq!((of.interval, of.p), (Some((1.0, 1.0)), Some(1.0)));
    }

    #[test]
    fn seconds_within_runs_count_for_as_many_as_they_are() {
        let bins: Vec<f64> = (0..40).map(|i| if i % 2 == 0 { 99.0 } else { 101.0 }).collect();
        let faster: Vec<f64> = bins.iter().map(|x| 1.05 * x).collect();
        let of = |effective: f64| {
            within(&[Known::of(&bins, effective)], &[Known::of(&faster, effective)]).unwrap()
        };
        let width = |of: Quotient| of.interval.map(|(low, high)| high / low).unwrap();
        assert!((of(40.0).ratio - 1.05).abs() < 1e-9 && of(40.0).method == Method::Within);
        assert!(width(of(10.0)) > width(of(40.0)) && of(40.0).p < of(10.0).p && of(10.0).p.unwrap() < 0.001);
    }

    #[test]
    fn runs_that_agree_to_the_last_digit_know_no_more_than_their_histogram() {
        near(paired(&[(100.0, 100.0), (100.0, 100.0)], 0.001).unwrap().interval, 0.999, 1.001);
        near(welch(&[100.0; 3], &[100.0; 3], 0.001).unwrap().interval, 0.999, 1.001);
    }
}
