//! The link: a TCP proxy that lets through so many bytes a second and delays them, and keeps account of who waited.
//!
//! It takes the place of a network between two processes of one machine. Each connection has a thread for each direction; it knows
//! nothing of what it carries, and prints nothing.

mod wire;

use kv::proto::{LinkAccount, LinkDirection};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::listen;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::collections::VecDeque;
use std::io::{self, BufRead, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use wire::Wire;

/// Places in the queue of the listening socket: more than there are clients.
const BACKLOG: i32 = 1024;
/// What is held of one connection in one direction, in bytes, before the kernel has to: senders then feel that nothing goes on.
const HELD_MAX: usize = 64 << 10;
/// How long until clients are accepted again after one was not: no file or thread was free for it, or it went away.
const ACCEPT_AGAIN: Duration = Duration::from_millis(10);
/// The line that is answered with the account.
const STATS: &str = "stats";

/// What all connections share.
struct Link {
    to: SocketAddr,
    began: Instant,
    /// Towards the server.
    up: Mutex<Wire>,
    /// Back from it.
    down: Mutex<Wire>,
}

/// Carries on to `to` until `questions` end, at most so many bytes a second in each direction over all connections, each `delay` late.
/// `listening` is told where, once; `answer` gets the account for every line `stats` of `questions`.
pub fn run(
    to: SocketAddr,
    bytes_per_sec: Option<f64>,
    delay: Duration,
    questions: impl BufRead,
    listening: impl FnOnce(SocketAddr),
    mut answer: impl FnMut(&LinkAccount),
) -> io::Result<()> {
    // A client takes two files. Where no more are allowed, some clients wait.
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    // Once more: the standard library has 128 places.
    listen(&listener, BACKLOG)?;
    listening(listener.local_addr()?);
    let wire = Wire::new(bytes_per_sec, delay);
    let (up, down) = (Mutex::new(wire.clone()), Mutex::new(wire));
    let link = Arc::new(Link { to, began: Instant::now(), up, down });
    let accepting = Arc::clone(&link);
    thread::spawn(move || accepting.accept(&listener));
    let asked = questions.lines().map_while(Result::ok).filter(|line| line.trim() == STATS);
    asked.for_each(|_| answer(&link.account()));
    Ok(())
}

impl Link {
    /// Takes connections for as long as the process runs.
    fn accept(self: Arc<Self>, listener: &TcpListener) {
        loop {
            let carried = listener.accept().and_then(|(client, _)| {
                let link = Arc::clone(&self);
                thread::Builder::new().spawn(move || {
                    let ended = link.connect(&client);
                    ended.unwrap_or_else(|error| log::debug!("link: {}: {error}", link.to));
                })
            });
            if let Err(error) = carried {
                log::debug!("link: {error}");
                thread::sleep(ACCEPT_AGAIN);
            }
        }
    }

    /// Goes on to the server for `client`, until nothing more comes from either. Where there is no server, the client's connection ends.
    fn connect(&self, client: &TcpStream) -> io::Result<()> {
        let server = &TcpStream::connect(self.to)?;
        // Nothing may be held back but by us.
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        thread::scope(|scope| {
            scope.spawn(|| self.carry(&self.up, client, server));
            self.carry(&self.down, server, client);
        });
        Ok(())
    }

    /// Carries all that comes, and then its end. Where a socket fails, there is nothing to go on with in the other direction either.
    fn carry(&self, wire: &Mutex<Wire>, from: &TcpStream, to: &TcpStream) {
        if self.carry_all(wire, from, to).is_err() {
            for stream in [from, to] {
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
    }

    fn carry_all(&self, wire: &Mutex<Wire>, mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
        let mut room = vec![0; wire.lock().chunk_bytes()];
        // Chunks, and when each is through.
        let mut held: VecDeque<(Vec<u8>, Duration)> = VecDeque::new();
        let (mut held_bytes, mut last_through) = (0, Duration::ZERO);
        let mut is_open = true;
        while is_open || !held.is_empty() {
            let wait = held.front().map(|(_, through)| through.saturating_sub(self.began.elapsed()));
            if !is_open || held_bytes >= HELD_MAX {
                thread::sleep(wait.unwrap_or_default());
            } else if wait != Some(Duration::ZERO) && is_readable(from, wait)? {
                let bytes = from.read(&mut room)?;
                is_open = bytes > 0;
                if is_open {
                    let mut wire = wire.lock();
                    last_through = wire.take(self.began.elapsed(), bytes, last_through);
                    held.push_back((room[..bytes].to_vec(), last_through));
                    held_bytes += bytes;
                }
            }
            let now = self.began.elapsed();
            while let Some((bytes, _)) = held.pop_front_if(|(_, through)| *through <= now) {
                to.write_all(&bytes)?;
                held_bytes -= bytes.len();
            }
        }
        to.shutdown(Shutdown::Write)
    }

    fn account(&self) -> LinkAccount {
        let now = self.began.elapsed();
        let of = |wire: &Mutex<Wire>| {
            let mut wire = wire.lock();
            let direction = LinkDirection { bytes: wire.bytes, busy_secs: wire.busy(now).as_secs_f64() };
            (direction, wire.spent(now))
        };
        let ((up, up_spent), (down, down_spent)) = (of(&self.up), of(&self.down));
        LinkAccount {
            up,
            down,
            waiting_secs: (up_spent.waiting + down_spent.waiting).as_secs_f64(),
            serving_secs: (up_spent.serving + down_spent.serving).as_secs_f64(),
        }
    }
}

/// Waits until something has come, for at most `wait`; whether it has.
fn is_readable(stream: &TcpStream, wait: Option<Duration>) -> io::Result<bool> {
    // One too long for the kernel has no end.
    let wait = wait.and_then(|wait| Timespec::try_from(wait).ok());
    match poll(&mut [PollFd::new(stream, PollFlags::IN)], wait.as_ref()) {
        Err(error) if error.kind() != ErrorKind::Interrupted => Err(error.into()),
        ready => Ok(ready == Ok(1)),
    }
}
