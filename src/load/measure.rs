//! The measured run: the threads with their shares of the clients, and the window over all of them.
//!
//! The window's instants are fixed before the first request, so every thread judges by its own clock reading whether
//! a completion counts, and none waits for another.

use super::keys::{self, Space, Stream};
use super::mix;
use super::reactor::{Attempt, Duty, Manners, Reactor};
use super::recorder::{Recorder, Window};
use super::request::{Request, Requests};
use super::{Error, Notice, Plan};
use crate::proto::{FORMAT, LoadEvent, LoadReport};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread stays after its window: the kernel forgets its counters with it, and whoever was told of the
/// window's end needs a moment to read them.
const LINGER: Duration = Duration::from_millis(30);
/// Time between two notices of how the run goes.
const NOTICE_EVERY: Duration = Duration::from_millis(250);

/// Puts the load of `plan` on `address` and says what came back.
pub(super) fn measure(
    plan: &Plan,
    address: SocketAddr,
    observer: &mut dyn FnMut(Notice),
) -> Result<LoadReport, Error> {
    let threads = plan.threads.min(plan.clients);
    let space = &Space::new(plan);
    let requests = &Requests::new(plan, plan.connect);
    let manners = Manners {
        address,
        timeout: plan.timeout,
        pacing: plan.pacing,
        connect: plan.connect,
        absent_is_fine: plan.absent_is_fine(),
    };
    // Dealt out like cards. Which thread a client falls to changes nothing of what it asks for.
    let mut shares: Vec<Vec<Stream>> = (0..threads).map(|_| Vec::new()).collect();
    for (client, stream) in keys::streams(plan.seed, plan.clients).into_iter().enumerate() {
        shares[client % threads as usize].push(stream);
    }
    let counters: Vec<Counter> = shares.iter().map(|_| Counter::default()).collect();
    let stop = AtomicBool::new(false);

    let begun = Instant::now();
    let start = begun + plan.warmup;
    let window = Window { start, end: start + plan.window };
    let (sender, receiver) = mpsc::channel();
    let (total, cpu) = thread::scope(|scope| {
        for (streams, counter) in shares.into_iter().zip(&counters) {
            let duty = Measured {
                space,
                requests,
                streams,
                recorder: Recorder::new(window),
                window,
                cpu_at_start: None,
                cpu: Duration::ZERO,
                successes: 0,
                counter: &counter.0,
                stop: &stop,
            };
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver is gone only if another thread failed, and then nobody asks.
                let _ = sender.send(work(duty, manners));
                thread::sleep(LINGER);
            });
        }
        // Now the channel ends with the last thread, even if one dies without a word.
        drop(sender);

        let mut total = Recorder::new(window);
        let mut cpu = Duration::ZERO;
        let mut timeline = Timeline { begun, window, told: 0 };
        loop {
            let wait = timeline.next(Instant::now()).saturating_duration_since(Instant::now());
            match receiver.recv_timeout(wait) {
                Ok(Ok(duty)) => {
                    total.add(&duty.recorder);
                    cpu += duty.cpu;
                }
                Ok(Err(error)) => {
                    stop.store(true, Ordering::Relaxed);
                    return Err(Error::Machine(error));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            let successes = counters.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum();
            timeline.tell(Instant::now(), successes, observer);
        }
        timeline.tell(Instant::now().max(window.end), total.successes(), observer);
        Ok((total, cpu))
    })?;
    Ok(report(plan, threads, window, &total, cpu))
}

/// A thread's successes so far, on a cache line of its own: it is written after every wait.
#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicU64);

/// Runs one thread's share to the end of the window.
fn work<'a>(mut duty: Measured<'a>, manners: Manners) -> std::io::Result<Measured<'a>> {
    Reactor::new(duty.streams.len(), manners)?.run(&mut duty)?;
    Ok(duty)
}

/// Asks what the streams say and records what is over in the window.
struct Measured<'a> {
    space: &'a Space,
    requests: &'a Requests,
    /// Of this thread's clients.
    streams: Vec<Stream>,
    recorder: Recorder,
    window: Window,
    /// The thread's processor time when the window began.
    cpu_at_start: Option<Duration>,
    /// The thread's processor time in the window.
    cpu: Duration,
    successes: u64,
    counter: &'a AtomicU64,
    stop: &'a AtomicBool,
}

