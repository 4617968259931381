//! Work for processors: a fixed number of threads behind a bounded queue, and the two computations that run on them.
//!
//! A worker never computes on its own loop: every connection it serves would wait.

use kv::counters::{Counter, Histogram};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;
use tokio::sync::oneshot;

/// Most primes that one request may ask for; they take about a millisecond.
pub(super) const PRIMES_MAX: usize = 10_000;

/// Longest text that is hashed, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 8 << 10;

/// Jobs that may wait: the last of them about a second for each thread.
pub(super) const QUEUE_JOBS_MAX: usize = 1_000;

/// The threads and their queue. Dropped, it forgets what waits and ends with what is under way.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// There is no room in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What the pool counts.
#[derive(Debug, Default)]
pub(super) struct Meters {
    /// Threads it has.
    pub(super) threads: usize,
    /// Jobs that wait now.
    pub(super) queued: AtomicUsize,
    /// From the queue's door to a thread.
    pub(super) waited: Histogram,
    /// Time in jobs, over all threads.
    pub(super) busy_nanos: Counter,
    /// Jobs refused because too many waited.
    pub(super) shed: Counter,
}

struct Shared {
    queue: Mutex<Queue>,
    /// A job came, or the end.
    changed: Condvar,
    meters: Arc<Meters>,
    jobs_max: usize,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    has_ended: bool,
}

struct Job {
    work: Box<dyn FnOnce() + Send>,
    since: Instant,
}

impl Pool {
    /// Starts `threads` of them; at most `jobs_max` jobs wait.
    pub(super) fn start(threads: usize, jobs_max: usize) -> std::io::Result<Pool> {
        let meters = Arc::new(Meters { threads, ..Meters::default() });
        let shared = Arc::new(Shared { queue: Mutex::default(), changed: Condvar::new(), meters, jobs_max });
        let mut pool = Pool { shared, threads: Vec::new() };
        for index in 0..threads {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new().name(format!("weir-compute-{index}"));
            pool.threads.push(thread.spawn(move || shared.work())?);
        }
        Ok(pool)
    }

    pub(super) fn meters(&self) -> Arc<Meters> {
        Arc::clone(&self.shared.meters)
    }

    /// Does `work` on one of the threads.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Full> {
        let (sender, receiver) = oneshot::channel();
        let work = Box::new(move || {
            // Whoever asked may be gone; then nobody has use for the answer.
            if !sender.is_closed() {
                let _ = sender.send(work());
            }
        });
        {
            let mut queue = self.shared.queue.lock();
            if queue.jobs.len() >= self.shared.jobs_max {
                self.shared.meters.shed.add(1);
                return Err(Full);
            }
            queue.jobs.push_back(Job { work, since: Instant::now() });
            self.shared.meters.queued.store(queue.jobs.len(), Relaxed);
        }
        self.shared.changed.notify_one();
        // The sender is dropped unused only when the pool ends.
        receiver.await.map_err(|_| Full)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        {
            let mut queue = self.shared.queue.lock();
            queue.has_ended = true;
            queue.jobs.clear();
        }
        self.shared.changed.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self) {
        while let Some(job) = self.next() {
            self.meters.waited.record_duration(job.since.elapsed());
            let began = Instant::now();
            (job.work)();
            self.meters.busy_nanos.add(began.elapsed().as_nanos() as u64);
        }
    }

    /// Waits for a job; `None` at the end.
    fn next(&self) -> Option<Job> {
        let mut queue = self.queue.lock();
        loop {
            if queue.has_ended {
                return None;
            }
            if let Some(job) = queue.jobs.pop_front() {
                self.meters.queued.store(queue.jobs.len(), Relaxed);
                return Some(job);
            }
            self.changed.wait(&mut queue);
        }
    }
}

/// The first `count` primes, found by dividing each number by the earlier ones: the same work every time.
pub(super) fn primes(count: usize) -> Vec<u32> {
    let mut primes: Vec<u32> = Vec::with_capacity(count);
    let mut candidate = 2;
    while primes.len() < count {
        let mut divisors = primes.iter().take_while(|prime| *prime * *prime <= candidate);
        if divisors.all(|prime| candidate % prime != 0) {
            primes.push(candidate);
        }
        candidate += 1;
    }
    primes
}

/// `h = 31 h + byte` over the text, each byte signed, modulo 2^32.
pub(super) fn hash(text: &[u8]) -> u32 {
    text.iter().fold(0, |hash: u32, &byte| hash.wrapping_mul(31).wrapping_add(byte as i8 as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn primes_are_the_first_ones() {
        assert!(primes(0).is_empty());
        assert_eq!(primes(10), [2, 3, 5, 7, 11, 13, 17, 19, 23, 29]);
        assert_eq!(primes(PRIMES_MAX).last(), Some(&104_729));
    }

    #[test]
    fn a_hash_takes_bytes_as_signed() {
        for (text, expected) in [(&b""[..], 0), (b"a", 97), (b"hello", 99_162_322), (b"\xff", u32::MAX)] {
            assert_eq!(hash(text), expected, "{}", text.escape_ascii());
        }
    }

    #[tokio::test]
    async fn what_finds_the_queue_full_is_refused_and_the_others_done() {
        let pool = Pool::start(1, 1).unwrap();
        let (started, has_started) = mpsc::channel();
        let (go, may_go) = mpsc::channel();
        let busy = pool.run(move || {
            started.send(()).unwrap();
            may_go.recv().unwrap();
            1
        });
        let waits = pool.run(|| 2);
        let refused = async {
            // The one thread is held, and the one place in the queue taken.
            has_started.recv().unwrap();
            while pool.meters().queued.load(Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let refused = pool.run(|| 3).await;
            go.send(()).unwrap();
            refused
        };
        assert_eq!(tokio::join!(busy, started_before(waits, &pool), refused), (Ok(1), Ok(2), Err(Full)));
        let meters = pool.meters();
        assert_eq!((meters.threads, meters.shed.get(), meters.queued.load(Relaxed)), (1, 1, 0));
        assert!(meters.busy_nanos.get() > 0);
    }

    /// Asks only when the thread has taken what came before.
    async fn started_before(work: impl Future<Output = Result<i32, Full>>, pool: &Pool) -> Result<i32, Full> {
        while pool.meters().queued.load(Relaxed) > 0 {
            tokio::task::yield_now().await;
        }
        work.await
    }

    #[tokio::test]
    async fn a_pool_that_ends_leaves_nobody_waiting() {
        let pool = Pool::start(2, 10).unwrap();
        assert_eq!(pool.run(|| 1).await, Ok(1));
        drop(pool);
    }
}
