//! What a set of processes may use: memory, processor time and writing, limited by control groups, version 1 or 2.
//!
//! The groups are made for one run and removed with their owner, who must have ended the processes first. Nothing is
//! limited by hope: a cap is tried out before it is relied on, and a machine that cannot limit is told so.

mod layout;
mod probe;

use super::process::poll_until;
use crate::sampler::descendants;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use layout::{Layout, layout};

/// How long a group may take to be empty.
const REMOVE_MAX: Duration = Duration::from_secs(2);
/// Of what a quota is a share, in microseconds: what containers have unless they are told otherwise.
const PERIOD_US: u64 = 100_000;
/// The kernel takes no smaller quota, in microseconds.
const QUOTA_US_LEAST: u64 = 1_000;

/// The limits of a run.
#[derive(Debug)]
pub(super) struct Limits {
    layout: Layout,
    /// The group whose writes are capped together.
    capped: Option<PathBuf>,
    /// The parts in their order.
    members: Vec<Member>,
    /// Every group made, children behind their parents.
    made: Vec<PathBuf>,
}

/// A part that is limited.
#[derive(Debug)]
struct Member {
    part: Part,
    /// The files that take a process in.
    doors: Vec<PathBuf>,
    /// The group whose processor time has a quota.
    cpu: Option<PathBuf>,
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
}

/// Which controllers are needed.
#[derive(Clone, Copy, Debug, Default)]
struct Wanted {
    memory: bool,
    cpu: bool,
    /// Whether writing will be capped at some time.
    write_cap: bool,
}

