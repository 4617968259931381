//! Carries an experiment out: starts what is measured, runs every trial, keeps every number.
//!
//! A repetition is a block: the target is fresh at its start, and all workloads and levels run within it in random
//! order, so that whatever drifts over time does not look like an effect of the level. What was measured is saved
//! after each trial; a trial that fails is a row with its reason, never a missing one. Of several targets each has its
//! block in every repetition, and none is there while another is measured. Prints nothing.

mod database;
mod disk;
mod environment;
mod failing;
mod faults;
mod files;
mod fleet;
mod interventions;
mod sizes;
mod limits;
mod link;
mod live;
mod load;
mod ports;
mod process;
mod resources;
mod runner;
mod search;
mod selftest;
mod services;

pub use database::{CassandraCluster, Cluster, DatabaseServer, Options as DatabaseOptions};
pub use ports::free_ports;
pub use runner::{Length, Planned};

use files::cannot_write;
use kv::proto::{FORMAT, SecondReport};
use kv::units::Span;
use kv::{Error, cores};
use lab_data::experiment::{Adaptive, Cores, Experiment, Subject, Target, Workload};
use lab_data::published::PublishedRow;
use lab_data::results::{
    Measured, NOT_IMPOSED, Placement, Reading, Resource, Results, Selftest, Trial, WorkloadPlan,
};
use lab_data::{simulated, topology};
use live::LiveRunner;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use resources::{resources_of, take_in};
use runner::{Runner, SimulatedRunner};
use selftest::{Proved, prove};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

/// The file in the results directory that everything else is made from.
pub const RESULTS_FILE: &str = "results.json";

/// In which bins a window is told that may end sooner: whole parts of a second.
pub const BIN: Span = Span(Duration::from_millis(100));

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
    /// Whether [`Progress::repeated`] says when there are repetitions enough; the experiment's are then the most.
    pub sequential: bool,
    /// Published results, to be kept beside what is measured.
    pub published: Vec<PublishedRow>,
    /// Whether a trial whose window may end sooner has seen enough; asked after each of its bins of [`BIN`]. It gets what the window is
    /// in any case, how well the means have to be known, and whether requests are sent at a rate, and goodput says nothing.
    pub enough: fn(Duration, &Adaptive, bool, &[SecondReport]) -> bool,
    /// The level with the highest goodput of those of a workload that count.
    pub best_level: fn(&Results, &str) -> Option<u32>,
    /// Whether the rounds made so far show, for a workload, if the generator is the limit.
    pub is_decided: fn(&Results, &str) -> bool,
    /// Set, the run ends.
    pub stop: Arc<AtomicBool>,
}

impl Options {
    /// What matters of them to one process.
    #[cfg(test)]
    fn of(program: PathBuf, dir: &Path) -> Options {
        Options {
            program,
            dir: dir.to_owned(),
            command: String::new(),
            scale: None,
            sequential: false,
            published: Vec::new(),
            enough: |_, _, _, bins| bins.len() == 3,
            best_level: |results, _| results.trials.iter().map(|trial| trial.level).max(),
            is_decided: |results, _| results.interventions.len() >= 12,
            stop: Arc::default(),
        }
    }

