//! A corpus of raw requests, each followed by a canary: whether any of them is read in two ways.
//!
//! A request is put together from a start line, fields and a body with its framing. Each part is known to be right or wrong, so
//! each request is. A body is itself a request, whose answer nobody may get. The canary asks for a value of its own. It stands
//! behind the request on the same connection, and another one comes on a new connection: a proxy may use one connection to the
//! server for both.

use crate::support::{PATIENCE, Server, until};
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use std::collections::HashSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

/// The request in the bodies, and its answer.
const SMUGGLED: &str = "GET /kv/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n";
const SMUGGLED_VALUE: &str = "SMUGGLED";
/// Canaries with values of their own.
const CANARIES: usize = 1000;
/// Threads that send.
const SENDERS: usize = 4;
const REQUESTS_MIN: usize = 5_000;

/// Whether a part may stand in a request. A wrong one must end the connection with an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Right,
    Wrong,
}
use Part::{Right, Wrong};

/// Method, target and version.
const START_LINES: &[(Part, &str)] = &[
    (Right, "POST /kv/x HTTP/1.1"),
    (Right, "PUT /kv/x HTTP/1.1"),
    (Right, "GET /kv/x HTTP/1.1"),
    (Right, "HEAD /kv/x HTTP/1.1"),
    (Right, "DELETE /kv/x HTTP/1.1"),
    (Right, "OPTIONS /kv/x HTTP/1.1"),
    (Right, "OPTIONS * HTTP/1.1"),
    (Right, "PATCH /kv/x HTTP/1.1"),
    (Right, "put /kv/x HTTP/1.1"),
    (Right, "CONNECT localhost:80 HTTP/1.1"),
    (Right, "GET /kv/x HTTP/1.0"),
    (Right, "PUT /kv/x HTTP/1.0"),
    (Right, "HEAD /kv/x HTTP/1.0"),
    (Right, "PUT /kv/x HTTP/1.2"),
    (Right, "GET /healthz HTTP/1.9"),
    (Right, "PUT http://localhost/kv/x HTTP/1.1"),
    (Right, "GET http://attacker.example/kv/x HTTP/1.1"),
    (Right, "GET http://localhost?q HTTP/1.1"),
    (Right, "PUT /kv/%zz HTTP/1.1"),
    (Right, "PUT /kv/x?y HTTP/1.1"),
    (Right, "GET //kv/../x HTTP/1.1"),
    (Right, "PUT /kv/ HTTP/1.1"),
    (Right, "\r\nPUT /kv/x HTTP/1.1"),
    (Right, "\r\n\r\nGET /kv/x HTTP/1.1"),
    (Wrong, "\r\n\r\n\r\nGET /kv/x HTTP/1.1"),
    (Wrong, "\nGET /kv/x HTTP/1.1"),
    (Wrong, " GET /kv/x HTTP/1.1"),
    (Wrong, "GET /kv/x"),
    (Wrong, "GET /kv/x HTTP/2.0"),
    (Wrong, "HEAD /kv/x HTTP/3.1"),
    (Wrong, "GET /kv/x HTTP/0.9"),
    (Wrong, "GET /kv/x HTTP/1.10"),
    (Wrong, "GET /kv/x HTTP/1.21"),
    (Wrong, "GET /kv/x http/1.1"),
    (Wrong, "GET /kv/x HTTP/1.1 "),
    (Wrong, "GET /kv/x\tHTTP/1.1"),
    (Wrong, "GET  /kv/x HTTP/1.1"),
    (Wrong, "GET /kv/x y HTTP/1.1"),
    (Wrong, "GET /kv/x#y HTTP/1.1"),
    (Wrong, "GET /kv/\x7f HTTP/1.1"),
    (Wrong, "GET kv/x HTTP/1.1"),
    (Wrong, "GET * HTTP/1.1"),
    (Wrong, "GET ftp://localhost/x HTTP/1.1"),
    (Wrong, "GET http://u@localhost/x HTTP/1.1"),
    (Wrong, "CONNECT /kv/x HTTP/1.1"),
    (Wrong, "CONNECT * HTTP/1.1"),
    (Wrong, "CONNECT localhost HTTP/1.1"),
    (Wrong, "GE\0T /kv/x HTTP/1.1"),
    (Wrong, "PRI * HTTP/2.0"),
];

