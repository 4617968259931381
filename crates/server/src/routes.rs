//! From a request's head to what is to be done: paths, methods, keys and preconditions.
//!
//! Pure: nothing is waited for here, and nothing of the cache or the store is known.

use super::change::{Change, Expiry};
use super::error::Failure;
use super::head::{
    RangeRequest, ReadCondition, content_encoding, content_type, given_twice, only_field, path_and_query,
    refuse_encoded, ttl, version_of_tag, wait, wrong_method,
};
use super::list::ListQuery;
use super::metrics::{self, Page};
use super::reply::Answer;
use super::watch_query::WatchQuery;
use super::{Worker, idempotency, lab};
use http1::request::{Head, Method};
use kv::proto;
use kv::{Key, Precondition, Version};
use std::time::Duration;

/// What a request asks for. The key is a slice of the read buffer, or of the buffer it was decoded into, until [`Action::owned`].
#[derive(Debug)]
pub(super) enum Action<K> {
    Data { key: K, operation: Operation, timing: bool },
    Page(Page),
    List(Box<ListQuery>),
    Watch(Box<WatchQuery>),
    Batch { is_atomic: bool, idempotency_key: Option<Box<[u8]>> },
    Lab(lab::Action),
}

/// What is done with the value of a key.
#[derive(Debug)]
pub(super) enum Operation {
    Get(ReadCondition),
    /// The value of a put is the body. The last is its `Idempotency-Key`.
    Write(Change, Precondition, Option<Box<[u8]>>),
}

impl Action<&[u8]> {
    pub(super) fn owned(self) -> Action<Key> {
        match self {
            Action::Data { key, operation, timing } => {
                // `route` accepts only keys of a legal length.
                let key = Key::new(key).unwrap_or_else(|| unreachable!("a routed key has a legal length"));
                Action::Data { key, operation, timing }
            }
            Action::List(query) => Action::List(query),
            Action::Watch(query) => Action::Watch(query),
            Action::Batch { is_atomic, idempotency_key } => Action::Batch { is_atomic, idempotency_key },
            Action::Lab(action) => Action::Lab(action),
            Action::Page(page) => Action::Page(page),
        }
    }

    /// Whether it is a request for values or computations, not one about the server.
    pub(super) fn is_work(&self) -> bool {
        match self {
            Action::Data { .. } | Action::List(_) | Action::Watch(_) | Action::Batch { .. } => true,
            Action::Lab(action) => action.is_work(),
            Action::Page(_) => false,
        }
    }
}

const PAGE_METHODS: &str = "GET, HEAD";
const DATA_METHODS: &str = "GET, HEAD, PUT, DELETE";
/// The query of a POST that gives a key another end.
const TOUCH: [&[u8]; 2] = [b"touch", b"touch="];

