//! Encodings that a dialect may want: base64 and percent signs.

use base64::Engine;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

/// Reads text that was cut off, too.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// The length of base64 of this many bytes.
pub(super) fn base64_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Appends `bytes` in base64, padded.
pub(super) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + base64_bytes(bytes.len()), 0);
    BASE64.encode_slice(bytes, &mut out[start..]).expect("there is room for all of it");
}

/// Appends the bytes that `text` begins with in base64, up to the first character that is none, padding included.
pub(super) fn read_base64(out: &mut Vec<u8>, text: &[u8]) {
    let is_base64 = |sign: &u8| sign.is_ascii_alphanumeric() || matches!(sign, b'+' | b'/');
    let length = text.iter().position(|sign| !is_base64(sign)).unwrap_or(text.len());
    // A single character behind the last four has no whole byte.
    let length = if length % 4 == 1 { length - 1 } else { length };
    BASE64.decode_vec(&text[..length], out).expect("all characters are of base64");
}

/// Appends `bytes` with all but unreserved characters percent-encoded.
pub(super) fn write_percent(out: &mut Vec<u8>, bytes: &[u8]) {
    const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
    for part in percent_encode(bytes, RESERVED) {
        out.extend_from_slice(part.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_that_of_everybody() {
        for (bytes, expected) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("~~~?", "fn5+Pw=="),
        ] {
            let (mut out, mut back) = (Vec::new(), Vec::new());
            write_base64(&mut out, bytes.as_bytes());
            assert_eq!((out.as_slice(), out.len()), (expected.as_bytes(), base64_bytes(bytes.len())));
            read_base64(&mut back, &[&out, &b"\",\"and so on\""[..]].concat());
            assert_eq!(back, bytes.as_bytes());
        }
    }

    #[test]
    fn what_is_not_unreserved_is_percent_encoded() {
        let mut out = Vec::new();
        write_percent(&mut out, b"a-Z.0_9~=+/\xff");
        assert_eq!(out, b"a-Z.0_9~%3D%2B%2F%FF");
    }
}
