//! The agent: waits for coordinators, serves one at a time, one run for each connection, and goes on after each.
//!
//! Every connection has a thread until it has proved that it holds the token; only then does it take the one seat. Of
//! somebody who serves, one thread listens (and so hears at once when the coordinator is gone), another works.

use super::super::measure::{self, Progress};
use super::super::{Error, FILES_SPARE, Notice, Plan, allow_files, plainly, preload, reach};
use super::auth::{self, Nonces, Role, Token};
use super::merge::{SecondText, TallyText};
use super::wire::{Broken, Ear, Mouth, Patience, STRANGERS_LINE_MAX};
use super::words::{ToAgent, ToCoordinator};
use super::{HANDSHAKE_MAX, PROTOCOL, SILENCE_MAX, START_MAX};
use kv::proto::{FORMAT, LoadEvent};
use parking_lot::{Condvar, Mutex};
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

/// Connections that have not proved anything yet; more are not let in.
const STRANGERS_MAX: usize = 16;
/// How long a coordinator waits for the seat: the run of one that vanished needs a moment to end.
const SEAT_WAIT: Duration = Duration::from_secs(1);
/// Time between two attempts to accept when there are no more file descriptors.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// A coordinator that is silent for so long is gone. Longer than that of agents: it may still be calling others.
const COORDINATORS_SILENCE_MAX: Duration = SILENCE_MAX.saturating_mul(3);
/// How long the work waits for the answers to the word to start to be heard: on few cores it would hold them up, and the
/// start be less well known.
const SETTLE: Duration = Duration::from_millis(20);
/// Longest line of a coordinator: a plan with the text of its dialect.
const ORDER_LINE_MAX: usize = 1 << 20;

/// A load generator that does what coordinators tell it, until the process ends.
pub struct Agent {
    address: SocketAddr,
    desk: Arc<Desk>,
}

/// What the connections share.
struct Desk {
    token: Token,
    /// The mouth towards the coordinator that is served.
    seat: Mutex<Option<Arc<Mouth>>>,
    left: Condvar,
    strangers: AtomicUsize,
}

impl Agent {
    /// Listens at `address`, for those who hold `token`.
    pub fn start(address: SocketAddr, token: Token) -> io::Result<Agent> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let (seat, left, strangers) = Default::default();
        let desk = Arc::new(Desk { token, seat, left, strangers });
        let own = Arc::clone(&desk);
        thread::Builder::new().name("agent".into()).spawn(move || attend(&listener, &own))?;
        Ok(Agent { address, desk })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Tells the coordinator that is being served, if there is one, that nothing more will come.
    pub fn say_goodbye(&self) {
        if let Some(mouth) = &*self.desk.seat.lock() {
            // It may be gone already; then it need not know.
            let _ = mouth.say(&ToCoordinator::Failed { why: "it was told to end".into() });
        }
    }
}

fn attend(listener: &TcpListener, desk: &Arc<Desk>) {
    loop {
        let (stream, peer) = match listener.accept() {
            Ok(accepted) => accepted,
            Err(error) => {
                log::warn!("cannot accept: {}", plainly(&error));
                thread::sleep(ACCEPT_AGAIN);
                continue;
            }
        };
        if desk.strangers.load(Ordering::Relaxed) >= STRANGERS_MAX {
            continue;
        }
        desk.strangers.fetch_add(1, Ordering::Relaxed);
        let own = Arc::clone(desk);
        let spawned = thread::Builder::new().name("coordinator".into()).spawn(move || {
            let met = meet(stream, &own);
            own.strangers.fetch_sub(1, Ordering::Relaxed);
            match met {
                Ok((ear, mouth)) => {
                    log::info!("{peer} is served");
                    let ended = serve(ear, &mouth);
                    own.leave();
                    log::info!("{peer} is gone: {ended}");
                }
                Err(why) => log::warn!("{peer} is not served: {why}"),
            }
        });
        if let Err(error) = spawned {
            desk.strangers.fetch_sub(1, Ordering::Relaxed);
            log::warn!("cannot serve {peer}: {}", plainly(&error));
        }
    }
}

