//! Steady state: is a window long enough and free of change, and how well is its mean known?
//!
//! The textbook's steps: MSER-5 cuts the warm-up, batch means of the rest show a drift or a shift, and give the mean its interval
//! with a correction for their correlation. What is larger than the noise of neighbouring bins explains is a change.
//! Limits are those of docs/method.md ("Steady state"). `tests/steady` counts how often the verdict is right.

mod batch_means;
mod line;
mod noise;
mod period;
mod warm_up;
mod window;

pub use window::{Bin, Goal, Window, is_check, long_enough};

/// Fewer bins than this are not judged: ten batches of one.
pub const BINS_LEAST: usize = 10;

/// A figure, bin by bin.
#[derive(Clone, Copy, Debug)]
pub struct Series<'a> {
    /// Its name: `goodput`.
    pub name: &'static str,
    /// From the first bin of the window to the last; none is negative.
    pub bins: &'a [f64],
    /// How much it may change, and how well it has to be known.
    pub limits: Limits,
    /// The least relative standard error of the mean, from shorter bins; 0 where there are none.
    pub error_least: f64,
}

/// What is asked of a figure, as shares of its mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The largest drift over the window, and the largest distance of a batch from the mean.
    pub change: f64,
    /// The largest half-width of the mean's 95 % interval.
    pub interval: f64,
}

/// What is asked of goodput.
pub const GOODPUT: Limits = Limits { change: 0.02, interval: 0.01 };
/// What is asked of the mean latency.
pub const LATENCY: Limits = Limits { change: 0.04, interval: 0.02 };

/// Whether a window is steady.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// All figures are steady after the warm-up cut, and known well enough.
    Steady(Reached),
    /// A figure changes.
    NotSteady {
        /// The first of them, in the order given.
        figure: &'static str,
        /// How it changes.
        change: Change,
    },
    /// No change is seen, but the noise is too large for a window of this length.
    TooShort {
        /// The figure that needs the longest window.
        figure: Known,
        /// What is known of all figures.
        reached: Reached,
        /// How many bins the window needs if the noise stays as it is.
        bins_needed: f64,
    },
    /// There are fewer than [`BINS_LEAST`] bins, or all are zero.
    TooFew,
}

/// How a figure changes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// The warm-up is so long that it may not be over.
    LateWarmUp {
        /// The first bin after the cut.
        at: usize,
    },
    /// It rises or falls over the window.
    Drift {
        /// From one end to the other of what is left after the cut, as a share of the mean.
        share: f64,
    },
    /// A part of it lies further from the mean than noise explains.
    Shift {
        /// Its first bin.
        from: usize,
        /// The first bin after it.
        to: usize,
        /// How far its mean lies from that of all, as a share of that.
        share: f64,
    },
}

/// What is known of a window in which no change is seen.
#[derive(Clone, Debug, PartialEq)]
pub struct Reached {
    /// Bins at the beginning that belong to the warm-up.
    pub cut: usize,
    /// All figures, in the order given.
    pub figures: Vec<Known>,
}

/// What is known of a figure after the cut.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known {
    /// Its name.
    pub name: &'static str,
    /// What was asked of it.
    pub limits: Limits,
    /// Its mean.
    pub mean: f64,
    /// Half-width of the mean's 95 % interval, as a share of it.
    pub interval: f64,
    /// Drift over the window, as a share of the mean.
    pub drift: f64,
    /// Half-width of the drift's 95 % interval, as a share of the mean.
    pub drift_interval: f64,
    /// Its period in bins, if it has one.
    pub period: Option<usize>,
    /// By how much the warm-up moves the mean of the whole window, as a share.
    pub bias: f64,
}

impl Reached {
    /// The figure whose mean the warm-up moves by more than is asked of it, and by more than its interval.
    pub fn biased(&self) -> Option<&Known> {
        self.figures.iter().find(|known| known.bias.abs() > known.limits.interval.max(known.interval))
    }
}

/// Judges the figures of one window; all have the same bins.
pub fn judge(all: &[Series]) -> Verdict {
    let bins = all.iter().map(|series| series.bins.len()).min().unwrap_or(0);
    let is_there = |series: &Series| average(series.bins).is_finite() && average(series.bins) > 0.0;
    if bins < BINS_LEAST || !all.iter().all(is_there) {
        return Verdict::TooFew;
    }
    let reached = match reached(all, bins) {
        Ok(reached) => reached,
        Err((figure, change)) => return Verdict::NotSteady { figure, change },
    };
    let longest = reached.figures.iter().max_by(|a, b| longer(a).total_cmp(&longer(b))).copied();
    match longest {
        Some(figure) if longer(&figure) > 1.0 => {
            let bins_needed = reached.cut as f64 + longer(&figure) * (bins - reached.cut) as f64;
            Verdict::TooShort { figure, reached, bins_needed }
        }
        _ => Verdict::Steady(reached),
    }
}

/// What is known of all figures, each of so many bins; the error is the first that changes.
fn reached(all: &[Series], bins: usize) -> Result<Reached, (&'static str, Change)> {
    let mut cut = 0;
    for Series { name, bins: own, .. } in all {
        cut = cut.max(warm_up::find(&own[..bins]).map_err(|change| (*name, change))?);
    }
    let known = |series: &Series| batch_means::judge(series, cut).map_err(|change| (series.name, change));
    Ok(Reached { cut, figures: all.iter().map(known).collect::<Result<_, _>>()? })
}

/// How many times as long a window has to be until a figure is known well enough; at most 1 if it is.
fn longer(known: &Known) -> f64 {
    // Half as wide takes four times as long.
    let interval = (known.interval / known.limits.interval).powi(2);
    if known.drift.abs() <= known.limits.change {
        return interval;
    }
    // A drift grows with the window, its error falls with the root of the length: a true drift will be significant, at about
    // twice its interval, after this many windows.
    interval.max((2.0 * known.drift_interval / known.drift.abs()).powf(2.0 / 3.0)).max(1.5)
}

/// The arithmetic mean; not a number for no values.
fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
