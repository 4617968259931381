//! What was measured: raw counters and the load generator's own reports, nothing derived.
//!
//! This is `results.json`. Everything the report says is computed from it, so it alone must be kept.

use super::published::PublishedRow;
use kv::proto::{CheckOutcome, LoadReport, SelftestReport};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// One run of an experiment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Results {
    /// [`kv::proto::FORMAT`].
    pub format: u32,
    /// Version of weir that measured.
    pub weir_version: String,
    /// The experiment's name: `quick`.
    pub name: String,
    /// One line for the report's head: what is measured on what.
    pub title: String,
    /// The experiment file as read, so that the run can be repeated from the results alone.
    pub experiment_toml: String,
    /// The command that repeats the run.
    pub command: String,
    /// When the run started, as RFC 3339 in UTC.
    pub started: String,
    /// Which of an experiment's targets this is; `None` where it has only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured: Option<Measured>,
    /// To what share of the file's durations it was scaled down; `None`: not at all.
    pub scale: Option<f64>,
    /// What the order of trials and the operation streams were drawn from.
    pub seed: u64,
    /// Where it was measured: `cpu` → `Intel …`, `kernel` → `6.1`, in the order the report prints them.
    pub environment: Vec<(String, String)>,
    /// The parts and the cores they were pinned to.
    pub placements: Vec<Placement>,
    /// What the generator had to say for itself before the first trial; `None` in results from before it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selftest: Option<Selftest>,
    /// When it ran, as RFC 3339 in UTC: before this run if it was stored; `None` where it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selftest_at: Option<String>,
    /// The cores of the generator and of the responder in it, where it was told them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selftest_cores: Option<[usize; 2]>,
    /// What a request may have to wait for, and which counters tell how busy it was.
    pub resources: Vec<Resource>,
    /// The workloads, in the experiment's order.
    pub workloads: Vec<WorkloadPlan>,
    /// Load levels (clients) in the experiment's order, of workloads that have none of their own.
    pub levels: Vec<u32>,
    /// Runs of each workload at each level.
    pub repetitions: u32,
    /// Whether there are so many because what they showed was enough: intervals must then hold at any number of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sequential: bool,
    /// Published results of the same experiment: all rows of the report it names, as they stand in its table.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<PublishedRow>,
    /// The trials in the order they ran. A planned trial that is not here did not run.
    pub trials: Vec<Trial>,
    /// Trials in which one resource was made a little slower on purpose, and those beside them in which none was; in the order
    /// they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interventions: Vec<Intervention>,
    /// Searches for the highest rate under a limit on latency, in the order they ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub searches: Vec<Search>,
}

impl Results {
    /// The trials of a workload, in the order they ran.
    pub fn trials_of<'r>(&'r self, workload: &'r str) -> impl Iterator<Item = &'r Trial> {
        self.trials.iter().filter(move |trial| trial.workload == workload)
    }

    /// Those that delivered numbers, with them.
    pub fn runs_of<'r>(&'r self, workload: &'r str) -> impl Iterator<Item = Run<'r>> {
        self.trials_of(workload).filter_map(|trial| Some((trial, trial.numbers()?)))
    }
}

/// A search for the highest rate at which a limit on latency holds, in an open loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Search {
    /// The workload.
    pub workload: String,
    /// In which repetition, and so on which fresh target.
    pub repetition: u32,
    /// What was asked.
    pub plan: SearchPlan,
    /// Every trial, in the order they ran.
    pub trials: Vec<SearchTrial>,
    /// Why there are no more; `None` where it was interrupted.
    pub ended: Option<SearchEnd>,
}

/// What a search looks for, and how long.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SearchPlan {
    /// The 99th percentile that must not be passed, from the instant a request was due.
    pub p99_us: f64,
    /// Failed attempts over attempts that must not be passed, 0–1.
    pub error_ratio: f64,
    /// Connections.
    pub clients: u32,
    /// How requests are spread over time: `poisson`, `constant`.
    pub arrivals: String,
    /// How long a trial that counts is measured.
    pub trial_secs: f64,
    /// Time for all trials together.
    pub most_secs: f64,
    /// How near the two bounds are to come, as a share.
    pub goal: f64,
}

