//! A store worker: a thread, a session and one batch in flight, of its own queue or, while flushes are slow, of all queues.

use super::hand_over::KNOWN_FOR;
use super::queue::{Consumer, Queued, Queues};
use super::{Batching, Shared, Status, WorkerMeters, confirmed, overloaded, start_thread};
use crate::{Answer, Error, Kind, Session};
use kv::faults::{self, Fault};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// A batch takes no further request once it carries this many bytes.
pub(super) const BATCH_BYTES_MAX: usize = 1 << 20;
/// With a flush this slow, a batch waits for more requests; below it, waiting costs more than it saves.
pub(super) const SLOW_FLUSH: Duration = Duration::from_millis(1);
/// Time that each request adds to a commit besides the flush: a large batch is not a slow flush.
const REQUEST_COST: Duration = Duration::from_micros(10);
/// This many commits in a row have to be slow: a single one may only have waited for a processor.
pub(super) const SLOW_IN_A_ROW: u32 = 8;
/// Longest wait, also after a commit that took very long.
const BATCH_WAIT_MAX: Duration = Duration::from_millis(10);
/// How long a batch may continue after another session found the store lost.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);
/// How often in the longest wait in a queue it is checked who waited too long, and the time between two checks.
const CHECKS: u32 = 8;
const CHECK_INTERVAL_MIN: Duration = Duration::from_millis(5);
const CHECK_INTERVAL_MAX: Duration = Duration::from_millis(250);
/// How often a batch that the store rolled back is tried again.
pub(super) const RETRIES_MAX: usize = 3;

/// A request to a store worker.
pub(super) trait Request: Send + Sized + 'static {
    /// Whether a batch ends with a flush, which may be worth sharing with more requests.
    const FLUSHES: bool;

    /// What an answer may carry that the request does not, in bytes, before the first answer.
    const ANSWER_BYTES_GUESS: usize;

    /// Most requests in one batch.
    const BATCH_REQUESTS_MAX: usize = 1024;

    /// Bytes it adds to a batch.
    fn bytes(&self) -> usize;
    /// Whether the server asks by itself, and no client.
    fn is_own(&self) -> bool;
    /// Says how long it waited for its batch.
    fn set_queued(&mut self, waited: Duration);
    /// Answers it with a failure.
    fn fail(self, error: Error);
    /// The meters of its workers.
    fn meters(shared: &Shared) -> &WorkerMeters;
    /// Does a batch and answers every request in it. The error is the session's end.
    async fn run(session: &mut dyn Session, batch: Vec<Self>, shared: &Shared) -> Answer<Ran>;
}

/// A batch that was done.
pub(super) struct Ran {
    /// When its requests were answered; if some were refused and sent again one by one, when the last was.
    pub(super) answered: Instant,
    /// Bytes of the answers that the batch itself did not carry.
    pub(super) bytes: usize,
}

/// The queues of the workers, and their threads.
pub(super) type Spawned<R> = (Queues<R>, Vec<JoinHandle<()>>);

/// Starts so many workers, each on its own thread with its own runtime.
pub(super) fn spawn<R: Request>(name: &str, count: usize, shared: &Arc<Shared>) -> Result<Spawned<R>, Error> {
    let (queues, consumers) = Queues::new(count);
    let mut threads = Vec::new();
    for (index, queue) in consumers.into_iter().enumerate() {
        let (shared, last) = (Arc::clone(shared), LastBatch::before_any::<R>());
        let worker = StoreWorker { shared, queue, last };
        let name = format!("{name}-{index}");
        threads.push(start_thread(&name, move |runtime| runtime.block_on(worker.run()))?);
    }
    Ok((queues, threads))
}

struct StoreWorker<R> {
    shared: Arc<Shared>,
    queue: Consumer<R>,
    last: LastBatch,
}

/// The last batch, by which the next one is estimated.
#[derive(Clone, Copy)]
struct LastBatch {
    requests: usize,
    took: Duration,
    /// How many batches in a row, up to this one, had several requests and a slow flush.
    slow: u32,
    /// Bytes of its answers per request, or half of the last estimate if that is more: sizes come in any order.
    answer_bytes: usize,
}

impl LastBatch {
    fn before_any<R: Request>() -> LastBatch {
        LastBatch { requests: 0, took: Duration::ZERO, slow: 0, answer_bytes: R::ANSWER_BYTES_GUESS }
    }

