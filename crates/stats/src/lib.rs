//! Statistics of small samples: means and ratios with intervals, tests, steady state.
//!
//! Numbers only: the same ones give the same interval.

pub mod failures;
pub mod ratio;
pub mod sequential;
pub mod steady;

use serde::Serialize;
use statrs::distribution::{ContinuousCDF, StudentsT};
use std::borrow::Borrow;

/// A mean over runs and what is known of its spread.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// Mean of the runs.
    pub mean: f64,
    /// Lower end of the interval, in the unit of the mean.
    pub low: f64,
    /// Upper end of the interval, in the unit of the mean.
    pub high: f64,
    /// Runs behind it.
    pub runs: u32,
    /// What the interval is.
    pub interval: Interval,
}

/// What the two ends of an [`Estimate`] mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Interval {
    /// 95 % confidence by Student's t over the runs.
    StudentT,
    /// Smallest to largest: too few runs for more.
    Range,
    /// One run: no spread is known, both ends are the mean.
    Single,
}

impl Estimate {
    /// The mean of `runs` with Student's t interval; smallest to largest where there are fewer than three.
    ///
    /// `None` where there are none or one is not a finite number.
    pub fn of(runs: &[f64]) -> Option<Estimate> {
        let mean = mean(runs)?;
        let n = runs.len();
        let (low, high, interval) = if n < RUNS_LEAST {
            let (low, high) = range(runs)?;
            (low, high, if n == 1 { Interval::Single } else { Interval::Range })
        } else {
            let half = student_t(n as f64 - 1.0) * (variance(runs, mean) / n as f64).sqrt();
            (mean - half, mean + half, Interval::StudentT)
        };
        Some(Estimate { mean, low, high, runs: n as u32, interval })
    }

    /// The mean of `runs` without the fifth at either end, with Tukey and McLaughlin's interval: a run that something else disturbed hardly
    /// counts. Of fewer than five runs it is [`Estimate::of`].
    ///
    /// Source: Tukey & McLaughlin, Less Vulnerable Confidence and Significance Procedures for Location Based on a Single Sample:
    /// Trimming/Winsorization 1 (1963).
    pub fn trimmed(runs: &[f64]) -> Option<Estimate> {
        let untrimmed = Estimate::of(runs)?;
        let (n, cut) = (runs.len(), runs.len() / 5);
        if cut == 0 {
            return Some(untrimmed);
        }
        let mut sorted = runs.to_vec();
        sorted.sort_by(f64::total_cmp);
        let kept = &sorted[cut..n - cut];
        let winsorized: Vec<f64> = runs.iter().map(|run| run.clamp(kept[0], kept[kept.len() - 1])).collect();
        let deviation = variance(&winsorized, mean(&winsorized)?).sqrt();
        let share = kept.len() as f64 / n as f64;
        let half = student_t((kept.len() - 1) as f64) * deviation / (share * (n as f64).sqrt());
        let mean = mean(kept)?;
        Some(Estimate { mean, low: mean - half, high: mean + half, ..untrimmed })
    }
}

/// Fewer runs than this have no interval: of two nearly nothing is known of their variance.
pub const RUNS_LEAST: usize = 3;

/// The degrees of freedom of a sum of independent errors, by the variance of each and those with which it is known. What does not
/// vary has no share; where nothing does, they do not matter.
/// Source: Satterthwaite, An Approximate Distribution of Estimates of Variance Components (1946).
fn freedom(errors: &[(f64, f64)]) -> f64 {
    let all: f64 = errors.iter().map(|(variance, _)| variance).sum();
    let varying = errors.iter().filter(|(variance, _)| *variance > 0.0);
    let shares: f64 = varying.map(|(variance, freedom)| variance.powi(2) / freedom).sum();
    if all > 0.0 { all.powi(2) / shares } else { 1.0 }
}

/// The arithmetic mean; `None` of nothing, or where it is not a finite number.
pub fn mean(values: impl IntoIterator<Item = impl Borrow<f64>>) -> Option<f64> {
    let add = |(sum, n), value: f64| (sum + value, n + 1.0);
    let (sum, n) = values.into_iter().map(|value| *value.borrow()).fold((0.0, 0.0), add);
    Some(sum / n).filter(|mean: &f64| mean.is_finite())
}

