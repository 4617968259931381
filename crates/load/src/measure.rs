//! The measured run: the threads with their shares of the clients, and the window over all of them.
//!
//! The window's instants are fixed before the first request, so every thread judges by its own clock reading whether
//! a completion counts, and none waits for another.

use super::answer::{Fault, Success};
use super::attempt::Attempt;
use super::client::ClientOptions;
use super::early_end::EarlyEnd;
use super::keys::{self, KeySpace, OperationStream};
use super::mix;
use super::pacing::Pacing;
use super::reactor::{Driver, Reactor};
use super::recorder::{Recorder, Window};
use super::request::{Request, Requests};
use super::schedule::{self, Schedule};
use super::seconds::{Second, SecondMerger, TimeSeries};
use super::staleness::{SharedHistory, StalenessChecker};
use super::tally::Tally;
use super::{Error, Notice, Plan};
use kv::proto::{FORMAT, LoadEvent, LoadReport};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread stays after its window: the kernel drops its counters with it, and the lab reads them at the
/// end of the window.
const LINGER: Duration = Duration::from_millis(30);

/// What is reported while a load runs.
pub(super) enum Progress<'a> {
    /// An edge of the window is reached.
    Event(LoadEvent),
    /// All threads are past this second, or this bin.
    Second(&'a Second),
}

/// Puts the load of `plan` on `address` and says what came back.
pub(super) fn measure(
    plan: &Plan,
    address: SocketAddr,
    early_end: &EarlyEnd,
    observer: &mut dyn FnMut(Notice),
) -> Result<LoadReport, Error> {
    let mut series = TimeSeries::new(plan);
    let tally = count(plan, &(0..plan.clients), address, early_end, &mut |progress| match progress {
        Progress::Event(event) => observer(Notice::Event(event)),
        Progress::Second(second) => series.push(second, observer),
    })?;
    Ok(report(plan, &tally, series))
}

/// Carries out the part of `plan` that is of these clients, at least one; returns when the window is over.
pub(super) fn count(
    plan: &Plan,
    clients: &Range<u32>,
    address: SocketAddr,
    early_end: &EarlyEnd,
    observer: &mut dyn FnMut(Progress<'_>),
) -> Result<Tally, Error> {
    let threads = plan.threads.min(clients.len() as u32);
    let space = &KeySpace::new(plan);
    let requests = &Requests::new(plan, plan.connect);
    let history = &SharedHistory::new(plan.verify);
    let options = ClientOptions {
        address,
        timeout: plan.timeout,
        connect: plan.connect,
        absent_is_success: plan.absent_is_success(),
        threads,
        added_cpu: plan.added_cpu,
    };
    // In turns. Which thread a client falls to changes nothing of what it asks for.
    let mut shares = vec![(Vec::new(), Vec::new()); threads as usize];
    let all =
        keys::streams(plan.seed, plan.clients).into_iter().zip(schedule::clocks(plan.seed, plan.clients));
    let (skipped, own) = (clients.start as usize, clients.len());
    for (client, (stream, clock)) in all.enumerate().skip(skipped).take(own) {
        let (streams, clocks) = &mut shares[client % threads as usize];
        streams.push(stream);
        clocks.push(clock);
    }
    let stop = AtomicBool::new(false);
    let begin = Instant::now();
    let start = begin + plan.warmup;
    let window = Window { start, end: start + plan.window };
    early_end.set_window(window);
    let open = matches!(plan.pacing, Pacing::Open { .. });
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for (thread, (streams, clocks)) in shares.into_iter().enumerate() {
            let numbers = streams.iter().map(OperationStream::client);
            let driver = Measured {
                space,
                requests,
                checker: history.as_ref().map(|history| StalenessChecker::new(history, requests, numbers)),
                streams,
                recorder: Recorder::new(window, begin, open, plan.bin),
                early_end,
                at_start: None,
                used: ThreadUsage::default(),
                thread,
                sender: sender.clone(),
                stop: &stop,
            };
            let schedule = Schedule::new(plan.pacing, clocks, plan.clients, begin);
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver is gone only if another thread failed.
                let _ = sender.send(FromThread::Over(Box::new(work(driver, options, schedule, begin))));
                thread::sleep(LINGER);
            });
        }
        // Now the channel ends with the last thread, even if one panics.
        drop(sender);

        let mut total = Tally::new(open);
        let mut merger = SecondMerger::new(threads as usize);
        let mut edges = Edges::new(window);
        loop {
            let received = match edges.next() {
                Some(at) => receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            edges.window.end = early_end.get().unwrap_or(window.end);
            // First, because an edge is to be reported at its instant.
            edges.report(Instant::now(), &mut |event| observer(Progress::Event(event)));
            match received {
                Ok(FromThread::Second(thread, second)) => {
                    // A second that the window's end cuts off is not reported.
                    let length = edges.window.length();
                    let past = merger.add(thread, &second);
                    for second in past.iter().filter(|second| second.ends_within(length, plan.bin)) {
                        observer(Progress::Second(second));
                    }
                }
                Ok(FromThread::Over(result)) => match *result {
                    Ok(tally) => total.add(&tally),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(Error::Machine(error));
                    }
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        edges.report(Instant::now().max(edges.window.end), &mut |event| observer(Progress::Event(event)));
        Ok(total)
    })
}

