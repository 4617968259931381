//! Responses: written by the server, parsed by the load generator.
//!
//! The reader trusts a server no more than the server trusts a client: a response whose end is in doubt is refused,
//! for it would be taken for the answer to another request.

use super::head::{self, Meaning};
use super::{Framing, Reject, Slots, Writer};
use httparse::Status;
use std::ops::Range;

/// Longest head of a response, in bytes. Wider than for requests: there are few servers, and they were chosen.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// A response's head, borrowed from the buffer it was parsed from.
#[derive(Debug)]
pub struct Head<'s, 'b> {
    /// All but its fields.
    pub outline: Outline,
    fields: &'s [httparse::Header<'b>],
}

/// The head of a response without its fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The status: 100 to 599. An interim (1xx) response has no body, and the final one follows.
    pub status: u16,
    /// How the body ends.
    pub framing: Framing,
    /// Whether the connection may be used again.
    pub keep_alive: bool,
    /// Bytes of the head, blank line included: the body starts there.
    pub bytes: usize,
}

impl<'s, 'b> Head<'s, 'b> {
    /// The value of the first field called `name` (any case), without surrounding blanks.
    pub fn field(&self, name: &str) -> Option<&'b [u8]> {
        head::find(self.fields, name)
    }
}

/// Parses the head at the front of `input`; `None` when it is not complete yet. `to_head` says that the request was
/// a HEAD, whose response has no body whatever its fields say. A [`Reject`] means the peer is no HTTP/1.1 server.
pub fn parse<'s, 'b>(
    input: &'b [u8],
    to_head: bool,
    slots: &'s mut Slots<'b>,
) -> Result<Option<Head<'s, 'b>>, Reject> {
    if let [b'\r' | b'\n', ..] = input {
        return Err(Reject::bad("no status line"));
    }
    let window = &input[..input.len().min(HEAD_BYTES_MAX)];
    let mut response = httparse::Response::new(&mut []);
    let parsed = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut response,
        window,
        &mut slots.0,
    );
    let bytes = match parsed {
        Ok(Status::Complete(bytes)) => bytes,
        Ok(Status::Partial) => {
            head::lines_end_in_crlf(window)?;
            if input.len() > HEAD_BYTES_MAX {
                return Err(Reject::new(431, "response head too large"));
            }
            return Ok(None);
        }
        Err(error) => return Err(head::refusal(error, window, window)),
    };
    head::lines_end_in_crlf(&window[..bytes])?;
    let (Some(status @ 100..=599), Some(minor)) = (response.code, response.version) else {
        return Err(Reject::bad("status out of range"));
    };

    let fields: &'s [httparse::Header<'b>] = response.headers;
    let meaning = Meaning::of(fields)?;
    let framing = match meaning.framing(minor)? {
        _ if to_head || matches!(status, 100..=199 | 204 | 304) => Framing::Length(0),
        Some(framing) => framing,
        None => Framing::UntilClose,
    };
    let keep_alive = meaning.keep_alive(minor) && framing != Framing::UntilClose;
    Ok(Some(Head { outline: Outline { status, framing, keep_alive, bytes }, fields }))
}

/// The last head that came over a connection, by which the next one is known again.
///
/// The answers of a server are nearly alike. A head that differs from the last one only in the values of [`VARYING`],
/// byte for byte and in no length, means the same: those values mean nothing here, and any text may stand there. To
/// compare takes a tenth of the instructions that parsing takes.
#[derive(Debug, Default)]
pub struct Familiar {
    outline: Option<Outline>,
    bytes: Vec<u8>,
    /// Where the values of [`VARYING`] stand, in their order.
    gaps: Vec<Range<usize>>,
}

/// The fields whose values change from answer to answer, and say nothing of framing or connection.
const VARYING: [&str; 2] = ["date", "etag"];
/// Longest head remembered, in bytes: there is one for each connection.
const FAMILIAR_BYTES_MAX: usize = 1 << 10;

