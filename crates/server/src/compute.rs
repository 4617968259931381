//! The compute pool: a fixed number of threads behind a bounded queue, and the two computations that run on them.
//!
//! A worker never computes on its own loop, because all its connections would wait.

use kv::counters::{Counter, Histogram};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::task::JoinSet;

/// Most primes per request; they take about a millisecond.
pub(super) const PRIMES_MAX: usize = 10_000;

/// Longest text that is hashed, in bytes.
pub(super) const TEXT_BYTES_MAX: usize = 8 << 10;

/// Jobs that may wait: about a second of work for each thread.
pub(super) const QUEUE_JOBS_MAX: usize = 1_000;

/// Idle threads stay: starting one takes longer than most jobs.
const KEEP_ALIVE: Duration = Duration::from_secs(3600);

/// The threads and their queue: the blocking pool of a runtime of its own. Dropping it drops the jobs that wait.
pub(super) struct Pool {
    runtime: Option<Runtime>,
    pub(super) meters: Arc<Meters>,
    jobs_max: usize,
}

/// There is no room in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What the pool counts.
#[derive(Debug, Default)]
pub(super) struct Meters {
    pub(super) threads: usize,
    /// Jobs that wait now.
    pub(super) queued: AtomicUsize,
    /// Time in the queue.
    pub(super) waited: Histogram,
    /// Time in jobs, over all threads.
    pub(super) busy_nanos: Counter,
    /// Jobs refused because too many waited.
    pub(super) shed: Counter,
}

/// A place in the queue, until this is dropped.
struct Place(Arc<Meters>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.queued.fetch_sub(1, Relaxed);
    }
}

impl Pool {
    /// A pool of `threads`; at most `jobs_max` jobs wait.
    pub(super) fn start(threads: usize, jobs_max: usize) -> std::io::Result<Pool> {
        let mut builder = Builder::new_current_thread();
        builder.max_blocking_threads(threads).thread_keep_alive(KEEP_ALIVE).thread_name("weir-compute");
        let meters = Arc::new(Meters { threads, ..Meters::default() });
        Ok(Pool { runtime: Some(builder.build()?), meters, jobs_max })
    }

    /// Runs `work` on one of the threads. A job that waits is removed when this is dropped.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Full> {
        let place = Place(Arc::clone(&self.meters));
        if self.meters.queued.fetch_add(1, Relaxed) >= self.jobs_max {
            self.meters.shed.add(1);
            return Err(Full);
        }
        let (meters, since) = (Arc::clone(&self.meters), Instant::now());
        let job = move || {
            drop(place);
            meters.waited.record_duration(since.elapsed());
            let began = Instant::now();
            let answer = work();
            meters.busy_nanos.add(began.elapsed().as_nanos() as u64);
            answer
        };
        let mut jobs = JoinSet::new();
        jobs.spawn_blocking_on(job, self.runtime.as_ref().ok_or(Full)?.handle());
        jobs.join_next().await.and_then(Result::ok).ok_or(Full)
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        // Does not wait for the jobs that run: this may be called on a thread of another runtime.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
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
            while pool.meters.queued.load(Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            let refused = pool.run(|| 3).await;
            go.send(()).unwrap();
            refused
        };
        assert_eq!(tokio::join!(busy, started_before(waits, &pool), refused), (Ok(1), Ok(2), Err(Full)));
        let meters = &pool.meters;
        assert_eq!((meters.threads, meters.shed.get(), meters.queued.load(Relaxed)), (1, 1, 0));
        assert!(meters.busy_nanos.get() > 0);
    }

    /// Asks only when the thread has taken what came before.
    async fn started_before(work: impl Future<Output = Result<i32, Full>>, pool: &Pool) -> Result<i32, Full> {
        while pool.meters.queued.load(Relaxed) > 0 {
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
