//! Counts what happens in the window of a run.
//!
//! Reads no clock: every instant is a parameter.

use super::Plan;
use super::answer::Success;
use super::attempt::{Attempt, Connection, Unfinished};
use super::client::State;
use super::seconds::Current;
use super::tally::Tally;
use std::time::{Duration, Instant};

/// The measured part of a run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Window {
    pub(super) start: Instant,
    pub(super) end: Instant,
}

impl Window {
    /// Of a run of `plan` that began at `begin`.
    pub(super) fn of(plan: &Plan, begin: Instant) -> Window {
        let start = begin + plan.warmup;
        Window { start, end: start + plan.window }
    }

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
    /// Its end may be moved to an instant behind which nothing was counted yet.
    pub(super) window: Window,
    pub(super) tally: Tally,
    /// Until when requests in flight are counted.
    in_flight_until: Instant,
    pub(super) current: Current,
}

impl Recorder {
    /// Into `tally`, from `begun` on. Completions are also counted in bins of this length.
    pub(super) fn new(window: Window, begun: Instant, bin: Duration, tally: Tally) -> Recorder {
        Recorder { window, tally, in_flight_until: begun, current: Current::new(window.start, begun, bin) }
    }

    /// Counts `attempt` if it was over in the window, with its whole latency even if it began before.
    pub(super) fn record(&mut self, attempt: &Attempt) {
        let latency_ns = attempt.until.duration_since(attempt.since).as_nanos() as u64;
        // The head of an answer of which the rest never came is no answer.
        let status = if attempt.is_complete { attempt.status } else { 0 };
        self.current.record(attempt.until, latency_ns, attempt.result.is_ok(), status);
        if !self.window.holds(attempt.until) {
            self.cut_off(attempt.server, [attempt.since, attempt.sent], attempt.until);
            if attempt.is_answered() {
                self.asked(attempt.sent, attempt.until);
            }
            return;
        }
        let server = &mut self.tally.servers[attempt.server];
        let at = Some(attempt.until.duration_since(self.window.start));
        server.attempts += 1;
        server.last_end = at;
        self.tally.attempts[attempt.kind] += 1;
        self.tally.statuses.count(status, 1);
        match attempt.result {
            Ok(success) => {
                server.successes += 1;
                server.last_success = at;
                self.tally.successes[attempt.kind].record(latency_ns);
                self.tally.absent += u64::from(success == Success::Absent);
            }
            Err(fault) => {
                self.tally.failures.record(latency_ns);
                self.tally.faults[fault as usize] += 1;
                if fault.is_of_connection() {
                    server.last_connection_fault = at;
                }
            }
        }
        self.tally.verified += u64::from(attempt.verified);
        self.tally.connects += u64::from(attempt.connection != Connection::Kept);
        if let Connection::Made(time) = attempt.connection {
            self.tally.connecting.record(time.as_nanos() as u64);
        }
        if attempt.first_byte.is_some() || attempt.status == 0 {
            self.record_parts(attempt);
        }
        let begun = self.begun([attempt.since, attempt.sent]);
        if begun < self.window.start {
            self.tally.edge_secs -= self.window.start.duration_since(begun).as_secs_f64();
        }
        if let Some(open) = &mut self.tally.open {
            open.service.record(attempt.until.duration_since(attempt.sent).as_nanos() as u64);
        }
    }

    /// Counts an attempt whose first byte came before its end, or never.
    #[cold]
    fn record_parts(&mut self, attempt: &Attempt) {
        let begun = self.begun([attempt.since, attempt.sent]);
        self.tally.in_parts.record(attempt.until.duration_since(begun).as_nanos() as u64);
        if let Some(first_byte) = attempt.first_byte.filter(|_| attempt.status != 0) {
            self.tally.first_byte.record(first_byte.duration_since(begun).as_nanos() as u64);
        }
    }

    /// Counts a request to `server` that was due at the first of these instants, sent at the second, and under way until `until`,
    /// if the window ended meanwhile.
    fn cut_off(&mut self, server: usize, [due, sent]: [Instant; 2], until: Instant) {
        let Window { start, end } = self.window;
        if until >= end {
            self.unfinished(due, 1);
        }
        let begun = self.begun([due, sent]);
        if begun < end && until >= end {
            let server = &mut self.tally.servers[server];
            server.in_flight_at_end += 1;
            server.oldest_in_flight = server.oldest_in_flight.max(end.saturating_duration_since(sent));
            self.tally.edge_secs += end.duration_since(begun.max(start)).as_secs_f64();
        }
    }

