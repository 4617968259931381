//! What the machine and the target count: raw counters now, rates later from pairs of readings.
//!
//! A sampler is a row of [`SAMPLERS`]. What cannot be read on a machine is left out of the reading, never zero, so
//! that "not checked" stays different from "passed". Nothing here starts, stops or changes anything.

mod background;
mod cap;
mod core;
mod database;
mod disk;
mod link;
mod memory;
mod mounts;
mod mysql;
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
pub use process::descendants;
pub(crate) use process::{Stat, processes};
pub(crate) use quota::quota_cores;

use lab_data::experiment::Engine;
use lab_data::results::Reading;
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
    /// The target's address, if it may be asked what it counts: `http://127.0.0.1:8080`.
    pub url: Option<String>,
    /// Where the generator's requests go: to the target, or to what stands before it.
    pub load_url: Option<String>,
    /// The databases behind the target.
    pub databases: Vec<Database>,
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

/// A row of [`SAMPLERS`].
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// Makes it; `None` where the context has nothing for it.
    pub make: fn(&Context) -> Option<Sampler>,
}

/// Every sampler, in the order they read: the processes first, because a generator is gone soon after its window.
pub const SAMPLERS: &[Row] = &[
    // CPU time, time in the run queue, memory, threads and switches of each part's process tree.
    Row { name: "process", make: process::make },
    // Busy, stolen and interrupt time of each core a part runs on.
    Row { name: "core", make: core::make },
    // Reads, writes, bytes, flushes, busy time and time in queue of the disk that holds the data.
    Row { name: "disk", make: disk::make },
    // The tightest processor quota of the control groups above each part, and how often it held.
    Row { name: "quota", make: quota::make },
    // Bytes written under an imposed write cap.
    Row { name: "cap", make: cap::make },
    // Bytes, busy time, and who waits, of the link between generator and target.
    Row { name: "link", make: link::make },
    // Free and dirty memory, and pages swapped.
    Row { name: "memory", make: memory::make },
    // Time in which tasks waited for CPU, disk or memory (PSI).
    Row { name: "pressure", make: pressure::make },
    // What the target counts itself, from its /stats.
    Row { name: "stats", make: stats::make },
    // PostgreSQL’s own counts: log, commits, blocks, checkpoints, connections.
    Row { name: "postgres", make: postgres::make },
    // MariaDB’s and MySQL’s own counts: log, commits, flushes, row locks, pages, connections.
    Row { name: "mysql", make: mysql::make },
    // Where the sessions of each database are, asked 25 times a second.
    Row { name: "waits", make: |context| between(context, waits::make) },
    // Where requests and answers lie unread, of a few connections at a time, up to 20 times a second.
    Row { name: "sockets", make: |context| between(context, sockets::make) },
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
        Samplers(SAMPLERS.iter().filter_map(|row| Some((row.name, (row.make)(context)?))).collect())
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

/// The number behind `key` in a file of `key value` or `Key: value kB` lines; in bytes where it says kB.
fn value_of(text: &str, key: &str) -> Option<f64> {
    text.lines().find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        if words.next()?.trim_end_matches(':') != key {
            return None;
        }
        let value: f64 = words.next()?.parse().ok()?;
        Some(if words.next() == Some("kB") { value * 1024.0 } else { value })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    #[test]
    fn every_sampler_has_a_name_of_its_own() {
        let names: std::collections::BTreeSet<&str> = SAMPLERS.iter().map(|row| row.name).collect();
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
        let text = "MemFree:  12 kB\nFree: 3\npswpin 7\n";
        for (key, value) in
            [("Free", Some(3.0)), ("MemFree", Some(12288.0)), ("pswpin", Some(7.0)), ("pswp", None)]
        {
            assert_eq!(value_of(text, key), value, "{key}");
        }
    }
}
