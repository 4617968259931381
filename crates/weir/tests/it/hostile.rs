//! Requests of clients that mean harm or are mistaken, and answers that must not mislead whoever is in between.

use crate::support::{Client, Server, until, weir};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(super) fn server(flags: &[&str]) -> Server {
    Server::start("memory:", flags)
}

/// Starts a server; its port.
pub(super) fn started(command: &mut Command) -> (Child, u16) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address: SocketAddr = line.trim().strip_prefix("listening ").unwrap().parse().unwrap();
    (child, address.port())
}

/// A request of HTTP/1.1 without a body.
pub(super) fn request(start: &str, fields: &str) -> Vec<u8> {
    format!("{start} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n").into_bytes()
}

/// A key that a client believes to have put is not emptied by a request without a value.
#[test]
fn a_put_without_a_length_leaves_the_value_as_it_is() {
    let server = server(&[]);
    server.client().put("/kv/a", b"value");
    for wrong in [
        "PUT /kv/a HTTP/1.0\r\n\r\nother",
        "PUT /kv/a HTTP/1.0\r\nConnection: keep-alive\r\n\r\nother",
        "PUT /kv/a HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ] {
        let mut client = server.client();
        assert_eq!(client.exchange(wrong.as_bytes()).status, 411, "{wrong}");
        assert!(client.is_closed(), "{wrong}");
        assert_eq!(server.client().get("/kv/a").text(), "value", "{wrong}");
    }
    assert_eq!(server.client().put("/kv/a", b"").status, 204);
    assert_eq!(server.client().get("/kv/a").body, b"");
}

#[test]
fn an_encoded_value_comes_back_with_its_coding() {
    let server = server(&[]);
    let mut client = server.client();
    for (coding, stored) in
        [("gzip", Some("gzip")), ("br, gzip", Some("br, gzip")), ("GZIP", Some("GZIP")), ("identity", None)]
    {
        client.ask("PUT", "/kv/a", &[("Content-Encoding", coding)], b"value").unwrap();
        let answer = client.get("/kv/a");
        assert_eq!((answer.status, answer.header("content-encoding")), (200, stored), "{coding}");
        let known = [("If-None-Match", answer.header("etag").unwrap())];
        let answer = client.ask("GET", "/kv/a", &known, b"").unwrap();
        assert_eq!((answer.status, answer.header("content-encoding")), (304, None), "{coding}");
    }
}

#[test]
fn a_read_is_answered_only_if_its_condition_holds() {
    for flags in [&[][..], &["--cache-entries", "0"]] {
        let server = server(flags);
        let mut client = server.client();
        let tag = client.put("/kv/a", b"value").header("etag").unwrap().to_owned();
        let weak = format!("W/{tag}");
        let list = format!("\"a,b\", {tag}");
        for (method, fields, status) in [
            ("GET", &[("If-Match", "\"1\"")][..], 412),
            ("HEAD", &[("If-Match", "\"1\"")], 412),
            ("GET", &[("If-Match", weak.as_str())], 412),
            ("GET", &[("If-Match", tag.as_str())], 200),
            ("HEAD", &[("If-Match", "*")], 200),
            ("GET", &[("If-Match", list.as_str())], 200),
            ("GET", &[("If-Match", "tag")], 400),
            // The first is looked at first.
            ("GET", &[("If-None-Match", tag.as_str()), ("If-Match", "\"1\"")], 412),
            ("GET", &[("If-None-Match", tag.as_str()), ("If-Match", "*")], 304),
            ("GET", &[("If-None-Match", list.as_str())], 304),
            ("GET", &[("If-None-Match", "\"a,b\"")], 200),
        ] {
            let answer = client.ask(method, "/kv/a", fields, b"").unwrap();
            assert_eq!(answer.status, status, "{method} {fields:?} {flags:?}");
            if status == 412 {
                assert_eq!(answer.header("etag"), Some(tag.as_str()));
                assert_eq!(answer.header("weir-outcome"), None);
            }
        }
        // Of what is not there no condition is looked at.
        assert_eq!(client.ask("GET", "/kv/b", &[("If-Match", "*")], b"").unwrap().status, 404);
    }
}

/// Without it a cache in between may serve an answer after the value has changed.
#[test]
fn whoever_keeps_an_answer_has_to_ask_again() {
    for flags in [&[][..], &["--cache-entries", "0"]] {
        let server = server(flags);
        let mut client = server.client();
        let tag = client.put("/kv/a", b"value").header("etag").unwrap().to_owned();
        for (method, path, fields, status) in [
            ("GET", "/kv/a", &[][..], 200),
            ("HEAD", "/kv/a", &[], 200),
            ("GET", "/kv/a", &[("If-None-Match", tag.as_str())], 304),
            ("GET", "/kv/b", &[], 404),
            ("HEAD", "/kv/b", &[], 404),
            ("GET", "/nowhere", &[], 404),
            ("POST", "/kv/a", &[], 405),
        ] {
            let answer = client.ask(method, path, fields, b"").unwrap();
            let said = (answer.status, answer.header("cache-control"));
            assert_eq!(said, (status, Some("no-cache")), "{method} {path} {flags:?}");
        }
    }
}

