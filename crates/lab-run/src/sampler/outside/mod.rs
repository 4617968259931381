//! What a service shows from outside that says nothing of itself: where its threads are blocked, and its connections.
//!
//! A thread samples the server's tree of processes until the sampler is dropped: each of their threads by the system call it is in, and all
//! TCP connections with what the kernel knows of them. Each sample stands for the time since the one before, so that over
//! `outside.observed_secs` the counters are mean numbers of threads and connections.
//!
//! `/proc/PID/task/TID/syscall` may be read of one's own children, else with CAP_SYS_PTRACE.

mod connections;
mod syscalls;
mod threads;

use super::background::{Background, Foreground};
use super::process::{Stat, descendants};
use super::sockets::diag::{Socket, Source};
use super::{Context, Sampler};
use connections::{Followed, connections};
use lab_data::experiment::{SERVER, address};
use rustix::time::{ClockId, clock_gettime};
use std::cell::LazyCell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};
use syscalls::{Call, Deadline};
use threads::Busiest;

/// Between two samples.
const PERIOD: Duration = Duration::from_millis(40);
/// Between two lists of the files that the processes have open.
const LIST_EVERY: Duration = Duration::from_millis(500);
/// Of more threads, so many are sampled.
const THREADS_MAX: usize = 512;

/// What a thread waits for, by the name of its counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waits(&'static str);

impl Waits {
    /// It computes, or waits for a core.
    const RUNNING: Waits = Waits("running");
    /// For another thread: a lock, a condition, its turn.
    const LOCK: Waits = Waits("lock");
    /// For the one that holds a mutex; those who do are counted as [`Waits::LOCK`], too.
    const MUTEX: Waits = Waits("mutex");
    /// For a time to pass.
    const SLEEP: Waits = Waits("sleep");
    /// For a disk.
    const DISK: Waits = Waits("disk");
    /// For the answer of another service.
    const DOWNSTREAM: Waits = Waits("downstream_threads");
    /// For its clients.
    const IDLE: Waits = Waits("idle");
    /// For something else.
    const OTHER: Waits = Waits("other");
}

/// What was seen so far: thread-seconds and connection-seconds by name, and events.
#[derive(Debug, Default)]
struct Observed {
    counters: BTreeMap<&'static str, f64>,
    events: BTreeMap<&'static str, f64>,
    /// Whether the system calls of threads can be read.
    may_read: bool,
}

pub(super) fn make(context: &Context) -> Option<Sampler> {
    // A server that counts itself says more than can be seen from outside.
    let is_foreign = context.urls.is_empty();
    let (_, root) = context.parts.iter().find(|(name, _)| is_foreign && name == SERVER)?.clone();
    let port = address(context.load_urls.first()?)?.rsplit_once(':')?.1.parse().ok()?;
    let watch = Background::start(Observed::default(), move |seen| watch(root, port, seen));
    let mut busiest = Busiest::of(root);
    Some(Box::new(move |into| {
        let seen = watch.seen.lock();
        seen.counters.iter().for_each(|(name, secs)| into.count(format!("outside.{name}_secs"), *secs));
        seen.events.iter().for_each(|(name, events)| into.count(format!("outside.{name}"), *events));
        into.gauge("outside.may_read".to_owned(), f64::from(u8::from(seen.may_read)));
        drop(seen);
        busiest.read(into);
        Ok(())
    }))
}

/// The threads of processes, each with its process.
fn threads(pids: &[u32]) -> Vec<(u32, u32)> {
    let of = |pid: &u32| {
        let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        let ids = tasks.filter_map(|task| task.file_name().to_str()?.parse().ok());
        ids.map(|thread| (*pid, thread)).collect::<Vec<_>>()
    };
    pids.iter().flat_map(of).take(THREADS_MAX).collect()
}

/// Whether a thread is in the state in which the kernel has it wait for a disk: `D` (proc_pid_stat(5)).
fn is_uninterruptible(pid: u32, thread: u32) -> bool {
    let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")) else { return false };
    // The name before it may hold anything.
    text.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('D'))
}

