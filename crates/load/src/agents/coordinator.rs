//! The coordinator: divides the clients among agents, starts them together, adds up what they counted.
//!
//! One thread listens to each agent; everything else happens in the caller's thread, on what those hear. An agent that is
//! lost before the start ends the run. One that is lost later is left out of the figures, and the report says so.

use super::super::measure::{self, Edges, Progress, Tally};
use super::super::recorder::Window;
use super::super::seconds::{Merge, Second, Told};
use super::super::{Error, Notice, Pacing, Plan, plainly};
use super::auth::{self, Nonces, Role, Token};
use super::merge::{self, SecondText};
use super::order::Order;
use super::wire::{Broken, Ear, LINE_MAX, Mouth, Patience, STRANGERS_LINE_MAX, one_line};
use super::words::{ToAgent, ToCoordinator};
use super::{HANDSHAKE_MAX, PING_EVERY, PROTOCOL, SILENCE_MAX, START_MAX};
use kv::proto::{AgentOutcome, AgentReport, FORMAT, LoadEvent, LoadReport};
use kv::units::Rate;
use std::net::{TcpStream, ToSocketAddrs};
use std::ops::Range;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

/// How often each agent's round trip is measured before the start; the shortest counts.
const ROUND_TRIPS: u64 = 10;
/// Time from the word to start to the start, beyond what the word may need.
const START_IN: Duration = Duration::from_millis(300);
/// How long agents may take after the window to hand in their figures.
const FIGURES_MAX: Duration = Duration::from_secs(30);
const TOO_LATE: &str = "it heard the word to start too late; look for what holds up the network";

/// Carries out `plan` by the agents at these addresses, each `host:port`, and says what all their clients saw.
///
/// Blocks as [`super::super::run`] does. Agents that were lost after the start are named in the report, and their clients are
/// in none of its other figures. It is an error if one is lost before, or all are.
pub fn run(
    plan: &Plan,
    agents: &[String],
    token: &Token,
    observer: &mut dyn FnMut(Notice),
) -> Result<LoadReport, Error> {
    plan.check()?;
    let met: Vec<Result<(Ear, Mouth), String>> = thread::scope(|scope| {
        let meetings: Vec<_> = agents.iter().map(|agent| scope.spawn(|| meet(agent, token))).collect();
        let met = meetings.into_iter().map(thread::ScopedJoinHandle::join);
        met.map(|met| met.unwrap_or_else(|_| Err("the thread that called it failed".into()))).collect()
    });
    let mut links = Vec::new();
    let mut ears = Vec::new();
    for ((address, part), met) in agents.iter().zip(shares(plan.clients, agents.len())).zip(met) {
        let (ear, mouth) = met.map_err(|cause| Error::Agent { address: address.clone(), cause })?;
        ears.push(ear);
        links.push(Link::new(address, part, mouth));
    }
    thread::scope(|scope| {
        let (sender, heard) = mpsc::channel();
        for (agent, mut ear) in ears.into_iter().enumerate() {
            let sender = sender.clone();
            scope.spawn(move || {
                loop {
                    let word = ear.hear(LINE_MAX, Patience::EachPiece(SILENCE_MAX));
                    let last = word.is_err();
                    let heard = Heard { agent, at: Instant::now(), word };
                    if sender.send(heard).is_err() || last {
                        break;
                    }
                }
            });
        }
        let mut coordinator = Coordinator { plan, links, heard, ping_at: Instant::now(), pings: 0 };
        let report = coordinator.prepare(observer).and_then(|begin| coordinator.measure(begin, observer));
        // Whoever is still at work stops, and all ears hear the end.
        coordinator.links.iter().for_each(|link| link.mouth.close());
        report
    })
}

/// As even as can be, in order.
fn shares(clients: u32, agents: usize) -> Vec<Range<u32>> {
    let agents = agents as u64;
    let from = |agent: u64| {
        let (each, more) = (u64::from(clients) / agents, u64::from(clients) % agents);
        (agent * each + agent.min(more)) as u32
    };
    (0..agents).map(|agent| from(agent)..from(agent + 1)).collect()
}

