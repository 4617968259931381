//! Which connections lead to the target, which of them a sample asks for, and what it shows of all.

use super::diag::{Socket, Source};
use super::observed::Places;
use lab_data::experiment::address;
use rand_xoshiro::rand_core::Rng;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// How many connections a sample asks for.
const SAMPLE: usize = 8;

/// Where connections lead. What stands between generator and server has a connection to either.
pub(super) struct Listeners {
    /// The server.
    servers: Vec<SocketAddr>,
    /// What the generator connects to: the server, or what stands before it.
    loaded: Vec<SocketAddr>,
}

impl Listeners {
    /// Of the servers and of what is loaded, by their addresses now: the generator resolves no more often.
    pub(super) fn resolved(server_urls: &[String], loaded_urls: &[String]) -> Option<Listeners> {
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        let of =
            |url: &String| Some(address(url)?.to_socket_addrs().ok()?.map(canonical).collect::<Vec<_>>());
        let all = |urls: &[String]| Some(urls.iter().map(of).collect::<Option<Vec<_>>>()?.concat());
        Some(Listeners { servers: all(server_urls)?, loaded: all(loaded_urls)? })
    }

    /// All connections to them of which both ends are here.
    pub(super) fn connections(&self, source: &mut Source) -> io::Result<Vec<Connection>> {
        Ok(connections(&source.all(&self.ports())?, self))
    }

    fn all(&self) -> impl Iterator<Item = &SocketAddr> {
        self.servers.iter().chain(&self.loaded)
    }

    fn ports(&self) -> BTreeSet<u16> {
        self.all().map(SocketAddr::port).collect()
    }
}

/// A connection that leads to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Connection {
    client: SocketAddr,
    server: SocketAddr,
}

/// Some of the connections, each as its two ends in the order they are asked for; `known` is left in another order.
pub(super) fn choose(known: &mut [Connection], rng: &mut impl Rng) -> Vec<(SocketAddr, SocketAddr)> {
    let count = known.len().min(SAMPLE);
    for at in 0..count {
        let rest = known.len() - at;
        known.swap(at, at + rng.next_u32() as usize % rest);
    }
    let ordered = |of: &Connection| match rng.next_u32() >> 31 {
        0 => (of.client, of.server),
        _ => (of.server, of.client),
    };
    known[..count].iter().map(ordered).collect()
}

fn connections(ends: &[Socket], listeners: &Listeners) -> Vec<Connection> {
    let is_listener = |address: &SocketAddr| listeners.all().any(|of| of == address);
    let servers: HashSet<(SocketAddr, SocketAddr)> =
        ends.iter().filter(|end| is_listener(&end.local)).map(|end| (end.local, end.peer)).collect();
    let clients = ends.iter().filter(|end| servers.contains(&(end.peer, end.local)));
    clients.map(|end| Connection { client: end.local, server: end.peer }).collect()
}

