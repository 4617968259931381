//! The measured run: the threads with their shares of the clients, and the window over all of them.
//!
//! The window's instants are fixed before the first request, so every thread judges by its own clock reading whether
//! a completion counts, and none waits for another.

use super::answer::{Answer, Outcome};
use super::attempt::Attempt;
use super::client::ClientOptions;
use super::early_end::EarlyEnd;
use super::failure;
use super::fault::Fault;
use super::keys::{self, KeySpace, OperationStream};
use super::linearizability::{self, Call, Record, Value};
use super::reactor::{Driver, Reactor, start_delay};
use super::read_back::read_back;
use super::recorder::{Recorder, Window};
use super::request::{Request, Requests};
use super::schedule::{self, Schedule};
use super::seconds::{SECOND, Second, TimeSeries};
use super::staleness::{SharedHistory, StalenessChecker};
use super::stream::Endpoint;
use super::tally::Tally;
use super::{Connect, Observer, Plan, machine_error};
use kv::Error;
use kv::clock::thread_time;
use kv::proto::{FORMAT, LinearizabilityReport, LoadEvent, LoadReport};
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread stays after its window: the kernel drops its counters with it, and the lab reads them at the
/// end of the window.
const LINGER: Duration = Duration::from_millis(30);

/// Calls that one message has at most.
const CALLS_MAX: usize = 1000;

/// What a thread reports.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromThread {
    /// It is past this second, or this bin.
    Second(Second),
    /// Operations of its clients, where they are judged: some of all that there were.
    Calls(Vec<Call>),
    /// It has ended.
    Tally(Box<Tally>),
}

/// What threads report, by their numbers; `Err` is the end of one.
pub(super) type Messages = Receiver<(usize, std::io::Result<FromThread>)>;

/// Puts the load of `plan` on these servers and says what came back.
pub(super) fn measure(
    plan: &Plan,
    endpoints: &Arc<[Endpoint]>,
    early_end: &EarlyEnd,
    observer: Observer<'_>,
) -> Result<LoadReport, Error> {
    let clients = 0..plan.clients;
    run_threads(plan, &clients, endpoints, early_end, |begin, messages| {
        let mut collector = Collector::new(plan, begin, threads(plan, &clients));
        let failed = |error| machine_error(error, plan.connect);
        loop {
            let next_edge = collector.next_edge().unwrap_or_else(|| Instant::now() + SECOND);
            let received = messages.recv_timeout(next_edge.saturating_duration_since(Instant::now()));
            collector.window.end = early_end.get().unwrap_or(collector.window.end);
            // First, because an edge is to be reported at its instant.
            collector.report_edges(Instant::now(), observer);
            match received {
                Ok((thread, message)) => collector.add(thread, message.map_err(failed)?, observer),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(collector.finish(observer)),
            }
        }
    })
}

/// What the recorded calls of `plan` are judged to be, if they are to be judged.
fn linearizability(plan: &Plan, calls: Vec<Call>) -> Option<LinearizabilityReport> {
    let initial = |key| (key < plan.preload_keys()).then_some(Value::PRELOADED);
    let name = |key| format!("{}{key}", plan.workload().key_prefix);
    plan.check_for.map(|_| linearizability::check(calls, initial, name))
}

/// The warm-up of `plan`, in which all clients start, however many they are; without one they start in the window.
pub fn full_warmup(plan: &Plan) -> Duration {
    let threads = threads(plan, &(0..plan.clients));
    let last = start_delay((plan.clients - 1) as usize / threads as usize, threads);
    if plan.warmup.is_zero() { plan.warmup } else { plan.warmup.max(last) }
}

/// Nothing yet of a run of `plan`.
pub(super) fn tally_of(plan: &Plan) -> Tally {
    Tally::new(plan.pacing.is_open(), plan.kind_count(), plan.urls.len())
}

/// How many threads drive these clients.
pub(super) fn threads(plan: &Plan, clients: &Range<u32>) -> u32 {
    plan.threads.min(clients.len() as u32)
}

