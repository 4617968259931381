//! The access log: a line of JSON for each request that is logged.
//!
//! Nobody waits to log. A worker collects lines and hands them on several times a second; a thread of the program takes
//! and writes them. A line that comes faster than allowed, or finds the queue full, is dropped and counted.

use super::error::Failure;
use super::head::path_and_query;
use super::rate::RateLimiter;
use crate::tiered::Served;
use http1::request::{Head, Method};
use kv::Outcome;
use kv::counters::{Counter, micros};
use parking_lot::{Condvar, Mutex};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::borrow::Cow;
use std::cell::RefCell;
use std::fmt::Write;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// Most bytes of lines that wait to be written.
const QUEUE_BYTES_MAX: usize = 8 << 20;
/// A worker hands its lines on when they amount to this, or at its next check of timeouts.
const WORKER_BYTES_MAX: usize = 32 << 10;
/// Longest id that is taken from a request's `X-Request-Id`.
const ID_BYTES_MAX: usize = 128;

/// Where workers put lines, and where the program's thread takes them.
#[derive(Debug)]
pub struct AccessLog {
    /// Part of the ordinary answers that are logged. Failures always are.
    sample: f64,
    limiter: RateLimiter,
    queue: Mutex<Queue>,
    changed: Condvar,
    /// Lines given to the program.
    pub(super) lines: Counter,
    /// Lines that were not written.
    pub(super) dropped: Counter,
    /// Dropped lines that the log has reported.
    reported: Counter,
}

#[derive(Debug, Default)]
struct Queue {
    bytes: usize,
    parts: Vec<Vec<u8>>,
    is_closed: bool,
}

impl AccessLog {
    /// A log of `sample` of the ordinary answers, from 0 to 1, and of at most `lines_per_sec` lines.
    pub fn new(sample: f64, lines_per_sec: u32) -> AccessLog {
        AccessLog {
            sample,
            limiter: RateLimiter::new(lines_per_sec.into(), lines_per_sec),
            queue: Mutex::default(),
            changed: Condvar::new(),
            lines: Counter::default(),
            dropped: Counter::default(),
            reported: Counter::default(),
        }
    }

    /// Waits for lines, `patience` at most, and takes all there are; `None` when it was closed and all were taken.
    pub fn take(&self, patience: Duration) -> Option<Vec<Vec<u8>>> {
        let mut queue = self.queue.lock();
        self.changed.wait_while_for(&mut queue, |queue| queue.parts.is_empty() && !queue.is_closed, patience);
        let parts = std::mem::take(&mut queue.parts);
        queue.bytes = 0;
        (!parts.is_empty() || !queue.is_closed).then_some(parts)
    }

    /// Counts lines that were taken but could not be written.
    pub fn not_written(&self, lines: u64) {
        self.dropped.add(lines);
    }

    /// If there are dropped lines that the log has not reported yet, `write`s a line with their number.
    pub fn report_dropped(&self, write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let since = self.dropped.get() - self.reported.get();
        if since > 0 {
            let time = humantime::format_rfc3339_micros(SystemTime::now());
            write(format!("{{\"time\":\"{time}\",\"dropped\":{since}}}\n").as_bytes())?;
            self.reported.add(since);
        }
        Ok(())
    }

    /// No more lines come.
    pub fn close(&self) {
        self.queue.lock().is_closed = true;
        self.changed.notify_all();
    }

    fn put(&self, lines: Vec<u8>, count: u64) {
        let mut queue = self.queue.lock();
        if queue.bytes + lines.len() > QUEUE_BYTES_MAX {
            self.dropped.add(count);
            return;
        }
        self.lines.add(count);
        queue.bytes += lines.len();
        queue.parts.push(lines);
        drop(queue);
        self.changed.notify_all();
    }
}

/// What a worker logs with.
pub(super) struct Recorder {
    log: Arc<AccessLog>,
    collected: RefCell<Collected>,
}

struct Collected {
    random: Xoshiro256PlusPlus,
    lines: String,
    count: u64,
}

/// What the line of a request needs of its head.
pub(super) struct Entry {
    /// Whether it is logged whatever its answer is.
    is_sampled: bool,
    /// The trace of the request, or what the client calls it; made up if it has no name.
    id: String,
    path: Vec<u8>,
    query: Option<Vec<u8>>,
    method: Method,
    /// The bytes of the connection when it began.
    before: Bytes,
}

/// How many bytes went through a connection.
#[derive(Clone, Copy, Default)]
pub(super) struct Bytes {
    pub(super) read: u64,
    pub(super) written: u64,
}

