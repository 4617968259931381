//! The coordinator: starts the workers, divides the clients among them, and adds up their tallies.
//!
//! One thread reads from each worker; everything else happens in the caller's thread. A worker that fails or is lost ends the run
//! with an error: figures without its clients would be those of another load.

use super::super::linearizability::clock_name;
use super::super::measure::{Collector, FromThread, full_warmup, tally_of, threads};
use super::super::read_back::READ_BACK_MAX;
use super::super::tally::Tally;
use super::super::verify::Verify;
use super::super::{Observer, Plan, plain_cause};
use super::{FromWorker, ToWorker, send};
use kv::Error;
use kv::proto::{FORMAT, LoadReport, WorkerReport};
use kv::units::Span;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take to get a worker running: ssh may have to ask its user for a password.
const HELLO_MAX: Duration = Duration::from_secs(60);
/// How long reaching the target and preloading may take.
const PREPARE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// A worker under load reports each second; one that is silent for so long is lost, if it does not read back meanwhile.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Longest part of a worker's line that an error quotes.
const QUOTED_MAX: usize = 200;

/// Carries out `plan` by the workers that these commands start, and says what all their clients saw.
///
/// Blocks as [`super::super::run`] does.
pub fn run(plan: &Plan, commands: &[String], observer: Observer<'_>) -> Result<LoadReport, Error> {
    plan.check()?;
    // As in one process: what is checked is also compared.
    let verify = if plan.check_for.is_some() { Verify::all() } else { plan.verify };
    let plan = &Plan { verify, warmup: full_warmup(plan), ..plan.clone() };
    let (sender, received) = mpsc::channel();
    let mut workers: Vec<Worker> = Vec::new();
    for (command, clients) in commands.iter().zip(shares(plan.clients, commands.len())) {
        let first_thread = workers.last().map_or(0, |last| last.first_thread + last.running as usize);
        let process = start(workers.len(), command, &sender).map_err(|error| {
            Error::new(format_args!("worker `{command}`: cannot run sh: {}", plain_cause(&error)))
        })?;
        workers.push(Worker {
            command: command.clone(),
            process,
            heard_at: Instant::now(),
            start_delay: Duration::ZERO,
            tally: tally_of(plan),
            first_thread,
            running: threads(plan, &clients),
            clients,
        });
    }
    let mut coordinator = Coordinator { plan, workers, received };
    coordinator.prepare(observer)?;
    coordinator.measure(observer)
}

/// As even as can be, in order.
fn shares(clients: u32, workers: usize) -> Vec<Range<u32>> {
    let from = |worker: usize| (u64::from(clients) * worker as u64).div_ceil(workers as u64) as u32;
    (0..workers).map(|worker| from(worker)..from(worker + 1)).collect()
}

/// A worker, as its coordinator sees it.
struct Worker {
    command: String,
    clients: Range<u32>,
    /// Without its standard input once it has to end.
    process: Child,
    /// When its last message came.
    heard_at: Instant,
    /// From the order to start to its confirmation.
    start_delay: Duration,
    /// Of its threads that have ended.
    tally: Tally,
    /// Its threads that have not.
    running: u32,
    /// The threads of all workers are counted one after the other; this is its first.
    first_thread: usize,
}

/// What a worker sent, and its number. `Err` is why no more will come: this line is no message, or standard output ended.
type Received = (usize, Result<FromWorker, Option<Vec<u8>>>);

/// Starts worker `number`; what it sends goes to `sender`.
fn start(number: usize, command: &str, sender: &Sender<Received>) -> std::io::Result<Child> {
    let mut process =
        Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let output = process.stdout.take();
    let sender = sender.clone();
    thread::spawn(move || {
        let lines = BufReader::new(output.expect("it is piped")).split(b'\n').map_while(Result::ok);
        let messages = lines.map(|line| serde_json::from_slice(&line).map_err(|_| Some(line)));
        for message in messages.chain([Err(None)]) {
            // Nobody receives it if the run is over.
            if sender.send((number, message)).is_err() {
                return;
            }
        }
    });
    Ok(process)
}

