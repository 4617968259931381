//! The run second by second: what each thread saw in one, and all of them together.
//!
//! A second is handed over once it is past, so that only a few are ever held. Reads no clock.

use crate::proto::SecondReport;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Two digits are enough for a second, and make a histogram small enough to stay in a core's cache.
const SIGNIFICANT_DIGITS: u8 = 2;
const LOWEST_NS: u64 = 1;
const HIGHEST_NS: u64 = 60_000_000_000;
const SECOND: Duration = Duration::from_secs(1);

/// What was over in one second, in one thread or in several.
#[derive(Clone, Debug)]
pub(super) struct Second {
    /// Counted from the window's start; those of the warm-up are below zero.
    pub(super) number: i64,
    pub(super) attempts: u64,
    pub(super) successes: u64,
    pub(super) sum_ns: u64,
    pub(super) max_ns: u64,
    pub(super) histogram: Histogram<u32>,
}

impl Second {
    /// Nothing, yet.
    pub(super) fn new(number: i64) -> Second {
        let histogram = Histogram::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS);
        Second {
            number,
            attempts: 0,
            successes: 0,
            sum_ns: 0,
            max_ns: 0,
            histogram: histogram.expect("the bounds are constants that fit"),
        }
    }

    /// Keeps one attempt.
    #[inline]
    pub(super) fn record(&mut self, latency_ns: u64, success: bool) {
        self.attempts += 1;
        self.successes += u64::from(success);
        self.sum_ns += latency_ns;
        self.max_ns = self.max_ns.max(latency_ns);
        self.histogram.saturating_record(latency_ns);
    }

    /// Takes over what somebody else saw in the same second.
    pub(super) fn add(&mut self, other: &Second) {
        self.attempts += other.attempts;
        self.successes += other.successes;
        self.sum_ns += other.sum_ns;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.histogram.add(&other.histogram).expect("all have the same bounds");
    }

    /// Whether it is over when a window of this length is.
    pub(super) fn ends_within(&self, window: Duration) -> bool {
        self.number < window.as_secs() as i64
    }

    /// What there is to say of it.
    pub(super) fn report(&self) -> SecondReport {
        let us = |quantile: f64| {
            let ns = self.histogram.median_equivalent(self.histogram.value_at_quantile(quantile));
            ns.min(self.max_ns) as f64 / 1e3
        };
        if self.attempts == 0 {
            return SecondReport::default();
        }
        SecondReport {
            attempts: self.attempts,
            successes: self.successes,
            latency_us_mean: self.sum_ns as f64 / self.attempts as f64 / 1e3,
            latency_us_p50: us(0.5),
            latency_us_p99: us(0.99),
            latency_us_max: self.max_ns as f64 / 1e3,
        }
    }
}

/// The second that a thread is in.
#[derive(Debug)]
pub(super) struct Current {
    second: Second,
    /// When it ends.
    end: Instant,
}

impl Current {
    /// The one that holds `now`, counted from `origin`, which may lie ahead.
    pub(super) fn new(origin: Instant, now: Instant) -> Current {
        // In whole seconds before the origin, and a begun one counts.
        let before = origin.saturating_duration_since(now).as_nanos().div_ceil(SECOND.as_nanos()) as u32;
        let end = match before {
            0 => origin + SECOND * (now.duration_since(origin).as_secs() as u32 + 1),
            _ => origin - SECOND * (before - 1),
        };
        let number =
            if before == 0 { now.duration_since(origin).as_secs() as i64 } else { -i64::from(before) };
        Current { second: Second::new(number), end }
    }

    /// Keeps an attempt that was over at `until`; gives the second that this has ended.
    #[inline]
    pub(super) fn record(&mut self, until: Instant, latency_ns: u64, success: bool, ended: &mut Vec<Second>) {
        self.pass(until, ended);
        self.second.record(latency_ns, success);
    }

    /// Hands over the seconds that are past at `now`.
    #[inline]
    pub(super) fn pass(&mut self, now: Instant, ended: &mut Vec<Second>) {
        while now >= self.end {
            let next = Second::new(self.second.number + 1);
            ended.push(std::mem::replace(&mut self.second, next));
            self.end += SECOND;
        }
    }
}

