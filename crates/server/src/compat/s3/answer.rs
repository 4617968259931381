//! Answers of the S3 API as bytes: heads, and XML.

use super::request::{ETAG_END, S3List};
use crate::error::Failure;
use crate::head::ReadCondition;
use crate::json;
use crate::list::Entries;
use crate::reply::{NO_CACHE, Request, start};
use crate::tiered::Served;
use http1::Writer;
use kv::{CONTENT_TYPE_DEFAULT, Row, Version, escaped, proto};
use percent_encoding::percent_encode;
use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;
use std::time::SystemTime;

const XML: &str = "Content-Type: application/xml\r\n";
const DECLARATION: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
const NAMESPACE: &str = "xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"";

/// An answer that is no failure.
pub(super) enum Answer {
    Row { row: Row, condition: ReadCondition, modified: SystemTime, served: Served },
    Empty { status: u16, etag: Option<Version> },
    Xml(String),
}

impl Answer {
    /// What the body is a part of.
    pub(super) fn body(&self) -> &[u8] {
        match self {
            Answer::Row { row, .. } => row.value(),
            Answer::Empty { .. } => b"",
            Answer::Xml(text) => text.as_bytes(),
        }
    }

    /// Appends the head; the status, and which part of the body follows.
    pub(super) fn write_head(
        &self,
        output: &mut Vec<u8>,
        request: &Request,
    ) -> Result<(u16, Range<usize>), Failure> {
        let length = self.body().len();
        match self {
            Answer::Empty { status, etag } => {
                let mut writer = begin(output, *status, request, request.keep_alive);
                if let Some(version) = etag {
                    writer = writer.field("ETag", etag_of(*version).as_bytes());
                }
                match *status {
                    // It has neither body nor length.
                    204 => writer.end(),
                    _ => writer.end_with_length(0),
                }
                Ok((*status, 0..0))
            }
            Answer::Xml(_) => {
                begin(output, 200, request, request.keep_alive)
                    .lines(NO_CACHE)
                    .lines(XML)
                    .end_with_length(length as u64);
                Ok((200, 0..length))
            }
            Answer::Row { row, condition, modified, .. } => {
                let (status, part) = condition.choose(row.version(), length).map_err(|()| {
                    Failure::new(416, "InvalidRange", format!("the value has {length} bytes"))
                        .with("Content-Range", format!("bytes */{length}"))
                })?;
                let mut writer = begin(output, status, request, request.keep_alive)
                    .field("ETag", etag_of(row.version()).as_bytes())
                    .field("Last-Modified", httpdate::fmt_http_date(*modified).as_bytes())
                    .lines(NO_CACHE);
                if status == 304 {
                    writer.end();
                    return Ok((status, 0..0));
                }
                let attributes = row.attributes();
                if !attributes.content_encoding.is_empty() {
                    writer = writer.field("Content-Encoding", attributes.content_encoding.as_bytes());
                }
                let content_type = match row.content_type() {
                    b"" => CONTENT_TYPE_DEFAULT.as_bytes(),
                    stored => stored,
                };
                writer = writer.field("Content-Type", content_type).lines("Accept-Ranges: bytes\r\n");
                if let Some(part) = &part {
                    let said = format!("bytes {}-{}/{length}", part.start, part.end - 1);
                    writer = writer.field("Content-Range", said.as_bytes());
                }
                let part = part.unwrap_or(0..length);
                writer.end_with_length(part.len() as u64);
                Ok((status, part))
            }
        }
    }
}

/// Appends the answer to a request that failed; the status.
pub(crate) fn write_failure(
    output: &mut Vec<u8>,
    failure: &Failure,
    request: &Request,
    keep_alive: bool,
) -> u16 {
    let (status, code) = status_and_code(failure);
    let mut text = format!("{DECLARATION}<Error><Code>{code}</Code>");
    element(&mut text, "Message", &failure.detail);
    if let Some(id) = request.id() {
        element(&mut text, "RequestId", id);
    }
    text.push_str("</Error>");
    let mut writer = begin(output, status, request, keep_alive).lines(NO_CACHE).lines(XML);
    if let Some(outcome) = failure.outcome {
        writer = writer.field(proto::OUTCOME, outcome.name().as_bytes());
    }
    for (name, value) in failure.headers.iter().filter(|(name, _)| *name != "ETag") {
        writer = writer.field(name, value.as_bytes());
    }
    writer.end_with_length(text.len() as u64);
    if !request.is_head() {
        output.extend_from_slice(text.as_bytes());
    }
    status
}

