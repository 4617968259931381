//! The worker: carries out its part of a plan, as the coordinator orders.

use super::super::early_end::EarlyEnd;
use super::super::{FILES_SPARE, allow_files, linearizability, machine_error, measure, preload, reach};
use super::{FromWorker, ToWorker, send};
use kv::Error;
use kv::proto::FORMAT;
use std::io::{BufRead, Write};
use std::sync::mpsc::{self, Receiver};
use std::thread;

/// Carries out the orders that come from `input`, answers on `output`, and returns when `input` ends: the coordinator is done or
/// gone. The caller then ends the process, and the load with it. `Err` is the line that was no order.
pub fn work(input: impl BufRead, mut output: impl Write + Send + 'static) -> Result<(), String> {
    let (sender, orders) = mpsc::channel();
    thread::spawn(move || {
        // Where sending fails the coordinator is gone, and then the input ends, too.
        let mut answer = |message| drop(send(&mut output, &message));
        if let Err(error) = carry_out(&orders, &mut answer) {
            answer(FromWorker::Failed { why: error.to_string() });
        }
    });
    for line in input.lines().map_while(Result::ok) {
        let order: ToWorker = serde_json::from_str(&line).map_err(|_| line)?;
        // This fails once the load is over.
        let _ = sender.send(order);
    }
    Ok(())
}

fn carry_out(orders: &Receiver<ToWorker>, answer: &mut dyn FnMut(FromWorker)) -> Result<(), Error> {
    let (version, clock) = (env!("CARGO_PKG_VERSION").to_owned(), linearizability::clock_name());
    answer(FromWorker::Hello { version, format: FORMAT, clock });
    let Ok(ToWorker::Prepare { mut plan, clients, preload, run }) = orders.recv() else { return Ok(()) };
    plan.check()?;
    plan.verify.run = run.unwrap_or(plan.verify.run);
    allow_files(clients.len() as u64 + FILES_SPARE);
    let endpoints = reach(&plan)?;
    if preload {
        preload::preload(&plan, &endpoints, &mut |event| answer(FromWorker::Event(event)))?;
    }
    answer(FromWorker::Ready);
    let Ok(ToWorker::Start) = orders.recv() else { return Ok(()) };
    answer(FromWorker::Started);
    let failed = |error| machine_error(error, plan.connect);
    measure::run_threads(&plan, &clients, &endpoints, &EarlyEnd::default(), |_, messages| {
        for (thread, message) in messages {
            answer(FromWorker::Thread(thread, message.map_err(failed)?));
        }
        Ok(())
    })
}
