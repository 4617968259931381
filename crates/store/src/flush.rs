//! The flush of an embedded store: one at a time, and what it takes.

use kv::faults::{self, Fault, FaultInjector};
use kv::queue_meter::{QueueMeter, QueueTotals};
use parking_lot::Mutex;
use std::sync::{Arc, OnceLock};

/// Where the workers of an embedded store commit, one after the other.
///
/// There is one log, into which one commits at a time: waiting here, workers can be counted.
#[derive(Debug, Default)]
pub struct Flush {
    mutex: Mutex<()>,
    meter: QueueMeter,
    faults: OnceLock<Arc<FaultInjector>>,
}

impl Flush {
    /// Delays flushes as `faults` says from now on.
    pub fn inject(&self, faults: Arc<FaultInjector>) {
        self.faults.get_or_init(|| faults).has_flushes();
    }

    /// Commits when its turn has come.
    pub(super) fn in_turn<T>(&self, commit: impl FnOnce() -> T) -> T {
        let mut entry = self.meter.enter();
        let turn = self.mutex.lock();
        entry.begin_service();
        if let Some(faults) = self.faults.get() {
            faults::block(faults.time(Fault::Flush));
        }
        let done = commit();
        // First, so that the meter never has two in service.
        drop(entry);
        drop(turn);
        done
    }

    /// Flushes, time in them, and time that workers waited for their turn.
    pub fn totals(&self) -> QueueTotals {
        self.meter.totals()
    }
}
