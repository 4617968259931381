//! Connections: what an idle one holds, what many idle ones cost the busy ones, and how many busy ones pay.

use super::load::{Loaded, WINDOWS, Window, window};
use super::row::Row;
use crate::support::Server;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

/// Idle connections.
const IDLE: &[u64] = &[0, 1_000, 10_000];
/// Busy ones.
const BUSY: &[u64] = &[1, 16, 64, 256, 1_000];
const VALUE_BYTES: u64 = 100;

/// 64 busy clients beside idle connections, each of which made a request.
pub(super) fn idle(rows: &mut Vec<Row>) {
    let server = Server::start(&["--store", "memory:", "--idle-timeout", "10m"]);
    let args = ["--workload", "get_popular", "--clients", "64"];
    // What 64 busy clients leave behind is not the idle ones'.
    window(&server, &args);
    let (resident, kernel) = (server.resident_bytes() as f64, kernel_bytes());
    let mut peers = Vec::new();
    for &level in IDLE {
        while (peers.len() as u64) < level {
            peers.push(used(&server));
        }
        let each = |grown: f64| (level > 0).then(|| grown / level as f64);
        let now = server.resident_bytes() as f64;
        let (memory_bytes, kernel_bytes) = (each(now - resident), each(kernel_bytes() - kernel));
        let windows: Vec<_> = (0..WINDOWS).map(|_| window(&server, &args)).collect();
        rows.push(Row {
            series: "get_beside_idle",
            level,
            memory_bytes,
            kernel_bytes,
            resident_bytes: Some(now),
            load: Some(Loaded::of(&windows, VALUE_BYTES)),
        });
    }
}

/// More and more busy clients, the levels in turn.
pub(super) fn busy(rows: &mut Vec<Row>) {
    let server = Server::start(&["--store", "memory:"]);
    let mut windows: Vec<Vec<Window>> = BUSY.iter().map(|_| Vec::new()).collect();
    for _ in 0..WINDOWS {
        for (level, windows) in BUSY.iter().zip(&mut windows) {
            let args = ["--workload", "get_popular", "--clients", &level.to_string()];
            windows.push(window(&server, &args));
        }
    }
    rows.extend(BUSY.iter().zip(windows).map(|(&level, windows)| Row {
        series: "get_by_clients",
        level,
        load: Some(Loaded::of(&windows, VALUE_BYTES)),
        ..Row::default()
    }));
}

/// A connection that made a request and keeps still.
fn used(server: &Server) -> TcpStream {
    let address = server.url().trim_start_matches("http://");
    let mut peer = TcpStream::connect(address).expect("the server listens");
    peer.write_all(b"GET /kv/popular_1 HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("the server takes it");
    let mut answer = [0; 4096];
    // On loopback an answer this small comes whole.
    let bytes = peer.read(&mut answer).expect("the server answers");
    assert!(answer[..bytes].starts_with(b"HTTP/1.1 200"), "{}", answer[..bytes].escape_ascii());
    peer
}

/// The kernel's own objects of the whole machine, in bytes: sockets, files and what watches them among others.
fn kernel_bytes() -> f64 {
    let memory = fs::read_to_string("/proc/meminfo").expect("Linux says what memory is for");
    let line = memory.lines().find_map(|line| line.strip_prefix("Slab:")).expect("Slab is told");
    line.split_whitespace().next().and_then(|kib| kib.parse::<f64>().ok()).expect("a number of kB") * 1024.0
}
