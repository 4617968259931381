//! What `weir load` reports, as JSON: the one thing the lab knows of it.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A line of `weir load --events`: what just happened, for whoever samples the machine meanwhile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum LoadEvent {
    /// Every key of the workload is written and read back.
    Preloaded {
        /// How many keys.
        keys: u64,
        /// How long it took.
        secs: f64,
    },
    /// The warm-up is over; from now on every completion counts.
    WindowStart,
    /// The measured part is over.
    WindowEnd,
    /// The last line.
    Report(Box<LoadReport>),
}

/// What one run of the load generator saw in its window.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadReport {
    /// [`super::FORMAT`].
    pub format: u32,
    /// The workload's name.
    pub workload: String,
    /// The workload in one sentence; empty in reports from before it was said, here and below.
    #[serde(default)]
    pub about: String,
    /// In which words it was asked for; empty in reports from before there was a choice.
    #[serde(default)]
    pub dialect: String,
    /// What each operation was to be of all requests, 0–1.
    #[serde(default)]
    pub mix: BTreeMap<String, f64>,
    /// Which keys were named, as `--distribution` writes it; empty where no request names a key.
    #[serde(default)]
    pub distribution: String,
    /// How many keys there were; 0 where no request names one.
    #[serde(default)]
    pub keys: u64,
    /// How long the values were, as `--value-size` writes it: `100` or `100-1000`.
    #[serde(default)]
    pub value_bytes: String,
    /// Connections, each with one request in flight.
    pub clients: u32,
    /// Threads that drove them.
    pub threads: u32,
    /// What the operation streams were drawn from.
    pub seed: u64,
    /// The unmeasured part before the window.
    pub warmup_secs: f64,
    /// The measured part, by the clock: from the first to the last instant at which completions counted.
    pub window_secs: f64,
    /// Requests completed in the window, failed ones included.
    pub attempts: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Successes per second: the headline.
    pub goodput_rps: f64,
    /// Failed attempts over all attempts, 0–1.
    pub error_ratio: f64,
    /// Of all attempts, failed ones included, from the instant the client was free to send.
    pub latency: Latency,
    /// Per kind of request: `get`, `put`, `delete`, `compute_prime`, `compute_hash`.
    pub operations: Vec<OperationReport>,
    /// Failed attempts by class: `refused`, `reset`, `timeout`, `short_body`, `malformed`, `wrong_value`, `http_4xx`, `http_5xx`.
    pub errors: BTreeMap<String, u64>,
    /// Time that clients, all together, spent in the window neither in a request nor free to send one:
    /// backing off after a failure.
    pub backoff_secs: f64,
    /// Processor time of the generator in the window, user and system.
    pub cpu_secs: f64,
    /// The window in bins of one second; a last bin shorter than that is left out.
    pub seconds: Vec<SecondReport>,
}

/// One kind of request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OperationReport {
    /// `get`, `put`, `delete`, `compute_prime` or `compute_hash`.
    pub operation: String,
    /// Completed, failed ones included.
    pub attempts: u64,
    /// Succeeded.
    pub successes: u64,
    /// Reads that found no such key where the workload allows for it; they count as successes.
    pub absent: u64,
    /// Of the successes only.
    pub latency: Latency,
}

/// One second of the window.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SecondReport {
    /// Requests completed, failed ones included.
    pub attempts: u64,
    /// Those that succeeded.
    pub successes: u64,
    /// Mean latency of all attempts.
    pub latency_us_mean: f64,
}

/// A latency distribution, in microseconds. All zero where `count` is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Samples.
    pub count: u64,
    /// Arithmetic mean, exact (a sum, not read off the histogram).
    pub us_mean: f64,
    /// Shortest.
    pub us_min: f64,
    /// Median.
    pub us_p50: f64,
    /// 90th percentile.
    pub us_p90: f64,
    /// 99th percentile.
    pub us_p99: f64,
    /// 99.9th percentile.
    pub us_p999: f64,
    /// Longest.
    pub us_max: f64,
    /// Samples longer than the histogram reaches; they are counted at its end.
    pub clipped: u64,
}
