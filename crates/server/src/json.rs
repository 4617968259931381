//! Keys, values and rows as JSON, in lists and batches.

use crate::reply::JSON;
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use kv::{Attributes, CONTENT_TYPE_DEFAULT, Key, Version};
use serde_json::{Map, Value};
use std::time::SystemTime;

/// Adds `bytes` as text under `name`, or in base64 under `name_b64` if they are no UTF-8.
pub(super) fn insert_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match std::str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(format!("{name}_b64"), STANDARD.encode(bytes).into()),
    };
}

/// Writes what [`insert_bytes`] adds, as part of an object.
pub(super) fn push_bytes(text: &mut Vec<u8>, name: &str, bytes: &[u8]) {
    let written = match std::str::from_utf8(bytes) {
        Ok(utf8) => {
            [b"\"", name.as_bytes(), b"\":"].into_iter().for_each(|part| text.extend_from_slice(part));
            serde_json::to_writer(&mut *text, utf8)
        }
        Err(_) => {
            [b"\"", name.as_bytes(), b"_b64\":"].into_iter().for_each(|part| text.extend_from_slice(part));
            serde_json::to_writer(&mut *text, &STANDARD.encode(bytes))
        }
    };
    // Strings cannot fail to serialize.
    let _ = written;
}

/// Adds ETag, content type, content coding and end.
pub(super) fn insert_attributes(
    object: &mut Map<String, Value>,
    attributes: Attributes<'_>,
    version: Version,
) {
    let content_type = Some(attributes.content_type).filter(|stored| !stored.is_empty());
    object.insert("etag".to_owned(), etag(version));
    object.insert("type".to_owned(), content_type.unwrap_or(CONTENT_TYPE_DEFAULT).into());
    if !attributes.content_encoding.is_empty() {
        object.insert("encoding".to_owned(), attributes.content_encoding.into());
    }
    if let Some(at) = attributes.expires {
        let at = humantime::format_rfc3339_millis(SystemTime::from(at)).to_string();
        object.insert("expires".to_owned(), at.into());
    }
}

pub(super) fn etag(version: Version) -> Value {
    format!("\"{version}\"").into()
}

/// The bytes that are given as text or in base64, but not both.
pub(super) fn bytes_of(text: Option<&str>, encoded: Option<&str>) -> Result<Option<Vec<u8>>, &'static str> {
    match (text, encoded) {
        (None, None) => Ok(None),
        (Some(text), None) => Ok(Some(text.as_bytes().to_vec())),
        (None, Some(encoded)) => STANDARD.decode(encoded).map(Some).map_err(|_| "is no base64"),
        (Some(_), Some(_)) => Err("is given twice, as text and in base64"),
    }
}

/// A key that a list begins with, so that nobody has to escape it.
pub(super) fn cursor(from: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(from)
}

/// The other way.
pub(super) fn of_cursor(cursor: &[u8]) -> Option<Vec<u8>> {
    let from = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    (from.len() <= kv::KEY_BYTES_MAX).then_some(from)
}

/// Whether `Accept` prefers lines of JSON to one document.
pub(super) fn prefers_lines(accept: Option<&[u8]>) -> bool {
    let accept = accept.unwrap_or_default();
    let has = |name: &str| memchr::memmem::find(accept, name.as_bytes()).is_some();
    (has("application/x-ndjson") || has("application/jsonl")) && !has(JSON)
}

/// A key of JSON.
pub(super) fn key_of(text: Option<&str>, encoded: Option<&str>) -> Result<Key, String> {
    let bytes = bytes_of(text, encoded).map_err(|why| format!("the key {why}"))?;
    let bytes = bytes.ok_or("a line needs a key, as \"key\" or \"key_b64\"")?;
    Key::new(&bytes).ok_or_else(|| format!("a key has 1 to 1024 bytes, this one has {}", bytes.len()))
}
