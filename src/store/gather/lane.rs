//! A lane: a queue, a thread, a session, and one batch in flight.

use super::batch::{self, Settled};
use super::post::together;
use super::{Batching, LaneMeters, ReadRequest, Shared, Status, WriteRequest, overloaded};
use crate::kv::{Key, Row};
use crate::store::{Answer, Error, Kind, Session};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Most requests in one batch.
const BATCH_REQUESTS_MAX: usize = 1024;
/// A batch takes no further request once it carries this many bytes.
const BATCH_BYTES_MAX: usize = 1 << 20;
/// A commit this slow is worth waiting for company; below it, waiting costs more than it brings.
const SLOW_COMMIT: Duration = Duration::from_millis(1);
/// A commit that hung once says nothing about the next.
const COMPANY_WAIT_MAX: Duration = Duration::from_millis(10);
/// How long a batch may go on after the store was lost: another session was, and this one may not know yet.
const GIVE_UP_AFTER: Duration = Duration::from_secs(2);
/// How often a batch that the store rolled back is tried again.
const RETRIES_MAX: usize = 3;

/// What a lane carries.
pub(super) trait Request: Send + Sized + 'static {
    /// Bytes it adds to a batch.
    fn bytes(&self) -> usize;
    /// Notes how long it waited for its batch.
    fn waited(&mut self, queued: Duration);
    /// Answers it with a failure.
    fn fail(self, error: Error);
    /// Which lanes it belongs to.
    fn meters(shared: &Shared) -> &LaneMeters;
    /// Does a batch and answers every request in it; how many bytes that took, of answers that the batch itself does
    /// not carry. The error is the session's end.
    fn run<'a>(session: &'a mut dyn Session, batch: Vec<Self>, shared: &'a Shared) -> Answer<'a, usize>;
}

/// The sending end of a lane.
pub(super) struct Queue<R> {
    sender: mpsc::UnboundedSender<Queued<R>>,
    load: Arc<Load>,
}

/// What a lane has to do.
#[derive(Default)]
struct Load {
    /// Requests queued and not yet taken.
    waiting: AtomicUsize,
    /// Requests in the batch in flight.
    in_flight: AtomicUsize,
}

struct Queued<R> {
    request: R,
    since: Instant,
}

impl<R: Request> Queue<R> {
    pub(super) fn push(&self, shared: &Shared, request: R) {
        if self.load.waiting.load(Relaxed) >= shared.config.queue_requests {
            R::meters(shared).shed.add(1);
            return request.fail(overloaded(None));
        }
        self.load.waiting.fetch_add(1, Relaxed);
        if let Err(refused) = self.sender.send(Queued { request, since: Instant::now() }) {
            self.load.waiting.fetch_sub(1, Relaxed);
            refused.0.request.fail(Error::new(Kind::Unavailable, "the store's lane has ended"));
        }
    }
}

impl<R> Queue<R> {
    pub(super) fn len(&self) -> usize {
        self.load.waiting.load(Relaxed)
    }

    /// Requests not answered yet.
    pub(super) fn pending(&self) -> usize {
        self.len() + self.load.in_flight.load(Relaxed)
    }
}

/// The queues of the lanes, and their threads.
pub(super) type Spawned<R> = (Box<[Queue<R>]>, Vec<JoinHandle<()>>);

/// Starts `count` lanes, each on its own thread with its own runtime.
pub(super) fn spawn<R: Request>(name: &str, count: usize, shared: &Arc<Shared>) -> Result<Spawned<R>, Error> {
    let cannot = |error| Error::new(Kind::Config, format!("cannot start the thread {name}: {error}"));
    let mut queues = Vec::new();
    let mut threads = Vec::new();
    for index in 0..count.max(1) {
        let (sender, receiver) = mpsc::unbounded_channel();
        let load = Arc::<Load>::default();
        queues.push(Queue { sender, load: Arc::clone(&load) });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(cannot)?;
        let lane = Lane {
            shared: Arc::clone(shared),
            receiver,
            load,
            taken: VecDeque::new(),
            last: LastBatch::default(),
        };
        let thread = std::thread::Builder::new().name(format!("{name}-{index}"));
        threads.push(thread.spawn(move || runtime.block_on(lane.run())).map_err(cannot)?);
    }
    Ok((queues.into(), threads))
}