/// Fields besides framing; all but those of another host have the right one.
const FIELDS: &[(Part, &str)] = &[
    (Right, "Host: localhost\r\n"),
    (Right, "Host: 127.0.0.1:8080\r\n"),
    (Right, "hOST:localhost\r\n"),
    (Right, "Host:\t localhost \t\r\n"),
    (Right, "Host: attacker.example\r\n"),
    (Right, "Host:\r\n"),
    (Right, "Host: localhost\r\nOrigin: http://attacker.example\r\n"),
    (Right, "Host: localhost\r\nConnection: close\r\n"),
    (Right, "Host: localhost\r\nConnection: keep-alive\r\n"),
    (Right, "Host: localhost\r\nConnection: Content-Length, Transfer-Encoding\r\n"),
    (Right, "Host: localhost\r\nConnection: upgrade\r\nUpgrade: h2c\r\n"),
    (Right, "Host: localhost\r\nExpect: 100-continue\r\n"),
    (Right, "Host: localhost\r\nTE: trailers\r\nTrailer: X\r\n"),
    (Right, "Host: localhost\r\nContent-Encoding: gzip\r\n"),
    (Right, "Host: localhost\r\nIf-None-Match: \"a,b\", W/\"1\"\r\n"),
    (Right, "Host: localhost\r\nIf-Match: \"1\r\n"),
    (Right, "Host: localhost\r\nRange: bytes=0-0\r\n"),
    (Right, "Host: localhost\r\nContent_Length: 3\r\nTransfer_Encoding: chunked\r\n"),
    (Right, "Host: localhost\r\nX-Content-Length: 3\r\n"),
    (Right, "Host: localhost\r\nX: \u{e9}\r\n"),
    (Right, "Host: localhost\r\nX:\r\n"),
    (Wrong, "X: y\r\n"),
    (Wrong, "Host: localhost\r\nHost: localhost\r\n"),
    (Wrong, "Host: %zz\r\n"),
    (Wrong, "Host: [:::]\r\n"),
    (Wrong, "Host: [1.2.3.4]\r\n"),
    (Wrong, "Host: localhost, other\r\n"),
    (Wrong, "Host: localhost/x\r\n"),
    (Wrong, "Host : localhost\r\n"),
    (Wrong, " Host: localhost\r\n"),
    (Wrong, "Host: localhost\n"),
    (Wrong, "Host: localhost\r\r\n"),
    (Wrong, "Host: localhost\r\nX: a\r\n b\r\n"),
    (Wrong, "Host: localhost\r\nX: a\rb\r\n"),
    (Wrong, "Host: localhost\r\nX: a\0b\r\n"),
    (Wrong, "Host: localhost\r\nX\r\n"),
    (Wrong, "Host: localhost\r\n: x\r\n"),
    (Wrong, "Host: localhost\r\nX Y: z\r\n"),
    (Wrong, "Host: localhost\r\nX\t: z\r\n"),
    (Wrong, "Host: localhost\r\nExpect: tea\r\n"),
    (Wrong, "LONG"),
    (Wrong, "MANY"),
];

