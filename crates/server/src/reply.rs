//! Answers as bytes: heads with their fields, and the values behind them.
//!
//! Pure but for the clock of the `Date` field.

use super::access_log::Entry;
use super::dashboard;
use super::error::Failure;
use super::head::ReadCondition;
use super::rate::RateState;
use crate::tiered::Served;
use http1::request::{self, Head, Method};
use http1::{Framing, Writer, response};
use kv::{Attributes, Row, Version};
use std::borrow::Cow;
use std::cell::RefCell;
use std::ops::Range;
use std::time::{Duration, Instant, SystemTime};

/// What of the head is needed after it is gone.
pub(super) struct Request {
    pub(super) method: Option<Method>,
    pub(super) framing: Framing,
    pub(super) is_framed: bool,
    pub(super) keep_alive: bool,
    pub(super) is_http10: bool,
    pub(super) expects_continue: bool,
    pub(super) started: Instant,
    /// Where requests are logged, and the head was read.
    pub(super) entry: Option<Box<Entry>>,
    /// What is left to its token, if that has a rate.
    pub(super) rate: Option<Box<RateState>>,
}

impl Request {
    pub(super) fn of(head: &Head<'_, '_>, started: Instant) -> Request {
        Request {
            method: Some(head.method),
            framing: head.framing,
            is_framed: head.is_framed,
            keep_alive: head.keep_alive,
            is_http10: head.is_http10,
            expects_continue: head.expect_continue,
            started,
            entry: None,
            rate: None,
        }
    }

    /// A request whose head could not be parsed, or did not arrive. `input` is as much of it as there is.
    pub(super) fn unparsed(input: &[u8], started: Instant) -> Request {
        Request {
            method: request::begins_as_head(input).then_some(Method::Head),
            framing: Framing::Length(0),
            is_framed: false,
            keep_alive: false,
            is_http10: false,
            expects_continue: false,
            started,
            entry: None,
            rate: None,
        }
    }

    /// Whether its answer has no body.
    pub(super) fn is_head(&self) -> bool {
        self.method == Some(Method::Head)
    }

    /// Whether it changes nothing.
    pub(super) fn is_read(&self) -> bool {
        matches!(self.method, Some(Method::Get | Method::Head))
    }

    /// A failure before anything of it was done: a write says that it was not made, a read needs no such word.
    pub(super) fn not_done(&self, failure: Failure) -> Failure {
        if self.is_read() { failure } else { failure.not_applied() }
    }

    /// What the access log calls it.
    pub(super) fn id(&self) -> Option<&str> {
        self.entry.as_deref().map(Entry::id)
    }
}

/// An answer that is no failure.
pub(super) enum Answer {
    Row {
        row: Row,
        condition: ReadCondition,
        served: Served,
    },
    Made {
        status: u16,
        version: Option<Version>,
    },
    Page {
        status: u16,
        content_type: &'static str,
        text: Cow<'static, str>,
    },
    /// It was made by a [`DataWriter`](super::data::DataWriter).
    Data,
}

pub(super) const TEXT: &str = "text/plain";
pub(super) const JSON: &str = "application/json";
pub(super) const HTML: &str = "text/html; charset=utf-8";
pub(super) const NDJSON: &str = "application/x-ndjson";

impl Answer {
    pub(super) fn page(
        status: u16,
        content_type: &'static str,
        text: impl Into<Cow<'static, str>>,
    ) -> Answer {
        Answer::Page { status, content_type, text: text.into() }
    }
}

/// How long parts of a request took, for `Server-Timing`: to ask the cache, in the store worker's queue, and from there to the
/// answer.
pub(super) type Timing = [(&'static str, Option<Duration>); 3];

/// A cache ahead of this server asks it before it answers; without this it may guess for how long it need not.
pub(super) const NO_CACHE: &str = "Cache-Control: no-cache\r\n";

/// A head without anything unusual is shorter.
const HEAD_BYTES_USUAL: usize = 320;

/// Status line and the fields every answer has. Behind it the connection goes on if that is to `keep_alive`.
pub(super) fn start<'o>(
    output: &'o mut Vec<u8>,
    status: u16,
    request: &Request,
    keep_alive: bool,
) -> Writer<'o> {
    output.reserve(HEAD_BYTES_USUAL);
    let writer = with_date(response::write(output, status));
    let writer = match (keep_alive, request.is_http10) {
        (true, false) => writer,
        (true, true) => writer.field("Connection", b"keep-alive"),
        (false, _) => writer.field("Connection", b"close"),
    };
    match &request.rate {
        None => writer,
        Some(rate) => rate.write(writer),
    }
}

