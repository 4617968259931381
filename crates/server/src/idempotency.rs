//! `Idempotency-Key`: what tells a request that is sent again from another one.

use super::error::Failure;
use kv::Precondition;
use sha2::{Digest, Sha256};
use std::time::Duration;
use store::Idempotency;

/// The longest `Idempotency-Key`, in bytes.
const BYTES_MAX: usize = 255;

/// Checks the value of the field.
pub(super) fn parse(value: &[u8]) -> Result<Box<[u8]>, Failure> {
    if (1..=BYTES_MAX).contains(&value.len()) {
        return Ok(value.into());
    }
    let what = format!("an Idempotency-Key has 1 to {BYTES_MAX} bytes, this one has {}", value.len());
    Err(Failure::new(400, "bad_header", what).not_applied())
}

/// What a request does to its key, as far as it has to be the same if it is sent again.
pub(super) struct Payload<'r> {
    pub(super) method: &'static str,
    pub(super) content_type: &'r str,
    pub(super) content_encoding: &'r str,
    pub(super) ttl: Option<Duration>,
    pub(super) condition: &'r Precondition,
    pub(super) value: &'r [u8],
}

impl<'r> Payload<'r> {
    pub(super) fn without_value(method: &'static str, condition: &'r Precondition) -> Payload<'r> {
        Payload { method, content_type: "", content_encoding: "", ttl: None, condition, value: b"" }
    }
}

/// Digests of a request for `key` with the `Idempotency-Key` `given`.
pub(super) fn of(given: &[u8], key: &[u8], payload: &Payload<'_>) -> Idempotency {
    let Payload { method, content_type, content_encoding, ttl, condition, value } = payload;
    let ttl = ttl.map_or(0, |ttl| ttl.as_secs()).to_le_bytes();
    let condition = format!("{condition:?}");
    let parts =
        [method.as_bytes(), content_type.as_bytes(), content_encoding.as_bytes(), &ttl, condition.as_bytes()];
    Idempotency { id: digest(&[key, given]), digest: digest(&[&parts[..], &[*value]].concat()) }
}

/// What tells a write in a batch with the `Idempotency-Key` `given`: it is the `count`th of this key.
pub(super) fn id_of_line(given: &[u8], key: &[u8], count: usize) -> [u8; 16] {
    digest(&[key, given, &count.to_le_bytes()])
}

/// The first bytes of the SHA-256 of `parts` with their lengths.
pub(super) fn digest<const BYTES: usize>(parts: &[&[u8]]) -> [u8; BYTES] {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut bytes = [0; BYTES];
    bytes.copy_from_slice(&hasher.finalize()[..BYTES]);
    bytes
}
