//! The HTTP interface as its users meet it: a server in a process of its own, and a client that knows only HTTP.
//!
//! What the codec makes of single bytes is in `http1`; what survives a crash is in `durability`.

use crate::support::{Answer, Client, PATIENCE, Server, weir};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

fn server(flags: &[&str]) -> Server {
    Server::start("memory:", flags)
}

fn random(bytes: usize) -> Vec<u8> {
    let mut value = vec![0; bytes];
    Xoshiro256PlusPlus::seed_from_u64(bytes as u64).fill_bytes(&mut value);
    value
}

/// `body` in chunks of `size` bytes.
fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    for chunk in body.chunks(size) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(b"0\r\n\r\n");
    bytes
}

/// A request without a body.
fn head(start: &str, fields: &str) -> Vec<u8> {
    format!("{start} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes()
}

fn stays_open(answer: &Answer) -> bool {
    answer.header("connection") != Some("close")
}

#[test]
fn a_binary_of_5_mib_comes_back_identical() {
    let server = server(&[]);
    let value = random(5 << 20);
    let mut client = server.client();
    assert_eq!(client.put("/kv/by/length", &value).status, 201);
    let mut request = head("PUT /kv/by/chunks", "Transfer-Encoding: chunked\r\n");
    request.extend(chunked(&value, 7919));
    assert_eq!(client.exchange(&request).status, 201);
    for path in ["/kv/by/length", "/kv/by/chunks"] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.header("content-length")), (200, Some("5242880")));
        assert!(answer.body == value, "{path}: other bytes than were sent");
    }
}

#[test]
fn an_empty_value_is_not_an_absent_one() {
    let server = server(&[]);
    let mut client = server.client();
    assert_eq!(client.get("/kv/a").status, 404);
    assert_eq!(client.put("/kv/a", b"").status, 201);
    let answer = client.get("/kv/a");
    assert_eq!((answer.status, answer.header("content-length"), answer.body.len()), (200, Some("0"), 0));
    // Absence is made once; made again it is no failure.
    for _ in 0..2 {
        assert_eq!(client.ask("DELETE", "/kv/a", &[], b"").unwrap().status, 204);
    }
    assert_eq!(client.get("/kv/a").status, 404);
}

/// The key is the bytes behind the prefix, decoded once: two spellings are one key exactly where they decode to the same.
#[test]
fn a_key_is_what_its_path_spells() {
    let server = server(&[]);
    let mut client = server.client();
    let (long, long_encoded) = (format!("/kv/{}", "k".repeat(1024)), format!("/kv/{}", "%6b".repeat(1024)));
    let keys: &[(&str, &str)] = &[
        ("/kv/a", "/kv/%61"),
        ("/kv/a/b", "/kv/a%2Fb"),
        ("/kv/a/../b", "/kv/a/%2e%2E/b"),
        ("/kv/..", "/kv/%2e."),
        ("/kv//", "/kv/%2F"),
        ("/kv//a//b", "/kv/%2fa/%2fb"),
        ("/kv/a+b", "/kv/a%2Bb"),
        ("/kv/%20", "/kv/%20"),
        ("/kv/%00%ff", "/kv/%00%FF"),
        ("/kv/%2541", "/kv/%25%34%31"),
        ("/kv/a%3Fb", "/kv/%61%3fb"),
        (&long, &long_encoded),
    ];
    for (path, _) in keys {
        assert_eq!(client.put(path, path.as_bytes()).status, 201, "{path} is a key of its own");
    }
    for (path, other_spelling) in keys {
        assert_eq!(client.get(other_spelling).text(), *path);
    }
    let absolute = client.exchange(b"GET http://localhost/kv/a/../b HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(absolute.text(), "/kv/a/../b");
}

#[test]
fn content_type_and_value_are_given_back_with_a_tag() {
    let server = server(&[]);
    let mut client = server.client();
    let typed = client.ask("PUT", "/kv/t", &[("Content-Type", "text/x; charset=y")], b"value").unwrap();
    client.put("/kv/u", b"value");
    for (path, content_type) in [("/kv/t", "text/x; charset=y"), ("/kv/u", "application/octet-stream")] {
        let got = client.get(path);
        assert_eq!(got.header("content-type"), Some(content_type));
        assert_eq!(got.header("x-content-type-options"), Some("nosniff"));
        assert!(got.header("date").unwrap().ends_with(" GMT"));
        let asked = client.ask("HEAD", path, &[], b"").unwrap();
        let but_date = |answer: &Answer| -> Vec<_> {
            answer.headers.iter().filter(|(name, _)| name != "date").cloned().collect()
        };
        assert_eq!((asked.status, but_date(&asked)), (200, but_date(&got)));
    }
    assert_eq!(client.get("/kv/t").header("etag"), typed.header("etag"));
    // An error answers HEAD with the length of a body that does not follow: the next answer is in step.
    let absent = client.ask("HEAD", "/kv/absent", &[], b"").unwrap();
    assert_eq!(absent.status, 404);
    assert!(absent.header("content-length").unwrap().parse::<u64>().unwrap() > 0);
    assert_eq!(client.get("/kv/t").text(), "value");
}

#[test]
fn a_tag_saves_reading_what_is_known() {
    let server = server(&[]);
    let mut client = server.client();
    let old = client.put("/kv/a", b"old").header("etag").unwrap().to_owned();
    let new = client.put("/kv/a", b"new").header("etag").unwrap().to_owned();
    assert!(old != new && new.starts_with('"') && new.ends_with('"'), "{old} {new}");
    let list = format!("\"x\", {old}, W/{new}");
    for (method, unless, status) in [
        ("GET", new.as_str(), 304),
        ("HEAD", &new, 304),
        ("GET", &list, 304),
        ("GET", "*", 304),
        ("GET", &old, 200),
    ] {
        let answer = client.ask(method, "/kv/a", &[("If-None-Match", unless)], b"").unwrap();
        assert_eq!((answer.status, answer.header("etag")), (status, Some(new.as_str())), "{method} {unless}");
        assert_eq!(answer.header("content-length").is_none() && answer.body.is_empty(), status == 304);
    }
    assert_eq!(client.ask("GET", "/kv/b", &[("If-None-Match", "*")], b"").unwrap().status, 404);
}

#[test]
fn a_write_on_condition_is_made_only_if_it_holds() {
    let server = server(&[]);
    let mut client = server.client();
    let mut check = |method, path, name, tag: &str, status| -> Option<String> {
        let body: &[u8] = if method == "PUT" { b"value" } else { b"" };
        let answer = client.ask(method, path, &[(name, tag)], body).unwrap();
        assert_eq!(answer.status, status, "{method} {path} {name}: {tag}");
        if status == 412 {
            assert_eq!(answer.header("weir-outcome"), Some("not-applied"));
            assert_eq!(answer.problem()["code"], "precondition_failed");
        }
        answer.header("etag").map(str::to_owned)
    };
    assert_eq!(check("PUT", "/kv/a", "If-Match", "*", 412), None, "an absent key has no tag");
    assert_eq!(check("DELETE", "/kv/a", "If-Match", "\"1\"", 412), None);
    let first = check("PUT", "/kv/a", "If-None-Match", "*", 201).unwrap();
    assert_eq!(check("PUT", "/kv/a", "If-None-Match", "*", 412).as_ref(), Some(&first));
    assert_eq!(check("PUT", "/kv/a", "If-Match", "\"no such\"", 412).as_ref(), Some(&first));
    let second = check("PUT", "/kv/a", "If-Match", &first, 204).unwrap();
    assert_eq!(check("PUT", "/kv/a", "If-Match", &first, 412).as_ref(), Some(&second), "the tag it has now");
    assert_eq!(check("DELETE", "/kv/a", "If-Match", &first, 412).as_ref(), Some(&second));
    let weak = format!("W/{second}");
    check("DELETE", "/kv/a", "If-Match", &weak, 412);
    check("PUT", "/kv/a", "If-Match", "*", 204);
    check("DELETE", "/kv/a", "If-Match", "*", 204);
    check("PUT", "/kv/a", "If-Match", &second, 412);
}

#[test]
fn of_many_creations_at_once_one_is_made() {
    let server = server(&[]);
    let mut clients: Vec<Client> = (0..16).map(|_| server.client()).collect();
    for round in 0..20 {
        // Every request is sent before any answer is read.
        let request = head(&format!("PUT /kv/{round}"), "If-None-Match: *\r\nContent-Length: 0\r\n");
        clients.iter_mut().for_each(|client| client.send(&request).unwrap());
        let mut statuses: Vec<u16> =
            clients.iter_mut().map(|client| client.answer(false).unwrap().status).collect();
        statuses.sort_unstable();
        assert_eq!((statuses[0], &statuses[1..]), (201, &[412; 15][..]));
    }
}

#[test]
fn two_clients_that_count_by_tag_lose_no_step() {
    const STEPS: u64 = 50;
    let server = server(&[]);
    server.client().put("/kv/count", b"0");
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let mut client = server.client();
                let mut made = 0;
                while made < STEPS {
                    let read = client.get("/kv/count");
                    let next = read.text().parse::<u64>().unwrap() + 1;
                    let condition = [("If-Match", read.header("etag").unwrap())];
                    match client.ask("PUT", "/kv/count", &condition, next.to_string().as_bytes()) {
                        Ok(answer) if answer.status == 204 => made += 1,
                        answer => assert_eq!(answer.unwrap().status, 412),
                    }
                }
            });
        }
    });
    assert_eq!(server.client().get("/kv/count").text(), (2 * STEPS).to_string());
}

