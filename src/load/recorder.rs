//! What is kept of the requests of a window: counts, sums and histograms, never the requests themselves.
//!
//! Its size depends on the window's length in seconds and on nothing else. Reads no clock: every instant is handed in.

use super::answer::{Fault, Success};
use super::mix::Operation;
use super::reactor::Attempt;
use crate::proto::{Latency, OperationReport, SecondReport};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const LOWEST_NS: u64 = 1_000;
const HIGHEST_NS: u64 = 60_000_000_000;
const SIGNIFICANT_DIGITS: u8 = 3;

/// The measured part of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start: Instant,
    pub(super) end: Instant,
}

impl Window {
    pub(super) fn length(&self) -> Duration {
        self.end.duration_since(self.start)
    }

    fn holds(&self, instant: Instant) -> bool {
        (self.start..=self.end).contains(&instant)
    }

    /// How much of `since`…`until` lies in the window.
    fn overlap(&self, since: Instant, until: Instant) -> Duration {
        until.min(self.end).saturating_duration_since(since.max(self.start))
    }
}

/// Counts what happens in a window.
pub(super) struct Recorder {
    window: Window,
    /// Successes, by `operation as usize`. No sample is recorded twice: all attempts are these and `failures`.
    successes: [Samples; Operation::ALL.len()],
    /// Attempts, by `operation as usize`.
    attempts: [u64; Operation::ALL.len()],
    failures: Samples,
    /// By `fault as usize`.
    faults: [u64; Fault::ALL.len()],
    absent: u64,
    backoff: Duration,
    /// The window's whole seconds.
    bins: Vec<Bin>,
}

#[derive(Clone, Copy, Default)]
struct Bin {
    attempts: u64,
    successes: u64,
    sum_ns: u64,
}

impl Recorder {
    pub(super) fn new(window: Window) -> Recorder {
        Recorder {
            successes: std::array::from_fn(|_| Samples::default()),
            attempts: [0; Operation::ALL.len()],
            failures: Samples::default(),
            faults: [0; Fault::ALL.len()],
            absent: 0,
            backoff: Duration::ZERO,
            bins: vec![Bin::default(); window.length().as_secs() as usize],
            window,
        }
    }

    /// Counts `attempt` if it was over in the window, with its whole latency even if it began before.
    pub(super) fn record(&mut self, attempt: &Attempt) {
        if !self.window.holds(attempt.until) {
            return;
        }
        let latency_ns = attempt.until.duration_since(attempt.since).as_nanos() as u64;
        self.attempts[attempt.operation as usize] += 1;
        match attempt.result {
            Ok(success) => {
                self.successes[attempt.operation as usize].record(latency_ns);
                self.absent += u64::from(success == Success::Absent);
            }
            Err(fault) => {
                self.failures.record(latency_ns);
                self.faults[fault as usize] += 1;
            }
        }
        let second = attempt.until.duration_since(self.window.start).as_secs() as usize;
        // Missing for the rest of a second at the end of the window.
        if let Some(bin) = self.bins.get_mut(second) {
            bin.attempts += 1;
            bin.successes += u64::from(attempt.result.is_ok());
            bin.sum_ns += latency_ns;
        }
    }

    /// Counts the part of a back-off that lies in the window.
    pub(super) fn rested(&mut self, since: Instant, until: Instant) {
        self.backoff += self.window.overlap(since, until);
    }

    /// Takes over what another thread counted in the same window.
    pub(super) fn add(&mut self, other: &Recorder) {
        for (mine, theirs) in self.successes.iter_mut().zip(&other.successes) {
            mine.add(theirs);
        }
        self.failures.add(&other.failures);
        for (mine, theirs) in self.attempts.iter_mut().zip(&other.attempts) {
            *mine += theirs;
        }
        for (mine, theirs) in self.faults.iter_mut().zip(&other.faults) {
            *mine += theirs;
        }
        for (mine, theirs) in self.bins.iter_mut().zip(&other.bins) {
            mine.attempts += theirs.attempts;
            mine.successes += theirs.successes;
            mine.sum_ns += theirs.sum_ns;
        }
        self.absent += other.absent;
        self.backoff += other.backoff;
    }

    pub(super) fn attempts(&self) -> u64 {
        self.attempts.iter().sum()
    }

    pub(super) fn successes(&self) -> u64 {
        self.successes.iter().map(|samples| samples.histogram.len()).sum()
    }