    /// The next one: its time in the store, and the bytes of its answers.
    fn followed_by<R: Request>(self, requests: usize, took: Duration, answer_bytes: usize) -> LastBatch {
        let is_slow = R::FLUSHES && requests > 1 && took >= SLOW_FLUSH + REQUEST_COST * requests as u32;
        let slow = if is_slow { self.slow.saturating_add(1) } else { 0 };
        let answer_bytes = (answer_bytes / requests.max(1)).max(self.answer_bytes / 2);
        LastBatch { requests, took, slow, answer_bytes }
    }

    /// How long the next batch may wait for as many requests as this one had; `None` for not at all.
    fn batch_wait(&self) -> Option<Duration> {
        (self.slow >= SLOW_IN_A_ROW).then(|| (self.took / 4).min(BATCH_WAIT_MAX))
    }
}

/// Why a worker stopped serving.
enum Break {
    /// The store's status changed, or the session was lost.
    Status,
    /// Nothing can be queued any more.
    Closed,
}

impl<R: Request> StoreWorker<R> {
    async fn run(mut self) {
        self.until_closed().await;
        self.queue.end();
    }

    async fn until_closed(&mut self) {
        loop {
            // Bound first: a borrow of the watched value must not live across an await.
            let status = self.shared.status.borrow().clone();
            let claimed = *self.shared.claimed.borrow();
            let ended = match (status, claimed) {
                (Status::Stopped, _) => return,
                (Status::Up(epoch), _) | (_, Some(epoch)) => self.serve(epoch).await,
                (away, None) => self.idle(away, None).await,
            };
            if let Break::Closed = ended {
                return;
            }
        }
    }

    /// Until the status changes, or what is `claimed`: fails every request, but leaves all where they are while the store is being
    /// acquired.
    async fn idle(&mut self, away: Status, claimed: Option<u64>) -> Break {
        let error = match away.epoch() {
            Ok(_) => return Break::Status,
            Err(_) if away == Status::Starting => {
                Error::new(Kind::Unavailable, "the server ended before this request was sent")
            }
            Err(error) => error,
        };
        let (mut status, mut claims) = (self.shared.status.subscribe(), self.shared.claimed.subscribe());
        loop {
            if *claims.borrow_and_update() != claimed {
                return Break::Status;
            }
            // One may have been handed over since: its own worker refuses what waits there.
            self.queue.release();
            let is_closed = self.queue.is_closed();
            let is_refused = |queued: &Queued<R>| match away {
                _ if is_closed => true,
                Status::Starting => false,
                // What comes later may have been refused by a server that says by now that it hands over.
                Status::Standby { since, .. } => queued.since <= since + KNOWN_FOR,
                _ => true,
            };
            let refused = {
                // Requests that come when the store is back are not refused. The value decides, not the wake-up below: a client
                // may have seen the new status before this thread wakes up. So it cannot change before they are taken.
                let now = status.borrow_and_update();
                if *now != away {
                    return Break::Status;
                }
                self.queue.take_own(is_refused)
            };
            fail_all(refused, &error);
            if is_closed {
                return Break::Closed;
            }
            tokio::select! {
                _ = status.changed() => {}
                _ = claims.changed() => {}
                () = self.queue.notified() => {}
            }
        }
    }

