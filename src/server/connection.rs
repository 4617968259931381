//! One connection: bytes in, requests, answers, bytes out.
//!
//! Requests that arrived together are answered together: one read, one write. A hit of the cache is answered without
//! waiting for anything. Time-outs are the connection's, not a timer for every request.

use super::error::{Extra, Failure};
use super::reply::{
    Request, Timing, cache_status, start, write_failure, write_made, write_row, write_row_head,
};
use super::routes::{Action, Unless, route};
use super::{Worker, metrics};
use crate::http1::request::{self, Method};
use crate::http1::{Decoder, Framing, Slots, response};
use crate::kv::{Key, Precondition, Row};
use crate::tiered::{Made, Read, Served};
use bytes::{Buf, BytesMut};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Sleep;

/// Read at once, if as much is there.
const READ_BYTES: usize = 16 << 10;
/// Above this a value is sent from where it lies instead of being copied behind its head.
const COPY_BYTES_MAX: usize = 32 << 10;
/// A body that nobody has use for is read up to this, so that the connection can go on.
const UNUSED_BODY_BYTES_MAX: usize = 64 << 10;
/// Answers to pipelined requests are sent when they amount to this.
const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// Handed to the socket at once.
const SEND_BYTES: usize = 64 << 10;
/// After a last answer, what the peer still sends is read for so long, so that it can read the answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 16 << 20;

pub(super) struct Connection<S> {
    stream: S,
    worker: Rc<Worker>,
    input: BytesMut,
    output: Vec<u8>,
    /// Percent-decoded keys.
    scratch: Vec<u8>,
    /// One timer for the life of the connection. It is set anew only when it fires too early.
    timer: Pin<Box<Sleep>>,
    draining: tokio::sync::watch::Receiver<bool>,
}

/// What the parsed head leaves to be done.
enum Task {
    /// The head is not complete.
    Incomplete,
    /// It is answered already.
    Answered { keep_alive: bool },
    /// The store has to be asked, or a body read.
    Work(Request, Work),
    /// The request is refused.
    Refused(Request, Failure),
}

enum Work {
    Get { key: Key, unless: Unless, timing: bool },
    Put { key: Key, content_type: String, condition: Precondition, timing: bool },
    Delete { key: Key, condition: Precondition, timing: bool },
    Page { status: u16, content_type: &'static str, body: String },
}

/// Why a connection ends before its peer wants to.
enum End {
    /// The peer left, or the socket broke.
    Gone,
    /// The peer ended in the middle of a request.
    Cut,
    /// The peer is too slow.
    Slow,
    /// The server drains and nothing is under way.
    Draining,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(super) fn new(stream: S, worker: Rc<Worker>) -> Connection<S> {
        let draining = worker.shared.draining.subscribe();
        let timer = Box::pin(tokio::time::sleep(worker.shared.options.patience.idle));
        Connection {
            stream,
            worker,
            input: BytesMut::new(),
            output: Vec::new(),
            scratch: Vec::new(),
            timer,
            draining,
        }
    }

    pub(super) async fn run(mut self) {
        let failure = match self.serve().await {
            Err(End::Slow) => Failure::new(408, "too_slow", "the request did not arrive in time"),
            // It may have ended only its own direction, and still read.
            Err(End::Cut) => {
                Failure::new(400, "incomplete", "the connection ended in the middle of a request")
            }
            // There is nobody to tell.
            Ok(()) | Err(End::Gone | End::Draining) => return,
        };
        self.worker.metrics.answered(None, failure.status, Duration::ZERO);
        write_failure(&mut self.output, &failure.not_applied(), Some("close"), false);
        if self.flush().await.is_ok() {
            self.linger().await;
        }
    }

    async fn serve(&mut self) -> Result<(), End> {
        loop {
            let keep_alive = match self.next_task() {
                Task::Incomplete => {
                    self.flush().await?;
                    self.fill_head().await?;
                    continue;
                }
                Task::Answered { keep_alive } => keep_alive,
                Task::Work(request, work) => self.work(request, work).await?,
                Task::Refused(request, failure) => self.refuse(&request, &failure).await?,
            };
            if !keep_alive {
                self.flush().await?;
                self.linger().await;
                return Ok(());
            }
            if self.output.len() >= OUTPUT_BYTES_MAX {
                self.flush().await?;
            }
        }
    }

