//! The responder: a small HTTP/1.1 server that delays, freezes and fails on purpose, and keeps account of what it really did.
//!
//! What the load generator says of itself is tested against it, so it shares nothing with the generator or the server but
//! the shape of its account: one thread, plain sockets, a parser of its own. It prints nothing.

mod connection;
mod faults;

pub use faults::{KINDS, Kind, Schedule};

use connection::{Connection, Question};
use faults::{After, GOOD, RESET, UNSCHEDULED};
use kv::proto::{Delay, FORMAT, Truth};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::net::{Shutdown, listen, shutdown, sockopt};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// How long before something is due it is waited for without sleeping: longer than any timer of the kernel is late.
const SPIN: Duration = Duration::from_millis(2);
/// Delays and arrivals that are kept, each.
const KEPT_MAX: usize = 1 << 20;
/// Sockets that one look can report.
const EVENTS_MAX: usize = 256;
/// Places in the queue of the listening socket: more than there are clients. Where it overflows, a connection seems to be made
/// and is not, and its request times out without ever having come.
const BACKLOG: i32 = 1024;
/// What is read at once, in bytes.
const READ_BYTES: usize = 64 << 10;

/// What the epoll says of the listening socket, and of the end; anything smaller is a connection's place.
const LISTENER: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

/// What to do to the clients.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// From having read a request to answering it.
    pub delay: Duration,
    /// When to freeze.
    pub stall: Option<Stall>,
    /// What is to become of the first requests; `None`: all are answered well.
    pub schedule: Option<Schedule>,
    /// What the order of the schedule is drawn from.
    pub seed: u64,
    /// When to refuse connections. The schedule begins afterwards.
    pub refusal: Option<Refusal>,
    /// How many keys each client has: the number at the end of a key is then its client's count, above a multiple of this.
    pub keys_per_client: Option<u64>,
    /// Whether to keep when each request had been read.
    pub arrivals: bool,
}

/// A time in which nothing is read and nothing is answered, on any connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    /// After the first request.
    pub at: Duration,
    /// How long.
    pub length: Duration,
}

/// A time in which nobody listens: as soon as so many clients have asked, each of them is reset, and refused when it
/// comes again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// How many connections there must be before.
    pub clients: usize,
    /// How long.
    pub length: Duration,
}

/// Whether new connections are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    /// They are, and there is to be a refusal.
    Before(Refusal),
    /// Nobody listens.
    Shut { until: Instant },
    /// They are, and will be.
    Open,
}

/// An answer that waits for its time.
struct Pending {
    due: Instant,
    read_at: Instant,
    place: u64,
    question: Question,
}

/// The state of a run.
struct Responder<'o> {
    options: &'o Options,
    epoll: OwnedFd,
    listener: TcpListener,
    connections: HashMap<u64, Connection>,
    next_place: u64,
    /// In the order of their times, since the delay is the same for all.
    pending: VecDeque<Pending>,
    door: Door,
    /// What is left of the schedule, the next one last.
    schedule: Vec<u8>,
    first_at: Option<Instant>,
    stalled: Option<(Instant, Duration)>,
    schedule_over: Option<Instant>,
    /// By place in [`KINDS`].
    counts: Vec<u64>,
    asked: u64,
    connections_asked: u64,
    /// Of each client, how many requests it has made by its own count.
    client_counts: HashMap<u64, u64>,
    delays_ns: Vec<u64>,
    arrivals: Vec<Instant>,
    scratch: Vec<u8>,
}

/// Answers until the other end of `until` is closed; `listening` is told where, once.
pub fn run(
    options: &Options,
    until: &UnixStream,
    listening: &mut dyn FnMut(SocketAddr),
) -> io::Result<Truth> {
    let mut responder = Responder::new(options, until)?;
    listening(responder.listener.local_addr()?);
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
    loop {
        let now = Instant::now();
        responder.on_time(now)?;
        let wait = responder.next_time().map(|at| at.saturating_duration_since(now + SPIN));
        let wait = wait
            .map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) });
        events.clear();
        match epoll::wait(&responder.epoll, spare_capacity(&mut events), wait.as_ref()) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            // Copied: the fields of an event may not be aligned.
            let place = event.data;
            match place.u64() {
                LISTENER => responder.accept()?,
                END => return Ok(responder.truth()),
                place => responder.hear(place)?,
            }
        }
    }
}

