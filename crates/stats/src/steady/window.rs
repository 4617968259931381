//! The window of one run: its figures in bins of a suitable length, and whether it is long enough to be ended.

use super::{BINS_LEAST, GOODPUT, LATENCY, Limits, Series, Verdict, average, judge, noise};

/// Lengths of bins in seconds. The longest is used of which the window holds [`BINS_LEAST`]: between shorter ones slow noise
/// looks like a change.
const LENGTHS: [f64; 4] = [1.0, 0.5, 0.2, TENTH];
/// From bins of this length the noise is estimated.
const TENTH: f64 = 0.1;
/// The variance of a mean is this many times what neighbouring tenths of a second explain, because noise slower than they are does
/// not show between them. With this nine of ten intervals contain the mean of the minute they are part of
/// (benches/system/adaptive.rs); with 1, eight of ten do.
const SLOWER: f64 = 6.0;
/// A window is checked when it is this many times as long as at the check before. Checking every bin would end it with the first
/// interval that is narrow by chance. Chosen among 1.1, 1.25, 1.5 and 2.
const GROWTH: f64 = 1.25;

/// The requests that ended in one bin.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Bin {
    /// All of them, failed ones included.
    pub attempts: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Their mean latency.
    pub latency_us_mean: f64,
}

/// Goodput and mean latency of one run, bin by bin.
#[derive(Clone, Debug)]
pub struct Window {
    /// Length of a bin in seconds.
    pub secs: f64,
    /// Successes per second.
    pub goodput_rps: Vec<f64>,
    /// Mean latency; `None` where no request ended.
    pub latency_us: Vec<Option<f64>>,
    /// The least relative standard errors of both, from bins of a tenth of a second; 0 where there are none.
    error_least: (f64, f64),
}

/// What has to be known before a window may be ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Goal {
    /// Its least length in seconds.
    pub least_secs: f64,
    /// Half-width of the 95 % interval of goodput, as a share of it.
    pub goodput: f64,
    /// The same of the mean latency.
    pub latency: f64,
    /// Whether requests are sent at a fixed rate: then goodput is not asked about.
    pub is_open: bool,
}

impl Window {
    /// Of `bins` that are `secs` long each.
    pub fn of(secs: f64, bins: &[Bin]) -> Window {
        // 0.1 has no exact binary form, so lengths are compared with a tolerance.
        let longest = bins.len() as f64 * secs / BINS_LEAST as f64 + 1e-6;
        let bins_in = |length: f64| (length / secs).round().max(1.0) as usize;
        let together = LENGTHS.into_iter().find(|length| *length <= longest).map_or(1, bins_in);
        let (goodput_rps, latency_us) = merged(secs, bins, together);
        let mut error_least = (0.0, 0.0);
        if secs < 1.0 {
            let (goodput, latency) = merged(secs, bins, bins_in(TENTH));
            error_least = (relative_error(&goodput), relative_error(&filled(&latency)));
        }
        Window { secs: secs * together as f64, goodput_rps, latency_us, error_least }
    }

    /// Its length in seconds, as far as bins are complete.
    pub fn length(&self) -> f64 {
        self.goodput_rps.len() as f64 * self.secs
    }

    /// Whether it is steady by the usual limits. The goodput of an open loop is what was asked for, and not judged.
    pub fn verdict(&self, is_open: bool) -> Verdict {
        self.judged(is_open, GOODPUT, LATENCY)
    }

    /// The same with other limits.
    pub fn judged(&self, is_open: bool, goodput: Limits, latency: Limits) -> Verdict {
        let latencies = filled(&self.latency_us);
        let series = |name, bins, limits, error_least| Series { name, bins, limits, error_least };
        let of_goodput = series("goodput", &self.goodput_rps, goodput, self.error_least.0);
        let of_latency = series("mean latency", &latencies, latency, self.error_least.1);
        judge(&[of_goodput, of_latency][usize::from(is_open)..])
    }
}

/// Whether a window with these bins, each `secs` long, may be ended. To be called after each bin.
///
/// It may if it is steady, known as well as asked, and a warm-up in it moves no mean.
pub fn long_enough(bins: &[Bin], secs: f64, goal: &Goal) -> bool {
    // Rounded up, so that the window is no shorter than asked. But 0.3 / 0.1 is slightly more than 3.
    let least = (goal.least_secs / secs - 1e-6).ceil() as usize;
    let goodput = Limits { interval: goal.goodput, ..GOODPUT };
    let latency = Limits { interval: goal.latency, ..LATENCY };
    is_check(bins.len(), least)
        && matches!(Window::of(secs, bins).judged(goal.is_open, goodput, latency),
            Verdict::Steady(reached) if reached.biased().is_none())
}

/// Whether a window of at least `least` bins is checked after `bins`.
pub fn is_check(bins: usize, least: usize) -> bool {
    let first = least.max(BINS_LEAST) as f64;
    let checks = (0..).map(|check| (first * GROWTH.powi(check)).round() as usize);
    checks.take_while(|check| *check <= bins).any(|check| check == bins)
}

/// Successes per second and mean latency of so many bins together. An incomplete rest is left out.
fn merged(secs: f64, bins: &[Bin], together: usize) -> (Vec<f64>, Vec<Option<f64>>) {
    let of = |bins: &[Bin]| {
        let attempts: u64 = bins.iter().map(|bin| bin.attempts).sum();
        let successes: u64 = bins.iter().map(|bin| bin.successes).sum();
        let latency: f64 = bins.iter().map(|bin| bin.attempts as f64 * bin.latency_us_mean).sum();
        let goodput = successes as f64 / (secs * together as f64);
        (goodput, (attempts > 0).then(|| latency / attempts as f64))
    };
    bins.chunks_exact(together).map(of).unzip()
}

/// Where no request ended, the latency of the bin before; before the first that has one, that of the first.
fn filled(latency_us: &[Option<f64>]) -> Vec<f64> {
    let mut last = latency_us.iter().flatten().next().copied().unwrap_or(0.0);
    let fill = |latency: &Option<f64>| {
        last = latency.unwrap_or(last);
        last
    };
    latency_us.iter().map(fill).collect()
}

/// The relative standard error of the mean of tenths of a second, with slower noise added.
fn relative_error(bins: &[f64]) -> f64 {
    let error = (SLOWER * noise::long_run_variance(bins) / bins.len() as f64).sqrt() / average(bins);
    if error.is_finite() { error } else { 0.0 }
}