    /// Parses the next head and answers it at once where that is possible.
    fn next_task(&mut self) -> Task {
        if self.input.is_empty() {
            return Task::Incomplete;
        }
        let mut slots = Slots::default();
        let options = &self.worker.shared.options;
        let head = match request::parse(&self.input, &options.limits, &mut slots) {
            Ok(Some(head)) => head,
            Ok(None) => return Task::Incomplete,
            Err(reject) => {
                let request = Request {
                    method: None,
                    framing: Framing::Length(0),
                    keep_alive: false,
                    is_http10: false,
                    expects_continue: false,
                    started: Instant::now(),
                };
                return Task::Refused(request, reject.into());
            }
        };
        let request = Request {
            method: Some(head.method),
            framing: head.framing,
            keep_alive: head.keep_alive && !self.worker.is_draining(),
            is_http10: head.is_http10,
            expects_continue: head.expect_continue,
            started: Instant::now(),
        };
        let head_bytes = head.bytes;
        let routed = route(&head, &mut self.scratch);
        // A cached row answers a request without a body on the spot.
        if let Ok(Action::Get { key, unless, timing }) = &routed
            && request.framing == Framing::Length(0)
            && let Some((row, shard)) = self.worker.shared.tiers.cached(key)
            && row.value().len() <= COPY_BYTES_MAX
        {
            self.worker.metrics.hits[shard].add(1);
            let timing = (*timing || options.timing)
                .then(|| Timing { cache: Some(request.started.elapsed()), beyond: None });
            let method = head.method;
            let status = write_row(&mut self.output, &request, &row, unless, Served::Hit, timing.as_ref());
            self.worker.metrics.answered(Some(method), status, request.started.elapsed());
            self.input.advance(head_bytes);
            return Task::Answered { keep_alive: request.keep_alive };
        }
        let task = match routed.map(|action| plan(&self.worker, action)) {
            Ok(work) => Task::Work(request, work),
            Err(failure) => Task::Refused(request, failure),
        };
        self.input.advance(head_bytes);
        task
    }

    /// Does what takes waiting; whether the connection goes on. A drain that began meanwhile ends it with this answer.
    async fn work(&mut self, mut request: Request, work: Work) -> Result<bool, End> {
        // Only a PUT has use for a body; others may have one (RFC 9110, 9.3.1), which is read and dropped.
        let limit = match &work {
            Work::Put { .. } => self.worker.shared.options.value_bytes,
            _ => UNUSED_BODY_BYTES_MAX,
        };
        let body = match self.read_body(&request, limit).await? {
            Ok(body) => body,
            Err(failure) => return self.refuse(&request, &failure.closing()).await,
        };
        let worker = Rc::clone(&self.worker);
        let tiers = &worker.shared.tiers;
        let always = worker.shared.options.timing;
        let looked_up = matches!(work, Work::Get { .. }).then(|| request.started.elapsed());
        let asked_at = Instant::now();
        let timed = |asked: bool, queued: Duration| {
            let store = asked_at.elapsed().saturating_sub(queued);
            (asked || always).then_some(Timing { cache: looked_up, beyond: Some((queued, store)) })
        };
        let done = match work {
            Work::Get { key, unless, timing } => {
                // What is answered so far need not wait for the store.
                self.flush().await?;
                let got = tiers.get(&key).await;
                request.keep_alive &= !worker.is_draining();
                match got {
                    Ok(Read { row: Some(row), served, queued }) => {
                        if served == Served::Hit {
                            worker.metrics.hits[tiers.shard_of(key.as_bytes())].add(1);
                        }
                        let timing = timed(timing, queued);
                        Ok(self.send_row(&request, &row, &unless, served, timing.as_ref()).await?)
                    }
                    Ok(Read { row: None, served: served @ Served::Replica, .. }) => {
                        Err(Failure::absent().with(Extra::CacheStatus(cache_status(served))))
                    }
                    Ok(Read { row: None, .. }) => Err(Failure::absent()),
                    Err(error) => Err(Failure::of_read(&error)),
                }
            }
            Work::Put { key, content_type, condition, timing } => {
                self.flush().await?;
                let put = tiers.put(&key, &content_type, body, condition).await;
                request.keep_alive &= !worker.is_draining();
                put.map(|Made { version, existed, queued }| {
                    let status = if existed { 204 } else { 201 };
                    let timing = timed(timing, queued);
                    write_made(&mut self.output, &request, status, Some(version.0), timing.as_ref());
                    status
                })
                .map_err(Failure::of_write)
            }
            Work::Delete { key, condition, timing } => {
                self.flush().await?;
                let deleted = tiers.delete(&key, condition).await;
                request.keep_alive &= !worker.is_draining();
                deleted
                    .map(|Made { queued, .. }| {
                        let timing = timed(timing, queued);
                        write_made(&mut self.output, &request, 204, None, timing.as_ref());
                        204
                    })
                    .map_err(Failure::of_write)
            }
            Work::Page { status, content_type, body } => {
                let writer = start(&mut self.output, status, request.persistence())
                    .field("Content-Type", content_type.as_bytes())
                    .field("Cache-Control", b"no-store");
                writer.end_with_length(body.len() as u64);
                if request.method != Some(Method::Head) {
                    self.output.extend_from_slice(body.as_bytes());
                }
                Ok(status)
            }
        };
        match done {
            Ok(status) => {
                self.worker.metrics.answered(request.method, status, request.started.elapsed());
                Ok(request.keep_alive)
            }
            Err(failure) => Ok(self.answer_failure(&request, &failure)),
        }
    }

