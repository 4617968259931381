//! The bytes of one connection, of any API: reading, sending, timeouts, closing.
//!
//! A connection that waits for its next request holds no buffers. They belong to the worker, which lends them with the first
//! bytes of a request. What the bytes mean is decided in `connection` for the plain interface, in `compat` for the others.

use super::Worker;
use super::access_log::Bytes;
use super::budget::{Budget, Full, Reservation, UNCOUNTED_BYTES_MAX};
use super::error::Failure;
use super::reply::{Request, WriteFailure};
use super::timeouts::{ConnectionTimeout, End};
use crate::tiered::Served;
use bytes::{Buf, BytesMut};
use http1::{Decoder, Framing, Limits, Reject, Slots, request, response};
use std::cell::RefCell;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};

/// Read at once, if as much is there.
const READ_BYTES: usize = 16 << 10;
/// Room that is enough to go on reading into.
const READ_BYTES_LEAST: usize = 4 << 10;
/// Answers to pipelined requests are sent when they amount to this.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// An unused body is read up to this size, so that the connection can go on.
pub(super) const UNUSED_BODY_BYTES_MAX: usize = 64 << 10;
/// Slowest tolerated rate of a body or an answer; and how long a large one may take, which holds memory meanwhile.
const BYTES_PER_SEC_MIN: u64 = 1024;
pub(super) const LONGEST: Duration = Duration::from_secs(900);
/// Above this a value is sent from where it lies instead of being copied behind its head.
const COPY_BYTES_MAX: usize = 32 << 10;
/// Handed to the socket at once.
const SEND_BYTES: usize = 64 << 10;
/// After the last answer, input of the peer is read until there has been none for this time, so that the peer can read the answer; and
/// how long in all.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_MAX: Duration = Duration::from_secs(30);
/// Buffers kept for the next connection that has something to read; and how large they may be.
const SPARE_MAX: usize = 64;
const SPARE_BYTES_MAX: usize = 64 << 10;

/// What a connection is read from and written to.
pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin {
    /// The address of the other end, as it is logged.
    fn client(&self) -> String;

    /// Says that nothing follows, where that has to be said, if the socket takes it at once.
    fn end(&mut self) {}
}

impl Stream for TcpStream {
    fn client(&self) -> String {
        // It may have closed already.
        self.peer_addr().map_or_else(|_| String::new(), |address| address.to_string())
    }
}

impl Stream for UnixStream {
    fn client(&self) -> String {
        "unix".to_owned()
    }
}

pub(super) struct Wire<S: Stream> {
    stream: S,
    pub(super) worker: Rc<Worker>,
    /// What has arrived and is not used up.
    pub(super) input: BytesMut,
    /// Answers that are not sent yet.
    pub(super) output: Vec<u8>,
    /// How many of them are to requests that were answered as they came. Their time is counted when they are sent.
    pub(super) answered_at_once: u64,
    /// How many bytes were read and written so far.
    read: u64,
    written: u64,
    /// Who is at the other end, where requests are logged.
    client: Option<Box<str>>,
    /// When the input grew last.
    pub(super) arrived: Instant,
    idle: Duration,
    timeout: ConnectionTimeout,
    /// As its API does it.
    write_failure: WriteFailure,
}

impl<S: Stream> Drop for Wire<S> {
    fn drop(&mut self) {
        self.stream.end();
    }
}

/// The buffers of a worker that no connection uses.
#[derive(Default)]
pub(super) struct Spare(RefCell<Vec<(BytesMut, Vec<u8>)>>);

impl Spare {
    /// Gives room to read into, and to write answers to.
    fn lend(&self, input: &mut BytesMut, output: &mut Vec<u8>) {
        if input.capacity() == 0
            && let Some(spare) = self.0.borrow_mut().pop()
        {
            (*input, *output) = spare;
        }
        // Room for less than a usual head is worth moving what is there to the front, or a larger buffer.
        if input.capacity() - input.len() < READ_BYTES_LEAST {
            input.reserve(READ_BYTES);
        }
    }

    /// Takes both back; they are empty.
    fn take_back(&self, input: &mut BytesMut, output: &mut Vec<u8>) {
        let (mut input, output) = (std::mem::take(input), std::mem::take(output));
        let mut spare = self.0.borrow_mut();
        if spare.len() < SPARE_MAX && input.capacity().max(output.capacity()) <= SPARE_BYTES_MAX {
            input.clear();
            spare.push((input, output));
        }
    }
}

