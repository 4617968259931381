//! The loop of one thread: waits until some of its clients' sockets are ready, and sees each request through.
//!
//! Knows when a request is over, not what to ask next or how to count: that is its [`Duty`]. One clock reading per
//! completion: the end of a request is the start of its client's next one, so that every instant of a client lies
//! either in a request or in a rest.

use super::Connect;
use super::answer::{Fault, Success};
use super::client::{Client, Shared, State, Step};
use super::mix::Operation;
use super::pacing::Pacing;
use super::request::Request;
use mio::{Events, Poll};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Sockets that one poll can report.
const EVENTS_MAX: usize = 1024;
/// Longest time between two looks for requests that took too long.
const SWEEP_MAX: Duration = Duration::from_millis(100);
/// Clients that start together. More at once overflow the queue of a listening socket (128 places are common), and
/// then wait a second or more until the kernel tries again.
const STARTERS: usize = 64;
/// Time between one such group and the next.
const START_EVERY: Duration = Duration::from_millis(5);

/// A request that is over.
#[derive(Clone, Copy, Debug)]
pub(super) struct Attempt {
    pub(super) operation: Operation,
    pub(super) result: Result<Success, Fault>,
    /// Of the answer; zero when none was complete.
    pub(super) status: u16,
    /// When the client was free to send it.
    pub(super) since: Instant,
    /// When it was over.
    pub(super) until: Instant,
}

/// What a reactor's clients are there for.
pub(super) trait Duty {
    /// Renders the next request of client `index`; `false` when there is none for it any more.
    fn next(&mut self, index: usize, request: &mut Request) -> bool;
    /// Takes note of a request that is over.
    fn done(&mut self, index: usize, attempt: &Attempt);
    /// Takes note that a client backed off.
    fn rested(&mut self, since: Instant, until: Instant);
    /// Whether to go on; asked at least after every wait.
    fn goes_on(&mut self, now: Instant) -> bool;
    /// When it wants to be asked next, even if nothing happens.
    fn wake_at(&self, now: Instant) -> Option<Instant>;
}

/// A thread's share of the clients.
pub(super) struct Reactor {
    poll: Poll,
    shared: Shared,
    clients: Vec<Client>,
    /// Who may connect again, and when, earliest first.
    resting: BinaryHeap<Reverse<(Instant, usize)>>,
    timeout: Duration,
    pacing: Pacing,
    /// The last reading of the clock.
    now: Instant,
}

/// How a reactor's clients behave.
#[derive(Clone, Copy, Debug)]
pub(super) struct Manners {
    pub(super) address: SocketAddr,
    pub(super) timeout: Duration,
    pub(super) pacing: Pacing,
    pub(super) connect: Connect,
    pub(super) absent_is_fine: bool,
}

impl Reactor {
    /// A reactor of `clients` clients, none of them connected yet.
    pub(super) fn new(clients: usize, manners: Manners) -> io::Result<Reactor> {
        let poll = Poll::new()?;
        let now = Instant::now();
        Ok(Reactor {
            shared: Shared::new(poll.registry().try_clone()?, manners),
            poll,
            clients: (0..clients).map(|index| Client::new(index, now)).collect(),
            resting: BinaryHeap::with_capacity(clients),
            timeout: manners.timeout,
            pacing: manners.pacing,
            now,
        })
    }

    /// Lets all clients work until `duty` has enough. Requests then in flight are not reported, rests are.
    pub(super) fn run(&mut self, duty: &mut impl Duty) -> io::Result<()> {
        // Seldom enough to cost nothing, often enough that a request is given up a tenth late at most.
        let sweep_every = (self.timeout / 10).clamp(Duration::from_millis(1), SWEEP_MAX);
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.now = Instant::now();
        let mut sweep_at = self.now + sweep_every;
        let begun = self.now;
        for index in 0..self.clients.len() {
            // The later groups begin with a rest, so that no instant of theirs is unaccounted for.
            let client = &mut self.clients[index];
            client.state = State::Resting;
            client.since = begun;
            self.resting.push(Reverse((begun + START_EVERY * (index / STARTERS) as u32, index)));
        }
        self.wake_rested(duty)?;
        while duty.goes_on(self.now) {
            let rested_at = self.resting.peek().map(|Reverse((at, _))| *at);
            let wake_at =
                [rested_at, duty.wake_at(self.now)].into_iter().flatten().fold(sweep_at, Instant::min);
            match self.poll.poll(&mut events, Some(wake_at.saturating_duration_since(self.now))) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let before = self.now;
            for event in &events {
                let index = event.token().0;
                let client = &mut self.clients[index];
                let step = client.ready(event.is_readable(), event.is_read_closed(), &mut self.shared);
                self.follow(index, step, duty)?;
            }
            // Completions have read the clock already.
            if self.now == before {
                self.now = Instant::now();
            }
            self.wake_rested(duty)?;
            if self.now >= sweep_at {
                self.sweep(duty)?;
                sweep_at = self.now + sweep_every;
            }
        }
        self.end_rests(duty);
        Ok(())
    }

    /// Sends the next request of a client that is free.
    fn begin(&mut self, index: usize, duty: &mut impl Duty) -> io::Result<Step> {
        let client = &mut self.clients[index];
        if duty.next(index, &mut client.request) {
            client.state = State::InFlight;
            client.send(&mut self.shared)
        } else {
            client.state = State::Idle;
            Ok(Step::Wait)
        }
    }

    /// Does what follows from `step`. A loop, because a request can be over as soon as it is begun.
    fn follow(&mut self, index: usize, mut step: Step, duty: &mut impl Duty) -> io::Result<()> {
        while let Step::Over { result, broken } = step {
            self.now = Instant::now();
            let client = &mut self.clients[index];
            let attempt = Attempt {
                operation: client.request.operation,
                result,
                status: client.status(),
                since: client.since,
                until: self.now,
            };
            duty.done(index, &attempt);
            if broken {
                client.state = State::Resting;
                client.since = self.now;
                self.resting.push(Reverse((self.now + client.next_rest(), index)));
                return Ok(());
            }
            client.since = self.pacing.free_at(self.now);
            step = self.begin(index, duty)?;
        }
        Ok(())
    }

    /// Lets those connect again whose rest is over.
    fn wake_rested(&mut self, duty: &mut impl Duty) -> io::Result<()> {
        while let Some(&Reverse((at, index))) = self.resting.peek()
            && at <= self.now
        {
            self.resting.pop();
            let client = &mut self.clients[index];
            duty.rested(client.since, self.now);
            client.since = self.now;
            let step = self.begin(index, duty)?;
            self.follow(index, step, duty)?;
        }
        Ok(())
    }

    /// Gives up the requests that have taken too long.
    fn sweep(&mut self, duty: &mut impl Duty) -> io::Result<()> {
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let late = self.now.saturating_duration_since(client.since) >= self.timeout;
            if client.state == State::InFlight && late {
                let step = client.time_out();
                self.follow(index, step, duty)?;
            }
        }
        Ok(())
    }

    /// Reports the part of the rests that lies before the end of the run.
    fn end_rests(&mut self, duty: &mut impl Duty) {
        while let Some(Reverse((_, index))) = self.resting.pop() {
            let client = &mut self.clients[index];
            duty.rested(client.since, self.now);
            client.state = State::Idle;
        }
    }
}
