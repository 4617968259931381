//! Starting what an experiment asks for: stores, the server over them, the link before it; and trying its limits out.

use super::{LiveRunner, device_number};
use crate::harness::TargetRun;
use crate::harness::disk;
use crate::harness::failing::{LAB, is_lab, without_fail};
use crate::harness::faults::link_name;
use crate::harness::files::temporary_dir;
use crate::harness::link::Link;
use crate::harness::ports::free_ports;
use crate::harness::process::{Listening, Process, wait_ready};
use crate::http::answers;
use kv::Error;
use kv::proto::READYZ;
use kv::units::{BitRate, Size};
use lab_data::experiment::{self, EMBEDDED, LINK, SERVER, Target, Workload, address};
use std::collections::BTreeSet;
use std::process::Command;
use std::slice;
use std::time::Duration;

/// How long a server that listens may take to open its store and answer.
const READY_MAX: Duration = Duration::from_secs(30);

/// A link that carries all at once.
const NO_LIMITS: experiment::Link = experiment::Link { rate: None, delay: None };

impl LiveRunner<'_> {
    /// New and empty stores for a `weir serve`.
    pub(super) fn refresh_stores(&mut self, names: &[String]) -> Result<(), Error> {
        self.fleet.refresh()?;
        for (index, name) in names.iter().enumerate() {
            let mut url = self.fleet.url_of(Some(index)).unwrap_or_else(|| name.clone());
            if name == EMBEDDED {
                let dir = temporary_dir(&self.target_run.options.dir, "store-")?;
                url = format!("file:{}", dir.path().display());
                self.started.data.push(dir);
            }
            let TargetRun { experiment, options, .. } = self.target_run;
            let part = self.fleet.part_of(index).filter(|part| experiment.cuts_off(part));
            if let (Some(part), Some((account, (place, database)))) =
                (part, url.split_once('@').and_then(|(account, rest)| Some((account, rest.split_once('/')?))))
            {
                let mut link = Link::start(options, place, NO_LIMITS, &[])?;
                link.process.name = link_name(part);
                url = format!("{account}@{}/{database}", address(&link.url).unwrap_or_default());
                self.started.database_links.push(link);
            }
            self.started.stores.push(url);
        }
        Ok(())
    }

    /// Starts the server over the stores of this repetition, with `flags` beyond the target's, and waits until it can serve.
    pub(super) fn serve(&mut self, args: &[String], flags: &[String]) -> Result<(), Error> {
        // The old one ends before the new one claims the stores, and takes with it what it kept in memory.
        self.started.link = None;
        self.started.servers.clear();
        if self.started.stores.iter().any(|store| store.starts_with("memory:")) {
            self.started.preloaded.clear();
        }
        let TargetRun { experiment, subject, .. } = self.target_run;
        let mut args: Vec<String> = args.iter().chain(flags).cloned().collect();
        // Only a server of the lab can be made slower while it runs.
        if experiment.slows_servers() && !args.iter().any(|arg| is_lab(arg)) {
            args.push(LAB.to_owned());
        }
        let (args, failing) = without_fail(args);
        self.started.failing = failing;
        // All of them or none: the next workload would take some for all.
        let servers = subject.target.servers().into_iter().map(|part| self.serve_one(&part, &args));
        self.started.servers = servers.collect::<Result<_, _>>()?;
        self.started.serving = flags.to_vec();
        self.connect(1.0)
    }

    /// Starts the server that is called `part`.
    fn serve_one(&mut self, part: &str, args: &[String]) -> Result<Listening, Error> {
        let TargetRun { experiment, subject, options, .. } = self.target_run;
        let cores = self.target_run.cores_of(part);
        let mut command = Command::new(&options.program);
        // Where it is started again, clients must find it.
        let port = if experiment.faults.is_empty() { 0 } else { free_ports(1)?[0] };
        command.args(["serve", "--listen", &format!("127.0.0.1:{port}"), "--until-stdin-ends"]);
        command.args(self.started.stores.iter().flat_map(|store| ["--store", store]));
        command.args(self.fleet.url_of(None).into_iter().flat_map(|url| ["--read-fallback".to_owned(), url]));
        if !args.iter().any(|arg| arg == "--workers" || arg.starts_with("--workers=")) {
            command.args(["--workers", &cores.len().to_string()]);
        }
        command.args(args);
        // A database flushes what is in it; what is in the server's own directory the server flushes.
        let delay = subject.target.flush_delay().filter(|_| !self.started.data.is_empty());
        let is_broken = experiment.breaks_disk(part);
        if delay.is_some() || is_broken {
            let shim = temporary_dir(&options.dir, "shim-")?;
            disk::preload(&mut command, delay.map(|delay| delay.0), is_broken, shim.path())?;
            self.started.shims.push(shim);
        }
        let process = Process::weir(&mut command, cores, &options.dir.join(format!("{part}.log")))?;
        let Listening { mut process, lines, url } = Listening::wait(process, &options.stop)?;
        wait_ready(slice::from_mut(&mut process), READY_MAX, &options.stop, || {
            answers(&url, READYZ, |status| status == 200)
        })?;
        disk::verify(&process)?;
        self.fleet.limits.take(part, process.pid())?;
        Ok(Listening { process, lines, url })
    }

    /// Sets the link between generator and server, if the target has one, with its rate times `factor`.
    pub(super) fn connect(&mut self, factor: f64) -> Result<(), Error> {
        self.started.link = None;
        let TargetRun { experiment, subject, options, .. } = self.target_run;
        let wanted = subject.target.link().or(experiment.cuts_off(SERVER).then_some(NO_LIMITS));
        let urls = self.urls();
        let (Some(wanted), Some(url)) = (wanted, urls.first()) else { return Ok(()) };
        let rate = wanted.rate.map(|BitRate(bits)| BitRate(bits * factor));
        let wanted = experiment::Link { rate, ..wanted };
        let to = address(url).unwrap_or_default();
        self.started.link = Some(Link::start(options, to, wanted, self.target_run.cores_of(LINK))?);
        Ok(())
    }

    /// Has the server run as `workload` wants it.
    pub(super) fn prepare(&mut self, workload: &Workload) -> Result<(), Error> {
        match &self.target_run.subject.target {
            Target::Weir { args, .. }
                if self.started.servers.is_empty() || self.started.serving != workload.serve =>
            {
                self.serve(args, &workload.serve)?;
            }
            // It could not be set when the server was started, or when it was set anew.
            target if target.link().is_some() && self.started.link.is_none() => self.connect(1.0)?,
            _ => {}
        }
        // Where some workloads are capped, none may leave its writes to the next.
        self.fleet.limits.capped.as_ref().map_or(Ok(()), |_| self.fleet.settle())
    }

    /// Tries every quota and every write cap of the experiment out, once.
    pub(super) fn probe_limits(&mut self) -> Result<(), Error> {
        if !self.probes.is_empty() {
            return Ok(());
        }
        let limits = &self.fleet.limits;
        let mut probes = limits.probe_quotas()?;
        let caps = self.target_run.workloads.iter().filter_map(|workload| Some(workload.write_cap?.0));
        for cap in caps.collect::<BTreeSet<u64>>() {
            let Some(dir) = self.data_dir() else { break };
            let written = limits.probe(&device_number(dir)?, cap, dir)?;
            let said = format!("dd wrote {:.1} MB/s under it", written / 1e6);
            probes.push((format!("write cap {}/s", Size(cap)), said));
        }
        // All at once: what failed is tried again before anything runs under it.
        self.probes = probes;
        Ok(())
    }
}
