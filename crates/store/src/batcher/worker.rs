//! A store worker: a thread, a session and one batch in flight, of its own queue or, while flushes are slow, of all queues.

use super::events::Ticket;
use super::queue::{Consumer, Queued, Queues, Waiting};
use super::replies::answer_batch;
use super::{
    Batching, Intent, ReadRequest, Shared, Status, WorkerMeters, WriteRequest, overloaded, start_thread,
};
use super::{apart, batch};
use crate::{Answer, Error, EventBlock, Found, Idempotency, Kind, Session, events};
use kv::faults::{self, Fault};
use kv::{Key, Row};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Most requests in one batch.
const BATCH_REQUESTS_MAX: usize = 1024;
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

    /// Bytes it adds to a batch.
    fn bytes(&self) -> usize;
    /// Says how long it waited for its batch.
    fn set_queued(&mut self, waited: Duration);
    /// Answers it with a failure.
    fn fail(self, error: Error);
    /// The meters of its workers.
    fn meters(shared: &Shared) -> &WorkerMeters;
    /// Does a batch and answers every request in it. The error is the session's end.
    fn run<'a>(session: &'a mut dyn Session, batch: Vec<Self>, shared: &'a Shared) -> Answer<'a, Ran>;
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

/// Starts `count` workers, each on its own thread with its own runtime.
pub(super) fn spawn<R: Request>(name: &str, count: usize, shared: &Arc<Shared>) -> Result<Spawned<R>, Error> {
    let (queues, consumers) = Queues::new(count.max(1));
    let mut threads = Vec::new();
    for (index, queue) in consumers.into_iter().enumerate() {
        let (shared, last) = (Arc::clone(shared), LastBatch::before_any::<R>());
        let worker = StoreWorker { shared, queue, taken: VecDeque::new(), last };
        let name = format!("{name}-{index}");
        threads.push(start_thread(&name, move |runtime| runtime.block_on(worker.run()))?);
    }
    Ok((queues, threads))
}

