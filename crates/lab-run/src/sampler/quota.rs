//! The processor time that control groups leave the parts: the tightest quota above each, and how often it held.
//!
//! Sources: Linux `Documentation/scheduler/sched-bwc.rst` (version 1) and `admin-guide/cgroup-v2.rst` (`cpu.max`, `cpu.stat`).
//! A quota that is imposed above a group holds for all in it together; a part without any has no counters.

use super::mounts::{Mount, mounts};
use super::{Context, Sampler, value_of};
use std::fs;
use std::path::{Path, PathBuf};

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let parts = Some(context.parts.clone()).filter(|parts| !parts.is_empty())?;
    Some(Box::new(move |into| {
        for (part, pid) in &parts {
            if let Some(held) = of_process(*pid) {
                into.gauge(format!("{part}.quota_cores"), held.cores);
                into.count(format!("{part}.throttled_secs"), held.throttled_secs);
                into.count(format!("{part}.throttled_periods"), held.throttled_periods);
                into.count(format!("{part}.quota_periods"), held.periods);
            }
        }
        Ok(())
    }))
}

/// The tightest quota over the process `pid`, in cores.
pub(crate) fn quota_cores(pid: u32) -> Option<f64> {
    of_process(pid).map(|held| held.cores)
}

fn of_process(pid: u32) -> Option<Held> {
    // A process that has ended is in no group.
    tightest(&mounts(), &fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?)
}

/// A quota and how often it held.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Held {
    /// Seconds of processor time in a second.
    cores: f64,
    periods: f64,
    /// Those in which there was less than was wanted.
    throttled_periods: f64,
    /// Time in which processes had to stand still, summed over the cores they would have run on.
    throttled_secs: f64,
}

/// Where a hierarchy with processor quotas is, and how it writes them.
#[derive(Clone, Copy, Debug)]
struct Version {
    /// The type of its mount.
    kind: &'static str,
    /// The controller that stands in its mount's options and in `/proc/PID/cgroup`; version 2 has one hierarchy for all.
    controller: Option<&'static str>,
    /// The quota of a group, in cores' worth of time.
    cores: fn(&Path) -> Option<f64>,
    /// What `cpu.stat` calls the time, and its unit.
    throttled: (&'static str, f64),
}

const VERSIONS: [Version; 2] = [
    Version {
        kind: "cgroup",
        controller: Some("cpu"),
        cores: cores_of_v1,
        throttled: ("throttled_time", 1e-9),
    },
    Version { kind: "cgroup2", controller: None, cores: cores_of_v2, throttled: ("throttled_usec", 1e-6) },
];

/// The tightest quota over a process with these `groups`, among all hierarchies and all groups above its own.
fn tightest(mounts: &[Mount], groups: &str) -> Option<Held> {
    let of_version = |version: &Version| {
        let (top, group) = place(mounts, groups, version)?;
        let above = group.ancestors().take_while(|dir| dir.starts_with(&top));
        let quotas = above.filter_map(|dir| held(dir, version)).collect::<Vec<_>>();
        quotas.into_iter().min_by(|a, b| a.cores.total_cmp(&b.cores))
    };
    VERSIONS.iter().filter_map(of_version).min_by(|a, b| a.cores.total_cmp(&b.cores))
}

/// Where the hierarchy begins, and the directory of the process's group in it.
fn place(mounts: &[Mount], groups: &str, version: &Version) -> Option<(PathBuf, PathBuf)> {
    let group = groups.lines().find_map(|line| {
        // `4:cpu,cpuacct:/user`, and of version 2 `0::/user`.
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        let is_ours = version
            .controller
            .map_or(controllers.is_empty(), |name| controllers.split(',').any(|of| of == name));
        is_ours.then_some(path)
    })?;
    let is_ours = |of: &&Mount| of.kind == version.kind && version.controller.is_none_or(|name| of.has(name));
    let places = mounts.iter().filter(is_ours).filter_map(|mount| {
        // In a namespace of its own the mount may show a part of the tree only; a group beside it cannot be read.
        let below = Path::new(group).strip_prefix(&mount.root).ok()?;
        Some((mount.point.clone(), mount.point.join(below)))
    });
    places.into_iter().next()
}

/// The quota of one group; `None` where it has none.
fn held(dir: &Path, version: &Version) -> Option<Held> {
    let cores = (version.cores)(dir)?;
    let stat = fs::read_to_string(dir.join("cpu.stat")).ok()?;
    let (name, unit) = version.throttled;
    Some(Held {
        cores,
        periods: value_of(&stat, "nr_periods")?,
        throttled_periods: value_of(&stat, "nr_throttled")?,
        throttled_secs: value_of(&stat, name)? * unit,
    })
}

/// Without a quota it is -1.
fn cores_of_v1(dir: &Path) -> Option<f64> {
    let micros = |file| fs::read_to_string(dir.join(file)).ok()?.trim().parse::<f64>().ok();
    cores(micros("cpu.cfs_quota_us")?, micros("cpu.cfs_period_us")?)
}

/// `20000 100000`, or without a quota `max 100000`.
fn cores_of_v2(dir: &Path) -> Option<f64> {
    let text = fs::read_to_string(dir.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    cores(quota.parse().ok()?, period.parse().ok()?)
}

fn cores(quota_micros: f64, period_micros: f64) -> Option<f64> {
    (quota_micros > 0.0 && period_micros > 0.0).then(|| quota_micros / period_micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::mounts::parse;

    /// What holds for a process in `group` of a hierarchy of `version` with these files, mounted from `root` on.
    fn check(version: u32, root: &str, group: &str, files: &[(&str, &str)]) -> Option<Held> {
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
        tightest(&parse(&mounts), &groups)
    }

    const V1_STAT: &str = "nr_periods 40\nnr_throttled 10\nthrottled_time 1500000000\nnr_bursts 0\n";
    const V2_STAT: &str = "usage_usec 9\nnr_periods 40\nnr_throttled 10\nthrottled_usec 1500000\n";

    fn held(cores: f64) -> Option<Held> {
        Some(Held { cores, periods: 40.0, throttled_periods: 10.0, throttled_secs: 1.5 })
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
