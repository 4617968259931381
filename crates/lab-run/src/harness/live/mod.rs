//! What trials run against: processes on this machine, started and limited as the experiment says, or a server that
//! runs already.

mod change;
mod start;

use super::fleet::Fleet;
use super::link::Link;
use super::resources::resources_of;
use super::runner::Length;
use super::search::Offered;
use super::server::Server;
use super::services::{self, Services};
use super::sizes::of_server;
use super::{Options, Precision, Runner, TargetRun, environment, failed, load};
use crate::sampler::{self, Cap, Context, Samplers, device_of, get};
use kv::proto::{HEALTHZ, SecondReport};
use lab_data::experiment::{Commands, Experiment, Fresh, GENERATOR, LINK, SERVER, Target, Workload};
use lab_data::results::{Change, Resource, SLOWER_GENERATOR, Trial};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use tempfile::TempDir;

/// Processes on this machine, or a server that runs already.
pub(super) struct LiveRunner<'a> {
    target_run: &'a TargetRun<'a>,
    cores: Vec<usize>,
    stop: &'a AtomicBool,
    services: Option<Services>,
    // In the order in which they must go: the server before its stores.
    link: Option<Link>,
    server: Option<Server>,
    fleet: Fleet,
    data: Vec<TempDir>,
    /// Where the library that delays flushes is, once a server needs it.
    shim: Option<TempDir>,
    /// Where the server of this repetition finds its stores, and the replica.
    stores: Vec<String>,
    replica: Option<String>,
    /// The flags the server runs with beyond the target's: those of the workload it was started for.
    serving: &'a [String],
    /// The fault `fail` that the server shall have once keys are written, as in `fail=4`.
    failing: Option<String>,
    /// Workloads whose keys are in the target.
    preloaded: BTreeSet<String>,
    /// Whether a trial has been run on what was started last.
    used: bool,
    /// Why the server could not be started again in this repetition; it is not tried for each trial.
    broken: Option<String>,
    /// What trying out the write caps showed.
    probes: Vec<(String, String)>,
    /// The write cap in force.
    cap: Option<Cap>,
    /// What was changed for a trial and is not known to be as it was: limits and databases outlive the server.
    changed: Option<Change>,
    /// Whether the trial is one of a round, which all go the same way through the server.
    in_round: bool,
    /// Whether faults were added to the server for such a trial and not removed yet.
    has_faults: bool,
    /// How often something died and all was started anew.
    revivals: u32,
    /// Trials begun so far.
    ran: u64,
}

