//! Resource usage at one level: rates and means from raw counters.
//!
//! A figure is a row of [`FIGURES`]. Nothing is concluded from them here; they are printed.

use Group::{Databases, Disk, Pressure, Processes};
use How::{Gauge, Growth, HeldBack, PerAttempt, PerSecond, Share};
use kv::proto::LoadReport;
use lab_data::results::{Reading, Run, Trial};
use serde::Serialize;
use stats::mean;
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
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
    /// Growth of a counter of seconds over the time between the readings, in per cent; at most 100, where a reading takes a while.
    Share,
    /// The same of a counter that the kernel sums over the cores: over the cores that the part then had or wanted, which are what its
    /// processor time and this counter are together.
    HeldBack,
    /// Growth of a counter over the attempts of the window.
    PerAttempt,
    /// Growth of a counter.
    Growth,
    /// A gauge: the mean of the two readings.
    Gauge,
}

const MEGA: f64 = 1e-6;
/// Of the time, in per cent.
const SHARE: How = PerSecond(100.0);
const LATE: &str = "PostgreSQL’s sessions report commits, WAL syncs and blocks at most once a second, so up to a second of \
     work is missing or too much at either end of a window; log bytes and writing transactions are exact.";

const PAXOS: &str = "Cassandra: a write that nobody disturbs is three Paxos writes (promise, proposal, commit) for one row on each \
     node; more of them are rounds that were begun again, because another server wrote the same row.";

/// Growth in a second.
const RATE: How = PerSecond(1.0);

