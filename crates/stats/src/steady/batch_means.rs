//! Batch means after the warm-up cut: do they drift or shift, and how well is their mean known?

use super::line::{Line, spread};
use super::period::{lag_1, period};
use super::{Change, Known, Series, average, noise};
use crate::student_t;

/// Batches in a short window, and in one that has `BINS_EACH` bins for each.
const BATCHES: (usize, usize) = (10, 20);
const BINS_EACH: usize = 10;
/// A drift, and the distance of a batch from the mean, are more than noise from this many standard errors on. Chosen so that of
/// flat series whose neighbours correlate by up to 0.5 at most one in a hundred exceeds either.
const DRIFT: f64 = 3.5;
const SHIFT: f64 = 4.0;
/// The autocorrelation of batch means is taken for no more than this. It makes them count for fewer than they are.
/// Source: Tafazzoli & Wilson, Skart: A Skewness- and Autoregression-Adjusted Batch-Means Procedure (2011).
const CORRELATION_MOST: f64 = 0.8;
/// The variance of the mean is at least what neighbouring bins explain with an autocorrelation of at most this. Ten batch means
/// are sometimes close together by chance, and a window that ends with the first narrow interval ends with such ones.
const CORRELATION_OF_BINS_MOST: f64 = 0.5;

/// What is known of `series` after its first `cut` bins, or how it changes.
pub(super) fn judge(series: &Series, cut: usize) -> Result<Known, Change> {
    let Series { name, limits, error_least, .. } = *series;
    let bins = &series.bins[cut..];
    let n = bins.len() as f64;
    // It stopped within what looks like a warm-up.
    if bins.iter().all(|bin| *bin <= 0.0) {
        return Err(Change::Shift { from: cut, to: series.bins.len(), share: -1.0 });
    }
    let period = period(bins);
    let edges = edges(bins.len(), period);
    let means: Vec<f64> = edges.windows(2).map(|edge| average(&bins[edge[0]..edge[1]])).collect();
    let count = means.len() as f64;
    let each = (edges[means.len()] - edges[0]) as f64 / count;
    let Line { mean, slope, deviations, .. } = Line::through(&means);
    let noise = noise::long_run_variance(bins) / each;

    let drift = slope * count / mean;
    let drift_error = (noise / spread(means.len())).sqrt() * count / mean;
    let off = |i: usize| (means[i] - mean).abs();
    let furthest = (0..means.len()).max_by(|a, b| off(*a).total_cmp(&off(*b))).unwrap_or(0);
    let drifts = drift.abs() > limits.change && drift.abs() > DRIFT * drift_error;
    let shifts = off(furthest) > limits.change * mean && off(furthest) > SHIFT * noise.sqrt();
    // A dip near an end looks like a drift, too; the more significant one is reported.
    if drifts && (!shifts || drift.abs() / drift_error > off(furthest) / noise.sqrt()) {
        return Err(Change::Drift { share: drift });
    }
    if shifts {
        // With its neighbours that lie at least half as far on the same side.
        let along = |i: &usize| (means[*i] - mean) * (means[furthest] - mean).signum() >= off(furthest) / 2.0;
        let first = (0..=furthest).rev().take_while(along).last().unwrap_or(furthest);
        let last = (furthest..means.len()).take_while(along).last().unwrap_or(furthest);
        let (from, to) = (cut + edges[first], cut + edges[last + 1]);
        return Err(Change::Shift { from, to, share: average(&means[first..=last]) / mean - 1.0 });
    }

    let correlation = lag_1(&means).clamp(0.0, CORRELATION_MOST);
    let effective = count * (1.0 - correlation) / (1.0 + correlation);
    let of_batches = deviations / (count - 1.0) / effective;
    let variance = match period {
        // Neighbouring bins cannot tell a period from noise.
        Some(_) => of_batches,
        None => of_batches
            .max(noise::long_run_variance_up_to(CORRELATION_OF_BINS_MOST, bins) / n)
            // What is left after the cut is shorter, and its mean less well known.
            .max((error_least * mean).powi(2) * series.bins.len() as f64 / n),
    };
    Ok(Known {
        name,
        limits,
        mean,
        interval: student_t(count - 1.0) * variance.sqrt() / mean,
        drift,
        drift_interval: student_t(count - 2.0) * drift_error,
        period,
        bias: average(series.bins) / average(bins) - 1.0,
    })
}

/// Where batches begin and end: of equal length to a bin, or of whole periods up to the end of the window.
fn edges(bins: usize, period: Option<usize>) -> Vec<usize> {
    match period {
        Some(period) => {
            let in_batch = (bins / period).div_ceil(BATCHES.1);
            let count = bins / period / in_batch;
            (0..=count).map(|i| bins - (count - i) * in_batch * period).collect()
        }
        None => {
            let count = (bins / BINS_EACH).clamp(BATCHES.0, BATCHES.1);
            (0..=count).map(|i| i * bins / count).collect()
        }
    }
}