struct Lane<R> {
    shared: Arc<Shared>,
    receiver: mpsc::UnboundedReceiver<Queued<R>>,
    load: Arc<Load>,
    /// Received, but not yet in a batch.
    taken: VecDeque<Queued<R>>,
    last: LastBatch,
}

/// What the batch before was like: the best guess at the next one.
#[derive(Clone, Copy, Default)]
struct LastBatch {
    requests: usize,
    took: Duration,
    /// Bytes of its answer, per request.
    answer_bytes: usize,
}

/// Why a lane stopped serving.
enum Break {
    /// The store's status changed, or the session was lost.
    Status,
    /// Nobody can queue anything any more.
    Closed,
}

impl<R: Request> Lane<R> {
    async fn run(mut self) {
        loop {
            // Bound first: a borrow of the watched value must not live across an await.
            let status = self.shared.status.borrow().clone();
            let ended = match status {
                Status::Up(epoch) => self.serve(epoch).await,
                Status::Down(reason) => self.refuse(&reason).await,
                Status::Stopped => return,
            };
            if let Break::Closed = ended {
                return;
            }
        }
    }

    /// Fails every request until the status changes.
    async fn refuse(&mut self, reason: &str) -> Break {
        let mut status = self.shared.status.subscribe();
        let away = Status::Down(reason.to_owned());
        let error = Error::new(Kind::Unavailable, format!("the store is away: {reason}"));
        loop {
            // What comes when the store is back is not refused any more. The value says so, not the wake-up below: whoever
            // sent the request may have seen the new status before this thread is woken for it.
            if *status.borrow_and_update() != away {
                return Break::Status;
            }
            while let Some(queued) = self.taken.pop_front() {
                queued.request.fail(error.clone());
            }
            tokio::select! {
                _ = status.changed() => {}
                received = self.receiver.recv() => match received {
                    Some(queued) => self.take(queued),
                    None => return Break::Closed,
                },
            }
        }
    }

    /// Serves requests on a session of `epoch` until it is lost or the status changes.
    async fn serve(&mut self, epoch: u64) -> Break {
        let mut status = self.shared.status.subscribe();
        self.shared.sessions.fetch_add(1, Relaxed);
        let ended = self.serve_session(epoch, &mut status).await;
        self.shared.sessions.fetch_sub(1, Relaxed);
        match ended {
            Ok(ended) => ended,
            Err(error) => {
                // The keeper may have gone first, at the very end.
                let _ = self.shared.lost.send((epoch, error.to_string()));
                while *status.borrow_and_update() == Status::Up(epoch) && status.changed().await.is_ok() {}
                Break::Status
            }
        }
    }

    async fn serve_session(
        &mut self,
        epoch: u64,
        status: &mut tokio::sync::watch::Receiver<Status>,
    ) -> Result<Break, Error> {
        let mut session = self.shared.store.connect(epoch).await?;
        loop {
            // Also while requests never cease to wait: whoever claims the store anew waits for this session.
            if *status.borrow_and_update() != Status::Up(epoch) {
                return Ok(Break::Status);
            }
            if self.taken.is_empty() {
                tokio::select! {
                    biased;
                    _ = status.changed() => return Ok(Break::Status),
                    received = self.receiver.recv() => match received {
                        Some(queued) => self.take(queued),
                        None => return Ok(Break::Closed),
                    },
                }
                // On a shared core the first request wakes this thread before its neighbours have queued: let them.
                std::thread::yield_now();
            }
            self.gather().await;
            let batch = self.next_batch();
            if batch.is_empty() {
                self.last = LastBatch::default();
                continue;
            }
            let meters = R::meters(&self.shared);
            meters.batch_size.record(batch.len() as u64);
            let (requests, started) = (batch.len(), Instant::now());
            self.load.in_flight.store(requests, Relaxed);
            let done = tokio::select! {
                biased;
                done = R::run(session.as_mut(), batch, &self.shared) => done,
                () = given_up(status.clone(), epoch) => {
                    // The batch is dropped with the call, and its requests answered as unknown.
                    Err(Error::new(Kind::Unknown, "a batch was given up because the store is lost"))
                }
            };
            self.load.in_flight.store(0, Relaxed);
            let took = started.elapsed();
            meters.duration.record_duration(took);
            meters.busy_nanos.add(took.as_nanos() as u64);
            let answer_bytes = done?;
            self.last = LastBatch { requests, took, answer_bytes: answer_bytes / requests };
        }
    }

