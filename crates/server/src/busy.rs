//! For how long a worker was busy: not waiting for events.
//!
//! The worker's runtime counts that anyway, and tells it when a stretch of work is over: when nothing is left to do, or after 61
//! tasks. A stretch that goes on is added here, from when it was first noticed.

use parking_lot::Mutex;
use std::sync::OnceLock;
use std::time::{Duration, Instant};
use tokio::runtime::RuntimeMetrics;

/// What one worker did with its time.
#[derive(Debug, Default)]
pub(super) struct Busy {
    runtime: OnceLock<RuntimeMetrics>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// What the runtime had counted when the worker was found in a stretch, and when that was. As long as it counts no more, the
    /// stretch goes on.
    stretch: Option<(Duration, Instant)>,
    /// The most that was said: the runtime may be a little late to count what was added here already.
    said: Duration,
}

impl Busy {
    /// Whose time it is. One thread, one runtime; before this nothing is counted.
    pub(super) fn begin(&self, runtime: RuntimeMetrics) {
        // Only the first counts, and there is only one.
        let _ = self.runtime.set(runtime);
    }

    /// The worker says that it is about to take long.
    pub(super) fn takes_long(&self) {
        if let Some(runtime) = self.runtime.get() {
            self.seen.lock().in_stretch(runtime.worker_total_busy_duration(0));
        }
    }

    /// How long it was busy so far. Of the stretch that goes on it misses what came before anybody asked, or before
    /// [`Busy::takes_long`], until the stretch is over.
    pub(super) fn so_far(&self) -> Duration {
        let Some(runtime) = self.runtime.get() else { return Duration::ZERO };
        let mut seen = self.seen.lock();
        let counted = runtime.worker_total_busy_duration(0);
        // It counts up when it goes to sleep, and again when it wakes.
        let is_awake = runtime.worker_park_unpark_count(0).is_multiple_of(2);
        let goes_on = seen.stretch.is_some_and(|(before, _)| before == counted);
        let stretch = if is_awake || goes_on { seen.in_stretch(counted) } else { Duration::ZERO };
        seen.said = seen.said.max(counted + stretch);
        seen.said
    }
}

impl Seen {
    /// How long the stretch goes on that was found after `counted`.
    fn in_stretch(&mut self, counted: Duration) -> Duration {
        match self.stretch {
            Some((before, since)) if before == counted => since.elapsed(),
            _ => {
                self.stretch = Some((counted, Instant::now()));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, mpsc};

    #[test]
    fn a_worker_in_one_long_task_is_busy_and_one_that_waits_is_not() {
        let busy = Arc::new(Busy::default());
        let (told, hears) = mpsc::channel();
        let (go, may_go) = mpsc::channel::<()>();
        let (done, is_done) = tokio::sync::oneshot::channel::<()>();
        let (worker, began) = (Arc::clone(&busy), Instant::now());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            worker.begin(runtime.metrics());
            runtime.block_on(async {
                told.send(()).unwrap();
                worker.takes_long();
                // One poll, however long.
                may_go.recv().unwrap();
                is_done.await.unwrap();
            });
        });
        hears.recv().unwrap();
        let long = Duration::from_millis(5);
        let mut before = Duration::ZERO;
        while busy.so_far() < long {
            assert!(busy.so_far() >= before, "it never falls");
            before = busy.so_far();
        }
        assert!(began.elapsed() + Duration::from_millis(1) >= long / 2, "not more than has passed");
        go.send(()).unwrap();
        // When it sleeps, nothing is added any more.
        let quiet = || (busy.so_far(), std::thread::yield_now(), busy.so_far());
        while quiet().0 != quiet().2 {}
        done.send(()).unwrap();
        thread.join().unwrap();
    }
}
