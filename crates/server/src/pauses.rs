//! Waits of a worker's tasks, to some microseconds.
//!
//! The runtime's own timer counts whole milliseconds, rounded up: what is to be waited here may be shorter than one. Only the
//! lab has use for this.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::cell::{OnceCell, RefCell};
use std::cmp::{Ordering, Reverse};
use std::collections::BinaryHeap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// The tasks of one worker that wait. Its timer is made for the first.
#[derive(Default)]
pub(super) struct Pauses(OnceCell<Option<Rc<Timer>>>);

impl Pauses {
    /// Waits for `time`.
    pub(super) async fn pause(&self, time: Duration) {
        if time.is_zero() {
            return;
        }
        match self.0.get_or_init(start) {
            Some(timer) => timer.pause(time).await,
            None => tokio::time::sleep(time).await,
        }
    }
}

fn start() -> Option<Rc<Timer>> {
    match Timer::new() {
        Ok(timer) => {
            let timer = Rc::new(timer);
            tokio::task::spawn_local(ring(Rc::clone(&timer)));
            Some(timer)
        }
        Err(error) => {
            log::warn!("no fine timer, pauses are rounded up to milliseconds: {error}");
            None
        }
    }
}

struct Timer {
    fd: AsyncFd<OwnedFd>,
    waiting: RefCell<BinaryHeap<Reverse<Waits>>>,
}

/// A task that waits, ordered by its instant.
struct Waits {
    until: Instant,
    wake: oneshot::Sender<()>,
}

/// Wakes who is due, whenever the timer rings.
async fn ring(timer: Rc<Timer>) {
    while let Ok(mut rung) = timer.fd.readable().await {
        // Each ring is an edge of its own: nothing is to be read.
        rung.clear_ready();
        timer.wake();
    }
}

impl Timer {
    fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // What replaces it asks for a promise in an unsafe block: that the descriptor stays open and the same. An `OwnedFd` does.
        #[expect(deprecated)]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Timer { fd, waiting: RefCell::default() })
    }

    async fn pause(&self, time: Duration) {
        let (wake, woken) = oneshot::channel();
        let until = Instant::now() + time;
        let is_first = self.waiting.borrow().peek().is_none_or(|Reverse(first)| until < first.until);
        self.waiting.borrow_mut().push(Reverse(Waits { until, wake }));
        if is_first {
            self.set(until);
        }
        // It is never dropped unused but at the very end.
        let _ = woken.await;
    }

    /// Wakes who is due, and is set for the next.
    fn wake(&self) {
        let mut waiting = self.waiting.borrow_mut();
        let now = Instant::now();
        while waiting.peek().is_some_and(|Reverse(first)| first.until <= now) {
            if let Some(Reverse(due)) = waiting.pop() {
                // Whoever waited may be gone.
                let _ = due.wake.send(());
            }
        }
        if let Some(Reverse(next)) = waiting.peek() {
            self.set(next.until);
        }
    }

    /// Lets it ring at `instant`, at once if that has passed.
    fn set(&self, instant: Instant) {
        // Zero would stop it.
        let left = instant.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        if let Err(error) = timerfd_settime(self.fd.get_ref(), TimerfdTimerFlags::empty(), &once) {
            log::error!("a timer cannot be set: {error}");
        }
    }
}

impl Ord for Waits {
    fn cmp(&self, other: &Waits) -> Ordering {
        self.until.cmp(&other.until)
    }
}

impl PartialOrd for Waits {
    fn partial_cmp(&self, other: &Waits) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Waits {
    fn eq(&self, other: &Waits) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Waits {}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::{Builder, LocalOptions};

    #[test]
    fn pauses_end_in_the_order_of_their_instants_and_never_early() {
        let runtime =
            Builder::new_current_thread().enable_all().build_local(LocalOptions::default()).unwrap();
        runtime.block_on(async {
            let (pauses, ended) = (Rc::new(Pauses::default()), Rc::new(RefCell::new(Vec::new())));
            let mut tasks = Vec::new();
            for micros in [3000, 200, 0, 1500, 700] {
                let (pauses, ended) = (Rc::clone(&pauses), Rc::clone(&ended));
                tasks.push(tokio::task::spawn_local(async move {
                    let (time, began) = (Duration::from_micros(micros), Instant::now());
                    pauses.pause(time).await;
                    assert!(began.elapsed() >= time);
                    ended.borrow_mut().push((began + time, micros));
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
            let ended = ended.take();
            assert!(ended.is_sorted() && ended.len() == 5, "{ended:?}");
        });
    }
}
