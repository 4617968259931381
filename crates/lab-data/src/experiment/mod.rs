//! What to measure, as a file: an [`Experiment`] read from TOML and checked before anything is started.
//!
//! Pure: text in, values or one line of complaint out. It knows which names may stand in the file, not how they are
//! carried out; that is the crate `lab-run`.

mod check;
mod fault;
mod interventions;
mod limit;
mod narrow;
mod placeholder;
mod sections;
mod target;

pub use check::own_flag;
pub use fault::{Fault, FaultKind};
pub use interventions::{INTERVENTIONS, Interventions, interventions_of};
pub use limit::LatencyLimit;
pub use placeholder::{PLACEHOLDERS, PORT, fill};
pub use sections::{Adaptive, Cores, DatabaseSettings, Limits, PublishedSource, Workload};
pub use target::{
    Cluster, Commands, DATABASE, Database, EMBEDDED, ETCD, Engine, Fresh, GENERATOR, HTTPS, LINK, Link,
    MARIADB, POSTGRES, Process, Quota, address,
};
pub use target::{REPLICA, SERVER, Subject, Target};

use crate::distinct;
use kv::units::Span;
use kv::{Error, line_number, one_line};
use serde::Deserialize;
use std::path::Path;

/// An experiment: workloads × levels × repetitions against one target, or several in turns.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Experiment {
    /// Short name, part of the results directory's: `quick`.
    pub name: String,
    /// One line for the report's head.
    pub title: String,
    /// Clients at each level, ascending.
    pub levels: Vec<u32>,
    /// Runs of every workload at every level.
    pub repetitions: u32,
    /// The unmeasured part of each trial.
    pub warmup: Span,
    /// The measured part of each trial; the least of it where it is adaptive.
    pub window: Span,
    /// Whether a trial may be measured longer, until its means are known.
    pub adaptive: Option<Adaptive>,
    /// What the order of trials and the operation streams are drawn from.
    #[serde(default = "one")]
    pub seed: u64,
    /// Whether the generator proves itself before the first trial.
    #[serde(default = "yes")]
    pub selftest: bool,
    /// Whether a slower generator and a slower server show, after the last repetition, which of them is the limit.
    #[serde(default = "yes")]
    pub headroom: bool,
    /// What is measured, in the file's order; the first of several is what the others are compared with.
    #[serde(rename = "target", deserialize_with = "target::subjects")]
    pub subjects: Vec<Subject>,
    /// Settings of the lab's own PostgreSQL servers; only where a store is `postgres`.
    pub postgres: Option<DatabaseSettings>,
    /// Settings of the lab's own MariaDB servers; only where a store is `mariadb`.
    pub mariadb: Option<DatabaseSettings>,
    /// What the lab's own databases may use.
    #[serde(default)]
    pub limits: Limits,
    /// Cores of single parts, where the lab shall not choose.
    #[serde(default)]
    pub cores: Cores,
    /// Published results of the same experiment, to stand beside what is measured.
    pub published: Option<PublishedSource>,
    /// What is made slower on purpose after the last repetition; `None`: nothing.
    pub interventions: Option<Interventions>,
    /// What is broken on purpose in every trial, whose operations are then judged.
    #[serde(rename = "fault", default)]
    pub faults: Vec<Fault>,
    /// Which limits are imposed on which targets; read by `cargo xtask score`, not by the lab.
    pub truth: Option<toml::Table>,
    /// The workloads, in the report's order.
    #[serde(rename = "workload", default)]
    pub workloads: Vec<Workload>,
    /// The text this was read from.
    #[serde(skip)]
    pub toml: String,
}

impl Experiment {
    /// Reads and checks an experiment. The error is one line: which key, what is wrong, what to do.
    pub fn parse(text: &str) -> Result<Experiment, Error> {
        let mut experiment: Experiment = toml::from_str(text).map_err(|error| parser_error(text, &error))?;
        text.clone_into(&mut experiment.toml);
        experiment.check()?;
        Ok(experiment)
    }

    /// Takes the files that `--dialect` names for files in `dir`, where the experiment is.
    pub fn find_dialects_in(&mut self, dir: &Path) {
        let loads = self.subjects.iter_mut().map(|subject| &mut subject.load);
        for args in self.workloads.iter_mut().map(|workload| &mut workload.args).chain(loads) {
            let mut is_named = false;
            for arg in args {
                let (flag, name) =
                    arg.split_once('=').map_or(("", arg.as_str()), |(flag, name)| (flag, name));
                // Others are names of dialects that are built in.
                let is_file =
                    (name.ends_with(".toml") || name.contains('/')) && (is_named || flag == DIALECT);
                is_named = arg == DIALECT;
                if is_file {
                    let path = dir.join(name).display().to_string();
                    *arg = if flag == DIALECT { format!("{DIALECT}={path}") } else { path };
                }
            }
        }
    }

