//! Answers in pieces, and what they mean.

use super::*;
use crate::dialect::{Dialect, KEPT_BYTES_MAX};

fn request(operation: Operation, expected: &str) -> Request {
    request_in("weir", operation, expected)
}

fn request_in(dialect: &str, operation: Operation, expected: &str) -> Request {
    let dialect: &'static Dialect = dialect.parse().unwrap();
    request_of(dialect, operation, expected)
}

fn request_of(dialect: &'static Dialect, operation: Operation, expected: &str) -> Request {
    let form = dialect.form(operation).unwrap();
    let keeps_bytes = if form.keeps_body { expected.len() + KEPT_BYTES_MAX } else { 0 };
    Request { operation, expected: expected.into(), form, keeps_bytes, ..Request::default() }
}

/// The verdict on `wire` is the same in one piece and byte by byte; `ends` closes the connection behind it.
fn check(request: &Request, wire: &str, ends: bool, expected: Result<Success, Fault>) {
    for piece in [wire.len(), 1, 7] {
        let mut answer = Answer::default();
        let mut complete = Ok(false);
        for bytes in wire.as_bytes().chunks(piece.max(1)) {
            if complete == Ok(false) {
                complete = answer.take(bytes, request);
            }
        }
        let verdict = complete.and_then(|complete| {
            if !complete {
                assert!(ends, "{wire:?} is not complete");
                answer.end()?;
            }
            answer.verdict(request)
        });
        assert_eq!(verdict, expected, "{wire:?} in pieces of {piece}");
    }
}