impl Recorder {
    pub(super) fn new(log: Arc<AccessLog>) -> Recorder {
        let random = Xoshiro256PlusPlus::seed_from_u64(RandomState::new().hash_one(0));
        Recorder { log, collected: RefCell::new(Collected { random, lines: String::new(), count: 0 }) }
    }

    /// Whether the next ordinary answer is logged.
    pub(super) fn samples(&self) -> bool {
        // 53 bits of a random number: every value from 0 to below 1 that a float can tell apart.
        let drawn = || self.collected.borrow_mut().random.next_u64() >> 11;
        self.log.sample >= 1.0 || (drawn() as f64) < self.log.sample * (1u64 << 53) as f64
    }

    pub(super) fn entry(&self, head: &Head<'_, '_>, is_sampled: bool, before: Bytes) -> Box<Entry> {
        let id = id_of(head).unwrap_or_else(|| {
            let random = &mut self.collected.borrow_mut().random;
            format!("{:016x}{:016x}", random.next_u64(), random.next_u64())
        });
        let (path, query) = path_and_query(head);
        let (path, query) = (path.to_owned(), query.map(<[u8]>::to_owned));
        Box::new(Entry { is_sampled, id, path, query, method: head.method, before })
    }

    /// Logs an answered request and when it began, if it is to be logged. `now` are the bytes of its connection after the answer was
    /// written.
    pub(super) fn record(
        &self,
        (entry, started): (Option<&Entry>, Instant),
        status: u16,
        served: Option<Served>,
        failure: Option<&Failure>,
        now: Bytes,
        client: Option<&str>,
    ) {
        if !entry.is_some_and(|entry| entry.is_sampled) && !is_logged_always(status) {
            return;
        }
        if !self.log.limiter.take(Instant::now()).is_within {
            self.log.dropped.add(1);
            return;
        }
        let mut collected = self.collected.borrow_mut();
        let Collected { lines, count, .. } = &mut *collected;
        *count += 1;
        // Writing to a string cannot fail, here and below.
        let _ = write!(lines, "{{\"time\":\"{}\"", humantime::format_rfc3339_micros(SystemTime::now()));
        if let Some(client) = client.filter(|client| !client.is_empty()) {
            let _ = write!(lines, ",\"client\":\"{client}\"");
        }
        if let Some(Entry { id, path, query, method, before, .. }) = entry {
            let _ = write!(lines, ",\"request_id\":\"{id}\",\"method\":\"{}\",\"path\":\"", method.as_str());
            escape(lines, path);
            if let Some(query) = query {
                lines.push_str("\",\"query\":\"");
                escape(lines, &without_signature(query));
            }
            let (read, written) = (now.read - before.read, now.written - before.written);
            let _ = write!(lines, "\",\"bytes_in\":{read},\"bytes_out\":{written}");
        }
        let duration = micros(started.elapsed());
        let _ = write!(lines, ",\"status\":{status},\"duration_us\":{duration}");
        if let Some(served) = served {
            let _ = write!(lines, ",\"cache\":\"{}\"", cache_word(served));
        }
        if let Some(Failure { code, .. }) = failure {
            let _ = write!(lines, ",\"code\":\"{code}\"");
        }
        if let Some(outcome) = outcome(entry, status, failure) {
            let _ = write!(lines, ",\"outcome\":\"{outcome}\"");
        }
        lines.push_str("}\n");
        if lines.len() >= WORKER_BYTES_MAX {
            drop(collected);
            self.hand_on();
        }
    }

    /// Hands the collected lines to the program's thread.
    pub(super) fn hand_on(&self) {
        let mut collected = self.collected.borrow_mut();
        if collected.count > 0 {
            let (lines, count) = (std::mem::take(&mut collected.lines), std::mem::take(&mut collected.count));
            self.log.put(lines.into_bytes(), count);
        }
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.hand_on();
    }
}

impl Entry {
    /// Of an API whose queries have values in them.
    pub(super) fn without_query(mut self: Box<Self>) -> Box<Self> {
        self.query = None;
        self
    }

    /// What a failed answer says in `X-Request-Id`.
    pub(super) fn id(&self) -> &str {
        &self.id
    }
}

/// A query without what a signed URL is signed with: a reader of the log could use it until it expires.
fn without_signature(query: &[u8]) -> Cow<'_, [u8]> {
    const SIGNATURE: &[u8] = b"X-Amz-Signature=";
    let Some(at) = memchr::memmem::find(query, SIGNATURE) else { return Cow::Borrowed(query) };
    let (before, signature) = query.split_at(at + SIGNATURE.len());
    let rest = memchr::memchr(b'&', signature).map_or(&[][..], |end| &signature[end..]);
    Cow::Owned([before, b"-", rest].concat())
}