    /// Whether the run is to end.
    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Hears what the harness does.
#[allow(unused_variables, reason = "who wants to know nothing of it needs not say so")]
pub trait Progress {
    /// What is being prepared, in a few words.
    fn preparing(&mut self, what: &str) {}
    /// What came of the generator's selftest, and when it ran.
    fn proved(&mut self, selftest: &Selftest, at: Option<&str>) {}
    /// A trial begins, the `number`th of `total`, or of those of its rounds; `target` is named where there are several.
    fn begins(&mut self, number: usize, total: usize, target: Option<&str>, planned: &Planned) {}
    /// It is over, measured or failed.
    fn ended(&mut self, target: Option<&str>, planned: &Planned, trial: &Trial) {}
    /// A repetition of all targets is over; whether there are enough of them. It is asked only where that is not known before.
    fn repeated(&mut self, _: &[Results]) -> bool {
        false
    }
}

/// Runs all of `experiment`, or as much of it as there is time for. `results` gets what was measured of each target, in the
/// experiment's order; of some perhaps nothing. The results of several targets are also in directories of their own, see [`dir_of`].
/// The error says why it ended early: a target could not be measured at all, or nothing could be saved.
pub fn run(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
    results: &mut Vec<Results>,
) -> Result<(), Error> {
    let cores = cores::available()
        .map_err(|error| Error::new(format_args!("cannot ask which cores we may use: {error}")))?;
    let target_runs = experiment.subjects.iter().map(|subject| {
        TargetRun::new(experiment, subject, options, &cores).map_err(|why| subject.failed(why))
    });
    let target_runs = target_runs.collect::<Result<Vec<_>, Error>>()?;
    // Only now, so that after a complaint the same command finds the results directory as empty as it left it.
    for TargetRun { options, .. } in &target_runs {
        fs::create_dir_all(&options.dir).map_err(|error| cannot_write(&options.dir, error))?;
    }
    let started = now();
    results.extend(target_runs.iter().map(|target_run| target_run.nothing_yet(&started)));
    let mut trials = 0;
    let mut runner: Option<Box<dyn Runner + '_>> = None;
    let mut proved = None;
    for repetition in 0..experiment.repetitions {
        for turn in turns(target_runs.len(), repetition) {
            let (target_run, own) = (&target_runs[turn], &mut results[turn]);
            if options.sequential {
                own.repetitions = repetition + 1;
            }
            // Of several targets none is there while another is measured. One alone may keep its databases.
            let kept = runner.take().filter(|_| target_runs.len() == 1);
            // Targets may share a store: each sends requests of its own.
            let ran = own.trials.len() as u64 + ((turn as u64) << 32);
            let mut made = kept.map_or_else(|| target_run.runner(ran), Ok);
            if made.is_ok() {
                // Only now: what this machine refuses is said at once, and of what is measured nothing runs yet.
                proved = proved.or_else(|| prove(&target_runs, options, progress));
                let Some(proved) = proved.clone() else { return Ok(()) };
                let is_simulated = target_run.is_simulated();
                let proved = if is_simulated { Proved::not_run(Selftest::Simulated) } else { proved };
                own.selftest = Some(proved.selftest);
                (own.selftest_at, own.selftest_cores) = (proved.at, proved.cores);
            }
            let mut block = Block { target_run, repetition, results: own, progress: &mut *progress };
            let done = block.run(&mut made, &mut trials);
            runner = made.ok();
            done.map_err(|why| target_run.subject.failed(why))?;
            if options.is_stopped() {
                return Ok(());
            }
        }
        if options.sequential && progress.repeated(results) {
            break;
        }
    }
    Ok(())
}

/// This second as RFC 3339 in UTC.
pub fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// Where the results of one target are: in `dir`, or in a directory of its own below it where there are several.
pub fn dir_of(dir: &Path, measured: Option<&Measured>) -> PathBuf {
    measured.map_or_else(|| dir.to_owned(), |measured| dir.join(&measured.target))
}

/// The order of `targets` in a repetition. Each is first in its turn: who comes first may find a machine at rest.
fn turns(targets: usize, repetition: u32) -> impl Iterator<Item = usize> {
    (0..targets).map(move |turn| (turn + repetition as usize) % targets)
}

/// A target on its way through all repetitions.
struct TargetRun<'a> {
    experiment: &'a Experiment,
    subject: &'a Subject,
    /// Those it takes part in.
    workloads: Vec<Workload>,
    /// All that we may use.
    cores: &'a [usize],
    placements: Vec<Placement>,
    /// With its own directory.
    options: Options,
}