impl<'o> Responder<'o> {
    fn new(options: &'o Options, until: &UnixStream) -> io::Result<Responder<'o>> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let listener = bind(options.listen)?;
        // Once more: the standard library has 128 places.
        listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, until, EventData::new_u64(END), EventFlags::IN)?;
        let schedule = options.schedule.as_ref();
        Ok(Responder {
            options,
            epoll,
            listener,
            connections: HashMap::new(),
            next_place: 0,
            pending: VecDeque::new(),
            door: options.refusal.map_or(Door::Open, Door::Before),
            schedule: schedule.map(|schedule| schedule.shuffled(options.seed)).unwrap_or_default(),
            first_at: None,
            stalled: None,
            schedule_over: None,
            counts: vec![0; KINDS.len()],
            asked: 0,
            connections_asked: 0,
            client_counts: HashMap::new(),
            // Nothing is allocated while somebody waits.
            delays_ns: Vec::with_capacity(KEPT_MAX),
            arrivals: Vec::with_capacity(if options.arrivals { KEPT_MAX } else { 0 }),
            scratch: vec![0; READ_BYTES],
        })
    }

    /// Does what is due by `now`.
    fn on_time(&mut self, now: Instant) -> io::Result<()> {
        if let Some((at, length)) = self.stall_at()
            && at <= now
        {
            // By the clock to the end, and not only about so long.
            let begun = Instant::now();
            std::thread::sleep(length.saturating_sub(SPIN));
            while begun.elapsed() < length {
                std::hint::spin_loop();
            }
            self.stalled = Some((begun, begun.elapsed()));
        }
        if let Door::Shut { until } = self.door
            && until <= now
        {
            listen(&self.listener, BACKLOG)?;
            epoll::add(&self.epoll, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
            self.door = Door::Open;
        }
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.due <= now) {
            self.answer(pending.place, &pending.question, pending.read_at)?;
        }
        Ok(())
    }

    /// When something is due next.
    fn next_time(&self) -> Option<Instant> {
        let door = match self.door {
            Door::Shut { until } => Some(until),
            _ => None,
        };
        let answer = self.pending.front().map(|pending| pending.due);
        let stall = self.stall_at().map(|(at, _)| at);
        [door, answer, stall].into_iter().flatten().min()
    }

    /// When to freeze and for how long, if that is still to come.
    fn stall_at(&self) -> Option<(Instant, Duration)> {
        let stall = self.options.stall.filter(|_| self.stalled.is_none())?;
        Some((self.first_at? + stall.at, stall.length))
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A client that went away meanwhile is none.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            let connection = Connection::new(stream)?;
            let place = self.next_place;
            self.next_place += 1;
            epoll::add(&self.epoll, &connection.stream, EventData::new_u64(place), EventFlags::IN)?;
            self.connections.insert(place, connection);
        }
    }

    /// Reads from a connection that has something to say, and sees to the requests in it.
    fn hear(&mut self, place: u64) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&place) else { return Ok(()) };
        if !connection.read(&mut self.scratch) {
            self.connections.remove(&place);
            return Ok(());
        }
        let read_at = Instant::now();
        while let Some(connection) = self.connections.get_mut(&place) {
            let is_first = !connection.has_asked;
            let Some(question) = connection.question() else { break };
            self.connections_asked += u64::from(is_first);
            self.note(&question, read_at);
            if self.options.delay.is_zero() {
                self.answer(place, &question, read_at)?;
            } else {
                let due = read_at + self.options.delay;
                self.pending.push_back(Pending { due, read_at, place, question });
            }
        }
        Ok(())
    }

    /// Keeps account of a request.
    fn note(&mut self, question: &Question, read_at: Instant) {
        self.asked += 1;
        self.first_at.get_or_insert(read_at);
        if self.options.arrivals && self.arrivals.len() < KEPT_MAX {
            self.arrivals.push(read_at);
        }
        if let Some(keys) = self.options.keys_per_client {
            let digits = question.key.bytes().rev().take_while(u8::is_ascii_digit).count();
            let number: u64 = question.key[question.key.len() - digits..].parse().unwrap_or(0);
            let count = self.client_counts.entry(number / keys).or_default();
            *count = (*count).max(number % keys + 1);
        }
    }

    /// Answers as it is this request's turn.
    fn answer(&mut self, place: u64, question: &Question, read_at: Instant) -> io::Result<()> {
        let kind = self.turn(read_at)?;
        let Some(connection) = self.connections.get_mut(&place) else { return Ok(()) };
        self.counts[kind] += 1;
        let Kind { bytes, after, .. } = &KINDS[kind];
        let sent = connection.send(&bytes(&question.key));
        if self.delays_ns.len() < KEPT_MAX {
            self.delays_ns.push(read_at.elapsed().as_nanos() as u64);
        }
        if *after == After::Reset {
            sockopt::set_socket_linger(&connection.stream, Some(Duration::ZERO))?;
        }
        // Dropped, it is closed: in order, unless it was told otherwise.
        if !sent || matches!(after, After::Close | After::Reset) || *after == After::Keep && question.closes {
            self.connections.remove(&place);
        }
        Ok(())
    }

    /// What becomes of the next request.
    fn turn(&mut self, now: Instant) -> io::Result<usize> {
        if let Door::Before(refusal) = self.door {
            let asking = self.connections.values().filter(|connection| connection.has_asked).count();
            if asking < refusal.clients {
                return Ok(UNSCHEDULED);
            }
            // All clients are connected, so nobody is on the way in: whoever comes from now on is refused and none is
            // lost. The socket keeps its port while nobody listens on it.
            epoll::delete(&self.epoll, &self.listener)?;
            shutdown(self.listener.as_fd(), Shutdown::Read)?;
            self.door = Door::Shut { until: now + refusal.length };
        }
        if let Door::Shut { .. } = self.door {
            return Ok(RESET);
        }
        if self.options.schedule.is_none() {
            return Ok(GOOD);
        }
        let Some(kind) = self.schedule.pop() else { return Ok(UNSCHEDULED) };
        if self.schedule.is_empty() {
            self.schedule_over = Some(now);
        }
        Ok(usize::from(kind))
    }

    /// The account.
    fn truth(mut self) -> Truth {
        let first_at = self.first_at.unwrap_or_else(Instant::now);
        let since = |instant: Instant| instant.saturating_duration_since(first_at);
        let counted: u64 = self.client_counts.values().sum();
        let answers: BTreeMap<String, u64> = (KINDS.iter().zip(&self.counts))
            .filter(|(_, count)| **count > 0)
            .map(|(kind, count)| (kind.name.to_owned(), *count))
            .collect();
        Truth {
            format: FORMAT,
            secs: first_at.elapsed().as_secs_f64(),
            connections: self.connections_asked,
            requests: self.asked,
            answers,
            never_came: counted.saturating_sub(self.asked),
            schedule_secs: self.schedule_over.map(|over| since(over).as_secs_f64()),
            delay: delay(&mut self.delays_ns),
            stall_secs: self.stalled.map(|(at, length)| [since(at).as_secs_f64(), length.as_secs_f64()]),
            arrivals_ns: self.arrivals.iter().map(|at| since(*at).as_nanos() as u64).collect(),
        }
    }
}

/// Listens at `address`. A free port is found first and then asked for by its number: only then does a socket keep it while
/// nobody listens.
fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    if address.port() != 0 {
        return TcpListener::bind(address);
    }
    let free = TcpListener::bind(address)?.local_addr()?;
    // Somebody else may have taken it meanwhile, which is seldom, and then another one will do.
    TcpListener::bind(free).or_else(|_| TcpListener::bind(TcpListener::bind(address)?.local_addr()?))
}

fn delay(delays_ns: &mut [u64]) -> Delay {
    delays_ns.sort_unstable();
    let (Some(min), Some(max)) = (delays_ns.first(), delays_ns.last()) else { return Delay::default() };
    let us = |ns: u64| ns as f64 / 1e3;
    let sum: u128 = delays_ns.iter().map(|ns| u128::from(*ns)).sum();
    Delay {
        count: delays_ns.len() as u64,
        us_min: us(*min),
        us_mean: sum as f64 / delays_ns.len() as f64 / 1e3,
        us_p50: us(delays_ns[delays_ns.len() / 2]),
        us_max: us(*max),
    }
}