    /// Answers a refused request; whether the connection goes on.
    async fn refuse(&mut self, request: &Request, failure: &Failure) -> Result<bool, End> {
        let mut failure = failure.clone();
        if !failure.closes {
            // The body has to go before the next head can be read. One that is announced, not sent, or large, is not
            // worth waiting for.
            let is_small =
                matches!(request.framing, Framing::Length(bytes) if bytes <= UNUSED_BODY_BYTES_MAX as u64);
            failure.closes = match request.framing {
                Framing::Length(0) => false,
                _ if is_small && !request.expects_continue => {
                    self.read_body(request, UNUSED_BODY_BYTES_MAX).await?.is_err()
                }
                _ => true,
            };
        }
        Ok(self.answer_failure(request, &failure))
    }

    fn answer_failure(&mut self, request: &Request, failure: &Failure) -> bool {
        let keep_alive = request.keep_alive && !failure.closes;
        let persistence = if keep_alive { request.persistence() } else { Some("close") };
        write_failure(&mut self.output, failure, persistence, request.method == Some(Method::Head));
        self.worker.metrics.answered(request.method, failure.status, request.started.elapsed());
        keep_alive
    }

    /// Reads the request's body, at most `limit` bytes of it.
    async fn read_body(&mut self, request: &Request, limit: usize) -> Result<Result<Vec<u8>, Failure>, End> {
        let mut decoder = match Decoder::new(request.framing, limit as u64) {
            Ok(decoder) => decoder,
            Err(reject) => return Ok(Err(reject.into())),
        };
        let mut body = Vec::new();
        if let Framing::Length(bytes) = request.framing {
            // Bounded by `limit`, and exact: no growing, no copying.
            body.reserve_exact(bytes as usize);
        }
        if request.expects_continue && !decoder.is_done() && self.input.is_empty() {
            response::Writer::new(&mut self.output, 100).end();
            self.flush().await?;
        }
        let patience = self.worker.shared.options.patience;
        let since = Instant::now();
        while !decoder.is_done() {
            let step = match decoder.decode(&self.input) {
                Ok(step) => step,
                Err(reject) => return Ok(Err(reject.into())),
            };
            body.extend_from_slice(&self.input[step.data.clone()]);
            self.input.advance(step.consumed);
            if step.consumed == 0 {
                // The peer may wait for the answers before this one until it sends the rest.
                self.flush().await?;
                let earned = Duration::from_secs(body.len() as u64 / patience.bytes_per_sec.max(1));
                // What came quickly buys no long silence.
                let until = (since + patience.head + earned).min(Instant::now() + patience.head);
                self.fill(until, false).await?;
            }
        }
        Ok(Ok(body))
    }

    /// Waits for more of a head.
    async fn fill_head(&mut self) -> Result<(), End> {
        let patience = self.worker.shared.options.patience;
        let now = Instant::now();
        if self.input.is_empty() {
            let idle_until = now + patience.idle;
            match self.fill(idle_until, true).await {
                // A connection without a request may be closed without a word.
                Err(End::Slow) => Err(End::Gone),
                other => other,
            }
        } else {
            // From the first byte of this head, whoever sends it drop by drop.
            let until = now + patience.head;
            let mut slots = Slots::default();
            while matches!(
                request::parse(&self.input, &self.worker.shared.options.limits, &mut slots),
                Ok(None)
            ) {
                // The buffer may move when it grows: nothing of it may be kept.
                slots = Slots::default();
                self.fill(until, false).await?;
            }
            Ok(())
        }
    }

