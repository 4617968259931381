//! `Idempotency-Key`: what tells a request that is sent again from another one.

use super::change::{Change, Expiry};
use super::error::Failure;
use kv::Precondition;
use ring::digest::{Context, SHA256};
use store::Idempotency;

/// The longest `Idempotency-Key`, in bytes.
const BYTES_MAX: usize = 255;

/// Checks the value of the field.
pub(super) fn parse(value: &[u8]) -> Result<Box<[u8]>, Failure> {
    if (1..=BYTES_MAX).contains(&value.len()) {
        return Ok(value.into());
    }
    let what = format!("an Idempotency-Key has 1 to {BYTES_MAX} bytes, this one has {}", value.len());
    Err(Failure::new(400, "bad_header", what))
}

/// Digests of a request for `key` with the `Idempotency-Key` `given`: of what has to be the same if it is sent again.
pub(super) fn of(given: &[u8], key: &[u8], change: &Change, condition: &Precondition) -> Idempotency {
    let (method, content_type, content_encoding, value) = match change {
        Change::Put { content_type, content_encoding, value, .. } => {
            ("PUT", content_type.as_str(), content_encoding.as_str(), value.as_slice())
        }
        Change::Touch(_) => ("POST", "", "", &b""[..]),
        Change::Delete => ("DELETE", "", "", &b""[..]),
    };
    let ttl = match change {
        Change::Put { expiry: Some(Expiry::After(ttl)), .. } | Change::Touch(ttl) => ttl.as_secs(),
        _ => 0,
    };
    let condition = format!("{condition:?}");
    let parts = [
        method.as_bytes(),
        content_type.as_bytes(),
        content_encoding.as_bytes(),
        &ttl.to_le_bytes(),
        condition.as_bytes(),
        value,
    ];
    Idempotency { id: digest(&[key, given]), digest: digest(&parts) }
}

/// What tells a write in a batch with the `Idempotency-Key` `given`: it is the `count`th of this key.
pub(super) fn id_of_line(given: &[u8], key: &[u8], count: usize) -> [u8; 16] {
    digest(&[key, given, &count.to_le_bytes()])
}

/// The first bytes of the SHA-256 of `parts` with their lengths.
pub(super) fn digest<const BYTES: usize>(parts: &[&[u8]]) -> [u8; BYTES] {
    let mut hasher = Context::new(&SHA256);
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&hasher.finish().as_ref()[..BYTES]);
    bytes
}