#[test]
fn reads_are_compared_with_what_was_written() {
    let read = request(Operation::Get, "k=");
    for (wire, expected) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=ab", Ok(Success::Done)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=", Ok(Success::Done)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nk", Err(Fault::WrongValue)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Err(Fault::WrongValue)),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nj=ab", Err(Fault::WrongValue)),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nk\r\n3\r\n=ab\r\n0\r\n\r\n",
            Ok(Success::Done),
        ),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=", Ok(Success::Done)),
    ] {
        check(&read, wire, false, expected);
    }
    let exact = Request { exact: true, ..request(Operation::Get, "k=ab") };
    check(&exact, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=ab", false, Ok(Success::Done));
    check(&exact, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nk=abc", false, Err(Fault::WrongValue));
}

#[test]
fn a_condition_that_does_not_hold_is_no_failure() {
    for (dialect, operation, wire, expected) in [
        (
            "weir",
            Operation::PutIfMatch,
            "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n",
            Ok(Success::PreconditionFailed),
        ),
        (
            "weir",
            Operation::Put,
            "HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n",
            Err(Fault::Http4xx),
        ),
        (
            "etcd",
            Operation::DeleteIfMatch,
            "HTTP/1.1 200 OK\r\nContent-Length: 18\r\n\r\n{\"succeeded\":true}",
            Ok(Success::Done),
        ),
        (
            "etcd",
            Operation::DeleteIfMatch,
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            Ok(Success::PreconditionFailed),
        ),
        (
            "webdis",
            Operation::PutIfAbsent,
            "HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n{\"SETNX\":0}",
            Ok(Success::PreconditionFailed),
        ),
        // What Redis refuses is answered with 200.
        (
            "webdis",
            Operation::PutIfAbsent,
            "HTTP/1.1 200 OK\r\nContent-Length: 33\r\n\r\n{\"SETNX\":[false,\"MISCONF Redis\"]}",
            Err(Fault::Malformed),
        ),
        (
            "webdis",
            Operation::Delete,
            "HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n{\"DEL\":[false,\"MISCONF Redis\"]}",
            Err(Fault::Malformed),
        ),
        (
            "webdis",
            Operation::Delete,
            "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{\"DEL\":1}",
            Ok(Success::Done),
        ),
    ] {
        check(&request_in(dialect, operation, ""), wire, false, expected);
    }
}

#[test]
fn the_version_that_was_found_is_in_a_field_or_in_the_body() {
    let versioned = |dialect, wire: &str| {
        let request = Request { keeps_version: true, ..request_in(dialect, Operation::Get, "") };
        let mut answer = Answer::default();
        assert_eq!(answer.take(wire.as_bytes(), &request), Ok(true));
        String::from_utf8(answer.version(&request).to_vec()).unwrap()
    };
    let wire = "HTTP/1.1 200 OK\r\nETag: \"7\"\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(versioned("weir", wire), "\"7\"");
    assert_eq!(versioned("weir", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"), "");
    let wire = "HTTP/1.1 200 OK\r\nContent-Length: 31\r\n\r\n{\"kvs\":[{\"mod_revision\":\"123\"}]}";
    let wire = wire.replace("31", &"{\"kvs\":[{\"mod_revision\":\"123\"}]}".len().to_string());
    assert_eq!(versioned("etcd", &wire), "123");
}

#[test]
fn statuses_fall_into_their_classes() {
    for (operation, status, expected) in [
        (Operation::Get, "404 Not Found", Err(Fault::Http4xx)),
        (Operation::Get, "503 Service Unavailable", Err(Fault::Http5xx)),
        (Operation::Get, "302 Found", Err(Fault::Malformed)),
        (Operation::Put, "200 OK", Ok(Success::Done)),
        (Operation::Put, "201 Created", Ok(Success::Done)),
        (Operation::Put, "404 Not Found", Err(Fault::Http4xx)),
        (Operation::Put, "500 Internal Server Error", Err(Fault::Http5xx)),
        (Operation::Delete, "200 OK", Ok(Success::Done)),
        (Operation::Delete, "404 Not Found", Ok(Success::Done)),
        (Operation::Delete, "429 Too Many Requests", Err(Fault::Http429)),
        (Operation::Get, "504 Gateway Timeout", Err(Fault::Http504)),
        (Operation::Get, "502 Bad Gateway", Err(Fault::Http5xx)),
    ] {
        let wire = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n");
        check(&request(operation, ""), &wire, false, expected);
    }
    check(&request(Operation::Put, ""), "HTTP/1.1 204 No Content\r\n\r\n", false, Ok(Success::Done));
}

#[test]
fn an_absent_key_is_fine_where_the_workload_says_so() {
    let mut read = request(Operation::Get, "k=");
    let mut answer = Answer::default();
    assert_eq!(answer.take(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", &read), Ok(true));
    assert_eq!(answer.verdict(&read), Err(Fault::Http4xx));
    read.may_be_absent = true;
    assert_eq!(answer.verdict(&read), Ok(Success::Absent));
}

#[test]
fn a_text_may_stand_anywhere_in_a_body_where_the_dialect_says_so() {
    let etcd = "etcd";
    let read = request_in(etcd, Operation::Get, "\"value\":\"YWJj");
    let ok = |body: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    let there = "{\"kvs\":[{\"value\":\"YWJjZA==\"}]}";
    for (body, expected) in [
        (there, Ok(Success::Done)),
        (&there.replace("YWJj", "YWJk"), Err(Fault::WrongValue)),
        // Absent where that is not fine.
        ("{\"header\":{}}", Err(Fault::WrongValue)),
    ] {
        check(&read, &ok(body), false, expected);
    }
    let read = Request { may_be_absent: true, ..read };
    let mut answer = Answer::default();
    assert_eq!(answer.take(ok("{\"header\":{}}").as_bytes(), &read), Ok(true));
    assert_eq!(answer.verdict(&read), Ok(Success::Absent));
    // The answer that follows is judged by its own body.
    answer.reset();
    assert_eq!(answer.take(ok(there).as_bytes(), &read), Ok(true));
    assert_eq!(answer.verdict(&read), Ok(Success::Done));

    let null = "[get]\npath = \"/{key}\"\nabsent_if = \"null\"\nholds = \"{value}\"";
    let null = request_of(Dialect::of_file("a.toml", null).unwrap(), Operation::Get, "k=");
    check(&null, &ok("\"k=ab\""), false, Ok(Success::Done));
    check(&null, &ok("null"), false, Err(Fault::WrongValue));
    // A value may hold the text that says that there is none, and one that says that it is there may stand behind a long one.
    let null = Request { may_be_absent: true, ..null };
    check(&null, &ok("\"k=annullo\""), false, Ok(Success::Done));
    check(&null, &ok("null"), false, Ok(Success::Absent));
    // So is what repeats the value, or what begins as if there were one.
    check(&null, &ok("{\"k\":\"k=ab\",\"is\":null}"), false, Ok(Success::Absent));
    let begun = "[get]\npath = \"/{key}\"\nabsent_if = \"null\"\nbegins = \"{\"";
    let begun = request_of(Dialect::of_file("a.toml", begun).unwrap(), Operation::Get, "{");
    let begun = Request { may_be_absent: true, ..begun };
    check(&begun, &ok("{\"k\":null}"), false, Ok(Success::Absent));
    let found = "[get]\npath = \"/{key}\"\nabsent_unless = \"found\"\nholds = \"{value}\"";
    let found = request_of(Dialect::of_file("a.toml", found).unwrap(), Operation::Get, "k=");
    let found = Request { may_be_absent: true, ..found };
    check(&found, &ok(&format!("k={} found", "a".repeat(2 * KEPT_BYTES_MAX))), false, Ok(Success::Done));
    check(&found, &ok("no k"), false, Ok(Success::Absent));

    // Redis' errors are no values.
    let read = request_in("webdis", Operation::Get, "k=");
    check(&read, &ok("k=ab"), false, Ok(Success::Done));
    check(&read, &ok("-LOADING Redis is loading the dataset in memory"), false, Err(Fault::Malformed));
    check(&read, &ok("j=ab"), false, Err(Fault::WrongValue));

    let put = request_in("webdis", Operation::Put, "{\"SET\":[true,");
    check(&put, &ok("{\"SET\":[true,\"OK\"]}"), false, Ok(Success::Done));
    check(&put, &ok("{\"SET\":[false,\"ERR\"]}"), false, Err(Fault::Malformed));
    check(&put, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", false, Err(Fault::Malformed));

    let fixed = request_in("fixed", Operation::Get, "");
    check(&fixed, &ok("whatever"), false, Ok(Success::Done));
    check(&fixed, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", false, Err(Fault::Http4xx));
}

#[test]
fn no_more_of_a_body_is_kept_than_its_beginning() {
    let read = request_in("etcd", Operation::Get, "\"value\":\"YWJj");
    let body = format!("\"kvs\":[{}", "x".repeat(4 * KEPT_BYTES_MAX));
    let mut answer = Answer::default();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    assert_eq!(answer.take(head.as_bytes(), &read), Ok(false));
    for piece in body.as_bytes().chunks(1000) {
        answer.take(piece, &read).unwrap();
    }
    assert_eq!(answer.content.kept.len(), KEPT_BYTES_MAX + read.expected.len());
    assert_eq!(answer.verdict(&read), Err(Fault::WrongValue));
}

#[test]
fn answers_cut_short_differ_from_no_answer() {
    let read = request(Operation::Get, "k=");
    check(&read, "", true, Err(Fault::Reset));
    for wire in [
        "HTTP/1.1 2",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nk=",
    ] {
        check(&read, wire, true, Err(Fault::ClosedEarly));
    }
    // Without length or chunks the end of the connection is the end of the body.
    check(&read, "HTTP/1.1 200 OK\r\n\r\nk=ab", true, Ok(Success::Done));
    check(&read, "HTTP/1.1 200 OK\r\n\r\nj=ab", true, Err(Fault::WrongValue));
}

#[test]
fn what_is_no_answer_is_malformed() {
    let read = request(Operation::Get, "k=");
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "x".repeat(64 << 10));
    for wire in ["SSH-2.0-OpenSSH_9.6\r\n", "HTTP/1.1 2x0 OK\r\n\r\n", endless.as_str()] {
        let mut answer = Answer::default();
        assert_eq!(answer.take(wire.as_bytes(), &read), Err(Fault::Malformed));
    }
}

#[test]
fn an_answer_that_belies_its_own_length_has_a_class_of_its_own() {
    let read = request(Operation::Get, "k=");
    for wire in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=surplus",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nk=\r\n0\r\n\r\nx",
        "HTTP/1.1 204 No Content\r\n\r\nx",
        // Where the server is not to be believed, its status is not either.
        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 1\r\n\r\nxy",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nk=a",
        "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let mut answer = Answer::default();
        assert_eq!(answer.take(wire.as_bytes(), &read), Err(Fault::WrongLength), "{wire}");
    }
    // What is no number, or no chunk, is no contradiction but nonsense.
    for wire in [
        "HTTP/1.1 200 OK\r\nContent-Length: 2x\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nk=longer\r\n",
    ] {
        let mut answer = Answer::default();
        assert_eq!(answer.take(wire.as_bytes(), &read), Err(Fault::Malformed), "{wire}");
    }
}

#[test]
fn what_was_too_slow_is_classed_by_what_had_come() {
    let read = request(Operation::Get, "k=");
    for (wire, expected) in [
        ("", Fault::Timeout),
        ("HTTP/1.1 200 OK\r\nContent-Le", Fault::Timeout),
        ("HTTP/1.1 100 Continue\r\n\r\n", Fault::Timeout),
        ("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n", Fault::SlowBody),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nk", Fault::SlowBody),
    ] {
        let mut answer = Answer::default();
        if !wire.is_empty() {
            assert_eq!(answer.take(wire.as_bytes(), &read), Ok(false));
        }
        assert_eq!(answer.late(), expected, "{wire}");
    }
}

#[test]
fn a_503_may_say_its_outcome_where_the_dialect_knows_how() {
    let unavailable = |outcome: &str| {
        format!("HTTP/1.1 503 Service Unavailable\r\nServer: x\r\n{outcome}Content-Length: 0\r\n\r\n")
    };
    let put = request(Operation::Put, "");
    for (field, expected) in [
        ("", Fault::Http5xx),
        ("Weir-Outcome: not-applied\r\n", Fault::Http503NotApplied),
        ("weir-outcome: Unknown\r\n", Fault::Http503Unknown),
        ("Weir-Outcome: perhaps\r\n", Fault::Http5xx),
        ("X-Outcome: unknown\r\n", Fault::Http5xx),
    ] {
        check(&put, &unavailable(field), false, Err(expected));
    }
    // Other statuses say it by themselves, and other dialects know no such field.
    let other = unavailable("Weir-Outcome: unknown\r\n").replace("503", "500");
    check(&put, &other, false, Err(Fault::Http5xx));
    let silent = request_in("etcd", Operation::Put, "");
    check(&silent, &unavailable("Weir-Outcome: unknown\r\n"), false, Err(Fault::Http5xx));

    // One after the other on one connection, as heads that resemble each other.
    let mut answer = Answer::default();
    for (field, expected) in [
        ("Weir-Outcome: not-applied\r\n", Fault::Http503NotApplied),
        ("Weir-Outcome: not-applied\r\n", Fault::Http503NotApplied),
        ("Weir-Outcome: unknown\r\n", Fault::Http503Unknown),
        ("", Fault::Http5xx),
    ] {
        answer.reset();
        assert_eq!(answer.take(unavailable(field).as_bytes(), &put), Ok(true));
        assert_eq!(answer.verdict(&put), Err(expected));
    }
}

#[test]
fn an_answer_forgets_the_one_before() {
    let read = request(Operation::Get, "k=");
    let mut answer = Answer::default();
    assert_eq!(
        answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nj=", &read),
        Ok(true)
    );
    assert!(!answer.keeps_alive());
    answer.reset();
    assert!(!answer.begun && answer.status == 0);
    assert_eq!(answer.take(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nk=", &read), Ok(true));
    assert!(answer.keeps_alive());
    assert_eq!(answer.verdict(&read), Ok(Success::Done));
}

#[test]
fn an_answer_that_ends_with_its_connection_says_nothing_of_how_the_next_one_ends() {
    let read = request(Operation::Get, "k=");
    let mut answer = Answer::default();
    assert_eq!(answer.take(b"HTTP/1.1 200 OK\r\n\r\nk=", &read), Ok(false));
    assert_eq!(answer.end(), Ok(()));
    answer.reset();
    assert_eq!(answer.take(b"HTTP/1.1 200 OK\r\nCont", &read), Ok(false));
    assert_eq!(answer.end(), Err(Fault::ClosedEarly));
}
