//! What a target looks like to its target_run through the repetitions: something that is begun, and on which trials run.
//!
//! A queueing model is here, too; what runs on this machine is next door. Of the order of trials it knows nothing.

use super::search;
use super::sizes::Base;
use kv::units::Span;
use lab_data::experiment::{Adaptive, Experiment, Workload};
use lab_data::results::{Change, Reading, Resource, Trial};
use lab_data::simulated;

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
pub(super) trait Runner<'a> {
    /// Makes the target fresh for a repetition.
    fn begin(&mut self) -> Result<(), String>;
    /// Where it is measured; after the first [`Runner::begin`].
    fn environment(&self) -> Vec<(String, String)>;
    /// What its requests wait for; after the first [`Runner::begin`].
    fn resources(&self) -> Vec<Resource>;
    /// Runs one trial. A failure is part of it.
    fn trial(&mut self, workload: &'a Workload, level: u32, repetition: u32) -> Trial;
    /// The names of the interventions that can be made under `workload`.
    fn interventions(&mut self, workload: &'a Workload) -> Result<Vec<String>, String>;
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
        workload: &'a Workload,
        level: u32,
        round: u32,
        length: Length,
        change: Option<&Change>,
    ) -> Trial;
    /// Runs one trial in an open loop. A failure is part of it.
    fn offered(&mut self, workload: &'a Workload, offered: &search::Offered, repetition: u32) -> Trial;
}

/// A queueing model in place of a system.
pub(super) struct SimulatedRunner<'a> {
    pub(super) model: &'a simulated::Model,
    pub(super) experiment: &'a Experiment,
}

impl<'a> Runner<'a> for SimulatedRunner<'a> {
    fn begin(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("target".into(), "a queueing model; no machine was measured".into())]
    }

    fn resources(&self) -> Vec<Resource> {
        simulated::resources(self.model)
    }

    fn trial(&mut self, workload: &'a Workload, level: u32, repetition: u32) -> Trial {
        let Experiment { seed, warmup, window, .. } = self.experiment;
        simulated::trial(self.model, &workload.name, level, repetition, *seed, *warmup, *window)
    }

    fn interventions(&mut self, _: &'a Workload) -> Result<Vec<String>, String> {
        Ok(self.model.stations.iter().map(|station| station.name.clone()).collect())
    }

    fn change(&self, base: &Base, name: &str, strength: f64) -> Option<Change> {
        let goodput = base.trial.load.as_ref().map(|load| load.goodput_rps).filter(|rate| *rate > 0.0)?;
        simulated::changes(self.model, strength, goodput).into_iter().find(|change| change.name == name)
    }

    fn intervene(
        &mut self,
        workload: &'a Workload,
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

    fn offered(&mut self, workload: &'a Workload, offered: &search::Offered, repetition: u32) -> Trial {
        failed(workload, offered.clients, repetition, "a model has no open loop")
    }
}

/// A trial of which nothing is there but why.
pub(super) fn failed(workload: &Workload, level: u32, repetition: u32, why: &str) -> Trial {
    Trial {
        workload: workload.name.clone(),
        level,
        repetition,
        load: None,
        failure: Some(why.to_owned()),
        elapsed_secs: 0.0,
        opened: Reading::default(),
        closed: Reading::default(),
    }
}
