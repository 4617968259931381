//! Torture of the HTTP codec: raw bytes in, the exact outcome out.
//!
//! A row is a byte sequence and what a connection makes of it: its messages, then whether it is `open` (at the end of
//! a message), has `closed`, or needs `more`. Every row runs whole, byte by byte, and cut in two at every position;
//! the outcome must be the same. A message reads `method target framing 'body' keep|close`, a response has its status
//! in place of method and target, and a refusal is its status alone.

use http1::{Decoder, Framing, Limits, Reject, Slots, request, response};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Small enough for rows that are over them to be written out.
const LIMITS: Limits = Limits { target_bytes: 48, head_bytes: 512 };
const BODY_BYTES_MAX: u64 = 64;

/// Which end of the connection reads.
#[derive(Clone, Copy, Debug)]
enum Reader {
    Server,
    Client,
    /// A client whose requests are all HEAD.
    HeadClient,
}

/// The least that an owner of the codec must do: keep what has not been consumed, and feed it again with more.
struct Connection {
    reader: Reader,
    pending: Vec<u8>,
    body: Option<Body>,
    outcome: Vec<String>,
    closed: bool,
}

/// A message whose head has been read.
struct Body {
    head: String,
    until_close: bool,
    keep_alive: bool,
    expect_continue: bool,
    decoder: Decoder,
    data: Vec<u8>,
}

impl Connection {
    fn new(reader: Reader) -> Connection {
        Connection { reader, pending: Vec::new(), body: None, outcome: Vec::new(), closed: false }
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.pending.extend_from_slice(bytes);
        while !self.closed {
            match self.advance() {
                Ok(0) => break,
                Ok(consumed) => {
                    self.pending.drain(..consumed);
                }
                Err(reject) => {
                    assert!(!reject.detail.is_empty());
                    self.outcome.push(reject.status.to_string());
                    self.body = None;
                    self.closed = true;
                }
            }
        }
    }

    /// Reads a head or a step of a body, and says how many bytes that took.
    fn advance(&mut self) -> Result<usize, Reject> {
        let Some(mut body) = self.body.take() else {
            let Some((bytes, body)) = self.head()? else { return Ok(0) };
            self.settle(body);
            return Ok(bytes);
        };
        let step = body.decoder.decode(&self.pending)?;
        assert!(step.data.end <= step.consumed && step.consumed <= self.pending.len());
        body.data.extend_from_slice(&self.pending[step.data]);
        self.settle(body);
        Ok(step.consumed)
    }

    fn head(&self) -> Result<Option<(usize, Body)>, Reject> {
        let mut slots = Slots::default();
        let (head, framing, keep_alive, expect_continue, bytes) = match self.reader {
            Reader::Server => match request::parse(&self.pending, &LIMITS, &mut slots)? {
                Some(head) => {
                    let name = format!("{:?} {}", head.method, head.target.escape_ascii());
                    (name, head.framing, head.keep_alive, head.expect_continue, head.bytes)
                }
                None => return Ok(None),
            },
            Reader::Client | Reader::HeadClient => {
                let to_head = matches!(self.reader, Reader::HeadClient);
                match response::parse(&self.pending, to_head, &mut slots)?.map(|head| head.outline) {
                    Some(head) => (head.status.to_string(), head.framing, head.keep_alive, false, head.bytes),
                    None => return Ok(None),
                }
            }
        };
        let shown = match framing {
            Framing::Length(bytes) => format!("len{bytes}"),
            Framing::Chunked => "chunked".to_string(),
            Framing::UntilClose => "until-close".to_string(),
        };
        let body = Body {
            head: format!("{head} {shown}"),
            until_close: framing == Framing::UntilClose,
            keep_alive,
            expect_continue,
            decoder: Decoder::new(framing, BODY_BYTES_MAX)?,
            data: Vec::new(),
        };
        Ok(Some((bytes, body)))
    }

    /// Writes the message down if it is complete, else waits for the rest of it.
    fn settle(&mut self, body: Body) {
        if body.decoder.is_done() {
            self.closed = !body.keep_alive;
            self.outcome.push(body.show());
        } else {
            self.body = Some(body);
        }
    }

    /// The peer has nothing more to send.
    fn end(mut self) -> String {
        let state = match self.body.take() {
            Some(body) if body.until_close => {
                self.outcome.push(body.show());
                "closed"
            }
            Some(_) => "more",
            None if self.closed => "closed",
            None if self.pending.is_empty() => "open",
            None => "more",
        };
        self.outcome.push(state.to_string());
        self.outcome.join(" | ")
    }
}

impl Body {
    fn show(&self) -> String {
        let data = match self.data.as_slice() {
            [] => String::new(),
            data => format!(" '{}'", data.escape_ascii()),
        };
        let keep = if self.keep_alive { "keep" } else { "close" };
        let expect = if self.expect_continue { " expect" } else { "" };
        format!("{}{data} {keep}{expect}", self.head)
    }
}

