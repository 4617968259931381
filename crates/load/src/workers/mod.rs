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
use super::measure::FromThread;
use kv::proto::LoadEvent;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::ops::Range;

/// What a coordinator sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ToWorker {
    /// The whole plan, which of its clients are this worker's, and whether it is to preload the keys. `run` is told where values
    /// of all workers are to be judged together. The answer is `ready`.
    Prepare { plan: Box<Plan>, clients: Range<u32>, preload: bool, run: Option<u32> },
    /// Begin. The answer is `started` at once, and then what the threads report.
    Start,
}

/// What a worker sends.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum FromWorker {
    /// The first message.
    Hello {
        version: String,
        format: u32,
        /// Which clock its calls are recorded by; another version, which is refused, may not say.
        #[serde(default)]
        clock: String,
    },
    /// How the preload goes.
    Event(LoadEvent),
    Ready,
    Started,
    /// What a thread reports, with its number among those of this worker.
    Thread(usize, FromThread),
    /// The order could not be carried out.
    Failed {
        why: String,
    },
}

/// Sends a message: a JSON document on a line. This fails only if the other side is gone.
fn send(output: &mut impl Write, message: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    output.write_all(&line)?;
    output.flush()
}
