//! What is made slower on purpose, and how: the section `[interventions]`.
//!
//! Only the shape, and which names there are. How a knob is turned is up to the crate `lab-run`.

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
    /// How often each knob is turned.
    #[serde(default = "rounds")]
    pub rounds: u32,
    /// The demand that is added, as a share of what a resource works on one request at the goodput there is: servers / goodput.
    #[serde(default = "strength")]
    pub strength: f64,
    /// The measured part of each trial.
    #[serde(default = "window")]
    pub window: Span,
    /// Names of [`KNOBS`], or of a model's stations; `None`: all that apply.
    pub knobs: Option<Vec<String>>,
}

/// A row of [`KNOBS`].
pub struct Knob {
    /// Its name in experiment files and results.
    pub name: &'static str,
    /// What it does, in one sentence.
    pub about: &'static str,
    /// Whether it can turn anything on a target, under a workload it takes part in.
    turns: fn(&Target, &Workload) -> bool,
    /// What a target needs for that, and how it gets it.
    needs: &'static str,
}

/// Everything that can be made slower in a target that is not simulated; of a model, it is its stations.
pub const KNOBS: &[Knob] = &[
    Knob {
        name: "cpu",
        about: "Each request makes its worker compute for so much longer.",
        turns: is_weir,
        needs: NEEDS_WEIR,
    },
    Knob {
        name: "worker",
        about: "Each request blocks its worker for so much longer.",
        turns: is_weir,
        needs: NEEDS_WEIR,
    },
    Knob {
        name: "delay",
        about: "Each request waits so much longer and holds nothing: the control.",
        turns: is_weir,
        needs: NEEDS_WEIR,
    },
    Knob {
        name: "lock",
        about: "Each write holds the server’s lock for so much longer.",
        turns: |target, workload| args(target).chain(&workload.serve).any(|arg| is_lock(arg)),
        needs: "has a lock; add \"--lab\", \"--inject\", \"lock=0s\" to its args",
    },
    Knob {
        name: "store_worker",
        about: "Each batch holds its session of the store for so much longer.",
        turns: is_weir,
        needs: NEEDS_WEIR,
    },
    Knob {
        name: "flush",
        about: "Each flush of the embedded store takes so much longer, one after the other.",
        turns: |target, _| match target {
            Target::Weir { store, .. } => store.iter().any(|name| name.split(':').next() == Some(FJALL)),
            _ => false,
        },
        needs: "flushes a store of its own; set target.store to \"fjall\"",
    },
    Knob {
        name: "link",
        about: "The link lets through four fifths of its rate.",
        turns: |target, _| target.link().is_some_and(|link| link.rate.is_some()),
        needs: "has a link with a rate; add link = { rate = \"100mbit\" } to it",
    },
    Knob {
        name: "write_cap",
        about: "The write cap lets through four fifths of its rate.",
        turns: |_, workload| workload.write_cap.is_some(),
        needs: "has a workload with a write cap; add write_cap = \"10MiB\" to one",
    },
    Knob {
        name: "commit",
        about: "Each commit of PostgreSQL waits so much longer before it flushes.",
        turns: |target, _| {
            let mut stores = target.databases().into_iter().filter(|of| of.store.is_some());
            stores.any(|of| of.engine == Engine::Postgres)
        },
        needs: "has a PostgreSQL of the lab’s own; set target.store to \"postgres\"",
    },
    Knob {
        name: "database_cpu",
        about: "The databases have four fifths of their quota of processor time.",
        turns: |target, _| target.quota().database.is_some(),
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

/// Whether the knob or station called `name` can turn anything on `subject`.
fn turns(experiment: &Experiment, subject: &Subject, name: &str) -> bool {
    match &subject.target {
        Target::Simulated(model) => model.stations.iter().any(|station| station.name == name),
        target => {
            let knob = KNOBS.iter().find(|knob| knob.name == name);
            let workloads = experiment.workloads_of(subject);
            knob.is_some_and(|knob| workloads.iter().any(|workload| (knob.turns)(target, workload)))
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
        let Some(knobs) = &self.knobs else { return Ok(()) };
        if knobs.is_empty() {
            return Err(
                Error::input("interventions.knobs names none").hint("leave it out for all that apply")
            );
        }
        let stations = experiment.subjects.iter().flat_map(|subject| match &subject.target {
            Target::Simulated(model) => model.stations.iter().map(|station| station.name.as_str()).collect(),
            _ => Vec::new(),
        });
        let known: Vec<&str> = KNOBS.iter().map(|knob| knob.name).chain(stations).collect();
        if let Some(unknown) = knobs.iter().find(|knob| !known.contains(&knob.as_str())) {
            return Err(Error::input(format_args!("interventions.knobs `{unknown}` is none"))
                .hint(format_args!("use some of {}", known.join(", "))));
        }
        let turns_nothing =
            |knob: &&String| !experiment.subjects.iter().any(|subject| turns(experiment, subject, knob));
        match knobs.iter().find(turns_nothing) {
            Some(idle) => {
                let needs = KNOBS.iter().find(|knob| knob.name == idle).map_or("", |knob| knob.needs);
                Err(Error::input(format_args!(
                    "interventions.knobs `{idle}` turns nothing: no target {needs}, or remove the knob"
                )))
            }
            None => Ok(()),
        }
    }

    /// Without the knobs that turn nothing in what is left of an experiment; `None` if there is none left.
    pub(super) fn narrowed(mut self, experiment: &Experiment) -> Option<Interventions> {
        let turned =
            |knob: &String| experiment.subjects.iter().any(|subject| turns(experiment, subject, knob));
        match &mut self.knobs {
            Some(knobs) => knobs.retain(turned),
            None => return Some(self),
        }
        self.knobs.as_ref().is_some_and(|knobs| !knobs.is_empty()).then_some(self)
    }

    /// Whether `knob` is to be turned where it can be.
    pub fn wants(&self, knob: &str) -> bool {
        self.knobs.as_ref().is_none_or(|knobs| knobs.iter().any(|wanted| wanted == knob))
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
