//! The test responder: a small server of HTTP/1.1 or HTTP/2, with or without TLS, on a thread that delays, freezes and fails on
//! purpose and records what it really did.
//!
//! The load generator is tested against it, so it shares no code with the generator or the server: one thread, plain
//! sockets, a parser of its own. TLS and the frames of HTTP/2 are of the crates `rustls` and `h2`.

mod answers;
mod connection;
mod http2;
mod request;
mod transport;

pub(crate) use answers::schedule;
pub use answers::{ANSWERS, AnswerKind};

use answers::{ABSENT, GOOD, RESET, Then};
use connection::Connection;
use kv::cores;
use request::Request;
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::net::{Shutdown, listen, shutdown, sockopt};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};
use transport::Transport;

/// How long before something is due it is waited for without sleeping: longer than any timer of the kernel is late.
const SPIN: Duration = Duration::from_millis(2);
/// The most delays and arrivals that are recorded, each.
const RECORDED_MAX: usize = 1 << 20;
/// The most events one wait returns.
const EVENTS_MAX: usize = 256;
/// The backlog of the listening socket: more than there are clients. Where it overflows, a connection seems to be made and
/// is not, and its request times out without ever having been received.
const BACKLOG: i32 = 1024;
const READ_BYTES: usize = 64 << 10;

/// What the epoll says of the listening socket, and of the end; anything smaller is a connection's id.
const LISTENER: u64 = u64::MAX;
const END: u64 = u64::MAX - 1;

/// What to do to the clients.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Over TLS, with a certificate for `127.0.0.1` that it makes.
    pub tls: bool,
    /// HTTP/2 instead of HTTP/1.1: in TLS the client has to ask for it, without TLS all connections are such.
    pub http2: bool,
    /// From having read a request to answering it.
    pub delay: Duration,
    /// When to freeze: how long after the first request, and for how long. Nothing is read and nothing answered then.
    pub stall: Option<[Duration; 2]>,
    /// Places in [`ANSWERS`], the last one to be used first; 404 comes after them. `None`: all answers are good.
    pub schedule: Option<Vec<u8>>,
    /// When to refuse connections. The schedule begins afterwards.
    pub refusal: Option<Refusal>,
    /// How many keys each client has: the number at the end of a key is its client's count, above a multiple of this.
    pub keys_per_client: Option<u64>,
}

/// A time without a listening socket: as soon as all clients have asked, each of them is reset, and refused when it connects
/// again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// How many connections there are before.
    pub clients: usize,
    /// For how long.
    pub length: Duration,
}

/// What a responder did.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// Requests read to their end.
    pub requests: u64,
    /// Answers, by the name of their kind.
    pub answers: BTreeMap<&'static str, u64>,
    /// Requests that the clients' own counts say were made before the last one read of each client, and that were never
    /// received. Only where the clients count in their keys.
    pub refused: u64,
    /// From the first request until the end of the schedule; `None` if that was not reached.
    pub schedule_secs: Option<f64>,
    /// From having read each request to having written its answer.
    pub delays_ns: Vec<u64>,
    /// When it froze, after the first request, and for how long.
    pub stall_secs: Option<[f64; 2]>,
    /// When each request had been read, after the first.
    pub arrivals_ns: Vec<u64>,
}

/// A running responder. Dropping it ends it.
#[derive(Debug)]
pub struct Responder {
    /// Where it listens.
    pub address: SocketAddr,
    /// With TLS, the certificate, which nobody else has signed.
    pub certificate: Option<CertificateDer<'static>>,
    thread: JoinHandle<io::Result<Record>>,
    /// Closing it ends the thread.
    end: UnixStream,
}

impl Responder {
    /// Starts one on a free port; on `core`, or wherever the kernel puts it.
    pub fn start(options: Options, core: Option<usize>) -> io::Result<Responder> {
        let (end, until) = UnixStream::pair()?;
        let tls = if options.tls { Some(tls(options.http2).map_err(io::Error::other)?) } else { None };
        let (config, certificate) = tls.unzip();
        let state = State::new(options, config, &until)?;
        let address = state.listener.local_addr()?;
        let thread = thread::spawn(move || {
            let _until = until;
            core.map_or(Ok(()), |core| cores::bind(&[core]))?;
            state.run()
        });
        Ok(Responder { address, certificate, thread, end })
    }

    /// Ends it and returns what it did.
    pub fn stop(self) -> io::Result<Record> {
        drop(self.end);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the test server panicked")))
    }
}

/// Whether the socket listens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listening {
    Before(Refusal),
    Paused { until: Instant },
    ToTheEnd,
}