/// Carries out the part of `plan` that is of these clients, at least one. `collect` gets the instant at which it began, and takes what the
/// threads report until all have ended; where it fails, they are stopped.
pub(super) fn run_threads<R>(
    plan: &Plan,
    clients: &Range<u32>,
    endpoints: &Arc<[Endpoint]>,
    early_end: &EarlyEnd,
    collect: impl FnOnce(Instant, Messages) -> Result<R, Error>,
) -> Result<R, Error> {
    let threads = threads(plan, clients);
    let history = SharedHistory::new(plan.verify, clients);
    let space = &KeySpace::new(plan);
    let requests = &Requests::new(plan, plan.connect);
    let options = ClientOptions {
        endpoints: Arc::clone(endpoints),
        timeout: plan.timeout,
        connect: plan.connect,
        streams: plan.http2_streams(),
        threads,
        added_cpu: plan.added_cpu,
    };
    // In turns. Which thread a client falls to changes nothing of what it asks for.
    let mut shares = vec![(Vec::new(), Vec::new(), Vec::new()); threads as usize];
    let all =
        keys::streams(plan.seed, plan.clients).into_iter().zip(schedule::clocks(plan.seed, plan.clients));
    let (skipped, own) = (clients.start as usize, clients.len());
    for (client, (stream, mut clock)) in all.enumerate().skip(skipped).take(own) {
        let (streams, clocks, servers) = &mut shares[client % threads as usize];
        clock.server = client % endpoints.len();
        streams.push(stream);
        servers.push(clock.server);
        clocks.push(clock);
    }
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let window = Window::of(plan, begin);
    early_end.set_window(window);
    let (sender, messages) = mpsc::channel();
    thread::scope(|scope| {
        for (thread, (streams, clocks, servers)) in shares.into_iter().enumerate() {
            let numbers = streams.iter().map(OperationStream::client);
            let record = plan.check_for.map(|_| Record::default());
            let checker =
                history.as_ref().map(|history| StalenessChecker::new(history, requests, numbers, record));
            let driver = Measured {
                space,
                requests,
                checker,
                streams,
                recorder: Recorder::new(window, begin, plan.bin, tally_of(plan)),
                early_end,
                connect: plan.connect,
                is_open: plan.pacing.is_open(),
                at_start: None,
                thread,
                sender: sender.clone(),
                stop: &stop,
            };
            let schedule = Schedule::new(plan.pacing, clocks, plan.clients, begin);
            let (sender, options) = (sender.clone(), options.clone());
            scope.spawn(move || {
                let tally = work(driver, &servers, options, schedule, begin);
                // The receiver is gone only if another thread failed.
                let _ = sender.send((thread, tally.map(|tally| FromThread::Tally(Box::new(tally)))));
                thread::sleep(LINGER);
            });
        }
        // Now the channel ends with the last thread, even if one panics.
        drop(sender);
        let collected = collect(begin, messages);
        stop.store(true, Ordering::Relaxed);
        collected
    })
}

/// Adds up what threads report, be it here or in the workers, and reports the progress of all.
pub(super) struct Collector<'a> {
    plan: &'a Plan,
    pub(super) window: Window,
    /// How many edges of the window have been reported.
    edges: usize,
    series: TimeSeries,
    calls: Vec<Call>,
    total: Tally,
}

impl Collector<'_> {
    /// Of this many threads, which began to carry out `plan` at `begin`.
    pub(super) fn new(plan: &Plan, begin: Instant, threads: u32) -> Collector<'_> {
        Collector {
            plan,
            window: Window::of(plan, begin),
            edges: 0,
            series: TimeSeries::new(plan.bin, threads as usize, plan.evenly_offered()),
            calls: Vec::new(),
            total: tally_of(plan),
        }
    }

    /// When the next edge of the window is due.
    pub(super) fn next_edge(&self) -> Option<Instant> {
        [self.window.start, self.window.end].get(self.edges).copied()
    }

    /// Reports the edges of the window that are due, each once.
    pub(super) fn report_edges(&mut self, now: Instant, observer: Observer<'_>) {
        while self.next_edge().is_some_and(|edge| now >= edge) {
            observer(if self.edges == 0 { LoadEvent::WindowStart } else { LoadEvent::WindowEnd });
            self.edges += 1;
        }
    }

    /// Adds what a thread reports.
    pub(super) fn add(&mut self, thread: usize, message: FromThread, observer: Observer<'_>) {
        match message {
            FromThread::Tally(tally) => self.total.add(&tally),
            FromThread::Calls(mut calls) => self.calls.append(&mut calls),
            FromThread::Second(second) => self.series.add(thread, &second, self.window.length(), observer),
        }
    }

    /// What there is to say when all threads have ended.
    pub(super) fn finish(mut self, observer: Observer<'_>) -> LoadReport {
        self.report_edges(Instant::now().max(self.window.end), observer);
        let unread = self.total.unread.len() as u64;
        let linearizability = linearizability(self.plan, self.calls);
        let linearizability = linearizability.map(|of| LinearizabilityReport { unread, ..of });
        LoadReport { linearizability, ..report(self.plan, &self.total, self.series) }
    }
}