struct StoreWorker<R> {
    shared: Arc<Shared>,
    queue: Consumer<R>,
    /// Taken from the queue, but not yet in a batch.
    taken: VecDeque<Queued<R>>,
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
            let ended = match status {
                Status::Up(epoch) => self.serve(epoch).await,
                away @ Status::Down(_) => self.refuse(away).await,
                Status::Stopped => return,
            };
            if let Break::Closed = ended {
                return;
            }
        }
    }

    /// Fails every request until the status changes.
    async fn refuse(&mut self, away: Status) -> Break {
        let Err(error) = away.epoch() else { return Break::Status };
        let mut status = self.shared.status.subscribe();
        loop {
            // Requests that come when the store is back are not refused. The value decides, not the wake-up below: a client may
            // have seen the new status before this thread wakes up.
            if *status.borrow_and_update() != away {
                return Break::Status;
            }
            let is_closed = self.queue.is_closed();
            self.queue.take_own(&mut self.taken);
            while let Some(queued) = self.taken.pop_front() {
                queued.request.fail(error.clone());
            }
            if is_closed {
                return Break::Closed;
            }
            tokio::select! {
                _ = status.changed() => {}
                () = self.queue.notified() => {}
            }
        }
    }

    /// Serves requests on a session of `epoch` until it is lost or the status changes.
    async fn serve(&mut self, epoch: u64) -> Break {
        let mut status = self.shared.status.subscribe();
        self.shared.sessions.fetch_add(1, Relaxed);
        let ended = self.serve_session(epoch, &mut status).await;
        self.shared.sessions.fetch_sub(1, Relaxed);
        let ended = match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The owner thread may have gone first, at the very end.
                let _ = self.shared.lost.send((epoch, error.to_string()));
                while *status.borrow_and_update() == Status::Up(epoch) && status.changed().await.is_ok() {}
                Break::Status
            }
        };
        // Never sent. The store may be back before this worker refuses anything, and some of it is of queues that go back now.
        let error = Error::new(Kind::Unavailable, "the store was lost before this request was sent");
        while let Some(queued) = self.taken.pop_front() {
            queued.request.fail(error.clone());
        }
        // Not before: what this session sent last may still be under way, and other workers serve as long as it is up.
        self.queue.release(&self.taken);
        ended
    }

    async fn serve_session(
        &mut self,
        epoch: u64,
        status: &mut tokio::sync::watch::Receiver<Status>,
    ) -> Result<Break, Error> {
        let mut session = self.shared.store.connect(epoch).await?;
        loop {
            // Also while requests never cease to wait: the next lease waits for this session.
            if *status.borrow_and_update() != Status::Up(epoch) {
                return Ok(Break::Status);
            }
            if self.taken.is_empty() {
                if self.queue.is_over() {
                    return Ok(Break::Closed);
                }
                if self.queue.is_empty() {
                    tokio::select! {
                        biased;
                        _ = status.changed() => return Ok(Break::Status),
                        () = self.queue.notified() => {}
                    }
                }
                // On a shared core the first request wakes this thread before its pending have queued, as the answers of
                // the last batch wake those who send the next: let them.
                std::thread::yield_now();
            }
            self.take();
            if self.taken.is_empty() {
                continue;
            }
            self.wait_for_more().await;
            // Again, after the last look into the queue: it may have come back because the store is lost, and what the first
            // worker sent of it may still be under way until the next lease.
            if *status.borrow_and_update() != Status::Up(epoch) {
                return Ok(Break::Status);
            }
            let batch = self.next_batch();
            if batch.is_empty() {
                self.last = LastBatch::before_any::<R>();
                continue;
            }
            let meters = R::meters(&self.shared);
            meters.batch_size.record(batch.len() as u64);
            let (requests, started) = (batch.len(), Instant::now());
            self.queue.in_flight(requests);
            let has_more = self.queue.lay_aside(&mut self.taken);
            self.hold_session();
            let done = tokio::select! {
                biased;
                done = R::run(session.as_mut(), batch, &self.shared) => done,
                () = given_up(status.clone(), epoch) => {
                    // The batch is dropped with the call, and its requests answered as unknown.
                    Err(Error::new(Kind::Unknown, "a batch was given up because the store is lost"))
                }
            };
            if has_more {
                self.queue.take_back(&mut self.taken);
            }
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

    /// Moves what has queued into `taken`.
    fn take(&mut self) {
        // Without batches what is not sent at once stays in the queue, where its length is seen.
        let most = self.batch_requests_max();
        self.queue.take(&mut self.taken, most);
    }

    /// Waits until as many are here as the last batch had, but only where flushes are slow and have company.
    async fn wait_for_more(&mut self) {
        let Some(wait) = self.last.batch_wait() else { return };
        let deadline = tokio::time::Instant::now() + wait;
        while self.taken.len() < self.last.requests && !self.queue.is_closed() {
            if tokio::time::timeout_at(deadline, self.queue.notified()).await.is_err() {
                return;
            }
            self.take();
        }
    }

    /// Lets one worker serve all where flushes are slow, and each its own where they are not. Nothing is in flight now.
    fn share(&mut self) {
        if self.shared.config.batching == Batching::Off {
            return;
        }
        if self.last.batch_wait().is_some() {
            if self.queue.hand_over(&mut self.taken) {
                // It says nothing about the time when the queue comes back.
                self.last = LastBatch::before_any::<R>();
            }
        } else if self.last.slow == 0 && self.taken.is_empty() {
            self.queue.release(&self.taken);
        }
    }

    fn batch_requests_max(&self) -> usize {
        match self.shared.config.batching {
            Batching::On => BATCH_REQUESTS_MAX,
            Batching::Off => 1,
        }
    }

    /// The requests that go together now; those that have waited too long are refused here.
    fn next_batch(&mut self) -> Vec<R> {
        let meters = R::meters(&self.shared);
        let now = Instant::now();
        let most = self.batch_requests_max();
        let mut batch = Vec::with_capacity(self.taken.len().min(most));
        let mut bytes = 0;
        while batch.len() < most && (bytes < BATCH_BYTES_MAX || batch.is_empty()) {
            let Some(Queued { mut request, since, .. }) = self.taken.pop_front() else { break };
            let waited = now.saturating_duration_since(since);
            if waited > self.shared.config.queue_wait_max {
                shed(request, waited, &self.shared);
                continue;
            }
            meters.queued.record_duration(waited);
            request.set_queued(waited);
            bytes += request.bytes() + self.last.answer_bytes;
            batch.push(request);
        }
        batch
    }
}

/// Refuses a request that has waited too long.
fn shed<R: Request>(request: R, waited: Duration, shared: &Shared) {
    let meters = R::meters(shared);
    meters.queued.record_duration(waited);
    meters.shed.add(1);
    request.fail(overloaded(Some(waited)));
}

/// Refuses what has waited too long, also while the workers are busy: what was not sent is never unknown.
pub(super) async fn refuse_late<R: Request>(queues: Waiting<R>, shared: Arc<Shared>) {
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
pub(super) async fn given_up(mut status: tokio::sync::watch::Receiver<Status>, epoch: u64) {
    // An error means that the server ends.
    let _ = status.wait_for(|status| *status != Status::Up(epoch)).await;
    tokio::time::sleep(GIVE_UP_AFTER).await;
}

impl Request for ReadRequest {
    const FLUSHES: bool = false;
    // 64 in the first batch; if values turn out to be small, each batch may be twice as large as the one before.
    const ANSWER_BYTES_GUESS: usize = BATCH_BYTES_MAX / 64;

    fn bytes(&self) -> usize {
        self.key.as_bytes().len()
    }

    fn set_queued(&mut self, waited: Duration) {
        self.reply.queued = waited;
    }

    fn fail(mut self, error: Error) {
        self.reply.give(Err(error));
    }

    fn meters(shared: &Shared) -> &WorkerMeters {
        &shared.meters.read
    }

    fn run<'a>(session: &'a mut dyn Session, mut batch: Vec<Self>, shared: &'a Shared) -> Answer<'a, Ran> {
        if shared.is_shared() {
            let read = apart::read(batch, shared);
            return Box::pin(async { Ok(Ran { bytes: read.await, answered: Instant::now() }) });
        }
        Box::pin(async move {
            batch.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            let mut distinct: Vec<Key> = batch.iter().map(|request| request.key.clone()).collect();
            distinct.dedup();
            let (mut batch, mut keys, mut bytes) = (batch.into_iter().peekable(), &distinct[..], 0);
            loop {
                let rows = match session.read(keys).await {
                    Ok(rows) => rows,
                    Err(error) => {
                        let answered = answer_batch(|| batch.for_each(|request| request.fail(error.clone())));
                        let ends = error.kind().ends_session();
                        return if ends { Err(error) } else { Ok(Ran { answered, bytes }) };
                    }
                };
                bytes += rows.iter().flatten().map(Row::bytes).sum::<usize>();
                let (read, unread) = keys.split_at(rows.len());
                let mut found = read.iter().zip(rows).peekable();
                let is_read = |request: &ReadRequest| unread.first().is_none_or(|next| request.key < *next);
                let answered = answer_batch(|| {
                    while let Some(mut request) = batch.next_if(is_read) {
                        while found.next_if(|(key, _)| **key < request.key).is_some() {}
                        let row = found.peek().and_then(|(_, row)| row.clone());
                        request.reply.give(Ok(row.filter(|row| !row.is_expired(&shared.clock))));
                    }
                });
                if unread.is_empty() {
                    return Ok(Ran { answered, bytes });
                }
                keys = unread;
            }
        })
    }
}

impl Request for WriteRequest {
    const FLUSHES: bool = true;
    const ANSWER_BYTES_GUESS: usize = 0;

    fn bytes(&self) -> usize {
        let value_bytes = if let Intent::Put(row) = &self.intent { row.value().len() } else { 0 };
        self.key.as_bytes().len() + value_bytes
    }

    fn set_queued(&mut self, waited: Duration) {
        self.reply.queued = waited;
    }

    fn fail(mut self, error: Error) {
        self.reply.give(Err(error));
    }

    fn meters(shared: &Shared) -> &WorkerMeters {
        &shared.meters.write
    }

    fn run<'a>(session: &'a mut dyn Session, batch: Vec<Self>, shared: &'a Shared) -> Answer<'a, Ran> {
        let groups = batch::group(batch);
        if shared.is_shared() {
            return Box::pin(async move {
                apart::write(groups, shared).await;
                Ok(Ran { answered: Instant::now(), bytes: 0 })
            });
        }
        Box::pin(async move {
            let mut refused = VecDeque::new();
            let mut outcome = commit(session, groups, shared, &mut refused).await;
            // One request was refused: the others must not suffer for it, so each key goes again on its own, and then each request.
            while let Some(group) = refused.pop_front() {
                match &outcome {
                    Ok(_) => outcome = commit(session, vec![group], shared, &mut refused).await,
                    // The session went meanwhile, and these were not sent.
                    Err(lost) => group.fail(&Error::new(Kind::Unavailable, lost.to_string())),
                }
            }
            outcome.map(|answered| Ran { answered, bytes: 0 })
        })
    }
}

/// Commits the groups, one per key, together and answers their requests; says when.
///
/// If the store refuses something and they can be divided, they go unanswered to the front of `refused`.
async fn commit(
    session: &mut dyn Session,
    mut groups: Vec<batch::Group>,
    shared: &Shared,
    refused: &mut VecDeque<batch::Group>,
) -> Result<Instant, Error> {
    // Until the answers: what an atomic batch writes is newer, in the cache too.
    let _no_atomic_batch = shared.atomic.read().await;
    let written = write(session, &mut groups, shared).await;
    let written = written.map(|(found, events)| {
        // Made before the answers take the groups, and published after them: who is told finds the row.
        let events = events.map(|(ticket, stored)| {
            let is_stored = stored.is_some();
            let gathered = || {
                let mut body = events::body(false);
                batch::record(&groups, Some(&found), &mut body);
                let block = ticket.block(shared.clock.now(), body);
                events::has_records(&block.body).then_some(block)
            };
            let block = stored.or_else(|| if ticket.gathers { gathered() } else { None });
            (ticket, block, is_stored)
        });
        (found, events)
    });
    let refusal = written.as_ref().err().filter(|error| error.kind() == Kind::Refused);
    if shared.refuses_writes.load(Relaxed) != refusal.is_some() {
        shared.refuses_writes.store(refusal.is_some(), Relaxed);
        refusal.into_iter().for_each(|error| shared.failed(error.to_string()));
    }
    let error = match written {
        Ok((found, events)) => {
            let answered = answer_batch(|| batch::answer(groups, &found, shared.config.batching));
            match events {
                Some((ticket, Some(block), is_stored)) => ticket.end_with(block, is_stored),
                Some((ticket, None, _)) => ticket.end_without(),
                None => {}
            }
            return Ok(answered);
        }
        Err(error) => error,
    };
    if matches!(error.kind(), Kind::Rejected | Kind::Unfit) {
        match batch::divide(groups) {
            Ok(parts) => {
                // In their order: they may be of one key.
                parts.into_iter().rev().for_each(|part| refused.push_front(part));
                return Ok(Instant::now());
            }
            Err(whole) => groups = whole,
        }
    }
    let answered = answer_batch(|| groups.into_iter().for_each(|group| group.fail(&error)));
    if error.kind().ends_session() { Err(error) } else { Ok(answered) }
}

/// What writes found; and their place among the events, with their block if the store keeps it.
type Sent<'s> = (Vec<Found>, Option<(Ticket<'s>, Option<EventBlock>)>);

