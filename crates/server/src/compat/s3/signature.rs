//! Signature Version 4: who sent a request, and whether it came as it was sent.
//!
//! Pure: the time is given. A signature covers the method, the path, the query, the signed fields, and what is said of the body.

use super::credentials::{Credential, Table};
use crate::error::Failure;
use crate::query::Params;
use crate::tokens::{bytes_of_hex, hex};
use http1::request::Head;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use ring::digest::{SHA256, digest};
use ring::hmac;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
/// How far the clock of a client may be from this one's.
const SKEW_MAX: Duration = Duration::from_secs(15 * 60);
/// Longest life of a signed URL.
const EXPIRES_MAX: u64 = 7 * 24 * 3600;

/// What is encoded in a canonical query, and in a path but for the slash.
pub(super) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
pub(super) const ENCODED_IN_PATHS: &AsciiSet = &ENCODED.remove(b'/');

/// A request whose signature is right.
pub(super) struct Signed {
    pub(super) credential: Arc<Credential>,
    pub(super) payload: Payload,
}

/// How a body came, and what it is checked by.
pub(super) enum Payload {
    /// By nothing.
    Unsigned,
    /// Its SHA-256, in hexadecimal digits.
    Hash(String),
    /// In chunks; with signatures, if there is a signer.
    Chunks { signer: Option<Box<ChunkSigner>>, has_trailer: bool },
}

/// Checks chunks: the signature of each covers that of the one before.
pub(super) struct ChunkSigner {
    key: hmac::Key,
    date: String,
    scope: String,
    last: String,
}

/// What a client said about its signature, in a field or in the query.
struct Claim {
    access_key: String,
    /// `20261123/us-east-1/s3/aws4_request`
    scope: String,
    signed_fields: String,
    signature: String,
    date: String,
    /// Of a signed URL.
    expires: Option<u64>,
}

/// Checks a request of this decoded path and this query.
pub(super) fn verify(
    head: &Head<'_, '_>,
    path: &[u8],
    params: &Params,
    table: &Table,
    now: SystemTime,
) -> Result<Signed, Failure> {
    let claim = Claim::of(head, params)?;
    claim.check_time(now)?;
    let credential = table.find(&claim.access_key).ok_or_else(unknown_access_key)?;
    let said = match (head.field("x-amz-content-sha256"), claim.expires) {
        (Some(said), _) => text(said)?,
        (None, Some(_)) => "UNSIGNED-PAYLOAD",
        (None, None) => return Err(invalid("there is no x-amz-content-sha256")),
    };
    check_that_fields_are_signed(head, &claim)?;
    let request = claim.canonical_request(head, path, params, said);
    let key = signing_key(&credential.secret_key, &claim.scope);
    let to_sign = format!("{ALGORITHM}\n{}\n{}\n{}", claim.date, claim.scope, sha256(request.as_bytes()));
    let is_right = bytes_of_hex(&claim.signature)
        .is_some_and(|signature| hmac::verify(&key, to_sign.as_bytes(), &signature).is_ok());
    if !is_right {
        let what = "the signature is not that of this request and the secret key; check the secret key, and that no proxy \
                    changes Host, path or query";
        return Err(Failure::new(403, "SignatureDoesNotMatch", what));
    }
    let payload = match said {
        "UNSIGNED-PAYLOAD" => Payload::Unsigned,
        "STREAMING-UNSIGNED-PAYLOAD-TRAILER" => Payload::Chunks { signer: None, has_trailer: true },
        "STREAMING-AWS4-HMAC-SHA256-PAYLOAD" | "STREAMING-AWS4-HMAC-SHA256-PAYLOAD-TRAILER" => {
            let Claim { date, scope, signature, .. } = claim;
            let signer = ChunkSigner { key, date, scope, last: signature };
            Payload::Chunks { signer: Some(Box::new(signer)), has_trailer: said.ends_with("-TRAILER") }
        }
        hash if bytes_of_hex(hash).is_some_and(|hash| hash.len() == 32) => {
            Payload::Hash(hash.to_ascii_lowercase())
        }
        other => {
            let what = format!("x-amz-content-sha256 {other:?} is not implemented");
            return Err(Failure::new(501, "NotImplemented", what));
        }
    };
    Ok(Signed { credential: Arc::clone(credential), payload })
}

pub(super) fn unknown_access_key() -> Failure {
    Failure::new(403, "InvalidAccessKeyId", "the access key is not known to this server")
}

fn not_version_4() -> Failure {
    invalid("the authorization mechanism is not supported; use AWS4-HMAC-SHA256 (Signature Version 4)")
}

