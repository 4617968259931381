//! Starting what an experiment asks for: stores, the server over them, the link before it; and trying its limits out.

use super::{LiveRunner, device_number};
use crate::harness::failing::{LAB, without_fail};
use crate::harness::limits::Limits;
use crate::harness::link::{self, Link};
use crate::harness::server::{Server, Start};
use kv::units::{BitRate, Size};
use lab_data::experiment::address;
use lab_data::experiment::{FJALL, LINK, SERVER, Target, Workload};
use std::collections::BTreeSet;
use tempfile::TempDir;

impl<'a> LiveRunner<'a> {
    /// New and empty stores for a `weir serve`.
    pub(super) fn refresh_stores(&mut self, names: &[String]) -> Result<(), String> {
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
        let dir = self.make_directory("store-")?;
        let url = format!("fjall:{}", dir.path().display());
        self.data.push(dir);
        Ok(url)
    }

    fn make_directory(&self, prefix: &str) -> Result<TempDir, String> {
        let parent = &self.target_run.options.dir;
        let dir = tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
        dir.map_err(|error| {
            format!("{}: cannot make a directory: {error}; make room or rights", parent.display())
        })
    }

    /// Starts the server over the stores of this repetition, with `flags` beyond the target's.
    pub(super) fn serve(&mut self, args: &[String], flags: &'a [String]) -> Result<(), String> {
        // The old one ends before the new one claims the stores, and takes with it what it kept in memory.
        self.link = None;
        self.server = None;
        if self.stores.iter().any(|store| store.starts_with("memory:")) {
            self.preloaded.clear();
        }
        let mut args: Vec<String> = args.iter().chain(flags).cloned().collect();
        // Only a server of the lab can be made slower while it runs.
        if self.target_run.experiment.slows_servers() && !args.iter().any(|arg| arg == LAB) {
            args.push(LAB.to_owned());
        }
        let (args, failing) = without_fail(args);
        self.failing = failing;
        // A database flushes what is in it; what is in the server's own directory the server flushes.
        let delay = self.target_run.subject.target.flush_delay().filter(|_| !self.data.is_empty());
        if delay.is_some() && self.shim.is_none() {
            self.shim = Some(self.make_directory("shim-")?);
        }
        let start = Start {
            program: &self.target_run.options.program,
            stores: &self.stores,
            replica: self.replica.as_deref(),
            args: &args,
            cores: self.target_run.cores_of(SERVER),
            log: &self.target_run.options.dir.join("server.log"),
            slowed: delay.map(|delay| delay.0).zip(self.shim.as_ref().map(TempDir::path)),
        };
        let server = Server::start(&start, self.stop)?;
        self.fleet.take(SERVER, server.pid())?;
        self.serving = flags;
        self.server = Some(server);
        self.connect(1.0)
    }

    /// Sets the link between generator and server, if the target has one, with its rate times `factor`.
    pub(super) fn connect(&mut self, factor: f64) -> Result<(), String> {
        self.link = None;
        let (Some(wanted), Some(server)) = (self.target_run.subject.target.link(), &self.server) else {
            return Ok(());
        };
        let start = link::Start {
            program: &self.target_run.options.program,
            to: address(server.url()).unwrap_or_default(),
            rate: wanted.rate.map(|BitRate(bits)| BitRate(bits * factor)),
            delay: wanted.delay,
            cores: self.target_run.cores_of(LINK),
            log: &self.target_run.options.dir.join("link.log"),
        };
        self.link = Some(Link::start(&start, self.stop)?);
        Ok(())
    }

    /// Has the server run as `workload` wants it.
    pub(super) fn prepare(&mut self, workload: &'a Workload) -> Result<(), String> {
        match &self.target_run.subject.target {
            Target::Weir { args, .. } if self.server.is_none() || self.serving != workload.serve => {
                self.serve(args, &workload.serve)?;
            }
            // It could not be set when the server was started, or when it was set anew.
            target if target.link().is_some() && self.link.is_none() => self.connect(1.0)?,
            _ => {}
        }
        // Where some workloads are capped, none may leave its writes to the next.
        match self.fleet.limits().and_then(Limits::capped) {
            Some(_) => self.fleet.settle(),
            None => Ok(()),
        }
    }

    /// Tries every quota and every write cap of the experiment out, once.
    pub(super) fn probe_limits(&mut self) -> Result<(), String> {
        if !self.probes.is_empty() {
            return Ok(());
        }
        let quotas = self.fleet.limits().map_or(Ok(Vec::new()), Limits::probe_quotas)?;
        let caps: BTreeSet<u64> =
            self.target_run.workloads.iter().filter_map(|workload| Some(workload.write_cap?.0)).collect();
        let mut probes = quotas;
        if let (Some(limits), Some(dir)) = (self.fleet.limits(), self.data_dir()) {
            let device = device_number(dir)?;
            for cap in caps {
                let written = limits.probe(&device, cap, dir)?;
                let said = format!("dd wrote {:.1} MB/s under it", written / 1e6);
                probes.push((format!("write cap {}/s", Size(cap)), said));
            }
        }
        // All at once: what failed is tried again before anything runs under it.
        self.probes = probes;
        Ok(())
    }
}
