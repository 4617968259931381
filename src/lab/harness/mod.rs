//! Carries an experiment out: starts what is measured, runs every trial, keeps every number.
//!
//! A repetition is a block: the target is fresh at its start, and all workloads and levels run within it in random
//! order, so that whatever drifts over time does not look like an effect of the level. What was measured is saved
//! after each trial; a trial that fails is a row with its reason, never a missing one. Prints nothing.

mod calendar;
mod environment;
mod fleet;
mod limits;
mod load;
mod postgres;
mod process;
mod server;

pub use calendar::Utc;
pub use postgres::{Options as PostgresOptions, Postgres};

use super::experiment::{Experiment, FJALL, GENERATOR, SERVER, Target, Workload};
use super::printed::PrintedRow;
use super::results::{Placement, Reading, Resource, ResourceKind, Results, Trial, WorkloadPlan};
use super::sampler::{Context, Samplers, device_of, get};
use super::{simulated, topology};
use crate::proto::{FORMAT, HEALTHZ};
use crate::units::Size;
use fleet::Fleet;
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

/// Processes on this machine, or a server that runs already.
struct Live<'a> {
    experiment: &'a Experiment,
    options: &'a Options,
    placements: &'a [Placement],
    cores: Vec<usize>,
    stop: &'a AtomicBool,
    // In the order in which they must go: the server before its stores.
    server: Option<Server>,
    fleet: Fleet,
    data: Vec<TempDir>,
    /// Where the server of this repetition finds its stores, and the replica.
    stores: Vec<String>,
    replica: Option<String>,
    /// The flags the server runs with beyond the target's: those of the workload it was started for.
    serving: &'a [String],
    /// Workloads whose keys are in the target.
    preloaded: BTreeSet<String>,
    /// Why the server could not be started again in this repetition; it is not tried for each trial.
    broken: Option<String>,
    /// What trying out the write caps showed.
    probes: Vec<(String, String)>,
}

