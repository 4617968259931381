//! What trials run against: processes on this machine, started and limited as the experiment says, or a server that
//! runs already.

mod change;
mod start;

use super::fleet::Fleet;
use super::link::Link;
use super::ports::on_free_ports;
use super::process::{Listening, Process};
use super::runner::Planned;
use super::services::{self, Services};
use super::{Runner, TargetRun, environment, faults, load};
use crate::http::answers;
use crate::sampler::{Cap, Context, device_of};
use kv::Error;
use kv::proto::HEALTHZ;
use lab_data::experiment::{Commands, Fresh, GENERATOR, HTTPS, SERVER, Target};
use lab_data::results::{Change, Trial};
use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use tempfile::TempDir;

/// Processes on this machine, or a server that runs already.
pub(super) struct LiveRunner<'a> {
    target_run: &'a TargetRun<'a>,
    // Before the databases, whose server must go first.
    started: Started,
    fleet: Fleet<'a>,
    /// What trying out the limits showed.
    probes: Vec<(String, String)>,
    /// The write cap in force.
    cap: Option<Cap>,
    /// What was changed for a trial and is not known to be as it was: limits and databases outlive the server.
    changed: Option<Change>,
    /// Whether the trial is one of a round: its server has faults, until they are removed.
    in_round: bool,
    /// Whether all requests of the round are to be off the server's fast path.
    may_wait: bool,
    /// How often something died and all was started anew.
    revivals: u32,
    /// Trials begun so far.
    ran: u64,
}

/// What is started anew for each repetition, in the order in which it must go: the server before its stores.
#[derive(Default)]
struct Started {
    services: Option<Services>,
    link: Option<Link>,
    /// Several share the store.
    servers: Vec<Listening>,
    /// Before databases that are cut off at some time.
    database_links: Vec<Link>,
    /// Where the libraries are that are preloaded into the servers.
    shims: Vec<TempDir>,
    data: Vec<TempDir>,
    /// Where the server finds its stores.
    stores: Vec<String>,
    /// The flags the server runs with beyond the target's: those of the workload it was started for.
    serving: Vec<String>,
    /// The fault `fail` that the server shall have once keys are written, as in `fail=4`.
    failing: Option<String>,
    /// Workloads whose keys are in the target.
    preloaded: BTreeSet<String>,
    /// Whether a trial has been run on it.
    used: bool,
    /// Why the server could not be started again; it is not tried for each trial.
    broken: Option<Error>,
}

impl<'a> LiveRunner<'a> {
    /// Nothing is started yet. `ran` trials of the run have been begun before.
    pub(super) fn new(target_run: &'a TargetRun, ran: u64) -> Result<LiveRunner<'a>, Error> {
        Ok(LiveRunner {
            target_run,
            started: Started::default(),
            fleet: Fleet::new(target_run)?,
            probes: Vec::new(),
            cap: None,
            changed: None,
            in_round: false,
            may_wait: false,
            revivals: 0,
            ran,
        })
    }

    /// The addresses the requests go to; where there is a link, the link's.
    fn load_urls(&self) -> Vec<String> {
        let urls = self.urls();
        let Some(link) = &self.started.link else { return urls };
        // It carries bytes, of TLS too.
        let is_tls = urls.iter().any(|url| url.starts_with(HTTPS));
        vec![if is_tls { link.url.replacen("http://", HTTPS, 1) } else { link.url.clone() }]
    }

    /// The addresses of the servers.
    fn urls(&self) -> Vec<String> {
        match &self.target_run.subject.target {
            Target::Url { url } => vec![url.clone()],
            Target::Command(_) => self.started.services.iter().map(|services| services.url.clone()).collect(),
            _ => self.started.servers.iter().map(|server| server.url.clone()).collect(),
        }
    }

    fn data_dir(&self) -> Option<&Path> {
        let own = self.started.services.as_ref().map(|services| &services.dir).or(self.started.data.first());
        self.fleet.data().or(own.map(TempDir::path))
    }

    /// The processes of the target, each called like the part it is.
    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        let server = self.started.servers.iter_mut().map(|server| &mut server.process);
        let services = self.started.services.iter_mut().flat_map(|services| &mut services.running);
        let links = self.started.link.iter_mut().chain(&mut self.started.database_links);
        let link = links.map(|link| &mut link.process);
        server.chain(self.fleet.processes()).chain(services).chain(link)
    }

