//! Until when rows may be answered from a cache without asking the store.
//!
//! Another server may own the store by the time that this one notices, if this one was paused or cut off. So hits are answered
//! only for a time after the store last confirmed the lease, counted from when it was asked, and a new owner that follows one
//! which did not release the store waits for longer than that.

use kv::clock::boot_time;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Release},
};
use std::time::Duration;
use tokio::sync::Notify;

/// How long hits are answered after the store was asked to confirm the lease.
const HITS_LAST: Duration = Duration::from_secs(2);
/// How long a new owner waits: clocks may run differently fast.
pub(super) const HITS_END: Duration = Duration::from_millis(2020);

/// Alone in its cache line: every hit reads it.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct HitLease {
    /// By [`boot_time`], in nanoseconds; 0 for none.
    end: AtomicU64,
    extended: Notify,
}

/// The end of a lease that lasts until it is ended.
const NO_END: u64 = u64::MAX;

impl HitLease {
    /// Whether the store cannot have had another owner until now. Asked between the lookup and the answer.
    pub(super) fn is_valid(&self) -> bool {
        match self.end.load(Acquire) {
            NO_END => true,
            end => boot_time() < Duration::from_nanos(end),
        }
    }

    /// Waits until the store cannot have had another owner until now.
    pub(super) async fn until_valid(&self) {
        loop {
            // Before the look, so that an extension after it is not missed.
            let extended = self.extended.notified();
            if self.is_valid() {
                return;
            }
            extended.await;
        }
    }

    /// The store confirmed the lease, and was asked to at `asked`; `None`: nobody can take it over unnoticed.
    pub(super) fn extend(&self, asked: Option<Duration>) {
        let end = asked.map_or(NO_END, |asked| (asked + HITS_LAST).as_nanos() as u64);
        self.end.store(end, Release);
        self.extended.notify_waiters();
    }

    /// No hits are answered from now on.
    pub(super) fn end(&self) {
        self.end.store(0, Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_end_by_themselves_before_a_new_owner_serves() {
        let lease = HitLease::default();
        assert!(!lease.is_valid(), "before the first confirmation");
        lease.extend(Some(boot_time()));
        assert!(lease.is_valid());
        // As if it had been asked then.
        lease.extend(Some(boot_time().saturating_sub(HITS_LAST)));
        assert!(!lease.is_valid());
        lease.extend(None);
        assert!(lease.is_valid());
        lease.end();
        assert!(!lease.is_valid());
        assert!(HITS_END >= HITS_LAST.mul_f64(1.01));
    }
}