    /// Moves what has queued into `taken`; waits for company only where the last commit was slow and not lonely.
    async fn gather(&mut self) {
        // Without batches what is not sent at once stays in the queue, where its length is seen.
        while self.taken.len() < self.batch_requests_max() {
            match self.receiver.try_recv() {
                Ok(queued) => self.take(queued),
                Err(_) => break,
            }
        }
        if self.last.took < SLOW_COMMIT || self.last.requests < 2 {
            return;
        }
        let deadline = tokio::time::Instant::now() + (self.last.took / 4).min(COMPANY_WAIT_MAX);
        while self.taken.len() < self.last.requests {
            match tokio::time::timeout_at(deadline, self.receiver.recv()).await {
                Ok(Some(queued)) => self.take(queued),
                Ok(None) | Err(_) => break,
            }
        }
    }

    fn batch_requests_max(&self) -> usize {
        match self.shared.config.batching {
            Batching::Gathered => BATCH_REQUESTS_MAX,
            Batching::Off => 1,
        }
    }

    fn take(&mut self, queued: Queued<R>) {
        self.load.waiting.fetch_sub(1, Relaxed);
        self.taken.push_back(queued);
    }

    /// The requests that go together now; those that have waited too long are refused here.
    fn next_batch(&mut self) -> Vec<R> {
        let meters = R::meters(&self.shared);
        let now = Instant::now();
        let most = self.batch_requests_max();
        let mut batch = Vec::with_capacity(self.taken.len().min(most));
        let mut bytes = 0;
        while batch.len() < most && (bytes < BATCH_BYTES_MAX || batch.is_empty()) {
            let Some(Queued { mut request, since }) = self.taken.pop_front() else { break };
            let waited = now.saturating_duration_since(since);
            meters.queued.record_duration(waited);
            if waited > self.shared.config.queue_wait_max {
                meters.shed.add(1);
                request.fail(overloaded(Some(since)));
                continue;
            }
            request.waited(waited);
            bytes += request.bytes() + self.last.answer_bytes;
            batch.push(request);
        }
        batch
    }
}

/// Ends when the store of `epoch` has been lost for a while.
pub(super) async fn given_up(mut status: tokio::sync::watch::Receiver<Status>, epoch: u64) {
    // An error says that nobody is left to tell: the server ends.
    let _ = status.wait_for(|status| *status != Status::Up(epoch)).await;
    tokio::time::sleep(GIVE_UP_AFTER).await;
}

impl Request for ReadRequest {
    fn bytes(&self) -> usize {
        self.key.as_bytes().len()
    }

    fn waited(&mut self, queued: Duration) {
        self.reply.queued = queued;
    }

    fn fail(self, error: Error) {
        self.reply.give(Err(error));
    }

    fn meters(shared: &Shared) -> &LaneMeters {
        &shared.meters.read
    }

