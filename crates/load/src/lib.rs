//! The load generator: many clients in a closed or an open loop against any HTTP key-value server, and what they saw.
//!
//! Knows a URL and a dialect, not our server; prints nothing. A [`Plan`] goes in, a
//! [`LoadReport`] comes out. Read on in this order: `workload` and `keys` (with `mix`, `distribution` and `value_size`)
//! say what is asked for, `dialect`, `request` and `answer` what that is on the wire, `client` and `reactor` move it, `verify`
//! and `checker` look at what was read, `recorder` counts, `measure` holds the window; `workers` divides it all among several processes.

mod workload;
mod mix;
mod distribution;
mod value_size;
mod draw;
mod keys;
mod pacing;
mod schedule;
mod target;
mod dialect;
mod encode;
mod pieces;
mod verify;
mod history;
mod request;
mod answer;
mod attempt;
mod client;
mod timer;
mod reactor;
mod seconds;
mod samples;
mod recorder;
mod tally;
mod staleness;
mod preload;
mod early_end;
mod measure;
pub mod workers;

pub use answer::Fault;
pub use dialect::{DIALECTS, Dialect, DialectRow};
pub use distribution::{DISTRIBUTIONS, Distribution, DistributionRow};
pub use early_end::EarlyEnd;
pub use keys::key_numbers;
pub use mix::{MIX_ENTRIES, Mix, MixEntry, Operation, Step};
pub use pacing::{Arrivals, Pacing, Think};
pub use samples::Samples;
pub use target::Target;
pub use value_size::ValueSize;
pub use verify::Verify;
pub use workload::{WORKLOADS, Workload};

use kv::proto::{LoadEvent, LoadReport, SecondReport};
use serde::{Deserialize, Serialize};
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// File descriptors kept for everything that is not a client.
const FILES_SPARE: u64 = 64;

/// All that a run needs: two runs of one plan send the same requests in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The server.
    pub target: Target,
    /// How requests to it look.
    #[serde(with = "dialect::as_text")]
    pub dialect: &'static Dialect,
    /// What is asked for.
    #[serde(with = "workload::as_name")]
    pub workload: &'static Workload,
    /// Connections, each with one request in flight; at least one.
    pub clients: u32,
    /// Threads that drive them, at least one; no more than there are clients are started.
    pub threads: u32,
    /// The unmeasured part before the window.
    pub warmup: Duration,
    /// The measured part; longer than nothing, shorter than a day.
    pub window: Duration,
    /// What the operation streams are drawn from.
    pub seed: u64,
    /// What is asked in which shares, in place of the workload's.
    pub mix: Option<Mix>,
    /// Which keys are named, in place of the workload's, whatever is asked.
    pub distribution: Option<Distribution>,
    /// How many keys there are; at least one.
    pub keys: u64,
    /// How long the values are.
    pub value_size: ValueSize,
    /// When a request is given up. Checked every tenth of it, and every 100 ms at least.
    pub timeout: Duration,
    /// Whether keys are written and read back first. Workloads that do not read have no need of it.
    pub preload: bool,
    /// When a client sends again.
    pub pacing: Pacing,
    /// When a client connects.
    pub connect: Connect,
    /// Which of the values that are read are compared as a whole, and checked for being the latest.
    pub verify: Verify,
    /// Whether the report has the histograms.
    pub histogram: bool,
    /// Length of the bins of the time series: a second, or [a whole part of one](is_bin).
    pub bin: Duration,
    /// Processor time that each request costs the generator more than it has to: to see whether the generator is the limit.
    pub added_cpu: Duration,
}

kv::serde_as_text!(Target, Mix, Distribution, ValueSize, Connect, Verify);

/// A shorter bin says more of the machine's clock than of anything else.
const BIN_LEAST: Duration = Duration::from_millis(10);

/// Whether the window can be divided into bins of this length: a second is made of them.
pub fn is_bin(length: Duration) -> bool {
    length >= BIN_LEAST && seconds::SECOND.as_nanos().is_multiple_of(length.as_nanos())
}

/// When a client makes a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Connect {
    /// At its first request, and again only when the connection ended.
    #[default]
    Once,
    /// For each request anew, as most load generators for coursework do: what is measured is then mostly connecting.
    Each,
}