/// Samples until nobody wants to know.
fn watch(root: u32, port: u16, seen: &Foreground<Observed>) {
    let mut source = Source::open().ok();
    let (mut files, mut followed) = (Files::default(), Followed::default());
    let mut last = Instant::now();
    while seen.goes_on_after(PERIOD.saturating_sub(last.elapsed())) {
        if files.listed.is_none_or(|at| at.elapsed() > LIST_EVERY) {
            files.list(root);
        }
        let mut sockets = source.as_mut().and_then(|source| source.sockets().ok()).unwrap_or_default();
        connections::remove_inner(&mut sockets, port, &files.inodes);
        let by_inode: HashMap<u32, &Socket> = sockets.iter().map(|of| (of.inode, of)).collect();
        // Few services wait at Unix sockets.
        let unix = LazyCell::new(|| {
            let asked = source.as_mut().map(Source::unix);
            if matches!(asked, Some(Err(_))) {
                // What is left of a broken answer is not that to the next question.
                source = Source::open().ok();
            }
            connections::leaving(&asked.and_then(Result::ok).unwrap_or_default(), &files.inodes)
        });
        let leaves = |inode: u32| unix.contains(&inode);
        let (mut counts, mut may_read) = (BTreeMap::<&str, f64>::new(), false);
        let (mut timed, mut waiting) = (Vec::new(), HashMap::<(u32, u64), f64>::new());
        let threads = threads(&files.pids);
        for &(pid, thread) in &threads {
            let Ok(text) = fs::read_to_string(format!("/proc/{pid}/task/{thread}/syscall")) else { continue };
            may_read = true;
            match syscalls::parse(&text) {
                // The kernel also says so of a thread that slept and went on while it was looked at, as one does that flushes often; and a
                // thread that waits for a page of a file or of the swap is in no call.
                Some(Call::Known(Waits::RUNNING | Waits::OTHER)) if is_uninterruptible(pid, thread) => {
                    *counts.entry(Waits::DISK.0).or_default() += 1.0;
                }
                Some(Call::Timed(at, deadline)) => timed.push((pid, at, deadline)),
                Some(Call::Futex(at)) => *waiting.entry((pid, at)).or_default() += 1.0,
                Some(call) => {
                    let waits = waits(pid, call, port, &by_inode, &leaves);
                    *counts.entry(waits.0).or_default() += 1.0;
                }
                None => {}
            }
        }
        for (pid, at, deadline) in &timed {
            let is_alone = timed.iter().filter(|(of, other, _)| (of, other) == (pid, at)).count() == 1;
            *counts.entry(until(*pid, *deadline, is_alone).0).or_default() += 1.0;
        }
        for ((pid, at), count) in waiting {
            *counts.entry(Waits::LOCK.0).or_default() += count;
            if has_holder(pid, at, &threads) {
                *counts.entry(Waits::MUTEX.0).or_default() += count;
            }
        }
        for (name, count) in connections(&sockets, port, &files.inodes) {
            *counts.entry(name).or_default() += count;
        }
        let events = followed.events(&sockets, port);
        let now = Instant::now();
        let gap_secs = (now - last).as_secs_f64();
        last = now;
        let mut seen = seen.seen.lock();
        seen.may_read |= may_read;
        *seen.counters.entry("observed").or_default() += gap_secs;
        for (name, count) in counts {
            *seen.counters.entry(name).or_default() += count * gap_secs;
        }
        for (name, count) in events {
            *seen.events.entry(name).or_default() += count;
        }
    }
}

/// The processes of a tree, and the sockets they have open.
#[derive(Default)]
struct Files {
    pids: Vec<u32>,
    inodes: HashSet<u32>,
    listed: Option<Instant>,
}

impl Files {
    fn list(&mut self, root: u32) {
        self.pids = descendants(root);
        self.inodes = self.pids.iter().flat_map(|pid| sockets_of(*pid).unwrap_or_default()).collect();
        self.listed = Some(Instant::now());
    }
}