impl<'a> LiveRunner<'a> {
    /// Nothing is started yet. `ran` trials of the run have been begun before.
    pub(super) fn new(
        target_run: &'a TargetRun<'a>,
        cores: Vec<usize>,
        ran: u64,
        stop: &'a AtomicBool,
    ) -> Result<LiveRunner<'a>, String> {
        let TargetRun { experiment, subject, workloads, placements, options } = target_run;
        let target = &subject.target;
        Ok(LiveRunner {
            target_run,
            cores,
            stop,
            services: None,
            link: None,
            server: None,
            fleet: Fleet::new(experiment, target, workloads, placements, &options.dir, &options.program)?,
            data: Vec::new(),
            shim: None,
            stores: Vec::new(),
            replica: None,
            serving: &[],
            failing: None,
            preloaded: BTreeSet::new(),
            used: false,
            broken: None,
            probes: Vec::new(),
            cap: None,
            changed: None,
            in_round: false,
            has_faults: false,
            revivals: 0,
            ran,
        })
    }

    /// The address the requests go to; where there is a link, the link's.
    fn load_url(&self) -> &str {
        self.link.as_ref().map(Link::url).or(self.url()).unwrap_or_default()
    }

    /// The address of the server.
    fn url(&self) -> Option<&str> {
        match &self.target_run.subject.target {
            Target::Url { url } => Some(url),
            Target::Command(_) => self.services.as_ref().map(Services::url),
            _ => self.server.as_ref().map(Server::url),
        }
    }

    fn data_dir(&self) -> Option<&Path> {
        let own = self.services.as_ref().map(Services::dir).or(self.data.first().map(TempDir::path));
        self.fleet.data().or(own)
    }

    /// What is sampled beside the generator.
    fn context(&self) -> Context {
        let server = self.server.as_ref().map(|server| (SERVER.to_owned(), server.pid()));
        let databases = self
            .fleet
            .members()
            .filter_map(|(database, server)| Some((database.part.clone(), server.pid()?)));
        let services = self.services.iter().flat_map(Services::parts);
        let link = self.link.as_ref().map(|link| (LINK.to_owned(), link.pid()));
        let cores: BTreeSet<usize> =
            self.target_run.placements.iter().flat_map(|placement| &placement.cores).copied().collect();
        Context {
            parts: server.into_iter().chain(databases).chain(services).chain(link).collect(),
            cores: cores.into_iter().collect(),
            data: self.data_dir().map(Path::to_owned),
            // Of a strange server nothing is asked that it might not end.
            url: self.url().filter(|_| self.services.is_none()).map(str::to_owned),
            load_url: Some(self.load_url().to_owned()),
            databases: self.databases(),
            cap: self.cap.clone(),
            link: self.link.as_ref().map(Link::asked),
            ends_only: !self.target_run.subject.sampling,
        }
    }

    /// The databases behind the server, to be asked what they do.
    fn databases(&self) -> Vec<sampler::Database> {
        let members = self.fleet.members();
        let of = members
            .map(|(database, server)| (database.part.clone(), database.engine, self.fleet.url(server)));
        of.map(|(part, engine, url)| sampler::Database { part, engine, url }).collect()
    }

    /// Starts what has died anew: it took its trial with it, the next ones get new ones.
    fn revive(&mut self) -> Result<(), String> {
        let died = self.server.as_mut().is_some_and(|server| !server.lives());
        let died = died || self.link.as_mut().is_some_and(|link| !link.lives());
        let died =
            died || !self.fleet.lives() || self.services.as_mut().is_some_and(|of| of.ended().is_some());
        if died || self.is_stale() {
            self.revivals += u32::from(died);
            self.broken = self.begin().err();
        }
        self.broken.clone().map_or(Ok(()), Err)
    }

    /// Has `run` run a trial with `change` made, on a target that lives and is as `workload` wants it, and unmakes the change. A failure is
    /// part of the trial.
    fn trial_of(
        &mut self,
        workload: &'a Workload,
        level: u32,
        repetition: u32,
        change: Option<&Change>,
        run: impl FnOnce(&mut LiveRunner<'a>) -> Trial,
    ) -> Trial {
        let ready = self.revive().and_then(|()| self.restore()).and_then(|()| self.prepare(workload));
        if let Err(why) = ready {
            return failed(workload, level, repetition, &why);
        }
        // Before it is made: what was made in part has to be unmade, too.
        self.changed = change.cloned();
        let made = self.cap_writes(workload.write_cap).and_then(|()| self.apply(workload, change));
        let trial = match made {
            Ok(()) => run(self),
            Err(why) => failed(workload, level, repetition, &why),
        };
        // What cannot be unmade now is unmade before the next trial, or that one fails for it.
        let _ = self.restore();
        trial
    }

    /// Whether it is wanted anew for each trial, and is no longer new.
    fn is_stale(&self) -> bool {
        matches!(&self.target_run.subject.target, Target::Command(Commands { fresh: Fresh::Trial, .. }) if self.used)
    }

    /// One run of the load generator.
    fn run(&mut self, workload: &Workload, level: u32, repetition: u32, length: Length) -> Trial {
        self.used = true;
        self.ran += 1;
        let precision = length.adaptive.map(|adaptive| Precision {
            least: length.window.0,
            adaptive,
            is_open: workload.is_open(),
        });
        let enough = |bins: &[SecondReport]| {
            precision.is_some_and(|precision| (self.target_run.options.enough)(&precision, bins))
        };
        let preload = !self.preloaded.contains(&workload.name);
        // What fails some requests must not fail those that write and read back the keys.
        let fail = |fails: bool| self.failing.as_ref().map_or(Ok(()), |_| self.inject(fails));
        if let Err(why) = fail(!preload) {
            return failed(workload, level, repetition, &why);
        }
        let run = load::Run {
            program: &self.target_run.options.program,
            url: self.load_url(),
            workload,
            level,
            // Another for each trial: the same requests again would find what the last ones left in the cache.
            seed: self.target_run.experiment.seed.wrapping_add(self.ran),
            warmup: length.warmup,
            window: length.adaptive.map_or(length.window, |adaptive| adaptive.most),
            enough: precision.is_some().then_some(&enough),
            preload,
            added_cpu_us: self
                .changed
                .as_ref()
                .filter(|of| of.name == SLOWER_GENERATOR)
                .map(|of| of.added_us),
            cores: self.target_run.cores_of(GENERATOR),
            context: &self.context(),
            log: &self.target_run.options.dir.join("load.log"),
            started: &|pid| self.fleet.take(GENERATOR, pid),
            filled: &|| fail(true),
            limits: load::Limits::default(),
        };
        let mut outcome = run.run(self.stop);
        if outcome.preloaded {
            self.preloaded.insert(workload.name.clone());
        }
        let died = self.server.as_mut().is_some_and(|server| !server.lives());
        let died = died.then(|| "the server ended during the trial; server.log says why".to_owned());
        let cut = self.link.as_mut().is_some_and(|link| !link.lives());
        let cut = cut.then(|| "the link ended during the trial; link.log says why".to_owned());
        let ended = || {
            let services = || self.services.as_mut()?.ended();
            died.or(cut).or_else(services).or_else(|| self.fleet.ended())
        };
        // Whoever has no answer says so, too; but this is why.
        let (load, failure) = (outcome.report.take(), ended().or(outcome.failure.take()));
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

impl<'a> Runner<'a> for LiveRunner<'a> {
    fn begin(&mut self) -> Result<(), String> {
        self.preloaded.clear();
        self.used = false;
        self.broken = None;
        // The old server ends before its store goes.
        self.link = None;
        self.server = None;
        self.services = None;
        self.data.clear();
        match &self.target_run.subject.target {
            Target::Weir { store, args, .. } => {
                self.refresh_stores(store)?;
                self.serve(args, &[])?;
                self.probe_limits()?;
            }
            Target::Command(commands) => {
                let Options { program, dir, .. } = &self.target_run.options;
                let cores = |part: &str| self.target_run.cores_of(part);
                let start = services::Start { commands, program, dir, cores: &cores };
                self.services = Some(Services::start(&start, self.stop)?);
            }
            Target::Url { url } => {
                // Any answer will do, also 404: it is only asked whether somebody is there.
                get(url, HEALTHZ, Duration::from_secs(5)).map_err(|error| {
                    format!("cannot reach {url}: {error}; hint: start the server, or correct target.url")
                })?;
            }
            Target::Simulated(_) => {}
        }
        Ok(())
    }

    fn environment(&self) -> Vec<(String, String)> {
        let mut facts = environment::describe(
            &self.target_run.options.program,
            &self.cores,
            self.data_dir(),
            &self.fleet,
        );
        if let Some(of) = self.target_run.experiment.cores.of.filter(|of| *of > self.cores.len()) {
            let said = format!("the file's, for {of} cores, scaled down to {}", self.cores.len());
            facts.push(("placement".into(), said));
        }
        if let Some(memory) = self.target_run.experiment.limits.memory {
            facts.push(("memory limit".into(), format!("{memory} for each database")));
        }
        if let Target::Command(commands) = &self.target_run.subject.target {
            facts.extend(services::describe(commands, &self.target_run.options.program));
        }
        if let Some(delay) = self.target_run.subject.target.flush_delay() {
            facts.push((
                "flush delay".into(),
                format!("{delay} added to every fsync and fdatasync of the stores"),
            ));
        }
        if let Some(link) = self.target_run.subject.target.link() {
            let rate = link.rate.map(|rate| format!("{rate} in each direction"));
            let delay = link.delay.map(|delay| format!("{delay} in each direction"));
            facts.push(("link".into(), rate.into_iter().chain(delay).collect::<Vec<_>>().join(", ")));
        }
        facts.extend(self.probes.iter().cloned());
        facts
    }

    fn resources(&self) -> Vec<Resource> {
        let reading = Samplers::new(&self.context()).read();
        resources_of(&self.target_run.placements, &reading, self.data_dir().and_then(device_of).as_deref())
    }

    fn trial(&mut self, workload: &'a Workload, level: u32, repetition: u32) -> Trial {
        let Experiment { warmup, window, adaptive, .. } = *self.target_run.experiment;
        let length = Length { warmup, window, adaptive };
        self.trial_of(workload, level, repetition, None, |live| live.run(workload, level, repetition, length))
    }

    fn offered(&mut self, workload: &'a Workload, offered: &Offered, repetition: u32) -> Trial {
        let mut paced = workload.clone();
        paced.args.extend(offered.flags());
        let Offered { clients, warmup, window, .. } = *offered;
        let length = Length { warmup, window, adaptive: None };
        self.trial_of(workload, clients, repetition, None, |live| {
            live.run(&paced, clients, repetition, length)
        })
    }

    fn interventions(&mut self, workload: &'a Workload) -> Result<Vec<String>, String> {
        let target = &self.target_run.subject.target;
        let Target::Weir { .. } = target else { return Ok(vec![SLOWER_GENERATOR.to_owned()]) };
        self.revive()?;
        self.prepare(workload)?;
        let only_stats = Context { url: self.url().map(str::to_owned), ..Context::default() };
        let own = [
            ("link", target.link().is_some_and(|link| link.rate.is_some())),
            ("write_cap", workload.write_cap.is_some()),
            ("commit", self.fleet.has_postgres()),
            ("database_cpu", target.quota().database.is_some()),
            (SLOWER_GENERATOR, true),
        ];
        let own = own.into_iter().filter(|(_, is_there)| *is_there).map(|(name, _)| name);
        let all = of_server(&Samplers::new(&only_stats).read()).into_iter().chain(own);
        Ok(all.map(str::to_owned).collect())
    }

    fn revivals(&self) -> u32 {
        self.revivals
    }

    fn intervene(
        &mut self,
        workload: &'a Workload,
        level: u32,
        round: u32,
        length: Length,
        change: Option<&Change>,
    ) -> Trial {
        self.in_round = true;
        let trial =
            self.trial_of(workload, level, round, change, |live| live.run(workload, level, round, length));
        self.in_round = false;
        trial
    }
}

/// The number by which the kernel knows the disk under `path`: `254:0`.
fn device_number(path: &Path) -> Result<String, String> {
    let number = device_of(path).and_then(|name| fs::read_to_string(format!("/sys/block/{name}/dev")).ok());
    number.map(|text| text.trim().to_owned()).ok_or_else(|| {
        format!("{}: no disk of its own to cap; use a folder on a disk, or remove write_cap", path.display())
    })
}