impl Familiar {
    /// As [`parse`], of the response to any request but HEAD.
    pub fn parse(&mut self, input: &[u8]) -> Result<Option<Outline>, Reject> {
        if self.outline.is_some() && self.fits(input) {
            return Ok(self.outline);
        }
        let mut slots = Slots::default();
        let Some(Head { outline, fields }) = parse(input, false, &mut slots)? else { return Ok(None) };
        self.gaps.clear();
        self.bytes.clear();
        self.outline = None;
        if outline.bytes <= FAMILIAR_BYTES_MAX {
            self.outline = Some(outline);
            self.bytes.extend_from_slice(&input[..outline.bytes]);
            let varies = |name: &str| VARYING.iter().any(|varying| name.eq_ignore_ascii_case(varying));
            // What is empty need not lie in the input.
            let varying = fields.iter().filter(|field| varies(field.name) && !field.value.is_empty());
            self.gaps.extend(varying.map(|field| {
                let start = field.value.as_ptr().addr() - input.as_ptr().addr();
                start..start + field.value.len()
            }));
        }
        Ok(Some(outline))
    }

    /// Whether `input` begins with the last head, but for what stands in its gaps.
    fn fits(&self, input: &[u8]) -> bool {
        let Some(head) = input.get(..self.bytes.len()) else { return false };
        let mut at = 0;
        for gap in &self.gaps {
            // All of it without a branch for each byte: that is a few instructions for a whole date.
            let is_text =
                head[gap.clone()].iter().fold(true, |so_far, byte| so_far & (0x20..=0x7e).contains(byte));
            if !is_text || head[at..gap.start] != self.bytes[at..gap.start] {
                return false;
            }
            at = gap.end;
        }
        head[at..] == self.bytes[at..]
    }
}

/// Begins a response's head with the status line; its reason phrase is [`reason`].
pub fn write(out: &mut Vec<u8>, status: u16) -> Writer<'_> {
    debug_assert!(matches!(status, 100..=599), "not a status: {status}");
    let writer = Writer { out };
    match status_line(status) {
        "" => writer.line_around("HTTP/1.1 ", u64::from(status), " \r\n"),
        line => writer.lines(line),
    }
}

/// The reason phrase of a status; empty for one that has none here.
pub fn reason(status: u16) -> &'static str {
    let line = status_line(status);
    line.get("HTTP/1.1 200 ".len()..line.len().saturating_sub(2)).unwrap_or_default()
}

/// Writes the table of statuses out as whole lines, so that the usual answer is one copy.
macro_rules! status_lines {
    ($($status:literal $reason:literal,)*) => {
        const fn status_line(status: u16) -> &'static str {
            match status {
                $($status => concat!("HTTP/1.1 ", $status, " ", $reason, "\r\n"),)*
                _ => "",
            }
        }
    };
}

