//! Requests: parsed by the server, written by the load generator.
//!
//! Strict where leniency smuggles (RFC 9112): every check that could be read in two ways refuses. Knows no route:
//! the target is handed on as sent.

use super::head::{self, Meaning};
use super::{Framing, Limits, Reject, Slots, append_field, append_in_line, append_number, is_token};
use httparse::Status;
use std::ops::Range;

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

impl Method {
    /// Methods are case-sensitive: `get` is another.
    fn of(name: &str) -> Method {
        match name {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "PUT" => Method::Put,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        }
    }
}

/// A request's head, borrowed from the buffer it was parsed from.
#[derive(Debug)]
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
        head::find(self.fields, name)
    }

    /// All fields in their order.
    pub fn fields(&self) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        self.fields.iter().map(|field| (field.name, field.value))
    }
}

/// Parses the head at the front of `input`; `None` when it is not complete yet.
///
/// Start again from the same front when more has arrived. Up to two empty lines before the request line are skipped
/// and counted in [`Head::bytes`].
pub fn parse<'s, 'b>(
    input: &'b [u8],
    limits: &Limits,
    slots: &'s mut Slots<'b>,
) -> Result<Option<Head<'s, 'b>>, Reject> {
    let Some(start) = skip_empty_lines(input)? else { return Ok(None) };
    // The tokenizer does not see what lies beyond the limit: nothing there could make the head acceptable, and
    // the answer is then the same whether those bytes are here yet or not.
    let window = &input[start..input.len().min(limits.head_bytes.max(start))];
    let mut request = httparse::Request::new(&mut []);
    let bytes = match request.parse_with_uninit_headers(window, &mut slots.0) {
        Ok(Status::Complete(bytes)) => bytes,
        Ok(Status::Partial) => {
            target_in(window, limits)?;
            head::lines_end_in_crlf(window)?;
            if input.len() > limits.head_bytes {
                return Err(Reject::new(431, "request head too large"));
            }
            return Ok(None);
        }
        Err(error) => {
            let version = target_in(window, limits)?
                .and_then(|target| window.get(target.end + 1..))
                .unwrap_or_default();
            return Err(head::refusal(error, window, version));
        }
    };
    let (Some(method), Some(target), Some(minor)) = (request.method, request.path, request.version) else {
        return Err(Reject::bad("malformed request line"));
    };
    if target.len() > limits.target_bytes {
        return Err(TARGET_TOO_LONG);
    }
    head::lines_end_in_crlf(&window[..bytes])?;
    check_target_form(method, target)?;

    let fields: &'s [httparse::Header<'b>] = request.headers;
    let meaning = Meaning::of(fields)?;
    check_host(&meaning, minor)?;
    if meaning.length_repeated {
        return Err(Reject::bad("two Content-Length fields"));
    }
    let framing = meaning.framing(minor)?.unwrap_or(Framing::Length(0));
    if meaning.expects_other {
        return Err(Reject::new(417, "the only expectation met here is 100-continue"));
    }
    Ok(Some(Head {
        method: Method::of(method),
        target: target.as_bytes(),
        framing,
        keep_alive: meaning.keep_alive(minor),
        // An HTTP/1.0 client would take the interim answer for the final one.
        expect_continue: meaning.expects_continue && minor == 1,
        bytes: start + bytes,
        fields,
    }))
}

const TARGET_TOO_LONG: Reject = Reject::new(414, "request target too long");

/// How many empty lines a client may send ahead of its request line; some old ones end a body with one.
const EMPTY_LINES_MAX: usize = 2;

/// Where the request line starts; `None` if it has not yet.
fn skip_empty_lines(input: &[u8]) -> Result<Option<usize>, Reject> {
    let mut start = 0;
    while start < 2 * EMPTY_LINES_MAX && input[start..].starts_with(b"\r\n") {
        start += 2;
    }
    match input[start..] {
        [] => Ok(None),
        [b'\r'] if start < 2 * EMPTY_LINES_MAX => Ok(None),
        [b'\r' | b'\n', ..] => Err(Reject::bad("no request line")),
        _ => Ok(Some(start)),
    }
}

