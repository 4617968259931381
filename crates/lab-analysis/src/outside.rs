//! What a service shows from outside: mean numbers of its blocked threads and of its connections, by what they wait for, and what is lost.

use lab_data::results::Run;
use serde::Serialize;
use std::collections::BTreeMap;

const OBSERVED: &str = "outside.observed_secs";
const SILENT: &str = "silent_";
const BUSIEST: &str = "outside.busiest_thread_is.";

/// Means over the time that was observed in all runs of a level.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outside {
    /// Threads and connections by what they wait for: `lock`, `sleep`, `held`, …; events in a second: `retransmits`, …
    pub waiting: BTreeMap<String, f64>,
    /// The busiest thread: the share of the time for which it computed or waited for a core.
    pub busiest_thread: f64,
    /// Its name.
    pub busiest_thread_is: Option<String>,
    /// The same of the busiest thread that collects garbage.
    pub collector: f64,
    /// All threads that compute or wait for a core.
    pub computing: f64,
    /// Whether it could be read in which system calls threads are.
    pub may_read: bool,
}

impl Outside {
    /// The share of the time in which nobody got an answer for `ms` and longer, or for the next longer time that is counted, although
    /// answers were due; 0 where that is longer than all of these.
    pub fn silent(&self, ms: f64) -> f64 {
        let all = self
            .waiting
            .iter()
            .filter_map(|(name, share)| Some((name.strip_prefix(SILENT)?.parse::<u32>().ok()?, *share)));
        let counted = all.filter(|(least, _)| f64::from(*least) >= ms);
        counted.min_by_key(|(least, _)| *least).map_or(0.0, |(_, share)| share)
    }

    /// How many wait for this.
    pub fn at(&self, name: &str) -> f64 {
        self.waiting.get(name).copied().unwrap_or(0.0)
    }
}

/// What was seen in `ran`; `None` where nobody looked.
pub(super) fn outside(ran: &[Run]) -> Option<Outside> {
    let mut secs: BTreeMap<String, f64> = BTreeMap::new();
    let mut seen = Outside::default();
    for (trial, _) in ran {
        for name in trial.closed.counters.keys().filter(|name| name.starts_with("outside.")) {
            // What was first seen within the window has no counter before it.
            let grown = trial.closed.counters[name] - trial.opened.counters.get(name).unwrap_or(&0.0);
            *secs.entry(name.clone()).or_default() += grown;
        }
        let gauge = |name: &str| trial.closed.gauges.get(name).copied().unwrap_or(0.0);
        seen.collector = seen.collector.max(gauge("outside.collector"));
        seen.computing += gauge("outside.computing") / ran.len() as f64;
        if gauge("outside.busiest_thread") >= seen.busiest_thread {
            let names = trial.closed.gauges.keys();
            seen.busiest_thread_is = names
                .filter_map(|name| name.strip_prefix(BUSIEST))
                .find(|name| !name.is_empty())
                .map(str::to_owned);
            seen.busiest_thread = gauge("outside.busiest_thread");
        }
        seen.may_read |= gauge("outside.may_read") > 0.0;
    }
    let observed = secs.remove(OBSERVED).filter(|secs| *secs > 0.0)?;
    let short = |name: &str| name.trim_start_matches("outside.").trim_end_matches("_secs").to_owned();
    seen.waiting = secs.iter().map(|(name, secs)| (short(name), secs / observed)).collect();
    if let Some(closed) = seen.waiting.get_mut("window_closed") {
        // It is a sum over the connections: of one client it is a share of the time.
        *closed /= f64::from(ran.first()?.0.level.max(1));
    }
    Some(seen)
}
