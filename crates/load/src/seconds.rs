//! The run second by second, or in shorter bins: what each thread saw in one, and all of them together.
//!
//! A bin is handed over once it is past, so that only a few are ever held. Reads no clock.

use super::Observer;
use super::samples::Samples;
use super::stages::Stages;
use super::status_counts::StatusCounts;
use kv::proto::{Bins, LoadEvent, SecondReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use std::vec::Drain;

/// Two digits are enough for a second, and make a histogram small enough to stay in a core's cache.
const SIGNIFICANT_DIGITS: u8 = 2;
/// The longest bin, and what the others are whole parts of.
pub(super) const SECOND: Duration = Duration::from_secs(1);

/// What was over in one second, or in one bin where those are shorter, in one thread or in several.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Second {
    /// In bins, counted from the window's start; those of the warm-up are below zero.
    pub(super) number: i64,
    successes: u64,
    /// Requests of an open loop that were sent.
    sent: u64,
    statuses: StatusCounts,
    /// Of all attempts.
    latency: Samples,
}

impl Second {
    /// Nothing, yet.
    fn new(number: i64) -> Second {
        Second {
            number,
            successes: 0,
            sent: 0,
            statuses: StatusCounts::default(),
            latency: Samples::new(SIGNIFICANT_DIGITS),
        }
    }

    /// Keeps one attempt.
    #[inline]
    fn record(&mut self, latency_ns: u64, success: bool, status: u16) {
        self.successes += u64::from(success);
        self.statuses.count(status, 1);
        self.latency.record(latency_ns);
    }

    /// Takes over what somebody else saw in the same bin, or what was seen in a bin of this second.
    fn add(&mut self, other: &Second) {
        self.successes += other.successes;
        self.sent += other.sent;
        self.statuses.add(&other.statuses);
        self.latency.add(&other.latency);
    }

    /// What there is to say of it.
    fn report(&self) -> SecondReport {
        let latency = self.latency.summary();
        SecondReport {
            attempts: latency.count,
            successes: self.successes,
            latency_us_mean: latency.us_mean,
            latency_us_p50: latency.us_p50,
            latency_us_p95: latency.us_p95,
            latency_us_p99: latency.us_p99,
            latency_us_max: latency.us_max,
            backlog: None,
        }
    }
}

/// How many bins of this length are over after `time`.
fn whole_bins(time: Duration, bin: Duration) -> i64 {
    (time.as_nanos() / bin.as_nanos()) as i64
}

/// The bin that a thread is in.
#[derive(Debug)]
pub(super) struct Current {
    second: Second,
    length: Duration,
    /// When it ends.
    end: Instant,
    /// Those that are past and not taken yet.
    past: Vec<Second>,
}

impl Current {
    /// The one of this length that holds `now`, counted from `origin`, which may lie ahead.
    pub(super) fn new(origin: Instant, now: Instant, length: Duration) -> Current {
        // In whole bins before the origin, and a begun one counts.
        let before = origin.saturating_duration_since(now).as_nanos().div_ceil(length.as_nanos()) as u32;
        let after = whole_bins(now.saturating_duration_since(origin), length);
        let end = match before {
            0 => origin + length * (after as u32 + 1),
            _ => origin - length * (before - 1),
        };
        let number = if before == 0 { after } else { -i64::from(before) };
        Current { second: Second::new(number), length, end, past: Vec::new() }
    }

    /// Keeps an attempt that was over at `until`.
    #[inline]
    pub(super) fn record(&mut self, until: Instant, latency_ns: u64, success: bool, status: u16) {
        self.pass(until);
        self.second.record(latency_ns, success, status);
    }

    /// Counts a request that is sent.
    #[inline]
    pub(super) fn launched(&mut self, sent: Instant) {
        self.pass(sent);
        self.second.sent += 1;
    }

    #[inline]
    fn pass(&mut self, now: Instant) {
        while now >= self.end {
            let next = Second::new(self.second.number + 1);
            self.past.push(std::mem::replace(&mut self.second, next));
            self.end += self.length;
        }
    }

    /// Hands over the seconds that are past at `now` and were not taken before.
    pub(super) fn take_past(&mut self, now: Instant) -> Drain<'_, Second> {
        self.pass(now);
        self.past.drain(..)
    }
}

