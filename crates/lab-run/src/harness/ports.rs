//! Free ports for programs that have to be told theirs, and for servers that are started again where they were.

use kv::Error;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

/// Below those that Linux gives to clients and to whoever asks for any: a port that a restarted server has left for a
/// moment goes to nobody else.
const PORTS: std::ops::Range<u16> = 10_000..32_768;

/// Where the last search ended, counted from the first port. Whoever was given a port may take it much later: the next search of this
/// process goes on behind it.
static LAST: Mutex<Option<usize>> = Mutex::new(None);

/// How often a start is tried.
const TRIES: usize = 4;

/// So many different ports of 127.0.0.1 that nobody listens at.
pub fn free_ports(count: usize) -> Result<Vec<u16>, Error> {
    free_ports_at(&[Ipv4Addr::LOCALHOST], count)
}

/// So many different ports that are free at each of these addresses.
pub(super) fn free_ports_at(addresses: &[Ipv4Addr], count: usize) -> Result<Vec<u16>, Error> {
    // A number is right whatever another thread did.
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    // Another process that looks at the same time begins elsewhere.
    let first = last.unwrap_or_else(|| RandomState::new().hash_one(std::process::id()) as usize);
    let first = first % PORTS.len();
    let is_free = |port: &u16| addresses.iter().all(|at| TcpListener::bind((*at, *port)).is_ok());
    let ports: Vec<u16> = PORTS.cycle().skip(first).take(PORTS.len()).filter(is_free).take(count).collect();
    *last = ports.last().map(|port| usize::from(port - PORTS.start) + 1);
    if ports.len() < count {
        return Err(Error::new(format_args!(
            "no free port from {} to {} of {addresses:?}",
            PORTS.start,
            PORTS.end - 1
        )));
    }
    Ok(ports)
}

/// Has `start` start what takes free ports: between finding one and taking it another process may be quicker.
pub(super) fn on_free_ports<T>(mut start: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    for _ in 1..TRIES {
        match start() {
            Err(why) if is_port_taken(&why.to_string()) => {}
            done => return done,
        }
    }
    start()
}

/// Whether a program said that its port is in use.
pub(super) fn is_port_taken(said: &str) -> bool {
    said.to_ascii_lowercase().contains("address already in use")
}