/// That a key is absent, or has another version, is an ordinary answer.
fn is_logged_always(status: u16) -> bool {
    status >= 400 && !matches!(status, 404 | 412)
}

fn cache_word(served: Served) -> &'static str {
    match served {
        Served::Hit => "hit",
        Served::Miss { .. } | Served::Weak(_) => "miss",
        Served::Collapsed => "collapsed",
        Served::Replica => "replica",
    }
}

/// Of a write: whether it happened.
fn outcome(entry: Option<&Entry>, status: u16, failure: Option<&Failure>) -> Option<&'static str> {
    match failure {
        Some(failure) => failure.outcome.map(Outcome::name),
        None => {
            // A batch, which is 200, says it line by line.
            let is_write = match entry?.method {
                Method::Put | Method::Delete => status < 300,
                Method::Post => matches!(status, 201 | 204),
                _ => false,
            };
            is_write.then_some("applied")
        }
    }
}

/// Appends a target, which is ASCII without blanks and controls, as the inside of a JSON string.
fn escape(text: &mut String, target: &[u8]) {
    for &byte in target {
        if matches!(byte, b'"' | b'\\') {
            text.push('\\');
        }
        text.push(char::from(byte));
    }
}

/// The trace id of `traceparent` (W3C Trace Context), else what `X-Request-Id` says.
fn id_of(head: &Head<'_, '_>) -> Option<String> {
    let trace = head.field("traceparent").and_then(trace_id);
    let given = || head.field("x-request-id").filter(|id| is_id(id));
    let id = trace.or_else(given)?;
    // Both are ASCII.
    String::from_utf8(id.to_owned()).ok()
}

/// `VERSION-TRACE-PARENT-FLAGS`, in small hexadecimal digits. A later version may have more behind another dash.
fn trace_id(field: &[u8]) -> Option<&[u8]> {
    let is_hex = |part: &[u8]| part.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let is_number = |part: &[u8]| is_hex(part) && part.iter().any(|&byte| byte != b'0');
    let mut parts = field.split(|&byte| byte == b'-');
    let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let has_form = [version.len(), trace.len(), parent.len(), flags.len()] == [2, 32, 16, 2];
    let is_valid = has_form && is_hex(version) && is_number(trace) && is_number(parent) && is_hex(flags);
    let may_go_on = version != b"00" && version != b"ff";
    (is_valid && version != b"ff" && (may_go_on || parts.next().is_none())).then_some(trace)
}

