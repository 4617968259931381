//! How much memory there is, and the memory budget that follows.

use std::fs::read_to_string;
use std::path::Path;

/// The least budget that is chosen, and the one where it is not known how much memory there is.
const BUDGET_MIN: u64 = 64 << 20;
const BUDGET_UNKNOWN: u64 = 256 << 20;

/// The budget where none is given: a quarter of the memory that a cache of `cache_bytes` leaves, in whole MiB.
pub(super) fn budget(cache_bytes: u64) -> usize {
    usize::try_from(budget_of(available(), cache_bytes)).unwrap_or(usize::MAX)
}

fn budget_of(available: Option<u64>, cache_bytes: u64) -> u64 {
    let quarter = |bytes: u64| (bytes.saturating_sub(cache_bytes) / 4) >> 20 << 20;
    available.map_or(BUDGET_UNKNOWN, |bytes| quarter(bytes).max(BUDGET_MIN))
}

/// The machine's memory in bytes, or the limit of this process's control group if that is less.
fn available() -> Option<u64> {
    let memory = read_to_string("/proc/meminfo").unwrap_or_default();
    let total = memory.lines().find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB"));
    let total = total.and_then(|kib| kib.trim().parse::<u64>().ok()).map(|kib| kib << 10);
    let groups = read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = groups.lines().filter_map(|line| limit(line, Path::new("/sys/fs/cgroup")));
    limits.chain(total).min()
}

/// The least limit on the way from the group in a line of `/proc/self/cgroup` up to the root.
fn limit(line: &str, root: &Path) -> Option<u64> {
    let mut parts = line.splitn(3, ':').skip(1);
    let (root, file) = match parts.next()? {
        "" => (root.to_owned(), "memory.max"),
        controllers if controllers.split(',').any(|name| name == "memory") => {
            (root.join("memory"), "memory.limit_in_bytes")
        }
        _ => return None,
    };
    let group = Path::new(parts.next()?.trim_start_matches('/'));
    // In a container the path may be that of the host, and only the root is there.
    let limits = group.ancestors().filter_map(|at| read_to_string(root.join(at).join(file)).ok());
    // `max` is no limit.
    limits.filter_map(|text| text.trim().parse().ok()).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_a_quarter_of_what_the_cache_leaves() {
        const GIB: u64 = 1 << 30;
        for (available, cache, budget) in [
            (Some(5 * GIB), GIB, GIB),
            (Some(5 * GIB + 4000), GIB, GIB),
            (Some(GIB), 2 * GIB, BUDGET_MIN),
            (None, GIB, BUDGET_UNKNOWN),
        ] {
            assert_eq!(budget_of(available, cache), budget);
        }
        assert!(available().is_some_and(|bytes| bytes > 64 << 20));
    }

    #[test]
    fn the_limit_of_any_group_above_counts() {
        let root = tempfile::tempdir().unwrap();
        for (group, file, text) in [
            ("a/b", "memory.max", "max\n"),
            ("a", "memory.max", "1000\n"),
            ("memory/c/d", "memory.limit_in_bytes", "7\n"),
            ("memory", "memory.limit_in_bytes", "9223372036854771712\n"),
        ] {
            std::fs::create_dir_all(root.path().join(group)).unwrap();
            std::fs::write(root.path().join(group).join(file), text).unwrap();
        }
        for (line, expected) in [
            ("0::/a/b", Some(1000)),
            ("0::/", None),
            ("5:memory:/c/d", Some(7)),
            ("5:cpu,memory:/elsewhere", Some(9_223_372_036_854_771_712)),
            ("5:cpu:/c/d", None),
            ("", None),
        ] {
            assert_eq!(limit(line, root.path()), expected, "{line}");
        }
    }
}
