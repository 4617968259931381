//! The answer to one request, put together from whatever pieces arrive.
//!
//! Bytes in, a result out: no sockets, no clock. Bodies are compared as they arrive, and kept only where a dialect has to
//! search them.

use super::dialect::OperationTemplate;
use super::mix::Operation;
use super::request::Request;
use http1::response::{self, Familiar};
use http1::{Decoder, Framing, Reject, Slots};
use memchr::memmem;

/// Longest answer head that is accepted, in bytes.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Why an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// No connection could be made.
    Refused,
    /// The connection was reset, or ended before the first byte of an answer.
    Reset,
    /// The connection ended in order, but inside an answer.
    ClosedEarly,
    /// An answer brought more than it had said, or said two things about its length.
    WrongLength,
    /// The head of an answer came in time, its body did not.
    SlowBody,
    /// No complete head in time.
    Timeout,
    /// What came is no HTTP answer to the request, or none that the dialect knows.
    Malformed,
    /// A read brought something else than was written.
    WrongValue,
    /// A read brought what was written, but something newer had to be there.
    StaleValue,
    /// Status 4xx but 429.
    Http4xx,
    /// Status 429: the server asks for less.
    Http429,
    /// Status 5xx but 504, and but a 503 that says its outcome.
    Http5xx,
    /// Status 503, and the answer says that the request was not carried out.
    Http503NotApplied,
    /// Status 503, and the answer says that it is unknown whether the request was carried out.
    Http503Unknown,
    /// Status 504: whether it happened is unknown.
    Http504,
    /// Another status than those of a success, below 400.
    UnexpectedStatus,
    /// The body lacks what it should have.
    UnexpectedBody,
    /// No TLS session could be made, or it broke.
    Tls,
}

impl Fault {
    /// All of them with their names in reports; a fault's place here is `fault as usize`.
    pub const ALL: [(Fault, &str); 18] = [
        (Fault::Refused, "refused"),
        (Fault::Reset, "reset"),
        (Fault::ClosedEarly, "closed_early"),
        (Fault::WrongLength, "wrong_length"),
        (Fault::SlowBody, "slow_body"),
        (Fault::Timeout, "timeout"),
        (Fault::Malformed, "malformed"),
        (Fault::WrongValue, "wrong_value"),
        (Fault::StaleValue, "stale_value"),
        (Fault::Http4xx, "http_4xx"),
        (Fault::Http429, "http_429"),
        (Fault::Http5xx, "http_5xx"),
        (Fault::Http503NotApplied, "http_503_not_applied"),
        (Fault::Http503Unknown, "http_503_unknown"),
        (Fault::Http504, "http_504"),
        (Fault::UnexpectedStatus, "unexpected_status"),
        (Fault::UnexpectedBody, "unexpected_body"),
        (Fault::Tls, "tls"),
    ];
}

/// What a complete and good answer says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Success {
    /// Done as asked.
    Done,
    /// A read: there is no such key.
    Absent,
    /// A conditional write: the key is not as it says.
    PreconditionFailed,
}

/// What became of a request.
pub(super) type Outcome = Result<Success, Fault>;

/// The answer to the request in flight.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Bytes that arrived and could not be used yet: part of a head or of a chunk's frame. Nearly always empty.
    held: Vec<u8>,
    /// Of the answers before.
    familiar: Familiar,
    /// Once the head is complete.
    body: Option<Decoder>,
    /// Zero until the head is complete.
    pub(super) status: u16,
    keep_alive: bool,
    until_close: bool,
    /// Of a 503, what it says of its outcome.
    outcome: Option<Fault>,
    /// Whether any of it has arrived.
    begun: bool,
    body_bytes: usize,
    differs: bool,
    /// The version of the value that was found, where it is kept and a field of the head says it.
    version: Vec<u8>,
    /// The body's beginning, where something is to be looked for in it.
    pub(super) kept: Vec<u8>,
}

impl Answer {
    /// Makes ready for the answer to the next request.
    pub(super) fn reset(&mut self) {
        self.held.clear();
        self.kept.clear();
        // What outlives an answer: room, and the head by which the next one is known.
        let (held, kept) = (std::mem::take(&mut self.held), std::mem::take(&mut self.kept));
        let familiar = std::mem::take(&mut self.familiar);
        *self = Answer { held, kept, familiar, ..Answer::default() };
    }

