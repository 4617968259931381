//! Where requests and answers lie unread: at the server, at the generator, or on their way.
//!
//! A request that nobody has read waits for the server's workers, an answer that nobody has read waits for the generator;
//! neither program can count them. A thread looks at both ends of every connection to the target again and again until the sampler is
//! dropped. What it saw stands until it looks again, so the counters are connection-seconds, and over the time of a window they
//! are mean numbers of connections, as far as the look itself does not hold up what it looks at (docs/method.md, Sampling). Its period
//! aims at half a percent of one core, at most 20 times a second. Where the ends of no connection were seen, because they are on two machines or in
//! namespaces apart, there are no counters.

use super::diag::{End, Source};
use super::stats::address;
use super::{Context, Reading, Sampler};
use parking_lot::Mutex;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::time::{ClockId, clock_gettime};
use std::collections::{BTreeSet, HashMap};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Between two looks on average, where a look is cheap enough.
const PERIOD_MIN: Duration = Duration::from_millis(50);
/// However expensive it is.
const PERIOD_MAX: Duration = Duration::from_secs(1);
/// Of one core's time.
const COST_MAX_RATIO: f64 = 0.005;

pub(super) fn make(context: &Context) -> Option<Box<dyn Sampler>> {
    let loaded = context.load_url.as_deref()?;
    let listeners =
        Listeners { servers: resolved(context.url.as_deref().unwrap_or(loaded))?, loaded: resolved(loaded)? };
    Some(Box::new(Sockets::start(listeners)))
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

/// How many connections are in each place; one is in one place only.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Places {
    server_unread: u32,
    generator_unread: u32,
    unsent: u32,
    /// All of which both ends were seen.
    connections: u32,
}

/// What was seen so far.
#[derive(Debug)]
struct Seen {
    /// What the last look showed, and until when it has been counted.
    last: Places,
    until: Instant,
    /// Whether both ends of any connection were ever seen.
    live: bool,
    samples: f64,
    observed_secs: f64,
    server_unread_secs: f64,
    generator_unread_secs: f64,
    unsent_secs: f64,
    cost_secs: f64,
}

impl Seen {
    fn new(now: Instant) -> Seen {
        Seen {
            last: Places::default(),
            until: now,
            live: false,
            samples: 0.0,
            observed_secs: 0.0,
            server_unread_secs: 0.0,
            generator_unread_secs: 0.0,
            unsent_secs: 0.0,
            cost_secs: 0.0,
        }
    }

    /// What the last look showed stands until `now`.
    fn stand(&mut self, now: Instant) {
        let secs = now.saturating_duration_since(self.until).as_secs_f64();
        self.observed_secs += secs;
        self.server_unread_secs += secs * f64::from(self.last.server_unread);
        self.generator_unread_secs += secs * f64::from(self.last.generator_unread);
        self.unsent_secs += secs * f64::from(self.last.unsent);
        self.until = self.until.max(now);
    }

    fn look(&mut self, now: Instant, places: Places, cost_secs: f64) {
        self.stand(now);
        self.last = places;
        self.live |= places.connections > 0;
        self.samples += 1.0;
        self.cost_secs += cost_secs;
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
        let affordable_secs = self.cost_secs / self.samples.max(1.0) / COST_MAX_RATIO;
        Duration::from_secs_f64(affordable_secs.min(PERIOD_MAX.as_secs_f64())).max(PERIOD_MIN)
    }
}

