//! The clock by which rows expire.

use rustix::time::{ClockId, clock_gettime};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime};

/// Milliseconds since 1970, without leap seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);

impl Timestamp {
    /// What this machine's clock says now.
    pub fn of_this_machine() -> Timestamp {
        SystemTime::now().into()
    }

    /// This much later.
    pub fn after(self, span: Duration) -> Timestamp {
        Timestamp(self.0.saturating_add(span.as_millis() as u64))
    }

    /// How long after `earlier` it is; zero if it is not.
    pub fn since(self, earlier: Timestamp) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

impl From<Timestamp> for SystemTime {
    fn from(at: Timestamp) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(at.0)
    }
}

/// What is before 1970 is taken for 1970.
impl From<SystemTime> for Timestamp {
    fn from(at: SystemTime) -> Timestamp {
        Timestamp(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
    }
}

/// The time since the machine was started, in which it may have been suspended.
pub fn boot_time() -> Duration {
    // Never negative.
    Duration::try_from(clock_gettime(ClockId::Boottime)).unwrap_or_default()
}

/// What this thread has used of the processor, user and system.
pub fn thread_time() -> Duration {
    // Never negative.
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The clock of a store: set when the store is acquired, and driven by the time since this machine was started from then on. It
/// never goes back.
#[derive(Debug)]
pub struct Clock {
    started: Duration,
    /// What it said at `started`, in milliseconds.
    offset: AtomicU64,
    is_set: AtomicBool,
}

impl Default for Clock {
    /// A clock that is not set: it says 1970.
    fn default() -> Clock {
        Clock { started: boot_time(), offset: AtomicU64::new(0), is_set: AtomicBool::new(false) }
    }
}

impl Clock {
    /// The time.
    pub fn now(&self) -> Timestamp {
        Timestamp(self.offset.load(Relaxed) + self.elapsed())
    }

    /// Whether it was ever set.
    pub fn is_set(&self) -> bool {
        self.is_set.load(Relaxed)
    }

    /// Sets it to `now`, if that is later than what it says.
    pub fn advance_to(&self, now: Timestamp) {
        self.offset.fetch_max(now.0.saturating_sub(self.elapsed()), Relaxed);
        self.is_set.store(true, Relaxed);
    }

    /// In milliseconds.
    fn elapsed(&self) -> u64 {
        boot_time().saturating_sub(self.started).as_millis() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_only_goes_forward() {
        let clock = Clock::default();
        assert!(!clock.is_set() && clock.now() < Timestamp::of_this_machine());
        clock.advance_to(Timestamp::of_this_machine());
        let before = clock.now();
        clock.advance_to(Timestamp(1));
        assert!(clock.is_set() && clock.now() >= before);
        clock.advance_to(before.after(Duration::from_secs(3600)));
        assert!(clock.now().since(before) >= Duration::from_secs(3600));
    }
}
