//! What routes and answers need of a request's head.

use super::error::Failure;
use http1::request::Head;
use kv::{CONTENT_ENCODING_BYTES_MAX, CONTENT_TYPE_BYTES_MAX, Precondition, Version};
use std::ops::Range;
use std::time::Duration;

/// The preconditions of a read. Of an absent row none is looked at (RFC 9110, 13.2.1).
#[derive(Clone, Debug, Default)]
pub(super) struct ReadCondition {
    /// `If-Match`: the row is sent only if this holds.
    pub(super) only_if: Precondition,
    /// `If-None-Match`: the row is not sent if this holds.
    pub(super) unless: Option<Precondition>,
    /// `Range`: a part is sent. On the heap, because most requests have none.
    pub(super) range: Option<Box<RangeRequest>>,
    /// `Prefer: wait=N`: how long a change is waited for (RFC 7240).
    pub(super) wait: Option<Duration>,
}

/// One range of bytes (RFC 9110, 14).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RangeRequest {
    /// `None`: the last `end` bytes; else from there.
    start: Option<u64>,
    /// The last byte; `None` for all that follow.
    end: Option<u64>,
    /// `If-Range`: the whole value is sent unless it has this version; the outer `None` is no such field.
    if_version: Option<Option<Version>>,
}

impl RangeRequest {
    /// What `Range` and `If-Range` ask for; `None` where the whole value is to be sent: several ranges, another unit, or
    /// no range at all.
    pub(super) fn of(range: &[u8], if_version: Option<Option<Version>>) -> Option<RangeRequest> {
        let spec = range.strip_prefix(b"bytes=")?.trim_ascii();
        let dash = memchr::memchr(b'-', spec)?;
        let number = |digits: &[u8]| {
            let is_number = !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(digits).ok()?;
            // More than any value has is as good as that.
            is_number.then(|| text.parse().unwrap_or(u64::MAX))
        };
        let (start, end) = match (&spec[..dash], &spec[dash + 1..]) {
            ([], last) => (None, Some(number(last)?)),
            (first, []) => (Some(number(first)?), None),
            (first, last) => (Some(number(first)?), Some(number(last)?)),
        };
        if start.is_some() && end < start && end.is_some() {
            return None;
        }
        Some(RangeRequest { start, end, if_version })
    }

    /// The version in `If-Range`. A date is never exact enough, and a weak tag never matches.
    pub(super) fn if_version(tag: &[u8]) -> Option<Version> {
        let tag = tag.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
        version_of_tag(tag)
    }

    /// Which bytes of a value of this version and length are sent; `Ok(None)`: all of it; `Err`: there are none such.
    pub(super) fn bytes(&self, version: Version, length: usize) -> Result<Option<Range<usize>>, ()> {
        if self.if_version.is_some_and(|wanted| wanted != Some(version)) {
            return Ok(None);
        }
        if length == 0 && self.start.is_none() && self.end > Some(0) {
            // The last bytes of nothing are there: none (RFC 9110, 14.1.2).
            return Ok(None);
        }
        let length = length as u64;
        let (start, end) = match (self.start, self.end) {
            (None, last) => (length.saturating_sub(last.unwrap_or(0)), length),
            (Some(start), end) => (start, end.map_or(length, |end| end.saturating_add(1).min(length))),
        };
        if start < end { Ok(Some(start as usize..end as usize)) } else { Err(()) }
    }
}

/// The version in an ETag without its quotes. Tags are compared by their letters: only the way this server writes a number is that number.
pub(super) fn version_of_tag(tag: &[u8]) -> Option<Version> {
    let version = Version(std::str::from_utf8(tag).ok()?.parse().ok()?);
    (version.to_string().as_bytes() == tag).then_some(version)
}

impl ReadCondition {
    /// Whether `If-Match` lets the row be sent.
    pub(super) fn admits(&self, version: Version) -> bool {
        self.only_if.holds(Some(version))
    }

    /// Whether the client has this version already.
    pub(super) fn is_known(&self, version: Version) -> bool {
        self.unless.as_ref().is_some_and(|unless| unless.holds(Some(version)))
    }

    /// The status of an answer with a row of this version whose value has this length, and which part of that is sent if not all;
    /// `Err`: there is no such part.
    pub(super) fn choose(&self, version: Version, length: usize) -> Result<(u16, Option<Range<usize>>), ()> {
        if self.is_known(version) {
            return Ok((304, None));
        }
        let part = self.range.as_ref().map(|range| range.bytes(version, length)).transpose()?.flatten();
        Ok((if part.is_some() { 206 } else { 200 }, part))
    }
}

/// The path of a target, and its query if there is one. A proxy may send both behind scheme and host.
pub(super) fn path_and_query<'b>(head: &Head<'_, 'b>) -> (&'b [u8], Option<&'b [u8]>) {
    let target = match head.target {
        [b'/', ..] => head.target,
        // A query may come without a path.
        target => {
            absolute(target).map_or(target, |(_, rest)| if rest.starts_with(b"/") { rest } else { b"/" })
        }
    };
    let path_end = if head.is_plain { None } else { memchr::memchr(b'?', target) };
    path_end.map_or((target, None), |end| (&target[..end], Some(&target[end + 1..])))
}

