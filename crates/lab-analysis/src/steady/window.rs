//! A window as the rules want to see it: in bins that are neither too few nor too short, with what shorter ones know of its noise.

use super::{BINS_LEAST, GOODPUT, LATENCY, Limits, Series, noise};
use kv::proto::{LoadReport, SecondReport};

/// A window is divided into so many bins at least, where it was told in shorter ones; more only if they are of a second.
///
/// Few, for what varies slowly would be no noise between neighbours that lie close, and every other window not steady.
const DIVIDED_INTO: f64 = BINS_LEAST as f64;
/// Lengths of bins, in seconds.
const LENGTHS: [f64; 4] = [1.0, 0.5, 0.2, TENTH];
/// What noise is read off.
const TENTH: f64 = 0.1;

/// What one run told of its window.
#[derive(Clone, Debug)]
pub struct Window {
    /// How long a bin is, in seconds.
    pub secs: f64,
    /// Successes per second in each.
    pub goodput_rps: Vec<f64>,
    /// Mean latency in each; `None` where no request ended.
    pub latency_us: Vec<Option<f64>>,
    /// The standard errors that noise in shorter bins explains of goodput and of the mean latency, as shares; 0 where there are
    /// none.
    pub explained: (f64, f64),
}

impl Window {
    /// The window of a run, in the shortest bins it told and no shorter than they need be.
    pub fn of(load: &LoadReport) -> Window {
        let (secs, bins) = load.finest();
        Window::told(secs, bins)
    }

    /// The same of bins as they were told, each of so many seconds.
    pub fn told(secs: f64, bins: &[SecondReport]) -> Window {
        let longest = bins.len() as f64 * secs / DIVIDED_INTO;
        // Nanoseconds would do: 0.1 is no sum of powers of two.
        let fits = |length: &&f64| **length <= longest + 1e-6;
        let whole = |length: &f64| (length / secs).round().max(1.0) as usize;
        let together = LENGTHS.iter().find(fits).map_or(1, whole);
        let (goodput_rps, latency_us) = figures(secs, bins, together);
        let explained = match secs < 1.0 {
            true => {
                let (goodput, latency) = figures(secs, bins, whole(&TENTH));
                (noise::explained(&goodput), noise::explained(&filled(&latency)))
            }
            false => (0.0, 0.0),
        };
        Window { secs: secs * together as f64, goodput_rps, latency_us, explained }
    }

    /// How long it is, in seconds, as far as there are whole bins.
    pub fn length(&self) -> f64 {
        self.goodput_rps.len() as f64 * self.secs
    }

    /// Calls `judge` with the figures that a run is judged by, each with what is asked of it.
    pub fn judged<T>(
        &self,
        is_open: bool,
        (goodput_limits, latency_limits): (Limits, Limits),
        judge: impl Fn(&[Series]) -> T,
    ) -> T {
        let latency = filled(&self.latency_us);
        let both = [
            Series {
                name: "goodput",
                bins: &self.goodput_rps,
                limits: goodput_limits,
                explained: self.explained.0,
            },
            Series {
                name: "mean latency",
                bins: &latency,
                limits: latency_limits,
                explained: self.explained.1,
            },
        ];
        // The goodput of an open loop is what was asked for: it says how evenly that was, not what the target does.
        judge(if is_open { &both[1..] } else { &both })
    }

    /// What gate G5 asks.
    pub fn verdict(&self, is_open: bool) -> super::Verdict {
        self.judged(is_open, (GOODPUT, LATENCY), super::judge)
    }
}

/// Successes per second and mean latency of so many bins together; what is left at the end is left out.
fn figures(secs: f64, bins: &[SecondReport], together: usize) -> (Vec<f64>, Vec<Option<f64>>) {
    let of = |bins: &[SecondReport]| {
        let (attempts, successes) = bins
            .iter()
            .fold((0, 0), |(attempts, successes), bin| (attempts + bin.attempts, successes + bin.successes));
        let latency: f64 = bins.iter().map(|bin| bin.attempts as f64 * bin.latency_us_mean).sum();
        let rps = successes as f64 / (secs * together as f64);
        (rps, (attempts > 0).then(|| latency / attempts as f64))
    };
    bins.chunks_exact(together).map(of).unzip()
}

/// Where no request ended, the latency of the bin before; before the first that had one, that.
fn filled(latency_us: &[Option<f64>]) -> Vec<f64> {
    let mut last = latency_us.iter().flatten().next().copied().unwrap_or(0.0);
    let filled = latency_us.iter().map(|latency| {
        last = latency.unwrap_or(last);
        last
    });
    filled.collect()
}
