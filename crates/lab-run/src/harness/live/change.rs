//! What is changed of a running target for a trial, and unmade after it: injected faults, caps, quotas, the link, the commit.

use super::{LiveRunner, device_number};
use crate::harness::runner::WAITED_FOR;
use crate::http::ask;
use crate::sampler::Cap;
use kv::Error;
use kv::proto::INJECT;
use lab_data::experiment::{DATABASE, SERVER, Target, Workload};
use lab_data::results::{Change, SLOWER_GENERATOR, SLOWER_SERVER};
use std::time::Duration;

/// A fault of 1 ns that takes requests off the server's fast path.
const MINIMAL_FAULT: &str = "worker=0.001us";
/// The fault of the server that makes `change`, if it is one.
fn fault_of(change: &Change) -> Option<&str> {
    match change.name.as_str() {
        SLOWER_SERVER => Some("cpu"),
        SLOWER_GENERATOR | "link" | "write_cap" | "commit" | "server_quota" | "database_cpu" => None,
        fault => Some(fault),
    }
}

/// How long a server may take to answer: its workers may all be busy.
const INJECT_MAX: Duration = Duration::from_secs(10);

impl LiveRunner<'_> {
    /// Caps what is written to the disk, in bytes a second, or lifts the cap.
    fn cap_writes(&mut self, cap: Option<u64>) -> Result<(), Error> {
        let capped = self.fleet.limits.capped.clone();
        let Some((cgroup, dir)) = capped.zip(self.data_dir()) else { return Ok(()) };
        let device = device_number(dir)?;
        self.fleet.limits.cap_writes(&device, cap)?;
        self.cap = cap.map(|cap| Cap { cgroup, device, bytes_per_sec: cap as f64 });
        Ok(())
    }

    /// Unmakes what was changed or capped for a trial, if that was not done yet: the next one would be measured with what nobody asked for.
    pub(super) fn restore(&mut self) -> Result<(), Error> {
        if let Some(change) = self.changed.clone() {
            self.set(&change.name, 1.0, 0).map_err(|why| {
                why.at(format_args!("what was changed before ({}) is still changed", change.name))
            })?;
            self.changed = None;
        }
        // A server that is gone has taken it with it.
        let mut servers = self.started.servers.iter_mut();
        let runs = servers.len() > 0 && servers.all(|server| server.process.ended().is_none());
        if self.in_round && runs {
            self.tell("DELETE", INJECT)?;
        }
        (self.in_round, self.may_wait) = (false, false);
        match self.cap {
            Some(_) => self.cap_writes(None),
            None => Ok(()),
        }
    }

    /// Caps the writes of `workload`, and makes `change`.
    pub(super) fn apply(&mut self, workload: &Workload, change: Option<&Change>) -> Result<(), Error> {
        let rate = |change: &Change| 1.0 / change.factor.unwrap_or(1.0);
        let lowered = change.filter(|change| change.name == "write_cap").map_or(1.0, rate);
        self.cap_writes(workload.write_cap.map(|cap| (cap.0 as f64 * lowered) as u64))?;
        // Faults can be injected into our own server only.
        if self.in_round && matches!(self.target_run.subject.target, Target::Weir { .. }) {
            self.inject(false)?;
        }
        // A delay of 0 would be none.
        let added_us = |change: &Change| (change.added_us.round() as u64).max(1);
        change.map_or(Ok(()), |change| self.set(&change.name, rate(change), added_us(change)))
    }

    /// Has what the change `name` is about have its rate times `factor`, or commits that wait so much longer.
    fn set(&mut self, name: &str, factor: f64, added_us: u64) -> Result<(), Error> {
        match name {
            "link" => self.connect(factor),
            "server_quota" => self.fleet.limits.scale_quotas(|part| part == SERVER, factor),
            "database_cpu" => self.fleet.limits.scale_quotas(|part| part.starts_with(DATABASE), factor),
            "commit" => self.fleet.delay_commits(added_us),
            // The server is told of its faults, and caps are lifted, for every trial.
            _ => Ok(()),
        }
    }

    /// Adds the fault of the change to the server, and `fail` as the target says if `fails`.
    ///
    /// Requests that may have to wait for their faults take another path through the server than a cache hit, and its cost may be as
    /// large as what is added. So where one change of a round asks for that, all requests of the round take it.
    pub(super) fn inject(&self, fails: bool) -> Result<(), Error> {
        let changed = self.changed.as_ref().and_then(|change| Some((fault_of(change)?, change.added_us)));
        let waits = changed.is_some_and(|(fault, _)| WAITED_FOR.contains(&fault));
        let same_way = (self.may_wait && !waits).then(|| MINIMAL_FAULT.to_owned());
        let changed = changed.map(|(fault, added_us)| format!("{fault}={added_us:.3}us"));
        let failing = self.started.failing.clone().filter(|_| fails);
        let words: Vec<String> = changed.into_iter().chain(same_way).chain(failing).collect();
        match words.as_slice() {
            [] => self.tell("DELETE", INJECT),
            words => self.tell("PUT", &format!("{INJECT}?{}", words.join("&"))),
        }
    }

    /// Tells all servers something that they have nothing to answer to.
    fn tell(&self, method: &str, path: &str) -> Result<(), Error> {
        for url in self.urls() {
            let (status, body) = ask(method, &url, path, INJECT_MAX).map_err(|error| {
                Error::new(format_args!("the server did not answer {method} {path}: {error}"))
            })?;
            if status != 204 {
                let said = String::from_utf8_lossy(&body);
                let said = said.split_whitespace().take(20).collect::<Vec<_>>().join(" ");
                let what = format_args!("the server answered {method} {path} with {status}: {said}");
                return Err(Error::new(what));
            }
        }
        Ok(())
    }
}
