//! What is shown while `weir load` runs, on standard error: on a terminal a line and a curve that stay in their place, elsewhere a line every
//! now and then.
//!
//! The lines are made of a [`State`], without a clock or a terminal.

use crate::cmd::progress::bar;
use crate::cmd::{counted, note};
use indicatif::{ProgressBar, ProgressDrawTarget};
use kv::proto::{LoadEvent, SecondReport};
use kv::units;
use load::Plan;
use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

/// Between two redraws on a terminal, unless something else is asked for.
const REDRAW_EVERY: Duration = Duration::from_secs(1);
/// Between two lines elsewhere.
const LINE_EVERY: Duration = Duration::from_secs(10);
/// Seconds that are drawn.
const SPARKS_MAX: usize = 40;
const SPARKS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Shows how a run goes.
pub(super) struct Live {
    state: State,
    /// On a terminal; elsewhere there are lines.
    bar: Option<ProgressBar>,
    /// Between two redraws or two lines; zero: nothing is shown.
    every: Duration,
    /// When something was shown last.
    shown_at: Instant,
}

impl Live {
    /// For a run of `plan`. Without an interval the usual one; nothing at all if it is zero.
    pub(super) fn start(plan: &Plan, interval: Option<Duration>) -> Live {
        let usual = if ProgressDrawTarget::stderr().is_hidden() { LINE_EVERY } else { REDRAW_EVERY };
        let every = interval.unwrap_or(usual);
        // As much of the message as the terminal is wide; the curve is never wide.
        let bar = if every.is_zero() { None } else { bar("{wide_msg}\n{prefix}") };
        Live { state: State::new(plan, every), bar, every, shown_at: Instant::now() }
    }

    pub(super) fn hear(&mut self, event: &LoadEvent) {
        let is_due = self.shown_at.elapsed() >= self.every;
        let Some(line) = self.state.hear(event, is_due).filter(|_| !self.every.is_zero()) else { return };
        match &self.bar {
            Some(bar) => {
                bar.set_prefix(self.state.curve());
                bar.set_message(line);
            }
            None => note(line),
        }
        self.shown_at = Instant::now();
    }

    /// Takes both off the terminal; elsewhere lines stay.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// What is known of a run so far.
struct State {
    plan: Plan,
    /// Seconds between two lines: figures are of whole ones.
    every: usize,
    /// The seconds of the warm-up or of the window that no line has shown.
    not_shown: Vec<SecondReport>,
    /// Their answers by status.
    statuses: BTreeMap<String, u64>,
    /// Goodput of the last seconds, warm-up included, the latest at the end.
    rates: VecDeque<f64>,
}

impl State {
    fn new(plan: &Plan, every: Duration) -> State {
        State {
            plan: plan.clone(),
            every: (every.as_secs_f64().ceil() as usize).max(1),
            not_shown: Vec::new(),
            statuses: BTreeMap::new(),
            rates: VecDeque::new(),
        }
    }

    /// The line that is to be shown now, if there is one. `is_due` says whether it is time for one by the clock: seconds go by their
    /// number instead, as one that is reported late is followed by one in time.
    fn hear(&mut self, event: &LoadEvent, is_due: bool) -> Option<String> {
        match event {
            LoadEvent::Preloading { requests, of } if is_due => {
                let [requests, of] = [requests, of].map(|count| units::short(*count as f64));
                Some(format!("preload  {requests} of {of} requests"))
            }
            LoadEvent::Second { second, report, statuses } => {
                let second = *second;
                if second == 0 {
                    self.not_shown.clear();
                    self.statuses.clear();
                }
                for (status, count) in statuses {
                    *self.statuses.entry(status.clone()).or_default() += count;
                }
                self.rates.push_back(report.successes as f64);
                if self.rates.len() > SPARKS_MAX {
                    self.rates.pop_front();
                }
                self.not_shown.push(*report);
                (self.not_shown.len() >= self.every).then(|| self.line(second))
            }
            _ => None,
        }
    }

