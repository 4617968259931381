//! The end of a checked run: reads each key that was written once more, so that a write is missed even if nobody read it again.

use super::answer::{Answer, Outcome};
use super::attempt::Attempt;
use super::client::ClientOptions;
use super::fault::Fault;
use super::keys::RequestSpec;
use super::mix::Operation;
use super::pacing::{Pacing, Think};
use super::reactor::{Driver, Reactor};
use super::request::Request;
use super::schedule::Schedule;
use super::staleness::StalenessChecker;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients used, however many a thread has.
const CLIENTS: usize = 32;
/// Between two requests of a client: a server that answers at once that it cannot is not asked without end.
const PAUSE: Duration = Duration::from_millis(1);
/// When it ends, whether all keys were read or not: a server that is gone stays so.
const TIME_MAX: Duration = Duration::from_secs(5);

/// Has the thread of `checker`, whose clients are of these servers, read each key that it wrote. How many could not be read.
pub(super) fn read_back(
    checker: &mut StalenessChecker<'_>,
    servers: &[usize],
    options: ClientOptions,
    stop: &AtomicBool,
) -> io::Result<u64> {
    let keys = checker.written_keys();
    let servers = &servers[..servers.len().min(CLIENTS).min(keys.len())];
    let now = Instant::now();
    let mut pass = ReadBack { unread: keys.len(), keys, checker, until: now + TIME_MAX, stop };
    let pacing = Pacing { think: Think { mean: PAUSE, exponential: false }, ..Pacing::default() };
    Reactor::new(servers, options, Schedule::new(pacing, Vec::new(), 0, now))?.run(now, &mut pass)?;
    Ok(pass.unread as u64)
}

struct ReadBack<'a, 'c> {
    checker: &'a mut StalenessChecker<'c>,
    /// Nobody has asked for them, or without an answer.
    keys: Vec<u64>,
    /// How many have not been read.
    unread: usize,
    until: Instant,
    stop: &'a AtomicBool,
}

impl Driver for ReadBack<'_, '_> {
    fn next(&mut self, index: usize, request: &mut Request) -> bool {
        let Some(number) = self.keys.pop() else { return false };
        let ask = RequestSpec { operation: Operation::Get, number, value_bytes: 0, template: 0 };
        self.checker.render(index, ask, request);
        true
    }

    fn judge(&mut self, request: &Request, answer: &Answer, result: Outcome) -> (Outcome, bool) {
        let judged = self.checker.judge(request, &answer.content.kept, answer.version(request), result);
        match judged.0 {
            Ok(_) | Err(Fault::WrongValue | Fault::StaleValue) => self.unread -= 1,
            Err(_) => self.keys.extend(request.watch.as_ref().map(|watch| watch.number)),
        }
        judged
    }

    fn done(&mut self, _index: usize, _attempt: &Attempt) {}

    fn should_continue(&mut self, now: Instant) -> bool {
        self.unread > 0 && now < self.until && !self.stop.load(Ordering::Relaxed)
    }

    /// Another try may find a connection.
    fn cannot_send(&mut self, _error: io::Error) -> io::Result<()> {
        Ok(())
    }

    fn wake_at(&self, _now: Instant) -> Option<Instant> {
        Some(self.until)
    }
}