impl Claim {
    fn of(head: &Head<'_, '_>, params: &Params) -> Result<Claim, Failure> {
        let parameter = |name: &str| params.get(name).map(text).transpose();
        if let Some(authorization) = head.field("authorization") {
            let authorization = text(authorization)?;
            let Some(parts) = authorization.strip_prefix(ALGORITHM) else { return Err(not_version_4()) };
            let part = |name: &str| {
                let found =
                    parts.split(',').find_map(|part| part.trim().strip_prefix(name)?.strip_prefix('='));
                found.map(str::to_owned).ok_or_else(|| {
                    Failure::new(400, "AuthorizationHeaderMalformed", format!("Authorization has no {name}"))
                })
            };
            let date = head.field("x-amz-date").map(text).transpose()?;
            let date =
                date.ok_or_else(|| Failure::new(403, "AccessDenied", "there is no x-amz-date"))?.to_owned();
            let (access_key, scope) = credential_parts(&part("Credential")?)?;
            let (signed_fields, signature) = (part("SignedHeaders")?, part("Signature")?);
            return Ok(Claim { access_key, scope, signed_fields, signature, date, expires: None });
        }
        let Some(algorithm) = parameter("X-Amz-Algorithm")? else {
            if params.get("AWSAccessKeyId").is_some() {
                return Err(not_version_4());
            }
            let what = "the request is not signed; this API needs Signature Version 4";
            return Err(Failure::new(403, "AccessDenied", what));
        };
        let part = |name: &str| {
            let what =
                || Failure::new(400, "AuthorizationQueryParametersError", format!("the query has no {name}"));
            parameter(name)?.map(str::to_owned).ok_or_else(what)
        };
        let expires = part("X-Amz-Expires")?.parse().ok().filter(|seconds| *seconds <= EXPIRES_MAX);
        if algorithm != ALGORITHM || expires.is_none() {
            let what = "X-Amz-Algorithm is AWS4-HMAC-SHA256, and X-Amz-Expires a number up to 604800";
            return Err(Failure::new(400, "AuthorizationQueryParametersError", what));
        }
        let (access_key, scope) = credential_parts(&part("X-Amz-Credential")?)?;
        Ok(Claim {
            access_key,
            scope,
            signed_fields: part("X-Amz-SignedHeaders")?,
            signature: part("X-Amz-Signature")?,
            date: part("X-Amz-Date")?,
            expires,
        })
    }

    fn check_time(&self, now: SystemTime) -> Result<(), Failure> {
        let malformed =
            || Failure::new(400, "AuthorizationHeaderMalformed", "the date is not as in 20261123T070000Z");
        let signed = instant(&self.date).ok_or_else(malformed)?;
        if !self.scope.starts_with(&self.date[..8]) {
            let what = "the date of the scope is not that of the request";
            return Err(Failure::new(400, "AuthorizationHeaderMalformed", what));
        }
        let skewed = || {
            let what = "the time of the request and that of this server differ by more than 15 minutes";
            Failure::new(403, "RequestTimeTooSkewed", what)
        };
        if signed.duration_since(now).is_ok_and(|early| early > SKEW_MAX) {
            return Err(skewed());
        }
        let age = now.duration_since(signed).unwrap_or_default();
        match self.expires {
            Some(expires) if age > Duration::from_secs(expires) => {
                Err(Failure::new(403, "AccessDenied", "Request has expired"))
            }
            None if age > SKEW_MAX => Err(skewed()),
            _ => Ok(()),
        }
    }

    fn canonical_request(&self, head: &Head<'_, '_>, path: &[u8], params: &Params, payload: &str) -> String {
        let mut request = format!("{}\n{}\n", head.method.as_str(), percent_encode(path, ENCODED_IN_PATHS));
        let is_signed = |name: &[u8]| self.expires.is_none() || name != b"X-Amz-Signature";
        let mut pairs: Vec<(String, String)> = params
            .iter()
            .filter(|(name, _)| is_signed(name))
            .map(|(name, value)| {
                (percent_encode(name, ENCODED).to_string(), percent_encode(value, ENCODED).to_string())
            })
            .collect();
        pairs.sort();
        let pairs: Vec<String> = pairs.iter().map(|(name, value)| format!("{name}={value}")).collect();
        request.push_str(&pairs.join("&"));
        request.push('\n');
        for name in self.signed_fields.split(';') {
            let values = head.fields().filter(|(known, _)| known.eq_ignore_ascii_case(name));
            let values: Vec<String> = values.map(|(_, value)| with_single_blanks(value)).collect();
            request.push_str(&format!("{name}:{}\n", values.join(",")));
        }
        request.push_str(&format!("\n{}\n{payload}", self.signed_fields));
        request
    }
}