/// The places of `known` connections of which some were sampled, and whether any of these is gone. `found` has both
/// ends of each, one after the other in the order they were asked for.
pub(super) fn places(found: &[Option<Socket>], known: usize, listeners: &Listeners) -> (Places, bool) {
    let mut places = Places::default();
    let both = |pair: &[Option<Socket>]| Some([pair[0]?, pair[1]?]);
    for pair in found.chunks_exact(2).filter_map(both) {
        places.connections += 1.0;
        // Where it was first seen. A request that is answered while its two ends are asked for is not two.
        match pair.into_iter().find(|end| end.unread > 0) {
            Some(end) if listeners.servers.contains(&end.local) => places.server_unread += 1.0,
            Some(end) if listeners.loaded.contains(&end.peer) => places.generator_unread += 1.0,
            _ => {}
        }
    }
    let missing = places.connections < (found.len() / 2) as f64;
    let mut of_all = Places::default();
    of_all.add(places, known as f64 / places.connections.max(1.0));
    (of_all, missing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand_xoshiro::Xoshiro256PlusPlus;
    use rand_xoshiro::rand_core::SeedableRng;
    use std::collections::HashMap;

    /// Both ends of a connection from port `from` to port 80, with what is unread at server and generator; the server's was sampled first.
    fn pair(from: u16, server: u32, generator: u32) -> [Socket; 2] {
        pair_to(80, from, server, generator)
    }

    fn pair_to(to: u16, from: u16, server: u32, generator: u32) -> [Socket; 2] {
        let (client, target) = (local(from), local(to));
        let end = |local, peer, unread| Socket { unread, ..Socket::between(local, peer) };
        [end(target, client, server), end(client, target, generator)]
    }

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn listeners(server: u16, loaded: u16) -> Listeners {
        Listeners { servers: vec![local(server)], loaded: vec![local(loaded)] }
    }

    /// The places of connections that were all sampled.
    fn places_of(ends: &[Socket], listeners: &Listeners) -> Places {
        let known = connections(ends, listeners);
        let found: Vec<Option<Socket>> = ends.iter().copied().map(Some).collect();
        let (places, missing) = places(&found, known.len(), listeners);
        assert!(!missing);
        places
    }

    #[test]
    fn of_what_stands_between_neither_end_is_the_generators_or_the_servers() {
        let ends = [
            pair_to(90, 1001, 5, 0),
            pair_to(90, 1002, 0, 5),
            pair_to(80, 2001, 5, 0),
            pair_to(80, 2002, 0, 5),
        ]
        .concat();
        let expected = Places { server_unread: 1.0, generator_unread: 1.0, connections: 4.0 };
        assert_eq!(places_of(&ends, &listeners(80, 90)), expected);
        assert_eq!(listeners(80, 90).ports().len(), 2);
        assert_eq!(listeners(80, 80).ports().len(), 1, "the same is not asked twice");
    }

    #[test]
    fn a_connection_is_in_one_place() {
        let mut ends: Vec<Socket> =
            [pair(1001, 5, 0), pair(1002, 5, 7), pair(1003, 0, 7), pair(1004, 0, 0)].concat();
        let expected = Places { server_unread: 2.0, generator_unread: 1.0, connections: 4.0 };
        assert_eq!(places_of(&ends, &listeners(80, 80)), expected);
        // One end alone is on its way in or out, or its other end is elsewhere.
        ends.extend(&pair(1007, 5, 0)[..1]);
        ends.extend(&pair(1008, 0, 5)[1..]);
        assert_eq!(connections(&ends, &listeners(80, 80)).len(), 4);
        assert_eq!(connections(&ends, &listeners(81, 81)), []);
    }

    #[test]
    fn a_request_that_is_answered_between_the_looks_at_its_ends_is_where_it_was_first_seen() {
        let [server, client] = pair(1001, 5, 7);
        for (found, expected) in [([server, client], (1.0, 0.0)), ([client, server], (0.0, 1.0))] {
            let found = found.map(Some);
            let (places, _) = places(&found, 1, &listeners(80, 80));
            assert_eq!((places.server_unread, places.generator_unread), expected);
        }
    }

    #[test]
    fn the_share_of_those_looked_at_stands_for_all_and_one_that_is_gone_for_none() {
        let seen = [pair(1001, 5, 0), pair(1002, 0, 0)].concat();
        let mut found: Vec<Option<Socket>> = seen.into_iter().map(Some).collect();
        let (all_there, missing) = places(&found, 10, &listeners(80, 80));
        assert_eq!((all_there.server_unread, all_there.connections, missing), (5.0, 10.0, false));
        found.extend([None, Some(pair(1003, 0, 5)[1])]);
        assert_eq!(places(&found, 10, &listeners(80, 80)), (all_there, true));
        assert_eq!(places(&[None, None], 10, &listeners(80, 80)), (Places::default(), true));
        assert_eq!(places(&[], 0, &listeners(80, 80)), (Places::default(), false));
    }

    #[test]
    fn each_connection_is_chosen_as_often_as_any_other_and_either_end_first() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let server = local(80);
        let mut known: Vec<Connection> =
            (1..=16).map(|port| Connection { client: local(port), server }).collect();
        let (mut chosen, mut server_first) = (HashMap::new(), 0);
        for _ in 0..1000 {
            let sample = choose(&mut known, &mut rng);
            let ports = sample.iter().map(|(one, other)| one.port().min(other.port()));
            assert_eq!(ports.clone().collect::<HashSet<u16>>().len(), SAMPLE, "none twice in one sample");
            ports.for_each(|port| *chosen.entry(port).or_insert(0) += 1);
            server_first += sample.iter().filter(|(first, _)| *first == server).count();
        }
        // 8000 draws of 16: 500 each, give or take 16.
        assert!(chosen.len() == 16 && chosen.values().all(|count| (400..600).contains(count)), "{chosen:?}");
        assert!((3700..4300).contains(&server_first), "{server_first}");
        assert_eq!(choose(&mut known[..2], &mut rng).len(), 2);
        assert_eq!(choose(&mut [], &mut rng), []);
    }
}