    pub(super) fn backoff(&self) -> Duration {
        self.backoff
    }

    /// Of all attempts.
    pub(super) fn latency(&self) -> Latency {
        let mut all = Samples::default();
        for samples in self.successes.iter().chain([&self.failures]) {
            all.add(samples);
        }
        all.summary()
    }

    /// A report on each of `operations`.
    pub(super) fn operations(&self, operations: impl Iterator<Item = Operation>) -> Vec<OperationReport> {
        operations
            .map(|operation| {
                let latency = self.successes[operation as usize].summary();
                OperationReport {
                    operation: operation.name().to_owned(),
                    attempts: self.attempts[operation as usize],
                    successes: latency.count,
                    absent: if operation == Operation::Get { self.absent } else { 0 },
                    latency,
                }
            })
            .collect()
    }

    /// The failures by class, those that happened.
    pub(super) fn errors(&self) -> BTreeMap<String, u64> {
        Fault::ALL
            .into_iter()
            .filter(|&fault| self.faults[fault as usize] > 0)
            .map(|fault| (fault.name().to_owned(), self.faults[fault as usize]))
            .collect()
    }

    pub(super) fn seconds(&self) -> Vec<SecondReport> {
        let mean =
            |bin: &Bin| if bin.attempts == 0 { 0.0 } else { bin.sum_ns as f64 / bin.attempts as f64 / 1e3 };
        self.bins
            .iter()
            .map(|bin| SecondReport {
                attempts: bin.attempts,
                successes: bin.successes,
                latency_us_mean: mean(bin),
                ..SecondReport::default()
            })
            .collect()
    }
}

/// A latency distribution in the making: a histogram from 1 µs to 60 s, three digits of it right.
pub struct Samples {
    histogram: Histogram<u64>,
    /// For the mean: the histogram alone would give it to three digits only.
    sum_ns: u64,
    min_ns: u64,
    max_ns: u64,
    clipped: u64,
}

impl Default for Samples {
    fn default() -> Samples {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS);
        Samples {
            histogram: histogram.expect("the bounds are constants that fit"),
            sum_ns: 0,
            min_ns: u64::MAX,
            max_ns: 0,
            clipped: 0,
        }
    }
}

impl Samples {
    /// Keeps one latency.
    pub fn record(&mut self, ns: u64) {
        self.histogram.saturating_record(ns.min(HIGHEST_NS));
        self.sum_ns += ns;
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
        self.clipped += u64::from(ns > HIGHEST_NS);
    }

    fn add(&mut self, other: &Samples) {
        self.histogram.add(&other.histogram).expect("all have the same bounds");
        self.sum_ns += other.sum_ns;
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
        self.clipped += other.clipped;
    }

