//! What the machine and the target count: raw counters now, rates later from pairs of readings.
//!
//! A sampler is a row of [`SAMPLERS`]. What cannot be read on a machine is left out of the reading, never zero, so
//! that "not checked" stays different from "passed". Nothing here starts, stops or changes anything.

mod background;
mod cap;
mod cassandra;
mod core;
mod database;
mod disk;
mod link;
mod memory;
mod mounts;
mod mysql;
mod outside;
mod postgres;
mod pressure;
mod process;
mod quota;
mod sockets;
mod stats;
mod waits;

pub(crate) use disk::device_of;
pub use link::Link;
#[cfg(test)]
pub(crate) use mounts::parse as parse_mounts;
pub(crate) use mounts::{Mount, mount_of, mounts};
pub(crate) use outside::listens_elsewhere;
pub use process::descendants;
pub(crate) use process::{Stat, processes};
pub(crate) use quota::quota_cores;

use lab_data::experiment::Engine;
use lab_data::results::Reading;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::{fs, io};

/// Adds the counters and gauges of this instant; made anew for each trial. An error means: not to be had here and now.
pub type Sampler = Box<dyn FnMut(&mut Reading) -> io::Result<()>>;

/// What there is to sample.
#[derive(Clone, Default)]
pub struct Context {
    /// The parts by name, each with the process at the root of its tree.
    pub parts: Vec<(String, u32)>,
    /// The cores any part runs on.
    pub cores: Vec<usize>,
    /// Where the store keeps its data.
    pub data: Option<PathBuf>,
    /// The addresses of the servers, if they may be asked what they count: `http://127.0.0.1:8080`.
    pub urls: Vec<String>,
    /// Where the generator's requests go: to the servers, or to what stands before them.
    pub load_urls: Vec<String>,
    /// The databases behind the target.
    pub databases: Vec<Database>,
    /// The nodes of a Cassandra cluster behind it.
    pub cassandra: Vec<Node>,
    /// The write cap that is imposed, where one is.
    pub cap: Option<Cap>,
    /// The link between generator and target, where there is one.
    pub link: Option<Link>,
    /// Whether nothing is read between the ends of a window.
    pub ends_only: bool,
}

/// A database that can be asked what it does.
#[derive(Clone, Debug)]
pub struct Database {
    /// The part it is: `database`, `database-2`, `replica`.
    pub part: String,
    /// What it speaks.
    pub engine: Engine,
    /// The database in use, with a user who may see what all sessions do.
    pub url: String,
}

/// A node of a Cassandra cluster.
#[derive(Clone, Debug)]
pub struct Node {
    /// The part it is.
    pub part: String,
    /// Where it answers.
    pub address: SocketAddr,
}

/// A limit on what a control group may write to a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Cap {
    /// The group's directory: in the blkio hierarchy of version 1, or in version 2's.
    pub cgroup: PathBuf,
    /// The device's numbers: `254:0`.
    pub device: String,
    /// The limit.
    pub bytes_per_sec: f64,
}

/// Makes a sampler; `None` where the context has nothing for it.
pub type Make = fn(&Context) -> Option<Sampler>;

/// Every sampler by its name, in the order they read: the processes first, because a generator is gone soon after its window.
pub const SAMPLERS: &[(&str, Make)] = &[
    // CPU time, time in the run queue, threads and switches of each part's process tree.
    ("process", process::make),
    // Busy, stolen and interrupt time of each core a part runs on.
    ("core", core::make),
    // Reads, writes, bytes, flushes, busy time and time in queue of the disk that holds the data.
    ("disk", disk::make),
    // The tightest processor quota of the control groups above each part, and how long it held.
    ("quota", quota::make),
    // Bytes written under an imposed write cap.
    ("cap", cap::make),
    // Bytes, busy time, and who waits, of the link between generator and target.
    ("link", link::make),
    // Pages swapped.
    ("memory", memory::make),
    // Time in which tasks waited for CPU, disk or memory (PSI).
    ("pressure", pressure::make),
    // PostgreSQL’s own counts: log, commits, blocks, checkpoints, connections.
    ("postgres", postgres::make),
    // MariaDB’s and MySQL’s own counts: log, commits, flushes, row locks, pages, connections.
    ("mysql", mysql::make),
    // What Cassandra's nodes count: rounds of Paxos, rows written, compactions, messages that came too late.
    ("cassandra", cassandra::make),
    // Where the sessions of each database are, asked 25 times a second.
    ("waits", |context| between(context, waits::make)),
    // Where requests and answers lie unread, of a few connections at a time, up to 20 times a second.
    ("sockets", |context| between(context, sockets::make)),
    // Where the threads of a service that counts nothing itself are blocked, and what its connections wait for, 25 times a second.
    ("outside", |context| between(context, outside::make)),
    // What the target counts itself, from its /stats. Last: a busy server answers late, and by its own clock.
    ("stats", stats::make),
];