    /// Whether another request may follow on the connection of this complete answer.
    pub(super) fn keeps_alive(&self) -> bool {
        self.keep_alive && !self.until_close
    }

    /// Takes what has arrived (not nothing); `Ok(true)` when the answer is complete.
    pub(super) fn take(&mut self, input: &[u8], request: &Request) -> Result<bool, Fault> {
        self.begun = true;
        let (used, of) = if self.held.is_empty() {
            let used = self.consume(input, request)?;
            self.held.extend_from_slice(&input[used..]);
            (used, input.len())
        } else {
            let mut held = std::mem::take(&mut self.held);
            held.extend_from_slice(input);
            let (used, of) = (self.consume(&held, request)?, held.len());
            held.drain(..used);
            self.held = held;
            (used, of)
        };
        let complete = self.body.as_ref().is_some_and(Decoder::is_done);
        match (used < of, complete) {
            // Surplus bytes: it is not certain where this answer ended.
            (true, true) => Err(Fault::WrongLength),
            // The head does not end.
            (true, false) if of - used > HEAD_BYTES_MAX => Err(Fault::Malformed),
            _ => Ok(complete),
        }
    }

    /// The peer has ended the connection in order. `Ok` when that is how this answer ends.
    pub(super) fn end(&mut self) -> Result<(), Fault> {
        match (self.begun, self.until_close) {
            (false, _) => Err(Fault::Reset),
            (true, true) => Ok(()),
            (true, false) => Err(Fault::ClosedEarly),
        }
    }

    /// What is missing when time is up.
    pub(super) fn late(&self) -> Fault {
        if self.status == 0 { Fault::Timeout } else { Fault::SlowBody }
    }

    /// What a complete answer means for `request`.
    pub(super) fn verdict(&self, request: &Request, absent_is_success: bool) -> Outcome {
        let form = request.form;
        let ok = form.ok.contains(self.status);
        let absent = form.absent.contains(&self.status) || ok && self.says_absent(form);
        match self.status {
            _ if ok
                && form.error_begins.as_ref().is_some_and(|text| self.kept.starts_with(text.as_bytes())) =>
            {
                Err(Fault::Malformed)
            }
            _ if absent && request.operation.is_conditional() => Ok(Success::PreconditionFailed),
            _ if absent && absent_is_success => Ok(Success::Absent),
            _ if ok && form.body_pattern.as_ref().is_some_and(|pattern| !pattern.is_match(&self.kept)) => {
                Err(Fault::UnexpectedBody)
            }
            _ if ok && !absent && self.is_as_expected(request) => Ok(Success::Done),
            // What a write's answer lacks is a word of the server's, not a value.
            _ if ok && request.operation.is_write() => Err(Fault::Malformed),
            _ if ok => Err(Fault::WrongValue),
            429 => Err(Fault::Http429),
            400..=499 => Err(Fault::Http4xx),
            503 => Err(self.outcome.unwrap_or(Fault::Http5xx)),
            504 => Err(Fault::Http504),
            500..=599 => Err(Fault::Http5xx),
            _ if request.operation == Operation::Request => Err(Fault::UnexpectedStatus),
            _ => Err(Fault::Malformed),
        }
    }

    /// The version of the value that was found; empty where there is none or the answer does not say it.
    pub(super) fn version(&self, request: &Request) -> &[u8] {
        let Some(text) = &request.form.version_after else { return &self.version };
        let behind = memmem::find(&self.kept, text.as_bytes()).map(|at| &self.kept[at + text.len()..]);
        let version = behind.and_then(|behind| behind.split(|byte| *byte == b'"').next());
        version.filter(|_| request.keeps_version).unwrap_or_default()
    }

    /// Whether the body of a success says that there is no such key, or that a condition does not hold.
    fn says_absent(&self, form: &OperationTemplate) -> bool {
        let holds = |text: &String| memmem::find(&self.kept, text.as_bytes()).is_some();
        form.absent_if.as_ref().is_some_and(holds)
            || form.absent_unless.as_ref().is_some_and(|text| !holds(text))
    }

