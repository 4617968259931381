//! What waits for the lanes of a kind, and which lane takes it.
//!
//! A key's hash chooses its queue, and a queue's own lane takes from it. Where a flush is slow, one that serves all is worth
//! more than two that take turns: a lane may hand its queue over to the first one, and has it back when the first one
//! releases it. Each side does its part of that only while it has nothing taken or in flight, so a key is in one lane at a time.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::Instant;
use tokio::sync::Notify;

/// The queues of a kind of lanes. Dropping them closes them: the lanes end when nothing is left.
pub(super) struct Queues<R>(Arc<[Queue<R>]>);

/// A lane's side of the queues.
pub(super) struct Tail<R> {
    queues: Arc<[Queue<R>]>,
    index: usize,
    /// Which queue is the first the next time it takes, so that no queue is always the last.
    turn: usize,
}

struct Queue<R> {
    waiting: Mutex<VecDeque<Queued<R>>>,
    /// The length of the above.
    len: AtomicUsize,
    /// Requests in its lane's batch.
    in_flight: AtomicUsize,
    is_closed: AtomicBool,
    /// Whether the first lane takes from it, instead of its own. Changed only under the lock of `waiting`.
    is_handed_over: AtomicBool,
    /// Whether the first lane has ended and takes nothing any more. Used only under the lock of `waiting`.
    first_ended: AtomicBool,
    /// Rung when its lane should look.
    bell: Notify,
}

/// A request and since when it waits.
pub(super) struct Queued<R> {
    pub(super) request: R,
    pub(super) since: Instant,
}

impl<R> Queues<R> {
    /// So many queues, and their lanes' sides.
    pub(super) fn new(count: usize) -> (Queues<R>, Vec<Tail<R>>) {
        let queue = || Queue {
            waiting: Mutex::default(),
            len: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_handed_over: AtomicBool::new(false),
            first_ended: AtomicBool::new(false),
            bell: Notify::new(),
        };
        let queues: Arc<[Queue<R>]> = (0..count).map(|_| queue()).collect();
        let tails = (0..count).map(|index| Tail { queues: Arc::clone(&queues), index, turn: 0 });
        (Queues(Arc::clone(&queues)), tails.collect())
    }

    /// None, for what has no lanes.
    pub(super) fn none() -> Queues<R> {
        Queues(Arc::new([]))
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Puts `request` at the end of a queue; gives it back if `most` wait there.
    pub(super) fn push(&self, index: usize, request: R, most: usize) -> Result<(), R> {
        let queue = &self.0[index];
        if queue.len.load(Relaxed) >= most {
            return Err(request);
        }
        let lane = {
            let mut waiting = queue.waiting.lock();
            waiting.push_back(Queued { request, since: Instant::now() });
            queue.len.store(waiting.len(), Relaxed);
            // Under the lock: should the queue change hands after this, whoever gets it is rung after that, and sees the
            // request. Outside of it this could read the old hands, and the new ones the old length.
            if queue.is_handed_over.load(Relaxed) { 0 } else { index }
        };
        self.0[lane].bell.notify_one();
        Ok(())
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|queue| queue.len.load(Relaxed)).sum()
    }

    /// Whether the first lane takes from a queue that is not its own.
    #[cfg(test)]
    pub(super) fn is_handed_over(&self, index: usize) -> bool {
        self.0[index].is_handed_over.load(Acquire)
    }

    /// The queue whose lane has least to do.
    pub(super) fn idlest(&self) -> Option<usize> {
        let pending = |queue: &Queue<R>| queue.len.load(Relaxed) + queue.in_flight.load(Relaxed);
        (0..self.0.len()).min_by_key(|&index| pending(&self.0[index]))
    }
}

impl<R> Drop for Queues<R> {
    fn drop(&mut self) {
        for queue in self.0.iter() {
            queue.is_closed.store(true, Release);
            queue.bell.notify_one();
        }
    }
}

impl<R> Queue<R> {
    fn take(&self, taken: &mut VecDeque<Queued<R>>, most: usize) {
        if self.len.load(Relaxed) == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let count = waiting.len().min(most.saturating_sub(taken.len()));
        taken.extend(waiting.drain(..count));
        self.len.store(waiting.len(), Relaxed);
    }

    /// Makes it its own lane's again. Only the first lane does so.
    fn give_back(&self) {
        if self.is_handed_over.load(Relaxed) {
            {
                let _waiting = self.waiting.lock();
                self.is_handed_over.store(false, Release);
            }
            self.bell.notify_one();
        }
    }
}

impl<R> Tail<R> {
    fn own(&self) -> &Queue<R> {
        &self.queues[self.index]
    }

    /// Whether this lane serves a queue now.
    fn serves(&self, index: usize) -> bool {
        self.queues[index].is_handed_over.load(Acquire) == (self.index != index)
            && (self.index == 0 || self.index == index)
    }

    /// Whether nothing waits for this lane.
    pub(super) fn is_empty(&self) -> bool {
        !(0..self.queues.len()).any(|index| self.serves(index) && self.queues[index].len.load(Relaxed) > 0)
    }

