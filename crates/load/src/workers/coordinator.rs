//! The coordinator: starts the workers, divides the clients among them, and adds up their tallies.
//!
//! One thread reads from each worker; everything else happens in the caller's thread. A worker that fails or is lost ends the run
//! with an error: figures without its clients would be those of another load.

use super::super::measure::{self, Edges};
use super::super::recorder::Window;
use super::super::seconds::{SecondMerger, TimeSeries};
use super::super::tally::Tally;
use super::super::{Error, Notice, Pacing, Plan, plain_cause};
use super::{FromWorker, ToWorker};
use kv::proto::{FORMAT, LoadEvent, LoadReport, WorkerReport};
use kv::units::Span;
use std::io::{BufRead, BufReader, Write};
use std::ops::Range;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// How long a command may take to get a worker running: ssh may have to ask its user for a password.
const HELLO_MAX: Duration = Duration::from_secs(60);
/// How long reaching the target or preloading may take.
const PREPARE_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// A worker under load reports each second; one that is silent for so long is lost.
const SILENCE_MAX: Duration = Duration::from_secs(10);
/// Longest part of a worker's line that an error quotes.
const QUOTED_MAX: usize = 200;

/// Carries out `plan` by the workers that these commands start, and says what all their clients saw.
///
/// Blocks as [`super::super::run`] does.
pub fn run(plan: &Plan, commands: &[String], observer: &mut dyn FnMut(Notice)) -> Result<LoadReport, Error> {
    plan.check()?;
    let (sender, received) = mpsc::channel();
    let parts = commands.iter().zip(shares(plan.clients, commands.len())).enumerate();
    let workers = parts.map(|(number, (command, clients))| Worker::start(number, command, clients, &sender));
    let workers: Vec<Worker> = workers.collect::<Result<_, _>>()?;
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
    process: Child,
    /// `None` once the worker has to end.
    input: Option<ChildStdin>,
    /// When its last message came.
    heard_at: Instant,
    /// From the order to start to its confirmation.
    start_delay: Duration,
    tally: Option<Box<Tally>>,
}

/// A line of worker number `worker`. `Err` is why no more will come.
struct Received {
    worker: usize,
    at: Instant,
    message: Result<FromWorker, Lost>,
}

enum Lost {
    /// Its standard output ended.
    Ended,
    /// This line is no message.
    Unreadable(Vec<u8>),
}

