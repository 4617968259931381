//! HTTP/2: connections that several clients of a reactor share, each with a stream of its own.
//!
//! The crate `h2` has frames, header compression and flow control. It is polled by our loop when a socket is ready, without a
//! runtime: nothing here waits.

use super::answer::Answer;
use super::attempt::Connection as Made;
use super::client::{Client, RECEIVED_BYTES_MAX, Shared, Step, is_ours};
use super::fault::Fault;
use super::request::Request;
use super::stream::{Endpoint, Stream};
use super::tls::NO_HTTP2;
use bytes::Bytes;
use h2::client::{Builder, Connection, ResponseFuture, SendRequest};
use h2::{RecvStream, SendStream};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderName, HeaderValue, Method, Uri, Version};
use mio::{Registry, Token};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::future::Future;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The largest windows that there are room for: what is measured is the server, not how much a client lets it send.
const WINDOW_BYTES: u32 = 1 << 30;
/// Fields that HTTP/2 has not (RFC 9113, section 8.2.2).
const OF_CONNECTIONS: [&[u8]; 5] =
    [b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"];
/// So much waits for a socket that takes nothing; more is asked of `h2` when it does.
const UNSENT_BYTES_MAX: usize = 256 << 10;

/// The connections of a reactor.
pub(super) struct Http2 {
    /// Of each client: its group, which has one connection at a time.
    groups: Vec<usize>,
    /// The clients of each group, and the connection of their next request.
    members: Vec<(Vec<usize>, Option<usize>)>,
    /// By the numbers of their tokens.
    connections: Vec<Option<Shareable>>,
    /// Of each client.
    exchanges: Vec<Exchange>,
    /// Connections that have something to send, or to read.
    dirty: BTreeSet<usize>,
}

/// A connection, and what is known of it.
struct Shareable {
    connection: Connection<Socket, Bytes>,
    /// `None`: no more requests go over it, and it ends with the last of its streams.
    requests: Option<SendRequest<Bytes>>,
    socket: Rc<RefCell<SocketState>>,
    group: usize,
    /// Whether a stream has something for it.
    woken: Arc<Woken>,
}

/// A stream of its own for each request of a client.
#[derive(Default)]
struct Exchange {
    woken: Arc<Woken>,
    /// Which connection it is on, and what had arrived there before.
    connection: usize,
    socket: Option<Rc<RefCell<SocketState>>>,
    arrived: u64,
    /// Kept until all is over: a stream whose ends are dropped is reset.
    sending: Option<SendStream<Bytes>>,
    response: Option<ResponseFuture>,
    body: Option<RecvStream>,
    /// It was sent once more, since the server had not begun with it.
    is_repeated: bool,
    /// The bytes of the request wait for the next flush.
    is_unsent: bool,
}

/// Whether `h2` has something for a stream or a connection: the waker sets it.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Woken {
    fn take(&self) -> bool {
        self.0.swap(false, Ordering::Relaxed)
    }

    fn waker(self: &Arc<Woken>) -> Waker {
        Waker::from(Arc::clone(self))
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Woken>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Http2 {
    /// Of clients of these servers, by their places: so many of one server share a connection.
    pub(super) fn new(servers: &[usize], streams: u32) -> Http2 {
        let mut open: Vec<Option<usize>> = Vec::new();
        let mut members: Vec<(Vec<usize>, Option<usize>)> = Vec::new();
        let mut groups = Vec::new();
        for (index, server) in servers.iter().enumerate() {
            open.resize(open.len().max(server + 1), None);
            let group = match open[*server] {
                Some(group) if members[group].0.len() < streams as usize => group,
                _ => {
                    members.push((Vec::new(), None));
                    *open[*server].insert(members.len() - 1)
                }
            };
            members[group].0.push(index);
            groups.push(group);
        }
        let exchanges = servers.iter().map(|_| Exchange::default()).collect();
        Http2 { groups, members, connections: Vec::new(), exchanges, dirty: BTreeSet::new() }
    }

    /// Sends the request of client `index`, over a new connection if there is none. `Err` is a failure of this machine.
    pub(super) fn send(&mut self, index: usize, client: &mut Client, shared: &Shared) -> io::Result<Step> {
        self.exchanges[index].is_repeated = false;
        self.send_over(index, client, shared)
    }

    fn send_over(&mut self, index: usize, client: &mut Client, shared: &Shared) -> io::Result<Step> {
        let endpoint = &shared.options.endpoints[client.request.server];
        let Some((head, body)) = head(&client.request, endpoint) else {
            return Ok(failed(Fault::Malformed));
        };
        let group = self.groups[index];
        // The connection may have ended since; a new one has not.
        let current = self.members[group].1;
        let place = match current.filter(|place| self.takes_requests(*place)) {
            Some(place) => place,
            None => match self.connect(group, endpoint, &shared.registry) {
                Ok(place) => {
                    client.connection = Made::Begun;
                    place
                }
                Err(error) if is_ours(&error) => return Err(error),
                Err(error) => return Ok(failed(fault_of(error.kind(), false, &client.answer))),
            },
        };
        let Some(shareable) = &mut self.connections[place] else { return Ok(failed(Fault::Reset)) };
        // A copy: what waits for the server to allow one more stream holds up its own handle only.
        let Some(mut requests) = shareable.requests.clone() else { return Ok(failed(Fault::Reset)) };
        // It can only be refused here for what is no request of HTTP/2, as a field `TE: gzip`.
        let Ok((response, mut sending)) = requests.send_request(head, body.is_empty()) else {
            return Ok(failed(Fault::Malformed));
        };
        if !body.is_empty() && sending.send_data(body, true).is_err() {
            return Ok(failed(Fault::Reset));
        }
        let exchange = &mut self.exchanges[index];
        exchange.connection = place;
        exchange.arrived = shareable.socket.borrow().arrived;
        exchange.socket = Some(Rc::clone(&shareable.socket));
        exchange.response = Some(response);
        exchange.sending = Some(sending);
        exchange.is_unsent = !exchange.is_repeated;
        // It is asked once, so that it knows whom to wake.
        exchange.woken.0.store(true, Ordering::Relaxed);
        self.dirty.insert(place);
        Ok(Step::Wait)
    }

    fn takes_requests(&mut self, place: usize) -> bool {
        let shareable = self.connections[place].as_mut();
        let Some(requests) = shareable.and_then(|shareable| shareable.requests.as_mut()) else {
            return false;
        };
        matches!(requests.poll_ready(&mut Context::from_waker(Waker::noop())), Poll::Ready(Ok(())))
    }

    /// Begins a connection for a group.
    fn connect(&mut self, group: usize, endpoint: &Endpoint, registry: &Registry) -> io::Result<usize> {
        let place = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
        let stream = Stream::connect(endpoint, registry, Token(place))?;
        let socket = Rc::<RefCell<SocketState>>::default();
        let (state, begun_at) = (Rc::clone(&socket), Instant::now());
        let io = Socket { stream, begun_at, state, unsent: Vec::new() };
        let mut builder = Builder::new();
        builder.initial_window_size(WINDOW_BYTES).initial_connection_window_size(WINDOW_BYTES);
        builder.enable_push(false);
        // Until its settings arrive nobody knows how many streams the server allows: it refuses those that are too many.
        builder.initial_max_send_streams(1);
        let handshake = builder.handshake::<Socket, Bytes>(io);
        // What it sends is kept by the socket, so that it has not to wait.
        let made = pin!(handshake).poll(&mut Context::from_waker(Waker::noop()));
        let (requests, connection) = match made {
            Poll::Ready(Ok(made)) => made,
            Poll::Ready(Err(error)) => return Err(error.into_io().unwrap_or(ErrorKind::Other.into())),
            Poll::Pending => return Err(ErrorKind::WouldBlock.into()),
        };
        if place == self.connections.len() {
            self.connections.push(None);
        }
        let (requests, woken) = (Some(requests), Arc::default());
        self.connections[place] = Some(Shareable { connection, requests, socket, group, woken });
        self.members[group].1 = Some(place);
        Ok(place)
    }

    /// The socket of a connection is ready.
    pub(super) fn ready(&mut self, place: usize, is_readable: bool, is_closed: bool) {
        // It may have ended meanwhile.
        let Some(shareable) = self.connections.get_mut(place).and_then(Option::as_mut) else { return };
        let mut state = shareable.socket.borrow_mut();
        state.is_readable |= is_readable || is_closed;
        state.is_closed |= is_closed;
        drop(state);
        self.dirty.insert(place);
    }

    /// Reads and sends what there is on the next connection that has something: the group of its clients, or `None` if there
    /// is no such connection.
    pub(super) fn advance(&mut self) -> Option<usize> {
        loop {
            let place = self.dirty.pop_first()?;
            let Some(shareable) = &mut self.connections[place] else { continue };
            let (group, was_made) = (shareable.group, shareable.socket.borrow().made.is_some());
            let waker = shareable.woken.waker();
            let cx = &mut Context::from_waker(&waker);
            if Pin::new(&mut shareable.connection).poll(cx).is_ready() {
                // Its streams have been told.
                self.connections[place] = None;
                self.members[group].1.take_if(|current| *current == place);
            } else if shareable.woken.take() || shareable.socket.borrow().made.is_some() != was_made {
                // A handshake of TLS that ends in a write may have brought more than itself.
                self.dirty.insert(place);
            }
            return Some(group);
        }
    }

    /// The client in this place of a group.
    pub(super) fn member(&self, group: usize, place: usize) -> Option<usize> {
        self.members[group].0.get(place).copied()
    }

    /// When the request of client `index`, which was begun at `since`, went to the socket; said once.
    pub(super) fn sent_at(&mut self, index: usize, since: Instant) -> Option<Instant> {
        let Exchange { socket, is_unsent, .. } = &mut self.exchanges[index];
        let socket = socket.as_ref().filter(|_| *is_unsent)?;
        let sent_at = socket.borrow().sent_at.filter(|at| *at >= since)?;
        *is_unsent = false;
        Some(sent_at)
    }

    /// When the socket under the last request of client `index` last brought something, or failed.
    pub(super) fn seen_at(&self, index: usize) -> Option<Instant> {
        self.exchanges[index].socket.as_ref().and_then(|socket| socket.borrow().seen_at)
    }

    /// Takes what has arrived for client `index`.
    pub(super) fn step(&mut self, index: usize, client: &mut Client, shared: &Shared) -> io::Result<Step> {
        let exchange = &mut self.exchanges[index];
        if exchange.sending.is_none() || !exchange.woken.take() {
            return Ok(Step::Wait);
        }
        let received = exchange.receive(client);
        let place = exchange.connection;
        if !matches!(received, Ok(false)) {
            exchange.end(client);
        } else if client.answer.status != 0 {
            client.first_byte.get_or_insert_with(Instant::now);
        }
        // What was taken makes room for more, which the server has to be told.
        if self.connections[place].as_ref().is_some_and(|shareable| shareable.woken.take()) {
            self.dirty.insert(place);
        }
        let error = match received {
            Ok(false) => return Ok(Step::Wait),
            Ok(true) => return Ok(client.complete()),
            Err(error) => error,
        };
        let exchange = &mut self.exchanges[index];
        // Streams behind the last one that the server names were not begun with (RFC 9113, section 6.8).
        let is_refused = error.is_go_away() && error.is_remote() && client.answer.status == 0;
        if is_refused && !std::mem::replace(&mut exchange.is_repeated, true) {
            return self.send_over(index, client, shared);
        }
        let socket = exchange.socket.as_ref().map(|socket| socket.borrow());
        let was_made = socket.as_ref().is_some_and(|socket| socket.made.is_some());
        let failed = socket.and_then(|socket| socket.failed);
        let fault = match error.get_io() {
            Some(error) => fault_of(failed.unwrap_or(error.kind()), was_made, &client.answer),
            None if error.is_remote() && error.is_reset() => Fault::StreamReset,
            None if error.is_remote() => Fault::GoAway,
            None => Fault::Malformed,
        };
        // A stream that failed leaves the connection as it was.
        Ok(Step::Over { result: Err(fault), broken: !error.is_reset() })
    }

    /// Gives the request of client `index` up. A connection on which nothing has arrived since takes no more requests.
    pub(super) fn time_out(&mut self, index: usize, client: &mut Client) -> Step {
        let exchange = &mut self.exchanges[index];
        let (place, arrived) = (exchange.connection, exchange.arrived);
        let socket = exchange.socket.clone();
        exchange.end(client);
        if let Some(shareable) = &mut self.connections[place]
            && socket.is_some_and(|socket| Rc::ptr_eq(&socket, &shareable.socket))
        {
            if shareable.socket.borrow().arrived == arrived {
                shareable.requests = None;
            }
            // It says that the stream is not wanted any more.
            self.dirty.insert(place);
        }
        Step::Over { result: Err(client.answer.late()), broken: true }
    }
}

/// Whether a server that was connected to speaks HTTP/2 without having been asked.
pub(super) fn try_out(tcp: &mut std::net::TcpStream) -> io::Result<()> {
    /// The preface, and settings that leave all as it is.
    const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    const SETTINGS: u8 = 4;
    tcp.write_all(HELLO)?;
    let mut head = [0; 9];
    match tcp.read_exact(&mut head) {
        Ok(()) if head[3] == SETTINGS && head[5..] == [0; 4] => Ok(()),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        _ => Err(io::Error::new(ErrorKind::Unsupported, NO_HTTP2)),
    }
}

fn failed(fault: Fault) -> Step {
    Step::Over { result: Err(fault), broken: true }
}

/// The class of a failure of the connection.
fn fault_of(kind: ErrorKind, was_made: bool, answer: &Answer) -> Fault {
    match kind {
        ErrorKind::InvalidData => Fault::Tls,
        ErrorKind::TimedOut => answer.late(),
        ErrorKind::ConnectionReset => Fault::Reset,
        _ if !was_made => Fault::Refused,
        // It ended in order, but inside an answer.
        ErrorKind::BrokenPipe | ErrorKind::UnexpectedEof if answer.status != 0 => Fault::ClosedEarly,
        _ => Fault::Reset,
    }
}

impl Exchange {
    /// A stream whose ends are dropped before it is over is reset. `client` is told in what time its connection was made.
    fn end(&mut self, client: &mut Client) {
        (self.sending, self.response, self.body) = (None, None, None);
        if client.connection == Made::Begun
            && let Some(made) = self.socket.as_ref().and_then(|socket| socket.borrow().made)
        {
            client.connection = Made::Made(made);
        }
    }

    /// Takes what has arrived; true when that is all of the answer.
    fn receive(&mut self, client: &mut Client) -> Result<bool, h2::Error> {
        let Client { answer, request, received, .. } = client;
        let waker = self.woken.waker();
        let cx = &mut Context::from_waker(&waker);
        if let Some(response) = &mut self.response {
            let Poll::Ready(response) = Pin::new(response).poll(cx) else { return Ok(false) };
            let response = response?;
            self.response = None;
            let (head, body) = response.into_parts();
            let field = |name: &str| head.headers.get(name).map(|value| value.as_bytes().to_vec());
            let status = head.status.as_u16();
            answer.learn(status, request, field);
            answer.status = status;
            if body.is_end_stream() {
                return Ok(true);
            }
            self.body = Some(body);
        }
        let Some(body) = &mut self.body else { return Ok(true) };
        loop {
            match body.poll_data(cx) {
                Poll::Pending => return Ok(false),
                Poll::Ready(None) => return Ok(true),
                Poll::Ready(Some(data)) => {
                    let data = data?;
                    let _ = body.flow_control().release_capacity(data.len());
                    answer.content.take(&data, request);
                    let room = RECEIVED_BYTES_MAX.saturating_sub(received.len());
                    received.extend_from_slice(&data[..data.len().min(room)]);
                    if body.is_end_stream() {
                        return Ok(true);
                    }
                }
            }
        }
    }
}

/// The head and the body of a request that was rendered for HTTP/1.1; `None` if it cannot be one of HTTP/2.
fn head(request: &Request, endpoint: &Endpoint) -> Option<(http::Request<()>, Bytes)> {
    let end = memchr::memmem::find(&request.bytes, b"\r\n\r\n")?;
    let (head, body) = (&request.bytes[..end], &request.bytes[end + 4..]);
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
    let mut words = lines.next()?.split(|byte| *byte == b' ');
    let (method, path) = (words.next()?, words.next()?);
    let mut built = http::Request::new(());
    *built.version_mut() = Version::HTTP_2;
    *built.method_mut() = Method::from_bytes(method).ok()?;
    let mut authority = None;
    for line in lines {
        let colon = memchr::memchr(b':', line)?;
        let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
        match () {
            () if name.eq_ignore_ascii_case(b"host") => authority = Authority::try_from(value).ok(),
            // Fields of a connection that other requests do not share.
            () if OF_CONNECTIONS.iter().any(|other| name.eq_ignore_ascii_case(other)) => {}
            () => {
                built
                    .headers_mut()
                    .append(HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?);
            }
        }
    }
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(if endpoint.tls.is_some() { Scheme::HTTPS } else { Scheme::HTTP });
    uri.authority = authority;
    uri.path_and_query = Some(PathAndQuery::try_from(path).ok()?);
    *built.uri_mut() = Uri::from_parts(uri).ok()?;
    Some((built, Bytes::copy_from_slice(body)))
}

/// What is known of a socket.
#[derive(Default)]
struct SocketState {
    /// Something may have arrived that was not read.
    is_readable: bool,
    /// The peer sends nothing more: no event will say so again.
    is_closed: bool,
    /// Bytes that arrived so far.
    arrived: u64,
    /// When it last brought something, or failed.
    seen_at: Option<Instant>,
    /// When it was last written to.
    sent_at: Option<Instant>,
    made: Option<Duration>,
    /// Why it failed: `h2` tells streams of a failed write as of an end in order.
    failed: Option<ErrorKind>,
}

/// A connection as `h2` wants it. Keeps what is written until it is flushed: one system call for the frames of all streams.
struct Socket {
    stream: Stream,
    begun_at: Instant,
    state: Rc<RefCell<SocketState>>,
    unsent: Vec<u8>,
}

impl Socket {
    fn send(&mut self) -> Poll<io::Result<()>> {
        let mut sent = 0;
        if !self.unsent.is_empty() {
            self.state.borrow_mut().sent_at = Some(Instant::now());
        }
        while sent < self.unsent.len() {
            match self.stream.write(&self.unsent[sent..]) {
                Ok(bytes) => {
                    sent += bytes;
                    self.state.borrow_mut().made.get_or_insert_with(|| self.begun_at.elapsed());
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    self.unsent.drain(..sent);
                    return Poll::Pending;
                }
                Err(error) => return Poll::Ready(Err(self.fail(error))),
            }
        }
        self.unsent.clear();
        match self.stream.flush() {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Poll::Pending,
            Err(error) => Poll::Ready(Err(self.fail(error))),
            Ok(()) => Poll::Ready(Ok(())),
        }
    }

    /// Keeps the first failure.
    fn fail(&self, error: io::Error) -> io::Error {
        let mut state = self.state.borrow_mut();
        state.seen_at = Some(Instant::now());
        state.failed.get_or_insert(error.kind());
        error
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let state = Rc::clone(&self.state);
        let mut state = state.borrow_mut();
        if !state.is_readable {
            return Poll::Pending;
        }
        let room = into.initialize_unfilled();
        match self.stream.read(room) {
            Ok(bytes) => {
                state.seen_at = Some(Instant::now());
                // A short read means that nothing is left, so asking again would be a system call for nothing.
                let is_all = bytes < room.len() && self.stream.short_read_is_all();
                state.is_readable = !is_all || state.is_closed;
                state.arrived += bytes as u64;
                into.advance(bytes);
                Poll::Ready(Ok(()))
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                state.is_readable = false;
                Poll::Pending
            }
            Err(error) => {
                drop(state);
                Poll::Ready(Err(self.fail(error)))
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.unsent.len() >= UNSENT_BYTES_MAX
            && let Poll::Ready(Err(error)) = self.send()
        {
            return Poll::Ready(Err(error));
        }
        if self.unsent.len() >= UNSENT_BYTES_MAX {
            return Poll::Pending;
        }
        self.unsent.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.send()
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_flush(cx)
    }
}
