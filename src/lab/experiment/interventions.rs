//! What is made slower on purpose, and how: the section `[interventions]`.
//!
//! Only the shape, and which names there are. How a knob is turned is [`super::super::harness`]'s matter.

use super::{Experiment, Target};
use crate::units::Span;
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
}

/// Everything that can be made slower in a target that is not simulated; of a model, it is its stations.
pub const KNOBS: &[Knob] = &[
    Knob { name: "cpu", about: "Each request makes its worker compute for so much longer." },
    Knob { name: "worker", about: "Each request blocks its worker for so much longer." },
    Knob { name: "delay", about: "Each request waits so much longer and holds nothing: the control." },
    Knob { name: "lock", about: "Each write holds the server’s lock for so much longer." },
    Knob { name: "lane", about: "Each batch holds its session of the store for so much longer." },
    Knob {
        name: "flush",
        about: "Each flush of the embedded store takes so much longer, one after the other.",
    },
    Knob { name: "link", about: "The link lets through four fifths of its rate." },
    Knob { name: "write_cap", about: "The write cap lets through four fifths of its rate." },
    Knob { name: "commit", about: "Each commit of PostgreSQL waits so much longer before it flushes." },
    Knob { name: "database_cpu", about: "The databases have four fifths of their quota of processor time." },
];

impl Interventions {
    /// Whether it can be carried out. One line, with the remedy.
    pub(super) fn check(&self, experiment: &Experiment) -> Result<(), String> {
        if self.level == Some(0) {
            return Err("interventions.level 0: nobody would ask; use at least 1".into());
        }
        if self.rounds == 0 {
            return Err(
                "interventions.rounds 0: nothing would be made slower; use at least 1, or remove the section"
                    .into(),
            );
        }
        if !(0.01..=10.0).contains(&self.strength) {
            return Err(format!(
                "interventions.strength {}: a share from 0.01 to 10; write strength = 0.3",
                self.strength
            ));
        }
        if self.window.0.is_zero() {
            return Err("interventions.window 0s: it must be longer than zero; write window = \"2s\"".into());
        }
        let Some(knobs) = &self.knobs else { return Ok(()) };
        if knobs.is_empty() {
            return Err("interventions.knobs names none; leave it out for all that apply".into());
        }
        let stations = experiment.subjects.iter().flat_map(|subject| match &subject.target {
            Target::Simulated(model) => model.stations.iter().map(|station| station.name.as_str()).collect(),
            _ => Vec::new(),
        });
        let known: Vec<&str> = KNOBS.iter().map(|knob| knob.name).chain(stations).collect();
        match knobs.iter().find(|knob| !known.contains(&knob.as_str())) {
            Some(unknown) => {
                Err(format!("interventions.knobs `{unknown}` is none; use some of {}", known.join(", ")))
            }
            None => Ok(()),
        }
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
