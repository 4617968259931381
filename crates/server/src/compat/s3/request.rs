//! From a request's head to what it asks of the bucket. What is not understood is refused: no client is to believe that something
//! was kept, or done, that was not.

use super::body::{Checksums, algorithm};
use super::credentials::{Credential, Table};
use super::signature::{self, Payload, Signed};
use crate::change::Change;
use crate::error::Failure;
use crate::head::{
    RangeRequest, ReadCondition, content_encoding, content_type, path_and_query, version_of_tag,
};
use crate::json;
use crate::list::{ListQuery, successor};
use crate::query::{Params, decode};
use crate::tokens::Verb;
use http1::request::{Head, Method};
use kv::{Key, Precondition, Version};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

/// Most entries of a page.
const KEYS_MAX: usize = 1000;
/// What is behind the version in an ETag. Clients take an ETag with a hyphen for no MD5, and do not compare it with one.
pub(super) const ETAG_END: &str = "-1";

/// Parameters that every request may have, besides checksums. The last ones are fields that SDKs move into the URLs that they sign.
const PARAMETERS_OF_ALL: [&str; 11] = [
    "x-id",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
    "X-Amz-Content-Sha256",
    "x-amz-user-agent",
    "x-amz-sdk-checksum-algorithm",
    "x-amz-checksum-mode",
];
const PARAMETERS_OF_LISTS: [&str; 9] = [
    "list-type",
    "prefix",
    "delimiter",
    "continuation-token",
    "start-after",
    "marker",
    "max-keys",
    "encoding-type",
    "fetch-owner",
];
/// Fields `x-amz-…` besides checksums that are understood, or change nothing that is kept or done. Some only with one value.
const FIELDS: [(&str, Option<&str>); 13] = [
    ("date", None),
    ("content-sha256", None),
    ("decoded-content-length", None),
    ("trailer", None),
    ("te", None),
    ("user-agent", None),
    ("sdk-checksum-algorithm", None),
    ("checksum-mode", None),
    // What s3cmd and rclone note of a file for themselves: without it they go by size and time.
    ("meta-s3cmd-attrs", None),
    ("meta-mtime", None),
    ("acl", Some("private")),
    ("storage-class", Some("STANDARD")),
    // Which interface the SDKs for C++ and .NET speak.
    ("api-version", Some("2006-03-01")),
];

/// A signed request.
pub(super) struct Asked {
    pub(super) credential: Arc<Credential>,
    pub(super) operation: Operation,
    pub(super) payload: Payload,
    pub(super) checksums: Checksums,
}

/// What is to be done.
#[derive(Debug)]
pub(super) enum Operation {
    ListBuckets,
    /// What the bucket is called.
    HeadBucket,
    Location,
    CreateBucket,
    List(Box<S3List>),
    Get(Key, ReadCondition),
    /// The value of a put is the body.
    Write(Key, Change, Precondition),
}

/// A list, and how its answer is written.
#[derive(Debug)]
pub(super) struct S3List {
    pub(super) query: ListQuery,
    /// Of version 2; the first one goes on by keys instead of tokens.
    pub(super) is_v2: bool,
    pub(super) is_encoded: bool,
    /// Given back: `marker`, `start-after` and `continuation-token`.
    pub(super) begins: [Option<Vec<u8>>; 3],
}

fn not_implemented(what: impl Into<Cow<'static, str>>) -> Failure {
    Failure::new(501, "NotImplemented", what)
}

/// What is asked for, if whoever asks may do that.
pub(super) fn asked(head: &Head<'_, '_>, table: &Table, now: SystemTime) -> Result<Asked, Failure> {
    let (path, query) = path_and_query(head);
    let path = decode(path, false);
    let mut params = Params::default();
    params.add(query.unwrap_or_default());
    let Signed { credential, payload } = signature::verify(head, &path, &params, table, now)?;
    let operation = operation(head, &path, &params, &table.bucket)?;
    check_fields(head)?;
    operation.check(&credential)?;
    let checksums = Checksums::of(head.fields())?.with_parameters(&params);
    Ok(Asked { credential, operation, payload, checksums })
}