/// Codes of S3's begin with a capital; the others are those of the plain interface. A write whose outcome is unknown is 500, one
/// that was not made, and may be repeated, 503.
fn status_and_code(failure: &Failure) -> (u16, &'static str) {
    match (failure.status, failure.code) {
        (status, code) if code.starts_with(|letter: char| letter.is_ascii_uppercase()) => (status, code),
        (_, "store_unknown") => (500, "InternalError"),
        (_, "overloaded" | "too_many_connections") => (503, "SlowDown"),
        (503 | 504, _) => (503, "ServiceUnavailable"),
        (404, _) => (404, "NoSuchKey"),
        (403, _) => (403, "AccessDenied"),
        (408, _) => (400, "RequestTimeout"),
        (411, _) => (411, "MissingContentLength"),
        (412, _) => (412, "PreconditionFailed"),
        (413, _) => (400, "EntityTooLarge"),
        (501, _) => (501, "NotImplemented"),
        (_, "incomplete") => (400, "IncompleteBody"),
        (status, _) if status >= 500 => (status, "InternalError"),
        (status, _) => (status, "InvalidRequest"),
    }
}

/// Status line and the fields every answer has.
fn begin<'o>(output: &'o mut Vec<u8>, status: u16, request: &Request, keep_alive: bool) -> Writer<'o> {
    let writer = start(output, status, request, keep_alive);
    match request.id() {
        Some(id) => writer.field("x-amz-request-id", id.as_bytes()),
        None => writer,
    }
}

fn etag_of(version: Version) -> String {
    format!("\"{version}{ETAG_END}\"")
}

/// The list of buckets, of which there is one. It is as old as the server's start.
pub(super) fn buckets(bucket: &str, started: SystemTime) -> String {
    let mut text = format!(
        "{DECLARATION}<ListAllMyBucketsResult {NAMESPACE}><Owner><ID>weir</ID></Owner><Buckets><Bucket>"
    );
    element(&mut text, "Name", bucket);
    element(&mut text, "CreationDate", &time(started));
    text.push_str("</Bucket></Buckets></ListAllMyBucketsResult>");
    text
}

/// An empty location is us-east-1, which clients take if nothing is configured.
pub(super) fn location() -> String {
    format!("{DECLARATION}<LocationConstraint {NAMESPACE}></LocationConstraint>")
}

/// A page of a list. `modified` says since when a key has its version.
pub(super) fn list(
    bucket: &str,
    list: &S3List,
    page: &Entries,
    modified: impl Fn(&[u8], Version) -> SystemTime,
) -> Result<String, Failure> {
    let mut text = format!("{DECLARATION}<ListBucketResult {NAMESPACE}>");
    element(&mut text, "Name", bucket);
    element(&mut text, "Prefix", &shown(&list.query.prefix, list.is_encoded)?);
    if !list.query.delimiter.is_empty() {
        element(&mut text, "Delimiter", &shown(&list.query.delimiter, list.is_encoded)?);
    }
    element(&mut text, "MaxKeys", &list.query.limit.to_string());
    if list.is_encoded {
        element(&mut text, "EncodingType", "url");
    }
    let [marker, start_after, token] = &list.begins;
    if list.is_v2 {
        element(&mut text, "KeyCount", &(page.rows.len() + page.prefixes.len()).to_string());
    } else {
        element(&mut text, "Marker", &shown(marker.as_deref().unwrap_or_default(), list.is_encoded)?);
    }
    if let Some(after) = start_after {
        element(&mut text, "StartAfter", &shown(after, list.is_encoded)?);
    }
    if let Some(token) = token {
        element(&mut text, "ContinuationToken", &String::from_utf8_lossy(token));
    }
    // The first version goes on behind the last entry: without one there is nothing to go on from.
    let last_key = page.rows.last().map(|listed| listed.row.key());
    let last = last_key.max(page.prefixes.last().map(Vec::as_slice));
    let next = page.next.as_ref().filter(|_| list.is_v2 || last.is_some());
    element(&mut text, "IsTruncated", if next.is_some() { "true" } else { "false" });
    match (next, last) {
        (Some(next), _) if list.is_v2 => element(&mut text, "NextContinuationToken", &json::cursor(next)),
        (Some(_), Some(last)) => element(&mut text, "NextMarker", &shown(last, list.is_encoded)?),
        _ => {}
    }
    for listed in &page.rows {
        text.push_str("<Contents>");
        element(&mut text, "Key", &shown(listed.row.key(), list.is_encoded)?);
        element(&mut text, "LastModified", &time(modified(listed.row.key(), listed.row.version())));
        element(&mut text, "ETag", &etag_of(listed.row.version()));
        element(&mut text, "Size", &listed.value_bytes.to_string());
        text.push_str("<StorageClass>STANDARD</StorageClass></Contents>");
    }
    for prefix in &page.prefixes {
        text.push_str("<CommonPrefixes>");
        element(&mut text, "Prefix", &shown(prefix, list.is_encoded)?);
        text.push_str("</CommonPrefixes>");
    }
    text.push_str("</ListBucketResult>");
    Ok(text)
}

