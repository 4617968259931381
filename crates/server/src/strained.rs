//! What the lab's strains do to the requests of a connection, and to writes.
//!
//! Lanes and flushes are strained in the store. A server without `--lab` has nothing of this.

use super::error::Failure;
use super::{Shared, Worker};
use crate::tiered::{Made, WriteError};
use kv::station::{Station, Visit, Visits};
use kv::strain::{Strain, Strains, block, compute};
use kv::{Key, Precondition};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use tokio::sync::{Mutex, MutexGuard};

/// Of the requests in a crowd, one in so many fails.
const FAILS_EVERY: u64 = 10;

/// What the workers of a strained server share.
pub(super) struct Strained {
    pub(super) strains: Arc<Strains>,
    /// Requests that have begun to be strained and are not answered.
    inside: AtomicU64,
    /// Requests that found more inside than there may be.
    crowded: AtomicU64,
    /// Where writes hold one.
    lock: Option<Lock>,
}

/// What every write holds until it is committed.
#[derive(Default)]
struct Lock {
    turn: Mutex<()>,
    station: Station,
}

/// A request that was strained, until it is answered.
pub(super) struct Endured {
    shared: Arc<Shared>,
    /// Why it is not worked on.
    pub(super) failure: Option<Failure>,
}

impl Strained {
    pub(super) fn new(strains: Arc<Strains>) -> Strained {
        let lock = strains.has_lock().then(Lock::default);
        Strained { strains, inside: AtomicU64::new(0), crowded: AtomicU64::new(0), lock }
    }

    /// What went on at the lock, where there is one.
    pub(super) fn lock_visits(&self) -> Option<Visits> {
        self.lock.as_ref().map(|lock| lock.station.visits())
    }

    /// A request comes in; whether it fails because of too many others.
    fn enter(&self) -> Option<Failure> {
        let inside = self.inside.fetch_add(1, Relaxed) + 1;
        let most = self.strains.fail_above().filter(|most| inside > *most)?;
        let fails = (self.crowded.fetch_add(1, Relaxed) + 1).is_multiple_of(FAILS_EVERY);
        fails.then(|| {
            let what =
                format!("more than {most} requests are in the server, which is told to fail some then");
            Failure::new(500, "strained", what)
        })
    }
}

impl Drop for Endured {
    fn drop(&mut self) {
        if let Some(strained) = &self.shared.strained {
            strained.inside.fetch_sub(1, Relaxed);
        }
    }
}

impl Worker {
    /// Whether requests have to be strained before they are worked on.
    pub(super) fn is_strained(&self) -> bool {
        self.shared.strained.as_ref().is_some_and(|strained| strained.strains.are_on_requests())
    }

    /// Lets a request endure what it has to.
    pub(super) async fn endure(&self) -> Endured {
        let mut endured = Endured { shared: Arc::clone(&self.shared), failure: None };
        let Some(strained) = &self.shared.strained else { return endured };
        endured.failure = strained.enter();
        if endured.failure.is_none() {
            let strains = &strained.strains;
            self.pauses.pause(strains.time(Strain::Delay)).await;
            self.metrics.busy.takes_long();
            compute(strains.time(Strain::Cpu));
            block(strains.time(Strain::Worker));
        }
        endured
    }

    /// Creates or replaces a row, under the lock where there is one.
    pub(super) async fn put(
        &self,
        key: &Key,
        content_type: &str,
        value: Vec<u8>,
        condition: Precondition,
    ) -> Result<Made, WriteError> {
        let turn = self.turn().await;
        let put = self.shared.tiers.put(key, content_type, value, condition).await;
        self.end(turn).await;
        put
    }

    /// Removes a row, under the lock where there is one.
    pub(super) async fn delete(&self, key: &Key, condition: Precondition) -> Result<Made, WriteError> {
        let turn = self.turn().await;
        let deleted = self.shared.tiers.delete(key, condition).await;
        self.end(turn).await;
        deleted
    }

    /// Waits for the lock, in the order of coming.
    async fn turn(&self) -> Option<(Visit<'_>, MutexGuard<'_, ()>)> {
        let lock = self.shared.strained.as_ref()?.lock.as_ref()?;
        let mut visit = lock.station.come();
        // On the heap: no connection must be larger for it.
        let turn = Box::pin(lock.turn.lock()).await;
        visit.serve();
        Some((visit, turn))
    }

    /// Holds the lock for as long as it has to be held beyond the write.
    async fn end(&self, turn: Option<(Visit<'_>, MutexGuard<'_, ()>)>) {
        if let (Some((visit, turn)), Some(strained)) = (turn, &self.shared.strained) {
            Box::pin(self.pauses.pause(strained.strains.time(Strain::Lock))).await;
            // First: two never hold it at once.
            drop(visit);
            drop(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::strain::Wanted;

    #[test]
    fn of_those_beyond_the_crowd_every_tenth_fails() {
        let strains = Strains::new(Wanted::parse(&["fail=2"]).unwrap());
        let strained = Strained::new(Arc::new(strains));
        let failed = |requests: usize| (0..requests).filter(|_| strained.enter().is_some()).count();
        assert_eq!(failed(2), 0, "no crowd yet");
        assert_eq!((failed(9), failed(1), failed(9), failed(1)), (0, 1, 0, 1));
        let why = std::iter::repeat_with(|| strained.enter()).find_map(|failure| failure).unwrap();
        assert_eq!((why.status, why.code), (500, "strained"));
        assert!(why.detail.contains("more than 2 requests"), "{}", why.detail);
        // Who is answered makes room.
        strained.inside.store(1, Relaxed);
        assert_eq!(failed(1), 0);
        strained.inside.store(0, Relaxed);
        strained.strains.add(&Wanted::parse(&["fail=0"]).unwrap()).unwrap();
        assert_eq!(failed(30), 3);
    }
}