/// A trial of a search.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SearchTrial {
    /// Requests per second asked for.
    pub rate_rps: f64,
    /// How long it was to be measured; shorter ones only show the way.
    pub window_secs: f64,
    /// What was measured; its level is the connections.
    pub trial: Trial,
}

/// Why a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SearchEnd {
    /// Its bounds are as near to each other as asked, but for rates at which trials disagree.
    Reached,
    /// Its time was over.
    Time,
    /// The limit does not even hold at a rate that is too low to be measured.
    TooLow,
    /// At the next higher rate the generator is the limit.
    Generator,
    /// Several trials in a row delivered no numbers.
    Broken,
}

/// A trial with one resource made slower on purpose, or its counterpart with none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervention {
    /// What was done; `None` of the counterpart, which stands at the beginning of each round.
    pub change: Option<Change>,
    /// What was measured. Its repetition counts the rounds.
    pub trial: Trial,
}

/// The change that has the generator compute longer for each request: if goodput follows, the generator is the limit.
pub const SLOWER_GENERATOR: &str = "generator";
/// The change that has the server compute longer for each request, in the rounds of [`SLOWER_GENERATOR`].
pub const SLOWER_SERVER: &str = "server_cpu";

/// How a resource was made slower.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// Its name: [`SLOWER_GENERATOR`], [`SLOWER_SERVER`]; `cpu`, `worker`, `delay`, `lock`, `store_worker`, `flush` of the server; `link`,
    /// `write_cap`, `commit`, `server_quota`, `database_cpu` of the lab.
    pub name: String,
    /// The resources whose demand it raises, by their names in [`Results::resources`]; empty of a control, which raises none.
    pub raises: Vec<String>,
    /// Added to the demand of each request or, of `store_worker`, `flush` and `commit`, of each batch; 0 where the change is a factor.
    #[serde(default)]
    pub added_us: f64,
    /// By what the demand was multiplied instead: 1.25 where a rate was lowered to 80 %.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub factor: Option<f64>,
}

/// One of several targets that were measured in turns, each into a results directory of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Measured {
    /// Its name, and that of its directory: `nginx`.
    pub target: String,
    /// When it acknowledges a write, in the experiment's words: `after fdatasync`; empty where it makes none.
    #[serde(default)]
    pub durability: String,
    /// All targets of the run in the experiment's order, this one among them. The first is what others are compared with.
    pub among: Vec<String>,
}

/// A workload of the experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WorkloadPlan {
    /// Its name: `get_popular`.
    pub name: String,
    /// One sentence: what it asks of the target.
    pub about: String,
    /// Its own load levels.
    pub levels: Option<Vec<u32>>,
    /// What the published table calls it, where that is another name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub published: Option<String>,
}

/// A part of the system and where it ran.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Placement {
    /// `server`, `database` or `generator`.
    pub part: String,
    /// The cores it was pinned to.
    pub cores: Vec<usize>,
    /// Other parts on the same cores; empty when it had them alone.
    pub shares_with: Vec<String>,
    /// Other parts on other hyperthreads of the same physical cores.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings_with: Vec<String>,
}

/// What came of `weir selftest` before an experiment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selftest {
    /// It ran to its end: what held and what did not.
    Ran(SelftestReport),
    /// It was to run and could not: why, in one line.
    Broke(String),
    /// The experiment or the command wanted none.
    Skipped,
    /// The target is simulated, and so is the generator: there is nothing to prove.
    Simulated,
}

impl Selftest {
    /// Names of the checks that failed, in their order.
    pub fn failed(&self) -> Vec<&str> {
        match self {
            Selftest::Ran(report) => report.with(CheckOutcome::Fail),
            Selftest::Broke(_) | Selftest::Skipped | Selftest::Simulated => Vec::new(),
        }
    }
}