impl ChunkSigner {
    /// Whether this is the signature of the next chunk.
    pub(super) fn is_of_chunk(&mut self, chunk: &[u8], signature: &str) -> bool {
        let hashes = format!("{}\n{}", sha256(b""), sha256(chunk));
        self.is_next("PAYLOAD", &hashes, signature)
    }

    /// The same of the fields behind the last chunk, as `name:value\n`.
    pub(super) fn is_of_trailer(&mut self, fields: &str, signature: &str) -> bool {
        self.is_next("TRAILER", &sha256(fields.as_bytes()), signature)
    }

    fn is_next(&mut self, kind: &str, hashes: &str, signature: &str) -> bool {
        let ChunkSigner { key, date, scope, last } = self;
        let to_sign = format!("{ALGORITHM}-{kind}\n{date}\n{scope}\n{last}\n{hashes}");
        *last = signature.to_owned();
        bytes_of_hex(signature).is_some_and(|bytes| hmac::verify(key, to_sign.as_bytes(), &bytes).is_ok())
    }
}

/// `KEY/20261123/REGION/s3/aws4_request` as access key and scope. Any region will do: there is one.
fn credential_parts(credential: &str) -> Result<(String, String), Failure> {
    let parts: Vec<&str> = credential.split('/').collect();
    match parts[..] {
        [access_key, _, _, "s3", "aws4_request"] => {
            Ok((access_key.to_owned(), credential[access_key.len() + 1..].to_owned()))
        }
        _ => {
            let what = "the credential is not as in KEY/20261123/us-east-1/s3/aws4_request";
            Err(Failure::new(400, "AuthorizationHeaderMalformed", what))
        }
    }
}

/// Somebody on the way could add a field that nobody signed, and change what is done.
fn check_that_fields_are_signed(head: &Head<'_, '_>, claim: &Claim) -> Result<(), Failure> {
    let is_signed =
        |name: &str| claim.signed_fields.split(';').any(|signed| signed.eq_ignore_ascii_case(name));
    let has_to_be =
        |name: &str| name.eq_ignore_ascii_case("host") || name.to_ascii_lowercase().starts_with("x-amz-");
    match head.fields().find(|(name, _)| has_to_be(name) && !is_signed(name)) {
        Some((name, _)) => Err(Failure::new(403, "AccessDenied", format!("the header {name} is not signed"))),
        None => Ok(()),
    }
}

fn signing_key(secret: &str, scope: &str) -> hmac::Key {
    let first = format!("AWS4{secret}").into_bytes();
    let last = scope.split('/').fold(first, |key, part| {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &key), part.as_bytes()).as_ref().to_vec()
    });
    hmac::Key::new(hmac::HMAC_SHA256, &last)
}

/// In hexadecimal digits.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(digest(&SHA256, bytes).as_ref())
}

/// `20261123T070000Z`
fn instant(date: &str) -> Option<SystemTime> {
    let (day, time) = date.strip_suffix('Z')?.split_once('T')?;
    if !date.is_ascii() || (day.len(), time.len()) != (8, 6) {
        return None;
    }
    let day = format!("{}-{}-{}", &day[..4], &day[4..6], &day[6..]);
    let time = format!("{}:{}:{}", &time[..2], &time[2..4], &time[4..]);
    // The digits are looked at there.
    humantime::parse_rfc3339(&format!("{day}T{time}Z")).ok()
}