impl<S: Stream> Wire<S> {
    /// A connection that may be silent for `idle` between two requests.
    pub(super) fn new(stream: S, worker: Rc<Worker>, idle: Duration, write_failure: WriteFailure) -> Wire<S> {
        Wire {
            client: worker.recorder.as_ref().map(|_| stream.client().into()),
            stream,
            timeout: worker.timeouts.register(),
            worker,
            input: BytesMut::new(),
            output: Vec::new(),
            answered_at_once: 0,
            read: 0,
            written: 0,
            arrived: Instant::now(),
            idle,
            write_failure,
        }
    }

    /// Reads the request's body, at most `limit` bytes of it. It is refused before it is read if what was announced does not fit
    /// into the budget, but counted in `reservation` only as it arrives: an announcement costs the client nothing. One that
    /// `needs_length` is refused if the client does not say where it ends.
    pub(super) async fn read_body(
        &mut self,
        request: &Request,
        limit: usize,
        needs_length: bool,
        reservation: &mut Reservation<&Budget>,
    ) -> Result<Vec<u8>, End> {
        if needs_length && !request.is_framed {
            // A value that the client sends until it closes would be taken for an empty one.
            let what =
                "the length of the body is not known; send Content-Length (0 for an empty value), or chunks";
            return Err(Failure::new(411, "length_required", what).into());
        }
        // What can never fit is not to be asked again.
        let limit = limit.min(self.worker.shared.budget.bytes);
        let refused = |reject: Reject| {
            let mut failure = Failure::from(reject);
            if failure.status == 413 {
                failure.detail = format!("{}; the limit is {limit} bytes", failure.detail).into();
            }
            failure
        };
        let mut decoder = Decoder::new(request.framing, limit as u64).map_err(refused)?;
        let (announced, most) = match request.framing {
            Framing::Length(bytes) => (bytes as usize, bytes as usize),
            Framing::Chunked | Framing::UntilClose => (0, limit),
        };
        self.worker.shared.budget.check(announced).map_err(Failure::from)?;
        let mut body = Vec::new();
        // Also of an empty body: the AWS CLI would take the answer for that of its next request, and wait a minute for it.
        if request.expects_continue && request.is_framed && self.input.is_empty() {
            response::write(&mut self.output, 100).end();
            self.flush().await?;
        }
        let head_timeout = self.worker.shared.options.head_timeout;
        let window_bytes = |length: usize| {
            (head_timeout.as_millis() as usize).saturating_mul(bytes_per_sec_min(length) as usize) / 1000
        };
        let begun = Instant::now();
        let (mut since, mut enough) = (begun, window_bytes(announced));
        while !decoder.is_done() {
            let step = decoder.decode(&self.input).map_err(refused)?;
            let needed = body.len() + step.data.len();
            if needed > body.capacity() {
                // At once for a small body.
                let capacity =
                    needed.max(2 * body.capacity()).max(announced.min(UNCOUNTED_BYTES_MAX)).min(most);
                reservation.raise(capacity).map_err(Failure::from)?;
                body.reserve_exact(capacity - body.len());
            }
            body.extend_from_slice(&self.input[step.data.clone()]);
            self.input.advance(step.consumed);
            if step.consumed == 0 {
                // The peer may wait for the answers before this one until it sends the rest.
                self.flush().await?;
                // A new window begins when enough has come in the last one: what came quickly buys no silence.
                if body.len() >= enough {
                    let window_bytes = window_bytes(announced.max(body.len()));
                    (since, enough) = (Instant::now(), body.len() + window_bytes);
                }
                self.fill((since + head_timeout).min(begun + LONGEST), false).await?;
            }
        }
        Ok(body)
    }

    /// Reads the body of a request that is refused, before the next head can be read; `false`: the connection has to end. A body
    /// that is announced, not sent, or large, is not worth waiting for.
    async fn drop_body(&mut self, request: &Request) -> Result<bool, End> {
        match request.framing {
            Framing::Length(0) => Ok(true),
            Framing::Length(bytes) if bytes <= UNUSED_BODY_BYTES_MAX as u64 && !request.expects_continue => {
                let worker = Rc::clone(&self.worker);
                let mut reservation = worker.shared.budget.reservation();
                match self.read_body(request, UNUSED_BODY_BYTES_MAX, false, &mut reservation).await {
                    Ok(_) => Ok(true),
                    Err(error) => error.failure().map(|_| false),
                }
            }
            _ => Ok(false),
        }
    }

    /// Sends the answers so far and waits for more of a head.
    pub(super) async fn fill_head(&mut self) -> Result<(), End> {
        self.flush().await?;
        let head_timeout = self.worker.shared.options.head_timeout;
        // Empty lines behind a request begin no other.
        if self.input.chunks(2).all(|line| line == b"\r\n") {
            self.input.clear();
        }
        if self.input.is_empty() {
            match self.fill(self.timeout.until(self.idle), true).await {
                // A connection without a request may be closed without an answer.
                Err(End::Slow) => Err(End::Gone),
                other => other,
            }
        } else {
            // From the first byte of this head, however slowly the rest arrives.
            let until = Instant::now() + head_timeout;
            while self.head_is_partial() {
                self.fill(until, false).await?;
            }
            Ok(())
        }
    }

