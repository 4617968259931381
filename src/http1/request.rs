//! Requests: parsed by the server, written by the load generator.

use super::{Framing, Limits, Reject, Slots};

/// A request's method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// Read.
    Get,
    /// Read without the body.
    Head,
    /// Create or replace.
    Put,
    /// Process.
    Post,
    /// Remove.
    Delete,
    /// What may be done?
    Options,
    /// Any other; routes answer 501.
    Other,
}

/// A request's head, borrowed from the buffer it was parsed from.
pub struct Head<'s, 'b> {
    /// What is asked for.
    pub method: Method,
    /// Of what: the request target as sent.
    pub target: &'b [u8],
    /// How the body ends.
    pub framing: Framing,
    /// Whether another request may follow on this connection.
    pub keep_alive: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// Bytes of the head, blank line included: the body starts there.
    pub bytes: usize,
    fields: &'s [httparse::Header<'b>],
}

impl<'s, 'b> Head<'s, 'b> {
    /// The value of the first field called `name` (any case), without surrounding blanks.
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        todo!()
    }

    /// All fields in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }
}

/// Parses the head at the front of `input`; `None` when it is not complete yet.
pub fn parse<'s, 'b>(
    input: &'b [u8],
    limits: &Limits,
    slots: &'s mut Slots<'b>,
) -> Result<Option<Head<'s, 'b>>, Reject> {
    todo!()
}

/// Appends a request's head to a buffer.
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    /// Starts with the request line and `Host`.
    pub fn new(out: &'o mut Vec<u8>, method: &str, target: &str, host: &str) -> Writer<'o> {
        todo!()
    }

    /// Adds a field.
    pub fn field(self, name: &str, value: &[u8]) -> Self {
        todo!()
    }

    /// Ends the head of a request without a body.
    pub fn end(self) {
        todo!()
    }

    /// Ends the head of a request whose body of `bytes` bytes follows.
    pub fn end_with_length(self, bytes: u64) {
        todo!()
    }
}