/// A body behind the answer to a HEAD would be taken for the next answer.
#[test]
fn no_answer_to_head_has_a_body() {
    let server = server(&[]);
    let long = "x".repeat(20_000);
    for (bytes, status) in [
        (b"HEAD /kv/a HTTP/1.1\r\n\r\n".to_vec(), 400),
        (request(&format!("HEAD /{long}"), ""), 414),
        (request("HEAD /kv/a", "Expect: tea\r\n"), 417),
        (request("HEAD /kv/a", &format!("X: {long}\r\n")), 431),
        (request("HEAD /kv/a", "Transfer-Encoding: gzip\r\n"), 501),
        (b"\r\nHEAD /kv/a HTTP/3.0\r\n\r\n".to_vec(), 505),
        (request("HEAD /kv?limit=x", ""), 400),
        (request("HEAD /kv/a", "Content-Length: 70000\r\n"), 413),
        // Their sender ends in the middle.
        (b"HEAD /kv/a HT".to_vec(), 400),
        (request("HEAD /kv/a", "Content-Length: 5\r\n"), 400),
        ([request("HEAD /kv/a", "Transfer-Encoding: chunked\r\n"), b"5\r\nabc".to_vec()].concat(), 400),
    ] {
        let mut client = server.client();
        client.send(&bytes).unwrap();
        client.finish_sending();
        let answer = client.answer(true).unwrap();
        assert_eq!(answer.status, status, "{}", bytes.escape_ascii());
        assert!(client.is_closed(), "a body behind the {status} to {}", bytes.escape_ascii());
    }
    // The same of a GET has one.
    let mut client = server.client();
    client.send(b"GET /kv/HEAD HT").unwrap();
    client.finish_sending();
    assert_eq!(client.answer(false).unwrap().problem()["code"], "incomplete");
}

#[test]
fn the_server_as_a_whole_can_be_asked_for_its_options() {
    let server = server(&[]);
    let mut client = server.client();
    assert_eq!(client.exchange(&request("OPTIONS *", "")).status, 204);
    assert_eq!(client.get("/healthz").status, 200, "the connection goes on");
}

#[test]
fn a_later_minor_version_is_served_as_1_1() {
    let server = server(&[]);
    let mut client = server.client();
    client.put("/kv/a", b"value");
    let answer = client.exchange(b"GET /kv/a HTTP/1.2\r\nHost: localhost\r\n\r\n");
    assert_eq!((answer.status, answer.text().as_str()), (200, "value"));
    assert_eq!(client.get("/kv/a").status, 200, "the connection goes on");
}

/// It took 98 MB of them to send 400 kB.
#[test]
fn chunk_extensions_are_limited_in_sum() {
    let server = server(&[]);
    let chunk = format!("1;{}\r\nx\r\n", "y".repeat(200));
    let mut bytes = request("PUT /kv/a", "Transfer-Encoding: chunked\r\n");
    bytes.extend(chunk.repeat(100).into_bytes());
    let mut client = server.client();
    assert_eq!(client.exchange(&bytes).status, 400);
    assert!(client.is_closed());
    let mut bytes = request("PUT /kv/a", "Transfer-Encoding: chunked\r\n");
    bytes.extend(b"5 ;a = \"b;c\"\r\nvalue\r\n0\r\n\r\n");
    let mut client = server.client();
    assert_eq!(client.exchange(&bytes).status, 201);
    assert_eq!(client.get("/kv/a").text(), "value");
}

/// A client that sends before it reads would lose the answer to a reset.
#[test]
fn a_connection_too_many_is_closed_in_order() {
    let flags = ["--connections", "1", "--compat", "put-kv=127.0.0.1:0"];
    let server = server(&flags);
    let mut first = server.client();
    first.get("/healthz");
    for address in [server.address, server.compat("put-kv")] {
        let mut refused = Client::connect(address).unwrap();
        // What arrives at a closed socket resets the connection, and the answer is lost: so the server waits for two seconds.
        for _ in 0..4 {
            refused.send(&request("GET /kv/a", "")).unwrap();
        }
        assert_eq!(refused.answer(false).unwrap().status, 503);
        assert!(refused.is_closed());
    }
}

