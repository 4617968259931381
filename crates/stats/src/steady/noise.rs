//! The variance of a mean of correlated bins, estimated from differences of neighbours, which drifts and shifts hardly enter.

use crate::median;

/// The autocorrelation of neighbouring bins is taken for no less and no more than this: an estimate from thirty bins is itself
/// noise, and without the lower bound every other short series would look unsteady.
const CORRELATION: (f64, f64) = (0.3, 0.8);
/// The largest differences are left out, so that a shift or a dip does not count as noise. This share is kept, and of the mean
/// square of a normal variable that leaves the second number (by integration).
const KEPT: f64 = 0.8;
const SQUARES_LEFT: f64 = 0.4377;

/// The long-run variance σ²: the variance of the mean of n bins is σ²/n.
pub(super) fn long_run_variance(bins: &[f64]) -> f64 {
    long_run_variance_up_to(CORRELATION.1, bins)
}

/// The same with the autocorrelation limited to `most`.
///
/// The noise is modelled as autoregressive of first order, AR(1). The mean squares of differences between bins one, two and three
/// apart are as 1 : 1+φ : 1+φ+φ², which gives φ and the variance.
/// Source: von Neumann, Distribution of the Ratio of the Mean Square Successive Difference to the Variance (1941).
pub(super) fn long_run_variance_up_to(most: f64, bins: &[f64]) -> f64 {
    let one = mean_square_difference(bins, 1);
    if one <= 0.0 {
        return 0.0;
    }
    let by_two = mean_square_difference(bins, 2) / one - 1.0;
    let by_three = ((4.0 * mean_square_difference(bins, 3) / one - 3.0).max(0.0).sqrt() - 1.0) / 2.0;
    let correlation = f64::midpoint(by_two, by_three).clamp(CORRELATION.0, most);
    one * (1.0 + correlation) / (2.0 * (1.0 - correlation).powi(2))
}

/// Mean square of the differences between bins so many places apart, without the largest. They are taken around their median,
/// which a drift moves.
fn mean_square_difference(bins: &[f64], apart: usize) -> f64 {
    let differences: Vec<f64> = bins.windows(apart + 1).map(|pair| pair[apart] - pair[0]).collect();
    let Some(middle) = median(&differences) else {
        return 0.0;
    };
    let mut squares: Vec<f64> = differences.iter().map(|of| (of - middle).powi(2)).collect();
    squares.sort_by(f64::total_cmp);
    squares.truncate(((squares.len() as f64 * KEPT) as usize).max(1));
    super::average(&squares) / SQUARES_LEFT
}
