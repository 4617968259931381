//! What is made slower on purpose, and how: the section `[interventions]`.
//!
//! Only the shape, and which names there are. How one is made is up to the crate `lab-run`.

use super::{Engine, Experiment, FJALL, Subject, Target, Workload};
use kv::Error;
use kv::units::Span;
use serde::Deserialize;
use std::time::Duration;

/// How large interventions are and how often they are repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interventions {
    /// Clients of each trial; `None`: the highest level of the workload.
    pub level: Option<u32>,
    /// How often each intervention is made.
    #[serde(default = "rounds")]
    pub rounds: u32,
    /// The demand that is added, as a share of what a resource works on one request at the goodput there is: servers / goodput.
    #[serde(default = "strength")]
    pub strength: f64,
    /// The measured part of each trial.
    #[serde(default = "window")]
    pub window: Span,
    /// Names of [`INTERVENTIONS`], or of a model's stations; `None`: all that apply.
    pub only: Option<Vec<String>>,
}

/// A row of [`INTERVENTIONS`].
pub struct InterventionRow {
    /// Its name in experiment files and results.
    pub name: &'static str,
    /// Whether it applies to a target, under a workload that the target takes part in.
    applies: fn(&Target, &Workload) -> bool,
    /// What a target needs for that, and how it gets it.
    needs: &'static str,
}

/// Everything that can be made slower in a target that is not simulated; of a model, it is its stations.
pub const INTERVENTIONS: &[InterventionRow] = &[
    // Each request makes its worker compute for so much longer.
    InterventionRow { name: "cpu", applies: is_weir, needs: NEEDS_WEIR },
    // Each request blocks its worker for so much longer.
    InterventionRow { name: "worker", applies: is_weir, needs: NEEDS_WEIR },
    // Each request waits so much longer and holds nothing: the control.
    InterventionRow { name: "delay", applies: is_weir, needs: NEEDS_WEIR },
    // Each write holds the server’s lock for so much longer.
    InterventionRow {
        name: "lock",
        applies: |target, workload| args(target).chain(&workload.serve).any(|arg| is_lock(arg)),
        needs: "has a lock; add \"--lab\", \"--inject\", \"lock=0s\" to its args",
    },
    // Each batch holds its session of the store for so much longer.
    InterventionRow { name: "store_worker", applies: is_weir, needs: NEEDS_WEIR },
    // Each flush of the embedded store takes so much longer, one after the other.
    InterventionRow {
        name: "flush",
        applies: |target, _| match target {
            Target::Weir { store, .. } => store.iter().any(|name| name.split(':').next() == Some(FJALL)),
            _ => false,
        },
        needs: "flushes a store of its own; set target.store to \"fjall\"",
    },
    // The link lets through four fifths of its rate.
    InterventionRow {
        name: "link",
        applies: |target, _| target.link().is_some_and(|link| link.rate.is_some()),
        needs: "has a link with a rate; add link = { rate = \"100mbit\" } to it",
    },
    // The write cap lets through four fifths of its rate.
    InterventionRow {
        name: "write_cap",
        applies: |_, workload| workload.write_cap.is_some(),
        needs: "has a workload with a write cap; add write_cap = \"10MiB\" to one",
    },
    // Each commit of PostgreSQL waits so much longer before it flushes.
    InterventionRow {
        name: "commit",
        applies: |target, _| {
            let mut stores = target.databases().into_iter().filter(|of| of.store.is_some());
            stores.any(|of| of.engine == Engine::Postgres)
        },
        needs: "has a PostgreSQL of the lab’s own; set target.store to \"postgres\"",
    },
    // The databases have four fifths of their quota of processor time.
    InterventionRow {
        name: "database_cpu",
        applies: |target, _| target.quota().database.is_some(),
        needs: "has databases with a quota; add quota = { database = 0.5 } to it",
    },
];