    /// What was kept; all zero where nothing was.
    pub fn summary(&self) -> Latency {
        let count = self.histogram.len();
        if count == 0 {
            return Latency::default();
        }
        // The middle of the histogram's bucket, so that rounding leans neither way; but no further than what was seen.
        let us = |quantile: f64| {
            let ns = self.histogram.median_equivalent(self.histogram.value_at_quantile(quantile));
            ns.clamp(self.min_ns, self.max_ns) as f64 / 1e3
        };
        Latency {
            count,
            us_mean: self.sum_ns as f64 / count as f64 / 1e3,
            us_min: self.min_ns as f64 / 1e3,
            us_p50: us(0.5),
            us_p90: us(0.9),
            us_p99: us(0.99),
            us_p999: us(0.999),
            us_max: self.max_ns as f64 / 1e3,
            clipped: self.clipped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn window(length: Duration) -> Window {
        let start = Instant::now() + Duration::from_secs(60);
        Window { start, end: start + length }
    }

    fn attempt(result: Result<Success, Fault>, since: Instant, until: Instant) -> Attempt {
        Attempt { operation: Operation::Get, result, status: 200, since, until }
    }

    /// Latencies in, a summary out.
    fn check(latencies_us: impl Iterator<Item = u64>) -> Latency {
        let window = window(MS);
        let mut recorder = Recorder::new(window);
        for us in latencies_us {
            let since = window.start.checked_sub(Duration::from_micros(us)).unwrap_or(window.start);
            recorder.record(&attempt(Ok(Success::Done), since, since + Duration::from_micros(us)));
        }
        recorder.latency()
    }

    #[test]
    fn percentiles_are_right_to_three_digits_and_the_mean_exactly() {
        let latency = check(1..=10_000);
        assert_eq!((latency.count, latency.us_mean), (10_000, 5000.5));
        assert_eq!((latency.us_min, latency.us_max, latency.clipped), (1.0, 10_000.0, 0));
        for (told, right) in [
            (latency.us_p50, 5000.0),
            (latency.us_p90, 9000.0),
            (latency.us_p99, 9900.0),
            (latency.us_p999, 9990.0),
        ] {
            assert!((told - right).abs() <= 0.001 * right, "{told} for {right}");
        }
    }

    #[test]
    fn a_single_sample_is_every_percentile() {
        let latency = check([77].into_iter());
        let all = [latency.us_mean, latency.us_min, latency.us_p50, latency.us_p999, latency.us_max];
        assert!(all.iter().all(|us| *us == 77.0), "{latency:?}");
    }

    #[test]
    fn nothing_is_all_zero() {
        assert_eq!(check([].into_iter()), Latency::default());
    }

    #[test]
    fn samples_beyond_a_minute_are_counted_as_clipped_and_kept_in_mean_and_maximum() {
        let mut samples = Samples::default();
        samples.record(HIGHEST_NS);
        samples.record(3 * HIGHEST_NS);
        let latency = samples.summary();
        assert_eq!((latency.count, latency.clipped), (2, 1));
        assert_eq!((latency.us_mean, latency.us_max), (120e6, 180e6));
    }

    #[test]
    fn only_what_is_over_in_the_window_counts_and_then_as_a_whole() {
        let window = window(10 * MS);
        let mut recorder = Recorder::new(window);
        let mut over = |until| recorder.record(&attempt(Ok(Success::Done), until - 5 * MS, until));
        over(window.start - Duration::from_nanos(1));
        over(window.start);
        over(window.end);
        over(window.end + Duration::from_nanos(1));
        assert_eq!((recorder.attempts(), recorder.latency().us_mean), (2, 5000.0));
    }

    #[test]
    fn rests_count_as_far_as_they_lie_in_the_window() {
        let window = window(10 * MS);
        let mut recorder = Recorder::new(window);
        recorder.rested(window.start - 5 * MS, window.start - MS);
        recorder.rested(window.start - 5 * MS, window.start + MS);
        recorder.rested(window.start + 2 * MS, window.start + 4 * MS);
        recorder.rested(window.end - MS, window.end + MS);
        recorder.rested(window.end, window.end + MS);
        assert_eq!(recorder.backoff(), 4 * MS);
    }

    #[test]
    fn failures_are_attempts_by_class_and_never_successes() {
        let window = window(10 * MS);
        let mut recorder = Recorder::new(window);
        for result in [Ok(Success::Done), Ok(Success::Absent), Err(Fault::Reset), Err(Fault::Http5xx)] {
            recorder.record(&attempt(result, window.start, window.start + MS));
        }
        let mut sum = Recorder::new(window);
        sum.add(&recorder);
        sum.add(&recorder);
        assert_eq!((sum.attempts(), sum.successes(), sum.latency().count), (8, 4, 8));
        let get = &sum.operations([Operation::Get].into_iter())[0];
        assert_eq!((get.attempts, get.successes, get.absent, get.latency.count), (8, 4, 2, 4));
        assert_eq!(sum.errors(), BTreeMap::from([("reset".into(), 2), ("http_5xx".into(), 2)]));
    }

    #[test]
    fn seconds_are_whole_ones_only() {
        let window = window(2500 * MS);
        let mut recorder = Recorder::new(window);
        for (at, result) in [
            (0, Ok(Success::Done)),
            (999, Err(Fault::Reset)),
            (1000, Ok(Success::Done)),
            (2400, Ok(Success::Done)),
        ] {
            let until = window.start + at * MS;
            recorder.record(&attempt(result, until - 2 * MS, until));
        }
        let seconds = recorder.seconds();
        assert_eq!(recorder.attempts(), 4);
        assert_eq!(
            seconds,
            [
                SecondReport {
                    attempts: 2,
                    successes: 1,
                    latency_us_mean: 2000.0,
                    ..SecondReport::default()
                },
                SecondReport {
                    attempts: 1,
                    successes: 1,
                    latency_us_mean: 2000.0,
                    ..SecondReport::default()
                },
            ]
        );
    }
}
