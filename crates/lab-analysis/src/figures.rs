//! What the resources did at one level: rates and means from raw counters.
//!
//! A figure is a row of [`FIGURES`]. Nothing is concluded from them here; they are printed.

use kv::proto::LoadReport;
use lab_data::results::{Reading, Trial};
use serde::Serialize;
use std::collections::BTreeSet;

/// A figure.
pub struct Figure {
    /// For programs, unit last.
    pub name: &'static str,
    /// The table it stands in.
    pub group: Group,
    /// What a person reads above it, behind the name of what it belongs to, and the unit below.
    pub heading: (&'static str, &'static str),
    /// The counter or gauge; a leading `*` stands for whatever has one: a part, or a disk.
    pub source: &'static str,
    /// How it is computed.
    pub how: How,
    /// What a reader must know to use it.
    pub note: Option<&'static str>,
}

/// The tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Disk and write cap.
    Disk,
    /// What the databases count.
    Databases,
    /// The parts' processes.
    Processes,
    /// Time in which something had to wait for a resource of the machine.
    Pressure,
}

/// How a figure is computed from what was read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum How {
    /// Growth of a counter over the time between the readings, times a unit. Of seconds in a state that is the mean
    /// number in it.
    PerSecond(f64),
    /// Growth of a counter over the attempts of the window.
    PerAttempt,
    /// Growth of a counter.
    Growth,
    /// A gauge: the mean of the two readings.
    Gauge,
}

const MEGA: f64 = 1e-6;
const LATE: &str = "PostgreSQL’s sessions hand in commits, log syncs and blocks at most once a second, so up to a second of \
     work is missing or too much at either end of a window; log bytes and writing transactions are exact.";
const SAMPLING: &str = "Sampling sockets is the lab’s own use of the cores, in nobody’s processor time. What all of sampling takes of \
     goodput is measured by experiments/sampling.toml and weir compare.";

/// The figures, in the order of the report.
pub const FIGURES: &[Figure] = &[
    figure("written_mb_per_sec", Group::Disk, "written", "MB/s", "*.written_bytes", How::PerSecond(MEGA)),
    figure("read_mb_per_sec", Group::Disk, "read", "MB/s", "*.read_bytes", How::PerSecond(MEGA)),
    figure("writes_per_sec", Group::Disk, "writes", "per s", "*.writes", How::PerSecond(1.0)),
    figure("reads_per_sec", Group::Disk, "reads", "per s", "*.reads", How::PerSecond(1.0)),
    figure("flushes_per_sec", Group::Disk, "flushes", "per s", "*.flushes", How::PerSecond(1.0)),
    figure("queue_mean", Group::Disk, "queue", "mean", "*.queue_secs", How::PerSecond(1.0)),
    figure("wal_mb_per_sec", Group::Databases, "log", "MB/s", "*.wal_bytes", How::PerSecond(MEGA)),
    late("wal_syncs_per_sec", "log syncs", "per s", "*.wal_syncs"),
    late("wal_syncing_mean", "in log sync", "mean", "*.wal_sync_secs"),
    figure("syncs_per_sec", Group::Databases, "syncs", "per s", "*.syncs", How::PerSecond(1.0)),
    figure(
        "write_transactions_per_sec",
        Group::Databases,
        "writing transactions",
        "per s",
        "*.write_transactions",
        How::PerSecond(1.0),
    ),
    late("commits_per_sec", "commits", "per s", "*.commits"),
    late("rollbacks_per_sec", "rollbacks", "per s", "*.rollbacks"),
    late("blocks_read_per_sec", "pages read", "per s", "*.blocks_read"),
    figure(
        "row_lock_waits_per_sec",
        Group::Databases,
        "row lock waits",
        "per s",
        "*.row_lock_waits",
        How::PerSecond(1.0),
    ),
    figure("checkpoints", Group::Databases, "checkpoints", "a run", "*.checkpoints", How::Growth),
    figure("connections", Group::Databases, "connections", "", "*.connections", How::Gauge),
    figure("threads", Group::Processes, "threads", "", "*.threads", How::Gauge),
    figure("switches_per_request", Group::Processes, "switches", "a request", "*.switches", How::PerAttempt),
    Figure {
        name: "sampling_percent_of_core",
        group: Group::Processes,
        heading: ("sampling", "% of a core"),
        source: "*.cost_secs",
        how: How::PerSecond(100.0),
        note: Some(SAMPLING),
    },
    figure("pressure_some_share", Group::Pressure, "some wait", "share", "*.some_secs", How::PerSecond(1.0)),
    figure("pressure_full_share", Group::Pressure, "all wait", "share", "*.full_secs", How::PerSecond(1.0)),
    figure("throttled_share", Group::Pressure, "throttled", "share", "*.throttled_secs", How::PerSecond(1.0)),
];

const fn figure(
    name: &'static str,
    group: Group,
    heading: &'static str,
    unit: &'static str,
    source: &'static str,
    how: How,
) -> Figure {
    Figure { name, group, heading: (heading, unit), source, how, note: None }
}

/// One of PostgreSQL's that come late.
const fn late(name: &'static str, heading: &'static str, unit: &'static str, source: &'static str) -> Figure {
    let (group, how) = (Group::Databases, How::PerSecond(1.0));
    Figure { name, group, heading: (heading, unit), source, how, note: Some(LATE) }
}

/// A figure of one thing at one level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figured {
    /// The [`Figure::name`].
    pub figure: &'static str,
    /// Whose: `database`, `disk vda`.
    pub of: String,
    /// Mean over the runs in which it could be read.
    pub value: f64,
}

/// All figures of the runs of one level, in the order of [`FIGURES`].
pub fn figures(ran: &[(&Trial, &LoadReport)]) -> Vec<Figured> {
    FIGURES.iter().flat_map(|figure| of_figure(figure, ran)).collect()
}

fn of_figure(figure: &'static Figure, ran: &[(&Trial, &LoadReport)]) -> Vec<Figured> {
    let end = figure.source.trim_start_matches('*');
    let owners: BTreeSet<&str> = (ran.iter())
        .flat_map(|(trial, _)| {
            let all = if figure.how == How::Gauge { &trial.closed.gauges } else { &trial.closed.counters };
            all.keys().filter_map(|name| name.strip_suffix(end))
        })
        // Names of the server's own counters are metrics with labels, and none of ours.
        .filter(|owner| !owner.starts_with("stats.") && !owner.contains(".waits"))
        .collect();
    let of_owner = |owner: &str| {
        let name = format!("{owner}{end}");
        let values: Vec<f64> = (ran.iter())
            .filter_map(|(trial, load)| value(figure.how, trial, load, &name))
            .filter(|value| value.is_finite())
            .collect();
        let value = stats::mean(&values)?;
        Some(Figured { figure: figure.name, of: shown(owner), value })
    };
    owners.into_iter().filter_map(of_owner).collect()
}

fn value(how: How, trial: &Trial, load: &LoadReport, name: &str) -> Option<f64> {
    let gauge = |reading: &Reading| reading.gauges.get(name).copied();
    Some(match how {
        How::PerSecond(unit) => trial.per_sec(name)? * unit,
        How::PerAttempt => trial.per_sec(name)? * trial.elapsed_secs / load.attempts as f64,
        How::Growth => trial.growth(name)?,
        How::Gauge => (gauge(&trial.opened)? + gauge(&trial.closed)?) / 2.0,
    })
}

/// `disk.vda` as `disk vda`, `cap` as `write cap`.
fn shown(owner: &str) -> String {
    if owner == "cap" { "write cap".to_owned() } else { owner.replace('.', " ") }
}
