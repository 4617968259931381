//! Carries an experiment out: starts what is measured, runs every trial, keeps every number.
//!
//! A repetition is a block: the target is fresh at its start, and all workloads and levels run within it in random
//! order, so that whatever drifts over time does not look like an effect of the level. What was measured is saved
//! after each trial; a trial that fails is a row with its reason, never a missing one. Prints nothing.

mod calendar;
mod environment;
mod load;
mod postgres;
mod process;
mod server;

pub use calendar::Utc;
pub use postgres::{Options as PostgresOptions, Postgres};

use super::experiment::{DATABASE, Experiment, FJALL, GENERATOR, POSTGRES, SERVER, Target, Workload};
use super::results::{Placement, Reading, Resource, ResourceKind, Results, Trial, WorkloadPlan};
use super::sampler::{Context, Samplers, device_of, get};
use super::{simulated, topology};
use crate::proto::{FORMAT, HEALTHZ};
use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use server::{Server, Start};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

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
    let placements = topology::plan(&cores, &experiment.parts(), &experiment.cores)?;
    let mut rig: Box<dyn Rig> = match &experiment.target {
        Target::Simulated(model) => Box::new(Modelled { model, experiment }),
        _ => Box::new(Live::new(experiment, options, &placements, cores, stop)),
    };
    let mut results = Results {
        format: FORMAT,
        weir_version: env!("CARGO_PKG_VERSION").to_owned(),
        name: experiment.name.clone(),
        title: experiment.title.clone(),
        experiment_toml: experiment.toml.clone(),
        command: options.command.clone(),
        started: Utc::at(SystemTime::now()).to_string(),
        seed: experiment.seed,
        environment: Vec::new(),
        placements: placements.clone(),
        resources: Vec::new(),
        workloads: experiment.workloads.iter().map(plan_of).collect(),
        levels: experiment.levels.clone(),
        repetitions: experiment.repetitions,
        trials: Vec::new(),
    };
    let total = experiment.workloads.len() * experiment.levels.len() * experiment.repetitions as usize;
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
trait Rig {
    /// Makes the target fresh for a repetition.
    fn begin(&mut self) -> Result<(), String>;
    /// Where it is measured; after the first [`Rig::begin`].
    fn environment(&self) -> Vec<(String, String)>;
    /// What its requests wait for; after the first [`Rig::begin`].
    fn resources(&self) -> Vec<Resource>;
    /// Runs one trial. A failure is part of it.
    fn trial(&mut self, workload: &Workload, level: u32, repetition: u32) -> Trial;
}

/// A queueing model in place of a system.
struct Modelled<'a> {
    model: &'a simulated::Model,
    experiment: &'a Experiment,
}

impl Rig for Modelled<'_> {
    fn begin(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn environment(&self) -> Vec<(String, String)> {
        vec![("target".into(), "a queueing model; no machine was measured".into())]
    }

    fn resources(&self) -> Vec<Resource> {
        simulated::resources(self.model)
    }

    fn trial(&mut self, workload: &Workload, level: u32, repetition: u32) -> Trial {
        let Experiment { seed, warmup, window, .. } = self.experiment;
        simulated::trial(self.model, &workload.name, level, repetition, *seed, *warmup, *window)
    }
}

/// Processes on this machine, or a server that runs already.
struct Live<'a> {
    experiment: &'a Experiment,
    options: &'a Options,
    placements: &'a [Placement],
    cores: Vec<usize>,
    stop: &'a AtomicBool,
    // In the order in which they must go: the server before its store.
    server: Option<Server>,
    postgres: Option<Postgres>,
    data: Option<TempDir>,
    /// Databases made so far: each start of the server has one of its own.
    databases: u32,
    /// Workloads whose keys are in the target.
    preloaded: BTreeSet<String>,
    /// Why the server could not be started again in this repetition; it is not tried for each trial.
    broken: Option<String>,
}