impl<'a> TargetRun<'a> {
    fn new(
        experiment: &'a Experiment,
        subject: &'a Subject,
        options: &Options,
        cores: &'a [usize],
    ) -> Result<TargetRun<'a>, Error> {
        let parts = subject.target.parts();
        // What is said of the parts of the others does not concern it.
        let mut wanted: Cores = experiment.cores.clone();
        wanted.parts.retain(|part, _| parts.contains(part));
        let names: Vec<&str> = parts.iter().map(String::as_str).collect();
        let siblings = topology::siblings(Path::new(topology::CPUS), cores);
        let placements = topology::plan(cores, &siblings, &names, &wanted)?;
        if let Target::Command(commands) = &subject.target {
            services::check(commands, &options.program)?;
        }
        let dir = dir_of(&options.dir, measured(experiment, subject).as_ref());
        let options = Options { dir, ..options.clone() };
        let workloads = experiment.workloads_of(subject);
        Ok(TargetRun { experiment, subject, workloads, cores, placements, options })
    }

    /// What its trials run against; `ran` of them have been begun before.
    fn runner(&self, ran: u64) -> Made<'_> {
        Ok(match &self.subject.target {
            Target::Simulated(model) => Box::new(SimulatedRunner { model, experiment: self.experiment }),
            _ => Box::new(LiveRunner::new(self, ran)?),
        })
    }

    fn is_simulated(&self) -> bool {
        matches!(self.subject.target, Target::Simulated(_))
    }

    /// What its requests wait for, as far as a reading within a trial tells.
    fn resources(&self, reading: &Reading) -> Vec<Resource> {
        match &self.subject.target {
            Target::Simulated(model) => simulated::resources(model),
            _ => resources_of(&self.placements, reading),
        }
    }

    fn cores_of(&self, part: &str) -> &[usize] {
        let placement = self.placements.iter().find(|placement| placement.part == part);
        placement.map_or(&[], |placement| &placement.cores)
    }

    /// Its results before the first trial.
    fn nothing_yet(&self, started: &str) -> Results {
        let TargetRun { experiment, subject, workloads, placements, options, .. } = self;
        Results {
            format: FORMAT,
            weir_version: env!("CARGO_PKG_VERSION").to_owned(),
            name: experiment.name.clone(),
            title: experiment.title.clone(),
            experiment_toml: experiment.toml.clone(),
            command: options.command.clone(),
            started: started.to_owned(),
            scale: options.scale,
            measured: measured(experiment, subject),
            seed: experiment.seed,
            placements: placements.clone(),
            workloads: workloads.iter().cloned().map(plan_of).collect(),
            levels: experiment.levels.clone(),
            repetitions: experiment.repetitions,
            sequential: options.sequential,
            published: options.published.clone(),
            ..Results::default()
        }
    }
}

/// One repetition of a target, and what comes of it.
struct Block<'b> {
    target_run: &'b TargetRun<'b>,
    repetition: u32,
    results: &'b mut Results,
    progress: &'b mut dyn Progress,
}

/// What the trials of a target run against; the error is a limit that this machine cannot impose.
type Made<'r> = Result<Box<dyn Runner + 'r>, Error>;

impl<'b> Block<'b> {
    /// The target's name, where there are several.
    fn name(&self) -> Option<&'b str> {
        self.target_run.subject.name.as_deref()
    }

    /// Saves what there is so far.
    fn save(&self) -> Result<(), Error> {
        save(self.results, &self.target_run.options.dir)
    }

    /// Runs every trial, or as many as there is time for; `trials` of all targets have been begun before.
    fn run(&mut self, made: &mut Made, trials: &mut usize) -> Result<(), Error> {
        let (TargetRun { experiment, options, workloads, .. }, repetition) =
            (self.target_run, self.repetition);
        let name = self.name();
        let mut begun = match made {
            Ok(runner) => {
                let shown = name.unwrap_or("the target");
                self.progress.preparing(&format!("starting {shown} for repetition {}", repetition + 1));
                runner.begin().map(|()| runner.as_mut())
            }
            // That is an answer, too.
            Err(why) if experiment.truth.is_some() => Err(Error::new(format_args!("{NOT_IMPOSED}{why}"))),
            Err(why) => return Err(why.clone()),
        };
        if options.is_stopped() {
            return Ok(());
        }
        match &mut begun {
            // The first that begins: with `[truth]` it may be a later one.
            Ok(runner) if self.results.environment.is_empty() => {
                self.results.environment = runner.environment();
            }
            Err(why) if repetition == 0 && experiment.truth.is_none() => return Err(why.clone()),
            _ => {}
        }
        let Experiment { warmup, window, adaptive, .. } = **experiment;
        for (workload, level) in order(experiment, workloads, repetition) {
            *trials += 1;
            let length = Length { warmup, window, adaptive };
            let planned = Planned::unchanged(workload, level, repetition, length);
            self.progress.begins(*trials, experiment.trials(), name, &planned);
            let trial = match &mut begun {
                Ok(runner) => runner.trial(&planned),
                Err(why) => planned.failed(why.clone()),
            };
            // An interrupted trial is no failure of the target.
            if options.is_stopped() {
                return Ok(());
            }
            if trial.failure.is_none() {
                take_in(&mut self.results.resources, self.target_run.resources(&trial.opened));
            }
            // What a workload asks for, in the load generator's words, where the file has none.
            let mut plans = self.results.workloads.iter_mut();
            let undescribed = plans.find(|plan| plan.name == trial.workload && plan.about.is_empty());
            if let (Some(plan), Some(load)) = (undescribed, &trial.load) {
                plan.about.clone_from(&load.about);
            }
            self.results.trials.push(trial);
            self.save()?;
            self.progress.ended(name, &planned, &self.results.trials[self.results.trials.len() - 1]);
        }
        let Ok(runner) = begun else { return Ok(()) };
        for workload in workloads {
            self.search(runner, workload)?;
        }
        let is_last = repetition + 1 == experiment.repetitions;
        match is_last && !experiment.is_reference(self.target_run.subject) {
            true => self.intervene(runner),
            false => Ok(()),
        }
    }
}