impl Duty for Measured<'_> {
    fn next(&mut self, index: usize, request: &mut Request) -> bool {
        let ask = self.streams[index].next(self.space);
        self.requests.render(request, ask);
        true
    }

    fn done(&mut self, _index: usize, attempt: &Attempt) {
        self.successes += u64::from(attempt.result.is_ok());
        self.recorder.record(attempt);
    }

    fn rested(&mut self, since: Instant, until: Instant) {
        self.recorder.rested(since, until);
    }

    fn goes_on(&mut self, now: Instant) -> bool {
        self.counter.store(self.successes, Ordering::Relaxed);
        if now >= self.window.start {
            let at_start = *self.cpu_at_start.get_or_insert_with(thread_cpu);
            if now >= self.window.end {
                self.cpu = thread_cpu().saturating_sub(at_start);
                return false;
            }
        }
        !self.stop.load(Ordering::Relaxed)
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        Some(if now < self.window.start { self.window.start } else { self.window.end })
    }
}

/// Processor time of this thread so far, user and system.
///
/// By thread, not by process: each then reads it at its own edge of the window, and whoever watches the run (a
/// progress bar) is not billed to the requests.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// What the observer is still to be told, and when.
struct Timeline {
    begun: Instant,
    window: Window,
    /// How many of the window's two edges were told.
    told: u8,
}

impl Timeline {
    /// The next instant at which there is something to tell.
    fn next(&self, now: Instant) -> Instant {
        let notice = now + NOTICE_EVERY;
        match self.told {
            0 => notice.min(self.window.start),
            1 => notice.min(self.window.end),
            _ => notice,
        }
    }

    fn tell(&mut self, now: Instant, successes: u64, observer: &mut dyn FnMut(Notice)) {
        if self.told == 0 && now >= self.window.start {
            observer(Notice::Event(LoadEvent::WindowStart));
            self.told = 1;
        }
        if self.told == 1 && now >= self.window.end {
            observer(Notice::Event(LoadEvent::WindowEnd));
            self.told = 2;
        }
        let of = self.window.end.duration_since(self.begun);
        let elapsed = now.duration_since(self.begun).min(of);
        observer(Notice::Running { elapsed, of, successes });
    }
}

fn report(plan: &Plan, threads: u32, window: Window, total: &Recorder, cpu: Duration) -> LoadReport {
    let (attempts, successes) = (total.attempts(), total.successes());
    let shares = mix::shares(plan.turns());
    // Where no request names a key, there is nothing to say of keys and values.
    let keyed = plan.names_keys();
    let window_secs = window.length().as_secs_f64();
    LoadReport {
        format: FORMAT,
        workload: plan.workload.name.to_owned(),
        about: plan.workload.about.to_owned(),
        dialect: plan.dialect.name.clone(),
        mix: shares.iter().map(|(operation, share)| (operation.name().to_owned(), *share)).collect(),
        distribution: if keyed { plan.distribution_told() } else { String::new() },
        keys: if keyed { plan.keys } else { 0 },
        value_bytes: if keyed { plan.value_size.to_string() } else { String::new() },
        clients: plan.clients,
        threads,
        seed: plan.seed,
        warmup_secs: plan.warmup.as_secs_f64(),
        window_secs,
        attempts,
        successes,
        goodput_rps: successes as f64 / window_secs,
        error_ratio: if attempts == 0 { 0.0 } else { (attempts - successes) as f64 / attempts as f64 },
        latency: total.latency(),
        operations: total.operations(shares.iter().map(|&(operation, _)| operation)),
        errors: total.errors(),
        backoff_secs: total.backoff().as_secs_f64(),
        cpu_secs: cpu.as_secs_f64(),
        seconds: total.seconds(),
        ..LoadReport::default()
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
        let mut timeline = Timeline { begun, window, told: 0 };
        let mut told = Vec::new();
        for now in [ms(10), ms(100), ms(300), ms(1000), ms(1100)] {
            timeline.tell(now, 0, &mut |notice| {
                if let Notice::Event(event) = notice {
                    told.push((now, event));
                }
            });
        }
        assert_eq!(told, [(ms(100), LoadEvent::WindowStart), (ms(1000), LoadEvent::WindowEnd)]);
    }

    #[test]
    fn the_timeline_wakes_at_the_edges_of_the_window() {
        let begun = Instant::now();
        let ms = |ms| begun + Duration::from_millis(ms);
        let window = Window { start: ms(100), end: ms(1000) };
        for (told, now, next) in [(0, ms(0), ms(100)), (1, ms(100), ms(350)), (1, ms(900), ms(1000))] {
            assert_eq!(Timeline { begun, window, told }.next(now), next);
        }
    }
}
