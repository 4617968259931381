//! What the fuzzer calls with bytes of its own: requests of the S3 API, and their bodies in chunks.

use super::answer;
use super::body::Checksums;
use super::request::{Operation, check_fields, operation};
use super::signature::{Payload, verify};
use crate::list::Entries;
use crate::query::{Params, decode};
use http1::{Limits, Slots, request};
use std::time::SystemTime;

const VALUE_BYTES_MAX: usize = 4096;

/// A request: head and body.
///
/// It is refused, or understood: a list then has an answer, and a value comes out of its chunks that one chunk alone would give.
pub fn s3(data: &[u8]) {
    let mut slots = Slots::default();
    let Ok(Some(head)) = request::parse(data, &Limits::USUAL, &mut slots) else { return };
    let path_end = memchr::memchr(b'?', head.target).unwrap_or(head.target.len());
    let path = decode(&head.target[..path_end], false);
    let mut params = Params::default();
    params.add(head.target.get(path_end + 1..).unwrap_or_default());
    // Nobody has signed it.
    assert!(verify(&head, &path, &params, &super::credentials::Table::empty(), SystemTime::now()).is_err());
    if let Ok(Operation::List(list)) = operation(&head, &path, &params, "weir") {
        assert!(list.query.from.starts_with(&list.query.prefix) || list.query.from > list.query.prefix);
        // Refused only for what XML cannot hold.
        let page = answer::list("weir", &list, &Entries::default(), |_, _| SystemTime::UNIX_EPOCH);
        assert!(page.is_ok() || !list.is_encoded);
    }
    let _ = check_fields(&head);
    let chunks = || Payload::Chunks { signer: None, has_trailer: true };
    let open = |body: &[u8], bytes: Option<&str>| {
        // Of a value alone nothing else is said.
        let is_said = |name: &str| match bytes {
            None => !name.eq_ignore_ascii_case("x-amz-trailer"),
            Some(_) => name.eq_ignore_ascii_case("content-md5"),
        };
        let more = bytes.map(|bytes| ("x-amz-decoded-content-length", bytes.as_bytes()));
        let fields = head.fields().filter(|(name, _)| is_said(name)).chain(more);
        Checksums::of(fields).and_then(|sums| sums.open(body.to_vec(), chunks(), VALUE_BYTES_MAX))
    };
    if let Ok(value) = open(&data[head.bytes..], None) {
        assert!(value.len() <= VALUE_BYTES_MAX);
        let length = value.len().to_string();
        let chunk = if value.is_empty() { Vec::new() } else { [&value[..], b"\r\n"].concat() };
        let size = if value.is_empty() { String::new() } else { format!("{:x}\r\n", value.len()) };
        let alone = [size.as_bytes(), &chunk, b"0\r\n\r\n"].concat();
        assert_eq!(open(&alone, Some(&length)).ok(), Some(value));
    }
}