/// What a connection makes of `bytes` when they arrive in pieces that end at `cuts`.
fn outcome(reader: Reader, bytes: &[u8], cuts: impl IntoIterator<Item = usize>) -> String {
    let mut connection = Connection::new(reader);
    let mut start = 0;
    for end in cuts.into_iter().chain([bytes.len()]) {
        connection.feed(&bytes[start..end]);
        start = end;
    }
    connection.end()
}

type Row = (&'static str, &'static [u8], &'static str);

fn check(reader: Reader, rows: &[Row]) {
    let mut wrong = Vec::new();
    for &(name, bytes, expected) in rows {
        let whole = outcome(reader, bytes, []);
        if whole != expected {
            wrong.push(format!("{name}:\n  expected {expected}\n  got      {whole}"));
        }
        let single = outcome(reader, bytes, 1..bytes.len());
        if single != whole {
            wrong.push(format!("{name}, byte by byte:\n  whole {whole}\n  split {single}"));
        }
        for cut in 0..bytes.len() {
            let split = outcome(reader, bytes, [cut]);
            if split != whole {
                wrong.push(format!("{name}, cut at {cut}:\n  whole {whole}\n  split {split}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

/// Eight times the same text.
macro_rules! x8 {
    ($text:expr) => {
        concat!($text, $text, $text, $text, $text, $text, $text, $text)
    };
}

/// Text put together to the bytes of a row.
macro_rules! joined {
    ($($text:expr),*) => {
        concat!($($text),*).as_bytes()
    };
}

/// A request with a chunked body.
macro_rules! chunked {
    ($($text:expr),*) => {
        concat!("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n", $($text),*).as_bytes()
    };
}

#[test]
fn requests_come_out_as_the_table_says() {
    check(Reader::Server, REQUESTS);
}

// A row a line, wherever it ends.
#[rustfmt::skip]
static REQUESTS: &[Row] = &[
    // Plain requests.
    ("nothing", b"", "open"),
    ("a GET", b"GET /kv/a HTTP/1.1\r\nHost: h\r\n\r\n", "Get /kv/a len0 keep | open"),
    ("a HEAD", b"HEAD / HTTP/1.1\r\nHost: h\r\n\r\n", "Head / len0 keep | open"),
    ("a PUT", b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "Put /a len5 'hello' keep | open"),
    ("an empty PUT", b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n", "Put /a len0 keep | open"),
    ("a POST without length", b"POST /a HTTP/1.1\r\nHost: h\r\n\r\n", "Post /a len0 keep | open"),
    ("a DELETE", b"DELETE /a HTTP/1.1\r\nHost: h\r\n\r\n", "Delete /a len0 keep | open"),
    ("OPTIONS of the server", b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", "Options * len0 keep | open"),
    ("a method not known here", b"PATCH /a HTTP/1.1\r\nHost: h\r\n\r\n", "Other /a len0 keep | open"),
    ("methods are case-sensitive", b"get /a HTTP/1.1\r\nHost: h\r\n\r\n", "Other /a len0 keep | open"),
    ("a method of odd token bytes", b"!#$%&'*+-.^_`|~ /a HTTP/1.1\r\nHost: h\r\n\r\n", "Other /a len0 keep | open"),
    ("a GET with a body", b"GET /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx", "Get /a len1 'x' keep | open"),
    ("all 256 byte values are data", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 6\r\n\r\n\0\r\n\xff\x7f\x1b",
        "Put / len6 '\\x00\\r\\n\\xff\\x7f\\x1b' keep | open"),
    ("an empty field value", b"GET / HTTP/1.1\r\nHost: h\r\nAccept-Encoding:\r\n\r\n", "Get / len0 keep | open"),
    ("blanks around a value", b"PUT / HTTP/1.1\r\nHost:\t h \t\r\nContent-Length:  1 \t\r\n\r\nx", "Put / len1 'x' keep | open"),
    ("bytes above 0x7f in a value", b"GET / HTTP/1.1\r\nHost: h\r\nX: \xff\x80\r\n\r\n", "Get / len0 keep | open"),

    // Incomplete ones.
    ("half a request line", b"GET /a HT", "more"),
    ("a request line only", b"GET /a HTTP/1.1\r\n", "more"),
    ("no blank line yet", b"GET /a HTTP/1.1\r\nHost: h\r\n", "more"),
    ("half a blank line", b"GET /a HTTP/1.1\r\nHost: h\r\n\r", "more"),
    ("half a body", b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel", "more"),
    ("a body not begun", b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n", "more"),

    // Empty lines ahead.
    ("one empty line ahead", b"\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "Get / len0 keep | open"),
    ("two empty lines ahead", b"\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "Get / len0 keep | open"),
    ("three empty lines ahead", b"\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a bare LF ahead", b"\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a bare CR ahead", b"\rGET / HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("an empty line and no more", b"\r\n", "more"),
    ("a blank ahead", b" GET / HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("an empty line after a body", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
        "Put / len1 'x' keep | Get /b len0 keep | open"),

    // Pipelining.
    ("two requests", b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
        "Get /a len0 keep | Get /b len0 keep | open"),
    ("one and a half", b"GET /a HTTP/1.1\r\nHost: h\r\n\r\nGET /b HT", "Get /a len0 keep | more"),
    ("two bodies", b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhiPUT /b HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nyou",
        "Put /a len2 'hi' keep | Put /b len3 'you' keep | open"),
    ("nothing counts after close", b"GET /a HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n",
        "Get /a len0 close | closed"),
    ("nothing counts after a refusal", b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("garbage after a good one", b"GET /a HTTP/1.1\r\nHost: h\r\n\r\n\0\0\0", "Get /a len0 keep | 400 | closed"),
    ("a body longer than its length starts the next request", b"PUT /a HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx y\r\n",
        "Put /a len1 'x' keep | 400 | closed"),

    // The request line.
    ("no version", b"GET /a\r\nHost: h\r\n\r\n", "400 | closed"),
    ("no target", b"GET HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("an empty target", b"GET  HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("two blanks before the version", b"GET /a  HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a tab for a blank", b"GET\t/a HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a blank after the version", b"GET /a HTTP/1.1 \r\nHost: h\r\n\r\n", "400 | closed"),
    ("a blank in the target", b"GET /a b HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a fragment", b"GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("UTF-8 in the target", b"GET /\xc3\xa9 HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("bytes that are not UTF-8 in the target", b"GET /\xff HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("NUL in the target", b"GET /\0 HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("DEL in the target", b"GET /\x7f HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a bare CR in the target", b"GET /\rHTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a relative target", b"GET a HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a query without a path", b"GET ?a HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a star for GET", b"GET * HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("an authority for GET", b"GET h:80 HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("CONNECT", b"CONNECT h:443 HTTP/1.1\r\nHost: h:443\r\n\r\n", "Other h:443 len0 keep | open"),
    ("CONNECT to a path", b"CONNECT /a HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("odd but legal target bytes", b"GET //a/../%2f?b=\"<>\\^`{|}&c HTTP/1.1\r\nHost: h\r\n\r\n",
        "Get //a/../%2f?b=\\\"<>\\\\^`{|}&c len0 keep | open"),
    ("absolute form", b"GET http://other/a HTTP/1.1\r\nHost: h\r\n\r\n", "Get http://other/a len0 keep | open"),
    ("absolute form in capitals, with port", b"GET HTTP://h:80/a HTTP/1.1\r\nHost: h\r\n\r\n", "Get HTTP://h:80/a len0 keep | open"),
    ("absolute form without a path", b"GET https://h?q HTTP/1.1\r\nHost: h\r\n\r\n", "Get https://h?q len0 keep | open"),
    ("absolute form without a host", b"GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("absolute form with a user", b"GET http://u@h/a HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("absolute form still needs Host", b"GET http://h/a HTTP/1.1\r\n\r\n", "400 | closed"),
    ("absolute form of another scheme", b"GET ftp://h/a HTTP/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a TLS hello", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "400 | closed"),

    // Versions.
    ("HTTP/0.9", b"GET /\r\n", "400 | closed"),
    ("HTTP/1.2 is read as 1.1", b"GET / HTTP/1.2\r\nHost: h\r\nX: y\r\n\r\n", "Get / len0 keep | open"),
    ("HTTP/1.9 with chunks", b"POST / HTTP/1.9\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n", "Post / chunked 'x' keep | open"),
    ("HTTP/1.2 without Host", b"GET / HTTP/1.2\r\n\r\n", "400 | closed"),
    ("HTTP/1.2 with a bare LF", b"GET / HTTP/1.2\nHost: h\r\n\r\n", "400 | closed"),
    ("HTTP/1.2 with a bare LF behind a field", b"GET / HTTP/1.2\r\nHost: h\n\r\n", "400 | closed"),
    ("HTTP/1.2 with a fold", b"GET / HTTP/1.2\r\nHost: h\r\nX: a\r\n b\r\n\r\n", "400 | closed"),
    ("HTTP/1.2 with 65 fields", joined!("GET / HTTP/1.2\r\nHost: h\r\n", x8!(x8!("a:\r\n")), "\r\n"), "431 | closed"),
    ("HTTP/1.2 with a head over the limit", joined!("GET / HTTP/1.2\r\nHost: h\r\nX: ", x8!(x8!("abcdefg")), x8!("abcd"), "e\r\n\r\n"), "431 | closed"),
    ("half of HTTP/1.2", b"GET / HTTP/1.2\r\nHost", "more"),
    ("HTTP/2.0", b"GET / HTTP/2.0\r\nHost: h\r\n\r\n", "505 | closed"),
    ("HTTP/0.9 by name", b"GET / HTTP/0.9\r\nHost: h\r\n\r\n", "505 | closed"),
    ("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505 | closed"),
    ("a version in lower case", b"GET / http/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("another protocol", b"GET / ICY/1.1\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a version with two digits", b"GET / HTTP/1.10\r\nHost: h\r\n\r\n", "400 | closed"),
    ("a version without a minor", b"GET / HTTP/1\r\nHost: h\r\n\r\n", "400 | closed"),

    // Lines.
    ("bare LF after the request line", b"GET / HTTP/1.1\nHost: h\r\n\r\n", "400 | closed"),
    ("bare LF after a field", b"GET / HTTP/1.1\r\nHost: h\n\r\n", "400 | closed"),
    ("bare LF for the blank line", b"GET / HTTP/1.1\r\nHost: h\r\n\n", "400 | closed"),
    ("bare LF everywhere", b"GET / HTTP/1.1\nHost: h\n\n", "400 | closed"),
    ("bare LF in an incomplete head", b"GET / HTTP/1.1\r\nHost: h\n", "400 | closed"),
    ("bare CR in a value", b"GET / HTTP/1.1\r\nHost: h\r\nX: a\rb\r\n\r\n", "400 | closed"),
    ("bare CR after a field", b"GET / HTTP/1.1\r\nHost: h\rX: b\r\n\r\n", "400 | closed"),
    ("CR CR LF", b"GET / HTTP/1.1\r\nHost: h\r\r\n\r\n", "400 | closed"),
    ("a folded field", b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n", "400 | closed"),
    ("a field folded by a tab", b"GET / HTTP/1.1\r\nHost: h\r\nX: a\r\n\tb\r\n\r\n", "400 | closed"),
    ("a fold before the first field", b"GET / HTTP/1.1\r\n Host: h\r\n\r\n", "400 | closed"),
    ("a fold that hides a coding", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", "400 | closed"),

    // Fields.
    ("a blank before the colon", b"GET / HTTP/1.1\r\nHost : h\r\n\r\n", "400 | closed"),
    ("a tab before the colon", b"GET / HTTP/1.1\r\nHost: h\r\nX\t: a\r\n\r\n", "400 | closed"),
    ("a blank in a name", b"GET / HTTP/1.1\r\nHost: h\r\nX Y: a\r\n\r\n", "400 | closed"),
    ("an empty name", b"GET / HTTP/1.1\r\nHost: h\r\n: a\r\n\r\n", "400 | closed"),
    ("no colon", b"GET / HTTP/1.1\r\nHost: h\r\nX\r\n\r\n", "400 | closed"),
    ("a name that is no token", b"GET / HTTP/1.1\r\nHost: h\r\nX(a): a\r\n\r\n", "400 | closed"),
    ("a name above 0x7f", b"GET / HTTP/1.1\r\nHost: h\r\nX\xc3\xa9: a\r\n\r\n", "400 | closed"),
    ("NUL in a value", b"GET / HTTP/1.1\r\nHost: h\r\nX: a\0b\r\n\r\n", "400 | closed"),
    ("NUL in a name", b"GET / HTTP/1.1\r\nHost: h\r\nX\0: a\r\n\r\n", "400 | closed"),
    ("a control byte in a value", b"GET / HTTP/1.1\r\nHost: h\r\nX: \x01\r\n\r\n", "400 | closed"),
    ("DEL in a value", b"GET / HTTP/1.1\r\nHost: h\r\nX: \x7f\r\n\r\n", "400 | closed"),

    // Host.
    ("no Host", b"GET / HTTP/1.1\r\n\r\n", "400 | closed"),
    ("two Hosts", b"GET / HTTP/1.1\r\nHost: h\r\nHost: h\r\n\r\n", "400 | closed"),
    ("two Hosts in different case", b"GET / HTTP/1.1\r\nHost: a\r\nhOST: b\r\n\r\n", "400 | closed"),
    ("two Hosts in HTTP/1.0", b"GET / HTTP/1.0\r\nHost: h\r\nHost: h\r\n\r\n", "400 | closed"),
    ("an empty Host", b"GET / HTTP/1.1\r\nHost:\r\n\r\n", "Get / len0 keep | open"),
    ("Host with a port", b"GET / HTTP/1.1\r\nHost: h:8080\r\n\r\n", "Get / len0 keep | open"),
    ("Host with an IPv6 address", b"GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", "Get / len0 keep | open"),
    ("Host with an open bracket", b"GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", "400 | closed"),
    ("Host with a word for a port", b"GET / HTTP/1.1\r\nHost: h:http\r\n\r\n", "400 | closed"),
    ("Host with two ports", b"GET / HTTP/1.1\r\nHost: h:1:2\r\n\r\n", "400 | closed"),
    ("Host with a blank", b"GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400 | closed"),
    ("Host with a bad escape", b"GET / HTTP/1.1\r\nHost: %zz\r\n\r\n", "400 | closed"),
    ("Host with too many colons", b"GET / HTTP/1.1\r\nHost: [:::]\r\n\r\n", "400 | closed"),
    ("Host with an IPv4 address in brackets", b"GET / HTTP/1.1\r\nHost: [1.2.3.4]\r\n\r\n", "400 | closed"),
    ("Host with a list", b"GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400 | closed"),
    ("Host with a path", b"GET / HTTP/1.1\r\nHost: h/a\r\n\r\n", "400 | closed"),
    ("Host with a user", b"GET / HTTP/1.1\r\nHost: u@h\r\n\r\n", "400 | closed"),
    ("Host with a fragment", b"GET / HTTP/1.1\r\nHost: h#a\r\n\r\n", "400 | closed"),
    ("Host above 0x7f", b"GET / HTTP/1.1\r\nHost: \xc3\xa9\r\n\r\n", "400 | closed"),

    // Content-Length.
    ("leading zeros", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0005\r\n\r\nhello", "Put / len5 'hello' keep | open"),
    ("a plus", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: +5\r\n\r\nhello", "400 | closed"),
    ("a minus", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: -5\r\n\r\nhello", "400 | closed"),
    ("a negative zero", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: -0\r\n\r\n", "400 | closed"),
    ("no number", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length:\r\n\r\nhello", "400 | closed"),
    ("a word", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: five\r\n\r\nhello", "400 | closed"),
    ("hexadecimal", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 0x5\r\n\r\nhello", "400 | closed"),
    ("a fraction", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5.0\r\n\r\nhello", "400 | closed"),
    ("a blank inside", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1 0\r\n\r\nhello", "400 | closed"),
    ("digits above 0x7f", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: \xd9\xa5\r\n\r\nhello", "400 | closed"),
    ("a list of equals", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5, 5\r\n\r\nhello", "400 | closed"),
    ("the same length twice", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "400 | closed"),
    ("two lengths", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello", "400 | closed"),
    ("2^64", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551616\r\n\r\n", "400 | closed"),
    ("2^64 + 5", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551621\r\n\r\nhello", "400 | closed"),
    ("2^64 - 1", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 18446744073709551615\r\n\r\n", "413 | closed"),
    ("one byte over the body limit", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 65\r\n\r\n", "413 | closed"),

    // Transfer-Encoding.
    ("chunks", b"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n",
        "Put /a chunked 'hello world' keep | open"),
    ("no chunks", b"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "Put /a chunked keep | open"),
    ("the coding in capitals", b"PUT /a HTTP/1.1\r\nHost: h\r\nTRANSFER-ENCODING: CHUNKED\r\n\r\n1\r\nx\r\n0\r\n\r\n",
        "Put /a chunked 'x' keep | open"),
    ("chunked requests in a row", b"PUT /a HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n\
        PUT /b HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nb\r\n0\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\n\r\n",
        "Put /a chunked 'a' keep | Put /b chunked 'b' keep | Get /c len0 keep | open"),
    ("CL.TE", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nSMUGGLED", "400 | closed"),
    ("TE.CL", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n8\r\nSMUGGLED\r\n0\r\n\r\n",
        "400 | closed"),
    ("CL.TE with an unknown coding", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\nTransfer-Encoding: x\r\n\r\nabc", "400 | closed"),
    ("TE.TE", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-encoding: x\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("TE twice the same", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "400 | closed"),
    ("chunked twice", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("chunked not last", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("chunked with a parameter", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked;q=1\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("chunked in quotes", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("chunked and a comma", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("a comma and chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: , chunked\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("a vertical tab and chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("an empty coding", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding:\r\n\r\n", "400 | closed"),
    ("a blank before the colon of the coding", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", "400 | closed"),
    ("xchunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", "501 | closed"),
    ("identity", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: identity\r\n\r\n", "501 | closed"),
    ("gzip", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n", "501 | closed"),
    ("gzip and chunked", b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501 | closed"),
    ("chunked in HTTP/1.0", b"POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400 | closed"),

    // Chunks. The head is the shortest there is, so that the body is what one sees.
    ("a size in hexadecimal", chunked!("A\r\n0123456789\r\na\r\n0123456789\r\n0\r\n\r\n"),
        "Post / chunked '01234567890123456789' keep | open"),
    ("a size with leading zeros", chunked!("0001\r\nx\r\n000\r\n\r\n"), "Post / chunked 'x' keep | open"),
    ("extensions", chunked!("1;a=b;c=\"d e\"\r\nx\r\n0;z\r\n\r\n"), "Post / chunked 'x' keep | open"),
    ("extensions with blanks", chunked!("1 ;a\r\nx\r\n1\t; a = b ; c=\"\\\"\"\r\ny\r\n0\r\n\r\n"), "Post / chunked 'xy' keep | open"),
    ("an extension without a name", chunked!("1;\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("an extension without its value", chunked!("1;a=\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("an extension with a blank at the end", chunked!("1;a \r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("an extension that is quoted without end", chunked!("1;a=\"b\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("an extension that is no token", chunked!("1;a/b\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("trailers", chunked!("1\r\nx\r\n0\r\nA: b\r\nC:\r\n\r\n"), "Post / chunked 'x' keep | open"),
    ("line ends as data", chunked!("4\r\n\r\n\r\n\r\n0\r\n\r\n"), "Post / chunked '\\r\\n\\r\\n' keep | open"),
    ("no last chunk yet", chunked!("1\r\nx\r\n"), "more"),
    ("no end of trailers yet", chunked!("1\r\nx\r\n0\r\nA: b\r\n"), "more"),
    ("no blank line yet behind the last chunk", chunked!("0\r\n"), "more"),
    ("an empty size", chunked!("\r\n"), "400 | closed"),
    ("a size of extension only", chunked!(";a\r\n"), "400 | closed"),
    ("a negative chunk", chunked!("-1\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("a positive chunk", chunked!("+1\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("a size with 0x", chunked!("0x1\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("a size with an underscore", chunked!("1_0\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("a blank before the size", chunked!(" 1\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("a blank behind the size", chunked!("1 \r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("no hexadecimal", chunked!("G\r\n"), "400 | closed"),
    ("a size of 2^64", chunked!("10000000000000000\r\nx"), "400 | closed"),
    ("a size of 2^64 - 1", chunked!("FFFFFFFFFFFFFFFF\r\nx"), "413 | closed"),
    ("sizes whose sum overflows", chunked!("1\r\nx\r\nFFFFFFFFFFFFFFFF\r\ny"), "413 | closed"),
    ("seventeen zeros", chunked!("00000000000000000\r\n\r\n"), "400 | closed"),
    ("bare LF behind the size", chunked!("1\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("bare CR behind the size", chunked!("1\rx\r\n0\r\n\r\n"), "400 | closed"),
    ("bare LF behind the data", chunked!("1\r\nx\n0\r\n\r\n"), "400 | closed"),
    ("bare LF behind an extension", chunked!("1;a\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("bare LF behind the last chunk", chunked!("0\n\r\n"), "400 | closed"),
    ("bare LF for the last line", chunked!("0\r\n\n"), "400 | closed"),
    ("bare CR for the last line", chunked!("0\r\n\rG"), "400 | closed"),
    ("a control byte in an extension", chunked!("1;\0\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("data longer than its chunk", chunked!("1\r\nxy\r\n0\r\n\r\n"), "400 | closed"),
    ("data shorter than its chunk", chunked!("3\r\nx\r\n0\r\n\r\n"), "400 | closed"),
    ("a long extension", chunked!("1;", x8!(x8!("abcd"))), "400 | closed"),
    ("a trailer without a colon", chunked!("0\r\nA\r\n\r\n"), "400 | closed"),
    ("a trailer with bare LF", chunked!("0\r\nA: b\n\r\n"), "400 | closed"),
    ("a folded trailer", chunked!("0\r\nA: b\r\n c\r\n\r\n"), "400 | closed"),
    ("a trailer with a control byte", chunked!("0\r\nA: \0\r\n\r\n"), "400 | closed"),
    ("a request for a trailer", chunked!("0\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), "400 | closed"),
    ("64 trailers", chunked!("0\r\n", x8!(x8!("a:\r\n")), "\r\n"), "Post / chunked keep | open"),
    ("65 trailers", chunked!("0\r\n", x8!(x8!("a:\r\n")), "a:\r\n\r\n"), "431 | closed"),
    ("chunks up to the body limit", chunked!("20\r\n", x8!("abcd"), "\r\n20\r\n", x8!("abcd"), "\r\n0\r\n\r\n"),
        concat!("Post / chunked '", x8!("abcdabcd"), "' keep | open")),
    ("chunks over the body limit", chunked!("20\r\n", x8!("abcd"), "\r\n21\r\n", x8!("abcd"), "e\r\n0\r\n\r\n"), "413 | closed"),

    // Connection.
    ("close", b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "Get / len0 close | closed"),
    ("close in a list, in capitals", b"GET / HTTP/1.1\r\nHost: h\r\nConnection: TE , CLOSE\r\n\r\n", "Get / len0 close | closed"),
    ("close in a second field", b"GET / HTTP/1.1\r\nHost: h\r\nConnection: te\r\nConnection: close\r\n\r\n", "Get / len0 close | closed"),
    ("close and keep-alive", b"GET / HTTP/1.1\r\nHost: h\r\nConnection: keep-alive, close\r\n\r\n", "Get / len0 close | closed"),
    ("a token that only begins like close", b"GET / HTTP/1.1\r\nHost: h\r\nConnection: closed\r\n\r\n", "Get / len0 keep | open"),
    ("HTTP/1.0 closes", b"GET / HTTP/1.0\r\n\r\n", "Get / len0 close | closed"),
    ("HTTP/1.0 stays if asked", b"GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", "Get / len0 keep | open"),
    ("HTTP/1.0 with a body", b"POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\nhi", "Post / len2 'hi' close | closed"),

    // Expect.
    ("100-continue", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx", "Put / len1 'x' keep expect | open"),
    ("100-continue in capitals", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: 100-CONTINUE\r\n\r\nx",
        "Put / len1 'x' keep expect | open"),
    ("100-continue in HTTP/1.0", b"PUT / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx", "Put / len1 'x' close | closed"),
    ("another expectation", b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nExpect: tea\r\n\r\nx", "417 | closed"),
    ("a second expectation", b"PUT / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\nExpect: tea\r\n\r\n", "417 | closed"),

    // Limits.
    ("a target at the limit", joined!("GET /", x8!("abcde"), "abcdefg HTTP/1.1\r\nHost: h\r\n\r\n"),
        concat!("Get /", x8!("abcde"), "abcdefg len0 keep | open")),
    ("a target over the limit", joined!("GET /", x8!("abcde"), "abcdefgh HTTP/1.1\r\nHost: h\r\n\r\n"), "414 | closed"),
    ("a target over the limit and no end", joined!("GET /", x8!(x8!("abcde"))), "414 | closed"),
    ("a target over the limit and then garbage", joined!("GET /", x8!("abcdefgh"), "\0"), "414 | closed"),
    ("garbage and then a target over the limit", joined!("GET /\0", x8!("abcdefgh")), "400 | closed"),
    ("a target over the limit and another version", joined!("GET /", x8!("abcdefgh"), " HTTP/2.0\r\n"), "414 | closed"),
    ("a method without end", joined!(x8!(x8!("ABCDEFGHI"))), "431 | closed"),
    ("64 fields", joined!("GET / HTTP/1.1\r\nHost: h\r\n", x8!("a:\r\nb:\r\nc:\r\nd:\r\ne:\r\nf:\r\ng:\r\n"),
        "a:\r\na:\r\na:\r\na:\r\na:\r\na:\r\na:\r\n\r\n"), "Get / len0 keep | open"),
    ("65 fields", joined!("GET / HTTP/1.1\r\nHost: h\r\n", x8!(x8!("a:\r\n")), "\r\n"), "431 | closed"),
    ("65 fields and no end", joined!("GET / HTTP/1.1\r\nHost: h\r\n", x8!(x8!("a:\r\n"))), "431 | closed"),
    ("65 fields after a bare LF", joined!("GET / HTTP/1.1\nHost: h\r\n", x8!(x8!("a:\r\n")), "\r\n"), "400 | closed"),
    ("a bare LF after 65 fields", joined!("GET / HTTP/1.1\r\nHost: h\r\n", x8!(x8!("a:\r\n")), "\n"), "431 | closed"),
    // 16 + 9 + 3 + 480 + 2 + 2 bytes.
    ("a head at the limit", joined!("GET / HTTP/1.1\r\nHost: h\r\nX: ", x8!(x8!("abcdefg")), x8!("abcd"), "\r\n\r\n"),
        "Get / len0 keep | open"),
    ("a head over the limit", joined!("GET / HTTP/1.1\r\nHost: h\r\nX: ", x8!(x8!("abcdefg")), x8!("abcd"), "e\r\n\r\n"),
        "431 | closed"),
    ("a head over the limit and no end", joined!("GET / HTTP/1.1\r\nHost: h\r\nX: ", x8!(x8!("abcdefgh"))), "431 | closed"),
    ("empty lines count for the limit", joined!("\r\nGET / HTTP/1.1\r\nHost: h\r\nX: ", x8!(x8!("abcdefg")), x8!("abcd"), "\r\n\r\n"),
        "431 | closed"),
    ("garbage beyond the limit is not looked at", joined!("GET / HTTP/1.1\r\nHost: h\r\nX: ", x8!(x8!("abcdefg")), x8!("abcd"), "abcd\0"),
        "431 | closed"),
];

#[test]
fn responses_come_out_as_the_table_says() {
    check(Reader::Client, RESPONSES);
}

#[rustfmt::skip]
static RESPONSES: &[Row] = &[
    ("a 200", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "200 len2 'hi' keep | open"),
    ("two in a row", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        "200 len2 'hi' keep | 404 len0 keep | open"),
    ("no reason", b"HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", "200 len0 keep | open"),
    ("no blank before no reason", b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", "200 len0 keep | open"),
    ("a reason above 0x7f", b"HTTP/1.1 200 \xc3\xa9\r\nContent-Length: 0\r\n\r\n", "200 len0 keep | open"),
    ("interim, then final", b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
        "100 len0 keep | 201 len0 keep | open"),
    ("interim with a length", b"HTTP/1.1 103 Early Hints\r\nContent-Length: 5\r\n\r\n", "103 len0 keep | open"),
    ("204 has no body", b"HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "204 len0 keep | 200 len0 keep | open"),
    ("304 has no body", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "304 len0 keep | open"),
    ("chunks", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", "200 chunked 'hi' keep | open"),
    ("until close", b"HTTP/1.1 200 OK\r\n\r\nall there is", "200 until-close 'all there is' close | closed"),
    ("until close, and empty", b"HTTP/1.1 200 OK\r\n\r\n", "200 until-close close | closed"),
    ("until close, over the limit", joined!("HTTP/1.1 200 OK\r\n\r\n", x8!("abcdefgh"), "i"), "413 | closed"),
    ("half a body", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", "more"),
    ("close", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\nHTTP/1.1 200 OK\r\n", "200 len0 close | closed"),
    ("HTTP/1.0 closes", b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", "200 len0 close | closed"),
    ("HTTP/1.0 stays if it says so", b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n", "200 len0 keep | open"),
    ("HTTP/1.0 stays, but until close", b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nx", "200 until-close 'x' close | closed"),
    ("the same length twice", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 01\r\n\r\nx", "200 len1 'x' keep | open"),
    ("two lengths", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx", "400 | closed"),
    ("a length with a plus", b"HTTP/1.1 200 OK\r\nContent-Length: +1\r\n\r\nx", "400 | closed"),
    ("both framings", b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400 | closed"),
    ("both framings without a body", b"HTTP/1.1 204 No Content\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "400 | closed"),
    ("gzip", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", "501 | closed"),
    ("chunked in HTTP/1.0", b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "400 | closed"),
    ("an empty line ahead", b"\r\nHTTP/1.1 200 OK\r\n\r\n", "400 | closed"),
    ("a bare LF", b"HTTP/1.1 200 OK\nContent-Length: 0\r\n\r\n", "400 | closed"),
    ("a folded field", b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", "400 | closed"),
    ("a blank before the colon", b"HTTP/1.1 200 OK\r\nContent-Length : 0\r\n\r\n", "400 | closed"),
    ("a status of two digits", b"HTTP/1.1 20 OK\r\n\r\n", "400 | closed"),
    ("a status of four digits", b"HTTP/1.1 2000 OK\r\n\r\n", "400 | closed"),
    ("status 099", b"HTTP/1.1 099 OK\r\n\r\n", "400 | closed"),
    ("status 600", b"HTTP/1.1 600 OK\r\n\r\n", "400 | closed"),
    ("two blanks before the status", b"HTTP/1.1  200 OK\r\n\r\n", "400 | closed"),
    ("a control byte in the reason", b"HTTP/1.1 200 O\0K\r\n\r\n", "400 | closed"),
    ("HTTP/2", b"HTTP/2 200\r\n\r\n", "505 | closed"),
    ("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n", "400 | closed"),
    ("65 fields", joined!("HTTP/1.1 200 OK\r\n", x8!(x8!("a:\r\n")), "a:\r\n\r\n"), "431 | closed"),
];

#[test]
fn responses_to_head_have_no_body() {
    check(Reader::HeadClient, RESPONSES_TO_HEAD);
}

#[rustfmt::skip]
static RESPONSES_TO_HEAD: &[Row] = &[
    ("a length", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n",
        "200 len0 keep | 404 len0 keep | open"),
    ("chunked", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "200 len0 keep | open"),
    ("neither", b"HTTP/1.1 200 OK\r\n\r\n", "200 len0 keep | open"),
    ("both", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", "400 | closed"),
];

/// Damages the rows at random; whatever comes of it, it must not panic and must not depend on the cuts.
#[test]
fn mutated_streams_neither_panic_nor_depend_on_how_they_are_cut() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x6874_7470);
    let tables =
        [(Reader::Server, REQUESTS), (Reader::Client, RESPONSES), (Reader::HeadClient, RESPONSES_TO_HEAD)];
    for _ in 0..5_000 {
        let (reader, rows) = tables[below(&mut rng, tables.len())];
        let mut bytes = rows[below(&mut rng, rows.len())].1.to_vec();
        for _ in 0..=below(&mut rng, 3) {
            mutate(&mut rng, &mut bytes, rows);
        }
        let whole = outcome(reader, &bytes, []);
        let mut cuts: Vec<usize> = (0..4).map(|_| below(&mut rng, bytes.len() + 1)).collect();
        cuts.sort_unstable();
        assert_eq!(
            outcome(reader, &bytes, cuts.iter().copied()),
            whole,
            "{} at {cuts:?}",
            bytes.escape_ascii()
        );
        assert_eq!(
            outcome(reader, &bytes, 1..bytes.len().max(1)),
            whole,
            "{} byte by byte",
            bytes.escape_ascii()
        );
    }
}

/// Bytes that mean something to a parser of HTTP, more often than chance would have them.
const TELLING: &[u8] = b"\r\n\0 \t:;,#/09aF+-x\x7f\x80\xff";

fn mutate(rng: &mut Xoshiro256PlusPlus, bytes: &mut Vec<u8>, rows: &[Row]) {
    let at = below(rng, bytes.len() + 1);
    let end = (at + below(rng, 12)).min(bytes.len());
    match below(rng, 6) {
        0 => bytes.insert(at, TELLING[below(rng, TELLING.len())]),
        1 if at < bytes.len() => bytes[at] = TELLING[below(rng, TELLING.len())],
        2 if at < bytes.len() => bytes[at] ^= 1 << below(rng, 8),
        3 => drop(bytes.drain(at..end)),
        4 => {
            let copy = bytes[at..end].to_vec();
            bytes.splice(at..at, copy);
        }
        _ => {
            let other = rows[below(rng, rows.len())].1;
            bytes.splice(at..end, other.iter().copied());
        }
    }
}

fn below(rng: &mut Xoshiro256PlusPlus, bound: usize) -> usize {
    // The bias of the remainder does not matter here.
    rng.next_u64() as usize % bound
}