/// Implements `Display` and `FromStr` for an enum whose values have names.
macro_rules! named_values {
    ($type:ty: $($name:literal = $value:path),*) => {
        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self {
                    $($value => $name,)*
                })
            }
        }

        impl std::str::FromStr for $type {
            type Err = String;

            fn from_str(text: &str) -> Result<$type, String> {
                match text {
                    $($name => Ok($value),)*
                    _ => Err(format!("expected one of: {}", [$($name),*].join(", "))),
                }
            }
        }
    };
}
pub(crate) use named_values;

named_values!(Connect: "once" = Connect::Once, "each" = Connect::Each);

impl Plan {
    /// Which operations, in which shares.
    pub fn mix_entries(&self) -> &[MixEntry] {
        self.mix.as_ref().map_or(self.workload.mix, |mix| &mix.mix_entries)
    }

    /// Which keys the requests of `entry` name.
    pub fn distribution_of(&self, turn: &MixEntry) -> Distribution {
        self.distribution.or(turn.distribution).unwrap_or(self.workload.distribution)
    }

    /// The distributions of all entries, each once, in their order.
    pub fn distribution_names(&self) -> String {
        let mut told: Vec<String> = Vec::new();
        for turn in self.mix_entries() {
            let distribution = self.distribution_of(turn).to_string();
            if !told.contains(&distribution) {
                told.push(distribution);
            }
        }
        told.join(", ")
    }

    /// The names that the histograms of the report will have.
    pub fn histogram_names(&self) -> Vec<&'static str> {
        let asked = Operation::ALL.into_iter().filter(|asked| self.asks(|operation| operation == *asked));
        let open: &[&str] = match self.pacing {
            Pacing::Open { .. } => &["service", "send_lag"],
            Pacing::Closed { .. } => &[],
        };
        ["all"].into_iter().chain(asked.map(Operation::name)).chain(open.iter().copied()).collect()
    }

    /// Whether any request names a key.
    pub fn names_keys(&self) -> bool {
        self.asks(|operation| self.dialect.names_key(operation))
    }

    /// How many keys, from the first on, are written and read back before the run. None where nothing is read: only then
    /// must keys be there. None either where the dialect reads without naming a key.
    pub fn preload_keys(&self) -> u64 {
        let reads = |operation| operation == Operation::Get && self.dialect.names_key(operation);
        let wanted = self.preload && self.asks(reads);
        if wanted { self.workload.preload_keys_max.unwrap_or(self.keys).min(self.keys) } else { 0 }
    }

    /// Whether a read that finds nothing is a good answer.
    pub fn absent_is_success(&self) -> bool {
        self.workload.absent_is_success || self.asks(|operation| operation == Operation::Delete)
    }

    /// Whether the dialect supports all of it.
    fn check(&self) -> Result<(), Error> {
        let unspoken = |operation: Operation, preload: bool| {
            let dialect = self.dialect.name.clone();
            (!self.dialect.supports(operation)).then_some(Error::Unsupported { dialect, operation, preload })
        };
        let steps = self.mix_entries().iter().flat_map(|turn| turn.steps);
        let asked = steps.filter_map(|step| unspoken(step.operation, false)).next();
        let preload = self.preload_keys() > 0;
        if let Some(error) = asked.or_else(|| unspoken(Operation::Put, true).filter(|_| preload)) {
            return Err(error);
        }
        let bytes_min = self.dialect.value_bytes_min;
        let writes = preload || self.asks(|operation| operation == Operation::Put);
        if writes && self.value_size.min() < bytes_min {
            return Err(Error::ShortValues { dialect: self.dialect.name.clone(), bytes_min });
        }
        Ok(())
    }

    fn asks(&self, what: impl Fn(Operation) -> bool) -> bool {
        self.mix_entries().iter().flat_map(|turn| turn.steps).any(|step| what(step.operation))
    }

    /// A plan for tests: the workload as its row has it.
    #[cfg(test)]
    fn example(workload: &str) -> Plan {
        let workload = Workload::named(workload).expect("a row of that name");
        Plan {
            target: "http://host:1".parse().expect("a URL"),
            dialect: Dialect::default_dialect(),
            workload,
            clients: 1,
            threads: 1,
            warmup: Duration::ZERO,
            window: Duration::from_secs(1),
            seed: 1,
            mix: None,
            distribution: None,
            keys: workload.keys_default,
            value_size: workload.value_size_default,
            timeout: Duration::from_secs(1),
            preload: true,
            pacing: Pacing::default(),
            connect: Connect::Once,
            verify: Verify::NONE,
            histogram: false,
            bin: seconds::SECOND,
            added_cpu: Duration::ZERO,
        }
    }
}

