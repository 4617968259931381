//! The loop of one thread: waits until some of its clients' sockets are ready, and sees each request through.
//!
//! Knows when a request is over, not what to send next or how to count: its [`Driver`] does.
//!
//! In a closed loop a client is a connection. One clock reading per completion: the end of a request is the start of its
//! client's next one, so that every instant of a client lies in a request, a thought or a rest. HTTP/2 costs the generator more time:
//! there, a request ends when its socket was read, and the client's next one begins when its bytes are written. In an open loop the
//! clients' schedules say when requests are due, and whichever connection to the client's server has been free longest carries
//! the next; if none is free it waits, and its latency counts from when it was due.

use super::answer::{Answer, Outcome};
use super::attempt::{Attempt, Connection, Unfinished};
use super::client::{Client, ClientOptions, Shared, State, Step};
use super::fault::Fault;
use super::http2::Http2;
use super::recorder::Recorder;
use super::request::Request;
use super::schedule::Schedule;
use super::timer::Timer;
use kv::faults::compute;
use mio::{Events, Poll};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// Sockets that one poll can report.
const EVENTS_MAX: usize = 1024;
/// Longest time between two looks for requests that took too long.
const SWEEP_MAX: Duration = Duration::from_millis(100);
/// Clients of all threads that start together. More at once overflow the queue of a listening socket (128 places are
/// common), and then wait a second or more until the kernel tries again.
const START_GROUP: usize = 64;
/// Time between one such group and the next.
const START_EVERY: Duration = Duration::from_millis(5);

/// How long after the first client number `index` of one of so many threads starts.
pub(super) fn start_delay(index: usize, threads: u32) -> Duration {
    START_EVERY * (index / (START_GROUP / threads as usize).max(1)) as u32
}

/// Says what a reactor's clients ask for, and takes what becomes of it.
pub(super) trait Driver {
    /// Renders the next request of client `index`; `false` when there is none for it any more.
    fn next(&mut self, index: usize, request: &mut Request) -> bool;
    /// The result of a request whose answer alone gives `result`, and whether a value was compared as a whole.
    fn judge(&mut self, _request: &Request, _answer: &Answer, result: Outcome) -> (Outcome, bool) {
        (result, false)
    }
    /// A request failed; `received` is the beginning of what arrived.
    fn failed(&mut self, _fault: Fault, _request: &Request, _answer: &Answer, _received: &[u8]) {}
    /// A request of client `index` is over.
    fn done(&mut self, index: usize, attempt: &Attempt);
    /// How long a client of a closed loop waits at least before its next request.
    fn rest(&self, _attempt: &Attempt) -> Duration {
        Duration::ZERO
    }
    /// Counts how clients spend their time, where that is asked for.
    fn count(&mut self, _time: impl FnOnce(&mut Recorder)) {}
    /// Whether to go on; asked at least after every wait.
    fn should_continue(&mut self, now: Instant) -> bool;
    /// This machine could not send a request, which is left out: an error if the run cannot go on.
    fn cannot_send(&mut self, error: io::Error) -> io::Result<()> {
        Err(error)
    }
    /// When it wants to be asked next, even if nothing happens.
    fn wake_at(&self, now: Instant) -> Option<Instant>;
}

/// A thread's share of the clients.
pub(super) struct Reactor {
    poll: Poll,
    shared: Shared,
    clients: Vec<Client>,
    /// Connections of HTTP/2; those of HTTP/1.1 belong to their clients.
    http2: Option<Http2>,
    /// Whose rest or thought ends when, earliest first.
    waiting: BinaryHeap<Reverse<(Instant, usize)>>,
    /// By server: connections of an open loop that carry nothing, the one that has been free longest in front.
    free: Vec<VecDeque<usize>>,
    in_flight: u32,
    schedule: Schedule,
    /// Where there are instants to keep that a poll's milliseconds are too coarse for.
    timer: Option<Timer>,
    /// The last reading of the clock.
    now: Instant,
}

