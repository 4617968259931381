//! What a target looks like to its target_run through the repetitions: something that is begun, and on which trials run.
//!
//! A queueing model is here, too; what runs on this machine is next door. Of the order of trials it knows nothing.

use super::sizes::Base;
use kv::Error;
use kv::units::Span;
use lab_data::experiment::{Adaptive, Experiment, Workload};
use lab_data::results::{Change, Trial};
use lab_data::simulated;

/// How long a trial is.
#[derive(Clone, Copy, Debug)]
pub struct Length {
    /// The unmeasured part.
    pub warmup: Span,
    /// The measured part; the least of it where `adaptive` says how it ends.
    pub window: Span,
    /// How the measured part may end.
    pub adaptive: Option<Adaptive>,
}

/// Faults that take requests off the server's fast path.
pub(super) const WAITED_FOR: [&str; 2] = ["worker", "delay"];

/// A trial to be run.
#[derive(Clone, Copy, Debug)]
pub struct Planned<'a> {
    /// What is asked for.
    pub workload: &'a Workload,
    /// Clients.
    pub level: u32,
    /// Or the round.
    pub repetition: u32,
    /// How long it is.
    pub length: Length,
    /// Whether it is one of a round of interventions.
    pub in_round: bool,
    /// Whether a fault of that round takes requests off the server's fast path: then all its trials have such a fault.
    pub may_wait: bool,
    /// What is made slower for it.
    pub change: Option<&'a Change>,
}

impl<'a> Planned<'a> {
    /// One in which nothing is changed.
    pub(super) fn unchanged(workload: &'a Workload, level: u32, repetition: u32, length: Length) -> Self {
        Planned { workload, level, repetition, length, in_round: false, may_wait: false, change: None }
    }

    /// What is known of it before it begins.
    pub(super) fn trial(&self) -> Trial {
        let Planned { workload, level, repetition, .. } = *self;
        Trial { workload: workload.name.clone(), level, repetition, ..Trial::default() }
    }

    /// A trial of which nothing is there but why.
    pub(super) fn failed(&self, why: Error) -> Trial {
        Trial { failure: Some(why.into()), ..self.trial() }
    }
}

/// What trials run against.
pub(super) trait Runner {
    /// Makes the target fresh for a repetition.
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }
    /// Where it is measured; after the first [`Runner::begin`].
    fn environment(&self) -> Vec<(String, String)>;
    /// Runs one trial, with its change made and then unmade. A failure is part of it.
    fn trial(&mut self, planned: &Planned) -> Trial;
    /// What one of them is to change; `None` where `base` does not tell.
    fn change(&self, base: &Base, name: &str, strength: f64) -> Option<Change> {
        base.change(name, strength)
    }
    /// How often something of it died and it was started anew.
    fn revivals(&self) -> u32 {
        0
    }
}

/// A queueing model in place of a system.
pub(super) struct SimulatedRunner<'a> {
    pub(super) model: &'a simulated::Model,
    pub(super) experiment: &'a Experiment,
}

impl Runner for SimulatedRunner<'_> {
    fn environment(&self) -> Vec<(String, String)> {
        vec![("target".into(), "a queueing model; no machine was measured".into())]
    }

    fn trial(&mut self, planned: &Planned) -> Trial {
        let Planned { workload, level, repetition, length, in_round, change, .. } = *planned;
        let own_seed = self.experiment.seed;
        let seed = if in_round { simulated::seed_of(own_seed, change) } else { own_seed };
        let changed = change.map(|change| simulated::changed(self.model, change));
        let model = changed.as_ref().unwrap_or(self.model);
        simulated::trial(model, &workload.name, level, repetition, seed, length.warmup, length.window)
    }

    fn change(&self, base: &Base, name: &str, strength: f64) -> Option<Change> {
        let goodput = base.trial.load.as_ref().map(|load| load.goodput_rps).filter(|rate| *rate > 0.0)?;
        simulated::changes(self.model, strength, goodput).into_iter().find(|change| change.name == name)
    }
}
