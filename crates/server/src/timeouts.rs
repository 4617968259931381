//! Timeouts of connections: what ends a wait for the peer, other than the peer. Time does, and the drain.
//!
//! One check of all connections several times a second replaces a timer for each of them, so a request starts and stops no
//! timer. A wait ends up to two checks late.

use super::error::Failure;
use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Most time between two checks; each check also renews the `Date` of answers.
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(250);
/// Least time between two checks.
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(5);
/// Checks per timeout.
const CHECKS: u32 = 8;

/// The waits of all connections of a worker.
pub(super) struct TimeoutChecker {
    /// Those of connections that are gone are removed by the next check.
    waits: RefCell<Vec<Weak<Wait>>>,
    /// Whether [`TimeoutChecker::drain`] was called.
    pub(super) draining: Cell<bool>,
    last_check: Cell<Instant>,
    /// Time between two checks.
    pub(super) interval: Duration,
}

/// The wait of one connection.
pub(super) struct ConnectionTimeout {
    wait: Rc<Wait>,
    checker: Rc<TimeoutChecker>,
}

#[derive(Default)]
struct Wait {
    /// When it ends; `None` while the connection does not wait.
    until: Cell<Option<Instant>>,
    /// Whether the connection is between two requests.
    is_idle: Cell<bool>,
    /// Why the checker ended it.
    ended: Cell<Option<End>>,
    waker: RefCell<Option<Waker>>,
}

/// Why a request is not performed, or a connection ends before its peer wants to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// The peer left, or the socket broke.
    Gone,
    /// The peer ended in the middle of a request.
    Cut,
    /// The peer is too slow.
    Slow,
    /// The server drains and nothing is under way.
    Draining,
    /// The request failed.
    Failed(Box<Failure>),
}

impl End {
    /// What is answered; `Err`: nobody reads that.
    pub(super) fn failure(self) -> Result<Failure, End> {
        let failure = match self {
            End::Slow => Failure::new(408, "too_slow", "the request did not arrive in time"),
            // The peer may have closed only its own direction, and still read.
            End::Cut => Failure::new(400, "incomplete", "the connection ended in the middle of a request"),
            End::Failed(failure) => return Ok(*failure),
            End::Gone | End::Draining => return Err(self),
        };
        Ok(failure.not_applied().closing())
    }
}

impl From<Failure> for End {
    fn from(failure: Failure) -> End {
        End::Failed(Box::new(failure))
    }
}

impl TimeoutChecker {
    /// For timeouts from `shortest` up.
    pub(super) fn new(shortest: Duration) -> TimeoutChecker {
        TimeoutChecker {
            waits: RefCell::default(),
            draining: Cell::default(),
            last_check: Cell::new(Instant::now()),
            interval: (shortest / CHECKS).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX),
        }
    }

    /// Registers a connection.
    pub(super) fn register(self: &Rc<TimeoutChecker>) -> ConnectionTimeout {
        let wait = Rc::new(Wait::default());
        self.waits.borrow_mut().push(Rc::downgrade(&wait));
        ConnectionTimeout { wait, checker: Rc::clone(self) }
    }

    /// Ends idle waits at once from now on.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.check(Instant::now());
    }

    /// Ends the waits whose end is not after `now`.
    pub(super) fn check(&self, now: Instant) {
        self.last_check.set(now);
        self.waits.borrow_mut().retain(|wait| {
            let Some(wait) = wait.upgrade() else { return false };
            let ended = match wait.until.get() {
                Some(_) if self.draining.get() && wait.is_idle.get() => End::Draining,
                Some(until) if until <= now => End::Slow,
                _ => return true,
            };
            wait.ended.set(Some(ended));
            if let Some(waker) = &*wait.waker.borrow() {
                waker.wake_by_ref();
            }
            true
        });
    }
}

impl ConnectionTimeout {
    /// The end of a wait of `timeout` that begins now, up to one check late; reads no clock.
    pub(super) fn until(&self, timeout: Duration) -> Instant {
        self.checker.last_check.get() + self.checker.interval + timeout
    }

