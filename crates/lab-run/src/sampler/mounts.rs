//! The mounted file systems, from `/proc/self/mountinfo`.

use std::fs;
use std::path::{Path, PathBuf};

/// A mounted file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mount {
    /// What of the file system is mounted.
    pub(crate) root: PathBuf,
    /// Where it is mounted.
    pub(crate) point: PathBuf,
    /// `ext4`, `tmpfs`, `overlay`, …
    pub(crate) kind: String,
    /// The device, or what stands in its place.
    pub(crate) source: String,
    /// Options of the mount and of the file system.
    pub(crate) options: String,
}

impl Mount {
    /// Whether `name` is one of its options.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.options.split(',').any(|option| option == name)
    }
}

/// All of them.
pub(crate) fn mounts() -> Vec<Mount> {
    parse(&fs::read_to_string("/proc/self/mountinfo").unwrap_or_default())
}

/// The file system that holds `path`: the mount with the longest point above it; of several on one point the last, which hides the
/// others.
pub(crate) fn mount_of(path: &Path) -> Option<Mount> {
    above(mounts(), &fs::canonicalize(path).ok()?)
}

fn above(mounts: Vec<Mount>, path: &Path) -> Option<Mount> {
    let above = mounts.into_iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.components().count())
}

pub(crate) fn parse(text: &str) -> Vec<Mount> {
    text.lines().filter_map(parse_line).collect()
}

/// `27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard`.
fn parse_line(line: &str) -> Option<Mount> {
    let (mount, system) = line.split_once(" - ")?;
    let [_, _, _, root, point, options, ..] = mount.split(' ').collect::<Vec<_>>()[..] else { return None };
    let [kind, source, further] = system.split(' ').collect::<Vec<_>>()[..] else { return None };
    let path = |text: &str| PathBuf::from(text.replace("\\040", " "));
    let mut all: Vec<&str> = options.split(',').collect();
    all.extend(
        further.split(',').filter(|of| !of.is_empty() && options.split(',').all(|known| known != *of)),
    );
    let (kind, source, options) = (kind.to_owned(), source.to_owned(), all.join(","));
    Some(Mount { root: path(root), point: path(point), kind, source, options })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_belongs_to_the_deepest_mount_above_it() {
        let text = "27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw,discard\n\
                    31 27 0:28 / /data rw,relatime - tmpfs none rw,mode=755\n\
                    32 27 0:29 / /my\\040disk rw - xfs /dev/sdb rw\n";
        for (path, kind, options) in [
            ("/data/store", "tmpfs", "rw,relatime,mode=755"),
            ("/database", "ext4", "rw,relatime,discard"),
            ("/my disk/a", "xfs", "rw"),
        ] {
            let mount = above(parse(text), Path::new(path)).unwrap();
            assert_eq!((mount.kind.as_str(), mount.options.as_str()), (kind, options), "{path}");
        }
    }
}