/// What a thread sends.
enum FromThread {
    /// This one is past a second, or a bin.
    Second(usize, Second),
    /// It has ended.
    Over(Box<std::io::Result<Tally>>),
}

/// Runs one thread's share to the end of the window.
fn work(
    mut driver: Measured<'_>,
    options: ClientOptions,
    schedule: Schedule,
    begin: Instant,
) -> std::io::Result<Tally> {
    let mut reactor = Reactor::new(driver.streams.len(), options, schedule)?;
    reactor.run(begin, &mut driver)?;
    let until = driver.recorder.window.end.max(Instant::now());
    driver.recorder.ended(reactor.into_unfinished(), until);
    let ThreadUsage { cpu, run_delay } = driver.used;
    Ok(Tally { threads: 1, cpu, run_delay, ..driver.recorder.into_tally() })
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
    /// What the thread had used when the window began.
    at_start: Option<ThreadUsage>,
    /// What it used in the window.
    used: ThreadUsage,
    /// Which of the threads this is.
    thread: usize,
    sender: mpsc::Sender<FromThread>,
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
        let spec = self.streams[index].next(self.space);
        match &mut self.checker {
            Some(checker) => checker.render(index, spec, request),
            None => self.requests.render(request, spec),
        }
        true
    }

    fn judge(
        &mut self,
        request: &Request,
        body: &[u8],
        result: Result<Success, Fault>,
    ) -> (Result<Success, Fault>, bool) {
        match &mut self.checker {
            Some(checker) => checker.judge(request, body, result),
            None => (result, false),
        }
    }

    fn done(&mut self, _index: usize, attempt: &Attempt) {
        self.update_end();
        self.recorder.record(attempt);
    }

    fn recorder(&mut self) -> Option<&mut Recorder> {
        self.update_end();
        Some(&mut self.recorder)
    }

    fn should_continue(&mut self, now: Instant) -> bool {
        self.update_end();
        for second in self.recorder.past(now) {
            // The receiver is gone only if another thread failed.
            let _ = self.sender.send(FromThread::Second(self.thread, second));
        }
        let Window { start, end } = self.recorder.window;
        if now >= start {
            let at_start = *self.at_start.get_or_insert_with(ThreadUsage::by_this_thread);
            if now >= end {
                self.used = ThreadUsage::by_this_thread().since(at_start);
                return false;
            }
        }
        !self.stop.load(Ordering::Relaxed)
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        let Window { start, end } = self.recorder.window;
        Some(if now < start { start } else { end })
    }
}

/// What a thread has used of the machine.
#[derive(Clone, Copy, Debug, Default)]
struct ThreadUsage {
    /// Processor time, user and system.
    cpu: Duration,
    run_delay: Option<Duration>,
}

