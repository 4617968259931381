//! The preload: writes the keys of a workload that reads, then reads each of them back and compares the whole value.
//!
//! A store that does not give back what it was given is not worth measuring, so the first bad key ends it.

use super::answer::Success;
use super::attempt::Attempt;
use super::client::ClientOptions;
use super::mix::Operation;
use super::reactor::{Driver, Reactor};
use super::request::{Request, Requests};
use super::schedule::Schedule;
use super::stream::Endpoint;
use super::{Connect, Observer, Plan, machine_error};
use kv::Error;
use kv::proto::LoadEvent;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Connections used, however many clients the run has: enough for a durable store to commit writes together.
const CLIENTS: u64 = 32;
/// Keys between two notices.
const NOTICE_EVERY: u64 = 500;

/// Writes and verifies the keys that `plan` wants to be there; at least one.
pub(super) fn preload(plan: &Plan, endpoints: &Arc<[Endpoint]>, observer: Observer<'_>) -> Result<(), Error> {
    let began = Instant::now();
    let keys = plan.preload_keys();
    let clients = keys.min(CLIENTS) as usize;
    let options = ClientOptions {
        endpoints: Arc::clone(endpoints),
        timeout: plan.timeout,
        connect: Connect::Once,
        streams: plan.http2_streams(),
        threads: 1,
        added_cpu: Duration::ZERO,
    };
    let requests = &Requests::new(plan, Connect::Once);
    let servers: Vec<usize> = (0..clients).map(|client| client % endpoints.len()).collect();
    let failed = |error| machine_error(error, Connect::Once);
    let mut reactor = Reactor::new(&servers, options, Schedule::none()).map_err(failed)?;
    for operation in [Operation::Put, Operation::Get] {
        let mut pass = Pass {
            requests,
            operation,
            keys,
            begun: 0,
            done: 0,
            current: vec![0; clients],
            bad: None,
            observer,
        };
        reactor.run(Instant::now(), &mut pass).map_err(failed)?;
        if let Some((number, attempt)) = pass.bad {
            let hint = match plan.dialect().is_default() {
                // It knows the request and failed; 501 is of one that knows no PUT.
                _ if attempt.status >= 500 && attempt.status != 501 => {
                    "see the server's log, or use --no-preload if the keys are there"
                }
                true => "the server must store values under /kv/{key}; try one with `curl -T FILE`",
                false => {
                    "the server must store values and give them back as the dialect says; try its requests with `curl -i`"
                }
            };
            let (key, why) = (requests.key(number), describe(operation, &attempt));
            return Err(Error::new(format_args!("cannot preload key {key}: {why}")).hint(hint));
        }
    }
    observer(LoadEvent::Preloaded { keys, secs: began.elapsed().as_secs_f64() });
    Ok(())
}

/// Once over all keys, with one operation.
struct Pass<'a> {
    requests: &'a Requests,
    operation: Operation,
    keys: u64,
    begun: u64,
    done: u64,
    /// Which key each client is at.
    current: Vec<u64>,
    /// The first key that failed.
    bad: Option<(u64, Attempt)>,
    observer: Observer<'a>,
}

impl Driver for Pass<'_> {
    fn next(&mut self, index: usize, request: &mut Request) -> bool {
        if self.begun == self.keys {
            return false;
        }
        self.current[index] = self.begun;
        self.requests.render_preload(request, self.operation, self.begun);
        self.begun += 1;
        true
    }

    fn done(&mut self, index: usize, attempt: &Attempt) {
        if attempt.result == Ok(Success::Done) {
            self.done += 1;
        } else if self.bad.is_none() {
            self.bad = Some((self.current[index], *attempt));
        }
        if self.done.is_multiple_of(NOTICE_EVERY) {
            let before = if self.operation == Operation::Get { self.keys } else { 0 };
            (self.observer)(LoadEvent::Preloading { requests: before + self.done, of: 2 * self.keys });
        }
    }

    fn should_continue(&mut self, _now: Instant) -> bool {
        self.bad.is_none() && self.done < self.keys
    }

    fn wake_at(&self, _now: Instant) -> Option<Instant> {
        None
    }
}

/// Why `attempt` of `operation` is not what it should be.
fn describe(operation: Operation, attempt: &Attempt) -> String {
    let (method, status) = (operation.method(), attempt.status);
    match attempt.result {
        Ok(_) => format!("{method} found nothing"),
        Err(fault) if status == 0 => format!("{method} failed ({})", fault.name()),
        Err(fault) => format!("{method} was answered {status} ({})", fault.name()),
    }
}