/// Connects to the agent, and both prove that they hold the token. `Err` is the cause, the remedy behind a semicolon.
fn meet(address: &str, token: &Token) -> Result<(Ear, Mouth), String> {
    const NOBODY: &str = "start it there with `weir agent`, or take its address from what that prints";
    let cannot = |why: String| format!("cannot reach it: {why}; {NOBODY}");
    let mut why = cannot("the name has no address".into());
    let mut stream = None;
    for address in address.to_socket_addrs().map_err(|error| cannot(plainly(&error)))? {
        match TcpStream::connect_timeout(&address, HANDSHAKE_MAX) {
            Ok(connected) => {
                stream = Some(connected);
                break;
            }
            Err(error) => why = cannot(plainly(&error)),
        }
    }
    let stream = stream.ok_or(why)?;
    let system = |error: std::io::Error| plainly(&error);
    let mouth = Mouth::new(stream.try_clone().map_err(system)?, SILENCE_MAX).map_err(system)?;
    let mut ear = Ear::new(stream);
    let until = Patience::Until(Instant::now() + HANDSHAKE_MAX);
    let stranger = |broken: Broken| format!("{broken}, and is no agent; {NOBODY}");

    let ToCoordinator::Hello { protocol, version, format, nonce: theirs } =
        ear.hear(STRANGERS_LINE_MAX, until).map_err(stranger)?
    else {
        return Err(format!("it did not say hello, and is no agent; {NOBODY}"));
    };
    let ours = env!("CARGO_PKG_VERSION");
    if (protocol, &*version, format) != (PROTOCOL, ours, FORMAT) {
        let version = one_line(&version);
        return Err(format!(
            "it is weir {version} (protocol {protocol}, format {format}), this is {ours} (protocol {PROTOCOL}, \
             format {FORMAT}); use the same program on both sides"
        ));
    }
    if !auth::is_nonce(&theirs) {
        return Err(format!("its hello makes no sense; {NOBODY}"));
    }
    let own = auth::nonce().map_err(system)?;
    let nonces = Nonces { agent: &theirs, coordinator: &own };
    let proof = token.prove(Role::Coordinator, nonces);
    mouth.say(&ToAgent::Hello { nonce: own.clone(), proof }).map_err(stranger)?;
    match ear.hear(STRANGERS_LINE_MAX, until).map_err(stranger)? {
        ToCoordinator::Welcome { proof } if token.holds(Role::Agent, nonces, &proof) => Ok((ear, mouth)),
        ToCoordinator::Welcome { .. } => {
            Err("it does not hold the token, and was told nothing; give both the same --token-file".into())
        }
        ToCoordinator::Refused { why } => Err(one_line(&why)),
        word => Err(format!("it said {} where it was to say welcome; {NOBODY}", word.name())),
    }
}

/// What an ear heard.
struct Heard {
    agent: usize,
    at: Instant,
    word: Result<ToCoordinator, Broken>,
}

/// An agent, as its coordinator sees it.
struct Link {
    address: String,
    /// Which clients are its.
    part: Range<u32>,
    mouth: Mouth,
    /// The last ping: its number and when it was said.
    pinged: (u64, Instant),
    /// The shortest before the start.
    round_trip: Option<Duration>,
    /// When it was told to start, and when it said that it had heard.
    started: Option<(Instant, Option<Instant>)>,
    /// Its own seconds of the window, for when another agent is lost.
    seconds: Vec<SecondText>,
    end: Option<End>,
}

/// How it ended with an agent.
enum End {
    Done(Box<Tally>),
    Lost(String),
}

impl Link {
    fn new(address: &str, part: Range<u32>, mouth: Mouth) -> Link {
        Link {
            address: address.to_owned(),
            part,
            mouth,
            pinged: (0, Instant::now()),
            round_trip: None,
            started: None,
            seconds: Vec::new(),
            end: None,
        }
    }

    fn say(&self, word: &ToAgent) {
        if self.mouth.say(word).is_err() {
            // Its ear hears that, and so it is known in one place only.
            self.mouth.close();
        }
    }

    fn lost(&mut self, why: String) {
        self.mouth.close();
        self.end = Some(End::Lost(why));
    }

    fn tally(&self) -> Option<&Tally> {
        match &self.end {
            Some(End::Done(tally)) => Some(tally),
            _ => None,
        }
    }