/// An answer that waits for its time.
struct Pending {
    due: Instant,
    read_at: Instant,
    id: u64,
    request: Request,
}

struct State {
    options: Options,
    tls: Option<Arc<ServerConfig>>,
    epoll: OwnedFd,
    listener: TcpListener,
    listening: Listening,
    connections: HashMap<u64, Connection>,
    next_id: u64,
    /// In the order of their times, since the delay is the same for all.
    pending: VecDeque<Pending>,
    first_at: Option<Instant>,
    /// Of each client, how many requests it has made by its own count.
    client_counts: HashMap<u64, u64>,
    record: Record,
    scratch: Vec<u8>,
}

impl State {
    fn new(options: Options, tls: Option<Arc<ServerConfig>>, until: &UnixStream) -> io::Result<State> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let listener = bind()?;
        // Once more: the standard library asks for a backlog of 128.
        listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, until, EventData::new_u64(END), EventFlags::IN)?;
        Ok(State {
            epoll,
            listener,
            listening: options.refusal.map_or(Listening::ToTheEnd, Listening::Before),
            options,
            tls,
            connections: HashMap::new(),
            next_id: 0,
            pending: VecDeque::new(),
            first_at: None,
            client_counts: HashMap::new(),
            record: Record {
                answers: ANSWERS.iter().map(|kind| (kind.name, 0)).collect(),
                // Allocated now, so that no request waits for it.
                delays_ns: Vec::with_capacity(RECORDED_MAX),
                arrivals_ns: Vec::with_capacity(RECORDED_MAX),
                ..Record::default()
            },
            scratch: vec![0; READ_BYTES],
        })
    }

    /// Answers until the other end of `until` is closed.
    fn run(mut self) -> io::Result<Record> {
        let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
        loop {
            let now = Instant::now();
            self.on_time(now)?;
            let wait = self.next_time().map(|at| at.saturating_duration_since(now + SPIN));
            let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), wait.as_ref()) {
                Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
                _ => {}
            }
            for event in &events {
                // Copied: the fields of an event may not be aligned.
                let data = event.data;
                match data.u64() {
                    LISTENER => self.accept()?,
                    END => {
                        let made: u64 = self.client_counts.values().sum();
                        self.record.refused = made.saturating_sub(self.record.requests);
                        return Ok(self.record);
                    }
                    id => self.read(id)?,
                }
            }
        }
    }

    /// Does what is due by `now`.
    fn on_time(&mut self, now: Instant) -> io::Result<()> {
        if let Some((at, length)) = self.stall_at()
            && at <= now
        {
            // By the clock to the end: a sleep alone may be longer.
            let begun = Instant::now();
            thread::sleep(length.saturating_sub(SPIN));
            while begun.elapsed() < length {
                std::hint::spin_loop();
            }
            self.record.stall_secs = Some([self.since(begun).as_secs_f64(), begun.elapsed().as_secs_f64()]);
        }
        if let Listening::Paused { until } = self.listening
            && until <= now
        {
            listen(&self.listener, BACKLOG)?;
            epoll::add(&self.epoll, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
            self.listening = Listening::ToTheEnd;
        }
        while let Some(pending) = self.pending.pop_front_if(|pending| pending.due <= now) {
            self.answer(pending.id, &pending.request, pending.read_at)?;
        }
        Ok(())
    }

    /// When something is due next.
    fn next_time(&self) -> Option<Instant> {
        let listen = match self.listening {
            Listening::Paused { until } => Some(until),
            _ => None,
        };
        let answer = self.pending.front().map(|pending| pending.due);
        let stall = self.stall_at().map(|(at, _)| at);
        [listen, answer, stall].into_iter().flatten().min()
    }

    /// When to freeze and for how long, if that is still to come.
    fn stall_at(&self) -> Option<(Instant, Duration)> {
        let [after, length] = self.options.stall.filter(|_| self.record.stall_secs.is_none())?;
        Some((self.first_at? + after, length))
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    let session = self.tls.as_ref().map(|config| ServerConnection::new(Arc::clone(config)));
                    let session = session.transpose().map_err(io::Error::other)?;
                    let id = self.next_id;
                    self.next_id += 1;
                    epoll::add(&self.epoll, &stream, EventData::new_u64(id), EventFlags::IN)?;
                    let transport = Transport::new(stream, session)?;
                    self.connections.insert(id, Connection::new(transport, self.options.http2));
                }
                // The client went away meanwhile.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads from a connection, and answers the requests in it or puts them off.
    fn read(&mut self, id: u64) -> io::Result<()> {
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        if !connection.read(&mut self.scratch) {
            self.connections.remove(&id);
            return Ok(());
        }
        let read_at = Instant::now();
        while let Some(request) = self.connections.get_mut(&id).and_then(Connection::request) {
            self.count(&request, read_at);
            if self.options.delay.is_zero() {
                self.answer(id, &request, read_at)?;
            } else {
                let due = read_at + self.options.delay;
                self.pending.push_back(Pending { due, read_at, id, request });
            }
        }
        Ok(())
    }

    fn count(&mut self, request: &Request, read_at: Instant) {
        self.record.requests += 1;
        self.first_at.get_or_insert(read_at);
        let arrived_ns = self.since(read_at).as_nanos() as u64;
        push(&mut self.record.arrivals_ns, arrived_ns);
        if let Some(keys) = self.options.keys_per_client {
            let digits = request.key.bytes().rev().take_while(u8::is_ascii_digit).count();
            let number: u64 = request.key[request.key.len() - digits..].parse().unwrap_or(0);
            let count = self.client_counts.entry(number / keys).or_default();
            *count = (*count).max(number % keys + 1);
        }
    }

    fn answer(&mut self, id: u64, request: &Request, read_at: Instant) -> io::Result<()> {
        let place = self.next_answer(read_at)?;
        let Some(connection) = self.connections.get_mut(&id) else { return Ok(()) };
        let AnswerKind { name, bytes, then, .. } = &ANSWERS[place];
        let sent = connection.send(&bytes(&request.key), *then);
        push(&mut self.record.delays_ns, read_at.elapsed().as_nanos() as u64);
        *self.record.answers.entry(name).or_default() += 1;
        match then {
            Then::Reset => {
                sockopt::set_socket_linger(&connection.transport().0.socket, Some(Duration::ZERO))?;
            }
            // The client closes it, too. What it sends until then would make a reset of an end.
            Then::Close | Then::GoAway if sent => {
                let _ = connection.transport().0.socket.shutdown(std::net::Shutdown::Write);
            }
            _ => {}
        }
        // Dropping a connection closes it.
        if !sent || *then == Then::Reset || *then == Then::Keep && request.closes {
            self.connections.remove(&id);
        }
        Ok(())
    }

    /// The place in [`ANSWERS`] of the next answer.
    fn next_answer(&mut self, now: Instant) -> io::Result<usize> {
        if let Listening::Before(refusal) = self.listening {
            let asking = self.connections.values().filter(|connection| connection.has_asked).count();
            if asking < refusal.clients {
                return Ok(ABSENT);
            }
            // All clients are connected, so no connection is in the backlog: every later one is refused and none is
            // lost. The socket keeps its port while it does not listen.
            epoll::delete(&self.epoll, &self.listener)?;
            shutdown(self.listener.as_fd(), Shutdown::Read)?;
            self.listening = Listening::Paused { until: now + refusal.length };
        }
        if let Listening::Paused { .. } = self.listening {
            return Ok(RESET);
        }
        let Some(schedule) = &mut self.options.schedule else { return Ok(GOOD) };
        let Some(place) = schedule.pop() else { return Ok(ABSENT) };
        if schedule.is_empty() {
            self.record.schedule_secs = self.first_at.map(|first| (now - first).as_secs_f64());
        }
        Ok(usize::from(place))
    }

    /// How long after the first request.
    fn since(&self, instant: Instant) -> Duration {
        self.first_at.map_or(Duration::ZERO, |first| instant.saturating_duration_since(first))
    }
}

/// Records one more, where there is room: a request must not wait for memory.
fn push(recorded: &mut Vec<u64>, value: u64) {
    if recorded.len() < RECORDED_MAX {
        recorded.push(value);
    }
}

/// What TLS needs to be served, with a new certificate, and that.
fn tls(
    http2: bool,
) -> Result<(Arc<ServerConfig>, CertificateDer<'static>), Box<dyn std::error::Error + Send + Sync>> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let certificate = made.cert.der().clone();
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    let mut config = config.with_no_client_auth().with_single_cert(vec![certificate.clone()], key)?;
    config.alpn_protocols = vec![if http2 { b"h2".to_vec() } else { b"http/1.1".to_vec() }];
    Ok((Arc::new(config), certificate))
}

/// Binds a free port of the loopback address. The port is found first and then asked for by its number: only then does a
/// socket keep it while it does not listen.
fn bind() -> io::Result<TcpListener> {
    let free = || TcpListener::bind("127.0.0.1:0")?.local_addr();
    // Another process may have taken it meanwhile, which is seldom, and then another one will do.
    TcpListener::bind(free()?).or_else(|_| TcpListener::bind(free()?))
}