/// Something of which a request takes time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// Its name in the report: `server CPU`, `server + database CPU`, `store write workers`, `disk vda`.
    pub name: String,
    /// The counters, in busy seconds, that add up to its use.
    pub busy: Vec<String>,
    /// How many requests it works on at once: cores, lanes. Utilization is busy seconds / (elapsed · servers).
    pub servers: f64,
    /// The gauge that tells this number for a trial, where trials may differ in it.
    pub servers_gauge: Option<String>,
    /// What it is, for the rules.
    pub kind: ResourceKind,
    /// What it is called as a bottleneck; `None` of what can be none, and in results from before it was said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
    /// Counters in client-seconds of those who wait for it and are not served yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting: Vec<String>,
    /// Counters in client-seconds of those it serves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub serving: Vec<String>,
    /// Counters in seconds of its own threads: what they computed, and how long they waited for a core to do so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub computing: Vec<String>,
    /// Counters in seconds for which the hypervisor gave its cores to other machines: so much less there is of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stolen: Vec<String>,
    /// Names of the resources that may be held while this one is waited for or used. What is within none is a client's own place:
    /// each client is in one of these at a time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<String>,
}

kv::named_enum! {
    /// What limits a system, in the field's words.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Limit {
        /// Cores of the server.
        ServerCpu = "server CPU",
        /// The processor time that a quota leaves the server.
        ServerQuota = "server CPU (quota)",
        /// The threads that serve connections, busy with something else than computing.
        ServerWorkers = "server workers",
        /// A lock in the server.
        ServerLock = "server lock",
        /// Sessions of the store.
        Pool = "connection pool",
        /// Cores of the database.
        DatabaseCpu = "database CPU",
        /// The processor time that a quota leaves the database.
        DatabaseQuota = "database CPU (quota)",
        /// Rows that others are changing.
        RowLock = "database row lock",
        /// Commits that wait until the log is on the disk.
        CommitPath = "commit path",
        /// Bytes a second to or from a disk, or a cap on them.
        Bandwidth = "device bandwidth",
        /// Pages that have to be read from a disk.
        Reads = "device reads",
        /// Bytes a second of a link.
        Network = "network",
        /// The load generator.
        Generator = "generator",
        /// A resource without a name of its own, as a station of a simulated target.
        Other = "other",
        /// One thread, which computes all of the time.
        OneThread = "one thread",
        /// Answers in two parts, of which the second waits for the acknowledgement of the first.
        DelayedAck = "delayed acknowledgement",
        /// A time that passes: a sleep or a timer.
        Timer = "sleep or timer",
        /// Another service.
        Downstream = "downstream service",
        /// Connections that the server has not accepted yet.
        AcceptQueue = "accept queue",
        /// A disk, for whatever it is used.
        Disk = "disk",
        /// Times in which all threads stand still, as for a garbage collector.
        Pauses = "pauses of all threads",
    }
}

/// What the rules may conclude from a resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResourceKind {
    /// It can be the bottleneck.
    #[default]
    Station,
    /// Sessions that are held while a database works: it can be the bottleneck, unless what they wait for there is.
    Pool,
    /// A rate that is imposed: at it, nothing more goes through, whatever a request takes of it.
    Cap,
    /// The load generator: if it is busy, nothing is known of the target.
    Generator,
    /// Printed, never concluded from: `%util` of a device that works in parallel is no utilization.
    Indication,
}

/// One workload at one level, once.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    /// The workload's name.
    pub workload: String,
    /// Clients asked for.
    pub level: u32,
    /// 0 to repetitions − 1.
    pub repetition: u32,
    /// What the load generator saw; `None` when it reported nothing.
    pub load: Option<LoadReport>,
    /// Why the trial failed.
    pub failure: Option<String>,
    /// Time between the two readings.
    pub elapsed_secs: f64,
    /// Counters when the window opened.
    pub opened: Reading,
    /// Counters when it closed.
    pub closed: Reading,
    /// What was broken on purpose, in the order in which it began.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultRecord>,
}