impl Desk {
    /// Takes the seat, if it becomes free soon.
    fn sit(&self, mouth: &Arc<Mouth>) -> bool {
        let mut seat = self.seat.lock();
        let until = Instant::now() + SEAT_WAIT;
        while seat.is_some() {
            if self.left.wait_until(&mut seat, until).timed_out() {
                return false;
            }
        }
        *seat = Some(Arc::clone(mouth));
        true
    }

    fn leave(&self) {
        *self.seat.lock() = None;
        self.left.notify_one();
    }
}

/// Lets whoever holds the token have the seat.
fn meet(stream: TcpStream, desk: &Desk) -> Result<(Ear, Arc<Mouth>), Broken> {
    let until = Patience::Until(Instant::now() + HANDSHAKE_MAX);
    let mouth = Arc::new(Mouth::new(stream.try_clone()?, SILENCE_MAX)?);
    let mut ear = Ear::new(stream);
    let refuse = |why: &str| {
        // It may be gone before it hears that.
        let _ = mouth.say(&ToCoordinator::Refused { why: why.to_owned() });
        mouth.close();
        Broken::System(why.to_owned())
    };
    let agent = auth::nonce()?;
    let version = env!("CARGO_PKG_VERSION").to_owned();
    mouth.say(&ToCoordinator::Hello { protocol: PROTOCOL, version, format: FORMAT, nonce: agent.clone() })?;
    let (coordinator, proof) = match ear.hear(STRANGERS_LINE_MAX, until) {
        Ok(ToAgent::Hello { nonce, proof }) => (nonce, proof),
        Ok(_) => return Err(refuse("it did not say hello")),
        Err(Broken::Ended) => return Err(Broken::Ended),
        Err(broken) => return Err(refuse(&broken.to_string())),
    };
    let nonces = Nonces { agent: &agent, coordinator: &coordinator };
    if !desk.token.holds(Role::Coordinator, nonces, &proof) {
        return Err(refuse("the tokens differ; give both the same --token-file"));
    }
    if !desk.sit(&mouth) {
        return Err(refuse("it is busy with another coordinator; wait until that run is over"));
    }
    let proof = desk.token.prove(Role::Agent, nonces);
    mouth.say(&ToCoordinator::Welcome { proof }).inspect_err(|_| desk.leave())?;
    Ok((ear, mouth))
}

/// Does what the coordinator says until it is gone; says how that was.
fn serve(mut ear: Ear, mouth: &Mouth) -> String {
    let gone = &AtomicBool::new(false);
    let (sender, orders) = mpsc::channel();
    thread::scope(|scope| {
        let listener = scope.spawn(move || {
            let ended = listen(&mut ear, mouth, &sender);
            gone.store(true, Ordering::Relaxed);
            ended
        });
        let worked = work(&orders, mouth, gone);
        mouth.close();
        let ended =
            listener.join().map_or_else(|_| "its listener failed".into(), |broken| broken.to_string());
        worked.err().map_or(ended, |broken| broken.to_string())
    })
}

/// Hands on what the coordinator says and when it was heard; answers pings itself, as the work may take long.
fn listen(ear: &mut Ear, mouth: &Mouth, orders: &Sender<(Instant, ToAgent)>) -> Broken {
    loop {
        let heard = ear.hear(ORDER_LINE_MAX, Patience::EachPiece(COORDINATORS_SILENCE_MAX));
        let now = Instant::now();
        let done = match heard {
            Ok(ToAgent::Ping { number }) => mouth.say(&ToCoordinator::Pong { number }),
            Ok(ToAgent::Start { in_us }) => {
                // At once, as it is a measurement, too.
                let said = mouth.say(&ToCoordinator::Starting);
                said.and_then(|()| orders.send((now, ToAgent::Start { in_us })).map_err(|_| Broken::Ended))
            }
            Ok(word) => orders.send((now, word)).map_err(|_| Broken::Ended),
            Err(broken) => Err(broken),
        };
        if let Err(broken) = done {
            if matches!(broken, Broken::Nonsense(_) | Broken::TooLong(_)) {
                let _ = mouth.say(&ToCoordinator::Refused { why: broken.to_string() });
            }
            return broken;
        }
    }
}

