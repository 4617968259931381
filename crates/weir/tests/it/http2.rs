//! `weir load --http2` against servers of others: nginx and Node, over TLS and without it, and what they break.

use super::load::{run_for, weir_load};
use super::support::{Server, free_address, until};
use super::tls::Authority;
use kv::proto::LoadReport;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A server in a process of its own; ended when dropped.
struct Peer {
    child: Child,
    /// Scheme and address.
    origin: String,
    /// What a client needs to trust it.
    trust: Vec<String>,
    _files: (Authority, tempfile::TempDir),
}

impl Peer {
    /// `http2_service.js`.
    fn node(with_tls: bool) -> Peer {
        let authority = Authority::new();
        let (cert, key) = authority.issue("server");
        let mut command = Command::new("node");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/http2_service.js"));
        if with_tls {
            command.args([&cert, &key]);
        }
        let child = command.stdout(Stdio::piped()).spawn();
        let mut child = child.unwrap_or_else(|error| panic!("node: {error}; scripts/setup.sh installs it"));
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        Peer::new(child, with_tls, port.trim().parse().unwrap(), authority, tempfile::tempdir().unwrap())
    }

    /// nginx in front of `server`. It ends each connection in order after some requests.
    fn nginx(with_tls: bool, server: SocketAddr) -> Peer {
        let authority = Authority::new();
        let (cert, key) = authority.issue("server");
        let directory = tempfile::tempdir().unwrap();
        let port = free_address().port();
        let tls = match with_tls {
            true => format!("ssl_certificate {}; ssl_certificate_key {};", cert.display(), key.display()),
            false => String::new(),
        };
        let listen = if with_tls { "ssl http2" } else { "http2" };
        let text = format!(
            "pid pid; error_log error.log; worker_processes 1; events {{}}
             http {{
               access_log off; client_body_temp_path .; proxy_temp_path .; fastcgi_temp_path .; uwsgi_temp_path .; scgi_temp_path .;
               keepalive_requests 50;
               upstream weir {{ server {server}; keepalive 16; }}
               server {{
                 listen 127.0.0.1:{port} {listen}; {tls}
                 location / {{ proxy_pass http://weir; proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host localhost; }}
               }}
             }}"
        );
        fs::write(directory.path().join("nginx.conf"), text).unwrap();
        let mut command = Command::new("nginx");
        command.args(["-e", "error.log", "-g", "daemon off;", "-p", ".", "-c", "nginx.conf"]);
        let path = std::env::var("PATH").unwrap_or_default() + ":/usr/sbin";
        let command = command.env("PATH", path).current_dir(directory.path());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.unwrap_or_else(|error| panic!("nginx: {error}; scripts/setup.sh installs it"));
        let peer = Peer::new(child, with_tls, port, authority, directory);
        until("nginx", || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        peer
    }

    fn new(
        child: Child,
        with_tls: bool,
        port: u16,
        authority: Authority,
        directory: tempfile::TempDir,
    ) -> Peer {
        let scheme = if with_tls { "https" } else { "http" };
        let ca: &Path = &authority.file("ca.pem");
        let trust =
            if with_tls { vec!["--cacert".to_owned(), ca.to_str().unwrap().to_owned()] } else { Vec::new() };
        Peer { child, origin: format!("{scheme}://127.0.0.1:{port}"), trust, _files: (authority, directory) }
    }

    /// The report of so many requests: of eight clients over two connections, if `flags` say nothing else.
    fn load(&self, requests: u64, path: &str, given: &[&str]) -> LoadReport {
        let url = format!("{}{path}", self.origin);
        let trust: Vec<&str> = self.trust.iter().map(String::as_str).collect();
        let has = |flag: &str| given.iter().any(|other| other.starts_with(flag));
        let usual = ["--clients=8", "--streams=4", "--warmup=0s", "--timeout=20s"];
        let usual = usual.into_iter().filter(|flag| !has(flag.split('=').next().unwrap()));
        let flags = ["load", &url, "--http2"].into_iter().chain(usual).chain(trust);
        run_for(requests, &clap::Parser::parse_from(flags.chain(given.iter().copied())))
    }

    fn all_succeed(&self, path: &str, flags: &[&str]) -> LoadReport {
        let report = self.load(100, path, flags);
        assert!(report.successes > 0 && report.errors.is_empty(), "{path} {flags:?}: {report:?}");
        report
    }

    /// What `http2_service.js` has counted.
    fn counts(&self) -> Value {
        let report = self.load(1, "/counts", &["--expect-body=never", "--clients=1"]);
        serde_json::from_str(&report.failures[0].received).unwrap()
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

#[test]
fn requests_of_several_clients_share_connections() {
    for with_tls in [false, true] {
        let peer = Peer::node(with_tls);
        let flags = ["-d", "n={{int:7..7}}", "-H", "X-Test: a", "--expect-body", "^n=7$"];
        let closed = peer.all_succeed("/echo", &flags);
        assert_eq!(closed.connects, 2, "{closed:?}");
        // What the generator takes for itself is no time of a request, and is not lost.
        assert!(closed.think_secs > 0.0 && closed.little_residual().unwrap().abs() < 1e-3, "{closed:?}");
        let open = peer.all_succeed("/echo", &[&flags[..], &["--rate=200"]].concat());
        assert!(open.schedule.unwrap().sent > 0 && open.connects == 2);
        let large = peer.all_succeed("/big", &["--expect-body", "xxx$"]);
        assert!(large.first_byte.unwrap().count == large.attempts && large.connects == 2);
        // Longer than any window of Node.
        let body = format!("--data={}", "y".repeat(100_000));
        let posted = peer.all_succeed("/echo", &[&body, "--expect-body=yyy$"]);
        assert_eq!(posted.connects, 2, "{posted:?}");
        // More than the server allows, from the first request on.
        let many = peer.all_succeed("/echo", &[&flags[..], &["--clients=32", "--streams=32"]].concat());
        assert_eq!(many.connects, 1, "{many:?}");
        let counts = peer.counts();
        let seen = counts["seen"].as_array().unwrap();
        let host = peer.origin.split("//").nth(1).unwrap();
        assert!(seen.iter().all(|seen| seen["authority"] == host && seen["method"] == "POST"), "{seen:?}");
    }
}

#[test]
fn an_answer_in_parts_has_its_first_byte_before_its_end() {
    let peer = Peer::node(false);
    for flags in [&[][..], &["--rate=30"]] {
        let report = peer.all_succeed("/slow-body", flags);
        let (first, all) = (report.first_byte.unwrap(), report.service.unwrap_or(report.latency));
        assert_eq!(first.count, report.attempts);
        assert!(first.us_min < 150_000.0 && all.us_min > 190_000.0, "{first:?} {all:?}");
    }
}

#[test]
fn what_a_server_breaks_is_counted_as_what_it_is() {
    let peer = Peer::node(true);
    for (path, flags, class) in [
        ("/reset", &[][..], "stream_reset"),
        ("/lost", &["--streams=1"], "reset"),
        ("/cut", &["--streams=1"], "closed_early"),
        ("/silent", &["--timeout=100ms"], "timeout"),
        ("/unavailable", &[], "http_5xx"),
        ("/ok", &["--expect=200"], "http_4xx"),
    ] {
        let report = peer.load(8, path, flags);
        let classes: Vec<&str> = report.errors.keys().map(String::as_str).collect();
        assert_eq!((classes, report.successes), (vec![class], 0), "{path}");
    }
    // A request that is given up is reset, so that the server need not go on with it.
    assert!(peer.counts()["resets"].as_u64().unwrap() > 0);
}

#[test]
fn a_connection_that_the_server_ends_in_order_loses_no_request() {
    let peer = Peer::node(false);
    let ended = peer.all_succeed("/goaway", &[]);
    assert!(ended.connects > 2, "{ended:?}");

    let server = Server::start("memory:", &[]);
    for with_tls in [false, true] {
        let nginx = Peer::nginx(with_tls, server.address);
        let ended = nginx.all_succeed("/readyz", &["--clients=32", "--streams=32"]);
        assert!(ended.connects >= ended.attempts / 51, "{ended:?}");
        let keys = ["--workload=mixed", "--keys=50", "--verify=all", "--rate=300"];
        assert!(nginx.all_succeed("", &keys).verified > 0);
        nginx.all_succeed(
            "",
            &[
                "--workload=mixed",
                "--mix=get=40,put=20,compare_and_put=40",
                "--keys=20",
                "--check=linearizability",
            ],
        );
    }
}

#[test]
fn a_server_without_http2_is_told_apart() {
    let authority = Authority::new();
    let flags = authority.flags("server");
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    for (server, scheme) in
        [(Server::start("memory:", &[]), "http"), (Server::start("memory:", &flags), "https")]
    {
        let url = format!("{scheme}://{}", server.address);
        let trusted = ["--insecure"];
        let flags = if scheme == "https" { &trusted[..] } else { &[] };
        let (output, _, stderr) = weir_load(&[&[&*url, "--http2"], flags].concat());
        assert_eq!(output.status.code(), Some(1));
        assert!(
            stderr.contains("the server does not speak HTTP/2; ") && stderr.contains("leave --http2 out"),
            "{stderr}"
        );
    }
    let (output, _, stderr) = weir_load(&["http://a", "--streams=2"]);
    assert!(output.status.code() == Some(2) && stderr.contains("--http2"), "{stderr}");
}
