//! One connection of the plain interface: requests in, answers out.
//!
//! Requests that arrived together are answered together: one read, one write. A hit of the cache is answered without
//! waiting for anything.

use super::access::Access;
use super::change::Change;
use super::data::DataWriter;
use super::error::Failure;
use super::faults::FaultGuard;
use super::reply::{
    Answer, NDJSON, Request, Timing, mark, write_failure, write_made, write_page, write_row_head,
};
use super::routes::{Action, Operation, route};
use super::timeouts::End;
use super::wire::{OUTPUT_BYTES_MAX, Stream, UNUSED_BODY_BYTES_MAX, Wire};
use super::{PlainState, Shared, Worker, batch, idempotency, lab};
use crate::tiered::{Made, Read, Served, WriteError, WriteTerms};
use bytes::Buf;
use http1::request;
use http1::{Framing, Limits, Slots};
use kv::{KEY_BYTES_MAX, Key};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Up to this a cached value is copied under the cache's lock, which costs less than to share its row: some 50 ns.
const LOCKED_BYTES_MAX: usize = 2 << 10;

pub(super) struct Connection<S: Stream> {
    pub(super) wire: Wire<S>,
    pub(super) state: Arc<PlainState>,
    pub(super) access: Access,
    /// Percent-decoded keys.
    scratch: Vec<u8>,
    /// Of the next request, or of the one that is being handled, once its faults are injected.
    faults: Option<Box<FaultGuard>>,
}

/// What remains to be done after the head was parsed.
enum Task {
    /// The head is not complete.
    Incomplete,
    /// Its faults have to be injected first; the head stays in the input.
    InjectFaults,
    /// It is answered already; whether the connection goes on.
    Answered(bool),
    /// A cached row has to be sent after the lock of the cache was released.
    Send(Request, Answer, Option<Timing>),
    /// The store has to be asked, or a body read.
    Perform(Request, Action<Key>),
    Refused(Request, Failure),
}

impl<S: Stream> Connection<S> {
    pub(super) fn new(stream: S, worker: Rc<Worker>, state: Arc<PlainState>) -> Connection<S> {
        let idle = worker.shared.options.idle_timeout;
        let wire = Wire::new(stream, worker, idle, write_failure);
        Connection { wire, state, access: Access::default(), scratch: Vec::new(), faults: None }
    }

    pub(super) async fn run(mut self) {
        let ended = self.serve().await;
        self.wire.end(ended).await;
    }

    async fn serve(&mut self) -> Result<(), End> {
        loop {
            let keep_alive = match self.next_task() {
                Task::Incomplete => {
                    if self.scratch.capacity() > KEY_BYTES_MAX {
                        self.scratch = Vec::new();
                    }
                    self.wire.fill_head().await?;
                    continue;
                }
                Task::InjectFaults => {
                    // What is answered so far need not wait for it.
                    self.wire.flush().await?;
                    // On the heap, so that connections without faults are not larger.
                    self.faults = Some(Box::new(Box::pin(self.wire.worker.inject_faults()).await));
                    continue;
                }
                Task::Answered(keep_alive) => keep_alive,
                Task::Send(request, answer, timing) => {
                    let keep_alive = self.send(&request, &answer, timing.as_ref()).await?;
                    self.wire.arrived = Instant::now();
                    keep_alive
                }
                Task::Perform(request, action) => {
                    let keep_alive = self.perform(request, action).await?;
                    // Requests that arrived with it could not begin earlier.
                    self.wire.arrived = Instant::now();
                    keep_alive
                }
                Task::Refused(request, failure) => self.wire.refuse(&request, failure).await?,
            };
            self.faults = None;
            if !keep_alive {
                return self.wire.close().await;
            }
            if self.wire.output.len() >= OUTPUT_BYTES_MAX {
                self.wire.flush().await?;
            }
        }
    }