    /// From when on a request is in the population of Little's law, of when it was due and sent.
    fn begun(&self, [due, sent]: [Instant; 2]) -> Instant {
        if self.tally.open.is_some() { sent } else { due }
    }

    /// Counts a client, or a request of an open loop, that had no answer from `since` until `until`, if the window ended meanwhile.
    fn asked(&mut self, since: Instant, until: Instant) {
        let Window { start, end } = self.window;
        if until < end || since >= end {
            return;
        }
        // Where requests of an open loop take longer than the window, this is no wonder.
        if since < start && self.tally.open.is_none() {
            self.tally.never_answered += 1;
        } else {
            self.tally.asking.record((end - since).as_nanos() as u64);
        }
    }

    /// Counts a client that had its first answer since then at `until`.
    pub(super) fn answered_at_last(&mut self, since: Instant, until: Instant) {
        if self.window.holds(until) {
            self.tally.longest_asked = self.tally.longest_asked.max(until - since);
        }
    }

    /// Counts requests of an open loop that were due then and had not ended when the window did.
    fn unfinished(&mut self, due: Instant, count: u64) {
        if let Some(open) = self.tally.open.as_mut().filter(|_| due < self.window.end) {
            open.unfinished.record_n((self.window.end - due).as_nanos() as u64, count);
        }
    }

    /// Counts what a client did instead of a request, as far as it lies in the window.
    pub(super) fn waited(&mut self, state: State, since: Instant, until: Instant) {
        let time = self.window.overlap(since, until);
        match state {
            State::BackingOff => self.tally.backoff += time,
            State::Thinking => self.tally.think += time,
            // A client of a closed loop that had not begun.
            State::Starting if self.tally.open.is_none() => self.tally.edge_secs += time.as_secs_f64(),
            _ => {}
        }
    }

    /// This many requests were in flight from the last call until `now`.
    pub(super) fn in_flight(&mut self, now: Instant, requests: u32) {
        let time = self.window.overlap(self.in_flight_until, now);
        self.tally.in_flight_secs += f64::from(requests) * time.as_secs_f64();
        self.in_flight_until = now;
    }

    /// Counts a request of an open loop that was due at `intended` and is `sent` over a connection that was free since `free_since`.
    pub(super) fn launched(&mut self, intended: Instant, free_since: Instant, sent: Instant) {
        let Some(open) = &mut self.tally.open else { return };
        self.current.launched(sent);
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
        open.send_lag.record(sent.duration_since(intended.max(free_since)).as_nanos() as u64);
        let waited = free_since.saturating_duration_since(intended);
        open.waited += u64::from(!waited.is_zero());
        open.waited_time += waited;
    }

    /// Counts what was left when the run had ended at `until`, with its window or after it.
    pub(super) fn ended(&mut self, left: Unfinished, until: Instant) {
        let Window { start, end } = self.window;
        let Unfinished { in_flight, asking, schedule } = left;
        for (server, times) in in_flight {
            self.cut_off(server, times, until);
        }
        for since in asking {
            self.asked(since, until);
        }
        if let Some(open) = &mut self.tally.open {
            let next = schedule.first_at();
            open.behind_at_end = next.map_or(Duration::ZERO, |next| end.saturating_duration_since(next));
            // Nothing was sent in the window: what was due first is due still.
            let behind = next.map_or(Duration::ZERO, |next| start.saturating_duration_since(next));
            open.behind_at_start.get_or_insert(behind);
        }
        schedule.untaken(end, |due, count| {
            self.unfinished(due, count);
            if let Some(open) = self.tally.open.as_mut().filter(|_| due >= start) {
                open.due += count;
            }
        });
    }

