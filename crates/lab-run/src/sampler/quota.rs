//! The processor time that control groups leave the parts: the tightest quota above each, and how long it held.
//!
//! Sources: Linux `Documentation/scheduler/sched-bwc.rst` (version 1) and `admin-guide/cgroup-v2.rst` (`cpu.max`, `cpu.stat`).
//! A quota that is imposed above a group holds for all in it together; a part without any has no counters.

use super::mounts::{Mount, mounts};
use super::{Context, Sampler, numbers, value_of};
use lab_data::experiment::LINK;
use lab_data::results::Reading;
use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let parts = context.parts.clone();
    Some(Box::new(move |into| {
        let quotas: Vec<(&str, Held)> =
            parts.iter().filter_map(|(part, pid)| Some((part.as_str(), of_process(*pid)?))).collect();
        add(into, &quotas);
        Ok(())
    }))
}

/// The quotas of parts. One of a group in which another part is, too, is marked; the link's work counts with the generator's.
fn add(into: &mut Reading, quotas: &[(&str, Held)]) {
    for (part, held) in quotas {
        into.gauge(format!("{part}.quota_cores"), held.cores);
        into.count(format!("{part}.throttled_secs"), held.throttled_secs);
        let is_same =
            |(other, theirs): &(&str, Held)| ![part, LINK].contains(other) && theirs.group == held.group;
        if *part != LINK && quotas.iter().any(is_same) {
            into.gauge(format!("{part}.quota_shared"), 1.0);
        }
    }
}

/// The tightest quota over the process `pid`, in cores.
pub(crate) fn quota_cores(pid: u32) -> Option<f64> {
    of_process(pid).map(|held| held.cores)
}