/// A fault that happened in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FaultRecord {
    /// What it was: `kill`, `pause`, …
    pub kind: String,
    /// Which part of the target it happened to.
    pub part: String,
    /// When it began, in seconds since the window opened.
    pub began_secs: f64,
    /// When it was over, and a process that had ended was started again.
    pub ended_secs: f64,
    /// Whether the process ended by itself meanwhile.
    pub died: bool,
}

/// A trial that delivered numbers, with them.
pub type Run<'a> = (&'a Trial, &'a LoadReport);

/// Raw counters and gauges at one instant. Units stand last in every name: `server.cpu_secs`, `disk.vda.written_bytes`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// They only grow; a pair of readings gives a rate.
    pub counters: BTreeMap<String, f64>,
    /// Levels at this instant.
    pub gauges: BTreeMap<String, f64>,
}

impl Reading {
    /// Adds a counter.
    pub fn count(&mut self, name: impl Into<String>, value: f64) {
        self.counters.insert(name.into(), value);
    }

    /// Adds a gauge.
    pub fn gauge(&mut self, name: impl Into<String>, value: f64) {
        self.gauges.insert(name.into(), value);
    }
}

/// How the failure of a trial begins that did not run because this machine cannot impose what the experiment asks for.
pub const NOT_IMPOSED: &str = "not imposed: ";

/// How the names of what a server counts itself begin.
const SERVERS_OWN: &str = "stats.";
/// Its own clock, in seconds since it was started; of several servers one of them.
pub const SERVERS_CLOCK: &str = "stats.weir_uptime_seconds";

impl Trial {
    /// What it measured. `None` of a trial that failed, whatever the generator saw: its target died, or was not what it had to be.
    pub fn numbers(&self) -> Option<&LoadReport> {
        self.load.as_ref().filter(|_| self.failure.is_none())
    }

    /// How much counter `name` grew in the window; `None` where it was not read.
    pub fn growth(&self, name: &str) -> Option<f64> {
        Some(self.closed.counters.get(name)? - self.opened.counters.get(name)?)
    }

    /// How much counter `name` grew per second; `None` where it was not read.
    pub fn per_sec(&self, name: &str) -> Option<f64> {
        let secs = if name.starts_with(SERVERS_OWN) { self.server_secs() } else { self.elapsed_secs };
        Some(self.growth(name)? / secs).filter(|_| secs > 0.0)
    }

    /// The time between the server's two answers about itself, by its own clock. It answers when it comes to it: one whose workers are
    /// busy for long is late, and what it says then is of a longer time than the window, or of a shorter one.
    fn server_secs(&self) -> f64 {
        let at = |reading: &Reading| reading.gauges.get(SERVERS_CLOCK).copied();
        let between = at(&self.closed).zip(at(&self.opened)).map(|(closed, opened)| closed - opened);
        between.filter(|secs| *secs > 0.0).unwrap_or(self.elapsed_secs)
    }

    /// Busy share of `resource` in the window, 0–1; `None` where one of its counters was not read.
    pub fn utilization(&self, resource: &Resource) -> Option<f64> {
        let busy = resource.busy.iter().map(|name| self.per_sec(name)).sum::<Option<f64>>()?;
        let servers = self.servers(resource);
        (self.elapsed_secs > 0.0 && servers > 0.0).then(|| busy / servers)
    }

    /// How many requests `resource` works on at once in this trial. Of cores, what the hypervisor left of them.
    pub fn servers(&self, resource: &Resource) -> f64 {
        let told = resource.servers_gauge.as_ref().and_then(|gauge| self.opened.gauges.get(gauge));
        let told = told.copied().filter(|servers| *servers > 0.0).unwrap_or(resource.servers);
        // A quota above the generator's group may leave it more than its cores.
        let told = if resource.kind == ResourceKind::Generator { told.min(resource.servers) } else { told };
        told - resource.stolen.iter().filter_map(|name| self.per_sec(name)).sum::<f64>()
    }
}
