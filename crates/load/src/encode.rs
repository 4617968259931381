//! Encodings that a dialect may want: base64 and percent signs.
//!
//! Bytes in, bytes out; knows neither dialects nor values.

/// The signs of base64 by their six bits (RFC 4648, section 4).
const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// How long base64 of so many bytes is.
pub(super) fn base64_bytes(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

/// Appends `bytes` in base64, padded.
pub(super) fn write_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    for three in bytes.chunks(3) {
        let byte = |place: usize| three.get(place).copied().unwrap_or(0);
        let word = u32::from_be_bytes([0, byte(0), byte(1), byte(2)]);
        let sign = |place: usize| SIGNS[(word >> (18 - 6 * place)) as usize & 63];
        // So many bytes take one character more.
        out.extend((0..4).map(|place| if place <= three.len() { sign(place) } else { b'=' }));
    }
}

/// Appends the bytes that `text` begins with in base64, up to the first character that is none, padding included.
pub(super) fn read_base64(out: &mut Vec<u8>, text: &[u8]) {
    let (mut word, mut bits) = (0_u32, 0);
    for character in text {
        let Some(six) = SIGNS.iter().position(|sign| sign == character) else { break };
        word = word << 6 | six as u32;
        bits += 6;
        if bits >= 8 {
            bits -= 8;
            out.push((word >> bits) as u8);
        }
    }
}

/// Appends `bytes` with all but unreserved characters percent-encoded.
pub(super) fn write_percent(out: &mut Vec<u8>, bytes: &[u8]) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(byte),
            _ => out.extend([b'%', HEX[usize::from(byte >> 4)], HEX[usize::from(byte & 15)]]),
        }
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