impl Worker {
    fn send(&mut self, message: &ToWorker) {
        if let Some(input) = &mut self.process.stdin {
            // Where this fails, the worker is gone, and the thread that reads from it will say so.
            let _ = send(input, message);
        }
    }

    fn error(&self, cause: impl std::fmt::Display) -> Error {
        Error::new(format_args!("worker `{}`: {cause}", self.command))
    }

    /// Why no more comes from it after `line`, which is no message, or at the end of its standard output.
    fn lost(&mut self, line: Option<Vec<u8>>) -> Error {
        if let Some(line) = line {
            let line = String::from_utf8_lossy(&line);
            let line: String = line.chars().filter(|sign| !sign.is_control()).take(QUOTED_MAX).collect();
            return self
                .error(format_args!("`{line}` is no message of weir load-worker"))
                .hint("the command may print nothing else on standard output, and has to be of the same build of weir");
        }
        self.end();
        let status =
            self.process.wait().map_or_else(|error| plain_cause(&error), |status| status.to_string());
        self.error(format_args!("it ended before its result was there ({status})"))
            .hint("see its own messages, or run the command by itself")
    }

    /// Has it end. The end of its input ends `weir load-worker` even where another process is its parent.
    fn end(&mut self) {
        self.process.stdin = None;
        // Once it was waited for, its number may be another process's.
        if !matches!(self.process.try_wait(), Ok(None)) {
            return;
        }
        // Listed before it ends, and ended after it: a shell that is left would start its next command.
        let started = descendants(self.process.id());
        // An error says that a process has ended already.
        let _ = self.process.kill();
        for process in started {
            let _ = kill_process(process, Signal::KILL);
        }
    }

    fn report(&self) -> WorkerReport {
        WorkerReport {
            command: self.command.clone(),
            clients: self.clients.len() as u32,
            threads: self.tally.threads,
            attempts: self.tally.attempts(),
            successes: self.tally.successes(),
            latency: self.tally.latency(),
            cpu_secs: self.tally.cpu.as_secs_f64(),
            start_delay_us: self.start_delay.as_secs_f64() * 1e6,
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.end();
        let _ = self.process.wait();
    }
}

/// The processes that this one started, and theirs. They have no group of their own: ssh asks for a password only in that of the
/// terminal.
fn descendants(process: u32) -> Vec<Pid> {
    let threads = fs::read_dir(format!("/proc/{process}/task")).into_iter().flatten().flatten();
    let children = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    let children: Vec<u32> =
        children.flat_map(|of| of.split_whitespace().map(str::parse).collect::<Vec<_>>()).flatten().collect();
    let and_theirs = |child: u32| Pid::from_raw(child as i32).into_iter().chain(descendants(child));
    children.into_iter().flat_map(and_theirs).collect()
}

struct Coordinator<'a> {
    plan: &'a Plan,
    workers: Vec<Worker>,
    received: Receiver<Received>,
}