#[test]
fn cache_status_says_how_a_read_was_served() {
    let directory = tempfile::tempdir().unwrap();
    let store = format!("file:{}", directory.path().join("store").display());
    let first = Server::start(&store, &[]);
    first.client().put("/kv/a", b"value");
    let status = |client: &mut Client| client.get("/kv/a").header("cache-status").unwrap().to_owned();
    assert_eq!(status(&mut first.client()), "weir; hit", "a write leaves its row in the cache");
    first.kill();
    let second = Server::start(&store, &[]);
    let mut client = second.client();
    assert_eq!(status(&mut client), "weir; fwd=miss; stored");
    assert_eq!(status(&mut client), "weir; hit");
    drop(client);
    second.kill();
    let third = Server::start(&store, &["--cache-entries", "0"]);
    let mut client = third.client();
    assert_eq!([status(&mut client), status(&mut client)], ["weir; fwd=miss", "weir; fwd=miss"]);
}

#[test]
fn server_timing_is_there_for_those_who_ask() {
    for (flags, asks, is_told) in [
        (&[][..], None, false),
        (&[], Some("0"), false),
        (&[], Some("1"), true),
        (&["--timing"], None, true),
        (&["--cache-entries", "0"], Some("1"), true),
    ] {
        let server = server(flags);
        let mut client = server.client();
        let headers: Vec<_> = asks.map(|value| ("Weir-Timing", value)).into_iter().collect();
        let read: &[&str] =
            if flags.contains(&"--cache-entries") { &["cache", "queue", "store"] } else { &["cache"] };
        for (method, parts) in
            [("PUT", &["queue", "store"][..]), ("GET", read), ("DELETE", &["queue", "store"])]
        {
            let answer = client.ask(method, "/kv/a", &headers, b"").unwrap();
            let told = answer.header("server-timing");
            assert_eq!(told.is_some(), is_told, "{method} {flags:?} {asks:?}");
            let Some(told) = told else { continue };
            let parsed: Vec<(&str, f64)> = (told.split(", "))
                .map(|part| part.split_once(";dur=").unwrap())
                .map(|(name, millis)| (name, millis.parse().unwrap()))
                .collect();
            assert_eq!(parsed.iter().map(|(name, _)| *name).collect::<Vec<_>>(), parts, "{method}: {told}");
            assert!(parsed.iter().all(|(_, millis)| (0.0..60_000.0).contains(millis)), "{told}");
        }
    }
}

#[test]
fn a_hundred_requests_at_once_are_answered_in_their_order() {
    let server = server(&[]);
    let mut client = server.client();
    let mut requests = Vec::new();
    for i in 0..50 {
        requests
            .extend(head(&format!("PUT /kv/{i}"), &format!("Content-Length: {}\r\n", i.to_string().len())));
        requests.extend(i.to_string().into_bytes());
        requests.extend(head(&format!("GET /kv/{i}"), ""));
    }
    client.send(&requests).unwrap();
    for i in 0..50 {
        assert_eq!(client.answer(false).unwrap().status, 201);
        assert_eq!(client.answer(false).unwrap().text(), i.to_string());
    }
}