/// What is reported while a plan runs, in the thread that called [`run`].
#[derive(Clone, Debug)]
pub enum Notice {
    /// The keys are being written and read back.
    Preloading {
        /// Requests that succeeded.
        requests: u64,
        /// Of how many.
        of: u64,
    },
    /// A second is over on all threads. Seconds are counted from the window's start, those of the warm-up below zero.
    Second {
        /// Which.
        second: i64,
        /// What happened in it.
        report: SecondReport,
    },
    /// A bin is over on all threads that is shorter than a second; counted likewise.
    Bin {
        /// Which.
        bin: i64,
        /// What happened in it.
        report: SecondReport,
    },
    /// This happened just now. Neither [`LoadEvent::Second`], [`LoadEvent::Bin`] nor [`LoadEvent::Report`] is ever among them: seconds
    /// and bins are notices of their own, and the report is what [`run`] gives back.
    Event(LoadEvent),
}

/// Why there is no report.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The dialect has no template for an operation of the load.
    #[error("dialect {dialect} has no [{}], which {} asks for", .operation.name(), if *.preload { "the preload" } else { "this load" })]
    Unsupported {
        /// Its name.
        dialect: String,
        /// The first such operation.
        operation: Operation,
        /// Whether only the preload asks for it.
        preload: bool,
    },
    /// The plan writes values that the server does not take.
    #[error("dialect {dialect} takes no values of less than {bytes_min} B")]
    ShortValues {
        /// The dialect's name.
        dialect: String,
        /// The shortest value it takes.
        bytes_min: u64,
    },
    /// The target does not accept connections.
    #[error("cannot reach {target}: {cause}")]
    Unreachable {
        /// The URL.
        target: String,
        /// What the attempt to connect said.
        cause: String,
    },
    /// A key could not be written, or did not come back as written.
    #[error("cannot preload key {key}: {cause}")]
    Preload {
        /// The first such key.
        key: String,
        /// What happened to it.
        cause: String,
    },
    /// A worker failed or was lost.
    #[error("worker `{command}`: {cause}")]
    Worker {
        /// What started it.
        command: String,
        /// Why, and a hint.
        cause: String,
    },
    /// This machine has no more sockets, file descriptors or memory for the clients.
    #[error("cannot run the clients: {}", plain_cause(.0))]
    Machine(#[source] io::Error),
}

/// Carries out `plan` and says what its clients saw in the window.
///
/// Blocks for the warm-up and the window, and before them for the preload. A server that fails later than at the
/// first connection fails requests, not the run.
pub fn run(plan: &Plan, observer: &mut dyn FnMut(Notice)) -> Result<LoadReport, Error> {
    run_until(plan, &EarlyEnd::default(), observer)
}

/// As [`run`]; its window is over when `early_end` says so, and then was as long as the report's `window_secs`.
pub fn run_until(
    plan: &Plan,
    early_end: &EarlyEnd,
    observer: &mut dyn FnMut(Notice),
) -> Result<LoadReport, Error> {
    plan.check()?;
    let plan = &Plan { verify: plan.verify.anew(), ..plan.clone() };
    let address = reach(plan)?;
    allow_files(u64::from(plan.clients) + FILES_SPARE);
    if plan.preload_keys() > 0 {
        preload::preload(plan, address, observer)?;
    }
    measure::measure(plan, address, early_end, observer)
}