/// The middle value, or the mean of the two in the middle; `None` of nothing.
pub fn median(values: impl IntoIterator<Item = impl Borrow<f64>>) -> Option<f64> {
    let mut sorted: Vec<f64> = values.into_iter().map(|value| *value.borrow()).collect();
    sorted.sort_by(f64::total_cmp);
    let upper = sorted.get(sorted.len() / 2)?;
    Some(if sorted.len() % 2 == 1 { *upper } else { (sorted[sorted.len() / 2 - 1] + upper) / 2.0 })
}

/// Standard deviation over mean; `None` of fewer than two values or a mean of zero.
pub fn variation(values: &[f64]) -> Option<f64> {
    let mean = mean(values).filter(|mean| *mean > 0.0)?;
    (values.len() > 1).then(|| variance(values, mean).sqrt() / mean)
}

/// Of a sample with this mean.
fn variance(values: &[f64], mean: f64) -> f64 {
    values.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / (values.len() as f64 - 1.0)
}

/// Smallest and largest; `None` of nothing.
pub fn range(values: impl IntoIterator<Item = impl Borrow<f64>>) -> Option<(f64, f64)> {
    let ends = values.into_iter().map(|value| *value.borrow()).map(|value: f64| (value, value));
    ends.reduce(|(low, high), (value, _)| (low.min(value), high.max(value)))
}

/// The 97.5 % quantile of Student's t; fewer than one degree of freedom count as one.
pub fn student_t(freedom: f64) -> f64 {
    student(freedom).inverse_cdf(0.975)
}

/// The two-sided p-value of Student's t: how likely a value at least as far from 0 as `t` is.
pub fn student_p(t: f64, freedom: f64) -> f64 {
    2.0 * student(freedom).sf(t.abs())
}

fn student(freedom: f64) -> StudentsT {
    // Beyond the upper bound it is normal to five digits.
    StudentsT::new(0.0, 1.0, freedom.clamp(1.0, 1e5)).expect("these degrees of freedom are valid")
}