/// What came before a body that is not there yet is answered: its sender may wait for that.
#[test]
fn answers_do_not_wait_for_a_later_requests_body() {
    let server = server(&[]);
    let mut client = server.client();
    client.put("/kv/a", b"value");
    let begun = [head("GET /kv/a", ""), head("PUT /kv/b", "Content-Length: 4\r\n"), b"ha".to_vec()].concat();
    assert_eq!(client.exchange(&begun).text(), "value");
    assert_eq!(client.exchange(b"lf").status, 201);
}

#[test]
fn a_body_is_asked_for_or_refused_before_it_is_sent() {
    let server = server(&["--value-bytes", "1KiB"]);
    let mut client = server.client();
    for framing in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
        let asked = head("PUT /kv/a", &format!("Expect: 100-continue\r\n{framing}\r\n"));
        assert_eq!(client.exchange(&asked).status, 100);
        let body = if framing.starts_with('C') { b"value".to_vec() } else { chunked(b"value", 2) };
        assert!(matches!(client.exchange(&body).status, 201 | 204));
        assert_eq!(client.get("/kv/a").text(), "value");
    }
    for (start, fields, status) in [
        ("PUT /kv/b", "Content-Length: 1025\r\n", 413),
        ("PUT /kv/%", "Content-Length: 5\r\n", 400),
        ("POST /kv/b", "Transfer-Encoding: chunked\r\n", 405),
        ("PUT /kv/b", "Content-Length: 5\r\nIf-Match: what\r\n", 400),
    ] {
        let mut client = server.client();
        let answer = client.exchange(&head(start, &format!("Expect: 100-continue\r\n{fields}")));
        assert_eq!((answer.status, stays_open(&answer)), (status, false), "{start}");
        assert!(client.is_closed());
    }
}

#[test]
fn a_connection_stays_as_long_as_its_client_wants() {
    let server = server(&[]);
    server.client().put("/kv/a", b"value");
    for (request, said, stays) in [
        ("GET /kv/a HTTP/1.1\r\nHost: localhost\r\n\r\n", None, true),
        ("GET /kv/b HTTP/1.1\r\nHost: localhost\r\n\r\n", None, true),
        ("GET /kv/a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", Some("close"), false),
        ("GET /kv/a HTTP/1.0\r\n\r\n", Some("close"), false),
        ("GET /kv/b HTTP/1.0\r\n\r\n", Some("close"), false),
        // A client of 1.0 takes only a word for it.
        ("GET /kv/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive"), true),
        ("GET /kv/b HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", Some("keep-alive"), true),
    ] {
        let mut client = server.client();
        let answer = client.exchange(request.as_bytes());
        assert_eq!(answer.header("connection"), said, "{request}");
        match stays {
            true => assert_eq!(client.get("/kv/a").text(), "value", "{request}"),
            false => assert!(client.is_closed(), "{request}"),
        }
    }
}

/// A body where none is needed is read past; the connection stays in step.
#[test]
fn a_body_nobody_needs_does_no_harm() {
    let server = server(&[]);
    let mut client = server.client();
    client.put("/kv/a", b"value");
    for (method, path, status) in [
        ("GET", "/kv/a", 200),
        ("GET", "/healthz", 200),
        ("GET", "/kv/absent", 404),
        ("POST", "/kv/a", 405),
        ("DELETE", "/kv/a", 204),
        ("PATCH", "/kv/a", 405),
        ("POST", "/nowhere", 404),
    ] {
        let answer = client.ask(method, path, &[], &[b'x'; 60_000]).unwrap();
        assert_eq!((answer.status, stays_open(&answer)), (status, true), "{method} {path}");
    }
    // One too large to be read for nothing ends the connection instead.
    let answer = client.ask("POST", "/kv/a", &[], &[b'x'; 70_000]).unwrap();
    assert_eq!((answer.status, stays_open(&answer)), (405, false));
    assert!(client.is_closed());
}

