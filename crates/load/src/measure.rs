//! The measured run: the threads with their shares of the clients, and the window over all of them.
//!
//! The window's instants are fixed before the first request, so every thread judges by its own clock reading whether
//! a completion counts, and none waits for another.

use super::answer::{Fault, Success};
use super::ending::Ending;
use super::keys::{self, Space, Stream};
use super::mix;
use super::pacing::Pacing;
use super::reactor::{Attempt, Duty, Launch, Manners, Reactor};
use super::recorder::{Recorder, Window};
use super::request::{Request, Requests};
use super::schedule::{self, Schedule};
use super::seconds::{Merge, Second, Told};
use super::witness::{Ledger, Witness};
use super::{Error, Notice, Plan};
use kv::proto::{FORMAT, LoadEvent, LoadReport};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a thread stays after its window: the kernel forgets its counters with it, and whoever was told of the
/// window's end needs a moment to read them.
const LINGER: Duration = Duration::from_millis(30);

/// Which part of a plan this process carries out, and when.
#[derive(Clone, Debug)]
pub(super) struct Part<'a> {
    /// Which of the plan's clients; at least one.
    pub(super) clients: Range<u32>,
    /// When the warm-up begins.
    pub(super) begin: Instant,
    /// Set by whoever wants it to end early; what was counted is then of no use.
    pub(super) stop: &'a AtomicBool,
    /// Where somebody may say that the window is long enough.
    pub(super) ending: Option<&'a Ending>,
}

/// What the clients of a part saw. Those of several parts add up to what one process would have seen.
pub(super) struct Tally {
    pub(super) recorder: Recorder,
    pub(super) threads: u32,
    /// Processor time in the window.
    pub(super) cpu: Duration,
    /// Time in the window that threads were ready to run and had no core; `None` where the kernel does not say.
    pub(super) run_delay: Option<Duration>,
}

/// What is heard while a part runs.
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
    ending: Option<&Ending>,
    observer: &mut dyn FnMut(Notice),
) -> Result<LoadReport, Error> {
    let never = AtomicBool::new(false);
    let part = Part { clients: 0..plan.clients, begin: Instant::now(), stop: &never, ending };
    let mut told = Told::new(plan);
    let tally = count(plan, &part, address, &mut |progress| match progress {
        Progress::Event(event) => observer(Notice::Event(event)),
        Progress::Second(second) => told.hear(second, observer),
    })?;
    Ok(report(plan, &tally, told))
}

