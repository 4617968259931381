//! What is kept of the requests of a window: counts, sums and histograms, never the requests themselves.
//!
//! Its size depends on nothing that happens. Reads no clock: every instant is handed in.

use super::answer::{Fault, Success};
use super::connecting::Connecting;
use super::mix::Operation;
use super::reactor::{Attempt, Launch, Rest};
use super::samples::Samples;
use super::seconds::{Current, Second};
use kv::proto::{Bucket, Latency, OperationReport, ScheduleReport};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

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
    pub(super) successes: [Samples; Operation::ALL.len()],
    /// Attempts, by `operation as usize`.
    pub(super) attempts: [u64; Operation::ALL.len()],
    pub(super) failures: Samples,
    /// By `fault as usize`.
    pub(super) faults: [u64; Fault::ALL.len()],
    pub(super) absent: u64,
    /// Reads whose value was compared as a whole.
    pub(super) verified: u64,
    pub(super) connecting: Connecting,
    pub(super) backoff: Duration,
    pub(super) think: Duration,
    pub(super) population: Population,
    /// Of an open loop.
    pub(super) open: Option<Open>,
    /// The second that goes on, and those that are past and not taken yet.
    current: Current,
    past: Vec<Second>,
}

/// How many requests were in flight, and for how long.
#[derive(Clone, Copy, Debug)]
pub(super) struct Population {
    /// Until when `secs` is counted.
    until: Instant,
    /// The number in flight times how long it was so, over the window.
    pub(super) secs: f64,
    pub(super) at_end: u64,
    /// Of the requests in flight at the window's end the part in it, and what passed of it before a client began, less the
    /// part before it of the requests that are counted.
    pub(super) edge_secs: f64,
}

/// How a schedule was kept.
pub(super) struct Open {
    pub(super) service: Samples,
    pub(super) slip: Samples,
    pub(super) due: u64,
    pub(super) sent: u64,
    pub(super) waited: u64,
    pub(super) waited_time: Duration,
    /// Until the first request of the window is sent, nothing is known.
    pub(super) behind_at_start: Option<Duration>,
    pub(super) behind_at_end: Duration,
}

impl Recorder {
    /// Of an `open` loop or a closed one, from `begun` on, whose course is kept in bins of this length.
    pub(super) fn new(window: Window, begun: Instant, open: bool, bin: Duration) -> Recorder {
        Recorder {
            successes: std::array::from_fn(|_| Samples::default()),
            attempts: [0; Operation::ALL.len()],
            failures: Samples::default(),
            faults: [0; Fault::ALL.len()],
            absent: 0,
            verified: 0,
            connecting: Connecting::default(),
            backoff: Duration::ZERO,
            think: Duration::ZERO,
            population: Population { until: begun, secs: 0.0, at_end: 0, edge_secs: 0.0 },
            open: open.then(Open::default),
            current: Current::new(window.start, begun, bin),
            past: Vec::new(),
            window,
        }
    }

    /// The window ends sooner than it was to, at an instant that nothing was counted behind yet.
    pub(super) fn end_at(&mut self, end: Instant) {
        self.window.end = end;
    }

    /// How long the window is.
    pub(super) fn measured(&self) -> Duration {
        self.window.length()
    }

    /// Counts `attempt` if it was over in the window, with its whole latency even if it began before.
    pub(super) fn record(&mut self, attempt: &Attempt) {
        let latency_ns = attempt.until.duration_since(attempt.since).as_nanos() as u64;
        self.current.record(attempt.until, latency_ns, attempt.result.is_ok(), &mut self.past);
        if !self.window.holds(attempt.until) {
            self.cut_off(attempt.sent, attempt.until);
            return;
        }
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
        self.verified += u64::from(attempt.verified);
        self.connecting.record(attempt.connection);
        if attempt.sent < self.window.start {
            self.population.edge_secs -= self.window.start.duration_since(attempt.sent).as_secs_f64();
        }
        if let Some(open) = &mut self.open {
            open.service.record(attempt.until.duration_since(attempt.sent).as_nanos() as u64);
        }
    }