    /// Moves what waits for this lane to the end of `taken`, until that holds `most`.
    pub(super) fn take(&mut self, taken: &mut VecDeque<Queued<R>>, most: usize) {
        let count = self.queues.len();
        self.turn = (self.turn + 1) % count;
        for index in (0..count).map(|index| (index + self.turn) % count) {
            if self.serves(index) {
                self.queues[index].take(taken, most);
            }
        }
    }

    /// Moves everything in this lane's own queue to the end of `taken`, whoever serves it: for a lane that only refuses.
    pub(super) fn take_own(&self, taken: &mut VecDeque<Queued<R>>) {
        self.own().take(taken, usize::MAX);
    }

    /// Waits until there may be something to take, or the queues may be closed.
    pub(super) async fn rung(&self) {
        self.own().bell.notified().await;
    }

    /// Whether nothing can be queued any more, and nothing is left: neither for this lane nor in its own queue.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed() && self.own().len.load(Relaxed) == 0 && self.is_empty()
    }

    /// Whether nothing can be queued any more.
    pub(super) fn is_closed(&self) -> bool {
        self.own().is_closed.load(Acquire)
    }

    /// Says how many requests this lane has in flight.
    pub(super) fn in_flight(&self, requests: usize) {
        self.own().in_flight.store(requests, Relaxed);
    }

    /// From now on the first lane takes from this lane's queue, and what is in `taken`. Nothing may be in flight.
    ///
    /// Whether it does: the first lane keeps its own queue, and once it has ended it takes no other.
    pub(super) fn hand_over(&self, taken: &mut VecDeque<Queued<R>>) -> bool {
        if self.index == 0 {
            return false;
        }
        let own = self.own();
        {
            let mut waiting = own.waiting.lock();
            if own.first_ended.load(Relaxed) {
                return false;
            }
            while let Some(queued) = taken.pop_back() {
                waiting.push_front(queued);
            }
            own.len.store(waiting.len(), Relaxed);
            own.is_handed_over.store(true, Release);
        }
        self.queues[0].bell.notify_one();
        true
    }

    /// Gives all queues back to their lanes, if this is the first one. Nothing may be in flight, nor in `taken`: it may be of
    /// another lane's queue, which would then have a key in two batches.
    pub(super) fn release(&self, taken: &VecDeque<Queued<R>>) {
        assert!(taken.is_empty(), "a queue is given back only with all that was taken from it");
        if self.index == 0 {
            self.queues[1..].iter().for_each(Queue::give_back);
        }
    }

    /// Says that this lane takes nothing any more. Nothing may be in flight.
    pub(super) fn end(&self) {
        if self.index > 0 {
            return;
        }
        for queue in &self.queues[1..] {
            {
                let _waiting = queue.waiting.lock();
                queue.first_ended.store(true, Relaxed);
            }
            // It may have been handed over since the last release.
            queue.give_back();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(tail: &mut Tail<u32>) -> Vec<u32> {
        let mut taken = VecDeque::new();
        tail.take(&mut taken, 100);
        taken.into_iter().map(|queued| queued.request).collect()
    }

    #[test]
    fn a_queue_that_was_handed_over_is_the_first_lanes_until_it_releases_it() {
        let (queues, mut tails) = Queues::new(2);
        let push = |index, request| assert!(queues.push(index, request, 10).is_ok());
        push(0, 1);
        push(1, 2);
        assert_eq!(taken(&mut tails[0]), [1]);
        // The second lane has taken one, which it gives back in its place.
        let mut rest = VecDeque::new();
        tails[1].take(&mut rest, 1);
        push(1, 3);
        assert!(!tails[0].hand_over(&mut rest) && tails[1].hand_over(&mut rest));
        assert_eq!((taken(&mut tails[1]), taken(&mut tails[0])), (vec![], vec![2, 3]));
        push(1, 4);
        tails[0].release(&VecDeque::new());
        assert_eq!((taken(&mut tails[0]), taken(&mut tails[1])), (vec![], vec![4]));
    }

    #[test]
    fn a_first_lane_that_has_ended_gives_back_what_it_got_and_gets_nothing_more() {
        let (queues, mut tails) = Queues::new(2);
        let mut rest = VecDeque::new();
        assert!(queues.push(1, 1, 10).is_ok() && tails[1].hand_over(&mut rest));
        tails[0].end();
        tails[1].take(&mut rest, 1);
        assert!(!tails[1].hand_over(&mut rest));
        assert!(queues.push(1, 2, 10).is_ok());
        assert_eq!((rest.len(), taken(&mut tails[1])), (1, vec![2]));
    }

    #[test]
    fn no_more_wait_than_may_and_none_is_lost_by_closing() {
        let (queues, mut tails) = Queues::new(1);
        assert!(queues.push(0, 1, 2).is_ok() && queues.push(0, 2, 2).is_ok());
        assert_eq!((queues.push(0, 3, 2), queues.len()), (Err(3), 2));
        drop(queues);
        assert!(tails[0].is_closed() && !tails[0].is_over());
        assert_eq!(taken(&mut tails[0]), [1, 2]);
        assert!(tails[0].is_over());
    }
}
