//! The disk that holds the data, from `/proc/diskstats`.
//!
//! Busy time of a disk that works in parallel is no utilization: it is read to be printed, not to conclude from.

use super::mounts::mount_of;
use super::{Context, Reading, Sampler, numbers, of_file};
use rustix::fs::{major, minor};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SECTOR_BYTES: f64 = 512.0;

/// Counter, its field behind the device's name (Linux `Documentation/admin-guide/iostats.rst`), and the unit of that.
const COUNTERS: &[(&str, usize, f64)] = &[
    ("reads", 0, 1.0),
    ("read_bytes", 2, SECTOR_BYTES),
    ("writes", 4, 1.0),
    ("written_bytes", 6, SECTOR_BYTES),
    ("busy_secs", 9, 1e-3),
    ("queue_secs", 10, 1e-3),
    ("flushes", 15, 1.0),
];

pub(super) fn make(context: &Context) -> Option<Sampler> {
    let device = device_of(context.data.as_deref()?)?;
    Some(of_file("/proc/diskstats", move |text, into| parse(text, &device, into)))
}

/// The kernel's name of the whole disk under `path`: `vda`. `None` for file systems in memory or of several layers.
pub(crate) fn device_of(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.dev();
    // btrfs and its like have a number that no block device has; the mount table then names the device.
    let node =
        sysfs_node(number).or_else(|| sysfs_node(fs::metadata(mount_of(path)?.source).ok()?.rdev()))?;
    // A partition counts less than its disk, whose queue it shares.
    let disk = if node.join("partition").exists() { node.parent()? } else { node.as_path() };
    Some(disk.file_name()?.to_str()?.to_owned())
}

fn sysfs_node(number: u64) -> Option<PathBuf> {
    fs::canonicalize(format!("/sys/dev/block/{}:{}", major(number), minor(number))).ok()
}

/// The line of `device`.
fn parse(text: &str, device: &str, into: &mut Reading) {
    let name = format!(" {device} ");
    let fields = text.lines().find_map(|line| Some(numbers(line.split_once(&name)?.1))).unwrap_or_default();
    for (name, field, unit) in COUNTERS {
        // Kernels before 5.5 count no flushes.
        if let Some(value) = fields.get(*field) {
            into.count(format!("disk.{device}.{name}"), value * unit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_read_in_bytes_and_seconds() {
        let text = " 254       0 vda 38719 11148 6486458 17629 14251 29651 6248984 20903 0 7660 39012 7282 32 345944 437 1116 41\n";
        let short = " 254       0 vda 38719 11148 6486458 17629 14251 29651 6248984 20903 0 7660 39012\n";
        let mut reading = Reading::default();
        parse(text, "vda", &mut reading);
        let read: Vec<_> = reading.counters.iter().map(|(name, value)| (name.as_str(), *value)).collect();
        assert_eq!(
            read,
            [
                ("disk.vda.busy_secs", 7.66),
                ("disk.vda.flushes", 1116.0),
                ("disk.vda.queue_secs", 39.012),
                ("disk.vda.read_bytes", 3321066496.0),
                ("disk.vda.reads", 38719.0),
                ("disk.vda.writes", 14251.0),
                ("disk.vda.written_bytes", 3199479808.0),
            ]
        );
        let mut reading = Reading::default();
        parse(short, "vda", &mut reading);
        assert!(
            !reading.counters.contains_key("disk.vda.flushes"),
            "an old kernel's missing field is no zero"
        );
        let mut reading = Reading::default();
        parse(text, "vd", &mut reading);
        assert_eq!(reading, Reading::default());
    }
}
