//! Series with known properties, and how often the verdict on them is right.
//!
//! The same seed gives the same series. The tests require a score, `cargo bench --bench micro -- steady` prints it.

use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use stats::steady::{Bin, GOODPUT, Goal, LATENCY, Series, Verdict, Window, long_enough};
use std::f64::consts::TAU;

/// Of all series, before anything happens to it; so many that a bin's are as good as no whole number.
const GOODPUT_RPS: f64 = 1e6;
/// In their closed loop.
const CLIENTS: f64 = 32.0;
/// How far latency is from clients over goodput in a bin, as a share of it: its standard deviation.
const EDGES: f64 = 0.002;

/// A kind of series.
pub(crate) struct Kind {
    /// One or two words.
    pub name: &'static str,
    /// Draws one of so many bins, without noise.
    draw: fn(&mut Xoshiro256PlusPlus, usize) -> Truth,
}

/// A series without noise. Its level is 1 where it does nothing.
struct Truth {
    levels: Vec<f64>,
    state: State,
}

/// What is true of it.
enum State {
    /// It has, or comes to, a steady state: its mean, and a trend in it that is small enough to be allowed.
    Steady { level: f64, trend: f64 },
    /// It has none.
    Unsteady,
}

/// The kinds: first the six that a method has to tell apart, then three that it will meet.
pub(crate) const KINDS: &[Kind] = &[
    Kind { name: "flat", draw: |_, n| steady(vec![1.0; n], 1.0) },
    Kind {
        name: "warm-up",
        // Rises from 50–80 % to its level, exponentially, with a time constant of 2–6 % of the window.
        draw: |random, n| {
            let (below, constant) = (between(random, 0.2, 0.5), between(random, 0.02, 0.06));
            steady(shaped(n, |at| 1.0 - below * (-at / constant).exp()), 1.0)
        },
    },
    Kind {
        name: "step",
        // 5–20 % up or down at once, after 40–90 % of the window.
        draw: |random, n| {
            let (by, when) = (sign(random) * between(random, 0.05, 0.2), between(random, 0.4, 0.9));
            unsteady(shaped(n, |at| if at < when { 1.0 } else { 1.0 + by }))
        },
    },
    Kind {
        name: "drift 1 %/min",
        // Up or down in a straight line, by 1 % in 60 bins: to be allowed where that is at most 2 % in the window.
        draw: |random, n| {
            let by = sign(random) * 0.01 * n as f64 / 60.0;
            let levels = shaped(n, |at| 1.0 + by * at);
            match by.abs() <= GOODPUT.change {
                true => Truth { levels, state: State::Steady { level: 1.0 + by / 2.0, trend: by.abs() } },
                false => unsteady(levels),
            }
        },
    },
    Kind {
        name: "sawtooth",
        // Falls by 5–20 % and jumps back, 5 to 10 times in the window, as checkpoints have it.
        draw: |random, n| {
            let (by, times, phase) =
                (between(random, 0.05, 0.2), between(random, 5.0, 10.0), between(random, 0.0, 1.0));
            steady(shaped(n, |at| 1.0 - by * (at * times + phase).fract()), 1.0 - by / 2.0)
        },
    },
    Kind {
        name: "decay",
        // Falls exponentially towards 70–90 %, with a time constant of half a window to two windows.
        draw: |random, n| {
            let (by, constant) = (between(random, 0.1, 0.3), between(random, 0.5, 2.0));
            unsteady(shaped(n, |at| 1.0 - by * (1.0 - (-at / constant).exp())))
        },
    },
    Kind {
        name: "one tooth",
        // Falls by 10–20 % and jumps back once in the window, anywhere.
        draw: |random, n| {
            let (by, phase) = (between(random, 0.1, 0.2), between(random, 0.0, 1.0));
            unsteady(shaped(n, |at| 1.0 - by * (at + phase).fract()))
        },
    },
    Kind {
        name: "early step",
        // 5–20 % up or down at once, after 5–30 % of the window: a warm-up like any other.
        draw: |random, n| {
            let (by, when) = (sign(random) * between(random, 0.05, 0.2), between(random, 0.05, 0.3));
            steady(shaped(n, |at| if at < when { 1.0 + by } else { 1.0 }), 1.0)
        },
    },
    Kind {
        name: "dip",
        // Half as much for a tenth of the window, somewhere behind its middle.
        draw: |random, n| {
            let when = between(random, 0.5, 0.9);
            unsteady(shaped(n, |at| if (when..when + 0.1).contains(&at) { 0.5 } else { 1.0 }))
        },
    },
];

