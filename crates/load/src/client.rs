//! One client: a connection with at most one request in flight.
//!
//! Does the socket calls and nothing else: it draws no keys, counts nothing, and reads the clock only to time the making
//! of a connection. The reactor calls it to send and when its socket is ready; it returns whether the request is over and how.

use super::Connect;
use super::answer::{Answer, Outcome};
use super::attempt::Connection;
use super::fault::Fault;
use super::request::Request;
use super::stream::{Endpoint, Stream};
use mio::{Registry, Token};
use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The first rest after a broken connection; every further one in a row is twice as long.
const BACKOFF_MIN: Duration = Duration::from_millis(10);
/// The longest rest.
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// How much of an answer that is not good is kept, in bytes.
pub(super) const RECEIVED_BYTES_MAX: usize = 1 << 10;
/// What is read at once, in bytes. Most answers fit, so that one read brings all of them.
const READ_BYTES: usize = 64 << 10;

/// How a reactor's clients behave.
#[derive(Clone, Debug)]
pub(super) struct ClientOptions {
    /// The servers; clients take them in turn. At least one.
    pub(super) endpoints: Arc<[Endpoint]>,
    pub(super) timeout: Duration,
    pub(super) connect: Connect,
    /// Of HTTP/2: how many clients share a connection.
    pub(super) streams: Option<u32>,
    /// Reactors that start at once and share what may start together.
    pub(super) threads: u32,
    /// Processor time that is added to each request.
    pub(super) added_cpu: Duration,
}

/// What all clients of a thread share.
pub(super) struct Shared {
    pub(super) registry: Registry,
    pub(super) options: ClientOptions,
    scratch: Box<[u8]>,
}

impl Shared {
    pub(super) fn new(registry: Registry, options: ClientOptions) -> Shared {
        Shared { registry, options, scratch: vec![0; READ_BYTES].into_boxed_slice() }
    }
}

/// Where a client is between two requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// It is free: nothing is due that it could send.
    Idle,
    /// A request is under way: connecting, sending or waiting for the answer.
    InFlight,
    /// It waits for its turn to start.
    Starting,
    /// It backs off after its connection broke.
    BackingOff,
    /// It thinks: its next request is not due yet.
    Thinking,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing to do until the socket is ready.
    Wait,
    /// The request is over; `broken` when the connection is lost and the client must rest.
    Over { result: Outcome, broken: bool },
}

/// A connection and its request.
pub(super) struct Client {
    pub(super) state: State,
    /// Since when it is in this state: of a request, since it was sent.
    pub(super) since: Instant,
    /// When the request was to be sent; the same in a closed loop.
    pub(super) intended: Instant,
    /// Since when it asks without an answer, with all failed requests in between.
    pub(super) asking_since: Option<Instant>,
    /// Whose request it carries: in an open loop that of any client of its server.
    pub(super) source: usize,
    pub(super) request: Request,
    token: Token,
    stream: Option<Stream>,
    /// Bytes of the request sent.
    sent: usize,
    /// When the connection was begun.
    begun_at: Instant,
    /// What the last request had to do for its connection.
    pub(super) connection: Connection,
    /// The peer is known to send nothing more.
    peer_closed: bool,
    /// The peer sent something between two requests, which answers neither.
    unexpected_data: bool,
    /// To the last request.
    pub(super) answer: Answer,
    /// The beginning of what arrived, where that was not all of a good answer.
    pub(super) received: Vec<u8>,
    /// When the first of an answer came that did not come as a whole.
    pub(super) first_byte: Option<Instant>,
    rest: Duration,
}

impl Client {
    /// Client `index` of its thread, of the server in this place.
    pub(super) fn new(index: usize, server: usize, now: Instant) -> Client {
        Client {
            state: State::Idle,
            since: now,
            intended: now,
            asking_since: None,
            source: index,
            request: Request { server, ..Request::default() },
            token: Token(index),
            stream: None,
            sent: 0,
            begun_at: now,
            connection: Connection::Kept,
            peer_closed: false,
            unexpected_data: false,
            answer: Answer::default(),
            received: Vec::new(),
            first_byte: None,
            rest: BACKOFF_MIN,
        }
    }

    /// How long to rest now that the connection broke once more.
    pub(super) fn next_backoff(&mut self) -> Duration {
        let rest = self.rest;
        self.rest = (rest * 2).min(BACKOFF_MAX);
        rest
    }