    fn is_as_expected(&self, request: &Request) -> bool {
        if request.form.anywhere {
            return memmem::find(&self.kept, &request.expected).is_some();
        }
        let missing = self.body_bytes < request.expected.len();
        let surplus = request.exact && self.body_bytes > request.expected.len();
        !(self.differs || missing || surplus)
    }

    /// Uses what it can of the front of `input`, and says how much that was.
    fn consume(&mut self, input: &[u8], request: &Request) -> Result<usize, Fault> {
        let mut used = 0;
        while self.body.is_none() {
            let head = match request.is_head {
                false => self.familiar.parse(&input[used..]),
                true => response::parse(&input[used..], true, &mut Slots::default())
                    .map(|head| head.map(|head| head.outline)),
            };
            let head = head.map_err(refused)?;
            let Some(head) = head else { return Ok(used) };
            if head.status == 503
                && let Some(name) = &request.form.outcome_header
            {
                self.outcome = outcome(&input[used..], name);
            }
            if request.keeps_version
                && let Some(name) = &request.form.version_header
            {
                self.version = field(&input[used..], name).unwrap_or_default();
            }
            used += head.bytes;
            if head.status >= 200 {
                self.status = head.status;
                self.keep_alive = head.keep_alive;
                self.until_close = head.framing == Framing::UntilClose;
                // Nothing of it is kept, so any length will do.
                self.body = Some(Decoder::new(head.framing, u64::MAX).map_err(|_| Fault::Malformed)?);
            }
        }
        let Some(body) = &mut self.body else { return Ok(used) };
        loop {
            let step = body.decode(&input[used..]).map_err(|_| Fault::Malformed)?;
            if step.consumed == 0 {
                return Ok(used);
            }
            let data = &input[used..][step.data];
            let rest = request.expected.get(self.body_bytes..).unwrap_or_default();
            let compared = data.len().min(rest.len());
            self.differs |= data[..compared] != rest[..compared];
            self.body_bytes += data.len();
            if request.keeps_bytes > 0 {
                let room = request.keeps_bytes.saturating_sub(self.kept.len());
                self.kept.extend_from_slice(&data[..data.len().min(room)]);
            }
            used += step.consumed;
        }
    }
}

/// The class of an answer whose head was refused.
fn refused(reject: Reject) -> Fault {
    if reject.is_contradiction() { Fault::WrongLength } else { Fault::Malformed }
}

/// The field `name` of the head at the front of `input`. Parsed once more: what is known of heads that were seen before does
/// not hold their fields.
fn field(input: &[u8], name: &str) -> Option<Vec<u8>> {
    let mut slots = Slots::default();
    let head = response::parse(input, false, &mut slots).ok().flatten()?;
    head.field(name).map(<[u8]>::to_vec)
}

