//! Which reads and writes of a key are under way, and whether what a read brings may enter the cache.
//!
//! A *flight* is one read of the store for everyone who waits for the key. A write detaches it: those who wait
//! already may have its answer, later readers may not, and it does not enter the cache.

use kv::{Key, Row};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use store::{Error, Receiver, Sender, channel};

/// What a flight brought.
#[derive(Clone, Debug)]
pub(super) struct Landed {
    pub(super) result: Result<Option<Row>, Error>,
    /// Whether the row entered the cache.
    pub(super) stored: bool,
    /// How long it waited for its batch.
    pub(super) queued: std::time::Duration,
}

/// A read under way.
pub(super) struct Flight {
    waiting: Mutex<Vec<Sender<Landed>>>,
    /// The opening of its shard in which it began.
    opening: u64,
}

impl Flight {
    pub(super) fn answer(&self, landed: Landed) {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        for sender in waiting {
            sender.send(landed.clone());
        }
    }

    fn board(&self) -> Receiver<Landed> {
        let (sender, receiver) = channel();
        self.waiting.lock().push(sender);
        receiver
    }
}

/// When a write began: handed back when it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    opening: u64,
}

/// In which order the writes of a key end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// In that of their commits.
    OfCommits,
    /// In any: which of two that overlap the store holds in the end is not known here.
    None,
}

/// The keys of one shard that are read or written right now.
pub(super) struct Flights {
    keys: HashMap<Key, Traffic>,
    /// Whether the store is claimed: only then may anything enter the cache.
    is_open: bool,
    /// Times it is suspended at present: nothing may enter the cache meanwhile either.
    suspensions: u32,
    /// Counts the claims and the ends of suspensions: what began before one does not enter the cache after it.
    opening: u64,
    order: Order,
}

/// What is under way for one key.
#[derive(Default)]
struct Traffic {
    /// Writes begun and not ended.
    writes: u32,
    /// Two writes were under way at once, and not all since then have ended.
    crowded: bool,
    /// A write ended and nobody knows whether it happened; it may also happen later, until the store is claimed anew.
    in_doubt: bool,
    /// The flight that later readers may join.
    flight: Option<Arc<Flight>>,
}

impl Traffic {
    fn is_over(&self) -> bool {
        self.writes == 0 && !self.in_doubt && self.flight.is_none()
    }
}

impl Flights {
    /// Without anything under way, closed.
    pub(super) fn new(order: Order) -> Flights {
        Flights { keys: HashMap::new(), is_open: false, suspensions: 0, opening: 0, order }
    }

    /// Waits for the flight of `key` that is under way, if one may be joined.
    pub(super) fn join(&self, key: &Key) -> Result<Receiver<Landed>, ()> {
        let flight = self.keys.get(key).and_then(|traffic| traffic.flight.as_ref()).ok_or(())?;
        Ok(flight.board())
    }

    /// Whether an earlier write of `key` may or may not have happened, or happen yet.
    pub(super) fn in_doubt(&self, key: &Key) -> bool {
        self.keys.get(key).is_some_and(|traffic| traffic.in_doubt)
    }

    /// Begins a flight that others may join.
    pub(super) fn depart(&mut self, key: &Key) -> (Arc<Flight>, Receiver<Landed>) {
        let flight = Arc::new(Flight { waiting: Mutex::default(), opening: self.opening });
        let receiver = flight.board();
        self.keys.entry(key.clone()).or_default().flight = Some(Arc::clone(&flight));
        (flight, receiver)
    }

    /// Ends a flight; whether its row may enter the cache: no write of the key overlapped it.
    pub(super) fn land(&mut self, key: &Key, flight: &Arc<Flight>) -> bool {
        let Some(traffic) = self.keys.get_mut(key) else { return false };
        // Every write detaches on its way in and on its way out, so an attached flight has seen none come or go.
        let attached = traffic.flight.take_if(|joined| Arc::ptr_eq(joined, flight)).is_some();
        let calm = traffic.writes == 0 && !traffic.in_doubt;
        if traffic.is_over() {
            self.keys.remove(key);
        }
        attached && calm && self.may_fill(flight.opening)
    }

    pub(super) fn begin_write(&mut self, key: &Key) -> Mark {
        let opening = self.opening;
        let traffic = self.keys.entry(key.clone()).or_default();
        traffic.crowded |= traffic.writes > 0;
        traffic.writes += 1;
        traffic.flight = None;
        Mark { opening }
    }

    /// Ends a write; whether its row may enter the cache.
    pub(super) fn end_write(&mut self, key: &Key, mark: Mark, in_doubt: bool) -> bool {
        let Some(traffic) = self.keys.get_mut(key) else { return false };
        traffic.writes -= 1;
        traffic.flight = None;
        // A lane answers before it lets go of its session, and a claim waits for all sessions: the claim that settles
        // this is still to come, even if the write queued before the last one.
        traffic.in_doubt |= in_doubt;
        let calm = !traffic.in_doubt && (self.order == Order::OfCommits || !traffic.crowded);
        traffic.crowded &= traffic.writes > 0;
        if traffic.is_over() {
            self.keys.remove(key);
        }
        calm && self.may_fill(mark.opening)
    }

    /// Whether what began in `opening` may enter the cache now.
    fn may_fill(&self, opening: u64) -> bool {
        self.is_open && self.suspensions == 0 && opening == self.opening
    }

    /// Whether nothing is under way.
    #[cfg(test)]
    pub(super) fn is_idle(&self) -> bool {
        self.keys.is_empty()
    }

    /// The store is claimed: nothing sent earlier can still happen.
    pub(super) fn open(&mut self) {
        self.is_open = true;
        self.opening += 1;
        self.keys.retain(|_, traffic| {
            traffic.in_doubt = false;
            !traffic.is_over()
        });
    }

    /// Nothing may enter the cache until [`Flights::resume`]; later readers may join no flight of before.
    pub(super) fn suspend(&mut self) {
        self.suspensions += 1;
        self.detach_all();
    }

    /// Ends a suspension.
    pub(super) fn resume(&mut self) {
        self.suspensions -= 1;
        self.opening += 1;
        self.detach_all();
    }

    fn detach_all(&mut self) {
        for traffic in self.keys.values_mut() {
            traffic.flight = None;
        }
    }

    /// The store is lost: nothing may enter the cache until it is claimed anew.
    pub(super) fn close(&mut self) {
        self.is_open = false;
        self.detach_all();
    }
}
