//! The compatibility APIs, byte for byte: what the load generators of four other systems send, and what they must get.
//!
//! Heads and their order were seen on the wire of the library those systems stand on, requests on the wire of its client.

use crate::support::{Client, PATIENCE, Server};
use std::io::{Read, Write};
use std::net::TcpStream;

/// A server with one compatibility API, which is where the requests go.
struct Compat {
    server: Server,
    name: &'static str,
}

fn compat(name: &'static str, flags: &[&str]) -> Compat {
    let at = format!("{name}=127.0.0.1:0");
    Compat { server: Server::start("memory:", &[&["--compat", at.as_str()], flags].concat()), name }
}

impl Compat {
    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.compat(self.name)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    fn client(&self) -> Client {
        Client::connect(self.server.compat(self.name)).unwrap()
    }

    /// Sends `request` on a connection of its own; the answer has to be these bytes, and the connection to end behind
    /// them if they say so.
    fn check(&self, request: &str, expected: &str) {
        let mut stream = self.connect();
        stream.write_all(request.as_bytes()).unwrap();
        let mut got = vec![0; expected.len()];
        if stream.read_exact(&mut got).is_err() || got != expected.as_bytes() {
            panic!("{} {request}\nexpected {expected}\ngot {}", self.name, String::from_utf8_lossy(&got));
        }
        if expected.contains("Connection: close\r\n") {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            assert!(rest.is_empty(), "{request}: {}", String::from_utf8_lossy(&rest));
        } else {
            stream.write_all(b"GET /kept-alive HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let mut next = [0; 12];
            stream.read_exact(&mut next).unwrap();
            assert_eq!(&next, b"HTTP/1.1 404", "{request}: the connection is out of step");
        }
    }
}

/// A request as the library's client sends it: one connection for each.
fn generated(start: &str, content_type: &str, body: &str) -> String {
    let common = "User-Agent: cpp-httplib/0.27.0\r\nAccept-Encoding: \r\nAccept: */*\r\nHost: localhost:8080\r\n\
                  Connection: close\r\n";
    if content_type.is_empty() {
        format!("{start} HTTP/1.1\r\n{common}\r\n")
    } else {
        let length = body.len();
        format!(
            "{start} HTTP/1.1\r\nContent-Length: {length}\r\n{common}Content-Type: {content_type}\r\n\r\n{body}"
        )
    }
}

const FORM: &str = "application/x-www-form-urlencoded";

/// The answer to one of those.
fn closing(status: &str, content_type: &str, body: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {}\r\nContent-Type: {content_type}\r\n\r\n{body}",
        body.len()
    )
}

/// A request that leaves the connection open.
fn kept(start: &str, fields: &str, body: &str) -> String {
    let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    format!("{start} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}\r\n{body}")
}

/// The answer to one of those, if it leaves it open, too.
fn open(status: &str, content_type: &str, body: &str) -> String {
    closing(status, content_type, body).replace("Connection: close", "Keep-Alive: timeout=5, max=100")
}