    /// The workloads that `subject` takes part in, with its further flags.
    pub fn workloads_of(&self, subject: &Subject) -> Vec<Workload> {
        let own = self.workloads.iter().filter(|workload| subject.takes_part(workload));
        let mut own: Vec<Workload> = own.cloned().collect();
        own.iter_mut().for_each(|workload| workload.args.extend_from_slice(&subject.load));
        own
    }

    /// Whether `subject` is there only to be compared with targets that have an imposed limit.
    pub fn is_reference(&self, subject: &Subject) -> bool {
        let cases = self.truth.as_ref().and_then(|truth| truth.get("case")?.as_array());
        let is_other =
            |case: &toml::Value| case.get("target").and_then(|of| of.as_str()) != subject.name.as_deref();
        cases.is_some_and(|cases| cases.iter().all(is_other))
    }

    /// Whether servers of the lab's own are made slower while they run.
    pub fn slows_servers(&self) -> bool {
        (self.headroom || self.interventions.is_some()) && self.faults.is_empty()
    }

    /// The levels of `workload`.
    pub fn levels_of<'a>(&'a self, workload: &'a Workload) -> &'a [u32] {
        workload.levels.as_deref().unwrap_or(&self.levels)
    }

    /// How many trials there are in all.
    pub fn trials(&self) -> usize {
        let levels = |subject| {
            let own = self.workloads_of(subject);
            own.iter().map(|workload| self.levels_of(workload).len()).sum::<usize>()
        };
        self.subjects.iter().map(levels).sum::<usize>() * self.repetitions as usize
    }

    /// The parts of all targets, each once.
    fn parts(&self) -> Vec<String> {
        distinct(self.subjects.iter().flat_map(|subject| subject.target.parts()))
    }

    /// The databases of all targets.
    fn databases(&self) -> impl Iterator<Item = Database> {
        self.subjects.iter().flat_map(|subject| subject.target.databases())
    }
}

/// The flag of `weir load` that may name a file.
const DIALECT: &str = "--dialect";

/// What the parser calls types, and what people do.
const TYPES: &[(&str, &str)] = &[
    ("u32", "a whole number from 0 on"),
    ("u64", "a whole number from 0 on"),
    ("usize", "a whole number from 0 on"),
    ("f64", "a number"),
    ("a boolean", "true or false"),
    ("a string", "a text"),
    ("a sequence", "a list"),
    ("a map", "a table"),
    ("struct Subject", "a table"),
];

/// The parser's complaint on one line, with the line of the file.
fn parser_error(file: &str, error: &toml::de::Error) -> Error {
    let what = one_line(error.message());
    let plain = TYPES.iter().find_map(|(called, plain)| {
        let before = what.strip_suffix(called)?.strip_suffix("expected ")?;
        Some(format!("{before}expected {plain}"))
    });
    let what = plain.unwrap_or(what);
    let hint = match () {
        _ if what.starts_with("unknown field") => "correct or remove it",
        _ if what.starts_with("missing field") => "add it, see docs/reference.md#experiment-files",
        _ => "see docs/reference.md for the form",
    };
    let complaint = Error::input(&what).hint(hint);
    let Some(span) = error.span() else { return complaint };
    // Of what stands in a target, the parser knows only where the target begins: what it does not know is sought below.
    let unknown = what.split_once("unknown ").and_then(|(_, name)| name.split('`').nth(1));
    let is_sign = |c: char| !c.is_alphanumeric() && c != '_' && c != '-';
    let has = |line: &str| unknown.is_some_and(|name| line.split(is_sign).any(|word| word == name));
    let rest = file.get(span.start..).unwrap_or_default();
    let mut lines = rest.lines().enumerate().filter(|(_, line)| has(line));
    // Of several it could be any.
    let below = match (lines.next(), lines.next()) {
        (Some((below, _)), None) => below,
        _ => 0,
    };
    complaint.at(format_args!("line {}", line_number(file, span.start) + below))
}

fn one<T: From<u8>>() -> T {
    T::from(1)
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests;
