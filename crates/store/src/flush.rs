//! The flush of an embedded store: one at a time, and what it takes.

use kv::faults::{self, Fault, FaultInjector};
use kv::station::{Station, Visits};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// Where the lanes of an embedded store commit, one after the other.
///
/// The engine has one journal, and lets one commit into it at a time anyway: waiting here, lanes can be counted.
#[derive(Debug, Default)]
pub struct Flush {
    turn: Mutex<()>,
    station: Station,
    faults: OnceLock<Arc<FaultInjector>>,
}

impl Flush {
    /// Delays flushes as `faults` says from now on.
    pub fn inject(&self, faults: Arc<FaultInjector>) {
        self.faults.get_or_init(|| faults);
    }

    /// Commits when its turn has come.
    pub(super) fn in_turn<T>(&self, commit: impl FnOnce() -> T) -> T {
        let mut visit = self.station.come();
        let turn = self.turn.lock();
        visit.serve();
        if let Some(faults) = self.faults.get() {
            faults::block(faults.time(Fault::Flush));
        }
        let done = commit();
        // First: two are never served at once.
        drop(visit);
        drop(turn);
        done
    }

    /// Flushes, time in them, and time that lanes waited for their turn.
    pub fn visits(&self) -> Visits {
        self.station.visits()
    }
}
