//! What a set of processes may use: memory, processor time and writing, limited by control groups, version 1 or 2.
//!
//! The groups are made for one run and removed with their owner, who must have ended the processes first. Nothing is
//! limited by hope: a cap is tried out before it is relied on, and a machine that cannot limit is told so.

mod layout;
mod probe;

use super::process::{kill, poll_until};
use crate::sampler::{descendants, mounts};
use kv::Error;
use rustix::io::Errno;
use rustix::process::Signal;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use layout::{CONTROLLERS, Layout, layout};

/// How long a group may take to be empty.
const REMOVE_MAX: Duration = Duration::from_secs(2);
/// Of what a quota is a share, in microseconds: what containers have unless they are told otherwise.
const PERIOD_US: u64 = 100_000;
/// The file of a group that takes processes in.
const PROCESSES: &str = "cgroup.procs";
/// The kernel takes no smaller quota, in microseconds.
const QUOTA_US_LEAST: u64 = 1_000;

/// The limits of a run.
#[derive(Debug)]
pub(super) struct Limits {
    layout: Layout,
    /// The group whose writes are capped together, if any are.
    pub(super) capped: Option<PathBuf>,
    /// The parts in their order.
    parts: Vec<Part>,
    /// Every group made, children behind their parents.
    made: Vec<PathBuf>,
}

/// Who is limited, and in what.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    /// Its name.
    pub(super) name: String,
    /// Whether a write cap holds for it, where there is one.
    pub(super) capped: bool,
    /// Bytes of memory.
    pub(super) memory: Option<u64>,
    /// Cores' worth of processor time.
    pub(super) quota: Option<f64>,
    /// Its groups, once they are made: the last is the one whose processor time has a quota, if it has one.
    pub(super) groups: Vec<PathBuf>,
}

impl Limits {
    /// Makes the groups for `parts`, with one for all whose writing will be capped if `write_cap`; none where nothing is to be limited.
    pub(super) fn new(parts: Vec<Part>, write_cap: bool) -> Result<Limits, Error> {
        let memory = parts.iter().any(|part| part.memory.is_some());
        let cpu = parts.iter().any(|part| part.quota.is_some());
        let layout = layout(&mounts(), [memory, cpu, write_cap])?;
        Limits::within(layout, &format!("weir-lab-{}", std::process::id()), parts)
    }

    /// Makes them, with names that begin with `name`.
    fn within(layout: Layout, name: &str, parts: Vec<Part>) -> Result<Limits, Error> {
        let mut limits = Limits { layout, capped: None, parts: Vec::new(), made: Vec::new() };
        let Layout { is_v2, roots } = limits.layout.clone();
        let needed = roots.each_ref().map(Option::is_some);
        if let Some(root) = roots.iter().flatten().next().filter(|_| is_v2) {
            hand_down(root, needed)?;
        }
        let [memory, cpu, io] = roots;
        limits.capped = io.map(|root| root.join(name));
        if let Some(capped) = limits.capped.clone() {
            limits.make(&capped)?;
            if is_v2 {
                // All parts of it have the write cap together.
                hand_down(&capped, [needed[0], needed[1], false])?;
            }
        }
        for mut part in parts {
            let shared = limits.capped.clone().filter(|_| part.capped);
            let own = |root: &PathBuf| match &shared {
                // Processes may only be in groups without children.
                Some(shared) if is_v2 => shared.join(&part.name),
                _ => root.join(format!("{name}-{}", part.name)),
            };
            let writing = shared.as_ref().map(|shared| if is_v2 { own(shared) } else { shared.clone() });
            let memory = memory.as_ref().filter(|_| part.memory.is_some()).map(own);
            let cpu = cpu.as_ref().filter(|_| part.quota.is_some()).map(own);
            // Two controllers of one hierarchy share a group.
            part.groups = [writing, memory.clone(), cpu.clone()].into_iter().flatten().collect();
            part.groups.dedup();
            part.groups.iter().try_for_each(|group| limits.make(group))?;
            if let Some((group, bytes)) = memory.zip(part.memory) {
                let file = if is_v2 { "memory.max" } else { "memory.limit_in_bytes" };
                set(&group.join(file), &bytes.to_string())?;
            }
            if let Some((group, cores)) = cpu.zip(part.quota) {
                limits.set_quota_of(&group, cores)?;
            }
            limits.parts.push(part);
        }
        Ok(limits)
    }

