//! Several processes that put on one load together: `weir load --worker COMMAND`, given for each of them.
//!
//! The coordinator starts each command by `sh -c`; the command runs `weir load-worker`, here or, as in `ssh host weir load-worker`,
//! elsewhere. Both send each other one JSON document a line over the worker's standard streams. The coordinator sends no load: it
//! divides the clients, starts the workers together and adds up their tallies as those of threads are added up. Client numbers are
//! those of the whole load, so the clients ask for the same things wherever they run.

mod coordinator;
mod worker;

pub use coordinator::run;
pub use worker::work;

use super::Plan;
use super::seconds::Second;
use super::tally::Tally;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// What a coordinator sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ToWorker {
    /// The whole plan, and which of its clients are this worker's. The answer is `ready` once the target is reached.
    Prepare { plan: Box<Plan>, clients: Range<u32> },
    /// Write the keys and read them back. The answer is `preloaded`.
    Preload,
    /// Begin. The answer is `started` at once, `tally` at the end.
    Start,
}

/// What a worker sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum FromWorker {
    /// The first message.
    Hello {
        version: String,
        format: u32,
    },
    Ready,
    Preloading {
        requests: u64,
        of: u64,
    },
    Preloaded {
        keys: u64,
        secs: f64,
    },
    Started,
    /// A second, or a bin, is over on all its threads.
    Second(Second),
    /// What was counted in the window.
    Tally(Box<Tally>),
    /// The order could not be carried out.
    Failed {
        why: String,
    },
}