    /// Counts a request that was under way until `until`, if the window ended meanwhile.
    fn cut_off(&mut self, sent: Instant, until: Instant) {
        let Window { start, end } = self.window;
        if sent < end && until >= end {
            self.population.at_end += 1;
            self.population.edge_secs += end.duration_since(sent.max(start)).as_secs_f64();
        }
    }

    /// Counts the part of a back-off that lies in the window.
    pub(super) fn rested(&mut self, since: Instant, until: Instant) {
        self.backoff += self.window.overlap(since, until);
    }

    /// Counts the part of the window in which a client of a closed loop had not begun.
    pub(super) fn started(&mut self, since: Instant, until: Instant) {
        if self.open.is_none() {
            self.population.edge_secs += self.window.overlap(since, until).as_secs_f64();
        }
    }

    /// Counts the part of a thought that lies in the window.
    pub(super) fn thought(&mut self, since: Instant, until: Instant) {
        self.think += self.window.overlap(since, until);
    }

    /// Until `now` so many requests were in flight, since it was told before.
    pub(super) fn in_flight(&mut self, now: Instant, requests: u32) {
        let time = self.window.overlap(self.population.until, now);
        self.population.secs += f64::from(requests) * time.as_secs_f64();
        self.population.until = now;
    }

    /// Counts a request of an open loop that is sent.
    pub(super) fn launched(&mut self, launch: &Launch) {
        let Some(open) = &mut self.open else { return };
        let Launch { intended, free_since, sent } = *launch;
        if sent < self.window.start {
            return;
        }
        let start = self.window.start;
        open.behind_at_start.get_or_insert_with(|| start.saturating_duration_since(intended));
        // Due in the window it was, even if it was sent when that had ended.
        let was_due = u64::from((start..self.window.end).contains(&intended));
        open.due += was_due;
        if sent >= self.window.end {
            return;
        }
        open.sent += was_due;
        open.slip.record(sent.duration_since(intended.max(free_since)).as_nanos() as u64);
        let waited = free_since.saturating_duration_since(intended);
        open.waited += u64::from(!waited.is_zero());
        open.waited_time += waited;
    }

    /// Counts what was left when the run had ended at `until`, with its window or after it.
    pub(super) fn ended(&mut self, rest: Rest, until: Instant) {
        let Window { start, end } = self.window;
        for sent in rest.in_flight {
            self.cut_off(sent, until);
        }
        if let Some(open) = &mut self.open {
            let next = rest.schedule.next_at();
            open.behind_at_end = next.map_or(Duration::ZERO, |next| end.saturating_duration_since(next));
            // Nothing was sent in the window: what was due first is due still.
            let behind = next.map_or(Duration::ZERO, |next| start.saturating_duration_since(next));
            open.behind_at_start.get_or_insert(behind);
            open.due += rest.schedule.untaken(start, end);
        }
    }

