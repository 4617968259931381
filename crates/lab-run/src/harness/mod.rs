//! Carries an experiment out: starts what is measured, runs every trial, keeps every number.
//!
//! A repetition is a block: the target is fresh at its start, and all workloads and levels run within it in random
//! order, so that whatever drifts over time does not look like an effect of the level. What was measured is saved
//! after each trial; a trial that fails is a row with its reason, never a missing one. Of several targets each has its
//! block in every repetition, and none is there while another is measured. Prints nothing.

mod database;
mod environment;
mod failing;
mod fleet;
mod interventions;
mod sizes;
mod limits;
mod link;
mod live;
mod load;
mod mariadb;
mod postgres;
mod process;
mod resources;
mod runner;
mod search;
mod selftest;
mod server;
mod services;
mod slow_flush;

pub use database::{DatabaseServer, Options as DatabaseOptions};

use kv::proto::{FORMAT, SecondReport};
use kv::units::Span;
use lab_data::experiment::{Adaptive, Cores, Experiment, GENERATOR, SERVER, Subject, Target, Workload};
use lab_data::published::PublishedRow;
use lab_data::results::{
    Intervention, Measured, NOT_IMPOSED, Placement, Results, Selftest, Trial, WorkloadPlan,
};
use lab_data::topology;
use live::LiveRunner;
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use resources::{take_in, write_cap};
use runner::{Runner, SimulatedRunner, failed};
use std::fs;
use std::path::{Path, PathBuf};
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
    /// Published results, to be kept beside what is measured.
    pub published: Vec<PublishedRow>,
    /// Whether a trial whose window may end sooner has seen enough; asked after each of its bins of [`BIN`].
    pub enough: fn(&Precision, &[SecondReport]) -> bool,
    /// Whether the rounds made so far show, for a workload, if the generator is the limit.
    pub is_decided: fn(&Results, &str) -> bool,
}

/// What an experiment asks of a trial that may end before its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// What the window is in any case.
    pub least: Duration,
    /// How well the means have to be known.
    pub adaptive: Adaptive,
    /// Whether requests are sent at a rate, and goodput says nothing.
    pub is_open: bool,
}

/// Hears what the harness does.
pub trait Progress {
    /// What is being prepared, in a few words.
    fn preparing(&mut self, what: &str);
    /// What came of the generator's selftest, and when it ran.
    fn proved(&mut self, selftest: &Selftest, at: Option<&str>);
    /// A trial begins, the `number`th of `total`; `target` is named where there are several.
    fn begins(&mut self, number: usize, total: usize, target: Option<&str>, workload: &str, level: u32);
    /// It is over, measured or failed.
    fn ended(&mut self, target: Option<&str>, trial: &Trial);
    /// A trial with the intervention `name` begins, or one with none, the `number`th of `total` of this workload.
    fn intervenes(
        &mut self,
        number: usize,
        total: usize,
        target: Option<&str>,
        workload: &str,
        name: Option<&str>,
    );
    /// It is over, measured or failed.
    fn intervened(&mut self, target: Option<&str>, intervention: &Intervention);
}

/// What came of an experiment.
#[derive(Debug, Default)]
pub struct Ran {
    /// What was measured of each target, in the experiment's order; of some perhaps nothing.
    pub results: Vec<Results>,
    /// Why it ended early, in one line: a target could not be measured at all, or nothing could be saved.
    pub error: Option<String>,
}

