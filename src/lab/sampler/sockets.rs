//! Where requests and answers lie unread: at the server, at the generator, or on their way.
//!
//! A request that nobody has read waits for the server's workers, an answer that nobody has read waits for the generator;
//! neither program can count them. A thread looks at a few connections to the target, chosen at random, at random times, until the
//! sampler is dropped. Their share stands for all connections until it looks again, so the counters are connection-seconds,
//! and over the time of a window they are mean numbers of connections.
//!
//! A look must be short: while it takes a core from the server or the generator, the other goes on, and what it sends lies unread.
//! So a look at all connections is taken seldom, after a look that counts, and only to learn which ones there are. Where the
//! ends of no connection were seen, because they are on two machines or in namespaces apart, there are no counters.

use super::diag::{End, Questions, Source};
use super::stats::address;
use super::{Context, Reading, Sampler};
use parking_lot::Mutex;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity, set_current_timer_slack};
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How many connections a look asks for.
const SAMPLE: usize = 4;
/// Looks from one core before the next: to go there costs more than a look.
const STAY: usize = 4;
/// Between two looks on average, where a look is cheap enough.
const PERIOD_MIN: Duration = Duration::from_millis(25);
/// However expensive it is.
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// Of one core's time, for looks.
const COST_MAX_RATIO: f64 = 0.002;
/// Processor time that lists of all connections may take beyond that share: a generator that makes its connections has to be followed.
const LISTS_SECS: f64 = 0.01;
/// No look counts for more towards that.
const LOOK_MAX: Duration = Duration::from_millis(1);
/// How many looks a mean over the last ones is taken over.
const MEMORY: f64 = 8.0;
/// Between any two looks: what the last one held up has gone its way, also after a look at all connections.
const GAP_MIN: Duration = Duration::from_millis(5);
/// How often all connections are looked at while none is known or their number changes: a generator makes its connections one by one.
const REFRESH_NEW: Duration = Duration::from_millis(50);
/// How soon again once one is gone.
const REFRESH_MIN: Duration = Duration::from_millis(200);
/// How soon in any case, for those that are new.
const REFRESH_MAX: Duration = Duration::from_secs(4);

pub(super) fn make(context: &Context) -> Option<Box<dyn Sampler>> {
    let loaded = context.load_url.as_deref()?;
    let listeners =
        Listeners { servers: resolved(context.url.as_deref().unwrap_or(loaded))?, loaded: resolved(loaded)? };
    Some(Box::new(Sockets::start(listeners, Posts::among(&context.cores))))
}

/// Once: the generator resolves no more often.
fn resolved(url: &str) -> Option<Vec<SocketAddr>> {
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    Some(address(url)?.to_socket_addrs().ok()?.map(canonical).collect())
}

/// Where connections lead. What stands between generator and server has a connection to either.
struct Listeners {
    /// The server.
    servers: Vec<SocketAddr>,
    /// What the generator connects to: the server, or what stands before it.
    loaded: Vec<SocketAddr>,
}

impl Listeners {
    fn all(&self) -> impl Iterator<Item = &SocketAddr> {
        self.servers.iter().chain(&self.loaded)
    }

    fn ports(&self) -> BTreeSet<u16> {
        self.all().map(SocketAddr::port).collect()
    }
}

struct Sockets {
    seen: Arc<Mutex<Seen>>,
    /// Dropped, it ends the thread.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The cores to look from. A core that looks does nothing else meanwhile, and what the others send to it lies unread: from
/// a core of the server the server's queue is too long, from one of the generator's the generator's. So it is none of theirs, or
/// one after the other.
struct Posts {
    sets: Vec<CpuSet>,
    looks: usize,
}

impl Posts {
    /// Those that no part runs on, together; where there are none, each of `busy`.
    fn among(busy: &[usize]) -> Posts {
        let allowed = sched_getaffinity(None).unwrap_or_default();
        let of = |cores: &[usize]| {
            let mut set = CpuSet::new();
            cores.iter().for_each(|core| set.set(*core));
            set
        };
        let free: Vec<usize> =
            (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core) && !busy.contains(core)).collect();
        let sets = match free.as_slice() {
            [] => busy.iter().map(|core| of(&[*core])).collect(),
            free => vec![of(free)],
        };
        Posts { sets, looks: 0 }
    }

    /// Before each look: goes to the next post after some.
    fn turn(&mut self) {
        let count = self.sets.len();
        if count > 0 && self.looks.is_multiple_of(STAY) && (count > 1 || self.looks == 0) {
            // Where it is not allowed to, the thread stays where the kernel puts it.
            let _ = sched_setaffinity(None, &self.sets[self.looks / STAY % count]);
        }
        self.looks += 1;
    }
}

