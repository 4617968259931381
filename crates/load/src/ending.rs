//! The end of a window that somebody may bring forward while it runs.
//!
//! All threads and whoever asks share one instant, which is set once and lies ahead by more than any of them sleeps: so each
//! finds it before it has counted anything behind it, and none has to be told.

use super::recorder::Window;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How far ahead the end is set. A reactor looks around every 100 ms at least (`reactor::SWEEP_MAX`).
const NOTICE: Duration = Duration::from_millis(200);
/// Nanoseconds of a window that ends as planned.
const AS_PLANNED: u64 = u64::MAX;

/// Ends the window of one run before its time; to be shared with whoever knows when that is.
#[derive(Debug)]
pub struct Ending {
    asked: AtomicBool,
    /// As planned, once the run has begun.
    window: OnceLock<Window>,
    /// When it is over: nanoseconds from its start.
    after_ns: AtomicU64,
}

impl Default for Ending {
    fn default() -> Ending {
        Ending {
            asked: AtomicBool::default(),
            window: OnceLock::default(),
            after_ns: AtomicU64::new(AS_PLANNED),
        }
    }
}

impl Ending {
    /// Has the window end a fifth of a second from now, or after as much of it where it has not begun. Only the first call
    /// counts; one that comes too late for that, or for the window at all, changes nothing.
    pub fn now(&self) {
        self.asked.store(true, Ordering::SeqCst);
        self.settle(Instant::now());
    }

    /// From here on it is known which window is meant.
    pub(super) fn of(&self, window: Window) {
        // A second run would be none of its business.
        let _ = self.window.set(window);
        if self.asked.load(Ordering::SeqCst) {
            self.settle(Instant::now());
        }
    }

    /// When the window ends instead of when it was to.
    #[inline]
    pub(super) fn at(&self) -> Option<Instant> {
        match self.after_ns.load(Ordering::Relaxed) {
            AS_PLANNED => None,
            after_ns => Some(self.window.get()?.start + Duration::from_nanos(after_ns)),
        }
    }

    fn settle(&self, now: Instant) {
        let Some(window) = self.window.get() else { return };
        let at = now.max(window.start) + NOTICE;
        if at < window.end {
            let after_ns = at.duration_since(window.start).as_nanos() as u64;
            // Whoever was first has decided.
            let _ = self.after_ns.compare_exchange(AS_PLANNED, after_ns, Ordering::SeqCst, Ordering::SeqCst);
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
        let ending = Ending::default();
        ending.of(window(now, Duration::ZERO));
        assert_eq!(ending.at(), None);
        ending.settle(now + Duration::from_secs(3));
        let end = Some(now + Duration::from_secs(3) + NOTICE);
        assert_eq!(ending.at(), end);
        ending.settle(now + Duration::from_secs(1));
        ending.now();
        assert_eq!(ending.at(), end);
    }

    #[test]
    fn what_is_asked_before_the_window_leaves_the_least_of_it() {
        let now = Instant::now();
        let ending = Ending::default();
        ending.now();
        assert_eq!(ending.at(), None);
        let ahead = Duration::from_secs(3600);
        ending.of(window(now, ahead));
        assert_eq!(ending.at(), Some(now + ahead + NOTICE));
    }

    #[test]
    fn what_is_asked_too_late_changes_nothing() {
        let now = Instant::now();
        let ending = Ending::default();
        ending.of(window(now, Duration::ZERO));
        ending.settle(now + Duration::from_secs(10));
        ending.settle(now + Duration::from_secs(10) - NOTICE);
        assert_eq!(ending.at(), None);
    }
}