    /// The seconds that are past at `now` and were not taken before.
    pub(super) fn past(&mut self, now: Instant) -> std::vec::Drain<'_, Second> {
        self.current.pass(now, &mut self.past);
        self.past.drain(..)
    }

    /// Takes over what another thread counted in the same window; of seconds nothing.
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
        self.absent += other.absent;
        self.verified += other.verified;
        self.connecting.add(&other.connecting);
        self.backoff += other.backoff;
        self.think += other.think;
        self.population.secs += other.population.secs;
        self.population.at_end += other.population.at_end;
        self.population.edge_secs += other.population.edge_secs;
        if let (Some(mine), Some(theirs)) = (&mut self.open, &other.open) {
            mine.add(theirs);
        }
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

    pub(super) fn think(&self) -> Duration {
        self.think
    }

    /// The mean number of requests in flight.
    pub(super) fn in_flight_mean(&self) -> f64 {
        self.population.secs / self.window.length().as_secs_f64()
    }

    pub(super) fn in_flight_at_end(&self) -> u64 {
        self.population.at_end
    }

    pub(super) fn edge_secs(&self) -> f64 {
        self.population.edge_secs
    }

    /// Of all attempts of an open loop, from the send.
    pub(super) fn service(&self) -> Option<Latency> {
        self.open.as_ref().map(|open| open.service.summary())
    }

    /// How the schedule of an open loop was kept, with so many requests per second asked for.
    pub(super) fn schedule(&self, offered_rps: f64) -> Option<ScheduleReport> {
        let open = self.open.as_ref()?;
        let behind_at_start = open.behind_at_start.unwrap_or_default();
        // A stall makes many wait and loses none; with too much on offer most wait, and some are never sent.
        let launched = open.slip.histogram.len();
        let over_capacity = open.sent * 100 < open.due * 99 && open.waited * 2 >= launched;
        Some(ScheduleReport {
            offered_rps,
            due: open.due,
            sent: open.sent,
            slip: open.slip.summary(),
            waited: open.waited,
            waited_secs: open.waited_time.as_secs_f64(),
            behind_secs_at_start: behind_at_start.as_secs_f64(),
            behind_secs_at_end: open.behind_at_end.as_secs_f64(),
            over_capacity,
        })
    }

    /// The histograms behind the latencies, by name.
    pub(super) fn histograms(
        &self,
        operations: impl Iterator<Item = Operation>,
    ) -> BTreeMap<String, Vec<Bucket>> {
        let own = operations
            .map(|operation| (operation.name().to_owned(), self.successes[operation as usize].buckets()));
        let mut all: BTreeMap<_, _> = own.collect();
        all.insert("all".to_owned(), self.all().buckets());
        if let Some(open) = &self.open {
            all.insert("service".to_owned(), open.service.buckets());
            all.insert("slip".to_owned(), open.slip.buckets());
        }
        all
    }

    /// Of all attempts.
    pub(super) fn latency(&self) -> Latency {
        self.all().summary()
    }

    fn all(&self) -> Samples {
        let mut all = Samples::default();
        for samples in self.successes.iter().chain([&self.failures]) {
            all.add(samples);
        }
        all
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
}

impl Default for Open {
    fn default() -> Open {
        Open {
            service: Samples::default(),
            slip: Samples::default(),
            due: 0,
            sent: 0,
            waited: 0,
            waited_time: Duration::ZERO,
            behind_at_start: None,
            behind_at_end: Duration::ZERO,
        }
    }
}