/// By how much a report misses Little's law, L = λW: 0.02 is 2 % too much.
///
/// In a closed loop every instant of a client lies in a request, a thought or a back-off, so that what the latencies say,
/// put right at the window's edges, adds up to the clients. In an open loop it adds up to the requests that were in flight,
/// which were counted. Anything but about zero is a fault of the measurement. `None` where no request was completed.
/// Source: Little, A Proof for the Queuing Formula L = λW (1961).
pub fn little_residual(report: &LoadReport) -> Option<f64> {
    let seen = report.service.as_ref().unwrap_or(&report.latency);
    let in_request_secs = report.attempts as f64 * seen.us_mean / 1e6 + report.edge_secs;
    let (found, expected) = match (&report.service, report.in_flight_mean) {
        (Some(_), Some(in_flight)) => (in_request_secs, in_flight),
        _ => (in_request_secs + report.backoff_secs + report.think_secs, f64::from(report.clients)),
    };
    (report.attempts > 0 && expected > 0.0).then(|| found / report.window_secs / expected - 1.0)
}

/// Why the generator may have been the limit, so that the target can do more than was seen; `None` where it was not.
///
/// It may have been if its threads used over 70 % of a core each, or if the requests of a closed loop spent over 1 % of their
/// time waiting for the generator to get a core.
pub fn generator_limit(report: &LoadReport) -> Option<String> {
    const BUSY_MAX: f64 = 0.7;
    const DELAY_MAX: f64 = 0.01;
    let busy = report.cpu_secs / report.window_secs / f64::from(report.threads);
    if busy > BUSY_MAX {
        return Some(format!("its threads were {:.0} % busy", busy * 100.0));
    }
    // The mean over several workers hides the one that can do no more.
    for worker in &report.workers {
        let busy = worker.cpu_secs / report.window_secs / f64::from(worker.threads);
        if busy > BUSY_MAX {
            return Some(format!(
                "the threads of worker `{}` were {:.0} % busy",
                worker.command,
                busy * 100.0
            ));
        }
    }
    let in_flight_secs = report.in_flight_mean? * report.window_secs;
    let delayed = report.run_delay_secs? / in_flight_secs;
    let closed = report.schedule.is_none() && in_flight_secs > 0.0;
    (closed && delayed > DELAY_MAX)
        .then(|| format!("requests waited {:.0} % of their time for it to get a core", delayed * 100.0))
}

/// The first of the target's addresses at which someone accepts a connection.
fn reach(plan: &Plan) -> Result<SocketAddr, Error> {
    let unreachable =
        |error: &io::Error| Error::Unreachable { target: plan.target.to_string(), cause: plain_cause(error) };
    let addresses = plan.target.addresses().map_err(|error| unreachable(&error))?;
    let mut cause = io::Error::other("the name has no address");
    for address in addresses {
        match TcpStream::connect_timeout(&address, plan.timeout) {
            Ok(_) => return Ok(address),
            Err(error) => cause = error,
        }
    }
    Err(unreachable(&cause))
}

/// Raises this process's limit of open files as far as it may, if it is below `files`. The default of 1024 is older
/// than load tests; where the limit stays too low, connecting will say so.
fn allow_files(files: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < files) {
        let current = limit.maximum.map_or(files, |maximum| maximum.min(files));
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(current), maximum: limit.maximum });
    }
}