impl<'a> Live<'a> {
    fn new(
        experiment: &'a Experiment,
        options: &'a Options,
        placements: &'a [Placement],
        cores: Vec<usize>,
        stop: &'a AtomicBool,
    ) -> Result<Live<'a>, String> {
        Ok(Live {
            experiment,
            options,
            placements,
            cores,
            stop,
            server: None,
            fleet: Fleet::new(experiment, placements, &options.dir, &options.program)?,
            data: Vec::new(),
            stores: Vec::new(),
            replica: None,
            serving: &[],
            preloaded: BTreeSet::new(),
            broken: None,
            probes: Vec::new(),
        })
    }

    fn cores_of(&self, part: &str) -> &'a [usize] {
        let placement = self.placements.iter().find(|placement| placement.part == part);
        placement.map_or(&[], |placement| &placement.cores)
    }

    /// New and empty stores for a `weir serve`.
    fn refresh_stores(&mut self, names: &[String]) -> Result<(), String> {
        let urls = self.fleet.refresh()?;
        self.replica = urls.replica;
        self.stores.clear();
        for (index, name) in names.iter().enumerate() {
            let url = match urls.stores.get(&index) {
                Some(url) => url.clone(),
                None if name == FJALL => self.fresh_directory()?,
                None => name.clone(),
            };
            self.stores.push(url);
        }
        Ok(())
    }

    /// The URL of an embedded store in a directory of its own.
    fn fresh_directory(&mut self) -> Result<String, String> {
        // Beside the results, because a temporary folder is often memory, where a durable write costs nothing.
        let dir = tempfile::Builder::new().prefix("store-").tempdir_in(&self.options.dir);
        let dir = dir.map_err(|error| {
            format!("{}: cannot make a store: {error}; make room or rights", self.options.dir.display())
        })?;
        let url = format!("fjall:{}", dir.path().display());
        self.data.push(dir);
        Ok(url)
    }

    /// Starts the server over the stores of this repetition, with `flags` beyond the target's.
    fn serve(&mut self, args: &[String], flags: &'a [String]) -> Result<(), String> {
        // The old one ends before the new one claims the stores, and takes with it what it kept in memory.
        self.server = None;
        if self.stores.iter().any(|store| store.starts_with("memory:")) {
            self.preloaded.clear();
        }
        let args: Vec<String> = args.iter().chain(flags).cloned().collect();
        let start = Start {
            program: &self.options.program,
            stores: &self.stores,
            replica: self.replica.as_deref(),
            args: &args,
            cores: self.cores_of(SERVER),
            log: &self.options.dir.join("server.log"),
        };
        let server = Server::start(&start, self.stop)?;
        self.fleet.take_server(server.pid())?;
        self.serving = flags;
        self.server = Some(server);
        Ok(())
    }

    /// Has the server run as `workload` wants it.
    fn prepare(&mut self, workload: &'a Workload) -> Result<(), String> {
        match &self.experiment.target {
            Target::Weir { args, .. } if self.serving != workload.serve => self.serve(args, &workload.serve),
            _ => Ok(()),
        }
    }

    /// Tries every write cap of the experiment out, once.
    fn probe_caps(&mut self) -> Result<(), String> {
        if !self.probes.is_empty() {
            return Ok(());
        }
        let caps: BTreeSet<u64> =
            self.experiment.workloads.iter().filter_map(|workload| Some(workload.write_cap?.0)).collect();
        let (Some(limits), Some(dir)) = (self.fleet.limits(), self.data_dir()) else { return Ok(()) };
        let device = device_number(dir)?;
        let mut probes = Vec::new();
        for cap in caps {
            let written = limits.probe(&device, cap, dir)?;
            let said = format!("dd wrote {:.1} MB/s under it", written / 1e6);
            probes.push((format!("write cap {}/s", Size(cap)), said));
        }
        self.probes = probes;
        Ok(())
    }

    /// Caps what is written to the disk, or lifts the cap.
    fn cap_writes(&self, cap: Option<Size>) -> Result<(), String> {
        match (self.fleet.limits(), self.data_dir()) {
            (Some(limits), Some(dir)) if limits.capped().is_some() => {
                limits.cap_writes(&device_number(dir)?, cap.map(|cap| cap.0))
            }
            _ => Ok(()),
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
        self.fleet.data().or(self.data.first().map(TempDir::path))
    }

    /// What is sampled beside the generator.
    fn context(&self) -> Context {
        let server = self.server.as_ref().map(|server| (SERVER.to_owned(), server.pid()));
        let databases = self
            .fleet
            .members()
            .filter_map(|(database, server)| Some((database.part.clone(), server.pid()?)));
        let cores: BTreeSet<usize> =
            self.placements.iter().flat_map(|placement| &placement.cores).copied().collect();
        Context {
            parts: server.into_iter().chain(databases).collect(),
            cores: cores.into_iter().collect(),
            data: self.data_dir().map(Path::to_owned),
            url: self.url().map(str::to_owned),
        }
    }

    fn run(&mut self, workload: &Workload, level: u32, repetition: u32) -> Trial {
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

impl<'a> Rig<'a> for Live<'a> {
    fn begin(&mut self) -> Result<(), String> {
        self.preloaded.clear();
        self.broken = None;
        // The old server ends before its store goes.
        self.server = None;
        self.data.clear();
        match &self.experiment.target {
            Target::Weir { store, args, .. } => {
                self.refresh_stores(store)?;
                self.serve(args, &[])?;
                self.probe_caps()?;
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
        let mut facts =
            environment::describe(&self.options.program, &self.cores, self.data_dir(), &self.fleet);
        if let Some(of) = self.experiment.cores.of.filter(|of| *of > self.cores.len()) {
            let said = format!("the file's, for {of} cores, scaled down to {}", self.cores.len());
            facts.push(("placement".into(), said));
        }
        if let Some(memory) = self.experiment.limits.memory {
            facts.push(("memory limit".into(), format!("{memory} for each database")));
        }
        facts.extend(self.probes.iter().cloned());
        facts
    }

    fn resources(&self) -> Vec<Resource> {
        let reading = Samplers::new(&self.context()).read();
        resources_of(self.placements, &reading, self.data_dir().and_then(device_of).as_deref())
    }

    fn trial(&mut self, workload: &'a Workload, level: u32, repetition: u32) -> Trial {
        // A server that died took its trial with it; the next ones get a new one.
        if self.server.as_mut().is_some_and(|server| !server.lives()) {
            self.broken = self.begin().err();
        }
        if let Some(why) = &self.broken {
            return failed(workload, level, repetition, why);
        }
        let ready = self.prepare(workload).and_then(|()| self.cap_writes(workload.write_cap));
        let trial = match ready {
            Ok(()) => self.run(workload, level, repetition),
            Err(why) => failed(workload, level, repetition, &why),
        };
        match self.cap_writes(None) {
            Ok(()) => trial,
            // The next trial would be measured under a cap nobody asked for.
            Err(why) => {
                self.broken = Some(why);
                trial
            }
        }
    }
}

/// The number by which the kernel knows the disk under `path`: `254:0`.
fn device_number(path: &Path) -> Result<String, String> {
    let number = device_of(path).and_then(|name| fs::read_to_string(format!("/sys/block/{name}/dev")).ok());
    number.map(|text| text.trim().to_owned()).ok_or_else(|| {
        format!("{}: no disk of its own to cap; use a folder on a disk, or remove write_cap", path.display())
    })
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
        servers_gauge: None,
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
        let labels = name.strip_prefix("stats.weir_store_lanes")?;
        let of = |label: &str| Some(labels.split_once(&format!("{label}=\""))?.1.split_once('"')?.0);
        let shard = of("shard").map(|shard| format!(" of shard {shard}")).unwrap_or_default();
        (*count > 0.0).then_some(())?;
        Some(Resource {
            name: format!("store {} lanes{shard}", of("lane")?),
            busy: vec![format!("stats.weir_store_busy_seconds_total{labels}")],
            servers: *count,
            servers_gauge: Some(name.clone()),
            kind: ResourceKind::Station,
        })
    });
    resources.extend(lanes);
    resources.extend(device.map(|device| Resource {
        name: format!("disk {device}"),
        busy: vec![format!("disk.{device}.busy_secs")],
        servers: 1.0,
        servers_gauge: None,
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
    use super::super::experiment::{Cores, DATABASE};
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
        let placements = topology::plan(cores, parts, &Cores::default()).unwrap();
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
