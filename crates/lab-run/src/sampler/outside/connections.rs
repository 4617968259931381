//! What the connections of a service show: what each waits for, how long nobody got an answer, and what was lost.

use crate::sampler::sockets::diag::{Socket, UnixSocket};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::SocketAddr;

/// For so many milliseconds no connection was sent anything, although answers were due.
const SILENT_MS: [(u32, &str); 5] =
    [(50, "silent_50"), (100, "silent_100"), (200, "silent_200"), (400, "silent_400"), (800, "silent_800")];

/// What the connections of the service on `port` show, by name; `own` are its sockets.
pub(super) fn connections(sockets: &[Socket], port: u16, own: &HashSet<u32>) -> Vec<(&'static str, f64)> {
    let mut seen: Vec<_> = sockets.iter().filter_map(|of| Some((waits(of, port, own)?, 1.0))).collect();
    let of_server = || sockets.iter().filter(|of| of.local.port() == port);
    // A queue holds many connections. Where it is full, the kernel does not answer those that want to be in it.
    let queued: u32 = of_server().filter(|of| of.is_listener).map(|of| of.unread).sum();
    let outside = sockets.iter().filter(|of| of.is_connecting && of.peer.port() == port).count();
    seen.push(("accept_queue", f64::from(queued) + outside as f64));
    let open = || of_server().filter(|of| !of.is_listener);
    // A client that was answered and asked again in one tick of the kernel's clock has an answer due, as nearly all of them have.
    let due = open().filter(|of| of.unread > 0 || of.sent_last != Some(true)).count();
    let silent_ms = open().map(|of| of.sent_ms_ago).min().unwrap_or_default();
    // Where only some wait, others may have nothing to be sent.
    if due > 0 && 2 * due >= open().count() {
        let longer = SILENT_MS.iter().filter(|(ms, _)| silent_ms >= *ms);
        seen.extend(longer.map(|(_, name)| (*name, 1.0)));
    }
    seen
}

/// Removes connections of the service to itself, as those of a proxy to the program behind it: neither end is of `port`, and both are its
/// own, or one is of another listener of its own. What is not accepted yet is of no process.
pub(super) fn remove_inner(sockets: &mut Vec<Socket>, port: u16, own: &HashSet<u32>) {
    let (listeners, ends): (Vec<&Socket>, Vec<&Socket>) =
        sockets.iter().filter(|of| own.contains(&of.inode)).partition(|of| of.is_listener);
    let ports: HashSet<u16> =
        listeners.iter().map(|of| of.local.port()).filter(|other| *other != port).collect();
    let ends: HashSet<SocketAddr> = ends.iter().map(|of| of.local).collect();
    let is_of_service = |of: &Socket| of.local.port() == port || of.peer.port() == port;
    let is_here = |of: &Socket| {
        of.local.ip() == of.peer.ip() || of.local.ip().is_loopback() && of.peer.ip().is_loopback()
    };
    let is_to_own =
        |of: &Socket| ports.contains(&of.local.port()) || is_here(of) && ports.contains(&of.peer.port());
    let is_own = |of: &Socket| ends.contains(&of.local) && ends.contains(&of.peer);
    sockets.retain(|of| of.is_listener || is_of_service(of) || !is_to_own(of) && !is_own(of));
}

/// Of the Unix sockets of the service, whose open ones are `own`, those whose other end is that of another service.
pub(super) fn leaving(sockets: &[UnixSocket], own: &HashSet<u32>) -> HashSet<u32> {
    let listeners = sockets.iter().filter(|of| of.is_listener && own.contains(&of.inode));
    let names: HashSet<&[u8]> = listeners.filter_map(|of| of.name.as_deref()).collect();
    let is_accepted = |of: &UnixSocket| of.name.as_deref().is_some_and(|name| names.contains(name));
    let inner: HashSet<u32> = sockets.iter().filter(|of| is_accepted(of)).map(|of| of.inode).collect();
    let leaves = |of: &&UnixSocket| {
        let is_inner = |inode: &u32| own.contains(inode) || inner.contains(inode);
        !of.is_listener && !is_accepted(of) && of.peer != 0 && !is_inner(&of.peer)
    };
    sockets.iter().filter(leaves).map(|of| of.inode).collect()
}

/// What a connection waits for.
fn waits(of: &Socket, port: u16, own: &HashSet<u32>) -> Option<&'static str> {
    let is_server = of.local.port() == port;
    match () {
        () if of.is_listener || of.is_connecting => None,
        // Small segments wait until the one before them is acknowledged (Nagle), which the client puts off.
        () if is_server && of.unsent > 0 && of.unsent < of.segment => Some("held"),
        () if is_server && of.unsent > 0 => Some("sending"),
        // What it sent last was not answered yet.
        () if !is_server && own.contains(&of.inode) && of.sent_last == Some(true) => Some("downstream"),
        () => None,
    }
}

/// What the kernel counts of connections from their beginning, as it was in the last sample.
#[derive(Default)]
pub(super) struct Followed {
    /// By the number of the socket: segments sent again, and microseconds in which the client took no more.
    known: HashMap<u32, [u64; 2]>,
    /// Connections that found the accept queue full.
    refused: Option<f64>,
}