    /// What is sampled beside the generator.
    fn context(&mut self) -> Context {
        let parts = self.processes().map(|process| (process.name.clone(), process.pid())).collect();
        let cores: BTreeSet<usize> =
            self.target_run.placements.iter().flat_map(|placement| &placement.cores).copied().collect();
        Context {
            parts,
            cores: cores.into_iter().collect(),
            data: self.data_dir().map(Path::to_owned),
            // Of a strange server nothing is asked that it might not end.
            urls: if self.started.services.is_none() { self.urls() } else { Vec::new() },
            load_urls: self.load_urls(),
            databases: self.fleet.databases(),
            cassandra: self.fleet.nodes.iter().flat_map(|nodes| nodes.cassandra()).collect(),
            cap: self.cap.clone(),
            link: self.started.link.as_ref().map(|link| link.asked.clone()),
            ends_only: !self.target_run.subject.sampling,
        }
    }

    /// Starts anew what has died, and took its trial with it, or what each trial wants new.
    fn revive(&mut self) -> Result<(), Error> {
        let died = self.processes().any(|process| process.ended().is_some());
        let target = &self.target_run.subject.target;
        // What was broken, and writes that are still on their way, are nothing for the next trial.
        let is_fresh_each = matches!(target, Target::Command(Commands { fresh: Fresh::Trial, .. }))
            || !self.target_run.experiment.faults.is_empty();
        if died || (is_fresh_each && self.started.used) {
            self.revivals += u32::from(died);
            self.started.broken = self.begin().err();
        }
        self.started.broken.clone().map_or(Ok(()), Err)
    }

    /// Another for each trial: the same requests again would find what the last ones left in the cache.
    fn seed(&self) -> u64 {
        self.target_run.experiment.seed.wrapping_add(self.ran)
    }

    /// One run of the load generator.
    fn run(&mut self, planned: &Planned) -> Trial {
        let workload = &planned.workload.name;
        self.started.used = true;
        self.ran += 1;
        let TargetRun { experiment, options, .. } = self.target_run;
        let is_filled = self.started.preloaded.contains(workload);
        // What fails some requests must not fail those that write and read back the keys.
        let fail =
            |live: &LiveRunner, fails| live.started.failing.as_ref().map_or(Ok(()), |_| live.inject(fails));
        if let Err(why) = fail(self, is_filled) {
            return planned.failed(why);
        }
        let (context, urls, cores) = (self.context(), self.load_urls(), self.target_run.cores_of(GENERATOR));
        let run = load::Run::new(options, planned, &urls, self.seed(), cores, &context);
        if !experiment.faults.is_empty() {
            return self.run_with_faults(run);
        }
        let run = load::Run {
            is_filled: Cell::new(is_filled),
            started: &|pid| self.fleet.limits.take(GENERATOR, pid),
            filled: &|| fail(self, true),
            ..run
        };
        let (trial, is_filled) = (run.run(), run.is_filled.get());
        if is_filled {
            self.started.preloaded.insert(workload.clone());
        }
        self.with_failure(trial)
    }

    /// Whoever has no answer says so, too; but if a part has ended, this is why.
    fn with_failure(&mut self, trial: Trial) -> Trial {
        let ended = self.processes().find_map(Process::failure);
        Trial { failure: ended.map(String::from).or(trial.failure), ..trial }
    }

    /// The same on a fresh target, with the faults of the experiment beside it.
    fn run_with_faults(&mut self, run: load::Run) -> Trial {
        let TargetRun { experiment, subject, .. } = self.target_run;
        let (sender, window) = mpsc::channel();
        let (faults, length) = (experiment.faults_of(subject), run.planned.length.window.0);
        let processes: Vec<&mut Process> = self.processes().collect();
        let (trial, done) = thread::scope(|scope| {
            let breaking = scope.spawn(move || faults::carry_out(&faults, length, processes, &window));
            let run = load::Run {
                is_judged: true,
                opened: &|| {
                    // Nobody waits for it any more if a fault could not be made.
                    let _ = sender.send(());
                },
                ..run
            };
            let trial = run.run();
            drop(sender);
            (trial, breaking.join().unwrap_or_else(|_| Err(Error::new("the thread of the faults panicked"))))
        });
        let mut trial = self.with_failure(trial);
        match done {
            Ok(faults) => trial.faults = faults,
            Err(why) => trial.failure = Some(why.into()),
        }
        trial
    }
}