/// Bodies with the fields that frame them. `{s}` stands for the smuggled request, `{n}` for its
/// length, and `{h}` for that in hexadecimal digits.
const BODIES: &[(Part, &str, &str)] = &[
    (Right, "Content-Length: {n}\r\n", "{s}"),
    (Right, "Content-Length: 00{n}\r\n", "{s}"),
    (Right, "content-length:\t{n} \r\n", "{s}"),
    (Right, "", ""),
    (Right, "Content-Length: 0\r\n", ""),
    (Right, "Transfer-Encoding: chunked\r\n", "{h}\r\n{s}\r\n0\r\n\r\n"),
    (Right, "transfer-encoding:CHUNKED\r\n", "{h}\r\n{s}\r\n0\r\n\r\n"),
    (Right, "Transfer-Encoding: chunked\r\n", "000{h}\r\n{s}\r\n000\r\n\r\n"),
    (Right, "Transfer-Encoding: chunked\r\n", "0\r\n\r\n"),
    (Right, "Transfer-Encoding: chunked\r\n", "{h};a\r\n{s}\r\n0;b\r\n\r\n"),
    (Right, "Transfer-Encoding: chunked\r\n", "{h} ;a = \"b;\\\"c\" ; d\r\n{s}\r\n0\r\n\r\n"),
    (Right, "Transfer-Encoding: chunked\r\n", "{h}\t;a=b\r\n{s}\r\n0\r\n\r\n"),
    (Right, "Transfer-Encoding: chunked\r\n", "{h}\r\n{s}\r\n0\r\nContent-Length: 5\r\nHost: x\r\n\r\n"),
    (Right, "Transfer-Encoding: chunked\r\n", "5\r\n0\r\n\r\n\r\n{h}\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Content-Length: +{n}\r\n", "{s}"),
    (Wrong, "Content-Length: -{n}\r\n", "{s}"),
    (Wrong, "Content-Length: 0x{h}\r\n", "{s}"),
    (Wrong, "Content-Length: {n}.0\r\n", "{s}"),
    (Wrong, "Content-Length: {n}, {n}\r\n", "{s}"),
    (Wrong, "Content-Length: {n} {n}\r\n", "{s}"),
    (Wrong, "Content-Length: \"{n}\"\r\n", "{s}"),
    (Wrong, "Content-Length: {n}\r\nContent-Length: {n}\r\n", "{s}"),
    (Wrong, "Content-Length: 0\r\nContent-Length: {n}\r\n", "{s}"),
    (Wrong, "Content-Length: {n}\r\ncontent-length: 0\r\n", "{s}"),
    (Wrong, "Content-Length:\r\n", "{s}"),
    (Wrong, "Content-Length : {n}\r\n", "{s}"),
    (Wrong, "Content-Length\0: {n}\r\n", "{s}"),
    (Wrong, "Content-Length:\r\n {n}\r\n", "{s}"),
    (Wrong, "Content-Length: {n}\n", "{s}"),
    (Wrong, "Content-Length: 18446744073709551616\r\n", "{s}"),
    (Wrong, "Content-Length: 18446744073709551615\r\n", "{s}"),
    (Wrong, "Content-Length: 8388609\r\n", "{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\nContent-Length: {n}\r\n", "{s}"),
    (Wrong, "Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Content-Length: 5\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked, identity\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: identity\r\n", "{s}"),
    (Wrong, "Transfer-Encoding: xchunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: \"chunked\"\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: ,chunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: \x0bchunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding:\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding : chunked\r\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\n", "0\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h} \r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", " {h}\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "0x{h}\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "+{h}\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "-1\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h}_0\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", ";a\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h};\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h};a=\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h};a \r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h};a=\"b\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h};a\nb\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h};a\rb\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h}\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h}\r{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h}\r\n{s}\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h}\r\n{s}X\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "{h}\r\n{s}0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "10000000000000000\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "FFFFFFFFFFFFFFFF\r\n{s}\r\n0\r\n\r\n"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "0\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "0\r\n\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "0\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "0\r\nX : y\r\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "0\r\nX: y\n\r\n{s}"),
    (Wrong, "Transfer-Encoding: chunked\r\n", "EXTENSIONS"),
];

/// A request of the corpus.
struct Request {
    bytes: Vec<u8>,
    /// `None`: bytes of it were changed at random.
    part: Option<Part>,
}

impl Request {
    fn new(start: &(Part, &str), fields: &(Part, &str), body: &(Part, &str, &str)) -> Request {
        let length = SMUGGLED.len();
        let filled = |text: &str| match text {
            "LONG" => format!("Host: localhost\r\nX: {}\r\n", "y".repeat(17 << 10)),
            "MANY" => format!("Host: localhost\r\n{}", "X: y\r\n".repeat(70)),
            "EXTENSIONS" => format!("1;{}\r\nx\r\n", "y".repeat(250)).repeat(70) + "0\r\n\r\n",
            _ => {
                let text = text.replace("{n}", &length.to_string()).replace("{h}", &format!("{length:x}"));
                text.replace("{s}", SMUGGLED)
            }
        };
        let text = format!("{}\r\n{}{}\r\n{}", start.1, filled(fields.1), filled(body.1), filled(body.2));
        let (is_10, is_chunked) =
            (start.1.ends_with("/1.0"), body.1.to_ascii_lowercase().contains("transfer-encoding"));
        let is_wrong = [start.0, fields.0, body.0].contains(&Wrong) || is_10 && is_chunked;
        // A client of HTTP/1.0 need not name the host.
        let no_host = fields.1 == "X: y\r\n" && is_10 && [start.0, body.0] == [Right; 2] && !is_chunked;
        let part = if is_wrong && !no_host { Wrong } else { Right };
        Request { bytes: text.into_bytes(), part: Some(part) }
    }