impl<'a> Live<'a> {
    fn new(
        experiment: &'a Experiment,
        options: &'a Options,
        placements: &'a [Placement],
        cores: Vec<usize>,
        stop: &'a AtomicBool,
    ) -> Live<'a> {
        Live {
            experiment,
            options,
            placements,
            cores,
            stop,
            server: None,
            postgres: None,
            data: None,
            databases: 0,
            preloaded: BTreeSet::new(),
            broken: None,
        }
    }

    fn cores_of(&self, part: &str) -> &'a [usize] {
        let placement = self.placements.iter().find(|placement| placement.part == part);
        placement.map_or(&[], |placement| &placement.cores)
    }

    /// A new store for a `weir serve`; its URL.
    fn fresh_store(&mut self, store: &str) -> Result<String, String> {
        match store {
            FJALL => {
                // Beside the results, because a temporary folder is often memory, where a durable write costs nothing.
                let dir = tempfile::Builder::new().prefix("store-").tempdir_in(&self.options.dir);
                let dir = dir.map_err(|error| {
                    format!(
                        "{}: cannot make a store: {error}; make room or rights",
                        self.options.dir.display()
                    )
                })?;
                let url = format!("fjall:{}", dir.path().display());
                self.data = Some(dir);
                Ok(url)
            }
            POSTGRES => {
                let settings = self.experiment.postgres.clone().unwrap_or_default().settings;
                let running = self.postgres.take().and_then(|mut one| one.lives().then_some(one));
                let postgres = match running {
                    Some(running) => running,
                    None => Postgres::start(PostgresOptions {
                        cores: self.cores_of(DATABASE).to_vec(),
                        settings,
                        parents: vec![self.options.dir.clone()],
                        log: Some(self.options.dir.join("postgres.log")),
                    })?,
                };
                let postgres = self.postgres.insert(postgres);
                let database = format!("block_{}", self.databases);
                self.databases += 1;
                postgres.query("postgres", &format!("CREATE DATABASE {database}"))?;
                Ok(postgres.url_of(&database))
            }
            url => Ok(url.to_owned()),
        }
    }

    /// The address the requests go to.
    fn url(&self) -> Option<&str> {
        match &self.experiment.target {
            Target::Url { url } => Some(url),
            _ => self.server.as_ref().map(Server::url),
        }
    }

    fn data_dir(&self) -> Option<&Path> {
        let of_postgres = self.postgres.as_ref().map(Postgres::data);
        of_postgres.or(self.data.as_ref().map(TempDir::path))
    }

    /// What is sampled beside the generator.
    fn context(&self) -> Context {
        let server = self.server.as_ref().map(|server| (SERVER.to_owned(), server.pid()));
        let database = self.postgres.as_ref().and_then(Postgres::pid).map(|pid| (DATABASE.to_owned(), pid));
        let cores: BTreeSet<usize> =
            self.placements.iter().flat_map(|placement| &placement.cores).copied().collect();
        Context {
            parts: server.into_iter().chain(database).collect(),
            cores: cores.into_iter().collect(),
            data: self.data_dir().map(Path::to_owned),
            url: self.url().map(str::to_owned),
        }
    }
}