/// Runs all of `experiment`, or as much of it as there is time for until `stop` is set. The results of several targets
/// are also in directories of their own, see [`dir_of`].
pub fn run(
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Ran {
    let mut ran = Ran::default();
    ran.error = run_into(&mut ran.results, experiment, options, progress, stop).err();
    ran
}

fn run_into(
    results: &mut Vec<Results>,
    experiment: &Experiment,
    options: &Options,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Result<(), String> {
    let cores =
        topology::available().map_err(|error| format!("cannot ask which cores we may use: {error}"))?;
    let target_runs = experiment.subjects.iter().map(|subject| {
        TargetRun::new(experiment, subject, options, &cores).map_err(|why| of_target(subject, why))
    });
    let target_runs = target_runs.collect::<Result<Vec<_>, String>>()?;
    // Only now, so that after a complaint the same command finds the results directory as empty as it left it.
    target_runs.iter().try_for_each(TargetRun::make_directory)?;
    let started = now();
    results.extend(target_runs.iter().map(|target_run| target_run.nothing_yet(&started)));
    let mut count = Count { begun: 0, total: experiment.trials() };
    let mut runner: Option<Box<dyn Runner<'_> + '_>> = None;
    let mut proved = None;
    for repetition in 0..experiment.repetitions {
        for turn in turns(target_runs.len(), repetition) {
            let (target_run, own) = (&target_runs[turn], &mut results[turn]);
            // Of several targets none is there while another is measured. One alone may keep its databases.
            runner = runner.filter(|_| target_runs.len() == 1);
            if runner.is_none() {
                let made = target_run.runner(&cores, own.trials.len() as u64, stop);
                runner = match made {
                    Ok(runner) => Some(runner),
                    // A limit that this machine cannot impose is an answer, too.
                    Err(why) if experiment.truth.is_some() => {
                        target_run.refused(&why, repetition, own, &mut count, progress)?;
                        None
                    }
                    Err(why) => return Err(of_target(target_run.subject, why)),
                };
            }
            let Some(runner) = &mut runner else { continue };
            // Only now: what this machine refuses is said at once, and of what is measured nothing runs yet.
            if proved.is_none() {
                proved = prove(experiment, &target_runs, &cores, options, progress, stop);
            }
            let Some(proved) = &proved else { return Ok(()) };
            let proved = match target_run.is_simulated() {
                true => Proved::not_run(Selftest::Simulated),
                false => proved.clone(),
            };
            own.selftest = Some(proved.selftest);
            (own.selftest_at, own.selftest_cores) = (proved.at, proved.cores);
            let done = target_run.block(repetition, runner.as_mut(), own, &mut count, progress, stop);
            done.map_err(|why| of_target(target_run.subject, why))?;
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// What came of the generator's selftest.
#[derive(Clone)]
struct Proved {
    selftest: Selftest,
    /// When it ran.
    at: Option<String>,
    /// The cores of the generator and of the responder.
    cores: Option<[usize; 2]>,
}

impl Proved {
    fn not_run(selftest: Selftest) -> Proved {
        Proved { selftest, at: None, cores: None }
    }
}

/// Has the generator prove itself, once for all targets, unless it has on this machine; `None` if stopped meanwhile. It is pinned as for the
/// first target that is no model.
fn prove(
    experiment: &Experiment,
    target_runs: &[TargetRun],
    cores: &[usize],
    options: &Options,
    progress: &mut dyn Progress,
    stop: &AtomicBool,
) -> Option<Proved> {
    let Some(target_run) = target_runs.iter().find(|target_run| !target_run.is_simulated()) else {
        return Some(Proved::not_run(Selftest::Simulated));
    };
    if !experiment.selftest {
        let skipped = Proved::not_run(Selftest::Skipped);
        progress.proved(&skipped.selftest, None);
        return Some(skipped);
    }
    let cores = selftest::cores(target_run.cores_of(GENERATOR), target_run.cores_of(SERVER), cores);
    let file = selftest::stored_at(&options.program, cores);
    let passed = file.as_deref().and_then(selftest::Passed::read);
    let proved = match passed {
        Some(selftest::Passed { at, report }) => {
            Proved { selftest: Selftest::Ran(report), at: Some(at), cores }
        }
        None => {
            progress.preparing("the generator proves itself");
            let proof = selftest::Proof {
                program: &options.program,
                cores,
                log: &options.dir.join("selftest.log"),
                limit: selftest::LIMIT,
            };
            let (selftest, at) = (proof.run(stop)?, now());
            if let (Selftest::Ran(report), Some(file)) = (&selftest, &file)
                && selftest.failed().is_empty()
            {
                selftest::Passed { at: at.clone(), report: report.clone() }.store(file);
            }
            Proved { selftest, at: Some(at), cores }
        }
    };
    progress.proved(&proved.selftest, proved.at.as_deref());
    Some(proved)
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

fn of_target(subject: &Subject, why: String) -> String {
    match &subject.name {
        Some(name) => format!("target `{name}`: {why}"),
        None => why,
    }
}

/// Trials of all targets.
struct Count {
    begun: usize,
    total: usize,
}

/// A target on its way through all repetitions.
struct TargetRun<'a> {
    experiment: &'a Experiment,
    subject: &'a Subject,
    /// Those it takes part in.
    workloads: Vec<Workload>,
    placements: Vec<Placement>,
    /// With its own directory.
    options: Options,
}

impl<'a> TargetRun<'a> {
    fn new(
        experiment: &'a Experiment,
        subject: &'a Subject,
        options: &Options,
        cores: &[usize],
    ) -> Result<TargetRun<'a>, String> {
        let parts = subject.target.parts();
        // What is said of the parts of the others does not concern it.
        let mut wanted: Cores = experiment.cores.clone();
        wanted.parts.retain(|part, _| parts.contains(part));
        let names: Vec<&str> = parts.iter().map(String::as_str).collect();
        let placements = topology::plan(cores, &names, &wanted)?;
        if let Target::Command(commands) = &subject.target {
            services::check(commands, &options.program)?;
        }
        let dir = dir_of(&options.dir, measured(experiment, subject).as_ref());
        let options = Options { dir, ..options.clone() };
        Ok(TargetRun {
            experiment,
            subject,
            workloads: experiment.workloads_of(subject),
            placements,
            options,
        })
    }

    fn make_directory(&self) -> Result<(), String> {
        let dir = &self.options.dir;
        fs::create_dir_all(dir)
            .map_err(|error| format!("cannot make {}: {error}; make room or rights", dir.display()))
    }

    fn runner(
        &'a self,
        cores: &[usize],
        ran: u64,
        stop: &'a AtomicBool,
    ) -> Result<Box<dyn Runner<'a> + 'a>, String> {
        Ok(match &self.subject.target {
            Target::Simulated(model) => Box::new(SimulatedRunner { model, experiment: self.experiment }),
            _ => Box::new(LiveRunner::new(self, cores.to_vec(), ran, stop)?),
        })
    }

    fn is_simulated(&self) -> bool {
        matches!(self.subject.target, Target::Simulated(_))
    }

    fn cores_of(&self, part: &str) -> &[usize] {
        let placement = self.placements.iter().find(|placement| placement.part == part);
        placement.map_or(&[], |placement| &placement.cores)
    }

    /// Its results before the first trial.
    fn nothing_yet(&self, started: &str) -> Results {
        let TargetRun { experiment, subject, workloads, placements, options } = self;
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
            environment: Vec::new(),
            placements: placements.clone(),
            selftest: None,
            selftest_at: None,
            selftest_cores: None,
            resources: Vec::new(),
            workloads: workloads.iter().map(plan_of).collect(),
            levels: experiment.levels.clone(),
            repetitions: experiment.repetitions,
            published: options.published.clone(),
            trials: Vec::new(),
            interventions: Vec::new(),
            searches: Vec::new(),
        }
    }

    /// Whether it is there only to be compared with targets whose limit is known.
    fn is_reference(&self) -> bool {
        let name = self.subject.name.as_ref();
        self.experiment
            .truth
            .as_ref()
            .is_some_and(|truth| truth.cases.iter().all(|case| Some(&case.target) != name))
    }

    /// Keeps that none of its trials of one repetition could be run.
    fn refused(
        &self,
        why: &str,
        repetition: u32,
        results: &mut Results,
        count: &mut Count,
        progress: &mut dyn Progress,
    ) -> Result<(), String> {
        let name = self.subject.name.as_deref();
        let why = format!("{NOT_IMPOSED}{why}");
        for (workload, level) in order(self.experiment, &self.workloads, repetition) {
            count.begun += 1;
            progress.begins(count.begun, count.total, name, &workload.name, level);
            let trial = failed(workload, level, repetition, &why);
            progress.ended(name, &trial);
            results.trials.push(trial);
        }
        save(results, &self.options.dir)
    }

    /// Runs every trial of one repetition, or as many as there is time for until `stop` is set.
    fn block(
        &'a self,
        repetition: u32,
        runner: &mut (dyn Runner<'a> + 'a),
        results: &mut Results,
        count: &mut Count,
        progress: &mut dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), String> {
        let name = self.subject.name.as_deref();
        let shown = name.unwrap_or("the target");
        progress.preparing(&format!("starting {shown} for repetition {}", repetition + 1));
        let begun = runner.begin();
        if stop.load(Ordering::Relaxed) {
            return Ok(());
        }
        match &begun {
            // Or, with `[truth]`, in the first that begins.
            Ok(()) if repetition == 0 || results.resources.is_empty() => {
                results.environment = runner.environment();
                results.resources = runner.resources();
            }
            Err(why) if repetition == 0 && self.experiment.truth.is_none() => return Err(why.clone()),
            _ => {}
        }
        for (workload, level) in order(self.experiment, &self.workloads, repetition) {
            count.begun += 1;
            progress.begins(count.begun, count.total, name, &workload.name, level);
            let trial = match &begun {
                Ok(()) => runner.trial(workload, level, repetition),
                Err(why) => failed(workload, level, repetition, why),
            };
            // An interrupted trial is no failure of the target.
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            take_in(&mut results.resources, write_cap(&trial.opened));
            describe(&mut results.workloads, &trial);
            results.trials.push(trial);
            save(results, &self.options.dir)?;
            progress.ended(name, &results.trials[results.trials.len() - 1]);
        }
        for workload in self.workloads.iter().filter(|_| begun.is_ok()) {
            search::search(runner, workload, repetition, results, &self.options.dir, progress, stop)?;
        }
        let is_last = repetition + 1 == self.experiment.repetitions;
        match begun.is_ok() && is_last && !self.is_reference() {
            true => self.intervene(runner, results, progress, stop),
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

/// Every one of `workloads` at every level, in the order of one repetition.
fn order<'w>(
    experiment: &'w Experiment,
    workloads: &'w [Workload],
    repetition: u32,
) -> Vec<(&'w Workload, u32)> {
    let mut order: Vec<_> = workloads
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
    let Workload { name, about, levels, published, .. } = workload.clone();
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