/// Finds the route; an encoded key is decoded into `scratch`.
pub(super) fn route<'k>(head: &Head<'_, 'k>, scratch: &'k mut Vec<u8>) -> Result<Action<&'k [u8]>, Failure> {
    let (path, query) = path_and_query(head);
    let is_read = matches!(head.method, Method::Get | Method::Head);
    if let Some(encoded) = path.strip_prefix(proto::KV_PREFIX.as_bytes()) {
        let is_touch = head.method == Method::Post && query.is_some_and(|query| TOUCH.contains(&query));
        if query.is_some() && !is_touch {
            if matches!(head.method, Method::Options | Method::Other) {
                let touches = query.is_some_and(|query| TOUCH.contains(&query));
                return Err(wrong_method(if touches { "POST" } else { DATA_METHODS }));
            }
            let what = "a data route has no query but ?touch of a POST; write a ? in the key as %3F";
            return Err(Failure::new(400, "bad_query", what));
        }
        let key = if head.is_plain {
            proto::key_of_plain_path(encoded)
        } else {
            proto::key_of_path(encoded, scratch)
        };
        let key = key.map_err(|why| Failure::new(400, "bad_key", why))?;
        return data(head, key, is_touch);
    }
    if path == b"*" {
        // The parser lets only OPTIONS ask for the server as a whole (RFC 9110, 9.3.7).
        let show = |_: &Worker| Answer::Made { status: 204, version: None };
        return Ok(Action::Page(Page { path: "*", show, public: Some(show), is_everywhere: true }));
    }
    if let Some(page) = metrics::PAGES.iter().find(|page| page.path.as_bytes() == path) {
        return if is_read { Ok(Action::Page(*page)) } else { Err(wrong_method(PAGE_METHODS)) };
    }
    let query = query.unwrap_or_default();
    match path {
        b"/kv" if !is_read => Err(wrong_method(PAGE_METHODS)),
        b"/kv" => Ok(Action::List(Box::new(ListQuery::of(query, head.field("accept"))?))),
        b"/watch" if !is_read => Err(wrong_method(PAGE_METHODS)),
        b"/watch" => Ok(Action::Watch(Box::new(WatchQuery::of(query, only_field(head, "Last-Event-ID")?)?))),
        b"/batch" if head.method != Method::Post => Err(wrong_method("POST")),
        b"/batch" => {
            let is_atomic = match query {
                b"" | b"atomic=false" => false,
                b"atomic=true" => true,
                _ => {
                    let what = "the query of /batch is atomic=true, or none";
                    return Err(Failure::new(400, "bad_query", what));
                }
            };
            refuse_encoded(
                head,
                "the lines of a batch are read as they come; send them without Content-Encoding",
            )?;
            let idempotency_key = only_field(head, "Idempotency-Key")?.map(idempotency::parse).transpose()?;
            if is_atomic && idempotency_key.is_some() {
                let what = "an atomic batch takes no Idempotency-Key; with if_match or if_none_match in a line it takes effect once";
                return Err(Failure::new(400, "bad_header", what));
            }
            Ok(Action::Batch { is_atomic, idempotency_key })
        }
        _ => {
            let what = "no such route; values are under /kv/{key}, a list of them at /kv";
            Err(Failure::new(404, "no_route", what))
        }
    }
}

fn data<'k>(head: &Head<'_, 'k>, key: &'k [u8], is_touch: bool) -> Result<Action<&'k [u8]>, Failure> {
    let mut fields = DataFields::default();
    let mut repeated = None;
    let mut once = |field: &mut Option<_>, name, value| {
        if field.replace(value).is_some() {
            repeated = Some(name);
        }
    };
    for (name, value) in head.fields() {
        // Most requests have none of these: the length tells them apart without comparing letters.
        match name.len() {
            3 if name.eq_ignore_ascii_case("ttl") => once(&mut fields.ttl, "TTL", value),
            5 if name.eq_ignore_ascii_case("x-ttl") => once(&mut fields.ttl, "TTL", value),
            5 if name.eq_ignore_ascii_case("range") => once(&mut fields.range, "Range", value),
            6 if name.eq_ignore_ascii_case("prefer") => fields.wait = fields.wait.or(wait(value)),
            8 if name.eq_ignore_ascii_case("if-match") => fields.if_match.push(value),
            8 if name.eq_ignore_ascii_case("if-range") => once(&mut fields.if_range, "If-Range", value),
            11 if name.eq_ignore_ascii_case(proto::TIMING) => fields.timing = value == b"1",
            12 if name.eq_ignore_ascii_case("content-type") => {
                once(&mut fields.content_type, "Content-Type", value);
            }
            13 if name.eq_ignore_ascii_case("if-none-match") => fields.if_none_match.push(value),
            13 if name.eq_ignore_ascii_case("content-range") => fields.is_part = true,
            15 if name.eq_ignore_ascii_case("idempotency-key") => {
                once(&mut fields.idempotency_key, "Idempotency-Key", value);
            }
            16 if name.eq_ignore_ascii_case("content-encoding") => fields.content_encoding.push(value),
            _ => {}
        }
    }
    if let Some(name) = repeated {
        return Err(given_twice(name));
    }
    let bad_precondition = |what| Failure::new(400, "bad_precondition", what);
    let write = |change: Change| -> Result<Operation, Failure> {
        let may_create = matches!(change, Change::Put { .. });
        let condition = condition(&fields, may_create).map_err(bad_precondition)?;
        let idempotency_key = fields.idempotency_key.map(idempotency::parse).transpose()?;
        Ok(Operation::Write(change, condition, idempotency_key))
    };
    let operation = match head.method {
        Method::Get | Method::Head => Operation::Get(ReadCondition {
            only_if: if_match(&fields.if_match).map_err(bad_precondition)?,
            unless: unless(&fields.if_none_match),
            // Defined for GET only (RFC 9110, 14.2).
            range: match fields.range {
                Some(range) if head.method == Method::Get => {
                    RangeRequest::of(range, fields.if_range.map(RangeRequest::if_version)).map(Box::new)
                }
                _ => None,
            },
            wait: fields.wait,
        }),
        // A part taken for the whole would replace what it was meant to complete (RFC 9110, 14.4).
        Method::Put if fields.is_part => {
            let what = "a PUT replaces the whole value; send all of it, without Content-Range";
            return Err(Failure::new(400, "bad_header", what));
        }
        Method::Put => write(Change::Put {
            content_type: content_type(fields.content_type)?,
            content_encoding: content_encoding(&fields.content_encoding)?,
            expiry: fields.ttl.map(ttl).transpose()?.map(Expiry::After),
            value: Vec::new(),
        })?,
        Method::Post if is_touch => {
            let what = "a touch needs TTL, the seconds until the value expires";
            let after = fields.ttl.ok_or_else(|| Failure::new(400, "bad_header", what))?;
            write(Change::Touch(ttl(after)?))?
        }
        Method::Delete => write(Change::Delete)?,
        Method::Post | Method::Options | Method::Other => return Err(wrong_method(DATA_METHODS)),
    };
    Ok(Action::Data { key, operation, timing: fields.timing })
}

