//! The bytes of one connection, whatever is spoken on it: reading, sending, time-outs, the end.
//!
//! Time-outs are the connection's, not a timer for every request. What the bytes mean is decided above: in
//! `connection` for the plain interface, in `fronts` for the others.

use super::Worker;
use super::error::Failure;
use super::reply::Request;
use crate::http1::{Decoder, Framing, Slots, request, response};
use bytes::{Buf, BytesMut};
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::Sleep;

/// Read at once, if as much is there.
const READ_BYTES: usize = 16 << 10;
/// Answers to pipelined requests are sent when they amount to this.
pub(super) const OUTPUT_BYTES_MAX: usize = 256 << 10;
/// A body that nobody has use for is read up to this, so that the connection can go on.
pub(super) const UNUSED_BODY_BYTES_MAX: usize = 64 << 10;
/// Handed to the socket at once.
const SEND_BYTES: usize = 64 << 10;
/// After a last answer, what the peer still sends is read for so long, so that it can read the answer.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES_MAX: usize = 16 << 20;

pub(super) struct Wire<S> {
    stream: S,
    pub(super) worker: Rc<Worker>,
    /// What has arrived and is not used up.
    pub(super) input: BytesMut,
    /// Answers that are not sent yet.
    pub(super) output: Vec<u8>,
    idle: Duration,
    /// One timer for the life of the connection. It is set anew only when it fires too early.
    timer: Pin<Box<Sleep>>,
    draining: tokio::sync::watch::Receiver<bool>,
}

/// Why a connection ends before its peer wants to.
pub(super) enum End {
    /// The peer left, or the socket broke.
    Gone,
    /// The peer ended in the middle of a request.
    Cut,
    /// The peer is too slow.
    Slow,
    /// The server drains and nothing is under way.
    Draining,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// A connection that may be silent for `idle` between two requests.
    pub(super) fn new(stream: S, worker: Rc<Worker>, idle: Duration) -> Wire<S> {
        let draining = worker.shared.draining.subscribe();
        let timer = Box::pin(tokio::time::sleep(idle));
        Wire { stream, worker, input: BytesMut::new(), output: Vec::new(), idle, timer, draining }
    }

    /// Reads the request's body, at most `limit` bytes of it.
    pub(super) async fn read_body(
        &mut self,
        request: &Request,
        limit: usize,
    ) -> Result<Result<Vec<u8>, Failure>, End> {
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
    pub(super) async fn fill_head(&mut self) -> Result<(), End> {
        let patience = self.worker.shared.options.patience;
        let now = Instant::now();
        if self.input.is_empty() {
            let idle_until = now + self.idle;
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
    pub(super) async fn flush(&mut self) -> Result<(), End> {
        let output = std::mem::take(&mut self.output);
        let result = self.send(&output).await;
        self.output = output;
        self.output.clear();
        if self.output.capacity() > 2 * OUTPUT_BYTES_MAX {
            self.output = Vec::new();
        }
        result
    }

    pub(super) async fn send(&mut self, bytes: &[u8]) -> Result<(), End> {
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

    /// Lets the peer read the last answer: closing with unread input would reset the connection under it.
    pub(super) async fn linger(&mut self) {
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