/// Wilson's 95 % interval of a share of which `right` of `cases` were drawn; `None` of no cases.
/// Source: Wilson, Probable Inference, the Law of Succession, and Statistical Inference (1927).
pub fn wilson(right: u32, cases: u32) -> Option<(f64, f64)> {
    const Z: f64 = 1.959_964;
    let n = f64::from(cases);
    let p = f64::from(right) / n;
    let middle = p + Z * Z / (2.0 * n);
    let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
    let scale = 1.0 + Z * Z / n;
    (cases > 0).then(|| (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::{Rng, SeedableRng};

    #[test]
    fn the_quantiles_of_student_are_as_likely_as_they_should_be() {
        for freedom in [1.0, 2.0, 3.0, 7.658, 9.0, 30.0, 1000.0] {
            let p = student_p(student_t(freedom), freedom);
            assert!((p - 0.05).abs() < 1e-9, "{freedom}: {p}");
        }
        // With two degrees it has a closed form, 1 − t / √(2 + t²).
        assert!((student_p(10.0, 2.0) - (1.0 - 10.0 / 102f64.sqrt())).abs() < 1e-9);
        assert_eq!((student_p(0.0, 5.0), student_p(f64::INFINITY, 5.0) < 1e-9), (1.0, true));
    }

    /// Of a printed table, and by numerical integration.
    #[test]
    fn the_quantiles_are_those_of_the_tables() {
        for (freedom, expected) in [
            (0.2, 12.7062),
            (1.0, 12.7062),
            (3.5, 2.9401),
            (4.0, 2.7764),
            (7.658, 2.3241),
            (30.0, 2.0423),
            (1e6, 1.959_988),
        ] {
            assert!((student_t(freedom) / expected - 1.0).abs() < 3e-5, "{freedom}: {}", student_t(freedom));
        }
    }

    #[test]
    fn an_interval_says_how_it_was_made() {
        let of = |runs: &[f64]| Estimate::of(runs).map(|e| (e.mean, e.low, e.high, e.interval));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[f64::NAN]), None);
        assert_eq!(of(&[5.0]), Some((5.0, 5.0, 5.0, Interval::Single)));
        assert_eq!(of(&[4.0, 6.0]), Some((5.0, 4.0, 6.0, Interval::Range)));
        let (mean, low, high, interval) = of(&[9.0, 10.0, 11.0]).unwrap();
        assert_eq!((mean, interval), (10.0, Interval::StudentT));
        assert!((high - 10.0 - 4.302_652_73 / 3f64.sqrt()).abs() < 1e-8 && (low + high - 20.0).abs() < 1e-9);
    }

    /// By hand, after Wilcox, Introduction to Robust Estimation and Hypothesis Testing: of 1…9 and 100 two are cut at either end.
    #[test]
    fn a_trimmed_mean_leaves_out_what_was_disturbed() {
        let mut runs: Vec<f64> = (1..10).map(f64::from).collect();
        runs.push(100.0);
        let of = Estimate::trimmed(&runs).unwrap();
        // Winsorized: 3 3 3 4 5 6 7 8 8 8, whose variance is 42.5 / 9.
        let half = 2.570_582 * (42.5_f64 / 9.0).sqrt() / (0.6 * 10f64.sqrt());
        assert_eq!((of.mean, of.runs, of.interval), (5.5, 10, Interval::StudentT));
        assert!(
            (of.high - 5.5 - half).abs() < 1e-5 && (of.high + of.low - 11.0).abs() < 1e-9,
            "{of:?} {half}"
        );
        assert_eq!(Estimate::trimmed(&runs[..4]), Estimate::of(&runs[..4]));
        assert_eq!(Estimate::trimmed(&[1.0, 2.0, f64::NAN, 4.0, 5.0]), None);
    }

    /// One run of ten is disturbed by far more than the others differ: the interval of the mean grows, this one hardly does.
    #[test]
    fn a_trimmed_interval_holds_the_truth_as_often_as_it_says() {
        for runs in [8, 12] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(runs);
            let mut normal =
                || (0..12).map(|_| f64::from(random.next_u32()) / 2f64.powi(32)).sum::<f64>() - 6.0;
            let (mut held, mut wide, mut wider) = (0, 0.0, 0.0);
            for _ in 0..400 {
                let clean: Vec<f64> = (0..runs).map(|_| 100.0 + normal()).collect();
                let of = Estimate::trimmed(&clean).unwrap();
                held += u32::from(of.low <= 100.0 && 100.0 <= of.high);
                let disturbed: Vec<f64> =
                    clean.iter().enumerate().map(|(i, run)| if i == 3 { run - 10.0 } else { *run }).collect();
                let width = |of: Option<Estimate>| of.map_or(0.0, |of| of.high - of.low);
                wide += width(Estimate::trimmed(&disturbed));
                wider += width(Estimate::of(&disturbed));
            }
            assert!((368..=396).contains(&held), "{runs} runs: {held} of 400");
            assert!(wide < 0.6 * wider, "{runs} runs: {wide} {wider}");
        }
    }

    #[test]
    fn the_interval_of_few_runs_holds_the_truth_about_as_often_as_it_says() {
        for runs in [3, 5] {
            let mut random = Xoshiro256PlusPlus::seed_from_u64(100 + runs);
            let mut normal =
                || (0..12).map(|_| f64::from(random.next_u32()) / 2f64.powi(32)).sum::<f64>() - 6.0;
            let held = (0..400).filter(|_| {
                let of = Estimate::of(&(0..runs).map(|_| 100.0 + normal()).collect::<Vec<f64>>()).unwrap();
                of.low <= 100.0 && 100.0 <= of.high
            });
            let held = held.count();
            assert!((368..=396).contains(&held), "{runs} runs: {held} of 400");
        }
    }

    #[test]
    fn medians_and_variation_of_small_samples() {
        assert_eq!(
            (median([0.0; 0]), median([3.0, 1.0, 2.0]), median([4.0, 1.0])),
            (None, Some(2.0), Some(2.5))
        );
        assert_eq!(
            (variation(&[1.0]), variation(&[0.0, 0.0]), variation(&[2.0, 2.0])),
            (None, None, Some(0.0))
        );
    }

    /// Table values: 9 of 10 is 59.6–98.2 %, 0 of 5 is 0–43.4 %.
    #[test]
    fn wilsons_interval_is_his() {
        assert_eq!(wilson(0, 0), None);
        for (right, cases, low, high) in [(9, 10, 0.5958, 0.9821), (0, 5, 0.0, 0.4345), (30, 30, 0.8865, 1.0)]
        {
            let (l, h) = wilson(right, cases).unwrap();
            assert!((l - low).abs() < 1e-3 && (h - high).abs() < 1e-3, "{right} of {cases}: {l}–{h}");
        }
    }
}