/// The host of an absolute URL, with its port, and what follows it.
pub(super) fn absolute(url: &[u8]) -> Option<(&[u8], &[u8])> {
    let host = &url[memchr::memmem::find(url, b"://")? + 3..];
    Some(host.split_at(memchr::memchr2(b'/', b'?', host).unwrap_or(host.len())))
}

/// Whether it can be sent in a field: no parser of heads has looked at what comes in JSON.
fn is_printable(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'\t' | b' '..=b'~'))
}

pub(super) fn content_type(value: Option<&[u8]>) -> Result<String, Failure> {
    let text = value.map_or(Some(""), |value| std::str::from_utf8(value).ok());
    match text {
        Some(text) if text.len() <= CONTENT_TYPE_BYTES_MAX && is_printable(text) => Ok(text.to_owned()),
        _ => {
            let what = "the Content-Type is not printable ASCII or longer than 255 bytes; send a shorter one or none";
            Err(Failure::new(400, "bad_header", what))
        }
    }
}

/// No list of codings that may be stored needs as much.
const CONTENT_ENCODING_LIST_BYTES_MAX: usize = 1024;

/// The content coding that is stored: `identity` is none.
pub(super) fn content_encoding(fields: &[&[u8]]) -> Result<String, Failure> {
    let is_short = |text: &&str| text.len() <= CONTENT_ENCODING_LIST_BYTES_MAX && is_printable(text);
    let lists = fields.iter().map(|field| std::str::from_utf8(field).ok().filter(is_short));
    let codings = lists.collect::<Option<Vec<&str>>>().map(|lists| {
        let codings = lists.iter().flat_map(|list| list.split(',')).map(str::trim);
        let named = codings.filter(|coding| !coding.is_empty() && !coding.eq_ignore_ascii_case("identity"));
        named.collect::<Vec<_>>().join(", ")
    });
    codings.filter(|codings| codings.len() <= CONTENT_ENCODING_BYTES_MAX).ok_or_else(|| {
        let what =
            "the Content-Encoding is not printable ASCII or longer than 64 bytes; send a shorter one or none";
        Failure::new(400, "bad_header", what)
    })
}

/// The longest lifetime, in seconds: a hundred years.
const TTL_MAX: u64 = 100 * 365 * 24 * 3600;

/// A lifetime (RFC 8030, 5.2): whole seconds. A value that ends at once, or never, is refused.
pub(super) fn ttl(value: &[u8]) -> Result<Duration, Failure> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let seconds = std::str::from_utf8(value).ok().filter(|_| is_number).and_then(|text| text.parse().ok());
    match seconds {
        Some(seconds @ 1..=TTL_MAX) => Ok(Duration::from_secs(seconds)),
        _ => {
            let what = "TTL is not a number of seconds from 1 to 3153600000; a PUT without it stores a value without end";
            Err(Failure::new(400, "bad_header", what))
        }
    }
}

/// The longest wait for a change.
const WAIT_MAX: Duration = Duration::from_secs(300);

/// What `Prefer` says of a wait, if it says anything that is understood: a preference is no condition (RFC 7240, 2).
pub(super) fn wait(value: &[u8]) -> Option<Duration> {
    let preferences = std::str::from_utf8(value).ok()?.split(',');
    let seconds = preferences.filter_map(|preference| {
        let (name, seconds) = preference.split_once('=')?;
        let is_wait = name.trim().eq_ignore_ascii_case("wait");
        is_wait.then(|| seconds.trim().trim_matches('"').parse::<u64>().ok()).flatten()
    });
    seconds.map(Duration::from_secs).next().map(|wait| wait.min(WAIT_MAX))
}

/// Whether a field says that the value is encoded.
pub(super) fn is_encoded(head: &Head<'_, '_>) -> bool {
    let mut fields = head.fields();
    fields.any(|(name, value)| {
        name.eq_ignore_ascii_case("content-encoding") && !value.eq_ignore_ascii_case(b"identity")
    })
}

/// Refuses a body that is encoded, for the reason `what`.
pub(super) fn refuse_encoded(head: &Head<'_, '_>, what: &'static str) -> Result<(), Failure> {
    if !is_encoded(head) {
        return Ok(());
    }
    Err(Failure::new(415, "content_encoding", what).with("Accept-Encoding", "identity"))
}

/// What is said of a field that is there twice: two readers would choose differently.
pub(super) fn given_twice(name: &str) -> Failure {
    Failure::new(400, "bad_header", format!("there is more than one {name}; send one"))
}

/// The value of the only field called `name`.
pub(super) fn only_field<'b>(head: &Head<'_, 'b>, name: &str) -> Result<Option<&'b [u8]>, Failure> {
    let mut found = head.fields().filter(|(known, _)| known.eq_ignore_ascii_case(name));
    let first = found.next().map(|(_, value)| value);
    if found.next().is_some() { Err(given_twice(name)) } else { Ok(first) }
}

pub(super) fn wrong_method(allowed: &'static str) -> Failure {
    Failure::new(405, "method_not_allowed", format!("this route takes {allowed}")).with("Allow", allowed)
}