/// Carries out one order after the other.
fn work(orders: &Receiver<(Instant, ToAgent)>, mouth: &Mouth, gone: &AtomicBool) -> Result<(), Broken> {
    let mut job: Option<(Plan, Range<u32>)> = None;
    let mut target = None;
    while let Ok((heard_at, word)) = orders.recv() {
        let done = match (word, &job, target) {
            (ToAgent::Order(order), None, _) => order.plan().and_then(|(plan, clients)| {
                plan.check().map_err(|error| error.to_string())?;
                allow_files(clients.len() as u64 + FILES_SPARE);
                job = Some((plan, clients));
                Ok(ToCoordinator::Accepted)
            }),
            (ToAgent::Preload, Some((plan, _)), _) => preload_keys(plan, mouth, gone),
            (ToAgent::Reach, Some((plan, _)), _) => reach(plan).map_err(told).map(|address| {
                target = Some(address);
                ToCoordinator::Reached
            }),
            (ToAgent::Start { in_us }, Some((plan, clients)), Some(address)) => {
                let begin = heard_at + Duration::from_micros(in_us).min(START_MAX);
                thread::sleep(SETTLE);
                let tally = count(plan, clients.clone(), address, begin, mouth, gone);
                // One run for each connection.
                target = None;
                tally
            }
            (word, ..) => Err(format!("{word:?} was said out of turn")),
        };
        mouth.say(&done.unwrap_or_else(|why| ToCoordinator::Failed { why }))?;
    }
    Ok(())
}

fn preload_keys(plan: &Plan, mouth: &Mouth, gone: &AtomicBool) -> Result<ToCoordinator, String> {
    let mut done = None;
    let mut observer = |notice| match notice {
        Notice::Preloading { requests, of } => {
            // Who is gone is noticed by the thread that listens.
            let _ = mouth.say(&ToCoordinator::Preloading { requests, of });
        }
        Notice::Event(LoadEvent::Preloaded { keys, secs }) => {
            done = Some(ToCoordinator::Preloaded { keys, secs });
        }
        _ => {}
    };
    let preloaded = reach(plan).and_then(|address| preload::preload(plan, address, gone, &mut observer));
    preloaded.map_err(told)?;
    done.ok_or_else(|| "there was nothing to preload".into())
}

/// Runs this agent's share from `begin` on.
fn count(
    plan: &Plan,
    clients: Range<u32>,
    address: SocketAddr,
    begin: Instant,
    mouth: &Mouth,
    gone: &AtomicBool,
) -> Result<ToCoordinator, String> {
    let part = measure::Part { clients, begin, stop: gone, ending: None };
    let tally = measure::count(plan, &part, address, &mut |progress| {
        // The edges of the window are the same instants at the coordinator, which knows them by itself.
        if let Progress::Second(second) = progress {
            // Who is gone is noticed by the thread that listens.
            let _ = mouth.say(&ToCoordinator::Second(SecondText::of(second)));
        }
    });
    Ok(ToCoordinator::Tally(Box::new(TallyText::of(&tally.map_err(told)?))))
}

/// An error with what to do about it on the agent's machine.
fn told(error: Error) -> String {
    match error {
        Error::Unreachable { .. } => {
            format!("{error}; the server must be reachable from the agent's machine")
        }
        Error::Preload { .. } => format!("{error}; the server must store values as the dialect says"),
        Error::Machine(_) => {
            format!("{error}; take fewer --clients or more agents, or raise the limit of open files there")
        }
        _ => error.to_string(),
    }
}
