//! The end of a window that is requested while it runs.
//!
//! All threads share one instant. It is set once, and lies so far ahead that each thread finds it before it has counted anything
//! behind it.

use super::recorder::Window;
use kv::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// How far ahead the end is set. A reactor looks around every 100 ms at least (`reactor::SWEEP_MAX`).
const LEAD_TIME: Duration = Duration::from_millis(200);

/// Ends the window of one run before its time.
#[derive(Debug, Default)]
pub struct EarlyEnd {
    requested: AtomicBool,
    /// As planned, once the run has begun.
    window: OnceLock<Window>,
    end: OnceLock<Instant>,
    /// Whether its owner asks for [`EarlyEnd::failure`], so that a failure of this machine ends the window and not the run.
    pub(super) hears_failures: bool,
    failure: Mutex<Option<Error>>,
}

impl EarlyEnd {
    /// One that also ends the window if this machine cannot send any more, as it does without local ports: [`EarlyEnd::failure`] says so
    /// after the run. With any other such a run fails without a report.
    pub fn at_failures() -> EarlyEnd {
        EarlyEnd { hears_failures: true, ..EarlyEnd::default() }
    }

    /// Why the window ended early, if this machine was the reason.
    pub fn failure(&self) -> Option<Error> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Ends the window because of `failure`. The first one counts.
    pub(super) fn fail(&self, failure: Error) {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(failure);
        self.request();
    }

    /// Has the window end a fifth of a second from now, or after as much of it where it has not begun. Only the first call
    /// counts; one that comes too late for that, or for the window at all, changes nothing.
    pub fn request(&self) {
        self.requested.store(true, Ordering::SeqCst);
        self.decide(Instant::now());
    }

    /// The window of the run, which is known from here on.
    pub(super) fn set_window(&self, window: Window) {
        // It is that of the first run only.
        let _ = self.window.set(window);
        if self.requested.load(Ordering::SeqCst) {
            self.decide(Instant::now());
        }
    }

    /// When the window ends instead of when it was to.
    #[inline]
    pub(super) fn get(&self) -> Option<Instant> {
        self.end.get().copied()
    }

    fn decide(&self, now: Instant) {
        let Some(window) = self.window.get() else { return };
        let end = now.max(window.start) + LEAD_TIME;
        if end < window.end {
            // The first one counts.
            let _ = self.end.set(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of 10 s, from so long after `now`.
    fn window(now: Instant, ahead: Duration) -> Window {
        Window { start: now + ahead, end: now + ahead + Duration::from_secs(10) }
    }

    #[test]
    fn a_window_ends_as_planned_until_somebody_asks_and_then_only_once() {
        let now = Instant::now();
        let early_end = EarlyEnd::default();
        early_end.set_window(window(now, Duration::ZERO));
        assert_eq!(early_end.get(), None);
        early_end.decide(now + Duration::from_secs(3));
        let end = Some(now + Duration::from_secs(3) + LEAD_TIME);
        assert_eq!(early_end.get(), end);
        early_end.decide(now + Duration::from_secs(1));
        early_end.request();
        assert_eq!(early_end.get(), end);
    }

    #[test]
    fn what_is_asked_before_the_window_leaves_the_least_of_it() {
        let now = Instant::now();
        let early_end = EarlyEnd::default();
        early_end.request();
        assert_eq!(early_end.get(), None);
        let ahead = Duration::from_secs(3600);
        early_end.set_window(window(now, ahead));
        assert_eq!(early_end.get(), Some(now + ahead + LEAD_TIME));
    }

    #[test]
    fn what_is_asked_too_late_changes_nothing() {
        let now = Instant::now();
        let early_end = EarlyEnd::default();
        early_end.set_window(window(now, Duration::ZERO));
        early_end.decide(now + Duration::from_secs(10));
        early_end.decide(now + Duration::from_secs(10) - LEAD_TIME);
        assert_eq!(early_end.get(), None);
    }
}
