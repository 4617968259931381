//! Keys, values and rows as JSON, in lists and batches.

use crate::reply::JSON;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kv::{Attributes, CONTENT_TYPE_DEFAULT, Key, Row, Version};
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::io::Write;
use std::time::SystemTime;

/// What is said of a key: the members of an object of JSON. Those that are not there are left out.
#[derive(Default, Serialize)]
pub(super) struct Members<'m> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cache_status: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) encoding: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) etag: Option<Etag>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) expires: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<&'m str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key_b64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) status: Option<u16>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub(super) content_type: Option<&'m str>,
}

impl<'m> Members<'m> {
    /// Of a row, without its key and value.
    pub(super) fn of(row: &'m Row) -> Members<'m> {
        let Attributes { content_type, content_encoding, expires } = row.attributes();
        Members {
            encoding: Some(content_encoding).filter(|coding| !coding.is_empty()),
            etag: Some(Etag(row.version())),
            expires: expires.map(|at| humantime::format_rfc3339_millis(SystemTime::from(at)).to_string()),
            content_type: Some(if content_type.is_empty() { CONTENT_TYPE_DEFAULT } else { content_type }),
            ..Members::default()
        }
    }

    /// With a key: as text, or in base64 if it is no UTF-8.
    pub(super) fn with_key(self, key: &'m [u8]) -> Members<'m> {
        match std::str::from_utf8(key) {
            Ok(text) => Members { key: Some(text), ..self },
            Err(_) => Members { key_b64: Some(STANDARD.encode(key)), ..self },
        }
    }
}

/// A version, in its quotation marks.
pub(super) struct Etag(pub(super) Version);

impl Serialize for Etag {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("\"{}\"", self.0))
    }
}

/// Writes `bytes` as text under `name`, or in base64 under `name_b64` if they are no UTF-8.
pub(super) fn push_bytes(text: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let (end, value) = match std::str::from_utf8(bytes) {
        Ok(utf8) => ("", Cow::Borrowed(utf8)),
        Err(_) => ("_b64", Cow::Owned(STANDARD.encode(bytes))),
    };
    // Memory takes everything, and strings cannot fail to serialize.
    let _ = write!(text, "\"{name}{end}\":");
    let _ = serde_json::to_writer(text, &value);
}

/// The bytes that are given as text or in base64, but not both.
pub(super) fn bytes_of<'t>(
    text: Option<&'t str>,
    encoded: Option<&str>,
) -> Result<Option<Cow<'t, [u8]>>, &'static str> {
    match (text, encoded) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.as_bytes().into())),
        (None, Some(encoded)) => {
            STANDARD.decode(encoded).map(|bytes| Some(bytes.into())).map_err(|_| "is no base64")
        }
        (Some(_), Some(_)) => Err("is given twice, as text and in base64"),
    }
}

/// A key that a list begins with, so that nobody has to escape it.
pub(super) fn cursor(from: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(from)
}

/// The other way. What is behind the longest key is a byte longer.
pub(super) fn of_cursor(cursor: &[u8]) -> Option<Vec<u8>> {
    let from = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    (from.len() <= kv::KEY_BYTES_MAX + 1).then_some(from)
}

/// Whether `Accept` prefers lines of JSON to one document.
pub(super) fn prefers_lines(accept: Option<&[u8]>) -> bool {
    let accept = accept.unwrap_or_default();
    let has = |name: &str| memchr::memmem::find(accept, name.as_bytes()).is_some();
    has("application/x-ndjson") && !has(JSON)
}

/// A key of JSON.
pub(super) fn key_of(text: Option<&str>, encoded: Option<&str>) -> Result<Key, String> {
    let bytes = bytes_of(text, encoded).map_err(|why| format!("the key {why}"))?;
    let bytes = bytes.ok_or("a line needs a key, as \"key\" or \"key_b64\"")?;
    Key::new(&bytes).ok_or_else(|| format!("a key has 1 to 1024 bytes, this one has {}", bytes.len()))
}
