//! Bodies: the chunks that SDKs send (`aws-chunked`), with signatures and trailers, and the checksums that a value must have.

use super::signature::{ChunkSigner, Payload, sha256};
use crate::error::Failure;
use crate::query::Params;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use crc::{CRC_32_ISCSI, CRC_32_ISO_HDLC, CRC_64_NVME, Crc, Table};
use md5::{Digest, Md5};
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, SHA256, digest};

/// What chunks may add to a value of `value_bytes`: a line of 90 bytes to each, of which the smallest common ones have 8 KiB.
pub(super) fn with_chunks(value_bytes: usize) -> usize {
    value_bytes + value_bytes / 64 + (16 << 10)
}

/// Of all fields behind the last chunk, and of the line before a chunk.
const TRAILER_BYTES_MAX: usize = 4096;

/// Computes a checksum.
type Algorithm = fn(&[u8]) -> Vec<u8>;

/// By the name that follows `x-amz-checksum-`.
const ALGORITHMS: [(&str, Algorithm); 5] = [
    ("crc32", |bytes| CRC32.checksum(bytes).to_be_bytes().to_vec()),
    ("crc32c", |bytes| CRC32C.checksum(bytes).to_be_bytes().to_vec()),
    ("crc64nvme", |bytes| CRC64.checksum(bytes).to_be_bytes().to_vec()),
    ("sha1", |bytes| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec()),
    ("sha256", |bytes| digest(&SHA256, bytes).as_ref().to_vec()),
];
static CRC32: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISO_HDLC);
static CRC32C: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);
static CRC64: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_NVME);

/// What a value has to have.
#[derive(Debug, Default)]
pub(super) struct Checksums {
    /// Index of the algorithm, and the checksum in base64.
    sums: Vec<(usize, String)>,
    md5: Option<String>,
    /// Names of checksums that follow the last chunk.
    announced: Vec<usize>,
    /// Bytes of the value in its chunks.
    decoded_bytes: Option<usize>,
    /// Whether `Content-Encoding` says that there are any.
    is_chunked: bool,
}