    /// What was counted in the window, by one thread.
    pub(super) fn into_tally(self) -> Tally {
        Tally { window: self.window.length(), threads: 1, ..self.tally }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fault::Fault;
    use crate::mix::Operation;
    use crate::pacing::Pacing;
    use crate::plan::Kind;
    use crate::schedule::{Schedule, clocks};
    use crate::seconds::SECOND;
    use kv::proto::Latency;
    use kv::units::Rate;
    use std::collections::BTreeMap;

    const MS: Duration = Duration::from_millis(1);

    fn window(length: Duration) -> Window {
        let start = Instant::now() + Duration::from_secs(60);
        Window { start, end: start + length }
    }

    fn attempt(result: Result<Success, Fault>, since: Instant, until: Instant) -> Attempt {
        let connection = Connection::Kept;
        Attempt {
            kind: 0,
            server: 0,
            result,
            status: 200,
            is_complete: true,
            since,
            sent: since,
            first_byte: None,
            until,
            connection,
            verified: false,
        }
    }

    /// Nothing yet, of one server.
    fn empty(open: bool) -> Tally {
        Tally::new(open, Operation::ALL.len(), 1)
    }

    fn left(in_flight: &[(usize, [Instant; 2])], schedule: Schedule) -> Unfinished {
        let asking = in_flight.iter().map(|(_, [_, sent])| *sent).collect();
        Unfinished { in_flight: in_flight.to_vec(), asking, schedule }
    }

    fn closed(window: Window) -> Recorder {
        Recorder::new(window, window.start, SECOND, empty(false))
    }

    /// Latencies in, a summary out.
    fn check(latencies_us: impl Iterator<Item = u64>) -> Latency {
        let window = window(MS);
        let mut recorder = closed(window);
        for us in latencies_us {
            let since = window.start.checked_sub(Duration::from_micros(us)).unwrap_or(window.start);
            recorder.record(&attempt(Ok(Success::Done), since, since + Duration::from_micros(us)));
        }
        recorder.tally.latency()
    }

    #[test]
    fn percentiles_are_right_to_three_digits_and_the_mean_exactly() {
        let latency = check(1..=10_000);
        assert_eq!((latency.count, latency.us_mean), (10_000, 5000.5));
        assert_eq!((latency.us_min, latency.us_max, latency.clipped), (1.0, 10_000.0, 0));
        for (found, right) in [
            (latency.us_p50, 5000.0),
            (latency.us_p90, 9000.0),
            (latency.us_p99, 9900.0),
            (latency.us_p999, 9990.0),
        ] {
            assert!((found - right).abs() <= 0.001 * right, "{found} for {right}");
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
        assert_eq!((recorder.tally.attempts(), recorder.tally.latency().us_mean), (2, 5000.0));
    }

    #[test]
    fn rests_count_as_far_as_they_lie_in_the_window() {
        let window = window(10 * MS);
        let mut recorder = closed(window);
        recorder.waited(State::BackingOff, window.start - 5 * MS, window.start - MS);
        recorder.waited(State::BackingOff, window.start - 5 * MS, window.start + MS);
        recorder.waited(State::BackingOff, window.start + 2 * MS, window.start + 4 * MS);
        recorder.waited(State::BackingOff, window.end - MS, window.end + MS);
        recorder.waited(State::BackingOff, window.end, window.end + MS);
        assert_eq!(recorder.tally.backoff, 4 * MS);
    }

    #[test]
    fn failures_are_attempts_by_class_and_never_successes() {
        let window = window(10 * MS);
        let mut recorder = closed(window);
        for result in [Ok(Success::Done), Ok(Success::Absent), Err(Fault::Reset), Err(Fault::Http5xx)] {
            recorder.record(&attempt(result, window.start, window.start + MS));
        }
        let tally = recorder.into_tally();
        let mut sum = empty(false);
        sum.add(&tally);
        sum.add(&tally);
        assert_eq!((sum.attempts(), sum.successes(), sum.latency().count), (8, 4, 8));
        let get = &sum.operations(&[Kind { place: 0, name: "get".into(), share: 1.0 }])[0];
        assert_eq!((get.attempts, get.successes, get.absent, get.latency.count), (8, 4, 2, 4));
        assert_eq!(sum.errors(), BTreeMap::from([("reset".into(), 2), ("http_5xx".into(), 2)]));
    }

    #[test]
    fn the_status_of_an_answer_that_never_came_as_a_whole_is_not_counted() {
        let window = window(10 * MS);
        let mut recorder = closed(window);
        let over = |result| attempt(result, window.start, window.start + MS);
        recorder.record(&over(Err(Fault::WrongValue)));
        for fault in [Fault::SlowBody, Fault::ClosedEarly, Fault::Reset, Fault::StreamReset] {
            recorder.record(&Attempt { is_complete: false, ..over(Err(fault)) });
        }
        let tally = recorder.into_tally();
        assert_eq!((tally.statuses.report(), tally.attempts()), (BTreeMap::from([("200".into(), 1)]), 5));
    }

    #[test]
    fn the_time_of_requests_at_the_edges_is_accounted_for() {
        let window = window(100 * MS);
        let mut recorder = closed(window);
        recorder.waited(State::Starting, window.start - MS, window.start);
        let (start, end) = (window.start, window.end);
        recorder.record(&attempt(Ok(Success::Done), start - 7 * MS, start + 3 * MS));
        recorder.record(&attempt(Ok(Success::Done), start + 3 * MS, start + 95 * MS));
        recorder.record(&attempt(Ok(Success::Done), start + 95 * MS, end + MS));
        let in_flight = [(0, [start - 200 * MS; 2]), (0, [end + MS; 2])];
        recorder.ended(left(&in_flight, Schedule::none()), end + 2 * MS);
        let latencies = recorder.tally.latency().us_mean * recorder.tally.attempts() as f64 / 1e6;
        assert!((latencies + recorder.tally.edge_secs - 0.2).abs() < 1e-9, "two clients for 100 ms");
        let tally = recorder.tally;
        assert_eq!((tally.attempts(), tally.servers[0].in_flight_at_end, tally.unanswered()), (2, 2, 1));
    }

    #[test]
    fn the_first_byte_of_an_answer_comes_with_it_or_before_it_or_never() {
        let window = window(1000 * MS);
        let mut recorder = closed(window);
        let at = |ms: u32| window.start + ms * MS;
        let whole = attempt(Ok(Success::Done), at(0), at(10));
        let in_parts = Attempt { first_byte: Some(at(30)), ..attempt(Ok(Success::Done), at(10), at(110)) };
        let never = Attempt { status: 0, ..attempt(Err(Fault::Timeout), at(110), at(510)) };
        [whole, in_parts, never].iter().for_each(|attempt| recorder.record(attempt));
        let mut tally = empty(false);
        tally.add(&recorder.into_tally());
        let Latency { count, us_mean, us_p50, us_max, .. } = tally.first_byte();
        assert_eq!((count, us_mean), (2, 15_000.0));
        assert!((us_p50 - 10_000.0).abs() < 10.0 && (us_max - 20_000.0).abs() < 20.0, "{us_p50} {us_max}");
        assert_eq!(tally.latency().count, 3);
    }

    /// The run ended without a report: these two did not begin at the same instant.
    #[test]
    fn the_first_byte_after_a_thought_counts_from_where_its_latency_does() {
        let window = window(1000 * MS);
        let mut recorder = closed(window);
        let at = |ms: u32| window.start + ms * MS;
        let in_parts = attempt(Ok(Success::Done), at(0), at(100));
        recorder.record(&Attempt { sent: at(40), first_byte: Some(at(90)), ..in_parts });
        let tally = recorder.into_tally();
        assert_eq!((tally.latency().us_max, tally.first_byte().us_max), (100_000.0, 90_000.0));
    }

    #[test]
    fn requests_in_flight_are_counted_over_the_window_only() {
        let window = window(100 * MS);
        let mut recorder = Recorder::new(window, window.start - 50 * MS, SECOND, empty(false));
        recorder.in_flight(window.start - 10 * MS, 0);
        recorder.in_flight(window.start + 50 * MS, 1);
        recorder.in_flight(window.start + 50 * MS, 3);
        recorder.in_flight(window.start + 75 * MS, 2);
        recorder.in_flight(window.end + 25 * MS, 4);
        let mean = recorder.into_tally().in_flight_mean();
        assert!((mean - 2.0).abs() < 1e-9, "{mean}");
    }

    #[test]
    fn lateness_is_the_generators_and_waiting_is_the_connections() {
        let window = window(100 * MS);
        let mut recorder = Recorder::new(window, window.start, SECOND, empty(true));
        let at = |ms: u32| window.start + ms * MS;
        let mut launch = |intended, free_since, sent| recorder.launched(intended, free_since, sent);
        // Was due before the window, sent in it; then one in time, one late, one that had to wait.
        launch(window.start - 20 * MS, at(0), at(1));
        launch(at(10), at(5), at(10));
        launch(at(20), at(5), at(23));
        launch(at(30), at(70), at(70));
        // Was due in the window, and sent only when that had ended.
        launch(at(89), at(5), at(101));
        // Its end is the first instant that is not in it.
        launch(at(100), at(5), at(102));
        let pacing = Pacing { rate: Some(Rate(1000.0)), ..Pacing::default() };
        let mut schedule = Schedule::new(pacing, clocks(1, 1), 1, window.start);
        for _ in 0..90 {
            schedule.take(0);
        }
        recorder.ended(left(&[], schedule), window.end);
        let report = recorder.tally.schedule(1000.0).unwrap();
        assert_eq!((report.due, report.sent), (3 + 10 + 1, 3), "eleven were not sent in it");
        assert_eq!((report.send_lag.count, report.send_lag.us_max), (4, 3000.0));
        assert_eq!((report.waited, report.waited_secs), (2, 0.060));
        assert_eq!((report.behind_secs_at_start, report.behind_secs_at_end), (0.020, 0.010));
        assert!(report.over_capacity, "eleven of fourteen");
    }

    #[test]
    fn what_has_not_ended_with_the_window_is_in_the_latencies_of_an_open_loop_by_its_age() {
        let window = window(1000 * MS);
        let at = |ms: u32| window.start + ms * MS;
        // A request each millisecond; the server stops after `answered` of them, with one in flight.
        let stopped = |answered: u32| {
            let mut recorder = Recorder::new(window, window.start, SECOND, empty(true));
            let pacing = Pacing { rate: Some(Rate(1000.0)), ..Pacing::default() };
            let mut schedule = Schedule::new(pacing, clocks(1, 1), 1, window.start);
            for ms in 0..=answered {
                schedule.take(0);
                recorder.launched(at(ms), at(ms), at(ms));
                if ms < answered {
                    recorder.record(&attempt(Ok(Success::Done), at(ms), at(ms) + MS / 2));
                }
            }
            recorder.ended(left(&[(0, [at(answered); 2])], schedule), window.end);
            let mut tally = empty(true);
            tally.add(&recorder.into_tally());
            tally
        };
        let tally = stopped(600);
        let (latency, schedule) = (tally.latency(), tally.schedule(1000.0).unwrap());
        assert_eq!((latency.count, schedule.unfinished, tally.attempts()), (1000, 400, 600));
        for (us, ms) in [(latency.us_p50, 0.5), (latency.us_p90, 300.0), (latency.us_p99, 390.0)] {
            assert!((us / 1e3 / ms - 1.0).abs() < 0.005, "{us} µs, not {ms} ms");
        }
        assert_eq!((stalled(&tally), schedule.over_capacity), (Some(at(1000) - at(600)), true));
        // At a normal end one is in flight, for no longer than a latency: nothing is known of it.
        let tally = stopped(999);
        let mut recorder = Recorder::new(window, window.start, SECOND, empty(true));
        recorder.record(&attempt(Ok(Success::Done), at(990), at(998)));
        recorder.ended(left(&[(0, [at(995); 2])], Schedule::none()), window.end);
        let schedule = recorder.tally.schedule(1000.0).unwrap();
        assert_eq!((schedule.unfinished, recorder.tally.latency().count), (0, 1));
        assert_eq!(stalled(&recorder.into_tally()), None);
        // One in a thousand is.
        assert_eq!((tally.latency().count, tally.schedule(1000.0).unwrap().over_capacity), (1000, false));
    }

    #[test]
    fn a_client_that_waits_longer_than_any_before_is_left_without_an_answer() {
        let window = window(10_000 * MS);
        let at = |ms: u32| window.start + ms * MS;
        let check = |longest: u32, in_vain: Option<u32>, asking: &[u32]| {
            let mut recorder = closed(window);
            recorder.record(&attempt(Ok(Success::Done), at(5000 - longest), at(5000)));
            // Timeouts, and then an answer.
            if let Some(ms) = in_vain {
                recorder.answered_at_last(at(5000) - ms * MS, at(5000));
            }
            let asking = asking.iter().map(|ms| window.end - *ms * MS).collect();
            let (in_flight, schedule) = (Vec::new(), Schedule::none());
            recorder.ended(Unfinished { in_flight, asking, schedule }, window.end);
            let mut tally = empty(false);
            tally.add(&recorder.into_tally());
            tally.unanswered()
        };
        assert_eq!(check(10, None, &[900, 1100, 4000]), 2);
        // Requests may take that long.
        assert_eq!(check(2000, None, &[3900, 4100]), 1);
        assert_eq!(check(10, Some(2000), &[3900, 4100]), 1);
        // It had none in the whole window.
        assert_eq!(check(10, Some(9000), &[10_001]), 1);
    }

    /// Of the only server.
    fn stalled(tally: &Tally) -> Option<Duration> {
        tally.stalled(&tally.servers[0])
    }

    #[test]
    fn only_a_request_that_takes_longer_than_all_before_tells_of_a_stall() {
        let window = window(1000 * MS);
        let at = |ms: u32| window.start + ms * MS;
        let check = |longest: u32, in_flight: &[Instant]| {
            let mut recorder = closed(window);
            recorder.record(&attempt(Ok(Success::Done), at(500 - longest), at(500)));
            let in_flight: Vec<_> = in_flight.iter().map(|sent| (0, [*sent; 2])).collect();
            recorder.ended(left(&in_flight, Schedule::none()), window.end);
            stalled(&recorder.into_tally())
        };
        assert_eq!(check(10, &[at(500)]), Some(500 * MS));
        assert_eq!(check(10, &[at(600), at(700)]), Some(400 * MS), "it thought before");
        assert_eq!(check(450, &[at(600)]), None);
        assert_eq!(check(10, &[]), None);
    }

    #[test]
    fn each_server_has_its_own_last_answer() {
        let window = window(1000 * MS);
        let at = |ms: u32| window.start + ms * MS;
        let mut recorder = Recorder::new(window, window.start, SECOND, Tally::new(false, 1, 2));
        for (server, result, ms) in
            [(0, Ok(Success::Done), 300), (1, Err(Fault::Refused), 600), (0, Err(Fault::Http5xx), 900)]
        {
            recorder.record(&Attempt { server, ..attempt(result, at(ms), at(ms) + MS) });
        }
        recorder.ended(left(&[(1, [at(700); 2])], Schedule::none()), window.end);
        let mut both = Tally::new(false, 1, 2);
        both.add(&recorder.into_tally());
        let [first, second] = &both.servers[..] else { panic!("{both:?}") };
        assert_eq!((first.attempts, first.successes, first.in_flight_at_end), (2, 1, 0));
        assert_eq!((second.attempts, second.successes, second.in_flight_at_end), (1, 0, 1));
        let urls = ["http://a", "http://b"].map(|url| url.parse().unwrap());
        let [one, two] = &both.server_reports(&urls)[..] else { panic!("{both:?}") };
        assert_eq!((one.last_success_secs, one.last_connection_fault_secs), (Some(0.699), None));
        assert_eq!((two.last_success_secs, two.last_connection_fault_secs), (None, Some(0.399)));
        assert_eq!((both.stalled(first), both.stalled(second)), (None, Some(300 * MS)));
    }

    #[test]
    fn what_was_due_and_never_sent_is_more_than_the_target_takes() {
        let window = window(100 * MS);
        let mut recorder = Recorder::new(window, window.start - 50 * MS, SECOND, empty(true));
        let pacing = Pacing { rate: Some(Rate(1000.0)), ..Pacing::default() };
        let schedule = Schedule::new(pacing, clocks(1, 1), 1, window.start - 50 * MS);
        recorder.ended(left(&[(0, [window.start - 50 * MS; 2])], schedule), window.end);
        let report = recorder.tally.schedule(1000.0).unwrap();
        assert_eq!((report.due, report.sent, report.over_capacity), (100, 0, true));
        assert_eq!((report.behind_secs_at_start, report.behind_secs_at_end), (0.050, 0.150));
    }
}