    /// One line on the seconds that were not shown, the last of which is number `second`.
    ///
    /// The percentiles of several seconds together are not known: they are at most the highest of them, and that is what
    /// stands there.
    fn line(&mut self, second: i64) -> String {
        let plan = &self.plan;
        let seconds = std::mem::take(&mut self.not_shown);
        let sum = |figure: fn(&SecondReport) -> u64| seconds.iter().map(figure).sum::<u64>();
        let rate = sum(|second| second.successes) as f64 / seconds.len() as f64;
        let at_most = if seconds.len() > 1 { "≤ " } else { "" };
        let highest = |sign: &str, figure: fn(&SecondReport) -> f64| {
            let highest = seconds.iter().map(figure).fold(0.0, f64::max);
            let none = sum(|second| second.attempts) == 0;
            if none { "–".to_owned() } else { format!("{sign}{}", units::micros(highest)) }
        };
        let (phase, over, of) = match second {
            ..0 => ("warm-up", plan.warmup.as_secs_f64().ceil() as i64 + second + 1, plan.warmup),
            0.. => ("window", second + 1, plan.window),
        };
        // The last one tells how it is now; of random arrivals none is counted.
        let backlog = seconds.last().and_then(|second| second.backlog);
        let backlog = backlog.map_or_else(String::new, |backlog| format!(", backlog {backlog}"));
        let since = (second + 1).max(0).unsigned_abs().saturating_sub(seconds.len() as u64);
        let since = Duration::from_secs(since);
        let (since, length) = (plan.warmup + since, Duration::from_secs(seconds.len() as u64));
        let offered = plan.pacing.offered_rps(since, length);
        let offered =
            offered.map_or_else(String::new, |rate| format!(" of {} offered{backlog}", units::short(rate)));
        // Operations on keys are judged by more than that.
        let statuses = std::mem::take(&mut self.statuses).into_iter().filter(|_| !plan.is_key_value());
        let statuses: String = statuses.map(|(status, count)| format!("  {status} × {count}")).collect();
        format!(
            "{phase:<7}  {over:>3}s of {}  {:>5} req/s{offered}  p50 {}  p95 {}  p99 {}  max {}  {}{statuses}",
            units::Span(of),
            units::short(rate),
            highest(at_most, |second| second.latency_us_p50),
            highest(at_most, |second| second.latency_us_p95),
            highest(at_most, |second| second.latency_us_p99),
            highest("", |second| second.latency_us_max),
            counted(sum(|second| second.attempts.saturating_sub(second.successes)), "error"),
        )
    }

