//! Requests: parsed by the server, written by the load generator.
//!
//! Strict where leniency smuggles (RFC 9112): every check that could be read in two ways refuses. Knows no route:
//! the target is handed on as sent.

use super::head::{self, Meaning};
use super::{FIELDS_MAX, Framing, Limits, Reject, Slots, Writer, append_in_line, is_token};
use httparse::{Error, Header, Status};
use std::net::Ipv6Addr;
use std::ops::Range;

/// A request's method; each is the index of its name in [`Method::NAMES`].
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
    /// Any other.
    Other,
}

impl Method {
    /// The names of the methods, and a word for any other.
    pub const NAMES: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "DELETE", "OPTIONS", "other"];

    /// The name of the method.
    pub fn as_str(self) -> &'static str {
        Method::NAMES[self as usize]
    }

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
    /// The field `Host`.
    pub host: Option<&'b [u8]>,
    /// The field `Origin`.
    pub origin: Option<&'b [u8]>,
    /// Whether the target has neither a `?` nor a `%`: it is a path as it stands, or scheme, host and path.
    pub is_plain: bool,
    /// How the body ends.
    pub framing: Framing,
    /// Whether a field says so. Without one there is no body, but some clients send one until they close.
    pub is_framed: bool,
    /// Whether another request may follow on this connection.
    pub keep_alive: bool,
    /// Whether the client speaks HTTP/1.0, and so believes in a connection that stays only if the answer says it does.
    pub is_http10: bool,
    /// Whether the client waits for `100 Continue` before it sends the body.
    pub expect_continue: bool,
    /// Bytes of the head, blank line included: the body starts there.
    pub bytes: usize,
    fields: &'s [Header<'b>],
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
    let Slots(room, room_of_later_minor) = slots;
    let mut request = httparse::Request::new(&mut []);
    let mut parsed = request.parse_with_uninit_headers(window, room);
    if parsed == Err(Error::Version) {
        parsed = parse_later_minor(&mut request, window, room_of_later_minor);
    }
    let bytes = match parsed {
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
    let fields: &'s [Header<'b>] = request.headers;
    let start_line_end = method.len() + 1 + target.len() + " HTTP/1.1".len();
    head::known_lines_end_in_crlf(&window[..bytes], start_line_end, fields)?;
    let is_plain = check_target_form(method, target)?;

    let meaning = Meaning::of(fields)?;
    check_host(&meaning, minor)?;
    if meaning.length_repeated {
        return Err(Reject::bad("two Content-Length fields"));
    }
    let framing = meaning.framing(minor)?;
    if meaning.expects_other {
        return Err(Reject::new(417, "the only expectation met here is 100-continue"));
    }
    Ok(Some(Head {
        method: Method::of(method),
        target: target.as_bytes(),
        host: meaning.host,
        origin: meaning.origin,
        is_plain,
        framing: framing.unwrap_or(Framing::Length(0)),
        is_framed: framing.is_some(),
        keep_alive: meaning.keep_alive(minor),
        is_http10: minor == 0,
        // An HTTP/1.0 client would take the interim answer for the final one.
        expect_continue: meaning.expects_continue && minor == 1,
        bytes: start + bytes,
        fields,
    }))
}

/// Parses a head of HTTP/1.2 to 1.9, which the tokenizer stopped at, as one of HTTP/1.1 (RFC 9110, 2.5).
fn parse_later_minor<'s, 'b>(
    request: &mut httparse::Request<'s, 'b>,
    window: &'b [u8],
    room: &'s mut Vec<Header<'b>>,
) -> httparse::Result<usize> {
    let (Some(method), Some(target)) = (request.method, request.path) else { return Err(Error::Version) };
    let version = window.get(method.len() + 1 + target.len() + 1..).unwrap_or_default();
    let Some([b'2'..=b'9', line_end @ ..]) = version.strip_prefix(b"HTTP/1.") else {
        return Err(Error::Version);
    };
    let fields = match line_end {
        [] | [b'\r'] => return Ok(Status::Partial),
        [b'\r', b'\n', fields @ ..] => fields,
        _ => return Err(Error::NewLine),
    };
    room.resize(FIELDS_MAX, httparse::EMPTY_HEADER);
    let (bytes, count) = match httparse::parse_headers(fields, room)? {
        Status::Complete((bytes, found)) => (bytes, found.len()),
        Status::Partial => return Ok(Status::Partial),
    };
    request.version = Some(1);
    request.headers = &mut room[..count];
    Ok(Status::Complete(window.len() - fields.len() + bytes))
}