    /// Sends [`Client::request`], over a new connection if there is none. `Err` is a failure of this machine, such as
    /// no file descriptors left, never the peer's.
    pub(super) fn send(&mut self, shared: &mut Shared) -> io::Result<Step> {
        self.sent = 0;
        self.drop_ended();
        if self.unexpected_data {
            // Whatever comes next could be the rest of that, so it is not to be taken for this request's answer.
            self.unexpected_data = false;
            return Ok(self.lost(Fault::WrongLength));
        }
        if self.stream.is_none()
            && let Some(failed) = self.connect(shared)?
        {
            return Ok(failed);
        }
        // Without waiting for the poll to report the socket as writable: it nearly always is, and on the loopback device a
        // connection is made before `connect` returns.
        match self.write() {
            Ok(()) if self.peer_closed && self.sent == self.request.bytes.len() => Ok(self.read(shared)),
            Ok(()) => Ok(Step::Wait),
            Err(fault) => Ok(self.lost(fault)),
        }
    }

    /// It has nothing to send now: a connection that its peer has ended is not used again.
    pub(super) fn drop_ended(&mut self) {
        if self.peer_closed && !self.unexpected_data {
            self.stream = None;
        }
    }

    /// Goes on after the poll said that the socket is `readable`, writable or (`closed`) at its end.
    pub(super) fn ready(&mut self, readable: bool, closed: bool, shared: &mut Shared) -> Step {
        self.peer_closed |= closed;
        if self.state != State::InFlight || self.stream.is_none() {
            let Some(stream) = &mut self.stream else { return Step::Wait };
            // What an end brings along has to be read to be seen; of TLS not all that arrives is for us.
            let is_read = closed || !stream.short_read_is_all();
            match is_read.then(|| stream.read(&mut shared.scratch)) {
                None => self.unexpected_data |= readable,
                Some(Ok(1..)) => self.unexpected_data = true,
                // The server gave up a connection that nobody used: no request fails, and the next one connects anew.
                Some(read) if (closed || read.is_ok()) && !self.unexpected_data => self.stream = None,
                Some(_) => {}
            }
            return Step::Wait;
        }
        if (self.sent < self.request.bytes.len() || self.stream.as_ref().is_some_and(Stream::has_unsent))
            && let Err(fault) = self.write()
        {
            // A server may refuse a long request before it has read it, and its answer is then still to be had.
            return match self.read(shared) {
                over @ Step::Over { result, .. } if self.answer.status != 0 || result.is_ok() => over,
                _ => self.lost(fault),
            };
        }
        if readable || closed { self.read(shared) } else { Step::Wait }
    }

    /// Gives the request up.
    pub(super) fn time_out(&mut self) -> Step {
        self.lost(self.answer.late())
    }

    fn connect(&mut self, shared: &Shared) -> io::Result<Option<Step>> {
        self.peer_closed = false;
        self.connection = Connection::Begun;
        self.begun_at = Instant::now();
        let endpoint = &shared.options.endpoints[self.request.server];
        match Stream::connect(endpoint, &shared.registry, self.token) {
            Ok(stream) => self.stream = Some(stream),
            Err(error) if is_ours(&error) => return Err(error),
            Err(error) => return Ok(Some(self.lost(self.fault_of(&error)))),
        }
        Ok(None)
    }