impl Followed {
    /// What happened since the sample before.
    pub(super) fn events(&mut self, sockets: &[Socket], port: u16) -> [(&'static str, f64); 3] {
        let (mut sent_again, mut closed_us) = (0, 0);
        let mut now = HashMap::new();
        for of in sockets.iter().filter(|of| of.local.port() == port && !of.is_listener) {
            let counts = [of.sent_again.into(), of.window_closed_us];
            let before = self.known.get(&of.inode).copied().unwrap_or_default();
            sent_again += counts[0].saturating_sub(before[0]);
            closed_us += counts[1].saturating_sub(before[1]);
            now.insert(of.inode, counts);
        }
        self.known = now;
        let refused = overflows(&fs::read_to_string("/proc/net/netstat").unwrap_or_default());
        let before = std::mem::replace(&mut self.refused, refused);
        let overflows = refused.zip(before).map_or(0.0, |(now, before)| (now - before).max(0.0));
        [
            ("retransmits", sent_again as f64),
            ("window_closed_secs", closed_us as f64 / 1e6),
            ("accept_overflows", overflows),
        ]
    }
}

/// How many connections found an accept queue full, of all on this machine: a line of names, and one of numbers.
fn overflows(netstat: &str) -> Option<f64> {
    let mut lines = netstat.lines().filter(|line| line.starts_with("TcpExt:"));
    let names = lines.next()?.split_ascii_whitespace();
    let mut both = names.zip(lines.next()?.split_ascii_whitespace());
    both.find(|(name, _)| *name == "ListenOverflows")?.1.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn socket(port: u16) -> Socket {
        let [local, peer] = [port, 0].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        Socket::between(local, peer)
    }

    #[test]
    fn a_pause_is_seen_where_answers_are_due_and_nobody_is_sent_one() {
        let due = |ms| Socket { unread: 10, sent_ms_ago: ms, ..socket(80) };
        let names = |sockets: &[Socket]| -> Vec<&str> {
            let seen = connections(sockets, 80, &HashSet::new());
            seen.iter().map(|of| of.0).filter(|name| name.starts_with("silent")).collect()
        };
        assert_eq!(names(&[due(120), due(300)]), ["silent_50", "silent_100"]);
        assert_eq!(names(&[due(120), due(3)]), [""; 0], "one of them was just answered");
        // Its request was read, in the tick in which the one before it was answered.
        let asked = Socket { sent_ms_ago: 120, ..socket(80) };
        assert_eq!(names(&[asked, due(300)]), ["silent_50", "silent_100"]);
        let idle = Socket { sent_ms_ago: 300, sent_last: Some(true), ..socket(80) };
        assert_eq!(names(&[idle, idle, idle, due(300)]), [""; 0], "most of them want nothing");
    }

    #[test]
    fn clients_that_a_full_queue_leaves_outside_wait_to_be_accepted() {
        let listener = Socket { is_listener: true, unread: 5, ..socket(80) };
        let outside = Socket { is_connecting: true, peer: socket(80).local, ..socket(40_000) };
        let seen = connections(&[listener, outside, outside], 80, &HashSet::new());
        assert_eq!(seen, [("accept_queue", 7.0)]);
    }

    /// A proxy and a program behind it, started by one command: the program waited for "another service".
    #[test]
    fn what_a_service_asks_of_itself_is_left_out() {
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let between = |inode, local, peer| Socket { inode, ..Socket::between(at(local), at(peer)) };
        let listens = |inode, port| Socket { is_listener: true, ..between(inode, port, 0) };
        let mut sockets = vec![
            listens(1, 80),
            listens(2, 81),
            between(3, 80, 50_000), // of a client
            between(4, 50_001, 81), // to the program, which has accepted it
            between(5, 81, 50_001),
            between(6, 50_002, 81), // and which has not
            between(0, 81, 50_002),
            between(7, 50_003, 5432), // to another service
            between(90, 5432, 50_003),
            between(9, 50_005, 82), // whose listener was closed
            between(10, 82, 50_005),
            between(8, 50_004, 80), // a check of its own
        ];
        remove_inner(&mut sockets, 80, &(1..11).collect());
        let left: Vec<u32> = sockets.iter().map(|of| of.inode).collect();
        assert_eq!(left, [1, 2, 3, 7, 90, 8]);
    }

    #[test]
    fn a_unix_socket_leaves_the_service_where_its_other_end_is_of_nobody_in_it() {
        let of = |inode, peer, name: &str| {
            let name = Some(name.as_bytes().to_vec()).filter(|name| !name.is_empty());
            UnixSocket { inode, peer, name, is_listener: false }
        };
        let listens = |inode, name| UnixSocket { is_listener: true, ..of(inode, 0, name) };
        let sockets = [
            listens(1, "/own"),
            listens(91, "/database"),
            of(2, 92, ""), // to the database
            of(92, 2, "/database"),
            of(3, 4, ""), // a pair
            of(4, 3, ""),
            of(5, 93, ""), // to its own listener, accepted since its sockets were listed
            of(93, 5, "/own"),
            of(6, 0, ""),      // not accepted
            of(7, 94, "/own"), // of a client
            of(94, 7, ""),
        ];
        let own = (1..8).collect();
        let mut found: Vec<u32> =
            leaving(&sockets, &own).into_iter().filter(|inode| own.contains(inode)).collect();
        found.sort_unstable();
        assert_eq!(found, [2]);
    }

    #[test]
    fn events_are_counted_from_one_sample_to_the_next() {
        let mut followed = Followed::default();
        let with = |sent_again, window_closed_us| [Socket { sent_again, window_closed_us, ..socket(80) }];
        followed.events(&with(2, 0), 80);
        let [again, closed, _] = followed.events(&with(5, 500_000), 80);
        assert_eq!((again, closed), (("retransmits", 3.0), ("window_closed_secs", 0.5)));
        let netstat = "TcpExt: SyncookiesSent ListenOverflows\nTcpExt: 0 17\nIpExt: A\nIpExt: 3\n";
        assert_eq!(overflows(netstat), Some(17.0));
        assert_eq!(overflows("IpExt: A\nIpExt: 3\n"), None);
    }
}
