//! Is a window in a steady state? A verdict on figures bin by bin, and the gate that asks for it.
//!
//! All but the gate knows numbers in bins of equal length, and nothing of what was measured. Methods and limits are those
//! of docs/method.md ("Steady state"); how often they are right is the business of [`synthetic`].

mod batches;
pub mod course;
mod cut;
pub(super) mod gate;
mod line;
mod noise;
mod period;
pub mod stop;
pub mod synthetic;
pub mod window;

pub use gate::{Wanted, enough};

use serde::Serialize;

/// Bins below which nothing is said: ten batches of one.
pub const BINS_LEAST: usize = 10;

/// A figure, bin by bin.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// What it is: `goodput`.
    pub name: &'static str,
    /// From the first bin of the window to the last; none of them negative.
    pub bins: &'a [f64],
    /// How much it may move, and how well it has to be known.
    pub limits: Limits,
    /// The standard error of its mean that noise in shorter bins explains, as a share of it; 0 where there are none.
    pub explained: f64,
}

/// What is asked of a figure, in shares of its mean.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Limits {
    /// How far a trend may carry it over the window, and any batch of it lie from the mean.
    pub moves: f64,
    /// Half of the 95 % interval of its mean.
    pub interval: f64,
}

/// What is asked of goodput.
pub const GOODPUT: Limits = Limits { moves: 0.02, interval: 0.01 };
/// What is asked of the mean latency.
pub const LATENCY: Limits = Limits { moves: 0.04, interval: 0.02 };

/// What is said of a window.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// All figures are steady after the cut, and known well enough.
    Steady(Reached),
    /// One of them is not.
    NotSteady {
        /// The first of them, in the order given.
        figure: &'static str,
        /// What it does.
        change: Change,
    },
    /// Nothing speaks against it, but the noise is too large for a window of this length.
    TooShort {
        /// The figure that needs the longest.
        figure: &'static str,
        /// What was reached of all.
        reached: Reached,
        /// How many bins the window needs for it, if the noise stays what it is.
        bins_needed: f64,
    },
    /// There are fewer than [`BINS_LEAST`] bins, or there is nothing in them.
    TooFew,
}

/// How a figure is not steady.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It settles so late that the warm-up may well go on.
    Settles {
        /// The first bin of what looks settled.
        at: usize,
    },
    /// It moves in one direction.
    Trend {
        /// From one end to the other of what is left after the cut, as a share of the mean.
        share: f64,
    },
    /// A stretch of it lies apart from the rest by more than noise explains.
    Apart {
        /// Its first bin.
        from: usize,
        /// The first behind it.
        to: usize,
        /// How far its mean lies from that of all, as a share of that.
        share: f64,
    },
}

/// What is known of a window that shows no change.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Reached {
    /// Bins at the beginning that belong to the warm-up.
    pub cut: usize,
    /// All figures, in the order given.
    pub figures: Vec<Known>,
}

/// What is known of a figure after the cut.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Known {
    /// Which.
    pub name: &'static str,
    /// What was asked of it.
    pub limits: Limits,
    /// Its mean.
    pub mean: f64,
    /// Half of the mean's 95 % interval, as a share of it.
    pub interval: f64,
    /// As many independent bins would know the mean as well.
    pub effective: f64,
    /// What its trend comes to over the window, as a share of the mean.
    pub trend: f64,
    /// Half of that trend's 95 % interval, as a share of the mean.
    pub trend_interval: f64,
    /// After how many bins it repeats itself, if it does.
    pub period: Option<f64>,
    /// By how much the bins that were cut move the mean of the whole window, as a share.
    pub moved_by_cut: f64,
}

/// Judges the figures of one window; all have the same bins.
pub fn judge(all: &[Series]) -> Verdict {
    let bins = all.iter().map(|series| series.bins.len()).min().unwrap_or(0);
    let is_there = |series: &Series| average(series.bins).is_finite() && average(series.bins) > 0.0;
    if bins < BINS_LEAST || !all.iter().all(is_there) {
        return Verdict::TooFew;
    }
    let cuts: Vec<cut::Cut> =
        all.iter().map(|series| cut::warm_up(&series.bins[..bins], series.limits.moves)).collect();
    if let Some((cut, series)) = cuts.iter().zip(all).find(|(cut, _)| cut.late) {
        return Verdict::NotSteady { figure: series.name, change: Change::Settles { at: cut.bins } };
    }
    let cut = cuts.iter().map(|cut| cut.bins).max().unwrap_or(0);
    let mut figures = Vec::new();
    for series in all {
        // Of what stopped, and did so early enough to be taken for a warm-up, there is no mean to know.
        if !series.bins[cut..].iter().any(|bin| *bin > 0.0) {
            let change = Change::Apart { from: cut, to: bins, share: -1.0 };
            return Verdict::NotSteady { figure: series.name, change };
        }
        match batches::judge(series, cut) {
            Ok(known) => figures.push(known),
            Err(change) => return Verdict::NotSteady { figure: series.name, change },
        }
    }
    let longest = figures.iter().max_by(|a, b| longer(a).total_cmp(&longer(b))).copied();
    let reached = Reached { cut, figures };
    match longest {
        Some(known) if longer(&known) > 1.0 => Verdict::TooShort {
            figure: known.name,
            reached,
            bins_needed: cut as f64 + longer(&known) * (bins - cut) as f64,
        },
        _ => Verdict::Steady(reached),
    }
}

/// How many times as long a window has to be until a figure is known well enough; 1 or less if it is.
fn longer(known: &Known) -> f64 {
    // Half as wide takes four times as long.
    let interval = (known.interval / known.limits.interval).powi(2);
    // A trend grows with the window, its error shrinks with the root of that: one that is none will have been seen to be
    // none when it would stand out, at about twice its interval.
    let trend = (2.0 * known.trend_interval / known.trend.abs()).powf(2.0 / 3.0).max(1.5);
    if known.trend.abs() > known.limits.moves { interval.max(trend) } else { interval }
}

/// The arithmetic mean; not a number of nothing.
fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[cfg(test)]
mod tests;