/// How many connections are in each place; one is in one place only.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Places {
    server_unread: f64,
    generator_unread: f64,
    unsent: f64,
    /// All.
    connections: f64,
}

/// A connection that leads to a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Connection {
    client: SocketAddr,
    server: SocketAddr,
}

/// What was seen so far.
#[derive(Debug)]
struct Seen {
    /// What the last look showed, and until when it has been counted; `None` where it showed nothing.
    last: Option<Places>,
    until: Instant,
    /// Whether both ends of any connection were ever seen.
    live: bool,
    samples: f64,
    /// The share of looks that met none of the connections they asked for: a mean that forgets.
    missed_ratio: f64,
    observed_secs: f64,
    server_unread_secs: f64,
    generator_unread_secs: f64,
    unsent_secs: f64,
    /// Processor time of a look: a mean that forgets.
    look_secs: f64,
    /// And of all that the thread does.
    cost_secs: f64,
}

impl Seen {
    fn new(now: Instant) -> Seen {
        Seen {
            last: None,
            until: now,
            live: false,
            samples: 0.0,
            missed_ratio: 0.0,
            observed_secs: 0.0,
            server_unread_secs: 0.0,
            generator_unread_secs: 0.0,
            unsent_secs: 0.0,
            look_secs: 0.0,
            cost_secs: 0.0,
        }
    }

    /// What the last look showed stands until `now`.
    fn stand(&mut self, now: Instant) {
        let secs = now.saturating_duration_since(self.until).as_secs_f64();
        if let Some(last) = self.last {
            self.observed_secs += secs;
            self.server_unread_secs += secs * last.server_unread;
            self.generator_unread_secs += secs * last.generator_unread;
            self.unsent_secs += secs * last.unsent;
        }
        self.until = self.until.max(now);
    }

    /// A look met nobody: until the next one nothing is known.
    fn miss(&mut self, now: Instant) {
        self.stand(now);
        self.last = None;
        self.missed_ratio += (1.0 - self.missed_ratio) / MEMORY;
    }

    /// Whether connections are gone before they can be looked at, so that what is seen of them says nothing.
    fn is_too_late(&self) -> bool {
        self.missed_ratio > 0.5
    }

    fn look(&mut self, now: Instant, places: Places, look_secs: f64) {
        self.stand(now);
        self.last = Some(places);
        self.missed_ratio -= self.missed_ratio / MEMORY;
        self.live |= places.connections > 0.0;
        self.samples += 1.0;
        // A virtual core that was taken away counts as used: such a look says nothing of the next.
        let change = look_secs.min(LOOK_MAX.as_secs_f64()) - self.look_secs;
        self.look_secs += change / if self.samples == 1.0 { 1.0 } else { MEMORY };
    }

    fn show(&self, into: &mut Reading) {
        for (name, value) in [
            ("samples", self.samples),
            ("observed_secs", self.observed_secs),
            ("server_unread_secs", self.server_unread_secs),
            ("generator_unread_secs", self.generator_unread_secs),
            ("unsent_secs", self.unsent_secs),
            ("cost_secs", self.cost_secs),
        ] {
            into.count(format!("sockets.{name}"), value);
        }
    }

    /// How long to leave between looks that cost what they did so far.
    fn period(&self) -> Duration {
        let affordable_secs = self.look_secs / COST_MAX_RATIO;
        Duration::from_secs_f64(affordable_secs.min(PERIOD_MAX.as_secs_f64())).max(PERIOD_MIN)
    }
}

impl Sockets {
    /// Looks from now on, so that the first reading already knows whether there is anything to be seen.
    fn start(listeners: Listeners, posts: Posts) -> Sockets {
        let seen = Arc::new(Mutex::new(Seen::new(Instant::now())));
        let (end, ends) = mpsc::channel();
        let shared = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            if let Err(error) = watch(&listeners, posts, &ends, &shared) {
                log::debug!("sampler sockets: {error}");
                shared.lock().live = false;
            }
        });
        Sockets { seen, end: Some(end), thread: Some(thread) }
    }
}

impl Sampler for Sockets {
    fn name(&self) -> &'static str {
        "sockets"
    }

    fn read(&mut self, into: &mut Reading) -> io::Result<()> {
        let mut seen = self.seen.lock();
        if !seen.live {
            return Err(io::Error::other("no connection to the target has both its ends here"));
        }
        if seen.is_too_late() {
            return Err(io::Error::other("connections to the target end before they can be looked at"));
        }
        // Up to this instant: a window is not observed up to its last look only.
        seen.stand(Instant::now());
        seen.show(into);
        Ok(())
    }
}