/// Decides the preconditions, reading the keys that have any, gives every write its version, and sends what is to be written.
async fn write<'s>(
    session: &mut dyn Session,
    groups: &mut [batch::Group],
    shared: &'s Shared,
) -> Result<Sent<'s>, Error> {
    // What a row that has expired was replaced by has created it.
    let may_expire = shared.may_expire.load(Relaxed) && shared.config.batching == Batching::On;
    let keeps_events = shared.events.keeps_all();
    let is_read =
        |group: &&batch::Group| may_expire || group.is_conditional() || group.asks_if_present(keeps_events);
    let conditional: Vec<Key> = groups.iter().filter(is_read).map(|group| group.key().clone()).collect();
    // A clear between the look and the write would remove the row that decides.
    let _no_clear = if conditional.is_empty() {
        None
    } else {
        let no_clear = shared.conditions.read().await;
        // The clear that was waited for may have been given up, and happen yet.
        shared.status.borrow().epoch()?;
        Some(no_clear)
    };
    let mut tries = 0;
    loop {
        session.begin_decision();
        let mut current = Vec::with_capacity(conditional.len());
        while current.len() < conditional.len() {
            let rows =
                session.read(&conditional[current.len()..]).await.map_err(|error| match error.kind() {
                    // Nothing was sent to be written.
                    Kind::Unknown => Error::new(Kind::Unavailable, error.to_string()),
                    _ => error,
                })?;
            current.extend(rows);
        }
        let mut current = current.into_iter();
        for group in &mut *groups {
            let stored = is_read(&&*group).then(|| current.next().flatten());
            let repeat = |idempotency: &Idempotency| shared.events.repeat(&idempotency.id);
            group.decide(stored, &shared.clock, repeat, || shared.next_version());
        }
        if shared.config.batching == Batching::Off {
            // Writes have no order, and so no events.
            return Ok((session.write(&batch::writes(groups)).await?, None));
        }
        let ticket = shared.events.begin(|| shared.next_version());
        let is_stored = keeps_events || groups.iter().any(batch::Group::is_idempotent);
        let stored = is_stored.then(|| {
            let mut body = events::body(keeps_events);
            batch::record(groups, None, &mut body);
            ticket.block(shared.clock.now(), body)
        });
        let stored = stored.filter(|block| events::has_records(&block.body));
        match session.write_with(&batch::writes(groups), stored.as_ref()).await {
            Ok(found) => return Ok((found, Some((ticket, stored)))),
            // It may happen, also later.
            Err(error) if error.kind() == Kind::Unknown => return Err(error),
            Err(error) => {
                ticket.end_without();
                if error.kind() != Kind::Retry || tries == RETRIES_MAX {
                    return Err(error);
                }
                tries += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
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