/// Noise from a quiet machine to a rented one; the last as measured on two shared cores, one second a bin.
pub(crate) const NOISES: &[Noise] = &[
    Noise { variation: 0.005, correlation: 0.3 },
    Noise { variation: 0.01, correlation: 0.3 },
    Noise { variation: 0.02, correlation: 0.3 },
    Noise { variation: 0.05, correlation: 0.5 },
];

/// Windows, in bins.
pub(crate) const WINDOWS: &[usize] = &[30, 60, 300];

/// How much a series varies from bin to bin, as an autoregressive process of first order.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Noise {
    /// Standard deviation over mean.
    pub variation: f64,
    /// Correlation of neighbours.
    pub correlation: f64,
}

/// What the verdicts on a number of series were.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Score {
    /// Series judged.
    pub series: u32,
    /// Right ones among them.
    pub right: u32,
    /// Called steady.
    pub steady: u32,
    /// Called not steady.
    pub not_steady: u32,
    /// Called too short.
    pub too_short: u32,
    /// Of those that have a steady state and were called steady: in how many its mean lies in the interval.
    pub covered: u32,
    /// Of how many.
    pub coverable: u32,
    /// Of those that have a steady state and were not called unsteady, known well enough or not: in how many the mean lies in
    /// the interval.
    pub held: u32,
    /// Of how many.
    pub holdable: u32,
    /// Tenths of a second of all series that could end early.
    pub tenths: u64,
}

/// Lets `judge` say what it thinks of so many series of a kind, each of `bins` bins, as a closed loop would give them: where
/// goodput falls, latency rises.
pub(crate) fn score(
    judge: fn(&[Series]) -> Verdict,
    kind: &Kind,
    bins: usize,
    noise: Noise,
    series: u32,
    seed: u64,
) -> Score {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut score = Score { series, ..Score::default() };
    // The standard error of the mean, as it truly is.
    let long_run = (1.0 + noise.correlation) / (1.0 - noise.correlation);
    let of_mean = noise.variation * (long_run / bins as f64).sqrt();
    for _ in 0..series {
        let truth = (kind.draw)(&mut random, bins);
        let mut error = Error::new((noise.correlation, noise.variation), &mut random);
        let goodput: Vec<f64> = (truth.levels.iter())
            .map(|level| (GOODPUT_RPS * level * (1.0 + error.next(&mut random))).max(0.0))
            .collect();
        // What is in flight at the edges of a bin belongs to either side.
        let mut edges = || 1.0 + EDGES * normal(&mut random);
        let latency: Vec<f64> = goodput.iter().map(|rps| CLIENTS * 1e6 / rps.max(1.0) * edges()).collect();
        let all = [
            Series { name: "goodput", bins: &goodput, limits: GOODPUT, error_least: 0.0 },
            Series { name: "mean latency", bins: &latency, limits: LATENCY, error_least: 0.0 },
        ];
        score.count(&truth, &judge(&all), of_mean, TOO_MANY);
    }
    score
}