    fn text(&self) -> String {
        let shown = self.bytes.escape_ascii().to_string();
        shown.get(..600).map_or(shown.clone(), |start| format!("{start}…"))
    }

    /// Whether its answer has no body.
    fn is_head(&self) -> bool {
        self.bytes.trim_ascii_start().starts_with(b"HEAD ")
    }

    /// Whether it asks for the end of the connection.
    fn closes(&self) -> bool {
        let text = String::from_utf8_lossy(&self.bytes);
        text.contains("HTTP/1.0\r\n") || text.contains("Connection: close")
    }
}

/// At least [`REQUESTS_MIN`] different ones, always the same.
fn corpus() -> Vec<Request> {
    let mut requests: Vec<Request> = Vec::new();
    let mut known = HashSet::new();
    let mut add = |request: Request| {
        if known.insert(request.bytes.clone()) {
            requests.push(request);
        }
    };
    // Every part with all that is usual besides, and every body with every method.
    START_LINES.iter().for_each(|start| add(Request::new(start, &FIELDS[0], &BODIES[0])));
    FIELDS.iter().for_each(|fields| add(Request::new(&START_LINES[1], fields, &BODIES[0])));
    for start in START_LINES {
        BODIES.iter().for_each(|body| add(Request::new(start, &FIELDS[0], body)));
    }
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(0x636f_7270);
    let mut pick = |bound: usize| rng.next_u64() as usize % bound;
    for _ in 0..2_000 {
        let (start, fields) = (&START_LINES[pick(START_LINES.len())], &FIELDS[pick(FIELDS.len())]);
        add(Request::new(start, fields, &BODIES[pick(BODIES.len())]));
    }
    // Some bytes are changed; these mean something to a parser.
    const TELLING: &[u8] = b"\r\n\0 \t:;,/09aF+-x\x7f\x80\xff\"";
    for _ in 0..1_200 {
        let (start, fields) = (&START_LINES[pick(10)], &FIELDS[pick(20)]);
        let mut bytes = Request::new(start, fields, &BODIES[pick(BODIES.len())]).bytes;
        for _ in 0..=pick(3) {
            let (at, byte) = (pick(bytes.len()), TELLING[pick(TELLING.len())]);
            match pick(3) {
                0 => bytes.insert(at, byte),
                1 => bytes[at] = byte,
                _ => drop(bytes.remove(at)),
            }
        }
        add(Request { bytes, part: None });
    }
    requests
}

/// The value under the key of a canary.
fn value_of(canary: usize) -> String {
    format!("<canary {}>", canary % CANARIES)
}

fn canary(canary: usize) -> Vec<u8> {
    format!("GET /kv/canary-{} HTTP/1.1\r\nHost: localhost\r\n\r\n", canary % CANARIES).into_bytes()
}

/// A server with all values.
fn served() -> Server {
    let server = Server::start("memory:", &[]);
    let mut client = server.client();
    client.put("/kv/smuggled", SMUGGLED_VALUE.as_bytes());
    for number in 0..CANARIES {
        client.put(&format!("/kv/canary-{number}"), value_of(number).as_bytes());
    }
    server
}

trait Stream: Read + Write {
    fn finish_sending(&self);
}

impl Stream for TcpStream {
    fn finish_sending(&self) {
        // The peer may have closed already.
        let _ = self.shutdown(Shutdown::Write);
    }
}

impl Stream for UnixStream {
    fn finish_sending(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }
}