    /// Serves requests on a session of `epoch`, once the store is up, until it is lost or the status changes.
    async fn serve(&mut self, epoch: u64) -> Break {
        let mut status = self.shared.status.subscribe();
        self.shared.sessions.fetch_add(1, Relaxed);
        let ended = self.serve_session(epoch, &mut status).await;
        self.shared.sessions.fetch_sub(1, Relaxed);
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                self.shared.lose(epoch, &error).await;
                // The store may not have been up yet. The owner thread may have gone first, at the very end.
                let _ = self.shared.claimed.subscribe().wait_for(|claimed| *claimed != Some(epoch)).await;
                Break::Status
            }
        };
        self.queue.in_flight(0);
        // Not before: what this session sent last may still be under way, and other workers serve as long as it is up.
        self.queue.release();
        ended
    }

    async fn serve_session(
        &mut self,
        epoch: u64,
        status: &mut tokio::sync::watch::Receiver<Status>,
    ) -> Result<Break, Error> {
        let mut session = confirmed::connect(&self.shared, epoch).await?;
        self.shared.opened.send_modify(|opened| *opened += 1);
        // Until all have theirs.
        loop {
            let away = status.borrow_and_update().clone();
            if matches!(away, Status::Up(_) | Status::Stopped) {
                break;
            }
            if let Break::Closed = self.idle(away, Some(epoch)).await {
                return Ok(Break::Closed);
            }
            if *self.shared.claimed.borrow() != Some(epoch) {
                return Ok(Break::Status);
            }
        }
        loop {
            // Also while requests never cease to wait: the next lease waits for this session.
            if *status.borrow_and_update() != Status::Up(epoch) {
                return Ok(Break::Status);
            }
            if self.queue.len() == 0 {
                if self.queue.is_over() {
                    return Ok(Break::Closed);
                }
                tokio::select! {
                    biased;
                    _ = status.changed() => return Ok(Break::Status),
                    () = self.queue.notified() => continue,
                }
            }
            // On a shared core the first request wakes this thread before its pending have queued, as the answers of
            // the last batch wake those who send the next: let them.
            std::thread::yield_now();
            self.wait_for_more().await;
            let batch = self.next_batch();
            // Again, after the last look into the queue: it may have come back because the store is lost, and what the first
            // worker sent of it may still be under way until the next lease.
            if *status.borrow_and_update() != Status::Up(epoch) {
                let error = Error::new(Kind::Unavailable, "the store was lost before this request was sent");
                batch.into_iter().for_each(|request| request.fail(error.clone()));
                return Ok(Break::Status);
            }
            if batch.is_empty() {
                self.queue.in_flight(0);
                self.last = LastBatch::before_any::<R>();
                continue;
            }
            let meters = R::meters(&self.shared);
            meters.batch_size.record(batch.len() as u64);
            let (requests, started) = (batch.len(), Instant::now());
            self.queue.in_flight(requests);
            self.hold_session();
            let done = tokio::select! {
                biased;
                done = R::run(session.as_mut(), batch, &self.shared) => done,
                () = given_up(status.clone(), epoch) => {
                    // The batch is dropped with the call, and its requests answered as unknown.
                    Err(Error::new(Kind::Unknown, "a batch was given up because the store is lost"))
                }
            };
            self.queue.in_flight(0);
            let took = started.elapsed();
            meters.duration.record_duration(took);
            meters.busy_nanos.add(took.as_nanos() as u64);
            let answered = done.as_ref().map_or(started + took, |ran| ran.answered);
            let in_store = answered.saturating_duration_since(started);
            meters.request_nanos.add(in_store.as_nanos() as u64 * requests as u64);
            let ran = done?;
            self.last = self.last.followed_by::<R>(requests, took, ran.bytes);
            self.share();
        }
    }

    /// Takes the session's time, where the lab asks for it. The thread sleeps, which is exact to some microseconds: nothing is
    /// in flight that the runtime would have to look after, and its own timer counts whole milliseconds.
    fn hold_session(&self) {
        if let Some(faults) = &self.shared.config.faults {
            faults::block(faults.time(Fault::StoreWorker));
        }
    }

    /// Waits until as many are here as the last batch had, but only where flushes are slow and have company.
    async fn wait_for_more(&mut self) {
        let Some(wait) = self.last.batch_wait() else { return };
        let deadline = tokio::time::Instant::now() + wait;
        while self.queue.len() < self.last.requests && !self.queue.is_closed() {
            if tokio::time::timeout_at(deadline, self.queue.notified()).await.is_err() {
                return;
            }
        }
    }

    /// Lets one worker serve all where flushes are slow, and each its own where they are not. Nothing is in flight now.
    fn share(&mut self) {
        if self.shared.config.batching == Batching::Off {
            return;
        }
        if self.last.batch_wait().is_some() {
            if self.queue.hand_over() {
                // It says nothing about the time when the queue comes back.
                self.last = LastBatch::before_any::<R>();
            }
        } else if self.last.slow == 0 {
            self.queue.release();
        }
    }

    /// The requests that go together now; those that have waited too long are refused here.
    fn next_batch(&mut self) -> Vec<R> {
        let (now, last, shared) = (Instant::now(), self.last, &self.shared);
        let most = match shared.config.batching {
            Batching::On => R::BATCH_REQUESTS_MAX,
            // What is not sent at once stays in the queue, where its length is seen.
            Batching::Off => 1,
        };
        let waited = |queued: &Queued<R>| now.saturating_duration_since(queued.since);
        let is_late = |queued: &Queued<R>| waited(queued) > shared.config.queue_wait_max;
        let (mut requests, mut bytes) = (0, 0);
        let fits = |queued: &Queued<R>| {
            if is_late(queued) {
                return true;
            }
            requests += 1;
            let is_full = requests > most || bytes >= BATCH_BYTES_MAX;
            bytes += queued.request.bytes() + last.answer_bytes;
            !is_full
        };
        let taken = self.queue.take(fits);
        let mut batch = Vec::with_capacity(taken.len());
        for queued in taken {
            let waited = waited(&queued);
            if is_late(&queued) {
                shed(queued.request, waited, shared);
                continue;
            }
            let mut request = queued.request;
            R::meters(shared).queued.record_duration(waited);
            request.set_queued(waited);
            batch.push(request);
        }
        batch
    }
}