    /// Sends as much of the request as the socket takes.
    fn write(&mut self) -> Result<(), Fault> {
        while self.sent < self.request.bytes.len() {
            let Some(stream) = &mut self.stream else { return Err(Fault::Reset) };
            match stream.write(&self.request.bytes[self.sent..]) {
                Ok(bytes) => {
                    self.sent += bytes;
                    if self.connection == Connection::Begun {
                        self.connection = Connection::Made(self.begun_at.elapsed());
                    }
                }
                // Not connected yet, or the socket's buffer is full: the poll reports both.
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    break;
                }
                Err(error) => return Err(self.fault_of(&error)),
            }
        }
        match self.stream.as_mut().map(Stream::flush) {
            Some(Err(error)) if error.kind() != ErrorKind::WouldBlock => Err(self.fault_of(&error)),
            _ => Ok(()),
        }
    }

    /// Reads until the answer is complete, or the socket is drained.
    fn read(&mut self, shared: &mut Shared) -> Step {
        loop {
            let Some(stream) = &mut self.stream else { return Step::Wait };
            match stream.read(&mut shared.scratch) {
                Ok(0) => return self.at_end(shared),
                Ok(bytes) => match self.answer.take(&shared.scratch[..bytes], &self.request) {
                    Ok(true) => return self.answered(shared, bytes),
                    // A short read means that nothing is left, so asking again would be a system call for nothing;
                    // but at the end of the stream no edge will follow.
                    Ok(false)
                        if bytes < shared.scratch.len()
                            && !self.peer_closed
                            && stream.short_read_is_all() =>
                    {
                        self.keep(&shared.scratch[..bytes]);
                        return Step::Wait;
                    }
                    Ok(false) => self.keep(&shared.scratch[..bytes]),
                    Err(fault) => {
                        self.keep(&shared.scratch[..bytes]);
                        return self.lost(fault);
                    }
                },
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Step::Wait;
                }
                // What had come of an answer was read before: this is no orderly end.
                Err(error) => return self.lost(self.fault_of(&error)),
            }
        }
    }

    /// Keeps the beginning of an answer that is not there as a whole, or not good.
    fn keep(&mut self, bytes: &[u8]) {
        self.first_byte.get_or_insert_with(Instant::now);
        let room = RECEIVED_BYTES_MAX.saturating_sub(self.received.len());
        self.received.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }

    /// The answer is complete with the last `bytes` that were read.
    fn answered(&mut self, shared: &Shared, bytes: usize) -> Step {
        // An answer before the end of the request leaves the rest of it on a connection that nobody will read. Where
        // each request has a connection of its own, this end does not wait for a server that keeps it open anyway.
        let is_last = shared.options.connect == Connect::Each || !self.answer.keeps_alive();
        if is_last || self.sent < self.request.bytes.len() {
            self.stream = None;
        }
        let over = self.complete();
        if let Step::Over { result: Err(_), .. } = over {
            let room = RECEIVED_BYTES_MAX.saturating_sub(self.received.len());
            self.received.extend_from_slice(&shared.scratch[..bytes.min(room)]);
        }
        over
    }

    /// What the complete answer means.
    pub(super) fn complete(&mut self) -> Step {
        self.rest = BACKOFF_MIN;
        self.answer.is_complete = true;
        let result = self.answer.verdict(&self.request);
        Step::Over { result, broken: false }
    }

    fn at_end(&mut self, shared: &Shared) -> Step {
        match self.answer.end() {
            Ok(()) => self.answered(shared, 0),
            Err(fault) => self.lost(fault),
        }
    }

    fn lost(&mut self, fault: Fault) -> Step {
        self.stream = None;
        Step::Over { result: Err(fault), broken: true }
    }

    /// The class of a socket's error.
    fn fault_of(&self, error: &io::Error) -> Fault {
        match error.kind() {
            ErrorKind::TimedOut => self.answer.late(),
            ErrorKind::InvalidData => Fault::Tls,
            ErrorKind::ConnectionReset => Fault::Reset,
            // Before any byte is sent, a failure is one to connect.
            _ if self.connection == Connection::Begun => Fault::Refused,
            _ => Fault::Reset,
        }
    }
}

/// Whether an error to connect is this machine's and not the peer's: no file descriptors, no memory, no local port.
pub(super) fn is_ours(error: &io::Error) -> bool {
    use rustix::io::Errno;
    const OURS: &[Errno] = &[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM, Errno::ADDRNOTAVAIL];
    Errno::from_io_error(error).is_some_and(|errno| OURS.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_double_up_to_a_second() {
        let mut client = Client::new(0, 0, Instant::now());
        let rests: Vec<u128> = (0..9).map(|_| client.next_backoff().as_millis()).collect();
        assert_eq!(rests, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
    }

    #[test]
    fn only_failures_of_this_machine_end_a_run() {
        use rustix::io::Errno;
        for (errno, ours) in [
            (Errno::MFILE, true),
            (Errno::ADDRNOTAVAIL, true),
            (Errno::CONNREFUSED, false),
            (Errno::HOSTUNREACH, false),
        ] {
            assert_eq!(is_ours(&errno.into()), ours, "{errno}");
        }
    }

    #[test]
    fn what_fails_before_a_byte_was_sent_is_a_failure_to_connect() {
        let mut client = Client::new(0, 0, Instant::now());
        for (kind, connecting, connected) in [
            (ErrorKind::ConnectionRefused, Fault::Refused, Fault::Reset),
            (ErrorKind::HostUnreachable, Fault::Refused, Fault::Reset),
            (ErrorKind::ConnectionReset, Fault::Reset, Fault::Reset),
            (ErrorKind::BrokenPipe, Fault::Refused, Fault::Reset),
            (ErrorKind::TimedOut, Fault::Timeout, Fault::Timeout),
        ] {
            client.connection = Connection::Begun;
            assert_eq!(client.fault_of(&kind.into()), connecting, "{kind}");
            for made in [Connection::Made(BACKOFF_MIN), Connection::Kept] {
                client.connection = made;
                assert_eq!(client.fault_of(&kind.into()), connected, "{kind}");
            }
        }
    }
}