status_lines! {
    100 "Continue",
    101 "Switching Protocols",
    200 "OK",
    201 "Created",
    202 "Accepted",
    204 "No Content",
    206 "Partial Content",
    304 "Not Modified",
    400 "Bad Request",
    401 "Unauthorized",
    403 "Forbidden",
    404 "Not Found",
    405 "Method Not Allowed",
    408 "Request Timeout",
    409 "Conflict",
    411 "Length Required",
    412 "Precondition Failed",
    413 "Content Too Large",
    414 "URI Too Long",
    415 "Unsupported Media Type",
    416 "Range Not Satisfiable",
    417 "Expectation Failed",
    422 "Unprocessable Content",
    429 "Too Many Requests",
    431 "Request Header Fields Too Large",
    500 "Internal Server Error",
    501 "Not Implemented",
    502 "Bad Gateway",
    503 "Service Unavailable",
    504 "Gateway Timeout",
    505 "HTTP Version Not Supported",
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The status and the length of the head, or the status of the refusal.
    fn check(input: &[u8], expected: Result<Option<(u16, usize)>, u16>) {
        let mut slots = Slots::default();
        let parsed = parse(input, false, &mut slots)
            .map(|head| head.map(|head| (head.outline.status, head.outline.bytes)));
        assert_eq!(parsed.map_err(|reject| reject.status), expected);
    }

    #[test]
    fn every_status_that_is_written_is_parsed_again() {
        for status in 100..=599 {
            let mut out = Vec::new();
            write(&mut out, status).end();
            check(&out, Ok(Some((status, out.len()))));
        }
    }

    #[test]
    fn a_head_may_have_64_kib() {
        let head = |bytes: usize| {
            let mut head = b"HTTP/1.1 200 OK\r\nX: ".to_vec();
            head.resize(bytes - 4, b'x');
            head.extend_from_slice(b"\r\n\r\n");
            head
        };
        check(&head(64 << 10), Ok(Some((200, 64 << 10))));
        check(&head((64 << 10) + 1), Err(431));
        check(&head((64 << 10) + 9)[..64 << 10], Ok(None));
        check(&head((64 << 10) + 9)[..(64 << 10) + 1], Err(431));
    }

    /// A head as it is read behind `before`, which must be what it is read as alone.
    fn check_familiar(before: &[u8], head: &[u8]) -> Result<Option<Outline>, Reject> {
        let mut familiar = Familiar::default();
        familiar.parse(before).expect("a good head");
        let found = familiar.parse(head);
        let mut slots = Slots::default();
        let alone = parse(head, false, &mut slots).map(|head| head.map(|head| head.outline));
        assert_eq!(found, alone, "{}", head.escape_ascii());
        // Nor has it forgotten what it is to be compared with.
        assert_eq!(familiar.parse(before), Familiar::default().parse(before));
        found
    }

    #[test]
    fn a_familiar_head_is_read_like_any_other_whichever_byte_of_it_differs() {
        const HEAD: &[u8] =
            b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 08:52:24 GMT\r\nETag: \"8796\"\r\nAge:1\r\n\
            Connection: keep-alive\r\neTag: \r\nContent-Length: 100\r\n\r\n";
        for place in 0..HEAD.len() {
            for byte in 0..=u8::MAX {
                let mut other = [HEAD, b"\r\nx"].concat();
                other[place] = byte;
                let _ = check_familiar(HEAD, &other);
            }
            let _ = check_familiar(HEAD, &HEAD[..place]);
            let _ = check_familiar(HEAD, &[&HEAD[..place], b"x", &HEAD[place..]].concat());
            let _ = check_familiar(HEAD, &[&HEAD[..place], &HEAD[place + 1..]].concat());
        }
    }

    #[test]
    fn a_head_with_another_date_is_known_again() {
        let head = |date: &str, length: u64| {
            format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {length}\r\n\r\n").into_bytes()
        };
        let mut familiar = Familiar::default();
        let monday = familiar.parse(&head("Mon", 1));
        assert!(familiar.fits(&head("Tue", 1)) && !familiar.fits(&head("Tue", 2)));
        assert_eq!(familiar.parse(&head("Tue", 1)), monday);
    }

    #[test]
    fn a_long_head_is_not_remembered() {
        let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(FAMILIAR_BYTES_MAX)).into_bytes();
        let mut familiar = Familiar::default();
        let first = familiar.parse(&head);
        assert!(
            first.is_ok_and(|head| head.is_some()) && familiar.outline.is_none() && familiar.bytes.is_empty()
        );
    }

    #[test]
    fn a_response_is_written_as_one_would_type_it() {
        let mut out = b"before ".to_vec();
        write(&mut out, 200).field("ETag", b"\"7\"").field_number("Age", 12).end_with_length(5);
        assert_eq!(out, b"before HTTP/1.1 200 OK\r\nETag: \"7\"\r\nAge: 12\r\nContent-Length: 5\r\n\r\n");
    }

    #[test]
    fn a_status_without_a_reason_keeps_the_blank_before_it() {
        let mut out = Vec::new();
        write(&mut out, 299).end();
        assert_eq!(out, b"HTTP/1.1 299 \r\n\r\n");
    }

    #[test]
    fn reasons_are_those_of_the_table() {
        for (status, expected) in [
            (100, "Continue"),
            (200, "OK"),
            (204, "No Content"),
            (416, "Range Not Satisfiable"),
            (422, "Unprocessable Content"),
            (431, "Request Header Fields Too Large"),
            (505, "HTTP Version Not Supported"),
            (299, ""),
            (0, ""),
            (u16::MAX, ""),
        ] {
            assert_eq!(reason(status), expected);
        }
    }
}