/// What is asked for, whoever asks.
pub(super) fn operation(
    head: &Head<'_, '_>,
    path: &[u8],
    params: &Params,
    bucket: &str,
) -> Result<Operation, Failure> {
    let path = path.strip_prefix(b"/").unwrap_or(path);
    let (name, key) = match memchr::memchr(b'/', path) {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (path, &b""[..]),
    };
    if name.is_empty() {
        allow_parameters(params, &[])?;
        return match head.method {
            Method::Get => Ok(Operation::ListBuckets),
            _ => Err(wrong_method("GET")),
        };
    }
    if name != bucket.as_bytes() {
        if head.method == Method::Put && key.is_empty() {
            return Err(not_implemented(format!("there is one bucket, {bucket:?}; no other can be made")));
        }
        let what = format!("there is one bucket, {bucket:?}; its name is the first part of the path");
        return Err(Failure::new(404, "NoSuchBucket", what));
    }
    if key.is_empty() {
        return of_bucket(head.method, params);
    }
    allow_parameters(params, &[])?;
    let key =
        Key::new(key).ok_or_else(|| Failure::new(400, "KeyTooLongError", "a key has up to 1024 bytes"))?;
    let lists = |name: &str| -> Vec<&[u8]> {
        let fields = head.fields().filter(|(known, _)| known.eq_ignore_ascii_case(name));
        fields.map(|(_, value)| value).collect()
    };
    let (if_match, if_none_match) = (lists("if-match"), lists("if-none-match"));
    if head.field("if-unmodified-since").is_some() {
        return Err(not_implemented("If-Unmodified-Since; use If-Match with an ETag"));
    }
    let if_range = head.field("if-range").map(version);
    let range = head.field("range").and_then(|range| RangeRequest::of(range, if_range));
    match head.method {
        Method::Get | Method::Head => {
            let condition = ReadCondition {
                wait: None,
                only_if: precondition(&if_match, false).unwrap_or_default(),
                unless: precondition(&if_none_match, true),
                range: range.map(Box::new),
            };
            Ok(Operation::Get(key, condition))
        }
        Method::Put => {
            // Left out, they would be lost; and a part is not all of a value.
            let unstored = ["content-range", "content-disposition", "content-language"];
            if let Some(name) = unstored.into_iter().find(|name| head.field(name).is_some()) {
                return Err(not_implemented(format!("the header {name} with a PUT")));
            }
            let condition = match (precondition(&if_match, false), if_none_match.as_slice()) {
                (None, []) => Precondition::None,
                (Some(condition), []) => condition,
                (None, [b"*"]) => Precondition::Absent,
                _ => {
                    let what = "a PUT takes either If-Match, or If-None-Match: *";
                    return Err(not_implemented(what));
                }
            };
            let encodings = lists("content-encoding");
            let put = Change::Put {
                content_type: content_type(head.field("content-type")).map_err(invalid)?,
                content_encoding: without_chunks(&content_encoding(&encodings).map_err(invalid)?),
                expiry: None,
                value: Vec::new(),
            };
            Ok(Operation::Write(key, put, condition))
        }
        Method::Delete if if_none_match.is_empty() => {
            let condition = precondition(&if_match, false).unwrap_or_default();
            Ok(Operation::Write(key, Change::Delete, condition))
        }
        Method::Delete => Err(not_implemented("a DELETE takes no If-None-Match")),
        _ => Err(wrong_method("GET, HEAD, PUT, DELETE")),
    }
}

fn of_bucket(method: Method, params: &Params) -> Result<Operation, Failure> {
    match method {
        Method::Head => allow_parameters(params, &[]).map(|()| Operation::HeadBucket),
        Method::Put => allow_parameters(params, &[]).map(|()| Operation::CreateBucket),
        Method::Get if params.get("location").is_some() => {
            allow_parameters(params, &["location"]).map(|()| Operation::Location)
        }
        Method::Get => {
            allow_parameters(params, &PARAMETERS_OF_LISTS)?;
            S3List::of(params).map(|list| Operation::List(Box::new(list)))
        }
        Method::Delete => Err(not_implemented("the bucket cannot be deleted; delete its keys")),
        _ => Err(not_implemented("POST; delete keys one by one")),
    }
}