impl Rig for Live<'_> {
    fn begin(&mut self) -> Result<(), String> {
        self.preloaded.clear();
        self.broken = None;
        // The old server ends before its store goes.
        self.server = None;
        self.data = None;
        match &self.experiment.target {
            Target::Weir { store, args } => {
                let store = self.fresh_store(store)?;
                let start = Start {
                    program: &self.options.program,
                    store: &store,
                    args,
                    cores: self.cores_of(SERVER),
                    log: &self.options.dir.join("server.log"),
                };
                self.server = Some(Server::start(&start, self.stop)?);
            }
            Target::Url { url } => {
                // Any answer will do, also 404: it is only asked whether somebody is there.
                get(url, HEALTHZ, Duration::from_secs(5)).map_err(|error| {
                    format!("cannot reach {url}: {error}; start the server, or correct target.url")
                })?;
            }
            Target::Simulated(_) => {}
        }
        Ok(())
    }

    fn environment(&self) -> Vec<(String, String)> {
        environment::describe(&self.options.program, &self.cores, self.data_dir(), self.postgres.as_ref())
    }

    fn resources(&self) -> Vec<Resource> {
        let reading = Samplers::new(&self.context()).read();
        resources_of(self.placements, &reading, self.data_dir().and_then(device_of).as_deref())
    }

    fn trial(&mut self, workload: &Workload, level: u32, repetition: u32) -> Trial {
        // A server that died took its trial with it; the next ones get a new one.
        if self.server.as_mut().is_some_and(|server| !server.lives()) {
            self.broken = self.begin().err();
        }
        if let Some(why) = &self.broken {
            return failed(workload, level, repetition, why);
        }
        let run = load::Run {
            program: &self.options.program,
            url: self.url().unwrap_or_default(),
            workload,
            level,
            seed: self.experiment.seed.wrapping_add(u64::from(repetition)),
            warmup: self.experiment.warmup,
            window: self.experiment.window,
            preload: !self.preloaded.contains(&workload.name),
            cores: self.cores_of(GENERATOR),
            context: &self.context(),
            log: &self.options.dir.join("load.log"),
            limits: load::Limits::default(),
        };
        let mut outcome = run.run(self.stop);
        if outcome.preloaded {
            self.preloaded.insert(workload.name.clone());
        }
        let died = self.server.as_mut().is_some_and(|server| !server.lives());
        let ended = || died.then(|| "the server ended during the trial; server.log says why".to_owned());
        let (load, failure) = (outcome.report.take(), outcome.failure.take().or_else(ended));
        let (elapsed_secs, opened, closed) = outcome.readings();
        Trial {
            workload: workload.name.clone(),
            level,
            repetition,
            load,
            failure,
            elapsed_secs,
            opened,
            closed,
        }
    }
}

/// Everything a request may wait for that can be counted here.
fn resources_of(placements: &[Placement], reading: &Reading, device: Option<&str>) -> Vec<Resource> {
    let mut resources: Vec<Resource> = Vec::new();
    let generator = placements.iter().find(|placement| placement.part == GENERATOR);
    let targets: Vec<&Placement> =
        placements.iter().filter(|placement| placement.part != GENERATOR).collect();
    let cpu = |parts: &[&str], cores: &[usize], kind| Resource {
        name: format!("{} CPU", parts.join(" + ")),
        busy: parts.iter().map(|part| format!("{part}.cpu_secs")).collect(),
        servers: cores.len() as f64,
        kind,
    };
    for (index, placement) in targets.iter().enumerate() {
        let together: Vec<&Placement> =
            targets.iter().copied().filter(|other| other.cores == placement.cores).collect();
        // Parts on the same cores are one resource, named where the first of them stands.
        if targets[..index].iter().all(|earlier| earlier.cores != placement.cores) {
            let parts: Vec<&str> = together.iter().map(|placement| placement.part.as_str()).collect();
            resources.push(cpu(&parts, &placement.cores, ResourceKind::Station));
        }
    }
    let lanes = reading.gauges.iter().filter_map(|(name, count)| {
        let lane = name.strip_prefix("stats.weir_store_lanes{lane=\"")?.strip_suffix("\"}")?;
        // Where the server has several stores, theirs are told apart by a label behind the first.
        let name = match lane.split_once("\",shard=\"") {
            Some((lane, shard)) => format!("shard {shard} {lane} lanes"),
            None => format!("store {lane} lanes"),
        };
        (*count > 0.0).then(|| Resource {
            name,
            busy: vec![format!("stats.weir_store_busy_seconds_total{{lane=\"{lane}\"}}")],
            servers: *count,
            kind: ResourceKind::Station,
        })
    });
    resources.extend(lanes);
    resources.extend(device.map(|device| Resource {
        name: format!("disk {device}"),
        busy: vec![format!("disk.{device}.busy_secs")],
        servers: 1.0,
        kind: ResourceKind::Indication,
    }));
    resources.extend(generator.map(|placement| {
        // Sharing its cores, it is delayed by whatever else runs there: all of that is its load.
        let shared = placement.shares_with.iter().map(String::as_str);
        let parts: Vec<&str> = [GENERATOR].into_iter().chain(shared).collect();
        cpu(&parts, &placement.cores, ResourceKind::Generator)
    }));
    resources
}