    /// The goodput of the last seconds as a curve, from zero to the highest.
    fn curve(&self) -> String {
        let highest = self.rates.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let step = |rate: &f64| ((rate / highest * SPARKS.len() as f64).ceil() as usize).max(1) - 1;
        self.rates.iter().map(|rate| SPARKS[step(rate)]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn second(successes: u64, failures: u64, p99_us: f64) -> SecondReport {
        SecondReport {
            attempts: successes + failures,
            successes,
            latency_us_mean: p99_us / 4.0,
            latency_us_p50: p99_us / 4.0,
            latency_us_p95: p99_us / 2.0,
            latency_us_p99: p99_us,
            latency_us_max: p99_us * 2.0,
            backlog: Some(7),
        }
    }

    /// Of a run with a warm-up of 2 s and a window of 30 s that shows a line every so many seconds.
    fn state(every: u64) -> State {
        let plan = clap::Parser::parse_from([
            "load",
            "http://host:1",
            "--warmup",
            "2s",
            "--window",
            "30s",
            "--keys",
            "10",
        ]);
        State::new(&plan, Duration::from_secs(every))
    }

    fn hear(state: &mut State, second: i64, report: SecondReport) -> Option<String> {
        state.hear(&LoadEvent::Second { second, report, statuses: BTreeMap::new() }, false)
    }

    #[test]
    fn a_preload_is_shown_by_the_clock() {
        let event = LoadEvent::Preloading { requests: 5000, of: 20_000 };
        assert_eq!(state(1).hear(&event, false), None);
        assert_eq!(state(1).hear(&event, true).unwrap(), "preload  5.00k of 20.0k requests");
    }

    #[test]
    fn a_line_is_due_by_the_seconds_and_not_by_when_they_are_heard_of() {
        let mut state = state(2);
        assert_eq!(hear(&mut state, 0, second(1, 0, 1.0)), None);
        let line = hear(&mut state, 1, second(2, 0, 1.0)).unwrap();
        assert!(line.starts_with("window     2s of 30s"), "{line}");
        assert_eq!(hear(&mut state, 2, second(3, 0, 1.0)), None);
    }

    #[test]
    fn a_rate_is_shown_beside_what_is_offered_and_statuses_as_they_came() {
        let plan = clap::Parser::parse_from(["load", "http://host:1/x", "--rate", "2k"]);
        let mut state = State::new(&plan, Duration::from_secs(1));
        let statuses = [("200".to_owned(), 1500), ("503".to_owned(), 3)].into();
        let event = LoadEvent::Second { second: 0, report: second(1500, 3, 100.0), statuses };
        let line = state.hear(&event, false).unwrap();
        assert!(line.contains("1.50k req/s of 2.00k offered, backlog 7  p50 "), "{line}");
        assert!(line.ends_with("  3 errors  200 × 1500  503 × 3"), "{line}");
        let of_random_arrivals = SecondReport { backlog: None, ..second(1500, 3, 100.0) };
        let line = hear(&mut state, 1, of_random_arrivals).unwrap();
        assert!(line.contains("1.50k req/s of 2.00k offered  p50 "), "{line}");
    }

    #[test]
    fn curves_have_the_last_forty_seconds() {
        let mut state = state(1);
        for number in 1..=60 {
            hear(&mut state, number, second(number as u64 * 100, 0, 100.0));
        }
        let curve = state.curve();
        assert!(curve.chars().count() == 40 && curve.starts_with('▃') && curve.ends_with('█'), "{curve}");
        state.rates = [48_200.0, 24_100.0, 0.0].into();
        assert_eq!(state.curve(), "█▄▁");
        state.rates = [0.0, 0.0].into();
        assert_eq!(state.curve(), "▁▁");
    }

    #[test]
    fn a_second_without_requests_has_no_latency() {
        let line = hear(&mut state(1), 1, second(0, 0, 0.0));
        assert_eq!(line.unwrap(), "window     2s of 30s      0 req/s  p50 –  p95 –  p99 –  max –  0 errors");
    }

    #[test]
    fn a_line_tells_of_the_seconds_since_the_last_one() {
        let mut state = state(2);
        let mut lines = Vec::new();
        for (at, report) in [
            (-2, second(100, 5, 100.0)),
            (-1, second(100, 0, 100.0)),
            (0, second(1000, 0, 4000.0)),
            (1, second(2000, 1, 8000.0)),
            (2, second(3000, 0, 1000.0)),
        ] {
            lines.extend(hear(&mut state, at, report));
        }
        assert_eq!(
            lines,
            [
                "warm-up    2s of 2s    100 req/s  p50 ≤ 25.0 µs  p95 ≤ 50.0 µs  p99 ≤ 100 µs  max 200 µs  5 errors",
                "window     2s of 30s  1.50k req/s  p50 ≤ 2.00 ms  p95 ≤ 4.00 ms  p99 ≤ 8.00 ms  max 16.0 ms  1 error",
            ]
        );
        state.every = 1;
        assert_eq!(
            hear(&mut state, 3, second(3000, 0, 1000.0)).unwrap(),
            "window     4s of 30s  3.00k req/s  p50 ≤ 250 µs  p95 ≤ 500 µs  p99 ≤ 1.00 ms  max 2.00 ms  0 errors"
        );
    }
}