/// What is wrong, the bytes, and the answer: status, code, outcome, and whether the connection stays.
fn wrong_requests() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let put = |path: &str, fields: &str| head(&format!("PUT {path}"), fields);
    let long = |bytes| "k".repeat(bytes);
    let many_fields = |count| (0..count).map(|i| format!("X-{i}: y\r\n")).collect::<String>();
    let body = |mut bytes: Vec<u8>, body: &[u8]| {
        bytes.extend_from_slice(body);
        bytes
    };
    let chunks = "Transfer-Encoding: chunked\r\n";
    let client_hello =
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\x0d\x0a\x0d\x0a\x00\x20\x13\x01\x00\x00";
    vec![
        (
            "oversize by length",
            put("/kv/a", "Content-Length: 8388609\r\n"),
            "413 value_too_large not-applied close",
        ),
        (
            "oversize by one chunk",
            body(put("/kv/a", chunks), b"800001\r\n"),
            "413 value_too_large not-applied close",
        ),
        (
            "oversize by many chunks",
            body(put("/kv/a", chunks), &chunked(&vec![b'x'; (8 << 20) + 1], 1 << 20)),
            "413 value_too_large not-applied close",
        ),
        ("a PUT without a length", put("/kv/a", ""), "411 length_required not-applied close"),
        (
            "a PUT until the connection closes",
            b"PUT /kv/a HTTP/1.0\r\n\r\nvalue".to_vec(),
            "411 length_required not-applied close",
        ),
        (
            "a PUT without a length that waits",
            put("/kv/a", "Expect: 100-continue\r\n"),
            "411 length_required not-applied close",
        ),
        (
            "a lifetime that is no number",
            body(put("/kv/a", "TTL: 60s\r\nContent-Length: 5\r\n"), b"value"),
            "400 bad_header not-applied keep",
        ),
        ("a key with a bad escape", put("/kv/%zz", ""), "400 bad_key not-applied keep"),
        ("a key with half an escape", put("/kv/a%4", ""), "400 bad_key not-applied keep"),
        ("a bad key of a read", head("GET /kv/%", ""), "400 bad_key - keep"),
        ("a key that is too long", put(&format!("/kv/{}", long(1025)), ""), "400 bad_key not-applied keep"),
        ("an empty key", put("/kv/", ""), "400 bad_key not-applied keep"),
        ("a query", put("/kv/a?b=c", ""), "400 bad_query not-applied keep"),
        ("an unknown method", head("BREW /kv/a", ""), "405 method_not_allowed not-applied keep"),
        ("a method in lower case", head("put /kv/a", ""), "405 method_not_allowed not-applied keep"),
        ("a method the key has not", head("POST /kv/a", ""), "405 method_not_allowed not-applied keep"),
        ("a method the page has not", put("/stats", ""), "405 method_not_allowed not-applied keep"),
        ("a read of what is no page", head("GET /batch", ""), "405 method_not_allowed - keep"),
        ("no Host", b"PUT /kv/a HTTP/1.1\r\n\r\n".to_vec(), "400 malformed not-applied close"),
        ("two Hosts", put("/kv/a", "Host: other\r\n"), "400 malformed not-applied close"),
        (
            "both framings",
            body(put("/kv/a", "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), b"0\r\n\r\n"),
            "400 malformed not-applied close",
        ),
        (
            "two lengths",
            put("/kv/a", "Content-Length: 5\r\nContent-Length: 6\r\n"),
            "400 malformed not-applied close",
        ),
        ("a length that is none", put("/kv/a", "Content-Length: +5\r\n"), "400 malformed not-applied close"),
        ("a bad chunk size", body(put("/kv/a", chunks), b"5g\r\nvalue"), "400 malformed not-applied close"),
        (
            "a chunk without end",
            body(put("/kv/a", chunks), b"5\r\nvalue!"),
            "400 malformed not-applied close",
        ),
        (
            "an unknown transfer coding",
            put("/kv/a", "Transfer-Encoding: gzip\r\n"),
            "501 not_implemented not-applied close",
        ),
        ("an unknown expectation", put("/kv/a", "Expect: miracles\r\n"), "417 expectation not-applied close"),
        ("a bare LF", b"PUT /kv/a HTTP/1.1\nHost: localhost\n\n".to_vec(), "400 malformed not-applied close"),
        ("a folded field", put("/kv/a", "X: y\r\n z\r\n"), "400 malformed not-applied close"),
        ("a blank before a colon", put("/kv/a", "Content-Length : 5\r\n"), "400 malformed not-applied close"),
        ("HTTP/2.0", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), "505 version not-applied close"),
        (
            "a long target",
            put(&format!("/kv/{}", long(9 << 10)), ""),
            "414 target_too_long not-applied close",
        ),
        (
            "a long head",
            put("/kv/a", &format!("X: {}\r\n", "y".repeat(17 << 10))),
            "431 head_too_large not-applied close",
        ),
        ("many fields", put("/kv/a", &many_fields(64)), "431 head_too_large not-applied close"),
        (
            "an If-Match without quotes",
            put("/kv/a", "If-Match: 1\r\n"),
            "400 bad_precondition not-applied keep",
        ),
        (
            "an If-None-Match of a PUT",
            put("/kv/a", "If-None-Match: \"1\"\r\n"),
            "400 bad_precondition not-applied keep",
        ),
        (
            "two preconditions",
            put("/kv/a", "If-Match: *\r\nIf-None-Match: *\r\n"),
            "400 bad_precondition not-applied keep",
        ),
        (
            "a part of a value",
            put("/kv/a", "Content-Range: bytes 0-0/2\r\n"),
            "400 bad_header not-applied keep",
        ),
        (
            "a long Content-Type",
            put("/kv/a", &format!("Content-Type: {}\r\n", "x".repeat(256))),
            "400 bad_header not-applied keep",
        ),
        ("a list of nothing", head("GET /kv?limit=0", ""), "400 bad_query - keep"),
        (
            "an atomic batch with a wrong line",
            body(head("POST /batch?atomic=true", "Content-Length: 2\r\n"), b"[]"),
            "400 bad_line not-applied keep",
        ),
        (
            "a touch without a lifetime",
            head("POST /kv/a?touch", "Content-Length: 0\r\n"),
            "400 bad_header not-applied keep",
        ),
        // Open with --lab only.
        ("a preload", head("POST /preload?key=a", "Content-Length: 0\r\n"), "404 no_route not-applied keep"),
        ("a removal of everything", head("DELETE /kv", ""), "405 method_not_allowed not-applied keep"),
        ("a computation", head("GET /compute/prime?count=1", ""), "404 no_route - keep"),
        ("a hash", head("GET /compute/hash?text=a", ""), "404 no_route - keep"),
        ("a route that is none", head("GET /nowhere", ""), "404 no_route - keep"),
        ("a write to a route that is none", put("/nowhere", ""), "404 no_route not-applied keep"),
        ("gibberish", random(300), "400 malformed not-applied close"),
        ("a TLS ClientHello", client_hello.to_vec(), "400 malformed not-applied close"),
    ]
}

/// The same for requests whose sender ends in the middle.
const CUT: &[(&str, &str, &str)] = &[
    ("half a request line", "PUT /kv", "400 incomplete not-applied close"),
    (
        "half a head",
        "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Le",
        "400 incomplete not-applied close",
    ),
    (
        "half a body",
        "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nval",
        "400 incomplete not-applied close",
    ),
    (
        "half a chunk",
        "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nval",
        "400 incomplete not-applied close",
    ),
    (
        "chunks without the last",
        "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nvalue\r\n",
        "400 incomplete not-applied close",
    ),
];

/// With `--lab`.
fn wrong_lab_requests() -> Vec<(&'static str, Vec<u8>, &'static str)> {
    let no_length = "Content-Length: 0\r\n";
    vec![
        ("a preload without a key", head("POST /preload", no_length), "400 bad_query not-applied keep"),
        (
            "a preload of an empty key",
            head("POST /preload?key=", no_length),
            "400 bad_query not-applied keep",
        ),
        ("a preload with more", head("POST /preload?key=a&b=c", no_length), "400 bad_query not-applied keep"),
        (
            "a preload with a bad escape",
            head("POST /preload?key=%", no_length),
            "400 bad_query not-applied keep",
        ),
        (
            "a preload without a length",
            head("POST /preload?key=a", ""),
            "411 length_required not-applied close",
        ),
        (
            "an encoded preload",
            head("POST /preload?key=a", "Content-Encoding: br\r\nContent-Length: 0\r\n"),
            "415 content_encoding not-applied keep",
        ),
        (
            "a preload that is too large",
            head("POST /preload?key=a", "Content-Length: 8388609\r\n"),
            "413 value_too_large not-applied close",
        ),
        (
            "a preload by PUT",
            head("PUT /preload?key=a", no_length),
            "405 method_not_allowed not-applied keep",
        ),
        ("a removal of a part", head("DELETE /kv?prefix=b", ""), "400 bad_query not-applied keep"),
        ("no number of primes", head("GET /compute/prime", ""), "400 bad_query - keep"),
        ("too many primes", head("GET /compute/prime?count=10001", ""), "400 bad_query - keep"),
        ("no primes", head("GET /compute/prime?count=0", ""), "400 bad_query - keep"),
        ("primes by a word", head("GET /compute/prime?count=ten", ""), "400 bad_query - keep"),
        ("no text", head("GET /compute/hash?text=", ""), "400 bad_query - keep"),
        (
            "a computation by POST",
            head("POST /compute/hash?text=a", no_length),
            "405 method_not_allowed not-applied keep",
        ),
    ]
}

