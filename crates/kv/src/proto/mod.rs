//! What the two ends of the wire agree on: routes, header names, JSON shapes.
//!
//! Knows neither how the server nor how the load generator is built. `server`, `load` and `lab` meet only here.

mod link;
mod little;
mod load;
mod path;
mod selftest;

pub use link::{LinkAccount, LinkDirection};
pub use load::{
    Bins, Bucket, FailureExample, LOAD_REPORT_SCHEMA, Latency, LinearizabilityReport, LoadEvent, LoadReport,
    OperationReport, ScheduleReport, SecondReport, ServerReport, WorkerReport,
};
pub use path::{is_well_encoded, key_of_path, key_of_plain_path};
pub use selftest::{AccuracyCheck, CheckOutcome, SelftestReport};

/// Version of every JSON shape this program writes; raised when a reader of the old one would misread the new one.
pub const FORMAT: u32 = 2;

/// The prefix of the data routes: everything behind it is the key.
pub const KV_PREFIX: &str = "/kv/";

/// Where a server computes primes, only in the lab: `?count=N`; the answer is JSON that begins with `{"count":N,`.
pub const COMPUTE_PRIME: &str = "/compute/prime";
/// Where a server hashes a text, only in the lab: `?text=T`; the answer is JSON that begins with `{"hash":H`.
pub const COMPUTE_HASH: &str = "/compute/hash";

/// Where the server says that the process lives.
pub const HEALTHZ: &str = "/healthz";
/// Where the server says that it can serve: its store answers and it is not draining.
pub const READYZ: &str = "/readyz";
/// The counters as Prometheus text.
pub const METRICS: &str = "/metrics";
/// The counters as one flat JSON object: metric name (labels included) to number.
pub const STATS: &str = "/stats";
/// A page for people that shows them live.
pub const DASHBOARD: &str = "/dashboard";

/// Where a server with `--lab` adds injected faults, and removes them: `PUT ?NAME=VALUE&…` and `DELETE`, both answered with 204.
pub const INJECT: &str = "/inject";

/// On a failed write, whether it happened: `not-applied` or `unknown`.
pub const OUTCOME: &str = "weir-outcome";
/// A request that says `1` here is answered with `Server-Timing`.
pub const TIMING: &str = "weir-timing";

/// The first word the server prints on standard output, before the address it listens on: `listening 127.0.0.1:8080`.
pub const LISTENING: &str = "listening";
/// The first word of a further line for each compatibility API: `compat crud 127.0.0.1:8081`.
pub const COMPAT: &str = "compat";
/// The first word of a further line for each address of its own that pages about the server have: `operations 127.0.0.1:9080`.
pub const OPERATIONS: &str = "operations";
