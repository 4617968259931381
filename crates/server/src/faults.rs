//! Injected faults of requests and writes.
//!
//! Those of store sessions and flushes are in the store. A server without `--lab` injects none.

use super::error::Failure;
use super::{Shared, Worker};
use kv::faults::{Fault, FaultInjector, block, compute};
use kv::queue_meter::{QueueMeter, QueueTotals};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;
use tokio::sync::Mutex;

/// Computations of at least this length are reported as busy time before they begin.
const LONG: Duration = Duration::from_micros(10);
/// Of the requests above the limit of the fault `fail`, one in this many fails.
const FAILS_EVERY: u64 = 10;

/// What the workers share.
pub(super) struct Faults {
    pub(super) injector: Arc<FaultInjector>,
    /// Requests that have begun and are not answered.
    in_flight: AtomicU64,
    /// Requests that began above the limit of the fault `fail`.
    above_limit: AtomicU64,
    /// If the fault `lock` was given at the start.
    lock: Option<Lock>,
}

/// Every write holds it until its commit.
#[derive(Default)]
struct Lock {
    mutex: Mutex<()>,
    meter: QueueMeter,
}

/// A request that got its faults, until it is answered.
pub(super) struct FaultGuard {
    shared: Arc<Shared>,
    /// The failure to answer it with, if it was chosen to fail.
    pub(super) failure: Option<Failure>,
}

impl Faults {
    pub(super) fn new(injector: Arc<FaultInjector>) -> Faults {
        let lock = injector.has_lock().then(Lock::default);
        Faults { injector, in_flight: AtomicU64::new(0), above_limit: AtomicU64::new(0), lock }
    }

    /// What the meter of the lock counted, if there is one.
    pub(super) fn lock_totals(&self) -> Option<QueueTotals> {
        self.lock.as_ref().map(|lock| lock.meter.totals())
    }

    /// Counts a request that begins; its failure, if it is to fail.
    fn enter(&self) -> Option<Failure> {
        let in_flight = self.in_flight.fetch_add(1, Relaxed) + 1;
        let most = self.injector.fail_above().filter(|most| in_flight > *most)?;
        let fails = (self.above_limit.fetch_add(1, Relaxed) + 1).is_multiple_of(FAILS_EVERY);
        fails.then(|| {
            let what = format!("injected failure: more than {most} requests are in the server");
            Failure::new(500, "injected", what)
        })
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        if let Some(faults) = &self.shared.faults {
            faults.in_flight.fetch_sub(1, Relaxed);
        }
    }
}

impl Worker {
    /// Spends the injected processor time of a request, if that is its only fault. `false`: call [`Worker::inject_faults`], whose path
    /// costs about as much as a cache hit.
    pub(super) fn computes(&self) -> bool {
        let Some(injector) = self.shared.faults.as_ref().map(|faults| &faults.injector) else { return true };
        if injector.may_hold_requests() {
            return false;
        }
        let time = injector.time(Fault::Cpu);
        if time >= LONG {
            self.metrics.busy.takes_long();
        }
        compute(time);
        true
    }

    /// Injects the faults of one request.
    pub(super) async fn inject_faults(&self) -> FaultGuard {
        let mut guard = FaultGuard { shared: Arc::clone(&self.shared), failure: None };
        let Some(faults) = &self.shared.faults else { return guard };
        guard.failure = faults.enter();
        if guard.failure.is_none() {
            let injector = &faults.injector;
            self.pauses.pause(injector.time(Fault::Delay)).await;
            self.metrics.busy.takes_long();
            compute(injector.time(Fault::Cpu));
            block(injector.time(Fault::Worker));
        }
        guard
    }

    /// Runs a write, under the lock if there is one.
    pub(super) async fn locked<T>(&self, write: impl Future<Output = T>) -> T {
        let faults = self.shared.faults.as_ref();
        let Some((faults, lock)) = faults.and_then(|faults| Some((faults, faults.lock.as_ref()?))) else {
            return write.await;
        };
        let mut entry = lock.meter.enter();
        // On the heap, so that connections are not larger for it.
        let guard = Box::pin(lock.mutex.lock()).await;
        entry.begin_service();
        let done = write.await;
        Box::pin(self.pauses.pause(faults.injector.time(Fault::Lock))).await;
        // First, so that the meter never has two in service.
        drop(entry);
        drop(guard);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::faults::FaultSpec;

    #[test]
    fn above_the_limit_every_tenth_request_fails() {
        let injector = FaultInjector::new(FaultSpec::parse(&["fail=2"]).unwrap());
        let faults = Faults::new(Arc::new(injector));
        let failed = |requests: usize| (0..requests).filter(|_| faults.enter().is_some()).count();
        assert_eq!(failed(2), 0, "not above the limit");
        assert_eq!((failed(9), failed(1), failed(9), failed(1)), (0, 1, 0, 1));
        let why = std::iter::repeat_with(|| faults.enter()).find_map(|failure| failure).unwrap();
        assert_eq!((why.status, why.code), (500, "injected"));
        assert!(why.detail.contains("more than 2 requests"), "{}", why.detail);
        // An answered request is not counted any more.
        faults.in_flight.store(1, Relaxed);
        assert_eq!(failed(1), 0);
        faults.in_flight.store(0, Relaxed);
        faults.injector.add(&FaultSpec::parse(&["fail=0"]).unwrap()).unwrap();
        assert_eq!(failed(30), 3);
    }
}
