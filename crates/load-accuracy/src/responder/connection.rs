//! One connection of the responder: reads requests and sends answers.
//!
//! Shares no code with the codec of server and load generator, so that it cannot share their faults.

use super::answers::Then;
use super::http2::{Http2, Shared, lock};
use super::request::Request;
use super::transport::Transport;
use std::collections::VecDeque;
use std::io::ErrorKind;
use std::sync::{Arc, Mutex, MutexGuard};

/// A connection and what was received on it that is not answered or not a whole request yet.
pub(super) struct Connection {
    shared: Shared,
    /// Whether a request was ever received on it.
    pub(super) has_asked: bool,
    buffer: Vec<u8>,
    http2: Option<Http2>,
    /// Of HTTP/2, requests that were read.
    requests: VecDeque<Request>,
}

impl Connection {
    pub(super) fn new(transport: Transport, http2: bool) -> Connection {
        let shared = Arc::new(Mutex::new((transport, false)));
        let http2 = http2.then(|| Http2::new(&shared));
        Connection { shared, has_asked: false, buffer: Vec::new(), http2, requests: VecDeque::new() }
    }

    /// Its transport.
    pub(super) fn transport(&self) -> MutexGuard<'_, (Transport, bool)> {
        lock(&self.shared)
    }

    /// Reads what is there; false when the client has closed or reset the connection.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> bool {
        if let Some(http2) = &mut self.http2 {
            return http2.read(&mut self.requests);
        }
        let transport = &mut lock(&self.shared).0;
        loop {
            match transport.read(scratch) {
                Ok(0) => return false,
                Ok(bytes) => self.buffer.extend_from_slice(&scratch[..bytes]),
                Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            }
            // Of what TLS has left, no event will say that it is there.
            if !transport.is_tls() {
                return true;
            }
        }
    }

    /// The next whole request.
    pub(super) fn request(&mut self) -> Option<Request> {
        let request = if self.http2.is_some() {
            self.requests.pop_front()?
        } else {
            let (request, bytes) = parse(&self.buffer)?;
            self.buffer.drain(..bytes);
            request
        };
        self.has_asked = true;
        Some(request)
    }

    /// Sends an answer; false if the client did not take it.
    pub(super) fn send(&mut self, bytes: &[u8], then: Then) -> bool {
        match &mut self.http2 {
            Some(http2) => http2.send(bytes, then),
            None => self.transport().0.send(bytes),
        }
    }
}

/// The request at the front of `bytes`, and its length.
fn parse(bytes: &[u8]) -> Option<(Request, usize)> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]);
    let mut lines = head.lines();
    let path = lines.next().unwrap_or_default().split(' ').nth(1).unwrap_or_default();
    let mut body = 0;
    let mut closes = false;
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or_default();
        if name.eq_ignore_ascii_case("content-length") {
            body = value.trim().parse().unwrap_or(0);
        } else if name.eq_ignore_ascii_case("connection") {
            closes = value.trim().eq_ignore_ascii_case("close");
        }
    }
    let key = path.rsplit('/').next().unwrap_or_default().to_owned();
    (bytes.len() >= end + body).then_some((Request { key, closes }, end + body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_to_their_end_and_no_further() {
        let parsed = |text: &str| parse(text.as_bytes()).map(|(found, bytes)| (found.key, bytes));
        let get = "GET /kv/all_7 HTTP/1.1\r\nHost: h\r\n\r\n";
        let put = "PUT /kv/k HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(parsed(get), Some(("all_7".into(), get.len())));
        assert_eq!(parsed(put), Some(("k".into(), put.len())));
        assert_eq!(parsed(&format!("{put}{get}")), Some(("k".into(), put.len())));
        for part in [&get[..get.len() - 1], &put[..put.len() - 1], ""] {
            assert_eq!(parsed(part), None, "{part:?}");
        }
    }
}