fn with_single_blanks(value: &[u8]) -> String {
    let value = String::from_utf8_lossy(value);
    value.split([' ', '\t']).filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

fn text(bytes: &[u8]) -> Result<&str, Failure> {
    std::str::from_utf8(bytes).map_err(|_| invalid("a header or parameter of the signature is not UTF-8"))
}

fn invalid(what: &'static str) -> Failure {
    Failure::new(400, "InvalidRequest", what)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Slots, request};

    /// The example of Amazon's manual: its keys, and a request of 24 May 2013.
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    const SCOPE: &str = "20130524/us-east-1/s3/aws4_request";

    fn table() -> Table {
        let text = format!(
            "[[credential]]\naccess_key = \"AKIAIOSFODNN7EXAMPLE\"\nsecret_key = \"{SECRET}\"\nverbs = []\nprefix = \"\"\n"
        );
        Table::of(&text)
    }

    /// The code of the refusal of a GET of `/test.txt` this many seconds after the example's time, empty for none.
    fn check(query: &str, fields: &str, seconds: i64, expected: &str) {
        let text =
            format!("GET /test.txt{query} HTTP/1.1\r\nHost: examplebucket.s3.amazonaws.com\r\n{fields}\r\n");
        let mut slots = Slots::default();
        let head = request::parse(text.as_bytes(), &Limits::USUAL, &mut slots).unwrap().unwrap();
        let mut params = Params::default();
        params.add(query.trim_start_matches('?').as_bytes());
        let time = instant("20130524T000000Z").unwrap();
        let now = match u64::try_from(seconds) {
            Ok(later) => time + Duration::from_secs(later),
            Err(_) => time - Duration::from_secs(seconds.unsigned_abs()),
        };
        let verified = verify(&head, b"/test.txt", &params, &table(), now);
        let got = verified.err().map_or("", |failure| failure.code);
        assert_eq!(got, expected, "{query} {fields} after {seconds} s");
    }

    fn fields(signature: &str) -> String {
        format!(
            "Range: bytes=0-9\r\nx-amz-content-sha256: {EMPTY}\r\nx-amz-date: 20130524T000000Z\r\n\
             Authorization: AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/{SCOPE},\
             SignedHeaders=host;range;x-amz-content-sha256;x-amz-date,Signature={signature}\r\n"
        )
    }

    const RIGHT: &str = "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41";

    #[test]
    fn a_signed_request_is_known_and_a_changed_one_is_not() {
        let right = fields(RIGHT);
        check("", &right, 0, "");
        check("", &right, 14 * 60, "");
        check("", &right, -14 * 60, "");
        check("", &right, 16 * 60, "RequestTimeTooSkewed");
        check("", &right, -16 * 60, "RequestTimeTooSkewed");
        check("", &right.replace("bytes=0-9", "bytes=0-8"), 0, "SignatureDoesNotMatch");
        check("?a=b", &right, 0, "SignatureDoesNotMatch");
        check("", &fields(&RIGHT[1..]), 0, "SignatureDoesNotMatch");
        check("", &fields("zz"), 0, "SignatureDoesNotMatch");
        check("", &(right.clone() + "x-amz-acl: private\r\n"), 0, "AccessDenied");
        check("", &right.replace("host;", ""), 0, "AccessDenied");
        check("", &right.replace("AKIAIOS", "AKIBIOS"), 0, "InvalidAccessKeyId");
        check("", &right.replace("/s3/", "/sqs/"), 0, "AuthorizationHeaderMalformed");
        check("", &right.replace("T000000Z", "T0000"), 0, "AuthorizationHeaderMalformed");
        check("", &right.replace("EXAMPLE/20130524", "EXAMPLE/20130523"), 0, "AuthorizationHeaderMalformed");
        check("", &right.replace(",Signature", ",Sgnature"), 0, "AuthorizationHeaderMalformed");
        check("", "Authorization: AWS a:b\r\n", 0, "InvalidRequest");
        check("?AWSAccessKeyId=a&Signature=b&Expires=1369353601", "", 0, "InvalidRequest");
        check("", "", 0, "AccessDenied");
    }

    #[test]
    fn a_signed_url_is_known_until_it_expires() {
        let signature = "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404";
        let query = format!(
            "?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F{}&X-Amz-Date=20130524T000000Z\
             &X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature={signature}",
            SCOPE.replace('/', "%2F")
        );
        check(&query, "", 0, "");
        check(&query, "", 86_400, "");
        check(&query, "", 86_401, "AccessDenied");
        check(&query.replace("=86400", "=86401"), "", 0, "SignatureDoesNotMatch");
        check(&query.replace("=86400", "=604801"), "", 0, "AuthorizationQueryParametersError");
        check(&query.replace("X-Amz-Date", "X-Amz-Dte"), "", 0, "AuthorizationQueryParametersError");
    }

    /// The example of an upload in chunks.
    #[test]
    fn the_signature_of_a_chunk_covers_that_of_the_one_before() {
        let mut signer = ChunkSigner {
            key: signing_key(SECRET, SCOPE),
            date: "20130524T000000Z".to_owned(),
            scope: SCOPE.to_owned(),
            last: "4f232c4386841ef735655705268965c44a0e4690baa4adea153f7db9fa80a0a9".to_owned(),
        };
        let signatures = [
            "ad80c730a21e5b8d04586a2213dd63b9a0e99e0e2307b0ade35a65485a288648",
            "0055627c9e194cb4542bae2aa5492e3c1575bbb81b612b7d234b86a503ef5497",
            "b6c6ea8a5354eaf15b3cb7646744f4275b71ea724fed81ceb9323e279d449df9",
        ];
        let chunks = [vec![b'a'; 64 << 10], vec![b'a'; 1024], Vec::new()];
        for (chunk, signature) in chunks.iter().zip(signatures) {
            assert!(signer.is_of_chunk(chunk, signature));
        }
        assert!(!signer.is_of_chunk(b"", signatures[2]));
    }
}