/// Appends the head of an answer with the value or a `part` of it.
pub(super) fn write_row_head(
    output: &mut Vec<u8>,
    request: &Request,
    row: &Row,
    status: u16,
    part: Option<&Range<usize>>,
    served: Served,
    timing: Option<&Timing>,
) {
    let writer = with_etag(start(output, status, request, request.keep_alive), row.version());
    let writer = match served {
        Served::Hit => writer.lines("Cache-Control: no-cache\r\nCache-Status: weir; hit\r\n"),
        _ => writer.lines(NO_CACHE).field("Cache-Status", cache_status(served).as_bytes()),
    };
    let mut writer = with_timing(writer, timing);
    if !row.extra().is_empty() {
        let Attributes { content_encoding, expires, .. } = row.attributes();
        if let Some(at) = expires {
            writer = writer.field("Expires", httpdate::fmt_http_date(at.into()).as_bytes());
        }
        // Of a body that is not there some clients would undo it (RFC 9110, 15.4.5).
        if !content_encoding.is_empty() && status != 304 {
            writer = writer.field("Content-Encoding", content_encoding.as_bytes());
        }
    }
    if status == 304 {
        return writer.end();
    }
    // What the row's writer said, or the default of `kv`.
    let writer = match row.content_type() {
        b"" => writer.lines("Content-Type: application/octet-stream\r\nX-Content-Type-Options: nosniff\r\n"),
        stored => writer.field("Content-Type", stored).lines("X-Content-Type-Options: nosniff\r\n"),
    };
    match part {
        None => writer.end_with_length(row.value().len() as u64),
        Some(part) => {
            let said = format!("bytes {}-{}/{}", part.start, part.end - 1, row.value().len());
            writer.field("Content-Range", said.as_bytes()).end_with_length(part.len() as u64);
        }
    }
}

/// Appends the answer to a write that was made.
pub(super) fn write_made(
    output: &mut Vec<u8>,
    request: &Request,
    status: u16,
    version: Option<Version>,
    timing: Option<&Timing>,
) {
    let mut writer = start(output, status, request, request.keep_alive);
    if let Some(version) = version {
        writer = with_etag(writer, version);
    }
    let writer = with_timing(writer, timing);
    // 204 has neither body nor length.
    if status == 204 { writer.end() } else { writer.end_with_length(0) }
}

/// Appends a text of the server's own.
pub(super) fn write_page(
    output: &mut Vec<u8>,
    request: &Request,
    status: u16,
    content_type: &str,
    body: &str,
) {
    let writer = start(output, status, request, request.keep_alive)
        .field("Content-Type", content_type.as_bytes())
        .field("Cache-Control", b"no-store");
    let writer = match content_type {
        HTML => {
            let policy = dashboard::DASHBOARD.policy.as_bytes();
            writer.lines(dashboard::HEADERS).field("Content-Security-Policy", policy)
        }
        _ => writer,
    };
    writer.end_with_length(body.len() as u64);
    if !request.is_head() {
        output.extend_from_slice(body.as_bytes());
    }
}

/// Appends the answer to a request that came without TLS where only TLS is spoken.
pub(super) fn write_without_tls(output: &mut Vec<u8>) {
    let body = "this port speaks HTTPS only; ask for https:// in place of http://\n";
    start(output, 400, &Request::unparsed(&[], Instant::now()), false)
        .field("Content-Type", TEXT.as_bytes())
        .field("Weir-Outcome", kv::Outcome::NotApplied.name().as_bytes())
        .lines(NO_CACHE)
        .end_with_length(body.len() as u64);
    output.extend_from_slice(body.as_bytes());
}