const NEEDS_WEIR: &str = "is a weir of the lab’s own; set its kind to \"weir\"";

fn is_weir(target: &Target, _: &Workload) -> bool {
    matches!(target, Target::Weir { .. })
}

fn args(target: &Target) -> impl Iterator<Item = &String> {
    let args = match target {
        Target::Weir { args, .. } => args.as_slice(),
        _ => &[],
    };
    args.iter()
}

/// Whether a flag makes a server with a lock: of `--inject`, or of its value.
fn is_lock(arg: &str) -> bool {
    arg.trim_start_matches("--inject=").split(',').any(|fault| fault.trim().starts_with("lock="))
}

/// Whether the intervention or station called `name` applies to `subject`.
fn applies(experiment: &Experiment, subject: &Subject, name: &str) -> bool {
    match &subject.target {
        Target::Simulated(model) => model.stations.iter().any(|station| station.name == name),
        target => {
            let row = INTERVENTIONS.iter().find(|row| row.name == name);
            let workloads = experiment.workloads_of(subject);
            row.is_some_and(|row| workloads.iter().any(|workload| (row.applies)(target, workload)))
        }
    }
}

impl Interventions {
    /// Whether it can be carried out. One line, with the remedy.
    pub(super) fn check(&self, experiment: &Experiment) -> Result<(), Error> {
        if self.level == Some(0) {
            return Err(Error::input("interventions.level 0: nobody would ask").hint("use at least 1"));
        }
        if self.rounds == 0 {
            return Err(Error::input("interventions.rounds 0: nothing would be made slower")
                .hint("use at least 1, or remove the section"));
        }
        if !(0.01..=10.0).contains(&self.strength) {
            return Err(Error::input(format_args!(
                "interventions.strength {}: a share from 0.01 to 10",
                self.strength
            ))
            .hint("write strength = 0.3"));
        }
        if self.window.0.is_zero() {
            return Err(Error::input("interventions.window 0s: it must be longer than zero")
                .hint("write window = \"2s\""));
        }
        let Some(only) = &self.only else { return Ok(()) };
        if only.is_empty() {
            return Err(Error::input("interventions.only names none").hint("leave it out for all that apply"));
        }
        let stations = experiment.subjects.iter().flat_map(|subject| match &subject.target {
            Target::Simulated(model) => model.stations.iter().map(|station| station.name.as_str()).collect(),
            _ => Vec::new(),
        });
        let known: Vec<&str> = INTERVENTIONS.iter().map(|row| row.name).chain(stations).collect();
        if let Some(unknown) = only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Error::input(format_args!("interventions.only `{unknown}` is unknown"))
                .hint(format_args!("use some of {}", known.join(", "))));
        }
        let applies_nowhere =
            |name: &&String| !experiment.subjects.iter().any(|subject| applies(experiment, subject, name));
        match only.iter().find(applies_nowhere) {
            Some(idle) => {
                let needs = INTERVENTIONS.iter().find(|row| row.name == idle).map_or("", |row| row.needs);
                Err(Error::input(format_args!(
                    "interventions.only `{idle}` changes nothing: no target {needs}, or remove the name"
                )))
            }
            None => Ok(()),
        }
    }

    /// Without those that change nothing in what is left of an experiment; `None` if there is none left.
    pub(super) fn narrowed(mut self, experiment: &Experiment) -> Option<Interventions> {
        let is_left =
            |name: &String| experiment.subjects.iter().any(|subject| applies(experiment, subject, name));
        match &mut self.only {
            Some(only) => only.retain(is_left),
            None => return Some(self),
        }
        self.only.as_ref().is_some_and(|only| !only.is_empty()).then_some(self)
    }

    /// Whether the intervention called `name` is to be made where it applies.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name))
    }
}

fn rounds() -> u32 {
    3
}

fn strength() -> f64 {
    0.3
}

fn window() -> Span {
    Span(Duration::from_secs(2))
}