impl Sockets {
    /// Looks from now on, so that the first reading already knows whether there is anything to be seen.
    fn start(listeners: Listeners) -> Sockets {
        let seen = Arc::new(Mutex::new(Seen::new(Instant::now())));
        let (end, ends) = mpsc::channel();
        let shared = Arc::clone(&seen);
        let thread = thread::spawn(move || {
            if let Err(error) = watch(&listeners, &ends, &shared) {
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
            // It waits for nothing longer than a look takes.
            let _ = thread.join();
        }
    }
}

/// Looks until the other end of `ends` is dropped.
fn watch(listeners: &Listeners, ends: &Receiver<()>, seen: &Mutex<Seen>) -> io::Result<()> {
    let mut source = Source::open()?;
    let ports = listeners.ports();
    let mut found = Vec::new();
    // Any seed will do: the gaps are random only so that nothing that repeats itself is always met in the same state.
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut paid_secs = thread_cpu_secs();
    loop {
        found.clear();
        ports.iter().try_for_each(|port| source.ends(*port, &mut found))?;
        let places = places(&found, listeners);
        let paid_before_secs = std::mem::replace(&mut paid_secs, thread_cpu_secs());
        let period = {
            let mut seen = seen.lock();
            seen.look(Instant::now(), places, paid_secs - paid_before_secs);
            seen.period()
        };
        // Between half of the period and one and a half.
        let share = 0.5 + f64::from(rng.next_u32()) / f64::from(u32::MAX);
        match ends.recv_timeout(period.mul_f64(share)) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
    }
}

/// The places of the connections to `listeners` of which both ends are among `ends`.
fn places(ends: &[End], listeners: &Listeners) -> Places {
    let is_listener = |address: &SocketAddr| listeners.all().any(|of| of == address);
    let clients: HashMap<(SocketAddr, SocketAddr), &End> =
        (ends.iter()).filter(|end| is_listener(&end.peer)).map(|end| ((end.local, end.peer), end)).collect();
    let mut places = Places::default();
    for server in ends.iter().filter(|end| is_listener(&end.local)) {
        let Some(client) = clients.get(&(server.peer, server.local)) else { continue };
        places.connections += 1;
        // What cannot be sent because the other end does not read waits for that end.
        if server.unread > 0 && listeners.servers.contains(&server.local) {
            places.server_unread += 1;
        } else if client.unread > 0 && listeners.loaded.contains(&server.local) {
            places.generator_unread += 1;
        } else if server.unacknowledged > 0 || client.unacknowledged > 0 {
            places.unsent += 1;
        }
    }
    places
}

/// What this thread has used of the processor.
fn thread_cpu_secs() -> f64 {
    let used = clock_gettime(ClockId::ThreadCPUTime);
    used.tv_sec as f64 + used.tv_nsec as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection from port `from` to port 80, as (unread, unacknowledged) of server and generator.
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

    #[test]
    fn of_what_stands_between_neither_end_is_the_generators_or_the_servers() {
        let ends = [
            pair_to(90, 1001, (5, 0), (0, 0)),
            pair_to(90, 1002, (0, 0), (5, 0)),
            pair_to(80, 2001, (5, 0), (0, 0)),
            pair_to(80, 2002, (0, 0), (5, 0)),
        ]
        .concat();
        let expected = Places { server_unread: 1, generator_unread: 1, unsent: 0, connections: 4 };
        assert_eq!(places(&ends, &listeners(80, 90)), expected);
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
        let expected = Places { server_unread: 2, generator_unread: 1, unsent: 2, connections: 6 };
        assert_eq!(places(&ends, &listeners(80, 80)), expected);
        // One end alone is on its way in or out, or its other end is elsewhere.
        ends.extend(&pair(1007, (5, 0), (0, 0))[..1]);
        ends.extend(&pair(1008, (0, 0), (5, 0))[1..]);
        assert_eq!(places(&ends, &listeners(80, 80)), expected);
        assert_eq!(places(&ends, &listeners(81, 81)), Places::default());
    }

    #[test]
    fn what_was_seen_stands_until_the_next_look_and_for_every_reading() {
        let start = Instant::now();
        let after = |millis| start + Duration::from_millis(millis);
        let mut seen = Seen::new(start);
        let waiting = |server_unread| Places { server_unread, connections: 4, ..Places::default() };
        seen.look(after(0), waiting(4), 0.0);
        seen.look(after(250), waiting(2), 0.0);
        seen.stand(after(750));
        assert_eq!((seen.server_unread_secs, seen.observed_secs), (2.0, 0.75));
        // A look that was taken before the reading and comes after it.
        seen.look(after(700), waiting(1), 0.0);
        seen.stand(after(1000));
        assert_eq!((seen.server_unread_secs, seen.observed_secs, seen.samples), (2.25, 1.0, 3.0));
    }

    #[test]
    fn looks_that_cost_more_are_rarer() {
        let mut seen = Seen::new(Instant::now());
        let mut period_after = |cost_secs| {
            seen.look(Instant::now(), Places::default(), cost_secs);
            seen.period()
        };
        assert_eq!(period_after(0.0001), PERIOD_MIN);
        // Over both looks 1 ms each: half a percent of 200 ms.
        assert_eq!(period_after(0.0019), Duration::from_millis(200));
        assert_eq!(period_after(1.0), PERIOD_MAX);
    }
}