    /// Parses the next head and answers it at once where that is possible.
    fn next_task(&mut self) -> Task {
        let mut slots = Slots::default();
        let Shared { options, .. } = &*self.wire.worker.shared;
        let head = match request::parse(&self.wire.input, &Limits::USUAL, &mut slots) {
            Ok(Some(head)) => head,
            Ok(None) => return Task::Incomplete,
            Err(reject) => {
                let request = Request::unparsed(&self.wire.input, self.wire.arrived);
                return Task::Refused(request, reject.into());
            }
        };
        let mut request = Request::of(&head, self.wire.arrived);
        request.keep_alive &= !self.wire.worker.is_draining();
        let head_bytes = head.bytes;
        let before = self.wire.bytes();
        // Now, so that nothing is moved under the cache's lock.
        self.wire.output.reserve(2 * LOCKED_BYTES_MAX);
        let is_lab = options.faults.is_some();
        let admitted = self.state.hosts.as_ref().map_or(Ok(()), |hosts| hosts.admit(&head));
        let mut routed = admitted.and_then(|()| match is_lab.then(|| lab::route(&head)).flatten() {
            Some(found) => found.map(Action::Lab),
            None => route(&head, &mut self.scratch),
        });
        // Before its token is looked at, which counts each time.
        if is_lab && routed.as_ref().is_ok_and(Action::is_work) {
            match &self.faults {
                None if !self.wire.worker.computes() => return Task::InjectFaults,
                None => {}
                Some(guard) => {
                    if let Some(failure) = &guard.failure {
                        routed = Err(failure.clone());
                    }
                }
            }
        }
        if self.state.is_restricted {
            self.access.admit(&self.state, &head, self.wire.arrived, &mut request.rate, &mut routed);
        }
        if let Ok(Action::Data { key, .. }) = &routed {
            self.wire.worker.metrics.prefixes.count(key);
        }
        // A cached row answers a request without a body on the spot.
        if let Ok(Action::Data { key, operation: Operation::Get(condition), timing }) = &routed
            && request.framing == Framing::Length(0)
            && condition.wait.is_none()
            && let Some((hit, shard)) = self.wire.worker.shared.tiers.cached(key, |row| {
                // Under the cache's lock. What takes longer is done outside, with a shared row.
                if row.value().len() > LOCKED_BYTES_MAX
                    || *timing
                    || options.timing
                    || condition.range.is_some()
                    || !condition.admits(row.version())
                {
                    return Err(row.clone());
                }
                let status = if condition.is_known(row.version()) { 304 } else { 200 };
                write_row_head(&mut self.wire.output, &request, row, status, None, Served::Hit, None);
                if status == 200 && !request.is_head() {
                    self.wire.output.extend_from_slice(row.value());
                }
                Ok(status)
            })
        {
            self.wire.worker.metrics.hits[shard].add(1);
            match hit {
                Err(row) => {
                    let timing = (*timing || options.timing).then(|| {
                        [("cache", Some(request.started.elapsed())), ("queue", None), ("store", None)]
                    });
                    let answer = Answer::Row { row, condition: condition.clone(), served: Served::Hit };
                    request.entry = self.wire.worker.entry(&head, before);
                    self.wire.input.advance(head_bytes);
                    return Task::Send(request, answer, timing);
                }
                Ok(status) => {
                    let worker = &self.wire.worker;
                    worker.metrics.counted(request.method, status);
                    let sampled = worker.recorder.as_ref().filter(|recorder| recorder.samples());
                    request.entry = sampled.map(|recorder| recorder.entry(&head, true, before));
                    self.wire.input.advance(head_bytes);
                    if request.entry.is_some() {
                        self.wire.log(&request, status, Some(Served::Hit), None);
                    }
                    self.wire.answered_at_once += 1;
                    return Task::Answered(request.keep_alive);
                }
            }
        }
        request.entry = self.wire.worker.entry(&head, before);
        let task = match routed {
            Ok(action) => Task::Perform(request, action.owned()),
            Err(failure) => Task::Refused(request, failure),
        };
        self.wire.input.advance(head_bytes);
        task
    }