impl Runner for LiveRunner<'_> {
    fn begin(&mut self) -> Result<(), Error> {
        // The old server ends before its store goes.
        self.started = Started::default();
        match &self.target_run.subject.target {
            Target::Weir { store, args, .. } => {
                self.refresh_stores(store)?;
                self.serve(args, &[])?;
                self.probe_limits()?;
            }
            Target::Command(commands) => {
                let TargetRun { experiment, options, .. } = self.target_run;
                let cores_of = |part: &str| self.target_run.cores_of(part);
                let is_broken = |part: &str| experiment.breaks_disk(part);
                let start = || Services::start(commands, options, cores_of, is_broken);
                let services = self.started.services.insert(on_free_ports(start)?);
                for process in services.running.iter().filter(|process| process.name == SERVER) {
                    self.fleet.limits.take(SERVER, process.pid())?;
                }
                self.connect(1.0)?;
            }
            Target::Url { url } => {
                // Any answer will do, also 404: it is only asked whether somebody is there.
                answers(url, HEALTHZ, |_| true).map_err(|error| {
                    Error::new(format_args!("cannot reach {url}: {error}"))
                        .hint("start the server, or correct its URL")
                })?;
            }
            Target::Simulated(_) => {}
        }
        Ok(())
    }

    fn environment(&self) -> Vec<(String, String)> {
        let TargetRun { experiment, subject, cores, options, .. } = self.target_run;
        let target = &subject.target;
        let mut facts = environment::describe(&options.program, cores, self.data_dir(), self.fleet.members());
        let scaled = experiment.cores.of.filter(|of| *of > cores.len());
        let scaled = scaled.map(|of| format!("the file's, for {of} cores, scaled down to {}", cores.len()));
        let memory = experiment.limits.memory.map(|memory| format!("{memory} for each database"));
        let added = |delay| format!("{delay} added to every fsync and fdatasync of the stores");
        let link = target.link().map(|of| {
            let both = [of.rate.map(|rate| rate.to_string()), of.delay.map(|delay| delay.to_string())];
            let both = both.into_iter().flatten().map(|what| format!("{what} in each direction"));
            both.collect::<Vec<_>>().join(", ")
        });
        let own = [
            ("placement", scaled),
            ("memory limit", memory),
            ("flush delay", target.flush_delay().map(added)),
            ("link", link),
        ];
        facts.extend(own.into_iter().filter_map(|(name, fact)| Some((name.to_owned(), fact?))));
        facts.extend(self.fleet.nodes.iter().map(|nodes| ("cluster".to_owned(), nodes.describe())));
        if let Target::Command(commands) = target {
            facts.extend(services::describe(commands, &options.program));
        }
        facts.extend(self.probes.iter().cloned());
        facts
    }

    fn trial(&mut self, planned: &Planned) -> Trial {
        let Planned { workload, change, .. } = *planned;
        let ready = self.revive().and_then(|()| self.restore()).and_then(|()| self.prepare(workload));
        if let Err(why) = ready {
            return planned.failed(why);
        }
        (self.in_round, self.may_wait) = (planned.in_round, planned.may_wait);
        // Before it is made: what was made in part has to be unmade, too.
        self.changed = change.cloned();
        let trial = match self.apply(workload, change) {
            Ok(()) => self.run(planned),
            Err(why) => planned.failed(why),
        };
        // What cannot be unmade now is unmade before the next trial, or that one fails for it.
        let _ = self.restore();
        trial
    }

    fn revivals(&self) -> u32 {
        self.revivals
    }
}

/// The number by which the kernel knows the disk under `path`: `254:0`.
fn device_number(path: &Path) -> Result<String, Error> {
    let number = device_of(path).and_then(|name| fs::read_to_string(format!("/sys/block/{name}/dev")).ok());
    number.map(|text| text.trim().to_owned()).ok_or_else(|| {
        Error::new(format_args!("{}: no disk of its own to cap", path.display()))
            .hint("use a folder on a disk, or remove write_cap")
    })
}