#[test]
fn every_wrong_request_gets_its_answer_and_the_server_goes_on() {
    every_wrong_request_is_answered(&[], wrong_requests());
    every_wrong_request_is_answered(&["--lab"], wrong_lab_requests());
}

fn every_wrong_request_is_answered(flags: &[&str], requests: Vec<(&'static str, Vec<u8>, &'static str)>) {
    let server = server(flags);
    server.client().put("/kv/good", b"good");
    let check = |what: &str, mut client: Client, answer: Answer, expected: &str| {
        let problem = answer.problem();
        let word = |field: &str| problem[field].as_str().unwrap_or("-").to_owned();
        let stays = if stays_open(&answer) { "keep" } else { "close" };
        let got = format!("{} {} {} {stays}", answer.status, word("code"), word("outcome"));
        assert_eq!(got, expected, "{what}: {}", answer.text());
        assert_eq!(problem["status"], answer.status, "{what}");
        assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{what}");
        assert_eq!(answer.header("weir-outcome").unwrap_or("-"), word("outcome"), "{what}");
        assert_eq!(answer.header("allow").is_some(), answer.status == 405, "{what}");
        assert!(!word("title").is_empty() && !word("detail").is_empty(), "{what}");
        assert_eq!(answer.text().trim_end().lines().count(), 1, "{what}");
        match stays {
            "keep" => assert_eq!(client.get("/kv/good").text(), "good", "after {what}"),
            _ => assert!(client.is_closed(), "{what}"),
        }
        assert_eq!(server.client().get("/kv/good").text(), "good", "after {what}");
        assert_eq!(server.client().get("/kv/a").status, 404, "{what} was applied");
    };
    for (what, bytes, expected) in requests {
        let mut client = server.client();
        let answer = client.exchange(&bytes);
        check(what, client, answer, expected);
    }
    for (what, text, expected) in CUT {
        let mut client = server.client();
        client.send(text.as_bytes()).unwrap();
        client.finish_sending();
        let answer = client.answer(false).unwrap();
        check(what, client, answer, expected);
    }
}

#[test]
fn a_lab_server_is_filled_past_its_cache_and_emptied() {
    let server = server(&["--lab"]);
    let mut client = server.client();
    client.put("/kv/a%20b", b"old");
    let preload = |client: &mut Client, path: &str, value: &[u8]| {
        client.ask("POST", path, &[("Content-Type", "text/x")], value).unwrap()
    };
    let made = preload(&mut client, "/preload?key=a+b", b"new");
    assert_eq!((made.status, made.body.len()), (204, 0));
    assert_eq!(preload(&mut client, "/preload?key=c", b"c").status, 201);
    let read = client.get("/kv/a%20b");
    assert_eq!((read.text().as_str(), read.header("content-type")), ("new", Some("text/x")));
    assert_eq!(read.header("etag"), made.header("etag"));
    assert_eq!(read.header("cache-status"), Some("weir; fwd=miss; stored"));
    for _ in 0..2 {
        assert_eq!(client.ask("DELETE", "/kv", &[], b"").unwrap().status, 204);
        assert_eq!((client.get("/kv/a%20b").status, client.get("/kv/c").status), (404, 404));
    }
    assert_eq!(client.get("/stats").problem()["weir_cache_entries"], 0.0);
    assert_eq!(client.put("/kv/c", b"again").status, 201);
}

#[test]
fn a_lab_server_computes_on_threads_of_its_own() {
    let server = server(&["--lab"]);
    let mut client = server.client();
    assert_eq!(client.get("/compute/prime?count=5").text(), "{\"count\":5,\"primes\":[2,3,5,7,11]}\n");
    let most = client.get("/compute/prime?count=10000").text();
    assert!(most.starts_with("{\"count\":10000,\"primes\":[2,3,") && most.ends_with(",104729]}\n"), "{most}");
    for (text, hash) in [("hello", 99_162_322_u32), ("a+b", 94_307), ("%ff", u32::MAX)] {
        let answer = client.get(&format!("/compute/hash?text={text}"));
        assert_eq!(answer.text(), format!("{{\"hash\":{hash}}}\n"), "{text}");
        assert_eq!(answer.header("content-type"), Some("application/json"));
    }
    let longest = format!("/compute/hash?text={}", "a".repeat(8192 - "/compute/hash?text=".len()));
    assert_eq!(client.get(&longest).status, 200);
    let stats = client.get("/stats").problem();
    for (name, value) in [
        ("weir_compute_threads", 2.0),
        ("weir_compute_queued", 0.0),
        ("weir_compute_queue_seconds_count", 6.0),
        ("weir_shed_total{reason=\"compute\"}", 0.0),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
    assert!(stats["weir_compute_busy_seconds_total"].as_f64() > Some(0.0));
}

#[test]
fn allow_names_the_methods_there_are() {
    let server = server(&[]);
    let mut client = server.client();
    for (start, allowed) in [
        ("POST /kv/a", "GET, HEAD, PUT, DELETE"),
        ("OPTIONS /kv/a", "GET, HEAD, PUT, DELETE"),
        ("PUT /healthz", "GET, HEAD"),
        ("DELETE /metrics", "GET, HEAD"),
        ("PUT /kv", "GET, HEAD"),
        ("GET /batch", "POST"),
    ] {
        let answer = client.exchange(&head(start, ""));
        assert_eq!((answer.status, answer.header("allow")), (405, Some(allowed)), "{start}");
    }
}

#[test]
fn the_longest_value_is_what_the_flag_says() {
    let server = server(&["--value-bytes", "1000"]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &[b'x'; 1000]).status, 201);
    let answer = client.put("/kv/a", &[b'x'; 1001]);
    assert_eq!((answer.status, stays_open(&answer)), (413, false));
    assert_eq!(server.client().get("/kv/a").body.len(), 1000);
}