/// A system error in the middle of a sentence: without its number and its capital letter.
fn plain_cause(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| format!("{}{}", first.to_lowercase(), letters.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use kv::proto::{Latency, WorkerReport};

    /// What `plan` is for the worker that reads it.
    fn as_read_by_a_worker(plan: &Plan) -> Plan {
        serde_json::from_str(&serde_json::to_string(plan).unwrap()).unwrap()
    }

    #[test]
    fn a_plan_arrives_at_a_worker_as_it_was() {
        let poisson = Pacing::Open { rate: "333.3".parse().unwrap(), arrivals: Arrivals::Poisson };
        for pacing in [poisson, Pacing::Closed { think: "exponential:12.5us".parse().unwrap() }] {
            let plan = Plan {
                clients: 7,
                warmup: Duration::from_nanos(1_234_567_891),
                seed: u64::MAX,
                mix: Some("get=50,put_put_delete=3".parse().unwrap()),
                distribution: Some("hotspot:90/10".parse().unwrap()),
                value_size: "zipfian:100-100000".parse().unwrap(),
                pacing,
                connect: Connect::Each,
                bin: Duration::from_millis(250),
                ..Plan::example("mixed")
            };
            assert_eq!(format!("{:?}", as_read_by_a_worker(&plan)), format!("{plan:?}"));
        }
        let verified = Plan { verify: "12.5%".parse().unwrap(), ..Plan::example("mixed") };
        assert_eq!(as_read_by_a_worker(&verified).verify.to_string(), "12.5%");
        let text = "[get]\npath = \"/{key}\"\n";
        let plan = Plan { dialect: Dialect::of_file("my.toml", text).unwrap(), ..Plan::example("mixed") };
        assert_eq!(format!("{:?}", as_read_by_a_worker(&plan).dialect), format!("{:?}", plan.dialect));
        assert!(std::ptr::eq(as_read_by_a_worker(&verified).dialect, verified.dialect), "built in");
    }

    #[test]
    fn system_errors_fit_into_a_sentence() {
        for (error, told) in [
            (io::Error::from_raw_os_error(111), "connection refused"),
            (io::Error::other("no such name"), "no such name"),
            (io::Error::other(""), ""),
        ] {
            assert_eq!(plain_cause(&error), told);
        }
    }

    #[test]
    fn little_counts_requests_and_rests_of_all_clients() {
        // Ten clients for two seconds: 190 requests of 100 ms, and 1 s of back-off.
        let report = LoadReport {
            clients: 10,
            window_secs: 2.0,
            attempts: 190,
            latency: Latency { count: 190, us_mean: 100_000.0, ..Latency::default() },
            backoff_secs: 1.0,
            ..LoadReport::default()
        };
        let check = |report: &LoadReport, expected: f64| {
            let residual = little_residual(report).unwrap();
            assert!((residual - expected).abs() < 1e-9, "{residual}");
        };
        check(&report, 0.0);
        check(&LoadReport { backoff_secs: 0.0, think_secs: 1.0, ..report.clone() }, 0.0);
        check(&LoadReport { backoff_secs: 0.0, edge_secs: 1.0, ..report.clone() }, 0.0);
        check(&LoadReport { backoff_secs: 0.0, ..report.clone() }, -0.05);
        let open = LoadReport {
            latency: Latency { count: 190, us_mean: 900_000.0, ..Latency::default() },
            service: Some(report.latency),
            in_flight_mean: Some(9.5),
            ..report.clone()
        };
        check(&open, 0.0);
        check(&LoadReport { in_flight_mean: Some(10.0), ..open }, -0.05);
        assert!(little_residual(&LoadReport { attempts: 0, ..report }).is_none());
    }

    #[test]
    fn a_generator_is_the_limit_when_it_is_busy_or_waits_for_a_core() {
        let report = LoadReport {
            window_secs: 10.0,
            threads: 2,
            cpu_secs: 14.0,
            in_flight_mean: Some(4.0),
            run_delay_secs: Some(0.4),
            ..LoadReport::default()
        };
        assert_eq!(generator_limit(&report), None);
        let busy = generator_limit(&LoadReport { cpu_secs: 16.0, ..report.clone() });
        assert_eq!(busy.as_deref(), Some("its threads were 80 % busy"));
        let worker = |command: &str, cpu_secs| WorkerReport {
            command: command.to_owned(),
            threads: 1,
            cpu_secs,
            ..WorkerReport::default()
        };
        let workers = vec![worker("ssh a w", 5.0), worker("ssh b w", 9.0)];
        let why = generator_limit(&LoadReport { workers, ..report.clone() });
        assert_eq!(why.as_deref(), Some("the threads of worker `ssh b w` were 90 % busy"));
        let waits = LoadReport { run_delay_secs: Some(2.0), ..report };
        let why = generator_limit(&waits).unwrap();
        assert_eq!(why, "requests waited 5 % of their time for it to get a core");
        // An open loop has its own account of that: the send lag.
        let schedule = Some(kv::proto::ScheduleReport::default());
        assert_eq!(generator_limit(&LoadReport { schedule, ..waits }), None);
    }
}
