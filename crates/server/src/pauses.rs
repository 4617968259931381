//! Pauses of a worker's tasks, exact to some microseconds, for injected delays.
//!
//! The timer of the runtime counts whole milliseconds, rounded up.
//! All pauses of a worker share a timer: one for each takes up to twice the processor time where many end together, and a file
//! descriptor each.

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::cell::{OnceCell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

/// The tasks of one worker that pause. The timer is made for the first.
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
    let timer = Timer::new().inspect_err(|error| {
        log::warn!("no fine timer, pauses are rounded up to milliseconds: {error}");
    });
    let timer = Rc::new(timer.ok()?);
    let ringing = Rc::clone(&timer);
    tokio::task::spawn_local(async move {
        while let Ok(mut ready) = ringing.fd.readable().await {
            // Each expiration is an edge of its own, so nothing has to be read.
            ready.clear_ready();
            ringing.wake();
        }
    });
    Some(timer)
}

struct Timer {
    fd: AsyncFd<OwnedFd>,
    /// By the end of the pause.
    pauses: RefCell<BTreeMap<Instant, Vec<oneshot::Sender<()>>>>,
}

impl Timer {
    fn new() -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // The replacement is unsafe: it demands that the descriptor stays open and the same, which an `OwnedFd` does.
        #[expect(deprecated)]
        let fd = AsyncFd::with_interest(fd, Interest::READABLE)?;
        Ok(Timer { fd, pauses: RefCell::default() })
    }

    async fn pause(&self, time: Duration) {
        let (wake, woken) = oneshot::channel();
        let until = Instant::now() + time;
        let is_first = {
            let mut pauses = self.pauses.borrow_mut();
            pauses.entry(until).or_default().push(wake);
            pauses.first_key_value().is_some_and(|(first, _)| *first == until)
        };
        if is_first {
            self.set(until);
        }
        // The sender is dropped unused only when the worker ends.
        let _ = woken.await;
    }

    /// Ends the pauses that are over, and sets the timer for the next.
    fn wake(&self) {
        let now = Instant::now();
        let mut pauses = self.pauses.borrow_mut();
        while let Some(first) = pauses.first_entry() {
            if *first.key() > now {
                return self.set(*first.key());
            }
            for wake in first.remove() {
                // The task may have ended.
                let _ = wake.send(());
            }
        }
    }

    /// Sets the timer to `instant`, or to now if that has passed.
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
            // Not zero, which waits for no timer.
            for micros in [60_000, 20_000, 5000, 40_000, 30_000] {
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