    /// Makes a group, if that was not done yet.
    fn make(&mut self, group: &Path) -> Result<(), Error> {
        if self.made.iter().any(|made| made == group) {
            return Ok(());
        }
        // A group of this name is a dead process's, whose number we have now.
        let _ = fs::remove_dir(group);
        fs::create_dir(group).map_err(|error| cannot("make a control group", group, &error))?;
        self.made.push(group.to_owned());
        Ok(())
    }

    /// Puts the process `root` and all below it under the limits of `part`, if it has any. What they start later is, too.
    pub(super) fn take(&self, part: &str, root: u32) -> Result<(), Error> {
        let Some(Part { groups, .. }) = self.parts.iter().find(|of| of.name == part) else { return Ok(()) };
        let mut taken = BTreeSet::new();
        loop {
            // A process may start another between the look and the move: look until all are known.
            let fresh: Vec<u32> = descendants(root).into_iter().filter(|pid| !taken.contains(pid)).collect();
            if fresh.is_empty() {
                return Ok(());
            }
            for (pid, group) in fresh.iter().flat_map(|pid| groups.iter().map(move |group| (pid, group))) {
                let file = group.join(PROCESSES);
                match fs::write(&file, pid.to_string()) {
                    // It ended meanwhile.
                    Err(error) if error.raw_os_error() == Some(Errno::SRCH.raw_os_error()) => {}
                    done => done.map_err(|error| cannot("limit", &file, &error))?,
                }
            }
            taken.extend(fresh);
        }
    }

    /// Caps what the capped parts together write to `device` (`254:0`), in bytes a second; `None` lifts the cap.
    pub(super) fn cap_writes(&self, device: &str, bytes_per_sec: Option<u64>) -> Result<(), Error> {
        let Some(group) = &self.capped else { return Ok(()) };
        let (file, key, none) = match self.layout.is_v2 {
            true => ("io.max", "wbps=", "max"),
            false => ("blkio.throttle.write_bps_device", "", "0"),
        };
        let rate = bytes_per_sec.map_or(none.to_owned(), |rate| rate.to_string());
        set(&group.join(file), &format!("{device} {key}{rate}"))
    }

    /// Multiplies the quotas of the parts called `is_meant` by `factor`; 1 makes them what the experiment says again.
    pub(super) fn scale_quotas(&self, is_meant: impl Fn(&str) -> bool, factor: f64) -> Result<(), Error> {
        let meant = self.parts.iter().filter(|part| is_meant(&part.name));
        let mut limited = meant.filter_map(|part| Some((part.groups.last()?, part.quota?)));
        limited.try_for_each(|(group, cores)| self.set_quota_of(group, cores * factor))
    }

    fn set_quota_of(&self, group: &Path, cores: f64) -> Result<(), Error> {
        let quota_us = ((cores * PERIOD_US as f64).round() as u64).max(QUOTA_US_LEAST);
        if self.layout.is_v2 {
            return set(&group.join("cpu.max"), &format!("{quota_us} {PERIOD_US}"));
        }
        set(&group.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
        set(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for group in self.made.iter().rev() {
            // Who was killed takes a moment to go, and a database that crashed may have left processes behind.
            let gone = poll_until(REMOVE_MAX, &AtomicBool::new(false), || {
                let left = fs::read_to_string(group.join(PROCESSES)).unwrap_or_default();
                // One may have ended since it was listed.
                left.lines().filter_map(|pid| pid.parse().ok()).for_each(|pid| kill(pid, Signal::KILL));
                Ok(fs::remove_dir(group).is_ok().then_some(()))
            });
            if gone != Ok(Some(())) {
                log::warn!("{}: the control group stays", group.display());
            }
        }
    }
}

/// Lets the groups below `group` have controllers: one works in a group only if every group above has handed it down.
fn hand_down(group: &Path, needed: [bool; 3]) -> Result<(), Error> {
    let mut needed = CONTROLLERS.iter().zip(needed).filter(|(_, is_needed)| *is_needed);
    needed.try_for_each(|((_, name, _), _)| set(&group.join("cgroup.subtree_control"), &format!("+{name}")))
}

fn set(file: &Path, text: &str) -> Result<(), Error> {
    fs::write(file, text).map_err(|error| cannot("limit", file, &error))
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Error {
    Error::new(format_args!("{}: cannot {what}: {error}", path.display()))
        .hint("run as root, or remove the limits from the experiment")
}

#[cfg(test)]
mod tests;