/// Once the time-out did not begin before the longer one for idle connections had passed.
#[test]
fn a_client_that_does_not_finish_its_request_is_told_so() {
    let server = server(&["--head-timeout", "200ms"]);
    for begun in ["GET /kv/a HT", "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\n\r\nval"] {
        let mut client = server.client();
        // A connection in use is no different from a fresh one.
        client.get("/healthz");
        let since = Instant::now();
        let answer = client.exchange(begun.as_bytes());
        assert_eq!((answer.status, stays_open(&answer)), (408, false), "{begun}");
        assert_eq!(answer.problem()["code"], "too_slow");
        assert_eq!(answer.header("weir-outcome"), Some("not-applied"));
        assert!(client.is_closed());
        assert!(since.elapsed().as_secs() < 30, "the idle time-out is 75 s");
    }
    assert_eq!(server.client().get("/kv/a").status, 404);
}

#[test]
fn an_idle_connection_is_closed_without_an_answer() {
    let server = server(&["--idle-timeout", "500ms"]);
    let mut fresh = server.client();
    // On a slow machine a connection may be closed before its request arrives.
    let used = |end: &str| loop {
        let mut client = server.client();
        let sent = client.send(format!("GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n{end}").as_bytes());
        if sent.is_ok() && client.answer(false).is_ok() {
            break client;
        }
    };
    // An empty line is not the begin of a request, which would be answered 408.
    for client in [&mut fresh, &mut used(""), &mut used("\r\n"), &mut used("\r\n\r\n")] {
        assert_eq!(client.answer(false).unwrap_err().kind(), std::io::ErrorKind::UnexpectedEof);
    }
}

/// The shell's soft limit of 1024 files made connections beyond it wait without an answer. Under a low hard limit connections that
/// were refused took the files of the store, which was lost.
#[test]
fn a_low_limit_of_open_files_is_raised_and_where_it_is_not_the_rest_is_refused() {
    for (limit, answered) in [("ulimit -Sn 100", 300), ("ulimit -n 200", 50), ("ulimit -n 64", 16)] {
        let directory = tempfile::tempdir().unwrap();
        let store = format!("file:{}?segment=1MiB", directory.path().display());
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{limit} && exec \"$0\" \"$@\"")]).arg(weir().get_program());
        command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--store", &store]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening ").unwrap().parse().unwrap();
        let mut clients: Vec<Client> = (0..300).map(|_| Client::connect(address).unwrap()).collect();
        // Every one is told how it stands, in the order in which they came.
        let statuses: Vec<u16> = (clients.iter_mut())
            .map(|client| {
                // One that is refused may be closed already.
                let _ = client.send(&head("GET /healthz", ""));
                client.answer(false).unwrap().status
            })
            .collect();
        assert!(statuses[..answered].iter().all(|status| *status == 200), "{limit}: {statuses:?}");
        assert!(statuses[answered..].iter().all(|status| *status == 503), "{limit}: {statuses:?}");
        // More than one segment.
        for key in 0..8 {
            let answer = clients[0].put(&format!("/kv/{key}"), &[b'x'; 300_000]);
            assert_eq!(answer.status, 201, "{limit}: {}", answer.text());
        }
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

#[test]
fn one_connection_too_many_is_refused_and_the_others_served() {
    let server = server(&["--connections", "2"]);
    let (mut first, mut second) = (server.client(), server.client());
    first.put("/kv/a", b"value");
    second.get("/kv/a");
    let mut third = server.client();
    let refused = third.answer(false).unwrap();
    assert_eq!((refused.status, stays_open(&refused)), (503, false));
    assert_eq!(refused.problem()["code"], "too_many_connections");
    assert_eq!(refused.header("weir-outcome"), Some("not-applied"));
    assert!(refused.header("retry-after").is_some() && third.is_closed());
    let stats: serde_json::Value = serde_json::from_slice(&first.get("/stats").body).unwrap();
    assert_eq!(stats["weir_shed_total{reason=\"connections\"}"], 1.0);
    assert_eq!(stats["weir_http_connections"], 2.0);
    // There is room again when one has left.
    drop(second);
    let deadline = Instant::now() + PATIENCE;
    while !matches!(server.client().ask("GET", "/kv/a", &[], b""), Ok(answer) if answer.status == 200) {
        assert!(Instant::now() < deadline, "the room that was left is not given to another");
    }
}

