//! Carries an experiment out: starts what is measured, runs every trial, keeps every number.
//!
//! A repetition is a block: the target is fresh at its start, and all workloads and levels run within it in random
//! order, so that whatever drifts over time does not look like an effect of the level. What was measured is saved
//! after each trial; a trial that fails is a row with its reason, never a missing one. Prints nothing.

mod calendar;
mod database;
mod environment;
mod fleet;
mod limits;
mod live;
mod load;
mod mariadb;
mod postgres;
mod process;
mod resources;
mod server;

pub use calendar::Utc;
pub use database::{Options as MariaDbOptions, Options as PostgresOptions};
pub use mariadb::MariaDb;
pub use postgres::Postgres;

use super::experiment::{Experiment, Target, Workload};
use super::printed::PrintedRow;
use super::results::{Reading, Resource, Results, Trial, WorkloadPlan};
use super::{simulated, topology};
use crate::proto::FORMAT;
use live::Live;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use resources::{take_in, write_cap};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

/// The file in the results directory that everything else is made from.
pub const RESULTS_FILE: &str = "results.json";

/// Where and how to run an experiment.
#[derive(Clone, Debug)]
pub struct Options {
    /// The weir binary; it is started as server and as load generator.
    pub program: PathBuf,
    /// The results directory; exists.
    pub dir: PathBuf,
    /// The command that repeats the run.
    pub command: String,
    /// To what share of the file's durations the experiment was scaled down.
    pub scale: Option<f64>,
    /// Rows somebody printed, to be kept beside what is measured.
    pub printed: Vec<PrintedRow>,
}

/// Hears what the harness does.
pub trait Progress {
    /// What is being prepared, in a few words.
    fn preparing(&mut self, what: &str);
    /// A trial begins, the `number`th of `total`.
    fn begins(&mut self, number: usize, total: usize, workload: &str, level: u32);
    /// It is over, measured or failed.
    fn ended(&mut self, trial: &Trial);
}

/// Runs all of `experiment`, or as much of it as there is time for until `stop` is set.
///
/// The error is one line. It comes only where nothing could be measured at all, or nothing could be saved.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<Results, String> {
    let cores =
        topology::available().map_err(|error| format!("cannot ask which cores we may use: {error}"))?;
    let parts = experiment.parts();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let placements = topology::plan(&cores, &parts, &experiment.cores)?;
    let mut rig: Box<dyn Rig<'_> + '_> = match &experiment.target {
        Target::Simulated(model) => Box::new(Modelled { model, experiment }),
        _ => Box::new(Live::new(experiment, options, &placements, cores, stop)?),
    };
    let mut results = Results {
        format: FORMAT,
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        experiment_toml: experiment.toml.clone(),
        command: options.command.clone(),
        started: Utc::at(SystemTime::now()).to_string(),
        scale: options.scale,
        measured: None,
        seed: experiment.seed,
        environment: Vec::new(),
        placements: placements.clone(),
        resources: Vec::new(),
        workloads: experiment.workloads.iter().map(plan_of).collect(),
        levels: experiment.levels.clone(),
        repetitions: experiment.repetitions,
        printed: options.printed.clone(),
        trials: Vec::new(),
    };
    let total = experiment.trials();
    for repetition in 0..experiment.repetitions {
        progress.preparing(&format!("starting the target for repetition {}", repetition + 1));
        let begun = rig.begin();
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if repetition == 0 {
            begun.as_ref().map_err(String::clone)?;
            results.environment = rig.environment();
            results.resources = rig.resources();
        }
        for (workload, level) in order(experiment, repetition) {
            progress.begins(results.trials.len() + 1, total, &workload.name, level);
            let trial = match &begun {
                Ok(()) => rig.trial(workload, level, repetition),
                Err(why) => failed(workload, level, repetition, why),
            };
            // An interrupted trial is no failure of the target.
            if stop.load(Ordering::Relaxed) {
                return Ok(results);
            }
            take_in(&mut results.resources, write_cap(&trial.opened));
            describe(&mut results.workloads, &trial);
            results.trials.push(trial);
            save(&results, &options.dir)?;
            progress.ended(&results.trials[results.trials.len() - 1]);
        }
    }
    Ok(results)
}

/// Writes `results` to `dir`: whole, or not at all.
pub fn save(results: &Results, dir: &Path) -> Result<(), String> {
    let path = dir.join(RESULTS_FILE);
    let fresh = dir.join(format!("{RESULTS_FILE}.tmp"));
    let write = || {
        fs::write(&fresh, serde_json::to_vec(results)?)?;
        fs::rename(&fresh, &path)
    };
    write()
        .map_err(|error| format!("{}: cannot save the results: {error}; make room or rights", path.display()))
}

/// What trials run against.
trait Rig<'a> {
    /// Makes the target fresh for a repetition.
    fn begin(&mut self) -> Result<(), String>;
    /// Where it is measured; after the first [`Rig::begin`].
    fn environment(&self) -> Vec<(String, String)>;
    /// What its requests wait for; after the first [`Rig::begin`].
    fn resources(&self) -> Vec<Resource>;
    /// Runs one trial. A failure is part of it.
    fn trial(&mut self, workload: &'a Workload, level: u32, repetition: u32) -> Trial;
}

/// A queueing model in place of a system.
struct Modelled<'a> {
    model: &'a simulated::Model,
    experiment: &'a Experiment,
}

impl<'a> Rig<'a> for Modelled<'a> {
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
}

/// Every workload at every level, in the order of one repetition.
fn order(experiment: &Experiment, repetition: u32) -> Vec<(&Workload, u32)> {
    let mut order: Vec<_> = experiment
        .workloads
        .iter()
        .flat_map(|workload| experiment.levels_of(workload).iter().map(move |level| (workload, *level)))
        .collect();
    // Each repetition has an order of its own; the golden ratio keeps neighbouring seeds from meeting.
    let seed = experiment.seed.wrapping_add(u64::from(repetition).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    // Fisher–Yates. The modulo favours low places by less than one part in 2^57 here.
    for last in (1..order.len()).rev() {
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
    order
}

/// What a workload asks for, in the load generator's words, where the file has none.
fn describe(workloads: &mut [WorkloadPlan], trial: &Trial) {
    let Some(load) = &trial.load else { return };
    let undescribed =
        workloads.iter_mut().find(|workload| workload.name == trial.workload && workload.about.is_empty());
    if let Some(workload) = undescribed {
        workload.about.clone_from(&load.about);
    }
}

fn plan_of(workload: &Workload) -> WorkloadPlan {
    let Workload { name, about, levels, printed, .. } = workload.clone();
    WorkloadPlan { name, about, levels, printed }
}

fn failed(workload: &Workload, level: u32, repetition: u32, why: &str) -> Trial {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Experiment {
        Experiment::parse(include_str!("../../../experiments/quick.toml")).unwrap()
    }

    #[test]
    fn a_repetition_has_every_trial_once_in_an_order_of_its_own() {
        let experiment = quick();
        let names = |repetition| {
            let order = order(&experiment, repetition);
            order.iter().map(|(workload, level)| (workload.name.clone(), *level)).collect::<Vec<_>>()
        };
        let (first, second) = (names(0), names(1));
        assert_ne!(first, second);
        assert_eq!(first, names(0), "the seed decides");
        let sorted = |mut names: Vec<(String, u32)>| {
            names.sort();
            names
        };
        assert_eq!(sorted(first.clone()), sorted(second));
        assert_eq!(first.len(), 14);
    }
}
