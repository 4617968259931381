//! What was counted in the window of a run: counts, sums and histograms, never the requests themselves.
//!
//! Its size does not depend on the run's length, but for the keys that a checked run could not read. Tallies of several threads or processes add up to what one would have counted.

use super::fault::Fault;
use super::mix::Operation;
use super::plan::Kind;
use super::samples::Samples;
use super::status_counts::StatusCounts;
use super::target::Target;
use kv::proto::{Bucket, FailureExample, Latency, OperationReport, ScheduleReport, ServerReport};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// An age says of a latency only that it is longer. Nearly all requests that end the window in a server that answers are younger than this
/// share of the latencies is long, so that those that are older tell of one that does not.
const UNFINISHED_QUANTILE: f64 = 0.95;

/// Less than this may be a pause.
pub(super) const STALLED: Duration = Duration::from_secs(1);

/// What was counted in the window of a run.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Tally {
    /// How long the window was.
    pub(super) window: Duration,
    pub(super) threads: u32,
    /// Processor time in the window.
    pub(super) cpu: Duration,
    /// Time in the window that threads were ready to run and had no core; `None` where the kernel does not say.
    pub(super) run_delay: Option<Duration>,
    /// Successes, by the place of their kind. No sample is recorded twice: all attempts are these and `failures`.
    pub(super) successes: Vec<Samples>,
    /// Attempts, by the same.
    pub(super) attempts: Vec<u64>,
    pub(super) statuses: StatusCounts,
    pub(super) failures: Samples,
    /// By `fault as usize`.
    pub(super) faults: [u64; Fault::ALL.len()],
    /// One of each class.
    pub(super) examples: Vec<FailureExample>,
    /// By the places of the servers.
    pub(super) servers: Vec<ServerTally>,
    pub(super) absent: u64,
    /// Reads whose value was compared as a whole.
    pub(super) verified: u64,
    /// Connections that these attempts began.
    pub(super) connects: u64,
    /// How long it took to make those that were made.
    pub(super) connecting: Samples,
    /// The latency, in an open loop from the send: of attempts whose answer did not come as a whole, or not at all. The others had their first byte
    /// when they were over, so that nothing more is recorded of them.
    pub(super) in_parts: Samples,
    /// To the first byte, from where that begins: of those among them that had an answer.
    pub(super) first_byte: Samples,
    pub(super) backoff: Duration,
    pub(super) think: Duration,
    /// The number of requests in flight times how long it was so.
    pub(super) in_flight_secs: f64,
    /// Clients of a closed loop that asked from before the window to its end without an answer.
    pub(super) never_answered: u64,
    /// Of the others that asked when it ended, and of all in an open loop: for how long they had had no answer.
    pub(super) asking: Samples,
    /// The longest time that a client asked in vain before it had an answer after all.
    pub(super) longest_asked: Duration,
    /// Of the requests in flight at the window's end the part in it, and what passed of it before a client began, less the
    /// part before it of the requests that are counted.
    pub(super) edge_secs: f64,
    /// Keys of a checked run that were written and could not be read at its end.
    pub(super) unread: BTreeSet<u64>,
    /// Of an open loop.
    pub(super) open: Option<Open>,
}

/// What was seen of a server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ServerTally {
    pub(super) attempts: u64,
    pub(super) successes: u64,
    /// How long after the window's start the last request ended, the last one succeeded, and the last connection failed.
    pub(super) last_end: Option<Duration>,
    pub(super) last_success: Option<Duration>,
    pub(super) last_connection_fault: Option<Duration>,
    pub(super) in_flight_at_end: u64,
    /// How long before the window's end the first of them was sent.
    pub(super) oldest_in_flight: Duration,
}

/// How the schedule of an open loop was kept.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Open {
    pub(super) service: Samples,
    /// The ages of the requests that were due and had not ended when the window did.
    pub(super) unfinished: Samples,
    pub(super) send_lag: Samples,
    pub(super) due: u64,
    pub(super) sent: u64,
    pub(super) waited: u64,
    pub(super) waited_time: Duration,
    /// Until the first request of the window is sent, nothing is known.
    pub(super) behind_at_start: Option<Duration>,
    pub(super) behind_at_end: Duration,
}

impl Tally {
    /// Nothing yet, of an `open` loop or a closed one, with counts for so many kinds of requests and so many servers.
    pub(super) fn new(open: bool, kinds: usize, servers: usize) -> Tally {
        Tally {
            run_delay: Some(Duration::ZERO),
            open: open.then(Open::default),
            successes: vec![Samples::default(); kinds],
            attempts: vec![0; kinds],
            servers: vec![ServerTally::default(); servers],
            ..Tally::default()
        }
    }

