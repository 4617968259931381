//! The reads and writes of a key that are in flight, and whether the result of a read may enter the cache.
//!
//! A *flight* is one read of the store for all requests that wait for the key. A write of the key detaches it: requests that
//! already wait get its result, later ones do not, and the result does not enter the cache.

use super::Read;
use crate::budget::{Budget, Reservation};
use kv::Key;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use store::{Batching, Error, Receiver, Sender, Writers, channel};

/// What is on its way to a request, and the memory that is reserved for it meanwhile.
pub(super) type Counted<T> = (T, RowReservation);
pub(super) type CountedRead = Counted<Result<Read, Error>>;
pub(crate) type RowReservation = Option<Arc<Reservation<Arc<Budget>>>>;

/// A read of the store in flight.
pub(super) struct Flight {
    waiting: Mutex<Vec<Sender<CountedRead>>>,
    generation: u64,
}

impl Flight {
    /// Answers all requests that wait.
    pub(super) fn answer(&self, result: &CountedRead) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for sender in waiting {
            sender.send(result.clone());
        }
    }

    fn wait(&self) -> Receiver<CountedRead> {
        let (sender, receiver) = channel();
        self.waiting.lock().push(sender);
        receiver
    }
}

/// The keys of one shard that have reads or writes in flight.
pub(super) struct Flights {
    keys: HashMap<Key, KeyState>,
    /// Whether the server owns the store: only then may anything enter the cache.
    is_open: bool,
    /// Suspensions now: while there is one, nothing may enter the cache either.
    suspensions: u32,
    /// Counts the leases and the ends of suspensions: what began in an earlier generation does not enter the cache.
    generation: u64,
    /// Without batches the writes of a key end in any order: it is not known which of two that overlap the store holds in the end.
    batching: Batching,
    /// If others write, too, nothing may enter the cache, and no read may join an earlier one: a write of theirs may be between.
    writers: Writers,
}

/// What is in flight for one key.
#[derive(Default)]
struct KeyState {
    /// Writes that have begun and not ended.
    writes: u32,
    /// Two writes overlapped, and not all since then have ended.
    overlapped: bool,
    /// The outcome of a write is unknown. It may also happen later, until the next lease.
    unknown_outcome: bool,
    /// The flight that later reads may join.
    flight: Option<Arc<Flight>>,
}

impl KeyState {
    fn is_over(&self) -> bool {
        self.writes == 0 && !self.unknown_outcome && self.flight.is_none()
    }
}

impl Flights {
    /// Nothing in flight, closed.
    pub(super) fn new(batching: Batching, writers: Writers) -> Flights {
        Flights { keys: HashMap::new(), is_open: false, suspensions: 0, generation: 0, batching, writers }
    }

    /// Waits for the flight of `key`, if there is one to join.
    pub(super) fn join(&self, key: &Key) -> Option<Receiver<CountedRead>> {
        if self.writers != Writers::Owner {
            return None;
        }
        Some(self.keys.get(key)?.flight.as_ref()?.wait())
    }

    /// Whether the outcome of an earlier write of `key` is unknown.
    pub(super) fn has_unknown_outcome(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|state| state.unknown_outcome)
    }

    /// Starts a flight that others may join.
    pub(super) fn start(&mut self, key: &Key) -> (Arc<Flight>, Receiver<CountedRead>) {
        let flight = Arc::new(Flight { waiting: Mutex::default(), generation: self.generation });
        let receiver = flight.wait();
        self.keys.entry(key.clone()).or_default().flight = Some(Arc::clone(&flight));
        (flight, receiver)
    }

    /// Ends a flight; whether its row may enter the cache: no write of the key overlapped it.
    pub(super) fn complete(&mut self, key: &Key, flight: &Arc<Flight>) -> bool {
        let Some(state) = self.keys.get_mut(key) else { return false };
        // Every write detaches the flight when it begins and when it ends: no write overlapped an attached flight.
        let attached = state.flight.take_if(|joined| Arc::ptr_eq(joined, flight)).is_some();
        let calm = state.writes == 0 && !state.unknown_outcome;
        if state.is_over() {
            self.keys.remove(key);
        }
        attached && calm && self.may_fill(flight.generation)
    }

    /// Begins a write; its generation, for [`Flights::end_write`].
    pub(super) fn begin_write(&mut self, key: &Key) -> u64 {
        let state = self.keys.entry(key.clone()).or_default();
        state.overlapped |= state.writes > 0;
        state.writes += 1;
        // Without batches the flights of a key end in any order: an earlier one may show this write before that one is answered.
        state.flight = None;
        self.generation
    }

    /// Ends a write; whether its row may enter the cache.
    pub(super) fn end_write(&mut self, key: &Key, generation: u64, unknown_outcome: bool) -> bool {
        let Some(state) = self.keys.get_mut(key) else { return false };
        state.writes -= 1;
        state.flight = None;
        // A store worker answers before it closes its session, and a new lease waits for all sessions to close. So the lease
        // that settles this outcome is still to come, even if the write was queued before the last one.
        // Where nobody owns the store there is no lease to wait for, and every read shows what is so.
        state.unknown_outcome |= unknown_outcome && self.writers != Writers::Servers;
        let calm = !state.unknown_outcome && (self.batching == Batching::On || !state.overlapped);
        state.overlapped &= state.writes > 0;
        if state.is_over() {
            self.keys.remove(key);
        }
        calm && self.may_fill(generation)
    }

    /// Whether what began in `generation` may enter the cache now.
    fn may_fill(&self, generation: u64) -> bool {
        let is_alone = self.writers == Writers::Owner;
        is_alone && self.is_open && self.suspensions == 0 && generation == self.generation
    }

    /// Whether nothing is in flight.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.keys.is_empty()
    }

    /// The server owns the store again: nothing sent earlier can still take effect.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        self.generation += 1;
        self.keys.retain(|_, state| {
            state.unknown_outcome = false;
            !state.is_over()
        });
    }

    /// Nothing may enter the cache until [`Flights::resume`]; later reads join no earlier flight.
    pub(super) fn suspend(&mut self) {
        self.suspensions += 1;
        self.detach_all();
    }

    /// Ends a suspension.
    pub(super) fn resume(&mut self) {
        self.suspensions -= 1;
        self.generation += 1;
        self.detach_all();
    }

    fn detach_all(&mut self) {
        for state in self.keys.values_mut() {
            state.flight = None;
        }
    }

    /// The store is lost: nothing may enter the cache until the next lease.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.detach_all();
    }
}