    fn run<'a>(session: &'a mut dyn Session, mut batch: Vec<Self>, _shared: &'a Shared) -> Answer<'a, usize> {
        Box::pin(async move {
            batch.sort_unstable_by(|a, b| a.key.cmp(&b.key));
            let mut keys: Vec<Key> = batch.iter().map(|request| request.key.clone()).collect();
            keys.dedup();
            match session.read(&keys).await {
                Ok(rows) => {
                    let bytes = rows.iter().flatten().map(Row::bytes).sum();
                    let mut found = keys.iter().zip(rows).peekable();
                    together(|| {
                        for request in batch {
                            while found.next_if(|(key, _)| **key < request.key).is_some() {}
                            let row = found.peek().and_then(|(_, row)| row.clone());
                            request.reply.give(Ok(row));
                        }
                    });
                    Ok(bytes)
                }
                Err(error) => {
                    together(|| batch.into_iter().for_each(|request| request.fail(error.clone())));
                    if error.kind().ends_session() { Err(error) } else { Ok(0) }
                }
            }
        })
    }
}

impl Request for WriteRequest {
    fn bytes(&self) -> usize {
        self.key.as_bytes().len() + self.row.as_ref().map_or(0, |row| row.value().len())
    }

    fn waited(&mut self, queued: Duration) {
        self.reply.queued = queued;
    }

    fn fail(self, error: Error) {
        self.reply.give(Err(error));
    }

    fn meters(shared: &Shared) -> &LaneMeters {
        &shared.meters.write
    }

    fn run<'a>(session: &'a mut dyn Session, batch: Vec<Self>, shared: &'a Shared) -> Answer<'a, usize> {
        Box::pin(async move {
            let groups = batch::group(batch);
            let mut failed = Vec::new();
            let mut outcome = commit(session, groups, shared, &mut failed).await;
            // One key's write was refused: the others must not suffer for it, so each goes again on its own.
            for group in failed {
                match &outcome {
                    Ok(()) => outcome = commit(session, vec![group], shared, &mut Vec::new()).await,
                    // The session went meanwhile, and these were not sent.
                    Err(lost) => group.fail(&Error::new(Kind::Unavailable, lost.to_string())),
                }
            }
            outcome.map(|()| 0)
        })
    }
}

/// Commits the groups, one per key, together and answers their requests.
///
/// If the store refuses a batch of several groups, they come back in `refused` unanswered.
async fn commit(
    session: &mut dyn Session,
    groups: Vec<batch::Group>,
    shared: &Shared,
    refused: &mut Vec<batch::Group>,
) -> Result<(), Error> {
    let settled = match settle(session, groups, shared).await {
        Ok(settled) => settled,
        Err(error) => return if error.kind().ends_session() { Err(error) } else { Ok(()) },
    };
    let writes = batch::writes(&settled);
    let mut tries = 0;
    let answer = loop {
        match session.write(&writes).await {
            Err(error) if error.kind() == Kind::Retry && tries < RETRIES_MAX => tries += 1,
            answer => break answer,
        }
    };
    match answer {
        Ok(found) => {
            together(|| batch::answer(settled, &found, shared.config.batching));
            Ok(())
        }
        Err(error) if error.kind() == Kind::Rejected && settled.len() > 1 => {
            refused.extend(settled.into_iter().map(Settled::undo));
            Ok(())
        }
        Err(error) => {
            together(|| settled.into_iter().for_each(|group| group.undo().fail(&error)));
            if error.kind().ends_session() { Err(error) } else { Ok(()) }
        }
    }
}

/// Decides the preconditions, reading the keys that have any, and gives every write its version.
async fn settle(
    session: &mut dyn Session,
    groups: Vec<batch::Group>,
    shared: &Shared,
) -> Result<Vec<Settled>, Error> {
    let conditional: Vec<Key> =
        groups.iter().filter(|group| group.is_conditional()).map(|group| group.key().clone()).collect();
    let rows = match session.read(&conditional).await {
        Ok(rows) => rows,
        Err(error) => {
            // Nothing was sent to be written.
            let error = Error::new(
                if error.kind() == Kind::Unknown { Kind::Unavailable } else { error.kind() },
                error.to_string(),
            );
            groups.into_iter().for_each(|group| group.fail(&error));
            return Err(error);
        }
    };
    let mut rows = rows.into_iter();
    Ok(groups
        .into_iter()
        .map(|group| {
            let current = group.is_conditional().then(|| rows.next().flatten().map(|row| row.version()));
            group.settle(current, || shared.next_version())
        })
        .collect())
}