/// The time series of a run so far: the bins of all threads added up, and the seconds that these make.
#[derive(Debug, Default)]
pub(super) struct TimeSeries {
    bin: Duration,
    /// The latest bin of each thread. Each hands over its bins in order.
    latest: Vec<i64>,
    /// What some threads have handed over and others have not.
    pending: BTreeMap<i64, Second>,
    /// The second whose bins are being added.
    so_far: Option<Second>,
    /// Of an open loop with even gaps: what is due, from the beginning of the warm-up on, and how long that is.
    offered: Option<(Stages, Duration)>,
    /// Requests sent so far.
    sent: u64,
    bins: Vec<SecondReport>,
    seconds: Vec<SecondReport>,
}

impl TimeSeries {
    /// Nothing, yet, of this many threads; at least one.
    pub(super) fn new(bin: Duration, threads: usize, offered: Option<(Stages, Duration)>) -> TimeSeries {
        TimeSeries { bin, latest: vec![i64::MIN; threads], offered, ..TimeSeries::default() }
    }

    /// Adds a bin of one thread, and reports the bins that all are now past. One that the end of the window cuts off is not
    /// reported.
    pub(super) fn add(&mut self, thread: usize, bin: &Second, window: Duration, observer: Observer<'_>) {
        self.latest[thread] = bin.number;
        self.pending.entry(bin.number).or_insert_with(|| Second::new(bin.number)).add(bin);
        let past = self.latest.iter().min().copied().unwrap_or(i64::MAX);
        let pending = self.pending.split_off(&past.saturating_add(1));
        let past = std::mem::replace(&mut self.pending, pending).into_values();
        let end = whole_bins(window, self.bin);
        past.filter(|bin| bin.number < end).for_each(|bin| self.push(&bin, observer));
    }

    /// Adds the next bin, and reports it and the second that it ends.
    fn push(&mut self, bin: &Second, observer: Observer<'_>) {
        let each = whole_bins(SECOND, self.bin);
        self.sent += bin.sent;
        let backlog = self.backlog(bin.number + 1);
        if each > 1 {
            let report = SecondReport { backlog, ..bin.report() };
            if bin.number >= 0 {
                self.bins.push(report);
            }
            observer(LoadEvent::Bin { bin: bin.number, report });
        }
        let number = bin.number.div_euclid(each);
        let mut second = self.so_far.take().unwrap_or_else(|| Second::new(number));
        second.add(bin);
        if bin.number.rem_euclid(each) + 1 < each {
            self.so_far = Some(second);
            return;
        }
        let report = SecondReport { backlog, ..second.report() };
        if number >= 0 {
            self.seconds.push(report);
        }
        observer(LoadEvent::Second { second: number, report, statuses: second.statuses.report() });
    }

    /// How many requests are due and not sent when this many bins of the window are over.
    fn backlog(&self, bins: i64) -> Option<u64> {
        let (offered, warmup) = self.offered.as_ref()?;
        let secs = warmup.as_secs_f64() + bins as f64 * self.bin.as_secs_f64();
        // The last one may be due at this very instant.
        let due = offered.due(secs).floor() as u64;
        Some(due.saturating_sub(self.sent))
    }

