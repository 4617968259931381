//! Answers on their way from a store worker to the threads of the requests.
//!
//! A batch answers many requests of one thread. Where threads share a core, waking that thread for the first answer would run it
//! for one answer at a time, with a system call and two context switches for each. So a store worker wakes no task before all are
//! answered ([`answer_batch`]), and the first task to run wakes the others of its thread, where that is cheap.
//!
//! The receiver reports how long the answer waited: the time in which its thread did something else or woke up.

use crate::{Error, Kind};
use parking_lot::Mutex;
use std::cell::RefCell;
use std::mem;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// Where the answer to a request goes. A request that is dropped, whatever the reason, is answered too.
pub struct Reply<T> {
    /// `None` once it is answered.
    done: Option<Box<Done<T>>>,
    /// For how long it waited for its batch.
    pub(super) queued: Duration,
}

type Done<T> = dyn FnOnce(Result<T, Error>, Duration) + Send;

impl<T> Reply<T> {
    /// Calls `done` once, on a thread of the batcher, with the answer and how long the request waited for its batch. It must
    /// not block.
    pub fn new(done: impl FnOnce(Result<T, Error>, Duration) + Send + 'static) -> Reply<T> {
        Reply { done: Some(Box::new(done)), queued: Duration::ZERO }
    }

    pub(super) fn give(&mut self, answer: Result<T, Error>) {
        if let Some(done) = self.done.take() {
            done(answer, self.queued);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        // Only when a worker ends in the middle of a batch: its outcome is unknown then.
        if let Some(done) = self.done.take() {
            done(Err(Error::new(Kind::Unknown, "the store worker ended")), self.queued);
        }
    }
}

/// Sends one answer. Dropped without one, the receiver learns that there is none.
pub struct Sender<T>(Arc<Slot<T>>);

/// Waits for one answer, and reports how long it waited here; `None` if there will be none.
pub struct Receiver<T>(Arc<Slot<T>>);

struct Slot<T> {
    state: Mutex<State<T>>,
    /// Of the thread of the receiver.
    pending: Arc<PendingWakers>,
}

enum State<T> {
    /// Not sent; the waker of the receiver, once it was polled.
    Waiting(Option<Waker>),
    /// And when.
    Sent(T, Instant),
    /// Taken, given up, or never to come.
    Over,
}

/// The tasks of one thread that are answered and not woken yet.
#[derive(Default)]
struct PendingWakers(Mutex<Vec<Waker>>);

thread_local! {
    static PENDING: Arc<PendingWakers> = Arc::default();
    /// The wakers that wait for the end of [`answer_batch`]; `None` outside of it.
    static DEFERRED: RefCell<Option<Deferred>> = const { RefCell::new(None) };
}

/// The answers of a batch that is being answered.
struct Deferred {
    /// When it began: the clock is read once for all of them.
    began: Instant,
    /// The threads to wake at its end.
    pending: Vec<Arc<PendingWakers>>,
}

/// A channel for one answer to this thread.
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let slot = Slot { state: Mutex::new(State::Waiting(None)), pending: PENDING.with(Arc::clone) };
    let slot = Arc::new(slot);
    (Sender(Arc::clone(&slot)), Receiver(slot))
}

/// Runs `give`, and wakes the tasks that it answered when it returns. Returns when it began, which counts as the time of all answers.
pub(super) fn answer_batch(give: impl FnOnce()) -> Instant {
    let began = Instant::now();
    let _end = BatchGuard { outer: DEFERRED.replace(Some(Deferred { began, pending: Vec::new() })) };
    give();
    began
}

/// Wakes the tasks when it is dropped, also after a panic.
struct BatchGuard {
    outer: Option<Deferred>,
}

impl Drop for BatchGuard {
    fn drop(&mut self) {
        let held = DEFERRED.replace(self.outer.take());
        for pending in held.into_iter().flat_map(|held| held.pending) {
            pending.wake();
        }
    }
}

