//! How much a figure varies from bin to bin, seen past anything slow.

use stats::median;

/// What the correlation of neighbouring bins is taken for at least, and at most. What thirty bins say of it is itself noise,
/// and whoever then believes in none at all finds every other series unsteady.
const CORRELATION: (f64, f64) = (0.3, 0.8);
/// The share of the differences that is looked at: the smallest, so that a step or a dip does not pass for noise. And
/// what that leaves of the mean square of a normal variable (by integration).
const SHARE: f64 = 0.8;
const SQUARES_LEFT: f64 = 0.4377;

/// The variance of a mean is so many times what neighbouring tenths of a second explain: most noise is slower than they are, and
/// three seconds do not show it. With this the intervals of windows that ended by themselves hold the mean of the minute they are
/// part of in nine of ten cases (benches/system/adaptive.rs); with 1 in eight, and in synthetic series they need not be so wide.
const SLOWER: f64 = 6.0;

/// The standard error of the mean of so many tenths of a second, as a share of it, with what they do not know: noise that is
/// slower than theirs.
pub(super) fn explained(bins: &[f64]) -> f64 {
    let error = (SLOWER * long_run_variance(bins) / bins.len() as f64).sqrt() / super::average(bins);
    if error.is_finite() { error } else { 0.0 }
}

/// The variance of the mean of `n` bins is this over n, as far as fast noise goes.
///
/// The noise is taken for autoregressive of first order. Its two parameters are read off the mean squares of differences
/// between bins one, two and three apart, which are as 1 : 1+φ : 1+φ+φ². Steps and trends hardly enter differences.
/// Source: von Neumann, Distribution of the Ratio of the Mean Square Successive Difference to the Variance (1941).
pub(super) fn long_run_variance(bins: &[f64]) -> f64 {
    long_run_variance_up_to(CORRELATION.1, bins)
}

/// The same if the correlation of neighbouring bins is believed up to `most` only. What it is taken for beyond that is more often
/// chance than truth, and makes the variance many times as large.
pub(super) fn long_run_variance_up_to(most: f64, bins: &[f64]) -> f64 {
    let one = mean_square(bins, 1);
    if one <= 0.0 {
        return 0.0;
    }
    let by_two = mean_square(bins, 2) / one - 1.0;
    let by_three = ((4.0 * mean_square(bins, 3) / one - 3.0).max(0.0).sqrt() - 1.0) / 2.0;
    let correlation = f64::midpoint(by_two, by_three).clamp(CORRELATION.0, most);
    one * (1.0 + correlation) / (2.0 * (1.0 - correlation).powi(2))
}

/// Mean square of the differences between bins so far apart, but for the largest; around their median, which is what a
/// slow rise or fall makes of all of them.
fn mean_square(bins: &[f64], apart: usize) -> f64 {
    let differences: Vec<f64> = bins.windows(apart + 1).map(|pair| pair[apart] - pair[0]).collect();
    let middle = median(&differences).unwrap_or_default();
    let mut squares: Vec<f64> = differences.iter().map(|of| (of - middle).powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    squares.truncate(((squares.len() as f64 * SHARE) as usize).max(1));
    if squares.is_empty() { 0.0 } else { super::average(&squares) / SQUARES_LEFT }
}