fn direct(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Sends all there is to send, and reads to the end.
fn exchange(mut stream: impl Stream, bytes: &[u8]) -> Vec<u8> {
    // A refusal may come before everything is sent.
    let _ = stream.write_all(bytes);
    stream.finish_sending();
    let mut answers = Vec::new();
    match stream.read_to_end(&mut answers) {
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
            panic!("neither an answer nor an end: {}", bytes.escape_ascii())
        }
        // A reset is an end.
        _ => answers,
    }
}

/// An answer: status, whether it ends the connection, body.
#[derive(Debug)]
struct Answer {
    status: u16,
    closes: bool,
    body: String,
}

/// Takes answers apart; the first that is not interim has no body if it is `to_head`. `None` for bytes that are no answer.
fn answers(mut bytes: &[u8], to_head: bool) -> Option<Vec<Answer>> {
    let mut answers: Vec<Answer> = Vec::new();
    while !bytes.is_empty() {
        let end = memchr::memmem::find(bytes, b"\r\n\r\n")? + 4;
        let head = std::str::from_utf8(&bytes[..end]).ok()?.to_ascii_lowercase();
        let status = head.strip_prefix("http/1.1 ")?.get(..3)?.parse().ok()?;
        let field = |name: &str| head.lines().find_map(|line| line.strip_prefix(name)).map(str::trim);
        bytes = &bytes[end..];
        if status < 200 {
            continue;
        }
        let length = field("content-length:").map_or(0, |length| length.parse().unwrap());
        let has_body = status != 204 && status != 304 && !(to_head && answers.is_empty());
        let (body, rest) = bytes.split_at_checked(if has_body { length } else { 0 })?;
        bytes = rest;
        let closes = field("connection:") == Some("close");
        answers.push(Answer { status, closes, body: String::from_utf8_lossy(body).into_owned() });
    }
    Some(answers)
}

/// What is wrong with the answers to a request and the canary behind it, if anything.
fn fault(request: &Request, answers: &[Answer], canary: &str) -> Option<&'static str> {
    let Some((last, before)) = answers.split_last() else { return Some("no answer") };
    let is_error = |answer: &Answer| answer.status >= 400;
    let reached = last.status == 200 && last.body == canary;
    if before.iter().any(|answer| answer.closes) {
        return Some("an answer behind the end");
    }
    match request.part {
        // A body that lost bytes ends in the canary, of which the rest is an error.
        None if !reached && !is_error(last) && !last.closes => Some("the canary has no answer"),
        Some(_) if !reached && !last.closes => Some("the canary has no answer"),
        Some(Wrong) if reached || !is_error(last) => Some("it was not refused"),
        Some(Wrong) if !before.is_empty() => Some("more than one answer"),
        Some(Right) if reached && before.len() != 1 => Some("not one answer"),
        Some(Right) if !reached && !before.is_empty() => Some("more than one answer"),
        Some(Right) if !reached && !is_error(last) && !request.closes() => Some("it was closed without need"),
        _ => None,
    }
}

/// Has several threads send parts of the corpus; the faults found.
fn sent(check: impl Fn(usize, &Request) -> Option<String> + Sync) {
    let corpus = corpus();
    assert!(corpus.len() >= REQUESTS_MIN, "{} different requests", corpus.len());
    let faults: Vec<String> = thread::scope(|scope| {
        let senders: Vec<_> = (0..SENDERS)
            .map(|sender| {
                let (corpus, check) = (&corpus, &check);
                let own = move || corpus.iter().enumerate().skip(sender).step_by(SENDERS);
                scope.spawn(move || {
                    own().filter_map(|(number, request)| check(number, request)).collect::<Vec<_>>()
                })
            })
            .collect();
        senders.into_iter().flat_map(|sender| sender.join().unwrap()).collect()
    });
    assert!(
        faults.is_empty(),
        "{} of {}:\n{}",
        faults.len(),
        corpus.len(),
        faults[..faults.len().min(20)].join("\n")
    );
}

