//! The queues of the store workers for reads, or for writes, and which worker serves which queue.
//!
//! A key's hash chooses its queue, and a queue's own worker takes from it. Where a flush is slow, one that serves all is worth
//! more than two that take turns: a worker may hand its queue over to the first one, and has it back when the first one
//! releases it. Each side does its part of that only while it has nothing in flight, so a key is in one worker at a time.

use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// The queues of a kind of workers.
pub(super) struct Queues<R>(Arc<[Queue<R>]>);

impl<R> Clone for Queues<R> {
    fn clone(&self) -> Queues<R> {
        Queues(Arc::clone(&self.0))
    }
}

/// How many requests, and bytes, may wait in a queue that takes all.
pub(super) const NO_LIMIT: (usize, usize) = (usize::MAX, usize::MAX);

/// A store worker's side of the queues.
pub(super) struct Consumer<R> {
    queues: Arc<[Queue<R>]>,
    index: usize,
    /// Which queue is the first the next time it takes, so that no queue is always the last.
    turn: usize,
}

struct Queue<R> {
    waiting: Mutex<Line<R>>,
    /// The length of `waiting`.
    len: AtomicUsize,
    /// Requests in its worker's batch.
    in_flight: AtomicUsize,
    is_closed: AtomicBool,
    /// Whether the first worker takes from it, instead of its own. Changed only under the lock of `waiting`.
    is_handed_over: AtomicBool,
    /// Whether the first worker has ended and takes nothing any more. Used only under the lock of `waiting`.
    first_ended: AtomicBool,
    /// Rung when its worker should look.
    notify: Notify,
}

/// A request, its size, and since when it waits.
pub(super) struct Queued<R> {
    pub(super) request: R,
    bytes: usize,
    pub(super) since: Instant,
}

/// What waits, and its size.
struct Line<R> {
    requests: VecDeque<Queued<R>>,
    bytes: usize,
}

impl<R> Queues<R> {
    /// So many queues, and their store workers' sides.
    pub(super) fn new(count: usize) -> (Queues<R>, Vec<Consumer<R>>) {
        let queue = || Queue {
            waiting: Mutex::new(Line { requests: VecDeque::new(), bytes: 0 }),
            len: AtomicUsize::new(0),
            in_flight: AtomicUsize::new(0),
            is_closed: AtomicBool::new(false),
            is_handed_over: AtomicBool::new(false),
            first_ended: AtomicBool::new(false),
            notify: Notify::new(),
        };
        let queues: Arc<[Queue<R>]> = (0..count).map(|_| queue()).collect();
        let consumers = (0..count).map(|index| Consumer { queues: Arc::clone(&queues), index, turn: 0 });
        (Queues(Arc::clone(&queues)), consumers.collect())
    }

    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Puts `request` at the end of a queue; gives it back if so many requests, or bytes, wait there.
    pub(super) fn push(
        &self,
        index: usize,
        request: R,
        bytes: usize,
        (requests_max, bytes_max): (usize, usize),
    ) -> Result<(), R> {
        let queue = &self.0[index];
        if queue.len.load(Relaxed) >= requests_max {
            return Err(request);
        }
        let worker = {
            let mut waiting = queue.waiting.lock();
            if waiting.bytes >= bytes_max {
                return Err(request);
            }
            waiting.requests.push_back(Queued { request, bytes, since: Instant::now() });
            waiting.bytes += bytes;
            queue.len.store(waiting.requests.len(), Relaxed);
            // Under the lock: if the queue is handed over after this, its new worker is notified after that and sees the
            // request. Outside of it this could read the old hands, and the new ones the old length.
            if queue.is_handed_over.load(Relaxed) { 0 } else { index }
        };
        self.0[worker].notify.notify_one();
        Ok(())
    }

    /// Closes them: the workers end when nothing is left.
    pub(super) fn close(&self) {
        for queue in self.0.iter() {
            queue.is_closed.store(true, Release);
            queue.notify.notify_one();
        }
    }

    /// Removes the requests that have waited longer than `most`.
    pub(super) fn late(&self, most: Duration) -> Vec<Queued<R>> {
        let (now, mut late) = (Instant::now(), Vec::new());
        // The first one of a queue has waited longest.
        let mut is_late = |queued: &Queued<R>| now.saturating_duration_since(queued.since) > most;
        self.0.iter().for_each(|queue| queue.take_while(&mut is_late, &mut late));
        late
    }

