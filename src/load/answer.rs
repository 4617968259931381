//! The answer to one request, put together from whatever pieces arrive.
//!
//! Bytes in, a verdict out: no sockets, no clock. Bodies are compared as they pass and never stored.

use super::mix::Operation;
use super::request::Request;
use crate::http1::response::Familiar;
use crate::http1::{Decoder, Framing};

/// Longest answer head put up with, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection could be made.
    Refused,
    /// The connection ended before the first byte of an answer.
    Reset,
    /// No complete answer in time.
    Timeout,
    /// The connection ended inside an answer.
    ShortBody,
    /// What came is no HTTP answer to the request.
    Malformed,
    /// A read brought something else than was written.
    WrongValue,
    /// Status 4xx.
    Http4xx,
    /// Status 5xx.
    Http5xx,
}

impl Fault {
    /// All of them; a fault's place here is `fault as usize`.
    pub const ALL: [Fault; 8] = [
        Fault::Refused,
        Fault::Reset,
        Fault::Timeout,
        Fault::ShortBody,
        Fault::Malformed,
        Fault::WrongValue,
        Fault::Http4xx,
        Fault::Http5xx,
    ];

    /// The class's name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Fault::Refused => "refused",
            Fault::Reset => "reset",
            Fault::Timeout => "timeout",
            Fault::ShortBody => "short_body",
            Fault::Malformed => "malformed",
            Fault::WrongValue => "wrong_value",
            Fault::Http4xx => "http_4xx",
            Fault::Http5xx => "http_5xx",
        }
    }
}

/// What a complete and good answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Success {
    /// Done as asked.
    Done,
    /// A read: there is no such key.
    Absent,
}

/// The answer to the request in flight.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Bytes that arrived and could not be used yet: part of a head or of a chunk's frame. Nearly always empty.
    held: Vec<u8>,
    /// Of the answers before.
    familiar: Familiar,
    /// Once the head is complete.
    body: Option<Decoder>,
    /// Zero until the head is complete.
    status: u16,
    keep_alive: bool,
    until_close: bool,
    /// Whether any of it has arrived.
    begun: bool,
    body_bytes: usize,
    differs: bool,
}

impl Answer {
    /// Makes ready for the answer to the next request.
    pub(super) fn reset(&mut self) {
        self.held.clear();
        let (held, familiar) = (std::mem::take(&mut self.held), std::mem::take(&mut self.familiar));
        *self = Answer { held, familiar, ..Answer::default() };
    }

    /// Whether another request may follow on the connection of this complete answer.
    pub(super) fn keeps_alive(&self) -> bool {
        self.keep_alive && !self.until_close
    }

    /// The status; zero before the head is complete.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Takes what has arrived (not nothing); `Ok(true)` when the answer is complete.
    pub(super) fn take(&mut self, input: &[u8], request: &Request) -> Result<bool, Fault> {
        self.begun = true;
        let (used, of) = if self.held.is_empty() {
            let used = self.consume(input, request)?;
            self.held.extend_from_slice(&input[used..]);
            (used, input.len())
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(input);
            let (used, of) = (self.consume(&held, request)?, held.len());
            held.drain(..used);
            self.held = held;
            (used, of)
        };
        let complete = self.body.as_ref().is_some_and(Decoder::is_done);
        if used < of && (complete || of - used > HEAD_BYTES_MAX) {
            // Bytes that answer nothing, or a head without end: the framing is not to be trusted.
            return Err(Fault::Malformed);
        }
        Ok(complete)
    }

    /// The peer has ended the connection, cleanly or not. `Ok` when that is how this answer ends.
    pub(super) fn end(&mut self, cleanly: bool) -> Result<(), Fault> {
        match (self.begun, self.until_close && cleanly) {
            (false, _) => Err(Fault::Reset),
            (true, true) => Ok(()),
            (true, false) => Err(Fault::ShortBody),
        }
    }

    /// What a complete answer means for `request`.
    pub(super) fn verdict(&self, request: &Request, absent_is_fine: bool) -> Result<Success, Fault> {
        match (request.operation, self.status) {
            (Operation::Get | Operation::ComputePrime | Operation::ComputeHash, 200) => {
                let missing = self.body_bytes < request.expected.len();
                let surplus = request.exact && self.body_bytes > request.expected.len();
                if self.differs || missing || surplus { Err(Fault::WrongValue) } else { Ok(Success::Done) }
            }
            (Operation::Get, 404) if absent_is_fine => Ok(Success::Absent),
            (Operation::Put, 200 | 201 | 204) => Ok(Success::Done),
            // Deleting what is not there is done as soon as it is asked for, whichever way a server says so.
            (Operation::Delete, 200 | 202 | 204 | 404) => Ok(Success::Done),
            (_, 400..=499) => Err(Fault::Http4xx),
            (_, 500..=599) => Err(Fault::Http5xx),
            _ => Err(Fault::Malformed),
        }
    }