fn of_process(pid: u32) -> Option<Held> {
    // A process that has ended is in no group.
    tightest(&mounts(), &fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// A quota and how long it held.
#[derive(Clone, Debug, PartialEq)]
struct Held {
    /// The directory of the group that has it.
    group: PathBuf,
    /// Seconds of processor time in a second.
    cores: f64,
    /// Time in which processes had to stand still, summed over the cores they would have run on.
    throttled_secs: f64,
}

/// The controller that stands in the options of its mount and in `/proc/PID/cgroup`; version 2 has one hierarchy for all.
const CONTROLLERS: [Option<&str>; 2] = [Some("cpu"), None];

/// The tightest quota over a process with these `groups`, among all hierarchies and all groups above its own.
fn tightest(mounts: &[Mount], groups: &str) -> Option<Held> {
    let places = CONTROLLERS.iter().filter_map(|controller| place(mounts, groups, *controller));
    let quotas = places.flat_map(|(top, group)| {
        let above = group.ancestors().take_while(|dir| dir.starts_with(&top));
        above.filter_map(held).collect::<Vec<_>>()
    });
    quotas.min_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// Where the hierarchy begins, and the directory of the process's group in it.
fn place(mounts: &[Mount], groups: &str, controller: Option<&str>) -> Option<(PathBuf, PathBuf)> {
    let group = groups.lines().find_map(|line| {
        // `4:cpu,cpuacct:/user`, and of version 2 `0::/user`.
        let (controllers, path) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|of| of == controller.unwrap_or_default()).then_some(path)
    })?;
    let is_ours = |of: &&Mount| match controller {
        Some(name) => of.kind == "cgroup" && of.has(name),
        None => of.kind == "cgroup2",
    };
    mounts.iter().filter(is_ours).find_map(|mount| {
        // In a namespace of its own the mount may show a part of the tree only; a group beside it cannot be read.
        let below = Path::new(group).strip_prefix(&mount.root).ok()?;
        Some((mount.point.clone(), mount.point.join(below)))
    })
}

/// The quota of one group; `None` where it has none.
fn held(dir: &Path) -> Option<Held> {
    let read = |file: &str| fs::read_to_string(dir.join(file)).ok();
    // Without a quota version 2 has `max 100000`, and version 1 has -1.
    let (limit, counter, units_per_sec) = match read("cpu.max") {
        Some(limit) => (limit, "throttled_usec", 1e6),
        None => (read("cpu.cfs_quota_us")? + &read("cpu.cfs_period_us")?, "throttled_time", 1e9),
    };
    let [quota, period] = numbers(&limit)[..] else { return None };
    let throttled_secs = value_of(&read("cpu.stat")?, counter)? / units_per_sec;
    (quota > 0.0 && period > 0.0).then(|| Held {
        group: dir.to_owned(),
        cores: quota / period,
        throttled_secs,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::mounts::parse;

    /// What holds for a process in `group` of a hierarchy of `version` with these files, mounted from `root` on: cores and seconds.
    fn check(version: u32, root: &str, group: &str, files: &[(&str, &str)]) -> Option<(f64, f64)> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let point = dir.path().display();
        let (mount, groups) = match version {
            1 => ("cgroup cgroup rw,cpu,cpuacct", format!("5:memory:/other\n4:cpu,cpuacct:{group}\n0::/\n")),
            _ => ("cgroup2 cgroup2 rw", format!("0::{group}\n")),
        };
        let mounts = format!(
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             33 31 0:30 / /nowhere rw shared:9 - cgroup cgroup rw,cpuset\n\
             32 31 0:29 {root} {point} rw,relatime shared:7 - {mount}\n"
        );
        tightest(&parse(&mounts), &groups).map(|held| (held.cores, held.throttled_secs))
    }

    const V1_STAT: &str = "nr_periods 40\nnr_throttled 10\nthrottled_time 1500000000\nnr_bursts 0\n";
    const V2_STAT: &str = "usage_usec 9\nnr_periods 40\nnr_throttled 10\nthrottled_usec 1500000\n";

    fn held(cores: f64) -> Option<(f64, f64)> {
        Some((cores, 1.5))
    }

    #[test]
    fn a_quota_is_read_from_either_version() {
        let v1 =
            [("a/cpu.cfs_quota_us", "20000\n"), ("a/cpu.cfs_period_us", "100000\n"), ("a/cpu.stat", V1_STAT)];
        assert_eq!(check(1, "/", "/a", &v1), held(0.2));
        let v2 = [("a/cpu.max", "150000 100000\n"), ("a/cpu.stat", V2_STAT)];
        assert_eq!(check(2, "/", "/a", &v2), held(1.5));
        assert_eq!(check(2, "/", "/b", &v2), None, "a quota beside it holds for others");
    }

    #[test]
    fn the_tightest_of_all_groups_above_holds() {
        let files = |own| {
            [
                ("a/cpu.max", "50000 100000\n"),
                ("a/cpu.stat", V2_STAT),
                ("a/b/cpu.max", own),
                ("a/b/cpu.stat", V2_STAT),
                ("cpu.stat", "usage_usec 9\n"),
            ]
        };
        assert_eq!(check(2, "/", "/a/b", &files("max 100000\n")), held(0.5));
        assert_eq!(check(2, "/", "/a/b", &files("20000 100000\n")), held(0.2));
        // Mounted from a group on, as in a container: what is above it cannot be seen.
        assert_eq!(check(2, "/box", "/box/a/b", &files("max 100000\n")), held(0.5));
    }

    #[test]
    fn a_quota_that_holds_for_two_parts_is_marked() {
        let held = |group: &str| Held { group: group.into(), cores: 2.0, throttled_secs: 0.0 };
        let marked = |quotas: &[(&str, Held)]| {
            let mut reading = Reading::default();
            add(&mut reading, quotas);
            let names = reading.gauges.into_keys().filter(|name| name.ends_with("shared"));
            names.collect::<Vec<_>>().join(" ")
        };
        let both = marked(&[("server", held("/box")), ("generator", held("/box"))]);
        assert_eq!(both, "generator.quota_shared server.quota_shared");
        assert_eq!(marked(&[("server", held("/box/a")), ("generator", held("/box"))]), "");
        assert_eq!(marked(&[("link", held("/box")), ("generator", held("/box"))]), "");
    }

    #[test]
    fn without_a_quota_nothing_is_said() {
        let none = [
            ("cpu.cfs_quota_us", "-1\n"),
            ("cpu.cfs_period_us", "100000\n"),
            ("cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n"),
        ];
        assert_eq!(check(1, "/", "/", &none), None);
        assert_eq!(check(2, "/", "/", &[("cpu.max", "max 100000\n"), ("cpu.stat", V2_STAT)]), None);
        assert_eq!(check(2, "/elsewhere", "/a", &[]), None);
        assert_eq!(tightest(&[], ""), None);
    }
}