    /// Adds what another thread or process counted in the same window.
    pub(super) fn add(&mut self, other: &Tally) {
        self.window = self.window.max(other.window);
        self.threads += other.threads;
        self.cpu += other.cpu;
        self.run_delay = self.run_delay.zip(other.run_delay).map(|(all, own)| all + own);
        for (mine, theirs) in self.successes.iter_mut().zip(&other.successes) {
            mine.add(theirs);
        }
        self.failures.add(&other.failures);
        let add = |(mine, theirs): (&mut u64, &u64)| *mine += theirs;
        self.attempts.iter_mut().zip(&other.attempts).for_each(add);
        self.faults.iter_mut().zip(&other.faults).for_each(add);
        self.statuses.add(&other.statuses);
        for example in &other.examples {
            self.keep_example(&example.class, || example.clone());
        }
        self.servers.iter_mut().zip(&other.servers).for_each(|(mine, theirs)| mine.add(theirs));
        self.absent += other.absent;
        self.verified += other.verified;
        self.connects += other.connects;
        self.connecting.add(&other.connecting);
        self.in_parts.add(&other.in_parts);
        self.first_byte.add(&other.first_byte);
        self.backoff += other.backoff;
        self.think += other.think;
        self.in_flight_secs += other.in_flight_secs;
        self.never_answered += other.never_answered;
        self.asking.add(&other.asking);
        self.longest_asked = self.longest_asked.max(other.longest_asked);
        self.edge_secs += other.edge_secs;
        self.unread.extend(&other.unread);
        if let (Some(mine), Some(theirs)) = (&mut self.open, &other.open) {
            mine.add(theirs);
        }
    }

    /// Keeps a request that failed, if it is the first of its class.
    pub(super) fn keep_example(&mut self, class: &str, example: impl FnOnce() -> FailureExample) {
        if !self.examples.iter().any(|known| known.class == class) {
            self.examples.push(FailureExample { class: class.to_owned(), ..example() });
        }
    }

    pub(super) fn attempts(&self) -> u64 {
        self.attempts.iter().sum()
    }

    pub(super) fn successes(&self) -> u64 {
        self.successes.iter().map(|samples| samples.histogram.len()).sum()
    }

    /// The mean number of requests in flight.
    pub(super) fn in_flight_mean(&self) -> f64 {
        self.in_flight_secs / self.window.as_secs_f64()
    }

    /// How the schedule of an open loop was kept.
    pub(super) fn schedule(&self, offered_rps: f64) -> Option<ScheduleReport> {
        let open = self.open.as_ref()?;
        let behind_at_start = open.behind_at_start.unwrap_or_default();
        // A short stall makes many wait and loses few; with too much on offer most wait, or many are never sent.
        let (launched, unsent) = (open.send_lag.histogram.len(), open.due - open.sent);
        let over_capacity =
            unsent * 100 > open.due && (open.waited * 2 >= launched || unsent * 10 >= open.due);
        Some(ScheduleReport {
            offered_rps,
            due: open.due,
            sent: open.sent,
            unfinished: self.all().histogram.len() - self.attempts(),
            send_lag: open.send_lag.summary(),
            waited: open.waited,
            waited_secs: open.waited_time.as_secs_f64(),
            behind_secs_at_start: behind_at_start.as_secs_f64(),
            behind_secs_at_end: open.behind_at_end.as_secs_f64(),
            over_capacity,
        })
    }

    /// The histograms behind the latencies, by name.
    pub(super) fn histograms(&self, kinds: &[Kind]) -> BTreeMap<String, Vec<Bucket>> {
        let own = kinds.iter().map(|kind| (kind.name.clone(), self.successes[kind.place].buckets()));
        let mut all: BTreeMap<_, _> = own.collect();
        all.insert("all".to_owned(), self.all().buckets());
        if let Some(open) = &self.open {
            all.insert("service".to_owned(), open.service.buckets());
            all.insert("send_lag".to_owned(), open.send_lag.buckets());
        }
        all
    }

    /// Of all attempts, and in an open loop of what should have ended.
    pub(super) fn latency(&self) -> Latency {
        self.all().summary()
    }

    /// To the first byte from where a latency begins, in an open loop from the send; of all attempts that had an answer.
    pub(super) fn first_byte(&self) -> Latency {
        let mut samples = self.open.as_ref().map_or_else(|| self.all(), |open| open.service.clone());
        samples.subtract(&self.in_parts);
        samples.add(&self.first_byte);
        samples.summary()
    }

