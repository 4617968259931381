//! Where this machine has its control groups, and whether they can limit what is wanted.

use crate::sampler::Mount;
use kv::Error;
use std::fs;
use std::path::PathBuf;

/// What can be limited: its controller in version 1 and in version 2, and in words.
pub(super) const CONTROLLERS: [(&str, &str, &str); 3] =
    [("memory", "memory", "memory"), ("cpu", "cpu", "processor time"), ("blkio", "io", "disk")];

/// Which of [`CONTROLLERS`] are needed.
pub(super) type Wanted = [bool; 3];

/// Where this machine has its control groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Layout {
    /// Whether one tree is for all.
    pub(super) is_v2: bool,
    /// The tree of each of [`CONTROLLERS`] that is needed.
    pub(super) roots: [Option<PathBuf>; 3],
}

/// The layout that can limit what is wanted.
pub(super) fn layout(mounts: &[Mount], wanted: Wanted) -> Result<Layout, Error> {
    let root = |is_v2: bool, at: usize| {
        let mut found = mounts.iter().filter(|mount| wanted[at] && has(mount, is_v2, CONTROLLERS[at]));
        found.next().map(|mount| mount.point.clone())
    };
    let layouts = [false, true].map(|is_v2| Layout { is_v2, roots: [0, 1, 2].map(|at| root(is_v2, at)) });
    let can = |of: &Layout| of.roots.each_ref().map(Option::is_some) == wanted;
    layouts.into_iter().find(can).ok_or_else(|| {
        let needed = CONTROLLERS.iter().zip(wanted).filter(|(_, is_wanted)| *is_wanted);
        let needed: Vec<&str> = needed.map(|((.., words), _)| *words).collect();
        Error::new(format_args!(
            "this machine has no control groups for {} (neither v1 memory, cpu and blkio nor v2 memory, cpu and io)",
            needed.join(" and ")
        ))
        .hint("remove the limits, quotas and write caps from the experiment")
    })
}

/// Whether `mount` is the tree of a controller.
fn has(mount: &Mount, is_v2: bool, (v1, v2, _): (&str, &str, &str)) -> bool {
    if !is_v2 {
        return mount.kind == "cgroup" && mount.has(v1);
    }
    let controllers = fs::read_to_string(mount.point.join("cgroup.controllers")).unwrap_or_default();
    mount.kind == "cgroup2" && controllers.split_ascii_whitespace().any(|known| known == v2)
}