impl Checksums {
    /// Those in the fields of a head.
    pub(super) fn of<'f>(fields: impl Iterator<Item = (&'f str, &'f [u8])>) -> Result<Checksums, Failure> {
        let mut sums = Checksums::default();
        for (name, value) in fields {
            let (name, value) = (name.to_ascii_lowercase(), String::from_utf8_lossy(value));
            match name.as_str() {
                "content-encoding" => {
                    let mut codings = value.split(',').map(str::trim);
                    sums.is_chunked |= codings.any(|coding| coding.eq_ignore_ascii_case("aws-chunked"));
                }
                "content-md5" => sums.md5 = Some(value.into_owned()),
                "x-amz-decoded-content-length" => {
                    let bytes = value.parse();
                    let what = "x-amz-decoded-content-length is not a number";
                    sums.decoded_bytes = Some(bytes.map_err(|_| Failure::new(400, "InvalidArgument", what))?);
                }
                "x-amz-trailer" => {
                    for name in value.split(',').map(str::trim) {
                        let known = algorithm(&name.to_ascii_lowercase()).ok_or_else(|| {
                            Failure::new(501, "NotImplemented", format!("the trailer {name:?}"))
                        })?;
                        sums.announced.push(known);
                    }
                }
                name => sums.add(name, &value),
            }
        }
        Ok(sums)
    }

    /// Adds those in the query of a signed URL, but for one of nothing: the SDK for JavaScript signs that before there is a value.
    pub(super) fn with_parameters(mut self, params: &Params) -> Checksums {
        for (name, value) in params.iter() {
            let (name, value) =
                (String::from_utf8_lossy(name).to_ascii_lowercase(), String::from_utf8_lossy(value));
            let is_of_nothing = |known: usize| STANDARD.encode((ALGORITHMS[known].1)(b"")) == *value;
            if algorithm(&name).is_some_and(|known| !is_of_nothing(known)) {
                self.add(&name, &value);
            }
        }
        self
    }

    fn add(&mut self, name: &str, value: &str) {
        self.sums.extend(algorithm(name).map(|known| (known, value.to_owned())));
    }

    /// The value in `body`, which came as the `payload` says.
    pub(super) fn open(mut self, body: Vec<u8>, payload: Payload, most: usize) -> Result<Vec<u8>, Failure> {
        let bad = |what: &'static str| Failure::new(400, "IncompleteBody", what);
        // The chunks would become the value.
        if !matches!(payload, Payload::Chunks { .. })
            && (self.is_chunked || self.decoded_bytes.is_some_and(|decoded| decoded != body.len()))
        {
            let what = "aws-chunked needs an x-amz-content-sha256 that begins with STREAMING-";
            return Err(Failure::new(400, "InvalidArgument", what));
        }
        let value = match payload {
            Payload::Unsigned => body,
            Payload::Hash(expected) => {
                if sha256(&body) != expected {
                    let what = "the body does not have the SHA-256 that x-amz-content-sha256 says";
                    return Err(Failure::new(400, "XAmzContentSHA256Mismatch", what));
                }
                body
            }
            Payload::Chunks { signer, has_trailer } => {
                let Some(decoded) = self.decoded_bytes else {
                    let what = "chunks need x-amz-decoded-content-length";
                    return Err(Failure::new(411, "MissingContentLength", what));
                };
                let mut chunks = Chunks { body, read: 0, signer };
                let value = chunks.value(decoded, most)?;
                let trailer = chunks.trailer()?;
                if !trailer.is_empty() && !has_trailer {
                    return Err(bad("there are bytes behind the last chunk"));
                }
                for (name, sum) in &trailer {
                    self.add(name, sum);
                }
                value
            }
        };
        if let Some(missing) =
            self.announced.iter().find(|name| !self.sums.iter().any(|(known, _)| known == *name))
        {
            let what = format!("the trailer x-amz-checksum-{} is missing", ALGORITHMS[*missing].0);
            return Err(Failure::new(400, "MalformedTrailerError", what));
        }
        for (index, expected) in &self.sums {
            let (name, compute) = ALGORITHMS[*index];
            if STANDARD.encode(compute(&value)) != *expected {
                return Err(Failure::new(
                    400,
                    "BadDigest",
                    format!("the value has another {name} than was said"),
                ));
            }
        }
        if self.md5.is_some_and(|expected| STANDARD.encode(Md5::digest(&value)) != expected) {
            return Err(Failure::new(400, "BadDigest", "the value has another MD5 than Content-MD5 says"));
        }
        Ok(value)
    }
}

/// Index of the algorithm of a field or parameter in small letters that is a checksum.
pub(super) fn algorithm(name: &str) -> Option<usize> {
    let name = name.strip_prefix("x-amz-checksum-")?;
    ALGORITHMS.iter().position(|(known, _)| *known == name)
}

/// A body in chunks.
struct Chunks {
    body: Vec<u8>,
    read: usize,
    signer: Option<Box<ChunkSigner>>,
}

