//! The link: a TCP proxy that lets through so many bytes a second and delays them, and keeps account of who waited.
//!
//! It stands in for a network between two processes of one machine. One thread, plain sockets; it knows nothing of what
//! it carries, and prints nothing.

mod pair;
mod wire;

use kv::proto::{LinkAccount, LinkDirection};
use pair::{Pair, Side};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fs::Timespec;
use rustix::net::listen;
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use wire::{Spent, Wire};

/// Sockets that one look can report.
const EVENTS_MAX: usize = 256;
/// Places in the queue of the listening socket: more than there are clients.
const BACKLOG: i32 = 1024;
/// What is read at once, in bytes, at most.
const READ_BYTES: usize = 64 << 10;

/// What the epoll says of the listening socket and of the questions; anything smaller is a pair's number, twice, plus its side.
const LISTENER: u64 = u64::MAX;
const QUESTIONS: u64 = u64::MAX - 1;

/// What to be.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Where to listen; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Where to go on to.
    pub to: SocketAddr,
    /// Most bytes a second in each direction, over all connections; `None`: no limit.
    pub bytes_per_sec: Option<f64>,
    /// How long all bytes take, in each direction.
    pub delay: Duration,
}

/// The state of a run.
struct Link {
    to: SocketAddr,
    epoll: OwnedFd,
    listener: TcpListener,
    began: Instant,
    /// By [`Side`] of whom the bytes come from.
    wires: [Wire; 2],
    /// What is under way in each direction, in the order in which it is through: when, and of which pair.
    agendas: [VecDeque<(Duration, u64)>; 2],
    pairs: HashMap<u64, Pair>,
    next: u64,
    /// Of chunks that are through.
    spent: Spent,
    scratch: Vec<u8>,
}

/// Carries on until the other end of `questions` is closed. `listening` is told where, once; `answer` gets the account for every byte
/// that comes from `questions`.
pub fn run(
    options: &Options,
    questions: &UnixStream,
    listening: &mut dyn FnMut(SocketAddr),
    answer: &mut dyn FnMut(&LinkAccount),
) -> io::Result<()> {
    questions.set_nonblocking(true)?;
    let mut link = Link::new(options, questions)?;
    listening(link.listener.local_addr()?);
    let mut events: Vec<Event> = Vec::with_capacity(EVENTS_MAX);
    loop {
        link.on_time();
        let wait = link.next_time().map(|at| at.saturating_sub(link.began.elapsed()));
        let wait = wait
            .map(|wait| Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) });
        events.clear();
        match epoll::wait(&link.epoll, spare_capacity(&mut events), wait.as_ref()) {
            Err(error) if error.kind() != ErrorKind::Interrupted => return Err(error.into()),
            _ => {}
        }
        for event in &events {
            // Copied: the fields of an event may not be aligned.
            let (place, flags) = (event.data, event.flags);
            match place.u64() {
                LISTENER => link.accept()?,
                QUESTIONS => {
                    let mut asked = [0; 64];
                    match (&*questions).read(&mut asked) {
                        Ok(0) => return Ok(()),
                        Ok(count) => (0..count).for_each(|_| answer(&link.account())),
                        Err(error)
                            if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                        Err(error) => return Err(error),
                    }
                }
                place => link.see_to(place / 2, Side::of(place % 2), flags),
            }
        }
    }
}

