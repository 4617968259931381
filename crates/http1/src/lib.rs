//! HTTP/1.1 without sockets: bytes in, messages out, for both ends of a connection.
//!
//! Sans-I/O: nothing here waits, reads a clock or knows a route. The server parses requests and writes responses,
//! the load generator the other way round, both from and into plain byte buffers. The tokenizer is `httparse`;
//! the rules on top (what smuggles is refused, limits, framing, keep-alive) are here.

pub mod request;
pub mod response;
mod body;
mod head;

pub use body::{Decoder, Framing, Step};

/// Most header fields a message may have.
pub const FIELDS_MAX: usize = 64;

/// What a peer may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest request target, in bytes; above it 414.
    pub target_bytes: usize,
    /// Longest head (start line and fields), in bytes; above it 431.
    pub head_bytes: usize,
}

impl Limits {
    /// As most servers have them.
    pub const USUAL: Limits = Limits { target_bytes: 8 << 10, head_bytes: 16 << 10 };
}

/// A message refused. Its sender's framing is not to be trusted: answer with `status`, then close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reject {
    /// The status to answer with: 400, 408, 413, 414, 417, 431, 501 or 505.
    pub status: u16,
    /// What is wrong, for the answer's detail.
    pub detail: &'static str,
}

/// Room for the fields of one head, so that parsing allocates nothing, unless a request is of HTTP/1.2 or later.
pub struct Slots<'b>(
    pub(crate) [std::mem::MaybeUninit<httparse::Header<'b>>; FIELDS_MAX],
    pub(crate) Vec<httparse::Header<'b>>,
);

impl Default for Slots<'_> {
    fn default() -> Self {
        Slots([const { std::mem::MaybeUninit::uninit() }; FIELDS_MAX], Vec::new())
    }
}

impl Reject {
    const fn new(status: u16, detail: &'static str) -> Reject {
        Reject { status, detail }
    }

    const fn bad(detail: &'static str) -> Reject {
        Reject::new(400, detail)
    }

    /// Whether the head was well-formed but said two things about where its body ends.
    pub fn is_contradiction(&self) -> bool {
        head::CONTRADICTIONS.contains(self)
    }
}

/// Whether a byte may stand in a method or a field name (`tchar` of RFC 9110, 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Appends bytes that must stay on their line. A line end in a value could end the head and begin another message, so each is
/// replaced by a blank.
fn append_in_line(out: &mut Vec<u8>, bytes: &[u8]) {
    if memchr::memchr3(b'\r', b'\n', 0, bytes).is_none() {
        out.extend_from_slice(bytes);
    } else {
        out.extend(bytes.iter().map(|&byte| if matches!(byte, b'\r' | b'\n' | 0) { b' ' } else { byte }));
    }
}

/// Appends the head of a message to a buffer; [`request::write`] and [`response::write`] begin one.
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl Writer<'_> {
    /// Adds a field. A name that is no token, or a value with a line end, is our own mistake.
    pub fn field(self, name: &str, value: &[u8]) -> Self {
        debug_assert!(!name.is_empty() && name.bytes().all(is_token), "not a field name: {name:?}");
        debug_assert!(memchr::memchr3(b'\r', b'\n', 0, value).is_none(), "a line end in the value of {name}");
        append_in_line(self.out, name.as_bytes());
        self.out.extend_from_slice(b": ");
        append_in_line(self.out, value);
        self.lines("\r\n")
    }

    /// Adds a field with a number.
    pub fn field_number(self, name: &'static str, value: u64) -> Self {
        self.out.extend_from_slice(name.as_bytes());
        self.line_around(": ", value, "\r\n")
    }

    /// Adds whole lines as they stand: fields that seldom change.
    pub fn lines(self, lines: &str) -> Self {
        debug_assert!(
            lines.ends_with("\r\n") && head::lines_end_in_crlf(lines.as_bytes()).is_ok(),
            "{lines:?}"
        );
        self.out.extend_from_slice(lines.as_bytes());
        self
    }

    /// Adds a line of a number between texts that never change.
    pub fn line_around(self, before: &'static str, value: u64, after: &'static str) -> Self {
        self.out.extend_from_slice(before.as_bytes());
        self.out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
        self.lines(after)
    }

    /// Ends the head with this `Content-Length`; the caller appends the body (or not, for HEAD and 304).
    pub fn end_with_length(self, bytes: u64) {
        self.field_number("Content-Length", bytes).end();
    }

    /// Ends the head of a message that has neither body nor length.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: &[u8]) {
        let mut out = b"before ".to_vec();
        append_in_line(&mut out, bytes);
        assert_eq!(out, [b"before ", expected].concat());
    }

    #[test]
    fn line_ends_and_nul_are_written_as_blanks() {
        check(b"", b"");
        check(b"as it is\t\xff", b"as it is\t\xff");
        check(b"a\r\nSet-Cookie: b\r\n\r\n\0", b"a  Set-Cookie: b     ");
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "a line end in the value of X")]
    fn a_line_end_in_a_value_is_a_mistake_of_ours() {
        Writer { out: &mut Vec::new() }.field("X", b"a\r\nB: c");
    }

    #[test]
    fn numbers_are_written_in_full() {
        let mut out = Vec::new();
        Writer { out: &mut out }.field_number("Age", 0).field_number("Content-Length", u64::MAX);
        assert_eq!(out, b"Age: 0\r\nContent-Length: 18446744073709551615\r\n");
    }
}