/// Seconds, as in `Last-Modified`.
fn time(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string().replace('Z', ".000Z")
}

/// A key as it stands in a list. XML has no place for some letters, nor for what is not UTF-8.
fn shown(bytes: &[u8], is_encoded: bool) -> Result<Cow<'_, str>, Failure> {
    if is_encoded {
        return Ok(percent_encode(bytes, super::signature::ENCODED_IN_PATHS).into());
    }
    let is_writable =
        |letter: char| (letter >= ' ' || "\t\n\r".contains(letter)) && !"\u{fffe}\u{ffff}".contains(letter);
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.chars().all(is_writable));
    let what = "a key of this list cannot be written in XML; ask with encoding-type=url";
    text.map(Cow::Borrowed).ok_or_else(|| Failure::new(400, "InvalidArgument", what))
}

/// Appends `<name>text</name>`.
fn element(output: &mut String, name: &str, text: &str) {
    // Writing to a string cannot fail.
    let _ = write!(output, "<{name}>{}</{name}>", escaped(text));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tiered::{Error, Kind, WriteError};
    use kv::Outcome;

    #[test]
    fn a_failed_write_says_in_its_status_whether_it_may_have_happened() {
        for (kind, status, code, outcome) in [
            (Kind::Unknown, 500, "InternalError", Outcome::Unknown),
            (Kind::Unavailable, 503, "ServiceUnavailable", Outcome::NotApplied),
            (Kind::Overloaded, 503, "SlowDown", Outcome::NotApplied),
            (Kind::Refused, 503, "ServiceUnavailable", Outcome::NotApplied),
            (Kind::Unfit, 400, "InvalidRequest", Outcome::NotApplied),
        ] {
            let failure = Failure::of_write(WriteError::Store(Error::new(kind, "x")));
            let mut output = Vec::new();
            let request = Request::unparsed(&[], std::time::Instant::now());
            assert_eq!(write_failure(&mut output, &failure, &request, false), status);
            let text = String::from_utf8(output).unwrap();
            assert!(text.contains(&format!("<Code>{code}</Code>")), "{text}");
            assert!(text.contains(&format!("{}: {}\r\n", proto::OUTCOME, outcome.name())), "{text}");
        }
    }

    #[test]
    fn what_xml_cannot_hold_is_encoded_or_refused() {
        assert_eq!(shown(b"a/\xff +", true).unwrap(), "a/%FF%20%2B");
        assert_eq!(shown(b"a <", false).unwrap(), "a <");
        for wrong in [&b"\xff"[..], b"\0", b"\x1b", "\u{ffff}".as_bytes()] {
            assert_eq!(shown(wrong, false).unwrap_err().code, "InvalidArgument");
        }
        let mut text = String::new();
        element(&mut text, "Key", "<a&\">\r");
        assert_eq!(text, "<Key>&lt;a&amp;&quot;&gt;&#13;</Key>");
    }
}
