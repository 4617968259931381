//! What routes and answers need of a request's head.

use super::error::Failure;
use http1::request::{Head, Method};
use kv::{CONTENT_TYPE_BYTES_MAX, Precondition, Version};

/// The preconditions of a read. Of an absent row none is looked at (RFC 9110, 13.2.1).
#[derive(Clone, Debug)]
pub(super) struct ReadCondition {
    /// `If-Match`: the row is sent only if this holds.
    pub(super) only_if: Precondition,
    /// `If-None-Match`: the row is not sent if this holds.
    pub(super) unless: Option<Precondition>,
}

impl ReadCondition {
    /// Whether `If-Match` lets the row be sent.
    pub(super) fn admits(&self, version: Version) -> bool {
        self.only_if.holds(Some(version))
    }
}

/// A proxy may send the target with scheme and host; what follows them is the path.
pub(super) fn origin_form(target: &[u8]) -> &[u8] {
    if target.first() == Some(&b'/') {
        return target;
    }
    match memchr::memmem::find(target, b"://") {
        Some(at) => {
            let authority = &target[at + 3..];
            // A query may come without a path, and have a / of its own.
            match memchr::memchr2(b'/', b'?', authority) {
                Some(path) if authority[path] == b'/' => &authority[path..],
                _ => b"/",
            }
        }
        None => target,
    }
}

pub(super) fn content_type(value: Option<&[u8]>) -> Result<String, Failure> {
    let text = value.map_or(Some(""), |value| std::str::from_utf8(value).ok());
    match text {
        Some(text) if text.len() <= CONTENT_TYPE_BYTES_MAX && text.is_ascii() => Ok(text.to_owned()),
        _ => {
            let what = "the Content-Type is not ASCII or longer than 255 bytes; send a shorter one or none";
            Err(Failure::new(400, "bad_header", what).not_applied())
        }
    }
}

/// Whether a field says that the value is encoded.
pub(super) fn is_encoded(head: &Head<'_, '_>) -> bool {
    let mut fields = head.fields();
    fields.any(|(name, value)| {
        name.eq_ignore_ascii_case("content-encoding") && !value.eq_ignore_ascii_case(b"identity")
    })
}

/// Refuses a value that is encoded: nothing keeps the name of its coding, and it would be given back without.
pub(super) fn refuse_encoded(head: &Head<'_, '_>) -> Result<(), Failure> {
    if !is_encoded(head) {
        return Ok(());
    }
    let what = "a Content-Encoding is not stored; send the value without one, or leave the header out and name \
                the format in Content-Type";
    Err(Failure::new(415, "content_encoding", what).not_applied().with("Accept-Encoding", "identity"))
}

/// A failure of a write says that it was not made; one of a read needs no such word.
pub(super) fn refuse(method: Method, failure: Failure) -> Failure {
    match method {
        Method::Get | Method::Head => failure,
        _ => failure.not_applied(),
    }
}

pub(super) fn wrong_method(allowed: &'static str) -> Failure {
    Failure::new(405, "method_not_allowed", format!("this route takes {allowed}"))
        .not_applied()
        .with("Allow", allowed)
}
