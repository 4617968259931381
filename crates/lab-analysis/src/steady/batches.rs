//! Batch means of what is left after the cut: do they differ, do they rise or fall, and how well is their mean known?

use super::line::{Line, line, spread};
use super::period::{correlation, period};
use super::{Change, Known, Series, average, noise};
use stats::student_t_between;

/// Batches of a short window, and of one that has ten bins for each.
const BATCHES: (usize, usize) = (10, 20);
const BINS_EACH: usize = 10;
/// What is more than fast noise explains: a trend so many of its standard errors from none, a batch so many from the mean,
/// and so many times the variance of batch means. Of series that are flat but for noise with a correlation of neighbours
/// up to 0.5, at most one in a hundred passes any of them, up to 0.7 one in twenty: that is how they were chosen.
const TREND: f64 = 3.5;
const BATCH: f64 = 4.0;
const VARIANCE: f64 = 3.5;
/// What the correlation of neighbouring batch means is taken for at most; it makes them count for fewer than they are.
/// Source: Tafazzoli & Wilson, Skart: A Skewness- and Autoregression-Adjusted Batch-Means Procedure (2011).
const CORRELATION_MOST: f64 = 0.8;
/// Of the variance that neighbouring bins explain, what that of a mean has at least, and up to which correlation they are believed.
/// Ten batch means say of their own variance what chance has it, and whoever ends with the first narrow interval finds the
/// lucky ones. Not all of it, because a correlation is taken for too much rather than for too little.
const EXPLAINED: f64 = 0.8;
const CORRELATION_BELIEVED: f64 = 0.5;
/// How much of the way from its lowest to its highest bin a batch of whole periods may be off: it does not begin where a
/// bin does.
const EDGE: f64 = 0.25;

/// What is known of `series` after its first `cut` bins, or how it is not steady.
pub(super) fn judge(series: &Series, cut: usize) -> Result<Known, Change> {
    let bins = &series.bins[cut..];
    let period = period(bins);
    let edges = edges(bins.len(), period);
    let means: Vec<f64> = edges.windows(2).map(|edge| mean_between(bins, edge[0], edge[1])).collect();
    let (count, each) = (means.len() as f64, edges[1] - edges[0]);
    let Line { mean, slope, squares } = line(&means);
    let variance = squares.0 / (count - 1.0);
    let explained = {
        let edge = period.map_or(0.0, |_| EDGE * range(bins) / each);
        noise::long_run_variance(bins) / each + edge.powi(2)
    };

    // Over all batches.
    let trend = slope * count / mean;
    let trend_error = (explained / spread(means.len())).sqrt() * count / mean;
    let off = |i: usize| (means[i] - mean).abs();
    let furthest = (0..means.len()).max_by(|a, b| off(*a).total_cmp(&off(*b))).unwrap_or(0);
    let trends = trend.abs() > series.limits.moves && trend.abs() > TREND * trend_error;
    let apart = off(furthest) > series.limits.moves * mean
        && (off(furthest) > BATCH * explained.sqrt() || variance > VARIANCE * explained);
    // A dip near an end is something of a trend, too; what stands out more is told.
    if trends && (!apart || trend.abs() / trend_error > off(furthest) / explained.sqrt()) {
        return Err(Change::Trend { share: trend });
    }
    if apart {
        // With those beside it that lie at least half as far on the same side.
        let along = |i: usize| (means[i] - mean) * (means[furthest] - mean).signum() >= off(furthest) / 2.0;
        let first = (0..=furthest).rev().take_while(|i| along(*i)).last().unwrap_or(furthest);
        let last = (furthest..means.len()).take_while(|i| along(*i)).last().unwrap_or(furthest);
        let (from, to) = (cut + edges[first] as usize, cut + edges[last + 1].ceil() as usize);
        return Err(Change::Apart { from, to, share: average(&means[first..=last]) / mean - 1.0 });
    }

    let correlated = correlation(&means).clamp(0.0, CORRELATION_MOST);
    let effective = count * (1.0 - correlated) / (1.0 + correlated);
    // What repeats itself is no noise, and neighbouring bins cannot tell the two apart.
    let least = match period {
        None => EXPLAINED * noise::long_run_variance_up_to(CORRELATION_BELIEVED, bins) / bins.len() as f64,
        Some(_) => 0.0,
    };
    // What is left after the cut is shorter, and knows its mean less well.
    let by_shorter_bins = match period {
        None => (series.explained * mean).powi(2) * series.bins.len() as f64 / bins.len() as f64,
        Some(_) => 0.0,
    };
    let error = (variance / effective).max(least).max(by_shorter_bins).sqrt();
    let of_bins = line(bins).squares.0 / (bins.len() - 1) as f64;
    Ok(Known {
        name: series.name,
        limits: series.limits,
        mean,
        interval: student_t_between(count - 1.0) * error / mean,
        effective: if error > 0.0 { of_bins / error.powi(2) } else { bins.len() as f64 },
        trend,
        trend_interval: student_t_between(count - 2.0) * trend_error,
        period,
        moved_by_cut: average(series.bins) / average(bins) - 1.0,
    })
}

/// Where batches begin and end: of equal length, or of whole periods that end with the window.
fn edges(bins: usize, period: Option<f64>) -> Vec<f64> {
    let n = bins as f64;
    let (count, each) = match period {
        Some(period) => {
            let periods = (n / period) as usize;
            let in_batch = periods.div_ceil(BATCHES.1);
            (periods / in_batch, in_batch as f64 * period)
        }
        None => {
            let count = (bins / BINS_EACH).clamp(BATCHES.0, BATCHES.1);
            (count, n / count as f64)
        }
    };
    (0..=count).map(|i| (n - (count - i) as f64 * each).max(0.0)).collect()
}

/// The mean of what lies between two places, counted in bins; of a bin that is cut through, the share within.
fn mean_between(bins: &[f64], from: f64, to: f64) -> f64 {
    let share = |i: usize| to.min(i as f64 + 1.0) - from.max(i as f64);
    let within = from as usize..(to.ceil() as usize).min(bins.len());
    within.map(|i| share(i) * bins[i]).sum::<f64>() / (to - from)
}

/// The largest value less the smallest.
fn range(values: &[f64]) -> f64 {
    let (low, high) =
        values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)));
    high - low
}