#[derive(Default)]
struct DataFields<'b> {
    if_match: Vec<&'b [u8]>,
    if_none_match: Vec<&'b [u8]>,
    content_type: Option<&'b [u8]>,
    content_encoding: Vec<&'b [u8]>,
    ttl: Option<&'b [u8]>,
    range: Option<&'b [u8]>,
    if_range: Option<&'b [u8]>,
    idempotency_key: Option<&'b [u8]>,
    wait: Option<Duration>,
    timing: bool,
    is_part: bool,
}

/// The precondition of a write. What is not understood is refused: ignoring it would make a write that was not meant.
fn condition(fields: &DataFields<'_>, may_create: bool) -> Result<Precondition, &'static str> {
    match (fields.if_match.as_slice(), fields.if_none_match.as_slice()) {
        (lists, []) => if_match(lists),
        ([], [only]) if only.trim_ascii() == b"*" && may_create => Ok(Precondition::Absent),
        ([], _) if may_create => Err("If-None-Match of a PUT can only be *"),
        ([], _) => Err("only a PUT has If-None-Match; use If-Match"),
        _ => Err("If-Match and If-None-Match together are not understood; send one of them"),
    }
}

/// `If-Match` of any method; what is not understood is refused.
pub(super) fn if_match(lists: &[&[u8]]) -> Result<Precondition, &'static str> {
    match lists {
        [] => Ok(Precondition::None),
        [only] if only.trim_ascii() == b"*" => Ok(Precondition::Present),
        lists => tags(lists, true)
            .map(Precondition::VersionIn)
            .ok_or("If-Match is not * or a list of quoted strong ETags"),
    }
}

/// `If-None-Match` of a read. What is not understood matches nothing, so that the row is sent.
pub(super) fn unless(lists: &[&[u8]]) -> Option<Precondition> {
    match lists {
        [] => None,
        [only] if only.trim_ascii() == b"*" => Some(Precondition::Present),
        lists => tags(lists, false).map(Precondition::VersionIn),
    }
}