impl Coordinator<'_> {
    /// The next message before `until`.
    fn receive(&mut self, until: Instant) -> Result<Option<(usize, FromWorker)>, Error> {
        let left = until.saturating_duration_since(Instant::now());
        // Disconnected it is never: a reader ends with an error, which is returned here.
        let Ok((number, message)) = self.received.recv_timeout(left) else { return Ok(None) };
        let worker = &mut self.workers[number];
        worker.heard_at = Instant::now();
        match message {
            Ok(FromWorker::Failed { why }) => Err(worker.error(why)),
            Ok(message) => Ok(Some((number, message))),
            Err(_) if worker.running == 0 => Ok(None),
            Err(line) => Err(worker.lost(line)),
        }
    }

    /// Waits until each worker has sent a message that `is_expected`.
    fn expect(
        &mut self,
        timeout: Duration,
        observer: Observer<'_>,
        is_expected: impl Fn(&FromWorker) -> bool,
    ) -> Result<(), Error> {
        let until = Instant::now() + timeout;
        let mut missing: Vec<usize> = (0..self.workers.len()).collect();
        while let Some(first) = missing.first() {
            let Some((number, message)) = self.receive(until)? else {
                let why = format!("it did not answer within {}", Span(timeout));
                return Err(self.workers[*first].error(why).hint("see its own messages"));
            };
            if is_expected(&message) {
                missing.retain(|worker| *worker != number);
            }
            match message {
                FromWorker::Event(event) => observer(event),
                FromWorker::Hello { version, format, .. }
                    if (version.as_str(), format) != (env!("CARGO_PKG_VERSION"), FORMAT) =>
                {
                    let own = env!("CARGO_PKG_VERSION");
                    let what = format!(
                        "it is weir {version} (format {format}), and this is weir {own} (format {FORMAT})"
                    );
                    return Err(self.workers[number].error(what).hint("use the same version on both sides"));
                }
                FromWorker::Hello { clock, .. }
                    if self.plan.check_for.is_some() && (clock.is_empty() || clock != clock_name()) =>
                {
                    let what = "its clock is not the one of this process, so --check cannot say which operation was first";
                    let hint = "start all workers on this machine, or leave --check out";
                    return Err(self.workers[number].error(what).hint(hint));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gets all workers ready to start.
    fn prepare(&mut self, observer: Observer<'_>) -> Result<(), Error> {
        self.expect(HELLO_MAX, observer, |message| matches!(message, FromWorker::Hello { .. }))?;
        // Once is enough, and the first can do it as well as any.
        let mut preload = self.plan.preload_keys() > 0;
        let run = self.plan.check_for.map(|_| self.plan.verify.run);
        for worker in &mut self.workers {
            let (plan, clients) = (Box::new(self.plan.clone()), worker.clients.clone());
            worker.send(&ToWorker::Prepare { plan, clients, preload, run });
            preload = false;
        }
        self.expect(PREPARE_MAX, observer, |message| matches!(message, FromWorker::Ready))
    }

    /// Starts all workers and receives what their threads report.
    fn measure(&mut self, observer: Observer<'_>) -> Result<LoadReport, Error> {
        let begin = Instant::now();
        for worker in &mut self.workers {
            worker.send(&ToWorker::Start);
            worker.heard_at = begin;
        }
        let all_threads = self.workers.iter().map(|worker| worker.running).sum();
        let mut collector = Collector::new(self.plan, begin, all_threads);
        while self.workers.iter().any(|worker| worker.running > 0) {
            let reads_back = self.plan.check_for.is_some() && collector.next_edge().is_none();
            let silence_max = SILENCE_MAX + if reads_back { READ_BACK_MAX } else { Duration::ZERO };
            let silent_at = Instant::now() + silence_max;
            let received =
                self.receive(collector.next_edge().map_or(silent_at, |edge| edge.min(silent_at)))?;
            collector.report_edges(Instant::now(), observer);
            match received {
                Some((number, FromWorker::Started)) => self.workers[number].start_delay = begin.elapsed(),
                Some((number, FromWorker::Thread(thread, message))) => {
                    let worker = &mut self.workers[number];
                    if let FromThread::Tally(tally) = &message {
                        worker.tally.add(tally);
                        worker.running -= 1;
                    }
                    collector.add(worker.first_thread + thread, message, observer);
                }
                _ => {}
            }
            let is_silent = |worker: &&Worker| worker.running > 0 && worker.heard_at.elapsed() > silence_max;
            if let Some(worker) = self.workers.iter().find(is_silent) {
                let what = format!("nothing came from it for {}", Span(silence_max));
                return Err(worker.error(what).hint("see its own messages"));
            }
        }
        let workers = self.workers.iter().map(Worker::report).collect();
        Ok(LoadReport { workers, ..collector.finish(observer) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_divided_evenly_and_in_order() {
        for (clients, workers, expected) in
            [(1, 1, &[1][..]), (64, 2, &[32, 32]), (7, 3, &[3, 2, 2]), (8, 3, &[3, 3, 2]), (3, 3, &[1, 1, 1])]
        {
            let parts = shares(clients, workers);
            let sizes: Vec<usize> = parts.iter().map(ExactSizeIterator::len).collect();
            assert_eq!(sizes, expected);
            assert_eq!((parts[0].start, parts[workers - 1].end), (0, clients));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