    fn all(&self) -> Samples {
        let mut all = self.ended();
        if let Some(open) = &self.open {
            all.add_longer(&open.unfinished, UNFINISHED_QUANTILE);
        }
        all
    }

    /// Of all attempts.
    fn ended(&self) -> Samples {
        let mut ended = Samples::default();
        for samples in self.successes.iter().chain([&self.failures]) {
            ended.add(samples);
        }
        ended
    }

    pub(super) fn in_flight_at_end(&self) -> u64 {
        self.servers.iter().map(|server| server.in_flight_at_end).sum()
    }

    /// Clients of a closed loop that were left without an answer: they had none in the window, or none for a second at its end (in a short
    /// window half of it) and more than twice as long as any of them had to wait for one before. In an open loop, such requests.
    pub(super) fn unanswered(&self) -> u64 {
        let before = self.longest().max(self.longest_asked);
        let least = (self.window / 2).clamp(STALLED / 2, STALLED);
        self.never_answered + self.asking.longer_than(least.max(2 * before))
    }

    /// The share of failures; in an open loop those left without an answer are among them.
    pub(super) fn error_ratio(&self) -> f64 {
        let unanswered = if self.open.is_some() { self.unanswered() } else { 0 };
        let all = self.attempts() + unanswered;
        if all == 0 { 0.0 } else { (all - self.successes()) as f64 / all as f64 }
    }

    /// The longest time from the send of a request to its end.
    fn longest(&self) -> Duration {
        self.open.as_ref().map_or_else(|| self.ended().longest(), |open| open.service.longest())
    }

    /// How long no request to `server` had ended when the window did, as long as one was in flight, if none took half as long.
    pub(super) fn stalled(&self, server: &ServerTally) -> Option<Duration> {
        let longest = self.longest();
        let since_last = server.last_end.map(|at| self.window.saturating_sub(at));
        since_last.map(|since| since.min(server.oldest_in_flight)).filter(|stalled| *stalled > 2 * longest)
    }

    /// A report on each of the servers with these URLs.
    pub(super) fn server_reports(&self, urls: &[Target]) -> Vec<ServerReport> {
        let ago = |at: Option<Duration>| at.map(|at| self.window.saturating_sub(at).as_secs_f64());
        let report = |(url, server): (&Target, &ServerTally)| ServerReport {
            url: url.to_string(),
            attempts: server.attempts,
            successes: server.successes,
            in_flight_at_end: server.in_flight_at_end,
            stalled_secs: self.stalled(server).map(|time| time.as_secs_f64()),
            last_success_secs: ago(server.last_success),
            last_connection_fault_secs: ago(server.last_connection_fault),
        };
        urls.iter().zip(&self.servers).map(report).collect()
    }

    /// A report on each of `kinds`.
    pub(super) fn operations(&self, kinds: &[Kind]) -> Vec<OperationReport> {
        let report = |kind: &Kind| {
            let latency = self.successes[kind.place].summary();
            OperationReport {
                operation: kind.name.clone(),
                attempts: self.attempts[kind.place],
                successes: latency.count,
                absent: if kind.name == Operation::Get.name() { self.absent } else { 0 },
                latency,
            }
        };
        kinds.iter().map(report).collect()
    }

    /// The failures by class, those that happened.
    pub(super) fn errors(&self) -> BTreeMap<String, u64> {
        let counted = Fault::ALL.into_iter().zip(self.faults).filter(|(_, count)| *count > 0);
        counted.map(|(fault, count)| (fault.name().to_owned(), count)).collect()
    }
}

impl ServerTally {
    fn add(&mut self, other: &ServerTally) {
        self.attempts += other.attempts;
        self.successes += other.successes;
        self.last_end = self.last_end.max(other.last_end);
        self.last_success = self.last_success.max(other.last_success);
        self.last_connection_fault = self.last_connection_fault.max(other.last_connection_fault);
        self.in_flight_at_end += other.in_flight_at_end;
        self.oldest_in_flight = self.oldest_in_flight.max(other.oldest_in_flight);
    }
}

impl Open {
    fn add(&mut self, other: &Open) {
        self.service.add(&other.service);
        self.unfinished.add(&other.unfinished);
        self.send_lag.add(&other.send_lag);
        self.due += other.due;
        self.sent += other.sent;
        self.waited += other.waited;
        self.waited_time += other.waited_time;
        self.behind_at_start = self.behind_at_start.max(other.behind_at_start);
        self.behind_at_end = self.behind_at_end.max(other.behind_at_end);
    }
}
