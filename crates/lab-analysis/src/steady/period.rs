//! Whether a series repeats itself, and after how many bins.

use super::line::beside;

/// Fewer periods than that in a window are no period.
const PERIODS_LEAST: usize = 4;
/// Shorter ones than that are noise like any other.
const BINS_LEAST: usize = 3;
/// An autocorrelation counts as a peak from here on, and from so many times 1/√n on: noise alone reaches neither often.
const PEAK: f64 = 0.3;
const PEAK_OF_ROOT: f64 = 2.6;
/// Of several peaks the first counts that is nearly as high as the highest: the others are multiples.
const NEARLY: f64 = 0.85;

/// The first peak of the autocorrelation that stands out, made more exact by the peaks at its multiples.
pub(super) fn period(bins: &[f64]) -> Option<f64> {
    let n = bins.len();
    let flat = beside(bins);
    // The mean of products, for at longer lags fewer bins have a partner. What does not vary is no peak.
    let of = |lag: usize| products(&flat, lag) / (n - lag) as f64;
    let variance = of(0);
    let lags: Vec<f64> = (0..=n / 2 + 1).map(|lag| of(lag) / variance).collect();
    let is_peak = |lag: &usize| lags[*lag] >= lags[lag - 1] && lags[*lag] > lags[lag + 1];
    let peaks: Vec<usize> = (BINS_LEAST..=n / PERIODS_LEAST).filter(is_peak).collect();
    let highest = peaks.iter().map(|lag| lags[*lag]).fold(0.0, f64::max);
    let least = PEAK.max(PEAK_OF_ROOT / (n as f64).sqrt()).max(NEARLY * highest);
    let mut period = *peaks.iter().find(|lag| lags[**lag] >= least)? as f64;
    for times in 2..=n {
        let (about, around) = (period * times as f64, period / 4.0);
        let (from, to) = ((about - around).round() as usize, (about + around).round() as usize);
        if to > n / 2 {
            break;
        }
        let peak = (from..=to).max_by(|a, b| lags[*a].total_cmp(&lags[*b]))?;
        period = peak as f64 / times as f64;
    }
    (period * PERIODS_LEAST as f64 <= n as f64).then_some(period)
}

/// Autocorrelation of neighbours, −1 to 1; 0 of what does not vary.
pub(super) fn correlation(values: &[f64]) -> f64 {
    let mean = super::average(values);
    let around: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let squares = products(&around, 0);
    if squares > 0.0 { products(&around, 1) / squares } else { 0.0 }
}

/// The sum of the products of values so far apart.
fn products(values: &[f64], apart: usize) -> f64 {
    values.iter().zip(&values[apart..]).map(|(value, later)| value * later).sum()
}