impl Reactor {
    /// A reactor of clients of these servers, by their places, none of them connected yet, that send as `schedule` says.
    pub(super) fn new(servers: &[usize], options: ClientOptions, schedule: Schedule) -> io::Result<Reactor> {
        let poll = Poll::new()?;
        let now = Instant::now();
        let timer = schedule.is_timed().then(|| Timer::new(poll.registry())).transpose()?;
        Ok(Reactor {
            http2: options.streams.map(|streams| Http2::new(servers, streams)),
            free: vec![VecDeque::new(); options.endpoints.len()],
            shared: Shared::new(poll.registry().try_clone()?, options),
            poll,
            clients: servers
                .iter()
                .enumerate()
                .map(|(index, server)| Client::new(index, *server, now))
                .collect(),
            waiting: BinaryHeap::with_capacity(servers.len()),
            in_flight: 0,
            schedule,
            timer,
            now,
        })
    }

    /// Lets all clients work until `driver` has enough; they are there since `begun`. Rests and thoughts are reported up to that instant; requests then in
    /// flight are left.
    pub(super) fn run(&mut self, begun: Instant, driver: &mut impl Driver) -> io::Result<()> {
        // Seldom enough to cost nothing, often enough that a request is given up a tenth late at most.
        let ClientOptions { timeout, threads, .. } = self.shared.options;
        let sweep_every = (timeout / 10).clamp(Duration::from_millis(1), SWEEP_MAX);
        let mut events = Events::with_capacity(EVENTS_MAX);
        self.now = Instant::now();
        let mut sweep_at = self.now + sweep_every;
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            client.state = State::Starting;
            client.since = begun;
            self.waiting.push(Reverse((begun + start_delay(index, threads), index)));
        }
        self.wake(driver)?;
        self.advance(driver)?;
        while driver.should_continue(self.now) {
            let wake_at = [self.next_at(), driver.wake_at(self.now)];
            let wake_at = wake_at.into_iter().flatten().fold(sweep_at, Instant::min);
            self.wait(&mut events, wake_at)?;
            let before = self.now;
            for event in events.iter().filter(|event| event.token() != Timer::TOKEN) {
                let index = event.token().0;
                match &mut self.http2 {
                    None => {
                        let client = &mut self.clients[index];
                        let step =
                            client.ready(event.is_readable(), event.is_read_closed(), &mut self.shared);
                        self.follow(index, step, driver)?;
                    }
                    Some(http2) => {
                        http2.ready(index, event.is_readable(), event.is_read_closed());
                        self.advance(driver)?;
                    }
                }
                // Not only when all events are seen to: what is due has waited long enough.
                self.launch(driver)?;
            }
            // Completions have read the clock already.
            if self.now == before {
                self.now = Instant::now();
            }
            self.wake(driver)?;
            self.launch(driver)?;
            if self.now >= sweep_at {
                self.sweep(driver)?;
                sweep_at = self.now + sweep_every;
            }
            self.advance(driver)?;
        }
        self.end(driver);
        Ok(())
    }

    /// The next instant at which a client has something to do by itself.
    fn next_at(&self) -> Option<Instant> {
        let woken_at = self.waiting.peek().map(|Reverse((at, _))| *at);
        [woken_at, self.next_due().map(|(at, _)| at)].into_iter().flatten().min()
    }

    /// When the next request of an open loop is due that has a connection, and to which server. With all connections to a server
    /// in use, only its answer helps.
    fn next_due(&self) -> Option<(Instant, usize)> {
        let with_free = self.free.iter().enumerate().filter(|(_, free)| !free.is_empty());
        with_free.filter_map(|(server, _)| Some((self.schedule.next_at(server)?, server))).min()
    }

    /// Waits until a socket is ready, at longest until `until`.
    fn wait(&mut self, events: &mut Events, until: Instant) -> io::Result<()> {
        let left = match &mut self.timer {
            Some(timer) => timer.ring_at(until)?,
            None => until.saturating_duration_since(self.now),
        };
        match self.poll.poll(events, Some(left)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Sends what is `due` over the connection of client `index`: since when, and the next request of which client.
    fn begin(&mut self, index: usize, due: (Instant, usize), driver: &mut impl Driver) -> io::Result<Step> {
        driver.count(|recorder| recorder.in_flight(self.now, self.in_flight));
        self.in_flight += 1;
        self.go_on(index, due, driver)
    }

    /// As [`Reactor::begin`], of a client that is counted among those with a request in flight.
    fn go_on(&mut self, index: usize, due: (Instant, usize), driver: &mut impl Driver) -> io::Result<Step> {
        let (intended, source) = due;
        let client = &mut self.clients[index];
        client.since = self.now;
        compute(self.shared.options.added_cpu);
        if driver.next(source, &mut client.request) {
            client.state = State::InFlight;
            client.intended = intended;
            if self.schedule.is_open() {
                client.asking_since = Some(self.now);
            } else {
                client.asking_since.get_or_insert(self.now);
            }
            client.source = source;
            client.answer.reset();
            client.received.clear();
            client.first_byte = None;
            client.connection = Connection::Kept;
            let sent = match &mut self.http2 {
                None => client.send(&mut self.shared),
                Some(http2) => http2.send(index, client, &self.shared),
            };
            sent.or_else(|error| self.not_sent(index, error, driver))
        } else {
            client.state = State::Idle;
            self.landed(driver);
            Ok(Step::Wait)
        }
    }

    /// This machine had no connection for the request of client `index`.
    fn not_sent(&mut self, index: usize, error: io::Error, driver: &mut impl Driver) -> io::Result<Step> {
        driver.cannot_send(error)?;
        let client = &mut self.clients[index];
        let rest = client.next_backoff();
        // It had no effect, as one that found no connection.
        let _ = driver.judge(&client.request, &client.answer, Err(Fault::Refused));
        self.landed(driver);
        self.pause(index, State::BackingOff, rest);
        Ok(Step::Wait)
    }

    /// Does what follows from `step`. A loop, because a request can be over as soon as it is begun.
    fn follow(&mut self, index: usize, mut step: Step, driver: &mut impl Driver) -> io::Result<()> {
        while let Step::Over { result, broken } = step {
            let client = &self.clients[index];
            let (result, verified) = driver.judge(&client.request, &client.answer, result);
            if let Err(fault) = result {
                // Of an answer that was good but for its value there is what was compared.
                let received =
                    if client.received.is_empty() { &client.answer.content.kept } else { &client.received };
                driver.failed(fault, &client.request, &client.answer, received);
            }
            // Only now: what is complete is also to be checked.
            let seen_at = self.http2.as_ref().and_then(|http2| http2.seen_at(index));
            self.now = seen_at.map_or_else(Instant::now, |at| at.max(self.now));
            let client = &mut self.clients[index];
            let attempt = Attempt {
                kind: client.request.kind,
                server: client.request.server,
                result,
                status: client.answer.status,
                is_complete: client.answer.is_complete,
                since: client.intended,
                sent: client.since,
                first_byte: client.first_byte,
                until: self.now,
                connection: client.connection,
                verified,
            };
            // In an open loop the next request is somebody else's.
            let is_over = attempt.is_answered() || self.schedule.is_open();
            let asking_since = if is_over { client.asking_since.take() } else { None };
            driver.done(client.source, &attempt);
            if let Some(since) = asking_since.filter(|since| *since < attempt.sent) {
                driver.count(|recorder| recorder.answered_at_last(since, attempt.until));
            }
            if broken {
                let rest = client.next_backoff();
                self.landed(driver);
                self.pause(index, State::BackingOff, rest);
                return Ok(());
            }
            if self.schedule.is_open() {
                self.landed(driver);
                self.release(index);
                return Ok(());
            }
            let think = self.schedule.think(index).max(driver.rest(&attempt));
            if !think.is_zero() {
                self.landed(driver);
                self.pause(index, State::Thinking, think);
                return Ok(());
            }
            // One request less in flight and one more at the same instant.
            step = self.go_on(index, (self.now, index), driver)?;
        }
        Ok(())
    }

    /// One request less is in flight.
    fn landed(&mut self, driver: &mut impl Driver) {
        driver.count(|recorder| recorder.in_flight(self.now, self.in_flight));
        self.in_flight -= 1;
    }

    /// Reads and sends what there is on connections of HTTP/2, until there is nothing.
    fn advance(&mut self, driver: &mut impl Driver) -> io::Result<()> {
        while let Some(group) = self.http2.as_mut().and_then(Http2::advance) {
            let mut place = 0;
            while let Some(http2) = &mut self.http2
                && let Some(index) = http2.member(group, place)
            {
                place += 1;
                let client = &mut self.clients[index];
                // In an open loop it counts from when it was due.
                if !self.schedule.is_open()
                    && let Some(sent_at) = http2.sent_at(index, client.since)
                    && client.connection == Connection::Kept
                {
                    driver.count(|recorder| recorder.waited(State::Thinking, client.intended, sent_at));
                    (client.since, client.intended) = (sent_at, sent_at);
                    self.now = self.now.max(sent_at);
                }
                let step = http2.step(index, client, &self.shared);
                let step = step.or_else(|error| self.not_sent(index, error, driver))?;
                self.follow(index, step, driver)?;
            }
        }
        Ok(())
    }

    /// Puts client `index` aside for some time.
    fn pause(&mut self, index: usize, state: State, time: Duration) {
        let client = &mut self.clients[index];
        client.drop_ended();
        client.state = state;
        client.since = self.now;
        self.waiting.push(Reverse((self.now + time, index)));
    }

    /// Connection `index` of an open loop may carry whatever is due next to its server.
    fn release(&mut self, index: usize) {
        let client = &mut self.clients[index];
        client.drop_ended();
        client.state = State::Idle;
        client.since = self.now;
        self.free[client.request.server].push_back(index);
    }

    /// Lets those go on whose rest or thought is over.
    fn wake(&mut self, driver: &mut impl Driver) -> io::Result<()> {
        while let Some(&Reverse((at, index))) = self.waiting.peek()
            && at <= self.now
        {
            self.waiting.pop();
            if self.schedule.is_open() {
                self.account(index, self.now, driver);
                self.release(index);
            } else {
                // A client that has thought waits for the generator, which is latency.
                let thinks = self.clients[index].state == State::Thinking;
                let free = if thinks { at } else { self.now };
                self.account(index, free, driver);
                let step = self.begin(index, (free, index), driver)?;
                self.follow(index, step, driver)?;
            }
        }
        Ok(())
    }

    /// Sends what is due in an open loop, as far as there are connections for it.
    fn launch(&mut self, driver: &mut impl Driver) -> io::Result<()> {
        while let Some((at, server)) = self.next_due()
            && at <= self.now
            && let Some(index) = self.free[server].pop_front()
            && let Some(due) = self.schedule.take(server)
        {
            // Sending the one before took its time.
            self.now = Instant::now();
            driver.count(|recorder| recorder.launched(due.0, self.clients[index].since, self.now));
            let step = self.begin(index, due, driver)?;
            self.follow(index, step, driver)?;
        }
        Ok(())
    }

    /// Gives up the requests that have taken too long.
    fn sweep(&mut self, driver: &mut impl Driver) -> io::Result<()> {
        for index in 0..self.clients.len() {
            let client = &mut self.clients[index];
            let late = self.now.saturating_duration_since(client.since) >= self.shared.options.timeout;
            if client.state == State::InFlight && late {
                let step = match &mut self.http2 {
                    None => client.time_out(),
                    Some(http2) => http2.time_out(index, client),
                };
                self.follow(index, step, driver)?;
            }
        }
        Ok(())
    }

    /// Reports the part of back-offs and think times that lies before the end of the run.
    fn end(&mut self, driver: &mut impl Driver) {
        driver.count(|recorder| recorder.in_flight(self.now, self.in_flight));
        while let Some(Reverse((_, index))) = self.waiting.pop() {
            self.account(index, self.now, driver);
            self.clients[index].state = State::Idle;
        }
    }

    /// Reports what client `index` did instead of a request, up to `until`.
    fn account(&self, index: usize, until: Instant, driver: &mut impl Driver) {
        let Client { state, since, .. } = self.clients[index];
        driver.count(|recorder| recorder.waited(state, since, until));
    }

    /// What the last run left undone.
    pub(super) fn into_unfinished(self) -> Unfinished {
        let flying = self.clients.iter().filter(|client| client.state == State::InFlight);
        let times = |client: &Client| (client.request.server, [client.intended, client.since]);
        Unfinished {
            in_flight: flying.map(times).collect(),
            asking: self.clients.iter().filter_map(|client| client.asking_since).collect(),
            schedule: self.schedule,
        }
    }
}