/// Where the target is, as far as it has come, in a head that the tokenizer did not get to the end of. Refuses one that
/// is already too long.
fn target_in(window: &[u8], limits: &Limits) -> Result<Option<Range<usize>>, Reject> {
    let method_bytes = window.iter().position(|&byte| !is_token(byte)).unwrap_or(window.len());
    if method_bytes == 0 || window.get(method_bytes) != Some(&b' ') {
        return Ok(None);
    }
    let start = method_bytes + 1;
    // The bytes the tokenizer takes for target, including those above 0x7f, which we refuse later.
    let target = &window[start..];
    let bytes = target.iter().position(|byte| !matches!(byte, 0x21..=0x7e | 0x80..)).unwrap_or(target.len());
    if bytes > limits.target_bytes { Err(TARGET_TOO_LONG) } else { Ok(Some(start..start + bytes)) }
}

/// The four forms of RFC 9112, 3.2, each for the methods it belongs to.
fn check_target_form(method: &str, target: &str) -> Result<(), Reject> {
    if !target.is_ascii() {
        return Err(Reject::bad("request target is not ASCII"));
    }
    if memchr::memchr(b'#', target.as_bytes()).is_some() {
        return Err(Reject::bad("a fragment in the request target"));
    }
    let legal = match target.as_bytes() {
        target if method == "CONNECT" => is_authority(target),
        [b'/', ..] => true,
        b"*" => method == "OPTIONS",
        _ => is_absolute(target),
    };
    if legal { Ok(()) } else { Err(Reject::bad("malformed request target")) }
}

fn is_absolute(target: &str) -> bool {
    let Some((scheme, rest)) = target.split_once("://") else { return false };
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    (scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https"))
        && is_authority(authority.as_bytes())
}

fn check_host(meaning: &Meaning, minor: u8) -> Result<(), Reject> {
    match meaning.host {
        _ if meaning.host_repeated => Err(Reject::bad("two Host fields")),
        None if minor == 1 => Err(Reject::bad("no Host field")),
        Some(host) if !host.is_empty() && !is_authority(host) => Err(Reject::bad("malformed Host")),
        _ => Ok(()),
    }
}

/// Whether this is a host with or without a port, and no more: no user, no blank, no list (RFC 3986, 3.2).
fn is_authority(authority: &[u8]) -> bool {
    let (host_is_legal, port) = match authority {
        [b'[', rest @ ..] => {
            let Some(end) = memchr::memchr(b']', rest) else { return false };
            let (address, port) = (&rest[..end], &rest[end + 1..]);
            let legal = |&byte: &u8| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.');
            (!address.is_empty() && address.iter().all(legal), port)
        }
        _ => {
            let (name, port) = authority.split_at(memchr::memchr(b':', authority).unwrap_or(authority.len()));
            (!name.is_empty() && name.iter().copied().all(is_host_name), port)
        }
    };
    host_is_legal
        && match port {
            [] => true,
            [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
            _ => false,
        }
}

/// Whether a byte may stand in a registered name or an IPv4 address.
const fn is_host_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'%' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')')
        || matches!(byte, b'*' | b'+' | b',' | b';' | b'=')
}

/// Appends a request's head to a buffer.
pub struct Writer<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> Writer<'o> {
    /// Starts with the request line and `Host`.
    pub fn new(out: &'o mut Vec<u8>, method: &str, target: &str, host: &str) -> Writer<'o> {
        debug_assert!(!method.is_empty() && method.bytes().all(is_token), "not a method: {method:?}");
        debug_assert!(target.bytes().all(|byte| matches!(byte, 0x21..=0x7e)), "not a target: {target:?}");
        append_in_line(out, method.as_bytes());
        out.push(b' ');
        append_in_line(out, target.as_bytes());
        out.extend_from_slice(b" HTTP/1.1\r\n");
        append_field(out, "Host", host.as_bytes());
        Writer { out }
    }

    /// Adds a field.
    pub fn field(self, name: &str, value: &[u8]) -> Self {
        append_field(self.out, name, value);
        self
    }

    /// Ends the head of a request without a body.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends the head of a request whose body of `bytes` bytes follows.
    pub fn end_with_length(self, bytes: u64) {
        append_number(self.out, "Content-Length", bytes);
        self.end();
    }
}