impl Drop for Sockets {
    fn drop(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            // It waits for nothing longer than a look may take.
            let _ = thread.join();
        }
    }
}

/// Looks until the other end of `ends` is dropped.
fn watch(listeners: &Listeners, mut posts: Posts, ends: &Receiver<()>, seen: &Mutex<Seen>) -> io::Result<()> {
    // A timer that may be late is set off with others, and they are what is looked at.
    let _ = set_current_timer_slack(NonZeroU64::new(1));
    let mut source = Source::open()?;
    // Any seed will do: chance is there only so that nothing that repeats itself is always met in the same state.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut known = all(&mut source, listeners)?;
    let mut refreshed = Instant::now();
    // Whether the list has become longer or shorter since the time before.
    let mut changed = true;
    // What lists have cost so far.
    let (began, mut lists_secs) = (Instant::now(), 0.0);
    let mut questions = Questions::default();
    seen.lock().live = !known.is_empty();
    loop {
        // Made before the wait, so that the kernel looks at the first as soon as this thread runs.
        let sample = choose(&mut known, &mut rng);
        questions.clear();
        for (local, peer) in &sample {
            questions.ask(*local, *peer);
            questions.ask(*peer, *local);
        }
        posts.turn();
        let paid_secs = thread_cpu_secs();
        let gap = {
            let mut seen = seen.lock();
            seen.cost_secs = paid_secs;
            gap(seen.period(), &mut rng)
        };
        match ends.recv_timeout(gap) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        let found = source.look(&mut questions)?;
        let now = Instant::now();
        let (places, missing) = places(&found, known.len(), listeners);
        let met_nobody = places.connections == 0.0 && !known.is_empty();
        match met_nobody {
            true => seen.lock().miss(now),
            false => seen.lock().look(now, places, thread_cpu_secs() - paid_secs),
        }
        let rest = match (known.is_empty() || changed || met_nobody, missing) {
            (true, _) => REFRESH_NEW,
            (false, true) => REFRESH_MIN,
            (false, false) => REFRESH_MAX,
        };
        let affordable_secs = LISTS_SECS + COST_MAX_RATIO * began.elapsed().as_secs_f64();
        if refreshed.elapsed() >= if lists_secs < affordable_secs { rest } else { REFRESH_MAX } {
            let (count, before_secs) = (known.len(), thread_cpu_secs());
            known = all(&mut source, listeners)?;
            changed = known.len() != count;
            refreshed = Instant::now();
            lists_secs += thread_cpu_secs() - before_secs;
        }
    }
}

/// How long until the next look: [`GAP_MIN`], and a time without memory that makes `mean` of it on average; less where that comes near
/// [`PERIOD_MAX`], which is the most.
fn gap(mean: Duration, rng: &mut impl Rng) -> Duration {
    // Never 0, whose logarithm is none.
    let chance = (f64::from(rng.next_u32()) + 1.0) / (f64::from(u32::MAX) + 1.0);
    let rest = mean.saturating_sub(GAP_MIN);
    GAP_MIN + rest.mul_f64(-chance.ln()).min(PERIOD_MAX)
}