/// Which of several targets it is.
fn measured(experiment: &Experiment, subject: &Subject) -> Option<Measured> {
    Some(Measured {
        target: subject.name.clone()?,
        durability: subject.durability.clone(),
        among: experiment.subjects.iter().filter_map(|subject| subject.name.clone()).collect(),
    })
}

/// Writes `results` to `dir`: whole, or not at all. When it returns they are on disk.
pub fn save(results: &Results, dir: &Path) -> Result<(), Error> {
    let path = dir.join(RESULTS_FILE);
    let fresh = dir.join(format!("{RESULTS_FILE}.tmp"));
    let write = || {
        let mut file = File::create(&fresh)?;
        file.write_all(&serde_json::to_vec(results)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        File::open(dir)?.sync_all()?;
        // The directories above may be new, too, as far up as this user may read. Not every file system can flush those that are not.
        let above = fs::canonicalize(dir)?;
        let above = above.ancestors().skip(1).map_while(|above| File::open(above).ok());
        above.for_each(|above| drop(above.sync_all()));
        Ok(())
    };
    write().map_err(|error: io::Error| cannot_write(&path, error))
}

/// Every one of `workloads` at every level, in the order of one repetition.
fn order<'w>(
    experiment: &'w Experiment,
    workloads: &'w [Workload],
    repetition: u32,
) -> Vec<(&'w Workload, u32)> {
    let levels = |of: &'w Workload| experiment.levels_of(of).iter().map(move |level| (of, *level));
    let mut order: Vec<_> = workloads.iter().flat_map(levels).collect();
    // Each repetition has an order of its own; the golden ratio keeps neighbouring seeds from meeting.
    let seed = experiment.seed.wrapping_add(u64::from(repetition).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    shuffle(&mut order, seed);
    order
}

/// Fisher–Yates. The modulo favours low places by less than one part in 2^57 here.
fn shuffle<T>(order: &mut [T], seed: u64) {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    for last in (1..order.len()).rev() {
        order.swap(last, (random.next_u64() % (last as u64 + 1)) as usize);
    }
}

fn plan_of(Workload { name, about, levels, published, .. }: Workload) -> WorkloadPlan {
    WorkloadPlan { name, about, levels, published }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quick() -> Experiment {
        Experiment::parse(include_str!("../../../../experiments/quick.toml")).unwrap()
    }

    #[test]
    fn a_repetition_has_every_trial_once_in_an_order_of_its_own() {
        let experiment = quick();
        let names = |repetition| {
            let order = order(&experiment, &experiment.workloads, repetition);
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
        assert_eq!(first.len(), 13);
    }

    #[test]
    fn every_target_begins_in_its_turn() {
        let orders: Vec<Vec<usize>> = (0..4).map(|repetition| turns(3, repetition).collect()).collect();
        assert_eq!(orders, [[0, 1, 2], [1, 2, 0], [2, 0, 1], [0, 1, 2]]);
        assert_eq!(turns(1, 5).collect::<Vec<_>>(), [0]);
    }
}
