//! The end of a checked run: reads each key that was written once more, so that a write is missed even if nobody read it again.

use super::answer::{Answer, Outcome};
use super::attempt::Attempt;
use super::client::ClientOptions;
use super::fault::Fault;
use super::keys::RequestSpec;
use super::mix::Operation;
use super::reactor::{Driver, Reactor};
use super::request::Request;
use super::schedule::Schedule;
use super::staleness::StalenessChecker;
use std::collections::{BTreeSet, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Clients used, however many a thread has.
const CLIENTS: usize = 32;
/// After a request that failed: a server that answers at once that it cannot is not asked without end.
const PAUSE: Duration = Duration::from_millis(1);
/// When it ends though no key was read since: a server that is gone stays so.
const PATIENCE: Duration = Duration::from_secs(5);
/// When it ends, whether all keys were read or not.
pub(super) const READ_BACK_MAX: Duration = Duration::from_secs(20);

/// Has the thread of `checker`, whose clients are of these servers, read each key that it wrote. Those that could not be read.
pub(super) fn read_back(
    checker: &mut StalenessChecker<'_>,
    servers: &[usize],
    options: ClientOptions,
    stop: &AtomicBool,
) -> io::Result<BTreeSet<u64>> {
    let keys = checker.written_keys();
    let servers = &servers[..servers.len().min(CLIENTS).min(keys.len())];
    let now = Instant::now();
    let unread = keys.iter().copied().collect();
    let mut pass =
        ReadBack { unread, keys: keys.into(), checker, read_at: now, until: now + READ_BACK_MAX, stop };
    Reactor::new(servers, options, Schedule::none())?.run(now, &mut pass)?;
    Ok(pass.unread)
}

struct ReadBack<'a, 'c> {
    checker: &'a mut StalenessChecker<'c>,
    /// Nobody has asked for them, or without an answer.
    keys: VecDeque<u64>,
    /// These, and those that are being asked for.
    unread: BTreeSet<u64>,
    /// When the last one was read.
    read_at: Instant,
    until: Instant,
    stop: &'a AtomicBool,
}

/// Whether a read with this result says what its key held.
fn is_read(result: Outcome) -> bool {
    matches!(result, Ok(_) | Err(Fault::WrongValue | Fault::StaleValue))
}

impl ReadBack<'_, '_> {
    fn end(&self) -> Instant {
        self.until.min(self.read_at + PATIENCE)
    }
}

impl Driver for ReadBack<'_, '_> {
    fn next(&mut self, index: usize, request: &mut Request) -> bool {
        let waiting = self.keys.pop_front();
        // What another client asks for may be with a server that hangs.
        let Some(number) = waiting.or_else(|| self.unread.first().copied()) else { return false };
        let ask = RequestSpec { operation: Operation::Get, number, value_bytes: 0, template: 0 };
        self.checker.render(index, ask, request);
        true
    }

    fn judge(&mut self, request: &Request, answer: &Answer, result: Outcome) -> (Outcome, bool) {
        let judged = self.checker.judge(request, &answer.content.kept, answer.version(request), result);
        let number = request.watch.as_ref().map(|watch| watch.number);
        if is_read(judged.0) {
            number.map(|number| self.unread.remove(&number));
        } else {
            // Behind those that nobody has asked for.
            self.keys.extend(number);
        }
        judged
    }

    fn done(&mut self, _index: usize, attempt: &Attempt) {
        if is_read(attempt.result) {
            self.read_at = attempt.until;
        }
    }

    fn rest(&self, attempt: &Attempt) -> Duration {
        if is_read(attempt.result) { Duration::ZERO } else { PAUSE }
    }

    fn should_continue(&mut self, now: Instant) -> bool {
        !self.unread.is_empty() && now < self.end() && !self.stop.load(Ordering::Relaxed)
    }

    /// Another try may find a connection.
    fn cannot_send(&mut self, _error: io::Error) -> io::Result<()> {
        Ok(())
    }

    fn wake_at(&self, _now: Instant) -> Option<Instant> {
        Some(self.end())
    }
}