/// Runs one thread's share to the end of the window, and then reads what it wrote where that is checked.
fn work(
    mut driver: Measured<'_>,
    servers: &[usize],
    options: ClientOptions,
    schedule: Schedule,
    begin: Instant,
) -> std::io::Result<Tally> {
    let mut reactor = Reactor::new(servers, options.clone(), schedule)?;
    reactor.run(begin, &mut driver)?;
    let until = driver.recorder.window.end.max(Instant::now());
    driver.recorder.ended(reactor.into_unfinished(), until);
    let mut tally = driver.recorder.into_tally();
    if let Some(mut checker) = driver.checker {
        tally.unread = read_back(&mut checker, servers, options, driver.stop)?;
        for calls in checker.into_calls().chunks(CALLS_MAX) {
            // The receiver is gone only if another thread failed.
            let _ = driver.sender.send((driver.thread, Ok(FromThread::Calls(calls.to_vec()))));
        }
    }
    Ok(tally)
}

/// Asks what the streams say and records what is over in the window.
struct Measured<'a> {
    space: &'a KeySpace,
    requests: &'a Requests,
    /// Where values are verified.
    checker: Option<StalenessChecker<'a>>,
    /// Of this thread's clients.
    streams: Vec<OperationStream>,
    recorder: Recorder,
    early_end: &'a EarlyEnd,
    connect: Connect,
    /// Whether a stream's requests may overlap.
    is_open: bool,
    /// What the thread had used when the window began.
    at_start: Option<(Duration, Option<Duration>)>,
    /// Which of the threads this is.
    thread: usize,
    sender: mpsc::Sender<(usize, std::io::Result<FromThread>)>,
    stop: &'a AtomicBool,
}

impl Measured<'_> {
    /// Ends the window sooner if that was said. It has to be asked with every instant that comes, and before it is counted.
    #[inline]
    fn update_end(&mut self) {
        if let Some(end) = self.early_end.get() {
            self.recorder.window.end = end;
        }
    }
}

impl Driver for Measured<'_> {
    fn next(&mut self, index: usize, request: &mut Request) -> bool {
        let mut spec = self.streams[index].next(self.space);
        while self.checker.as_ref().is_some_and(|checker| checker.lacks_version(index, spec)) {
            spec = self.streams[index].next(self.space);
        }
        match &mut self.checker {
            Some(checker) => checker.render(index, spec, request),
            None => self.requests.render(request, spec, None),
        }
        true
    }

    fn judge(&mut self, request: &Request, answer: &Answer, result: Outcome) -> (Outcome, bool) {
        match &mut self.checker {
            Some(checker) if request.watch.is_some() => {
                checker.judge(request, &answer.content.kept, answer.version(request), result)
            }
            _ => (result, false),
        }
    }

    fn failed(&mut self, fault: Fault, request: &Request, answer: &Answer, received: &[u8]) {
        self.recorder.tally.keep_example(fault.name(), || failure::example(fault, request, answer, received));
    }

    fn done(&mut self, index: usize, attempt: &Attempt) {
        if attempt.result.is_err() && !self.is_open {
            self.streams[index].failed();
        }
        self.update_end();
        self.recorder.record(attempt);
    }

    fn count(&mut self, time: impl FnOnce(&mut Recorder)) {
        self.update_end();
        time(&mut self.recorder);
    }

    fn should_continue(&mut self, now: Instant) -> bool {
        self.update_end();
        for second in self.recorder.current.take_past(now) {
            // The receiver is gone only if another thread failed.
            let _ = self.sender.send((self.thread, Ok(FromThread::Second(second))));
        }
        let Window { start, end } = self.recorder.window;
        if now >= start {
            let (cpu, delay) = *self.at_start.get_or_insert_with(thread_usage);
            if now >= end {
                let (cpu_at_end, delay_at_end) = thread_usage();
                let delay = delay_at_end.zip(delay).map(|(end, start)| end.saturating_sub(start));
                let tally = &mut self.recorder.tally;
                (tally.cpu, tally.run_delay) = (cpu_at_end.saturating_sub(cpu), delay);
                return false;
            }
        }
        !self.stop.load(Ordering::Relaxed)
    }

    fn cannot_send(&mut self, error: std::io::Error) -> std::io::Result<()> {
        // Before the window there is nothing to report.
        if Instant::now() < self.recorder.window.start || !self.early_end.hears_failures {
            return Err(error);
        }
        self.early_end.fail(machine_error(error, self.connect));
        Ok(())
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let Window { start, end } = self.recorder.window;
        Some(if now < start { start } else { end })
    }
}

