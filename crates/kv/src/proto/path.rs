//! Keys as request paths: percent-encoding, once, and nothing else.
//!
//! No dot segments, no merging of slashes: a key is the bytes behind the prefix.

use super::KV_PREFIX;
use crate::{KEY_BYTES_MAX, Key};

/// Why the rest of a path is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadKey {
    /// No byte of it.
    Empty,
    /// More than [`KEY_BYTES_MAX`] bytes.
    TooLong,
    /// A `%` without two hexadecimal digits.
    BadEscape,
}

impl BadKey {
    /// The same for people.
    pub fn as_str(self) -> &'static str {
        match self {
            BadKey::Empty => "the key is empty; it has 1 to 1024 bytes",
            BadKey::TooLong => "the key is too long; it has 1 to 1024 bytes",
            BadKey::BadEscape => {
                "the key has a % that is not followed by two hexadecimal digits; write %25 for a %"
            }
        }
    }
}

/// The key that `encoded`, the path behind [`KV_PREFIX`] without its query, stands for; decoded into `scratch`.
pub fn key_of_path<'s>(encoded: &'s [u8], scratch: &'s mut Vec<u8>) -> Result<&'s [u8], BadKey> {
    let key = if encoded.contains(&b'%') {
        scratch.clear();
        let mut rest = encoded;
        while let Some((&byte, tail)) = rest.split_first() {
            rest = tail;
            if byte != b'%' {
                scratch.push(byte);
                continue;
            }
            let [high, low, tail @ ..] = rest else { return Err(BadKey::BadEscape) };
            let (Some(high), Some(low)) = (hex_digit(*high), hex_digit(*low)) else {
                return Err(BadKey::BadEscape);
            };
            scratch.push(high << 4 | low);
            rest = tail;
        }
        scratch.as_slice()
    } else {
        encoded
    };
    key_of_plain_path(key)
}

/// The same where no byte of `key` is a `%`.
pub fn key_of_plain_path(key: &[u8]) -> Result<&[u8], BadKey> {
    match key.len() {
        0 => Err(BadKey::Empty),
        1..=KEY_BYTES_MAX => Ok(key),
        _ => Err(BadKey::TooLong),
    }
}

/// The path of a key: [`KV_PREFIX`] and the key, with all but unreserved characters and `/` encoded.
pub fn path_of_key(key: &Key) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut path = String::with_capacity(KV_PREFIX.len() + key.as_bytes().len());
    path.push_str(KV_PREFIX);
    for &byte in key.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                path.push(byte as char);
            }
            _ => path.extend(['%', HEX[usize::from(byte >> 4)] as char, HEX[usize::from(byte & 15)] as char]),
        }
    }
    path
}

fn hex_digit(byte: u8) -> Option<u8> {
    (byte as char).to_digit(16).map(|digit| digit as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_survives_the_path() {
        let all_bytes: Vec<u8> = (0..=255).collect();
        for bytes in [&b"plain"[..], b"a/b//../c", b"100%", b"?#&+ ", &all_bytes] {
            let key = Key::new(bytes).unwrap();
            let path = path_of_key(&key);
            assert!(path.is_ascii() && !path.contains([' ', '?', '#']), "{path}");
            let encoded = &path.as_bytes()[KV_PREFIX.len()..];
            assert_eq!(key_of_path(encoded, &mut Vec::new()), Ok(bytes));
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
            (&b""[..], BadKey::Empty),
            (&long, BadKey::TooLong),
            (b"%", BadKey::BadEscape),
            (b"%4", BadKey::BadEscape),
            (b"%4g", BadKey::BadEscape),
            (b"%+1", BadKey::BadEscape),
        ] {
            assert_eq!(key_of_path(encoded, &mut Vec::new()), Err(why));
        }
    }
}