/// Whether it can stand in a line and in a header as it is.
fn is_id(text: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    (1..=ID_BYTES_MAX).contains(&text.len()) && text.iter().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Slots, request};
    use serde_json::json;

    /// The lines that `answers` to requests with these start lines and fields leave.
    fn lines(log: AccessLog, answers: &[(&str, &str, u16)]) -> Vec<serde_json::Value> {
        let recorder = Recorder::new(Arc::new(log));
        for (start, fields, status) in answers {
            let text = format!("{start} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
            let mut slots = Slots::default();
            let head = request::parse(text.as_bytes(), &Limits::USUAL, &mut slots).unwrap().unwrap();
            let entry = recorder.entry(&head, recorder.samples(), Bytes { read: 10, written: 20 });
            let failure = Failure::new(*status, "why", "what").not_applied();
            let failure = (*status >= 400).then_some(&failure);
            recorder.record(
                (Some(&entry), Instant::now()),
                *status,
                Some(Served::Hit),
                failure,
                Bytes { read: 17, written: 28 },
                Some("[::1]:7"),
            );
        }
        recorder.hand_on();
        recorder.log.close();
        let mut parts = recorder.log.take(Duration::ZERO).unwrap_or_default().concat();
        recorder.log.report_dropped(|line| io::Write::write_all(&mut parts, line)).unwrap();
        let lines = String::from_utf8(parts).unwrap();
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_line_has_what_was_asked_and_answered() {
        let trace = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
        let put = lines(AccessLog::new(1.0, 10), &[("PUT /kv/a%22\"b?x=\\", trace, 201)]).remove(0);
        for (field, expected) in [
            ("request_id", json!("4bf92f3577b34da6a3ce929d0e0e4736")),
            ("client", json!("[::1]:7")),
            ("method", json!("PUT")),
            ("path", json!("/kv/a%22\"b")),
            ("query", json!("x=\\")),
            ("status", json!(201)),
            ("bytes_in", json!(7)),
            ("bytes_out", json!(8)),
            ("cache", json!("hit")),
            ("outcome", json!("applied")),
        ] {
            assert_eq!(put[field], expected, "{field} of {put}");
        }
        assert!(humantime::parse_rfc3339(put["time"].as_str().unwrap()).is_ok(), "{put}");
        let failed = lines(AccessLog::new(1.0, 10), &[("DELETE /kv/a", "", 503)]).remove(0);
        assert_eq!((&failed["code"], &failed["outcome"]), (&"why".into(), &"not-applied".into()), "{failed}");
        assert_eq!(failed["request_id"].as_str().map(str::len), Some(32), "{failed}");
    }

    #[test]
    fn failures_are_logged_also_where_no_ordinary_answer_is() {
        let all = [200, 304, 404, 412, 400, 403, 429, 500, 503].map(|status| ("GET /kv/a", "", status));
        let logged = lines(AccessLog::new(0.0, 100), &all);
        let logged: Vec<u64> = logged.iter().filter_map(|line| line["status"].as_u64()).collect();
        assert_eq!(logged, [400, 403, 429, 500, 503]);
    }

    #[test]
    fn a_sample_is_a_part_of_the_answers() {
        let logged = lines(AccessLog::new(0.1, u32::MAX), &[("GET /kv/a", "", 200); 20_000]).len();
        // Six standard deviations are 255.
        assert!((1745..=2255).contains(&logged), "{logged}");
    }

    #[test]
    fn what_comes_too_fast_is_dropped_and_counted() {
        // At most three windows of a second: the test may run over a limit of two.
        let logged = lines(AccessLog::new(1.0, 5), &[("GET /kv/a", "", 200); 1000]);
        let dropped = logged.last().unwrap()["dropped"].as_u64().unwrap();
        let written = logged.len() as u64 - 1;
        assert!((5..=15).contains(&written) && written + dropped == 1000, "{written} and {dropped}");
    }

    #[test]
    fn a_queue_that_nobody_empties_is_bounded() {
        let log = AccessLog::new(1.0, 5);
        let part = vec![b'x'; QUEUE_BYTES_MAX / 4];
        (0..7).for_each(|_| log.put(part.clone(), 3));
        assert_eq!((log.lines.get(), log.dropped.get()), (12, 9));
        assert_eq!(log.take(Duration::ZERO).unwrap().len(), 4);
        // Until it is written, and then no more.
        assert!(log.report_dropped(|_| Err(io::ErrorKind::StorageFull.into())).is_err());
        let mut told = Vec::new();
        log.report_dropped(|line| io::Write::write_all(&mut told, line)).unwrap();
        assert!(told.ends_with(b"\"dropped\":9}\n"));
        log.report_dropped(|_| unreachable!("it was reported")).unwrap();
        assert_eq!(log.dropped.get(), 9);
        assert_eq!(log.take(Duration::ZERO), Some(vec![]));
        log.close();
        assert_eq!(log.take(Duration::MAX), None);
    }

    #[test]
    fn a_trace_is_named_as_the_standard_says() {
        const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
        for (field, is_valid) in [
            (format!("00-{TRACE}-00f067aa0ba902b7-01"), true),
            (format!("cc-{TRACE}-00f067aa0ba902b7-01-what-ever"), true),
            (format!("00-{TRACE}-00f067aa0ba902b7-01-more"), false),
            (format!("ff-{TRACE}-00f067aa0ba902b7-01"), false),
            (format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)), false),
            (format!("00-{TRACE}-0000000000000000-01"), false),
            (format!("00-{}-00f067aa0ba902b7-01", TRACE.to_uppercase()), false),
            (format!("00-{TRACE}-00f067aa0ba902b7"), false),
            (String::new(), false),
        ] {
            assert_eq!(trace_id(field.as_bytes()), is_valid.then_some(TRACE.as_bytes()), "{field}");
        }
        for (id, is_good) in [("a-1:b", true), ("", false), ("a\"b", false), ("a b", false)] {
            assert_eq!(is_id(id.as_bytes()), is_good, "{id}");
        }
        assert!(is_id(&[b'x'; 128]) && !is_id(&[b'x'; 129]));
    }

    #[test]
    fn a_signature_is_not_logged() {
        let query = b"X-Amz-Date=1&X-Amz-Signature=0123abc&x-id=GetObject";
        assert_eq!(&*without_signature(query), b"X-Amz-Date=1&X-Amz-Signature=-&x-id=GetObject");
        assert_eq!(&*without_signature(b"X-Amz-Signature=0123abc"), b"X-Amz-Signature=-");
        assert_eq!(&*without_signature(b"prefix=a"), b"prefix=a");
    }
}
