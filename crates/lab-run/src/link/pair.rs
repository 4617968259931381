//! Two sockets that belong together, and what is on its way between them.

use super::wire::{Passage, Spent};
use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, socket_with};
use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// What is held of one connection in one direction, in bytes, before the kernel has to: senders then feel that nothing goes on.
const HELD_MAX: usize = 64 << 10;

/// Who bytes come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Who connected to us.
    Client = 0,
    /// Whom we connected to.
    Server = 1,
}

impl Side {
    pub(super) fn of(number: u64) -> Side {
        if number == 0 { Side::Client } else { Side::Server }
    }

    pub(super) fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// A client, its server, and both directions; by [`Side`] of whom the bytes come from.
pub(super) struct Pair {
    ends: [End; 2],
    halves: [Half; 2],
    /// A socket failed: there is nothing to go on with.
    broken: bool,
}

struct End {
    stream: TcpStream,
    readable: bool,
    writable: bool,
    /// Its side has said its last; known before it is read.
    ending: bool,
}

/// One direction.
#[derive(Default)]
struct Half {
    held: VecDeque<u8>,
    /// Of `held`, what is through and only waits for the socket.
    through: usize,
    /// The chunks behind that.
    chunks: VecDeque<(usize, Passage)>,
    /// When the last chunk that is no more in `chunks` was through.
    free: Duration,
    /// All was read.
    ended: bool,
    /// And the other side has been told.
    told: bool,
}

impl Pair {
    /// Goes on to `to` for `client`. The connection is under way, perhaps not there yet.
    pub(super) fn new(client: TcpStream, to: SocketAddr) -> io::Result<Pair> {
        client.set_nonblocking(true)?;
        let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        match connect(&socket, &to) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(error) => return Err(error.into()),
        }
        let end = |stream: TcpStream| {
            // Nothing may be held back but by us.
            stream.set_nodelay(true)?;
            Ok::<End, io::Error>(End { stream, readable: false, writable: false, ending: false })
        };
        let ends = [end(client)?, end(TcpStream::from(socket))?];
        Ok(Pair { ends, halves: Default::default(), broken: false })
    }

    pub(super) fn stream(&self, side: Side) -> &TcpStream {
        &self.ends[side as usize].stream
    }

    /// Takes note of what the socket of `side` has become ready for.
    pub(super) fn is_ready(&mut self, side: Side, flags: EventFlags) {
        let end = &mut self.ends[side as usize];
        end.readable |= flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP);
        end.writable |= flags.contains(EventFlags::OUT);
        end.ending |= flags.contains(EventFlags::RDHUP);
        self.broken |= flags.contains(EventFlags::ERR);
    }

    /// Reads what has come from `side`, once; `None` if there is nothing now, or no room for it.
    pub(super) fn read(&mut self, side: Side, into: &mut [u8]) -> Option<usize> {
        let (end, half) = (&mut self.ends[side as usize], &mut self.halves[side as usize]);
        if !end.readable || half.ended || self.broken || half.held.len() >= HELD_MAX {
            return None;
        }
        match end.stream.read(into) {
            Ok(0) => {
                half.ended = true;
                None
            }
            Ok(bytes) => {
                // Less than there was room for is all there was; an end behind it is to be read, too.
                end.readable = bytes == into.len() || end.ending;
                Some(bytes)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                end.readable = false;
                None
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => self.read(side, into),
            Err(_) => {
                self.broken = true;
                None
            }
        }
    }

    /// Hands on bytes from `side` that are through already.
    pub(super) fn pass(&mut self, side: Side, bytes: &[u8]) {
        let (end, half) = (&mut self.ends[side.other() as usize], &mut self.halves[side as usize]);
        let sent = if half.held.is_empty() { end.write(bytes, &mut self.broken) } else { 0 };
        half.held.extend(&bytes[sent..]);
        half.through += bytes.len() - sent;
    }

    /// Keeps bytes from `side` until they are through.
    pub(super) fn hold(&mut self, side: Side, bytes: &[u8], passage: Passage) {
        let half = &mut self.halves[side as usize];
        half.held.extend(bytes);
        half.chunks.push_back((bytes.len(), passage));
    }

    /// The oldest chunk from `side` is through; what it spent is added to `spent`.
    pub(super) fn release(&mut self, side: Side, spent: &mut Spent) {
        let half = &mut self.halves[side as usize];
        let Some((bytes, passage)) = half.chunks.pop_front() else { return };
        half.through += bytes;
        spent.add(passage, half.free, passage.through);
        half.free = passage.through;
    }

    /// Hands on what came from `side` and is through; after the last of it, that there is no more.
    pub(super) fn flush(&mut self, side: Side) {
        let (end, half) = (&mut self.ends[side.other() as usize], &mut self.halves[side as usize]);
        while half.through > 0 {
            let front = half.held.as_slices().0;
            let sent = end.write(&front[..front.len().min(half.through)], &mut self.broken);
            if sent == 0 {
                return;
            }
            half.held.drain(..sent);
            half.through -= sent;
        }
        if half.ended && half.held.is_empty() && !half.told {
            half.told = true;
            // Who is gone already need not be told.
            let _ = end.stream.shutdown(Shutdown::Write);
        }
    }

    /// Whether nothing will come of it any more.
    pub(super) fn is_over(&self) -> bool {
        self.broken || self.halves.iter().all(|half| half.told)
    }

    /// What its chunks under way have spent by `now`.
    pub(super) fn spent(&self, now: Duration) -> Spent {
        let mut spent = Spent::default();
        for half in &self.halves {
            let mut free = half.free;
            for (_, passage) in &half.chunks {
                spent.add(*passage, free, now);
                free = passage.through;
            }
        }
        spent
    }
}

impl End {
    /// How much of `bytes` the socket took.
    fn write(&mut self, bytes: &[u8], broken: &mut bool) -> usize {
        if !self.writable || bytes.is_empty() {
            return 0;
        }
        match self.stream.write(bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::Interrupted => self.write(bytes, broken),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                0
            }
            Err(_) => {
                *broken = true;
                0
            }
        }
    }
}