#[test]
fn a_server_told_to_end_finishes_what_is_under_way() {
    let mut server = server(&[]);
    let (mut idle, mut writer, mut asker) = (server.client(), server.client(), server.client());
    idle.get("/healthz");
    // The interim answer proves that the request is under way, the whole one that the half behind it has been read.
    let asked = head("PUT /kv/a", "Expect: 100-continue\r\nContent-Length: 5\r\n");
    assert_eq!(writer.exchange(&asked).status, 100);
    let one_and_a_half = [head("GET /readyz", ""), b"GET /readyz HTTP/1.1\r\n".to_vec()].concat();
    assert_eq!(asker.exchange(&one_and_a_half).text(), "ready\n");
    server.terminate();

    assert!(idle.is_closed(), "who has nothing under way is let go");
    let deadline = Instant::now() + PATIENCE;
    while Client::connect(server.address).is_ok() {
        assert!(Instant::now() < deadline, "it still accepts");
    }
    assert!(server.lives());
    let answer = asker.exchange(b"Host: localhost\r\n\r\n");
    assert_eq!((answer.status, answer.text().as_str(), stays_open(&answer)), (503, "draining\n", false));
    let answer = writer.exchange(b"value");
    assert_eq!((answer.status, stays_open(&answer)), (201, false));
    assert!(asker.is_closed() && writer.is_closed());
    drop((asker, writer));
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_shutdown_waits_no_longer_than_it_may() {
    let mut server = server(&["--drain", "100ms"]);
    let mut writer = server.client();
    let asked = head("PUT /kv/a", "Expect: 100-continue\r\nContent-Length: 5\r\n");
    assert_eq!(writer.exchange(&asked).status, 100);
    server.terminate();
    assert_eq!(server.wait().code(), Some(0));
    assert!(writer.answer(false).is_err(), "an answer to a request that was given up");
}

#[test]
fn the_server_says_that_it_lives_and_is_ready() {
    let server = server(&[]);
    let mut client = server.client();
    for (path, text) in [("/healthz", "alive\n"), ("/readyz", "ready\n")] {
        let answer = client.get(path);
        assert_eq!((answer.status, answer.text().as_str()), (200, text));
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(
            client.ask("HEAD", path, &[], b"").unwrap().header("content-length"),
            answer.header("content-length")
        );
    }
}

/// Names every server shows, with labels where they are sure to be there.
const SHOWN: &[&str] = &[
    "weir_http_requests_total{method=\"PUT\",code=\"201\"}",
    "weir_http_requests_total{method=\"GET\",code=\"404\"}",
    "weir_http_request_duration_seconds_count",
    "weir_http_connections",
    "weir_cache_requests_total{result=\"hit\"}",
    "weir_cache_requests_total{result=\"miss\"}",
    "weir_cache_requests_total{result=\"collapsed\"}",
    "weir_cache_entries",
    "weir_cache_bytes",
    "weir_cache_evictions_total",
    "weir_store_batch_size_sum{operation=\"write\"}",
    "weir_store_duration_seconds_sum{operation=\"read\"}",
    "weir_store_queue_seconds_count{operation=\"read\"}",
    "weir_worker_queue_seconds_total",
    "weir_shed_total{reason=\"connections\"}",
    "weir_shed_total{reason=\"queue\"}",
    "weir_draining",
    "weir_uptime_seconds",
];

fn used_server() -> Server {
    let server = server(&[]);
    let mut client = server.client();
    client.put("/kv/a", b"value");
    client.get("/kv/a");
    client.get("/kv/absent");
    server
}

#[test]
fn stats_are_numbers_by_name() {
    let server = used_server();
    let answer = server.client().get("/stats");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let stats: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&answer.body).unwrap();
    assert!(stats.values().all(serde_json::Value::is_number), "{stats:?}");
    for name in SHOWN {
        assert!(stats.contains_key(*name), "{name} is missing in {stats:#?}");
    }
    for (name, value) in [
        ("weir_http_requests_total{method=\"PUT\",code=\"201\"}", 1.0),
        ("weir_cache_requests_total{result=\"hit\"}", 1.0),
        ("weir_cache_requests_total{result=\"miss\"}", 1.0),
        ("weir_cache_entries", 1.0),
        ("weir_store_batch_size_sum{operation=\"write\"}", 1.0),
    ] {
        assert_eq!(stats[name], value, "{name}");
    }
}

#[test]
fn policies_simulated_beside_the_cache_are_counted_on_the_same_requests() {
    let flags = ["--cache-entries", "64", "--cache-policy", "fifo", "--shadow-policies", "fifo,w-tinylfu"];
    let server = server(&flags);
    let mut client = server.client();
    for round in 0..6 {
        // 48 keys every time, and 48 others in turn: too many for all to stay.
        for key in (0..48).chain(48 + round * 48..96 + round * 48) {
            let path = format!("/kv/{key}");
            if client.get(&path).status == 404 {
                client.put(&path, b"value");
            }
        }
    }
    let stats: serde_json::Value = serde_json::from_slice(&client.get("/stats").body).unwrap();
    let of = |name: &str| stats[name].as_f64().unwrap_or_else(|| panic!("no {name} in {stats:#}"));
    let shadow = |policy: &str, result: &str| {
        of(&format!("weir_shadow_requests_total{{policy=\"{policy}\",result=\"{result}\"}}"))
    };
    let reads = 6.0 * 96.0;
    assert_eq!(shadow("fifo", "hit"), of("weir_cache_requests_total{result=\"hit\"}"));
    assert_eq!(shadow("fifo", "miss"), of("weir_cache_requests_total{result=\"miss\"}"));
    assert_eq!(shadow("w-tinylfu", "hit") + shadow("w-tinylfu", "miss"), reads);
    assert!(shadow("w-tinylfu", "hit") > shadow("fifo", "hit") + 100.0, "{stats:#}");
    let metrics = client.get("/metrics").text();
    assert!(metrics.contains("# TYPE weir_shadow_requests_total counter"), "{metrics}");
    // One shard of 64 rows, as the cache.
    assert_eq!(of("weir_cache_entries"), 64.0);
}

#[test]
fn metrics_are_prometheus_text() {
    let server = used_server();
    let answer = server.client().get("/metrics");
    assert_eq!(answer.header("content-type"), Some("text/plain; version=0.0.4"));
    let text = answer.text();
    assert!(text.ends_with('\n'));
    let (mut declared, mut samples) = (HashSet::new(), HashSet::new());
    let (mut family, mut kind) = (String::new(), String::new());
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            family = help.split_once(' ').unwrap().0.to_owned();
            let told = lines.next().unwrap().strip_prefix(&format!("# TYPE {family} ")).unwrap();
            assert!(matches!(told, "counter" | "gauge" | "histogram"), "{line}");
            told.clone_into(&mut kind);
            assert_eq!(family.ends_with("_total"), kind == "counter", "{family}");
            assert!(declared.insert(family.clone()), "{family} is declared twice");
            continue;
        }
        let (sample, value) = line.rsplit_once(' ').unwrap();
        assert!(value.parse::<f64>().is_ok(), "{line}");
        let (name, labels) = sample.split_once('{').map_or((sample, None), |(name, rest)| (name, Some(rest)));
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'), "{line}");
        for label in labels.iter().flat_map(|labels| labels.strip_suffix('}').unwrap().split(',')) {
            let (_, quoted) = label.split_once('=').unwrap();
            assert!(quoted.len() >= 2 && quoted.starts_with('"') && quoted.ends_with('"'), "{line}");
        }
        let suffix = name.strip_prefix(&family).unwrap_or_else(|| panic!("{line} stands under {family}"));
        let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
        assert!(suffixes.contains(&suffix), "{line}");
        assert!(samples.insert(sample.to_owned()), "{sample} is there twice");
    }
    for name in SHOWN {
        assert!(samples.contains(*name), "{name} is missing in\n{text}");
    }
}

/// Runs a command that must refuse what it is told.
fn refused(arguments: &[&str], environment: &[(&str, &str)], parts: &[&str]) {
    let output =
        weir().args(arguments).envs(environment.iter().copied()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?} {environment:?}: {said}");
    assert_eq!(said.lines().count(), 1, "{arguments:?}: {said}");
    assert!(said.starts_with("error: ") && output.stdout.is_empty(), "{arguments:?}: {said}");
    for part in parts {
        assert!(said.contains(part), "{arguments:?} {environment:?}: {said}");
    }
}