    /// The seconds of the window, and its bins where they are shorter.
    pub(super) fn reports(self) -> (Vec<SecondReport>, Option<Bins>) {
        let bins = Bins { secs: self.bin.as_secs_f64(), list: self.bins };
        (self.seconds, (self.bin < SECOND).then_some(bins))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(warmup_ms: u64) -> (Instant, Current) {
        let begun = Instant::now();
        (begun, Current::new(begun + Duration::from_millis(warmup_ms), begun, SECOND))
    }

    #[test]
    fn seconds_are_counted_from_the_window() {
        for (warmup_ms, first, ends_ms) in [(0, 0, 1000), (1, -1, 1), (1000, -1, 1000), (2500, -3, 500)] {
            let (begun, current) = current(warmup_ms);
            assert_eq!(current.second.number, first, "warm-up {warmup_ms} ms");
            assert_eq!(current.end, begun + Duration::from_millis(ends_ms), "warm-up {warmup_ms} ms");
        }
    }

    #[test]
    fn bins_are_counted_from_the_window_too() {
        let (begun, tenth) = (Instant::now(), Duration::from_millis(100));
        for (warmup_ms, first, ends_ms) in [(0, 0, 100), (1, -1, 1), (250, -3, 50)] {
            let current = Current::new(begun + Duration::from_millis(warmup_ms), begun, tenth);
            assert_eq!(current.second.number, first, "warm-up {warmup_ms} ms");
            assert_eq!(current.end, begun + Duration::from_millis(ends_ms), "warm-up {warmup_ms} ms");
        }
        let late = Current::new(begun, begun + Duration::from_millis(1234), tenth);
        assert_eq!((late.second.number, late.end), (12, begun + Duration::from_millis(1300)));
    }

    #[test]
    fn seconds_are_put_together_from_their_bins() {
        let (mut series, mut heard) = (TimeSeries::new(Duration::from_millis(500), 1, None), Vec::new());
        // Of the warm-up only half a second is left, and of the last second as much.
        for number in -1..5 {
            let mut bin = Second::new(number);
            bin.record(1_000_000 * (number + 2) as u64, number > 0, 200);
            series.add(0, &bin, 9 * SECOND, &mut |event| match event {
                LoadEvent::Bin { bin, report } => heard.push(("bin", bin, report.attempts)),
                LoadEvent::Second { second, report, .. } => heard.push(("second", second, report.attempts)),
                _ => panic!("{event:?}"),
            });
        }
        let seconds: Vec<_> = heard.iter().filter(|(what, ..)| *what == "second").collect();
        assert_eq!(seconds, [&("second", -1, 1), &("second", 0, 2), &("second", 1, 2)]);
        assert_eq!(heard.len() - seconds.len(), 6);
        let (seconds, bins) = series.reports();
        assert_eq!(bins.map(|bins| (bins.secs, bins.list.len())), Some((0.5, 5)));
        assert_eq!((seconds.len(), seconds[0].successes, seconds[0].latency_us_mean), (2, 1, 2500.0));
    }

    #[test]
    fn a_second_is_handed_over_when_it_is_past_even_if_nothing_happened() {
        let (begun, mut current) = current(1000);
        let at = |ms| begun + Duration::from_millis(ms);
        current.record(at(999), 5_000, true, 200);
        assert!(current.take_past(at(999)).next().is_none());
        current.record(at(3000), 7_000, false, 500);
        let ended = current.take_past(at(3000));
        let counts: Vec<(i64, u64)> = ended.map(|second| (second.number, second.report().attempts)).collect();
        assert_eq!(counts, [(-1, 1), (0, 0), (1, 0)]);
        assert_eq!(
            (current.second.number, current.second.report().attempts, current.second.successes),
            (2, 1, 0)
        );
    }

    #[test]
    fn a_second_of_several_threads_is_reported_when_the_last_has_passed_it() {
        let second = |number, ns: u64, success| {
            let mut second = Second::new(number);
            second.record(ns, success, 200);
            second
        };
        let (mut series, mut events) = (TimeSeries::new(SECOND, 2, None), Vec::new());
        for (thread, bin) in [
            (0, second(0, 1_000_000, true)),
            (0, second(1, 1_000_000, true)),
            (1, second(0, 3_000_000, false)),
            // The window ends before this one is over.
            (1, second(1, 3_000_000, false)),
        ] {
            assert!(events.is_empty() || bin.number == 1);
            series.add(thread, &bin, SECOND + SECOND / 2, &mut |event| events.push(event));
        }
        let [LoadEvent::Second { second: 0, report, statuses }] = &events[..] else { panic!("{events:?}") };
        assert_eq!(statuses.get("200"), Some(&2));
        assert_eq!((report.attempts, report.successes), (2, 1));
        assert_eq!((report.latency_us_mean, report.latency_us_max), (2000.0, 3000.0));
        assert!((report.latency_us_p50 - 1000.0).abs() < 10.0, "{report:?}");
        assert!((report.latency_us_p99 - 3000.0).abs() < 30.0, "{report:?}");
    }

    #[test]
    fn a_backlog_is_counted_of_even_gaps_only() {
        let backlog = |arrivals: &str| {
            let flags = ["--rate", "100", "--warmup", "1s", "--arrivals", arrivals];
            let plan = crate::Plan::of_flags(&flags);
            let (mut series, mut backlogs) = (TimeSeries::new(SECOND, 1, plan.evenly_offered()), Vec::new());
            // One less is sent in each second than is due on average.
            for number in -1..2 {
                let second = Second { sent: 99, ..Second::new(number) };
                series.add(0, &second, 9 * SECOND, &mut |event| match event {
                    LoadEvent::Second { report, .. } => backlogs.push(report.backlog),
                    _ => panic!("{event:?}"),
                });
            }
            backlogs
        };
        assert_eq!(backlog("constant"), [1, 2, 3].map(Some));
        assert_eq!(backlog("poisson"), [None; 3], "more or less may have been due");
    }

    #[test]
    fn an_empty_second_is_all_zero() {
        assert_eq!(Second::new(3).report(), SecondReport::default());
    }
}