    /// Requests that wait.
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|queue| queue.len.load(Relaxed)).sum()
    }

    /// Whether nothing waits and nothing is in a batch.
    pub(super) fn is_idle(&self) -> bool {
        // What is no longer counted in the one is in the other, maybe of another queue.
        let is_empty = |queue: &Queue<R>| queue.len.load(Acquire) == 0;
        let has_none = |queue: &Queue<R>| queue.in_flight.load(Acquire) == 0;
        self.0.iter().all(is_empty) && self.0.iter().all(has_none)
    }

    /// Whether the first worker takes from a queue that is not its own.
    #[cfg(test)]
    pub(super) fn is_handed_over(&self, index: usize) -> bool {
        self.0[index].is_handed_over.load(Acquire)
    }

    /// The queue whose worker has least to do.
    pub(super) fn idlest(&self) -> Option<usize> {
        let pending = |queue: &Queue<R>| queue.len.load(Relaxed) + queue.in_flight.load(Relaxed);
        (0..self.0.len()).min_by_key(|&index| pending(&self.0[index]))
    }
}

impl<R> Queue<R> {
    /// Moves the first requests to the end of `taken`, as long as `wanted` holds for the next one.
    fn take_while(&self, wanted: &mut impl FnMut(&Queued<R>) -> bool, taken: &mut Vec<Queued<R>>) {
        if self.len.load(Relaxed) == 0 {
            return;
        }
        let mut waiting = self.waiting.lock();
        let Line { requests, bytes } = &mut *waiting;
        while let Some(queued) = requests.pop_front_if(|queued| wanted(queued)) {
            *bytes -= queued.bytes;
            taken.push(queued);
        }
        self.len.store(requests.len(), Release);
    }

    /// Makes it its own worker's again. Only the first worker does so.
    fn give_back(&self) {
        if self.is_handed_over.load(Relaxed) {
            {
                let _waiting = self.waiting.lock();
                self.is_handed_over.store(false, Release);
            }
            self.notify.notify_one();
        }
    }
}

impl<R> Consumer<R> {
    fn own(&self) -> &Queue<R> {
        &self.queues[self.index]
    }

    /// Whether this worker serves a queue now.
    fn serves(&self, index: usize) -> bool {
        self.queues[index].is_handed_over.load(Acquire) == (self.index != index)
            && (self.index == 0 || self.index == index)
    }

    /// How many requests wait for this worker.
    pub(super) fn len(&self) -> usize {
        let served = (0..self.queues.len()).filter(|index| self.serves(*index));
        served.map(|index| self.queues[index].len.load(Relaxed)).sum()
    }

    /// Takes the first requests that wait for this worker, as long as `wanted` holds for the next one.
    pub(super) fn take(&mut self, mut wanted: impl FnMut(&Queued<R>) -> bool) -> Vec<Queued<R>> {
        // Before the queue's length falls: a hand-over waits for both.
        self.in_flight(1);
        let (count, mut taken) = (self.queues.len(), Vec::new());
        self.turn = (self.turn + 1) % count;
        for index in (0..count).map(|index| (index + self.turn) % count) {
            if self.serves(index) {
                self.queues[index].take_while(&mut wanted, &mut taken);
            }
        }
        self.in_flight(taken.len());
        taken
    }

    /// Takes the first requests from this worker's own queue for which `wanted` holds, also if another worker serves it: for a
    /// worker that only refuses.
    pub(super) fn take_own(&self, mut wanted: impl FnMut(&Queued<R>) -> bool) -> Vec<Queued<R>> {
        let mut taken = Vec::new();
        self.own().take_while(&mut wanted, &mut taken);
        taken
    }

    /// Waits until there may be something to take, or the queues may be closed.
    pub(super) async fn notified(&self) {
        self.own().notify.notified().await;
    }

    /// Whether nothing can be queued any more, and nothing is left: neither for this worker nor in its own queue.
    pub(super) fn is_over(&self) -> bool {
        self.is_closed() && self.own().len.load(Relaxed) == 0 && self.len() == 0
    }

    /// Whether nothing can be queued any more.
    pub(super) fn is_closed(&self) -> bool {
        self.own().is_closed.load(Acquire)
    }

    /// Says how many requests this worker has taken.
    pub(super) fn in_flight(&self, requests: usize) {
        self.own().in_flight.store(requests, Release);
    }

    /// From now on the first worker takes from this worker's queue. Nothing may be in flight.
    ///
    /// Whether it does: the first worker keeps its own queue, and once it has ended it takes no other.
    pub(super) fn hand_over(&self) -> bool {
        if self.index == 0 {
            return false;
        }
        {
            let _waiting = self.own().waiting.lock();
            if self.own().first_ended.load(Relaxed) {
                return false;
            }
            self.own().is_handed_over.store(true, Release);
        }
        self.queues[0].notify.notify_one();
        true
    }