/// Carries out a part of `plan`: begins when it says, and returns when its window is over.
pub(super) fn count(
    plan: &Plan,
    part: &Part<'_>,
    address: SocketAddr,
    observer: &mut dyn FnMut(Progress<'_>),
) -> Result<Tally, Error> {
    let threads = plan.threads.min(part.clients.len() as u32);
    let space = &Space::new(plan);
    let requests = &Requests::new(plan, plan.connect);
    let ledger = &Ledger::new(plan.verify);
    let manners = Manners {
        address,
        timeout: plan.timeout,
        connect: plan.connect,
        absent_is_fine: plan.absent_is_fine(),
        threads,
        added_cpu: plan.added_cpu,
    };
    // Dealt out like cards. Which thread a client falls to changes nothing of what it asks for.
    let mut shares: Vec<(Vec<Stream>, Vec<schedule::Clock>)> =
        (0..threads).map(|_| Default::default()).collect();
    let all =
        keys::streams(plan.seed, plan.clients).into_iter().zip(schedule::clocks(plan.seed, plan.clients));
    for (client, (stream, clock)) in
        all.enumerate().filter(|(client, _)| part.clients.contains(&(*client as u32)))
    {
        let (streams, clocks) = &mut shares[client % threads as usize];
        streams.push(stream);
        clocks.push(clock);
    }
    let stop = AtomicBool::new(false);
    let stops = [&stop, part.stop];

    let start = part.begin + plan.warmup;
    let window = Window { start, end: start + plan.window };
    if let Some(ending) = part.ending {
        ending.of(window);
    }
    let open = matches!(plan.pacing, Pacing::Open { .. });
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        for (thread, (streams, clocks)) in shares.into_iter().enumerate() {
            let recorder = Recorder::new(window, part.begin, open, plan.bin);
            let duty = Measured {
                space,
                requests,
                witness: ledger
                    .as_ref()
                    .map(|ledger| Witness::new(ledger, requests, streams.iter().map(Stream::client))),
                streams,
                recorder,
                window,
                ending: part.ending,
                at_start: None,
                used: Used::default(),
                thread,
                sender: sender.clone(),
                stops,
            };
            let schedule = Schedule::new(plan.pacing, clocks, plan.clients, part.begin);
            let sender = sender.clone();
            scope.spawn(move || {
                // The receiver is gone only if another thread failed, and then nobody asks.
                let _ = sender.send(Heard::Over(Box::new(work(duty, manners, schedule, part.begin))));
                thread::sleep(LINGER);
            });
        }
        // Now the channel ends with the last thread, even if one dies without a word.
        drop(sender);

        let mut total = Tally {
            recorder: Recorder::new(window, part.begin, open, plan.bin),
            threads,
            cpu: Duration::ZERO,
            run_delay: Some(Duration::ZERO),
        };
        let mut seconds = Merge::new(threads as usize);
        let mut edges = Edges { window, told: 0 };
        loop {
            let heard = match edges.next() {
                Some(at) => receiver.recv_timeout(at.saturating_duration_since(Instant::now())),
                None => receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            edges.window = ends(window, part.ending);
            // First, because an edge is to be told at its instant.
            edges.tell(Instant::now(), observer);
            match heard {
                Ok(Heard::Second(thread, second)) => {
                    // What is begun when the window ends is no second of it.
                    let past = seconds.take(thread, &second);
                    let length = edges.window.length();
                    for second in past.iter().filter(|second| second.ends_within(length, plan.bin)) {
                        observer(Progress::Second(second));
                    }
                }
                Ok(Heard::Over(over)) => match *over {
                    Ok((recorder, used)) => total.add(&recorder, used),
                    Err(error) => {
                        stop.store(true, Ordering::Relaxed);
                        return Err(Error::Machine(error));
                    }
                },
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        edges.window = ends(window, part.ending);
        edges.tell(Instant::now().max(edges.window.end), observer);
        total.recorder.end_at(edges.window.end);
        Ok(total)
    })
}

/// `window`, or as much of it as `ending` leaves.
fn ends(window: Window, ending: Option<&Ending>) -> Window {
    Window { end: ending.and_then(Ending::at).unwrap_or(window.end), ..window }
}

impl Tally {
    /// Takes over what another part saw in its window, which is as long.
    pub(super) fn merge(&mut self, other: &Tally) {
        self.recorder.add(&other.recorder);
        self.threads += other.threads;
        self.cpu += other.cpu;
        self.run_delay = self.run_delay.zip(other.run_delay).map(|(all, own)| all + own);
    }

    fn add(&mut self, recorder: &Recorder, used: Used) {
        self.recorder.add(recorder);
        self.cpu += used.cpu;
        self.run_delay = self.run_delay.zip(used.run_delay).map(|(all, own)| all + own);
    }
}

/// What a thread tells.
enum Heard {
    /// This one is past a second, or a bin.
    Second(usize, Second),
    /// It has ended.
    Over(Box<std::io::Result<(Recorder, Used)>>),
}

/// Runs one thread's share to the end of the window.
fn work(
    mut duty: Measured<'_>,
    manners: Manners,
    schedule: Schedule,
    begin: Instant,
) -> std::io::Result<(Recorder, Used)> {
    let mut reactor = Reactor::new(duty.streams.len(), manners, schedule)?;
    thread::sleep(begin.saturating_duration_since(Instant::now()));
    reactor.run(begin, &mut duty)?;
    let until = duty.window.end.max(Instant::now());
    duty.recorder.ended(reactor.into_rest(), until);
    Ok((duty.recorder, duty.used))
}

/// Asks what the streams say and records what is over in the window.
struct Measured<'a> {
    space: &'a Space,
    requests: &'a Requests,
    /// Where values are verified.
    witness: Option<Witness<'a>>,
    /// Of this thread's clients.
    streams: Vec<Stream>,
    recorder: Recorder,
    window: Window,
    ending: Option<&'a Ending>,
    /// What the thread had used when the window began.
    at_start: Option<Used>,
    /// What it used in the window.
    used: Used,
    /// Which of the threads this is.
    thread: usize,
    sender: mpsc::Sender<Heard>,
    stops: [&'a AtomicBool; 2],
}

impl Measured<'_> {
    /// Ends the window sooner if that was said. It has to be asked with every instant that comes, and before it is counted.
    #[inline]
    fn look(&mut self) {
        if let Some(end) = self.ending.and_then(Ending::at) {
            self.window.end = end;
            self.recorder.end_at(end);
        }
    }
}

impl Duty for Measured<'_> {
    fn next(&mut self, index: usize, request: &mut Request) -> bool {
        let ask = self.streams[index].next(self.space);
        match &mut self.witness {
            Some(witness) => witness.render(index, ask, request),
            None => self.requests.render(request, ask),
        }
        true
    }

    fn judge(
        &mut self,
        request: &Request,
        body: &[u8],
        result: Result<Success, Fault>,
    ) -> (Result<Success, Fault>, bool) {
        match &mut self.witness {
            Some(witness) => witness.judge(request, body, result),
            None => (result, false),
        }
    }

    fn done(&mut self, _index: usize, attempt: &Attempt) {
        self.look();
        self.recorder.record(attempt);
    }

    fn rested(&mut self, since: Instant, until: Instant) {
        self.look();
        self.recorder.rested(since, until);
    }

    fn started(&mut self, since: Instant, until: Instant) {
        self.look();
        self.recorder.started(since, until);
    }

    fn thought(&mut self, since: Instant, until: Instant) {
        self.look();
        self.recorder.thought(since, until);
    }

    fn launched(&mut self, launch: &Launch) {
        self.look();
        self.recorder.launched(launch);
    }

    fn in_flight(&mut self, now: Instant, requests: u32) {
        self.look();
        self.recorder.in_flight(now, requests);
    }

    fn goes_on(&mut self, now: Instant) -> bool {
        self.look();
        for second in self.recorder.past(now) {
            // Nobody listens only if another thread failed.
            let _ = self.sender.send(Heard::Second(self.thread, second));
        }
        if now >= self.window.start {
            let at_start = *self.at_start.get_or_insert_with(Used::by_this_thread);
            if now >= self.window.end {
                self.used = Used::by_this_thread().since(at_start);
                return false;
            }
        }
        !self.stops.iter().any(|stop| stop.load(Ordering::Relaxed))
    }

    fn wake_at(&self, now: Instant) -> Option<Instant> {
        Some(if now < self.window.start { self.window.start } else { self.window.end })
    }
}