    fn error(&self, cause: impl Into<String>) -> Error {
        Error::Agent { address: self.address.clone(), cause: cause.into() }
    }

    /// Half the round trip: how long a word is under way, as well as anybody can tell.
    fn one_way(&self) -> Duration {
        self.round_trip.unwrap_or_default() / 2
    }

    /// By how much it may have begun earlier or later than meant.
    ///
    /// The word to start was under way for some part of the time until the answer to it, and half the shortest round trip was
    /// allowed for.
    fn uncertainty(&self) -> Duration {
        let Some((told, Some(heard))) = self.started else { return Duration::ZERO };
        heard.duration_since(told).saturating_sub(self.one_way()).max(self.one_way())
    }
}

struct Coordinator<'a> {
    plan: &'a Plan,
    links: Vec<Link>,
    heard: Receiver<Heard>,
    /// When all agents are asked for a sign of life again.
    ping_at: Instant,
    pings: u64,
}

impl Coordinator<'_> {
    /// The next word before `until`. Asks for signs of life meanwhile.
    fn next(&mut self, until: Instant) -> Option<Heard> {
        let now = Instant::now();
        if now >= self.ping_at {
            self.ping_at = now + PING_EVERY;
            (0..self.links.len()).for_each(|agent| self.ping(agent));
        }
        let heard = match self.heard.recv_timeout(until.min(self.ping_at).saturating_duration_since(now)) {
            Ok(heard) => heard,
            Err(RecvTimeoutError::Timeout) => return None,
            // All ears are gone, which the words before said. Nothing is left to wait for but the time.
            Err(RecvTimeoutError::Disconnected) => {
                thread::sleep(until.min(self.ping_at).saturating_duration_since(now));
                return None;
            }
        };
        if let Ok(ToCoordinator::Pong { number }) = &heard.word {
            let link = &mut self.links[heard.agent];
            // What comes while there is load says how busy the agent is, not how far away.
            if link.pinged.0 == *number && link.started.is_none() {
                let round_trip = heard.at.saturating_duration_since(link.pinged.1);
                link.round_trip = Some(link.round_trip.map_or(round_trip, |least| least.min(round_trip)));
            }
        }
        Some(heard)
    }

    fn ping(&mut self, agent: usize) {
        let link = &mut self.links[agent];
        if link.end.is_none() {
            self.pings += 1;
            link.pinged = (self.pings, Instant::now());
            link.say(&ToAgent::Ping { number: self.pings });
        }
    }

    /// Waits until each of `agents` has said a word that `is_it`.
    fn all_say(
        &mut self,
        mut agents: Vec<usize>,
        observer: &mut dyn FnMut(Notice),
        is_it: impl Fn(&ToCoordinator) -> bool,
    ) -> Result<(), Error> {
        while !agents.is_empty() {
            let Some(Heard { agent, at, word }) = self.next(self.ping_at) else { continue };
            let link = &mut self.links[agent];
            let word = word.map_err(|broken| link.error(early(&broken)))?;
            match word {
                ToCoordinator::Failed { why } | ToCoordinator::Refused { why } => {
                    return Err(link.error(one_line(&why)));
                }
                ToCoordinator::Preloading { requests, of } => observer(Notice::Preloading { requests, of }),
                ToCoordinator::Preloaded { keys, secs } => {
                    observer(Notice::Event(LoadEvent::Preloaded { keys, secs }));
                }
                ToCoordinator::Starting => {
                    link.started = link.started.map(|(told, _)| (told, Some(at)));
                }
                ToCoordinator::Accepted | ToCoordinator::Reached | ToCoordinator::Pong { .. } => {}
                // It runs already, while others have not even said that they begin.
                ToCoordinator::Second(_) if link.started.is_some() => {
                    return Err(self.links[agents[0]].error(TOO_LATE));
                }
                word => return Err(link.error(early(&format!("it said {} out of turn", word.name())))),
            }
            if is_it(&word) {
                agents.retain(|waited_for| *waited_for != agent);
            }
        }
        Ok(())
    }

    /// Gets all agents ready and tells them when to begin.
    fn prepare(&mut self, observer: &mut dyn FnMut(Notice)) -> Result<Instant, Error> {
        let all: Vec<usize> = (0..self.links.len()).collect();
        for link in &self.links {
            link.say(&ToAgent::Order(Box::new(Order::of(self.plan, &link.part))));
        }
        self.all_say(all.clone(), observer, |word| matches!(word, ToCoordinator::Accepted))?;
        if self.plan.preload_keys() > 0 {
            // Once is enough, and the first can do it as well as any.
            self.links[0].say(&ToAgent::Preload);
            self.all_say(vec![0], observer, |word| matches!(word, ToCoordinator::Preloaded { .. }))?;
        }
        self.links.iter().for_each(|link| link.say(&ToAgent::Reach));
        self.all_say(all.clone(), observer, |word| matches!(word, ToCoordinator::Reached))?;
        for agent in all.clone() {
            for _ in 0..ROUND_TRIPS {
                self.ping(agent);
                let last = self.pings;
                self.all_say(
                    vec![agent],
                    observer,
                    |word| matches!(word, ToCoordinator::Pong { number } if *number >= last),
                )?;
            }
        }

        let furthest = self.links.iter().filter_map(|link| link.round_trip).max().unwrap_or_default();
        let begin = Instant::now() + (START_IN + 4 * furthest).min(START_MAX);
        for link in &mut self.links {
            let now = Instant::now();
            let wait = begin.saturating_duration_since(now).saturating_sub(link.one_way());
            link.started = Some((now, None));
            link.say(&ToAgent::Start { in_us: wait.as_micros() as u64 });
        }
        self.all_say(all, observer, |word| matches!(word, ToCoordinator::Starting))?;
        let late = self
            .links
            .iter()
            .find(|link| link.started.and_then(|(_, heard)| heard).is_none_or(|heard| heard >= begin));
        match late {
            Some(link) => Err(link.error(TOO_LATE)),
            None => Ok(begin),
        }
    }

    /// Hears what the agents say of the run that begins at `begin`, to its end.
    fn measure(&mut self, begin: Instant, observer: &mut dyn FnMut(Notice)) -> Result<LoadReport, Error> {
        let start = begin + self.plan.warmup;
        let window = Window { start, end: start + self.plan.window };
        let mut edges = Edges { window, told: 0 };
        let mut merge = Merge::new(self.links.len());
        let mut told = Told::new(self.plan);
        while self.links.iter().any(|link| link.end.is_none()) {
            let heard = self.next(edges.next().unwrap_or(self.ping_at));
            let now = Instant::now();
            // First, because an edge is to be told at its instant.
            tell_edges(&mut edges, now, observer);
            let Some(Heard { agent, at, word }) = heard else {
                if now > window.end + FIGURES_MAX {
                    let silent = (0..self.links.len()).filter(|agent| self.links[*agent].end.is_none());
                    for agent in silent.collect::<Vec<_>>() {
                        self.links[agent].lost("it did not hand in its figures".into());
                        for second in merge.leave(agent) {
                            told.hear(&second, observer);
                        }
                    }
                }
                continue;
            };
            if self.links[agent].end.is_some() {
                continue;
            }
            match word.map_err(|broken| broken.to_string()).and_then(|word| self.take(agent, word)) {
                Ok(None) => {}
                Ok(Some(second)) => {
                    for second in merge.take(agent, &second) {
                        told.hear(&second, observer);
                    }
                }
                Err(why) if at < begin => return Err(self.links[agent].error(early(&why))),
                Err(why) => {
                    self.links[agent].lost(why);
                    for second in merge.leave(agent) {
                        told.hear(&second, observer);
                    }
                }
            }
        }
        let all_lost = self.links.iter().all(|link| link.tally().is_none());
        if let (true, Some(End::Lost(why))) = (all_lost, &self.links[0].end) {
            let others = match self.links.len() {
                1 => "",
                _ => ", and all the others are lost, too",
            };
            return Err(
                self.links[0].error(format!("{why}{others}; see what it said there, and start it again"))
            );
        }
        tell_edges(&mut edges, Instant::now().max(window.end), observer);
        Ok(self.report(told))
    }

    /// Takes what an agent says during the run; gives a second that is over. `Err` says why the agent is of no more use.
    fn take(&mut self, agent: usize, word: ToCoordinator) -> Result<Option<Second>, String> {
        let link = &mut self.links[agent];
        match word {
            ToCoordinator::Second(text) => {
                let second = text.second(self.plan).map_err(nonsense)?;
                if second.number >= 0 {
                    link.seconds.push(text);
                }
                Ok(Some(second))
            }
            ToCoordinator::Tally(text) => {
                let tally = text.tally(self.plan).map_err(nonsense)?;
                link.end = Some(End::Done(Box::new(tally)));
                Ok(None)
            }
            ToCoordinator::Pong { .. } => Ok(None),
            ToCoordinator::Failed { why } | ToCoordinator::Refused { why } => Err(one_line(&why)),
            word => Err(format!("it said {} out of turn", word.name())),
        }
    }

    /// What there is to say of the agents that are done, and which are not.
    fn report(&self, told: Told) -> LoadReport {
        let done: Vec<&Link> = self.links.iter().filter(|link| link.tally().is_some()).collect();
        let mut total = merge::empty(self.plan);
        done.iter().filter_map(|link| link.tally()).for_each(|tally| total.merge(tally));
        let clients: u32 = done.iter().map(|link| link.part.len() as u32).sum();
        let mut plan = Plan { clients, ..self.plan.clone() };
        if let Pacing::Open { rate, .. } = &mut plan.pacing {
            // Of the rate, too, only what was asked of those that are there.
            *rate = Rate(rate.0 * f64::from(clients) / f64::from(self.plan.clients));
        }
        // What was told as it happened has the lost ones' part in it.
        let told = if done.len() == self.links.len() {
            told
        } else {
            merge::together(&plan, &done.iter().map(|link| &*link.seconds).collect::<Vec<_>>())
        };
        let spread = self.links.iter().map(Link::uncertainty).max().unwrap_or_default();
        LoadReport {
            pacing: self.plan.pacing.to_string(),
            clients_lost: self.plan.clients - clients,
            start_spread_us: Some(spread.as_secs_f64() * 1e6),
            agents: self.links.iter().map(|link| self.agent_report(link)).collect(),
            ..measure::report(&plan, &total, told)
        }
    }

    fn agent_report(&self, link: &Link) -> AgentReport {
        let tally = link.tally();
        let clients = link.part.len() as u32;
        AgentReport {
            address: link.address.clone(),
            clients,
            threads: tally.map_or(self.plan.threads.min(clients), |tally| tally.threads),
            outcome: match &link.end {
                Some(End::Lost(why)) => AgentOutcome::Lost(why.clone()),
                _ => AgentOutcome::Done,
            },
            attempts: tally.map_or(0, |tally| tally.recorder.attempts()),
            successes: tally.map_or(0, |tally| tally.recorder.successes()),
            latency: tally.map(|tally| tally.recorder.latency()).unwrap_or_default(),
            cpu_secs: tally.map_or(0.0, |tally| tally.cpu.as_secs_f64()),
            round_trip_us: link.round_trip.unwrap_or_default().as_secs_f64() * 1e6,
        }
    }
}

fn tell_edges(edges: &mut Edges, now: Instant, observer: &mut dyn FnMut(Notice)) {
    edges.tell(now, &mut |progress| {
        if let Progress::Event(event) = progress {
            observer(Notice::Event(event));
        }
    });
}

fn nonsense(why: String) -> String {
    Broken::Nonsense(one_line(&why)).to_string()
}

/// Why an agent was lost before there was anything to measure.
fn early(why: &impl std::fmt::Display) -> String {
    format!("{why}; see what it said there, and start it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_are_divided_evenly_and_in_order() {
        for (clients, agents, expected) in
            [(1, 1, &[1][..]), (64, 2, &[32, 32]), (7, 3, &[3, 2, 2]), (8, 3, &[3, 3, 2]), (3, 3, &[1, 1, 1])]
        {
            let parts = shares(clients, agents);
            let sizes: Vec<usize> = parts.iter().map(ExactSizeIterator::len).collect();
            assert_eq!(sizes, expected);
            assert_eq!((parts[0].start, parts[agents - 1].end), (0, clients));
            assert!(parts.windows(2).all(|pair| pair[0].end == pair[1].start));
        }
    }
}
