//! Autocorrelation, and the period it shows.

use super::line::Line;

/// A window holds at least this many periods.
const PERIODS_LEAST: usize = 4;
/// A shorter period than this is noise.
const BINS_LEAST: usize = 3;
/// A peak of the autocorrelation is at least this high, and at least this many times 1/√n: noise seldom reaches either.
const PEAK: f64 = 0.3;
const PEAK_OF_ROOT: f64 = 2.6;
/// The first peak counts that is nearly as high as the highest: later ones are its multiples.
const NEARLY: f64 = 0.85;

/// The period in bins: the first high peak of the autocorrelation.
pub(super) fn period(bins: &[f64]) -> Option<usize> {
    let n = bins.len();
    let line = Line::through(bins);
    let around: Vec<f64> = (0..n).map(|i| bins[i] - line.at(i, n)).collect();
    // Means of products, because at longer lags fewer bins have a partner.
    let of = |lag: usize| products(&around, lag) / (n - lag) as f64;
    let variance = of(0);
    let lags: Vec<f64> = (0..=n / 2 + 1).map(|lag| of(lag) / variance).collect();
    let is_peak = |lag: &usize| lags[*lag] >= lags[lag - 1] && lags[*lag] > lags[lag + 1];
    let peaks: Vec<usize> = (BINS_LEAST..=n / PERIODS_LEAST).filter(is_peak).collect();
    let highest = peaks.iter().map(|lag| lags[*lag]).fold(0.0, f64::max);
    let least = PEAK.max(PEAK_OF_ROOT / (n as f64).sqrt()).max(NEARLY * highest);
    peaks.into_iter().find(|lag| lags[*lag] >= least)
}

/// Autocorrelation of neighbours, −1 to 1; 0 of values that are all the same.
pub(super) fn lag_1(values: &[f64]) -> f64 {
    let mean = super::average(values);
    let around: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let squares = products(&around, 0);
    if squares > 0.0 { products(&around, 1) / squares } else { 0.0 }
}

/// The sum of the products of values so many places apart.
fn products(values: &[f64], apart: usize) -> f64 {
    values.iter().zip(&values[apart..]).map(|(value, later)| value * later).sum()
}