impl Worker {
    fn start(
        number: usize,
        command: &str,
        clients: Range<u32>,
        sender: &Sender<Received>,
    ) -> Result<Worker, Error> {
        let mut process = Command::new("sh")
            .args(["-c", command])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| worker_error(command, format!("cannot run sh: {}", plain_cause(&error))))?;
        let (input, output) = (process.stdin.take(), process.stdout.take());
        let sender = sender.clone();
        thread::spawn(move || {
            let mut lines = BufReader::new(output.expect("it is piped")).split(b'\n');
            loop {
                let message = match lines.next() {
                    Some(Ok(line)) => serde_json::from_slice(&line).map_err(|_| Lost::Unreadable(line)),
                    _ => Err(Lost::Ended),
                };
                let last = message.is_err();
                let received = Received { worker: number, at: Instant::now(), message };
                // Nobody receives it if the run is over.
                if sender.send(received).is_err() || last {
                    return;
                }
            }
        });
        Ok(Worker {
            command: command.to_owned(),
            clients,
            process,
            input,
            heard_at: Instant::now(),
            start_delay: Duration::ZERO,
            tally: None,
        })
    }

    fn send(&mut self, message: &ToWorker) {
        let mut line = serde_json::to_vec(message).expect("messages have no keys but texts");
        line.push(b'\n');
        if let Some(input) = &mut self.input {
            // Where this fails, the worker is gone, and the thread that reads from it will say so.
            let _ = input.write_all(&line);
        }
    }

    fn error(&self, cause: impl Into<String>) -> Error {
        worker_error(&self.command, cause)
    }

    fn lost(&mut self, how: Lost) -> Error {
        if let Lost::Unreadable(line) = how {
            let line = String::from_utf8_lossy(&line);
            let line: String = line.chars().filter(|sign| !sign.is_control()).take(QUOTED_MAX).collect();
            return self.error(format!(
                "`{line}` is no message of weir load-worker; hint: the command may print nothing else on standard output"
            ));
        }
        self.end();
        let status =
            self.process.wait().map_or_else(|error| plain_cause(&error), |status| status.to_string());
        self.error(format!(
            "it ended before its result was there ({status}); hint: see its own messages, or run the command by itself"
        ))
    }

    /// Has it end. The end of its input ends `weir load-worker` even where another process is its parent.
    fn end(&mut self) {
        self.input = None;
        // An error says that it has ended already.
        let _ = self.process.kill();
    }

    fn report(&self, tally: &Tally) -> WorkerReport {
        WorkerReport {
            command: self.command.clone(),
            clients: self.clients.len() as u32,
            threads: tally.threads,
            attempts: tally.attempts(),
            successes: tally.successes(),
            latency: tally.latency(),
            cpu_secs: tally.cpu.as_secs_f64(),
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

fn worker_error(command: &str, cause: impl Into<String>) -> Error {
    Error::Worker { command: command.to_owned(), cause: cause.into() }
}

struct Coordinator<'a> {
    plan: &'a Plan,
    workers: Vec<Worker>,
    received: Receiver<Received>,
}

impl Coordinator<'_> {
    /// The next message before `until`.
    fn receive(&mut self, until: Instant) -> Result<Option<(usize, Instant, FromWorker)>, Error> {
        let left = until.saturating_duration_since(Instant::now());
        // Disconnected it is never: a reader ends with an error, which is returned here.
        let Ok(Received { worker: number, at, message }) = self.received.recv_timeout(left) else {
            return Ok(None);
        };
        let worker = &mut self.workers[number];
        worker.heard_at = at;
        match message {
            Ok(FromWorker::Failed { why }) => Err(worker.error(why)),
            Ok(message) => Ok(Some((number, at, message))),
            Err(_) if worker.tally.is_some() => Ok(None),
            Err(how) => Err(worker.lost(how)),
        }
    }

    /// Waits until each of `workers` has sent a message that `is_expected`.
    fn expect(
        &mut self,
        mut workers: Vec<usize>,
        timeout: Duration,
        observer: &mut dyn FnMut(Notice),
        is_expected: impl Fn(&FromWorker) -> bool,
    ) -> Result<(), Error> {
        let until = Instant::now() + timeout;
        while let Some(first) = workers.first() {
            let Some((number, _, message)) = self.receive(until)? else {
                let why = format!("it did not answer within {}; hint: see its own messages", Span(timeout));
                return Err(self.workers[*first].error(why));
            };
            if is_expected(&message) {
                workers.retain(|waited_for| *waited_for != number);
            }
            match message {
                FromWorker::Preloading { requests, of } => observer(Notice::Preloading { requests, of }),
                FromWorker::Preloaded { keys, secs } => {
                    observer(Notice::Event(LoadEvent::Preloaded { keys, secs }));
                }
                FromWorker::Hello { version, format }
                    if (version.as_str(), format) != (env!("CARGO_PKG_VERSION"), FORMAT) =>
                {
                    return Err(self.workers[number].error(format!(
                        "it is weir {version} (format {format}), and this is weir {} (format {FORMAT}); hint: \
                         use the same version on both sides",
                        env!("CARGO_PKG_VERSION")
                    )));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Gets all workers ready to start.
    fn prepare(&mut self, observer: &mut dyn FnMut(Notice)) -> Result<(), Error> {
        let all: Vec<usize> = (0..self.workers.len()).collect();
        self.expect(all.clone(), HELLO_MAX, observer, |message| matches!(message, FromWorker::Hello { .. }))?;
        for worker in &mut self.workers {
            let (plan, clients) = (Box::new(self.plan.clone()), worker.clients.clone());
            worker.send(&ToWorker::Prepare { plan, clients });
        }
        self.expect(all, PREPARE_MAX, observer, |message| matches!(message, FromWorker::Ready))?;
        if self.plan.preload_keys() > 0 {
            // Once is enough, and the first can do it as well as any.
            self.workers[0].send(&ToWorker::Preload);
            let is_done = |message: &FromWorker| matches!(message, FromWorker::Preloaded { .. });
            self.expect(vec![0], PREPARE_MAX, observer, is_done)?;
        }
        Ok(())
    }

    /// Starts all workers and receives their seconds and tallies.
    fn measure(&mut self, observer: &mut dyn FnMut(Notice)) -> Result<LoadReport, Error> {
        let begin = Instant::now();
        for worker in &mut self.workers {
            worker.send(&ToWorker::Start);
            worker.heard_at = begin;
        }
        let start = begin + self.plan.warmup;
        let mut edges = Edges::new(Window { start, end: start + self.plan.window });
        let mut merger = SecondMerger::new(self.workers.len());
        let mut series = TimeSeries::new(self.plan);
        while self.workers.iter().any(|worker| worker.tally.is_none()) {
            let silent_at = Instant::now() + SILENCE_MAX;
            let received = self.receive(edges.next().map_or(silent_at, |edge| edge.min(silent_at)))?;
            edges.report(Instant::now(), &mut |event| observer(Notice::Event(event)));
            match received {
                Some((number, at, FromWorker::Started)) => self.workers[number].start_delay = at - begin,
                Some((number, _, FromWorker::Tally(tally))) => self.workers[number].tally = Some(tally),
                Some((number, _, FromWorker::Second(second))) => {
                    for second in merger.add(number, &second) {
                        series.push(&second, observer);
                    }
                }
                _ => {}
            }
            let is_silent =
                |worker: &&Worker| worker.tally.is_none() && worker.heard_at.elapsed() > SILENCE_MAX;
            if let Some(worker) = self.workers.iter().find(is_silent) {
                let limit = Span(SILENCE_MAX);
                return Err(
                    worker.error(format!("nothing came from it for {limit}; hint: see its own messages"))
                );
            }
        }
        edges.report(Instant::now().max(edges.window.end), &mut |event| observer(Notice::Event(event)));
        let mut total = Tally::new(matches!(self.plan.pacing, Pacing::Open { .. }));
        let mut workers = Vec::new();
        for worker in &self.workers {
            if let Some(tally) = &worker.tally {
                total.add(tally);
                workers.push(worker.report(tally));
            }
        }
        Ok(LoadReport { workers, ..measure::report(self.plan, &total, series) })
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