/// A failure without a body.
fn bare(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

const TEXT: &str = "text/plain";
const JSON: &str = "application/json";

/// The generator of 000 counts any 2xx. `get-all` asks for keys that nobody wrote; its 404 are failures there, too.
#[test]
fn put_kv_answers_its_generator() {
    let api = compat("put-kv", &[]);
    let ok = |body: &str| closing("200 OK", TEXT, body);
    for i in 0..3 {
        let put = generated(&format!("PUT /kv/popular_{i}"), TEXT, &format!("popular_value_{i}"));
        api.check(&put, &ok("PUT OK"));
        let get = generated(&format!("GET /kv/popular_{i}"), "", "");
        api.check(&get, &ok(&format!("CACHE HIT: popular_value_{i}")));
    }
    api.check(&generated("PUT /kv/popular_0", TEXT, "again"), &ok("PUT OK"));
    api.check(&generated("GET /kv/popular_0", "", ""), &ok("CACHE HIT: again"));
    api.check(&generated("GET /kv/k7", "", ""), &closing("404 Not Found", TEXT, "Not found"));
    api.check(&generated("DELETE /kv/popular_0", "", ""), &ok("DELETE OK"));
    api.check(&generated("DELETE /kv/popular_0", "", ""), &ok("DELETE OK"));
    api.check(&generated("GET /stats", "", ""), &ok("cache_hits=4\ncache_misses=1\nhit_rate=80.000000%\n"));
}

#[test]
fn put_kv_by_its_table() {
    let api = compat("put-kv", &["--cache-entries", "0"]);
    let ok = |body: &str| open("200 OK", TEXT, body);
    let long = "x".repeat(20_000);
    for (request, expected) in [
        (kept("GET /stats", "", ""), ok("cache_hits=0\ncache_misses=0\nhit_rate=0.000000%\n")),
        (kept("PUT /kv/a", "", "value"), ok("PUT OK")),
        (kept("GET /kv/a", "", ""), ok("DB HIT: value")),
        (
            kept("HEAD /kv/a", "", ""),
            "HTTP/1.1 200 OK\r\nAccept-Ranges: bytes\r\nKeep-Alive: timeout=5, max=100\r\nContent-Length: 13\r\n\
             Content-Type: text/plain\r\n\r\n"
                .into(),
        ),
        (kept("GET /kv/a", "Connection: close\r\n", ""), closing("200 OK", TEXT, "DB HIT: value")),
        (kept("GET /kv/%61?ignored", "", ""), ok("DB HIT: value")),
        (kept("PUT /kv/o'brien+%22x%22", "", "quoted"), ok("PUT OK")),
        (kept("GET /kv/o%27brien%2B\"x\"", "", ""), ok("DB HIT: quoted")),
        (kept("PUT /kv/long", "", &long), ok("PUT OK")),
        (kept("GET /kv/long", "", ""), ok(&format!("DB HIT: {long}"))),
        (kept("PUT /kv/empty", "Content-Length: 0\r\n", ""), ok("PUT OK")),
        (kept("GET /kv/empty", "", ""), ok("DB HIT: ")),
        (
            kept("PUT /kv/c", "Transfer-Encoding: chunked\r\n", "") + "3\r\nabc\r\n0\r\n\r\n",
            ok("PUT OK"),
        ),
        (
            kept("PUT /kv/e", "Expect: 100-continue\r\nContent-Length: 1\r\n", "") ,
            "HTTP/1.1 100 Continue\r\n\r\n".into(),
        ),
        // A client that waits for it takes it for the answer to its next request, if it comes late.
        (
            kept("PUT /kv/e", "Expect: 100-continue\r\nContent-Length: 0\r\n", ""),
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n".into(),
        ),
        (kept("GET /kv/a/b", "", ""), closing("404 Not Found", TEXT, "Not found")),
        (kept("PUT /kv/a/b", "", "x"), bare("404 Not Found")),
        (kept("POST /kv/a", "", "x"), bare("404 Not Found")),
        (kept("OPTIONS /kv/a", "", ""), bare("404 Not Found")),
        (kept("GET /kv/", "", ""), bare("404 Not Found")),
        (kept("GET /nowhere", "", ""), bare("404 Not Found")),
        (kept("PUT /kv/a", "", ""), bare("400 Bad Request")),
        (kept("PUT /kv/a", "Content-Encoding: gzip\r\n", "x"), bare("415 Unsupported Media Type")),
        (kept("PATCH /kv/a", "", "x"), bare("400 Bad Request")),
        (format!("PUT /kv/a HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", "y".repeat(17_000)), bare("400 Bad Request")),
        (kept(&format!("GET /kv/{}", "k".repeat(9_000)), "", ""), bare("414 URI Too Long")),
        (kept("PUT /kv/a", "Content-Length: 8388609\r\n", ""), bare("413 Content Too Large")),
        ("hello\r\n\r\n".into(), bare("400 Bad Request")),
    ] {
        if expected.contains("100 Continue") || request.starts_with("HEAD") {
            let mut stream = api.connect();
            stream.write_all(request.as_bytes()).unwrap();
            let mut got = vec![0; expected.len()];
            stream.read_exact(&mut got).unwrap();
            assert_eq!(String::from_utf8_lossy(&got), expected);
        } else {
            api.check(&request, &expected);
        }
    }
    // The plain interface reads the same rows.
    let answer = api.server.client().get("/kv/c");
    assert_eq!((answer.text().as_str(), answer.header("content-type")), ("abc", Some(TEXT)));
}

/// The generator of 002 counts any 2xx, and stops for 100 ms at everything else.
#[test]
fn crud_answers_its_generator() {
    let api = compat("crud", &[]);
    let ok = |body: &str| closing("200 OK", TEXT, body);
    api.check(
        &generated("POST /create", FORM, "key=popular_0&value=old"),
        &closing("201 Created", TEXT, "Inserted\n"),
    );
    api.check(&generated("DELETE /clear", "", ""), &ok("Database and cache cleared.\n"));
    for i in 0..3 {
        let form = format!("key=popular_{i}&value=val_{i}");
        api.check(&generated("POST /preload", FORM, &form), &ok("Preloaded"));
    }
    for _ in 0..2 {
        api.check(&generated("GET /get?key=popular_0", "", ""), &ok("val_0"));
    }
    for seq in 0..14 {
        let form = format!("key=put_1_{seq}&value=v{seq}");
        api.check(&generated("POST /create", FORM, &form), &closing("201 Created", TEXT, "Inserted\n"));
        if seq >= 10 && seq % 2 == 1 {
            let delete = format!("DELETE /delete?key=put_1_{}", seq - 1);
            api.check(&generated(&delete, "", ""), &ok("Deleted\n"));
        }
    }
    // What its mixed workload has deleted before, and counts as a failure there, too.
    api.check(
        &generated("DELETE /delete?key=mput_1_0", "", ""),
        &closing("404 Not Found", TEXT, "Deleted\n"),
    );
    api.check(&generated("GET /get?key=get_9", "", ""), &closing("404 Not Found", TEXT, "Not found"));
    api.check(
        &generated("GET /cache-stats", "", ""),
        &ok("Total Accesses:3\nHits:1\nMisses:2\nHitRate:33.333333%\n"),
    );
}

#[test]
fn crud_by_its_table() {
    let api = compat("crud", &[]);
    let ok = |body: &str| open("200 OK", TEXT, body);
    let form = |method: &str, body: &str| kept(method, &format!("Content-Type: {FORM}\r\n"), body);
    let long = "x".repeat(4_000);
    let bare_open =
        |status: &str| bare(status).replace("Connection: close", "Keep-Alive: timeout=5, max=100");
    let created = open("201 Created", TEXT, "Inserted\n");
    for (request, expected) in [
        (form("POST /create", "key=a&value=1"), created.clone()),
        (form("POST /create", "value=2&key=a"), ok("Updated\n")),
        (kept("GET /get?key=a", "", ""), ok("2")),
        // A re-created key was stale there, and a quote ended the service.
        (form("POST /create", "key=o'brien&value=it+is%2C+%22%27%22"), created.clone()),
        (kept("GET /get?key=o%27brien", "", ""), ok("it is, \"'\"")),
        (form("POST /create", &format!("key=long&value={long}")), created.clone()),
        (kept("GET /get?key=long", "", ""), ok(&long)),
        (kept("POST /create?key=q&value=in+the+query", "Content-Length: 0\r\n", ""), created.clone()),
        (kept("GET /get?key=q", "", ""), ok("in the query")),
        (form("POST /create?key=first", "key=second&value=1"), created.clone()),
        (kept("GET /get?key=first", "", ""), ok("1")),
        (form("POST /create", "key=empty"), created),
        (
            kept("GET /get?key=empty", "", ""),
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nKeep-Alive: timeout=5, max=100\r\n\
             Content-Type: text/plain\r\n\r\n"
                .into(),
        ),
        (kept("GET /get?key=absent", "", ""), open("404 Not Found", TEXT, "Not found")),
        (kept("GET /get", "", ""), open("404 Not Found", TEXT, "Not found")),
        (kept("DELETE /delete?key=a", "", ""), ok("Deleted\n")),
        (kept("DELETE /delete?key=a", "", ""), open("404 Not Found", TEXT, "Deleted\n")),
        // In the store and not in the cache: gone all the same.
        (form("POST /preload", "key=p&value=1"), ok("Preloaded")),
        (kept("DELETE /delete?key=p", "", ""), open("404 Not Found", TEXT, "Deleted\n")),
        (kept("GET /get?key=p", "", ""), open("404 Not Found", TEXT, "Not found")),
        (kept("DELETE /clear", "", ""), ok("Database and cache cleared.\n")),
        (kept("GET /cache-stats", "", ""), ok("Total Accesses:0\nHits:0\nMisses:0\nHitRate:0.000000%\n")),
        (kept("GET /get?key=long", "", ""), open("404 Not Found", TEXT, "Not found")),
        (kept("PUT /create", "Content-Length: 0\r\n", ""), bare_open("404 Not Found")),
        (form("POST /create", "value=1"), bare_open("400 Bad Request")),
        (kept("POST /create", "", ""), bare("400 Bad Request")),
        (form("POST /create", &format!("key=a&value={}", "x".repeat(8_192))), bare("413 Content Too Large")),
    ] {
        api.check(&request, &expected);
    }
}

/// The generator of 003 counts 200, 201 and 404.
#[test]
fn root_answers_its_generator() {
    let api = compat("root", &["--cache-entries", "64"]);
    let big = "X".repeat(20_480);
    api.check(&generated("POST /key-1", TEXT, "key-1"), &closing("201 Created", TEXT, "Stored key: key-1"));
    api.check(&generated("POST /key-2", TEXT, &big), &closing("201 Created", TEXT, "Stored key: key-2"));
    api.check(&generated("GET /key-1", "", ""), &closing("200 OK", TEXT, "key-1"));
    api.check(&generated("GET /key-2", "", ""), &closing("200 OK", TEXT, &big));
    let compressible = generated("GET /key-1", "", "").replace("Accept-Encoding: ", "Accept-Encoding: br");
    api.check(&compressible, &closing("200 OK", TEXT, "key-1"));
    api.check(&generated("GET /key-77", "", ""), &closing("404 Not Found", TEXT, "Key Not Found"));
    api.check(&generated("DELETE /key-2", "", ""), &closing("200 OK", TEXT, "Deleted key: key-2"));

    let metrics = api.client().get("/metrics").text();
    let expected = "Cache Hits: 3\nCache Misses: 1\nCache Hit Ratio: 75%\nCache Size: 1/64\nTotal GETs: 4\n\
                    Total POSTs: 2\nTotal DELETEs: 1\nTotal DB Reads: 1\nTotal DB Writes: 3\n";
    let latencies = metrics.strip_prefix(expected).unwrap_or_else(|| panic!("{metrics}"));
    for (line, name) in latencies.lines().zip(["Read", "Write"]) {
        let millis = line.strip_prefix(&format!("Avg DB {name} Latency (ms): "));
        assert!(millis.is_some_and(|millis| millis.parse::<f64>().is_ok()), "{line}");
    }
    assert_eq!((latencies.lines().count(), latencies.ends_with('\n')), (2, true));
}

#[test]
fn root_by_its_table() {
    let api = compat("root", &[]);
    let open = |status: &str, body: &str| open(status, TEXT, body).replace("timeout=5", "timeout=0");
    for (request, expected) in [
        (kept("GET /", "", ""), open("200 OK", "Synchronous KV Server with LRU Cache is running!")),
        (kept("POST /a/b%20c", "", "1"), open("201 Created", "Stored key: a/b c")),
        (kept("POST /a/b%20c", "", "2"), open("201 Created", "Stored key: a/b c")),
        (kept("GET /a/b%20c", "", ""), open("200 OK", "2")),
        (kept("DELETE /a/b%20c", "", ""), open("200 OK", "Deleted key: a/b c")),
        (kept("DELETE /a/b%20c", "", ""), open("200 OK", "Deleted key: a/b c")),
        (kept("GET /a/b%20c", "", ""), closing("404 Not Found", TEXT, "Key Not Found")),
        // Written, and not to be read under its name: the page is there.
        (kept("POST /metrics", "", "1"), open("201 Created", "Stored key: metrics")),
        (kept("POST /", "", "1"), closing("400 Bad Request", TEXT, "Bad Request: empty key")),
        (kept("PUT /a", "", "1"), bare("404 Not Found")),
        (kept("POST /a", "", ""), bare("400 Bad Request")),
    ] {
        api.check(&request, &expected);
    }
    assert_eq!(api.server.client().get("/kv/metrics").text(), "1");
}

/// The generator of 004 has a socket, writes the same head for every method, and reads to the end. It counts answers with
/// `HTTP/1.1 2` in them, and a 404 of a GET.
#[test]
fn rpc_answers_its_generator() {
    let api = compat("rpc", &[]);
    let value = "v".repeat(50);
    let raw = |start: &str| {
        format!("{start} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
    };
    let created = |key: &str, end: &str| {
        let (message, end) = match end {
            "" => ("Key created", "false".to_owned()),
            old => ("Key overwritten", format!("true, \"old_value\": \"{old}\"")),
        };
        let body = format!(
            "{{\"success\": true, \"message\": \"{message}\", \"key\": \"{key}\", \"value\": \"{value}\", \
             \"overwritten\": {end}}}"
        );
        closing("201 Created", JSON, &body)
    };
    let create = raw(&format!("POST /kv/create?key=key_7&value={value}"));
    api.check(&create, &created("key_7", ""));
    api.check(&create, &created("key_7", &value));
    api.check(
        &raw("GET /kv/read?key=key_7"),
        &closing(
            "200 OK",
            JSON,
            &format!(
                "{{\"success\": true, \"key\": \"key_7\", \"value\": \"{value}\", \"source\": \"cache\"}}"
            ),
        ),
    );
    api.check(
        &raw("GET /kv/read?key=popular_key_3"),
        &closing("404 Not Found", JSON, "{\"error\": \"Key not found\", \"key\": \"popular_key_3\"}"),
    );
    for key in ["key_7", "key_8"] {
        api.check(
            &raw(&format!("DELETE /kv/delete?key={key}")),
            &closing(
                "200 OK",
                JSON,
                &format!("{{\"success\": true, \"message\": \"Deleted\", \"key\": \"{key}\"}}"),
            ),
        );
    }
    api.check(
        &raw("GET /compute/prime?count=5"),
        &closing("200 OK", JSON, "{\"success\": true, \"count\": 5, \"primes\": \"2,3,5,7,11\"}"),
    );
    for source in ["computed", "cache"] {
        let body = format!(
            "{{\"success\": true, \"text\": \"hello\", \"hash\": 99162322, \"source\": \"{source}\"}}"
        );
        api.check(&raw("GET /compute/hash?text=hello"), &closing("200 OK", JSON, &body));
    }
    api.check(
        &raw("GET /status"),
        &closing(
            "200 OK",
            JSON,
            "{\"success\": true, \"data\": {\"server\": \"running\", \"kv_cache_size\": 0, \"kv_cache_hits\": 1, \
             \"kv_cache_misses\": 1, \"kv_cache_hit_rate\": 50.000000, \"kv_cache_evictions\": 0, \
             \"hash_cache_size\": 1, \"hash_cache_hits\": 1, \"hash_cache_misses\": 1, \
             \"hash_cache_hit_rate\": 50.000000, \"hash_cache_evictions\": 0}}",
        ),
    );
}

#[test]
fn rpc_by_its_table() {
    let api = compat("rpc", &["--cache-entries", "0"]);
    let error = |status: &str, what: &str| closing(status, JSON, &format!("{{\"error\": \"{what}\"}}"));
    let ok = |body: &str| open("200 OK", JSON, body);
    let primes = |count: usize, primes: &str| {
        ok(&format!("{{\"success\": true, \"count\": {count}, \"primes\": \"{primes}\"}}"))
    };
    let no_endpoint = |method: &str, path: &str| {
        let body = format!(
            "{{\"error\": \"endpoint not found\", \"method\": \"{method}\", \"path\": \"{path}\", \"status\": 404, \
             \"hint\": \"Valid endpoints: /kv/create (POST), /kv/read (GET), /kv/delete (DELETE), \
             /compute/prime (GET), /compute/hash (GET), /status (GET)\"}}"
        );
        closing("404 Not Found", JSON, &body)
    };
    let form = format!("Content-Type: {FORM}\r\n");
    for (request, expected) in [
        (
            kept("POST /kv/create", &form, "key=a%22%5C&value=line%0Aend"),
            open(
                "201 Created",
                JSON,
                "{\"success\": true, \"message\": \"Key created\", \"key\": \"a\\\"\\\\\", \"value\": \"line\\nend\", \
                 \"overwritten\": false}",
            ),
        ),
        (
            kept("GET /kv/read?key=a%22%5C", "", ""),
            ok(
                "{\"success\": true, \"key\": \"a\\\"\\\\\", \"value\": \"line\\nend\", \"source\": \"database\"}",
            ),
        ),
        (
            kept("POST /kv/create?key=a%22%5C&value=", "Content-Length: 0\r\n", ""),
            open(
                "201 Created",
                JSON,
                "{\"success\": true, \"message\": \"Key overwritten\", \"key\": \"a\\\"\\\\\", \"value\": \"\", \
                 \"overwritten\": true, \"old_value\": \"line\\nend\"}",
            ),
        ),
        (kept("POST /kv/create?key=a", "Content-Length: 0\r\n", ""), error("400 Bad Request", "missing key")),
        (
            kept("POST /kv/create?value=a", "Content-Length: 0\r\n", ""),
            error("400 Bad Request", "missing key"),
        ),
        (kept("POST /kv/create?key=a&value=b", "", ""), bare("400 Bad Request")),
        (kept("GET /kv/read", "", ""), error("400 Bad Request", "missing key")),
        (
            kept(&format!("GET /kv/read?key={}", "k".repeat(1025)), "", ""),
            error("400 Bad Request", "key too long"),
        ),
        (kept("DELETE /kv/delete?key=", "", ""), error("400 Bad Request", "missing key")),
        (kept("GET /compute/prime", "", ""), primes(10, "2,3,5,7,11,13,17,19,23,29")),
        (kept("GET /compute/prime?count=-1", "", ""), primes(0, "")),
        (
            kept("GET /compute/prime?count=x", "", ""),
            error("500 Internal Server Error", "internal server error"),
        ),
        (kept("GET /compute/hash", "", ""), error("400 Bad Request", "missing text")),
        (kept("GET /nope", "", ""), no_endpoint("GET", "/nope")),
        (kept("GET /kv/create?key=a&value=b", "", ""), no_endpoint("GET", "/kv/create")),
        (kept("PUT /a%22", "", "x"), no_endpoint("PUT", "/a\\\"")),
    ] {
        api.check(&request, &expected);
    }
    let answer = api.client().get("/compute/prime?count=99999").text();
    assert!(answer.starts_with("{\"success\": true, \"count\": 10000, \"primes\": \"2,3,5,"), "capped");
    assert!(answer.ends_with(",104729\"}"));
}

/// Of creations that overlap, each replaces what the one before it wrote: no old value is told twice.
#[test]
fn rpc_tells_every_replaced_value_once() {
    const WRITES: usize = 40;
    let api = compat("rpc", &[]);
    let olds = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|writer| {
                let api = &api;
                scope.spawn(move || {
                    let mut client = api.client();
                    let mut create = |i: usize| {
                        let path = format!("/kv/create?key=k&value={writer}.{i}");
                        client.ask("POST", &path, &[("Content-Length", "0")], b"").unwrap()
                    };
                    (0..WRITES).map(|i| create(i).problem()["old_value"].to_string()).collect::<Vec<_>>()
                })
            })
            .collect();
        writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    // One found nothing.
    assert_eq!(olds.iter().filter(|old| *old == "null").count(), 1, "{olds:?}");
    assert_eq!(olds.iter().collect::<std::collections::HashSet<_>>().len(), 2 * WRITES, "{olds:?}");
}

/// Without batches no write has a condition; an old value is told all the same.
#[test]
fn rpc_tells_the_replaced_value_without_batches() {
    let api = compat("rpc", &["--lab", "--batching", "off"]);
    let mut client = api.client();
    let olds = ["1", "2"].map(|value| {
        let path = format!("/kv/create?key=k&value={value}");
        client.ask("POST", &path, &[("Content-Length", "0")], b"").unwrap().problem()["old_value"].clone()
    });
    assert_eq!(olds, [serde_json::Value::Null, "1".into()]);
}

/// Head and body in two segments cost the systems with this shape a delayed acknowledgement on every request.
#[test]
fn an_answer_comes_in_one_piece() {
    let api = compat("root", &[]);
    api.server.client().put("/kv/a", &[b'x'; 10_000]);
    let mut stream = api.connect();
    for _ in 0..20 {
        stream.write_all(kept("GET /a", "", "").as_bytes()).unwrap();
        let mut answer = vec![0; 20_000];
        let bytes = stream.read(&mut answer).unwrap();
        assert!(bytes > 10_000 && answer[..bytes].ends_with(b"xx"), "{bytes} bytes");
    }
}

#[test]
fn the_hundredth_answer_is_the_last() {
    let api = compat("put-kv", &[]);
    let mut client = api.client();
    for i in 1..=100 {
        let answer = client.get("/stats");
        let said = answer.header("connection").or(answer.header("keep-alive"));
        assert_eq!(said, Some(if i == 100 { "close" } else { "timeout=5, max=100" }), "answer {i}");
    }
    assert!(client.is_closed());
}

#[test]
fn apis_have_the_limits_time_outs_and_counters_of_the_server() {
    let api = compat("crud", &["--connections", "2", "--head-timeout", "200ms", "--idle-timeout", "30s"]);
    let mut plain = api.server.client();
    plain.get("/healthz");
    let mut held = api.client();
    assert_eq!(held.get("/get?key=a").status, 404);
    api.check_refused();
    drop(held);

    // A slow client is told so, once there is room for it.
    let deadline = std::time::Instant::now() + PATIENCE;
    loop {
        let mut slow = api.client();
        let begun = slow.send(b"GET /get?key=a HTTP/1.1\r\nHo").and_then(|()| slow.answer(false));
        if begun.is_ok_and(|answer| answer.status == 408) {
            assert!(slow.is_closed());
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the room that was left is not given to another");
    }
    let stats = plain.get("/stats").problem();
    assert_eq!(stats["weir_http_requests_total{method=\"GET\",code=\"404\"}"], 1.0);
    assert_eq!(stats["weir_http_requests_total{method=\"other\",code=\"408\"}"], 1.0);
    assert!(stats["weir_shed_total{reason=\"connections\"}"].as_f64() >= Some(1.0));
}

impl Compat {
    fn check_refused(&self) {
        let mut got = String::new();
        self.connect().read_to_string(&mut got).unwrap();
        assert_eq!(got, bare("503 Service Unavailable"));
    }
}

#[test]
fn an_api_drains_with_its_server() {
    let mut api = compat("put-kv", &[]);
    let (mut idle, mut writer) = (api.client(), api.client());
    idle.get("/stats");
    let asked = kept("PUT /kv/a", "Expect: 100-continue\r\nContent-Length: 5\r\n", "");
    assert_eq!(writer.exchange(asked.as_bytes()).status, 100);
    api.server.terminate();
    assert!(idle.is_closed(), "who has nothing under way is let go");
    let answer = writer.exchange(b"value");
    assert_eq!((answer.text().as_str(), answer.header("connection")), ("PUT OK", Some("close")));
    assert!(writer.is_closed());
    drop(writer);
    assert_eq!(api.server.wait().code(), Some(0));
}

#[test]
fn every_api_serves_the_same_rows() {
    let names = ["put-kv", "crud", "root", "rpc", "crud"];
    let flags: Vec<String> =
        names.iter().flat_map(|name| ["--compat".into(), format!("{name}=127.0.0.1:0")]).collect();
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(&format!("file:{}", directory.path().join("store").display()), &flags);
    server.client().put("/kv/a", b"value");
    for (name, path, text) in [
        ("put-kv", "/kv/a", "CACHE HIT: value"),
        ("crud", "/get?key=a", "value"),
        ("root", "/a", "value"),
        (
            "rpc",
            "/kv/read?key=a",
            "{\"success\": true, \"key\": \"a\", \"value\": \"value\", \"source\": \"cache\"}",
        ),
    ] {
        assert_eq!(Client::connect(server.compat(name)).unwrap().get(path).text(), text, "{name}");
    }
    // An API counts for all of its addresses.
    let (_, other) = server.compat[4];
    let counts = Client::connect(other).unwrap().get("/cache-stats").text();
    assert_eq!(counts, "Total Accesses:1\nHits:1\nMisses:0\nHitRate:100.000000%\n");
}
