//! Where the databases' sessions were, and what it means (docs/method.md, Limit).
//!
//! A sampler counts session-seconds by state; over the time observed they are the mean number of sessions there. The
//! states fall into the few classes of [`WAITS`].

use lab_data::results::Trial;
use lab_data::sums;
use serde::Serialize;
use stats::mean;
use std::collections::BTreeSet;

/// A class of states.
pub struct Wait {
    /// In the report: `row lock`.
    pub name: &'static str,
    /// The states in it; one that ends with `*` stands for all that begin so. The first class that has a state takes it.
    pub states: &'static [&'static str],
    /// What it means that most sessions are there.
    pub means: &'static str,
    /// What it is for the rules.
    pub kind: WaitKind,
}

/// What may be concluded from sessions being there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitKind {
    /// They wait for something in the database that can be the bottleneck.
    Limit,
    /// They are at work in the database; how much of that is a limit others must say.
    Work,
    /// They wait for their client.
    Idle,
}

use WaitKind::{Idle, Limit, Work};

/// The classes. Names of states are PostgreSQL's wait events (its documentation, Wait Event tables), or, as
/// `State:…`, MariaDB's and MySQL's thread states.
pub const WAITS: &[Wait] = &[
    wait("idle", Idle, &["idle", "Client:ClientRead"])
        .means("the database is idle and waits for its clients: look at the server in front of it"),
    wait("idle in transaction", Idle, &["idle_in_transaction"])
        .means("transactions are held open by a client that sends nothing: look at what it does between its statements"),
    wait("processor", Work, &["CPU"])
        .means("sessions compute, or wait for a core: see the processor’s utilization"),
    wait("row lock", Limit, &["Lock:transactionid", "Lock:tuple", "Lock:row"])
        .means("sessions queue for rows that others are changing: writes of one key go one after the other"),
    wait("lock", Limit, &["Lock:*", "State:Waiting for*lock"])
        .means("sessions wait for a lock on something larger than a row"),
    wait("replica", Limit, &["IPC:SyncRep", "State:Waiting for semi-sync*"])
        .means("commits wait until a replica confirms them"),
    wait("commit path", Limit, &["IO:WALSync", "IO:WALWrite", "IO:WalSync", "IO:WalWrite", "IO:WALInit*", "LWLock:WALWrite", "LWLock:WALInsert", "Timeout:CommitDelay", "State:Commit*", "State:waiting for handler commit", "State:Waiting for prior transaction*"])
        .means("a commit waits until the log is on the disk, or until its turn to write it"),
    wait("reads", Limit, &["IO:DataFileRead", "IO:DataFilePrefetch", "IPC:BufferIO", "IPC:BufferIo", "LWLock:BufferIO"])
        .means("pages are read from the disk: the data in use is larger than the memory for it"),
    wait("data writes", Limit, &["IO:DataFile*"])
        .means("pages are written or files extended by the sessions themselves"),
    wait("page lock", Limit, &["LWLock:BufferContent", "LWLock:BufferMapping", "LWLock:buffer_*", "BufferPin:*", "Buffer:*"])
        .means("sessions wait for the same pages in memory"),
    wait("internal lock", Limit, &["LWLock:*"])
        .means("sessions wait for a short internal lock of the server"),
    wait("client", Idle, &["Client:*"])
        .means("sessions wait for their client’s connection: look at the server in front of it"),
    wait("statement", Work, &["State:*"])
        .means("statements are being executed; this server does not tell computing from reading"),
    wait("other", Work, &["*"])
        .means("a state that weir does not classify"),
];

const fn wait(name: &'static str, kind: WaitKind, states: &'static [&'static str]) -> Wait {
    Wait { name, states, means: "", kind }
}

impl Wait {
    const fn means(mut self, means: &'static str) -> Wait {
        self.means = means;
        self
    }
}

/// The class of a state.
pub fn class_of(state: &str) -> &'static Wait {
    // The last class takes everything.
    WAITS.iter().find(|wait| wait.states.iter().any(|of| fits(of, state))).unwrap_or(&WAITS[WAITS.len() - 1])
}