impl Link {
    fn new(options: &Options, questions: &UnixStream) -> io::Result<Link> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let listener = TcpListener::bind(options.listen)?;
        // Once more: the standard library has 128 places.
        listen(&listener, BACKLOG)?;
        listener.set_nonblocking(true)?;
        epoll::add(&epoll, &listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        epoll::add(&epoll, questions, EventData::new_u64(QUESTIONS), EventFlags::IN)?;
        let wire = Wire::new(options.bytes_per_sec, options.delay);
        Ok(Link {
            to: options.to,
            epoll,
            listener,
            began: Instant::now(),
            scratch: vec![0; wire.chunk_bytes().min(READ_BYTES)],
            wires: [wire.clone(), wire],
            agendas: Default::default(),
            pairs: HashMap::new(),
            next: 0,
            spent: Spent::default(),
        })
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let client = match self.listener.accept() {
                Ok((client, _)) => client,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // A client that went away meanwhile is none.
                Err(error)
                    if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) =>
                {
                    continue;
                }
                Err(error) => return Err(error),
            };
            // Dropped, it is closed: to the client that is a server that does not take it.
            let Ok(pair) = Pair::new(client, self.to) else { continue };
            let number = self.next;
            self.next += 1;
            // Told once of every change: what is not read or written now is remembered by the pair.
            let flags = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
            for side in [Side::Client, Side::Server] {
                let place = EventData::new_u64(number * 2 + side as u64);
                epoll::add(&self.epoll, pair.stream(side), place, flags)?;
            }
            self.pairs.insert(number, pair);
        }
    }

    /// Takes note of what a socket is ready for, and does what can be done.
    fn see_to(&mut self, number: u64, side: Side, flags: EventFlags) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.is_ready(side, flags);
        self.carry(number, side);
        if flags.contains(EventFlags::OUT) {
            self.flush(number, side.other());
            // There may be room again for what was left unread.
            self.carry(number, side.other());
        }
    }

    /// Takes in what has come from `side`.
    fn carry(&mut self, number: u64, side: Side) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        let direction = side as usize;
        while let Some(bytes) = pair.read(side, &mut self.scratch) {
            let now = self.began.elapsed();
            let passage = self.wires[direction].take(now, bytes);
            if passage.through <= now && self.agendas[direction].is_empty() {
                pair.pass(side, &self.scratch[..bytes]);
            } else {
                pair.hold(side, &self.scratch[..bytes], passage);
                self.agendas[direction].push_back((passage.through, number));
            }
        }
        self.flush(number, side);
    }

    /// Hands on what came from `side` and is through; forgets a pair that is over.
    fn flush(&mut self, number: u64, side: Side) {
        let Some(pair) = self.pairs.get_mut(&number) else { return };
        pair.flush(side);
        if pair.is_over() {
            self.forget(number);
        }
    }

    fn forget(&mut self, number: u64) {
        let Some(pair) = self.pairs.remove(&number) else { return };
        // What it has in the agendas is of nobody any more, but it was there until now.
        let spent = pair.spent(self.began.elapsed());
        self.spent.waiting += spent.waiting;
        self.spent.serving += spent.serving;
    }

    /// Does what is due.
    fn on_time(&mut self) {
        for side in [Side::Client, Side::Server] {
            loop {
                let now = self.began.elapsed();
                let Some((_, number)) = self.agendas[side as usize].pop_front_if(|(at, _)| *at <= now) else {
                    break;
                };
                let Some(pair) = self.pairs.get_mut(&number) else { continue };
                pair.release(side, &mut self.spent);
                self.flush(number, side);
                // There may be room again for what was left unread.
                self.carry(number, side);
            }
        }
    }

    /// When something is due next.
    fn next_time(&self) -> Option<Duration> {
        self.agendas.iter().filter_map(|agenda| Some(agenda.front()?.0)).min()
    }

    fn account(&self) -> LinkAccount {
        let now = self.began.elapsed();
        let direction = |side: Side| {
            let wire = &self.wires[side as usize];
            LinkDirection { bytes: wire.bytes(), busy_secs: wire.busy(now).as_secs_f64() }
        };
        let (mut waiting, mut serving) = (self.spent.waiting, self.spent.serving);
        for spent in self.pairs.values().map(|pair| pair.spent(now)) {
            waiting += spent.waiting;
            serving += spent.serving;
        }
        LinkAccount {
            up: direction(Side::Client),
            down: direction(Side::Server),
            waiting_secs: waiting.as_secs_f64(),
            serving_secs: serving.as_secs_f64(),
        }
    }
}