/// The versions in lists of ETags; `None` if there is something else in them. Tags that this server has not given out
/// match nothing, but are no mistake. Weak ones never match where `strong` comparison is asked for.
fn tags(lists: &[&[u8]], strong: bool) -> Option<Vec<Version>> {
    let mut versions = Vec::new();
    for list in lists {
        let mut rest = *list;
        while let Some(start) = rest.iter().position(|byte| !matches!(byte, b',' | b' ' | b'\t')) {
            let tag = &rest[start..];
            let (is_weak, quoted) = tag.strip_prefix(b"W/").map_or((false, tag), |rest| (true, rest));
            // What is between the quotes may have commas.
            let opened = quoted.strip_prefix(b"\"")?;
            let (inner, closed) = opened.split_at(memchr::memchr(b'"', opened)?);
            rest = closed[1..].trim_ascii_start();
            if !matches!(rest, [] | [b',', ..]) {
                return None;
            }
            if let (Some(version), false) = (version_of_tag(inner), is_weak && strong) {
                versions.push(version);
            }
        }
    }
    Some(versions)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http1::{Limits, Slots, request};

    /// Routes a request of this start line and these fields; the action or `status code` as text.
    fn check(start: &str, fields: &str, expected: &str) {
        let text = format!("{start} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let (mut slots, mut scratch) = (Slots::default(), Vec::new());
        let head = request::parse(text.as_bytes(), &Limits::USUAL, &mut slots).unwrap().unwrap();
        let got = match route(&head, &mut scratch) {
            Ok(Action::Data { key, operation, .. }) => {
                let key = key.escape_ascii();
                match operation {
                    Operation::Get(ReadCondition { wait: Some(wait), unless, .. }) => {
                        format!("get {key} {unless:?} for {}s", wait.as_secs())
                    }
                    Operation::Get(ReadCondition {
                        only_if: Precondition::None,
                        unless,
                        range: None,
                        ..
                    }) => {
                        format!("get {key} {unless:?}")
                    }
                    Operation::Get(ReadCondition { only_if, unless, range: None, .. }) => {
                        format!("get {key} {only_if:?} {unless:?}")
                    }
                    Operation::Get(ReadCondition { range: Some(range), .. }) => {
                        format!("get {key} {:?}", range.bytes(Version(7), 10))
                    }
                    Operation::Write(
                        Change::Put { content_type, content_encoding, expiry, .. },
                        condition,
                        _,
                    ) => {
                        let ttl = match expiry {
                            Some(Expiry::After(ttl)) => format!(" {}s", ttl.as_secs()),
                            _ => String::new(),
                        };
                        format!("put {key} {condition:?} {content_type}{content_encoding}{ttl}")
                    }
                    Operation::Write(Change::Touch(ttl), condition, _) => {
                        format!("touch {key} {condition:?} {}s", ttl.as_secs())
                    }
                    Operation::Write(Change::Delete, condition, _) => {
                        format!("delete {key} {condition:?}")
                    }
                }
            }
            Ok(Action::List(query)) => format!("list {}", query.limit),
            Ok(Action::Watch(query)) => format!("watch {}", query.prefix.escape_ascii()),
            Ok(Action::Batch { is_atomic, .. }) => format!("batch {is_atomic}"),
            Ok(_) => "page".to_owned(),
            Err(failure) => format!("{} {}", failure.status, failure.code),
        };
        assert_eq!(got, expected, "{start} {fields}");
    }

    #[test]
    fn a_key_is_what_stands_behind_the_prefix() {
        check("GET /kv/a", "", "get a None");
        check("GET /kv/a/../b//c", "", "get a/../b//c None");
        check("GET /kv/%00%2Fx", "", "get \\x00/x None");
        check("GET http://h:80/kv/a", "", "get a None");
        check("GET /kv/", "", "400 bad_key");
        check("GET /kv/%zz", "", "400 bad_key");
        check("GET /kv/a?b", "", "400 bad_query");
        check(&format!("GET /kv/{}", "k".repeat(1025)), "", "400 bad_key");
    }

    #[test]
    fn a_lifetime_is_a_number_of_seconds() {
        check("PUT /kv/a", "TTL: 60\r\n", "put a None  60s");
        check("PUT /kv/a", "x-ttl: 3153600000\r\n", "put a None  3153600000s");
        for wrong in ["0", "", "-1", "1.5", "60s", "3153600001", "99999999999999999999"] {
            check("PUT /kv/a", &format!("TTL: {wrong}\r\n"), "400 bad_header");
        }
        check("POST /kv/a?touch", "TTL: 5\r\nIf-Match: \"3\"\r\n", "touch a VersionIn([Version(3)]) 5s");
        check("POST /kv/a?touch", "", "400 bad_header");
        check("POST /kv/a", "TTL: 5\r\n", "405 method_not_allowed");
        check("POST /kv/a?touch=1", "TTL: 5\r\n", "400 bad_query");
        check("POST /kv/a?touch&x=1", "TTL: 5\r\n", "400 bad_query");
        check("PUT /kv/a?touch", "TTL: 5\r\n", "400 bad_query");
    }

    #[test]
    fn of_a_field_that_is_there_twice_none_is_chosen() {
        for (start, fields) in [
            ("PUT /kv/a", ["TTL: 1", "TTL: 2"]),
            ("PUT /kv/a", ["TTL: 1", "X-TTL: 1"]),
            ("POST /kv/a?touch", ["TTL: 1", "TTL: 1"]),
            ("PUT /kv/a", ["Content-Type: a/b", "content-type: a/c"]),
            ("DELETE /kv/a", ["Idempotency-Key: a", "Idempotency-Key: b"]),
            ("GET /kv/a", ["Range: bytes=0-1", "Range: bytes=2-3"]),
            ("POST /batch", ["Idempotency-Key: a", "Idempotency-Key: b"]),
            ("GET /watch", ["Last-Event-ID: 1", "Last-Event-ID: 2"]),
        ] {
            check(start, &format!("{}\r\n{}\r\n", fields[0], fields[1]), "400 bad_header");
        }
    }

    #[test]
    fn a_wait_is_a_number_of_seconds_or_none() {
        for (prefer, expected) in [
            ("wait=30", "get a None for 30s"),
            ("respond-async, WAIT = 5", "get a None for 5s"),
            ("wait=\"5\"", "get a None for 5s"),
            ("wait=4000", "get a None for 300s"),
            ("wait=-1", "get a None"),
            ("return=minimal", "get a None"),
            ("wait", "get a None"),
        ] {
            check("GET /kv/a", &format!("Prefer: {prefer}\r\n"), expected);
        }
        check("GET /watch?prefix=a", "Last-Event-ID: 1f\r\n", "watch a");
        check("GET /watch", "Last-Event-ID: *\r\n", "400 bad_cursor");
        check("PUT /watch", "", "405 method_not_allowed");
        check("PUT /kv/a", "Idempotency-Key: \r\n", "400 bad_header");
        check("PUT /kv/a", &format!("Idempotency-Key: {}\r\n", "k".repeat(256)), "400 bad_header");
    }

    #[test]
    fn one_range_is_understood_and_others_give_the_whole_value() {
        for (range, expected) in [
            ("bytes=0-3", "Ok(Some(0..4))"),
            ("bytes=4-", "Ok(Some(4..10))"),
            ("bytes=-3", "Ok(Some(7..10))"),
            ("bytes=-30", "Ok(Some(0..10))"),
            ("bytes=9-99999999999999999999", "Ok(Some(9..10))"),
            ("bytes=10-", "Err(())"),
            ("bytes=-0", "Err(())"),
            ("bytes=0-1,3-4", "None"),
            ("bytes=4-3", "None"),
            ("bytes=a-", "None"),
            ("bytes=-", "None"),
            ("lines=0-1", "None"),
        ] {
            check("GET /kv/a", &format!("Range: {range}\r\n"), &format!("get a {expected}"));
        }
        check("GET /kv/a", "Range: bytes=0-3\r\nIf-Range: \"7\"\r\n", "get a Ok(Some(0..4))");
        for other in ["\"8\"", "\"+7\"", "\"07\"", "W/\"7\"", "Sun, 06 Nov 1994 08:49:37 GMT"] {
            check("GET /kv/a", &format!("Range: bytes=0-3\r\nIf-Range: {other}\r\n"), "get a Ok(None)");
        }
        check("HEAD /kv/a", "Range: bytes=0-3\r\n", "get a None");
        let last = |range: &[u8]| RangeRequest::of(range, None).unwrap().bytes(Version(7), 0);
        assert_eq!((last(b"bytes=-5"), last(b"bytes=-0"), last(b"bytes=0-")), (Ok(None), Err(()), Err(())));
    }

    #[test]
    fn methods_and_routes_that_are_not_there_say_so() {
        check("POST /kv/a", "", "405 method_not_allowed");
        check("OPTIONS /kv/a", "", "405 method_not_allowed");
        check("BREW /kv/a", "", "405 method_not_allowed");
        check("get /kv/a", "", "405 method_not_allowed");
        check("PUT /healthz", "", "405 method_not_allowed");
        check("HEAD /stats", "", "page");
        check("OPTIONS *", "", "page");
        check("GET /nowhere", "", "404 no_route");
        check("GET http://h", "", "404 no_route");
        check("GET http://h?/kv/a", "", "404 no_route");
        check("GET /kv?prefix=a", "", "list 1000");
        check("GET /kv?limit=7", "", "list 7");
        check("PUT /kv", "", "405 method_not_allowed");
        check("POST /batch", "", "batch false");
        check("POST /batch?atomic=true", "", "batch true");
        check("POST /batch?atomic=1", "", "400 bad_query");
        check("GET /batch", "", "405 method_not_allowed");
    }

    #[test]
    fn preconditions_are_understood_or_refused() {
        check("PUT /kv/a", "", "put a None ");
        check("PUT /kv/a", "Content-Type: text/plain\r\n", "put a None text/plain");
        check("PUT /kv/a", "If-None-Match: *\r\n", "put a Absent ");
        check("PUT /kv/a", "If-Match: *\r\n", "put a Present ");
        check("PUT /kv/a", "if-match: \"1\", \"2\"\r\n", "put a VersionIn([Version(1), Version(2)]) ");
        check("PUT /kv/a", "If-Match: W/\"1\", \"x\"\r\n", "put a VersionIn([]) ");
        check("PUT /kv/a", "If-Match: \"+5\", \"005\"\r\n", "put a VersionIn([]) ");
        check("PUT /kv/a", "If-Match: 1\r\n", "400 bad_precondition");
        check("PUT /kv/a", "If-None-Match: \"1\"\r\n", "400 bad_precondition");
        check("PUT /kv/a", "If-Match: \"1\"\r\nIf-None-Match: *\r\n", "400 bad_precondition");
        check("DELETE /kv/a", "If-Match: \"7\"\r\n", "delete a VersionIn([Version(7)])");
        check("DELETE /kv/a", "If-None-Match: *\r\n", "400 bad_precondition");
        check("GET /kv/a", "If-None-Match: W/\"3\"\r\n", "get a Some(VersionIn([Version(3)]))");
        check("GET /kv/a", "If-None-Match: *\r\n", "get a Some(Present)");
        check("GET /kv/a", "If-None-Match: what\r\n", "get a None");
        check("GET /kv/a", "If-None-Match: \"a,b\", \"3\"\r\n", "get a Some(VersionIn([Version(3)]))");
        check(
            "GET /kv/a",
            "If-None-Match: ,\"1\" ,,\t W/\"2\",\r\n",
            "get a Some(VersionIn([Version(1), Version(2)]))",
        );
        check("GET /kv/a", "If-None-Match: \"1\" \"2\"\r\n", "get a None");
        check("GET /kv/a", "If-None-Match: \"1\"2\"\r\n", "get a None");
        check("GET /kv/a", "If-None-Match: \"1\r\n", "get a None");
        check("GET /kv/a", "If-Match: \"1\"\r\n", "get a VersionIn([Version(1)]) None");
        check(
            "HEAD /kv/a",
            "If-Match: *\r\nIf-None-Match: \"2\"\r\n",
            "get a Present Some(VersionIn([Version(2)]))",
        );
        check("GET /kv/a", "If-Match: 1\r\n", "400 bad_precondition");
        check("PUT /kv/a", "If-Match: \"a,1\", \"1,\"\r\n", "put a VersionIn([]) ");
        check("PUT /kv/a", "Content-Encoding: gzip\r\n", "put a None gzip");
        check("PUT /kv/a", "Content-Encoding: Identity\r\n", "put a None ");
        check("POST /batch", "Content-Encoding: Identity\r\n", "batch false");
        check("POST /batch", "Content-Encoding: gzip\r\n", "415 content_encoding");
        check(
            "PUT /kv/a",
            "Content-Encoding: gzip\r\nContent-Encoding: identity, br\r\n",
            "put a None gzip, br",
        );
        check("PUT /kv/a", &format!("Content-Encoding: {}\r\n", "x".repeat(65)), "400 bad_header");
        check("GET /kv/a", "Content-Encoding: gzip\r\n", "get a None");
        check("PUT /kv/a", &format!("Content-Type: {}\r\n", "x".repeat(256)), "400 bad_header");
    }
}