/// The same of series that end as soon as they are [`long_enough`], from `least` seconds on, and with `most` in any case. What is
/// true of such a series is what is true of the part that was seen.
///
/// They come in bins of a tenth of a second, whose noise is of two kinds with as much part in that of a second, which is
/// `variation`: one whose neighbours have a correlation of a half, and one that fades with a time constant of a second.
pub(crate) fn score_adaptive(
    kind: &Kind,
    (least, most): (u64, u64),
    variation: f64,
    series: u32,
    seed: u64,
) -> Score {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let mut score = Score { series, ..Score::default() };
    let (goodput, latency) = (GOODPUT.interval, LATENCY.interval);
    let goal = Goal { least_secs: least as f64, goodput, latency, is_open: false };
    for _ in 0..series {
        let by_second = (kind.draw)(&mut random, most as usize);
        let levels = by_second.levels.iter().flat_map(|level| [*level; TENTHS]).collect();
        let truth = Truth { levels, ..by_second };
        let (mut fast, mut slow) = (Error::new(FAST, &mut random), Error::new(SLOW, &mut random));
        let bins: Vec<Bin> = (truth.levels.iter())
            .map(|level| {
                let error = variation * (fast.next(&mut random) + slow.next(&mut random));
                let rps = (GOODPUT_RPS * level * (1.0 + error)).max(1.0);
                let edges = 1.0 + EDGES * normal(&mut random);
                let successes = (rps / TENTHS as f64) as u64;
                let latency_us_mean = CLIENTS * 1e6 / rps * edges;
                Bin { attempts: successes, successes, latency_us_mean }
            })
            .collect();
        let secs = 1.0 / TENTHS as f64;
        let end = (1..bins.len()).find(|end| long_enough(&bins[..*end], secs, &goal)).unwrap_or(bins.len());
        let window = Window::of(secs, &bins[..end]);
        score.tenths += end as u64;
        // The standard error of the mean of so many seconds, as it truly is.
        let error = variation * (LONG_RUN / window.length()).sqrt();
        let truth = truth.until(end).by((window.secs / secs).round() as usize);
        score.count(&truth, &window.verdict(false), error, TOO_MANY_ENDED);
    }
    score
}

/// Half an interval is Student's t times an error that is itself an estimate of few batches: with bad luck so many true errors.
/// Where windows end by themselves, it is t times √6 errors at least, of an estimate that is better known.
const TOO_MANY: f64 = 5.0;
const TOO_MANY_ENDED: f64 = 8.0;
/// Bins of a second.
const TENTHS: usize = 10;
/// Noise in tenths of a second: the correlation of neighbours, and the standard deviation that makes the mean of ten of them
/// vary by √½.
const FAST: (f64, f64) = (0.5, 1.387);
const SLOW: (f64, f64) = (0.904_837, 0.825);
/// The variance of the mean of many seconds of both, times their number.
const LONG_RUN: f64 = 1.94;

/// Noise, autoregressive of first order.
struct Error {
    correlation: f64,
    fresh: f64,
    now: f64,
}

impl Error {
    fn new((correlation, deviation): (f64, f64), random: &mut Xoshiro256PlusPlus) -> Error {
        let fresh = deviation * (1.0 - correlation.powi(2)).sqrt();
        Error { correlation, fresh, now: deviation * normal(random) }
    }

    fn next(&mut self, random: &mut Xoshiro256PlusPlus) -> f64 {
        self.now = self.correlation * self.now + self.fresh * normal(random);
        self.now
    }
}

impl Truth {
    /// What is true of its first so many bins.
    fn until(self, bins: usize) -> Truth {
        let share = bins as f64 / self.levels.len() as f64;
        if bins == self.levels.len() {
            return self;
        }
        let levels = self.levels[..bins].to_vec();
        let (low, high) = levels
            .iter()
            .fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), of| (low.min(*of), high.max(*of)));
        let state = match self.state {
            // A trend has come only so far.
            State::Steady { trend, .. } if trend > 0.0 => {
                State::Steady { level: average(&levels), trend: trend * share }
            }
            // What is to come was not to be seen. Less than twice what is allowed cannot be told from it in a window that knows
            // the mean just well enough: the error of a trend is √12 times as large.
            _ if high - low <= 2.0 * GOODPUT.change => {
                State::Steady { level: average(&levels), trend: high - low }
            }
            as_the_whole => as_the_whole,
        };
        Truth { levels, state }
    }

    /// The same in bins of so many.
    fn by(self, bins: usize) -> Truth {
        Truth { levels: self.levels.chunks_exact(bins).map(average).collect(), ..self }
    }
}

