//! The connections of one worker as they wait, and what ends a wait but its peer: time, and the drain.
//!
//! One look over all of them several times a second, instead of a timer and a watch in every connection: a request
//! arms and disarms nothing. A wait ends up to two looks late.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

/// Looks come at least this often: also the `Date` of answers depends on them.
const LOOK_EVERY_MAX: Duration = Duration::from_millis(250);
/// And no more often than this.
const LOOK_EVERY_MIN: Duration = Duration::from_millis(5);
/// In so many parts a patience is divided by the looks.
const LOOKS: u32 = 8;

/// All seats of a worker.
pub(super) struct Seats {
    taken: RefCell<Vec<Rc<Seat>>>,
    draining: Cell<bool>,
    last_look: Cell<Instant>,
    look_every: Duration,
}

/// A connection's place, for as long as it lives.
pub(super) struct Seated {
    seat: Rc<Seat>,
    seats: Rc<Seats>,
}

#[derive(Default)]
struct Seat {
    /// Where it is among the seats taken.
    index: Cell<usize>,
    /// Until when its connection waits; `None` while it does something else.
    until: Cell<Option<Instant>>,
    /// Whether nothing is lost when the wait ends.
    is_idle: Cell<bool>,
    /// Why the wait is over.
    ended: Cell<Option<Ended>>,
    /// Who waits.
    waker: RefCell<Option<Waker>>,
}

/// Why a wait is over, other than by what was waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// Its time is up.
    Late,
    /// The server drains, and nothing is under way.
    Draining,
}

impl Seats {
    /// For waits that may be as short as `shortest`.
    pub(super) fn new(shortest: Duration) -> Seats {
        Seats {
            taken: RefCell::default(),
            draining: Cell::default(),
            last_look: Cell::new(Instant::now()),
            look_every: (shortest / LOOKS).clamp(LOOK_EVERY_MIN, LOOK_EVERY_MAX),
        }
    }

    /// A seat for a connection.
    pub(super) fn take(self: &Rc<Seats>) -> Seated {
        let seat = Rc::new(Seat::default());
        let mut taken = self.taken.borrow_mut();
        seat.index.set(taken.len());
        taken.push(Rc::clone(&seat));
        Seated { seat, seats: Rc::clone(self) }
    }

    /// Time between two looks.
    pub(super) fn look_every(&self) -> Duration {
        self.look_every
    }

    /// From now on idle waits end at once.
    pub(super) fn drain(&self) {
        self.draining.set(true);
        self.look(Instant::now());
    }

    /// Whether [`Seats::drain`] was called.
    pub(super) fn is_draining(&self) -> bool {
        self.draining.get()
    }

    /// Ends the waits that are to end by `now`.
    pub(super) fn look(&self, now: Instant) {
        self.last_look.set(now);
        for seat in self.taken.borrow().iter() {
            let Some(until) = seat.until.get() else { continue };
            let ended = match () {
                () if self.draining.get() && seat.is_idle.get() => Ended::Draining,
                () if until <= now => Ended::Late,
                () => continue,
            };
            seat.ended.set(Some(ended));
            if let Some(waker) = &*seat.waker.borrow() {
                waker.wake_by_ref();
            }
        }
    }
}

impl Seated {
    /// The end of a wait of `span` that begins now, up to one look late, without asking the clock.
    pub(super) fn until(&self, span: Duration) -> Instant {
        self.seats.last_look.get() + self.seats.look_every + span
    }

    /// Waits for `work`, at most until then. `is_idle`: a drain ends it, too.
    pub(super) async fn wait<T>(
        &self,
        until: Instant,
        is_idle: bool,
        work: impl Future<Output = T>,
    ) -> Result<T, Ended> {
        let mut work = std::pin::pin!(work);
        let seat = &*self.seat;
        // An earlier wait may have been given up half-way.
        seat.leave();
        std::future::poll_fn(|cx| {
            if let Poll::Ready(done) = work.as_mut().poll(cx) {
                seat.leave();
                return Poll::Ready(Ok(done));
            }
            if seat.until.get().is_none() {
                seat.is_idle.set(is_idle);
                seat.until.set(Some(until));
                let mut waker = seat.waker.borrow_mut();
                // A connection stays in its task, so this is nearly always the one that is there.
                if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                    *waker = Some(cx.waker().clone());
                }
            }
            match seat.ended.get() {
                None => Poll::Pending,
                Some(ended) => {
                    seat.leave();
                    Poll::Ready(Err(ended))
                }
            }
        })
        .await
    }
}

impl Seat {
    fn leave(&self) {
        self.until.set(None);
        self.ended.set(None);
    }
}

impl Drop for Seated {
    fn drop(&mut self) {
        let mut taken = self.seats.taken.borrow_mut();
        let index = self.seat.index.get();
        taken.swap_remove(index);
        if let Some(moved) = taken.get(index) {
            moved.index.set(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;
    use std::pin::pin;
    use std::task::Context;

    /// Polls a wait once, lets `act` happen, and polls it again.
    fn check(is_idle: bool, act: impl FnOnce(&Seats, Instant), expected: Poll<Result<(), Ended>>) {
        let seats = Rc::new(Seats::new(Duration::from_secs(1)));
        let seated = seats.take();
        let until = Instant::now() + Duration::from_secs(1000);
        let mut wait = pin!(seated.wait(until, is_idle, pending::<()>()));
        let mut context = Context::from_waker(Waker::noop());
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
        act(&seats, until);
        assert_eq!(wait.as_mut().poll(&mut context), expected);
    }

    #[test]
    fn a_wait_ends_when_its_time_is_up_and_not_before() {
        check(true, |seats, until| seats.look(until - Duration::from_nanos(1)), Poll::Pending);
        check(true, Seats::look, Poll::Ready(Err(Ended::Late)));
        check(false, Seats::look, Poll::Ready(Err(Ended::Late)));
    }

    #[test]
    fn a_drain_ends_idle_waits_only() {
        check(true, |seats, _| seats.drain(), Poll::Ready(Err(Ended::Draining)));
        check(false, |seats, _| seats.drain(), Poll::Pending);
    }

    #[test]
    fn what_ended_one_wait_does_not_end_the_next() {
        let seats = Rc::new(Seats::new(Duration::from_secs(1)));
        let seated = seats.take();
        let mut context = Context::from_waker(Waker::noop());
        let soon = Instant::now();
        for _ in 0..2 {
            let mut wait = pin!(seated.wait(soon, true, pending::<()>()));
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Pending);
            seats.look(soon);
            assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(Err(Ended::Late)));
        }
        // Nobody waits now.
        seats.look(soon);
        let mut wait = pin!(seated.wait(soon, true, async { 7 }));
        assert_eq!(wait.as_mut().poll(&mut context), Poll::Ready(Ok(7)));
    }

    #[test]
    fn seats_are_given_up_in_any_order() {
        let seats = Rc::new(Seats::new(Duration::from_secs(1)));
        let mut seated: Vec<Seated> = (0..5).map(|_| seats.take()).collect();
        for index in [1, 3, 0] {
            drop(seated.remove(index));
        }
        assert_eq!(seats.taken.borrow().len(), 2);
        seated.clear();
        assert!(seats.taken.borrow().is_empty());
    }

    #[test]
    fn short_waits_are_looked_after_more_often() {
        assert_eq!(Seats::new(Duration::from_secs(10)).look_every(), LOOK_EVERY_MAX);
        assert_eq!(Seats::new(Duration::from_millis(80)).look_every(), Duration::from_millis(10));
        assert_eq!(Seats::new(Duration::ZERO).look_every(), LOOK_EVERY_MIN);
    }
}
