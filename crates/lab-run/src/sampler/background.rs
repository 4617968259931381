//! A thread that samples while a trial runs.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// What a thread has seen so far. Dropped, it ends the thread.
pub(super) struct Background<T> {
    pub(super) seen: Arc<Mutex<T>>,
    /// What ends the thread when it is dropped, and the thread.
    running: Option<(Sender<()>, JoinHandle<()>)>,
}

/// What the thread has of it.
pub(super) struct Foreground<T> {
    pub(super) seen: Arc<Mutex<T>>,
    ends: Receiver<()>,
}

impl<T: Send + 'static> Background<T> {
    /// Has a thread `sample` until the other end is dropped.
    pub(super) fn start(seen: T, sample: impl FnOnce(&Foreground<T>) + Send + 'static) -> Background<T> {
        let seen = Arc::new(Mutex::new(seen));
        let (end, ends) = mpsc::channel();
        let foreground = Foreground { seen: Arc::clone(&seen), ends };
        let thread = thread::spawn(move || sample(&foreground));
        Background { seen, running: Some((end, thread)) }
    }
}

impl<T> Foreground<T> {
    /// Whether the other end is still there after so long.
    pub(super) fn goes_on_after(&self, rest: Duration) -> bool {
        self.ends.recv_timeout(rest) == Err(RecvTimeoutError::Timeout)
    }
}

impl<T> Drop for Background<T> {
    fn drop(&mut self) {
        if let Some((end, thread)) = self.running.take() {
            drop(end);
            // It waits for nothing longer than the timeout of what it asks.
            let _ = thread.join();
        }
    }
}
