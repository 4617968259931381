//! Where this machine has its control groups, and whether they can limit what is wanted.

use super::Wanted;
use std::fs;
use std::path::PathBuf;

/// Where this machine has its control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// One tree for each controller.
    V1 {
        /// Limits memory.
        memory: Option<PathBuf>,
        /// Limits writing.
        blkio: Option<PathBuf>,
        /// Limits processor time.
        cpu: Option<PathBuf>,
    },
    /// One tree for all.
    V2 {
        /// Its root.
        root: PathBuf,
    },
}

/// The layout that can limit what is wanted.
pub(super) fn layout(mounts: &str, wanted: Wanted) -> Result<Layout, String> {
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
    let (memory, blkio, cpu) = (of_v1("memory"), of_v1("blkio"), of_v1("cpu"));
    let Wanted { memory: of_memory, cpu: of_cpu, write_cap } = wanted;
    let can =
        |memory: bool, cpu: bool, io: bool| (!of_memory || memory) && (!of_cpu || cpu) && (!write_cap || io);
    if can(memory.is_some(), cpu.is_some(), blkio.is_some()) {
        return Ok(Layout::V1 { memory, blkio, cpu });
    }
    let controllers = v2.as_ref().map(|root| fs::read_to_string(root.join("cgroup.controllers")));
    let controllers = controllers.and_then(Result::ok).unwrap_or_default();
    let has = |name: &str| controllers.split_ascii_whitespace().any(|known| known == name);
    match v2 {
        Some(root) if can(has("memory"), has("cpu"), has("io")) => Ok(Layout::V2 { root }),
        _ => {
            let needed = [(of_memory, "memory"), (of_cpu, "processor time"), (write_cap, "disk")];
            let needed: Vec<&str> = needed.iter().filter(|(is, _)| *is).map(|(_, name)| *name).collect();
            Err(format!(
                "this machine has no control groups for {} (neither v1 memory, cpu and blkio nor v2 memory, cpu and io); \
                 remove the limits, quotas and write caps from the experiment",
                needed.join(" and ")
            ))
        }
    }
}