    /// Waits for `work` until that instant. If `is_idle`, a drain ends the wait, too.
    pub(super) async fn wait<T>(
        &self,
        until: Instant,
        is_idle: bool,
        work: impl Future<Output = T>,
    ) -> Result<T, End> {
        let mut work = std::pin::pin!(work);
        let wait = &*self.wait;
        // An earlier wait may have been dropped before its end.
        wait.clear();
        std::future::poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                wait.clear();
                return Poll::Ready(Ok(done));
            }
            if wait.until.get().is_none() {
                wait.is_idle.set(is_idle);
                wait.until.set(Some(until));
                let mut waker = wait.waker.borrow_mut();
                // A connection stays in its task, so the waker is nearly always the same.
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
            }
            match wait.ended.take() {
                None => Poll::Pending,
                Some(ended) => {
                    wait.clear();
                    Poll::Ready(Err(ended))
                }
            }
        })
        .await
    }
}

impl Wait {
    fn clear(&self) {
        self.until.set(None);
        self.ended.set(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::pin::pin;
    use std::task::Context;

    /// Polls a wait once, lets `act` happen, and polls it again.
    fn check(is_idle: bool, act: impl FnOnce(&TimeoutChecker, Instant), expected: Poll<Result<(), End>>) {
        let checker = Rc::new(TimeoutChecker::new(Duration::from_secs(1)));
        let timeout = checker.register();
        let until = Instant::now() + Duration::from_secs(1000);
        let mut wait = pin!(timeout.wait(until, is_idle, pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
        act(&checker, until);
        assert_eq!(wait.as_mut().poll(&mut context), expected);
    }

    #[test]
    fn a_wait_ends_when_its_time_is_up_and_not_before() {
        check(true, |checker, until| checker.check(until - Duration::from_nanos(1)), Poll::Pending);
        check(true, TimeoutChecker::check, Poll::Ready(Err(End::Slow)));
        check(false, TimeoutChecker::check, Poll::Ready(Err(End::Slow)));
    }

    #[test]
    fn a_drain_ends_idle_waits_only() {
        check(true, |checker, _| checker.drain(), Poll::Ready(Err(End::Draining)));
        check(false, |checker, _| checker.drain(), Poll::Pending);
    }

    #[test]
    fn what_ended_one_wait_does_not_end_the_next() {
        let checker = Rc::new(TimeoutChecker::new(Duration::from_secs(1)));
        let timeout = checker.register();
        let mut context = Context::from_waker(Waker::noop());
        let soon = Instant::now();
        for _ in 0..2 {
            let mut wait = pin!(timeout.wait(soon, true, pending::<()>()));
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
            checker.check(soon);
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(Err(End::Slow)));
        }
        // No wait is registered now.
        checker.check(soon);
        let mut wait = pin!(timeout.wait(soon, true, async { 7 }));
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
    }

    #[test]
    fn connections_leave_in_any_order() {
        let checker = Rc::new(TimeoutChecker::new(Duration::from_secs(1)));
        let mut timeout: Vec<ConnectionTimeout> = (0..5).map(|_| checker.register()).collect();
        for index in [1, 3, 0] {
            drop(timeout.remove(index));
        }
        checker.check(Instant::now());
        assert_eq!(checker.waits.borrow().len(), 2);
        timeout.clear();
        checker.check(Instant::now());
        assert!(checker.waits.borrow().is_empty());
    }

    #[test]
    fn short_timeouts_are_checked_more_often() {
        assert_eq!(TimeoutChecker::new(Duration::from_secs(10)).interval, CHECK_INTERVAL_MAX);
        assert_eq!(TimeoutChecker::new(Duration::from_millis(80)).interval, Duration::from_millis(10));
        assert_eq!(TimeoutChecker::new(Duration::ZERO).interval, CHECK_INTERVAL_MIN);
    }
}