#[test]
fn a_port_that_is_taken_is_not_shared() {
    for workers in ["1", "2"] {
        // Our servers share a port among their own workers, and with nobody else.
        let first = server(&[]);
        let address = first.address.to_string();
        let at = format!("root={address}");
        for place in [&["--listen", &address][..], &["--listen", "127.0.0.1:0", "--compat", &at]] {
            let arguments = [&["serve", "--store", "memory:", "--workers", workers], place].concat();
            let output = weir().args(arguments).stdin(Stdio::null()).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            // Not 2: a service manager tries again.
            assert_eq!(output.status.code(), Some(1), "{said}");
            assert!(said.contains("cannot listen on") && said.contains(&address), "{said}");
            assert!(said.contains("hint: stop what listens there") && output.stdout.is_empty(), "{said}");
        }
        assert_eq!(first.client().get("/healthz").status, 200);
    }
}

#[test]
fn wrong_input_is_refused_in_one_line_with_a_remedy() {
    let directory = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let unknown_key = file("key.toml", "store = \"memory:\"\nchache-entries = 7\n");
    let wrong_type = file("type.toml", "workers = \"many\"\n");
    let no_unit = file("unit.toml", "drain = 5\n");
    let unknown_compat = file("compat.toml", "compat = [\"crud=127.0.0.1:0\", \"dirc=127.0.0.1:0\"]\n");
    let no_toml = file("no.toml", "workers = = 3\n");
    let quick = fs::read_to_string("../../experiments/quick.toml").unwrap();
    let unknown_in_experiment = file("experiment.toml", &quick.replace("window =", "windows ="));
    let binary = directory.path().join("binary.toml");
    fs::write(&binary, [0xff, 0xfe, 0]).unwrap();
    let empty = directory.path().to_str().unwrap();
    let none: &[(&str, &str)] = &[];
    for (arguments, environment, parts) in [
        (&[][..], none, &["sub-command", "hint: "][..]),
        (&["sevre"], none, &["sevre", "hint: "]),
        (&["serve", "--wrokers", "2"], none, &["--wrokers", "hint: "]),
        (&["serve", "--workers", "0"], none, &["it has to be 1 or more", "hint: "]),
        (&["serve"], &[("WEIR_WORKERS", "x")], &["'x' for '--workers <N>'", "WEIR_WORKERS", "hint: "]),
        (
            &["serve"],
            &[("WEIR_LISTEN", "here")],
            &["'here' for '--listen", ", in the environment variable WEIR_LISTEN; hint: "],
        ),
        (&["serve"], &[("WEIR_CACHE_BYTES", "1 parsec")], &["1 parsec", "hint: "]),
        (&["serve"], &[("WEIR_CONFIG", &unknown_key)], &["line 2", "`chache-entries`", "hint: "]),
        (&["serve", "--config", &unknown_key], none, &["line 2", "`chache-entries`", "hint: "]),
        (&["serve", "--config", &wrong_type], none, &["type.toml, line 1", "hint: "]),
        (&["serve", "--config", &no_unit], none, &["unit.toml, line 1", "hint: write it as in"]),
        (&["serve", "--config", &no_toml], none, &["no.toml, line 1", "hint: "]),
        (&["serve", "--config", binary.to_str().unwrap()], none, &["binary.toml", "hint: "]),
        (&["serve", "--config", "nowhere.toml"], none, &["nowhere.toml", "hint: "]),
        (&["serve", "--store", "postgres:///d"], none, &["names no host", "?host=/run/postgresql"]),
        (
            &["serve", "--listen", "unix:/nowhere/s"],
            none,
            &["No such file", "hint: choose a path in a directory"],
        ),
        (&["serve", "--store", "redis://h"], none, &["redis:// is no kind of store", "file:"]),
        (&["serve", "--store", "memory:", "--listen", "0.0.0.0:0"], none, &["0.0.0.0:0", "--insecure"]),
        (
            &["serve", "--compat", "s3"],
            none,
            &["'s3' for '--compat <NAME=ADDRESS:PORT>': it has no address", "hint: write --compat s3="],
        ),
        (&["serve", "--compat", "dirc=127.0.0.1:0"], none, &["dirc", "put-kv, crud, root, rpc"]),
        (&["serve", "--compat", "crud=8081"], none, &["8081: it is no address", "hint: "]),
        (&["serve"], &[("WEIR_COMPAT", "crud=127.0.0.1:0,dirc=127.0.0.1:0")], &["dirc", "hint: "]),
        (&["serve", "--config", &unknown_compat], none, &["dirc", "hint: "]),
        (
            &["serve", "--store", "memory:", "--compat", "root=0.0.0.0:0"],
            none,
            &["--compat root=0.0.0.0:0", "--insecure"],
        ),
        (
            &["serve", "--store", "memory:", "--lab", "--insecure", "--compat", "root=0.0.0.0:0"],
            none,
            &["--lab and --compat root=0.0.0.0:0", "127.0.0.1"],
        ),
        (&["serve"], &[("WEIR_LAB", "perhaps")], &["perhaps", "WEIR_LAB", "true, false", "hint: "]),
        (&["serve", "--store", "memory:", "--cache-policy", "nosuch"], none, &["nosuch", "lru"]),
        (&["load", "ftp://127.0.0.1"], none, &["ftp://127.0.0.1", "http"]),
        (&["load"], none, &["URL", "hint: "]),
        (&["load", "http://127.0.0.1:1", "--workload", "get_nothing"], none, &["get_nothing", "get_popular"]),
        (&["load", "http://127.0.0.1:1", "--clients", "none"], none, &["--clients", "hint: "]),
        (&["lab", "nowhere.toml"], none, &["nowhere.toml", "hint: "]),
        (&["lab", &unknown_in_experiment], none, &["`windows`", "experiment.toml"]),
        (&["lab", "../../experiments/quick.toml", "--levels", "2,1"], none, &["ascend", "hint: "]),
        (&["report", empty], none, &["results.json", "hint: "]),
        (&["report", "nowhere"], none, &["nowhere", "hint: "]),
    ] {
        refused(arguments, environment, parts);
    }
}
