//! The memory budget: bytes of request bodies and of values that are on their way, over all connections.
//!
//! Small ones are not counted: a connection's buffer may hold as much anyway, and no request of them touches a counter that
//! workers share.

use kv::counters::Counter;
use std::borrow::Borrow;
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
pub(super) struct Reservation<B: Borrow<Budget>> {
    budget: B,
    bytes: usize,
}

/// Something does not fit into the budget.
#[derive(Clone, Copy, Debug)]
pub(super) struct Full;

impl Full {
    pub(super) const WHAT: &str = "values on their way use the server's memory budget; ask again later";
}

impl Budget {
    pub(super) fn new(bytes: usize) -> Budget {
        Budget { bytes, ..Budget::default() }
    }

    /// Bytes in use.
    pub(super) fn reserved(&self) -> usize {
        self.reserved.load(Relaxed)
    }

    /// Whether `bytes` fit now. Nothing is reserved.
    pub(super) fn check(&self, bytes: usize) -> Result<(), Full> {
        if bytes <= UNCOUNTED_BYTES_MAX || self.reserved().saturating_add(bytes) <= self.bytes {
            return Ok(());
        }
        self.shed.add(1);
        Err(Full)
    }

    /// Nothing of it yet.
    pub(super) fn reservation(&self) -> Reservation<&Budget> {
        Reservation { budget: self, bytes: 0 }
    }
}

impl<B: Borrow<Budget>> Reservation<B> {
    /// So many bytes of it, for whoever they are handed to.
    pub(super) fn of(budget: B, bytes: usize) -> Result<Reservation<B>, Full> {
        let mut reservation = Reservation { budget, bytes: 0 };
        reservation.raise(bytes).map(|()| reservation)
    }

    /// Makes it `bytes` large, unless it is already; if they do not fit, it stays as it is.
    pub(super) fn raise(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes <= UNCOUNTED_BYTES_MAX.max(self.bytes) {
            return Ok(());
        }
        let Budget { bytes: most, reserved, shed } = self.budget.borrow();
        let more = bytes - self.bytes;
        let raised = |reserved: usize| reserved.checked_add(more).filter(|sum| sum <= most);
        if reserved.fetch_update(Relaxed, Relaxed, raised).is_err() {
            shed.add(1);
            return Err(Full);
        }
        self.bytes = bytes;
        Ok(())
    }
}

impl<B: Borrow<Budget>> Drop for Reservation<B> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.budget.borrow().reserved.fetch_sub(self.bytes, Relaxed);
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
        assert!(other.raise(MIB + 1).is_err());
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
