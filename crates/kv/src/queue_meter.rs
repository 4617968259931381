//! A queue meter: how many callers entered a queue, and how long all of them waited and were served.
//!
//! It only measures; the lock beside it makes callers wait. Its totals are exact at every instant, also for callers that wait
//! or are served at that instant.

use parking_lot::Mutex;
use std::time::{Duration, Instant};

/// Measures one queue.
#[derive(Debug)]
pub struct QueueMeter(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Until when the totals are complete.
    at: Instant,
    waiting: u32,
    in_service: u32,
    totals: QueueTotals,
}

/// What a queue did so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueTotals {
    /// Services begun.
    pub count: u64,
    /// Time in service, summed over callers.
    pub busy: Duration,
    /// Time before service, summed over callers.
    pub waited: Duration,
}

/// A caller in the queue: waits, then is in service, and leaves when this is dropped.
#[derive(Debug)]
pub struct QueueEntry<'m> {
    meter: &'m QueueMeter,
    in_service: bool,
}

impl Default for QueueMeter {
    fn default() -> QueueMeter {
        let totals = QueueTotals::default();
        QueueMeter(Mutex::new(State { at: Instant::now(), waiting: 0, in_service: 0, totals }))
    }
}

impl QueueMeter {
    /// A caller begins to wait.
    pub fn enter(&self) -> QueueEntry<'_> {
        self.update(|state| state.waiting += 1);
        QueueEntry { meter: self, in_service: false }
    }

    /// The totals up to now.
    pub fn totals(&self) -> QueueTotals {
        self.update(|state| state.totals)
    }

    /// Brings the totals up to now, then reads or changes the state.
    fn update<R>(&self, then: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.0.lock();
        // Read under the lock, so that time never goes back.
        let now = Instant::now();
        let passed = now.saturating_duration_since(state.at);
        state.at = now;
        let (busy, waited) = (passed * state.in_service, passed * state.waiting);
        state.totals.busy += busy;
        state.totals.waited += waited;
        then(&mut state)
    }
}

impl QueueEntry<'_> {
    /// The caller's service begins.
    pub fn begin_service(&mut self) {
        self.in_service = true;
        self.meter.update(|state| {
            state.waiting -= 1;
            state.in_service += 1;
            state.totals.count += 1;
        });
    }
}

impl Drop for QueueEntry<'_> {
    fn drop(&mut self) {
        self.meter.update(|state| match self.in_service {
            true => state.in_service -= 1,
            false => state.waiting -= 1,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(time: Duration) {
        let began = Instant::now();
        while began.elapsed() < time {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn callers_count_while_they_wait_and_while_they_are_served() {
        let meter = QueueMeter::default();
        let mut first = meter.enter();
        first.begin_service();
        let second = meter.enter();
        let before = meter.totals();
        pass(Duration::from_millis(2));
        let after = meter.totals();
        let (busy, waited) = (after.busy - before.busy, after.waited - before.waited);
        assert_eq!((busy, after.count), (waited, 1));
        assert!(busy >= Duration::from_millis(2));
        // A caller that leaves the queue was not served.
        drop(second);
        drop(first);
        let end = meter.totals();
        pass(Duration::from_millis(1));
        assert_eq!((meter.totals(), end.count), (end, 1), "the queue is empty");
    }
}
