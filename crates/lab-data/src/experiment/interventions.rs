//! What is made slower on purpose, and how: the section `[interventions]`.
//!
//! Only the shape, and which names there are. How one is made is up to the crate `lab-run`.

use super::check::{Checked, are_possible, is_not_zero, is_one_of};
use super::{Database, EMBEDDED, Engine, Experiment, Target, Workload};
use crate::ensure;
use kv::Error;
use kv::units::Span;
use serde::Deserialize;
use std::time::Duration;

/// How large interventions are and how often they are repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Interventions {
    /// Clients of each trial; `None`: the highest level of the workload.
    pub level: Option<u32>,
    /// How often each intervention is made.
    pub rounds: u32,
    /// The demand that is added, as a share of what a resource works on one request at the goodput there is: servers / goodput.
    pub strength: f64,
    /// The measured part of each trial.
    pub window: Span,
    /// Names of [`INTERVENTIONS`], or of a model's stations; `None`: all that apply.
    pub only: Option<Vec<String>>,
}

impl Default for Interventions {
    fn default() -> Interventions {
        let window = Span(Duration::from_secs(2));
        Interventions { level: None, rounds: 3, strength: 0.3, window, only: None }
    }
}

/// Whether an intervention applies to a target, under a workload that the target takes part in.
type Applies = fn(&Target, &Workload) -> bool;

/// Everything that can be made slower in a target that is not simulated; of a model, it is its stations. Each has its name in
/// experiment files and results, and what a target needs so that it applies, and how it gets it.
pub const INTERVENTIONS: &[(&str, &str, Applies)] = &[
    // Each request makes its worker compute for so much longer.
    ("cpu", NEEDS_WEIR, is_weir),
    // Each request blocks its worker for so much longer.
    ("worker", NEEDS_WEIR, is_weir),
    // Each request waits so much longer and holds nothing: the control.
    ("delay", NEEDS_WEIR, is_weir),
    // Each write holds the server’s lock for so much longer.
    (
        "lock",
        "has a lock; add \"--lab\", \"--inject\", \"lock=0s\" to its args",
        |target, workload| matches!(target, Target::Weir { args, .. } if args.iter().chain(&workload.serve).any(|arg| is_lock(arg))),
    ),
    // Each batch holds its session of the store for so much longer.
    ("store_worker", NEEDS_WEIR, is_weir),
    // Each flush of the embedded store takes so much longer, one after the other.
    ("flush", "flushes a store of its own; set target.store to \"file\"", |target, _| {
        let is_embedded = |name: &String| name.split(':').next() == Some(EMBEDDED);
        matches!(target, Target::Weir { store, .. } if store.iter().any(is_embedded))
    }),
    // The link lets through four fifths of its rate.
    ("link", "has a link with a rate; add link = { rate = \"100mbit\" } to it", |target, _| {
        target.link().is_some_and(|link| link.rate.is_some())
    }),
    // The write cap lets through four fifths of its rate.
    ("write_cap", "has a workload with a write cap; add write_cap = \"10MiB\" to one", |_, workload| {
        workload.write_cap.is_some()
    }),
    // Each commit of PostgreSQL waits so much longer before it flushes.
    ("commit", "has a PostgreSQL of the lab’s own; set target.store to \"postgres\"", |target, _| {
        let is_slowed = |of: &Database| of.store.is_some() && of.engine == Engine::Postgres;
        target.databases().iter().any(is_slowed)
    }),
    // The server has twice its quota of processor time: what a limit that is raised has to bring.
    ("server_quota", "is a command with a quota; add quota = { server = 0.5 } to it", |target, _| {
        matches!(target, Target::Command(_)) && target.quota().server.is_some()
    }),
    // The databases have four fifths of their quota of processor time.
    ("database_cpu", "has databases with a quota; add quota = { database = 0.5 } to it", |target, _| {
        target.quota().database.is_some()
    }),
];

const NEEDS_WEIR: &str = "is a weir of the lab’s own; set its kind to \"weir\"";

fn is_weir(target: &Target, _: &Workload) -> bool {
    matches!(target, Target::Weir { .. })
}

/// Whether a flag makes a server with a lock: of `--inject`, or of its value.
fn is_lock(arg: &str) -> bool {
    arg.trim_start_matches("--inject=").split(',').any(|fault| fault.trim().starts_with("lock="))
}

/// Whether anything that `is_meant` can be made slower in any target.
fn applies(experiment: &Experiment, is_meant: impl Fn(&str) -> bool) -> bool {
    experiment.subjects.iter().any(|subject| {
        let workloads = experiment.workloads_of(subject);
        workloads.iter().any(|of| interventions_of(&subject.target, of).into_iter().any(&is_meant))
    })
}

/// What can be made slower in a target under a workload: the stations of a model, or what applies of the table, in their order.
pub fn interventions_of<'t>(target: &'t Target, workload: &Workload) -> Vec<&'t str> {
    match target {
        Target::Simulated(model) => model.stations.iter().map(|station| station.name.as_str()).collect(),
        _ => {
            let applying = INTERVENTIONS.iter().filter(|(.., applies)| applies(target, workload));
            applying.map(|(name, ..)| *name).collect()
        }
    }
}

impl Interventions {
    /// Whether it can be carried out. One line, with the remedy.
    pub(super) fn check(&self, experiment: &Experiment) -> Checked {
        ensure(self.level != Some(0), "interventions.level 0: nobody would ask", "use at least 1")?;
        are_possible("interventions.level", self.level)?;
        ensure(self.rounds > 0, "interventions.rounds 0: nothing would be made slower", "use at least 1")?;
        let what = format!("interventions.strength {}: a share from 0.01 to 10", self.strength);
        ensure((0.01..=10.0).contains(&self.strength), what, "write strength = 0.3")?;
        is_not_zero("interventions.window", self.window)?;
        let Some(only) = &self.only else {
            let what = "interventions: nothing of these targets can be made slower";
            return ensure(applies(experiment, |_| true), what, "remove the section");
        };
        ensure(!only.is_empty(), "interventions.only names none", "leave it out for all that apply")?;
        let stations = experiment.subjects.iter().flat_map(|subject| match &subject.target {
            Target::Simulated(model) => model.stations.iter().map(|station| station.name.as_str()).collect(),
            _ => Vec::new(),
        });
        let known: Vec<&str> = INTERVENTIONS.iter().map(|(name, ..)| *name).chain(stations).collect();
        only.iter().try_for_each(|name| is_one_of("interventions.only", name, &known))?;
        only.iter().filter(|name| !applies(experiment, |of| of == *name)).try_for_each(|idle| {
            let needs =
                INTERVENTIONS.iter().find(|(name, ..)| name == idle).map_or("", |(_, needs, _)| needs);
            Err(Error::input(format_args!(
                "interventions.only `{idle}` changes nothing: no target {needs}, or remove the name"
            )))
        })
    }

    /// Leaves out those that change nothing in what is left of an experiment; whether there are any.
    pub(super) fn narrow(&mut self, experiment: &Experiment) -> bool {
        let Some(only) = &mut self.only else { return applies(experiment, |_| true) };
        only.retain(|name| applies(experiment, |of| of == name));
        !only.is_empty()
    }

    /// Whether the intervention called `name` is to be made where it applies.
    pub fn wants(&self, name: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.iter().any(|wanted| wanted == name))
    }
}