/// Puts together what several parties saw. Each hands over its seconds in their order.
#[derive(Debug)]
pub(super) struct Merge {
    /// The latest second of each party, `i64::MAX` of those that are gone.
    latest: Vec<i64>,
    /// What some have handed over and others have not.
    pending: BTreeMap<i64, Second>,
}

impl Merge {
    /// Of so many parties; at least one.
    pub(super) fn new(parties: usize) -> Merge {
        Merge { latest: vec![i64::MIN; parties], pending: BTreeMap::new() }
    }

    /// Takes what one party saw; gives the seconds that all are now past.
    pub(super) fn take(&mut self, party: usize, second: &Second) -> Vec<Second> {
        self.latest[party] = second.number;
        self.pending.entry(second.number).or_insert_with(|| Second::new(second.number)).add(second);
        self.complete()
    }

    /// A party is gone: nobody waits for it any more. Gives the seconds that were waiting for it alone.
    pub(super) fn leave(&mut self, party: usize) -> Vec<Second> {
        self.latest[party] = i64::MAX;
        self.complete()
    }

    fn complete(&mut self) -> Vec<Second> {
        let past = self.latest.iter().min().copied().unwrap_or(i64::MAX);
        let pending = self.pending.split_off(&past.saturating_add(1));
        std::mem::replace(&mut self.pending, pending).into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn current(warmup_ms: u64) -> (Instant, Current) {
        let begun = Instant::now();
        (begun, Current::new(begun + Duration::from_millis(warmup_ms), begun))
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
    fn a_second_is_handed_over_when_it_is_past_even_if_nothing_happened() {
        let (begun, mut current) = current(1000);
        let mut ended = Vec::new();
        let at = |ms| begun + Duration::from_millis(ms);
        current.record(at(999), 5_000, true, &mut ended);
        current.pass(at(999), &mut ended);
        assert!(ended.is_empty());
        current.record(at(3000), 7_000, false, &mut ended);
        let told: Vec<(i64, u64)> = ended.iter().map(|second| (second.number, second.attempts)).collect();
        assert_eq!(told, [(-1, 1), (0, 0), (1, 0)]);
        assert_eq!((current.second.number, current.second.attempts, current.second.successes), (2, 1, 0));
    }

    #[test]
    fn a_second_of_several_threads_is_told_when_the_last_has_passed_it() {
        let mut merge = Merge::new(2);
        let second = |number, ns: u64, success| {
            let mut second = Second::new(number);
            second.record(ns, success);
            second
        };
        assert!(merge.take(0, &second(0, 1_000_000, true)).is_empty());
        assert!(merge.take(0, &second(1, 1_000_000, true)).is_empty());
        let report = merge.take(1, &second(0, 3_000_000, false))[0].report();
        assert_eq!((report.attempts, report.successes), (2, 1));
        assert_eq!((report.latency_us_mean, report.latency_us_max), (2000.0, 3000.0));
        assert!((report.latency_us_p50 - 1000.0).abs() < 10.0, "{report:?}");
        assert!((report.latency_us_p99 - 3000.0).abs() < 30.0, "{report:?}");
    }

    #[test]
    fn who_is_gone_is_not_waited_for_and_who_stays_is() {
        let mut merge = Merge::new(3);
        let told = |seconds: Vec<Second>| -> Vec<(i64, u64)> {
            seconds.iter().map(|second| (second.number, second.attempts)).collect()
        };
        let second = |number| {
            let mut second = Second::new(number);
            second.record(1_000, true);
            second
        };
        for (party, number) in [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2)] {
            assert!(told(merge.take(party, &second(number))).is_empty());
        }
        // Two have handed over the first seconds, but one of them is the one that is gone.
        assert!(told(merge.leave(0)).is_empty());
        assert_eq!(told(merge.take(2, &second(0))), [(0, 3)]);
        assert_eq!(told(merge.leave(1)), []);
        assert_eq!(told(merge.take(2, &second(1))), [(1, 3)]);
        assert_eq!(told(merge.leave(2)), [(2, 1)]);
    }

    #[test]
    fn an_empty_second_is_all_zero() {
        assert_eq!(Second::new(3).report(), SecondReport::default());
    }
}
