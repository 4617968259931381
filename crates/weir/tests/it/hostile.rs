//! Requests of clients that mean harm or are mistaken, and answers that must not mislead whoever is in between.

use crate::support::{Client, Server, is_long, tried, until, weir};
use kv::units::Size;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

fn server(flags: &[&str]) -> Server {
    Server::start("memory:", flags)
}

/// A process that is killed when dropped.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a server; its port.
fn started(command: &mut Command) -> (Child, u16) {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address: SocketAddr = line.trim().strip_prefix("listening ").unwrap().parse().unwrap();
    (child, address.port())
}

/// A request of HTTP/1.1 without a body.
fn request(start: &str, fields: &str) -> Vec<u8> {
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
        // The server waits for two seconds.
        tried(|| {
            let mut refused = Client::connect(address).unwrap();
            refused.send(&request("GET /kv/a", "")).unwrap();
            assert_eq!(refused.answer(false).unwrap().status, 503);
            // What arrives at a closed socket resets the connection; the next write fails then.
            for _ in 0..3 {
                refused.send(&request("GET /kv/a", "")).unwrap();
            }
            assert!(refused.is_closed());
        });
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
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 40 && exec \"$0\" \"$@\""]).arg(weir().get_program());
    command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1", "--store", "memory:"]);
    let (mut child, port) = started(command.stderr(Stdio::piped()));
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
        signal(&server, second);
        assert_eq!(server.wait().signal(), Some(second.as_raw()));
        assert!(writer.answer(false).is_err());
    }
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

fn gauge(client: &mut Client, name: &str) -> f64 {
    client.stats()[name].as_f64().unwrap()
}

fn until_reserved(client: &mut Client, bytes: f64) {
    until("the reserved memory", || gauge(client, "weir_memory_reserved_bytes") == bytes);
}

/// Memory of a process, in KiB: `VmRSS`, or `VmHWM`, the most it has had.
fn memory_kib(pid: u32, name: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).unwrap();
    value.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// As many open files as this process may have.
fn raise_limit_of_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
}

/// Announces a value of so many bytes, and sends the first.
fn announced(server: &Server, bytes: usize) -> Client {
    let mut client = server.client();
    client.send(&request("PUT /kv/announced", &format!("Content-Length: {bytes}\r\n"))).unwrap();
    client.send(b"x").unwrap();
    client
}

/// It took 2 MiB for each.
#[test]
fn a_length_that_is_announced_takes_no_memory() {
    const MANY: usize = 1000;
    raise_limit_of_files();
    let server = server(&["--memory-budget", "16GiB", "--head-timeout", "1h"]);
    let mut client = server.client();
    client.put("/kv/a", b"value");
    let before = memory_kib(server.pid(), "VmRSS");
    let hostile: Vec<Client> = (0..MANY).map(|_| announced(&server, 8 << 20)).collect();
    until_reserved(&mut client, (MANY * (8 << 20)) as f64);
    let grown = memory_kib(server.pid(), "VmRSS").saturating_sub(before);
    assert!(grown < 64 << 10, "{grown} KiB");
    drop(hostile);
    until_reserved(&mut client, 0.0);
}

#[test]
fn a_value_that_does_not_fit_into_memory_is_refused_before_it_is_sent() {
    const VALUE: usize = 1 << 20;
    let flags = ["--memory-budget", "4MiB", "--value-bytes", "1MiB", "--head-timeout", "1h"];
    let server = server(&[&flags[..], &["--compat", "put-kv=127.0.0.1:0"]].concat());
    let mut client = server.client();
    assert_eq!(gauge(&mut client, "weir_memory_budget_bytes"), (4 * VALUE) as f64);
    let mut hostile: Vec<Client> = (0..4).map(|_| announced(&server, VALUE)).collect();
    until_reserved(&mut client, (4 * VALUE) as f64);
    for expect in ["", "Expect: 100-continue\r\n"] {
        let mut refused = server.client();
        let head = request("PUT /kv/b", &format!("{expect}Content-Length: {VALUE}\r\n"));
        let answer = refused.exchange(&head);
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.header("weir-outcome"), Some("not-applied"));
        assert_eq!(answer.problem()["code"], "overloaded");
        refused.finish_sending();
        assert!(refused.is_closed());
    }
    let mut refused = server.client();
    let mut bytes = request("PUT /kv/b", "Transfer-Encoding: chunked\r\n");
    bytes.extend(format!("{VALUE:x}\r\n{}", "x".repeat(60_000)).into_bytes());
    assert_eq!(refused.exchange(&bytes).status, 503, "its length is not announced");
    let mut refused = Client::connect(server.compat("put-kv")).unwrap();
    assert_eq!(refused.exchange(&request("POST /b", &format!("Content-Length: {VALUE}\r\n"))).status, 503);
    assert!(gauge(&mut client, "weir_shed_total{reason=\"memory\"}") >= 4.0);

    assert_eq!(client.put("/kv/small", &[b'x'; 36 << 10]).status, 201, "there is room for small ones");
    assert_eq!(client.get("/kv/b").status, 404);

    // One is given up and one is completed.
    drop(hostile.pop());
    until_reserved(&mut client, (3 * VALUE) as f64);
    let mut complete = hostile.pop().unwrap();
    assert_eq!(complete.exchange(&vec![b'x'; VALUE - 1]).status, 201);
    until_reserved(&mut client, (2 * VALUE) as f64);
    assert_eq!(client.put("/kv/b", &vec![b'x'; VALUE]).status, 201);
    // Two chunks that fit, and one that is malformed.
    let mut bytes = request("PUT /kv/b", "Transfer-Encoding: chunked\r\n");
    bytes.extend(format!("ea60\r\n{}\r\nnone\r\n", "x".repeat(60_000)).into_bytes());
    assert_eq!(server.client().exchange(&bytes).status, 400);
    drop(hostile);
    until_reserved(&mut client, 0.0);
    let whole: Vec<Client> = (0..4).map(|_| announced(&server, VALUE)).collect();
    until_reserved(&mut client, (4 * VALUE) as f64);
    drop(whole);
}

