//! How many user instructions one cached GET and one durable PUT take, by callgrind.
//!
//! Unlike a time this does not depend on the neighbours. Two runs of the same server with different numbers of requests
//! differ by those requests alone.

use crate::support::{SERVER_CORE, Server, on_core, weir};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

/// Requests of the shorter and of the longer run; multiples of [`CLIENTS`].
const FEW: u64 = 2_560;
const MANY: u64 = 15_360;
/// Connections that ask in turn: alone, a request also pays for waking the server.
const CLIENTS: [u64; 2] = [1, 64];

/// Prints the instructions of one request of each kind.
pub(crate) fn run() {
    let head = |method: &str, field: &str| {
        format!("{method} /kv/popular_1 HTTP/1.1\r\nHost: 127.0.0.1:8080\r\n{field}\r\n")
    };
    let put = [head("PUT", "Content-Length: 100\r\n").as_bytes(), &[b'x'; 100]].concat();
    for (name, request) in [
        ("GET of 100 B, cached", head("GET", "").into_bytes()),
        ("PUT of 100 B, store in memory", put.clone()),
    ] {
        for clients in CLIENTS {
            let [few, many] = [FEW, MANY].map(|requests| instructions(&put, &request, requests, clients));
            let each = (many - few) as f64 / (MANY - FEW) as f64;
            println!("  {name:<30} {clients:>3} clients  {each:>7.0} user instructions");
        }
    }
}

/// Instructions of a whole server that took `first` and then answered `request` so many times.
fn instructions(first: &[u8], request: &[u8], requests: u64, clients: u64) -> u64 {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let counts = dir.path().join("callgrind.out");
    let mut command = on_core(SERVER_CORE, "valgrind");
    command.args(["--quiet", "--tool=callgrind", &format!("--callgrind-out-file={}", counts.display())]);
    command.args([weir(), "serve", "--listen", "127.0.0.1:0", "--workers", "1", "--store", "memory:"]);
    command.stderr(Stdio::null());
    let mut server = Server::listening(command);
    {
        let address = server.url().trim_start_matches("http://").to_owned();
        let connect = |_| TcpStream::connect(&address).expect("the server listens");
        let mut peers: Vec<TcpStream> = (0..clients).map(connect).collect();
        send(&mut peers[0], first);
        receive(&mut peers[0]);
        for _ in 0..requests / clients {
            peers.iter_mut().for_each(|peer| send(peer, request));
            peers.iter_mut().for_each(receive);
        }
    }
    server.end();
    total(&counts)
}

fn send(peer: &mut TcpStream, request: &[u8]) {
    peer.write_all(request).expect("the server takes it");
}

fn receive(peer: &mut TcpStream) {
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