impl ThreadUsage {
    /// So far.
    ///
    /// By thread, not by process: each then reads it at its own edge of the window, and the live view is not counted as a cost of
    /// the requests.
    fn by_this_thread() -> ThreadUsage {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // Nanoseconds on a core, nanoseconds waiting for one, and how often.
        let delay = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let delay = delay.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        ThreadUsage {
            cpu: Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32),
            run_delay: delay.map(Duration::from_nanos),
        }
    }

    fn since(self, earlier: ThreadUsage) -> ThreadUsage {
        let delays = self.run_delay.zip(earlier.run_delay);
        ThreadUsage {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            run_delay: delays.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// The two edges of the window, each reported once, at its instant.
pub(super) struct Edges {
    pub(super) window: Window,
    /// How many have been reported.
    reported: usize,
}

impl Edges {
    pub(super) fn new(window: Window) -> Edges {
        Edges { window, reported: 0 }
    }

    /// When the next one is due.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.window.start, self.window.end].get(self.reported).copied()
    }

    /// Reports those that are due.
    pub(super) fn report(&mut self, now: Instant, observer: &mut dyn FnMut(LoadEvent)) {
        while self.next().is_some_and(|edge| now >= edge) {
            observer(if self.reported == 0 { LoadEvent::WindowStart } else { LoadEvent::WindowEnd });
            self.reported += 1;
        }
    }
}

/// What there is to say of `tally`, which is of all clients of `plan`.
pub(super) fn report(plan: &Plan, tally: &Tally, series: TimeSeries) -> LoadReport {
    let (seconds, bins) = series.reports();
    let (attempts, successes) = (tally.attempts(), tally.successes());
    let shares = mix::shares(plan.mix_entries());
    let operations = || shares.iter().map(|&(operation, _)| operation);
    // Where no request names a key, there is nothing to say of keys and values.
    let keyed = plan.names_keys();
    let window_secs = tally.window.as_secs_f64();
    LoadReport {
        format: FORMAT,
        workload: plan.workload.name.to_owned(),
        about: plan.workload.about.to_owned(),
        dialect: plan.dialect.name.clone(),
        mix: shares.iter().map(|(operation, share)| (operation.name().to_owned(), *share)).collect(),
        distribution: if keyed { plan.distribution_names() } else { String::new() },
        keys: if keyed { plan.keys } else { 0 },
        value_bytes: if keyed { plan.value_size.to_string() } else { String::new() },
        clients: plan.clients,
        pacing: plan.pacing.to_string(),
        threads: tally.threads,
        seed: plan.seed,
        warmup_secs: plan.warmup.as_secs_f64(),
        window_secs,
        attempts,
        successes,
        goodput_rps: successes as f64 / window_secs,
        error_ratio: if attempts == 0 { 0.0 } else { (attempts - successes) as f64 / attempts as f64 },
        latency: tally.latency(),
        service: tally.service(),
        schedule: match plan.pacing {
            Pacing::Open { rate, .. } => tally.schedule(rate.0),
            Pacing::Closed { .. } => None,
        },
        operations: tally.operations(operations()),
        errors: tally.errors(),
        verify: plan.verify.to_string(),
        verified: tally.verified,
        connects: tally.connects,
        connect: Some(tally.connecting.summary()).filter(|made| made.count > 0),
        backoff_secs: tally.backoff.as_secs_f64(),
        think_secs: tally.think.as_secs_f64(),
        in_flight_mean: Some(tally.in_flight_mean()),
        in_flight_at_end: tally.in_flight_at_end,
        edge_secs: tally.edge_secs,
        cpu_secs: tally.cpu.as_secs_f64(),
        run_delay_secs: tally.run_delay.map(|delay| delay.as_secs_f64()),
        seconds,
        bins,
        histograms: if plan.histogram { tally.histograms(operations()) } else { Default::default() },
        workers: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_edges_of_the_window_are_told_once_and_in_order() {
        let begun = Instant::now();
        let ms = |ms| begun + Duration::from_millis(ms);
        let window = Window { start: ms(100), end: ms(1000) };
        let mut edges = Edges::new(window);
        let mut told = Vec::new();
        for (now, next) in [
            (ms(10), Some(ms(100))),
            (ms(100), Some(ms(1000))),
            (ms(300), Some(ms(1000))),
            (ms(1000), None),
            (ms(1100), None),
        ] {
            edges.report(now, &mut |event| told.push((now, event)));
            assert_eq!(edges.next(), next);
        }
        assert_eq!(told, [(ms(100), LoadEvent::WindowStart), (ms(1000), LoadEvent::WindowEnd)]);
    }
}