/// The figures, in the order of the report.
pub const FIGURES: &[Figure] = &[
    figure("written_mb_per_sec", Disk, "written", "MB/s", "*.written_bytes", PerSecond(MEGA)),
    figure("read_mb_per_sec", Disk, "read", "MB/s", "*.read_bytes", PerSecond(MEGA)),
    figure("writes_per_sec", Disk, "writes", "per s", "*.writes", RATE),
    figure("reads_per_sec", Disk, "reads", "per s", "*.reads", RATE),
    figure("flushes_per_sec", Disk, "flushes", "per s", "*.flushes", RATE),
    figure("queue_mean", Disk, "queue", "mean", "*.queue_secs", RATE),
    figure("wal_mb_per_sec", Databases, "log", "MB/s", "*.wal_bytes", PerSecond(MEGA)),
    figure("wal_syncs_per_sec", Databases, "WAL syncs", "per s", "*.wal_syncs", RATE).but(LATE),
    figure("wal_syncing_mean", Databases, "in WAL sync", "mean", "*.wal_sync_secs", RATE).but(LATE),
    figure("syncs_per_sec", Databases, "syncs", "per s", "*.syncs", RATE),
    figure(
        "write_transactions_per_sec",
        Databases,
        "writing transactions",
        "per s",
        "*.write_transactions",
        RATE,
    ),
    figure("commits_per_sec", Databases, "commits", "per s", "*.commits", RATE).but(LATE),
    figure("rollbacks_per_sec", Databases, "rollbacks", "per s", "*.rollbacks", RATE).but(LATE),
    figure("blocks_read_per_sec", Databases, "pages read", "per s", "*.blocks_read", RATE).but(LATE),
    figure("row_lock_waits_per_sec", Databases, "row lock waits", "per s", "*.row_lock_waits", RATE),
    figure("row_writes_per_sec", Databases, "rows written", "per s", "*.row_writes", RATE),
    figure("paxos_writes_per_sec", Databases, "Paxos writes", "per s", "*.paxos_writes", RATE).but(PAXOS),
    figure("compactions", Databases, "compactions", "per trial", "*.compactions", Growth),
    figure("dropped_messages", Databases, "dropped messages", "per trial", "*.dropped_messages", Growth),
    figure("checkpoints", Databases, "checkpoints", "per trial", "*.checkpoints", Growth),
    figure("connections", Databases, "connections", "", "*.connections", Gauge),
    figure("threads", Processes, "threads", "", "*.threads", Gauge),
    figure("switches_per_request", Processes, "context switches", "per request", "*.switches", PerAttempt),
    figure("sampling_percent_of_core", Processes, "sampling by the lab", "% of a core", "*.cost_secs", SHARE),
    figure("pressure_some_percent", Pressure, "some thread waited", "% of the time", "*.some_secs", Share),
    figure("pressure_all_percent", Pressure, "all threads waited", "% of the time", "*.full_secs", Share),
    figure("throttled_percent", Pressure, "throttled", "% of the time", "*.throttled_secs", HeldBack),
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

impl Figure {
    const fn but(self, note: &'static str) -> Figure {
        Figure { note: Some(note), ..self }
    }
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
pub fn figures(ran: &[Run]) -> Vec<Figured> {
    FIGURES.iter().flat_map(|figure| of_figure(figure, ran)).collect()
}

fn of_figure(figure: &'static Figure, ran: &[Run]) -> Vec<Figured> {
    let end = figure.source.trim_start_matches('*');
    let names = ran.iter().flat_map(|(trial, _)| match figure.how {
        Gauge => trial.closed.gauges.keys(),
        _ => trial.closed.counters.keys(),
    });
    let owners: BTreeSet<&str> = names
        .filter_map(|name| name.strip_suffix(end))
        // Names of the server's own counters are metrics with labels, and none of ours.
        .filter(|owner| !owner.starts_with("stats.") && !owner.contains(".waits"))
        .collect();
    let of_owner = |owner: &str| {
        let name = format!("{owner}{end}");
        let values = ran.iter().filter_map(|(trial, load)| value(figure.how, trial, load, &name));
        let value = mean(values.filter(|value| value.is_finite()))?;
        Some(Figured { figure: figure.name, of: shown(owner), value })
    };
    owners.into_iter().filter_map(of_owner).collect()
}

fn value(how: How, trial: &Trial, load: &LoadReport, name: &str) -> Option<f64> {
    let gauge = |reading: &Reading| reading.gauges.get(name).copied();
    Some(match how {
        PerSecond(unit) => trial.per_sec(name)? * unit,
        Share => (trial.per_sec(name)? * 100.0).min(100.0),
        HeldBack => {
            let held = trial.per_sec(name)?;
            let ran = trial.per_sec(&name.replace("throttled_secs", "cpu_secs")).unwrap_or(0.0);
            held / (held + ran).max(1.0) * 100.0
        }
        PerAttempt => trial.per_sec(name)? * trial.elapsed_secs / load.attempts as f64,
        Growth => trial.growth(name)?,
        Gauge => (gauge(&trial.opened)? + gauge(&trial.closed)?) / 2.0,
    })
}

/// `disk.vda` as `disk vda`, `cap` as `write cap`.
fn shown(owner: &str) -> String {
    if owner == "cap" { "write cap".to_owned() } else { owner.replace('.', " ") }
}

#[cfg(test)]
mod tests {
    use crate::findings;
    use lab_data::results::Trial;
    use lab_data::simulated::tests::{model, sweep};

    /// The kernel sums it over the cores.
    #[test]
    fn held_back_by_a_quota_is_a_share_of_the_time_whatever_the_cores() {
        // How many cores the part was held back from, and ran on.
        let throttled = |held: f64, ran: f64| {
            let mut results = sweep(&model("cpu 1 =1ms"), &["w"], &[4], 1, "2s");
            let Trial { opened, closed, elapsed_secs, .. } = &mut results.trials[0];
            for (counter, cores) in [("server.throttled_secs", held), ("server.cpu_secs", ran)] {
                opened.counters.insert(counter.into(), 0.0);
                closed.counters.insert(counter.into(), cores * *elapsed_secs);
            }
            let figures = &findings(&results).workloads[0].rows[0].figures;
            figures.iter().find(|of| of.figure == "throttled_percent").unwrap().value.round()
        };
        // One thread, of which a quota of half a core leaves half; then one that seldom has work.
        assert_eq!(throttled(0.5, 0.5), 50.0);
        assert_eq!(throttled(0.1, 0.1), 10.0);
        // Five threads and a quota of four cores; eight, and of two.
        assert_eq!(throttled(1.0, 4.0), 20.0);
        assert_eq!(throttled(6.0, 2.0), 75.0);
    }
}
