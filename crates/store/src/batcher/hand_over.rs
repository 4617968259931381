//! A server that ends gives its store to one that stands by.

use super::{Batcher, Status};
use crate::{Error, Kind};
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long what an attempt to acquire the store showed is taken for true. Requests that come later wait for the next one.
pub(super) const KNOWN_FOR: Duration = Duration::from_millis(700);
/// How long a server that hands the store over serves on after it has said so. Longer: what it refuses then is not refused by
/// a standby that does not know yet.
const ANNOUNCEMENT: Duration = Duration::from_millis(750);

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
    /// Hands the store over to a server that stands by: says so in the store, then refuses new requests, and releases it when
    /// those under way are answered, or after `most`.
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
        self.shared.refuses.store(true, Relaxed);
        wait_until(&|| self.reads.is_idle() && self.long.is_idle() && self.writes.is_idle());
        // The owner thread may have gone first.
        let handed_over = Error::new(Kind::Taken, "it was handed over");
        let _ = self.shared.lost.send((epoch, handed_over));
        wait_until(&|| self.threads.last().is_none_or(JoinHandle::is_finished));
    }
}