impl PendingWakers {
    /// Wakes one after the other, so that the first task to run wakes the rest instead of this thread.
    fn wake(&self) {
        loop {
            // Bound first: the lock must not be held while waking.
            let next = self.0.lock().pop();
            match next {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Wakes `waker` now, or at the end of [`answer_batch`].
    fn answered(self: &Arc<Self>, waker: Waker) {
        let now = DEFERRED.with_borrow_mut(|held| match held {
            None => Some(waker),
            Some(held) => {
                self.0.lock().push(waker);
                if !held.pending.iter().any(|known| Arc::ptr_eq(known, self)) {
                    held.pending.push(Arc::clone(self));
                }
                None
            }
        });
        if let Some(waker) = now {
            waker.wake();
        }
    }
}

impl<T> Slot<T> {
    fn end(&self, last: State<T>) {
        let before = {
            let mut state = self.state.lock();
            match &*state {
                State::Waiting(_) => mem::replace(&mut *state, last),
                State::Sent(..) | State::Over => return,
            }
        };
        if let State::Waiting(Some(waker)) = before {
            self.pending.answered(waker);
        }
    }
}

impl<T> Sender<T> {
    /// Sends the answer. If the receiver is dropped, so is the answer.
    pub fn send(self, answer: T) {
        let now = DEFERRED.with_borrow(|held| held.as_ref().map(|held| held.began));
        self.0.end(State::Sent(answer, now.unwrap_or_else(Instant::now)));
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.0.end(State::Over);
    }
}

impl<T> Future for Receiver<T> {
    type Output = Option<(T, Duration)>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.0.state.lock();
        if let State::Waiting(waker) = &mut *state {
            match waker {
                Some(waker) => waker.clone_from(context.waker()),
                None => *waker = Some(context.waker().clone()),
            }
            return Poll::Pending;
        }
        let answer = match mem::replace(&mut *state, State::Over) {
            State::Sent(answer, when) => Some((answer, when.elapsed())),
            _ => None,
        };
        drop(state);
        self.0.pending.wake();
        Poll::Ready(answer)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        // Dropped outside of the lock: an answer may be large.
        let _unread = mem::replace(&mut *self.0.state.lock(), State::Over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    /// Counts how often it was woken.
    #[derive(Default)]
    struct Bell(AtomicUsize);

    impl Wake for Bell {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    struct Waiter {
        notify: Arc<Bell>,
        receiver: Receiver<u32>,
    }

    impl Waiter {
        fn poll(&mut self) -> Poll<Option<u32>> {
            let waker = Arc::clone(&self.notify).into();
            let taken = Pin::new(&mut self.receiver).poll(&mut Context::from_waker(&waker));
            taken.map(|taken| taken.map(|(answer, _)| answer))
        }

        fn notified(&self) -> usize {
            self.notify.0.load(Relaxed)
        }
    }

    /// Two who wait, and where to answer them.
    fn two() -> [(Sender<u32>, Waiter); 2] {
        [(); 2].map(|()| {
            let (sender, receiver) = channel();
            let mut waiter = Waiter { notify: Arc::default(), receiver };
            assert!(waiter.poll().is_pending());
            (sender, waiter)
        })
    }

    #[test]
    fn nobody_is_woken_before_all_are_answered() {
        let [(first, mut a), (second, mut b)] = two();
        answer_batch(|| {
            first.send(1);
            second.send(2);
            assert_eq!((a.notified(), b.notified()), (0, 0));
        });
        assert_eq!((a.notified(), b.notified()), (1, 1));
        assert_eq!((a.poll(), b.poll()), (Poll::Ready(Some(1)), Poll::Ready(Some(2))));
    }

    #[test]
    fn an_answer_says_how_long_it_was_there() {
        let [(first, a), (second, b)] = two();
        let long = Duration::from_millis(2);
        let began = answer_batch(|| {
            first.send(1);
            // What comes later of the same batch was answered no later: the worker was done with it.
            std::thread::sleep(long);
            second.send(2);
        });
        for mut waiter in [a, b] {
            let mut context = Context::from_waker(Waker::noop());
            let Poll::Ready(Some((_, waited))) = Pin::new(&mut waiter.receiver).poll(&mut context) else {
                panic!("it is there")
            };
            assert!(waited >= long && waited <= began.elapsed(), "{waited:?}");
        }
    }

    #[test]
    fn an_answer_that_panics_leaves_nobody_asleep() {
        let [(first, a), (second, b)] = two();
        let answers = std::panic::AssertUnwindSafe(|| {
            answer_batch(|| {
                first.send(1);
                panic!("as the test says");
            })
        });
        assert!(std::panic::catch_unwind(answers).is_err());
        assert_eq!(a.notified(), 1);
        second.send(2);
        assert_eq!(b.notified(), 1, "outside of it again");
    }

    #[test]
    fn who_looks_first_wakes_its_neighbours() {
        let [(first, mut a), (second, b)] = two();
        answer_batch(|| {
            first.send(1);
            second.send(2);
            assert_eq!(a.poll(), Poll::Ready(Some(1)));
            assert_eq!(b.notified(), 1);
        });
        assert_eq!(b.notified(), 1);
    }

    #[test]
    fn a_single_answer_wakes_at_once_and_one_that_never_comes_is_told() {
        let [(first, mut a), (second, mut b)] = two();
        first.send(1);
        assert_eq!(a.notified(), 1);
        drop(second);
        assert_eq!((b.notified(), b.poll()), (1, Poll::Ready(None)));
        assert_eq!((a.poll(), a.poll()), (Poll::Ready(Some(1)), Poll::Ready(None)));
    }

    #[test]
    fn whoever_stopped_waiting_is_not_woken_and_holds_up_nobody() {
        let [(first, a), (second, mut b)] = two();
        let notify = Arc::clone(&a.notify);
        drop(a);
        answer_batch(|| {
            first.send(1);
            second.send(2);
        });
        assert_eq!((notify.0.load(Relaxed), b.poll()), (0, Poll::Ready(Some(2))));
    }
}