/// The numbers of the sockets that a process has open; an error where not all of its files can be looked at.
fn sockets_of(pid: u32) -> io::Result<Vec<u32>> {
    let mut sockets = Vec::new();
    for file in fs::read_dir(format!("/proc/{pid}/fd"))? {
        match fs::read_link(file?.path()) {
            Ok(target) => sockets.extend(target.to_str().and_then(inode)),
            // It was closed meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(sockets)
}

/// Whether it is certain that no process of the trees below `roots` listens on `port`, but another one.
pub(crate) fn listens_elsewhere(roots: &[u32], port: u16) -> bool {
    let sockets = Source::open().and_then(|mut source| source.sockets()).unwrap_or_default();
    let is_listener = |of: &&Socket| of.is_listener && of.local.port() == port;
    let listeners: Vec<u32> = sockets.iter().filter(is_listener).map(|of| of.inode).collect();
    let is_alive = |pid: &u32| Stat::of(*pid).is_some_and(|stat| !stat.is_dead);
    let living = roots.iter().flat_map(|root| descendants(*root)).filter(is_alive);
    let own: io::Result<Vec<Vec<u32>>> = living.map(sockets_of).collect();
    let is_none = own.is_ok_and(|own| !own.concat().iter().any(|inode| listeners.contains(inode)));
    // Where processes of others are hidden (hidepid), those of a tree may be, too.
    is_none && !listeners.is_empty() && is_alive(&1)
}

/// The number of a socket: `socket:[4711]`.
fn inode(target: &str) -> Option<u32> {
    target.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// What a thread in this call waits for.
fn waits(
    pid: u32,
    call: Call,
    port: u16,
    sockets: &HashMap<u32, &Socket>,
    leaves: &dyn Fn(u32) -> bool,
) -> Waits {
    match call {
        Call::Known(waits) => waits,
        Call::File(number) => of_file(pid, number, port, sockets, leaves),
        // Of one file the list is worth reading: so libraries wait that have a timeout.
        Call::Poll(list, 1) => {
            match polled(pid, list).map(|number| of_file(pid, number, port, sockets, leaves)) {
                Some(Waits::DOWNSTREAM) => Waits::DOWNSTREAM,
                _ => Waits::IDLE,
            }
        }
        Call::Poll(..) => Waits::IDLE,
        Call::Futex(_) | Call::Timed(..) => Waits::LOCK,
    }
}

/// Whether the word at which threads wait, or the one two words behind it, is a thread of this process: so the mutexes of glibc store their
/// holder, and the recursive ones of musl. A thread that joins another one looks the same; threads of another PID namespace are not found.
fn has_holder(pid: u32, at: u64, threads: &[(u32, u32)]) -> bool {
    /// The upper two bits say whether others wait, and whether the holder has died.
    const THREAD: u32 = (1 << 30) - 1;
    let mut words = [0; 12];
    let read = File::open(format!("/proc/{pid}/mem")).and_then(|memory| memory.read_exact_at(&mut words, at));
    let is_thread = |word: &[u8]| {
        let word = word.try_into().map_or(0, u32::from_ne_bytes);
        threads.contains(&(pid, word & THREAD))
    };
    read.is_ok() && [&words[..4], &words[8..]].into_iter().any(is_thread)
}

/// Of a deadline further away nobody waits for the time to pass.
const SOON: Duration = Duration::from_secs(1);

/// What a thread waits for that waits for another one until a deadline. Languages sleep so, too: at an address where no other thread waits. A
/// worker without work waits so for long, and others wait for a lock that may be theirs after some milliseconds: at one address.
fn until(pid: u32, deadline: Deadline, is_alone: bool) -> Waits {
    match left(pid, deadline) {
        Some(left) if left > SOON => Waits::IDLE,
        Some(_) if is_alone => Waits::SLEEP,
        _ => Waits::LOCK,
    }
}

/// How long it is until then; of a span all of it.
fn left(pid: u32, deadline: Deadline) -> Option<Duration> {
    let mut bytes = [0; 16];
    File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut bytes, deadline.address).ok()?;
    let [secs, nanos] =
        [0, 8].map(|at| bytes[at..at + 8].iter().rev().fold(0, |all, byte| all << 8 | u64::from(*byte)));
    let at = Duration::new(secs, u32::try_from(nanos).ok()?);
    if !deadline.is_absolute {
        return Some(at);
    }
    let now = clock_gettime(if deadline.is_of_day { ClockId::Realtime } else { ClockId::Monotonic });
    let now = Duration::new(u64::try_from(now.tv_sec).ok()?, u32::try_from(now.tv_nsec).ok()?);
    Some(at.saturating_sub(now))
}

/// The file that `poll` waits for, whose list is at this address.
fn polled(pid: u32, list: u64) -> Option<u64> {
    let mut number = [0; 4];
    File::open(format!("/proc/{pid}/mem")).ok()?.read_exact_at(&mut number, list).ok()?;
    u64::try_from(i32::from_ne_bytes(number)).ok()
}

fn of_file(
    pid: u32,
    number: u64,
    port: u16,
    sockets: &HashMap<u32, &Socket>,
    leaves: &dyn Fn(u32) -> bool,
) -> Waits {
    let Ok(target) = fs::read_link(format!("/proc/{pid}/fd/{number}")) else { return Waits::OTHER };
    let target = target.to_string_lossy();
    match (inode(&target), target.starts_with('/')) {
        (Some(inode), _) => match sockets.get(&inode) {
            Some(socket) if socket.local.port() != port => Waits::DOWNSTREAM,
            None if leaves(inode) => Waits::DOWNSTREAM,
            _ => Waits::IDLE,
        },
        (None, true) => Waits::DISK,
        (None, false) => Waits::OTHER,
    }
}