    /// Whether more has to come before the head can be judged. A function of its own: the slots are 2 KiB, and would
    /// be part of every connection if they lived while it waits.
    fn head_is_partial(&self) -> bool {
        matches!(request::parse(&self.input, &Limits::USUAL, &mut Slots::default()), Ok(None))
    }

    /// Reads what has arrived, waiting `until` then for something to.
    async fn fill(&mut self, until: Instant, is_idle: bool) -> Result<(), End> {
        let Wire { stream, worker, input, output, .. } = self;
        let read = std::future::poll_fn(|cx| {
            worker.spare.lend(input, output);
            let read = pin!(stream.read_buf(input)).poll(cx);
            if read.is_pending() && output.is_empty() {
                shrink(output);
                if input.is_empty() {
                    worker.spare.take_back(input, output);
                }
            }
            read
        });
        let read = self.timeout.wait(until, is_idle, read).await;
        self.arrived = Instant::now();
        match read {
            Ok(Ok(0)) if !is_idle => Err(End::Cut),
            Ok(Ok(0) | Err(_)) => Err(End::Gone),
            Ok(Ok(bytes)) => {
                self.read += bytes as u64;
                Ok(())
            }
            Err(end) => Err(end),
        }
    }

    /// Waits until the peer leaves, or `until` then. What it sends meanwhile stays for later.
    pub(super) async fn until_closed(&mut self, until: Instant) -> End {
        while !self.has_full_head() {
            if let Err(end) = self.fill(until, true).await {
                return end;
            }
        }
        // No more is read: whether the peer is there is seen when something is sent.
        let rest = std::future::pending::<()>();
        self.timeout.wait(until, true, rest).await.err().unwrap_or(End::Slow)
    }

    /// Whether as much has come as the longest head has: enough for the next request to begin.
    pub(super) fn has_full_head(&self) -> bool {
        self.input.len() >= Limits::USUAL.head_bytes
    }

    /// Hands the answers to the socket.
    pub(super) async fn flush(&mut self) -> Result<(), End> {
        if self.output.is_empty() {
            return Ok(());
        }
        let mut reservation = self.worker.shared.budget.reservation();
        let result = send(&mut self.stream, &self.worker, &self.output, &mut reservation).await;
        self.written += self.output.len() as u64;
        self.output.clear();
        if self.output.capacity() > 2 * OUTPUT_BYTES_MAX {
            self.output = Vec::new();
        }
        if self.answered_at_once > 0 {
            self.worker.metrics.took(self.arrived.elapsed(), std::mem::take(&mut self.answered_at_once));
        }
        result
    }

    /// As [`Wire::flush`], before something that may take long: a large buffer is not kept meanwhile, as it is in no budget.
    pub(super) async fn flush_and_shrink(&mut self) -> Result<(), End> {
        self.flush().await?;
        shrink(&mut self.output);
        Ok(())
    }

    /// Appends a value, or a part of one of `length` bytes, behind its head. A large one is handed to the socket after all answers before
    /// it. `Err`: there is no memory for that, and the head, which begins at `head_at`, is removed.
    pub(super) async fn push_value(
        &mut self,
        head_at: usize,
        value: &[u8],
        length: usize,
    ) -> Result<Result<(), End>, Full> {
        if value.len() <= COPY_BYTES_MAX {
            self.output.extend_from_slice(value);
            return Ok(Ok(()));
        }
        // The cache may drop the row while the client takes its time.
        let worker = Rc::clone(&self.worker);
        let mut reservation = worker.shared.budget.reservation();
        if let Err(full) = reservation.raise(length) {
            self.output.truncate(head_at);
            return Err(full);
        }
        if let Err(end) = self.flush().await {
            return Ok(Err(end));
        }
        self.written += value.len() as u64;
        Ok(send(&mut self.stream, &worker, value, &mut reservation).await)
    }

    /// Counts and logs an answer.
    pub(super) fn answered(
        &self,
        request: &Request,
        status: u16,
        served: Option<Served>,
        failure: Option<&Failure>,
    ) {
        self.worker.metrics.counted(request.method, status);
        self.worker.metrics.took(request.started.elapsed(), 1);
        self.log(request, status, served, failure);
    }