/// Some of the connections, each as its two ends in the order they are asked for; `known` is left in another order.
fn choose(known: &mut [Connection], rng: &mut impl Rng) -> Vec<(SocketAddr, SocketAddr)> {
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

/// All connections to `listeners` of which both ends are here.
fn all(source: &mut Source, listeners: &Listeners) -> io::Result<Vec<Connection>> {
    let mut found = Vec::new();
    listeners.ports().into_iter().try_for_each(|port| source.all(port, &mut found))?;
    Ok(connections(&found, listeners))
}

fn connections(ends: &[End], listeners: &Listeners) -> Vec<Connection> {
    let is_listener = |address: &SocketAddr| listeners.all().any(|of| of == address);
    let servers: HashSet<(SocketAddr, SocketAddr)> =
        ends.iter().filter(|end| is_listener(&end.local)).map(|end| (end.local, end.peer)).collect();
    let clients = ends.iter().filter(|end| servers.contains(&(end.peer, end.local)));
    clients.map(|end| Connection { client: end.local, server: end.peer }).collect()
}

/// The places of `known` connections of which some were looked at, and whether any of these is gone. `found` has both
/// ends of each, one after the other in the order they were asked for.
fn places(found: &[Option<End>], known: usize, listeners: &Listeners) -> (Places, bool) {
    let mut places = Places::default();
    let both = |pair: &[Option<End>]| Some([pair[0]?, pair[1]?]);
    for pair in found.chunks_exact(2).filter_map(both) {
        places.connections += 1.0;
        // Where it was first seen. A request that is answered while its two ends are asked for is not two.
        match pair.into_iter().find(|end| end.unread > 0) {
            Some(end) if listeners.servers.contains(&end.local) => places.server_unread += 1.0,
            Some(end) if listeners.loaded.contains(&end.peer) => places.generator_unread += 1.0,
            Some(_) => {}
            None if pair.iter().any(|end| end.unacknowledged > 0) => places.unsent += 1.0,
            None => {}
        }
    }
    let missing = places.connections < (found.len() / 2) as f64;
    let scale = known as f64 / places.connections.max(1.0);
    let of_all = |count: f64| count * scale;
    let scaled = Places {
        server_unread: of_all(places.server_unread),
        generator_unread: of_all(places.generator_unread),
        unsent: of_all(places.unsent),
        connections: of_all(places.connections),
    };
    (scaled, missing)
}

/// What this thread has used of the processor.
fn thread_cpu_secs() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    /// Both ends of a connection from port `from` to port 80, as (unread, unacknowledged) of server and generator; the
    /// server's was looked at first.
    fn pair(from: u16, server: (u32, u32), generator: (u32, u32)) -> [End; 2] {
        pair_to(80, from, server, generator)
    }

    fn pair_to(to: u16, from: u16, server: (u32, u32), generator: (u32, u32)) -> [End; 2] {
        let (client, target) = (local(from), local(to));
        let end = |local, peer, (unread, unacknowledged)| End { local, peer, unread, unacknowledged };
        [end(target, client, server), end(client, target, generator)]
    }

    fn local(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn listeners(server: u16, loaded: u16) -> Listeners {
        Listeners { servers: vec![local(server)], loaded: vec![local(loaded)] }
    }

    /// The places of connections that were all looked at.
    fn places_of(ends: &[End], listeners: &Listeners) -> Places {
        let known = connections(ends, listeners);
        let found: Vec<Option<End>> = ends.iter().copied().map(Some).collect();
        let (places, missing) = places(&found, known.len(), listeners);
        assert!(!missing);
        places
    }

    #[test]
    fn who_is_gone_before_a_look_is_not_counted_as_nowhere() {
        let began = Instant::now();
        let at = |secs: u64| began + Duration::from_secs(secs);
        let mut seen = Seen::new(began);
        let queue = Places { server_unread: 3.0, connections: 4.0, ..Places::default() };
        seen.look(at(1), queue, 1e-5);
        seen.miss(at(2));
        seen.look(at(5), queue, 1e-5);
        seen.stand(at(6));
        assert_eq!((seen.observed_secs, seen.server_unread_secs), (2.0, 6.0));
        assert!(!seen.is_too_late());
        // Between two trials the connections of the first are gone, and those of the second not yet listed.
        (7..10).for_each(|secs| seen.miss(at(secs)));
        assert!(!seen.is_too_late());
        (10..20).for_each(|secs| seen.miss(at(secs)));
        assert!(seen.is_too_late());
        (20..30).for_each(|secs| seen.look(at(secs), queue, 1e-5));
        assert!(!seen.is_too_late());
    }

    #[test]
    fn of_what_stands_between_neither_end_is_the_generators_or_the_servers() {
        let ends = [
            pair_to(90, 1001, (5, 0), (0, 0)),
            pair_to(90, 1002, (0, 0), (5, 0)),
            pair_to(80, 2001, (5, 0), (0, 0)),
            pair_to(80, 2002, (0, 0), (5, 0)),
        ]
        .concat();
        let expected = Places { server_unread: 1.0, generator_unread: 1.0, unsent: 0.0, connections: 4.0 };
        assert_eq!(places_of(&ends, &listeners(80, 90)), expected);
        assert_eq!(listeners(80, 90).ports().len(), 2);
        assert_eq!(listeners(80, 80).ports().len(), 1, "the same is not asked twice");
    }

    #[test]
    fn a_connection_is_in_one_place() {
        let mut ends: Vec<End> = [
            pair(1001, (5, 0), (0, 0)),
            pair(1002, (5, 0), (0, 9000)),
            pair(1003, (0, 9000), (7, 0)),
            pair(1004, (0, 0), (0, 3)),
            pair(1005, (0, 3), (0, 0)),
            pair(1006, (0, 0), (0, 0)),
        ]
        .concat();
        let expected = Places { server_unread: 2.0, generator_unread: 1.0, unsent: 2.0, connections: 6.0 };
        assert_eq!(places_of(&ends, &listeners(80, 80)), expected);
        // One end alone is on its way in or out, or its other end is elsewhere.
        ends.extend(&pair(1007, (5, 0), (0, 0))[..1]);
        ends.extend(&pair(1008, (0, 0), (5, 0))[1..]);
        assert_eq!(connections(&ends, &listeners(80, 80)).len(), 6);
        assert_eq!(connections(&ends, &listeners(81, 81)), []);
    }

    #[test]
    fn a_request_that_is_answered_between_the_looks_at_its_ends_is_where_it_was_first_seen() {
        let [server, client] = pair(1001, (5, 0), (7, 0));
        for (found, expected) in [([server, client], (1.0, 0.0)), ([client, server], (0.0, 1.0))] {
            let found = found.map(Some);
            let (places, _) = places(&found, 1, &listeners(80, 80));
            assert_eq!((places.server_unread, places.generator_unread), expected);
        }
    }

    #[test]
    fn the_share_of_those_looked_at_stands_for_all_and_one_that_is_gone_for_none() {
        let seen = [pair(1001, (5, 0), (0, 0)), pair(1002, (0, 0), (0, 0))].concat();
        let mut found: Vec<Option<End>> = seen.into_iter().map(Some).collect();
        let (all_there, missing) = places(&found, 10, &listeners(80, 80));
        assert_eq!((all_there.server_unread, all_there.connections, missing), (5.0, 10.0, false));
        found.extend([None, Some(pair(1003, (0, 0), (5, 0))[1])]);
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
            assert_eq!(ports.clone().collect::<HashSet<u16>>().len(), SAMPLE, "none twice in one look");
            ports.for_each(|port| *chosen.entry(port).or_insert(0) += 1);
            server_first += sample.iter().filter(|(first, _)| *first == server).count();
        }
        // 4000 draws of 16: 250 each, give or take 14.
        assert!(chosen.len() == 16 && chosen.values().all(|count| (180..320).contains(count)), "{chosen:?}");
        assert!((1800..2200).contains(&server_first), "{server_first}");
        assert_eq!(choose(&mut known[..2], &mut rng).len(), 2);
        assert_eq!(choose(&mut [], &mut rng), []);
    }

    #[test]
    fn gaps_are_as_long_as_asked_for_on_average() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let gaps: Vec<Duration> = (0..10_000).map(|_| gap(PERIOD_MIN, &mut rng)).collect();
        let mean = gaps.iter().sum::<Duration>() / 10_000;
        assert!((24.0..26.0).contains(&(mean.as_secs_f64() * 1e3)), "{mean:?}");
        assert!(gaps.iter().all(|gap| (GAP_MIN..=GAP_MIN + PERIOD_MAX).contains(gap)));
    }

    #[test]
    fn what_was_seen_stands_until_the_next_look_and_for_every_reading() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut seen = Seen::new(start);
        let waiting = |server_unread| Places { server_unread, connections: 4.0, ..Places::default() };
        seen.look(after(0), waiting(4.0), 0.0);
        seen.look(after(250), waiting(2.0), 0.0);
        seen.stand(after(750));
        assert_eq!((seen.server_unread_secs, seen.observed_secs), (2.0, 0.75));
        // A look that was taken before the reading and comes after it.
        seen.look(after(700), waiting(1.0), 0.0);
        seen.stand(after(1000));
        assert_eq!((seen.server_unread_secs, seen.observed_secs, seen.samples), (2.25, 1.0, 3.0));
    }

    #[test]
    fn looks_that_cost_more_are_rarer() {
        let mut seen = Seen::new(Instant::now());
        let mut period_after = |cost_secs, times| {
            (0..times).for_each(|_| seen.look(Instant::now(), Places::default(), cost_secs));
            seen.period()
        };
        assert_eq!(period_after(0.00003, 1), PERIOD_MIN);
        let near = |period: Duration, secs: f64| (period.as_secs_f64() - secs).abs() < 0.001;
        // A five-hundredth of 50 ms is 100 us.
        assert!(near(period_after(0.0001, 100), 0.05));
        // One that was stolen from makes the next ones rarer, and is forgotten.
        assert!(period_after(0.5, 1) < 5 * PERIOD_MIN * 2);
        assert!(near(period_after(0.0001, 100), 0.05));
        assert!(near(period_after(1.0, 100), 0.5));
    }
}