impl S3List {
    fn of(params: &Params) -> Result<S3List, Failure> {
        let bad = |what: &'static str| Failure::new(400, "InvalidArgument", what);
        let is_v2 = match params.get("list-type") {
            None => false,
            Some(b"2") => true,
            Some(_) => return Err(bad("list-type is 2, or not there")),
        };
        let is_encoded = match params.get("encoding-type") {
            None => false,
            Some(b"url") => true,
            Some(_) => return Err(bad("encoding-type is url, or not there")),
        };
        let limit = match params.get("max-keys") {
            None => Some(KEYS_MAX),
            Some(digits) => std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()),
        };
        let limit: usize = limit.ok_or_else(|| bad("max-keys is a number"))?;
        let get = |name| params.get(name).map(<[u8]>::to_vec);
        let (prefix, delimiter) = (get("prefix").unwrap_or_default(), get("delimiter").unwrap_or_default());
        let begins = match is_v2 {
            true => [None, get("start-after"), get("continuation-token")],
            false => [get("marker").filter(|marker| !marker.is_empty()), None, None],
        };
        let from = match &begins {
            [_, _, Some(token)] => {
                let from = json::of_cursor(token).filter(|from| from.starts_with(&prefix));
                from.ok_or_else(|| bad("the continuation-token is not from this list"))?
            }
            [Some(after), ..] | [_, Some(after), _] => match common_prefix(after, &prefix, &delimiter) {
                // Behind all keys that a prefix stands for which is not behind this; behind the last key of all there is nothing.
                Some(common) if is_v2 || common == after => {
                    successor(common).unwrap_or_else(|| [0xff; kv::KEY_BYTES_MAX].to_vec())
                }
                _ => [after, &b"\0"[..]].concat(),
            },
            _ => prefix.clone(),
        };
        let from = from.max(prefix.clone());
        let query = ListQuery {
            prefix,
            delimiter,
            from,
            limit: limit.min(KEYS_MAX),
            with_values: false,
            in_lines: false,
        };
        Ok(S3List { query, is_v2, is_encoded, begins })
    }
}

/// What a list answers with in place of this key, if it does not stand for itself.
fn common_prefix<'k>(key: &'k [u8], prefix: &[u8], delimiter: &[u8]) -> Option<&'k [u8]> {
    let rest = key.strip_prefix(prefix).filter(|_| !delimiter.is_empty())?;
    let at = memchr::memmem::find(rest, delimiter)?;
    Some(&key[..prefix.len() + at + delimiter.len()])
}

impl Operation {
    /// Whether the holder of the credential may do it.
    pub(super) fn check(&self, credential: &Credential) -> Result<(), Failure> {
        let (verb, name) = match self {
            Operation::Get(key, _) => (Verb::Read, key.as_bytes()),
            Operation::Write(key, ..) => (Verb::Write, key.as_bytes()),
            Operation::List(list) => (Verb::List, list.query.prefix.as_slice()),
            Operation::ListBuckets
            | Operation::HeadBucket
            | Operation::Location
            | Operation::CreateBucket => return Ok(()),
        };
        if !credential.verbs.contains(&verb) {
            let what = format!("the credential has no verb {:?}", verb.as_str());
            return Err(Failure::new(403, "AccessDenied", what));
        }
        if !name.starts_with(credential.prefix.as_bytes()) {
            return Err(Failure::new(403, "AccessDenied", "the credential is for keys with another prefix"));
        }
        Ok(())
    }

    pub(super) fn is_put(&self) -> bool {
        matches!(self, Operation::Write(_, Change::Put { .. }, _))
    }
}

fn allow_parameters(params: &Params, known: &[&str]) -> Result<(), Failure> {
    let is_known = |name: &str| {
        let mut all = PARAMETERS_OF_ALL.iter().chain(known);
        all.any(|known| known.eq_ignore_ascii_case(name)) || algorithm(&name.to_ascii_lowercase()).is_some()
    };
    match params.iter().find(|(name, _)| !is_known(&String::from_utf8_lossy(name))) {
        Some((name, _)) => {
            let mut what = format!("the parameter {}", name.escape_ascii());
            if [&b"uploads"[..], b"uploadId", b"partNumber"].contains(&name) {
                what.push_str(": values are sent whole; raise the client's threshold for multipart uploads");
            }
            Err(not_implemented(what))
        }
        None => Ok(()),
    }
}