    /// Logs an answer, where requests are logged.
    pub(super) fn log(
        &self,
        request: &Request,
        status: u16,
        served: Option<Served>,
        failure: Option<&Failure>,
    ) {
        if let Some(recorder) = &self.worker.recorder {
            let asked = (request.entry.as_deref(), request.started);
            recorder.record(asked, status, served, failure, self.bytes(), self.client.as_deref());
        }
    }

    /// Answers a request that failed, as its API writes that; whether the connection goes on.
    pub(super) fn answer_failure(&mut self, request: &Request, failure: &Failure) -> bool {
        let keep_alive = request.keep_alive && !failure.closes;
        let status = (self.write_failure)(&mut self.output, failure, request, keep_alive);
        self.answered(request, status, None, Some(failure));
        keep_alive
    }

    /// The same before the body of the request was read.
    pub(super) async fn refuse(&mut self, request: &Request, failure: Failure) -> Result<bool, End> {
        let mut failure = request.not_done(failure);
        failure.closes = failure.closes || !self.drop_body(request).await?;
        Ok(self.answer_failure(request, &failure))
    }

    /// Closes a connection that `ended` so, after an answer that says why if somebody may read it.
    pub(super) async fn end(mut self, ended: Result<(), End>) {
        let Some(Ok(failure)) = ended.err().map(End::failure) else { return };
        let request = Request::unparsed(&self.input, self.arrived);
        self.answer_failure(&request, &failure);
        // The peer may have left.
        let _ = self.close().await;
    }

    /// Closes the connection after its last answer.
    pub(super) async fn close(&mut self) -> Result<(), End> {
        self.flush().await?;
        self.linger().await;
        Ok(())
    }

    /// The bytes up to where the input is used up and the output is written.
    pub(super) fn bytes(&self) -> Bytes {
        Bytes { read: self.read - self.input.len() as u64, written: self.written + self.output.len() as u64 }
    }

    /// Lets the peer read the last answer: closing with unread input would reset the connection under it.
    pub(super) async fn linger(&mut self) {
        let now = Instant::now();
        // With TLS there is something to be sent, which the peer may not take.
        if !matches!(self.timeout.wait(now + LINGER, false, self.stream.shutdown()).await, Ok(Ok(()))) {
            return;
        }
        loop {
            self.input.clear();
            let longest = if self.worker.is_draining() { LINGER } else { LINGER_MAX };
            let until = (Instant::now() + LINGER).min(now + longest);
            // What has arrived is read whatever the time.
            if Instant::now() >= until || self.fill(until, false).await.is_err() {
                return;
            }
        }
    }
}

/// Frees the memory of a large buffer, which is empty.
fn shrink(output: &mut Vec<u8>) {
    if output.capacity() > SPARE_BYTES_MAX {
        *output = Vec::new();
    }
}

/// The slowest tolerated rate of a body or an answer of `length` bytes.
fn bytes_per_sec_min(length: usize) -> u64 {
    BYTES_PER_SEC_MIN.max(length as u64 / LONGEST.as_secs())
}

/// Hands `bytes` to the socket, in pieces, so that a peer that takes nothing is not waited for as long as for one that
/// takes all slowly. They are counted if the socket does not take them at once; if they do not fit, the connection ends.
async fn send<S: AsyncWrite + Unpin>(
    stream: &mut S,
    worker: &Worker,
    bytes: &[u8],
    reservation: &mut Reservation<&Budget>,
) -> Result<(), End> {
    let mut begun = None;
    for piece in bytes.chunks(SEND_BYTES) {
        // Most answers fit the socket's buffer: a timer is made only for one that does not.
        let taken = std::future::poll_fn(|cx| {
            let mut stream = Pin::new(&mut *stream);
            let taken = match stream.as_mut().poll_write(cx, piece) {
                Poll::Ready(taken) => taken?,
                Poll::Pending => 0,
            };
            // TLS may hold some of it back.
            let is_sent = taken == piece.len() && stream.poll_flush(cx)?.is_ready();
            Poll::Ready(std::io::Result::Ok((taken, is_sent)))
        });
        let (taken, is_sent) = taken.await.map_err(|_| End::Gone)?;
        if !is_sent {
            reservation.raise(bytes.len()).map_err(|_| End::Gone)?;
            let head_timeout = worker.shared.options.head_timeout;
            let earned = Duration::from_secs(piece.len() as u64 / bytes_per_sec_min(bytes.len()));
            let rest = async {
                stream.write_all(&piece[taken..]).await?;
                stream.flush().await
            };
            let left = LONGEST.saturating_sub(begun.get_or_insert_with(Instant::now).elapsed());
            let rest = tokio::time::timeout((head_timeout + earned).min(left), rest);
            rest.await.map_err(|_| End::Gone)?.map_err(|_| End::Gone)?;
        }
    }
    Ok(())
}
