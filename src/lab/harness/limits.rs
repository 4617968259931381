//! What a set of processes may use: memory and writing, limited by control groups, version 1 or 2.
//!
//! The groups are made for one run and removed with their owner, who must have ended the processes first. Nothing is
//! limited by hope: a cap is tried out before it is relied on, and a machine that cannot limit is told so.

use super::process::look_until;
use crate::lab::sampler::descendants;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// What the probe writes at once, in bytes.
const PROBE_BLOCK_BYTES: u64 = 64 << 10;
/// The probe writes for about so long under a cap.
const PROBE_SECS: u64 = 2;
/// How long a group may take to be empty.
const REMOVE_MAX: Duration = Duration::from_secs(2);
/// A cap that lets through more than this many times itself does not hold.
const PROBE_TOLERANCE: f64 = 1.25;

/// The limits of a run.
#[derive(Debug)]
pub(super) struct Limits {
    layout: Layout,
    /// The group whose writes are capped together.
    capped: Option<PathBuf>,
    /// For each part the files that take a process in.
    doors: Vec<Vec<PathBuf>>,
    /// Every group made, children behind their parents.
    made: Vec<PathBuf>,
}

/// Where this machine has its control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Layout {
    /// One tree for each controller.
    V1 { memory: Option<PathBuf>, blkio: Option<PathBuf> },
    /// One tree for all.
    V2 { root: PathBuf },
}

/// Who is limited.
#[derive(Clone, Debug)]
pub(super) struct Part {
    /// Its name.
    pub(super) name: String,
    /// Whether a write cap holds for it.
    pub(super) capped: bool,
}

/// What is to be limited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// Bytes of memory of each part.
    pub(super) memory: Option<u64>,
    /// Whether writing will be capped at some time.
    pub(super) write_cap: bool,
}