/// Of a value that the cache drops meanwhile, nobody else knows.
#[test]
fn an_answer_counts_until_it_is_sent() {
    // More than the sockets take.
    const VALUE: usize = 32 << 20;
    let server = server(&["--memory-budget", "48MiB", "--value-bytes", "32MiB", "--head-timeout", "1h"]);
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &vec![b'x'; VALUE]).status, 201);
    let mut slow = server.client();
    slow.send(&request("GET /kv/a", "")).unwrap();
    until_reserved(&mut client, VALUE as f64);
    let refused = client.get("/kv/a");
    assert_eq!((refused.status, refused.header("retry-after")), (503, Some("1")));
    assert_eq!(
        (refused.problem()["code"].as_str(), refused.header("weir-outcome")),
        (Some("overloaded"), None)
    );
    assert_eq!(client.ask("HEAD", "/kv/a", &[], b"").unwrap().status, 200, "nothing of it is sent");
    assert_eq!(slow.answer(false).unwrap().body.len(), VALUE);
    until_reserved(&mut client, 0.0);
    assert_eq!(client.get("/kv/a").body.len(), VALUE);
    // Nobody reads it, and then its client is gone.
    let mut gone = server.client();
    gone.send(&request("GET /kv/a", "")).unwrap();
    until_reserved(&mut client, VALUE as f64);
    drop(gone);
    until_reserved(&mut client, 0.0);
}

/// Those of compatibility APIs are copied, and those to several requests.
#[test]
fn copied_answers_count_while_nobody_reads_them() {
    const VALUE: usize = 32 << 20;
    let flags = ["--memory-budget", "48MiB", "--value-bytes", "32MiB", "--head-timeout", "1h"];
    let server = server(&[&flags[..], &["--compat", "put-kv=127.0.0.1:0"]].concat());
    let mut client = server.client();
    assert_eq!(client.put("/kv/a", &vec![b'x'; VALUE]).status, 201);
    let slow = || {
        let mut slow = Client::connect(server.compat("put-kv")).unwrap();
        slow.send(&request("GET /kv/a", "")).unwrap();
        slow
    };
    let first = slow();
    until("the answer counts", || gauge(&mut client, "weir_memory_reserved_bytes") >= VALUE as f64);
    let mut second = slow();
    until("it does not fit", || gauge(&mut client, "weir_shed_total{reason=\"memory\"}") >= 1.0);
    assert!(second.answer(false).is_err(), "the connection is closed in the middle");
    drop(first);
    until_reserved(&mut client, 0.0);
}

#[test]
fn a_value_that_the_store_refuses_counts_no_longer() {
    let flags = ["--memory-budget", "8MiB", "--lab", "--inject", "store_worker=500ms"];
    let server = server(&[&flags[..], &["--store-timeout", "50ms"]].concat());
    let mut client = server.client();
    let status = client.put("/kv/a", &vec![b'x'; 1 << 20]).status;
    assert!(status >= 500, "{status}");
    until_reserved(&mut client, 0.0);
}

