//! Keys as request paths: percent-encoding, once, and nothing else.
//!
//! No dot segments, no merging of slashes: a key is the bytes behind the prefix.

use crate::KEY_BYTES_MAX;
use percent_encoding::percent_decode;

/// The key of `encoded`, the path behind [`super::KV_PREFIX`] without its query; decoded into `scratch`. An error says why it is none.
pub fn key_of_path<'s>(encoded: &'s [u8], scratch: &'s mut Vec<u8>) -> Result<&'s [u8], &'static str> {
    if !encoded.contains(&b'%') {
        return key_of_plain_path(encoded);
    }
    if !is_well_encoded(encoded) {
        return Err("the key has a % that is not followed by two hexadecimal digits; write %25 for a %");
    }
    scratch.clear();
    scratch.extend(percent_decode(encoded));
    key_of_plain_path(scratch)
}

/// Whether two hexadecimal digits follow every `%`.
pub fn is_well_encoded(encoded: &[u8]) -> bool {
    let is_escape = |rest: &[u8]| rest.len() >= 2 && rest[..2].iter().all(u8::is_ascii_hexdigit);
    encoded.iter().enumerate().all(|(at, byte)| *byte != b'%' || is_escape(&encoded[at + 1..]))
}

/// The same where no byte of `key` is a `%`.
pub fn key_of_plain_path(key: &[u8]) -> Result<&[u8], &'static str> {
    match key.len() {
        0 => Err("the key is empty; it has 1 to 1024 bytes"),
        1..=KEY_BYTES_MAX => Ok(key),
        _ => Err("the key is too long; it has 1 to 1024 bytes"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use percent_encoding::{NON_ALPHANUMERIC, percent_encode};

    #[test]
    fn every_key_survives_the_path() {
        let all_bytes: Vec<u8> = (0..=255).collect();
        for bytes in [&b"plain"[..], b"a/b//../c", b"100%", b"?#&+ ", &all_bytes] {
            let encoded = percent_encode(bytes, NON_ALPHANUMERIC).to_string();
            assert_eq!(key_of_path(encoded.as_bytes(), &mut Vec::new()), Ok(bytes));
        }
    }

    #[test]
    fn a_path_is_decoded_once_and_only_once() {
        assert_eq!(key_of_path(b"%2541", &mut Vec::new()), Ok(&b"%41"[..]));
        assert_eq!(key_of_path(b"a+b", &mut Vec::new()), Ok(&b"a+b"[..]));
    }

    #[test]
    fn what_is_no_key_says_why() {
        let long = [b'k'; KEY_BYTES_MAX + 1];
        for (encoded, why) in [
            (&b""[..], "is empty"),
            (&long, "is too long"),
            (b"%", "write %25 for a %"),
            (b"%4", "write %25 for a %"),
            (b"%4g", "write %25 for a %"),
            (b"%+1", "write %25 for a %"),
        ] {
            assert!(key_of_path(encoded, &mut Vec::new()).unwrap_err().contains(why));
        }
    }
}