/// A page whose name was bound to 127.0.0.1 is of the same origin there, and may read and write.
#[test]
fn a_web_page_of_another_host_cannot_use_a_server_on_loopback() {
    let flags = ["--lab", "--host", "weir.example", "--compat", "crud=127.0.0.1:0"];
    let server = server(&flags);
    let mut client = server.client();
    client.put("/kv/a", b"value");
    for (host, origin, expected) in [
        ("attacker.example", None, Some("foreign_host")),
        ("attacker.example:8080", None, Some("foreign_host")),
        ("", None, Some("foreign_host")),
        ("localhost", Some("http://attacker.example"), Some("foreign_origin")),
        ("localhost", Some("null"), Some("foreign_origin")),
        ("localhost:1", None, None),
        ("127.0.0.1", Some("http://localhost:3000"), None),
        ("[::1]:80", None, None),
        ("Weir.Example:443", Some("https://weir.example"), None),
    ] {
        let origin = origin.map_or(String::new(), |origin| format!("Origin: {origin}\r\n"));
        let check = |address, start: &str, served: u16| {
            let text = format!("{start} HTTP/1.1\r\nHost: {host}\r\n{origin}Content-Length: 0\r\n\r\n");
            let mut client = Client::connect(address).unwrap();
            let answer = client.exchange(text.as_bytes());
            assert_eq!(answer.status, if expected.is_some() { 403 } else { served }, "{text}");
            if let Some(code) = expected {
                assert_eq!(answer.header("content-type"), Some("application/problem+json"), "{text}");
                assert_eq!(answer.problem()["code"], code, "{text}");
                assert!(answer.text().contains("--host"), "what to do: {}", answer.text());
            }
        };
        check(server.address, "GET /kv/a", 200);
        check(
            server.address,
            "PUT /kv/b",
            if expected.is_none() && host == "localhost:1" { 201 } else { 204 },
        );
        check(server.address, "GET /healthz", 200);
        check(server.address, "GET /compute/prime?count=1", 200);
        check(server.address, "DELETE /inject", 204);
        check(server.compat("crud"), "GET /get?key=a", 200);
    }
    assert_eq!(client.get("/kv/a").text(), "value");
    let clear = "DELETE /clear HTTP/1.1\r\nHost: attacker.example\r\n\r\n";
    let mut crud = Client::connect(server.compat("crud")).unwrap();
    assert_eq!(crud.exchange(clear.as_bytes()).status, 403);
    assert_eq!(client.get("/kv/a").text(), "value", "nothing was cleared");
    // A client of HTTP/1.0 need not ask for any host.
    assert_eq!(server.client().exchange(b"GET /kv/a HTTP/1.0\r\n\r\n").text(), "value");
}