impl Score {
    /// Right is *steady* of what has a steady state, if the cut leaves less of a bias than half of what is asked for or than
    /// the interval says; *not steady* of what has none; and *too short* of either where the noise leaves it open.
    /// `error` is the standard error of the mean, as it truly is; nobody could know of whom `too_many` of them are more than
    /// what is asked for.
    fn count(&mut self, truth: &Truth, verdict: &Verdict, error: f64, too_many: f64) {
        let n = truth.levels.len() as f64;
        if let (Verdict::Steady(reached) | Verdict::TooShort { reached, .. }, State::Steady { level, .. }) =
            (verdict, &truth.state)
            && let Some(known) = reached.figures.first()
        {
            self.holdable += 1;
            self.held += u32::from((known.mean / GOODPUT_RPS - level).abs() <= known.interval * level);
        }
        let right = match (verdict, &truth.state) {
            (Verdict::Steady(reached), State::Steady { level, .. }) => {
                let left = average(&truth.levels[reached.cut..]);
                let known = reached.figures.first().map(|known| (known.mean / GOODPUT_RPS, known.interval));
                let (mean, interval) = known.unwrap_or((left, 0.0));
                self.coverable += 1;
                self.covered += u32::from((mean - level).abs() <= interval * level);
                (left - level).abs() <= interval.max(GOODPUT.interval / 2.0)
            }
            // Half an interval is t times an error that is itself an estimate of few batches: with bad luck five times the
            // true error. A trend is known to twice its error, √12 that of the mean.
            (Verdict::TooShort { reached, .. }, state) => {
                let error = error * (n / (n - reached.cut as f64)).sqrt();
                let trend = if let State::Steady { trend, .. } = state { *trend } else { 0.0 };
                too_many * error > GOODPUT.interval || trend + 2.0 * 12f64.sqrt() * error > GOODPUT.change
            }
            (Verdict::NotSteady { .. }, State::Unsteady) => true,
            _ => false,
        };
        self.right += u32::from(right);
        match verdict {
            Verdict::Steady(_) => self.steady += 1,
            Verdict::NotSteady { .. } => self.not_steady += 1,
            Verdict::TooShort { .. } | Verdict::TooFew => self.too_short += 1,
        }
    }
}

fn steady(levels: Vec<f64>, level: f64) -> Truth {
    Truth { levels, state: State::Steady { level, trend: 0.0 } }
}

fn unsteady(levels: Vec<f64>) -> Truth {
    Truth { levels, state: State::Unsteady }
}

/// The mean level in every bin; `of` knows the level when a share of the window is past.
fn shaped(n: usize, of: impl Fn(f64) -> f64) -> Vec<f64> {
    const STEPS: usize = 20;
    let at = |i: usize, step: usize| (i as f64 + (step as f64 + 0.5) / STEPS as f64) / n as f64;
    (0..n).map(|i| (0..STEPS).map(|step| of(at(i, step))).sum::<f64>() / STEPS as f64).collect()
}

fn between(random: &mut Xoshiro256PlusPlus, low: f64, high: f64) -> f64 {
    low + (high - low) * (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

fn sign(random: &mut Xoshiro256PlusPlus) -> f64 {
    if random.next_u64() >> 63 == 0 { 1.0 } else { -1.0 }
}

/// Box and Muller's: normal with mean 0 and deviation 1.
fn normal(random: &mut Xoshiro256PlusPlus) -> f64 {
    let (length, turn) = (1.0 - between(random, 0.0, 1.0), between(random, 0.0, TAU));
    (-2.0 * length.ln()).sqrt() * turn.cos()
}

/// The arithmetic mean.
fn average(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}