/// What was sent quickly bought one second of silence for each KiB.
#[test]
fn a_client_that_trickles_is_ended_whatever_it_sent_before() {
    const VALUE: usize = 8 << 20;
    let server = server(&["--head-timeout", "500ms"]);
    let mut client = server.client();
    let mut slow = announced(&server, VALUE);
    // On a machine that stalls it may be too late already.
    let _ = slow.send(&vec![b'x'; VALUE - 100_000]);
    // Each byte in time after the one before, which was enough for hours.
    let pause = std::time::Duration::from_millis(100);
    let answered = (0..600).any(|_| {
        std::thread::sleep(pause);
        slow.send(b"x").is_err() || slow.has_answer()
    });
    assert!(answered, "it goes on");
    assert_eq!(gauge(&mut client, "weir_http_requests_total{method=\"PUT\",code=\"408\"}"), 1.0);
    until_reserved(&mut client, 0.0);
}

/// 18,976 of the connections fit where a process may have 20,000 files; the others are refused.
#[test]
fn hostile_connections_take_no_more_memory_than_the_server_said() {
    const VALUE: usize = 8 << 20;
    /// So many large values fit.
    const LARGE: usize = 16;
    /// It is not counted.
    const SMALL: usize = 32 << 10;
    let many = if is_long() { 19_000 } else { 1_000 };
    raise_limit_of_files();
    let mut command = weir();
    command.args(["serve", "--listen", "127.0.0.1:0", "--workers", "2", "--store", "memory:"]);
    command.args(["--memory-budget", "128MiB", "--cache-bytes", "64MiB"]);
    command.args(["--head-timeout", "1h", "--idle-timeout", "1h"]);
    let (child, port) = started(command.stderr(Stdio::piped()));
    let mut server = Killed(child);
    let said = BufReader::new(server.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let said = said.take(100).find(|line| line.contains("memory: ")).unwrap();
    let size = |before: &str| {
        let text = said.split_once(before).unwrap().0.rsplit(' ').next().unwrap();
        text.parse::<Size>().unwrap().0
    };
    let (budget, each) = (size(" for request bodies"), size(" for each of up to"));
    assert_eq!(budget, (LARGE * VALUE) as u64);

    let connect = || Client::connect((Ipv4Addr::LOCALHOST, port).into()).unwrap();
    let mut normal = connect();
    assert_eq!(normal.put("/kv/large", &vec![b'x'; VALUE]).status, 201);
    assert_eq!(normal.get("/kv/large").body.len(), VALUE);
    let before = memory_kib(server.0.id(), "VmRSS") << 10;
    // Half of the budget: a large body is announced, and a little of it sent.
    let announce = |client: &mut Client| {
        client.send(&request("PUT /kv/announced", &format!("Content-Length: {VALUE}\r\n"))).unwrap();
        client.send(&[b'x'; 4 << 10]).unwrap();
    };
    let mut hostile: Vec<Client> = (0..LARGE / 2).map(|_| connect()).collect();
    hostile.iter_mut().for_each(announce);
    until_reserved(&mut normal, (LARGE / 2 * VALUE) as f64);
    // The other half: a large answer is not read.
    let get = request("GET /kv/large", "");
    for _ in 0..LARGE / 2 {
        let mut client = connect();
        client.send(&get).unwrap();
        hostile.push(client);
    }
    until_reserved(&mut normal, (LARGE * VALUE) as f64);
    // All others are refused that, and go on to take what they get without.
    let small =
        [&get[..], &request("PUT /kv/small", &format!("Content-Length: {SMALL}\r\n")), &[b'x'; SMALL - 1]]
            .concat();
    let mut refused = 0;
    while hostile.len() < many {
        let mut client = connect();
        if hostile.len().is_multiple_of(100) {
            announce(&mut client);
            assert_eq!(client.answer(false).unwrap().status, 503);
            client = connect();
        }
        // One above the limit of connections may be closed by now.
        refused += u32::from(client.send(&small).is_err());
        hostile.push(client);
        if hostile.len().is_multiple_of(100) {
            assert_eq!(normal.put("/kv/a", b"value").status, if hostile.len() == 100 { 201 } else { 204 });
            assert_eq!(normal.get("/kv/a").text(), "value");
        }
    }
    // Those that were not refused have all arrived if each can be completed.
    let mut completed = 0;
    for client in hostile.iter_mut().skip(LARGE) {
        let answers = client.answer(false).and_then(|refusal| {
            assert_eq!(refusal.status, 503);
            client.send(b"x")?;
            client.answer(false)
        });
        match answers {
            Ok(answer) => {
                assert!(matches!(answer.status, 201 | 204));
                completed += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(completed >= many * 9 / 10, "{completed} were completed, {refused} refused");
    assert_eq!(gauge(&mut normal, "weir_memory_reserved_bytes"), (LARGE * VALUE) as f64);
    let grown = (memory_kib(server.0.id(), "VmHWM") << 10).saturating_sub(before);
    let most = budget + many as u64 * each;
    assert!(grown <= most, "{many} connections take {grown} bytes, more than {most}");
}