impl Limits {
    /// Makes the groups for `parts`; `None` where nothing is to be limited.
    pub(super) fn new(parts: &[Part], wanted: Wanted) -> Result<Option<Limits>, String> {
        if wanted.memory.is_none() && !wanted.write_cap {
            return Ok(None);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let layout = layout(&mounts, wanted)?;
        let mut limits = Limits { layout, capped: None, doors: Vec::new(), made: Vec::new() };
        let name = format!("weir-lab-{}", std::process::id());
        match limits.layout.clone() {
            Layout::V1 { memory, blkio } => limits.make_v1(&name, parts, wanted, memory, blkio)?,
            Layout::V2 { root } => limits.make_v2(&name, parts, wanted, &root)?,
        }
        Ok(Some(limits))
    }

    fn make_v1(
        &mut self,
        name: &str,
        parts: &[Part],
        wanted: Wanted,
        memory: Option<PathBuf>,
        blkio: Option<PathBuf>,
    ) -> Result<(), String> {
        if let Some(root) = blkio.filter(|_| wanted.write_cap) {
            self.capped = Some(self.make(root.join(name))?);
        }
        for part in parts {
            let capped = self.capped.iter().filter(|_| part.capped);
            let mut doors: Vec<PathBuf> = capped.map(|group| group.join("cgroup.procs")).collect();
            if let (Some(bytes), Some(root)) = (wanted.memory, &memory) {
                let group = self.make(root.join(format!("{name}-{}", part.name)))?;
                set(&group.join("memory.limit_in_bytes"), &bytes.to_string())?;
                doors.push(group.join("cgroup.procs"));
            }
            self.doors.push(doors);
        }
        Ok(())
    }

    fn make_v2(&mut self, name: &str, parts: &[Part], wanted: Wanted, root: &Path) -> Result<(), String> {
        // A controller works in a group only if every group above has handed it down.
        let hand_down = |group: &Path| {
            for (controller, is_wanted) in [("+io", wanted.write_cap), ("+memory", wanted.memory.is_some())] {
                if is_wanted {
                    set(&group.join("cgroup.subtree_control"), controller)?;
                }
            }
            Ok::<(), String>(())
        };
        hand_down(root)?;
        let (shared, others) =
            (self.make(root.join(name))?, self.make(root.join(format!("{name}-uncapped")))?);
        if wanted.memory.is_some() {
            for above in [&shared, &others] {
                set(&above.join("cgroup.subtree_control"), "+memory")?;
            }
        }
        for part in parts {
            // Processes may only be in groups without children.
            let above = if part.capped { &shared } else { &others };
            let group = self.make(above.join(&part.name))?;
            if let Some(bytes) = wanted.memory {
                set(&group.join("memory.max"), &bytes.to_string())?;
            }
            self.doors.push(vec![group.join("cgroup.procs")]);
        }
        self.capped = wanted.write_cap.then_some(shared);
        Ok(())
    }

    fn make(&mut self, group: PathBuf) -> Result<PathBuf, String> {
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

    /// Puts the process `root` and all below it under the limits of part `index`. What they start later is, too.
    pub(super) fn take(&self, index: usize, root: u32) -> Result<(), String> {
        let Some(doors) = self.doors.get(index) else { return Ok(()) };
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

    /// Tries a cap out: what `dd` gets through under it, in bytes a second, writing to a file in `dir`. An error where
    /// the cap does not hold.
    pub(super) fn probe(&self, device: &str, cap: u64, dir: &Path) -> Result<f64, String> {
        let Some(door) = self.doors.first().and_then(|doors| doors.first()) else {
            return Err("nothing is limited here".into());
        };
        self.cap_writes(device, Some(cap))?;
        let file = dir.join("weir-probe");
        let blocks = (cap * PROBE_SECS / PROBE_BLOCK_BYTES).max(8);
        let mut command = Command::new("sh");
        // In the group before its first write. Each block is on the disk before the next.
        command
            .args([
                "-c",
                "echo $$ > \"$0\" && exec dd if=/dev/zero of=\"$1\" bs=\"$2\" count=\"$3\" oflag=dsync",
            ])
            .args([door.as_os_str(), file.as_os_str()])
            .args([PROBE_BLOCK_BYTES.to_string(), blocks.to_string()])
            .stdin(Stdio::null());
        let start = Instant::now();
        let output = command.output();
        let secs = start.elapsed().as_secs_f64();
        // There is none if dd could not begin.
        let _ = fs::remove_file(&file);
        self.cap_writes(device, None)?;
        let output = output.map_err(|error| format!("cannot start dd: {error}; install coreutils"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "dd failed under the write cap: {}",
                said.lines().last().unwrap_or_default()
            ));
        }
        let written = (blocks * PROBE_BLOCK_BYTES) as f64 / secs;
        if written > PROBE_TOLERANCE * cap as f64 {
            return Err(format!(
                "the write cap does not hold here: {:.1} MB/s went through a cap of {:.1} MB/s on {device}; \
                 use another disk, or remove write_cap",
                written / 1e6,
                cap as f64 / 1e6
            ));
        }
        Ok(written)
    }
}

impl Drop for Limits {
    fn drop(&mut self) {
        for group in self.made.iter().rev() {
            // Who was killed takes a moment to go, and a database that crashed may have left processes behind.
            let gone = look_until(REMOVE_MAX, &AtomicBool::new(false), || {
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

/// The layout that can limit what is wanted.
fn layout(mounts: &str, wanted: Wanted) -> Result<Layout, String> {
    let v2 = mounts.lines().find_map(|line| {
        let (mount, system) = line.split_once(" - ")?;
        system.starts_with("cgroup2 ").then(|| mount.split(' ').nth(4)).flatten().map(PathBuf::from)
    });
    let of_v1 = |controller: &str| {
        mounts.lines().find_map(|line| {
            let (mount, system) = line.split_once(" - ")?;
            let options = system.strip_prefix("cgroup ")?.split(' ').nth(1)?;
            let has = options.split(',').any(|option| option == controller);
            has.then(|| mount.split(' ').nth(4)).flatten().map(PathBuf::from)
        })
    };
    let (memory, blkio) = (of_v1("memory"), of_v1("blkio"));
    let v1_does = (wanted.memory.is_none() || memory.is_some()) && (!wanted.write_cap || blkio.is_some());
    if v1_does {
        return Ok(Layout::V1 { memory, blkio });
    }
    let controllers = v2.as_ref().map(|root| fs::read_to_string(root.join("cgroup.controllers")));
    let controllers = controllers.and_then(Result::ok).unwrap_or_default();
    let has = |name: &str| controllers.split_ascii_whitespace().any(|known| known == name);
    match v2 {
        Some(root) if (wanted.memory.is_none() || has("memory")) && (!wanted.write_cap || has("io")) => {
            Ok(Layout::V2 { root })
        }
        _ => Err("this machine has no control groups for memory or disk (neither v1 memory and blkio nor v2 memory \
                  and io); remove the limits from the experiment"
            .into()),
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
mod tests {
    use super::*;

    const V1: &str = "40 24 0:33 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      41 24 0:34 / /sys/fs/cgroup/blkio rw - cgroup cgroup rw,blkio\n";

    #[test]
    fn the_layout_is_the_one_that_can() {
        let wanted = Wanted { memory: Some(1), write_cap: true };
        let (memory, blkio) = (Some("/sys/fs/cgroup/memory".into()), Some("/sys/fs/cgroup/blkio".into()));
        assert_eq!(layout(V1, wanted), Ok(Layout::V1 { memory, blkio }));
        let without_blkio = V1.lines().next().unwrap();
        assert!(layout(without_blkio, wanted).unwrap_err().contains("no control groups"));
        let root = tempfile::tempdir().unwrap();
        let v2 = format!("30 1 0:26 / {} rw - cgroup2 cgroup2 rw\n", root.path().display());
        assert!(layout(&v2, wanted).is_err(), "a tree without the controllers limits nothing");
        fs::write(root.path().join("cgroup.controllers"), "cpuset cpu io memory\n").unwrap();
        assert_eq!(layout(&v2, wanted), Ok(Layout::V2 { root: root.path().to_owned() }));
    }

    /// Version 2 cannot be tried on a machine with version 1: what would be written is looked at instead.
    #[test]
    fn under_version_2_parts_are_children_of_the_group_that_is_capped() {
        let root = tempfile::tempdir().unwrap();
        let layout = Layout::V2 { root: root.path().to_owned() };
        let mut limits = Limits { layout, capped: None, doors: Vec::new(), made: Vec::new() };
        let part = |name: &str, capped| Part { name: name.to_owned(), capped };
        let parts = [part("database-1", true), part("database-2", true), part("replica", false)];
        let wanted = Wanted { memory: Some(500_000_000), write_cap: true };
        limits.make_v2("weir-lab-1", &parts, wanted, root.path()).unwrap();
        limits.cap_writes("254:0", Some(10 << 20)).unwrap();
        let shared = root.path().join("weir-lab-1");
        let read = |file: PathBuf| fs::read_to_string(file).unwrap();
        assert_eq!(read(shared.join("io.max")), "254:0 wbps=10485760");
        assert_eq!(read(shared.join("database-2/memory.max")), "500000000");
        assert_eq!(limits.doors[1], [shared.join("database-2/cgroup.procs")]);
        assert_eq!(limits.doors[2], [root.path().join("weir-lab-1-uncapped/replica/cgroup.procs")]);
        limits.cap_writes("254:0", None).unwrap();
        assert_eq!(read(shared.join("io.max")), "254:0 wbps=max");
        limits.made.clear();
    }

    #[test]
    fn under_version_1_each_controller_has_groups_of_its_own_and_only_some_parts_are_capped() {
        let root = tempfile::tempdir().unwrap();
        let (memory, blkio) = (root.path().join("memory"), root.path().join("blkio"));
        fs::create_dir(&memory).unwrap();
        fs::create_dir(&blkio).unwrap();
        let layout = Layout::V1 { memory: Some(memory.clone()), blkio: Some(blkio.clone()) };
        let mut limits = Limits { layout, capped: None, doors: Vec::new(), made: Vec::new() };
        let part = |name: &str, capped| Part { name: name.to_owned(), capped };
        let parts = [part("database", true), part("replica", false)];
        let wanted = Wanted { memory: Some(500_000_000), write_cap: true };
        limits.make_v1("weir-lab-1", &parts, wanted, Some(memory.clone()), Some(blkio.clone())).unwrap();
        let memory_of = |part: &str| memory.join(format!("weir-lab-1-{part}/cgroup.procs"));
        assert_eq!(limits.doors[0], [blkio.join("weir-lab-1/cgroup.procs"), memory_of("database")]);
        assert_eq!(limits.doors[1], [memory_of("replica")]);
        limits.cap_writes("254:0", Some(10 << 20)).unwrap();
        let file = blkio.join("weir-lab-1/blkio.throttle.write_bps_device");
        assert_eq!(fs::read_to_string(file).unwrap(), "254:0 10485760");
        limits.made.clear();
    }

    #[test]
    fn nothing_wanted_makes_nothing() {
        assert!(Limits::new(&[], Wanted::default()).unwrap().is_none());
    }
}
