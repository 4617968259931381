//! How many user instructions one cached GET and one durable PUT take, by callgrind.
//!
//! Unlike a time this does not depend on the neighbours. Two runs of the same server with different numbers of requests
//! differ by those requests alone.

use crate::support::{SERVER_CORE, Server, on_core, weir};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;

/// Requests of the shorter and of the longer run.
const FEW: u64 = 2_000;
const MANY: u64 = 12_000;

/// Prints the instructions of one request of each kind.
pub(crate) fn run() {
    for (name, head, body) in [
        ("GET hit of 100 B", "GET /kv/popular_1 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n\r\n".to_owned(), 0),
        (
            "PUT of 100 B, one client, store in memory",
            "PUT /kv/popular_1 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nContent-Length: 100\r\n\r\n".to_owned(),
            100,
        ),
    ] {
        let request = [head.as_bytes(), &vec![b'x'; body]].concat();
        let [few, many] = [FEW, MANY].map(|requests| instructions(&request, requests));
        println!("{name}: {:.0} user instructions", (many - few) as f64 / (MANY - FEW) as f64);
    }
}

/// Instructions of a whole server that answered `request` so many times.
fn instructions(request: &[u8], requests: u64) -> u64 {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let counts = dir.path().join("callgrind.out");
    let mut command = on_core(SERVER_CORE, "valgrind");
    command.args(["--quiet", "--tool=callgrind", &format!("--callgrind-out-file={}", counts.display())]);
    command.args([weir(), "serve", "--listen", "127.0.0.1:0", "--workers", "1", "--store", "memory:"]);
    let mut server = Server::listening(command);
    {
        let address = server.url().trim_start_matches("http://").to_owned();
        let mut peer = TcpStream::connect(address).expect("the server listens");
        let put = [
            b"PUT /kv/popular_1 HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n".as_slice(),
            &[b'x'; 100],
        ]
        .concat();
        exchange(&mut peer, &put);
        (0..requests).for_each(|_| exchange(&mut peer, request));
    }
    server.end();
    total(&counts)
}

/// Sends a request and reads its answer.
fn exchange(peer: &mut TcpStream, request: &[u8]) {
    peer.write_all(request).expect("the server takes it");
    let mut answer = [0; 4096];
    // On loopback an answer this small comes whole.
    let bytes = peer.read(&mut answer).expect("the server answers");
    assert!(answer[..bytes].starts_with(b"HTTP/1.1 20"), "{}", answer[..bytes].escape_ascii());
}

fn total(counts: &Path) -> u64 {
    let text = fs::read_to_string(counts).expect("callgrind wrote its counts");
    let line = text.lines().find_map(|line| line.strip_prefix("summary: ").or(line.strip_prefix("totals: ")));
    line.and_then(|number| number.trim().parse().ok()).expect("callgrind says the total")
}
