//! Where the warm-up ends, if the window holds some of it.

use super::line::line;
use super::{BINS_LEAST, average, noise};

/// What is cut at most, as a share of the bins; and of that, from where on the warm-up may well go on behind it.
const AT_MOST: f64 = 0.5;
const LATE: f64 = 0.75;
/// Batches that a window is divided into at least, before they have five bins.
const BATCHES: usize = 24;
/// How far, in standard errors, what is cut must lie from what is kept: it was chosen among many.
const APART: f64 = 3.5;
/// How far two stretches may lie from each other that are called alike.
const ALIKE: f64 = 2.0;

/// The warm-up at the beginning of a window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cut {
    /// How many bins it is.
    pub(super) bins: usize,
    /// Whether it lies so late that nobody can say whether it was all.
    pub(super) late: bool,
}

/// Cuts where MSER-5 does, if what it cuts is a warm-up: apart from the rest by more than noise, and no trend that goes on.
/// Where that is late, what is cut also has to be apart from the rest by more than the share `moves`.
pub(super) fn warm_up(bins: &[f64], moves: f64) -> Cut {
    let most = (bins.len() as f64 * AT_MOST).min(bins.len().saturating_sub(BINS_LEAST) as f64);
    let is_late = |cut: usize| cut as f64 > LATE * most;
    let chosen = mser(bins, most as usize);
    // What lies before a late cut and is like what lies behind it is no warm-up.
    let noise = noise::long_run_variance(&bins[chosen..]);
    let alike = |from: &usize| !differ(&bins[*from..chosen], &bins[chosen..], noise, ALIKE);
    let cut = if is_late(chosen) { (1..=chosen).find(alike).unwrap_or(chosen) } else { chosen };

    let (head, rest) = bins.split_at(cut);
    let noise = noise::long_run_variance(rest);
    let is_large = !is_late(cut) || (average(head) - average(rest)).abs() > moves * average(rest);
    // A head that rises or falls and a level rest; if one line through all of it fits better, it is a trend.
    let settles = line(head).squares.1 + line(rest).squares.0 < line(bins).squares.1;
    // What begins like the rest and then goes apart does not warm up.
    let begins_apart = differ(&head[..head.len().div_ceil(2)], rest, noise, ALIKE);
    match differ(head, rest, noise, APART) && begins_apart && is_large && settles {
        true => Cut { bins: cut, late: is_late(cut) },
        false => Cut::default(),
    }
}

/// The cut, at most `most` bins, that leaves the mean of the rest with the smallest standard error; of those that are as
/// good as it, the smallest. Behind the end of a warm-up the error hardly changes, and where it is least is chance: a
/// variance of n bins is known to a share of √(2/n).
///
/// Source: White, An Effective Truncation Heuristic for Bias Reduction in Simulation Output (1997).
fn mser(bins: &[f64], most: usize) -> usize {
    // Batches of five in a short window would be six, and chance would choose among four cuts.
    let length = (bins.len() / BATCHES).clamp(1, 5);
    let batches: Vec<f64> = bins.chunks_exact(length).map(average).collect();
    let mut errors = vec![f64::INFINITY; most / length + 1];
    let (mut sum, mut squares) = (0.0, 0.0);
    // Around some mean of them, so that squares of large numbers do not cancel.
    let around = batches.last().copied().unwrap_or_default();
    for (cut, batch) in batches.iter().enumerate().rev() {
        sum += batch - around;
        squares += (batch - around).powi(2);
        let left = (batches.len() - cut) as f64;
        if let Some(error) = errors.get_mut(cut) {
            *error = (squares - sum * sum / left) / (left * left);
        }
    }
    let least = errors.iter().copied().fold(f64::INFINITY, f64::min);
    let as_good = least * (1.0 + (2.0 / bins.len() as f64).sqrt());
    errors.iter().position(|error| *error <= as_good).unwrap_or(0) * length
}

/// Whether two stretches have means so many standard errors apart; an empty one has none.
fn differ(head: &[f64], rest: &[f64], noise: f64, errors: f64) -> bool {
    let variance = noise * (1.0 / head.len() as f64 + 1.0 / rest.len() as f64);
    !head.is_empty() && (average(head) - average(rest)).abs() > errors * variance.sqrt()
}