/// Refuses fields that would not be kept.
pub(super) fn check_fields(head: &Head<'_, '_>) -> Result<(), Failure> {
    for (name, value) in head.fields() {
        let lower = name.to_ascii_lowercase();
        let Some(rest) = lower.strip_prefix("x-amz-") else { continue };
        let is_known = |(known, only): &(&str, Option<&str>)| {
            *known == rest && only.is_none_or(|only| only.as_bytes() == value)
        };
        if !FIELDS.iter().any(is_known) && algorithm(&lower).is_none() {
            let mut what = format!("the header {lower}");
            if rest.starts_with("meta-") {
                what.push_str(": no metadata is stored but the content type and encoding");
            }
            return Err(not_implemented(what));
        }
    }
    Ok(())
}

/// What `If-Match` or `If-None-Match` says, if it is there. Tags that this API has not given out match nothing. `is_weak`: a weak one
/// counts like a strong one.
fn precondition(lists: &[&[u8]], is_weak: bool) -> Option<Precondition> {
    match lists {
        [] => None,
        [b"*"] => Some(Precondition::Present),
        lists => {
            let tags = lists.iter().flat_map(|list| list.split(|byte| *byte == b','));
            let strong = |tag: &[u8]| {
                version(tag.trim_ascii_start().strip_prefix(b"W/").filter(|_| is_weak).unwrap_or(tag))
            };
            Some(Precondition::VersionIn(tags.filter_map(strong).collect()))
        }
    }
}

/// The version of an ETag, whose quotes some clients leave out.
fn version(tag: &[u8]) -> Option<Version> {
    let tag = tag.trim_ascii();
    let inner = tag.strip_prefix(b"\"").and_then(|tag| tag.strip_suffix(b"\"")).unwrap_or(tag);
    version_of_tag(inner.strip_suffix(ETAG_END.as_bytes())?)
}

/// How the value came is not what it is.
fn without_chunks(encodings: &str) -> String {
    let stored = encodings.split(", ").filter(|coding| !coding.eq_ignore_ascii_case("aws-chunked"));
    stored.collect::<Vec<_>>().join(", ")
}

fn invalid(why: Failure) -> Failure {
    Failure::new(400, "InvalidArgument", why.detail)
}

