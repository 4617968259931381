//! Responses: written by the server, parsed by the load generator.

use super::{Framing, Reject, Slots};

/// A response's head, borrowed from the buffer it was parsed from.
pub struct Head<'s, 'b> {
    /// The status: 100 to 599. An interim (1xx) response has no body, and the final one follows.
    pub status: u16,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the connection may be used again.
    pub keep_alive: bool,
    /// Bytes of the head, blank line included: the body starts there.
    pub bytes: usize,
    fields: &'s [httparse::Header<'b>],
}

impl<'s, 'b> Head<'s, 'b> {
    /// The value of the first field called `name` (any case), without surrounding blanks.
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        todo!()
    }
}

/// Parses the head at the front of `input`; `None` when it is not complete yet. `to_head` says that the request was
/// a HEAD, whose response has no body whatever its fields say. A [`Reject`] means the peer is no HTTP/1.1 server.
pub fn parse<'s, 'b>(
    input: &'b [u8],
    to_head: bool,
    slots: &'s mut Slots<'b>,
) -> Result<Option<Head<'s, 'b>>, Reject> {
    todo!()
}

/// Appends a response's head to a buffer.
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    /// Starts with the status line; its reason phrase is [`reason`].
    pub fn new(out: &'o mut Vec<u8>, status: u16) -> Writer<'o> {
        todo!()
    }

    /// Adds a field.
    pub fn field(self, name: &str, value: &[u8]) -> Self {
        todo!()
    }

    /// Adds a field with a number.
    pub fn field_number(self, name: &str, value: u64) -> Self {
        todo!()
    }

    /// Ends the head with this `content-length`; the caller appends the body (or not, for HEAD and 304).
    pub fn end_with_length(self, bytes: u64) {
        todo!()
    }

    /// Ends the head of an answer that has neither body nor length: 1xx, 204.
    pub fn end(self) {
        todo!()
    }
}

/// The reason phrase of a status.
pub fn reason(status: u16) -> &'static str {
    todo!()
}