/// Whether `input`, which is no head or not a whole one, begins like a HEAD: its answer has no body, whatever is wrong.
pub fn begins_as_head(input: &[u8]) -> bool {
    matches!(skip_empty_lines(input), Ok(Some(start)) if input[start..].starts_with(b"HEAD "))
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

/// The four forms of RFC 9112, 3.2, each for the methods it belongs to; [`Head::is_plain`].
fn check_target_form(method: &str, target: &str) -> Result<bool, Reject> {
    // All that has to be known of its bytes in one pass.
    let found = target.bytes().fold(0, |found, byte| found | BYTES[usize::from(byte)]);
    if found & NOT_ASCII != 0 {
        return Err(Reject::bad("request target is not ASCII"));
    }
    if found & FRAGMENT != 0 {
        return Err(Reject::bad("a fragment in the request target"));
    }
    let legal = match target.as_bytes() {
        // Host and port (RFC 9112, 3.2.3).
        target if method == "CONNECT" => {
            let port = target.iter().rposition(|byte| *byte == b':').map(|at| &target[at + 1..]);
            is_authority(target) && port.is_some_and(|port| !port.is_empty() && !port.ends_with(b"]"))
        }
        [b'/', ..] => true,
        b"*" => method == "OPTIONS",
        _ => is_absolute(target),
    };
    if legal { Ok(found & QUERY_OR_ESCAPE == 0) } else { Err(Reject::bad("malformed request target")) }
}

const NOT_ASCII: u8 = 1;
const FRAGMENT: u8 = 2;
const QUERY_OR_ESCAPE: u8 = 4;
/// In a registered name or an IPv4 address.
const HOST_NAME: u8 = 8;

/// What each byte says of the target or host that it is in: each request has both to be looked at.
const BYTES: [u8; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        table[byte] = match byte as u8 {
            0x80.. => NOT_ASCII,
            b'#' => FRAGMENT,
            b'?' => QUERY_OR_ESCAPE,
            b'%' => QUERY_OR_ESCAPE | HOST_NAME,
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => HOST_NAME,
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' => HOST_NAME,
            _ => 0,
        };
        byte += 1;
    }
    table
};

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
            let address = std::str::from_utf8(address).ok().and_then(|text| text.parse::<Ipv6Addr>().ok());
            (address.is_some(), port)
        }
        _ => {
            let name_bytes = authority.iter().position(|&byte| BYTES[usize::from(byte)] & HOST_NAME == 0);
            let (name, port) = authority.split_at(name_bytes.unwrap_or(authority.len()));
            let is_escape = |at: usize| matches!(name.get(at + 1..at + 3), Some(digits) if digits.iter().all(u8::is_ascii_hexdigit));
            (!name.is_empty() && memchr::memchr_iter(b'%', name).all(is_escape), port)
        }
    };
    host_is_legal
        && match port {
            [] => true,
            [b':', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
            _ => false,
        }
}