impl Open {
    fn add(&mut self, other: &Open) {
        self.service.add(&other.service);
        self.slip.add(&other.slip);
        self.due += other.due;
        self.sent += other.sent;
        self.waited += other.waited;
        self.waited_time += other.waited_time;
        self.behind_at_start = self.behind_at_start.max(other.behind_at_start);
        self.behind_at_end = self.behind_at_end.max(other.behind_at_end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pacing::{Arrivals, Pacing};
    use crate::schedule::{Schedule, clocks};
    use crate::seconds::SECOND;
    use kv::units::Rate;

    const MS: Duration = Duration::from_millis(1);

    fn window(length: Duration) -> Window {
        let start = Instant::now() + Duration::from_secs(60);
        Window { start, end: start + length }
    }

    fn attempt(result: Result<Success, Fault>, since: Instant, until: Instant) -> Attempt {
        let connection = super::super::client::Connection::Kept;
        let operation = Operation::Get;
        Attempt { operation, result, status: 200, since, sent: since, until, connection, verified: false }
    }

    fn closed(window: Window) -> Recorder {
        Recorder::new(window, window.start, false, SECOND)
    }

    /// Latencies in, a summary out.
    fn check(latencies_us: impl Iterator<Item = u64>) -> Latency {
        let window = window(MS);
        let mut recorder = closed(window);
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
    fn only_what_is_over_in_the_window_counts_and_then_as_a_whole() {
        let window = window(10 * MS);
        let mut recorder = closed(window);
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
        let mut recorder = closed(window);
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
        let mut recorder = closed(window);
        for result in [Ok(Success::Done), Ok(Success::Absent), Err(Fault::Reset), Err(Fault::Http5xx)] {
            recorder.record(&attempt(result, window.start, window.start + MS));
        }
        let mut sum = closed(window);
        sum.add(&recorder);
        sum.add(&recorder);
        assert_eq!((sum.attempts(), sum.successes(), sum.latency().count), (8, 4, 8));
        let get = &sum.operations([Operation::Get].into_iter())[0];
        assert_eq!((get.attempts, get.successes, get.absent, get.latency.count), (8, 4, 2, 4));
        assert_eq!(sum.errors(), BTreeMap::from([("reset".into(), 2), ("http_5xx".into(), 2)]));
    }

    #[test]
    fn the_time_of_requests_at_the_edges_is_accounted_for() {
        let window = window(100 * MS);
        let mut recorder = closed(window);
        recorder.started(window.start - MS, window.start);
        let (start, end) = (window.start, window.end);
        recorder.record(&attempt(Ok(Success::Done), start - 7 * MS, start + 3 * MS));
        recorder.record(&attempt(Ok(Success::Done), start + 3 * MS, start + 95 * MS));
        let schedule = Schedule::none();
        recorder.record(&attempt(Ok(Success::Done), start + 95 * MS, end + MS));
        recorder.ended(Rest { in_flight: vec![start - 200 * MS, end + MS], schedule }, end + 2 * MS);
        let latencies = recorder.latency().us_mean * recorder.attempts() as f64 / 1e6;
        assert!((latencies + recorder.edge_secs() - 0.2).abs() < 1e-9, "two clients for 100 ms");
        assert_eq!((recorder.attempts(), recorder.in_flight_at_end()), (2, 2));
    }

    #[test]
    fn requests_in_flight_are_counted_over_the_window_only() {
        let window = window(100 * MS);
        let mut recorder = Recorder::new(window, window.start - 50 * MS, false, SECOND);
        recorder.in_flight(window.start - 10 * MS, 0);
        recorder.in_flight(window.start + 50 * MS, 1);
        recorder.in_flight(window.start + 50 * MS, 3);
        recorder.in_flight(window.start + 75 * MS, 2);
        recorder.in_flight(window.end + 25 * MS, 4);
        assert!((recorder.in_flight_mean() - 2.0).abs() < 1e-9, "{}", recorder.in_flight_mean());
    }

    #[test]
    fn lateness_is_the_generators_and_waiting_is_the_connections() {
        let window = window(100 * MS);
        let mut recorder = Recorder::new(window, window.start, true, SECOND);
        let at = |ms: u32| window.start + ms * MS;
        let mut launch =
            |intended, free_since, sent| recorder.launched(&Launch { intended, free_since, sent });
        // Was due before the window, sent in it; then one in time, one late, one that had to wait.
        launch(window.start - 20 * MS, at(0), at(1));
        launch(at(10), at(5), at(10));
        launch(at(20), at(5), at(23));
        launch(at(30), at(70), at(70));
        // Was due in the window, and sent only when that had ended.
        launch(at(89), at(5), at(101));
        // Its end is the first instant that is not in it.
        launch(at(100), at(5), at(102));
        let pacing = Pacing::Open { rate: Rate(1000.0), arrivals: Arrivals::Constant };
        let mut schedule = Schedule::new(pacing, clocks(1, 1), 1, window.start);
        for _ in 0..90 {
            schedule.take();
        }
        recorder.ended(Rest { in_flight: Vec::new(), schedule }, window.end);
        let report = recorder.schedule(1000.0).unwrap();
        assert_eq!((report.due, report.sent), (3 + 10 + 1, 3), "eleven were not sent in it");
        assert_eq!((report.slip.count, report.slip.us_max), (4, 3000.0));
        assert_eq!((report.waited, report.waited_secs), (2, 0.060));
        assert_eq!((report.behind_secs_at_start, report.behind_secs_at_end), (0.020, 0.010));
        assert!(report.over_capacity == (report.waited * 2 > report.sent));
    }

    #[test]
    fn what_was_due_and_never_sent_is_more_than_the_target_takes() {
        let window = window(100 * MS);
        let mut recorder = Recorder::new(window, window.start - 50 * MS, true, SECOND);
        let pacing = Pacing::Open { rate: Rate(1000.0), arrivals: Arrivals::Constant };
        let schedule = Schedule::new(pacing, clocks(1, 1), 1, window.start - 50 * MS);
        recorder.ended(Rest { in_flight: vec![window.start - 50 * MS], schedule }, window.end);
        let report = recorder.schedule(1000.0).unwrap();
        assert_eq!((report.due, report.sent, report.over_capacity), (100, 0, true));
        assert_eq!((report.behind_secs_at_start, report.behind_secs_at_end), (0.050, 0.150));
    }
}