/// Appends the head of an answer that is made of stored rows. One without a length is in chunks, or ends with the connection.
pub(super) fn write_data_head(
    output: &mut Vec<u8>,
    request: &Request,
    content_type: &str,
    length: Option<usize>,
    link: Option<&str>,
) {
    let mut writer = start(output, 200, request, request.keep_alive)
        .lines(NO_CACHE)
        .field("Content-Type", content_type.as_bytes())
        .lines("X-Content-Type-Options: nosniff\r\n");
    if let Some(path) = link {
        writer = writer.field("Link", format!("<{path}>; rel=\"next\"").as_bytes());
    }
    match length {
        Some(bytes) => writer.end_with_length(bytes as u64),
        None if request.is_http10 => writer.end(),
        None => writer.lines("Transfer-Encoding: chunked\r\n").end(),
    }
}

/// Appends the head of a stream of events, which ends with the connection.
pub(super) fn write_events_head(output: &mut Vec<u8>, request: &Request) {
    start(output, 200, request, false)
        .lines("Content-Type: text/event-stream\r\nCache-Control: no-store\r\n")
        // nginx would hold events back.
        .lines("X-Accel-Buffering: no\r\n")
        .end();
}

/// Appends the answer to a request that failed, behind which the connection goes on or not; the status.
pub(super) type WriteFailure = fn(&mut Vec<u8>, &Failure, &Request, bool) -> u16;

/// The [`WriteFailure`] of the plain interface.
pub(super) fn write_failure(
    output: &mut Vec<u8>,
    failure: &Failure,
    request: &Request,
    keep_alive: bool,
) -> u16 {
    let body = failure.body();
    let writer = start(output, failure.status, request, keep_alive).lines(NO_CACHE);
    let writer = match request.id() {
        None => writer,
        Some(id) => writer.field("X-Request-Id", id.as_bytes()),
    };
    failure.write_head(writer, body.len());
    if !request.is_head() {
        output.extend_from_slice(&body);
    }
    failure.status
}

/// The mark of a read that may be older than what was acknowledged.
pub(super) fn mark(served: Served) -> Option<Cow<'static, str>> {
    matches!(served, Served::Replica | Served::Weak(_)).then(|| cache_status(served))
}

fn cache_status(served: Served) -> Cow<'static, str> {
    let said = match served {
        Served::Weak(consistency) => return format!("weir; fwd=miss; detail=read-{consistency}").into(),
        Served::Hit => "weir; hit",
        Served::Miss { stored: true } => "weir; fwd=miss; stored",
        Served::Miss { stored: false } => "weir; fwd=miss",
        Served::Collapsed => "weir; fwd=miss; collapsed",
        Served::Replica => "weir; fwd=bypass; detail=replica",
    };
    said.into()
}

fn with_etag(writer: Writer<'_>, version: Version) -> Writer<'_> {
    writer.line_around("ETag: \"", version.0, "\"\r\n")
}

fn with_timing<'o>(writer: Writer<'o>, timing: Option<&Timing>) -> Writer<'o> {
    let Some(parts) = timing else { return writer };
    let spell = |(name, took): &(&str, Option<Duration>)| {
        Some(format!("{name};dur={:.3}", (*took)?.as_secs_f64() * 1e3))
    };
    let text = parts.iter().filter_map(spell).collect::<Vec<_>>().join(", ");
    writer.field("Server-Timing", text.as_bytes())
}

thread_local! {
    /// The line `Date` of answers of this thread; empty until it is asked for.
    static DATE: RefCell<String> = const { RefCell::new(String::new()) };
}

/// Makes `Date` say the time of now. Called by the worker several times a second, so that no answer reads the clock.
pub(super) fn renew_date() {
    DATE.set(format!("Date: {}\r\n", httpdate::fmt_http_date(SystemTime::now())));
}

fn with_date(writer: Writer<'_>) -> Writer<'_> {
    if DATE.with_borrow(String::is_empty) {
        renew_date();
    }
    DATE.with_borrow(|date| writer.lines(date))
}