/// Begins a request's head with the request line and `Host`.
pub fn write<'o>(out: &'o mut Vec<u8>, method: &str, target: &str, host: &str) -> Writer<'o> {
    debug_assert!(!method.is_empty() && method.bytes().all(is_token), "not a method: {method:?}");
    debug_assert!(target.bytes().all(|byte| matches!(byte, 0x21..=0x7e)), "not a target: {target:?}");
    append_in_line(out, method.as_bytes());
    out.push(b' ');
    append_in_line(out, target.as_bytes());
    out.extend_from_slice(b" HTTP/1.1\r\n");
    Writer { out }.field("Host", host.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The target of a GET with this request line and a good Host, or the status of the refusal.
    fn check(line: &[u8], expected: Result<&[u8], u16>) {
        let input = [line, b"\r\nHost: h\r\n\r\n"].concat();
        let mut slots = Slots::default();
        let target = match parse(&input, &Limits::USUAL, &mut slots) {
            Ok(Some(head)) => {
                assert_eq!(head.bytes, input.len());
                Ok(head.target)
            }
            Ok(None) => panic!("incomplete: {}", input.escape_ascii()),
            Err(reject) => Err(reject.status),
        };
        assert_eq!(target, expected, "{}", line.escape_ascii());
    }

    #[test]
    fn every_visible_ascii_byte_but_the_fragment_sign_is_legal_in_a_target() {
        for byte in 0..=u8::MAX {
            let target = [b"/a", &[byte][..], b"b"].concat();
            let legal = matches!(byte, 0x21..=0x7e) && byte != b'#';
            let line = [b"GET ", &target[..], b" HTTP/1.1"].concat();
            check(&line, if legal { Ok(&target) } else { Err(400) });
            // Long enough that the tokenizer takes its vectored way.
            let target = [&[b'/'; 70][..], &[byte], &[b'a'; 70]].concat();
            let line = [b"GET ", &target[..], b" HTTP/1.1"].concat();
            check(&line, if legal { Ok(&target) } else { Err(400) });
        }
    }

    #[test]
    fn the_default_limit_of_a_target_is_8_kib() {
        let target = vec![b'/'; 8 << 10];
        check(&[b"GET ", &target[..], b" HTTP/1.1"].concat(), Ok(&target));
        check(&[b"GET ", &target[..], b"/ HTTP/1.1"].concat(), Err(414));
    }

    #[test]
    fn versions_are_told_from_garbage_by_their_first_wrong_byte() {
        for (version, status) in [
            ("HTTP/0.9", 505),
            ("HTTP/2", 505),
            ("HTTP/3.0", 505),
            ("HTTP/1.x", 400),
            ("HTTP/1,1", 400),
            ("HTTP/x.1", 400),
            ("HTTP1.1", 400),
            ("HTTPS/1.1", 400),
            ("Http/1.1", 400),
            ("HTTP/1.11", 400),
            ("HTTP/1.21", 400),
            ("HTTP/1.2 ", 400),
            ("HTTP/1.2\n", 400),
            ("", 400),
        ] {
            check(format!("GET / {version}").as_bytes(), Err(status));
        }
    }

    #[test]
    fn a_later_minor_version_is_read_as_1_1() {
        for version in ["HTTP/1.2", "HTTP/1.9"] {
            check(format!("GET /a {version}").as_bytes(), Ok(b"/a"));
            let input = format!("PUT /a {version}\r\nHost: h\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n");
            let mut slots = Slots::default();
            let Ok(Some(head)) = parse(input.as_bytes(), &Limits::USUAL, &mut slots) else {
                panic!("not parsed")
            };
            assert_eq!((head.method, head.framing, head.bytes), (Method::Put, Framing::Chunked, input.len()));
            assert!(head.keep_alive && !head.is_http10);
            assert_eq!(head.field("x"), Some(&b"y"[..]));
        }
    }

    #[test]
    fn a_head_is_known_by_its_first_word() {
        for (input, expected) in [
            (&b"HEAD / HTTP/9.9"[..], true),
            (b"\r\n\r\nHEAD ", true),
            (b"HEAD", false),
            (b"HEADS /", false),
            (b"head /", false),
            (b"GET /HEAD ", false),
            (b"\r\n\r\n\r\nHEAD ", false),
            (b"", false),
        ] {
            assert_eq!(begins_as_head(input), expected, "{}", input.escape_ascii());
        }
    }

    #[test]
    fn fields_are_found_in_any_case_and_listed_in_order() {
        let input = b"PUT /k HTTP/1.1\r\nHost: h\r\nIf-Match: \"1\"\r\nX-a: 1 \r\nx-A: 2\r\n\r\n";
        let mut slots = Slots::default();
        let Ok(Some(head)) = parse(input, &Limits::USUAL, &mut slots) else { panic!("not parsed") };
        assert_eq!(head.field("if-match"), Some(&b"\"1\""[..]));
        assert_eq!(head.field("X-A"), Some(&b"1"[..]));
        assert_eq!(head.field("X"), None);
        let names: Vec<&str> = head.fields().map(|(name, _)| name).collect();
        assert_eq!(names, ["Host", "If-Match", "X-a", "x-A"]);
    }

    #[test]
    fn authorities_are_hosts_with_or_without_ports() {
        for (authority, legal) in [
            ("h", true),
            ("example.com:80", true),
            ("127.0.0.1:8080", true),
            ("h:", true),
            ("a_b-c~d", true),
            ("%41", true),
            ("a%4F:1", true),
            ("%zz", false),
            ("a%4", false),
            ("%", false),
            ("%4:1", false),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("", false),
            (":80", false),
            ("[]", false),
            ("[::1]80", false),
            ("[h]", false),
            ("[:::]", false),
            ("[1.2.3.4]", false),
            ("[1:2]", false),
            ("[fe80::1%25eth0]", false),
            ("::1", false),
            ("h:80:80", false),
            ("h:-1", false),
            ("u@h", false),
            ("h/", false),
            ("h?", false),
            ("h h", false),
            ("h\\", false),
            ("<h>", false),
        ] {
            assert_eq!(is_authority(authority.as_bytes()), legal, "{authority}");
        }
    }

    #[test]
    fn what_is_written_is_parsed_again() {
        let mut out = Vec::new();
        write(&mut out, "PUT", "/kv/a?b", "h:80").field("X", b"y\xff").end_with_length(3);
        assert_eq!(out, b"PUT /kv/a?b HTTP/1.1\r\nHost: h:80\r\nX: y\xff\r\nContent-Length: 3\r\n\r\n");
        let head_bytes = out.len();
        out.extend_from_slice(b"abc");
        let mut slots = Slots::default();
        let Ok(Some(head)) = parse(&out, &Limits::USUAL, &mut slots) else { panic!("not parsed") };
        assert_eq!((head.method, head.target, head.bytes), (Method::Put, &b"/kv/a?b"[..], head_bytes));
        assert_eq!((head.framing, head.keep_alive), (Framing::Length(3), true));
        assert_eq!(head.field("x"), Some(&b"y\xff"[..]));
    }

    #[test]
    fn a_request_without_body_has_no_length() {
        let mut out = Vec::new();
        write(&mut out, "GET", "/", "h").end();
        assert_eq!(out, b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
    }
}
