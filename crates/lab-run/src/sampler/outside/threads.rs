//! How much the threads of a service compute, or wait for a core: the busiest one, those that collect garbage, and all together.

use super::{THREADS_MAX, threads};
use crate::sampler::process::descendants;
use crate::sampler::{Reading, numbers};
use std::collections::HashMap;
use std::fs;
use std::time::Instant;

/// How the names of threads begin that collect garbage or stop all others for it: of the JVM and of .NET.
const COLLECTORS: &[&str] = &[
    "VM Thread",
    "GC Thread",
    "G1 ",
    "ZWorker",
    "ZDriver",
    "XWorker",
    "Shenandoah",
    ".NET Server GC",
    ".NET BGC",
];

/// What the threads of a tree of processes did since the last reading.
pub(super) struct Busiest {
    root: u32,
    known: HashMap<u32, f64>,
    at: Instant,
}

impl Busiest {
    pub(super) fn of(root: u32) -> Busiest {
        Busiest { root, known: HashMap::new(), at: Instant::now() }
    }

    pub(super) fn read(&mut self, into: &mut Reading) {
        let elapsed = self.at.elapsed().as_secs_f64();
        let (mut all, mut collector) = (0.0, 0.0_f64);
        let mut busiest = (0.0, String::new());
        let all_threads = threads(&descendants(self.root));
        let is_known_whole = !self.known.is_empty() && all_threads.len() < THREADS_MAX;
        for (pid, thread) in all_threads {
            let path = format!("/proc/{pid}/task/{thread}");
            let text = fs::read_to_string(format!("{path}/schedstat")).unwrap_or_default();
            let [computed, waited, ..] = numbers(&text)[..] else { continue };
            let secs = (computed + waited) / 1e9;
            // One that was not there at an earlier reading was born since, as of a service with a thread for each request.
            let before = self.known.insert(thread, secs).unwrap_or(if is_known_whole { 0.0 } else { secs });
            let share = ((secs - before) / elapsed).min(1.0);
            if share <= 0.0 {
                continue;
            }
            let name = fs::read_to_string(format!("{path}/comm")).unwrap_or_default();
            if COLLECTORS.iter().any(|begin| name.starts_with(begin)) {
                collector = collector.max(share);
            }
            if share > busiest.0 {
                busiest = (share, name);
            }
            all += share;
        }
        self.at = Instant::now();
        into.gauge("outside.busiest_thread".to_owned(), busiest.0);
        into.gauge(format!("outside.busiest_thread_is.{}", busiest.1.trim()), 1.0);
        into.gauge("outside.collector".to_owned(), collector);
        into.gauge("outside.computing".to_owned(), all);
    }
}
