//! The worker: carries out its part of a plan, as the coordinator orders.

use super::super::early_end::EarlyEnd;
use super::super::measure::{self, Progress};
use super::super::{Error, FILES_SPARE, Notice, Plan, allow_files, preload, reach};
use super::{FromWorker, ToWorker};
use kv::proto::{FORMAT, LoadEvent};
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Carries out the orders that come from `input`, answers on `output`, and returns when `input` ends: the coordinator is done or
/// gone. The caller then ends the process, and the load with it. `Err` is the line that was no order.
pub fn work(input: impl BufRead, output: impl Write + Send + 'static) -> Result<(), String> {
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || carry_out(&orders, LineWriter(output)));
    for line in input.lines().map_while(Result::ok) {
        let order: ToWorker = serde_json::from_str(&line).map_err(|_| line)?;
        if sender.send(order).is_err() {
            break;
        }
    }
    Ok(())
}

struct LineWriter<W>(W);

impl<W: Write> LineWriter<W> {
    fn send(&mut self, message: &FromWorker) {
        let mut line = serde_json::to_vec(message).expect("messages have no keys but texts");
        line.push(b'\n');
        // This fails only if the coordinator is gone; then the input ends, too.
        let _ = self.0.write_all(&line).and_then(|()| self.0.flush());
    }
}

/// A plan, which of its clients are meant, and where its target is.
type Job = (Box<Plan>, Range<u32>, SocketAddr);

fn carry_out<W: Write>(orders: &Receiver<ToWorker>, mut output: LineWriter<W>) {
    let version = env!("CARGO_PKG_VERSION").to_owned();
    output.send(&FromWorker::Hello { version, format: FORMAT });
    let mut job: Option<Job> = None;
    for order in orders {
        let done = match (order, &job) {
            (ToWorker::Prepare { plan, clients }, _) => prepare(&plan, &clients).map(|address| {
                job = Some((plan, clients, address));
                FromWorker::Ready
            }),
            (ToWorker::Preload, Some(job)) => preload_keys(job, &mut output),
            (ToWorker::Start, Some(job)) => count(job, &mut output),
            (order, None) => {
                output.send(&FromWorker::Failed { why: format!("{order:?} came before a plan") });
                return;
            }
        };
        output.send(&done.unwrap_or_else(|error| FromWorker::Failed { why: explain(&error) }));
    }
}

fn prepare(plan: &Plan, clients: &Range<u32>) -> Result<SocketAddr, Error> {
    plan.check()?;
    allow_files(clients.len() as u64 + FILES_SPARE);
    reach(plan)
}

fn preload_keys<W: Write>(job: &Job, output: &mut LineWriter<W>) -> Result<FromWorker, Error> {
    let (plan, _, address) = job;
    let mut done = FromWorker::Preloaded { keys: 0, secs: 0.0 };
    preload::preload(plan, *address, &mut |notice| match notice {
        Notice::Preloading { requests, of } => output.send(&FromWorker::Preloading { requests, of }),
        Notice::Event(LoadEvent::Preloaded { keys, secs }) => done = FromWorker::Preloaded { keys, secs },
        _ => {}
    })?;
    Ok(done)
}

fn count<W: Write>(job: &Job, output: &mut LineWriter<W>) -> Result<FromWorker, Error> {
    let (plan, clients, address) = job;
    output.send(&FromWorker::Started);
    let tally = measure::count(plan, clients, *address, &EarlyEnd::default(), &mut |progress| {
        // The coordinator reports the edges of the window by its own clock.
        if let Progress::Second(second) = progress {
            output.send(&FromWorker::Second(second.clone()));
        }
    })?;
    Ok(FromWorker::Tally(Box::new(tally)))
}

/// An error, with a hint on what to do on the worker's machine.
fn explain(error: &Error) -> String {
    let remedy = match error {
        Error::Unreachable { .. } => "the server must be reachable from the worker's machine",
        Error::Preload { .. } => "the server must store values as the dialect says",
        Error::Machine(_) => "use fewer --clients or more workers, or raise the limit of open files there",
        _ => return error.to_string(),
    };
    format!("{error}; hint: {remedy}")
}
