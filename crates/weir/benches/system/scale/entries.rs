//! Rows in the cache: what one takes, and what a hit costs among many.

use super::load::{Loaded, WINDOWS, window};
use super::row::Row;
use crate::support::Server;
use cache::{Cache, Limits, policy};
use kv::{Key, Row as Held, Version};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::thread;

/// Rows.
const LEVELS: &[u64] = &[10_000, 100_000, 1_000_000, 10_000_000];
/// Up to here the store is measured without a cache as well; what it takes does not change beyond.
const ALONE_MAX: u64 = 1_000_000;
const VALUE_BYTES: usize = 100;
/// More rows than are put in: the limits are divided among locks, and keys do not spread evenly.
const ROOM: usize = 13_000_000;
/// Connections that fill, each with so many requests under way.
const FILLERS: u64 = 64;
const PIPELINED: u64 = 64;

/// Rows in a cache of this very process: nothing else grows there.
pub(super) fn in_process(rows: &mut Vec<Row>) {
    let limits = Limits { entries: ROOM, bytes: usize::MAX / 2 };
    let cache = Cache::new(limits, 16, policy::find("lru").expect("the default policy"));
    let before = resident_bytes();
    let (mut held, mut plain) = (0, 0);
    for &level in LEVELS {
        for number in held..level {
            let (key, value) = (key(number), value(number));
            plain += (key.len() + value.len()) as u64;
            let row = Held::new(&Key::new(key.as_bytes()).expect("a short key"), "", &value, Version(number));
            let place = cache.place(key.as_bytes());
            assert!(cache.insert(place, row), "the cache has room");
        }
        held = level;
        let grown = resident_bytes() - before;
        rows.push(Row {
            series: "cache",
            level,
            memory_bytes: Some((grown - plain as f64) / level as f64),
            resident_bytes: Some(resident_bytes()),
            ..Row::default()
        });
    }
}

/// Rows in a server: with the cache, which shares them with the store in memory, and in the store alone.
pub(super) fn served(rows: &mut Vec<Row>) {
    for (series, entries) in [("store_alone", "0"), ("get_by_entries", "13000000")] {
        let has_cache = entries != "0";
        let server =
            Server::start(&["--store", "memory:", "--cache-entries", entries, "--cache-bytes", "16GiB"]);
        // Once, so that what a server makes at its first requests is there before.
        fill(&server, 0..FILLERS);
        let before = server.resident_bytes() as f64;
        let mut held = 0;
        for &level in LEVELS.iter().filter(|level| has_cache || **level <= ALONE_MAX) {
            fill(&server, held..level);
            held = level;
            let plain: u64 = (0..level).map(|number| (key_bytes(number) + VALUE_BYTES) as u64).sum();
            let resident = server.resident_bytes() as f64;
            let keys = level.to_string();
            let args = ["--workload", "get_all", "--no-preload", "--clients", "64", "--keys", keys.as_str()];
            let windows: Vec<_> =
                (0..if has_cache { WINDOWS } else { 0 }).map(|_| window(&server, &args)).collect();
            rows.push(Row {
                series,
                level,
                memory_bytes: Some((resident - before - plain as f64) / level as f64),
                resident_bytes: Some(resident),
                load: has_cache.then(|| Loaded::of(&windows, VALUE_BYTES as u64)),
                ..Row::default()
            });
        }
    }
}

/// As `weir load` names them.
fn key(number: u64) -> String {
    format!("all_{number}")
}

fn key_bytes(number: u64) -> usize {
    "all_".len() + number.checked_ilog10().map_or(1, |digits| digits as usize + 1)
}

/// As `weir load` knows them again: they begin with their key.
fn value(number: u64) -> Vec<u8> {
    let mut value = format!("{}=", key(number)).into_bytes();
    value.resize(VALUE_BYTES, b'x');
    value
}

/// Writes these rows over many connections.
fn fill(server: &Server, numbers: Range<u64>) {
    let address = server.url().trim_start_matches("http://");
    thread::scope(|scope| {
        for filler in 0..FILLERS {
            let mine = numbers.clone().skip(filler as usize).step_by(FILLERS as usize);
            scope.spawn(move || fill_over(address, mine));
        }
    });
}

fn fill_over(address: &str, mut numbers: impl Iterator<Item = u64>) {
    let mut peer = TcpStream::connect(address).expect("the server listens");
    let (mut requests, mut answers) = (Vec::new(), Vec::new());
    loop {
        requests.clear();
        let mut asked = 0;
        for number in numbers.by_ref().take(PIPELINED as usize) {
            let head = format!(
                "PUT /kv/{} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {VALUE_BYTES}\r\n\r\n",
                key(number)
            );
            requests.extend_from_slice(head.as_bytes());
            requests.extend_from_slice(&value(number));
            asked += 1;
        }
        if asked == 0 {
            return;
        }
        peer.write_all(&requests).expect("the server takes them");
        answers.clear();
        while memchr::memmem::find_iter(&answers, b"\r\n\r\n").count() < asked {
            let mut piece = [0; 16 << 10];
            let bytes = peer.read(&mut piece).expect("the server answers");
            assert!(bytes > 0, "the server ended the connection: {}", answers.escape_ascii());
            answers.extend_from_slice(&piece[..bytes]);
        }
        let made = memchr::memmem::find_iter(&answers, b"HTTP/1.1 20").count();
        assert_eq!(made, asked, "{}", answers.escape_ascii());
    }
}

/// Of this process, in bytes.
fn resident_bytes() -> f64 {
    let statm = fs::read_to_string("/proc/self/statm").expect("Linux says how large a process is");
    let pages: f64 = statm.split_whitespace().nth(1).and_then(|pages| pages.parse().ok()).expect("a number");
    pages * rustix::param::page_size() as f64
}
