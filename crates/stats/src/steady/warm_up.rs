//! Where the warm-up ends, if the window contains one.

use super::line::Line;
use super::{BINS_LEAST, Change, average, noise};

/// The largest share of the bins that may be cut. A cut beyond `LATE` of that leaves open whether the warm-up is over.
const AT_MOST: f64 = 0.5;
const LATE: f64 = 0.75;
/// MSER-5 forms batches of five bins. In a short window they are smaller, so that it has at least this many.
const BATCHES: usize = 24;
/// A warm-up differs from the rest by more than this many standard errors. Large, because the cut is the best of many.
const DIFFERS: f64 = 3.5;
/// And its first half by more than this many.
const BEGINS: f64 = 2.0;

/// How many bins MSER-5 cuts, if they are a warm-up: they differ from the rest by more than noise, and are no part of a drift. An error if
/// it is so long that it may not be over.
pub(super) fn find(bins: &[f64]) -> Result<usize, Change> {
    let most = (bins.len() as f64 * AT_MOST).min(bins.len().saturating_sub(BINS_LEAST) as f64);
    let cut = mser(bins, most as usize);
    let (head, rest) = bins.split_at(cut);
    let noise = noise::long_run_variance(rest);
    let differs = |part: &[f64], errors: f64| {
        let variance = noise * (1.0 / part.len() as f64 + 1.0 / rest.len() as f64);
        (average(part) - average(rest)).abs() > errors * variance.sqrt()
    };
    // What begins like the rest and differs later is no warm-up.
    let begins = &head[..cut.div_ceil(2)];
    // If one line fits all bins better than a line through the head and a level rest, it is a drift.
    let settles =
        Line::through(head).residuals + Line::through(rest).deviations < Line::through(bins).residuals;
    match cut > 0 && differs(head, DIFFERS) && differs(begins, BEGINS) && settles {
        true if cut as f64 > LATE * most => Err(Change::LateWarmUp { at: cut }),
        true => Ok(cut),
        false => Ok(0),
    }
}

/// The cut of at most `most` bins that gives the mean of the rest the smallest standard error.
///
/// Near the minimum the error is flat, and chance decides. So the earliest cut is taken whose squared error is within √(2/n) of
/// the smallest: a variance of n values is known no better.
/// Source: White, An Effective Truncation Heuristic for Bias Reduction in Simulation Output (1997).
fn mser(bins: &[f64], most: usize) -> usize {
    let length = (bins.len() / BATCHES).clamp(1, 5);
    let batches: Vec<f64> = bins.chunks_exact(length).map(average).collect();
    let error =
        |cut: usize| Line::through(&batches[cut..]).deviations / ((batches.len() - cut) as f64).powi(2);
    let errors: Vec<f64> = (0..=most / length).map(error).collect();
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    let as_good = least * (1.0 + (2.0 / bins.len() as f64).sqrt());
    errors.iter().position(|error| *error <= as_good).unwrap_or(0) * length
}