/// Where no name is known, none is asked for.
#[test]
fn a_server_on_another_address_answers_for_every_host_unless_told() {
    let text = b"GET /healthz HTTP/1.1\r\nHost: anything.example\r\nOrigin: http://other.example\r\n\r\n";
    for (flags, status) in [
        (&[][..], 200),
        (&["--host", "weir.example"], 403),
        (&["--host", "anything.example,other.example"], 200),
    ] {
        let mut command = weir();
        command.args(["serve", "--listen", "0.0.0.0:0", "--insecure", "--store", "memory:"]).args(flags);
        let (mut child, port) = started(command.stderr(Stdio::null()));
        let loopback = (Ipv4Addr::LOCALHOST, port).into();
        assert_eq!(Client::connect(loopback).unwrap().exchange(text).status, status, "{flags:?}");
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

/// It blocked a worker, and all its connections.
#[test]
fn a_log_that_nobody_reads_stops_no_worker() {
    let mut command = weir();
    command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--store", "memory:"]);
    // Without batches a conditional write is refused, which is logged.
    command.args(["--lab", "--batching", "off"]).stderr(Stdio::piped());
    let (mut child, port) = started(&mut command);
    let mut client = Client::connect((Ipv4Addr::LOCALHOST, port).into()).unwrap();
    // More than the pipe and the queue hold.
    for _ in 0..5_000 {
        assert_eq!(client.ask("PUT", "/kv/a", &[("If-None-Match", "*")], b"").unwrap().status, 503);
    }
    assert_eq!(client.get("/healthz").status, 200);
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let first = said.next().unwrap();
    // As in 2026-01-31T23:59:59.123Z.
    assert!(first.as_bytes()[10] == b'T' && first.as_bytes()[23] == b'Z', "{first}");
    let lost = said.find_map(|line| {
        let (rest, _) = line.split_once(" lines of the log found its queue full")?;
        rest.rsplit(' ').next()?.parse::<u64>().ok()
    });
    assert!(lost.is_some_and(|lost| lost > 0 && lost < 5_000));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// It logged 40 lines a second for as long as that lasted.
#[test]
fn running_out_of_files_is_logged_with_a_count() {
    let mut command = weir();
    command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--store", "memory:"]);
    let (mut child, port) = started(command.stderr(Stdio::piped()));
    // It leaves room for other files than connections under the limit that it finds when it starts.
    let low = Rlimit { current: Some(40), maximum: Some(40) };
    prlimit(Some(Pid::from_child(&child)), Resource::Nofile, low).unwrap();
    let _clients: Vec<Client> =
        (0..200).map(|_| Client::connect((Ipv4Addr::LOCALHOST, port).into()).unwrap()).collect();
    let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let count_of = |line: String| -> Option<u64> {
        line.split_once("since this was last said: ")?.1.split(':').next()?.parse().ok()
    };
    assert!(said.by_ref().take(20).filter_map(count_of).any(|count| count > 1));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// Has a server wait for a body that does not come.
fn with_request_under_way(server: &Server) -> Client {
    let mut writer = server.client();
    let asked = request("PUT /kv/a", "Expect: 100-continue\r\nContent-Length: 5\r\n");
    assert_eq!(writer.exchange(&asked).status, 100);
    writer
}

fn signal(server: &Server, signal: Signal) {
    kill_process(Pid::from_raw(server.pid().cast_signed()).unwrap(), signal).unwrap();
}

fn until_it_drains(server: &Server) {
    until("it drains", || Client::connect(server.address).is_err());
}

#[test]
fn a_second_signal_ends_a_drain() {
    for second in [Signal::TERM, Signal::INT, Signal::HUP] {
        let mut server = server(&["--drain", "1h"]);
        let mut writer = with_request_under_way(&server);
        server.terminate();
        until_it_drains(&server);
        assert!(server.lives());
        // Those that come at once are the first one.
        until("it ends", || {
            signal(&server, second);
            !server.lives()
        });
        assert_eq!(server.wait().signal(), Some(second.as_raw()));
        assert!(writer.answer(false).is_err());
    }
}

/// As `timeout` sends it, to the process and to its group.
#[test]
fn a_signal_that_comes_twice_at_once_is_one() {
    let mut server = server(&[]);
    let mut writer = with_request_under_way(&server);
    let sent = Instant::now();
    server.terminate();
    until_it_drains(&server);
    server.terminate();
    // Else the machine was too slow to send two at once.
    if sent.elapsed() < Duration::from_secs(1) {
        assert_eq!(writer.exchange(b"value").status, 201);
        drop(writer);
        assert_eq!(server.wait().code(), Some(0));
    }
}

/// They were reset, although their clients had sent a request.
#[test]
fn connections_that_wait_to_be_accepted_when_a_drain_begins_are_answered() {
    let mut command = weir();
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--workers", "1"]);
    // As long as the worker is busy with the first one, the others wait.
    let (mut child, port) =
        started(command.args(["--lab", "--inject", "worker=300ms"]).stderr(Stdio::null()));
    let begun = |path: &str| {
        let mut client = Client::connect((Ipv4Addr::LOCALHOST, port).into()).unwrap();
        client.send(&request(&format!("GET {path}"), "")).unwrap();
        client
    };
    let mut clients = vec![begun("/kv/a")];
    clients.extend((0..20).map(|_| begun("/healthz")));
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    for client in &mut clients {
        client.answer(false).unwrap();
    }
    drop(clients);
    assert!(child.wait().unwrap().success());
}

#[test]
fn what_a_drain_cuts_off_is_logged() {
    let mut command = weir();
    command.args(["serve", "--store", "memory:", "--listen", "127.0.0.1:0", "--drain", "200ms"]);
    let (mut child, port) = started(command.stderr(Stdio::piped()));
    let said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
    let mut writer = Client::connect((Ipv4Addr::LOCALHOST, port).into()).unwrap();
    let asked = request("PUT /kv/a", "Expect: 100-continue\r\nContent-Length: 5\r\n");
    assert_eq!(writer.exchange(&asked).status, 100);
    kill_process(Pid::from_raw(child.id().cast_signed()).unwrap(), Signal::TERM).unwrap();
    assert!(said.collect::<Vec<_>>().iter().any(|line| line.contains("the time to drain is over")));
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_closed_terminal_drains() {
    let mut server = server(&[]);
    let mut writer = with_request_under_way(&server);
    signal(&server, Signal::HUP);
    until_it_drains(&server);
    assert_eq!(writer.exchange(b"value").status, 201);
    drop(writer);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_server_that_is_to_outlive_its_terminal_does() {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(weir().get_program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--store", "memory:"]);
    let (mut child, port) = started(command.stderr(Stdio::null()));
    let pid = Pid::from_child(&child);
    kill_process(pid, Signal::HUP).unwrap();
    assert_eq!(Client::connect((Ipv4Addr::LOCALHOST, port).into()).unwrap().get("/readyz").status, 200);
    kill_process(pid, Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