    /// Reads what has arrived, waiting `until` then for something to.
    async fn fill(&mut self, until: Instant, is_idle: bool) -> Result<(), End> {
        self.input.reserve(READ_BYTES);
        loop {
            // Only ever earlier here: it may be set for the end of a longer wait. Later it is set when it fires.
            if self.timer.deadline() > until.into() {
                self.timer.as_mut().reset(until.into());
            }
            tokio::select! {
                biased;
                read = self.stream.read_buf(&mut self.input) => return match read {
                    Ok(0) if !is_idle => Err(End::Cut),
                    Ok(0) | Err(_) => Err(End::Gone),
                    Ok(_) => Ok(()),
                },
                () = self.timer.as_mut() => {
                    if Instant::now() >= until {
                        return Err(End::Slow);
                    }
                    self.timer.as_mut().reset(until.into());
                }
                _ = self.draining.wait_for(|draining| *draining), if is_idle => return Err(End::Draining),
            }
        }
    }

    /// Hands the answers to the socket.
    async fn flush(&mut self) -> Result<(), End> {
        let output = std::mem::take(&mut self.output);
        let result = self.send(&output).await;
        self.output = output;
        self.output.clear();
        if self.output.capacity() > 2 * OUTPUT_BYTES_MAX {
            self.output = Vec::new();
        }
        result
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
        // In pieces, so that a peer that takes nothing is not waited for as long as for one that takes all slowly.
        for piece in bytes.chunks(SEND_BYTES) {
            self.send_piece(piece).await?;
        }
        Ok(())
    }

    async fn send_piece(&mut self, piece: &[u8]) -> Result<(), End> {
        let patience = self.worker.shared.options.patience;
        let earned = Duration::from_secs(piece.len() as u64 / patience.bytes_per_sec.max(1));
        let write = self.stream.write_all(piece);
        tokio::pin!(write);
        // Most answers fit the socket's buffer: a timer is made only for one that does not.
        tokio::select! {
            biased;
            written = &mut write => return written.map_err(|_| End::Gone),
            () = std::future::ready(()) => {}
        }
        match tokio::time::timeout(patience.head + earned, write).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) | Err(_) => Err(End::Gone),
        }
    }

    async fn send_row(
        &mut self,
        request: &Request,
        row: &Row,
        unless: &Unless,
        served: Served,
        timing: Option<&Timing>,
    ) -> Result<u16, End> {
        if row.value().len() <= COPY_BYTES_MAX {
            return Ok(write_row(&mut self.output, request, row, unless, served, timing));
        }
        let status = write_row_head(&mut self.output, request, row, unless, served, timing);
        if status == 200 && request.method != Some(Method::Head) {
            self.flush().await?;
            self.send(row.value()).await?;
        }
        Ok(status)
    }

    /// Lets the peer read the last answer: closing with unread input would reset the connection under it.
    async fn linger(&mut self) {
        if self.stream.shutdown().await.is_err() {
            return;
        }
        let until = Instant::now() + LINGER;
        let mut dropped = self.input.len();
        self.input.clear();
        while dropped < LINGER_BYTES_MAX && self.fill(until, false).await.is_ok() {
            dropped += self.input.len();
            self.input.clear();
        }
    }
}

/// Copies out of the read buffer what an action needs.
fn plan(worker: &Worker, action: Action<'_>) -> Work {
    let shared = &worker.shared;
    // `route` lets through only keys of a legal length.
    let owned = |key: &[u8]| Key::new(key).unwrap_or_else(|| unreachable!("a routed key has a legal length"));
    let page = |status, content_type, body| Work::Page { status, content_type, body };
    match action {
        Action::Get { key, unless, timing } => Work::Get { key: owned(key), unless, timing },
        Action::Put { key, content_type, condition, timing } => {
            Work::Put { key: owned(key), content_type, condition, timing }
        }
        Action::Delete { key, condition, timing } => Work::Delete { key: owned(key), condition, timing },
        Action::Healthz => page(200, "text/plain", "alive\n".into()),
        Action::Readyz if worker.is_draining() => page(503, "text/plain", "draining\n".into()),
        Action::Readyz => match metrics::not_ready(&shared.tiers) {
            None => page(200, "text/plain", "ready\n".into()),
            Some(why) => page(503, "text/plain", format!("{why}\n")),
        },
        Action::Metrics => {
            let text = shared.metrics.prometheus(&shared.tiers, worker.is_draining());
            page(200, "text/plain; version=0.0.4", text)
        }
        Action::Stats => {
            let text = shared.metrics.json(&shared.tiers, worker.is_draining());
            page(200, "application/json", text)
        }
    }
}
