//! A timer that wakes a poll at an instant, to the nanosecond as far as the kernel can.
//!
//! A poll's own time-out is counted in whole milliseconds, rounded up.

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// A timer that a poll watches.
#[derive(Debug)]
pub(super) struct Timer {
    fd: OwnedFd,
    /// What it was last set to.
    rings_at: Option<Instant>,
}

impl Timer {
    /// What the poll says when it rings; no client has it.
    pub(super) const TOKEN: Token = Token(usize::MAX);

    /// Watched by the poll of `registry`, and not set yet.
    pub(super) fn new(registry: &Registry) -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), Timer::TOKEN, Interest::READABLE)?;
        Ok(Timer { fd, rings_at: None })
    }

    /// Lets it ring at `instant`; says how long that is from now. Each ring is an edge of its own: nothing is to be read from
    /// it.
    pub(super) fn ring_at(&mut self, instant: Instant) -> io::Result<Duration> {
        // Read here, since the timer counts from now, and the caller's last reading may be a request old.
        let left = instant.saturating_duration_since(Instant::now());
        if self.rings_at == Some(instant) || left.is_zero() {
            return Ok(left);
        }
        let value = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::empty(), &once)?;
        self.rings_at = Some(instant);
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};

    #[test]
    fn it_wakes_a_poll_again_and_again_and_never_early() {
        let mut poll = Poll::new().unwrap();
        let mut timer = Timer::new(poll.registry()).unwrap();
        let mut events = Events::with_capacity(4);
        for _ in 0..3 {
            let instant = Instant::now() + Duration::from_micros(300);
            timer.ring_at(instant).unwrap();
            while Instant::now() < instant {
                poll.poll(&mut events, Some(Duration::from_secs(10))).unwrap();
                assert!(events.iter().all(|event| event.token() == Timer::TOKEN));
            }
        }
    }
}
