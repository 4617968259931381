//! The memory budget: bytes of request bodies and of values that are on their way, over all connections.
//!
//! Small ones are not counted: a connection's buffer may hold as much anyway, and no request of them touches a counter that
//! workers share.

use super::error::Failure;
use kv::counters::Counter;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

/// Up to this, a body, a value, or answers that are sent together are not counted. The largest value that is copied to the output
/// fits, with its head.
pub(super) const UNCOUNTED_BYTES_MAX: usize = 36 << 10;

/// The budget of a server.
#[derive(Debug, Default)]
pub(super) struct Budget {
    /// Most bytes.
    pub(super) bytes: usize,
    reserved: AtomicUsize,
    /// How often something did not fit.
    pub(super) shed: Counter,
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub(super) struct Reservation<'b> {
    budget: &'b Budget,
    bytes: usize,
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget { bytes, ..Budget::default() }
    }

    /// Bytes in use.
    pub(super) fn reserved(&self) -> usize {
        self.reserved.load(Relaxed)
    }

    /// Nothing of it yet.
    pub(super) fn reservation(&self) -> Reservation<'_> {
        Reservation { budget: self, bytes: 0 }
    }
}

impl Reservation<'_> {
    /// Makes it `bytes` large, unless it is already; if they do not fit, it stays as it is.
    pub(super) fn raise(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes <= UNCOUNTED_BYTES_MAX.max(self.bytes) {
            return Ok(());
        }
        let Budget { bytes: most, reserved, shed } = self.budget;
        let more = bytes - self.bytes;
        let raised = |reserved: usize| reserved.checked_add(more).filter(|sum| sum <= most);
        if reserved.fetch_update(Relaxed, Relaxed, raised).is_err() {
            shed.add(1);
            let what = "values on their way use the server's memory budget; ask again later";
            return Err(Failure::new(503, "overloaded", what).with("Retry-After", "1"));
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl Drop for Reservation<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.reserved.fetch_sub(self.bytes, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn no_more_is_reserved_than_there_is_and_all_is_given_back() {
        let budget = Budget::new(3 * MIB);
        let (mut one, mut other) = (budget.reservation(), budget.reservation());
        assert!(one.raise(MIB).is_ok() && one.raise(2 * MIB).is_ok());
        assert_eq!(budget.reserved(), 2 * MIB);
        let failure = other.raise(MIB + 1).unwrap_err();
        assert_eq!((failure.status, failure.code, failure.closes), (503, "overloaded", false));
        assert!(other.raise(usize::MAX).is_err());
        assert_eq!((budget.reserved(), budget.shed.get()), (2 * MIB, 2));
        assert!(other.raise(MIB).is_ok());
        assert!(one.raise(MIB).is_ok(), "it is as large already");
        assert_eq!(budget.reserved(), 3 * MIB);
        drop(one);
        assert_eq!(budget.reserved(), MIB);
        assert!(other.raise(3 * MIB).is_ok());
        drop(other);
        assert_eq!(budget.reserved(), 0);
    }

    #[test]
    fn small_ones_always_fit() {
        let budget = Budget::new(0);
        let mut reservation = budget.reservation();
        assert!(reservation.raise(UNCOUNTED_BYTES_MAX).is_ok());
        assert_eq!(budget.reserved(), 0);
        assert!(reservation.raise(UNCOUNTED_BYTES_MAX + 1).is_err());
    }
}
