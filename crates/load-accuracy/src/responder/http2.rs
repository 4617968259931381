//! One connection of HTTP/2 of the responder. Frames and header compression are of the crate `h2`, which the load generator
//! uses, too; what is sent and when a connection ends is decided here.

use super::answers::Then;
use super::request::Request;
use super::transport::Transport;
use bytes::Bytes;
use h2::server::{Connection, Handshake, SendResponse, handshake};
use h2::{Reason, SendStream};
use http::{Response, StatusCode};
use std::collections::VecDeque;
use std::future::Future;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The first bytes of a frame with a head that never comes to its end.
const PART_OF_A_HEAD: &[u8] = &[0, 0, 20, 1, 4, 0, 0, 0, 1, 0x88];
/// GOAWAY that calls all requests not begun, without an error.
const GOAWAY: &[u8] = &[0, 0, 8, 7, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
/// A frame longer than any that is allowed.
const GARBAGE: &[u8] = &[0xff; 9];

/// A transport, and whether something may have arrived on it.
pub(super) type Shared = Arc<Mutex<(Transport, bool)>>;

/// The transport, for this thread: there is no other.
pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, (Transport, bool)> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection and its streams.
pub(super) struct Http2 {
    shared: Shared,
    state: State,
    /// Of the requests that were read, in their order.
    waiting: VecDeque<SendResponse<Bytes>>,
    /// Streams that are left as they are: `h2` resets those that are dropped.
    left: Vec<(SendResponse<Bytes>, Option<SendStream<Bytes>>)>,
}

enum State {
    Handshake(Box<Handshake<Socket, Bytes>>),
    Open(Box<Connection<Socket, Bytes>>),
}

impl Http2 {
    pub(super) fn new(shared: &Shared) -> Http2 {
        let state = State::Handshake(Box::new(handshake(Socket(Arc::clone(shared)))));
        Http2 { shared: Arc::clone(shared), state, waiting: VecDeque::new(), left: Vec::new() }
    }

    /// Reads what is there and adds the requests in it; false when the connection has ended.
    pub(super) fn read(&mut self, requests: &mut VecDeque<Request>) -> bool {
        lock(&self.shared).1 = true;
        let cx = &mut Context::from_waker(Waker::noop());
        if let State::Handshake(handshake) = &mut self.state {
            match Pin::new(&mut **handshake).poll(cx) {
                Poll::Pending => return true,
                Poll::Ready(Err(_)) => return false,
                Poll::Ready(Ok(connection)) => self.state = State::Open(Box::new(connection)),
            }
        }
        let State::Open(connection) = &mut self.state else { return true };
        loop {
            match connection.poll_accept(cx) {
                Poll::Pending => return true,
                Poll::Ready(Some(Ok((request, respond)))) => {
                    let key = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
                    requests.push_back(Request { key, closes: false });
                    self.waiting.push_back(respond);
                }
                Poll::Ready(_) => return false,
            }
        }
    }

    /// Sends an answer that is written as HTTP/1.1 to the oldest request; false if the connection has ended.
    pub(super) fn send(&mut self, text: &[u8], then: Then) -> bool {
        let Some(mut respond) = self.waiting.pop_front() else { return false };
        let mut sending = None;
        let is_over = match answer(text) {
            Some((head, length, body)) => {
                let is_short = body.len() < length;
                let Ok(mut stream) = respond.send_response(head, false) else { return false };
                if stream.send_data(Bytes::copy_from_slice(body), !is_short).is_err() {
                    return false;
                }
                sending = Some(stream);
                !is_short
            }
            None if text.is_empty() => false,
            // `h2` sends no such bytes. What it had to send before is sent.
            None => {
                let bytes = if text.starts_with(b"HTTP/") { PART_OF_A_HEAD } else { GARBAGE };
                if !lock(&self.shared).0.send(bytes) {
                    return false;
                }
                false
            }
        };
        let State::Open(connection) = &mut self.state else { return false };
        let cx = &mut Context::from_waker(Waker::noop());
        if then == Then::ResetStream {
            // Head and part of the body are sent first: a reset takes back what is not sent.
            let _ = connection.poll_closed(cx);
            respond.send_reset(Reason::INTERNAL_ERROR);
        }
        let mut has_ended = connection.poll_closed(cx).is_ready();
        if then == Then::GoAway {
            has_ended |= !lock(&self.shared).0.send(GOAWAY);
        }
        if !is_over && then != Then::ResetStream {
            self.left.push((respond, sending));
        }
        !has_ended
    }
}

/// Head, length by its field, and body of an answer that is written as HTTP/1.1; `None` if it is none.
fn answer(text: &[u8]) -> Option<(Response<()>, usize, &[u8])> {
    let end = text.windows(4).position(|four| four == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&text[..end]).ok()?;
    let mut lines = head.lines();
    let status = lines.next()?.strip_prefix("HTTP/1.1 ")?.get(..3)?;
    let mut response = Response::builder().status(StatusCode::from_bytes(status.as_bytes()).ok()?);
    let mut length = 0;
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        if name == "Content-Length" {
            length = value.parse().ok()?;
        }
        response = response.header(name, value);
    }
    Some((response.body(()).ok()?, length, &text[end + 4..]))
}

/// The transport as `h2` wants it. Nothing is read but where a connection is to be read.
struct Socket(Shared);

impl AsyncRead for Socket {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let (transport, is_readable) = &mut *lock(&self.0);
        if !*is_readable {
            return Poll::Pending;
        }
        match transport.read(into.initialize_unfilled()) {
            Ok(bytes) => {
                into.advance(bytes);
                Poll::Ready(Ok(()))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                *is_readable = false;
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error)),
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let is_sent = lock(&self.0).0.send(bytes);
        Poll::Ready(if is_sent { Ok(bytes.len()) } else { Err(ErrorKind::BrokenPipe.into()) })
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