impl Limits {
    /// Makes the groups for `parts`, with one for all whose writing will be capped if `write_cap`; `None` where nothing is to be
    /// limited.
    pub(super) fn new(parts: &[Part], write_cap: bool) -> Result<Option<Limits>, String> {
        let wanted = Wanted {
            memory: parts.iter().any(|part| part.memory.is_some()),
            cpu: parts.iter().any(|part| part.quota.is_some()),
            write_cap,
        };
        if !wanted.memory && !wanted.cpu && !wanted.write_cap {
            return Ok(None);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mut limits = Limits::within(layout(&mounts, wanted)?);
        limits.make_all(&format!("weir-lab-{}", std::process::id()), parts, wanted)?;
        Ok(Some(limits))
    }

    fn within(layout: Layout) -> Limits {
        Limits { layout, capped: None, members: Vec::new(), made: Vec::new() }
    }

    fn make_all(&mut self, name: &str, parts: &[Part], wanted: Wanted) -> Result<(), String> {
        match self.layout.clone() {
            Layout::V1 { memory, blkio, cpu } => self.make_v1(name, parts, wanted, [memory, blkio, cpu]),
            Layout::V2 { root } => self.make_v2(name, parts, wanted, &root),
        }
    }

    fn make_v1(
        &mut self,
        name: &str,
        parts: &[Part],
        wanted: Wanted,
        [memory, blkio, cpu]: [Option<PathBuf>; 3],
    ) -> Result<(), String> {
        if let Some(root) = blkio.filter(|_| wanted.write_cap) {
            self.capped = Some(self.make(root.join(name))?);
        }
        for part in parts {
            let capped = self.capped.iter().filter(|_| part.capped);
            let mut doors: Vec<PathBuf> = capped.map(|group| group.join("cgroup.procs")).collect();
            if let (Some(bytes), Some(root)) = (part.memory, &memory) {
                let group = self.make(root.join(format!("{name}-{}", part.name)))?;
                set(&group.join("memory.limit_in_bytes"), &bytes.to_string())?;
                doors.push(group.join("cgroup.procs"));
            }
            let mut member = Member { part: part.clone(), doors, cpu: None };
            if let (Some(cores), Some(root)) = (part.quota, &cpu) {
                let group = self.make(root.join(format!("{name}-{}", part.name)))?;
                member.doors.push(group.join("cgroup.procs"));
                self.set_quota_of(&group, cores)?;
                member.cpu = Some(group);
            }
            self.members.push(member);
        }
        Ok(())
    }

    fn make_v2(&mut self, name: &str, parts: &[Part], wanted: Wanted, root: &Path) -> Result<(), String> {
        // A controller works in a group only if every group above has handed it down.
        let hand_down = |group: &Path, controllers: &[(&str, bool)]| {
            let mut wanted = controllers.iter().filter(|(_, is_wanted)| *is_wanted);
            wanted.try_for_each(|(name, _)| set(&group.join("cgroup.subtree_control"), name))
        };
        let below = [("+memory", wanted.memory), ("+cpu", wanted.cpu)];
        hand_down(root, &[("+io", wanted.write_cap), below[0], below[1]])?;
        let (shared, others) =
            (self.make(root.join(name))?, self.make(root.join(format!("{name}-uncapped")))?);
        for above in [&shared, &others] {
            hand_down(above, &below)?;
        }
        for part in parts {
            // Processes may only be in groups without children.
            let above = if part.capped { &shared } else { &others };
            let group = self.make(above.join(&part.name))?;
            if let Some(bytes) = part.memory {
                set(&group.join("memory.max"), &bytes.to_string())?;
            }
            if let Some(cores) = part.quota {
                self.set_quota_of(&group, cores)?;
            }
            let doors = vec![group.join("cgroup.procs")];
            self.members.push(Member { part: part.clone(), doors, cpu: part.quota.map(|_| group) });
        }
        self.capped = wanted.write_cap.then_some(shared);
        Ok(())
    }

    fn make(&mut self, group: PathBuf) -> Result<PathBuf, String> {
        // Two controllers of one hierarchy share a group.
        if self.made.contains(&group) {
            return Ok(group);
        }
        // A group of this name is a dead process's, whose number we have now.
        let _ = fs::remove_dir(&group);
        fs::create_dir(&group).map_err(|error| {
            format!(
                "{}: cannot make a control group: {error}; run as root, or remove the limits from the experiment",
                group.display()
            )
        })?;
        self.made.push(group.clone());
        Ok(group)
    }

    /// Puts the process `root` and all below it under the limits of `part`, if it has any. What they start later is, too.
    pub(super) fn take(&self, part: &str, root: u32) -> Result<(), String> {
        let Some(Member { doors, .. }) = self.member(part) else { return Ok(()) };
        let mut taken = BTreeSet::new();
        loop {
            // A process may start another between the look and the move: look until all are known.
            let fresh: Vec<u32> = descendants(root).into_iter().filter(|pid| !taken.contains(pid)).collect();
            if fresh.is_empty() {
                return Ok(());
            }
            for pid in fresh {
                for door in doors {
                    match fs::write(door, pid.to_string()) {
                        // It ended meanwhile.
                        Err(error)
                            if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
                        done => done.map_err(|error| cannot(door, &error))?,
                    }
                }
                taken.insert(pid);
            }
        }
    }

    /// Caps what the capped parts together write to `device` (`254:0`), in bytes a second; `None` lifts the cap.
    pub(super) fn cap_writes(&self, device: &str, bytes_per_sec: Option<u64>) -> Result<(), String> {
        let Some(group) = &self.capped else { return Ok(()) };
        match &self.layout {
            Layout::V1 { .. } => {
                let rate = bytes_per_sec.unwrap_or(0);
                set(&group.join("blkio.throttle.write_bps_device"), &format!("{device} {rate}"))
            }
            Layout::V2 { .. } => {
                let rate = bytes_per_sec.map_or("max".to_owned(), |bytes| bytes.to_string());
                set(&group.join("io.max"), &format!("{device} wbps={rate}"))
            }
        }
    }

    /// The group whose writes are capped.
    pub(super) fn capped(&self) -> Option<&Path> {
        self.capped.as_deref()
    }

    /// Multiplies the quotas of the parts called `is_meant` by `factor`; 1 makes them what the experiment says again.
    pub(super) fn scale_quotas(&self, is_meant: impl Fn(&str) -> bool, factor: f64) -> Result<(), String> {
        for member in self.members.iter().filter(|member| is_meant(&member.part.name)) {
            if let (Some(group), Some(cores)) = (&member.cpu, member.part.quota) {
                self.set_quota_of(group, cores * factor)?;
            }
        }
        Ok(())
    }

    fn set_quota_of(&self, group: &Path, cores: f64) -> Result<(), String> {
        let quota_us = ((cores * PERIOD_US as f64).round() as u64).max(QUOTA_US_LEAST);
        match &self.layout {
            Layout::V1 { .. } => {
                set(&group.join("cpu.cfs_period_us"), &PERIOD_US.to_string())?;
                set(&group.join("cpu.cfs_quota_us"), &quota_us.to_string())
            }
            Layout::V2 { .. } => set(&group.join("cpu.max"), &format!("{quota_us} {PERIOD_US}")),
        }
    }

    fn member(&self, part: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.part.name == part)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for group in self.made.iter().rev() {
            // Who was killed takes a moment to go, and a database that crashed may have left processes behind.
            let gone = poll_until(REMOVE_MAX, &AtomicBool::new(false), || {
                let left = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
                for pid in left.lines().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
                    // It may have ended since it was listed.
                    let _ = kill_process(pid, Signal::KILL);
                }
                Ok(fs::remove_dir(group).is_ok().then_some(()))
            });
            if gone != Ok(Some(())) {
                log::warn!("{}: the control group stays", group.display());
            }
        }
    }
}

fn set(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| cannot(file, &error))
}

fn cannot(file: &Path, error: &io::Error) -> String {
    format!(
        "{}: cannot limit: {error}; run as root, or remove the limits from the experiment",
        file.display()
    )
}

#[cfg(test)]
mod tests;
