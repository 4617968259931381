//! What a target looks like to its target_run through the repetitions: something that is begun, and on which trials run.
//!
//! A queueing model is here, too; what runs on this machine is next door. Of the order of trials it knows nothing.

use super::sizes::Base;
use kv::Error;
use kv::units::Span;
use lab_data::experiment::{Adaptive, Experiment, Workload};
use lab_data::results::{Change, Resource, Trial};
use lab_data::simulated;
use std::fmt::Display;

/// How long a trial is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Length {
    /// The unmeasured part.
    pub(super) warmup: Span,
    /// The measured part; the least of it where `adaptive` says how it ends.
    pub(super) window: Span,
    pub(super) adaptive: Option<Adaptive>,
}

/// What trials run against.
pub(super) trait Runner {
    /// Makes the target fresh for a repetition.
    fn begin(&mut self) -> Result<(), Error>;
    /// Where it is measured; after the first [`Runner::begin`].
    fn environment(&self) -> Vec<(String, String)>;
    /// What its requests wait for; after the first [`Runner::begin`].
    fn resources(&mut self) -> Vec<Resource>;
    /// Runs one trial. A failure is part of it.
    fn trial(&mut self, workload: &Workload, level: u32, repetition: u32, length: Length) -> Trial;
    /// The names of the interventions that can be made under `workload`.
    fn interventions(&mut self, workload: &Workload) -> Result<Vec<String>, Error>;
    /// What one of them is to change; `None` where `base` does not tell.
    fn change(&self, base: &Base, name: &str, strength: f64) -> Option<Change> {
        base.change(name, strength)
    }
    /// How often something of it died and it was started anew.
    fn revivals(&self) -> u32 {
        0
    }
    /// Runs one trial of the interventions, with `change` made and then unmade. A failure is part of it.
    fn intervene(
        &mut self,
        workload: &Workload,
        level: u32,
        round: u32,
        length: Length,
        change: Option<&Change>,
    ) -> Trial;
}

/// A queueing model in place of a system.
pub(super) struct SimulatedRunner<'a> {
    pub(super) model: &'a simulated::Model,
    pub(super) experiment: &'a Experiment,
}

impl Runner for SimulatedRunner<'_> {
    fn begin(&mut self) -> Result<(), Error> {
        Ok(())
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("target".into(), "a queueing model; no machine was measured".into())]
    }

    fn resources(&mut self) -> Vec<Resource> {
        simulated::resources(self.model)
    }

    fn trial(&mut self, workload: &Workload, level: u32, repetition: u32, length: Length) -> Trial {
        let Length { warmup, window, .. } = length;
        simulated::trial(self.model, &workload.name, level, repetition, self.experiment.seed, warmup, window)
    }

    fn interventions(&mut self, _: &Workload) -> Result<Vec<String>, Error> {
        Ok(self.model.stations.iter().map(|station| station.name.clone()).collect())
    }

    fn change(&self, base: &Base, name: &str, strength: f64) -> Option<Change> {
        let goodput = base.trial.load.as_ref().map(|load| load.goodput_rps).filter(|rate| *rate > 0.0)?;
        simulated::changes(self.model, strength, goodput).into_iter().find(|change| change.name == name)
    }

    fn intervene(
        &mut self,
        workload: &Workload,
        level: u32,
        round: u32,
        length: Length,
        change: Option<&Change>,
    ) -> Trial {
        let model =
            change.map_or_else(|| self.model.clone(), |change| simulated::changed(self.model, change));
        let seed = simulated::seed_of(self.experiment.seed, change);
        simulated::trial(&model, &workload.name, level, round, seed, length.warmup, length.window)
    }
}

/// A trial of which nothing is there but why.
pub(super) fn failed(workload: &Workload, level: u32, repetition: u32, why: impl Display) -> Trial {
    let (workload, failure) = (workload.name.clone(), Some(why.to_string()));
    Trial { workload, level, repetition, failure, ..Trial::default() }
}
