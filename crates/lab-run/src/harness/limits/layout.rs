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
    /// The tree of each of [`CONTROLLERS`].
    pub(super) roots: [Option<PathBuf>; 3],
}

/// The layout that can limit what is wanted.
pub(super) fn layout(mounts: &[Mount], wanted: Wanted) -> Result<Layout, Error> {
    let of = |is_meant: &dyn Fn(&Mount) -> bool| {
        mounts.iter().find(|mount| is_meant(mount)).map(|mount| mount.point.clone())
    };
    let v1 = CONTROLLERS.map(|(name, ..)| of(&|mount| mount.kind == "cgroup" && mount.has(name)));
    let root = of(&|mount| mount.kind == "cgroup2");
    let controllers = root.as_ref().map(|root| fs::read_to_string(root.join("cgroup.controllers")));
    let controllers = controllers.and_then(Result::ok).unwrap_or_default();
    let has = |name: &str| controllers.split_ascii_whitespace().any(|known| known == name);
    let v2 = CONTROLLERS.map(|(_, name, _)| root.clone().filter(|_| has(name)));
    let layouts = [Layout { is_v2: false, roots: v1 }, Layout { is_v2: true, roots: v2 }];
    let can =
        |of: &Layout| wanted.iter().zip(&of.roots).all(|(is_wanted, root)| !is_wanted || root.is_some());
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