impl Chunks {
    /// The value: what is in the chunks, moved together.
    fn value(&mut self, decoded: usize, most: usize) -> Result<Vec<u8>, Failure> {
        let bad = |what: &'static str| Failure::new(400, "IncompleteBody", what);
        if decoded > most {
            return Err(Failure::new(400, "EntityTooLarge", format!("a value has up to {most} bytes")));
        }
        let mut bytes = 0;
        loop {
            let line = self.line().ok_or_else(|| bad("a chunk has no size"))?;
            let (size, rest) = line.split_once(';').unwrap_or((&line, ""));
            let size = usize::from_str_radix(size.trim(), 16).map_err(|_| bad("a chunk has no size"))?;
            let end = self.read.checked_add(size).filter(|end| *end <= self.body.len());
            let end = end.ok_or_else(|| bad("a chunk is not there as a whole"))?;
            if let Some(signer) = &mut self.signer {
                let signature = rest.trim().strip_prefix("chunk-signature=").unwrap_or_default();
                if !signer.is_of_chunk(&self.body[self.read..end], signature) {
                    return Err(Failure::new(
                        403,
                        "SignatureDoesNotMatch",
                        "the signature of a chunk is wrong",
                    ));
                }
            }
            if size == 0 {
                break;
            }
            self.body.copy_within(self.read..end, bytes);
            bytes += size;
            self.read = end;
            if self.line().is_none_or(|line| !line.is_empty()) {
                return Err(bad("a chunk is longer than it says"));
            }
        }
        if bytes != decoded {
            return Err(bad("the chunks have not the x-amz-decoded-content-length"));
        }
        if self.body.len() - self.read > TRAILER_BYTES_MAX {
            return Err(Failure::new(400, "MalformedTrailerError", "the trailers are too long"));
        }
        // What follows is read from a copy: the value keeps the buffer.
        let rest = self.body.split_off(self.read);
        let mut value = std::mem::replace(&mut self.body, rest);
        self.read = 0;
        value.truncate(bytes);
        Ok(value)
    }

    /// The fields behind the last chunk.
    fn trailer(&mut self) -> Result<Vec<(String, String)>, Failure> {
        let bad = |what: &'static str| Failure::new(400, "MalformedTrailerError", what);
        let mut fields = Vec::new();
        let mut signature = None;
        while let Some(line) = self.line() {
            if line.is_empty() {
                continue;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| bad("a trailer is no field"))?;
            let (name, value) = (name.trim().to_ascii_lowercase(), value.trim().to_owned());
            match name.as_str() {
                "x-amz-trailer-signature" => signature = Some(value),
                _ => fields.push((name, value)),
            }
        }
        if let Some(signer) = &mut self.signer
            && !fields.is_empty()
        {
            let text: String = fields.iter().map(|(name, value)| format!("{name}:{value}\n")).collect();
            if !signer.is_of_trailer(&text, &signature.unwrap_or_default()) {
                return Err(Failure::new(
                    403,
                    "SignatureDoesNotMatch",
                    "the signature of the trailer is wrong",
                ));
            }
        }
        Ok(fields)
    }