/// What the head of a 503 at the front of `input` says of its outcome in the field `name`.
fn outcome(input: &[u8], name: &str) -> Option<Fault> {
    match field(input, name)?.to_ascii_lowercase().as_slice() {
        b"not-applied" => Some(Fault::Http503NotApplied),
        b"unknown" => Some(Fault::Http503Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::super::dialect::Dialect;
    use super::super::mix::Operation;
    use super::*;
    use crate::dialect::KEPT_BYTES_MAX;

    fn request(operation: Operation, expected: &str) -> Request {
        request_in("weir", operation, expected)
    }

    fn request_in(dialect: &str, operation: Operation, expected: &str) -> Request {
        let dialect: &'static Dialect = dialect.parse().unwrap();
        request_of(dialect, operation, expected)
    }

    fn request_of(dialect: &'static Dialect, operation: Operation, expected: &str) -> Request {
        let form = dialect.form(operation).unwrap();
        let keeps_bytes = if form.keeps_body { expected.len() + KEPT_BYTES_MAX } else { 0 };
        Request { operation, expected: expected.into(), form, keeps_bytes, ..Request::default() }
    }

    /// The verdict on `wire` is the same in one piece and byte by byte; `ends` closes the connection behind it.
    fn check(request: &Request, wire: &str, ends: bool, expected: Result<Success, Fault>) {
        for piece in [wire.len(), 1, 7] {
            let mut answer = Answer::default();
            let mut complete = Ok(false);
            for bytes in wire.as_bytes().chunks(piece.max(1)) {
                if complete == Ok(false) {
                    complete = answer.take(bytes, request);
                }
            }
            let verdict = complete.and_then(|complete| {
                if !complete {
                    assert!(ends, "{wire:?} is not complete");
                    answer.end()?;
                }
                answer.verdict(request, false)
            });
            assert_eq!(verdict, expected, "{wire:?} in pieces of {piece}");
        }
    }

    #[test]
    fn reads_are_compared_with_what_was_written() {
        let read = request(Operation::Get, "k=");
        for (wire, expected) in [
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=ab", Ok(Success::Done)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=", Ok(Success::Done)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nk", Err(Fault::WrongValue)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Err(Fault::WrongValue)),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nj=ab", Err(Fault::WrongValue)),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nk\r\n3\r\n=ab\r\n0\r\n\r\n",
                Ok(Success::Done),
            ),
            (
                "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=",
                Ok(Success::Done),
            ),
        ] {
            check(&read, wire, false, expected);
        }
        let exact = Request { exact: true, ..request(Operation::Get, "k=ab") };
        check(&exact, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=ab", false, Ok(Success::Done));
        check(&exact, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nk=abc", false, Err(Fault::WrongValue));
    }

    #[test]
    fn a_condition_that_does_not_hold_is_no_failure() {
        for (dialect, operation, wire, expected) in [
            (
                "weir",
                Operation::PutIfMatch,
                "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n",
                Ok(Success::PreconditionFailed),
            ),
            (
                "weir",
                Operation::Put,
                "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n",
                Err(Fault::Http4xx),
            ),
            (
                "etcd",
                Operation::DeleteIfMatch,
                "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"succeeded\":true}",
                Ok(Success::Done),
            ),
            (
                "etcd",
                Operation::DeleteIfMatch,
                "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
                Ok(Success::PreconditionFailed),
            ),
            (
                "webdis",
                Operation::PutIfAbsent,
                "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"SETNX\":0}",
                Ok(Success::PreconditionFailed),
            ),
        ] {
            check(&request_in(dialect, operation, ""), wire, false, expected);
        }
    }

    #[test]
    fn the_version_that_was_found_is_in_a_field_or_in_the_body() {
        let versioned = |dialect, wire: &str| {
            let request = Request { keeps_version: true, ..request_in(dialect, Operation::Get, "") };
            let mut answer = Answer::default();
            assert_eq!(answer.take(wire.as_bytes(), &request), Ok(true));
            String::from_utf8(answer.version(&request).to_vec()).unwrap()
        };
        let wire = "HTTP/1.1 200 OK\r\nETag: \"7\"\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(versioned("weir", wire), "\"7\"");
        assert_eq!(versioned("weir", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "");
        let wire = "HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n{\"kvs\":[{\"mod_revision\":\"123\"}]}";
        let wire = wire.replace("31", &"{\"kvs\":[{\"mod_revision\":\"123\"}]}".len().to_string());
        assert_eq!(versioned("etcd", &wire), "123");
    }

    #[test]
    fn statuses_fall_into_their_classes() {
        for (operation, status, expected) in [
            (Operation::Get, "404 Not Found", Err(Fault::Http4xx)),
            (Operation::Get, "503 Service Unavailable", Err(Fault::Http5xx)),
            (Operation::Get, "302 Found", Err(Fault::Malformed)),
            (Operation::Put, "200 OK", Ok(Success::Done)),
            (Operation::Put, "201 Created", Ok(Success::Done)),
            (Operation::Put, "404 Not Found", Err(Fault::Http4xx)),
            (Operation::Put, "500 Internal Server Error", Err(Fault::Http5xx)),
            (Operation::Delete, "200 OK", Ok(Success::Done)),
            (Operation::Delete, "404 Not Found", Ok(Success::Done)),
            (Operation::Delete, "429 Too Many Requests", Err(Fault::Http429)),
            (Operation::Get, "504 Gateway Timeout", Err(Fault::Http504)),
            (Operation::Get, "502 Bad Gateway", Err(Fault::Http5xx)),
        ] {
            let wire = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
            check(&request(operation, ""), &wire, false, expected);
        }
        check(&request(Operation::Put, ""), "HTTP/1.1 204 No Content\r\n\r\n", false, Ok(Success::Done));
    }

    #[test]
    fn an_absent_key_is_fine_where_the_workload_says_so() {
        let read = request(Operation::Get, "k=");
        let mut answer = Answer::default();
        assert_eq!(answer.take(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", &read), Ok(true));
        assert_eq!(answer.verdict(&read, true), Ok(Success::Absent));
        assert_eq!(answer.verdict(&read, false), Err(Fault::Http4xx));
    }

    #[test]
    fn a_text_may_stand_anywhere_in_a_body_where_the_dialect_says_so() {
        let etcd = "etcd";
        let read = request_in(etcd, Operation::Get, "\"value\":\"YWJj");
        let ok = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        let there = "{\"kvs\":[{\"value\":\"YWJjZA==\"}]}";
        for (body, expected) in [
            (there, Ok(Success::Done)),
            (&there.replace("YWJj", "YWJk"), Err(Fault::WrongValue)),
            // Absent where that is not fine.
            ("{\"header\":{}}", Err(Fault::WrongValue)),
        ] {
            check(&read, &ok(body), false, expected);
        }
        let mut answer = Answer::default();
        assert_eq!(answer.take(ok("{\"header\":{}}").as_bytes(), &read), Ok(true));
        assert_eq!(answer.verdict(&read, true), Ok(Success::Absent));
        // The answer that follows is judged by its own body.
        answer.reset();
        assert_eq!(answer.take(ok(there).as_bytes(), &read), Ok(true));
        assert_eq!(answer.verdict(&read, true), Ok(Success::Done));

        let null = "[get]\npath = \"/{key}\"\nabsent_if = \"null\"\nholds = \"{value}\"";
        let null = request_of(Dialect::of_file("a.toml", null).unwrap(), Operation::Get, "k=");
        check(&null, &ok("\"k=ab\""), false, Ok(Success::Done));
        check(&null, &ok("null"), false, Err(Fault::WrongValue));

        // Redis' errors are no values.
        let read = request_in("webdis", Operation::Get, "k=");
        check(&read, &ok("k=ab"), false, Ok(Success::Done));
        check(&read, &ok("-LOADING Redis is loading the dataset in memory"), false, Err(Fault::Malformed));
        check(&read, &ok("j=ab"), false, Err(Fault::WrongValue));

        let put = request_in("webdis", Operation::Put, "{\"SET\":[true,");
        check(&put, &ok("{\"SET\":[true,\"OK\"]}"), false, Ok(Success::Done));
        check(&put, &ok("{\"SET\":[false,\"ERR\"]}"), false, Err(Fault::Malformed));
        check(&put, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", false, Err(Fault::Malformed));

        let fixed = request_in("fixed", Operation::Get, "");
        check(&fixed, &ok("whatever"), false, Ok(Success::Done));
        check(&fixed, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false, Err(Fault::Http4xx));
    }

    #[test]
    fn no_more_of_a_body_is_kept_than_its_beginning() {
        let read = request_in("etcd", Operation::Get, "\"value\":\"YWJj");
        let body = format!("\"kvs\":[{}", "x".repeat(4 * KEPT_BYTES_MAX));
        let mut answer = Answer::default();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        assert_eq!(answer.take(head.as_bytes(), &read), Ok(false));
        for piece in body.as_bytes().chunks(1000) {
            answer.take(piece, &read).unwrap();
        }
        assert_eq!(answer.kept.len(), KEPT_BYTES_MAX + read.expected.len());
        assert_eq!(answer.verdict(&read, true), Err(Fault::WrongValue));
    }

    #[test]
    fn answers_cut_short_differ_from_no_answer() {
        let read = request(Operation::Get, "k=");
        check(&read, "", true, Err(Fault::Reset));
        for wire in [
            "HTTP/1.1 2",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=",
        ] {
            check(&read, wire, true, Err(Fault::ClosedEarly));
        }
        // Without length or chunks the end of the connection is the end of the body.
        check(&read, "HTTP/1.1 200 OK\r\n\r\nk=ab", true, Ok(Success::Done));
        check(&read, "HTTP/1.1 200 OK\r\n\r\nj=ab", true, Err(Fault::WrongValue));
    }

    #[test]
    fn what_is_no_answer_is_malformed() {
        let read = request(Operation::Get, "k=");
        let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(HEAD_BYTES_MAX));
        for wire in ["SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", endless.as_str()] {
            let mut answer = Answer::default();
            assert_eq!(answer.take(wire.as_bytes(), &read), Err(Fault::Malformed));
        }
    }

    #[test]
    fn an_answer_that_belies_its_own_length_has_a_class_of_its_own() {
        let read = request(Operation::Get, "k=");
        for wire in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=surplus",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nk=\r\n0\r\n\r\nx",
            "HTTP/1.1 204 No Content\r\n\r\nx",
            // Where the server is not to be believed, its status is not either.
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\n\r\nxy",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nk=a",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            let mut answer = Answer::default();
            assert_eq!(answer.take(wire.as_bytes(), &read), Err(Fault::WrongLength), "{wire}");
        }
        // What is no number, or no chunk, is no contradiction but nonsense.
        for wire in [
            "HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nk=longer\r\n",
        ] {
            let mut answer = Answer::default();
            assert_eq!(answer.take(wire.as_bytes(), &read), Err(Fault::Malformed), "{wire}");
        }
    }

    #[test]
    fn what_was_too_slow_is_classed_by_what_had_come() {
        let read = request(Operation::Get, "k=");
        for (wire, expected) in [
            ("", Fault::Timeout),
            ("HTTP/1.1 200 OK\r\nContent-Le", Fault::Timeout),
            ("HTTP/1.1 100 Continue\r\n\r\n", Fault::Timeout),
            ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", Fault::SlowBody),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nk", Fault::SlowBody),
        ] {
            let mut answer = Answer::default();
            if !wire.is_empty() {
                assert_eq!(answer.take(wire.as_bytes(), &read), Ok(false));
            }
            assert_eq!(answer.late(), expected, "{wire}");
        }
    }

    #[test]
    fn a_503_may_say_its_outcome_where_the_dialect_knows_how() {
        let unavailable = |outcome: &str| {
            format!("HTTP/1.1 503 Service Unavailable\r\nServer: x\r\n{outcome}Content-Length: 0\r\n\r\n")
        };
        let put = request(Operation::Put, "");
        for (field, expected) in [
            ("", Fault::Http5xx),
            ("Weir-Outcome: not-applied\r\n", Fault::Http503NotApplied),
            ("weir-outcome: Unknown\r\n", Fault::Http503Unknown),
            ("Weir-Outcome: perhaps\r\n", Fault::Http5xx),
            ("X-Outcome: unknown\r\n", Fault::Http5xx),
        ] {
            check(&put, &unavailable(field), false, Err(expected));
        }
        // Other statuses say it by themselves, and other dialects know no such field.
        let other = unavailable("Weir-Outcome: unknown\r\n").replace("503", "500");
        check(&put, &other, false, Err(Fault::Http5xx));
        let silent = request_in("etcd", Operation::Put, "");
        check(&silent, &unavailable("Weir-Outcome: unknown\r\n"), false, Err(Fault::Http5xx));

        // One after the other on one connection, as heads that resemble each other.
        let mut answer = Answer::default();
        for (field, expected) in [
            ("Weir-Outcome: not-applied\r\n", Fault::Http503NotApplied),
            ("Weir-Outcome: not-applied\r\n", Fault::Http503NotApplied),
            ("Weir-Outcome: unknown\r\n", Fault::Http503Unknown),
            ("", Fault::Http5xx),
        ] {
            answer.reset();
            assert_eq!(answer.take(unavailable(field).as_bytes(), &put), Ok(true));
            assert_eq!(answer.verdict(&put, false), Err(expected));
        }
    }

    #[test]
    fn a_faults_place_among_all_is_its_number() {
        for (place, (fault, name)) in Fault::ALL.into_iter().enumerate() {
            assert_eq!(fault as usize, place);
            assert!(Fault::ALL[..place].iter().all(|(_, other)| *other != name));
        }
    }

    #[test]
    fn an_answer_forgets_the_one_before() {
        let read = request(Operation::Get, "k=");
        let mut answer = Answer::default();
        assert_eq!(
            answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nj=", &read),
            Ok(true)
        );
        assert!(!answer.keeps_alive());
        answer.reset();
        assert!(!answer.begun && answer.status == 0);
        assert_eq!(answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=", &read), Ok(true));
        assert!(answer.keeps_alive());
        assert_eq!(answer.verdict(&read, false), Ok(Success::Done));
    }
}