/// What this thread has used of the machine so far: processor time, user and system, and the time it waited for a core.
///
/// By thread, not by process: each then reads it at its own edge of the window, and the live view is not counted as a cost of
/// the requests.
fn thread_usage() -> (Duration, Option<Duration>) {
    // Nanoseconds on a core, nanoseconds waiting for one, and how often.
    let delay = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let delay = delay.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
    (thread_time(), delay.map(Duration::from_nanos))
}

/// What there is to say of `tally`, which is of all clients of `plan`.
fn report(plan: &Plan, tally: &Tally, series: TimeSeries) -> LoadReport {
    let (seconds, bins) = series.reports();
    let (attempts, successes) = (tally.attempts(), tally.successes());
    let kinds = plan.kinds();
    let is_key_value = plan.is_key_value();
    // Where no request names a key, there is nothing to say of keys and values.
    let keyed = plan.names_keys();
    let window_secs = tally.window.as_secs_f64();
    LoadReport {
        format: FORMAT,
        workload: if is_key_value { plan.workload().name.clone() } else { "url".to_owned() },
        about: plan.about(),
        dialect: if is_key_value { plan.dialect().name.clone() } else { "http".to_owned() },
        mix: kinds.iter().map(|kind| (kind.name.clone(), kind.share)).collect(),
        distribution: if keyed { plan.distribution_names() } else { String::new() },
        keys: if keyed { plan.keys() } else { 0 },
        value_bytes: if keyed { plan.value_size().to_string() } else { String::new() },
        clients: plan.clients,
        pacing: plan.pacing.to_string(),
        threads: tally.threads,
        seed: plan.seed,
        warmup_secs: plan.warmup.as_secs_f64(),
        window_secs,
        attempts,
        successes,
        goodput_rps: successes as f64 / window_secs,
        error_ratio: tally.error_ratio(),
        latency: tally.latency(),
        service: tally.open.as_ref().map(|open| open.service.summary()),
        first_byte: Some(tally.first_byte()),
        schedule: plan.pacing.offered_rps(plan.warmup, tally.window).and_then(|rate| tally.schedule(rate)),
        operations: tally.operations(&kinds),
        errors: tally.errors(),
        failures: tally.examples.clone(),
        servers: tally.server_reports(&plan.urls),
        statuses: tally.statuses.report(),
        verify: plan.verify.to_string(),
        verified: tally.verified,
        connects: tally.connects,
        connect: Some(tally.connecting.summary()).filter(|made| made.count > 0),
        backoff_secs: tally.backoff.as_secs_f64(),
        think_secs: tally.think.as_secs_f64(),
        in_flight_mean: Some(tally.in_flight_mean()),
        in_flight_at_end: tally.in_flight_at_end(),
        unanswered: tally.unanswered(),
        edge_secs: tally.edge_secs,
        cpu_secs: tally.cpu.as_secs_f64(),
        run_delay_secs: tally.run_delay.map(|delay| delay.as_secs_f64()),
        seconds,
        bins,
        histograms: if plan.histogram { tally.histograms(&kinds) } else { Default::default() },
        linearizability: None,
        workers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_warm_up_lasts_until_all_clients_have_started() {
        for (flags, ms) in [
            ("--clients 12800", 1000),
            ("--clients 100000", 7810),
            // Of so many threads each starts one client at a time.
            ("--clients 100000 --threads 40", 12_495),
            ("--clients 100000 --warmup 9s", 9000),
            ("--clients 100000 --warmup 0s", 0),
        ] {
            let plan = Plan::of_flags(&flags.split(' ').collect::<Vec<_>>());
            assert_eq!(full_warmup(&plan).as_millis(), ms, "{flags}");
        }
    }

    #[test]
    fn the_edges_of_the_window_are_reported_once_and_in_order() {
        let begun = Instant::now();
        let ms = |ms| begun + Duration::from_millis(ms);
        let plan = Plan::of_flags(&["--warmup", "100ms", "--window", "900ms"]);
        let mut collector = Collector::new(&plan, begun, 1);
        let mut reported = Vec::new();
        for (now, next) in [
            (ms(10), Some(ms(100))),
            (ms(100), Some(ms(1000))),
            (ms(300), Some(ms(1000))),
            (ms(1000), None),
            (ms(1100), None),
        ] {
            collector.report_edges(now, &mut |event| reported.push((now, event)));
            assert_eq!(collector.next_edge(), next);
        }
        assert_eq!(reported, [(ms(100), LoadEvent::WindowStart), (ms(1000), LoadEvent::WindowEnd)]);
    }
}