    /// The next line, without its end, if it is not too long.
    fn line(&mut self) -> Option<String> {
        let rest = &self.body[self.read..];
        let rest = &rest[..rest.len().min(TRAILER_BYTES_MAX)];
        let end = memchr::memchr(b'\n', rest)?;
        self.read += end + 1;
        Some(String::from_utf8_lossy(&rest[..end]).trim_end_matches('\r').to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Opens a body in chunks without signatures: the value, or the code of the refusal.
    fn check(fields: &[(&str, &str)], body: &str, expected: &str) {
        let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
        let payload = Payload::Chunks { signer: None, has_trailer: true };
        let opened = Checksums::of(fields).and_then(|sums| sums.open(body.into(), payload, 100));
        let got = match opened {
            Ok(value) => String::from_utf8(value).unwrap(),
            Err(failure) => failure.code.to_owned(),
        };
        assert_eq!(got, expected, "{body:?}");
    }

    #[test]
    fn a_value_in_chunks_is_put_together_and_checked() {
        let five = ("x-amz-decoded-content-length", "5");
        let trailer = ("x-amz-trailer", "x-amz-checksum-crc32");
        let end = "0\r\nx-amz-checksum-crc32:NhCmhg==\r\n\r\n";
        check(&[five, trailer], &format!("5\r\nhello\r\n{end}"), "hello");
        check(&[five, trailer], &format!("2\r\nhe\r\n3\r\nllo\r\n{end}"), "hello");
        check(&[five], "5\r\nhello\r\n0\r\n\r\n", "hello");
        check(&[five], &format!("5\r\nhellO\r\n{end}"), "BadDigest");
        check(&[five, trailer], "5\r\nhello\r\n0\r\n\r\n", "MalformedTrailerError");
        check(&[five], "5\r\nhello\r\n0\r\nwhat\r\n\r\n", "MalformedTrailerError");
        let long = format!("5\r\nhello\r\n0\r\n{}\r\n", ":\n".repeat(3000));
        check(&[five, trailer], &long, "MalformedTrailerError");
        for end in ["", "\r\n"] {
            let long = "x".repeat(5000) + end;
            check(&[five], &format!("5\r\nhello\r\n0\r\n{long}"), "MalformedTrailerError");
            check(&[five], &format!("5;{long}hello\r\n0\r\n\r\n"), "IncompleteBody");
        }
        check(&[("x-amz-decoded-content-length", "4")], "5\r\nhello\r\n0\r\n\r\n", "IncompleteBody");
        check(&[("x-amz-decoded-content-length", "101")], "0\r\n\r\n", "EntityTooLarge");
        check(&[("x-amz-decoded-content-length", "x")], "0\r\n\r\n", "InvalidArgument");
        check(&[], "5\r\nhello\r\n0\r\n\r\n", "MissingContentLength");
        for wrong in [
            "",
            "5\r\nhel",
            "5\r\nhello\r\n",
            "x\r\n",
            "5\r\nhellohello\r\n0\r\n\r\n",
            "ffffffffffffffff\r\nx",
        ] {
            check(&[five], wrong, "IncompleteBody");
        }
    }

    /// They were stored with their lines.
    #[test]
    fn chunks_are_refused_where_they_would_become_the_value() {
        let body = "5\r\nhello\r\n0\r\n\r\n";
        for (fields, code) in [
            (&[("content-encoding", "gzip, aws-chunked")][..], Some("InvalidArgument")),
            (&[("x-amz-decoded-content-length", "5")], Some("InvalidArgument")),
            (&[("x-amz-decoded-content-length", "15")], None),
            (&[("content-encoding", "gzip")], None),
        ] {
            for payload in [Payload::Unsigned, Payload::Hash(sha256(body.as_bytes()))] {
                let fields = fields.iter().map(|(name, value)| (*name, value.as_bytes()));
                let opened = Checksums::of(fields).unwrap().open(body.into(), payload, 100);
                assert_eq!(opened.err().map(|failure| failure.code), code);
            }
        }
    }

    #[test]
    fn a_checksum_in_a_url_is_compared_unless_it_is_of_nothing() {
        for (query, code) in [
            ("x-amz-checksum-crc32=NhCmhg%3D%3D", None),
            ("X-Amz-Checksum-Crc32=NhCmhA%3D%3D", Some("BadDigest")),
            ("x-amz-checksum-crc32=AAAAAA%3D%3D&x-amz-sdk-checksum-algorithm=CRC32", None),
        ] {
            let mut params = Params::default();
            params.add(query.as_bytes());
            let sums = Checksums::default().with_parameters(&params);
            let opened = sums.open(b"hello".to_vec(), Payload::Unsigned, 100);
            assert_eq!(opened.err().map(|failure| failure.code), code, "{query}");
        }
    }

    #[test]
    fn every_checksum_is_compared() {
        for (name, right) in [
            ("x-amz-checksum-crc32", "NhCmhg=="),
            ("x-amz-checksum-crc32c", "mnG7TA=="),
            ("x-amz-checksum-crc64nvme", "M3eFcAZSQlc="),
            ("x-amz-checksum-sha1", "qvTGHdzF6KLavt4PO0gs2a6pQ00="),
            ("x-amz-checksum-sha256", "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="),
            ("content-md5", "XUFAKrxLKna5cZ2REBfFkg=="),
        ] {
            for (value, code) in [(&b"hello"[..], None), (b"hellO", Some("BadDigest"))] {
                let sums = Checksums::of([(name, right.as_bytes())].into_iter()).unwrap();
                let opened = sums.open(value.to_vec(), Payload::Unsigned, 100);
                assert_eq!(opened.err().map(|failure| failure.code), code, "{name}");
            }
        }
    }
}