    /// Uses what it can of the front of `input`, and says how much that was.
    fn consume(&mut self, input: &[u8], request: &Request) -> Result<usize, Fault> {
        let mut used = 0;
        while self.body.is_none() {
            let head = self.familiar.parse(&input[used..]).map_err(|_| Fault::Malformed)?;
            let Some(head) = head else { return Ok(used) };
            used += head.bytes;
            if head.status >= 200 {
                self.status = head.status;
                self.keep_alive = head.keep_alive;
                self.until_close = head.framing == Framing::UntilClose;
                // Nothing of it is kept, so any length will do.
                self.body = Some(Decoder::new(head.framing, u64::MAX).map_err(|_| Fault::Malformed)?);
            }
        }
        let Some(body) = &mut self.body else { return Ok(used) };
        loop {
            let step = body.decode(&input[used..]).map_err(|_| Fault::Malformed)?;
            if step.consumed == 0 {
                return Ok(used);
            }
            let data = &input[used..][step.data];
            let rest = request.expected.get(self.body_bytes..).unwrap_or_default();
            let compared = data.len().min(rest.len());
            self.differs |= data[..compared] != rest[..compared];
            self.body_bytes += data.len();
            used += step.consumed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(operation: Operation, expected: &str) -> Request {
        Request { operation, bytes: Vec::new(), expected: expected.into(), exact: false }
    }

    /// The verdict on `wire` is the same in one piece and byte by byte; `ends` closes the connection behind it.
    fn check(request: &Request, wire: &str, ends: bool, expected: Result<Success, Fault>) {
        for piece in [wire.len(), 1, 7] {
            let mut answer = Answer::default();
            let mut complete = Ok(false);
            for bytes in wire.as_bytes().chunks(piece.max(1)) {
                if complete == Ok(false) {
                    complete = answer.take(bytes, request);
                }
            }
            let told = complete.and_then(|complete| {
                if !complete {
                    assert!(ends, "{wire:?} is not complete");
                    answer.end(true)?;
                }
                answer.verdict(request, false)
            });
            assert_eq!(told, expected, "{wire:?} in pieces of {piece}");
        }
    }

    #[test]
    fn reads_are_compared_with_what_was_written() {
        let read = request(Operation::Get, "k=");
        for (wire, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=ab", Ok(Success::Done)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=", Ok(Success::Done)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nk", Err(Fault::WrongValue)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Err(Fault::WrongValue)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nj=ab", Err(Fault::WrongValue)),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nk\r\n3\r\n=ab\r\n0\r\n\r\n",
                Ok(Success::Done),
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=",
                Ok(Success::Done),
            ),
        ] {
            check(&read, wire, false, expected);
        }
        let exact = Request { exact: true, ..request(Operation::Get, "k=ab") };
        check(&exact, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=ab", false, Ok(Success::Done));
        check(&exact, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nk=abc", false, Err(Fault::WrongValue));
    }

    #[test]
    fn statuses_fall_into_their_classes() {
        for (operation, status, expected) in [
            (Operation::Get, "404 Not Found", Err(Fault::Http4xx)),
            (Operation::Get, "503 Service Unavailable", Err(Fault::Http5xx)),
            (Operation::Get, "302 Found", Err(Fault::Malformed)),
            (Operation::Put, "200 OK", Ok(Success::Done)),
            (Operation::Put, "201 Created", Ok(Success::Done)),
            (Operation::Put, "404 Not Found", Err(Fault::Http4xx)),
            (Operation::Put, "500 Internal Server Error", Err(Fault::Http5xx)),
            (Operation::Delete, "200 OK", Ok(Success::Done)),
            (Operation::Delete, "404 Not Found", Ok(Success::Done)),
            (Operation::Delete, "429 Too Many Requests", Err(Fault::Http4xx)),
        ] {
            let wire = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            check(&request(operation, ""), &wire, false, expected);
        }
        check(&request(Operation::Put, ""), "HTTP/1.1 204 No Content\r\n\r\n", false, Ok(Success::Done));
    }

    #[test]
    fn an_absent_key_is_fine_where_the_workload_says_so() {
        let read = request(Operation::Get, "k=");
        let mut answer = Answer::default();
        assert_eq!(answer.take(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", &read), Ok(true));
        assert_eq!(answer.verdict(&read, true), Ok(Success::Absent));
        assert_eq!(answer.verdict(&read, false), Err(Fault::Http4xx));
    }

    #[test]
    fn answers_cut_short_are_told_from_no_answer() {
        let read = request(Operation::Get, "k=");
        check(&read, "", true, Err(Fault::Reset));
        for wire in [
            "HTTP/1.1 2",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=",
        ] {
            check(&read, wire, true, Err(Fault::ShortBody));
        }
        // Without length or chunks the end of the connection is the end of the body.
        check(&read, "HTTP/1.1 200 OK\r\n\r\nk=ab", true, Ok(Success::Done));
        check(&read, "HTTP/1.1 200 OK\r\n\r\nj=ab", true, Err(Fault::WrongValue));
    }

    #[test]
    fn what_is_no_answer_is_malformed() {
        let read = request(Operation::Get, "k=");
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        for wire in ["SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", endless.as_str()] {
            let mut answer = Answer::default();
            assert_eq!(answer.take(wire.as_bytes(), &read), Err(Fault::Malformed));
        }
        let mut answer = Answer::default();
        let surplus = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=surplus";
        assert_eq!(answer.take(surplus, &read), Err(Fault::Malformed));
    }

    #[test]
    fn an_answer_forgets_the_one_before() {
        let read = request(Operation::Get, "k=");
        let mut answer = Answer::default();
        assert_eq!(
            answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nj=", &read),
            Ok(true)
        );
        assert!(!answer.keeps_alive());
        answer.reset();
        assert!(!answer.begun && answer.status() == 0);
        assert_eq!(answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=", &read), Ok(true));
        assert!(answer.keeps_alive());
        assert_eq!(answer.verdict(&read, false), Ok(Success::Done));
    }
}