fn fail_all<R: Request>(requests: impl IntoIterator<Item = Queued<R>>, error: &Error) {
    requests.into_iter().for_each(|queued| queued.request.fail(error.clone()));
}

/// Refuses a request that has waited too long.
fn shed<R: Request>(request: R, waited: Duration, shared: &Shared) {
    let meters = R::meters(shared);
    meters.queued.record_duration(waited);
    meters.shed.add(u64::from(!request.is_own()));
    request.fail(overloaded(Some(waited)));
}

/// Refuses what has waited too long, also while the workers are busy: what was not sent is never unknown.
pub(super) async fn refuse_late<R: Request>(queues: Queues<R>, shared: Arc<Shared>) {
    let most = shared.config.queue_wait_max;
    let pause = (most / CHECKS).clamp(CHECK_INTERVAL_MIN, CHECK_INTERVAL_MAX);
    loop {
        tokio::time::sleep(pause).await;
        for Queued { request, since, .. } in queues.late(most) {
            shed(request, since.elapsed(), &shared);
        }
    }
}

/// Ends when the store of `epoch` has been lost for a while.
async fn given_up(mut status: tokio::sync::watch::Receiver<Status>, epoch: u64) {
    // An error means that the server ends.
    let _ = status.wait_for(|status| *status != Status::Up(epoch)).await;
    tokio::time::sleep(GIVE_UP_AFTER).await;
}

#[cfg(test)]
mod tests {
    use super::super::{ReadRequest, WriteRequest};
    use super::*;

    /// What is waited after batches of so many writes that took so many microseconds.
    fn waited(batches: &[(usize, u64)]) -> Option<Duration> {
        let follow = |last: LastBatch, &(requests, micros): &(usize, u64)| {
            last.followed_by::<WriteRequest>(requests, Duration::from_micros(micros), 0)
        };
        batches.iter().fold(LastBatch::before_any::<WriteRequest>(), follow).batch_wait()
    }

    #[test]
    fn only_slow_flushes_with_company_are_waited_for() {
        assert_eq!(waited(&[]), None);
        assert_eq!(waited(&[(32, 2400); 7]), None);
        assert_eq!(waited(&[(32, 2400); 8]), Some(Duration::from_micros(600)));
        assert_eq!(waited(&[(32, 400_000); 8]), Some(BATCH_WAIT_MAX));
        // A lone client, for whom the flush is as slow.
        assert_eq!(waited(&[(1, 2400); 100]), None);
        assert_eq!(waited(&[[(32, 2400); 8].as_slice(), &[(1, 2400)]].concat()), None);
        // One that was fast: the others waited for something else than the disk.
        assert_eq!(waited(&[[(32, 2400); 8].as_slice(), &[(32, 700)]].concat()), None);
        // A large batch takes its time on any disk.
        assert_eq!(waited(&[(1000, 8000); 100]), None);
    }

    #[test]
    fn reads_are_never_waited_for() {
        let slow = |last: LastBatch| last.followed_by::<ReadRequest>(32, Duration::from_millis(5), 0);
        assert_eq!(
            (0..100).fold(LastBatch::before_any::<ReadRequest>(), |last, _| slow(last)).batch_wait(),
            None
        );
    }

    #[test]
    fn a_guess_at_answers_falls_slowly_and_rises_at_once() {
        let follow =
            |last: LastBatch, bytes: usize| last.followed_by::<ReadRequest>(10, Duration::ZERO, 10 * bytes);
        let first = LastBatch::before_any::<ReadRequest>();
        assert_eq!(first.answer_bytes, 16_384);
        assert_eq!(follow(first, 100).answer_bytes, 8192);
        assert_eq!(follow(follow(first, 100), 50_000).answer_bytes, 50_000);
        assert_eq!((0..20).fold(first, |last, _| follow(last, 100)).answer_bytes, 100);
    }
}
