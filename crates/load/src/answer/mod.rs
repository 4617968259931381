//! The answer to one request, put together from whatever pieces arrive: of HTTP/1.1 bytes, of HTTP/2 head and data.
//!
//! Pieces in, a result out: no sockets, no clock. Bodies are compared as they arrive, and kept only where a dialect has to
//! search them.

mod http1;

use super::dialect::OperationTemplate;
use super::fault::Fault;
use super::mix::Operation;
use super::request::Request;
use ::http1::Decoder;
use ::http1::response::Familiar;
use memchr::memmem;

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
    /// Why it is no valid HTTP answer, where the parser refused it.
    pub(super) refusal: Option<&'static str>,
    /// Whether any of it has arrived.
    begun: bool,
    /// Whether all of it has, as far as its connection can say.
    pub(super) is_complete: bool,
    /// The version of the value that was found, where it is kept and a field of the head says it.
    version: Vec<u8>,
    pub(super) content: Content,
}

/// What the body was so far.
#[derive(Debug, Default)]
pub(super) struct Content {
    bytes: usize,
    /// Whether it is not what was expected.
    differs: bool,
    /// Its beginning, where something is to be looked for in it.
    pub(super) kept: Vec<u8>,
}

impl Content {
    /// Takes what follows of it.
    #[inline]
    pub(super) fn take(&mut self, data: &[u8], request: &Request) {
        let rest = request.expected.get(self.bytes..).unwrap_or_default();
        let compared = data.len().min(rest.len());
        self.differs |= data[..compared] != rest[..compared];
        self.bytes += data.len();
        if request.keeps_bytes > 0 {
            let room = request.keeps_bytes.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(&data[..data.len().min(room)]);
        }
    }
}

impl Answer {
    /// Makes ready for the answer to the next request.
    pub(super) fn reset(&mut self) {
        // What outlives an answer is room, and the head by which the next one is known. One by one: it is done for each request.
        self.held.clear();
        self.body = None;
        self.status = 0;
        self.until_close = false;
        self.outcome = None;
        self.refusal = None;
        self.begun = false;
        self.is_complete = false;
        self.version.clear();
        self.content.bytes = 0;
        self.content.differs = false;
        self.content.kept.clear();
    }

    /// Keeps what the fields of a head say, as far as it is asked for.
    #[inline]
    pub(super) fn learn(&mut self, status: u16, request: &Request, field: impl Fn(&str) -> Option<Vec<u8>>) {
        if status == 503
            && let Some(name) = &request.form.outcome_header
        {
            self.outcome = field(name).and_then(|value| outcome(&value));
        }
        if request.keeps_version
            && let Some(name) = &request.form.version_header
        {
            self.version = field(name).unwrap_or_default();
        }
    }

    /// What is missing when time is up.
    pub(super) fn late(&self) -> Fault {
        if self.status == 0 { Fault::Timeout } else { Fault::SlowBody }
    }

    /// What a complete answer means for `request`.
    pub(super) fn verdict(&self, request: &Request) -> Outcome {
        let form = request.form;
        let ok = form.ok.contains(self.status);
        let absent = form.absent.contains(&self.status) || ok && self.says_absent(request);
        let kept = &self.content.kept;
        let is_error = || form.error_begins.as_ref().is_some_and(|text| kept.starts_with(text.as_bytes()));
        let is_other = || form.body_pattern.as_ref().is_some_and(|pattern| !pattern.is_match(kept));
        match self.status {
            _ if ok && is_error() => Err(Fault::Malformed),
            _ if absent && request.operation.is_conditional() => Ok(Success::PreconditionFailed),
            _ if absent && request.may_be_absent => Ok(Success::Absent),
            _ if ok && is_other() => Err(Fault::UnexpectedBody),
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
        let behind =
            memmem::find(&self.content.kept, text.as_bytes()).map(|at| &self.content.kept[at + text.len()..]);
        let version = behind.and_then(|behind| behind.split(|byte| *byte == b'"').next());
        version.filter(|_| request.keeps_version).unwrap_or_default()
    }

    /// Whether the body of a success says that there is no such key, or that a condition does not hold.
    fn says_absent(&self, request: &Request) -> bool {
        let OperationTemplate { absent_if, absent_unless, .. } = request.form;
        let Content { bytes, kept, .. } = &self.content;
        // What is not kept, behind a long value, may be the text.
        let is_known = || *bytes == kept.len() || request.operation != Operation::Get;
        let lacks = |text: &String| memmem::find(kept, text.as_bytes()).is_none() && is_known();
        absent_if.as_ref().is_some_and(|text| self.has_beside_value(text, request))
            || absent_unless.as_ref().is_some_and(lacks)
    }

    /// Whether the body has this text, and not in the value only: that may hold any word by chance.
    fn has_beside_value(&self, text: &str, request: &Request) -> bool {
        let kept = self.content.kept.as_slice();
        let has = |part: &[u8]| memmem::find(part, text.as_bytes()).is_some();
        if !has(kept) {
            return false;
        }
        let form = request.form;
        let has_value = request.operation == Operation::Get
            && form.proof.contains("{value")
            && !request.expected.is_empty();
        // Where it is as expected, this is found.
        let start = if form.anywhere { memmem::find(kept, &request.expected) } else { Some(0) };
        let at =
            start.filter(|_| has_value && self.is_as_expected(request)).map(|start| start + request.value_at);
        at.and_then(|at| kept.split_at_checked(at)).is_none_or(|(before, value)| {
            // No value has other characters, plain or in base64.
            let end = value.iter().position(|byte| !matches!(byte, b'0'..=b'z' | b'+' | b'/'));
            has(before) || end.is_some_and(|end| has(&value[end..]))
        })
    }

    fn is_as_expected(&self, request: &Request) -> bool {
        if request.form.anywhere {
            return memmem::find(&self.content.kept, &request.expected).is_some();
        }
        let missing = self.content.bytes < request.expected.len();
        let surplus = request.exact && self.content.bytes > request.expected.len();
        !(self.content.differs || missing || surplus)
    }
}

/// What the field of a 503 says of its outcome.
fn outcome(value: &[u8]) -> Option<Fault> {
    match value.to_ascii_lowercase().as_slice() {
        b"not-applied" => Some(Fault::Http503NotApplied),
        b"unknown" => Some(Fault::Http503Unknown),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