/// Every workload at every level, in the order of one repetition.
fn order(experiment: &Experiment, repetition: u32) -> Vec<(&Workload, u32)> {
    let mut order: Vec<_> = experiment
        .workloads
        .iter()
        .flat_map(|workload| experiment.levels.iter().map(move |level| (workload, *level)))
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

fn plan_of(workload: &Workload) -> WorkloadPlan {
    WorkloadPlan { name: workload.name.clone(), about: workload.about.clone() }
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
    use std::collections::BTreeMap;

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

    /// The resources as lines of `name: counters / servers`.
    fn shown(cores: &[usize], parts: &[&str], gauges: &[(&str, f64)], device: Option<&str>) -> Vec<String> {
        let placements = topology::plan(cores, parts, &BTreeMap::new()).unwrap();
        let gauges = gauges.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
        let reading = Reading { counters: BTreeMap::new(), gauges };
        let line = |resource: Resource| {
            format!(
                "{}: {} / {} {:?}",
                resource.name,
                resource.busy.join(" "),
                resource.servers,
                resource.kind
            )
        };
        resources_of(&placements, &reading, device).into_iter().map(line).collect()
    }

    #[test]
    fn parts_on_the_same_cores_are_one_resource() {
        assert_eq!(
            shown(&[0, 1], &[SERVER, DATABASE, GENERATOR], &[], None),
            [
                "server + database CPU: server.cpu_secs database.cpu_secs / 1 Station",
                "generator CPU: generator.cpu_secs / 1 Generator"
            ]
        );
        assert_eq!(
            shown(&[0, 1, 2, 3], &[SERVER, DATABASE, GENERATOR], &[], None),
            [
                "server CPU: server.cpu_secs / 2 Station",
                "database CPU: database.cpu_secs / 1 Station",
                "generator CPU: generator.cpu_secs / 1 Generator"
            ]
        );
    }

    #[test]
    fn a_generator_without_cores_of_its_own_answers_for_all_on_them() {
        assert_eq!(
            shown(&[0], &[SERVER, GENERATOR], &[], None),
            [
                "server CPU: server.cpu_secs / 1 Station",
                "generator + server CPU: generator.cpu_secs server.cpu_secs / 1 Generator"
            ]
        );
    }

    #[test]
    fn the_lanes_of_several_stores_are_told_apart() {
        let gauges = [("stats.weir_store_lanes{lane=\"write\",shard=\"1\"}", 2.0)];
        assert_eq!(
            shown(&[0, 1], &[SERVER, GENERATOR], &gauges, None)[1],
            "shard 1 write lanes: stats.weir_store_busy_seconds_total{lane=\"write\",shard=\"1\"} / 2 Station"
        );
    }

    #[test]
    fn lanes_and_disk_are_resources_where_they_are_counted() {
        let gauges = [
            ("stats.weir_store_lanes{lane=\"read\"}", 4.0),
            ("stats.weir_store_lanes{lane=\"write\"}", 1.0),
            ("stats.weir_cache_bytes", 9.0),
        ];
        assert_eq!(
            shown(&[0, 1], &[SERVER, GENERATOR], &gauges, Some("vda"))[1..4],
            [
                "store read lanes: stats.weir_store_busy_seconds_total{lane=\"read\"} / 4 Station",
                "store write lanes: stats.weir_store_busy_seconds_total{lane=\"write\"} / 1 Station",
                "disk vda: disk.vda.busy_secs / 1 Indication"
            ]
        );
    }
}