    /// Gives all queues back to their workers, if this is the first one. Nothing may be in flight.
    pub(super) fn release(&self) {
        if self.index == 0 {
            self.queues[1..].iter().for_each(Queue::give_back);
        }
    }

    /// Says that this worker takes nothing any more. Nothing may be in flight.
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

    const MOST: (usize, usize) = (10, 100);

    fn taken(consumer: &mut Consumer<u32>) -> Vec<u32> {
        consumer.take(|_| true).into_iter().map(|queued| queued.request).collect()
    }

    #[test]
    fn a_queue_that_was_handed_over_is_the_first_lanes_until_it_releases_it() {
        let (queues, mut consumers) = Queues::new(2);
        let push = |index, request| assert!(queues.push(index, request, 1, MOST).is_ok());
        push(0, 1);
        push(1, 2);
        assert_eq!(taken(&mut consumers[0]), [1]);
        push(1, 3);
        assert!(!consumers[0].hand_over() && consumers[1].hand_over());
        assert_eq!((taken(&mut consumers[1]), taken(&mut consumers[0])), (vec![], vec![2, 3]));
        push(1, 4);
        consumers[0].release();
        assert_eq!((taken(&mut consumers[0]), taken(&mut consumers[1])), (vec![], vec![4]));
    }

    #[test]
    fn what_a_worker_has_taken_is_not_idle() {
        let (queues, mut consumers) = Queues::new(1);
        assert!(queues.is_idle() && queues.push(0, 1, 1, MOST).is_ok() && !queues.is_idle());
        assert_eq!(taken(&mut consumers[0]), [1]);
        assert!(!queues.is_idle());
        consumers[0].in_flight(0);
        assert!(queues.is_idle());
        assert!(taken(&mut consumers[0]).is_empty());
        assert!(queues.is_idle());
    }

    /// The first worker counts what it takes of another's queue.
    #[test]
    fn what_is_handed_over_is_not_idle() {
        for _ in 0..2000 {
            let (queues, mut consumers) = Queues::new(2);
            assert!(queues.push(1, 1, 1, MOST).is_ok());
            let moved = std::thread::spawn(move || {
                consumers[1].hand_over();
                consumers[0].take(|_| true);
            });
            while !moved.is_finished() {
                assert!(!queues.is_idle());
            }
        }
    }

    #[test]
    fn a_first_worker_that_has_ended_gives_back_what_it_got_and_gets_nothing_more() {
        let (queues, mut consumers) = Queues::new(2);
        assert!(queues.push(1, 1, 1, MOST).is_ok() && consumers[1].hand_over());
        consumers[0].end();
        assert_eq!(taken(&mut consumers[1]), [1]);
        assert!(!consumers[1].hand_over());
        assert!(queues.push(1, 2, 1, MOST).is_ok());
        assert_eq!(taken(&mut consumers[1]), [2]);
    }

    #[test]
    fn no_more_wait_than_may_and_none_is_lost_by_closing() {
        let (queues, mut consumers) = Queues::new(1);
        let most = (2, 100);
        assert!(queues.push(0, 1, 1, most).is_ok() && queues.push(0, 2, 1, most).is_ok());
        assert_eq!((queues.push(0, 3, 1, most), queues.len()), (Err(3), 2));
        queues.close();
        assert!(consumers[0].is_closed() && !consumers[0].is_over());
        assert_eq!(taken(&mut consumers[0]), [1, 2]);
        assert!(consumers[0].is_over());
    }

    #[test]
    fn a_queue_is_full_by_bytes_too_and_has_room_again_whichever_way_they_go() {
        let (queues, mut consumers) = Queues::new(2);
        let fill = |request| {
            // A large one is taken as long as there is any room.
            assert!(
                queues.push(1, request, 99, MOST).is_ok() && queues.push(1, request + 1, 1000, MOST).is_ok()
            );
            assert_eq!(queues.push(1, 0, 0, MOST), Err(0));
        };
        fill(1);
        assert_eq!(taken(&mut consumers[1]), [1, 2]);
        fill(3);
        assert_eq!(queues.late(Duration::ZERO).len(), 2);
        fill(5);
        // Those that are handed over count as before.
        assert!(consumers[1].hand_over());
        assert_eq!(queues.push(1, 7, 1, MOST), Err(7));
        assert_eq!(taken(&mut consumers[0]), [5, 6]);
        fill(8);
    }
}