#[test]
fn no_request_is_read_in_two_ways() {
    let server = served();
    sent(|number, request| {
        let bytes = exchange(direct(server.address), &[&request.bytes[..], &canary(number)].concat());
        let shown = || format!("{}\n  {}\n", request.text(), bytes.escape_ascii());
        let Some(answers) = answers(&bytes, request.is_head()) else {
            return Some(format!("{}no answers", shown()));
        };
        if request.part.is_some() && answers.iter().any(|answer| answer.body == SMUGGLED_VALUE) {
            return Some(format!("{}its body was taken for a request", shown()));
        }
        fault(request, &answers, &value_of(number)).map(|what| format!("{}{what}", shown()))
    });
}

/// A proxy in a process of its own, that listens on a socket in the file system; ended when dropped.
struct Proxy {
    child: Child,
    dir: tempfile::TempDir,
}

impl Proxy {
    /// Starts `program` with the `config` for its directory.
    fn start(program: &str, arguments: &[&str], config: impl FnOnce(&Path) -> String) -> Proxy {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("proxy.conf");
        std::fs::write(&file, config(dir.path())).unwrap();
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        let mut command = Command::new(program);
        command.env("PATH", path).args(arguments).arg(&file).current_dir(dir.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("{program}: {error}; scripts/setup.sh installs it"));
        let proxy = Proxy { child, dir };
        until(program, || UnixStream::connect(proxy.socket()).is_ok());
        proxy
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("socket")
    }

    fn connect(&self) -> UnixStream {
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The client of a request gets whatever the proxy makes of it, but nobody gets the answer to another's.
fn check_behind(proxy: &Proxy) {
    sent(|number, request| {
        let own = number + CANARIES / 2;
        let bytes = exchange(proxy.connect(), &[&request.bytes[..], &canary(own)].concat());
        let text = String::from_utf8_lossy(&bytes);
        let others = text.replace(&value_of(own), "");
        if others.contains("<canary ") {
            return Some(format!("{}\n  {text}\nanother's answer", request.text()));
        }
        let next = exchange(proxy.connect(), &canary(number));
        match answers(&next, false).as_deref() {
            Some([answer]) if answer.status == 200 && answer.body == value_of(number) => None,
            _ => Some(format!("{}\n  {}\nnot the canary's answer", request.text(), next.escape_ascii())),
        }
    });
}

#[test]
fn behind_nginx_nobody_gets_the_answer_to_another_request() {
    let server = served();
    // One process, few connections to the server, bodies and fields passed on as they come.
    let proxy = Proxy::start("nginx", &["-e", "error.log", "-p", ".", "-c"], |dir| {
        let dir = dir.display();
        format!(
            "daemon off; master_process off; pid {dir}/pid; error_log {dir}/error.log crit;\n\
             events {{ worker_connections 512; }}\n\
             http {{\n\
             access_log off; client_body_temp_path {dir}/body; proxy_temp_path {dir}/proxy;\n\
             fastcgi_temp_path {dir}/fastcgi; uwsgi_temp_path {dir}/uwsgi; scgi_temp_path {dir}/scgi;\n\
             ignore_invalid_headers off; underscores_in_headers on; large_client_header_buffers 4 32k;\n\
             upstream weir {{ server {}; keepalive 2; }}\n\
             server {{ listen unix:{dir}/socket; client_max_body_size 64m;\n\
             location / {{ proxy_pass http://weir; proxy_http_version 1.1; proxy_set_header Connection \"\";\n\
             proxy_set_header Host $http_host; proxy_request_buffering off; proxy_ignore_client_abort on;\n\
             proxy_next_upstream error; }} }} }}\n",
            server.address
        )
    });
    check_behind(&proxy);
}

#[test]
fn behind_haproxy_nobody_gets_the_answer_to_another_request() {
    let server = served();
    let proxy = Proxy::start("haproxy", &["-db", "-f"], |dir| {
        format!(
            "global\n maxconn 512\n nbthread 1\n\
             defaults\n mode http\n timeout connect 60s\n timeout client 60s\n timeout server 60s\n\
             \x20http-reuse always\n option accept-invalid-http-request\n retry-on conn-failure empty-response\n\
             frontend all\n bind unix@{}/socket\n default_backend weir\n\
             backend weir\n server weir {} pool-max-conn 2\n",
            dir.display(),
            server.address
        )
    });
    check_behind(&proxy);
}