/// Whether `state` is `pattern`; a `*` in it stands for anything.
fn fits(pattern: &str, state: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == state,
        Some((front, end)) => state.strip_prefix(front).is_some_and(|rest| rest.ends_with(end)),
    }
}

/// Where the sessions of one database were at one level.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Whereabouts {
    /// The database's part: `database-2`.
    pub part: String,
    /// Samples of the sessions, mean over the runs.
    pub samples: f64,
    /// Mean number of sessions in each state, most first; mean over the runs.
    pub sessions: Vec<(String, f64)>,
    /// Share of one core that sampling took, in the costliest run.
    pub cost_ratio: Option<f64>,
}

impl Whereabouts {
    /// Mean number of sessions in the states of which `among` is true.
    pub fn sum(&self, among: impl Fn(&str) -> bool) -> f64 {
        // Folded from a positive zero: an empty sum is −0.0, and would be printed so.
        self.sessions.iter().filter(|(state, _)| among(state)).fold(0.0, |sum, (_, count)| sum + count)
    }

    /// Mean number of sessions in a class.
    pub fn in_class(&self, class: &str) -> f64 {
        self.sum(|state| class_of(state).name == class)
    }

    /// The means over `all`, which are of one database; `None` of none.
    pub(super) fn means(all: &[&Whereabouts]) -> Option<Whereabouts> {
        let sessions = all.iter().flat_map(|of| of.sessions.clone());
        Some(Whereabouts {
            part: all.first()?.part.clone(),
            samples: mean(all.iter().map(|of| of.samples))?,
            sessions: most_first(sessions.map(|(state, count)| (state, count / all.len() as f64))),
            cost_ratio: all.iter().filter_map(|of| of.cost_ratio).max_by(f64::total_cmp),
        })
    }

    /// Of one run; `None` where nothing was sampled between the readings.
    fn of_trial(trial: &Trial, part: &str) -> Option<Whereabouts> {
        let front = format!("{part}.waits.");
        let growth = |what: &str| trial.growth(&format!("{front}{what}"));
        let observed = growth("observed_secs").filter(|secs| *secs > 0.0)?;
        let state = |(name, closed): (&String, &f64)| {
            let state = name.strip_prefix(&front)?.strip_suffix("_secs")?;
            // Of a state that had not been seen when the window opened there was nothing.
            let opened = trial.opened.counters.get(name).unwrap_or(&0.0);
            let ours = matches!(state, "observed" | "cost");
            (!ours && closed > opened).then(|| (state.to_owned(), (closed - opened) / observed))
        };
        Some(Whereabouts {
            part: part.to_owned(),
            samples: growth("samples")?,
            sessions: trial.closed.counters.iter().filter_map(state).collect(),
            cost_ratio: growth("cost_secs").map(|secs| secs / observed),
        })
    }
}

/// The sums by state, most first.
fn most_first(all: impl Iterator<Item = (String, f64)>) -> Vec<(String, f64)> {
    let mut states: Vec<(String, f64)> = sums(all).into_iter().collect();
    states.sort_by(|a, b| b.1.total_cmp(&a.1));
    states
}

/// Where the sessions of each database were in the runs of one level; empty where nothing was sampled.
pub fn whereabouts(ran: &[&Trial]) -> Vec<Whereabouts> {
    let names = ran.iter().flat_map(|trial| trial.closed.counters.keys());
    let parts: BTreeSet<&str> = names.filter_map(|name| name.strip_suffix(".waits.samples")).collect();
    let of_part = |part: &str| {
        let of_runs: Vec<Whereabouts> =
            ran.iter().filter_map(|trial| Whereabouts::of_trial(trial, part)).collect();
        Whereabouts::means(&of_runs.iter().collect::<Vec<_>>())
    };
    parts.into_iter().filter_map(of_part).collect()
}