    /// Performs what may wait; whether the connection goes on. A drain that began meanwhile ends it with this answer.
    async fn perform(&mut self, mut request: Request, action: Action<Key>) -> Result<bool, End> {
        let worker = Rc::clone(&self.wire.worker);
        let (tiers, options) = (&worker.shared.tiers, &worker.shared.options);
        // Only PUT, batch and preload use a body. Others may have one (RFC 9110, 9.3.1), which is read and dropped.
        let is_batch = matches!(action, Action::Batch { .. });
        let is_put = is_batch
            || matches!(
                action,
                Action::Data { operation: Operation::Write(Change::Put { .. }, ..), .. }
                    | Action::Lab(lab::Action::Preload { .. })
            );
        let limit = match () {
            () if is_batch => batch::BODY_BYTES_MAX,
            () if is_put => options.value_bytes,
            () => UNUSED_BODY_BYTES_MAX,
        };
        // Until the answer: also while the value waits for the store.
        let mut reservation = worker.shared.budget.reservation();
        let body = match self.wire.read_body(&request, limit, is_put, &mut reservation).await {
            Ok(body) => body,
            Err(error) => return self.wire.refuse(&request, error.failure()?.closing()).await,
        };
        if let Err(refused) = self.access.still_permits_action(&self.state, &action) {
            return Ok(self.wire.answer_failure(&request, &request.not_done(refused)));
        }
        if !matches!(action, Action::Page(_)) {
            // Earlier answers need not wait for the store.
            self.wire.flush_and_shrink().await?;
        }
        let (is_get, is_timed) = match &action {
            Action::Data { operation, timing, .. } => {
                (matches!(operation, Operation::Get(_)), *timing || options.timing)
            }
            _ => (false, false),
        };
        // A wait for a change moves the start.
        let (asked, mut queued) = (request.started.elapsed(), Duration::ZERO);
        let cache = is_get.then_some(asked);
        let answer = match action {
            Action::Data { key, operation: Operation::Get(condition), .. } => {
                let read = match condition.wait {
                    None => worker.get(&key).await,
                    Some(wait) => {
                        let started = &mut request.started;
                        let changed = Box::pin(self.get_changed(&key, &condition, wait, started)).await;
                        changed.map_or_else(|error| error.failure().map(Err), |read| Ok(Ok(read)))?
                    }
                };
                match read {
                    Ok(Read { row: Some(row), served, queued: waited }) => {
                        queued = waited;
                        Ok(Answer::Row { row, condition, served })
                    }
                    Ok(Read { served, .. }) => Err(Failure::absent().marked(mark(served))),
                    Err(failure) => Err(failure),
                }
            }
            Action::Data { key, operation: Operation::Write(change, condition, idempotency_key), .. } => {
                let change = change.with_body(body);
                let is_put = matches!(change, Change::Put { .. });
                let is_touch = matches!(change, Change::Touch(_));
                let id = |given: Box<[u8]>| idempotency::of(&given, key.as_bytes(), &change, &condition);
                let idempotency = idempotency_key.map(id);
                match worker.write(&key, change, WriteTerms { condition, idempotency }).await {
                    Ok(Made { queued: waited, version, existed }) => {
                        queued = waited;
                        let status = if is_put && !existed { 201 } else { 204 };
                        Ok(Answer::Made { status, version: (is_put || is_touch).then_some(version) })
                    }
                    Err(WriteError::ConditionFailed(None)) if is_touch => {
                        Err(Failure::absent().not_applied())
                    }
                    Err(error) => Err(Failure::of_write(error)),
                }
            }
            // On the heap, as a batch and a watch, so that connections without them are not larger.
            Action::List(query) => {
                let out = DataWriter::new(&mut self.wire, &mut request, query.content_type());
                let performed = Box::pin(query.perform(tiers, &mut reservation, out)).await;
                self.of_data(&request, performed)?
            }
            Action::Watch(query) => return Box::pin(self.watch(&request, *query)).await,
            Action::Batch { is_atomic, idempotency_key } => {
                let out = DataWriter::new(&mut self.wire, &mut request, NDJSON);
                let performed = batch::perform(
                    &worker,
                    |verb, key| self.access.still_permits(&self.state, verb, key),
                    is_atomic,
                    idempotency_key.as_deref(),
                    &body,
                    out,
                );
                let performed = Box::pin(performed).await;
                self.of_data(&request, performed)?
            }
            Action::Lab(action) => lab::perform(&worker.shared, action, body).await,
            Action::Page(page) => Ok((page.show)(&worker)),
        };
        request.keep_alive &= !worker.is_draining();
        let timing = is_timed.then(|| {
            let store = request.started.elapsed().saturating_sub(asked + queued);
            [("cache", cache), ("queue", Some(queued)), ("store", Some(store))]
        });
        match answer {
            Ok(answer) => self.send(&request, &answer, timing.as_ref()).await,
            Err(failure) => Ok(self.wire.answer_failure(&request, &failure)),
        }
    }

    /// Answers; whether the connection goes on.
    async fn send(
        &mut self,
        request: &Request,
        answer: &Answer,
        timing: Option<&Timing>,
    ) -> Result<bool, End> {
        let output = &mut self.wire.output;
        let mut sent = Ok(());
        let status = match answer {
            Answer::Row { row, condition, served } if !condition.admits(row.version()) => {
                let failure = Failure::other_version(row.version()).marked(mark(*served));
                return Ok(self.wire.answer_failure(request, &failure));
            }
            Answer::Row { row, condition, served } => {
                let length = row.value().len();
                let Ok((status, part)) = condition.choose(row.version(), length) else {
                    let what = format!("the value has {length} bytes; ask for a range in it");
                    let failure = Failure::new(416, "bad_range", what);
                    let failure =
                        failure.with("Content-Range", format!("bytes */{length}")).marked(mark(*served));
                    return Ok(self.wire.answer_failure(request, &failure));
                };
                let head_at = output.len();
                write_row_head(output, request, row, status, part.as_ref(), *served, timing);
                if status != 304 && !request.is_head() {
                    let value = &row.value()[part.unwrap_or(0..length)];
                    match self.wire.push_value(head_at, value, length).await {
                        Ok(pushed) => sent = pushed,
                        Err(full) => return Ok(self.wire.answer_failure(request, &full.into())),
                    }
                }
                status
            }
            Answer::Data => 200,
            Answer::Made { status, version } => {
                write_made(output, request, *status, *version, timing);
                *status
            }
            Answer::Page { status, content_type, text } => {
                write_page(output, request, *status, content_type, text);
                *status
            }
        };
        let served = match answer {
            Answer::Row { served, .. } => Some(*served),
            Answer::Data | Answer::Made { .. } | Answer::Page { .. } => None,
        };
        // Also if the client has left meanwhile.
        self.wire.answered(request, status, served, None);
        sent.map(|()| request.keep_alive)
    }

    /// The answer to a request whose rows were sent if it was `performed`. One that was begun is counted and logged also if the client has
    /// left meanwhile: what it asked for may have been done.
    fn of_data(&self, request: &Request, performed: Result<(), End>) -> Result<Result<Answer, Failure>, End> {
        let Err(error) = performed else { return Ok(Ok(Answer::Data)) };
        error.failure().map(Err).inspect_err(|_| self.wire.answered(request, 200, None, None))
    }
}