/// A sampler that reads between the ends of a window, too.
fn between(context: &Context, make: fn(&Context) -> Option<Sampler>) -> Option<Sampler> {
    (!context.ends_only).then(|| make(context)).flatten()
}

/// Every sampler that has something to read in one context.
pub struct Samplers(Vec<(&'static str, Sampler)>);

impl Samplers {
    /// Makes them all.
    pub fn new(context: &Context) -> Samplers {
        Samplers(SAMPLERS.iter().filter_map(|(name, make)| Some((*name, make(context)?))).collect())
    }

    /// One reading of everything that can be read.
    pub fn read(&mut self) -> Reading {
        let mut reading = Reading::default();
        for (name, read) in &mut self.0 {
            if let Err(error) = read(&mut reading) {
                log::debug!("sampler {name}: {error}");
            }
        }
        reading
    }
}

/// A sampler that reads one file, and finds in it what `parse` looks for.
fn of_file(path: &'static str, parse: impl Fn(&str, &mut Reading) + 'static) -> Sampler {
    Box::new(move |into| {
        parse(&fs::read_to_string(path)?, into);
        Ok(())
    })
}

/// The unit in which the kernel counts CPU time in most of `/proc`.
fn tick_secs() -> f64 {
    1.0 / rustix::param::clock_ticks_per_second() as f64
}

/// The number behind `key` in a file of `key value` or `Key: value` lines.
fn value_of(text: &str, key: &str) -> Option<f64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    lines
        .find(|line| line.clone().next().is_some_and(|word| word.trim_end_matches(':') == key))?
        .nth(1)?
        .parse()
        .ok()
}

/// The numbers that `text` begins with.
fn numbers(text: &str) -> Vec<f64> {
    text.split_ascii_whitespace().map_while(|word| word.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn every_sampler_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = SAMPLERS.iter().map(|(name, _)| *name).collect();
        assert_eq!(names.len(), SAMPLERS.len());
    }

    #[test]
    fn without_a_context_nothing_is_claimed_of_any_part() {
        let reading = Samplers::new(&Context::default()).read();
        let names: Vec<_> = reading.counters.keys().chain(reading.gauges.keys()).collect();
        assert!(
            names.iter().all(|name| name.starts_with("memory.") || name.starts_with("pressure.")),
            "{names:?}"
        );
    }

    #[test]
    fn a_reading_is_cheap_enough_to_take_inside_a_window() {
        let context = Context {
            parts: vec![("generator".into(), std::process::id())],
            cores: vec![0],
            data: Some(std::env::temp_dir()),
            ..Context::default()
        };
        let mut samplers = Samplers::new(&context);
        let quickest = (0..10)
            .map(|_| {
                let start = Instant::now();
                samplers.read();
                start.elapsed()
            })
            .min();
        // The bound is an order of magnitude above what a debug build takes here; tests run beside other tests.
        assert!(quickest < Some(Duration::from_millis(50)), "{quickest:?}");
    }

    #[test]
    fn values_are_found_by_their_whole_name() {
        let text = "VmPPid:\t12\nPPid: 3\npswpin 7\n";
        for (key, value) in
            [("PPid", Some(3.0)), ("VmPPid", Some(12.0)), ("pswpin", Some(7.0)), ("pswp", None)]
        {
            assert_eq!(value_of(text, key), value, "{key}");
        }
    }
}
