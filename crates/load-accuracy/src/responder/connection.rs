//! One connection: bytes in, requests out, in the plainest way there is.
//!
//! Written apart from the codec of server and load generator on purpose: what vouches for them must not share their faults.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;

/// A connection and what came on it so far.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// Whether a request ever came on it.
    pub(super) has_asked: bool,
    buffer: Vec<u8>,
}

/// A request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Question {
    /// The last part of the path.
    pub(super) key: String,
    /// Whether the client wants the connection closed after the answer.
    pub(super) closes: bool,
}

impl Connection {
    /// `stream` becomes non-blocking.
    pub(super) fn new(stream: TcpStream) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream, has_asked: false, buffer: Vec::new() })
    }

    /// Reads what is there, once; false when the client has closed the connection, in order or not.
    pub(super) fn read(&mut self, scratch: &mut [u8]) -> bool {
        match self.stream.read(scratch) {
            Ok(0) => false,
            Ok(bytes) => {
                self.buffer.extend_from_slice(&scratch[..bytes]);
                true
            }
            Err(error) => matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }

    /// The next request that has come to its end.
    pub(super) fn question(&mut self) -> Option<Question> {
        let (question, bytes) = question(&self.buffer)?;
        self.buffer.drain(..bytes);
        self.has_asked = true;
        Some(question)
    }

    /// Sends `bytes`; false if the client did not take them. Answers are short, so that they go in one piece.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        bytes.is_empty() || matches!(self.stream.write(bytes), Ok(sent) if sent == bytes.len())
    }
}

/// The request at the front of `bytes`, and how long it is.
fn question(bytes: &[u8]) -> Option<(Question, usize)> {
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
    (bytes.len() >= end + body).then_some((Question { key, closes }, end + body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_read_to_their_end_and_no_further() {
        let question_of = |text: &str| question(text.as_bytes()).map(|(found, bytes)| (found.key, bytes));
        let get = "GET /kv/all_7 HTTP/1.1\r\nHost: h\r\n\r\n";
        let put = "PUT /kv/k HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(question_of(get), Some(("all_7".into(), get.len())));
        assert_eq!(question_of(put), Some(("k".into(), put.len())));
        assert_eq!(question_of(&format!("{put}{get}")), Some(("k".into(), put.len())));
        for part in [&get[..get.len() - 1], &put[..put.len() - 1], ""] {
            assert_eq!(question_of(part), None, "{part:?}");
        }
    }
}
