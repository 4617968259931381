//! A server that ends gives its store to one that stands by.

use super::{Batcher, Status};
use crate::{Error, Kind};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long what an attempt to acquire the store showed is taken for true. Requests that come later wait for the next one.
pub(super) const KNOWN_FOR: Duration = Duration::from_millis(700);
/// How long a server that hands the store over serves on after it has said so. Longer: what it refuses then is not refused by
/// a standby that does not know yet.
const ANNOUNCEMENT: Duration = Duration::from_millis(750);

/// How long batches that have begun are served on, after new ones are refused: no longer than these wait for the other server.
const BATCHES_MAX: Duration = Duration::from_secs(2);

/// Whether the server hands the store over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leaving {
    No,
    /// It is to say so in the store.
    Asked,
    /// It has.
    Announced,
}

impl Batcher {
    /// Begins a batch, which asks for more as long as it lives: what this gives is held meanwhile. Refused while the store is handed
    /// over.
    pub fn begin_batch(&self) -> Result<Arc<()>, Error> {
        self.batches.lock().clone().ok_or_else(refused)
    }

    /// Hands the store over to a server that stands by: says so in the store, then refuses new batches, then all new requests, and
    /// releases it when those under way are answered, or after `most`.
    pub fn hand_over(&self, most: Duration) {
        let deadline = Instant::now() + most;
        let wait_until = |done: &dyn Fn() -> bool| {
            while !done() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        self.shared.leaving.send_replace(Leaving::Asked);
        let Status::Up(epoch) = self.status() else { return };
        wait_until(&|| {
            *self.shared.leaving.borrow() == Leaving::Announced || self.status() != Status::Up(epoch)
        });
        // Until it has seen that, the other server refuses requests, too.
        let seen = Instant::now() + ANNOUNCEMENT;
        wait_until(&|| Instant::now() > seen);
        let begun = self.batches.lock().take().map_or_else(Weak::new, |batches| Arc::downgrade(&batches));
        let ended = Instant::now() + BATCHES_MAX;
        wait_until(&|| begun.strong_count() == 0 || Instant::now() > ended);
        self.shared.refuses.store(true, Relaxed);
        wait_until(&|| self.reads.is_idle() && self.long.is_idle() && self.writes.is_idle());
        // The owner thread may have gone first.
        let handed_over = Error::new(Kind::Taken, "it was handed over");
        let _ = self.shared.lost.send((epoch, handed_over));
        wait_until(&|| self.threads.last().is_none_or(JoinHandle::is_finished));
    }
}

pub(super) fn refused() -> Error {
    Error::new(Kind::Taken, "this server ends, and another one takes over")
}