fn wrong_method(allowed: &'static str) -> Failure {
    Failure::new(405, "MethodNotAllowed", "this resource does not take the method").with("Allow", allowed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Slots, request};

    /// What a request of this start line and these fields asks for, or the code of its refusal.
    fn check(start: &str, fields: &str, expected: &str) {
        let text = format!("{start} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let mut slots = Slots::default();
        let head = request::parse(text.as_bytes(), &Limits::USUAL, &mut slots).unwrap().unwrap();
        let (path, query) = start
            .split_once(' ')
            .unwrap()
            .1
            .split_once('?')
            .unwrap_or((start.split_once(' ').unwrap().1, ""));
        let mut params = Params::default();
        params.add(query.as_bytes());
        let operation = operation(&head, &decode(path.as_bytes(), false), &params, "weir");
        let got = match operation.and_then(|operation| check_fields(&head).map(|()| operation)) {
            Ok(Operation::Get(key, condition)) => {
                format!("get {key:?} {:?} {:?}", condition.only_if, condition.unless)
            }
            Ok(Operation::Write(key, Change::Put { content_encoding, .. }, condition)) => {
                format!("put {key:?} {condition:?} {content_encoding}")
            }
            Ok(Operation::Write(key, _, condition)) => format!("delete {key:?} {condition:?}"),
            Ok(Operation::List(list)) => {
                format!(
                    "list {} from {} limit {}",
                    list.is_v2,
                    list.query.from.escape_ascii(),
                    list.query.limit
                )
            }
            Ok(other) => format!("{other:?}"),
            Err(failure) => format!("{} {}", failure.status, failure.code),
        };
        assert_eq!(got, expected, "{start} {fields}");
    }

    #[test]
    fn the_bucket_is_the_first_part_of_the_path() {
        check("GET /", "", "ListBuckets");
        check("GET /weir", "", "list false from  limit 1000");
        check("HEAD /weir/", "", "HeadBucket");
        check("GET /weir/?location", "", "Location");
        check("PUT /weir", "", "CreateBucket");
        check("PUT /other", "", "501 NotImplemented");
        check("GET /other/a", "", "404 NoSuchBucket");
        check("GET /weir/a%2Fb//c?x-id=GetObject", "", "get Key(a/b//c) None None");
        // As a URL has it that was signed by the SDK for Go.
        check("GET /weir/a?X-Amz-Checksum-Mode=ENABLED&x-id=GetObject", "", "get Key(a) None None");
        check(&format!("GET /weir/{}", "k".repeat(1025)), "", "400 KeyTooLongError");
        check("DELETE /weir", "", "501 NotImplemented");
        check("POST /weir/a", "", "405 MethodNotAllowed");
    }

    #[test]
    fn what_would_not_be_kept_or_done_is_refused() {
        for (start, fields) in [
            ("POST /weir/a?uploads", ""),
            ("PUT /weir/a?partNumber=1&uploadId=x", ""),
            ("GET /weir/a?versionId=1", ""),
            ("GET /weir/a?response-content-type=x", ""),
            ("GET /weir?versioning", ""),
            ("PUT /weir/a", "x-amz-copy-source: /weir/b\r\n"),
            ("PUT /weir/a", "x-amz-meta-a: b\r\n"),
            ("PUT /weir/a", "x-amz-acl: public-read\r\n"),
            ("GET /weir/a", "x-amz-api-version: 2030-01-01\r\n"),
            ("PUT /weir/a", "Content-Range: bytes 0-9/20\r\n"),
            ("PUT /weir/a", "Content-Disposition: attachment\r\n"),
            ("PUT /weir/a", "x-amz-server-side-encryption: AES256\r\n"),
            ("PUT /weir/a", "If-None-Match: \"1-1\"\r\n"),
            ("PUT /weir/a", "If-None-Match: *\r\nIf-Match: \"1-1\"\r\n"),
            ("GET /weir/a", "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n"),
        ] {
            check(start, fields, "501 NotImplemented");
        }
        check("PUT /weir/a", "x-amz-acl: private\r\nx-amz-storage-class: STANDARD\r\n", "put Key(a) None ");
        check("GET /weir/a", "x-amz-api-version: 2006-03-01\r\n", "get Key(a) None None");
    }

    #[test]
    fn an_etag_is_a_version_and_a_hyphen() {
        let one = "VersionIn([Version(8)])";
        check("PUT /weir/a", "If-Match: \"8-1\"\r\n", &format!("put Key(a) {one} "));
        check("PUT /weir/a", "If-Match: 8-1\r\n", &format!("put Key(a) {one} "));
        check("PUT /weir/a", "If-None-Match: *\r\n", "put Key(a) Absent ");
        check("DELETE /weir/a", "If-Match: *\r\n", "delete Key(a) Present");
        check(
            "GET /weir/a",
            "If-None-Match: \"8-1\", \"8\", \"08-1\"\r\n",
            &format!("get Key(a) None Some({one})"),
        );
        check(
            "GET /weir/a",
            "If-Match: \"0cc175b9c0f1b6a831c399e269772661\"\r\n",
            "get Key(a) VersionIn([]) None",
        );
        check("PUT /weir/a", "Content-Encoding: aws-chunked,gzip\r\n", "put Key(a) None gzip");
        check("PUT /weir/a", "Content-Encoding: aws-chunked\r\n", "put Key(a) None ");
    }

    #[test]
    fn a_list_begins_where_the_client_says() {
        check("GET /weir?list-type=2&prefix=a/&max-keys=7", "", "list true from a/ limit 7");
        check("GET /weir?list-type=2&start-after=a", "", "list true from a\\x00 limit 1000");
        let in_folder = "GET /weir?list-type=2&delimiter=/&prefix=s/&start-after=s/a/zz";
        check(in_folder, "", "list true from s/a0 limit 1000");
        check("GET /weir?list-type=2&prefix=b&start-after=a", "", "list true from b limit 1000");
        check("GET /weir?marker=a&max-keys=2000", "", "list false from a\\x00 limit 1000");
        check("GET /weir?marker=a/&delimiter=/", "", "list false from a0 limit 1000");
        // A key, and what stands for no keys of the list.
        check("GET /weir?prefix=a/&marker=a/&delimiter=/", "", "list false from a/\\x00 limit 1000");
        check("GET /weir?prefix=a/b/&marker=a/&delimiter=/", "", "list false from a/b/ limit 1000");
        let token = json::cursor(b"k/1");
        check(
            &format!("GET /weir?list-type=2&continuation-token={token}"),
            "",
            "list true from k/1 limit 1000",
        );
        for wrong in ["list-type=2&continuation-token=*", "max-keys=x", "encoding-type=b", "list-type=3"] {
            let start = format!("GET /weir?{wrong}");
            check(&start, "", "400 InvalidArgument");
        }
    }
}