/// What a thread has used of the machine.
#[derive(Clone, Copy, Debug, Default)]
struct Used {
    /// Processor time, user and system.
    cpu: Duration,
    run_delay: Option<Duration>,
}

impl Used {
    /// So far.
    ///
    /// By thread, not by process: each then reads it at its own edge of the window, and whoever watches the run (a
    /// progress bar) is not billed to the requests.
    fn by_this_thread() -> Used {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        // Nanoseconds on a core, nanoseconds waiting for one, and how often.
        let delay = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
        let delay = delay.and_then(|line| line.split_whitespace().nth(1)?.parse().ok());
        Used {
            cpu: Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32),
            run_delay: delay.map(Duration::from_nanos),
        }
    }

    fn since(self, earlier: Used) -> Used {
        let delays = self.run_delay.zip(earlier.run_delay);
        Used {
            cpu: self.cpu.saturating_sub(earlier.cpu),
            run_delay: delays.map(|(now, then)| now.saturating_sub(then)),
        }
    }
}

/// The two edges of the window, each told once, at its instant.
pub(super) struct Edges {
    pub(super) window: Window,
    /// How many were told.
    pub(super) told: u8,
}

impl Edges {
    /// When the next one is to be told.
    pub(super) fn next(&self) -> Option<Instant> {
        [self.window.start, self.window.end].get(usize::from(self.told)).copied()
    }

    pub(super) fn tell(&mut self, now: Instant, observer: &mut dyn FnMut(Progress<'_>)) {
        if self.told == 0 && now >= self.window.start {
            observer(Progress::Event(LoadEvent::WindowStart));
            self.told = 1;
        }
        if self.told == 1 && now >= self.window.end {
            observer(Progress::Event(LoadEvent::WindowEnd));
            self.told = 2;
        }
    }
}

/// What there is to say of `tally`, which is of all clients of `plan`.
pub(super) fn report(plan: &Plan, tally: &Tally, told: Told) -> LoadReport {
    let (seconds, bins) = told.reports();
    let total = &tally.recorder;
    let (attempts, successes) = (total.attempts(), total.successes());
    let shares = mix::shares(plan.turns());
    let operations = || shares.iter().map(|&(operation, _)| operation);
    // Where no request names a key, there is nothing to say of keys and values.
    let keyed = plan.names_keys();
    let window_secs = total.measured().as_secs_f64();
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
        pacing: plan.pacing.to_string(),
        threads: tally.threads,
        seed: plan.seed,
        warmup_secs: plan.warmup.as_secs_f64(),
        window_secs,
        attempts,
        successes,
        goodput_rps: successes as f64 / window_secs,
        error_ratio: if attempts == 0 { 0.0 } else { (attempts - successes) as f64 / attempts as f64 },
        latency: total.latency(),
        service: total.service(),
        schedule: match plan.pacing {
            Pacing::Open { rate, .. } => total.schedule(rate.0),
            Pacing::Closed { .. } => None,
        },
        operations: total.operations(operations()),
        errors: total.errors(),
        verify: plan.verify.to_string(),
        verified: total.verified,
        connects: total.connecting.begun,
        connect: total.connecting.latency(),
        backoff_secs: total.backoff().as_secs_f64(),
        think_secs: total.think().as_secs_f64(),
        in_flight_mean: Some(total.in_flight_mean()),
        in_flight_at_end: total.in_flight_at_end(),
        edge_secs: total.edge_secs(),
        cpu_secs: tally.cpu.as_secs_f64(),
        run_delay_secs: tally.run_delay.map(|delay| delay.as_secs_f64()),
        seconds,
        bins,
        histograms: if plan.histogram { total.histograms(operations()) } else { Default::default() },
        clients_lost: 0,
        start_spread_us: None,
        agents: Vec::new(),
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
        let mut edges = Edges { window, told: 0 };
        let mut told = Vec::new();
        for (now, next) in [
            (ms(10), Some(ms(100))),
            (ms(100), Some(ms(1000))),
            (ms(300), Some(ms(1000))),
            (ms(1000), None),
            (ms(1100), None),
        ] {
            edges.tell(now, &mut |progress| {
                if let Progress::Event(event) = progress {
                    told.push((now, event));
                }
            });
            assert_eq!(edges.next(), next);
        }
        assert_eq!(told, [(ms(100), LoadEvent::WindowStart), (ms(1000), LoadEvent::WindowEnd)]);
    }
}
